-- What a promote, a seed and a fold make of a table that has everything wrong: keys that
-- are gone, missing, changed, copies that its index does not know of, NULLs; in
-- memory, in parts of the memory, and by statements.  Rows that are right stay
-- where they are.
--
-- Fails when copies, or rows of other keys, are no surplus (look_at_stored and
-- compare_images in content.c), when write_part (replace.c) leaves out surplus,
-- changed or missing rows, when the statement (dr_change_replace) updates a row
-- before a copy of it is gone, and when a column of live's own is not looked at
-- (may_write_directly); when a fold updates each copy of a row (update_stored in
-- merge.c) or updates without a statement where a trigger should fire;
-- when a seed of live leaves a shadow behind (advance_watermark in refresh.c), and when
-- live is open to others after an error (transaction_ended in guard.c); when copies are
-- not noticed by a pass (check in pass.c) or where mode on is left (catch_up in state.c).
\ir lib/begin.sql
SELECT no_plan();

CREATE SCHEMA rp;
CREATE TABLE rp.src (k text, n int, ts timestamptz NOT NULL, v text);
INSERT INTO rp.src SELECT nullif('k' || i % 250, 'k7'), nullif(i % 12, 5), '2026-01-01'::timestamptz + i * interval '1 second',
  CASE WHEN i % 100 = 0 THEN (SELECT string_agg(md5(i || '-' || j), '') FROM generate_series(1, 100) j) WHEN i % 3 > 0 THEN 'v' || i END
  FROM generate_series(1, 9000) i;
CREATE INDEX ON rp.src (k, n);
-- an adopted table: its columns in another order, one dropped
CREATE TABLE rp.live (seen timestamptz, junk int, v text, k text, count bigint, n int);
ALTER TABLE rp.live DROP junk, ADD CONSTRAINT one UNIQUE NULLS NOT DISTINCT (k, n);
SELECT rollup_create('rp.live', 'SELECT k, n, count(*), max(ts) AS seen, latest(v, ts) AS v FROM rp.src GROUP BY k, n', 'ts', mode => 'shadow');
CALL rollup_run('rp.live'); SELECT count(*) FROM rollup_promote('rp.live');
SELECT rollup_alter('rp.live', mode => 'shadow'); CALL rollup_run('rp.live');
SELECT tgname AS guard FROM pg_trigger WHERE tgrelid = 'rp.live'::regclass AND tgname LIKE '%guard' \gset

-- behind everybody's back
ALTER TABLE rp.live DISABLE TRIGGER :guard;
DELETE FROM rp.live WHERE hashtext(k || n) % 10 = 0;
UPDATE rp.live SET count = count + 1 WHERE hashtext(k || n) % 10 = 1;
UPDATE rp.live SET v = v || ' ' WHERE length(v) > 2000;
INSERT INTO rp.live (k, n, count) SELECT 'gone' || i, nullif(i % 3, 1), i FROM generate_series(1, 300) i;
INSERT INTO rp.live (k, n, count) VALUES (NULL, -1, 1);
UPDATE pg_index SET indisready = false WHERE indexrelid = 'rp.one'::regclass;
INSERT INTO rp.live SELECT l.* FROM rp.live l, generate_series(1, 2) WHERE hashtext(k || n) % 10 = 2;
INSERT INTO rp.live (k, n, count, seen, v) SELECT k, n, count + 1, seen, v FROM rp.live WHERE k IS NULL;
INSERT INTO rp.live SELECT * FROM rp.live WHERE k LIKE 'gone%' AND count < 50;
UPDATE pg_index SET indisready = true WHERE indexrelid = 'rp.one'::regclass;
ALTER TABLE rp.live ENABLE ALWAYS TRIGGER :guard;

CREATE TABLE rp.fresh AS SELECT k, n, count(*), max(ts) AS seen, latest(v, ts) AS v FROM rp.src GROUP BY k, n;
-- rows that have a right image, and no copy
CREATE TABLE rp.kept AS SELECT l.ctid AS tid, l.k, l.n FROM rp.live l JOIN rp.fresh f
  ON (l.k, l.n, l.count, l.seen, l.v) IS NOT DISTINCT FROM (f.k, f.n, f.count, f.seen, f.v)
  WHERE NOT EXISTS (SELECT FROM rp.live c WHERE (c.k, c.n) IS NOT DISTINCT FROM (l.k, l.n) AND c.ctid <> l.ctid);
