# The background worker: with the library preloaded, passes make themselves.
#
# Nobody calls rollup_run here unless a test says so: what is in the tables, the
# launcher and its workers have brought there.  Without the launcher's wake-up on
# a committed change (dr_shared_note_change) the first fill would wait for the
# next midnight; without the hold on a database (hold.c: hold) CREATE, DROP and
# ALTER DATABASE would fail while a worker is busy there.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use Time::HiRes qw(sleep time);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrWorker;

my $zone = noon_zone();

my $node = worker_node('worker', <<'CONF');
allow_in_place_tablespaces = on
CONF
$node->start;

my $source = events();
my $query = 'SELECT k, count(*), sum(n) FROM events GROUP BY k';

sub set
{
	my ($setting, $value, $on) = @_;
	$on //= $node;
	$on->safe_psql('postgres', defined $value ? "ALTER SYSTEM SET $setting = '$value'" : "ALTER SYSTEM RESET $setting");
	$on->reload;
	return;
}

sub create
{
	my ($database, $name, $more, $on) = @_;
	my ($stdout, $stderr);
	$on //= $node;
	$on->psql($database, "SELECT rollup_create('$name', '$query', 'at', time_zone => '$zone' $more)", stdout => \$stdout, stderr => \$stderr);
	return $stderr;
}

