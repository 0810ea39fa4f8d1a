-- The write-time fold finds live's rows in indexes of every shape: each key is
-- looked for once, is updated if it is there and inserted if it is not, and
-- nothing is inserted in vain.
\ir lib/begin.sql

SELECT plan(27);

CREATE SCHEMA f;
CREATE TABLE f.s (i int, p text, q int, ts timestamptz NOT NULL);

-- a page of the index has some 16 of these, in no order, and three levels hold 3,000
CREATE FUNCTION f.long(i int) RETURNS text LANGUAGE sql IMMUTABLE RETURN
  (SELECT string_agg(md5(i || '-' || j), '') FROM generate_series(1, 15) j);

SELECT rollup_create('f.one', 'SELECT p, count(*) AS n, latest(p, ts) AS last, max(ts) AS ts FROM f.s GROUP BY p', 'ts', dedup_by => '{p,ts}', mode => 'off');
SELECT rollup_create('f.two', 'SELECT q, p, count(*) AS n, max(ts) AS ts FROM f.s GROUP BY q, p', 'ts', mode => 'off');
-- a table that was there, its index in another order
CREATE TABLE f.back (q int, p text, n bigint, ts timestamptz);
CREATE UNIQUE INDEX ON f.back (p, q DESC) NULLS NOT DISTINCT;
SELECT rollup_create('f.back', 'SELECT q, p, count(*) AS n, max(ts) AS ts FROM f.s GROUP BY q, p', 'ts', mode => 'off');
CALL rollup_run();
BEGIN;
SELECT rollup_recompute('f.back'), rollup_alter('f.back', fold => true);
COMMIT;
SELECT is((SELECT count(*) FROM rollup_status WHERE rollup::text LIKE 'f.%' AND state = 'off'), 3::bigint, 'all of them fold');

-- what a table has had so far: rows inserted, updated, look-ups by an index
CREATE FUNCTION f.counts(live text) RETURNS bigint[] LANGUAGE sql AS $$
  SELECT ARRAY[n_tup_ins, n_tup_upd, idx_scan] FROM pg_stat_xact_user_tables WHERE relid = live::regclass
$$;

-- A row of each of these keys, an hour later than all others, which are folded at
-- once; the difference that makes.
CREATE FUNCTION f.fold(live text, keys text) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  a bigint[] := f.counts(live);
  b bigint[];
BEGIN
  EXECUTE format('INSERT INTO f.s SELECT i, f.long(i), i %% 7, (SELECT coalesce(max(ts), ''2026-01-01'') + interval ''1 hour'' FROM f.s) FROM (%s) k(i)', keys);
  PERFORM rollup_fold();
  b := f.counts(live);
  RETURN ARRAY[b[1] - a[1], b[2] - a[2], b[3] - a[3]];
END $$;

CREATE FUNCTION f.differing() RETURNS bigint LANGUAGE sql AS $$
  SELECT (SELECT count(*) FROM rollup_verify('f.one')) + (SELECT count(*) FROM rollup_verify('f.two')) + (SELECT count(*) FROM rollup_verify('f.back'))
$$;

SELECT is(f.fold('f.one', 'SELECT generate_series(1, 12)'), '{12,0,12}', 'an empty index');
SELECT is(f.fold('f.one', 'SELECT generate_series(5, 14)'), '{2,8,10}', 'a single page');
SELECT is(f.fold('f.one', 'SELECT generate_series(1, 200)'), '{186,14,200}', 'which is split');
SELECT is(f.differing(), 0::bigint, 'exact');
SELECT is(f.fold('f.one', 'SELECT generate_series(1, 3000)'), '{2800,200,3000}', 'pages above the leaves that are split');
SELECT is(f.differing(), 0::bigint, 'exact');
SELECT is(f.fold('f.one', 'SELECT generate_series(1, 3000)'), '{0,3000,3000}', 'all keys');
SELECT is(f.fold('f.one', 'SELECT 1 + 61 * generate_series(0, 60)'), '{11,50,61}', 'few of many');
SELECT is(f.fold('f.one', 'SELECT 1000'), '{0,1,1}', 'one');
SELECT is(f.fold('f.one', 'SELECT 5000'), '{1,0,1}', 'one that is new');

