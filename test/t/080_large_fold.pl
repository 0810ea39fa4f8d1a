# Folds that are big, or happen where little is expected to happen, or fail.
#
# A transaction keeps what it has written until it ends: more than work_mem goes
# to files, which must be gone afterwards; ten thousand subtransactions must not
# keep their memory, and what an aborted one has written must go (level_aborted()
# in batch.c).  The fold comes after the server has closed cursors and
# fired triggers, so what live's own triggers do then, cursors WITH HOLD, COMMIT
# in loops, two phases and autocommit have their tests.  Where it fails the
# writer's transaction fails, with the rollup's name, and nothing else.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DrSession;

my $node = PostgreSQL::Test::Cluster->new('large');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
fsync = off
timezone = 'UTC'
log_min_messages = warning
max_prepared_transactions = 10
max_wal_size = 2GB
CONF
$node->start;

my $session = DrSession->new(name => '', connstr => $node->connstr('postgres'));
my $other = DrSession->new(name => '', connstr => $node->connstr('postgres'));
$_->safe('SET client_min_messages = warning;') for $session, $other;

# differs(rollup): rows by which live, or _current, is not its definition
$session->safe(<<'SQL');
CREATE EXTENSION dailyrollup;
CREATE FUNCTION differs(r regclass) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('WITH l AS MATERIALIZED (TABLE %s), c AS MATERIALIZED (TABLE %s), d AS MATERIALIZED (%s)
		SELECT (SELECT count(*) FROM ((TABLE l EXCEPT ALL TABLE d) UNION ALL (TABLE d EXCEPT ALL TABLE l)) x)
			+ (SELECT count(*) FROM ((TABLE c EXCEPT ALL TABLE d) UNION ALL (TABLE d EXCEPT ALL TABLE c)) x)',
		r, r || '_current', rollup_definition(r)) INTO n;
	RETURN n;
END $$;
CREATE FUNCTION row_at(i int, OUT k int, OUT ts timestamptz, OUT v int) LANGUAGE sql IMMUTABLE AS $$
	SELECT (hashint4(i) & 1048575) % 5000, '2026-01-01 00:00+00'::timestamptz + (hashint4(-i) & 1048575) * interval '1 s', i % 1000 $$;
SQL

# A source with a rollup in state off.
sub make
{
	my ($source, $dedup, $query) = @_;

	$query //= 'SELECT k, count(*) AS count, sum(v) AS total, min(ts) AS first_seen, max(ts) AS last_seen, latest(v, ts) AS v FROM %s GROUP BY k';
	$session->safe("CREATE TABLE $source (k int, ts timestamptz NOT NULL, v int, id bigserial); CREATE INDEX ON $source (k, ts);");
	$session->safe("SELECT rollup_create('${source}_live', \$\$" . sprintf($query, $source) . "\$\$, time_column => 'ts'"
		  . ($dedup ? ", dedup_by => '{k,ts}', dedup_order => '{id}'" : '') . ", mode => 'off'); CALL rollup_run('${source}_live');");
	return;
}

sub exact
{
	my ($what, @rollups) = @_;

	is($session->safe("SELECT string_agg(rollup, ' ') FROM unnest('{" . join(',', @rollups) . "}'::text[]) rollup WHERE differs(rollup::regclass) > 0;"),
		'', "$what: exact");
	return;
}

sub sqlstates { return join ' ', DrSession::errors($_[0]); }

# --- more than work_mem -----------------------------------------------------

make('added', 0);
make('deduped', 1);
sub temporary_files { return $other->safe('SELECT count(*) FROM pg_ls_tmpdir();'); }
my @both = qw(added_live deduped_live);