sub wait_for
{
	my ($database, $sql, $what, $on) = @_;
	return ok(($on // $node)->poll_query_until($database, "SELECT $sql"), $what);
}

# state, whether the watermark is the last midnight, waiting keys, wrong rows
sub look
{
	my ($database, $name, $on) = @_;
	$on //= $node;
	my $state = $on->safe_psql($database, "SELECT state FROM rollup_status WHERE rollup = '$name'::regclass");
	return $state if $state eq 'new';	# there is nothing to verify
	return $on->safe_psql($database, "SELECT s.state, s.watermark = date_trunc('day', now(), '$zone'), s.late_keys,
	  (SELECT count(*) FROM rollup_verify('$name')) FROM rollup_status s WHERE s.rollup = '$name'::regclass");
}

sub status { return $node->safe_psql($_[0], "SELECT $_[2] FROM rollup_status WHERE rollup = '$_[1]'::regclass") }

sub log_lines
{
	my ($pattern, $from, $on) = @_;
	my $log = slurp_file(($on // $node)->logfile, $from // 0);
	return scalar(() = $log =~ /$pattern/g);
}

sub log_end { return -s(($_[0] // $node)->logfile) }

# ------------------------------------------------------------ the first fill

wait_for('postgres', q{count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'dailyrollup launcher'}, 'there is a launcher');
$node->safe_psql('postgres', 'CREATE DATABASE lake');
$node->safe_psql('lake', "CREATE EXTENSION dailyrollup; $source");
my $said = create('lake', 'daily', ", mode => 'on'");
unlike($said, qr/WARNING/, 'a worker makes the passes: no warning');
like($said, qr/HINT: .*It is made by the background worker/, 'the hint tells who makes the pass');
wait_for('lake', q{state = 'on' AND watermark IS NOT NULL FROM rollup_status}, 'the first pass makes itself');
is(look('lake', 'daily'), 'on|t|0|0', 'exact, up to the last midnight');
is(status('lake', 'daily', 'run_by'), 'worker', 'the worker makes the passes');
is(status('lake', 'daily', "next_due = date_trunc('day', now(), '$zone') + interval '1 day'"), 't', 'the next one is due at midnight');
wait_for('postgres', q{count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'dailyrollup worker'}, 'a worker serves one pass and ends');

# what is rolled back leaves nothing, and keeps nothing from working
my $mark = log_end();
$node->safe_psql('postgres', 'CREATE DATABASE pond');
$node->safe_psql('pond', "BEGIN; CREATE EXTENSION dailyrollup; $source SELECT rollup_create('daily', '$query', 'at', mode => 'on'); ROLLBACK;");
$node->safe_psql('lake', "BEGIN; SELECT rollup_create('undone', '$query', 'at', mode => 'on'); ROLLBACK;");
$node->safe_psql('pond', "CREATE EXTENSION dailyrollup; $source");
create('pond', 'daily', ", mode => 'on'");
wait_for('pond', q{state = 'on' FROM rollup_status}, 'created again after a rollback: served');
is(look('pond', 'daily'), 'on|t|0|0', 'exact');
$node->safe_psql('pond', 'DROP EXTENSION dailyrollup CASCADE');
$node->safe_psql('pond', 'CREATE EXTENSION dailyrollup; DROP TABLE daily;');
create('pond', 'daily', ", mode => 'on'");
wait_for('pond', q{state = 'on' FROM rollup_status}, 'dropped and created again: served');
is(log_lines(qr/ERROR:|exited with exit code [1-9]/, $mark), 0, 'without an error in the log');

# a transaction that is prepared
set('max_prepared_transactions', 5);
$node->restart;

$node->safe_psql('lake', "BEGIN; SELECT rollup_create('prepared', '$query', 'at', mode => 'on'); PREPARE TRANSACTION 'p';");
$node->safe_psql('lake', "COMMIT PREPARED 'p'");
wait_for('lake', q{state = 'on' FROM rollup_status WHERE rollup = 'prepared'::regclass}, 'created by COMMIT PREPARED: served');

# --------------------------------------------------------- the server's mode

create('lake', 'led', '');
wait_for('lake', q{state = 'off' FROM rollup_status WHERE rollup = 'led'::regclass}, 'without a mode: filled, and folded on write');
set('dailyrollup.mode', 'shadow');
wait_for('lake', q{state = 'shadow' AND shadow IS NOT NULL AND watermark IS NOT NULL FROM rollup_status WHERE rollup = 'led'::regclass},
	'mode shadow, by a reload: the pass builds the shadow');
$node->safe_psql('lake', "INSERT INTO events VALUES (9, now(), 1)");
$mark = log_end();
set('dailyrollup.mode', 'on');
wait_for('lake', q{state = 'on' FROM rollup_status WHERE rollup = 'led'::regclass}, 'mode on, by a reload: the pass promotes by itself');
is(look('lake', 'led'), 'on|t|0|0', 'exact');
is(log_lines(qr/promoted rollup "public.led" to [^\n]*: 5 rows = 5 keys, replaced 6 rows of 6 keys/, $mark), 1, 'one line in the log, with rows and keys');
is(log_lines(qr/promoted rollup/, $mark), 1, 'no other was promoted');
set('dailyrollup.mode', undef);

# ------------------------------------------------- a change wakes the launcher

$node->safe_psql('lake', "SELECT rollup_alter('led', mode => 'shadow')");
wait_for('lake', q{state = 'shadow' FROM rollup_status WHERE rollup = 'led'::regclass}, 'rollup_alter wakes the launcher');
$node->safe_psql('lake', "SELECT rollup_alter('led', mode => 'off')");
wait_for('lake', q{state = 'off' FROM rollup_status WHERE rollup = 'led'::regclass}, 'and again');
$node->safe_psql('lake', "SELECT rollup_reseed('daily')");
wait_for('lake', q{reseed IS NULL FROM rollup_status WHERE rollup = 'daily'::regclass}, 'rollup_reseed wakes it');
is(look('lake', 'daily'), 'on|t|0|0', 'the reseeded rollup is exact');

# ------------------------------------------------------------------ late keys

$node->safe_psql('lake', "INSERT INTO events VALUES (3, now() - interval '2 days', 100), (11, now() - interval '2 days', 1)");
is(status('lake', 'daily', 'late_keys'), '2', 'late keys wait: dailyrollup.late_interval is 0');

# what a backfill has marked where writes are folded: when a midnight falls due
my $soon = "now() - date_trunc('day', now(), '$zone') + interval '10 s'";
create('lake', 'folded', ", mode => 'off', delay => $soon");
create('lake', 'beside', ", mode => 'shadow', delay => $soon");
create('lake', 'later', ", mode => 'on'");
wait_for('lake', q{count(*) = 2 FROM rollup_status WHERE rollup::text IN ('folded', 'beside') AND state = mode}, 'two rollups that are folded on write');
$node->safe_psql('lake', "SET dailyrollup.backfill = on; INSERT INTO events VALUES (21, now(), 1), (22, now() - interval '2 days', 1)");
is(status('lake', $_, 'late_keys'), '2', "$_: what a backfill has marked waits") for qw(folded beside);
wait_for('lake', q{sum(late_keys) = 0 FROM rollup_status WHERE rollup::text IN ('folded', 'beside')}, 'until a midnight falls due');
is(status('lake', 'daily', 'late_keys'), '3', 'late keys wait for the next one of theirs');
is($node->safe_psql('lake', "SELECT count(*) FROM rollup_verify('$_')"), '0', "$_: exact") for qw(folded beside);
is($node->safe_psql('lake', q{SELECT count(*) FROM rollup_runs WHERE rollup = 'folded'::regclass AND action = 'flush'}), '1', 'flushed once');
$node->safe_psql('lake', q{SELECT rollup_drop(r, true) FROM unnest('{folded,beside,later}'::regclass[]) r});

set('dailyrollup.late_interval', '1s');
wait_for('lake', q{sum(late_keys) = 0 FROM rollup_status}, 'and are healed each second when it is 1s');
is(look('lake', 'daily'), 'on|t|0|0', 'exact');
$node->safe_psql('lake', "INSERT INTO events VALUES (3, now() - interval '2 days', 100)");
wait_for('lake', q{sum(late_keys) = 0 FROM rollup_status}, 'once more');
my $runs = $node->safe_psql('lake', 'SELECT count(*) FROM rollup_runs');
$mark = log_end();
sleep 3.5;
is($node->safe_psql('lake', 'SELECT count(*) FROM rollup_runs'), $runs, 'where no key waits, nothing is recorded');
is(log_lines(qr/refreshed rollup/, $mark), 0, 'nor logged');

# where nothing else is ever due
$node->safe_psql('postgres', 'CREATE DATABASE still');
$node->safe_psql('still', "CREATE EXTENSION dailyrollup; $source");
create('still', 'folded', ", mode => 'off'");
wait_for('still', q{state = 'off' FROM rollup_status}, 'a database where each write is folded');
sleep 2.5;
$node->safe_psql('still', 'SET dailyrollup.backfill = on; INSERT INTO events VALUES (21, now(), 1)');
wait_for('still', q{late_keys = 0 FROM rollup_status}, 'what a backfill has marked is healed, too');
$node->safe_psql('postgres', 'DROP DATABASE still');
set('dailyrollup.late_interval', 0);

# ----------------------------------------------------------- a rollup that fails

$node->safe_psql('lake', 'CREATE TABLE taken_daily (x int)');
$mark = log_end();
create('lake', 'taken', ", mode => 'on'");
wait_for('lake', q{failures = 1 FROM rollup_status WHERE rollup = 'taken'::regclass}, 'a pass that fails is recorded');
create('lake', 'second', ", mode => 'on'");
wait_for('lake', q{state = 'on' FROM rollup_status WHERE rollup = 'second'::regclass}, 'the others are served');
is(status('lake', 'taken', q{last_error ~ 'taken_daily', retry_at - now() BETWEEN '30 s' AND '60 s', next_due = retry_at}), 't|t|t', 'why, and when it is tried again: in a minute');
is($node->safe_psql('lake', q{SELECT outcome, reason ~ 'taken_daily' FROM rollup_runs WHERE rollup = 'taken'::regclass}), 'failed|t', 'in rollup_runs');

# its time has come
sub retry
{
	$node->safe_psql('lake', "UPDATE dailyrollup.rollups SET retry_at = now() WHERE live = '$_[0]'::regclass");
	return;
}
for my $n (2 .. 8)
{
	retry('taken');
	$node->poll_query_until('lake', "SELECT failures = $n FROM rollup_status WHERE rollup = 'taken'::regclass") or die "failure $n";
	my $minutes = $n > 6 ? 60 : 2**($n - 1);
	is(status('lake', 'taken', "retry_at - now() BETWEEN '$minutes min'::interval - '30 s'::interval AND '$minutes min'"), 't', "failure $n: again in $minutes minutes");
}
is(log_lines(qr/WARNING:  rollup "public.taken"/, $mark), 1, 'the same error is logged once');

$node->safe_psql('lake', 'DROP TABLE taken_daily; ALTER TABLE events DISABLE TRIGGER USER');
retry('taken');
wait_for('lake', q{failures = 9 FROM rollup_status WHERE rollup = 'taken'::regclass}, 'another error');
is(log_lines(qr/WARNING:  rollup "public.taken"/, $mark), 2, 'is logged again');
$node->safe_psql('lake', q{DO $$ DECLARE t name; BEGIN
	FOR t IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'events'::regclass AND NOT tgisinternal
	LOOP EXECUTE format('ALTER TABLE events ENABLE ALWAYS TRIGGER %I', t); END LOOP; END $$});
retry('taken');
wait_for('lake', q{state = 'on' FROM rollup_status WHERE rollup = 'taken'::regclass}, 'the cause is gone, its time has come: it recovers');
is(status('lake', 'taken', 'failures, last_error, retry_at'), '0||', 'nothing is left of the failures');
is(look('lake', 'taken'), 'on|t|0|0', 'exact');

# by hand before its time
$node->safe_psql('lake', 'CREATE TABLE hand_daily (x int)');
create('lake', 'hand', ", mode => 'on'");
wait_for('lake', q{failures = 1 FROM rollup_status WHERE rollup = 'hand'::regclass}, 'another one fails');
$node->safe_psql('lake', q{DROP TABLE hand_daily; CALL rollup_run('hand');});
is(status('lake', 'hand', 'state, failures, last_error, retry_at'), 'on|0||', 'rollup_run by hand does not wait');

# a change by the owner, or of the server's mode, is tried at once
sub triggers
{
	$node->safe_psql('lake', q{DO $$ DECLARE t name; BEGIN
	FOR t IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'events'::regclass AND NOT tgisinternal
	LOOP EXECUTE format('ALTER TABLE events %s TRIGGER %I', '} . $_[0] . q{', t); END LOOP; END $$});
	return;
}
triggers('DISABLE');
$node->safe_psql('lake', "SELECT rollup_reseed('hand')");
wait_for('lake', q{failures = 1 FROM rollup_status WHERE rollup = 'hand'::regclass}, 'a reseed that fails');
$node->safe_psql('lake', "SELECT rollup_alter('hand', delay => '1 hour')");
wait_for('lake', q{failures = 2 FROM rollup_status WHERE rollup = 'hand'::regclass}, 'rollup_alter does not wait for retry_at');
is(status('lake', 'hand', q{retry_at - now() BETWEEN '90 s' AND '2 min'}), 't', 'the waits grow all the same');
triggers('ENABLE ALWAYS');
$node->safe_psql('lake', "SELECT rollup_reseed('hand')");
wait_for('lake', q{reseed IS NULL AND failures = 0 FROM rollup_status WHERE rollup = 'hand'::regclass}, 'nor does rollup_reseed');
$node->safe_psql('lake', 'CREATE TABLE modeless_daily (x int)');
create('lake', 'modeless', '');
wait_for('lake', q{failures = 1 FROM rollup_status WHERE rollup = 'modeless'::regclass}, 'one without a mode of its own fails');
$node->safe_psql('lake', 'CREATE TABLE moded_daily (x int)');
create('lake', 'moded', ", mode => 'on'");
wait_for('lake', q{failures = 1 FROM rollup_status WHERE rollup = 'moded'::regclass}, 'and one with a mode');
set('dailyrollup.late_interval', '1s');
sleep 2.5;
is(status('lake', 'modeless', 'failures'), '1', 'a reload that does not concern it, nor a look for late keys');
set('dailyrollup.late_interval', 0);
$node->safe_psql('lake', 'DROP TABLE modeless_daily');
set('dailyrollup.mode', 'on');
wait_for('lake', q{state = 'on' AND failures = 0 FROM rollup_status WHERE rollup = 'modeless'::regclass}, "nor does a change of the server's mode");
is(status('lake', 'moded', 'failures'), '1', 'where it is not its own');
set('dailyrollup.mode', undef);
$node->safe_psql('lake', q{SELECT rollup_drop('moded', true); DROP TABLE moded_daily;});

# ------------------------------------------- the database's and roles' settings

$node->safe_psql('postgres', <<'SQL');
CREATE ROLE ann LOGIN;
CREATE DATABASE hostile OWNER ann;
SQL
$node->safe_psql('hostile', "CREATE EXTENSION dailyrollup; CREATE TABLE theirs (k int, at timestamptz NOT NULL); $source");
$node->safe_psql('hostile', <<'SQL');
ALTER DATABASE hostile SET role = 'ann';
ALTER DATABASE hostile SET default_transaction_read_only = on;
ALTER DATABASE hostile SET default_transaction_isolation = 'serializable';
ALTER DATABASE hostile SET statement_timeout = '1ms';
ALTER DATABASE hostile SET session_replication_role = replica;
ALTER DATABASE hostile SET datestyle = 'SQL, DMY';
ALTER DATABASE hostile SET dailyrollup.backfill = on;
SQL
{
	my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
	my ($stdout, $stderr);
	local $ENV{PGOPTIONS} = "-c role=$superuser -c default_transaction_read_only=off -c statement_timeout=0 -c session_replication_role=origin -c default_transaction_isolation=read\\ committed";
	create('hostile', 'daily', ", mode => 'on'");
	wait_for('hostile', q{state = 'on' FROM rollup_status}, 'a database with settings of its own is served');
	is(look('hostile', 'daily'), 'on|t|0|0', 'exact');
}

# --------------------------------------------------- which databases, and whether

set('dailyrollup.databases', 'pond, "Other"');
wait_for('lake', q{bool_and(run_by = 'nobody') FROM rollup_status}, 'not one of dailyrollup.databases: nobody serves it');
is($node->safe_psql('pond', 'SELECT run_by FROM rollup_status'), 'worker', 'but the one that is');
like(create('lake', 'unserved', ", mode => 'on'"), qr/WARNING:  nothing makes the passes of rollup "public.unserved" by itself\nHINT:  Add lake to dailyrollup.databases, or have pg_cron/, 'rollup_create warns');
create('pond', 'served', ", mode => 'on'");
wait_for('pond', q{state = 'on' FROM rollup_status WHERE rollup = 'served'::regclass}, 'the one is served');
is(status('lake', 'unserved', 'state'), 'new', 'the other is not');
set('dailyrollup.worker', 'off');
set('dailyrollup.databases', undef);
wait_for('pond', q{bool_and(run_by = 'nobody') FROM rollup_status}, 'dailyrollup.worker = off: nobody');
like(create('pond', 'unserved', ", mode => 'on'"), qr/WARNING:  nothing makes the passes of rollup "public.unserved" by itself\nHINT:  Set dailyrollup.worker to on, or have pg_cron/, 'rollup_create warns');
sleep 1.5;
is(status('lake', 'unserved', 'state') . status('pond', 'unserved', 'state'), 'newnew', 'nothing is made');
set('dailyrollup.worker', undef);
wait_for('lake', q{state = 'on' FROM rollup_status WHERE rollup = 'unserved'::regclass}, 'on again: it goes on');
wait_for('pond', q{state = 'on' FROM rollup_status WHERE rollup = 'unserved'::regclass}, 'everywhere');

# ------------------------------------------------------ others' DROP DATABASE

# A pass that takes its time: a function that sleeps for each row, whatever it
# says of itself.
$node->safe_psql('postgres', 'CREATE ROLE bob LOGIN CREATEDB; CREATE DATABASE busy OWNER bob');
$node->safe_psql('busy', <<"SQL");
CREATE EXTENSION dailyrollup;
CREATE FUNCTION slow(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.2); RETURN \$1; END';
$source
SELECT rollup_create('daily', 'SELECT k, count(*), sum(slow(n)) FROM events GROUP BY k', 'at', time_zone => '$zone', mode => 'on');
SQL

sub busy
{
	my ($database) = @_;
	return wait_for('postgres', "count(*) = 1 FROM pg_stat_activity WHERE datname = '$database' AND backend_type = 'dailyrollup worker' AND query ~ 'seed'",
		"a worker is busy in $database");
}

# By a role that is no superuser; the time that it takes.
sub quick
{
	my ($sql, $what) = @_;
	my ($stdout, $stderr);
	my $start = time;
	my $result = $node->psql('postgres', $sql, stdout => \$stdout, stderr => \$stderr, extra_params => [ '-U', 'bob' ]);
	is($stderr, '', $what);
	cmp_ok(time - $start, '<', 15, "$what: without a long wait");
	return;
}

busy('busy');
is($node->safe_psql('postgres', q{SELECT query FROM pg_stat_activity WHERE datname = 'busy' AND backend_type = 'dailyrollup worker'}),
	'dailyrollup: seed of public.daily', 'pg_stat_activity tells what the worker does');
is($node->safe_psql('busy', q{SELECT p.rollup, p.phase, p.pid = a.pid, p.started_at <= p.phase_started_at, s.activity
	FROM rollup_progress p, rollup_status s, pg_stat_activity a WHERE a.datname = 'busy' AND a.backend_type = 'dailyrollup worker'}),
	'daily|seed|t|t|seed', 'rollup_progress and rollup_status, too');
is($node->safe_psql('pond', 'SELECT count(*) FROM rollup_progress'), '0', 'not in another database');
is($node->safe_psql('busy', 'SET ROLE ann; SELECT (SELECT count(*) FROM dailyrollup._progress()), (SELECT count(*) FROM rollup_progress)'), '0|0', 'not to a role that may not see the rollup');
is($node->safe_psql('busy', 'SELECT count(*) FROM dailyrollup._progress()'), '1', 'as against its owner');

# what is refused, or needs nobody to go, ends nobody's pass
my $worker = q{SELECT pid FROM pg_stat_activity WHERE datname = 'busy' AND backend_type = 'dailyrollup worker'};
my $pid = $node->safe_psql('postgres', $worker);
sub worker_goes_on
{
	my @commands = @_;
	for my $command (@commands)
	{
		$node->psql('postgres', $command, stderr => \my $refused, extra_params => [ '-U', 'bob' ]);
		is($node->safe_psql('postgres', $worker), $pid, "$command: the worker goes on");
	}
	return;
}
worker_goes_on('BEGIN; DROP DATABASE busy', 'ALTER DATABASE busy RENAME TO lake', 'CREATE DATABASE lake TEMPLATE busy', 'DROP DATABASE nowhere',
	'ALTER DATABASE busy CONNECTION LIMIT 40');
# hold.c, may_create_databases: an owner who may not
$node->safe_psql('postgres', 'ALTER ROLE bob NOCREATEDB');
worker_goes_on('ALTER DATABASE busy RENAME TO free', 'CREATE DATABASE free TEMPLATE busy');
$node->safe_psql('postgres', 'ALTER ROLE bob CREATEDB');
quick('CREATE DATABASE copied TEMPLATE busy', 'CREATE DATABASE from a template where a worker is busy');
$node->reload;
busy('copied');
quick('ALTER DATABASE copied RENAME TO renamed', 'ALTER DATABASE RENAME');
busy('busy');
# a worker whose launcher is gone, and something that another one could do
$node->safe_psql('busy', "SET client_min_messages = error; SELECT rollup_create('second', 'SELECT k, sum(slow(n)) FROM events GROUP BY k', 'at', time_zone => '$zone', mode => 'on')");
my $launcher = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'dailyrollup launcher'});
kill 'TERM', $launcher;
wait_for('postgres', qq{count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'dailyrollup launcher' AND pid <> $launcher}, 'a launcher that is ended comes back');
$node->reload;
sleep 1.5;
is($node->safe_psql('postgres', q{SELECT string_agg(query, ' ') FROM pg_stat_activity WHERE datname = 'busy' AND backend_type = 'dailyrollup worker'}), 'dailyrollup: seed of public.daily',
	'the worker of the old one goes on, alone');
$node->safe_psql('postgres', q{SET allow_in_place_tablespaces = on; CREATE TABLESPACE there LOCATION ''; GRANT CREATE ON TABLESPACE there TO bob;});
quick('ALTER DATABASE busy SET TABLESPACE there', 'ALTER DATABASE SET TABLESPACE, with the worker of the old launcher');
busy('renamed');
quick('DROP DATABASE renamed', 'DROP DATABASE, of one that was renamed');
busy('busy');
quick('DROP DATABASE busy', 'DROP DATABASE');

# -------------------------------------------------------- no worker is free

my $small = PostgreSQL::Test::Cluster->new('small');
$small->init;
# one for the launcher, one for logical replication's, one for a worker
$small->append_conf('postgresql.conf', <<'CONF');
fsync = off
timezone = 'UTC'
shared_preload_libraries = 'dailyrollup'
dailyrollup.delay = 0
max_worker_processes = 3
max_parallel_workers_per_gather = 1
CONF
$small->start;
$small->safe_psql('postgres', "CREATE EXTENSION dailyrollup; $source");
$small->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'dailyrollup worker'}) or die;
my $taker = $small->background_psql('postgres');
my $force = $node->safe_psql('postgres', "SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')");
$taker->query_until(qr/taken/, "SET $force = on;\n\\echo taken\nSELECT pg_sleep(60);\n");
wait_for('postgres', q{count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'parallel worker'}, 'the last worker process is taken', $small);
create('postgres', 'daily', ", mode => 'on'", $small);
for (1 .. 300)
{
	last if log_lines(qr/WARNING:  no background worker is free/, 0, $small);
	sleep 0.1;
}
is(log_lines(qr/WARNING:  no background worker is free to make the passes of database "\w+"/, 0, $small), 1, 'no worker is free, which lasts: a warning');

# it does not try again and again
sub switches
{
	my $pid = $small->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'dailyrollup launcher'});
	return slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : die;
}
SKIP:
{
	skip 'no /proc', 1 unless -e '/proc/self/status';
	my $before = switches();
	sleep 3;
	cmp_ok(switches() - $before, '<', 60, 'the launcher sleeps meanwhile');
}
is($small->safe_psql('postgres', 'SELECT state, run_by FROM rollup_status'), 'new|worker', 'nothing is made');
$small->safe_psql('postgres', q{SELECT pg_cancel_backend(leader_pid) FROM pg_stat_activity WHERE backend_type = 'parallel worker'});
wait_for('postgres', q{state = 'on' FROM rollup_status}, 'when one is free, it goes on', $small);
is(look('postgres', 'daily', $small), 'on|t|0|0', 'exact');
is(log_lines(qr/WARNING:  no background worker is free/, 0, $small), 1, 'one warning in all');
eval { $taker->quit };
$small->stop;

# ------------------------------------------------------------ binary upgrade

$small->append_conf('postgresql.conf', 'max_worker_processes = 8');
my @pg_ctl = ('pg_ctl', '-w', '-D', $small->data_dir, '-l', $small->logfile);
command_ok([ @pg_ctl, '-o', '-b', 'start' ], 'in binary upgrade mode');
sleep 1;
is($small->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'dailyrollup'}), '0', 'there is no launcher');
command_ok([ @pg_ctl, '-m', 'fast', 'stop' ], 'stopped');

# ------------------------------------------------------------ not preloaded

$small->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$small->start;
like(create('postgres', 'alone', ", mode => 'on'", $small),
	qr/WARNING:  nothing makes the passes of rollup "public.alone" by itself\nHINT:  Add dailyrollup to shared_preload_libraries, or have pg_cron do it/,
	'not preloaded: rollup_create warns, and says what to do');
is($small->safe_psql('postgres', q{SELECT string_agg(DISTINCT run_by, ' ') FROM rollup_status}), 'nobody', 'nobody makes the passes');
is($small->safe_psql('postgres', 'SELECT count(*) FROM rollup_progress'), '0', 'no progress, and no error');
$small->safe_psql('postgres', q{CALL rollup_run()});
is(look('postgres', 'alone', $small), 'on|t|0|0', 'by hand all works');
$small->stop;

$node->stop;
done_testing();
