# Rows that come by logical replication, and rollups on a physical standby.
#
# A subscriber has a plain and a partitioned source, each with a rollup in state
# off, shadow and on.  What its apply worker writes (initial copy, inserts,
# redeliveries, updates across watermark and partitions, deletes, truncation,
# big and streamed transactions, prepared ones) is folded or marked as if a
# session had written it.  Fails when the row triggers leave out what an apply
# worker writes (capture.c).
#
# On a standby of the subscriber every read is exact, while the primary goes
# through the changes of state, too; what would write says that it cannot.  Fails
# when _current asks for state and watermark by another snapshot than the one
# that reads the rows (seen() in current.c).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrModes;
use DrSession;

my $conf = <<'CONF';
fsync = off
timezone = 'UTC'
log_min_messages = warning
max_prepared_transactions = 10
wal_level = logical
logical_decoding_work_mem = '64kB'
wal_receiver_status_interval = 1
CONF

my $publisher = PostgreSQL::Test::Cluster->new('publisher');
$publisher->init(allows_streaming => 'logical');
$publisher->append_conf('postgresql.conf', $conf);
$publisher->start;
my $subscriber = PostgreSQL::Test::Cluster->new('subscriber');
$subscriber->init(allows_streaming => 1);
$subscriber->append_conf('postgresql.conf', "$conf\ndailyrollup.delay = '1d'\n");
$subscriber->start;

my $there = DrSession->new(name => '', connstr => $publisher->connstr('postgres'));
my $here = DrSession->new(name => '', connstr => $subscriber->connstr('postgres'));
$_->safe('SET client_min_messages = warning;') for $there, $here;

# a publisher without the extension
$there->safe(<<'SQL');
CREATE TABLE events (event bigint PRIMARY KEY, subject text, name text, ts timestamptz NOT NULL, v numeric);
CREATE TABLE parted (event bigint, subject text, name text, ts timestamptz NOT NULL, v numeric, PRIMARY KEY (event, ts));
CREATE SEQUENCE event;
CREATE FUNCTION add(n int, back interval DEFAULT '6 days') RETURNS void LANGUAGE sql AS $$
	WITH new AS (
		SELECT nextval('event') AS event, nullif('van ' || (random() * 5)::int, 'van 0') AS subject,
			nullif((array['speed', 'fuel'])[1 + (random() < 0.5)::int], 'fuel') AS name,
			date_bin('10 min', clock_timestamp() - random() * back, '2020-01-01') AS ts, (random() * 100)::int AS v
		FROM generate_series(1, n)),
	added AS (INSERT INTO events SELECT * FROM new)
	INSERT INTO parted SELECT * FROM new $$;
SELECT setseed(0.3);
SELECT add(500);
CREATE PUBLICATION everything FOR TABLE events, parted;
SQL
$here->safe("CREATE EXTENSION dailyrollup;\n$DrModes::COMPARE" . <<'SQL');
CREATE TABLE events (event bigint PRIMARY KEY, subject text, name text, ts timestamptz NOT NULL, v numeric);
CREATE TABLE parted (event bigint, subject text, name text, ts timestamptz NOT NULL, v numeric, PRIMARY KEY (event, ts))
	PARTITION BY RANGE (ts);
CREATE INDEX ON events (subject, name, ts);
CREATE INDEX ON parted (subject, name, ts);
DO $$
BEGIN
	EXECUTE (SELECT string_agg(format('CREATE TABLE parted_%s PARTITION OF parted FOR VALUES FROM (%L) TO (%L)',
		n, day, day + interval '1 day'), ';')
		FROM generate_series(1, 9) n, LATERAL (SELECT date_trunc('day', now(), 'UTC') + (n - 8) * interval '1 day' AS day) d);
