# A refresh with 1% late rows over the two days before, with a year of daily
# partitions behind it, against the same with three days.  Of the year all days
# but the last three are thin, a hundredth of the others.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $psql = session();
my $full = int($rows / 4);
my $thin = int($full / 100);
my $day = 365;                 # the one to be refreshed
my %first = (year => 0, three => $day - 3);

for my $schema (sort keys %first) {
  note("$schema: days $first{$schema} to $day, $full rows a day, $thin before the last three");
  $psql->run("SELECT bench.make_source('$schema', true, $first{$schema} - 3, $day)");
  $psql->run("INSERT INTO $schema.signals SELECT e.* FROM generate_series($first{$schema}, $day - 4) d, bench.events(d, $thin) e;
    INSERT INTO $schema.signals SELECT e.* FROM generate_series($day - 3, $day) d, bench.events(d, $full) e");
  $psql->run("SELECT bench.make_index('$schema')");
  $psql->run("VACUUM ANALYZE $schema.signals");
  $psql->run("SELECT bench.make_rollup('$schema', 'on'); SELECT bench.refresh('$schema', $day); VACUUM ANALYZE $schema.signals_latest");
}

sub arrive {
  my ($schema) = @_;
  return qq{INSERT INTO $schema.signals
    SELECT subject, name, "timestamp" - interval '24 hours' * (1 + abs(hashtext(cloud_event_id) % 2)),
      value_number, value_string, loc_lat, loc_lon, 'late-' || cloud_event_id
    FROM bench.events($day, $full, 0) WHERE bench.random(hashtext(cloud_event_id), 9) < 0.01};
}
my %said;
sub refresh {
  my ($schema, $and) = @_;
  my ($ms, $said) = in_transaction($psql, "SELECT * FROM bench.refresh('$schema', $day + 1)$and", arrive($schema));
  expect("$schema: a refresh", $said, $said{$schema}) if $said{$schema} && !$and;
  settle($psql, "$schema.signals", "$schema.signals_latest");
  return ($ms, $said);
}
for (sort keys %first) {
  my (undef, $said) = refresh($_, "; SELECT count(*) FROM rollup_verify('$_.signals_latest')");
  ($said{$_}) = $said =~ /^(fold\|\d+\|[1-9]\d*)\n0$/ or die "year.pl: $said\n";
}
expect('late and folded keys', $said{year}, $said{three});
my %ms = interleave(map { my $schema = $_; ($schema => sub { (refresh($schema, ''))[0] }) } sort keys %first);
result("refresh of $full rows and 1% late, a year behind it", 'with three days behind it', $ms{year} / $ms{three}, '<= 1.2');
$psql->run("SELECT rollup_drop('$_.signals_latest', true); DROP SCHEMA $_ CASCADE") for sort keys %first;
