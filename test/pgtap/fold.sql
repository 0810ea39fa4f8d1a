-- The write-time fold, where events may come twice, or each row counts: of
-- definitions that differ in what has to be looked up, each transaction must leave
-- live exact.
--
-- Fails when a constant that stands for no value is taken for one (is_present in
-- tally.c), when it hides at equal times that there was none (append_tied_keys in
-- folding.c), and when a key whose row does not fit into memory is not computed
-- again (dr_gather_keep in gather.c); when a column is taken for the time of the last
-- event that is not (find_newest), and when of an event's rows others than the one
-- that counts are taken for it (add_duplicate).
\ir lib/begin.sql

SELECT plan(37);

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

-- a constant for no value, where each row counts: at equal times it must not be
-- taken for the value that was there, nor for one that is less, or greater
CREATE FUNCTION f.define_each(name text, query text) RETURNS void LANGUAGE sql AS $$
  INSERT INTO f.rollups VALUES ('f.' || name);
  SELECT rollup_create('f.' || name, query, 'ts', mode => 'off');
$$;
SELECT f.define_each('blind', 'SELECT k, coalesce(latest(n, ts), 0) AS n, max(ts) AS ts, coalesce(earliest(n, ts), 0) AS e, min(ts) AS t, count(*) AS c FROM f.s GROUP BY k');
SELECT f.define_each('none', 'SELECT k, coalesce(max(n), 0) AS high, coalesce(min(n), 0) AS low, count(n) AS c FROM f.s GROUP BY k');
SELECT f.define('none_once', 'SELECT k, coalesce(max(n), 0) AS high, coalesce(min(n), 0) AS low, count(n) AS c, max(ts) AS ts FROM f.s GROUP BY k');
CALL rollup_run();
INSERT INTO f.s SELECT 'n' || i, '2026-03-01', '2026-03-01 01:00Z', CASE WHEN i < 3 THEN NULL WHEN i < 6 THEN -7 ELSE 7 END, 5 FROM generate_series(0, 8) i;
SELECT is(f.differing(), '', 'keys without a value, and with one');
INSERT INTO f.s SELECT 'n' || i, '2026-03-01', '2026-03-01 01:00Z', (ARRAY[NULL, -5, 5])[i % 3 + 1], 6 FROM generate_series(0, 8) i;
SELECT is(f.differing(), '', 'another row at the same time');
INSERT INTO f.s SELECT 'n' || i, '2026-03-02', timestamptz '2026-03-01 01:00Z' + sign(i % 2 - 0.5)::int * interval '1 hour', (ARRAY[NULL, -5, 5])[i % 3 + 1], 6 FROM generate_series(0, 8) i;
SELECT is(f.differing(), '', 'later and earlier ones');
SELECT results_eq($$SELECT high, low, c FROM f.none WHERE k IN ('n0', 'n1', 'n3') ORDER BY k$$, $$VALUES (0, 0, 0::bigint), (-5, -5, 2), (-7, -7, 1)$$, 'no value is neither more nor less than any');
DELETE FROM f.rollups WHERE name IN ('f.blind', 'f.none', 'f.none_once');
SELECT rollup_drop('f.' || name) FROM unnest('{blind,none,none_once}'::text[]) name;

-- rows of live that do not fit into memory
CREATE TABLE f.w (k text NOT NULL, ts timestamptz NOT NULL, note text, o int);
CREATE INDEX ON f.w (k, ts);
SELECT f.define_each('wide', 'SELECT k, latest(note, ts) AS note, max(ts) AS ts, count(*) AS c FROM f.w GROUP BY k');
INSERT INTO f.rollups VALUES ('f.wide_once'), ('f.wide_part');
SELECT rollup_create('f.wide_once', 'SELECT k, latest(note, ts) AS note, max(ts) AS ts, count(*) AS c FROM f.w GROUP BY k', 'ts', dedup_by => '{k,ts}', dedup_order => '{o}', mode => 'off');
SELECT rollup_create('f.wide_part', 'SELECT k, latest(note, ts) AS note, max(ts) AS ts, count(*) AS c FROM f.w WHERE o < 9 GROUP BY k', 'ts', dedup_by => '{k,ts}', dedup_order => '{o}', mode => 'off');
CALL rollup_run();
INSERT INTO f.w SELECT 'k' || i, '2026-01-01 01:00Z', repeat(md5(i::text), 30), 2 FROM generate_series(1, 300) i;
SELECT is(f.differing(), '', 'wide rows');
SET work_mem = '64kB';
SET hash_mem_multiplier = 1;
INSERT INTO f.w SELECT 'k' || i, '2026-01-01 02:00Z', 'later', 2 FROM generate_series(1, 300) i;
SELECT is(f.differing(), '', 'later events of keys whose rows do not fit into memory');
UPDATE f.w SET note = repeat(md5(k), 30) WHERE ts = '2026-01-01 02:00Z';
INSERT INTO f.w SELECT 'k' || i, timestamptz '2026-01-01 00:00Z' + (i % 3) * interval '1 hour', 'better', 1 FROM generate_series(1, 300) i;
SELECT is(f.differing(), '', 'earlier ones, and rows that win');
INSERT INTO f.w SELECT 'k' || i, timestamptz '2026-01-01 00:00Z' + (i % 3) * interval '1 hour', 'worse', 3 FROM generate_series(1, 300) i;
SELECT is(f.differing(), '', 'rows that lose');
SELECT is((SELECT sum(c) FROM f.wide), 1200::numeric, 'each row counts');
RESET work_mem;
RESET hash_mem_multiplier;

