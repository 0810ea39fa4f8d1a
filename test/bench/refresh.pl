# The daily refresh against the scan-and-hash floor: the day read once, grouped
# by the key with count, min and max, by one process.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $one = session('max_parallel_workers_per_gather = 0');
my $two = session('max_parallel_workers_per_gather = 2');
lake($one, $days);

my $floor = $one->run("SELECT bench.scan_and_hash('lake.signals', $days)");
$one->run('SET enable_sort = off');
expect('the floor is a HashAggregate', $one->run("EXPLAIN $floor") =~ /HashAggregate/ ? 'yes' : 'no', 'yes');
$one->run('RESET enable_sort');

my $expected = 'fold|' . $one->run(qq{SELECT count(*) FROM (SELECT DISTINCT subject, name FROM lake.signals WHERE "timestamp" >= bench.midnight($days)) k}) . '|0';
for ($one, $two) {
  my (undef, $said) = in_transaction($_, "SELECT * FROM bench.refresh('lake', $days + 1); SELECT count(*) FROM rollup_verify('lake.signals_latest')");
  expect('a refresh, and rows that rollup_verify finds', $said, "$expected\n0");
  settle($_, 'lake.signals_latest');
}

sub refresh {
  my ($psql) = @_;
  my ($ms, $said) = refresh_lake($psql, $days + 1);
  expect('a refresh', $said, $expected);
  return $ms;
}
my %ms = interleave(
  floor => sub { my ($ms) = $one->time("SET enable_sort = off; $floor; RESET enable_sort"); return $ms },
  one => sub { refresh($one) },
  two => sub { refresh($two) });
result('refresh of one day, one process', 'scan and hash of the day', $ms{one} / $ms{floor}, '<= 1.7');
result('refresh of one day, parallel workers allowed', 'scan and hash of the day', $ms{two} / $ms{floor}, '<= 1.2');
