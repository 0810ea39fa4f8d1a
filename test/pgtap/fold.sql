-- The write-time fold, where events may come twice: of definitions that differ
-- in what has to be looked up, each transaction must leave live exact.
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS dailyrollup;

SELECT plan(18);

CREATE SCHEMA f;
CREATE TABLE f.s (k text NOT NULL, d date NOT NULL, ts timestamptz NOT NULL, n int, o int);
CREATE INDEX ON f.s (k, ts);
CREATE TABLE f.rollups (name text);

-- plain; a WHERE; no column tells the last event; live refuses rows; by day
CREATE FUNCTION f.define(name text, query text, dedup text DEFAULT '{k,ts}', at text DEFAULT 'ts') RETURNS void LANGUAGE sql AS $$
  INSERT INTO f.rollups VALUES ('f.' || name);
  SELECT rollup_create('f.' || name, query, at, dedup_by => dedup::text[], dedup_order => '{o}', mode => 'off');
$$;
SELECT f.define('plain', 'SELECT k, latest(n, ts) AS n, max(ts) AS ts, count(*) AS c, min(n) AS low, sum(n) AS sum FROM f.s GROUP BY k');
SELECT f.define('part', 'SELECT k, latest(n, ts) AS n, max(ts) AS ts, count(n) AS c, sum(60 / n) FILTER (WHERE n < 9) AS q FROM f.s WHERE n <> 0 GROUP BY k');
SELECT f.define('strict', 'SELECT k, max(ts) AS ts, count(n) AS c FROM f.s WHERE n <> 0 GROUP BY k');
SELECT f.define('guarded', 'SELECT k, sum(60 / n) FILTER (WHERE n <> 0) AS q, count(*) AS c, count(n) AS cn, coalesce(max(n), 0) AS m FROM f.s GROUP BY k');
SELECT f.define('checked', 'SELECT k, count(*) AS c, max(ts) AS ts, max(n) AS n FROM f.s GROUP BY k');
SELECT f.define('daily', 'SELECT k, count(*) AS c, max(d) AS d, sum(n) AS n FROM f.s GROUP BY k', '{k,d}', 'd');
CALL rollup_run();
ALTER TABLE f.checked ALTER COLUMN n SET NOT NULL, ADD CHECK (c < 100 AND n > 0);
ALTER TABLE f.strict ALTER COLUMN c SET NOT NULL;

SELECT is((SELECT count(*) FROM rollup_status WHERE rollup::text LIKE 'f.%' AND state <> 'off'), 0::bigint, 'all of them fold');

CREATE FUNCTION f.differing() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  r text;
  n bigint;
  found text := '';
BEGIN
  FOR r IN SELECT name FROM f.rollups LOOP
    EXECUTE format('SELECT count(*) FROM rollup_verify(%L)', r) INTO n;
    IF n > 0 THEN found := found || r || ' '; END IF;
  END LOOP;
  RETURN found;
END $$;

-- each statement is a transaction
INSERT INTO f.s VALUES ('a', '2026-01-01', '2026-01-01 01:00Z', 5, 1), ('b', '2026-01-01', '2026-01-01 01:00Z', 7, 1);
SELECT is(f.differing(), '', 'new keys');
INSERT INTO f.s VALUES ('c', '2026-01-01', '2026-01-01 01:00Z', 5, 2), ('c', '2026-01-01', '2026-01-01 01:00Z', 6, 1), ('c', '2026-01-01', '2026-01-01 01:00Z', 6, 1);
SELECT is(f.differing(), '', 'a new key, an event three times');
INSERT INTO f.s VALUES ('a', '2026-01-02', '2026-01-02 01:00Z', 4, 1), ('d', '2026-01-02', '2026-01-02 01:00Z', 3, 1);
SELECT is(f.differing(), '', 'a later event');
INSERT INTO f.s VALUES ('a', '2026-01-01', '2026-01-01 00:30Z', 9, 9), ('b', '2026-01-01', '2026-01-01 00:30Z', 2, 0);
SELECT is(f.differing(), '', 'an earlier event');
INSERT INTO f.s SELECT * FROM f.s;
SELECT is(f.differing(), '', 'everything once more');
INSERT INTO f.s VALUES ('a', '2026-01-02', '2026-01-02 01:00Z', 8, 2), ('b', '2026-01-03', '2026-01-03 01:00Z', 8, 2);
SELECT is(f.differing(), '', 'a row that loses, and a later event');
INSERT INTO f.s VALUES ('a', '2026-01-02', '2026-01-02 01:00Z', 2, 0), ('b', '2026-01-04', '2026-01-04 01:00Z', 8, 2);
SELECT is(f.differing(), '', 'a row that wins, and a later event');
INSERT INTO f.s VALUES ('a', '2026-01-02', '2026-01-02 01:00Z', 2, 0), ('a', '2026-01-05', '2026-01-05 01:00Z', 1, 2), ('a', '2026-01-01', '2026-01-01 00:10Z', 1, 2);
SELECT is(f.differing(), '', 'old and new events of one key');

