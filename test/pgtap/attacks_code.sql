-- Code that an owner hides in his tables, in ours that belong to him, and in his
-- types: constraints, indexes, defaults, statistics, generated columns, triggers,
-- casts.  It runs as the owner, whoever writes, refreshes, looks or promotes, or is
-- refused.  Protects dr_identity_enter wherever rows are written without a statement
-- (target.c, seize.c) or with one, or read or counted (check.c, chunk.c), and
-- check_tables and column_renamed in ddl.c.
--
-- (The predicate of an index without a column in it runs whenever a statement over
-- the table is planned.)
\ir lib/begin.sql

SELECT no_plan();

CREATE ROLE ac_owner;
CREATE ROLE ac_writer;
CREATE ROLE ac_monitor IN ROLE pg_monitor;
CREATE SCHEMA ac AUTHORIZATION ac_owner;
GRANT USAGE ON SCHEMA ac TO PUBLIC;
CREATE SCHEMA ac_helpers;
GRANT USAGE ON SCHEMA ac_helpers TO PUBLIC;
SET search_path = ac_helpers, public;
\ir lib/roles.sql

-- immutable, it says; sequences count its calls, for it may not write
CREATE SEQUENCE ac.as_owner;
CREATE SEQUENCE ac.as_other;
GRANT ALL ON SEQUENCE ac.as_owner, ac.as_other TO PUBLIC;
SET ROLE ac_owner;
CREATE FUNCTION ac.spy(anyelement) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  PERFORM nextval(CASE WHEN current_user = 'ac_owner' THEN 'ac.as_owner' ELSE 'ac.as_other' END);
  IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    EXECUTE 'ALTER ROLE ac_owner SUPERUSER';
  END IF;
  RETURN true;
END $$;
CREATE FUNCTION ac.spy_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM ac.spy(1); RETURN coalesce(NEW, OLD); END $$;
CREATE TYPE ac.mood AS ENUM ('sad', 'happy');
CREATE FUNCTION ac.mood_to_json(ac.mood) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM ac.spy($1); RETURN '"mood"'; END $$;
CREATE CAST (ac.mood AS json) WITH FUNCTION ac.mood_to_json(ac.mood);
CREATE FUNCTION ac.mood_to_text(ac.mood) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM ac.spy($1); RETURN 'mood'; END $$;
CREATE CAST (ac.mood AS text) WITH FUNCTION ac.mood_to_text(ac.mood) AS ASSIGNMENT;
CREATE TABLE ac.s (k text, m ac.mood, t timestamptz NOT NULL, v int);
INSERT INTO ac.s SELECT 'k' || i % 5, CASE WHEN i % 2 = 0 THEN 'sad' ELSE 'happy' END::ac.mood, timestamptz '2026-01-01 00:00Z' + i * interval '3 hours', i FROM generate_series(1, 60) i;
SELECT rollup_create('ac.' || r, 'SELECT k, m, count(*) AS n, sum(v) AS total, latest(v, t) AS v, max(t) AS t FROM ac.s GROUP BY k, m', 't', mode => r, dedup_by => CASE r WHEN 'shadow' THEN '{k,m,t}'::name[] END)
FROM unnest('{on,off,shadow}'::text[]) r;
RESET ROLE;
GRANT SELECT, INSERT, UPDATE, DELETE ON ac.s TO ac_writer;
SELECT rollup_refresh('ac.on', '2026-01-03 00:00Z');
CALL rollup_run('ac.off');
CALL rollup_run('ac.shadow');
SELECT format('CREATE TABLE ac_helpers.marks AS SELECT %L::text AS m UNION SELECT %L UNION SELECT %L', max(marks::text) FILTER (WHERE live = 'ac.on'::regclass), max(marks::text) FILTER (WHERE live = 'ac.off'::regclass), max(marks::text) FILTER (WHERE live = 'ac.shadow'::regclass))
FROM dailyrollup.rollups \gexec
GRANT SELECT ON marks TO PUBLIC;

SELECT is(try('ac_owner', replace(statement, 'TABLE_', t)), 'ok', format('the owner plants in %s: %s', t, statement))
FROM unnest('{ac.on,ac.off,ac.shadow,ac.shadow_daily}'::text[]) t, unnest(ARRAY[
  'ALTER TABLE TABLE_ ADD CHECK (ac.spy(k))', 'CREATE INDEX ON TABLE_ ((ac.spy(n)))', 'CREATE INDEX ON TABLE_ (n) WHERE ac.spy(n)', 'CREATE INDEX ON TABLE_ (n) WHERE ac.spy(1)', 'CREATE STATISTICS ON (ac.spy(n)), n FROM TABLE_']) statement
