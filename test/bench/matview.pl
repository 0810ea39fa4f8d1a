# The refresh of one day against REFRESH MATERIALIZED VIEW of the same query,
# with 1 to BENCH_DAYS days of history.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $psql = session('max_parallel_workers_per_gather = 0');
my %ms;
for my $day (1 .. $days) {
  lake($psql, $day);
  my $definition = $psql->run("SELECT bench.definition(bench.deduplicated('lake.signals', format('WHERE \"timestamp\" < %L', bench.midnight($day + 1))))");
  $psql->run("CREATE MATERIALIZED VIEW bench.latest AS $definition WITH NO DATA; CREATE UNIQUE INDEX ON bench.latest (subject, name); REFRESH MATERIALIZED VIEW bench.latest");
  my (undef, $said) = in_transaction($psql, "SELECT bench.refresh('lake', $day + 1); SELECT bench.differences('TABLE bench.latest', 'TABLE lake.signals_latest')");
  expect("differences with $day days", ($said =~ /(\d+)$/)[0], 0);
  settle($psql, 'lake.signals_latest');
  my @concurrently = $day < $days ? () : (concurrently => sub { ($psql->time('REFRESH MATERIALIZED VIEW CONCURRENTLY bench.latest'))[0] });
  my %median = interleave(
    refresh => sub { refresh_lake($psql, $day + 1) },
    view => sub { ($psql->time('REFRESH MATERIALIZED VIEW bench.latest'))[0] },
    @concurrently);
  $ms{$day} = \%median;
  $psql->run('DROP MATERIALIZED VIEW bench.latest');
}

my $last = $ms{$days};
result("refresh, $days days behind it", 'REFRESH MATERIALIZED VIEW', $last->{refresh} / $last->{view}, '');
result("refresh, $days days behind it", 'the same, CONCURRENTLY', $last->{refresh} / $last->{concurrently}, '');
for my $day (2 .. $days) {
  result("refresh, $day days behind it", 'with 1 day', $ms{$day}{refresh} / $ms{1}{refresh}, '<= 1.1');
  result("REFRESH MATERIALIZED VIEW, $day days", 'with 1 day', $ms{$day}{view} / $ms{1}{view}, '');
}