-- what a WHERE leaves out, and what it keeps from being evaluated
DELETE FROM f.rollups WHERE name = 'f.checked';
SELECT rollup_drop('f.checked');
INSERT INTO f.s VALUES ('e', '2026-01-01', '2026-01-01 01:00Z', 0, 5), ('a', '2026-01-06', '2026-01-06 01:00Z', 0, 5);
SELECT is(f.differing(), '', 'zero');
SELECT is((SELECT count(*) FROM f.part WHERE k = 'e'), 0::bigint, 'no row of a key that the WHERE leaves out');
INSERT INTO f.s VALUES ('e', '2026-01-01', '2026-01-01 01:00Z', 3, 6);
SELECT is(f.differing(), '', 'a row that loses to one that the WHERE leaves out');
INSERT INTO f.s VALUES ('e', '2026-01-01', '2026-01-01 01:00Z', 3, 4), ('e', '2026-01-07', '2026-01-07 01:00Z', NULL, 4);
SELECT is(f.differing(), '', 'a row that wins');
INSERT INTO f.s VALUES ('g', '2026-01-01', '2026-01-01 01:00Z', 0, 5), ('h', '2026-01-01', '2026-01-01 01:00Z', 1, 5);
INSERT INTO f.s VALUES ('g', '2026-01-02', '2026-01-02 01:00Z', 4, 5), ('h', '2026-01-01', '2026-01-01 01:00Z', 0, 1);
SELECT is(f.differing(), '', 'a key that comes, and one that goes');

-- in one transaction
BEGIN;
INSERT INTO f.s VALUES ('i', '2026-01-01', '2026-01-01 01:00Z', 1, 5), ('a', '2026-01-08', '2026-01-08 01:00Z', 1, 5);
SELECT rollup_fold();
INSERT INTO f.s VALUES ('i', '2026-01-01', '2026-01-01 01:00Z', 1, 5), ('a', '2026-01-08', '2026-01-08 01:00Z', 2, 4), ('i', '2026-01-02', '2026-01-02 01:00Z', 1, 5);
SAVEPOINT x;
INSERT INTO f.s VALUES ('j', '2026-01-01', '2026-01-01 01:00Z', 1, 5), ('a', '2026-01-09', '2026-01-09 01:00Z', 1, 5);
SELECT rollup_fold();
ROLLBACK TO x;
INSERT INTO f.s VALUES ('j', '2026-01-02', '2026-01-02 01:00Z', 1, 5);
COMMIT;
SELECT is(f.differing(), '', 'folds within a transaction');

-- many keys, in batches that overlap, forth and back
DO $$
BEGIN
  FOR i IN 0 .. 28 LOOP
    INSERT INTO f.s SELECT 'k' || (j * 7919 % 211), date '2026-02-01' + (j % 29), timestamptz '2026-02-01 00:00Z' + j * interval '1 minute', j % 11, j % 5 + i % 3
    FROM generate_series(i * 37 % 400, i * 37 % 400 + 90) j;
    COMMIT;
  END LOOP;
END $$;
SELECT is(f.differing(), '', 'batches that overlap');
SELECT cmp_ok((SELECT count(*) FROM f.plain), '>', 200::bigint, 'of all keys');

-- the owner knows the proof, and makes up a row while the fold locks its own
SELECT proof FROM dailyrollup.rollups WHERE live = 'f.plain'::regclass \gset
CREATE FUNCTION f.make_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM dailyrollup._locked(TG_ARGV[0]::int8, '(0,1)', ROW(1, 2, now(), 3::int8, 4, 5::int8));
  RETURN NEW;
END $$;
SELECT format('CREATE TRIGGER t BEFORE INSERT ON f.plain FOR EACH ROW EXECUTE FUNCTION f.make_up(%L)', :'proof') \gexec
SELECT throws_ok($$INSERT INTO f.s VALUES ('a', '2026-02-01', '2026-02-01 01:00Z', 5, 1); SELECT rollup_fold()$$, '42804', 'this is no row of the rollup', 'a row of other types');

DROP SCHEMA f CASCADE;
SELECT * FROM finish();