$session->safe("SET work_mem = '64kB'; BEGIN;");
$session->safe(<<"SQL") for qw(added deduped);
INSERT INTO $_ (k, ts, v) SELECT r.* FROM generate_series(1, 60000) i, row_at(i) r;
SAVEPOINT a;
INSERT INTO $_ (k, ts, v) SELECT r.* FROM generate_series(60001, 120000) i, row_at(i) r;
RELEASE a;
SAVEPOINT b;
INSERT INTO $_ (k, ts, v) SELECT r.k + 1, r.ts, r.v FROM generate_series(1, 50000) i, row_at(i) r;
SAVEPOINT c;
INSERT INTO $_ (k, ts, v) SELECT r.k + 2, r.ts, r.v FROM generate_series(1, 10000) i, row_at(i) r;
ROLLBACK TO b;
INSERT INTO $_ (k, ts, v) SELECT r.* FROM generate_series(110001, 200000) i, row_at(i) r;
SQL
cmp_ok(temporary_files(), '>', 1, 'what is kept lies in temporary files');
is($session->safe('COMMIT; SELECT sum(count) FROM added_live;'), 210000, 'a big transaction is folded');
is(temporary_files(), 0, 'and has left no file behind');
exact('200,000 rows in a transaction', @both);
is($session->safe('SELECT sum(count) < 200001 FROM deduped_live;'), 't', 'events that came twice count once');

$session->safe("BEGIN; UPDATE added SET v = v + 1 WHERE id % 4 = 0; DELETE FROM deduped WHERE id % 5 = 0;");
cmp_ok(temporary_files(), '>', 0, 'changes, too');
$session->safe('ROLLBACK;');
is(temporary_files(), 0, 'files go when it rolls back');
exact('a rollback', @both);
$session->safe("BEGIN; UPDATE added SET v = v + 1, k = k + 1 WHERE id % 4 = 0; DELETE FROM deduped WHERE id % 5 = 0; COMMIT;");
is(temporary_files(), 0, 'files go when it commits');
exact('changes of 90,000 rows', @both);

# a copy, in state off
my $part = "$PostgreSQL::Test::Utils::tmp_check/copied.csv";
$session->safe("\\copy (SELECT r.k, r.ts + interval '20 days', r.v FROM generate_series(1, 300000) i, row_at(i) r) TO '$part'");
$session->safe("\\copy added (k, ts, v) FROM '$part'");
is(temporary_files(), 0, 'a copy leaves no file behind');
is($session->safe('SELECT sum(count) FROM added_live;'), 510000, 'a copy of 300,000 rows');
exact('a copy', 'added_live');
$session->safe("RESET work_mem;");

# --- subtransactions --------------------------------------------------------

make('nested', 0);
my $memory = $session->safe(<<'SQL');
BEGIN;
DO $$
BEGIN
	FOR i IN 1 .. 10000 LOOP
		BEGIN
			INSERT INTO nested (k, ts, v) SELECT * FROM row_at(i);
			IF i % 3 = 0 THEN
				RAISE EXCEPTION USING ERRCODE = 'DR000';
			ELSIF i % 5 = 0 THEN
				BEGIN
					UPDATE nested SET v = -i WHERE id % 1000 = i % 1000;
					IF i % 2 = 0 THEN
						RAISE EXCEPTION USING ERRCODE = 'DR000';
					END IF;
				EXCEPTION WHEN SQLSTATE 'DR000' THEN
					NULL;
				END;
			END IF;
		EXCEPTION WHEN SQLSTATE 'DR000' THEN
			NULL;
		END;
	END LOOP;
END $$;
SELECT sum(total_bytes) / 1024 / 1024 < 40 FROM pg_backend_memory_contexts;
COMMIT;
SQL
is($memory, 't', '10,000 subtransactions do not keep their memory');
is($session->safe('SELECT sum(count) FROM nested_live;'), 10000 - 3333, 'those that aborted do not count');
exact('subtransactions', 'nested_live');

$session->safe(join "\n", 'BEGIN;', "INSERT INTO nested VALUES (1, now(), 1);",
	(map { "SAVEPOINT s$_; INSERT INTO nested VALUES ($_, now(), $_);" } 1 .. 60),
	'ROLLBACK TO s40;', (map { "SAVEPOINT t$_; INSERT INTO nested VALUES (1000 + $_, now(), $_); SELECT rollup_fold();" } 1 .. 30),
	'ROLLBACK TO t10;', "INSERT INTO nested VALUES (2000, now(), 1); SELECT rollup_fold();", 'RELEASE s20;',
	"UPDATE nested SET v = 7 WHERE k = 2000;", 'COMMIT;');
is($session->safe('SELECT count(*) FROM nested_live WHERE last_seen > now() - interval $$1 h$$;'), 1 + 38 + 9 + 1, 'levels within levels');
exact('savepoints and rollup_fold()', 'nested_live');

# --- many rollups of one source ---------------------------------------------