-- values that lie beside the row, and have gone from there when they are folded
BEGIN;
INSERT INTO f.w SELECT 'k' || i, '2026-01-02 01:00Z', (SELECT string_agg(md5(i || ' ' || j), '') FROM generate_series(1, 200) j), 2 FROM generate_series(1, 3) i;
SELECT cmp_ok(pg_relation_size(reltoastrelid), '>', 10000::bigint, 'values beside their rows') FROM pg_class WHERE oid = 'f.w'::regclass;
ALTER TABLE f.w ADD z float8 DEFAULT random();
COMMIT;
SELECT is(f.differing(), '', 'a table that is rewritten before the commit');

-- what a subtransaction has written outlives it, also where it did not fit into memory
SET work_mem = '64kB';
BEGIN;
SAVEPOINT a;
INSERT INTO f.w SELECT 'k' || i % 50, timestamptz '2026-01-03 00:00Z' + i * interval '1 minute', repeat(md5(i::text), 10), 2 FROM generate_series(1, 1000) i;
RELEASE a;
SAVEPOINT a;
INSERT INTO f.w SELECT 'k' || i % 50, timestamptz '2026-01-04 00:00Z' + i * interval '1 minute', repeat(md5(i::text), 10), 2 FROM generate_series(1, 1000) i;
ROLLBACK TO a;
INSERT INTO f.w SELECT 'k' || i % 50, timestamptz '2026-01-05 00:00Z' + i * interval '1 minute', repeat(md5(i::text), 10), 2 FROM generate_series(1, 1000) i;
COMMIT;
RESET work_mem;
SELECT is(f.differing(), '', 'many rows of a subtransaction');

-- columns that are not the time of the last event: of some events, of another time,
-- of the first one
CREATE TABLE f.t (k text NOT NULL, ts timestamptz NOT NULL, heard timestamptz, n int, o int);
CREATE INDEX ON f.t (k, ts);
DELETE FROM f.rollups;
INSERT INTO f.rollups VALUES ('f.of_some'), ('f.of_hearing'), ('f.first');
SELECT rollup_create('f.' || name, format('SELECT k, %s AS at, count(*) AS c FROM f.t GROUP BY k', at), 'ts', dedup_by => '{k,ts}', dedup_order => '{o}', mode => 'off')
FROM (VALUES ('of_some', 'max(ts) FILTER (WHERE n > 0)'), ('of_hearing', 'max(heard)'), ('first', 'min(ts)')) v(name, at);
CALL rollup_run();
INSERT INTO f.t VALUES ('a', '2026-01-01 01:00Z', '2026-01-01 01:00Z', 1, 2), ('a', '2026-01-01 02:00Z', '2026-01-01 01:00Z', 0, 2);
SELECT is(f.differing(), '', 'two events');
INSERT INTO f.t VALUES ('a', '2026-01-01 02:00Z', '2026-01-01 01:00Z', 0, 2);
SELECT is(f.differing(), '', 'the last one again');
INSERT INTO f.t VALUES ('a', '2026-01-01 02:00Z', '2026-01-01 01:00Z', 1, 1), ('a', '2026-01-01 03:00Z', NULL, NULL, 2);
INSERT INTO f.t VALUES ('a', '2026-01-01 03:00Z', NULL, NULL, 2);
SELECT is(f.differing(), '', 'one that wins, one without a value, twice');

-- an old row that counts lets the key as it is: it is not computed again, which
-- would mend what was made wrong before
SELECT format('ALTER TABLE f.first DISABLE TRIGGER %1$I; UPDATE f.first SET c = c + 1000; ALTER TABLE f.first ENABLE ALWAYS TRIGGER %1$I', tgname)
FROM pg_trigger WHERE tgrelid = 'f.first'::regclass AND tgname LIKE '%guard' \gexec
INSERT INTO f.t VALUES ('a', '2026-01-01 01:00Z', NULL, 1, 4), ('a', '2026-01-01 01:00Z', NULL, 1, 3), ('a', '2026-01-01 01:00Z', NULL, 1, 3);
SELECT is((SELECT c FROM f.first), 1003::bigint, 'rows that lose');
INSERT INTO f.t VALUES ('a', '2026-01-01 01:00Z', NULL, 1, 3), ('a', '2026-01-01 01:00Z', NULL, 1, 3), ('a', '2026-01-01 01:00Z', '2026-01-01 01:00Z', 1, 2);
SELECT is((SELECT c FROM f.first), 1003::bigint, 'rows that lose, and the one that counts');
INSERT INTO f.t VALUES ('a', '2026-01-01 01:00Z', NULL, 1, 3), ('a', '2026-01-01 01:00Z', NULL, 1, 1);
SELECT is((SELECT c FROM f.first), 3::bigint, 'one that wins does not');

-- the owner knows the proof, and makes up a row while the fold locks its own
SELECT proof FROM dailyrollup.rollups WHERE live = 'f.plain'::regclass \gset
CREATE FUNCTION f.make_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM dailyrollup._locked(TG_ARGV[0]::int8, '(0,1)', ROW(1, 2, now(), 3::int8, 4, 5::int8));
  RETURN NEW;
END $$;
SELECT format('CREATE TRIGGER t BEFORE INSERT ON f.plain FOR EACH ROW EXECUTE FUNCTION f.make_up(%L)', :'proof') \gexec
SELECT throws_ok($$INSERT INTO f.s VALUES ('a', '2026-02-01', '2026-02-01 01:00Z', 5, 1); SELECT rollup_fold()$$, '42804', 'this is no row of the rollup', 'a row of other types');
-- and after a fold that has failed
SELECT throws_ok(format($$SELECT dailyrollup._locked(%s, '(0,1)', ROW(1, 2, now(), 3::int8, 4, 5::int8))$$, :'proof'), '42501', 'this function serves the write-time fold alone', 'none is locked after a fold that has failed');

DROP SCHEMA f CASCADE;
SELECT * FROM finish();
