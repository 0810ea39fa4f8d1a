# What a rollup goes through, each as an operation that a test lets fail: killed,
# cancelled, out of memory or of disk, at whatever place.
#
# An operation has a rollup r and a source r_src of its own, so that many can be
# under way at once:
#
#	kind	plain: deduplicated by the rollup alone; parted: partitioned, each row
#			counts; unique: a primary key says that no event comes twice; checked:
#			as plain, and live has a constraint of its own
#	prepare	what comes before
#	settings	for the operation
#	run		the operation; it may be run again after it has failed
#	finish	what brings the rollup to its end then; as a rule a pass
#	state	in which it then is; none: there is no rollup
#	once	it cannot be run again once it has been committed
#	ddl		it creates, drops or changes tables
#
# seen(r) tells all that is committed of a rollup; wrong(r), by what the rollup or
# its shadow differ from the definition, which is written out here once more.
package DrFaults;

use strict;
use warnings;

use Test::More;

use DrSession;

our $SQL = <<'SQL';
CREATE FUNCTION day(n int) RETURNS timestamptz LANGUAGE sql STABLE
	AS $$ SELECT date_trunc('day', now(), 'UTC') + n * interval '1 day' $$;

-- how many times as many rows and keys there are
CREATE FUNCTION scale() RETURNS int LANGUAGE sql STABLE AS $$ SELECT coalesce(nullif(current_setting('dr_test.scale', true), ''), '1')::int $$;

-- n rows of the last days, some of them twice
CREATE FUNCTION add(r text, n int, days float8 DEFAULT 6) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO %s_src (subject, name, ts, v) SELECT nullif(''van '' || (random() * 6 * scale())::int, ''van 0''),
		nullif((array[''speed'', ''fuel''])[1 + (random() < 0.5)::int], ''fuel''),
		date_bin(''30 min'', now() - random() * %s * interval ''1 day'', ''2020-01-01''), nullif((random() * 100)::int, 50)
		FROM generate_series(1, %s * scale())', r, days, n);
