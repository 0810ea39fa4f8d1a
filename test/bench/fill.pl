# The latency of a commit while a day fills, and the next: mode on, mode off, a
# trigger by hand that merges, one that computes a key from the day's rows, and
# no rollup at all.  Writes the series for the chart to fill.tsv, each figure
# as a multiple of the median without a rollup.
# The day's end against its beginning: less what it grows without a rollup.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $psql = session();
my $a_day = int($rows / 8);
my $subjects = int($a_day / 200) || 1;    # so that a key has ten rows a day, as it has in the lake
my $batches = 120;               # a day
my $batch = int($a_day / $batches);
my @variants = (none => 'no rollup', on => 'mode on', off => 'mode off', merge => 'trigger that merges', day => 'trigger over the day');
my %title = @variants;
my @schemas = grep { $title{$_} } @variants;

checkpoint();                    # the last: else the first writes after one are the dearest
$psql->run("CREATE TABLE bench.arrivals AS SELECT (row_number() OVER (PARTITION BY d) - 1) / $batch AS batch, d, e.* FROM generate_series(3, 4) d, bench.events(d, $batch * $batches, 0.008, $subjects) e;
  CREATE INDEX ON bench.arrivals (d, batch); VACUUM ANALYZE bench.arrivals");
for (@schemas) {
  $psql->run("SELECT bench.make_source('fill_$_', true, 0, 5)");
  $psql->run("INSERT INTO fill_$_.signals SELECT * FROM bench.events(2, $a_day, 0, $subjects)");
  $psql->run("SELECT bench.make_index('fill_$_'); VACUUM ANALYZE fill_$_.signals");
}
$psql->run("SELECT bench.make_rollup('fill_on', 'on'); SELECT bench.refresh('fill_on', 3)");
$psql->run("SELECT bench.make_rollup('fill_off', 'off'); CALL rollup_run('fill_off.signals_latest')");
$psql->run("SELECT bench.make_trigger('fill_merge'); SELECT bench.make_day_trigger('fill_day')");

my %taken;
for my $day (3, 4) {
  $psql->run("SELECT bench.midnight_passes('fill_day', $day)");
  $psql->run("SELECT bench.refresh('fill_on', $day)");
  settle($psql, map { ("fill_$_.signals", $_ eq 'none' ? () : "fill_$_.signals_latest") } @schemas);
  for my $n (0 .. $batches - 1) {
    for (@schemas) {
      push @{ $taken{$_} }, ($psql->time("INSERT INTO fill_$_.signals SELECT subject, name, \"timestamp\", value_number, value_string, loc_lat, loc_lon, cloud_event_id
        FROM bench.arrivals WHERE d = $day AND batch = $n"))[0];
    }
  }
}
$psql->run("SELECT bench.refresh('fill_on', 5)");
for (qw(on off)) {
  expect("$_: rows that rollup_verify finds", $psql->run("SELECT count(*) FROM rollup_verify('fill_$_.signals_latest')"), 0);
}
for (qw(on merge day)) {
  expect("$_: differences", $psql->run("SELECT bench.differences('TABLE fill_off.signals_latest', 'TABLE fill_$_.signals_latest')"), 0);
}

my $floor = median(@{ $taken{none} });
my $tenth = int($batches / 10);
# the median of a tenth of each day, from this batch on
sub tenth {
  my ($schema, $from) = @_;
  return median(map { @{ $taken{$schema} }[ $_ + $from .. $_ + $from + $tenth - 1 ] } 0, $batches);
}
open my $out, '>', scratch('fill.tsv') or die "fill.tsv: $!\n";
for my $schema (@schemas) {
  my @ms = @{ $taken{$schema} };
  print $out join("\t", $title{$schema}, $_ / $batches, sprintf('%.4f', $ms[$_] / $floor)), "\n" for 0 .. $#ms;
  next if $schema eq 'none';
  result("commit of $batch rows, $title{$schema}", 'no rollup', median(@ms) / $floor, '');
  my ($first, $last) = map { tenth($schema, $_) / tenth('none', $_) } 0, $batches - $tenth;
  result("commit of $batch rows, $title{$schema}: at the day's end", 'at its beginning', $last / $first, $schema eq 'on' ? '<= 1.1' : '');
}
close $out;
$psql->run("SELECT rollup_drop('fill_$_.signals_latest', true)") for qw(on off);
$psql->run("DROP SCHEMA fill_$_ CASCADE") for @schemas;
$psql->run('DROP TABLE bench.arrivals');
