# A server or a backend that is killed in the middle of what the modes do.
#
# Waitpoints stop a seed in parts, a promote, a change from on to off, a flush
# and a writer's fold between two of their steps.  There the backend is killed
# (kill -9) or the server stopped at once.  After the restart all is as it was
# before the step, or as it is after it where the commit was written: live, the
# shadow and _current are exact, and a second call finishes the work.  A part of
# a seed that was committed is not made again: fails when a pass drops a shadow
# that an earlier one has begun to fill (needs_shadow() in run.c).
#
# Prepared transactions survive a restart, and commit exactly.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

use DrModes;
use DrSession;

my $node = PostgreSQL::Test::Cluster->new('crash');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
timezone = 'UTC'
log_min_messages = warning
max_prepared_transactions = 10
restart_after_crash = on
CONF
$node->start;

# a: works; b: holds waitpoints; c: looks
my ($worker, $holder, $session);

sub connect_all
{
	for my $which (\$worker, \$holder, \$session)
	{
		$$which->quit if $$which;
		$$which = DrSession->new(name => '', connstr => $node->connstr('postgres'));
		$$which->safe('SET client_min_messages = error;');
	}
	return;
}

sub hold { $holder->safe("SELECT pg_advisory_lock(hashtext('$_[0]'));"); return; }
sub let { $holder->safe("SELECT pg_advisory_unlock(hashtext('$_[0]'));"); return; }

# The worker waits at the waitpoint that is held.
sub stopped
{
	for (1 .. 500)
	{
		return if $session->safe("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted;") == 1;
		sleep 0.02;
	}
	die 'nobody waits at a waitpoint';
}

# The worker begins, and stops there.
sub work_until
{
	my ($waitpoint, $sql) = @_;

	hold($waitpoint);
	$worker->send($sql);
	stopped();
	return;
}

# From the waitpoint where it waits to another one.
sub go_on_until
{
	my ($from, $to) = @_;

	hold($to);
	let($from);
	for (1 .. 500)
	{
		last if $session->safe("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = hashtext('$to')::bigint & 4294967295;") == 1;
		sleep 0.02;
	}
	return;
}

sub kill_backend
{
	my $pid = $session->safe("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted;");

	kill 'KILL', $pid;
	# the postmaster ends all others, and only then starts anew
	eval { $worker->answer; };
	for (1 .. 500)
	{
		last if !eval { $session->safe('SELECT true;'); 1 };
		sleep 0.02;
	}
	$node->poll_query_until('postgres', 'SELECT true');
	connect_all();
	return;
}

sub stop_server
{
	$node->stop('immediate');
	eval { $worker->answer; };
	$node->start;
	connect_all();
	return;
}

my @crashes = (\&kill_backend, \&stop_server);
my $crashes = 0;

# One of them, in turn.
sub crash
{
	$crashes[ $crashes++ % 2 ]->();
	return;
}

sub states
{
	return $session->safe('SELECT string_agg(state, $$ $$ ORDER BY rollup::text) FROM rollup_status;');
}