$session->safe('CREATE TABLE many (a int, b text, ts timestamptz NOT NULL, v numeric, id bigserial); CREATE INDEX ON many (a, b, ts);');
my @many = map { "many_$_" } 1 .. 20;
for my $n (1 .. 20)
{
	my $key = (qw(a b), 'a % 7', 'lower(b)', 'a, b')[ $n % 5 ];
	my @keys = map { "$_->[0] AS k$_->[1]" } do { my $i = 0; map { [ $_, ++$i ] } split /, /, $key };
	my $where = $n % 3 == 0 ? 'WHERE v > 10' : '';
	my $dedup = $n % 4 == 0 ? ", dedup_by => '{a,b,ts}', dedup_order => '{id}'" : '';
	$session->safe("SELECT rollup_create('many_$n', \$\$SELECT " . join(', ', @keys) . ", count(*) AS count, sum(v) AS total,
		max(ts) AS last_seen, latest(v, ts) AS v FROM many $where GROUP BY $key\$\$, time_column => 'ts', mode => 'off'$dedup);");
}
$session->safe('CALL rollup_run();');
is($session->safe("SELECT count(*) FROM rollup_status WHERE rollup::text LIKE 'many%' AND state = 'off';"), 20, 'twenty rollups of one source');
$session->safe(<<'SQL');
INSERT INTO many (a, b, ts, v) SELECT i % 50, CASE i % 4 WHEN 1 THEN 'x' WHEN 2 THEN 'X' WHEN 3 THEN 'y' END,
	'2026-01-01 00:00+00'::timestamptz + i % 997 * interval '1 h', i % 100 FROM generate_series(1, 3000) i;
