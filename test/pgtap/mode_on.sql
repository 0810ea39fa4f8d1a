-- What is promised of mode on: until the next refresh no write to the source
-- touches live, not even a row's place; no routine recomputes or empties it.
--
-- Fails when a write under on is folded into live (dr_catalog_folds in catalog.c),
-- and when rollup_recompute or rollup_flush does anything there (state.c, fold.c).
\ir lib/begin.sql
BEGIN;
SELECT plan(14);

CREATE SCHEMA mo;
CREATE TABLE mo.src (k text, ts timestamptz NOT NULL, v int, id int) PARTITION BY RANGE (ts);
CREATE TABLE mo.src_1 PARTITION OF mo.src FOR VALUES FROM (MINVALUE) TO ('2026-01-02');
CREATE TABLE mo.src_2 PARTITION OF mo.src DEFAULT;
INSERT INTO mo.src SELECT 'k' || i % 7, '2026-01-01'::timestamptz + i * interval '1 hour', i, i FROM generate_series(1, 60) i;
SELECT rollup_create('mo.live', 'SELECT k, count(*) AS n, sum(v) AS total, max(ts) AS seen, latest(v, ts) AS v FROM mo.src GROUP BY k',
  time_column => 'ts', dedup_by => '{k,ts}', dedup_order => '{id}', mode => 'on') IS NOT NULL AS created \gset
SELECT count(*) AS refreshed FROM rollup_refresh('mo.live', '2026-01-03 00:00+00') \gset

CREATE FUNCTION mo.image() RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(format('%s %s %s %s', l.ctid, l.xmin, l.xmax, l), E'\n' ORDER BY l.ctid)
    || pg_relation_size('mo.live') FROM mo.live l $$;
SELECT mo.image() AS before \gset

CREATE FUNCTION mo.untouched(what text) RETURNS text LANGUAGE sql AS $$
  SELECT is(mo.image(), current_setting('mo.before'), what) $$;
SELECT set_config('mo.before', :'before', true) IS NOT NULL AS kept \gset

INSERT INTO mo.src VALUES ('k1', '2026-01-05 10:00', 1, 100), ('new', '2026-01-05 11:00', 2, 101);
SELECT mo.untouched('inserts after the watermark');
INSERT INTO mo.src VALUES ('k1', '2026-01-01 10:30', 1, 102), ('late', '2026-01-01 11:00', 2, 103), (NULL, '2026-01-02 11:00', 2, 104);
SELECT mo.untouched('late inserts');
INSERT INTO mo.src SELECT * FROM mo.src WHERE id IN (3, 4, 5);
SELECT mo.untouched('redeliveries');
UPDATE mo.src SET v = v + 1 WHERE k = 'k2';
SELECT mo.untouched('updates');
UPDATE mo.src SET ts = ts + interval '10 days' WHERE id = 6;
SELECT mo.untouched('an update across the watermark and the partitions');
DELETE FROM mo.src WHERE k = 'k3';
SELECT mo.untouched('deletes of a whole key');
COPY mo.src_1 FROM stdin;
k4	2026-01-01 12:30+00	7	105
\.
SELECT mo.untouched('COPY into a partition');
SET LOCAL dailyrollup.backfill = on;
INSERT INTO mo.src VALUES ('k5', '2026-01-01 12:45', 1, 106);
SELECT mo.untouched('a backfill');
SELECT is(rollup_flush('mo.live'), 0::bigint, 'a flush only leaves the keys to the late set');
SELECT mo.untouched('a flush');
SELECT throws_ok($$SELECT rollup_recompute('mo.live')$$, '55000', NULL, 'a recompute is refused');
SELECT rollup_fold() IS NULL AS folded \gset
SELECT mo.untouched('rollup_fold');
SELECT is((SELECT count(*) FROM rollup_refresh('mo.live', '2026-01-03 00:00+00') WHERE late_keys > 0), 1::bigint,
  'the next refresh takes them');
SELECT is_empty($$SELECT * FROM rollup_verify('mo.live')$$, 'and is exact');
SELECT * FROM finish();
ROLLBACK;