sub exact
{
	my ($what) = @_;

	is( $session->safe('SELECT string_agg(format($$%s %s$$, rollup, x), $$, $$) FROM rollup_status, wrong(rollup) x
			WHERE live_wrong + shadow_wrong + current_wrong > 0;'), '', "$what: exact");
	return;
}

# What is in a table, as a number.
sub content { return $session->safe("SELECT count(*), sum(hashtextextended(t::text, 0)) FROM $_[0] t;"); }

# --- a rollup over a partitioned source, one over a plain one ---------------

connect_all();
$session->safe("CREATE EXTENSION dailyrollup;\n$DrModes::COMPARE" . <<'SQL');
CREATE TABLE parted (subject text, name text, ts timestamptz NOT NULL, v int) PARTITION BY RANGE (ts);
CREATE TABLE plain (subject text, name text, ts timestamptz NOT NULL, v int);
CREATE INDEX ON parted (subject, name, ts);
CREATE INDEX ON plain (subject, name, ts);
CREATE INDEX ON plain (ts);
CREATE FUNCTION day(n int) RETURNS timestamptz LANGUAGE sql STABLE
	AS $$ SELECT date_trunc('day', now(), 'UTC') + n * interval '1 day' $$;
DO $$
BEGIN
	EXECUTE (SELECT string_agg(format('CREATE TABLE parted_%s PARTITION OF parted FOR VALUES FROM (%L) TO (%L)',
		n + 20, day(n), day(n + 1)), ';') FROM generate_series(-20, 1) n);
END $$;
CREATE FUNCTION add(source regclass, n int, days int DEFAULT 20) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO %s SELECT nullif(''van '' || (random() * 8)::int, ''van 0''), ''speed'',
		date_bin(''5 min'', now() - random() * %s * interval ''1 day'', ''2020-01-01''), (random() * 100)::int
		FROM generate_series(1, %s)', source, days, n);
END $$;
SELECT setseed(0.1), add('parted', 2000), add('plain', 2000);
SELECT rollup_create(source || '_live', format('SELECT subject, name, count(*) AS count, sum(v) AS total, latest(v, ts) AS v,
	max(ts) AS last_seen FROM %s GROUP BY subject, name', source), time_column => 'ts', mode => 'shadow',
	dedup_by => CASE source WHEN 'plain' THEN '{subject,name,ts}'::name[] END)
FROM unnest('{parted,plain}'::text[]) source;
SQL

# --- a seed in parts --------------------------------------------------------

for my $source ('parted', 'plain')
{
	my $call = "CALL rollup_run('${source}_live');";

	work_until('refresh-folded', $call);
	crash();
	exact("$source: a first part that was killed");
	is($session->safe("SELECT watermark IS NULL FROM rollup_status WHERE rollup = '${source}_live'::regclass;"),
		't', "$source: nothing is done");
	is($session->safe("SELECT count(*) FROM ${source}_live;"), 0, "$source: nothing is there");

	work_until('run-committed', $call);
	go_on_until('run-committed', 'refresh-folded');
	go_on_until('refresh-folded', 'run-committed');
	$session->safe("SELECT add('$source', 20);");
	exact("$source: after a first part");
	go_on_until('run-committed', 'refresh-folded');
	crash();
	exact("$source: a second part that was killed");
	my $w = $session->safe("SELECT shadow_watermark FROM dailyrollup.rollups WHERE live = '${source}_live'::regclass;");
	isnt($w, '', "$source: the first part is there: $w");

	$session->safe("SELECT add('$source', 20);");
	work_until('refresh-folded', $call);
	go_on_until('refresh-folded', 'run-committed');
	go_on_until('run-committed', 'refresh-folded');
	go_on_until('refresh-folded', 'run-committed');
	crash();
	exact("$source: killed between two parts");

	is($worker->run($call), '', "$source: a last call");
	exact("$source: in the end");
	is( $session->safe("SELECT count(*) > 5, count(*) - count(DISTINCT to_time) FROM rollup_runs
			WHERE rollup = '${source}_live'::regclass AND action = 'seed' AND outcome = 'ok'
			AND id < (SELECT min(id) FROM rollup_runs WHERE rollup = '${source}_live'::regclass AND action = 'promote');"),
		't|0', "$source: no part was made twice");
}
is(states(), 'shadow shadow', 'both have come to state shadow');

# --- a refresh of the shadow ------------------------------------------------

$session->safe("SELECT add('parted', 50), add('plain', 50);");
for my $source ('parted', 'plain')
{
	my $late = $session->safe('SELECT count(*) FROM rollup_late;');
	work_until('refresh-before-advance', "CALL rollup_run('${source}_live');");
	crash();
	is($session->safe('SELECT count(*) FROM rollup_late;'), $late, "$source: late keys still wait");
	exact("$source: a refresh that was killed");
}
is($worker->run('CALL rollup_run();'), '', 'the next pass');
is($session->safe('SELECT count(*) FROM rollup_late;'), 0, 'heals them');
exact('the next pass');

# --- a promote --------------------------------------------------------------

$session->safe("SELECT add('parted', 50), add('plain', 50);");
my @before = map { content($_) } qw(parted_live plain_live parted_live_daily plain_live_daily);
for my $waitpoint ('promote-swapped', 'promote-swapped', 'promote-settled')
{
	work_until($waitpoint, 'SELECT rollup_promote();');
	crash();
	is(states(), 'shadow shadow', "killed at $waitpoint: the states are as before");
	is(join(' ', map { content($_) } qw(parted_live plain_live parted_live_daily plain_live_daily)),
		"@before", 'and so are the tables');
	exact('a promote that was killed');
}
is($session->safe('SELECT string_agg(mode, $$ $$) FROM rollup_status;'), 'shadow shadow', 'nor has the wanted mode changed');
for my $source ('plain', 'parted')
{
	# a commit that was written is a commit
	work_until('promote-in-commit', "SELECT rollup_promote('${source}_live');");
	crash();
	is($session->safe("SELECT state, to_regclass('${source}_live_daily') FROM rollup_status WHERE rollup = '${source}_live'::regclass;"),
		'on|', "$source: killed in its commit, promoted");
	exact("$source: promoted");
}
like($worker->run('SELECT DISTINCT action FROM rollup_promote();'), qr/^already on$/m, 'a second call finds it done');

# --- on to off --------------------------------------------------------------

$session->safe("SELECT add('parted', 50), add('plain', 50); SELECT rollup_alter(rollup, mode => 'off') FROM rollup_status;");
for my $source ('parted', 'plain')
{
	for my $crash (@crashes)
	{
		# after the late keys, whose step is a transaction of its own
		$worker->safe("SELECT rollup_refresh('${source}_live');");
		my $content = content("${source}_live");
		work_until('leave-on-stopped', "CALL rollup_run('${source}_live');");
		$crash->();
		is($session->safe("SELECT state FROM rollup_status WHERE rollup = '${source}_live'::regclass;"),
			'on', "$source: on its way to off, it is on");
		is(content("${source}_live"), $content, 'and as it was');
		exact('a change that was killed');
		$session->safe("SELECT add('$source', 20, 1);");
		exact('writers are not kept');
	}
	work_until('leave-on-in-commit', "CALL rollup_run('${source}_live');");
	crash();
	is($session->safe("SELECT state FROM rollup_status WHERE rollup = '${source}_live'::regclass;"),
		'off', "$source: killed in its commit, off");
	exact('off');
}
is($worker->run('CALL rollup_run();'), '', 'a second call');
is(states(), 'off off', 'finds it done');
$session->safe("SELECT add('parted', 50), add('plain', 50);");
exact('and writes are folded');

# --- a writer's fold --------------------------------------------------------

for my $waitpoint ('fold-live-locked', 'fold-locked')
{
	for my $crash (@crashes)
	{
		my $content = join ' ', map { content($_) } qw(parted parted_live plain plain_live);
		work_until($waitpoint, "BEGIN; SELECT add('parted', 20), add('plain', 20);
			INSERT INTO plain VALUES ('new', 'speed', now(), 1), (NULL, NULL, now(), 1);
			INSERT INTO parted VALUES ('new', 'speed', now(), 1); DELETE FROM parted WHERE v % 7 = 0; COMMIT;");
		is(join(' ', map { content($_) } qw(parted parted_live plain plain_live)), $content, "at $waitpoint nothing is seen");
		$crash->();
		is(join(' ', map { content($_) } qw(parted parted_live plain plain_live)), $content, 'nor after the restart');
		exact("a writer that was killed at $waitpoint");
	}
}

# --- a flush ----------------------------------------------------------------

$session->safe("SET dailyrollup.backfill = on; SELECT add('parted', 50), add('plain', 50); RESET dailyrollup.backfill;");
for my $crash (@crashes)
{
	work_until('flush-locked', 'CALL rollup_run();');
	$crash->();
	exact('a flush that was killed');
	cmp_ok($session->safe("SELECT (SELECT count(*) FROM dailyrollup.marks_1) + (SELECT count(*) FROM dailyrollup.marks_2);"),
		'>', 0, 'its keys still wait');
}
is($worker->run('CALL rollup_run();'), '', 'the next pass');
is($session->safe("SELECT (SELECT count(*) FROM dailyrollup.marks_1) + (SELECT count(*) FROM dailyrollup.marks_2);"), 0, 'flushes them');
exact('flushed');

# --- prepared transactions --------------------------------------------------

sub crash_idle
{
	$session->safe("BEGIN; SELECT add('plain', 3);");
	$node->stop('immediate');
	$node->start;
	connect_all();
	return;
}

# What a session prepares, folded into live by then, or marked.
sub prepare
{
	my ($gid) = @_;

	$session->safe("BEGIN; SELECT add('parted', 20), add('plain', 20); SAVEPOINT a; SELECT add('plain', 5); ROLLBACK TO a;
		INSERT INTO plain VALUES ('$gid', 'speed', now(), 1); INSERT INTO parted VALUES ('$gid', 'speed', now(), 1);
		DELETE FROM parted WHERE v % 11 = 0; UPDATE plain SET v = v + 1 WHERE v % 13 = 0; PREPARE TRANSACTION '$gid';");
	return;
}

for my $mode ('off', 'shadow', 'on')
{
	$session->safe("SELECT rollup_alter(rollup, mode => '$mode') FROM rollup_status;");
	is($session->run('CALL rollup_run();'), '', "to $mode");
	is(states(), "$mode $mode", "state $mode");
	for my $end ('COMMIT', 'ROLLBACK')
	{
		prepare('gone');
		crash_idle();
		exact("$mode: a prepared transaction that has not ended");
		$session->safe("$end PREPARED 'gone';");
		exact("$mode: after its $end");
		is($session->safe("SELECT count(*) FROM plain_live_current WHERE subject = 'gone';"),
			$end eq 'COMMIT' ? 1 : 0, $end eq 'COMMIT' ? 'it counts' : 'it does not count');
		$session->safe("DELETE FROM plain WHERE subject = 'gone'; DELETE FROM parted WHERE subject = 'gone';");
	}
}

# A change of state waits for it, and says what it has waited for.
$session->safe("DELETE FROM plain WHERE v > 90; CALL rollup_run(); SELECT rollup_alter(rollup, mode => 'off') FROM rollup_status;");
for my $source ('plain', 'parted_20')
{
	my $rollup = $source eq 'plain' ? 'plain_live' : 'parted_live';

	$session->safe("BEGIN; INSERT INTO $source VALUES ('gone', 'speed', now(), 1); PREPARE TRANSACTION 'gone';");
	crash_idle();
	my $answer = $worker->run("SET dailyrollup.writer_timeout = '100ms'; SET client_min_messages = warning; CALL rollup_run('$rollup');");
	like($answer, qr/^ERROR:  55P03: 1 of 1 rollups failed/m, "$source: a change of state does not wait for ever");
	like($answer, qr/ in use by process: a prepared transaction/, "$source: and says for what");
	exact("$source: a change that has given up");
	is($session->safe("SELECT state FROM rollup_status WHERE rollup = '$rollup'::regclass;"), 'on', "$source: on still");
	$session->safe("COMMIT PREPARED 'gone';");
	exact("$source: the prepared transaction has committed");
	is($worker->run("CALL rollup_run('$rollup');"), '', "$source: the next pass");
	is($session->safe("SELECT state FROM rollup_status WHERE rollup = '$rollup'::regclass;"), 'off', "$source: makes the change");
	exact("$source: off");
}
is($session->safe("SELECT string_agg(format('%s %s', rollup, d), ', ') FROM rollup_status, rollup_verify(rollup) d;"), '', 'rollup_verify agrees');
is($session->safe('SELECT count(*) FROM rollup_check() WHERE rows <> keys;'), 0, 'rows = keys');

$_->quit for $worker, $holder, $session;
$node->stop;
done_testing();
