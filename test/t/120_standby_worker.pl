# On a standby the background worker does nothing; promoted, it makes the passes
# there.  A launcher that started before the end of recovery (BgWorkerStart in
# worker.c) would fill the standby's log with errors.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrWorker;

my $zone = noon_zone();

my $primary = worker_node('primary', undef, allows_streaming => 1);
$primary->start;
$primary->safe_psql('postgres', <<"SQL");
SET client_min_messages = warning;
CREATE EXTENSION dailyrollup;
@{[ events() ]}SELECT rollup_create('daily', 'SELECT k, count(*), sum(n) FROM events GROUP BY k', 'at', time_zone => '$zone', mode => 'on');
SQL
$primary->poll_query_until('postgres', q{SELECT state = 'on' FROM rollup_status}) or die 'the primary makes no pass';

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
# what is late waits on the primary, not here
$standby->append_conf('postgresql.conf', "dailyrollup.late_interval = '1s'");
$standby->start;
$primary->safe_psql('postgres', q{INSERT INTO events VALUES (3, now() - interval '2 days', 100), (9, now() - interval '2 days', 1)});
$primary->wait_for_catchup($standby);

my $ours = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^dailyrollup'};
my $look = "SELECT s.state, s.watermark = date_trunc('day', now(), '$zone'), s.late_keys FROM rollup_status s WHERE s.rollup = 'daily'::regclass";
$standby->safe_psql('postgres', 'SELECT pg_sleep(2)');
is($standby->safe_psql('postgres', $ours), '0', 'no launcher on a standby');
is($standby->safe_psql('postgres', $look), 'on|t|2', 'the late keys wait there as on the primary');
is($standby->safe_psql('postgres', 'SELECT run_by FROM rollup_status'), 'nobody', 'where nobody makes a pass');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM rollup_plan()'), '0', 'the plan can be read');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM rollup_progress'), '0', 'and the progress');
unlike(slurp_file($standby->logfile), qr/ERROR|dailyrollup (worker|launcher)/, 'nothing in the log');

$primary->stop('immediate');
is($standby->safe_psql('postgres', 'SELECT pg_promote()'), 't', 'promoted');
ok($standby->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'dailyrollup launcher'}), 'the launcher starts');
ok($standby->poll_query_until('postgres', 'SELECT late_keys = 0 FROM rollup_status'), 'and the late keys are healed');
is($standby->safe_psql('postgres', $look), 'on|t|0', 'all is as it should be');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM rollup_verify('daily')}), '0', 'exact');
is($standby->safe_psql('postgres', 'SELECT run_by FROM rollup_status'), 'worker', 'the worker makes the passes');
$standby->safe_psql('postgres', "SET client_min_messages = warning;
  SELECT rollup_create('new_one', 'SELECT k, count(*) FROM events GROUP BY k', 'at', time_zone => '$zone', mode => 'on')");
ok($standby->poll_query_until('postgres', q{SELECT state = 'on' FROM rollup_status WHERE rollup = 'new_one'::regclass}), 'a new rollup is filled');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM rollup_verify('new_one')}), '0', 'exactly');

$standby->stop;
done_testing();