END $$;
CREATE TABLE parted_default PARTITION OF parted DEFAULT;
CREATE FUNCTION make(source text, mode text) RETURNS regclass LANGUAGE sql AS $$
	SELECT rollup_create(source || '_' || mode, format('
		SELECT subject, name, count(*) AS count, sum(v) AS total, min(ts) AS first_seen, max(ts) AS last_seen,
		       latest(v, ts) FILTER (WHERE v > 10) AS v, max(ts) FILTER (WHERE v > 10) AS v_ts
		FROM %s GROUP BY subject, name', source),
		time_column => 'ts', mode => mode,
		dedup_by => CASE source WHEN 'events' THEN '{subject,name,ts}'::name[] END,
		dedup_order => CASE source WHEN 'events' THEN '{event}'::name[] END) $$;
SELECT make(source, mode) FROM unnest('{events,parted}'::text[]) source, unnest('{off,shadow,on}'::text[]) mode;
CALL rollup_run();
SQL

sub states
{
	my ($session) = @_;

	return $session->safe('SELECT string_agg(state, $$ $$ ORDER BY rollup::text) FROM rollup_status;');
}

# Rollups that are not as their state wants them, or not as this session sees.
sub wrong
{
	my ($session) = @_;

	return $session->safe('SELECT string_agg(format($$%s %s$$, rollup, x), $$, $$) FROM rollup_status, wrong(rollup) x
		WHERE live_wrong + shadow_wrong + current_wrong > 0;');
}

my $states = 'off on shadow off on shadow';
is(states($here), $states, 'the rollups of the subscriber');

# --- logical replication ----------------------------------------------------

my $connstr = $publisher->connstr('postgres');
# (In parallel, as 18 would: there the server's apply worker warns of each row that
# fires an AFTER trigger of a partition, and stands still over so many warnings.)
$here->safe("CREATE SUBSCRIPTION feed CONNECTION \$\$$connstr\$\$ PUBLICATION everything WITH (two_phase = on, streaming = off);");
$subscriber->wait_for_subscription_sync($publisher, 'feed');
$subscriber->poll_query_until('postgres', "SELECT subtwophasestate = 'e' FROM pg_subscription;");

sub arrived
{
	my ($what) = @_;

	$publisher->wait_for_catchup('feed');
	is(wrong($here), '', "$what: exact");
	return;
}

# As arrived, and once more after a pass.
sub arrived_and_run
{
	my ($what) = @_;

	arrived($what);
	is($here->run('CALL rollup_run();'), '', "$what: a pass");
	is(wrong($here), '', "$what: exact after it");
	return;
}

is($here->safe('SELECT count(*) FROM events;'), 500, 'the initial copy');
arrived_and_run('the initial copy');
cmp_ok($here->safe('SELECT sum(count) FROM events_on;'), '>', 0, 'state on has something by then');

$there->safe('SELECT add(100);');
$there->safe("SELECT add(20, '1 min');");
arrived_and_run('inserts');
$there->safe("INSERT INTO events SELECT nextval('event'), subject, name, ts, v FROM events ORDER BY event LIMIT 100;
	INSERT INTO parted SELECT nextval('event'), subject, name, ts, v FROM parted ORDER BY event LIMIT 100;");
arrived('redeliveries');
$there->safe("UPDATE $_ SET v = v + 1 WHERE event % 7 = 0;") for qw(events parted);
arrived('updates');
$there->safe("UPDATE $_ SET ts = ts - interval '3 days', subject = 'van 2' WHERE event % 11 = 0;") for qw(events parted);
arrived_and_run('updates of time and key');
$there->safe("DELETE FROM $_ WHERE event % 13 = 0 OR subject IS NULL;") for qw(events parted);
is($here->run(''), '', 'meanwhile nothing');
arrived('deletes');
is($here->safe('SELECT count(*) FROM events_off WHERE subject IS NULL;'), 0, 'a key without a row is gone');
$there->safe(<<'SQL');
BEGIN;
SELECT add(10);
SAVEPOINT a;
SELECT add(10);
DELETE FROM events WHERE event % 5 = 0;
ROLLBACK TO a;
SAVEPOINT b;
UPDATE parted SET v = v * 2 WHERE event % 3 = 0;
DELETE FROM events WHERE event % 17 = 0;
RELEASE b;
SELECT add(10, '1 min');
COMMIT;
SQL
arrived_and_run('savepoints');

$there->safe("SELECT add(4000), add(4000, '1 min');");
arrived_and_run('a big transaction');
$here->safe('ALTER SUBSCRIPTION feed SET (streaming = on);');
$there->safe("BEGIN; SELECT add(3000); SAVEPOINT a; SELECT add(3000); ROLLBACK TO a; SELECT add(3000, '1 min');
	UPDATE parted SET v = v + 1 WHERE event % 10 = 0; DELETE FROM events WHERE event % 10 = 0; COMMIT;");
arrived_and_run('a streamed transaction');
cmp_ok($there->safe("SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = 'feed';"),
	'>', 0, 'it was streamed');

# prepared there, prepared here
my $before = $here->safe('SELECT count(*), sum(count) FROM parted_off;');
$there->safe("BEGIN; SELECT add(50), add(5, '1 min'); DELETE FROM parted WHERE event % 4 = 0; PREPARE TRANSACTION 'one';");
$publisher->wait_for_catchup('feed');
is($here->safe('SELECT count(*) FROM pg_prepared_xacts;'), 1, 'a transaction is prepared on the subscriber');
is($here->safe('SELECT count(*), sum(count) FROM parted_off;'), $before, 'nobody sees it');
$there->safe("COMMIT PREPARED 'one';");
arrived_and_run('a prepared transaction');
$there->safe("BEGIN; SELECT add(50); PREPARE TRANSACTION 'two'; ROLLBACK PREPARED 'two';");
arrived('one that is not committed');

is(states($here), $states, 'no state has changed');
$there->safe('TRUNCATE events, parted;');
arrived('truncation');
is(states($here), 'new on new new on new', 'what was folded is to be filled anew');
is($here->safe('SELECT count(*) FROM parted_off_current;'), 0, 'nothing is left');
is($here->run('CALL rollup_run();'), '', 'a pass');
is(states($here), $states, 'and each rollup is where it was');
is(wrong($here), '', 'truncation: exact after it');
$there->safe('BEGIN; SELECT add(100); TRUNCATE events; SELECT add(100); COMMIT; SELECT add(10);');
arrived_and_run('rows around a truncation');
arrived_and_run('nothing');
is($here->safe('SELECT count(*) FROM rollup_check() WHERE rows <> keys;'), 0, 'rows = keys');
# but what the server meets when it starts the worker anew for two_phase
is(join("\n", grep { !/replication origin with ID/ } slurp_file($subscriber->logfile) =~ /^.* ERROR: .*/mg), '',
	'the apply worker has met no error');

# --- a standby --------------------------------------------------------------

$subscriber->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($subscriber, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nmax_standby_streaming_delay = -1");
$standby->start;
my $reader = DrSession->new(name => '', connstr => $standby->connstr('postgres'));
$reader->safe('SET client_min_messages = warning;');

sub follows
{
	my ($what) = @_;

	$publisher->wait_for_catchup('feed');
	$subscriber->wait_for_catchup('standby');
	is(wrong($here), '', "$what: exact on the primary");
	is(wrong($reader), '', "$what: exact on the standby");
	is(states($reader), states($here), "$what: in the same states");
	return;
}

follows('a standby');
$there->safe("SELECT add(100), add(10, '1 min'); DELETE FROM parted WHERE event % 3 = 0;");
follows('rows');
cmp_ok($reader->safe('SELECT count(*) FROM rollup_late;'), '>', 0, 'late keys wait');
is($reader->safe('SELECT count(*) FROM rollup_late;'), $here->safe('SELECT count(*) FROM rollup_late;'), 'as on the primary');
$here->safe('CALL rollup_run();');
follows('a pass');
$here->safe("SET dailyrollup.backfill = on; INSERT INTO events VALUES (-1, 'van 1', NULL, now(), 7); RESET dailyrollup.backfill;");
follows('a backfill');
$there->safe('TRUNCATE parted;');
follows('state new');
is(states($reader), 'off on shadow new on new', 'which it is');
$there->safe('SELECT add(500);');
$publisher->wait_for_catchup('feed');
$here->safe('CALL rollup_run();');
follows('filled anew');
is($reader->safe("SELECT count(*) FROM rollup_check('events_on') WHERE rows = keys;"), 1, 'a standby can count');
is($reader->safe("SELECT count(*) FROM rollup_verify('events_on');"), 0, 'compare');
is($reader->safe("SELECT count(*) FROM rollup_diff('events_shadow');"), 0, 'and compare with the shadow');

# what would write
for my $call (
	'CALL rollup_run()', "CALL rollup_run('events_on')", 'SELECT rollup_refresh()',
	"SELECT rollup_refresh('events_on')", 'SELECT rollup_promote()', "SELECT rollup_promote('events_shadow')",
	"SELECT rollup_alter('events_on', mode => 'off')", "SELECT rollup_alter('events_on', delay => '1 h')",
	"SELECT rollup_alter('events_on', time_zone => 'Europe/Berlin')", "SELECT rollup_alter('events_off', fold => false)",
	"SELECT rollup_recompute('events_off')", "SELECT rollup_flush('events_off')", "SELECT rollup_reseed('events_on')",
	"SELECT rollup_mark('events_on', '-infinity', 'infinity')", 'SELECT rollup_fold()',
	"SELECT rollup_drop('events_on')", "SELECT rollup_create('again', 'SELECT subject, count(*) AS count FROM events GROUP BY 1', 'ts')")
{
	my ($function) = $call =~ /(rollup_\w+)\(/;
	like($reader->run("$call;"), qr/^ERROR:  25006: cannot execute \Q$function\E\(\) (?:during recovery|in a read-only transaction)\n/m,
		"on a standby: $call");
}

# The primary goes through changes while the standby reads.
$here->send(<<'SQL');
SELECT rollup_promote('parted_shadow'); SELECT rollup_promote('events_shadow');
SELECT rollup_alter('parted_off', mode => 'on'); SELECT rollup_alter('events_off', mode => 'shadow');
SELECT rollup_alter('parted_on', mode => 'off'); SELECT rollup_alter('events_on', mode => 'shadow');
SELECT pg_sleep(0.2); CALL rollup_run();
SELECT rollup_reseed('parted_shadow'); SELECT rollup_alter('events_off', mode => 'on');
SELECT rollup_alter('events_on', mode => 'on'); SELECT rollup_alter('parted_on', mode => 'shadow');
SELECT pg_sleep(0.2); CALL rollup_run();
SELECT rollup_alter('parted_shadow', mode => 'shadow'); SELECT pg_sleep(0.2); CALL rollup_run();
SQL
my ($reads, $complaints, %seen) = (0, '');
for (1 .. 40)
{
	$there->safe('SELECT add(3), add(1, $$1 min$$);');
	$complaints .= $reader->run('SELECT string_agg(format($$%s %s$$, rollup, x), $$, $$) FROM rollup_status, wrong(rollup, false) x
		WHERE live_wrong + shadow_wrong + current_wrong > 0 OR live_rows = 0 HAVING count(*) > 0;');
	$seen{ states($reader) } = 1;
	select undef, undef, undef, 0.02;
}
unlike($here->answer, qr/^(?:ERROR|WARNING)/m, 'the primary changes states');
is($complaints, '', 'every read on the standby is exact');
cmp_ok(scalar keys %seen, '>', 2, 'in states that change meanwhile');
follows('in the end');
is(states($reader), 'on on on on shadow shadow', 'the changes have been made');

# what was a standby is a primary
$reader->quit;
$here->safe('DROP SUBSCRIPTION feed;');
$subscriber->wait_for_catchup('standby');
$standby->promote;
$reader = DrSession->new(name => '', connstr => $standby->connstr('postgres'));
$reader->safe("SET client_min_messages = warning; INSERT INTO events VALUES (-2, 'van 1', NULL, now(), 7), (-3, 'van 1', NULL, now() - interval '5 days', 8);
	INSERT INTO parted VALUES (-2, 'van 1', NULL, now(), 7);");
is(wrong($reader), '', 'a promoted standby takes rows');
$reader->safe("SELECT rollup_alter(rollup, mode => 'off') FROM rollup_status; CALL rollup_run();");
is(states($reader), 'off off off off off off', 'and makes passes');
is(wrong($reader), '', 'exactly');

$_->quit for $there, $here, $reader;
$_->stop for $standby, $subscriber, $publisher;
done_testing();
