-- What a transaction has written in many levels is folded at its end: rows of levels
-- that ended are their parent's, those of levels that were undone nobody's, in memory
-- or in temporary files.
--
-- Fails when the end of a level writes a temporary file (a level whose end failed has
-- given its rows to the parent before), or when rows that do not fit together stay in
-- memory (make_room in batch.c).
\ir lib/begin.sql
CREATE SCHEMA levels;
SET search_path = levels, public;

SELECT plan(20);

CREATE TABLE s (k text NOT NULL, ts timestamptz NOT NULL, note text, n int);
CREATE INDEX ON s (k, ts);
SELECT rollup_create('once', 'SELECT k, latest(note, ts) AS note, max(ts) AS ts, count(*) AS c, sum(n) AS n FROM s GROUP BY k', 'ts', dedup_by => '{k,ts}', mode => 'off');
SELECT rollup_create('each', 'SELECT k, count(*) AS c, max(n) AS n FROM s GROUP BY k', 'ts', mode => 'off');
CALL rollup_run();

-- n rows from a second on, of about 200 bytes
CREATE FUNCTION write(first int, n int, key text DEFAULT 'k') RETURNS void LANGUAGE sql AS $$
  INSERT INTO s SELECT key || i % 3, '2026-01-01 00:00Z'::timestamptz + i * interval '1 s', repeat(md5(i::text), 5), i FROM generate_series(first, first + n - 1) i
$$;
CREATE FUNCTION differing() RETURNS bigint LANGUAGE sql AS $$
  SELECT (SELECT count(*) FROM rollup_verify('once')) + (SELECT count(*) FROM rollup_verify('each'))
$$;
SET work_mem = '64kB';

-- a level has no temporary file to write its rows to
CREATE PROCEDURE try(first int, n int, undone bool DEFAULT false) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM write(first, n);
  IF undone THEN RAISE 'undone'; END IF;
EXCEPTION WHEN OTHERS THEN
  RAISE NOTICE '%', SQLERRM;
END $$;
BEGIN;
SELECT write(1, 150);
SET LOCAL temp_file_limit = 0;
CALL try(1001, 140);
CALL try(2001, 140, true);
SET LOCAL temp_file_limit = -1;
COMMIT;
SELECT is(count(*), 290::bigint, 'each row is there of a level that ended without a temporary file') FROM s;
SELECT is(differing(), 0::bigint, 'and is folded');

BEGIN;
SELECT write(3001, 150);
SET LOCAL temp_file_limit = 0;
CALL try(4001, 1000);
SET LOCAL temp_file_limit = -1;
COMMIT;
SELECT is(count(*), 440::bigint, 'a level that wants one fails') FROM s;
SELECT is(differing(), 0::bigint, 'and is not folded');

-- very many levels, one after the other
CREATE TABLE used (bytes bigint);
BEGIN;
SELECT write(10001, 100);
DO $$
BEGIN
  FOR i IN 1 .. 300 LOOP
    CALL try(20000 + i * 20, 20, i % 7 = 0);
  END LOOP;
END $$;
INSERT INTO used SELECT sum(total_bytes) FROM pg_backend_memory_contexts WHERE name = 'dailyrollup rows';
COMMIT;
SELECT cmp_ok(bytes, '<', 2 * 3 * 65536::bigint, 'what they leave is not kept in memory') FROM used;
SELECT is(differing(), 0::bigint, 'it is folded');

-- one in the other
BEGIN;
SELECT write(40001, 200);
SAVEPOINT a;
SELECT write(41001, 600);
SAVEPOINT b;
SELECT write(42001, 200);
SAVEPOINT c;
SELECT write(43001, 600);
ROLLBACK TO c;
SELECT write(44001, 10);
RELEASE b;
SELECT write(45001, 10);
RELEASE a;
COMMIT;
SELECT is(count(*), 1020::bigint, 'levels within levels') FROM s WHERE ts >= '2026-01-01 11:00Z';
SELECT is(differing(), 0::bigint, 'are folded');

-- folded in a level that is undone
BEGIN;
SELECT write(50001, 600);
SAVEPOINT a;
SELECT write(51001, 100);
SELECT rollup_fold();
SELECT is(differing(), 0::bigint, 'a level folds what all have written');
SELECT write(52001, 100);
ROLLBACK TO a;
SELECT write(53001, 100);
COMMIT;
SELECT is(count(*), 700::bigint, 'it is undone') FROM s WHERE ts >= '2026-01-01 13:53:20Z';
SELECT is(differing(), 0::bigint, 'and what the others have written is folded again');

BEGIN;
SELECT write(60001, 100);
SAVEPOINT a;
SELECT write(61001, 600);
SELECT rollup_fold();
RELEASE a;
SELECT write(62001, 600);
SELECT is((SELECT sum(c) FROM each), (SELECT count(*) FROM s) - 600::numeric, 'what a level that ended has folded');
COMMIT;
SELECT is(differing(), 0::bigint, 'is not folded again');

-- changed and deleted, with values out of line
ALTER TABLE s ALTER note SET STORAGE EXTERNAL;
BEGIN;
INSERT INTO s SELECT 'wide' || i, '2026-02-01Z', repeat(md5(i::text), 300), i FROM generate_series(1, 30) i;
SAVEPOINT a;
UPDATE s SET note = note || 'x' WHERE k LIKE 'wide%' AND n % 2 = 0;
SAVEPOINT b;
DELETE FROM s WHERE k LIKE 'wide%' AND n % 3 = 0;
ROLLBACK TO b;
DELETE FROM s WHERE k LIKE 'wide%' AND n % 5 = 0;
RELEASE a;
INSERT INTO s VALUES ('wide1', '2026-02-02Z', NULL, NULL), ('wide2', '2026-02-02Z', '', 0);
COMMIT;
SELECT is(differing(), 0::bigint, 'values out of line');
SELECT is(length(note), 9601, 'of a row that was changed') FROM once WHERE k = 'wide4';
SELECT is(note, NULL, 'NULL') FROM once WHERE k = 'wide1';
SELECT is(note, '', 'an empty one') FROM once WHERE k = 'wide2';

-- all of it in one batch that fits, and in one that does not
BEGIN;
SELECT write(70001, 5000);
COMMIT;
SELECT is(differing(), 0::bigint, 'many rows, in a temporary file');
SET work_mem = '64MB';
BEGIN;
SELECT write(80001, 5000);
COMMIT;
SELECT is(differing(), 0::bigint, 'in memory');
BEGIN;
SELECT write(90001, 12000);
DELETE FROM s WHERE n BETWEEN 91000 AND 92000;
COMMIT;
SELECT is(differing(), 0::bigint, 'in memory, and too many to be decided there');

DROP SCHEMA levels CASCADE;
SELECT * FROM finish();
