# Planning a look-up through <live>_current, on a source of 400 daily partitions
# and on one of 40, against planning the same by hand with one partition named.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $psql = session();
my %partitions = (few => 40, many => 400);
my $key = q{subject = 'vehicle-00042' AND name = 'speed'};
my %query;
for my $schema (sort keys %partitions) {
  my $last = $partitions{$schema} - 1;
  $psql->run("SELECT bench.make_source('$schema', true, 0, $last); SELECT bench.make_index('$schema')");
  $psql->run("INSERT INTO $schema.signals SELECT e.* FROM generate_series(0, $last) d, bench.events(d, 100, 0) e");
  $psql->run("ANALYZE $schema.signals");
  $psql->run("SELECT bench.make_rollup('$schema', 'on'); SELECT bench.refresh('$schema', $last); ANALYZE $schema.signals_latest");
  expect('rows that rollup_verify finds', $psql->run("SELECT count(*) FROM rollup_verify('$schema.signals_latest')"), 0);
  $query{$schema} = "SELECT * FROM $schema.signals_latest_current WHERE $key";
  ($query{one} = $psql->run("SELECT bench.current_by_hand('$schema', $last, \$q\$AND $key\$q\$)")) =~ s/FROM $schema\.signals /FROM $schema.signals_$last /;
}
sub planning {
  my ($query) = @_;
  my $said = $psql->run("EXPLAIN (SUMMARY) $query;\n" x 20);
  return median($said =~ /^Planning Time: ([\d.]+) ms/mg);
}
planning($_) for values %query;
my %ms = interleave(map { my $query = $query{$_}; ($_ => sub { planning($query) }) } sort keys %query);
result('planning of _current, 400 partitions', 'the same by hand on one partition', $ms{many} / $ms{one}, '<= 2');
result('planning of _current, 400 partitions', '40 partitions', $ms{many} / $ms{few}, '<= 1.1');
$psql->run("SELECT rollup_drop('$_.signals_latest', true)") for sort keys %partitions;
$psql->run("DROP SCHEMA $_ CASCADE") for sort keys %partitions;