END $$;
CREATE FUNCTION make_source(r text, kind text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE %1$s_src (subject text, name text, ts timestamptz NOT NULL, v int, event bigserial) %2$s;
		CREATE INDEX ON %1$s_src (subject, name, ts)', r, CASE kind WHEN 'parted' THEN 'PARTITION BY RANGE (ts)' ELSE '' END);
	IF kind = 'parted' THEN
		EXECUTE format('CREATE TABLE %1$s_src_old PARTITION OF %1$s_src FOR VALUES FROM (MINVALUE) TO (%2$L);
			CREATE TABLE %1$s_src_mid PARTITION OF %1$s_src FOR VALUES FROM (%2$L) TO (%3$L);
			CREATE TABLE %1$s_src_new PARTITION OF %1$s_src FOR VALUES FROM (%3$L) TO (%4$L)', r, day(-4), day(-1), day(2));
	ELSIF kind = 'unique' THEN
		EXECUTE format('ALTER TABLE %s_src ADD PRIMARY KEY (event, ts)', r);
	END IF;
	PERFORM add(r, 120);
END $$;
CREATE FUNCTION make_rollup(r text, kind text, mode text, fold bool DEFAULT NULL) RETURNS regclass LANGUAGE sql AS $$
	SELECT rollup_create(r, format('SELECT subject, name, count(*) AS count, sum(v) AS total, min(ts) AS first_seen, max(ts) AS last_seen,
		latest(v, ts) FILTER (WHERE v IS NOT NULL) AS v, max(ts) FILTER (WHERE v IS NOT NULL) AS v_ts FROM %s_src GROUP BY subject, name', r),
		time_column => 'ts', mode => mode, fold => fold,
		dedup_by => CASE WHEN kind IN ('plain', 'checked') THEN '{subject,name,ts}'::name[] END,
		dedup_order => CASE WHEN kind IN ('plain', 'checked') THEN '{event}'::name[] END) $$;
CREATE PROCEDURE make(r text, kind text, mode text, fold bool DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM make_source(r, kind), make_rollup(r, kind, mode, fold);
	IF kind = 'checked' THEN
		EXECUTE format('ALTER TABLE %s ADD CHECK (count > 0)', r);
	END IF;
END $$;

-- likewise, without NULLs in a key: a fold in memory is for these
CREATE FUNCTION add_known(r text, n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO %s_src (subject, name, ts, v) SELECT ''van '' || (random() * 9 * scale())::int, ''speed'',
		date_bin(''30 min'', now() - random() * interval ''6 days'', ''2020-01-01''), (random() * 100)::int FROM generate_series(1, %s * scale())', r, n);
END $$;

-- late and other rows, changed ones, keys that are new, keys that go
CREATE FUNCTION stir(r text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM add(r, 20), add(r, 5, 0.1);
	EXECUTE format('INSERT INTO %1$s_src (subject, name, ts, v) SELECT subject, name, ts, v FROM %1$s_src ORDER BY event LIMIT 5;
		INSERT INTO %1$s_src (subject, name, ts, v) VALUES (NULL, ''new'' || %2$L, day(-3), 1), (''new'' || %2$L, NULL, now(), 2);
		UPDATE %1$s_src SET v = v + 1 WHERE event %% 11 = 0;
		UPDATE %1$s_src SET ts = ts - interval ''1 day'', subject = ''van 2'' WHERE event %% 13 = 0;
		DELETE FROM %1$s_src WHERE event %% 17 = 0 OR subject = ''van 3''', r, (random() * 1e9)::int);
END $$;

-- the definition, without rows at or after w
CREATE FUNCTION oracle(r text, deduplicated bool, w timestamptz) RETURNS text LANGUAGE sql AS $$
	SELECT format('SELECT subject, name, count(*), sum(v), min(ts), max(ts),
		(array_agg(v ORDER BY ts DESC, v DESC) FILTER (WHERE v IS NOT NULL))[1], max(ts) FILTER (WHERE v IS NOT NULL)
		FROM (SELECT %s subject, name, ts, v FROM %s_src WHERE ts < %L ORDER BY subject, name, ts, event) e GROUP BY subject, name',
		CASE WHEN deduplicated THEN 'DISTINCT ON (subject, name, ts)' ELSE '' END, r, w) $$;
CREATE FUNCTION differences(a text, b text, marks regclass, kinds text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('WITH a AS MATERIALIZED (%s), b AS MATERIALIZED (%s)
		SELECT count(*) FROM ((TABLE a EXCEPT ALL TABLE b) UNION ALL (TABLE b EXCEPT ALL TABLE a)) d
		WHERE NOT EXISTS (SELECT FROM %s m WHERE m.dirties = ANY (%L) AND (m.k1, m.k2) IS NOT DISTINCT FROM (d.subject, d.name))',
		a, b, marks, kinds) INTO n;
	RETURN n;
END $$;
CREATE FUNCTION wrong(r text, kind text, shadow_too bool DEFAULT true) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
	k dailyrollup.rollups;
	dedup bool := kind IN ('plain', 'checked');
	every timestamptz := 'infinity';
	n bigint[];
BEGIN
	SELECT * INTO k FROM dailyrollup.rollups x WHERE x.live = to_regclass(r);
	IF NOT FOUND THEN
		RETURN '';
	END IF;
	n[1] := CASE
		WHEN k.state = 'new' OR (k.state = 'on' AND k.watermark IS NULL) THEN 0
		WHEN k.state = 'on' THEN differences('SELECT * FROM ONLY ' || r, oracle(r, dedup, k.watermark), k.marks, '{d,l}')
		WHEN NOT k.fold THEN 0
		ELSE differences('SELECT * FROM ONLY ' || r, oracle(r, dedup, every), k.marks, '{l}') END;
	n[2] := CASE WHEN k.shadow_watermark IS NULL OR NOT shadow_too THEN 0
		ELSE differences('SELECT * FROM ONLY ' || k.shadow, oracle(r, dedup, k.shadow_watermark), k.marks, '{d}') END;
	n[3] := CASE WHEN k.state IN ('off', 'shadow') AND NOT k.fold THEN 0
		ELSE differences('SELECT * FROM ' || k.current_view, oracle(r, dedup, every), k.marks, '{}') END;
	RETURN CASE WHEN n = '{0,0,0}' THEN '' ELSE format('%s in state %s: live, shadow, current: %s', r, k.state, n) END;
END $$;

-- may nobody read a table, or a table's index, at the moment?
CREATE FUNCTION is_closed(relation regclass) RETURNS bool LANGUAGE sql AS $$
	SELECT EXISTS (SELECT FROM pg_locks l WHERE l.granted AND l.mode = 'AccessExclusiveLock'
		AND (l.relation = $1 OR l.relation IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = $1)
			OR l.relation IN (SELECT indexrelid FROM pg_index WHERE indrelid = $1))) $$;

-- by what is committed: names are looked up in what a session remembers
CREATE FUNCTION live_of(r text) RETURNS regclass LANGUAGE sql STABLE AS $$ SELECT oid FROM pg_class WHERE relname = r AND relkind = 'r' $$;

-- all that is committed, but what nobody may read at the moment
CREATE FUNCTION seen(r text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	result jsonb;
	relation text;
	content text;
BEGIN
	SELECT jsonb_build_object('rollup', (SELECT to_jsonb(k) - '{failures,last_error,retry_at}'::text[] FROM dailyrollup.rollups k WHERE k.live = live_of(r)),
		'relations', (SELECT jsonb_agg(relname ORDER BY relname) FROM pg_class WHERE relname ~ ('^' || r || '(_|$)')),
		'triggers', (SELECT count(*) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relname ~ ('^' || r || '(_|$)')),
		'runs', (SELECT count(*) FROM dailyrollup.runs x JOIN dailyrollup.rollups k ON x.rollup_id = k.id WHERE k.live = live_of(r) AND x.outcome <> 'failed'))
	INTO result;
	FOR relation IN
		SELECT c.oid::regclass FROM pg_class c
		WHERE c.relkind IN ('r', 'p') AND (c.relname IN (r, r || '_daily', r || '_src')
				OR c.oid IN (SELECT marks FROM dailyrollup.rollups WHERE live = live_of(r)))
			AND NOT is_closed(c.oid)
	LOOP
		EXECUTE format('SELECT format(''%%s rows, %%s'', count(*), sum(hashtextextended(t::text, 0))) FROM %s t', relation) INTO content;
		result := result || jsonb_build_object(relation, content);
	END LOOP;
	RETURN result;
END $$;
SQL

# Two days are not folded yet, and there are late rows.
my $BEHIND = "SELECT rollup_refresh('r', day(-2)); SELECT stir('r');";
my $PASS = "CALL rollup_run('r');";
my $STATEMENT = 'SET dailyrollup.fold_method = statement;';
my $BACKFILL = 'SET dailyrollup.backfill = on;';

# What is written in one transaction, where writes are folded.
my $WRITES = "BEGIN; SELECT stir('r'); SAVEPOINT a; SELECT add('r', 5); ROLLBACK TO a; COMMIT;";
my $INSERTS = "BEGIN; SELECT add_known('r', 15); INSERT INTO r_src VALUES ('once', 'more', now(), 1); COMMIT;";

sub op
{
	my ($name, $kind, $prepare, $run, %more) = @_;

	return { name => $name, kind => $kind, prepare => $prepare, run => $run, finish => $PASS, %more };
}

sub made { return "CALL make('r', 'KIND', '$_[0]'); $_[1]"; }

our @operations = (
	op('create', 'parted', "SELECT make_source('r', 'KIND');", "SELECT make_rollup('r', 'KIND', 'on');", once => 1, state => 'on', ddl => 1),
	op('adopt', 'plain', "SELECT make_source('r', 'KIND'); CREATE TABLE r AS SELECT subject, name, count(*) AS count, sum(v) AS total,
		min(ts) AS first_seen, max(ts) AS last_seen, max(v) AS v, max(ts) AS v_ts FROM r_src GROUP BY 1, 2 UNION ALL SELECT 'a', 'copy', 1, 2, now(), now(), 3, now();",
		"SELECT make_rollup('r', 'KIND', 'shadow');", once => 1, finish => "$PASS SELECT stir('r'); SELECT rollup_promote('r');", state => 'on', ddl => 1),
	op('seed in parts', 'parted', made('on', "SELECT stir('r');"), $PASS, state => 'on', ddl => 1),
	op('seed', 'plain', made('on', "SELECT stir('r');"), "SELECT rollup_refresh('r');", state => 'on'),
	op('seed by statement', 'unique', made('on', "SELECT stir('r');"), "SELECT rollup_refresh('r');", state => 'on', settings => $STATEMENT),
	op('to shadow', 'plain', made('shadow', ''), $PASS, state => 'shadow', ddl => 1),
	op('refresh', 'plain', made('on', $BEHIND), "SELECT rollup_refresh('r');", state => 'on'),
	op('pass', 'parted', made('on', $BEHIND), $PASS, state => 'on'),
	op('refresh by statement', 'plain', made('on', $BEHIND), "SELECT rollup_refresh('r');", state => 'on', settings => $STATEMENT),
	op('late keys', 'unique', made('on', "$PASS SELECT stir('r');"), $PASS, state => 'on'),
	op('shadow refresh', 'parted', made('shadow', "$PASS $BEHIND SELECT rollup_reseed('r'); SELECT rollup_refresh('r', day(-2)); SELECT stir('r');"), $PASS, state => 'shadow'),
	op('promote', 'plain', made('shadow', "$PASS SELECT stir('r');"), "SELECT rollup_promote('r');", state => 'on', ddl => 1),
	op('promote adopted', 'plain', "SELECT make_source('r', 'KIND'); CREATE TABLE r AS SELECT subject, name, count(*) AS count, sum(v) AS total,
		min(ts) AS first_seen, max(ts) AS last_seen, max(v) AS v, max(ts) AS v_ts FROM r_src GROUP BY 1, 2 UNION ALL SELECT 'a', 'copy', 1, 2, now(), now(), 3, now()
		FROM generate_series(1, 2); SELECT make_rollup('r', 'KIND', 'shadow'); $PASS SELECT stir('r');", "SELECT rollup_promote('r');", state => 'on', ddl => 1),
	op('off to on', 'unique', made('off', "$PASS SELECT rollup_alter('r', mode => 'on');"), $PASS, state => 'on', ddl => 1),
	op('off to shadow', 'checked', made('off', "$PASS SELECT rollup_alter('r', mode => 'shadow');"), $PASS, state => 'shadow', ddl => 1),
	op('shadow to off', 'plain', made('shadow', "$PASS $BACKFILL SELECT stir('r'); RESET dailyrollup.backfill; SELECT rollup_alter('r', mode => 'off');"), $PASS, state => 'off', ddl => 1),
	op('on to off', 'plain', made('on', "$PASS SELECT stir('r'); SELECT rollup_alter('r', mode => 'off');"), $PASS, state => 'off', ddl => 1),
	op('on to shadow', 'parted', made('on', "$PASS SELECT stir('r'); SELECT rollup_alter('r', mode => 'shadow');"), $PASS, state => 'shadow', ddl => 1),
	op('reseed', 'plain', made('on', "$PASS SELECT stir('r'); SELECT rollup_reseed('r');"), $PASS, state => 'on', ddl => 1),
	op('ask for a reseed', 'plain', made('on', "$PASS SELECT stir('r');"), "SELECT rollup_reseed('r');", state => 'on'),
	op('truncate', 'parted', made('off', $PASS), "BEGIN; TRUNCATE r_src; SELECT add('r', 30); COMMIT;", state => 'off', ddl => 1),
	op('recompute', 'plain', made('off', "$PASS $BACKFILL SELECT stir('r'); RESET dailyrollup.backfill;"), "SELECT rollup_recompute('r');", state => 'off'),
	op('flush', 'parted', made('off', "$PASS $BACKFILL SELECT stir('r'); RESET dailyrollup.backfill;"), "SELECT rollup_flush('r');", state => 'off'),
	op('flush in a pass', 'plain', made('shadow', "$PASS $BACKFILL SELECT stir('r'); RESET dailyrollup.backfill;"), $PASS, state => 'shadow'),
	op('stop the fold', 'plain', made('off', "$PASS SELECT stir('r');"), "SELECT rollup_alter('r', fold => false);", finish => "BEGIN; SELECT rollup_recompute('r'), rollup_alter('r', fold => true); COMMIT;", state => 'off'),
	op('begin the fold', 'plain', made('off', "$PASS SELECT rollup_alter('r', fold => false); SELECT stir('r');"),
		"BEGIN; SELECT rollup_recompute('r'), rollup_alter('r', fold => true); COMMIT;", state => 'off'),
	op('another zone', 'plain', made('on', "$PASS SELECT stir('r');"), "SELECT rollup_alter('r', time_zone => 'Asia/Tokyo', mode => 'on', delay => '1 h');", state => 'on'),
	op('mark', 'unique', made('shadow', "$PASS SELECT stir('r');"), "SELECT rollup_mark('r', day(-3), 'infinity');", state => 'shadow'),
	op('attach', 'parted', made('shadow', "$PASS CREATE TABLE r_src_more AS SELECT subject, name, day(3) + interval '1 h' AS ts, v, event FROM r_src; ALTER TABLE r_src_more ALTER ts SET NOT NULL, ALTER event SET NOT NULL;"),
		"ALTER TABLE r_src ATTACH PARTITION r_src_more FOR VALUES FROM (day(3)) TO (day(4));", once => 1, state => 'shadow', ddl => 1),
	op('writes', 'plain', made('off', $PASS), $WRITES, state => 'off'),
	op('writes without duplicates', 'parted', made('shadow', $PASS), $WRITES, state => 'shadow'),
	op('inserts', 'plain', made('off', $PASS), $INSERTS, state => 'off'),
	op('inserts without duplicates', 'parted', made('off', $PASS), $INSERTS, state => 'off'),
	op('inserts with NULLs', 'plain', made('off', $PASS), "BEGIN; SELECT add('r', 15); COMMIT;", state => 'off'),
	op('inserts by statement', 'parted', made('off', $PASS), $INSERTS, state => 'off', settings => $STATEMENT),
	op('inserts into a checked table', 'checked', made('shadow', $PASS), $INSERTS, state => 'shadow'),
	op('a backfill', 'plain', made('off', $PASS), $WRITES, state => 'off', settings => $BACKFILL),
	op('rollup_fold', 'unique', made('off', $PASS), "BEGIN; SELECT add('r', 20); SELECT rollup_fold(); SELECT stir('r'); COMMIT;", state => 'off'),
	op('late rows', 'parted', made('on', $PASS), $WRITES, state => 'on'),
	op('prepare', 'plain', made('off', $PASS), "BEGIN; SELECT stir('r'); PREPARE TRANSACTION 'r';", once => 1, finish => "COMMIT PREPARED 'r'; $PASS", state => 'off'),
	op('drop', 'plain', made('shadow', "$PASS SELECT stir('r');"), "SELECT rollup_drop('r');", once => 1, finish => '', ddl => 1),
	op('drop with the table', 'parted', made('on', "$PASS SELECT stir('r');"), "SELECT rollup_drop('r', true);", once => 1, finish => '', ddl => 1),
	op('drop the source', 'parted', made('off', $PASS), 'DROP TABLE r_src CASCADE;', once => 1, finish => '', ddl => 1),
);

# What follows takes a session that looks, and a hash with the operation (op), its
# rollup, and what it is called (what).  It tells what is wrong as a failed test, and
# returns whether all is right: a test of its own for each of thousands would hide it.

sub seen
{
	my ($observer, $case) = @_;

	return $observer->safe("SELECT seen('$case->{rollup}');");
}

# As it was seen before, but for what nobody could read then.
sub is_as_seen
{
	my ($observer, $case, $before) = @_;

	my $differs = $observer->safe("SELECT string_agg(b.key || ': ' || b.value || ' is ' || coalesce(a.value::text, 'missing'), '; ')
		FROM jsonb_each(\$s\$$before\$s\$::jsonb) b LEFT JOIN jsonb_each(seen('$case->{rollup}')) a USING (key) WHERE a.value IS DISTINCT FROM b.value;");
	is($differs, '', "$case->{what}: as it was") if $differs ne '';
	return $differs eq '';
}

sub is_right
{
	my ($observer, $case) = @_;

	my $wrong = $observer->safe("SELECT wrong('$case->{rollup}', '$case->{op}{kind}');");
	is($wrong, '', "$case->{what}: exact") if $wrong ne '';
	return $wrong eq '';
}

# The session that was in the middle of it may not write to what the rollup keeps.
sub is_guarded
{
	my ($observer, $case, $session) = @_;

	return 1 if $observer->safe("SELECT count(*) FROM dailyrollup.rollups WHERE live = to_regclass('$case->{rollup}')
		AND (state IN ('new', 'on') OR fold);") == 0;
	return 1 if DrSession::errors($session->run("DELETE FROM $case->{rollup} WHERE false;"));
	return ok(0, "$case->{what}: the session may write to the rollup");
}

# Operation and pass come to their end.  "committed": the operation has been.
sub finish
{
	my ($observer, $case, $session, $committed) = @_;
	my ($op, $rollup, $what) = @$case{qw(op rollup what)};
	my $good = 1;

	$session->run(sql($op, 'settings', $rollup));
	for my $part ($op->{once} && $committed ? () : 'run', 'finish')
	{
		my $answer = $session->run(sql($op, $part, $rollup) . ' RESET ALL;');
		$good &= ok(0, "$what: does not come to its end ($part): $answer") if DrSession::errors($answer);
	}
	$good &= is_right($observer, { %$case, what => "$what and finished" });

	my $end = $observer->safe("SELECT s.state, s.failures, s.late_keys, (SELECT count(*) FROM rollup_verify(s.rollup)),
			to_regclass('${rollup}_daily') IS NOT NULL, (SELECT count(*) FROM rollup_check(s.rollup) WHERE rows <> keys)
		FROM rollup_status s WHERE s.rollup = to_regclass('$rollup');");
	my $wanted = $op->{state} ? join '|', $op->{state}, 0, 0, 0, ($op->{state} eq 'shadow' ? 't' : 'f'), 0 : '';
	$good &= is($end, $wanted, "$what: its state, failures, keys that wait, differing rows, shadow, copies") if $end ne $wanted;
	return $good;
}

# The rollup goes, and its source.
sub clean
{
	my ($observer, $rollup) = @_;

	$observer->safe("SELECT rollup_drop(to_regclass('$rollup'), true) WHERE to_regclass('$rollup') IN (SELECT live FROM dailyrollup.rollups);
		DROP TABLE IF EXISTS $rollup, ${rollup}_src, ${rollup}_src_more;");
	return;
}

# A number that is the same again when all of them are gone.
sub objects
{
	my ($observer) = @_;

	return $observer->safe('SELECT (SELECT count(*) FROM pg_class) + (SELECT count(*) FROM pg_type) + (SELECT count(*) FROM pg_depend)
		+ (SELECT count(*) FROM pg_trigger) + (SELECT count(*) FROM pg_rewrite) + (SELECT count(*) FROM pg_constraint);');
}

# The SQL of an operation for its rollup.
sub sql
{
	my ($op, $part, $rollup) = @_;
	my $sql = $op->{$part} // '';

	$sql =~ s/\br(?=_src|_daily|'|;| AS\b)/$rollup/g;
	$sql =~ s/KIND/$op->{kind}/g;
	return $sql;
}

1;