CREATE TABLE rp.before AS SELECT count(*) AS rows, count(DISTINCT (k, n)) AS keys FROM rp.live;

CREATE FUNCTION rp.wrong() RETURNS bigint LANGUAGE sql SET enable_indexscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off AS $$
  SELECT (SELECT count(*) FROM (SELECT k, n, count, seen, v FROM rp.live EXCEPT ALL SELECT * FROM rp.fresh) x)
    + (SELECT count(*) FROM (SELECT * FROM rp.fresh EXCEPT ALL SELECT k, n, count, seen, v FROM rp.live) x) $$;
CREATE FUNCTION rp.moved() RETURNS bigint LANGUAGE sql AS $$
  SELECT count(*) FROM rp.kept WHERE NOT EXISTS (SELECT FROM rp.live l WHERE l.ctid = tid AND (l.k, l.n) IS NOT DISTINCT FROM (kept.k, kept.n)) $$;
SELECT cmp_ok(rp.wrong(), '>', 800::bigint, 'live is wrong');
SELECT cmp_ok((SELECT count(*) FROM rp.kept), '>', 1000::bigint, 'but not all of it');

-- what it says, and what is then wrong, has moved, is not as it was made
CREATE FUNCTION rp.promote() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT (action, rows, keys, replaced_rows, replaced_keys) FROM rollup_promote('rp.live')) || ', wrong ' || rp.wrong() || ', moved ' || rp.moved();
END $$;
SELECT format('(promoted,%s,%s,%s,%s), wrong 0, moved 0', f.n, f.n, b.rows, b.keys) AS right FROM rp.before b, (SELECT count(*) AS n FROM rp.fresh) f \gset
BEGIN; SELECT rp.promote() \gset
ROLLBACK; SELECT is(:'promote'::text, :'right', 'in memory');
BEGIN; SET LOCAL work_mem = '64kB'; SET LOCAL hash_mem_multiplier = 1; SELECT rp.promote() \gset
ROLLBACK; SELECT is(:'promote'::text, :'right', 'in parts');
BEGIN; SET LOCAL dailyrollup.fold_method = 'statement'; SELECT rp.promote() \gset
ROLLBACK; SELECT is(:'promote'::text, :'right', 'by a statement');
BEGIN; ALTER TABLE rp.live ADD own int DEFAULT 7; SELECT rp.promote() \gset
SELECT count(*) AS others FROM rp.live WHERE own IS DISTINCT FROM 7 \gset
ROLLBACK; SELECT is(:'promote'::text, :'right', 'with a column of its own'); SELECT is(:'others'::text, '0', 'which has its default');
BEGIN; ALTER TABLE rp.live DROP CONSTRAINT one; SELECT rp.promote() \gset
SELECT count(*) AS indexes FROM pg_index WHERE indrelid = 'rp.live'::regclass AND indisunique \gset
ROLLBACK; SELECT is(:'promote'::text, :'right', 'without an index'); SELECT is(:'indexes'::text, '1', 'which is made');

-- one that agrees is not written to
SELECT is((SELECT action FROM rollup_promote('rp.live')), 'promoted', 'promoted');
CREATE TABLE rp.image AS SELECT ctid AS tid, xmin::text AS x FROM rp.live;
CREATE FUNCTION rp.written() RETURNS bigint LANGUAGE sql AS $$
  SELECT count(*) FROM rp.live l FULL JOIN rp.image i ON l.ctid = i.tid WHERE l.xmin::text IS DISTINCT FROM i.x $$;
