-- What DDL is not let do to live, its shadow and the marks, done by a superuser while
-- the event triggers are off: a refresh and a promote refuse, and once it is undone a
-- reseed makes all right.
--
-- Fails when the tables are not looked at (dr_intact_check in intact.c).
\ir lib/begin.sql
CREATE SCHEMA intact;
SET search_path = intact, public;

SELECT plan(44);

CREATE TABLE s (k text NOT NULL, ts timestamptz NOT NULL, v int);
CREATE INDEX ON s (k);
INSERT INTO s SELECT 'k' || i % 5, '2026-01-01Z'::timestamptz + i * interval '1 hour', i FROM generate_series(1, 40) i;
SELECT rollup_create('r', 'SELECT k, count(*), sum(v), max(ts) FROM s GROUP BY k', 'ts', mode => 'shadow');
CALL rollup_run('r');
CREATE FUNCTION leaves_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TABLE marks_above AS SELECT * FROM s WHERE false;

CREATE PROCEDURE unwatched(command text) LANGUAGE plpgsql AS $$
DECLARE
	r dailyrollup.rollups;
BEGIN
	SELECT * INTO r FROM dailyrollup.rollups WHERE live = 'r'::regclass;
	ALTER EVENT TRIGGER dailyrollup_ddl_ended DISABLE;
	ALTER EVENT TRIGGER dailyrollup_dropped DISABLE;
	EXECUTE replace(replace(command, '{marks}', r.marks::text), '{daily}', coalesce(r.shadow::text, '-'));
	ALTER EVENT TRIGGER dailyrollup_ddl_ended ENABLE ALWAYS;
	ALTER EVENT TRIGGER dailyrollup_dropped ENABLE ALWAYS;
END $$;

-- SQLSTATE of a command, whose effect is undone
CREATE FUNCTION says(command text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE command;
	RAISE SQLSTATE 'IN000';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;

CREATE FUNCTION met(what text, command text, undo text, state text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	CALL unwatched(command);
	RETURN NEXT is(says($q$SELECT rollup_refresh('r')$q$), state, what || ': a refresh refuses');
	RETURN NEXT is(says($q$SELECT rollup_promote('r')$q$), state, what || ': so does a promote');
	RETURN NEXT ok((SELECT count(*) = 2 FROM rollup_check('r')), what || ': rollup_check counts');
	CALL unwatched(undo);
	RETURN NEXT is(says($q$SELECT rollup_refresh('r')$q$), 'IN000', what || ': undone, a refresh works');
END $$;

SELECT met('rule of live', 'CREATE RULE x AS ON INSERT TO r DO ALSO NOTHING', 'DROP RULE x ON r', '55000');
SELECT met('rule of the marks', 'CREATE RULE x AS ON INSERT TO {marks} DO INSTEAD NOTHING', 'DROP RULE x ON {marks}', '55000');
SELECT met('rule of the shadow', 'CREATE RULE x AS ON UPDATE TO {daily} DO ALSO NOTHING', 'DROP RULE x ON {daily}', '55000');
SELECT met('marks inherited', 'CREATE TABLE below () INHERITS ({marks})', 'DROP TABLE below', '55000');
SELECT met('deferrable', 'ALTER TABLE r ADD CONSTRAINT x UNIQUE (k) DEFERRABLE', 'ALTER TABLE r DROP CONSTRAINT x', '0A000');
SELECT met('deferrable, of the marks', 'CREATE CONSTRAINT TRIGGER x AFTER INSERT ON {marks} DEFERRABLE FOR EACH ROW EXECUTE FUNCTION leaves_out()', 'DROP TRIGGER x ON {marks}', '0A000');
SELECT met('unlogged', 'ALTER TABLE {marks} SET UNLOGGED', 'ALTER TABLE {marks} SET LOGGED', '0A000');
SELECT met('policies', 'ALTER TABLE {daily} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', 'ALTER TABLE {daily} NO FORCE ROW LEVEL SECURITY', '0A000');
SELECT met('trigger of the marks', 'CREATE TRIGGER x BEFORE INSERT ON {marks} FOR EACH ROW EXECUTE FUNCTION leaves_out()', 'DROP TRIGGER x ON {marks}', '55000');

-- what it has left out
CALL unwatched('CREATE TRIGGER x BEFORE INSERT ON {marks} FOR EACH ROW EXECUTE FUNCTION leaves_out()');
INSERT INTO s VALUES ('k1', '2026-01-01 12:00Z', 1000);
SELECT throws_like($$SELECT rollup_refresh('r')$$, 'table "dailyrollup.marks_%" of rollup "intact.r" cannot serve it: it has a trigger that fires before a row is written', 'the message');
CREATE FUNCTION hint() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	hint text;
BEGIN
	PERFORM rollup_refresh('r');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RETURN hint;
END $$;
SELECT is(hint(), 'Undo it, then have the rollup built anew: SELECT rollup_reseed(''intact.r'').', 'the hint');
CALL unwatched('DROP TRIGGER x ON {marks}');
SELECT isnt_empty($$SELECT * FROM rollup_diff('r')$$, 'a row is lost');
SELECT rollup_reseed('r');
CALL rollup_run('r');
SELECT is_empty($$SELECT * FROM rollup_diff('r')$$, 'and found');
SELECT is_empty($$SELECT * FROM rollup_verify('r')$$, 'in live it was all the time');

-- not all: another table's, an AFTER trigger, a statement's, of live
CALL unwatched('CREATE TRIGGER x AFTER INSERT ON {marks} FOR EACH ROW EXECUTE FUNCTION leaves_out()');
SELECT is(says($$SELECT rollup_refresh('r')$$), 'IN000', 'a trigger that fires afterwards is none of ours');
CALL unwatched('DROP TRIGGER x ON {marks}');
CALL unwatched('CREATE TRIGGER x BEFORE INSERT ON {marks} FOR EACH STATEMENT EXECUTE FUNCTION leaves_out()');
SELECT is(says($$SELECT rollup_refresh('r')$$), 'IN000', 'nor one of statements');
CALL unwatched('DROP TRIGGER x ON {marks}');
-- a rule that was there once
CREATE RULE x AS ON INSERT TO s DO ALSO NOTHING;
SELECT is(says($$SELECT rollup_refresh('r')$$), 'IN000', 'a rule of the source is none of ours');
DROP RULE x ON s;

SELECT * FROM finish();
SELECT rollup_drop('r', true);
DROP SCHEMA intact CASCADE;
