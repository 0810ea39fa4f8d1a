-- The write-time fold updates live's rows in their form where the new values fit,
-- and forms them anew where they do not.
\ir lib/begin.sql

SELECT plan(18);

CREATE SCHEMA p;
CREATE TABLE p.s (k int NOT NULL, ts timestamptz NOT NULL, b boolean, i int, t text, x numeric, d char(3));
SELECT rollup_create('p.live', 'SELECT k, count(*) AS n, latest(b, ts) AS b, latest(i, ts) AS i, latest(t, ts) AS t, max(t || '''') AS most,
  sum(x) AS total, latest(x, ts) AS x, latest(d, ts) AS d, max(ts) AS seen, min(i) AS least FROM p.s GROUP BY k', 'ts', mode => 'off');
CALL rollup_run();
SELECT is((SELECT state FROM rollup_status WHERE rollup = 'p.live'::regclass), 'off', 'it folds');

-- rows of two keys, an hour later than all others; what live lacks then, or has wrong
CREATE FUNCTION p.fold(b boolean, i int, t text, x numeric, d text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO p.s SELECT k, (SELECT coalesce(max(ts), '2026-01-01') + interval '1 hour' FROM p.s), b, i, t, x, d FROM generate_series(1, 2) k;
  PERFORM rollup_fold();
  RETURN (SELECT count(*) FROM rollup_verify('p.live'));
END $$;
CREATE FUNCTION p.long(c text) RETURNS text LANGUAGE sql RETURN (SELECT string_agg(md5(c || j), '') FROM generate_series(1, 150) j);

SELECT is(p.fold(true, 1, 'aaaa', 1, 'abc'), 0::bigint, 'the first row');
SELECT is(p.fold(false, 2, 'bbbb', 2, 'def'), 0::bigint, 'all other values');
SELECT is(p.fold(false, -2, 'cccc', 2, 'def'), 0::bigint, 'most of them');
SELECT is(p.fold(NULL, NULL, NULL, NULL, NULL), 0::bigint, 'NULLs');
SELECT is(p.fold(NULL, NULL, NULL, NULL, NULL), 0::bigint, 'NULLs where NULLs were');
SELECT is(p.fold(true, 3, 'dddddddddd', 30000, 'ghi'), 0::bigint, 'values where NULLs were');
-- with the bytes before it as long as the one that is there
SELECT is(p.fold(true, 3, 'eeeeeee', 30000, 'ghi'), 0::bigint, 'a text that was computed');
SELECT is(p.fold(true, 3, 'ffff', 12345.678, 'ghi'), 0::bigint, 'shorter and longer ones');
SELECT is(p.fold(true, 3, p.long('a'), 1, 'xyz'), 0::bigint, 'a value out of line');
SELECT is(p.fold(true, 3, p.long('b'), 1, 'xyz'), 0::bigint, 'another one');
SELECT is(p.fold(true, 3, repeat('g', 3000), 1, 'xyz'), 0::bigint, 'one that is compressed');
SELECT is(p.fold(true, 3, repeat('i', 17), 1, 'xyz'), 0::bigint, 'one that takes as much room as a pointer');
SELECT is(p.fold(true, 3, p.long('c'), 1, 'xyz'), 0::bigint, 'a value out of line in its place');
SELECT is(p.fold(true, 3, 'h', 1, 'xyz'), 0::bigint, 'a short one again');
SELECT is((SELECT ROW(k, n, b, i, t, most, total, x, d, least)::text FROM p.live WHERE k = 2),
  '(2,14,t,3,h,iiiiiiiiiiiiiiiii,72356.678,1,xyz,-2)', 'all is there');

-- a row from before a column was added
CREATE TABLE p.s2 (k int NOT NULL, ts timestamptz NOT NULL, i int);
INSERT INTO p.s2 VALUES (1, '2026-01-01', NULL);
CREATE TABLE p.old (k int UNIQUE NOT NULL, n bigint);
INSERT INTO p.old VALUES (1, 1);
ALTER TABLE p.old ADD COLUMN least int;
SELECT rollup_create('p.old', 'SELECT k, count(*) AS n, min(i) AS least FROM p.s2 GROUP BY k', 'ts', mode => 'off');
CALL rollup_run();
BEGIN;
SELECT rollup_recompute('p.old'), rollup_alter('p.old', fold => true);
COMMIT;
SELECT is((SELECT ctid FROM p.old), '(0,1)', 'the row is as it was');
INSERT INTO p.s2 VALUES (1, '2026-01-02', 5);
SELECT is((SELECT ROW(k, n, least)::text FROM p.old), '(1,2,5)', 'it gets the new column');

DROP SCHEMA p CASCADE;
SELECT * FROM finish();