SELECT rollup_alter('rp.live', mode => 'shadow'); CALL rollup_run('rp.live');
CREATE FUNCTION rp.promote_again() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM rollup_promote('rp.live'); RETURN rp.written(); END $$;
BEGIN; SELECT rp.promote_again() AS written \gset
ROLLBACK; SELECT is(:'written'::text, '0', 'a promote writes nothing where all is right');
BEGIN; SET LOCAL work_mem = '64kB'; SET LOCAL hash_mem_multiplier = 1; SELECT rp.promote_again() AS written \gset
ROLLBACK; SELECT is(:'written'::text, '0', 'nor in parts');
BEGIN; SET LOCAL dailyrollup.fold_method = 'statement'; SELECT rp.promote_again() AS written \gset
ROLLBACK; SELECT is(:'written'::text, '0', 'nor by a statement');

-- what of the two is compared
SELECT throws_ok($$SELECT rollup_diff('rp.live', 'some')$$, '22023', 'unrecognized scope "some"', 'a scope that is none');
SELECT is_empty(format('SELECT * FROM rollup_diff(%L, %L)', 'rp.live', scope), 'scope ' || scope) FROM unnest('{all,settled}'::text[]) scope;

-- a seed of live
SELECT count(*) FROM rollup_promote('rp.live');
ALTER TABLE rp.live DISABLE TRIGGER :guard;
DELETE FROM rp.live WHERE n = 3; UPDATE rp.live SET count = 0 WHERE n = 4; INSERT INTO rp.live (k, n) VALUES ('gone', NULL);
ALTER TABLE rp.live ENABLE ALWAYS TRIGGER :guard;
CREATE FUNCTION rp.seed() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  PERFORM rollup_reseed('rp.live');
  RETURN (SELECT folded_keys FROM rollup_refresh('rp.live')) || ', wrong ' || rp.wrong();
END $$;
SELECT count(*) || ', wrong 0' AS right FROM rp.fresh \gset
BEGIN; SELECT rp.seed() \gset
ROLLBACK; SELECT is(:'seed'::text, :'right', 'a seed');
BEGIN; SET LOCAL work_mem = '64kB'; SET LOCAL hash_mem_multiplier = 1; SELECT rp.seed() \gset
ROLLBACK; SELECT is(:'seed'::text, :'right', 'a seed with little memory');
BEGIN; SET LOCAL dailyrollup.fold_method = 'statement'; SELECT rp.seed() \gset
ROLLBACK; SELECT is(:'seed'::text, :'right', 'a seed by a statement');
SELECT rollup_drop('rp.live', true);

