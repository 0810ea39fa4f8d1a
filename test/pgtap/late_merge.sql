-- Late rows that were inserted are merged where that gives what a recompute
-- would; where it might not, their keys are recomputed.  Which of the two it was
-- is told by a stored row that was made wrong before: a merge keeps the 1000 that
-- are too many, a recompute does not.
--
-- Fails when a mark of an update, of a delete or of rollup_mark does not ask for
-- a recompute, and when an event that was there before, or is gone, is merged
-- (dr_query_waiting in query.c); when an event in two rows counts twice, and when
-- WHERE meets a row that is gone (dr_query_merge_added); when a change of zone
-- begins no new epoch (catalog_write.c); when late rows are merged into a table
-- that refuses what they alone give, or at the time of a NULL that a constant hides
-- (can_merge in heal.c); when a frozen row is
-- held by its mark (capture.c); when a row of dailyrollup.rollups that comes from
-- a dump says as much as one that was here all the time
-- (dailyrollup_rollup_inserted in catalog.c).
\ir lib/begin.sql
BEGIN;
SELECT no_plan();
CREATE SCHEMA lm;

CREATE FUNCTION lm.poison(live regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE guard text := (SELECT format('dailyrollup_%s_guard', r.id) FROM dailyrollup.rollups r WHERE r.live = poison.live);
BEGIN
  EXECUTE format('ALTER TABLE %s DISABLE TRIGGER %I', live, guard);
  EXECUTE format('UPDATE %s SET n = n + 1000', live);
  EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', live, guard);
END $$;
CREATE FUNCTION lm.late(live regclass, keys int, what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN
  SELECT * INTO r FROM rollup_refresh(live, rollup_watermark(live));
  RETURN NEXT is((r.action, r.late_keys)::text, ('late', keys)::text, what || ': late keys');
END $$;

CREATE TABLE lm.src (k text, ts timestamptz NOT NULL, v int, note text, id int) PARTITION BY RANGE (ts);
CREATE TABLE lm.src_1 PARTITION OF lm.src FOR VALUES FROM (MINVALUE) TO ('2026-01-02');
CREATE TABLE lm.src_2 PARTITION OF lm.src FOR VALUES FROM ('2026-01-02') TO ('2026-01-05');
CREATE TABLE lm.src_3 PARTITION OF lm.src DEFAULT;
CREATE INDEX ON lm.src (k, ts);
INSERT INTO lm.src SELECT k, '2026-01-01 12:00'::timestamptz + i * interval '1 hour', i, 'seed', 10 * i
FROM unnest(ARRAY['plain', 'again', 'updated', 'deleted', 'twice', 'mixed', 'wide', 'stored apart', 'marked', 'ranged', 'attached', 'moved', 'where', NULL]) k, generate_series(1, 20) i;
SELECT rollup_create('lm.live', $$SELECT k, count(*) AS n, sum(v) AS total, min(ts) AS first, max(ts) AS seen,
    latest(v, ts) FILTER (WHERE v % 2 = 0) AS even, max(ts) FILTER (WHERE v % 2 = 0) AS even_at,
    coalesce(latest(note, ts), 'none') AS note FROM lm.src WHERE v >= 0 GROUP BY k$$,
  time_column => 'ts', dedup_by => '{k,ts}', dedup_order => '{id}', mode => 'on') AS live \gset
SELECT count(*) AS refreshed FROM rollup_refresh('lm.live', '2026-01-03') \gset
SELECT lm.poison('lm.live');

-- which are merged
INSERT INTO lm.src VALUES ('plain', '2026-01-01 12:30', 6, 'late', 1), ('plain', '2026-01-02 23:30', 7, 'later', 2),
  ('new', '2026-01-01 09:00', 8, 'new', 1);
INSERT INTO lm.src VALUES ('twice', '2026-01-01 12:30', 100, 'loses', 2);
INSERT INTO lm.src VALUES ('twice', '2026-01-01 12:30', 200, 'wins', 1);
INSERT INTO lm.src VALUES ('where', '2026-01-01 12:30', -1, 'does not count', 1);
-- which are not
INSERT INTO lm.src SELECT k, ts, v + 1, 'better', id - 1 FROM lm.src WHERE k = 'again' AND id = 30;
INSERT INTO lm.src VALUES ('updated', '2026-01-01 12:30', 6, 'late', 1), ('deleted', '2026-01-01 12:30', 6, 'late', 1);
UPDATE lm.src SET v = v + 1 WHERE k = 'updated' AND id = 10;
DELETE FROM lm.src WHERE k = 'deleted' AND id IN (1, 20);
INSERT INTO lm.src VALUES ('mixed', '2026-01-01 12:30', 6, 'late', 1), ('mixed', '2026-01-01 13:00', 6, 'known', 1);
INSERT INTO lm.src VALUES ('wide', '2026-01-01 12:30', 6, (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 40) i), 1),
  ('stored apart', '2026-01-01 12:30', 6, (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i), 1);
INSERT INTO lm.src VALUES (NULL, '2026-01-01 12:30', 6, 'late', 1);
INSERT INTO lm.src VALUES ('ranged', '2025-12-31 12:30', 6, 'late', 1);
SELECT rollup_mark('lm.live', '2025-12-31', '2026-01-01') AS marked \gset
UPDATE lm.src SET ts = '2026-01-02 12:30' WHERE k = 'moved' AND id = 200;
SELECT * FROM lm.late('lm.live', 13, 'inserts and others');

SELECT results_eq($$SELECT l.k, l.n - d.n FROM lm.live l JOIN (SELECT k, count(*) AS n FROM (SELECT DISTINCT k, ts FROM lm.src WHERE v >= 0) e GROUP BY k) d
    ON l.k IS NOT DISTINCT FROM d.k ORDER BY l.k NULLS LAST$$,
  $$VALUES ('again', 0::bigint), ('attached', 1000), ('deleted', 0), ('marked', 1000), ('mixed', 0), ('moved', 0), ('new', 0),
    ('plain', 1000), ('ranged', 0), ('stored apart', 0), ('twice', 1000), ('updated', 0), ('where', 1000), ('wide', 0), (NULL, 0)$$,
  'which keys were merged and which recomputed');
SELECT results_eq($$SELECT k, n, total, first, even, note FROM lm.live WHERE k IN ('plain', 'new', 'twice', 'where') ORDER BY k$$,
  $$VALUES ('new', 1::bigint, 8::bigint, '2026-01-01 09:00'::timestamptz, 8, 'new'),
    ('plain', 1022, 223, '2026-01-01 12:30', 20, 'later'), ('twice', 1021, 410, '2026-01-01 12:30', 20, 'seed'),
    ('where', 1020, 210, '2026-01-01 13:00', 20, 'seed')$$,
  'what was merged');

-- nothing is left, and nothing is merged twice
SELECT is((SELECT action FROM rollup_refresh('lm.live', '2026-01-03')), 'none', 'no mark is left');

-- a level that is undone leaves no mark
SAVEPOINT a;
INSERT INTO lm.src VALUES ('plain', '2026-01-01 12:40', 6, 'undone', 1);
ROLLBACK TO a;
SELECT is((SELECT action FROM rollup_refresh('lm.live', '2026-01-03')), 'none', 'nor of a level that was undone');

-- the same transaction, before and after its own refresh, and one that is undone
INSERT INTO lm.src VALUES ('marked', '2026-01-02 12:50', 6, 'before', 1);
SAVEPOINT a;
SELECT * FROM lm.late('lm.live', 1, 'a refresh that is undone');
ROLLBACK TO a;
INSERT INTO lm.src VALUES ('marked', '2026-01-02 12:51', 6, 'after', 1);
SELECT * FROM lm.late('lm.live', 1, 'one that is not');
INSERT INTO lm.src VALUES ('marked', '2026-01-02 12:52', 6, 'after that', 1);
SELECT * FROM lm.late('lm.live', 1, 'the one after that');
SELECT is((SELECT n FROM lm.live WHERE k = 'marked'), 1023::bigint, 'each row was merged once');

-- the rows that lie in the window that is folded are folded
INSERT INTO lm.src VALUES ('marked', '2026-01-03 12:00', 1, 'tail', 1), ('marked', '2026-01-02 13:00', 1, 'late', 0);
SELECT results_eq($$SELECT action, folded_keys, late_keys FROM rollup_refresh('lm.live', '2026-01-04')$$,
  $$VALUES ('fold', 1::bigint, 1::bigint)$$, 'a fold with a late key');
SELECT is((SELECT n % 1000 FROM lm.live WHERE k = 'marked'), 25::bigint, 'each of the two rows counts once');
UPDATE lm.src SET ts = '2026-01-02 14:00' WHERE k = 'marked' AND ts = '2026-01-03 12:00';
SELECT * FROM lm.late('lm.live', 1, 'an update within a partition');
SELECT is((SELECT n FROM lm.live WHERE k = 'marked'), 25::bigint, 'is a reason to recompute');

-- from the tail into a partition before the watermark: for that one an insert
SELECT lm.poison('lm.live');
INSERT INTO lm.src VALUES ('moved', '2026-01-06 12:00', 1, 'tail', 7);
UPDATE lm.src SET ts = '2026-01-01 12:10' WHERE id = 7;
SELECT * FROM lm.late('lm.live', 1, 'a row that moves across the watermark');
SELECT is((SELECT n % 1000 FROM lm.live WHERE k = 'moved'), 21::bigint, 'counts once');

-- asked for: statements alone
INSERT INTO lm.src VALUES ('plain', '2026-01-01 12:41', 6, 'late', 1);
SET LOCAL dailyrollup.fold_method = statement;
SELECT * FROM lm.late('lm.live', 1, 'fold_method = statement');
SELECT is((SELECT n FROM lm.live WHERE k = 'plain'), 23::bigint, 'has each key recomputed');
RESET dailyrollup.fold_method;

-- what begins an epoch
INSERT INTO lm.src VALUES ('where', '2026-01-01 12:41', 6, 'late', 1);
SELECT rollup_alter('lm.live', time_zone => 'Asia/Tokyo') IS NOT NULL AS altered \gset
SET CONSTRAINTS ALL IMMEDIATE;
SELECT is((SELECT count(*) FROM dailyrollup.rollups r WHERE r.live = 'lm.live'::regclass AND r.epoch > 1), 1::bigint, 'a change of zone begins an epoch');
SELECT rollup_drop('lm.live', true) IS NULL AS dropped \gset

-- a row that is gone without a trace: the key has what the source has
SELECT rollup_create('lm.gone', 'SELECT k, count(*) AS n FROM lm.src GROUP BY k', 'ts', dedup_by => '{k,ts}', mode => 'on') AS live \gset
SELECT count(*) AS refreshed FROM rollup_refresh('lm.gone', '2026-01-03') \gset
SAVEPOINT a;
INSERT INTO lm.src VALUES ('new', '2026-01-02 12:53', 1, 'late', 1), ('gone', '2026-01-02 12:53', 1, 'late', 1);
ALTER TABLE lm.src DETACH PARTITION lm.src_2;
SELECT * FROM lm.late('lm.gone', 2, 'rows that were detached since');
SELECT results_eq($$SELECT k, n FROM lm.gone WHERE k IN ('new', 'gone')$$, $$VALUES ('new', 1::bigint)$$, 'are not merged');
ROLLBACK TO a;
SELECT rollup_drop('lm.gone', true) IS NULL AS dropped \gset

-- a late value at the time of a NULL that a constant hides: it wins; and where key
-- and time tell an event, nothing comes at that time but the event once more
SELECT rollup_create(name, $$SELECT k, count(*) AS n, min(ts) AS first, max(ts) AS seen, coalesce(earliest(v, ts), -1) AS v, coalesce(latest(v, ts), -2) AS w
  FROM lm.src GROUP BY k$$, 'ts', dedup_by => dedup, dedup_order => ordered, mode => 'on') AS live
FROM (VALUES ('lm.tied', NULL::name[], NULL::name[]), ('lm.tied_events', '{k,ts,note}', '{id}'), ('lm.untied', '{ts,k}', '{id}')) v(name, dedup, ordered);
INSERT INTO lm.src VALUES ('hidden', '2026-01-01 12:00', NULL, 'a', 2);
SELECT rollup_refresh(r, '2026-01-03') IS NOT NULL AS refreshed FROM unnest('{lm.tied,lm.tied_events,lm.untied}'::regclass[]) r;
SELECT lm.poison(r) FROM unnest('{lm.tied,lm.tied_events,lm.untied}'::regclass[]) r;
INSERT INTO lm.src VALUES ('hidden', '2026-01-01 12:00', 0, 'b', 1), ('plain', '2026-01-01 12:20', 9, 'late', 9);
SELECT lm.late(r, 2, r::text) FROM unnest('{lm.tied,lm.tied_events,lm.untied}'::regclass[]) r;
SELECT results_eq($$SELECT n, v, w FROM lm.tied WHERE k = 'hidden' UNION ALL SELECT n, v, w FROM lm.tied_events WHERE k = 'hidden' UNION ALL SELECT n, v, w FROM lm.untied WHERE k = 'hidden'$$,
  'VALUES (2::bigint, 0, 0), (2, 0, 0), (1, 0, 0)', 'a late value at the time of a hidden NULL wins');
SELECT results_eq($$SELECT n > 1000 FROM lm.tied WHERE k = 'plain' UNION ALL SELECT n > 1000 FROM lm.tied_events WHERE k = 'plain' UNION ALL SELECT n > 1000 FROM lm.untied WHERE k = 'plain'$$,
  'VALUES (false), (false), (true)', 'where one may come, nothing is merged');
SELECT rollup_drop(r, true) IS NULL AS dropped FROM unnest('{lm.tied,lm.tied_events,lm.untied}'::regclass[]) r;

-- without deduplication each row counts
SELECT rollup_create('lm.every', 'SELECT k, count(*) AS n, sum(v) AS total FROM lm.src GROUP BY k', 'ts', mode => 'on') AS live \gset
SELECT count(*) AS refreshed FROM rollup_refresh('lm.every', '2026-01-03') \gset
SELECT lm.poison('lm.every');
INSERT INTO lm.src SELECT k, ts, v, note, id FROM lm.src WHERE k = 'plain' AND v IN (1, 2);
INSERT INTO lm.src VALUES (NULL, '2026-01-01', 1, '', 0);
SELECT * FROM lm.late('lm.every', 2, 'without deduplication');
SELECT results_eq($$SELECT l.k, l.n - d.n FROM lm.every l JOIN (SELECT k, count(*) AS n FROM lm.src GROUP BY k) d
    ON l.k IS NOT DISTINCT FROM d.k WHERE l.k = 'plain' OR l.k IS NULL ORDER BY l.k$$,
  $$VALUES ('plain', 1000::bigint), (NULL, 1000)$$, 'all are merged, keys with a NULL too');

-- what a dump brings back: the rollup, what it has, and then the rows
CREATE TEMP TABLE restored AS SELECT * FROM dailyrollup.rollups r WHERE r.live = 'lm.every'::regclass;
DELETE FROM dailyrollup.rollups r WHERE r.live = 'lm.every'::regclass;
INSERT INTO dailyrollup.rollups SELECT * FROM restored;
INSERT INTO lm.src VALUES ('plain', '2026-01-01 12:43', 1, 'restored', 1);
SELECT * FROM lm.late('lm.every', 1, 'a row after a dump was read');
SELECT is((SELECT n FROM lm.every WHERE k = 'plain'), (SELECT count(*) FROM lm.src WHERE k = 'plain' AND ts < '2026-01-03'), 'has its key recomputed');
SELECT action AS folded FROM rollup_refresh('lm.every', '2026-01-04') \gset
SELECT lm.poison('lm.every');
INSERT INTO lm.src VALUES ('plain', '2026-01-01 12:44', 1, 'late', 1);
SELECT is((SELECT late_keys FROM rollup_refresh('lm.every', '2026-01-04')), 1::bigint, 'a late row after the next fold');
SELECT is((SELECT n FROM lm.every WHERE k = 'plain'), 1000 + (SELECT count(*) FROM lm.src WHERE k = 'plain' AND ts < '2026-01-04'), 'is merged');

-- a table that may refuse, or change, what late rows alone give a key
CREATE FUNCTION lm.twice_at_least() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.n < 2 THEN RAISE 'once alone'; END IF;
  RETURN NEW;
END $$;
CREATE FUNCTION lm.picky(what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO lm.src VALUES ('plain', '2026-01-01 12:45', NULL, 'late', 1);
  RETURN QUERY SELECT * FROM lm.late('lm.every', 1, what);
  RETURN NEXT is((SELECT n FROM lm.every WHERE k = 'plain'), (SELECT count(*) FROM lm.src WHERE k = 'plain' AND ts < '2026-01-04'), what || ': recomputed');
END $$;
SAVEPOINT a;
ALTER TABLE lm.every ADD CHECK (n > 1) NOT VALID;
SELECT * FROM lm.picky('a CHECK');
ROLLBACK TO a;
ALTER TABLE lm.every ALTER total SET NOT NULL;
SELECT * FROM lm.picky('a measure that is NOT NULL');
ROLLBACK TO a;
ALTER TABLE lm.every ADD inverse numeric GENERATED ALWAYS AS (1.0 / (n - 1)) STORED;
SELECT * FROM lm.picky('a generated column');
ROLLBACK TO a;
CREATE TRIGGER twice BEFORE INSERT ON lm.every FOR EACH ROW EXECUTE FUNCTION lm.twice_at_least();
SELECT * FROM lm.picky('a trigger');
ROLLBACK TO a;
CREATE TABLE lm.pages (k text NOT NULL UNIQUE);
INSERT INTO lm.pages SELECT DISTINCT k FROM lm.src WHERE k IS NOT NULL;
ALTER TABLE lm.every ADD FOREIGN KEY (k) REFERENCES lm.pages (k) NOT VALID;
CREATE TRIGGER many AFTER INSERT OR UPDATE ON lm.every FOR EACH ROW EXECUTE FUNCTION lm.twice_at_least();
INSERT INTO lm.src VALUES ('plain', '2026-01-01 12:45', NULL, 'late', 1);
SELECT * FROM lm.late('lm.every', 1, 'what sees merged rows alone');
SELECT cmp_ok((SELECT n FROM lm.every WHERE k = 'plain'), '>', 1000::bigint, 'does not stop the merge');
ROLLBACK TO a;
SELECT rollup_drop('lm.every', true) IS NULL AS dropped \gset

-- a row that does not count any more is not looked at
SELECT rollup_create('lm.divided', 'SELECT k, count(*) AS n FROM lm.src WHERE 100 / id > 0 GROUP BY k', 'ts', mode => 'on') AS live \gset
DELETE FROM lm.src WHERE id = 0;
SELECT count(*) AS refreshed FROM rollup_refresh('lm.divided', '2026-01-03') \gset
INSERT INTO lm.src VALUES ('plain', '2026-01-01', 1, '', 0), ('twice', '2026-01-01', 1, '', 1);
SELECT throws_ok($$SELECT rollup_refresh('lm.divided', '2026-01-03')$$, '22012', NULL, 'a late row that WHERE cannot take');
UPDATE lm.src SET id = 1 WHERE id = 0;
SELECT * FROM lm.late('lm.divided', 2, 'when it is gone');
SELECT rollup_drop('lm.divided', true) IS NULL AS dropped \gset

-- rows that older snapshots see too, without their marks
CREATE TABLE lm.iced (k text, ts timestamptz NOT NULL) PARTITION BY LIST (k);
SELECT rollup_create('lm.of_iced', 'SELECT k, count(*) AS n FROM lm.iced GROUP BY k', 'ts', mode => 'on') AS live \gset
SELECT count(*) AS refreshed FROM rollup_refresh('lm.of_iced', '2026-01-03') \gset
CREATE TABLE lm.iced_a (ts timestamptz NOT NULL, k text);
ALTER TABLE lm.iced ATTACH PARTITION lm.iced_a FOR VALUES IN ('a');
INSERT INTO lm.iced VALUES ('a', '2026-01-01');
SELECT * FROM lm.late('lm.of_iced', 1, 'an ordinary row');
SELECT lm.poison('lm.of_iced');
COPY lm.iced_a FROM STDIN WITH (FREEZE);
2026-01-01 00:00+00	a
\.
SELECT * FROM lm.late('lm.of_iced', 1, 'a frozen one');
SELECT is((SELECT n FROM lm.of_iced), 2::bigint, 'has its key recomputed');

-- domains are not copied into marks
CREATE DOMAIN lm.reading AS int CHECK (VALUE < 1000);
CREATE TABLE lm.domained (k text, ts timestamptz NOT NULL, v lm.reading);
INSERT INTO lm.domained VALUES ('a', '2026-01-01', 1);
SELECT rollup_create('lm.of_domain', 'SELECT k, count(*) AS n, max(v) AS v FROM lm.domained GROUP BY k', 'ts', mode => 'on') AS live \gset
SELECT count(*) AS refreshed FROM rollup_refresh('lm.of_domain', '2026-01-03') \gset
SELECT lm.poison('lm.of_domain');
INSERT INTO lm.domained VALUES ('a', '2026-01-01', 999);
SELECT lives_ok('ALTER DOMAIN lm.reading DROP CONSTRAINT reading_check', 'a domain is changed');
SELECT lives_ok('ALTER DOMAIN lm.reading ADD CHECK (VALUE < 10) NOT VALID', 'so that a value is not valid any more');
SELECT * FROM lm.late('lm.of_domain', 1, 'a domain');
SELECT results_eq('SELECT n, v::int FROM lm.of_domain', 'VALUES (2::bigint, 999)', 'has its keys recomputed');
SELECT * FROM finish();
ROLLBACK;