WHERE statement !~ 'STATISTICS' OR current_setting('server_version_num')::int >= 160000;
SELECT is(try('ac_owner', replace(statement, 'TABLE_', m)), 'ok', format('in marks: %s', statement))
FROM marks, unnest(ARRAY['ALTER TABLE TABLE_ ADD CHECK (ac.spy(k1))', 'ALTER TABLE TABLE_ ADD COLUMN extra bool DEFAULT ac.spy(1)', 'ALTER TABLE TABLE_ ADD COLUMN made bool GENERATED ALWAYS AS (ac.spy(k1)) STORED',
  'CREATE TRIGGER spy AFTER INSERT OR DELETE ON TABLE_ FOR EACH ROW EXECUTE FUNCTION ac.spy_trigger()']) statement;

CREATE FUNCTION only_owner(what text, seen bool) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  RETURN NEXT is((SELECT is_called FROM ac.as_other), false, what || ': nobody else');
  IF seen THEN
    RETURN NEXT is((SELECT is_called FROM ac.as_owner), true, what || ': the owner');
  END IF;
  PERFORM setval('ac.as_owner', 1, false), setval('ac.as_other', 1, false);
END $$;
SELECT setval('ac.as_owner', 1, false), setval('ac.as_other', 1, false);

SELECT format($f$SET dailyrollup.fold_method = %1$s;
SET ROLE ac_writer; INSERT INTO ac.s VALUES ('k1', 'sad', '2026-01-01', %2$s), ('new %1$s', 'sad', '2026-01-02', 1); RESET ROLE; SELECT only_owner('%1$s: a writer inserts', true);
SET ROLE ac_writer; UPDATE ac.s SET v = v + 1 WHERE v %% 7 = 3; RESET ROLE; SELECT only_owner('%1$s: a writer updates', true);
SET ROLE ac_writer; DELETE FROM ac.s WHERE v %% 11 = 4; RESET ROLE; SELECT only_owner('%1$s: a writer deletes', true);
INSERT INTO ac.s VALUES ('k2', 'happy', '2026-01-01', %2$s); UPDATE ac.s SET v = v + 1 WHERE v %% 7 = 4; SELECT only_owner('%1$s: a superuser writes', true);
SELECT count(*) FROM rollup_late; SELECT count(*) FROM rollup_status; SELECT count(*) FROM rollup_metrics; SELECT only_owner('%1$s: a superuser looks', true);
SET ROLE ac_monitor; SELECT count(*) FROM rollup_late; SELECT count(*) FROM rollup_status; RESET ROLE; SELECT only_owner('%1$s: a monitor looks', true);
SELECT rollup_refresh('ac.on', %3$L); SELECT only_owner('%1$s: a superuser refreshes', true);
SELECT rollup_mark('ac.on', '-infinity', 'infinity'); SELECT rollup_refresh('ac.on', %3$L); SELECT only_owner('%1$s: a superuser marks', true);
SELECT rollup_reseed('ac.on'); UPDATE ac.s SET v = v + 1; SELECT rollup_refresh('ac.on', %3$L); SELECT only_owner('%1$s: a superuser''s seed', true);
SELECT count(*) FROM rollup_verify('ac.on'); SELECT count(*) FROM rollup_verify('ac.off'); SELECT count(*) FROM rollup_diff('ac.shadow'); SELECT rollup_check(); SELECT only_owner('%1$s: a superuser compares', false);
SELECT rollup_flush('ac.off'); SELECT rollup_recompute('ac.off'); SELECT only_owner('%1$s: a superuser recomputes', false);$f$, method, n, '2026-01-0' || n + 3)
FROM (VALUES ('auto', 1), ('statement', 2)) m(method, n) \gexec
RESET dailyrollup.fold_method;
CALL rollup_run();
SELECT only_owner('a superuser''s pass', true);
-- tables that differ are told of as jsonb, by the types' casts
SELECT format('BEGIN; SET LOCAL ROLE ac_owner; ALTER TABLE %1$s DISABLE TRIGGER dailyrollup_%2$s_guard; UPDATE %1$s SET n = n + 100; DELETE FROM %1$s WHERE k = ''k3''; RESET ROLE; SELECT setval(''ac.as_owner'', 1, false), setval(''ac.as_other'', 1, false);
SELECT ok(count(*) > 2, ''%1$s differs'') FROM rollup_%3$s(%1$L); SELECT only_owner(''rollup_%3$s of a superuser'', true); ROLLBACK', live, id, CASE state WHEN 'shadow' THEN 'diff' ELSE 'verify' END) FROM dailyrollup.rollups ORDER BY id \gexec
SET dailyrollup.backfill = on;
INSERT INTO ac.s VALUES ('k1', 'sad', '2026-01-01', 77), ('k9', 'happy', '2026-01-01', 78);
RESET dailyrollup.backfill;
SELECT only_owner('a superuser''s backfill', true);
SELECT is(rollup_flush('ac.off'), 2::bigint, 'flushed');
SELECT only_owner('a superuser''s rollup_flush', true);
-- a pass that finds differences names their keys
SELECT format('SET ROLE ac_owner; ALTER TABLE ac.shadow DISABLE TRIGGER %1$I; UPDATE ac.shadow SET n = n + 100; ALTER TABLE ac.shadow ENABLE ALWAYS TRIGGER %1$I; RESET ROLE', tgname)
FROM pg_trigger WHERE tgrelid = 'ac.shadow'::regclass AND tgname ~ 'guard' \gexec
SELECT rollup_reseed('ac.shadow');
CALL rollup_run('ac.shadow');
SELECT cmp_ok(mismatches, '>', 2::bigint, 'the pass has found differences') FROM rollup_status WHERE rollup = 'ac.shadow'::regclass;
SELECT only_owner('a superuser''s pass with differences', true);
SELECT rollup_recompute('ac.shadow');
SELECT rollup_promote('ac.shadow');
SELECT only_owner('a superuser promotes', false);
SELECT rollup_alter('ac.on', mode => 'off');
CALL rollup_run();
SELECT only_owner('a superuser''s pass to another state', false);
SELECT is_empty('SELECT rollup, v.class FROM rollup_status s, LATERAL rollup_verify(s.rollup) v', 'all are exact');
SELECT is((SELECT string_agg(rolname, ', ') FROM pg_roles WHERE rolsuper AND rolname ~ '^ac_'), NULL, 'nobody has become superuser');

-- a pass asks an index for the first time of the source, which it seeds in parts
SET ROLE ac_owner;
CREATE TABLE ac.timed (k text, t timestamptz NOT NULL);
INSERT INTO ac.timed VALUES ('a', '2026-01-01');
CREATE INDEX ON ac.timed (t);
CREATE INDEX ON ac.timed (k) WHERE ac.spy(1);
SELECT rollup_create('ac.timed_r', 'SELECT k, count(*) AS n FROM ac.timed GROUP BY k', 't', mode => 'on');
RESET ROLE;
SELECT setval('ac.as_owner', 1, false), setval('ac.as_other', 1, false);
CALL rollup_run('ac.timed_r');
SELECT only_owner('a superuser''s pass over an indexed source', true);
SELECT results_eq('SELECT * FROM ac.timed_r', $$VALUES ('a', 1::bigint)$$, 'has seeded');

-- a name is looked up by who may rename what it means: the owner
BEGIN;
CREATE TABLE renamed (tag text, by_whom name);
GRANT INSERT ON renamed TO PUBLIC;
CREATE FUNCTION note_rename() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO ac_helpers.renamed VALUES (tg_tag, current_user); END $$;
CREATE EVENT TRIGGER ac_note ON ddl_command_start EXECUTE FUNCTION note_rename();
ALTER TABLE ac.timed_r RENAME n TO number;
DROP EVENT TRIGGER ac_note;
SELECT is((SELECT string_agg(tag || ' by ' || by_whom, ', ') FROM renamed WHERE by_whom <> current_user), 'ALTER TABLE by ac_owner', 'the definition''s column is renamed by its owner');
ROLLBACK;

-- ==== The marks are the rollup's: what would leave a mark out, or put it
-- elsewhere, or wait for the end of another's transaction, is refused, as for live.
SELECT is(try('ac_owner', replace(statement, 'MARKS', m)), says, 'refused: ' || statement)
FROM (SELECT m FROM marks LIMIT 1) x, (VALUES
  ('CREATE RULE nothing AS ON INSERT TO MARKS DO INSTEAD NOTHING', '0A000 table "dailyrollup.marks_N" of a rollup cannot serve it any more: it has rules'),
  ('CREATE RULE nothing AS ON DELETE TO MARKS DO INSTEAD NOTHING', '0A000 table "dailyrollup.marks_N" of a rollup cannot serve it any more: it has rules'),
  ('CREATE TABLE ac.heir () INHERITS (MARKS)', '0A000 table "dailyrollup.marks_N" of a rollup cannot serve it any more: it takes part in inheritance'),
  ('CREATE TRIGGER early BEFORE INSERT ON MARKS FOR EACH ROW EXECUTE FUNCTION ac.spy_trigger()', '0A000 table "dailyrollup.marks_N" of a rollup cannot serve it any more: it has a trigger that fires before a row is written'),
  ('CREATE TRIGGER early BEFORE DELETE ON MARKS FOR EACH ROW EXECUTE FUNCTION ac.spy_trigger()', '0A000 table "dailyrollup.marks_N" of a rollup cannot serve it any more: it has a trigger that fires before a row is written'),
  ('CREATE CONSTRAINT TRIGGER later AFTER INSERT ON MARKS DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ac.spy_trigger()', '0A000 constraint "later" of table "dailyrollup.marks_N" is deferrable')) v(statement, says);
SELECT is(try('ac_writer', $$INSERT INTO ac.s VALUES ('k1', 'sad', '2026-01-01', 7)$$), 'ok', 'and writers write');

SELECT count(rollup_drop(rollup, true)) FROM rollup_status;
SET search_path = public;
DROP SCHEMA ac, ac_helpers CASCADE;
DROP ROLE ac_owner, ac_writer, ac_monitor;
SELECT is(count(*), 0::bigint, 'nothing is left') FROM dailyrollup.rollups r LEFT JOIN pg_class c ON c.oid = r.live WHERE c.oid IS NULL;
SELECT * FROM finish();