SQL
exact('twenty folds', @many);
$session->safe("BEGIN; INSERT INTO many (a, b, ts, v) SELECT a, b, ts, v + 1 FROM many WHERE id % 7 = 0; SAVEPOINT a;
	DELETE FROM many WHERE a = 3; ROLLBACK TO a; UPDATE many SET v = NULL, b = 'z' WHERE id % 11 = 0; DELETE FROM many WHERE a = 4; COMMIT;");
exact('twenty folds of changes', @many);
$session->safe('SELECT rollup_drop(rollup, true) FROM rollup_status WHERE rollup::text LIKE $$many%$$;');

# --- triggers and constraints of live ---------------------------------------

make('alarmed', 0);
$session->safe(<<'SQL');
CREATE FUNCTION alarm() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	-- of a key that raises no alarm itself, or a further one
	IF NEW.k < 100 AND NEW.count >= 3 THEN
		INSERT INTO public.alarmed VALUES (NEW.k + 90, NEW.last_seen, NEW.count);
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER alarm AFTER INSERT OR UPDATE ON alarmed_live FOR EACH ROW EXECUTE FUNCTION alarm();
SQL
$session->safe("INSERT INTO alarmed SELECT 1, now(), i FROM generate_series(1, 3) i;");
is($session->safe('SELECT k, count FROM alarmed_live ORDER BY k;'), "1|3\n91|1", "a trigger of live's writes to the source");
$session->safe("INSERT INTO alarmed VALUES (1, now(), 1); BEGIN; INSERT INTO alarmed VALUES (1, now(), 1), (2, now(), 1);
	SELECT rollup_fold(); INSERT INTO alarmed VALUES (1, now(), 1); COMMIT;");
is($session->safe('SELECT k, count FROM alarmed_live ORDER BY k;'), "1|6\n2|1\n91|4\n181|2", 'and so on');
exact('what triggers write', 'alarmed_live');
$session->safe("BEGIN; DELETE FROM alarmed WHERE k = 91 AND v = 3; INSERT INTO alarmed VALUES (91, now(), 1), (91, now(), 1); PREPARE TRANSACTION 'alarm';
	COMMIT PREPARED 'alarm';");
exact('what they write before a prepare', 'alarmed_live');

# A constraint that is checked later would be checked before the fold.
for my $statement (
	'ALTER TABLE alarmed_live ADD UNIQUE (k) DEFERRABLE',
	'ALTER TABLE alarmed_live ADD UNIQUE (total) DEFERRABLE INITIALLY DEFERRED',
	'ALTER TABLE alarmed_live ADD FOREIGN KEY (k) REFERENCES parent DEFERRABLE INITIALLY DEFERRED')
{
	$other->safe('CREATE TABLE IF NOT EXISTS parent (k int PRIMARY KEY); INSERT INTO parent SELECT generate_series(1, 300) ON CONFLICT DO NOTHING;');
	my $answer = $session->run("$statement;");
	like($answer, qr/^ERROR:  0A000: .*alarmed_live/m, "refused: $statement");
}
$session->safe("ALTER TABLE alarmed_live ADD FOREIGN KEY (k) REFERENCES parent;");
$session->safe("INSERT INTO alarmed VALUES (3, now(), 1);");
like($session->run('INSERT INTO alarmed VALUES (301, now(), 1);'),
	qr/^ERROR:  23503: .*alarmed_live.*^CONTEXT: .*folding what this transaction has written into rollup "public.alarmed_live"/ms,
	'a foreign key of live fails the writer');
$session->safe("INSERT INTO alarmed VALUES (4, now(), 1); DELETE FROM alarmed WHERE k = 3;");
exact('around it', 'alarmed_live');
is($session->safe('SELECT count(*) FROM alarmed WHERE k IN (3, 4, 301);'), 1, 'nothing is lost, nothing is left');

# --- cursors, loops, phases -------------------------------------------------

make('stepped', 1);
$session->safe(<<'SQL');
CREATE FUNCTION write_row(i int) RETURNS int LANGUAGE sql AS
	$$ INSERT INTO stepped (k, ts, v) VALUES (i % 3, now(), i) RETURNING v $$;
BEGIN;
INSERT INTO stepped (k, ts, v) VALUES (1, now(), 1), (1, now(), 2), (2, now() - interval '3 days', 3);
DECLARE c CURSOR WITH HOLD FOR SELECT count(*) FROM stepped;
DECLARE d CURSOR WITH HOLD FOR SELECT k, count FROM stepped_live ORDER BY k;
COMMIT;
SQL
is($session->safe('FETCH ALL FROM c;'), 3, 'a cursor WITH HOLD over the source');
is($session->safe('FETCH ALL FROM d;'), '', 'one over live, which does not show what its own transaction has written');
is($session->safe('CLOSE ALL; SELECT k, count FROM stepped_live ORDER BY k;'), "1|1\n2|1", 'and is folded');
$session->safe('BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT write_row(i) FROM generate_series(10, 19) i; COMMIT;');
is($session->safe('FETCH ALL FROM c; CLOSE c; SELECT sum(count) FROM stepped_live;') =~ s/\n/ /gr,
	'10 11 12 13 14 15 16 17 18 19 5', 'one whose query writes at commit');
exact('cursors', 'stepped_live');

$session->safe(<<'SQL');
DO $$
DECLARE
	r record;
BEGIN
	FOR i IN 1 .. 50 LOOP
		INSERT INTO stepped (k, ts, v) SELECT x.k, x.ts, x.v FROM row_at(i) x;
		IF i % 7 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
		IF (SELECT sum(count) FROM stepped_live) <> (SELECT count(DISTINCT (k, ts)) FROM stepped) THEN
			RAISE 'live is not exact after row %', i;
		END IF;
	END LOOP;
	FOR r IN SELECT * FROM stepped WHERE id % 2 = 0 LOOP
		UPDATE stepped SET v = v + 1 WHERE id = r.id;
		COMMIT;
	END LOOP;
END $$;
CREATE PROCEDURE step(n int) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO stepped (k, ts, v) SELECT x.k, x.ts, x.v FROM row_at(n) x;
	COMMIT AND CHAIN;
	INSERT INTO stepped (k, ts, v) SELECT x.k, x.ts, x.v + 1 FROM row_at(n) x;
	IF n > 95 THEN
		CALL step(n - 1);
		ROLLBACK;
	END IF;
	DELETE FROM stepped WHERE id % 9 = 0;
END $$;
CALL step(100);
SQL
exact('COMMIT in loops and procedures', 'stepped_live');

$session->safe(<<'SQL');
BEGIN;
INSERT INTO stepped (k, ts, v) SELECT r.* FROM generate_series(1, 20000) i, row_at(i) r;
DELETE FROM stepped WHERE k = 7;
PREPARE TRANSACTION 'one';
BEGIN;
INSERT INTO stepped (k, ts, v) SELECT 100000 + i, now(), i FROM generate_series(1, 100) i;
PREPARE TRANSACTION 'two';
SQL
is(temporary_files(), 0, 'two phases leave no file behind');
exact('prepared', 'stepped_live');
$session->safe("INSERT INTO stepped (k, ts, v) VALUES (200000, now(), 1); COMMIT PREPARED 'one';");
$other->safe("ROLLBACK PREPARED 'two';");
exact('two phases', 'stepped_live');
$session->safe("INSERT INTO stepped (k, ts, v) VALUES (1, now(), 1)\\; INSERT INTO stepped (k, ts, v) VALUES (2, now(), 1)\\; DELETE FROM stepped WHERE k = 5;");
$session->safe("INSERT INTO stepped (k, ts, v) VALUES ($_, now(), 1); UPDATE stepped SET v = v + 1 WHERE k = $_;") for 1 .. 20;
exact('autocommit', 'stepped_live');
$session->safe('BEGIN ISOLATION LEVEL ' . $_ . "; SELECT count(*) FROM stepped; INSERT INTO stepped (k, ts, v) SELECT r.* FROM generate_series(1, 50) i, row_at(i) r; COMMIT;")
  for 'REPEATABLE READ', 'SERIALIZABLE';
exact('isolation levels', 'stepped_live');

# --- errors in the fold -----------------------------------------------------

make('strict', 0, 'SELECT k, count(*) AS count, sum(v) AS total, sum(v / (k - 50)) AS part FROM %s GROUP BY k');
make('strict2', 1);
$session->safe("INSERT INTO $_ (k, ts, v) SELECT r.k % 20, r.ts, r.v % 10 FROM generate_series(1, 200) i, row_at(i) r;") for qw(strict strict2);
$session->safe('ALTER TABLE strict_live ADD CHECK (total < 10000);');
my @strict = qw(strict_live strict2_live);
my $context = qr/^CONTEXT: .*folding what this transaction has written into rollup "public.strict_live"/ms;
sub contents { return $session->safe('SELECT ' . join(', ', map { "(SELECT count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)), 0) FROM $_ t)" } qw(strict strict2 strict_live strict2_live)) . ';'); }

# The statements fail as they should, and have done nothing.
sub fails
{
	my ($what, $state, $sql) = @_;
	my $before = contents();
	my $answer = $session->run($sql);

	like($answer, qr/^ERROR:  $state: /m, "$what: $state");
	like($answer, $context, "$what: and says where");
	$session->run('ROLLBACK;');
	is(contents(), $before, "$what: all is as before");
	$session->safe("INSERT INTO strict (k, ts, v) VALUES (1, now(), 1); INSERT INTO strict2 (k, ts, v) VALUES (1, clock_timestamp(), 1);");
	exact("$what: later writes", @strict);
	return;
}

fails('CHECK, autocommit', '23514', 'INSERT INTO strict VALUES (1, now(), 10000);');
fails('CHECK, in a transaction', '23514', 'BEGIN; INSERT INTO strict2 VALUES (1, now(), 1); INSERT INTO strict VALUES (1, now(), 10000), (2, now(), 1); COMMIT;');
fails('CHECK, a copy', '23514', "COPY strict (k, ts, v) FROM STDIN (DELIMITER ' ');\n1 2026-01-01 1\n2 2026-01-01 20000\n\\.");
fails('CHECK, prepared', '23514', "BEGIN; INSERT INTO strict VALUES (1, now(), 10000); PREPARE TRANSACTION 'failing';");
is($session->safe('SELECT count(*) FROM pg_prepared_xacts;'), 0, 'nothing is prepared');
fails('CHECK, an update', '23514', 'UPDATE strict SET v = 10000 WHERE id = 1;');
fails('an expression', '22012', 'INSERT INTO strict (k, ts, v) VALUES (50, now(), 1);');
fails('rollup_fold()', '23514', 'BEGIN; INSERT INTO strict VALUES (1, now(), 10000); SELECT rollup_fold(); COMMIT;');

my $before = $session->safe('SELECT count(*) FROM strict;');
my $answer = $session->run(<<'SQL');
DO $$
BEGIN
	FOR i IN 1 .. 10 LOOP
		INSERT INTO strict (k, ts, v) VALUES (i, now(), i / 6 * 10000);
		INSERT INTO strict2 (k, ts, v) VALUES (i, now(), 1);
		COMMIT;
	END LOOP;
END $$;
SQL
is(sqlstates($answer), '23514', 'COMMIT in a loop fails');
like($answer, $context, 'and says where');
is($session->safe('SELECT count(*) FROM strict;'), $before + 5, 'what was committed before stays');
exact('a loop that failed', @strict);

$session->safe(<<'SQL');
BEGIN;
INSERT INTO strict (k, ts, v) VALUES (1, now(), 1);
DO $$
BEGIN
	INSERT INTO strict (k, ts, v) VALUES (2, now(), 20000);
	PERFORM rollup_fold();
	RAISE 'not reached';
EXCEPTION WHEN check_violation THEN
	INSERT INTO strict (k, ts, v) VALUES (2, now(), 2);
END $$;
INSERT INTO strict (k, ts, v) VALUES (3, now(), 3);
COMMIT;
SQL
exact('an error that was caught', @strict);

# a column of live's own, which a second key cannot have
$session->safe(<<'SQL');
CREATE TABLE own (k int, ts timestamptz NOT NULL, v int);
CREATE TABLE own_live (k int UNIQUE NULLS NOT DISTINCT, count bigint, note text UNIQUE DEFAULT 'only once');
SELECT rollup_create('own_live', 'SELECT k, count(*) AS count FROM own GROUP BY k', 'ts', mode => 'off');
BEGIN; SELECT rollup_recompute('own_live'); SELECT rollup_alter('own_live', fold => true); COMMIT;
INSERT INTO own VALUES (1, now(), 1);
SQL
$answer = $session->run('INSERT INTO own VALUES (2, now(), 1);');
like($answer, qr/^ERROR:  23505: .*own_live_note_key/m, 'a unique column of its own fails a second key');
like($answer, qr/folding what this transaction has written into rollup "public.own_live"/, 'and says where');
$session->safe("INSERT INTO own VALUES (1, now(), 1);");
is($session->safe('SELECT k, count, note FROM own_live;'), '1|2|only once', 'the first key takes rows');
$session->safe("ALTER TABLE own_live ALTER note DROP DEFAULT; INSERT INTO own VALUES (2, now(), 1), (NULL, now(), 1);");
is($session->safe('SELECT string_agg(format($$%s %s$$, k, count), $$, $$ ORDER BY k) FROM own_live;'), '1 2, 2 1,  1', 'without the default others do, too');

# A wait that ends.  The server's statement_timeout is over when a transaction
# commits, so a fold has lock_timeout, and whoever cancels it.
$other->safe("BEGIN; INSERT INTO strict2 (k, ts, v) VALUES (1, now(), 1); SELECT rollup_fold();");
$before = $session->safe('SELECT count(*) FROM strict2;');
$answer = $session->run("SET lock_timeout = '100ms'; INSERT INTO strict2 (k, ts, v) VALUES (1, now(), 1);");
like($answer, qr/^ERROR:  55P03: .*into rollup "public.strict2_live"/ms, 'lock_timeout ends a fold that waits');
my $pid = $session->safe('RESET lock_timeout; SELECT pg_backend_pid();');
$session->send("INSERT INTO strict2 (k, ts, v) VALUES (1, now(), 1);");
for (1 .. 500)
{
	last if $other->safe("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $pid;") eq 't';
	$other->safe('SELECT pg_sleep(0.01), pg_stat_clear_snapshot();');
}
$other->safe("SELECT pg_cancel_backend($pid);");
like($session->answer, qr/^ERROR:  57014: .*into rollup "public.strict2_live"/ms, 'so does who cancels it');
is($session->safe('SELECT count(*) FROM strict2;'), $before, 'with its transaction');
$other->safe('COMMIT;');
$session->safe('INSERT INTO strict2 (k, ts, v) VALUES (1, clock_timestamp(), 1);');
exact('in the end', 'strict2_live', @both, qw(nested_live alarmed_live stepped_live));
is($session->safe("SELECT string_agg(format('%s %s', rollup, d), ', ') FROM rollup_status, rollup_verify(rollup) d;"), '', 'rollup_verify agrees');
is(temporary_files(), 0, 'no file is left');

$_->quit for $session, $other;
$node->stop;
done_testing();
