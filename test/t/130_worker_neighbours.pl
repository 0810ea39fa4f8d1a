# What one owner, database or client does must not reach the others: the worker
# goes on with theirs, neither hurries nor floods the log, and keeps its rights.
#
# The server logs each worker that it starts (log_min_messages = debug1): so the
# test counts them.  Each part fails without the piece of C that its comment names.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use Time::HiRes qw(sleep time);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrSession;
use DrWorker;

my $zone = noon_zone();

my $node = worker_node('neighbours', <<'CONF');
max_prepared_transactions = 10
log_min_messages = debug1
log_error_verbosity = verbose
CONF
$node->start;

my $query = 'SELECT k, count(*), sum(n) FROM %s GROUP BY k';
my $rows = "SELECT i % 5 AS k, now() - i * interval '1 hour' AS at, i AS n FROM generate_series(1, 72) i";

sub sql
{
	my ($sql, $database) = @_;
	return $node->safe_psql($database // 'postgres', "SET client_min_messages = error;\n$sql");
}

sub create
{
	my ($name, %o) = @_;
	my $q = $o{query} // sprintf $query, $o{source} // 'events';
	my $role = $o{role} ? "SET ROLE $o{role};" : '';
	sql("$role SELECT rollup_create('$name', '$q', 'at', time_zone => '$zone', mode => 'on')", $o{database});
	return;
}

sub status { return sql("SELECT $_[1] FROM rollup_status WHERE rollup = '$_[0]'::regclass", $_[2]) }

sub wait_for
{
	my ($sql, $what, $database) = @_;
	return ok($node->poll_query_until($database // 'postgres', "SELECT $sql"), $what);
}

sub served
{
	my ($name, $what, $database) = @_;
	wait_for("state = 'on' FROM rollup_status WHERE rollup = '$name'::regclass", "$what: served", $database);
	is(status($name, "watermark = date_trunc('day', now(), '$zone'), (SELECT count(*) FROM rollup_verify('$name')), (SELECT count(*) FROM $name)", $database),
		't|0|5', "$what: exact");
	return;
}

sub log_lines { my ($pattern, $from) = @_; return scalar(() = slurp_file($node->logfile, $from // 0) =~ /$pattern/g) }
sub log_end { return -s $node->logfile }
sub database { return sql("SELECT oid FROM pg_database WHERE datname = '$_[0]'") }
sub workers { my ($database, $from) = @_; return log_lines("starting background worker process \"dailyrollup worker for database $database\"", $from) }

# What no user should ever read.
sub internal_errors
{
	my ($from) = @_;
	return join "\n", slurp_file($node->logfile, $from) =~ /^.*(?:XX000|cache lookup|could not open relation|deadlock).*$/gm;
}

sub quiet
{
	wait_for(q{count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'dailyrollup worker'}, 'no worker runs');
	return;
}

sql(<<"SQL");
CREATE EXTENSION dailyrollup;
CREATE ROLE ann;
CREATE ROLE ben LOGIN CREATEDB;
GRANT ALL ON SCHEMA public TO ann, ben;
CREATE TABLE events AS $rows;
ALTER TABLE events ALTER at SET NOT NULL;
CREATE INDEX ON events (k, at);
SET ROLE ann;
CREATE TABLE hers AS $rows;
ALTER TABLE hers ALTER at SET NOT NULL;
CREATE INDEX ON hers (k, at);
SQL
my $postgres = database('postgres');

# ------------------------------------------ an error that says it is a cancel

# pass.c, ends_the_pass: an owner's function raises what ends a pass that is
# canceled
sql(q{SET ROLE ann; CREATE FUNCTION refuses(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	$$BEGIN IF $1 % 2 = 0 THEN RAISE 'canceling statement due to user request' USING ERRCODE = 'query_canceled'; END IF;
	RAISE 'terminating connection due to administrator command' USING ERRCODE = 'admin_shutdown'; END$$});
my $mark = log_end();
create('refuses', role => 'ann', query => 'SELECT k, count(*), sum(refuses(n)) FROM hers GROUP BY k');
create('after_it');
served('after_it', 'behind a function that raises query_canceled');
wait_for(q{failures > 0 FROM rollup_status WHERE rollup = 'refuses'::regclass}, 'that is a failure of its rollup');
is(status('refuses', q{retry_at - now() BETWEEN '30 s' AND '1 min', last_error}), 't|terminating connection due to administrator command', 'which is tried again in a minute');
is(log_lines('WARNING:  \w+: rollup "public.refuses"', $mark), 1, 'logged once');
is(log_lines('exited with exit code 1', $mark), 0, 'the worker comes to its end');
sql(q{INSERT INTO events VALUES (1, now() - interval '2 days', 1)});
my ($stdout, $stderr);
$node->psql('postgres', 'CALL rollup_run()', stdout => \$stdout, stderr => \$stderr);
like($stderr, qr/ERROR:  1 of 2 rollups failed/, 'a pass by a superuser serves the others, too');
is(status('after_it', 'late_keys'), '0', 'it did');
sql(q{SET client_min_messages = error; SELECT rollup_drop('refuses', true)});

# ------------------------------------------ a zone that the server has lost

# steps.c, run.c: the views and the plan of the others; worker.c: the failure is
# recorded, and does not fill the log
create('lost', role => 'ann', source => 'hers');
served('lost', 'of a zone that is known');
quiet();
$mark = log_end();
sql(q{UPDATE dailyrollup.rollups SET time_zone = 'Lost/Zone' WHERE live = 'lost'::regclass});
wait_for(q{failures = 1 FROM rollup_status WHERE rollup = 'lost'::regclass}, 'a zone that the server has lost is a failure');
is(status('lost', q{last_error, next_step, next_due = retry_at}), 'time zone "Lost/Zone" not recognized|time zone "Lost/Zone" not recognized|t', 'with its reason, tried again later');
sql(q{SELECT rollup_reseed('after_it')});
wait_for(q{reseed IS NULL FROM rollup_status WHERE rollup = 'after_it'::regclass}, 'the others are served');
served('after_it', 'beside a lost zone');
is(log_lines(qr/WARNING: .*Lost\/Zone/, $mark), 1, 'logged once');
is(log_lines(qr/ERROR: .*Lost\/Zone/, $mark), 0, 'and no more');
is(sql(q{BEGIN; SELECT rollup_alter('after_it', mode => 'shadow'); SELECT DISTINCT rollup FROM rollup_plan(); ROLLBACK;}), "\nafter_it", 'rollup_plan has the others');
sql(q{SELECT rollup_alter('lost', time_zone => 'UTC'); UPDATE dailyrollup.rollups SET retry_at = now() WHERE live = 'lost'::regclass});
wait_for(q{failures = 0 FROM rollup_status WHERE rollup = 'lost'::regclass}, 'with another zone it recovers');
served('after_it', 'after all that');

# --------------------------------------------- late keys that cannot be healed

# steps.c, dr_steps_due: what has failed is tried again, whatever it was
sql(q{SET ROLE ann; CREATE FUNCTION odd(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	$$BEGIN IF $1 = 666 THEN RAISE 'odd'; END IF; IF current_user <> 'ann' THEN RAISE 'as %', current_user; END IF; RETURN $1; END$$});
create('odd', role => 'ann', query => 'SELECT k, count(*), sum(odd(n)) FROM hers GROUP BY k');
wait_for(q{state = 'on' FROM rollup_status WHERE rollup = 'odd'::regclass}, 'an owner\'s function runs as the owner');
sql(q{INSERT INTO hers VALUES (1, now() - interval '2 days', 666)});
$node->psql('postgres', q{CALL rollup_run('odd')}, stderr => \$stderr);
is(status('odd', q{failures, next_step, next_due = retry_at, next_due < now() + interval '61 s'}), '1|retry|t|t', 'late keys that fail are tried again, in a minute');
sql(q{UPDATE dailyrollup.rollups SET retry_at = now() WHERE live = 'odd'::regclass});
wait_for(q{failures = 2 FROM rollup_status WHERE rollup = 'odd'::regclass}, 'they are');
sql(q{DELETE FROM hers WHERE n = 666; UPDATE dailyrollup.rollups SET retry_at = now() WHERE live = 'odd'::regclass});
wait_for(q{failures = 0 AND late_keys = 0 AND last_error IS NULL FROM rollup_status WHERE rollup = 'odd'::regclass}, 'until they do not fail');

# steps.c, dr_steps_retry_at: the clock was years ahead when a pass failed
sql(q{INSERT INTO hers VALUES (1, now() - interval '2 days', 1);
	UPDATE dailyrollup.rollups SET failures = 1, last_error = 'then', retry_at = now() + interval '3 years' WHERE live = 'odd'::regclass});
wait_for(q{failures = 0 AND late_keys = 0 FROM rollup_status WHERE rollup = 'odd'::regclass}, 'a retry that is years ahead is not waited for');
sql(q{SELECT rollup_drop(r, true) FROM unnest('{odd,lost}'::regclass[]) r});

# -------------------------------------- an open transaction that has refreshed

# worker.c, serve_all: it holds the refresh lock; no worker is started again and
# again to find that out
my $open = DrSession->new(name => '', connstr => $node->connstr('postgres'));
sql(q{INSERT INTO events VALUES (1, now() - interval '2 days', 1)});
$open->safe(q{BEGIN; SELECT FROM rollup_refresh('after_it');});
sql(q{SELECT rollup_alter('after_it', mode => 'shadow')});
create('beside', source => 'events');
served('beside', 'beside a rollup whose refresh lock is held');
quiet();
$mark = log_end();
sleep 2.5;
cmp_ok(workers($postgres, $mark), '<=', 1, 'no worker a second');
is(status('after_it', 'state, failures'), 'on|0', 'which is not a failure');
$open->safe(q{SELECT rollup_alter('beside', mode => 'on'); COMMIT;});
wait_for(q{state = 'shadow' FROM rollup_status WHERE rollup = 'after_it'::regclass}, 'when it ends, the pass is made');
sql(q{SELECT rollup_alter('after_it', mode => 'on')});
served('after_it', 'after the lock');

# pass.c, try_step: what the pass waits for, it does not wait for for ever
sql(q{SET ROLE ann; CREATE TABLE held AS TABLE hers; ALTER TABLE held ALTER at SET NOT NULL});
create('waits', role => 'ann', source => 'held');
served('waits', 'of a source that is free');
$node->safe_psql('postgres', q{ALTER SYSTEM SET dailyrollup.writer_timeout = '300ms'});
$node->reload;
for my $table (qw(held waits_current waits))
{
	$open->safe("BEGIN; LOCK TABLE $table IN ACCESS EXCLUSIVE MODE;");
	sql(q{SELECT rollup_reseed('waits'); SELECT rollup_reseed('after_it')});
	wait_for(q{reseed IS NULL FROM dailyrollup.rollups WHERE live = 'after_it'::regclass}, "$table is locked: the others are served");
	wait_for(q{failures > 0 AND retry_at > now() FROM dailyrollup.rollups WHERE live = 'waits'::regclass}, "and it has failed") if $table ne 'waits_current';
	$open->safe('COMMIT;');
	sql(q{UPDATE dailyrollup.rollups SET retry_at = now() WHERE live = 'waits'::regclass});
	wait_for(q{failures = 0 AND reseed IS NULL FROM rollup_status WHERE rollup = 'waits'::regclass}, "free again: so is it");
}
# worker.c, list_rollups: those that have failed come last
create('behind');
served('behind', 'a rollup that comes after it');
$node->safe_psql('postgres', q{ALTER SYSTEM SET dailyrollup.writer_timeout = '20s'});
$node->reload;
quiet();
$open->safe('BEGIN; LOCK TABLE held IN ACCESS EXCLUSIVE MODE;');
sql(q{BEGIN; SELECT rollup_reseed('waits'), rollup_reseed('behind');
	UPDATE dailyrollup.rollups SET failures = 1, last_error = 'then' WHERE live = 'waits'::regclass; COMMIT;});
wait_for(q{reseed IS NULL FROM dailyrollup.rollups WHERE live = 'behind'::regclass}, 'it is served');
is(sql(q{SELECT failures FROM dailyrollup.rollups WHERE live = 'waits'::regclass}), '1', 'before what has failed and waits');
$open->safe('COMMIT;');
wait_for(q{failures = 0 AND reseed IS NULL FROM rollup_status WHERE rollup = 'waits'::regclass}, 'which is served then');

# stop.c, lock_in_slice: who queues for a lock, a moment of each two, can be canceled
$open->safe('BEGIN; SELECT count(*) FROM held;');
for my $timeout (1500, 1600)
{
	$node->psql('postgres', "SET statement_timeout = $timeout; SELECT rollup_drop('waits', true)", stderr => \$stderr);
	like($stderr, qr/canceling statement due to statement timeout/, "canceled after $timeout ms");
}
$open->safe('COMMIT;');
$node->safe_psql('postgres', q{ALTER SYSTEM RESET dailyrollup.writer_timeout});
$node->reload;
sql(q{SELECT rollup_drop('waits', true)});

# ------------------------------------------------------ prepared transactions

# shared.c, dr_shared_prepared_ended: a commit that changes no rollup wakes nobody
quiet();
sleep 1.2;
$mark = log_end();
sql("CREATE TABLE plain (x int)");
sql("BEGIN; INSERT INTO plain VALUES ($_); PREPARE TRANSACTION 'p$_'") for 1 .. 2;
for (1 .. 2) { sql("COMMIT PREPARED 'p$_'"); sleep 1.1; }
is(workers($postgres, $mark), 0, 'COMMIT PREPARED of other work starts no worker');
sql("BEGIN; SELECT rollup_create('undone', 'SELECT k, count(*), sum(n) FROM events GROUP BY k', 'at', mode => 'on'); PREPARE TRANSACTION 'undone'");
sql("ROLLBACK PREPARED 'undone'");
sql("BEGIN; SELECT rollup_create('prepared', 'SELECT k, count(*), sum(n) FROM events GROUP BY k', 'at', time_zone => '$zone', mode => 'on'); PREPARE TRANSACTION 'done'");
sql("BEGIN; INSERT INTO plain VALUES (4); PREPARE TRANSACTION 'p4'");
sql("COMMIT PREPARED 'p4'");
sql("COMMIT PREPARED 'done'");
served('prepared', 'created by COMMIT PREPARED');
quiet();
sleep 1.2;
$mark = log_end();
sql("BEGIN; INSERT INTO plain VALUES (5); PREPARE TRANSACTION 'p5'");
sql("COMMIT PREPARED 'p5'");
sleep 1.2;
is(workers($postgres, $mark), 0, 'of which nobody is told again');

# worker.c, dailyrollup_worker: what a pass has changed wakes nobody
$mark = log_end();
sql(q{SELECT rollup_reseed('prepared')});
wait_for(q{reseed IS NULL FROM dailyrollup.rollups WHERE live = 'prepared'::regclass}, 'a reseed');
quiet();
sleep 1.5;
is(workers($postgres, $mark), 1, 'by one worker');

# --------------------------------------------------- a rollup that is never due

# worker.c, serve_all: a midnight that was due before is looked at once
sql("SELECT rollup_create('folded', 'SELECT k, count(*), sum(n) FROM events GROUP BY k', 'at', time_zone => '$zone', mode => 'off')");
wait_for(q{state = 'off' FROM rollup_status WHERE rollup = 'folded'::regclass}, 'a rollup that is folded on write');
quiet();
sleep 1.2;
$mark = log_end();
sleep 2.5;
is(workers($postgres, $mark), 0, 'no worker looks at it again before the next midnight');
sql(q{SELECT rollup_drop('folded', true)});

# ------------------------------------------- CREATE and DROP EXTENSION, undone

$mark = log_end();
sql('CREATE DATABASE pool');
sql("CREATE TABLE events AS $rows; ALTER TABLE events ALTER at SET NOT NULL; CREATE INDEX ON events (k, at);", 'pool');
my $pool = DrSession->new(name => '', connstr => $node->connstr('pool'));
my $waits = q{count(*) = 1 FROM pg_stat_activity WHERE datname = 'pool' AND backend_type = 'dailyrollup worker' AND wait_event_type = 'Lock'};
$pool->safe("SET client_min_messages = error; BEGIN; CREATE EXTENSION dailyrollup; SELECT rollup_create('daily', 'SELECT k, count(*), sum(n) FROM events GROUP BY k', 'at', mode => 'on');");
$node->reload;
sleep 1.5;
$pool->safe('ROLLBACK;');
sql('CREATE EXTENSION dailyrollup', 'pool');
create('daily', database => 'pool');
served('daily', 'CREATE EXTENSION after one that was rolled back', 'pool');
for my $end (qw(ROLLBACK COMMIT))
{
	quiet();
	sleep 1.2;
	# catalog.c, open_rollups: the worker waits for what the transaction drops
	$pool->safe('SET client_min_messages = error; BEGIN; DROP EXTENSION dailyrollup CASCADE;');
	$node->reload;
	wait_for($waits, 'a worker waits for a transaction that drops the extension');
	$pool->safe("$end;");
	quiet();
	served('daily', 'DROP EXTENSION rolled back', 'pool') if $end eq 'ROLLBACK';
}
is(internal_errors($mark), '', 'without an internal error');
is(log_lines('exited with exit code 1', $mark), 0, 'each worker comes to its end');
$pool->quit;

# ---------------------------------------------------- other roles' databases

# hold.c, may_copy: who may create databases, but not copy this one
sql(<<"SQL", 'pool');
CREATE EXTENSION dailyrollup;
DROP TABLE daily;
CREATE FUNCTION slow(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.03); RETURN \$1; END';
SQL
create('daily', database => 'pool', query => 'SELECT k, count(*), sum(slow(n)) FROM events GROUP BY k');
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = 'pool' AND query ~ 'seed of public.daily'}) or die;
$mark = log_end();
for my $command ('CREATE DATABASE mine TEMPLATE pool', 'DROP DATABASE pool', 'ALTER DATABASE pool RENAME TO mine', 'ALTER DATABASE pool SET TABLESPACE pg_default')
{
	$node->psql('postgres', $command, stderr => \$stderr, extra_params => [ '-U', 'ben' ]);
	like($stderr, qr/permission denied|must be owner/, "$command by somebody else");
}
sql('ALTER DATABASE pool CONNECTION LIMIT 50');
is(sql(q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'pool' AND query ~ 'seed of public.daily'}), '1', 'does not end its worker');
wait_for(q{state = 'on' FROM rollup_status}, 'which goes on', 'pool');
is(log_lines('terminating background worker', $mark), 0, 'without a break');

# worker.c, override_settings: the database's owner makes everybody somebody else
sql('ALTER DATABASE pool OWNER TO ben');
$node->safe_psql('pool', q{ALTER DATABASE pool SET session_authorization = 'ben'}, extra_params => [ '-U', 'ben' ]);
{
	my $superuser = sql('SELECT current_user');
	local $ENV{PGOPTIONS} = "-c session_authorization=$superuser";
	create('theirs', database => 'pool');
	served('theirs', 'in a database where all are its owner', 'pool');
}
sql('DROP DATABASE pool');

# --------------------------------------------------------- databases' names

my $odd = q{it's "odd" \name};
my $quoted = '"' . $odd =~ s/"/""/gr . '"';
$node->safe_psql('postgres', "CREATE DATABASE $quoted");
my $connstr = $node->connstr . " dbname='" . $odd =~ s/([\\'])/\\$1/gr . "'";
sub odd_sql { return $node->safe_psql($odd, "SET client_min_messages = error; SET search_path = \"Our Own\", public;\n$_[0]", connstr => $connstr) }
odd_sql("CREATE SCHEMA \"Our Own\"; CREATE EXTENSION dailyrollup SCHEMA \"Our Own\"; CREATE TABLE events AS $rows; ALTER TABLE events ALTER at SET NOT NULL;");
odd_sql("SELECT rollup_create('daily', 'SELECT k, count(*), sum(n) FROM events GROUP BY k', 'at', time_zone => '$zone', mode => 'on')");
for (1 .. 100) { last if odd_sql('SELECT state FROM rollup_status') eq 'on'; sleep 0.1; }
is(odd_sql(q{SELECT state, run_by, next_due > now(), (SELECT count(*) FROM rollup_plan()), (SELECT count(*) FROM rollup_verify('daily')) FROM rollup_status}), 'on|worker|t|0|0',
	'a database with quotes and spaces, the extension in a schema of its own');
$node->safe_psql('postgres', "ALTER SYSTEM SET dailyrollup.databases = '" . $quoted =~ s/'/''/gr . "'");
$node->reload;
for (1 .. 100) { last if sql(q{SELECT bool_and(run_by = 'nobody') FROM rollup_status}) eq 't'; sleep 0.1; }
is(sql(q{SELECT bool_and(run_by = 'nobody') FROM rollup_status}) . odd_sql(q{SELECT run_by FROM rollup_status}), 'tworker', 'dailyrollup.databases with that name');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET dailyrollup.databases');
$node->reload;

# one that lets nobody in, and a template
my $closed = log_end();
$node->safe_psql('postgres', "ALTER DATABASE $quoted ALLOW_CONNECTIONS false");
$node->safe_psql('postgres', "ALTER DATABASE $quoted IS_TEMPLATE true");
$node->reload;
sleep 1.5;
is(log_lines(qr/not currently accepting connections/, $closed), 0, 'no worker for a database that lets nobody in');
$node->psql('postgres', "CREATE DATABASE copied TEMPLATE $quoted", stderr => \$stderr, extra_params => [ '-U', 'ben' ]);
is($stderr, '', 'copied as a template');
$node->reload;
for (1 .. 100) { last if $node->safe_psql('copied', q{SELECT last_action IS NOT NULL FROM "Our Own".rollup_status}) eq 't'; sleep 0.1; }
is($node->safe_psql('copied', q{SELECT state, run_by FROM "Our Own".rollup_status}), 'on|worker', 'a copy of a template is served');

# ----------------------------------------------------------- many databases

# worker.c, wait_for_worker: with more databases than worker processes, each has
# its turn, and the log is not filled
$node->safe_psql('postgres', "CREATE DATABASE many$_ STRATEGY wal_log") for 1 .. 14;
my @many = map { database("many$_") } 1 .. 14;
quiet();
sleep 1.2;
$mark = log_end();
$node->reload;
my $start = time;
my $left = 1;
my $most = 0;
while ($left && time - $start < 30)
{
	for (1 .. 20)
	{
		my $n = sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'dailyrollup worker'});
		$most = $n if $n > $most;
	}
	$left = grep { workers($_, $mark) == 0 } @many;
}
is($left, 0, 'each of many databases has its turn');
cmp_ok(time - $start, '<', 8, 'soon');
cmp_ok($most, '<=', 2, 'a few at a time');
is(log_lines('no background worker is free', $mark), 0, 'no complaint of our own workers');

# ------------------------------------------- the worker, and others' passes

# as with pg_cron, or several jobs: nobody does what another has done, nobody fails
$node->safe_psql('postgres', q{ALTER SYSTEM SET dailyrollup.late_interval = '1s'});
$node->reload;
create('jointly');
served('jointly', 'before all that');
$mark = log_end();
my @jobs = map { DrSession->new(name => $_, connstr => $node->connstr('postgres')) } 1 .. 2;
my $writer = DrSession->new(name => 'writer', connstr => $node->connstr('postgres'));
my ($said, $promotes) = ('', 0);
for my $mode (qw(shadow on shadow off on reseed shadow on))
{
	$_->send("CALL rollup_run('jointly');" x 5) for @jobs;
	$writer->safe("INSERT INTO events SELECT i % 5, now() - i * interval '1 day', i FROM generate_series(0, 3) i;") for 1 .. 3;
	$said .= $_->answer for @jobs;
	my $wish = $mode eq 'reseed' ? "rollup_reseed('jointly')" : "rollup_alter('jointly', mode => '$mode')";
	$writer->safe("SELECT $wish;");
	$promotes++ if $mode =~ /on|reseed/;
	$_->send("CALL rollup_run('jointly');" x 5) for @jobs;
	$said .= $_->answer for @jobs;
	$node->poll_query_until('postgres', q{SELECT state = wanted_mode AND reseed IS NULL AND (watermark IS NOT NULL OR state = 'off') FROM rollup_status WHERE rollup = 'jointly'::regclass}) or die "$mode: not reached";
}
unlike($said, qr/ERROR|WARNING/, 'no pass fails, whoever else makes one');
is(log_lines('(?:ERROR|WARNING): ', $mark), 0, 'nor does the worker');
is(sql(qq{SELECT count(*) - 1 FROM rollup_runs WHERE rollup = 'jointly'::regclass AND action = 'promote'}), $promotes, 'each promote is made once');
wait_for(q{late_keys = 0 FROM rollup_status WHERE rollup = 'jointly'::regclass}, 'late keys are healed');
served('jointly', 'after all that');
$_->quit for @jobs, $writer;
$node->safe_psql('postgres', 'ALTER SYSTEM RESET dailyrollup.late_interval');
$node->reload;

# ------------------------------------------------------- owners go and change

$node->safe_psql('postgres', 'ALTER TABLE hers ADD note text');
create('owned', role => 'ann', source => 'hers');
served('owned', 'of a role');
$mark = log_end();
# owner.c, renew_view: a permit that the old owner has kept is worth nothing at once
sql(<<'SQL');
CREATE TABLE kept (p dailyrollup._permit); GRANT INSERT ON kept TO ann; SET ROLE ann; INSERT INTO kept VALUES ('ann.public.owned'); RESET ROLE;
CREATE FUNCTION asked() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM dailyrollup._unmarked(p, 1, 1) FROM kept; RETURN 'permitted'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
SQL
is(sql('SELECT asked()'), 'permitted', 'a permit of the owner');
is(sql('BEGIN; REASSIGN OWNED BY ann TO ben; SELECT asked(); ROLLBACK'), '42501', 'REASSIGN OWNED: it is the old owner\'s');
sql('DROP TABLE kept; DROP FUNCTION asked');
sql('REASSIGN OWNED BY ann TO ben');
is(sql(q{SELECT tableowner FROM pg_tables WHERE tablename = 'owned'}), 'ben', 'REASSIGN OWNED: it has another owner');
sql(q{INSERT INTO hers VALUES (2, now() - interval '2 days', 1); SELECT rollup_reseed('owned')});
wait_for(q{reseed IS NULL AND late_keys = 0 FROM rollup_status WHERE rollup = 'owned'::regclass}, 'and is served');
served('owned', 'of another role');

# owner.c, dr_owner_follow_reassigned: what was not there yet when it looked, for it
# waits for who makes the rollup
sql('ALTER TABLE hers OWNER TO ann');
my ($maker, $giver) = map { DrSession->new(name => $_, connstr => $node->connstr('postgres')) } qw(maker giver);
$maker->run("SET client_min_messages = error; BEGIN; SET ROLE ann; SELECT rollup_create('unseen', '" . sprintf($query, 'hers') . "', 'at', time_zone => '$zone', mode => 'on');");
$giver->send('REASSIGN OWNED BY ann TO ben;');
wait_for(q{count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'REASSIGN%' AND wait_event_type = 'Lock'}, 'REASSIGN OWNED waits');
$maker->run('COMMIT;');
is($giver->answer, '', 'and goes on');
is(sql(q{SELECT string_agg(DISTINCT relowner::regrole::text, ' ') FROM pg_class, dailyrollup.rollups WHERE live = 'unseen'::regclass AND pg_class.oid IN (live, source, marks, events, definition, current_view, (SELECT typrelid FROM pg_type WHERE pg_type.oid = key_type))}),
	'ben', 'a rollup that it has not seen has another owner too');
served('unseen', 'of another role from the beginning');
$_->quit for $maker, $giver;
sql('DROP OWNED BY ann; DROP ROLE ann');
sql('DROP OWNED BY ben CASCADE');
is(sql(q{SELECT count(*) FROM rollup_status WHERE rollup::text IN ('owned', '-')}), '0', 'DROP OWNED: the rollup is gone');
create('last_one');
served('last_one', 'the others');
is(internal_errors($mark), '', 'without an internal error');

$open->quit;
$node->stop;
done_testing();
