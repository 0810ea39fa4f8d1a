-- Modes off and shadow, the write-time fold, adoption, guard, promote and the
-- pass, for those who mean them ill: statements at odd moments, tables made
-- odd, times at the ends of the calendar.  Each section names what it protects.
\ir lib/begin.sql
\set ON_ERROR_ROLLBACK off

SELECT no_plan();

CREATE ROLE am_owner;
CREATE ROLE am_writer;
CREATE SCHEMA am;
GRANT ALL ON SCHEMA am TO am_owner, am_writer;
CREATE SCHEMA am_helpers;
GRANT USAGE ON SCHEMA am_helpers TO PUBLIC;
SET search_path = am_helpers, public;
\ir lib/roles.sql
SET search_path = am, am_helpers, public;

-- What is wrong with a rollup, by the definition's text, run as it is, and by
-- rollup_verify; NULL: nothing.
CREATE FUNCTION am_helpers.wrong(rollup regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  s public.rollup_status;
  found text;
  verified text;
BEGIN
  SELECT * INTO s FROM public.rollup_status r WHERE r.rollup = wrong.rollup;
  EXECUTE format('SELECT string_agg(x::text, '' '') FROM ((TABLE %1$s EXCEPT ALL (%2$s)) UNION ALL ((%2$s) EXCEPT ALL TABLE %1$s)) x',
                 s.current_view, public.rollup_definition(rollup)) INTO found;
  IF s.state IN ('off', 'shadow') OR s.state = 'on' AND s.watermark IS NOT NULL THEN
    SELECT string_agg(v.class || ' ' || v.key, ' ') INTO verified FROM public.rollup_verify(rollup) v;
  END IF;
  RETURN nullif(concat_ws(', verify: ', found, verified), '');
END $$;
-- A source and a rollup of it in state off.
CREATE PROCEDURE am_helpers.make(dedup name[] DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
  CREATE TABLE am.s (k text, t timestamptz, v int);
  PERFORM public.rollup_create('am.l', 'SELECT k, count(*) AS n, sum(v) AS total, latest(v, t) AS v, max(t) AS seen FROM am.s GROUP BY k',
                               't', dedup_by => dedup, mode => 'off');
  CALL public.rollup_run('am.l');
END $$;
CREATE PROCEDURE am_helpers.unmake() LANGUAGE plpgsql AS $$
BEGIN
  PERFORM public.rollup_drop('am.l', true);
  DROP TABLE am.s CASCADE;
END $$;

-- ==== Who reads the source into live in the midst of a transaction has read what
-- that has written: it is not folded once more.  Protects dr_fold_now, and what
-- batch.c keeps by rollup.
CALL make();
INSERT INTO s VALUES ('a', '2026-01-01', 1);
BEGIN; INSERT INTO s VALUES ('a', '2026-01-02', 1); SELECT rollup_recompute('l'); INSERT INTO s VALUES ('a', '2026-01-03', 1); COMMIT;
SELECT is(wrong('l'), NULL, 'written, recomputed, written');
SELECT is(n, 3::bigint, 'each row once') FROM l;
SET dailyrollup.backfill = on; INSERT INTO s VALUES ('b', '2026-01-01', 1); RESET dailyrollup.backfill;
BEGIN; INSERT INTO s VALUES ('b', '2026-01-02', 1); SELECT rollup_flush('l'); COMMIT;
SELECT is(wrong('l'), NULL, 'written, flushed');
BEGIN; INSERT INTO s VALUES ('c', '2026-01-02', 1); SELECT rollup_alter('l', fold => false); SELECT rollup_recompute('l'); SELECT rollup_alter('l', fold => true); INSERT INTO s VALUES ('c', '2026-01-03', 1); COMMIT;
SELECT is(wrong('l'), NULL, 'written, the fold turned off and on, written');
BEGIN; INSERT INTO s VALUES ('c', '2026-01-04', 1), ('off', '2026-01-04', 1); SELECT rollup_alter('l', fold => false); INSERT INTO s VALUES ('off', '2026-01-05', 1); COMMIT;
SELECT is((SELECT string_agg(k || ' ' || n, ', ' ORDER BY k) FROM l WHERE k IN ('c', 'off')), 'c 3, off 1', 'written, the fold turned off, written');
DELETE FROM s WHERE k = 'off' AND t = '2026-01-05'; SELECT rollup_alter('l', fold => true);
-- a transaction that is read-only in the end has written
BEGIN; SET LOCAL dailyrollup.fold_method = statement; INSERT INTO s VALUES ('c', '2026-01-05', 1); SET TRANSACTION READ ONLY; COMMIT;
BEGIN; INSERT INTO s VALUES ('c', '2026-01-06', 1); SET TRANSACTION READ ONLY; COMMIT;
SELECT is(wrong('l'), NULL, 'written, then read-only');
BEGIN; INSERT INTO s VALUES ('d', '2026-01-02', 1); SELECT rollup_drop('l');
SELECT rollup_create('l', 'SELECT k, count(*) AS n, sum(v) AS total, latest(v, t) AS v, max(t) AS seen FROM s GROUP BY k', 't', mode => 'off');
SELECT rollup_recompute('l'); SELECT rollup_alter('l', fold => true); INSERT INTO s VALUES ('d', '2026-01-03', 1); COMMIT;
SELECT is(wrong('l'), NULL, 'written, the rollup dropped and created, written');
SET dailyrollup.backfill = on; INSERT INTO s VALUES ('e', '2026-01-01', 1); RESET dailyrollup.backfill;
DO $$ BEGIN INSERT INTO am.s VALUES ('e', '2026-01-02', 1); CALL rollup_run('am.l'); INSERT INTO am.s VALUES ('e', '2026-01-03', 1); END $$;
SELECT is(wrong('l'), NULL, 'a pass in the midst of a DO');

-- Undone in a subtransaction, it is folded once more, and once.  Protects
-- level_aborted and dr_batch_take in batch.c.
BEGIN; INSERT INTO s VALUES ('f', '2026-01-01', 1); SAVEPOINT a; INSERT INTO s VALUES ('f', '2026-01-02', 1); SELECT rollup_fold(); ROLLBACK TO a; INSERT INTO s VALUES ('f', '2026-01-03', 1); COMMIT;
SELECT is(wrong('l'), NULL, 'folded, undone, folded');
BEGIN; INSERT INTO s VALUES ('f', '2026-01-01', 1); SAVEPOINT a; SELECT rollup_alter('l', fold => false); SELECT rollup_fold(); ROLLBACK TO a; SAVEPOINT b; SELECT rollup_fold(); RELEASE b; COMMIT;
SELECT is(wrong('l'), NULL, 'thrown away, undone, folded');
BEGIN; SELECT rollup_alter('l', fold => false); SAVEPOINT a; INSERT INTO s VALUES ('x', '2026-01-01', 1); ROLLBACK TO a; SELECT rollup_alter('l', fold => true); INSERT INTO s VALUES ('f', '2026-01-04', 1); COMMIT;
SELECT is(wrong('l'), NULL, 'the fold turned off and on around a row that is undone');
SELECT rollup_alter('l', mode => 'shadow'); CALL rollup_run('l');
BEGIN; INSERT INTO s VALUES ('f', '2026-01-05', 1), ('g', now(), 1); SAVEPOINT a; SELECT rollup_promote('l'); INSERT INTO s VALUES ('f', '2026-01-06', 1), ('g', now(), 2); SELECT rollup_fold(); ROLLBACK TO a; INSERT INTO s VALUES ('f', '2026-01-07', 1); COMMIT;
SELECT is(wrong('l'), NULL, 'promoted and undone');
BEGIN; INSERT INTO s VALUES ('f', '2026-01-05', 1), ('h', now(), 1); SELECT rollup_promote('l'); INSERT INTO s VALUES ('f', '2026-01-06', 1), ('h', now(), 2); COMMIT;
SELECT is(wrong('l'), NULL, 'promoted between two writes');
SELECT rollup_alter('l', mode => 'off');
DO $$ BEGIN INSERT INTO am.s VALUES ('f', '2026-01-08', 1), ('h', now(), 3); CALL rollup_run('am.l'); INSERT INTO am.s VALUES ('f', '2026-01-09', 1), ('h', now(), 4); END $$;
SELECT is(wrong('l'), NULL, 'mode on left between two writes');
SELECT is(state, 'off', 'it is left') FROM rollup_status WHERE rollup = 'l'::regclass;
CALL unmake();

-- ==== rollup_fold() and its like while a statement of the session is at work:
-- rows that it has written and not captured yet would be seen, and added later.
-- Protects check_not_in_use in fold.c, dr_locks_check_not_in_use in state.c.
CALL make('{k,t}');
CREATE FUNCTION now_do() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE current_setting('am.statement'); RETURN NEW; END $$;
CREATE FUNCTION now_do(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE current_setting('am.statement'); RETURN i; END $$;
CREATE FUNCTION in_use() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  statement text;
BEGIN
  FOREACH statement IN ARRAY ARRAY['SELECT rollup_fold()', 'SELECT rollup_flush(''am.l'')', 'SELECT rollup_recompute(''am.l'')', 'SELECT rollup_alter(''am.l'', fold => false)'] LOOP
    PERFORM set_config('am.statement', statement, false);
    CREATE TRIGGER z AFTER INSERT ON am.s FOR EACH ROW EXECUTE FUNCTION now_do();
    RETURN NEXT matches(try($i$INSERT INTO am.s SELECT 'a', '2026-01-01'::timestamptz + i * interval '1 hour', 1 FROM generate_series(1, 3) i$i$), '^(55006|0A000) cannot', 'a trigger of the source: ' || statement);
    DROP TRIGGER z ON am.s;
    RETURN NEXT matches(try($i$INSERT INTO am.s VALUES ('b', '2026-01-01', 1); WITH b AS (INSERT INTO am.s SELECT 'b', '2026-01-02', am.now_do(1)) SELECT$i$), '^(55006|0A000) cannot', 'a function that a writing statement calls: ' || statement);
    RETURN NEXT matches(try($i$INSERT INTO am.s VALUES ('b', '2026-01-01', 1); UPDATE am.s SET v = am.now_do(v + 1)$i$), '^(55006|0A000) cannot', 'an update: ' || statement);
  END LOOP;
END $$;
INSERT INTO s VALUES ('c', '2026-01-01', 1);
SELECT in_use();
-- rows that a foreign key deletes are captured after the trigger beside it
CREATE TABLE parents (k text PRIMARY KEY);
INSERT INTO parents VALUES ('c'), ('d');
ALTER TABLE s ADD FOREIGN KEY (k) REFERENCES parents ON DELETE CASCADE;
CREATE TRIGGER z AFTER DELETE ON parents FOR EACH ROW EXECUTE FUNCTION now_do();
SELECT set_config('am.statement', 'SELECT rollup_fold()', false);
SELECT matches(try($$INSERT INTO am.s VALUES ('d', '2026-01-01', 1); DELETE FROM am.parents WHERE k = 'c'$$), '^(55006|0A000) cannot', 'a trigger beside a foreign key');
SELECT set_config('am.statement', 'SELECT 1', false);
DELETE FROM parents WHERE k = 'c';
SELECT is(wrong('l'), NULL, 'nothing was counted twice');
SELECT is_empty('TABLE l', 'what a foreign key deletes is folded');
CALL unmake();
DROP TABLE parents;

-- ==== Values out of line, whose table is gone at the commit.  Protects
-- held_value in batch.c.
CREATE FUNCTION noise(n int, seed text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(md5(seed || i), '') FROM generate_series(1, n) i $$;
CREATE TABLE p (k text, t timestamptz, v text) PARTITION BY RANGE (t);
CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE p_2 PARTITION OF p FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
SELECT rollup_create('pl', 'SELECT k, count(*) AS n, max(t) AS seen, latest(v, t) AS v FROM p GROUP BY k', 't', mode => 'off');
CALL rollup_run('pl');
BEGIN; INSERT INTO p VALUES ('a', '2026-01-01', noise(300, 'a')); ALTER TABLE p ADD COLUMN z timestamptz DEFAULT clock_timestamp(); COMMIT;
SELECT is(wrong('pl'), NULL, 'the source is rewritten before the fold');
BEGIN; INSERT INTO p VALUES ('b', '2026-01-01', noise(300, 'b')); UPDATE p SET v = noise(200, 'c') WHERE k = 'b'; INSERT INTO p VALUES ('c', '2026-01-01', noise(300, 'd')); DROP TABLE p_1; COMMIT;
SELECT rollup_recompute('pl');
SELECT is(wrong('pl'), NULL, 'a partition is dropped before the fold, and forgotten by a recompute');
BEGIN; INSERT INTO p VALUES (noise(40, 'k'), '2026-02-01', noise(300, 'e')); SAVEPOINT a; DELETE FROM p; ROLLBACK TO a; DELETE FROM p WHERE v = noise(300, 'e'); INSERT INTO p VALUES (noise(40, 'k'), '2026-02-02', noise(300, 'f')); COMMIT;
SELECT is(wrong('pl'), NULL, 'long keys, deleted and written');

-- Partitions that come, go, and are loaded in the writer's transaction.
CREATE TABLE p_3 (v text, k text, t timestamptz);
BEGIN; INSERT INTO p VALUES ('d', '2026-02-05', 'x'); INSERT INTO p_3 VALUES ('y', 'd', '2026-03-01'), ('y', 'e', '2026-03-01'); ALTER TABLE p_3 ADD COLUMN z timestamptz;
ALTER TABLE p ATTACH PARTITION p_3 FOR VALUES FROM ('2026-03-01') TO ('2026-04-01'); INSERT INTO p VALUES ('d', '2026-03-02', 'x'), ('f', '2026-03-01', 'x'); INSERT INTO p_3 VALUES ('x', 'f', '2026-03-02'); COMMIT;
SELECT is(wrong('pl'), NULL, 'attached between two writes');
CALL rollup_run('pl');
SELECT is(wrong('pl'), NULL, 'and flushed');
BEGIN; INSERT INTO p_3 VALUES ('x', 'g', '2026-03-02'); SAVEPOINT a; ALTER TABLE p DETACH PARTITION p_3; INSERT INTO p_3 VALUES ('x', 'h', '2026-03-02'); ROLLBACK TO a; COMMIT;
SELECT is(wrong('pl'), NULL, 'detached, undone');
BEGIN; CREATE TABLE p_4 PARTITION OF p FOR VALUES FROM ('2026-04-01') TO ('2026-05-01'); COPY p_4 (k, t, v) FROM PROGRAM 'printf "a\t2026-04-03\tx\nq\t2026-04-03\t\\\\N\n"' (FREEZE); COMMIT;
SELECT is(wrong('pl'), NULL, 'a new partition, frozen');
BEGIN; INSERT INTO p VALUES ('r', '2026-02-03', 'x'); SAVEPOINT a; TRUNCATE p; INSERT INTO p VALUES ('r', '2026-02-04', 'x'); ROLLBACK TO a; COMMIT;
SELECT is(wrong('pl'), NULL, 'truncated, undone');
BEGIN; INSERT INTO p VALUES ('r', '2026-02-03', 'x'); TRUNCATE p_4; COPY p_4 (k, t, v) FROM PROGRAM 'printf "a\t2026-04-03\tx\n"' (FREEZE); SELECT rollup_fold(); INSERT INTO p VALUES ('r', '2026-04-04', 'x'); COMMIT;
SELECT is(wrong('pl'), NULL, 'a partition truncated between two writes');
CALL rollup_run('pl');
SELECT is(wrong('pl'), NULL, 'and filled again');
SELECT is(state, 'off', 'to where it was') FROM rollup_status WHERE rollup = 'pl'::regclass;
SELECT rollup_drop('pl', true);
DROP TABLE p;

-- ==== What a trigger of live leaves open when the transaction ends: the server
-- has closed its cursors before, and would find one with no owner later, and
-- crash.  Protects the loop of fold_at_end in fold.c.
CALL make();
CREATE FUNCTION leaves_open() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  c refcursor := 'left_open';
BEGIN
  OPEN c FOR SELECT * FROM am.l l, pg_class ORDER BY 1;
  RETURN NULL;
END $$;
CREATE TRIGGER leaves_open AFTER INSERT ON l FOR EACH STATEMENT EXECUTE FUNCTION leaves_open();
INSERT INTO s VALUES ('a', '2026-01-01', 1);
SELECT is(count(*), 0::bigint, 'a cursor is closed at the commit') FROM pg_cursors WHERE name = 'left_open';
BEGIN; INSERT INTO s VALUES ('b', '2026-01-01', 1); PREPARE TRANSACTION 'am_1';
SELECT is(count(*), 0::bigint, 'and where it is prepared') FROM pg_cursors WHERE name = 'left_open';
COMMIT PREPARED 'am_1';
SELECT is(wrong('l'), NULL, 'and all is folded');
DROP TRIGGER leaves_open ON l;

-- It cannot defer anything to the end of the transaction, which has come: the
-- server refuses that to what runs with an owner's rights.
CREATE TABLE deferred (k text UNIQUE DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION defers() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN INSERT INTO am.deferred VALUES ('twice'), ('twice'); RETURN NULL; END $$;
CREATE TRIGGER defers AFTER INSERT OR UPDATE ON l FOR EACH ROW EXECUTE FUNCTION defers();
SELECT is(try($$INSERT INTO am.s VALUES ('deferred', '2026-01-01', 1); SELECT rollup_fold()$$), '42501 cannot fire deferred trigger within security-restricted operation', 'a deferred constraint');
DROP TRIGGER defers ON l;
DROP TABLE deferred;

-- A trigger of live that calls us, or changes what we work with: an error, or
-- nothing wrong.  Protects dr_guard_let, check_not_in_use in fold.c.
CREATE FUNCTION calls(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  timing text;
  says text;
BEGIN
  FOREACH timing IN ARRAY '{AFTER,BEFORE}'::text[] LOOP
    BEGIN
      CREATE SEQUENCE am.calls;
      EXECUTE format('CREATE FUNCTION am.calls() RETURNS trigger LANGUAGE plpgsql AS %L', format('BEGIN IF nextval(''am.calls'') = 1 THEN EXECUTE %L; END IF; RETURN NEW; END', statement));
      EXECUTE format('CREATE TRIGGER calls %s INSERT OR UPDATE ON am.l FOR EACH ROW EXECUTE FUNCTION am.calls()', timing);
      says := try($i$INSERT INTO am.s VALUES ('new', '2026-01-01', 1); SELECT rollup_fold()$i$);
      RETURN NEXT unalike(says, '%cache lookup%', format('%s trigger of live: %s: %s', timing, statement, says));
      IF EXISTS (SELECT FROM public.rollup_status r WHERE r.rollup::text ~ '\ml$' AND r.fold AND r.state = 'off') THEN
        RETURN NEXT is(wrong('am.l'), NULL, format('%s trigger of live: %s', timing, statement));
      END IF;
      RAISE EXCEPTION USING ERRCODE = 'AM000';
    EXCEPTION WHEN SQLSTATE 'AM000' THEN
    END;
  END LOOP;
END $$;
SELECT calls(statement) FROM unnest('{
  "SELECT public.rollup_fold()", "SELECT public.rollup_recompute(''am.l'')", "SELECT public.rollup_flush(''am.l'')", "SELECT public.rollup_alter(''am.l'', fold => false)",
  "SELECT public.rollup_alter(''am.l'', time_zone => ''Asia/Tokyo'')", "SELECT public.rollup_promote(''am.l'')", "SELECT public.rollup_drop(''am.l'', true)",
  "SELECT public.rollup_mark(''am.l'', ''-infinity'', ''infinity'')", "SELECT public.rollup_verify(''am.l'')",
  "INSERT INTO am.s VALUES (''new'', ''2026-01-02'', 1)", "UPDATE am.s SET v = v + 1", "DELETE FROM am.s", "TRUNCATE am.s", "DELETE FROM am.l",
  "ALTER TABLE am.s ADD COLUMN z int DEFAULT 4", "ALTER TABLE am.s RENAME COLUMN v TO vv", "ALTER TABLE am.l RENAME COLUMN n TO m", "ALTER TABLE am.l DROP CONSTRAINT l_k_key", "DROP TABLE am.l CASCADE"}'::text[]) statement;
CALL unmake();
CALL make('{k,t}');
INSERT INTO s VALUES ('a', '2026-01-01', 1);
SELECT calls(statement) FROM unnest('{
  "SELECT public.rollup_fold()", "SELECT public.rollup_flush(''am.l'')", "SELECT public.rollup_alter(''am.l'', fold => false)",
  "INSERT INTO am.s VALUES (''new'', ''2026-01-02'', 1)", "INSERT INTO am.s VALUES (''new'', ''2026-01-01'', 1)", "UPDATE am.s SET v = v + 1", "DELETE FROM am.s", "TRUNCATE am.s",
  "ALTER TABLE am.s RENAME COLUMN v TO vv"}'::text[]) statement;
-- one whose trigger calls rollup_fold() while another rollup waits
SELECT rollup_create('l2', 'SELECT k, count(*) AS n FROM s GROUP BY k', 't', dedup_by => '{k,t}', mode => 'off');
CALL rollup_run('l2');
SELECT calls('SELECT public.rollup_fold()');
SELECT rollup_drop('l2', true);
CALL unmake();

-- ==== A trigger of live writes to the source again.  Protects fold_all, and
-- the order of what dr_batch_collect keeps then.
CALL make();
CREATE FUNCTION writes_source() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.k <> 'sum' THEN INSERT INTO am.s VALUES ('sum', '2026-01-01', 1); END IF; RETURN NEW; END $$;
CREATE TRIGGER writes_source BEFORE INSERT OR UPDATE ON l FOR EACH ROW EXECUTE FUNCTION writes_source();
INSERT INTO s VALUES ('a', '2026-01-01', 1), ('b', '2026-01-02', 1);
UPDATE s SET v = v + 1 WHERE k = 'a';
SELECT is(wrong('l'), NULL, 'a BEFORE trigger of live writes to the source');
DROP TRIGGER writes_source ON l;
CREATE TRIGGER writes_source AFTER INSERT OR UPDATE ON l FOR EACH ROW EXECUTE FUNCTION writes_source();
INSERT INTO s VALUES ('c', '2026-01-01', 1), ('b', '2026-01-02', 1);
UPDATE s SET v = v + 1 WHERE k IN ('a', 'c');
SELECT is(wrong('l'), NULL, 'an AFTER trigger of live');
SELECT rollup_alter('l', mode => 'on'); CALL rollup_run('l');
SELECT is(wrong('l'), NULL, 'it is promoted under that trigger');
INSERT INTO s VALUES ('c', '2026-01-01', 1); CALL rollup_run('l');
SELECT is(wrong('l'), NULL, 'refreshed');
SELECT rollup_alter('l', mode => 'off'); CALL rollup_run('l');
SELECT is(wrong('l'), NULL, 'and leaves mode on');
DROP TRIGGER writes_source ON l;

-- To the key that is being computed again, which has that row then, or not.
CREATE FUNCTION writes_key() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NOT EXISTS (SELECT FROM am.s WHERE k = NEW.k AND v = 99) THEN INSERT INTO am.s VALUES (NEW.k, '2026-01-03', 99); END IF; RETURN NEW; END $$;
CREATE TRIGGER writes_key BEFORE INSERT OR UPDATE ON l FOR EACH ROW EXECUTE FUNCTION writes_key();
UPDATE s SET v = v + 1 WHERE k = 'a';
SELECT is(wrong('l'), NULL, 'a BEFORE trigger of live writes to the same key');
DELETE FROM s WHERE v = 99; DROP TRIGGER writes_key ON l;
CREATE TRIGGER writes_key AFTER INSERT OR UPDATE ON l FOR EACH ROW EXECUTE FUNCTION writes_key();
UPDATE s SET v = v + 1 WHERE k IN ('a', 'b');
SELECT is(wrong('l'), NULL, 'an AFTER trigger');
DELETE FROM s WHERE v = 99; DROP TRIGGER writes_key ON l;

-- One that folds what it has written itself, in the midst of our fold.  Protects
-- check_not_in_use in fold.c.
CREATE TABLE said (message text);
CREATE FUNCTION folds() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM am.said) THEN RETURN NEW; END IF;
  INSERT INTO am.said VALUES ('nothing');
  INSERT INTO am.s VALUES ('b', '2026-01-04', 1);
  PERFORM public.rollup_fold();
  RETURN NEW;
EXCEPTION WHEN object_in_use THEN
  INSERT INTO am.said VALUES (SQLERRM);
  RETURN NEW;
END $$;
CREATE TRIGGER folds BEFORE INSERT OR UPDATE ON l FOR EACH ROW EXECUTE FUNCTION folds();
INSERT INTO s VALUES ('b', '2026-01-03', 1);
SELECT is((SELECT max(message) FROM said), 'cannot fold while rows are folded', 'a trigger of live may not fold');
SELECT is(wrong('l'), NULL, 'and nothing is folded twice');
DROP TRIGGER folds ON l;
DROP TABLE said;

-- One that leaves rows out: what we have written is not believed.  Protects
-- dr_check_written and what recompute compares.
CREATE FUNCTION leaves_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER leaves_out BEFORE INSERT OR UPDATE OR DELETE ON l FOR EACH ROW EXECUTE FUNCTION leaves_out();
INSERT INTO s VALUES ('new', '2026-01-01', 1); DELETE FROM s WHERE k = 'b';
SELECT matches(try($$SELECT rollup_recompute('am.l')$$), '^XX001 ', 'a recompute whose rows are left out, as many as are left in');
SELECT rollup_alter('l', mode => 'on');
\set ON_ERROR_STOP 0
CALL rollup_run('l');
\set ON_ERROR_STOP 1
SELECT is(:'LAST_ERROR_SQLSTATE'::text, 'XX001', 'a promote likewise');
SELECT is(state, 'shadow', 'which is undone') FROM rollup_status WHERE rollup = 'l'::regclass;
DROP TRIGGER leaves_out ON l;
CALL rollup_run('l');
SELECT is(wrong('l'), NULL, 'and made later');
SELECT is(state, 'on', 'on') FROM rollup_status WHERE rollup = 'l'::regclass;
CALL unmake();

-- ==== The guard.  Protects guard.c, and check_tables in ddl.c, for statement
-- triggers do not fire for who comes through a parent, a rule, or later.
CALL make();
INSERT INTO s VALUES ('a', '2026-01-01', 1), ('b', '2026-01-01', 1);
CREATE VIEW over_l AS SELECT * FROM l;
SELECT is(left(try(statement), 43), '55000 rollup "am.l" is maintained by dailyr', 'refused: ' || statement) FROM unnest('{
  "INSERT INTO am.l (k) VALUES (''z'')", "INSERT INTO am.l (k) VALUES (''a'') ON CONFLICT DO NOTHING", "UPDATE am.l SET n = 5", "DELETE FROM am.l WHERE false", "TRUNCATE am.l", "TRUNCATE am.s, am.l",
  "MERGE INTO am.l USING (VALUES (''a'')) x(k) ON l.k = x.k WHEN MATCHED THEN DELETE", "WITH x AS (DELETE FROM am.l RETURNING *) SELECT FROM x", "INSERT INTO am.over_l (k) VALUES (''z'')",
  "SET LOCAL session_replication_role = replica; DELETE FROM am.l"}'::text[]) statement;
CREATE TABLE parents (k text PRIMARY KEY);
INSERT INTO parents VALUES ('a'), ('b');
ALTER TABLE l ADD FOREIGN KEY (k) REFERENCES parents ON DELETE CASCADE ON UPDATE CASCADE;
SELECT is(left(try(statement), 43), '55000 rollup "am.l" is maintained by dailyr', 'refused, through a foreign key: ' || statement)
FROM unnest('{"DELETE FROM am.parents WHERE k = ''a''", "UPDATE am.parents SET k = ''y'' WHERE k = ''b''", "TRUNCATE am.parents CASCADE"}'::text[]) statement;
ALTER TABLE l DROP CONSTRAINT l_k_fkey;
CREATE TABLE above (k text, n bigint, total bigint, v int, seen timestamptz);
CREATE TABLE above_p (k text, n bigint, total bigint, v int, seen timestamptz) PARTITION BY LIST (k);
SELECT matches(try(statement), '^0A000 ', 'refused: ' || statement) FROM unnest('{
  "ALTER TABLE am.l INHERIT am.above", "ALTER TABLE am.above_p ATTACH PARTITION am.l DEFAULT", "CREATE TABLE am.below () INHERITS (am.l)",
  "CREATE RULE r AS ON INSERT TO am.l DO INSTEAD NOTHING", "CREATE RULE r AS ON DELETE TO am.l DO INSTEAD NOTHING",
  "ALTER TABLE am.l ADD UNIQUE (k) DEFERRABLE", "ALTER TABLE am.l ADD FOREIGN KEY (k) REFERENCES am.parents DEFERRABLE", "CREATE TABLE am.child (k text REFERENCES am.l (k) DEFERRABLE)",
  "CREATE CONSTRAINT TRIGGER c AFTER INSERT ON am.l DEFERRABLE FOR EACH ROW EXECUTE FUNCTION am.leaves_out()"}'::text[]) statement;
SELECT is(wrong('l'), NULL, 'live is as it was');
-- foreign and deferred: other tables' constraints are theirs
CREATE TABLE child (k text REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE adopted (k text, n bigint);
SELECT rollup_create('adopted', 'SELECT k, count(*) AS n FROM s GROUP BY k', 't', mode => 'shadow');
CALL rollup_run('adopted');
BEGIN; INSERT INTO child VALUES ('late'); SELECT rollup_promote('adopted'); INSERT INTO parents VALUES ('late'); COMMIT;
SELECT is(wrong('adopted'), NULL, 'promoted, and given a unique index, while a stranger''s deferred constraint waits');
SELECT rollup_drop('adopted', true);
BEGIN; SET CONSTRAINTS ALL DEFERRED; INSERT INTO s VALUES ('a', '2026-01-02', 1); INSERT INTO child VALUES ('later'); INSERT INTO parents VALUES ('later'); COMMIT;
SELECT is(wrong('l'), NULL, 'folded with all constraints deferred');
DROP TABLE child, parents, above, above_p;
DROP VIEW over_l;

-- Adopted tables that would never work, or are somebody's.
CREATE FUNCTION adopt(ddl text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  says text;
BEGIN
  EXECUTE ddl;
  says := try($q$SELECT rollup_create('am.a', 'SELECT k, count(*) AS n, sum(v) AS total FROM am.s GROUP BY k', 't', mode => 'off')$q$);
  RAISE EXCEPTION USING ERRCODE = 'AM000';
EXCEPTION WHEN SQLSTATE 'AM000' THEN
  RETURN says;
END $$;
SELECT matches(adopt(ddl), says, ddl) FROM (VALUES
  ('CREATE TABLE am.a (k text UNIQUE DEFERRABLE, n bigint, total bigint)', '^0A000 constraint .* is deferrable'),
  ('CREATE TABLE am.a (k text, n bigint, total bigint); CREATE RULE r AS ON INSERT TO am.a DO ALSO NOTHING', '^0A000 .* has rules'),
  ('CREATE TABLE am.a (k text, n bigint, total bigint); CREATE RULE r AS ON INSERT TO am.a DO ALSO NOTHING; DROP RULE r ON am.a', '^ok'),
  ('CREATE DOMAIN am.d AS int NOT NULL; CREATE TABLE am.a (k text, n bigint, total bigint, d am.d)', '^0A000 .* has no default'),
  ('CREATE TABLE am.a (junk int, x int GENERATED ALWAYS AS IDENTITY, total bigint, k text, g text GENERATED ALWAYS AS (k || ''x'') STORED, n bigint); ALTER TABLE am.a DROP junk', '^ok')) a(ddl, says);
SELECT rollup_alter('l', mode => 'shadow'); CALL rollup_run('l');
SELECT is(try($$SELECT rollup_create('am.l_daily', 'SELECT k, count(*) AS n, sum(v) AS total, latest(v, t) AS v, max(t) AS seen FROM am.s GROUP BY k', 't')$$),
          '42809 "am.l_daily" belongs to a rollup itself', 'another rollup''s shadow');
CREATE TABLE odd ("dailyrollup added" text, t timestamptz);
SELECT matches(try($$SELECT rollup_create('am.a', 'SELECT "dailyrollup added" AS k, count(*) AS n FROM am.odd GROUP BY 1', 't')$$), '^42939 ', 'a column that is named as ours');
DROP TABLE odd;
CALL unmake();

-- ==== Live has constraints and the fold locks keys: no row that is none of its
-- content may fail the writer.  Protects lock_rows and nulls_allowed in
-- folding.c.
CREATE TABLE s (k text NOT NULL, t timestamptz NOT NULL, v int);
SELECT rollup_create('l', 'SELECT k, count(*) AS n, sum(v) AS total FROM s WHERE v > 0 GROUP BY k', 't', mode => 'off');
CALL rollup_run('l');
ALTER TABLE l ALTER n SET NOT NULL;
INSERT INTO s VALUES ('a', '2026-01-01', 1), ('b', '2026-01-01', -1);
UPDATE s SET v = v - 1 WHERE k = 'b'; UPDATE s SET v = 5 WHERE k = 'b'; UPDATE s SET v = -5 WHERE k = 'b'; UPDATE s SET v = -6 WHERE k = 'b';
SELECT is(wrong('l'), NULL, 'NOT NULL, and rows that WHERE leaves out');
SET dailyrollup.backfill = on; INSERT INTO s VALUES ('a', '2026-01-02', 1), ('c', '2026-01-02', 1); DELETE FROM s WHERE k = 'c'; RESET dailyrollup.backfill;
SELECT rollup_flush('l');
SELECT is(wrong('l'), NULL, 'NOT NULL, and a flush of keys that are there, and that are gone');
SELECT rollup_drop('l', true);
DROP TABLE s;
CREATE DOMAIN never_null AS int NOT NULL;
CREATE TABLE s (k text NOT NULL, t timestamptz NOT NULL, v never_null);
SELECT rollup_create('l', 'SELECT k, count(*) AS n, latest(v, t) AS v, max(t) AS seen FROM s WHERE v > 0 GROUP BY k', 't', mode => 'off');
CALL rollup_run('l');
INSERT INTO s VALUES ('b', '2026-01-01', -1); UPDATE s SET v = v - 1; UPDATE s SET v = 1; UPDATE s SET v = -1;
SELECT is(wrong('l'), NULL, 'a domain that takes no NULL');
SELECT rollup_drop('l', true);
DROP TABLE s;
DROP DOMAIN never_null;

SELECT todo_start('placeholders');
CREATE TABLE s (k text NOT NULL, t timestamptz NOT NULL, v int);
SELECT rollup_create('l', 'SELECT k, count(*) AS n, sum(v) AS total FROM s WHERE v IS NOT NULL GROUP BY k', 't', mode => 'off');
CALL rollup_run('l');
ALTER TABLE l ALTER total SET NOT NULL;
SELECT is(try($$INSERT INTO am.s VALUES ('a', '2026-01-01', NULL); SELECT rollup_fold(); UPDATE am.s SET t = '2026-01-02'; SELECT rollup_fold()$$), 'ok', 'NOT NULL, and rows that WHERE leaves out because they are NULL');
SELECT is(try($$SET LOCAL dailyrollup.backfill = on; INSERT INTO am.s VALUES ('c', '2026-01-01', NULL); SELECT rollup_fold(); SELECT rollup_flush('am.l')$$), 'ok', 'likewise in a flush');
SELECT rollup_drop('l', true);
CREATE TABLE parents (k text PRIMARY KEY);
SELECT rollup_create('l', 'SELECT k, count(*) AS n FROM s WHERE k <> ''x'' GROUP BY k', 't', dedup_by => '{k,t}', mode => 'off');
CALL rollup_run('l');
ALTER TABLE l ADD FOREIGN KEY (k) REFERENCES parents;
SELECT is(try($$INSERT INTO am.s VALUES ('x', '2026-01-01', 1); SELECT rollup_fold()$$), 'ok', 'a foreign key of live, and a key that WHERE leaves out');
ALTER TABLE l DROP CONSTRAINT l_k_fkey, ADD CHECK (n < 2);
SELECT todo_end();
SELECT is(try($$INSERT INTO am.s VALUES ('y', '2026-01-01', 1), ('y', '2026-01-01', 1); SELECT rollup_fold()$$), 'ok', 'a CHECK of live, and one event twice');
SELECT todo_start('placeholders');
SELECT rollup_drop('l', true);
DROP TABLE s, parents;
CREATE TABLE s (k text NOT NULL, t timestamptz NOT NULL, v float8);
SELECT rollup_create('l', 'SELECT k, sum(v) AS total FROM s GROUP BY k', 't', dedup_by => '{k,t}', mode => 'off');
CALL rollup_run('l');
SELECT todo_end();
SELECT is(try($$INSERT INTO am.s VALUES ('a', '2026-01-01', 1e308), ('a', '2026-01-01', 1e308); SELECT rollup_fold()$$), 'ok', 'an event twice, whose sum would overflow');
SELECT todo_start('placeholders');
SELECT is(try($$INSERT INTO am.s VALUES ('b', '2026-01-01', 1e308); UPDATE am.s SET v = 1.1e308 WHERE k = 'b'; SELECT rollup_fold()$$), 'ok', 'the old and the new value of a row, whose sum would overflow');
SELECT rollup_drop('l', true);
DROP TABLE s;
SELECT todo_end();

-- a key too long for live's index, which came in by a backfill
CALL make();
SET dailyrollup.backfill = on; INSERT INTO s VALUES (noise(200, 'k'), '2026-01-01', 1), ('a', '2026-01-01', 1); RESET dailyrollup.backfill;
SELECT is(wrong('l'), NULL, 'a key that is too long: the view has it');
SELECT todo_start('placeholders');
SELECT is(try($$DELETE FROM am.s WHERE length(k) > 1000; SELECT rollup_fold()$$), 'ok', 'it can be deleted');
SELECT todo_end();
SET dailyrollup.backfill = on; DELETE FROM s WHERE length(k) > 1000; RESET dailyrollup.backfill;
SELECT is(try($$SELECT rollup_flush('am.l')$$), 'ok', 'and then all is flushed');
CALL unmake();

-- ==== A transaction that ends read-only, in many subtransactions, over disk.
-- Protects fold_at_end, and the memory of batch.c.
CALL make();
BEGIN; INSERT INTO s VALUES ('a', '2026-01-01', 1); SET TRANSACTION READ ONLY; COMMIT;
SELECT is(wrong('l'), NULL, 'made read-only after its writes');
SELECT is(n, 1::bigint, 'which are folded') FROM l;
BEGIN;
DO $$ BEGIN FOR i IN 1..2000 LOOP BEGIN INSERT INTO am.s VALUES ('k' || i % 7, '2026-01-01', 1); IF i % 3 = 0 THEN RAISE division_by_zero; END IF; EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$;
SELECT cmp_ok(count(*), '<', 20::bigint, 'no memory of a subtransaction is kept') FROM pg_backend_memory_contexts WHERE name = 'CurTransactionContext';
SELECT cmp_ok(sum(total_bytes), '<', 1000000::numeric, 'nor of a batch') FROM pg_backend_memory_contexts WHERE name IN ('TopTransactionContext', 'dailyrollup batch');
COMMIT;
SELECT is(wrong('l'), NULL, '2,000 subtransactions, a third of them undone');
-- savepoints within savepoints, which have more rows than what is around them, or
-- fewer, some of them folded, some undone
SELECT 'BEGIN' UNION ALL
SELECT format('SAVEPOINT a%s; INSERT INTO s SELECT ''n'' || j %% 7, ''2026-01-01'', 1 FROM generate_series(1, %s) j%s', i, 1 + i * 37 % 11,
              CASE i % 50 WHEN 17 THEN '; SELECT rollup_fold()' WHEN 30 THEN '; UPDATE s SET v = v + 1 WHERE k = ''n1''; ROLLBACK TO a' || i - 3 WHEN 41 THEN '; DELETE FROM s WHERE k = ''n2''; RELEASE a' || i - 2 ELSE '' END)
FROM generate_series(1, 400) i \gexec
COMMIT;
SELECT is(wrong('l'), NULL, '400 savepoints within one another');
SET work_mem = '64kB';
BEGIN; INSERT INTO s SELECT 'k' || i % 50, '2026-01-01'::timestamptz + i * interval '1 s', i % 9 FROM generate_series(1, 6000) i; SAVEPOINT a;
INSERT INTO s SELECT 'k' || i % 50, '2026-01-02'::timestamptz + i * interval '1 s', i % 9 FROM generate_series(1, 6000) i; ROLLBACK TO a;
INSERT INTO s SELECT 'z' || i % 50, '2026-01-03'::timestamptz + i * interval '1 s', i % 9 FROM generate_series(1, 6000) i; SAVEPOINT b;
INSERT INTO s SELECT 'y' || i % 50, '2026-01-04'::timestamptz + i * interval '1 s', i % 9 FROM generate_series(1, 6000) i; SELECT rollup_fold(); RELEASE b; DELETE FROM s WHERE v = 3; COMMIT;
RESET work_mem;
SELECT is(wrong('l'), NULL, 'more than work_mem, undone in parts');

-- ==== A rollup for which no mode is wanted, on its way through "on", is not on
-- for ever when a boundary comes in between, or a reseed.  A prepared SHARE lock
-- on the source stops that way, and no refresh.  Protects "was" in
-- catalog_write.c.
CREATE FUNCTION passing(what text, meanwhile text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE meanwhile;
  RETURN NEXT is(state || wanted_mode, 'onoff', what || ': still on') FROM public.rollup_status WHERE rollup = 'am.w'::regclass;
END $$;
SELECT rollup_create('w', 'SELECT k, count(*) AS n FROM s GROUP BY k', 't', delay => '3 days');
BEGIN; LOCK TABLE s IN SHARE MODE; PREPARE TRANSACTION 'am_2';
SET dailyrollup.writer_timeout = '100ms';
\set ON_ERROR_STOP 0
CALL rollup_run('w');
\set ON_ERROR_STOP 1
SELECT is(:'LAST_ERROR_SQLSTATE'::text, '55P03', 'the way out of "on" is shut');
SELECT passing('a day later', $$SELECT rollup_alter('am.w', delay => '0'); SELECT rollup_refresh('am.w')$$);
SELECT passing('after a refresh of late keys', $$SELECT rollup_mark('am.w', '-infinity', 'infinity'); SELECT rollup_refresh('am.w')$$);
SELECT passing('with a reseed asked for', $$SELECT rollup_reseed('am.w')$$);
\set ON_ERROR_STOP 0
CALL rollup_run('w');
\set ON_ERROR_STOP 1
SELECT passing('after the reseed', 'SELECT 1');
RESET dailyrollup.writer_timeout;
COMMIT PREPARED 'am_2';
CALL rollup_run('w');
SELECT is(state, 'off', 'off in the end') FROM rollup_status WHERE rollup = 'w'::regclass;
SELECT is(wrong('w'), NULL, 'and exact');
SELECT rollup_drop('w', true);
CALL unmake();

-- ==== Another zone, whose latest midnight lies before the watermark, or in whose
-- days the watermark lies ahead; a build all the same.  Protects
-- choose_boundary in refresh.c, step_of_build in run.c.
CREATE TABLE s (k text, t timestamptz, d date, v int);
INSERT INTO s SELECT 'k' || i % 3, now() - i * interval '7 hours', (now() - i * interval '7 hours')::date, 1 FROM generate_series(0, 30) i;
SELECT rollup_create('lt', 'SELECT k, count(*) AS n FROM s GROUP BY k', 't', delay => '0', mode => 'on', time_zone => 'Etc/GMT-14');
SELECT rollup_create('ld', 'SELECT k, count(*) AS n FROM s GROUP BY k', 'd', delay => '0', mode => 'on', time_zone => 'Etc/GMT-14');
CALL rollup_run();
CREATE PROCEDURE rezone(rollup regclass, zone text) LANGUAGE plpgsql AS $$
DECLARE
  mode text;
BEGIN
  PERFORM rollup_alter(rollup, time_zone => zone, mode => 'on');
  COMMIT;
  PERFORM rollup_reseed(rollup);
  COMMIT;
  FOREACH mode IN ARRAY '{on,off,shadow}'::text[] LOOP
    INSERT INTO am.s SELECT * FROM am.s LIMIT 5;
    PERFORM rollup_alter(rollup, mode => mode);
    COMMIT;
    CALL rollup_run(rollup);
    INSERT INTO am.s SELECT k, now(), current_date, 1 FROM am.s LIMIT 5;
    COMMIT;
    INSERT INTO am.said VALUES (format('zone %s, mode %s, %s', zone, mode, rollup), wrong(rollup),
                                (SELECT r.state FROM rollup_status r WHERE r.rollup = rezone.rollup) = mode);
  END LOOP;
  PERFORM rollup_alter(rollup, mode => 'on');
  COMMIT;
  CALL rollup_run(rollup);
END $$;
CREATE TABLE said (what text, wrong text, done bool DEFAULT true);
DO $$
DECLARE
  zone text;
BEGIN
  FOREACH zone IN ARRAY '{Etc/GMT+12,Etc/GMT-14,Etc/GMT+8,America/Santiago,UTC}'::text[] LOOP
    CALL rezone('am.lt', zone);
    CALL rezone('am.ld', zone);
  END LOOP;
END $$;
SELECT is(wrong, NULL, what) FROM said;
SELECT ok(done, what || ' is there') FROM said;
-- another zone that is undone is none; protects subtransaction_ended in watermark.c
BEGIN;
SAVEPOINT a; SELECT rollup_alter('lt', time_zone => 'Asia/Tokyo'); SAVEPOINT b; RELEASE b; ROLLBACK TO a;
SELECT is(try($$SELECT rollup_refresh('am.lt')$$), 'ok', 'the zone was changed, and that undone');
SAVEPOINT b; SELECT rollup_alter('lt', time_zone => 'Asia/Tokyo'); RELEASE b;
SELECT matches(try($$SELECT rollup_refresh('am.lt')$$), '^25001 ', 'changed within a savepoint that is released');
ROLLBACK;
SELECT rollup_drop('lt', true), rollup_drop('ld', true);
TRUNCATE said;
DROP TABLE s;

-- Times at the ends of the calendar, in a seed in parts.  Protects chunk.c.
CREATE PROCEDURE seed_ends(type text, zone text, times text[], parts text[] DEFAULT '{}') LANGUAGE plpgsql AS $$
DECLARE
  what text := format('%s in %s%s', type, zone, CASE WHEN parts <> '{}' THEN ', partitioned' ELSE '' END);
BEGIN
  EXECUTE format('CREATE TABLE am.s (k text, t %s, v int)%s', type, CASE WHEN parts <> '{}' THEN ' PARTITION BY RANGE (t)' ELSE '; CREATE INDEX ON am.s (t)' END);
  FOR i IN 1..cardinality(parts) LOOP
    EXECUTE format('CREATE TABLE am.s_%s PARTITION OF am.s %s', i, parts[i]);
  END LOOP;
  EXECUTE format('INSERT INTO am.s SELECT g, t::%s, 1 FROM unnest($1) t, generate_series(1, 3) g', type) USING times;
  PERFORM rollup_create('am.l', 'SELECT k, count(*) AS n, max(t) AS seen FROM am.s GROUP BY k', 't', mode => 'on', delay => '0', time_zone => zone);
  COMMIT;
  CALL rollup_run('am.l');
  INSERT INTO am.said SELECT what, wrong('am.l'), state = 'on' FROM rollup_status WHERE rollup = 'am.l'::regclass;
  PERFORM rollup_alter('am.l', mode => 'off');
  COMMIT;
  CALL rollup_run('am.l');
  INSERT INTO am.said SELECT what || ', off', wrong('am.l'), state = 'off' FROM rollup_status WHERE rollup = 'am.l'::regclass;
  PERFORM rollup_drop('am.l', true);
  DROP TABLE am.s;
  COMMIT;
END $$;
CALL seed_ends('timestamptz', 'Etc/GMT+12', '{-infinity,4714-11-24 00:00:00+00 BC,2026-01-01,294276-12-31 23:59:59.999999+00,infinity,NULL}');
CALL seed_ends('timestamptz', 'Etc/GMT-14', '{-infinity,4714-11-24 00:00:00+00 BC,2026-01-01,294276-12-31 23:59:59.999999+00,infinity,NULL}');
CALL seed_ends('date', 'UTC', '{-infinity,4713-01-02 BC,2026-01-01,5874897-12-31,infinity,NULL}');
CALL seed_ends('timestamptz', 'America/New_York', '{-infinity,4714-11-24 00:00:00+00 BC,2026-01-01,2026-01-05 12:34:30,2026-01-06,294276-12-31 23:59:59.999999+00,infinity}',
  ARRAY[$$FOR VALUES FROM (MINVALUE) TO ('4714-11-24 06:00:00+00 BC')$$, $$FOR VALUES FROM ('4714-11-24 06:00:00+00 BC') TO ('2026-01-05 12:34')$$, $$FOR VALUES FROM ('2026-01-05 12:34') TO ('2026-01-05 12:35')$$,
        $$FOR VALUES FROM ('2026-01-05 12:35') TO ('294276-12-31 23:59:59+00')$$, 'DEFAULT']);
CALL seed_ends('timestamp', 'Pacific/Kiritimati', '{-infinity,4713-01-02 BC,2026-01-05 12:33,2026-01-05 12:34,infinity}',
  ARRAY[$$FOR VALUES FROM ('-infinity') TO ('4713-02-01 BC')$$, $$FOR VALUES FROM ('4713-02-01 BC') TO ('2026-01-05 12:34')$$, $$FOR VALUES FROM ('2026-01-05 12:34') TO ('infinity')$$, 'DEFAULT']);
-- a bound so far away that its microseconds, beyond 64 bits, would name last April
CALL seed_ends('date', 'UTC', '{-infinity,4713-01-02 BC,2026-01-05,586580-05-06,5874897-12-31,infinity,NULL}',
  ARRAY[$$FOR VALUES FROM (MINVALUE) TO ('2026-01-05')$$, $$FOR VALUES FROM ('2026-01-05') TO ('586580-05-07')$$, 'DEFAULT']);
SELECT is(wrong, NULL, what) FROM said;
SELECT ok(done, what || ': it is there') FROM said;
TRUNCATE said;

-- ==== Keys of many types through every mode, with NULLs, and with values that
-- are equal and do not look alike.  Protects the "same key" of phrase.c in the
-- statements of folding.c, change.c and compare.c.
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN amount AS numeric(6,2);
CREATE PROCEDURE through_modes(type text, keys text[], dedup name[]) LANGUAGE plpgsql AS $$
DECLARE
  mode text;
  what text := format('key of type %s%s', type, CASE WHEN dedup IS NOT NULL THEN ', deduplicated' ELSE '' END);
BEGIN
  EXECUTE format('CREATE TABLE am.s (k %s, t timestamptz, v int)', type);
  PERFORM rollup_create('am.l', 'SELECT k, count(*) AS n, sum(v) AS total, latest(v, t) AS v, max(t) AS seen FROM am.s GROUP BY k', 't', dedup_by => dedup, mode => 'off');
  COMMIT;
  CALL rollup_run('am.l');
  EXECUTE format('INSERT INTO am.s SELECT k::%s, ''2026-01-01''::timestamptz + i * interval ''1 day'', i FROM unnest($1) k, generate_series(1, 3) i', type) USING keys;
  COMMIT;
  FOREACH mode IN ARRAY '{off,shadow,on,off}'::text[] LOOP
    PERFORM rollup_alter('am.l', mode => mode);
    COMMIT;
    CALL rollup_run('am.l');
    EXECUTE format('INSERT INTO am.s VALUES ($1::%1$s, ''2026-01-02'', 9), ($1::%1$s, now(), 9), ($2::%1$s, ''2026-01-02'', 3)', type) USING keys[1], keys[2];
    COMMIT;
    UPDATE am.s SET v = v + 1 WHERE v > 2;
    COMMIT;
    EXECUTE format('UPDATE am.s SET k = $1::%s WHERE t = ''2026-01-03''', type) USING keys[2];
    COMMIT;
    SET dailyrollup.backfill = on;
    EXECUTE format('INSERT INTO am.s VALUES ($1::%s, ''2026-01-05'', 2)', type) USING keys[cardinality(keys)];
    COMMIT;
    RESET dailyrollup.backfill;
    INSERT INTO am.said VALUES (what || ', ' || mode, wrong('am.l'));
    CALL rollup_run('am.l');
    INSERT INTO am.said VALUES (what || ', ' || mode || ', after a pass', wrong('am.l'));
    IF mode = 'shadow' THEN
      INSERT INTO am.said SELECT what || ', the shadow', string_agg(d::text, ' ') FROM rollup_diff('am.l') d;
    END IF;
  END LOOP;
  DELETE FROM am.s;
  COMMIT;
  INSERT INTO am.said SELECT what || ', all is deleted', string_agg(l::text, ' ') FROM am.l;
  PERFORM rollup_drop('am.l', true);
  DROP TABLE am.s;
  COMMIT;
END $$;
DO $$
DECLARE
  keys text[] := ARRAY[
    ['text[]', '{"{a,NULL}","{}","{{a},{b}}",NULL}'], ['int[]', '{"{1,2}","[0:1]={1,2}",NULL}'], ['am.pair', '{"(1,a)","(,)","(1,)",NULL}'], ['am.amount', '{1.00,1,2.5,NULL}'],
    ['numeric', '{1,1.0,1.00,NaN,Infinity,NULL}'], ['float8', '{0,-0,NaN,Infinity,NULL}'], ['char(5)', '{a,"a  ",b,NULL}'], ['int4range', '{empty,"[1,3)","[1,2]",NULL}'],
    ['jsonb', '{"{\"a\":1}",null,1.0,1.00,NULL}'], ['interval', '{"1 day","24 hours","1 mon","30 days",NULL}'], ['timetz', '{12:00+00,14:00+02,NULL}'], ['"char"', '{a,"",NULL}']];
BEGIN
  FOR i IN 1..array_length(keys, 1) LOOP
    CALL through_modes(keys[i][1], keys[i][2]::text[], NULL);
    CALL through_modes(keys[i][1], keys[i][2]::text[], '{k,t}');
  END LOOP;
END $$;
SELECT is(wrong, NULL, what) FROM said;
DROP TABLE said;

-- ==== Duplicates, with NULLs in what makes an event, and a unique index that
-- comes and goes in the writer's transaction.  Protects append_best in
-- folding.c, dr_duplicates_are_possible where the fold asks it.
CREATE TABLE s (k text, t timestamptz NOT NULL, d int, v int);
SELECT rollup_create('l', 'SELECT k, count(*) AS n, sum(v) AS total, latest(v, t) AS v, max(t) AS seen FROM s GROUP BY k', 't', dedup_by => '{k,t,d}', dedup_order => '{v}', mode => 'off');
CALL rollup_run('l');
INSERT INTO s VALUES ('a', '2026-01-01', 1, 5), ('a', '2026-01-01', 1, 5), ('a', '2026-01-01', NULL, 7), ('a', '2026-01-01', NULL, 6), (NULL, '2026-01-01', NULL, 6), (NULL, '2026-01-01', NULL, 6);
SELECT is(wrong('l'), NULL, 'events with NULLs, several times');
SELECT is(string_agg(format('%s %s %s', k, n, total), ', ' ORDER BY k), 'a 2 11,  1 6', 'counted by hand') FROM l;
INSERT INTO s VALUES ('a', '2026-01-01', 1, 4), ('a', '2026-01-01', NULL, 8), (NULL, '2026-01-01', NULL, 5);
SELECT is(string_agg(format('%s %s %s', k, n, total), ', ' ORDER BY k), 'a 2 10,  1 5', 'a better row, and a worse one') FROM l;
BEGIN; DELETE FROM s a USING s b WHERE a.ctid < b.ctid AND (a.k, a.t, a.d) IS NOT DISTINCT FROM (b.k, b.t, b.d); CREATE UNIQUE INDEX u ON s (k, t, d) NULLS NOT DISTINCT;
INSERT INTO s VALUES ('a', '2026-01-02', 1, 4) ON CONFLICT DO NOTHING; INSERT INTO s VALUES ('a', '2026-01-02', 1, 4) ON CONFLICT DO NOTHING; COMMIT;
SELECT is(wrong('l'), NULL, 'an index that forbids duplicates, made between two writes');
BEGIN; INSERT INTO s VALUES ('a', '2026-01-04', 1, 4); DROP INDEX u; INSERT INTO s VALUES ('a', '2026-01-04', 1, 4), ('a', '2026-01-02', 1, 3); COMMIT;
SELECT is(wrong('l'), NULL, 'dropped between two writes of one event');
DELETE FROM s; CREATE UNIQUE INDEX u ON s (k, t, d) NULLS NOT DISTINCT; INSERT INTO s VALUES ('a', '2026-01-04', 1, 4);
BEGIN; INSERT INTO s VALUES ('a', '2026-01-05', 1, 4); SAVEPOINT x; DROP INDEX u; INSERT INTO s VALUES ('a', '2026-01-05', 1, 4); SELECT rollup_fold(); ROLLBACK TO x; INSERT INTO s VALUES ('a', '2026-01-06', 1, 4); COMMIT;
SELECT is(wrong('l'), NULL, 'dropped, and that undone');
DROP INDEX u; CREATE UNIQUE INDEX u ON s (k, t, d); INSERT INTO s VALUES ('a', '2026-01-03', NULL, 4), ('a', '2026-01-03', NULL, 4), (NULL, '2026-01-01', 1, 4), (NULL, '2026-01-01', 1, 4);
SELECT is(wrong('l'), NULL, 'an index whose NULLs differ forbids nothing');
DROP INDEX u; CREATE UNIQUE INDEX u ON s (k, t, d) WHERE v > 100; INSERT INTO s VALUES ('a', '2026-01-04', 1, 4), ('a', '2026-01-04', 1, 3);
SELECT is(wrong('l'), NULL, 'nor does a partial one');
BEGIN; INSERT INTO s VALUES ('f', '2026-01-03', 1, 4); SELECT rollup_fold(); INSERT INTO s VALUES ('f', '2026-01-03', 1, 4); SELECT rollup_fold(); INSERT INTO s VALUES ('f', '2026-01-03', 1, 3); DELETE FROM s WHERE v = 3; COMMIT;
SELECT is(wrong('l'), NULL, 'one event in three folds of a transaction');
SELECT rollup_drop('l', true);
DROP TABLE s;

-- ==== DDL between the writes and the fold.  Protects dr_plans_of in fold_batch:
-- nothing of the batch is known by the names of live or the source.
CALL make();
CREATE SCHEMA am_other;
GRANT ALL ON SCHEMA am_other TO am_owner;
BEGIN; INSERT INTO s VALUES ('a', '2026-01-01', 1); ALTER TABLE s RENAME COLUMN v TO w; ALTER TABLE s ADD COLUMN v int; UPDATE s SET v = 9, w = w + 1; INSERT INTO s VALUES ('a', '2026-01-02', 1, 5); ALTER TABLE s RENAME COLUMN k TO kk; COMMIT;
SELECT is(wrong('l'), NULL, 'columns of the source renamed, their names given away');
BEGIN; INSERT INTO s VALUES ('b', '2026-01-01', 1); ALTER TABLE l SET SCHEMA am_other; CREATE TABLE l (k text); ALTER TABLE am_other.l RENAME COLUMN n TO m; ALTER TABLE am_other.l RENAME COLUMN k TO n; COMMIT;
SELECT is(wrong('am_other.l'), NULL, 'live moved, its name and its columns'' given away');
BEGIN; INSERT INTO s VALUES ('b', '2026-01-02', 1); SAVEPOINT a; DROP TABLE am_other.l CASCADE; ROLLBACK TO a; INSERT INTO s VALUES ('b', '2026-01-03', 1); COMMIT;
SELECT is(wrong('am_other.l'), NULL, 'live dropped, and that undone');
BEGIN; INSERT INTO s VALUES ('b', '2026-01-02', 1); ALTER TABLE s OWNER TO am_owner; INSERT INTO s VALUES ('c', '2026-01-03', 1); COMMIT;
SELECT is(wrong('am_other.l'), NULL, 'given to another owner');
BEGIN; INSERT INTO s VALUES ('b', '2026-01-02', 1); SELECT rollup_drop('am_other.l', true); COMMIT;
SELECT hasnt_table('am_other', 'l', 'dropped by its writer');
DROP TABLE l, s;
CALL make();
BEGIN; INSERT INTO s VALUES ('b', '2026-01-02', 1); DROP TABLE s CASCADE; COMMIT;
SELECT is(count(*), 0::bigint, 'the source dropped by its writer') FROM rollup_status WHERE rollup = 'l'::regclass;
DROP TABLE l;

-- ==== Odd names.
CREATE SCHEMA "we%s ird""s";
CREATE TABLE "we%s ird""s"."t%s""x" ("k%d'""\" text, "t$1" timestamptz, "v %n" int, "select" int, fresh text);
SELECT rollup_create('"we%s ird""s"."l%s''x"', $$SELECT "k%d'""\", fresh, count(*) AS "n%s", sum("v %n") AS "group", max("t$1") AS waiting, latest("v %n", "t$1") AS "$1",
    latest("select", "t$1") FILTER (WHERE "select" > 1 OR fresh = '%s''"\') AS excluded, max("t$1") FILTER (WHERE "select" > 1 OR fresh = '%s''"\') AS "user"
  FROM "we%s ird""s"."t%s""x" WHERE fresh IS DISTINCT FROM E'%d\\\'' GROUP BY 1, 2$$, 't$1', dedup_by => ARRAY['k%d''"\', 't$1', 'fresh'], mode => 'off');
CALL rollup_run('"we%s ird""s"."l%s''x"');
INSERT INTO "we%s ird""s"."t%s""x" VALUES ('a', '2026-01-01', 1, 3, '%s''"\'), ('a', '2026-01-01', 1, 3, '%s''"\'), (NULL, '2026-01-01', 1, 3, E'%d\\\''), ('b', '2026-01-01', 1, 3, NULL);
UPDATE "we%s ird""s"."t%s""x" SET "select" = 1;
SET dailyrollup.backfill = on; UPDATE "we%s ird""s"."t%s""x" SET fresh = 'x' WHERE fresh IS NULL; RESET dailyrollup.backfill;
SELECT is(wrong('"we%s ird""s"."l%s''x"'), NULL, 'odd names, dirtied by a backfill');
SELECT rollup_alter('"we%s ird""s"."l%s''x"', mode => 'shadow'); CALL rollup_run('"we%s ird""s"."l%s''x"');
UPDATE "we%s ird""s"."t%s""x" SET "v %n" = 7;
SELECT is_empty($$SELECT * FROM rollup_diff('"we%s ird""s"."l%s''x"')$$, 'in a shadow');
SELECT rollup_alter('"we%s ird""s"."l%s''x"', mode => 'on'); CALL rollup_run('"we%s ird""s"."l%s''x"');
SELECT is(wrong('"we%s ird""s"."l%s''x"'), NULL, 'promoted');
SELECT rollup_drop('"we%s ird""s"."l%s''x"', true);
DROP SCHEMA "we%s ird""s" CASCADE;

-- ==== A rollup of a rollup: one fold fills the source of the next.  Protects
-- fold_all, which looks again.
CALL make('{k,t}');
INSERT INTO s VALUES ('a', '2026-01-01', 1);
SELECT rollup_create('ll', 'SELECT total, count(*) AS n, max(k) AS k FROM l GROUP BY total', 'seen', mode => 'off');
CALL rollup_run('ll');
INSERT INTO s VALUES ('a', '2026-01-01', 1), ('a', '2026-01-02', 1), ('b', '2026-01-02', 2);
UPDATE s SET k = 'c' WHERE k = 'a'; DELETE FROM s WHERE k = 'b'; INSERT INTO s VALUES ('d', '2026-01-03', 3);
SELECT is(wrong('l'), NULL, 'a rollup');
SELECT is(wrong('ll'), NULL, 'and one of it');
SELECT rollup_alter('l', mode => 'on'), rollup_alter('ll', mode => 'on'); CALL rollup_run('l'); CALL rollup_run('ll');
INSERT INTO s VALUES ('d', '2026-01-04', 3), ('e', '2026-01-04', 3); CALL rollup_run('l');
SELECT is(wrong('l'), NULL, 'promoted');
SELECT is(wrong('ll'), NULL, 'and the other, with late keys');
SELECT rollup_drop('ll', true);
CALL unmake();

-- ==== Whose rights: a writer has none on live, and gets none; whatever the
-- owner has hung on live runs as the owner.  Protects dr_identity_enter_sql in
-- fold_batch.
SET ROLE am_owner;
CREATE TABLE s (k text, t timestamptz, v int);
ALTER TABLE s ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON s USING (v < 100);
GRANT INSERT, SELECT, UPDATE, DELETE ON s TO am_writer;
SELECT rollup_create('l', 'SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k', 't', dedup_by => '{k,t}', mode => 'off');
CALL rollup_run('l');
CREATE TABLE seen (who text, super bool);
CREATE FUNCTION who() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO am.seen SELECT current_user, rolsuper FROM pg_roles WHERE rolname = current_user; RETURN NULL; END $$;
CREATE TRIGGER who AFTER INSERT OR UPDATE OR DELETE ON l FOR EACH ROW EXECUTE FUNCTION who();
CREATE FUNCTION grabs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'ALTER ROLE am_owner SUPERUSER'; RETURN NULL; EXCEPTION WHEN insufficient_privilege THEN RETURN NULL; END $$;
CREATE TRIGGER grabs AFTER INSERT OR UPDATE OR DELETE ON l FOR EACH STATEMENT EXECUTE FUNCTION grabs();
RESET ROLE;
INSERT INTO s VALUES ('a', '2026-01-01', 100), ('b', '2026-01-01', 1);
UPDATE s SET v = v + 1;
SET ROLE am_writer;
SET search_path = pg_temp, am, am_helpers, public;
CREATE TEMP TABLE dailyrollup_rows (k text, t timestamptz, v int);
CREATE TEMP TABLE waiting (k text);
CREATE FUNCTION pg_temp.evil(text, text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
CREATE OPERATOR pg_temp.= (LEFTARG = text, RIGHTARG = text, FUNCTION = pg_temp.evil);
INSERT INTO s VALUES ('a', '2026-01-02', 1), ('b', '2026-01-02', 1);
UPDATE s SET v = 7 WHERE t = '2026-01-02';
BEGIN; INSERT INTO s VALUES ('c', '2026-01-02', 1); SELECT rollup_fold(); COMMIT;
DROP OPERATOR pg_temp.= (text, text);
SELECT is(try(statement), '42501 ' || says, 'a writer: ' || statement) FROM (VALUES
  ('TABLE am.l', 'permission denied for table l'), ('SELECT rollup_flush(''am.l'')', 'must be owner of table l'), ('SELECT rollup_recompute(''am.l'')', 'must be owner of table l'),
  ('SELECT rollup_promote(''am.l'')', 'must be owner of table l'), ('SELECT rollup_alter(''am.l'', fold => false)', 'must be owner of table l'), ('SELECT rollup_reseed(''am.l'')', 'must be owner of table l'),
  ('SELECT rollup_diff(''am.l'')', 'must be owner of table l'), ('SELECT rollup_drop(''am.l'')', 'must be owner of table l')) t(statement, says);
DROP TABLE dailyrollup_rows, waiting;
RESET ROLE;
SET search_path = am, am_helpers, public;
SELECT is(wrong('l'), NULL, 'rows that a policy hides from their writer count');
SELECT rollup_alter('l', mode => 'on'); CALL rollup_run('l');
INSERT INTO s VALUES ('a', '2026-01-02', 1); CALL rollup_run('l');
SELECT rollup_alter('l', mode => 'off'); CALL rollup_run('l');
SELECT is(wrong('l'), NULL, 'through the modes');
SELECT is(string_agg(DISTINCT who || super, ' '), 'am_ownerfalse', 'the owner''s triggers have run as the owner, for a superuser''s pass too') FROM seen;
SELECT is(rolsuper, false, 'who is no superuser') FROM pg_roles WHERE rolname = 'am_owner';
CALL unmake();

SET search_path = public;
DROP SCHEMA am, am_helpers, am_other CASCADE;
DROP OWNED BY am_owner, am_writer;
DROP ROLE am_owner, am_writer;
SELECT is(count(*), 0::bigint, 'nothing is left') FROM dailyrollup.rollups r LEFT JOIN pg_class c ON c.oid = r.live WHERE c.oid IS NULL;
SELECT is_empty('TABLE pg_prepared_xacts', 'no transaction is left prepared');
SELECT * FROM finish();