-- a fold of many keys, which updates their rows by one scan of the table
CREATE TABLE rp.day (k text NOT NULL, ts timestamptz NOT NULL);
INSERT INTO rp.day SELECT 'k' || i % 5, timestamptz '2026-01-01 00:00Z' + i * interval '4 hours' FROM generate_series(0, 17) i;
SELECT rollup_create('rp.days', 'SELECT k, count(*) AS n FROM rp.day GROUP BY k', 'ts', mode => 'on') AS live \gset
SELECT count(*) FROM rollup_refresh('rp.days', '2026-01-02 00:00Z');
SELECT tgname AS guard FROM pg_trigger WHERE tgrelid = 'rp.days'::regclass AND tgname LIKE '%guard' \gset
-- of two copies of a row one becomes what it should
BEGIN;
ALTER TABLE rp.days DISABLE TRIGGER :guard;
UPDATE pg_index SET indisready = false WHERE indrelid = 'rp.days'::regclass;
INSERT INTO rp.days SELECT * FROM rp.days WHERE k = 'k1';
UPDATE pg_index SET indisready = true WHERE indrelid = 'rp.days'::regclass;
ALTER TABLE rp.days ENABLE ALWAYS TRIGGER :guard;
SET LOCAL dailyrollup.fold_method = 'hash';
SELECT count(*) FROM rollup_refresh('rp.days', '2026-01-03 00:00Z');
SELECT string_agg(k || ' ' || n, ', ' ORDER BY k, n) AS days FROM rp.days \gset
ROLLBACK; SELECT is(:'days'::text, 'k0 3, k1 1, k1 3, k2 2, k3 2, k4 2', 'a fold into a table with a copy');
-- triggers of the table fire
BEGIN;
CREATE TABLE rp.told (k text, n bigint);
GRANT INSERT ON rp.told TO PUBLIC;
CREATE FUNCTION rp.tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO rp.told VALUES (NEW.k, NEW.n); RETURN NULL; END $$;
CREATE TRIGGER tell AFTER UPDATE ON rp.days FOR EACH ROW EXECUTE FUNCTION rp.tell();
SET LOCAL dailyrollup.fold_method = 'hash';
SELECT count(*) FROM rollup_refresh('rp.days', '2026-01-03 00:00Z');
SELECT string_agg(k || ' ' || n, ', ' ORDER BY k, n) AS told FROM rp.told \gset
ROLLBACK; SELECT is(:'told'::text, 'k0 3, k1 3, k2 2, k3 2, k4 2', 'a fold into a table with a trigger');
-- a shadow that was built to replace live's content, and could not, goes with a seed
-- of live itself
ALTER TABLE rp.days DISABLE TRIGGER :guard; UPDATE rp.days SET n = n + 1000; ALTER TABLE rp.days ENABLE ALWAYS TRIGGER :guard;
ALTER TABLE rp.days ADD CONSTRAINT many CHECK (n > 1000);
SELECT rollup_reseed('rp.days');
\set ON_ERROR_STOP 0
CALL rollup_run('rp.days');
\set ON_ERROR_STOP 1
SELECT isnt(to_regclass('rp.days_daily'), NULL, 'a pass that fails to promote');
ALTER TABLE rp.days DROP CONSTRAINT many;
SELECT is(action, 'seed', 'a refresh seeds') FROM rollup_refresh('rp.days');
SELECT is(to_regclass('rp.days_daily'), NULL, 'no shadow is left');
SELECT is_empty($$SELECT * FROM rollup_verify('rp.days')$$, 'exact');
-- a pass that has something to look after counts, and so does one that leaves mode on
UPDATE pg_index SET indisready = false WHERE indrelid = 'rp.days'::regclass;
ALTER TABLE rp.days DISABLE TRIGGER :guard; INSERT INTO rp.days SELECT * FROM rp.days WHERE k = 'k1'; ALTER TABLE rp.days ENABLE ALWAYS TRIGGER :guard;
UPDATE pg_index SET indisready = true WHERE indrelid = 'rp.days'::regclass;
SELECT is(failures, 1, 'a pass has failed') FROM rollup_status WHERE rollup = 'rp.days'::regclass;
CALL rollup_run('rp.days');
SELECT results_eq($$SELECT action, outcome, rows, keys FROM rollup_runs WHERE rollup = 'rp.days'::regclass ORDER BY id DESC LIMIT 1$$,
  $$VALUES ('check', 'corrupt', 6::bigint, 5::bigint)$$, 'the next one finds a copy');
SELECT rollup_alter('rp.days', mode => 'off');
\set ON_ERROR_STOP 0
CALL rollup_run('rp.days');
\set ON_ERROR_STOP 1
SELECT results_eq($$SELECT state, last_error FROM rollup_status WHERE rollup = 'rp.days'::regclass$$,
  $$VALUES ('on', '"rp.days" does not have what was written to it')$$, 'with one, mode on is not left');
SELECT rollup_alter('rp.days', mode => 'on'); SELECT rollup_reseed('rp.days');
SELECT is(action, 'seed', 'a seed') FROM rollup_refresh('rp.days');
SELECT is_empty($$SELECT * FROM rollup_verify('rp.days')$$, 'mends it');

-- after a refresh that has failed in the midst of its writes live is guarded again
ALTER TABLE rp.days ADD CONSTRAINT few CHECK (n < 0) NOT VALID;
INSERT INTO rp.day VALUES ('k1', '2026-01-01 12:00Z');
\set ON_ERROR_STOP 0
SELECT rollup_refresh('rp.days');
\set ON_ERROR_STOP 1
SELECT throws_ok('DELETE FROM rp.days', '55000', 'rollup "rp.days" is maintained by dailyrollup', 'a write of others after a refresh that failed');
SELECT rollup_drop('rp.days', true);
SELECT * FROM finish();
DROP SCHEMA rp CASCADE;