-- keys that lie far apart: the index is not read from one to the other
CREATE TABLE f.ends AS SELECT i FROM generate_series(1, 3000) i WHERE f.long(i) IN (SELECT min(p) FROM f.one UNION SELECT max(p) FROM f.one);
SELECT pg_stat_force_next_flush();
CREATE TABLE f.before AS SELECT idx_blks_read + idx_blks_hit AS blocks FROM pg_statio_user_tables WHERE relid = 'f.one'::regclass;
SELECT f.fold('f.one', 'SELECT i FROM f.ends');
SELECT pg_stat_force_next_flush();
SELECT cmp_ok(idx_blks_read + idx_blks_hit - blocks, '<', 12::bigint, 'blocks of the index for two keys')
FROM pg_statio_user_tables, f.before WHERE relid = 'f.one'::regclass;

SELECT is(f.fold('f.two', 'SELECT generate_series(3001, 3300)'), '{295,5,300}', 'a key of two columns');
SELECT is(f.fold('f.two', 'SELECT generate_series(1, 3300)'), '{0,3300,3300}', 'all of these');
SELECT is(f.differing(), 0::bigint, 'exact');

-- rows that are kept in a file
SET work_mem = '64kB';
SELECT is((f.fold('f.one', 'SELECT generate_series(1, 800)'))[1:2], '{0,800}', 'more rows than memory');
SELECT is(f.differing(), 0::bigint, 'exact');
RESET work_mem;

-- keys that go, and come again, with what the index still has of them
DELETE FROM f.s WHERE i % 3 = 0;
SELECT is((f.fold('f.one', 'SELECT generate_series(1, 300)'))[1:2], '{100,200}', 'keys that were gone');
SELECT is((f.fold('f.two', 'SELECT generate_series(301, 600)'))[1:2], '{100,200}', 'also of two columns');
SELECT is(f.differing(), 0::bigint, 'exact');

-- NULLs, which the index has behind all others, and a key column of its own order
INSERT INTO f.s SELECT NULL, CASE WHEN n % 2 = 0 THEN 'x' END, CASE WHEN n % 3 = 0 THEN 1 END, now() FROM generate_series(1, 6) n;
SELECT is((f.fold('f.two', 'SELECT generate_series(1, 1000)'))[1:2], '{133,867}', 'beside NULLs');
SELECT is((f.fold('f.back', 'SELECT generate_series(1, 1000)'))[1:2], '{0,1000}', 'an index in another order');
SELECT is(f.differing(), 0::bigint, 'exact');

-- a key of so many versions that the index keeps them together
CREATE INDEX ON f.one (n);
DO $$ BEGIN FOR i IN 1..100 LOOP PERFORM f.fold('f.one', 'SELECT 7'); END LOOP; END $$;
SELECT is(f.differing(), 0::bigint, 'many versions of a key');

-- the same in a small table: what such an entry has in place of a row's place is none
CREATE TABLE f.few (p text NOT NULL, ts timestamptz NOT NULL);
SELECT rollup_create('f.small', 'SELECT p, count(*) AS n FROM f.few GROUP BY p', 'ts', mode => 'off');
CALL rollup_run('f.small');
CREATE INDEX ON f.small (n);
DO $$ BEGIN FOR i IN 1..200 LOOP INSERT INTO f.few SELECT f.long(j), now() FROM generate_series(1, 3) j; PERFORM rollup_fold(); END LOOP; END $$;
SELECT is((SELECT array_agg(n) FROM f.small), '{200,200,200}', 'likewise in a small table');
SELECT is((SELECT count(*) FROM rollup_verify('f.small')), 0::bigint, 'exact');

-- keys that the index has compressed
CREATE FUNCTION f.compressed() RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
  a bigint[] := f.counts('f.small');
  b bigint[];
BEGIN
  INSERT INTO f.few SELECT repeat(j || 'x', 1000), now() FROM generate_series(1, 40) j;
  PERFORM rollup_fold();
  b := f.counts('f.small');
  RETURN ARRAY[b[1] - a[1], b[2] - a[2], b[3] - a[3]];
END $$;
SELECT f.compressed();
SELECT is(f.compressed(), '{0,40,40}', 'compressed keys');

DROP SCHEMA f CASCADE;
SELECT * FROM finish();
