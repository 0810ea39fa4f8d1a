# The daily refresh against pg_incremental, where it is installed (without
# pg_cron, so 1.3 or later): a pipeline of one-day intervals whose command, by
# hand, folds the day without what was delivered twice and merges it by INSERT
# ... ON CONFLICT.  A late row lies in an interval that is over, so the pipeline
# does not see it: there is nothing to time.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Bench;

my $psql = session();
my $rival = 'a pipeline of pg_incremental, INSERT ... ON CONFLICT';
sub left_out { result('refresh of one day', $rival, "left out: $_[0]", ''); exit }
left_out('not installed') unless installed($psql, 'pg_incremental');
left_out('needs pg_cron, before 1.3') if $psql->run("SELECT 'pg_cron' = ANY (requires) FROM pg_available_extensions NATURAL JOIN pg_available_extension_versions
  WHERE name = 'pg_incremental' AND version = default_version") eq 't';
lake($psql, $days);
$psql->run('CREATE EXTENSION IF NOT EXISTS pg_incremental');
$psql->run('CREATE TABLE bench.signals_latest (LIKE lake.signals_latest, UNIQUE (subject, name)) WITH (fillfactor = 45);
  INSERT INTO bench.signals_latest TABLE lake.signals_latest; VACUUM ANALYZE bench.signals_latest');
my $command = 'INSERT INTO bench.signals_latest AS l'
  . $psql->run(q{SELECT bench.definition(bench.deduplicated('lake.signals', 'WHERE "timestamp" >= $1 AND "timestamp" < $2'))
    || 'ON CONFLICT (subject, name) DO UPDATE SET' || bench.assignments('excluded')});
$psql->run("SELECT incremental.create_time_interval_pipeline('signals', '1 day', \$command\$ $command \$command\$,
  start_time => bench.midnight($days), source_table_name => 'lake.signals', schedule => NULL, execute_immediately => false)");

my $run = "CALL incremental.execute_pipeline('signals')";
my (undef, $said) = in_transaction($psql, "$run; SELECT action FROM bench.refresh('lake', $days + 1);
  SELECT bench.differences('TABLE bench.signals_latest', 'TABLE lake.signals_latest')");
expect('a refresh, and differences', $said, "fold\n0");
settle($psql, 'bench.signals_latest', 'lake.signals_latest');

my $one = session('max_parallel_workers_per_gather = 0', 'enable_sort = off');
my $floor = $one->run("SELECT bench.scan_and_hash('lake.signals', $days)");
expect('the floor is a HashAggregate', $one->run("EXPLAIN $floor") =~ /HashAggregate/ ? 'yes' : 'no', 'yes');
my %ms = interleave(
  floor => sub { ($one->time($floor))[0] },
  pipeline => sub {
    my $ms = in_transaction($psql, $run);
    settle($psql, 'bench.signals_latest');
    return $ms;
  },
  refresh => sub { refresh_lake($psql, $days + 1) });
result('refresh of one day', $rival, $ms{refresh} / $ms{pipeline}, '');
result('pg_incremental: the pipeline of one day', 'scan and hash of the day', $ms{pipeline} / $ms{floor}, '');
$psql->run('DROP TABLE bench.signals_latest');
