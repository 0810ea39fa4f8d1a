-- The definition of a rollup is two views that belong to its owner, who can
-- replace them, and tables whose columns he can change.  Whatever he makes of
-- them: no crash and no internal error, for anybody; the rollups of others are
-- refreshed, counted and listed as before; and the rollup can still be dropped.
--
-- Protects is_plain, check_events_view and check_definition_view in
-- definition.c, try_list_late in check.c, and inspect in drop.c.
\ir lib/begin.sql

SELECT no_plan();

CREATE ROLE av_owner;
CREATE ROLE av_writer;
CREATE ROLE av_reader;
CREATE ROLE av_other;
CREATE SCHEMA av AUTHORIZATION av_owner;
CREATE SCHEMA av_other AUTHORIZATION av_other;
GRANT USAGE ON SCHEMA av, av_other TO PUBLIC;
CREATE SCHEMA av_helpers;
GRANT USAGE ON SCHEMA av_helpers TO PUBLIC;
SET search_path = av_helpers, public;
\ir lib/roles.sql

-- the rollup of somebody else, which must not suffer
SET ROLE av_other;
CREATE TABLE av_other.events (k text NOT NULL, ts timestamptz NOT NULL);
INSERT INTO av_other.events VALUES ('a', '2026-01-01');
SELECT rollup_create('av_other.live', 'SELECT k, count(*) AS n FROM av_other.events GROUP BY k', 'ts', mode => 'on');
SELECT rollup_refresh('av_other.live', '2026-01-03 00:00Z');
INSERT INTO av_other.events VALUES ('b', '2026-01-01');
RESET ROLE;

-- A source, a table like it, and a rollup with a key that waits; the names of
-- the rollup's objects.
CREATE FUNCTION make(dedup text DEFAULT NULL) RETURNS dailyrollup.rollups LANGUAGE plpgsql AS $$
DECLARE made dailyrollup.rollups;
BEGIN
  SET LOCAL ROLE av_owner;
  CREATE TABLE av.events (ts timestamptz NOT NULL, k text NOT NULL, v int, w int, x text) PARTITION BY RANGE (ts);
  CREATE TABLE av.events_1 PARTITION OF av.events FOR VALUES FROM ('2026-01-01') TO ('2300-01-01');
  CREATE TABLE av.alike (LIKE av.events);
  CREATE TABLE av.attached (LIKE av.events);
  INSERT INTO av.alike VALUES ('2026-01-01', 'a', 1, 1, 'x');
  INSERT INTO av.attached VALUES ('2025-12-01', 'a', 1, 1, 'x');
  INSERT INTO av.events VALUES ('2026-01-01', 'a', 1, 1, 'x'), ('2026-01-04', 'b', 2, 2, 'x');
  PERFORM public.rollup_create('av.live', 'SELECT k, count(*) AS n, sum(v) AS total, max(ts) AS seen, public.latest(v, ts) AS last FROM av.events GROUP BY k',
                               'ts', dedup_by => dedup::name[], mode => 'on');
  PERFORM public.rollup_refresh('av.live', '2026-01-03 00:00Z');
  GRANT SELECT ON av.live_current TO av_reader;
  GRANT INSERT ON av.events, av.events_1 TO av_writer;
  INSERT INTO av.events VALUES ('2026-01-02', 'a', 1, 1, 'x');
  RESET ROLE;
  SELECT * INTO made FROM dailyrollup.rollups WHERE live = 'av.live'::regclass;
  RETURN made;
END $$;

-- What anybody may then do, with what becomes of it.
CREATE FUNCTION consequences() RETURNS TABLE (role text, statement text, became text) LANGUAGE plpgsql AS $$
BEGIN
  FOR role, statement IN SELECT * FROM (VALUES
      ('av_writer', $s$INSERT INTO av.events VALUES ('2026-01-01', 'c', 1)$s$),
      ('av_writer', $s$INSERT INTO av.events_1 VALUES ('2026-01-01', 'c', 1)$s$),
      ('av_writer', $s$INSERT INTO av.events VALUES ('2299-01-01', 'c', 1)$s$),
      ('av_owner', $s$UPDATE av.events SET v = v + 1$s$),
      ('av_owner', $s$DELETE FROM av.events$s$),
      ('av_reader', 'SELECT * FROM av.live_current'),
      ('av_reader', $s$SELECT * FROM av.live_current WHERE k = 'a'$s$),
      ('postgres', 'SELECT * FROM av.live_current'),
      ('postgres', $s$SELECT public.rollup_refresh('av.live', '2026-01-03 00:00Z')$s$),
      ('postgres', $s$SELECT public.rollup_refresh('av.live', '2026-01-06 00:00Z')$s$),
      ('postgres', $s$SELECT public.rollup_reseed('av.live'), public.rollup_refresh('av.live', '2026-01-06 00:00Z')$s$),
      ('postgres', 'SELECT public.rollup_refresh(NULL, ''2026-01-06 00:00Z'')'),
      ('postgres', $s$SELECT public.rollup_check('av.live')$s$),
      ('postgres', 'SELECT public.rollup_check()'),
      ('postgres', $s$SELECT public.rollup_verify('av.live')$s$),
      ('postgres', $s$SELECT public.rollup_definition('av.live', '2026-01-03')$s$),
      ('postgres', $s$SELECT public.rollup_mark('av.live', '-infinity', 'infinity')$s$),
      ('postgres', $s$SELECT public.rollup_watermark('av.live')$s$),
      ('postgres', 'SELECT * FROM public.rollup_late'),
      ('postgres', 'SELECT * FROM public.rollup_status'),
      ('postgres', 'SELECT * FROM public.rollup_runs'),
      ('postgres', 'ALTER TABLE av.events ATTACH PARTITION av.attached FOR VALUES FROM (''2025-12-01'') TO (''2026-01-01'')'),
      ('postgres', 'CREATE TABLE av.events_2 PARTITION OF av.events FOR VALUES FROM (''2300-01-01'') TO (''2301-01-01'')'),
      ('postgres', 'ALTER TABLE av.events DETACH PARTITION av.events_1'),
      ('postgres', 'TRUNCATE av.events'),
      ('postgres', 'ALTER TABLE av.events OWNER TO av_other'),
      ('postgres', 'ALTER TABLE av.live RENAME COLUMN n TO m'),
      ('postgres', 'DROP TABLE av.events CASCADE'),
      ('postgres', 'DROP TABLE av.live CASCADE'),
      ('postgres', 'DROP OWNED BY av_owner CASCADE'),
      ('av_owner', $s$SELECT public.rollup_drop('av.live', true)$s$)) s(role, statement)
  LOOP
    BEGIN
      became := try(role, statement);
      RAISE EXCEPTION USING ERRCODE = 'P0099';
    EXCEPTION WHEN SQLSTATE 'P0099' THEN NULL;
    END;
    RETURN NEXT;
  END LOOP;
END $$;

-- Each way in a transaction of its own that is rolled back: the rollup made,
-- tampered with, and what becomes of all that anybody does.
CREATE FUNCTION tampered(way text, statements text, dedup text DEFAULT NULL, harmless bool DEFAULT false) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  r dailyrollup.rollups;
  done text;
  bad text;
  refused text;
  others text;
  dropped text;
  droppable text;
BEGIN
  BEGIN
    r := make(dedup);
    done := try('av_owner', format(statements, 'av.' || split_part(r.events::text, '.', 2), 'av.' || split_part(r.definition::text, '.', 2),
                                   r.events, r.definition, r.marks, r.key_type));
    IF done = 'ok' THEN
      SELECT string_agg(format('%s: %s: %s', role, statement, became), E'\n') FILTER (WHERE became ~ '^XX'),
             string_agg(format('%s: %s', statement, became), E'\n') FILTER (WHERE statement ~ 'rollup_(status|late|runs|watermark)|rollup_drop|DROP|2299' AND became <> 'ok'),
             string_agg(DISTINCT left(became, 5), ' ') FILTER (WHERE statement ~ 'INSERT.*01-01')
      INTO bad, droppable, refused FROM consequences();
      SELECT (SELECT string_agg(s.rollup::text || ' ' || s.late_keys, ', ' ORDER BY s.rollup::text) FROM rollup_status s WHERE s.rollup = 'av_other.live'::regclass) || '; ' ||
             (SELECT string_agg(l.key->>'k', ', ') FROM rollup_late l WHERE l.rollup = 'av_other.live'::regclass) INTO others;
      SET LOCAL ROLE av_other;
      others := others || '; ' || (SELECT action FROM public.rollup_refresh(NULL, '2026-01-03 00:00Z'));
      CREATE TABLE av_other.goes ();
      DROP TABLE av_other.goes;
      RESET ROLE;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'P0099';
  EXCEPTION WHEN SQLSTATE 'P0099' THEN NULL;
  END;
  RETURN NEXT is(done, 'ok', way || ': done');
  RETURN NEXT is(bad, NULL, way || ': no internal error');
  RETURN NEXT is(droppable, NULL, way || ': watched and dropped, rows of the day written');
  RETURN NEXT is(others, 'av_other.live 1; b; late', way || ': others do not notice');
  IF NOT harmless THEN
    RETURN NEXT isnt(refused, 'ok', way || ': late rows are refused, not lost');
  END IF;
END $$;

-- as a control: untouched
SELECT tampered('nothing', 'SELECT 1', harmless => true);
BEGIN;
SELECT make();
SELECT is(string_agg(statement || ': ' || became, E'\n') FILTER (WHERE became <> 'ok'), NULL, 'untouched, all of it works') FROM consequences();
ROLLBACK;

-- ==== the events, moved to where the owner may create, and replaced
SELECT tampered('events ' || way, 'ALTER VIEW %3$s SET SCHEMA av; CREATE OR REPLACE VIEW %1$s AS ' || query)
FROM (VALUES
  ('without FROM', $$SELECT now() AS ts, 'x'::text AS k, 1 AS v$$),
  ('of VALUES', $$SELECT column1 AS ts, column2 AS k, column3 AS v FROM (VALUES (now(), 'x'::text, 1)) s$$),
  ('of two tables', 'SELECT s.ts, s.k, t.v FROM av.events s, av.events t'),
  ('of a join', 'SELECT s.ts, s.k, t.v FROM av.events s JOIN av.events t ON true'),
  ('of a left join', 'SELECT s.ts, s.k, t.v FROM av.events s LEFT JOIN av.events t USING (k)'),
  ('of a left join, one side', 'SELECT s.ts, s.k, s.v FROM av.events s LEFT JOIN av.alike t ON true'),
  ('of a full join, one side', 'SELECT s.ts, s.k, s.v FROM av.events s FULL JOIN av.alike t USING (k)'),
  ('of a union', 'SELECT ts, k, v FROM av.events UNION ALL SELECT ts, k, v FROM av.events'),
  ('of an intersection', 'SELECT ts, k, v FROM av.events INTERSECT SELECT ts, k, v FROM av.alike'),
  ('of a subquery', 'SELECT ts, k, v FROM (SELECT * FROM av.events OFFSET 0) s'),
  ('of a function', $$SELECT s AS ts, 'x'::text AS k, 1 AS v FROM generate_series(now(), now(), '1 day') s$$),
  ('of ROWS FROM', $$SELECT ts, 'x'::text AS k, v FROM ROWS FROM (generate_series(now(), now(), '1 day'), generate_series(1, 2)) s(ts, v)$$),
  ('of a lateral function', 'SELECT s.ts, s.k, g AS v FROM av.events s, generate_series(1, s.v) g'),
  ('of a CTE', 'WITH s AS MATERIALIZED (SELECT * FROM av.events) SELECT ts, k, v FROM s'),
  ('with a CTE', 'WITH s AS (SELECT 1) SELECT ts, k, v FROM av.events'),
  ('with aggregates', 'SELECT max(ts) AS ts, k, max(v) AS v FROM av.events GROUP BY k'),
  ('with aggregates of all', 'SELECT max(ts) AS ts, max(k) AS k, max(v) AS v FROM av.events'),
  ('with grouping sets', 'SELECT ts, k, v FROM av.events GROUP BY GROUPING SETS ((ts, k, v), ())'),
  ('with GROUP BY', 'SELECT ts, k, v FROM av.events GROUP BY ts, k, v'),
  ('with HAVING', 'SELECT ts, k, v FROM av.events GROUP BY ts, k, v HAVING count(*) > 1'),
  ('with a window', 'SELECT ts, k, max(v) OVER () AS v FROM av.events'),
  ('with a set-returning function', 'SELECT ts, k, generate_series(1, 2) AS v FROM av.events'),
  ('with a subquery in a column', 'SELECT ts, k, (SELECT 1) AS v FROM av.events'),
  ('with a subquery in WHERE', 'SELECT ts, k, v FROM av.events WHERE v IN (SELECT v FROM av.alike)'),
  ('with a constant', $$SELECT ts, 'x'::text AS k, v FROM av.events$$),
  ('with an expression', 'SELECT ts, lower(k) AS k, v FROM av.events'),
  ('with a system column', 'SELECT ts, k, v, ctid AS c FROM av.events'),
  ('with a whole row', 'SELECT ts, k, v, s AS r FROM av.events s'),
  ('with LIMIT', 'SELECT ts, k, v FROM av.events LIMIT 1'),
  ('with OFFSET', 'SELECT ts, k, v FROM av.events OFFSET 1'),
  ('with DISTINCT', 'SELECT DISTINCT ts, k, v FROM av.events'),
  ('FOR UPDATE', 'SELECT ts, k, v FROM av.events FOR UPDATE')) w(way, query);
-- these a rollup could be made of, or are the owner's own loss
SELECT tampered('events ' || way, 'ALTER VIEW %3$s SET SCHEMA av; CREATE OR REPLACE VIEW %1$s AS ' || query, harmless => true)
FROM (VALUES
  ('of one partition', 'SELECT ts, k, v FROM av.events_1'),
  ('of another table', 'SELECT ts, k, v FROM av.alike'),
  ('of the view that is exact', 'SELECT seen AS ts, k, last AS v FROM av.live_current'),
  ('of live', 'SELECT seen AS ts, k, last AS v FROM av.live'),
  ('of the definition', 'SELECT seen AS ts, k, last AS v FROM %4$s'),
  ('of itself', 'SELECT ts, k, v FROM %1$s'),
  ('of a catalog', $$SELECT now() AS ts, relname::text COLLATE "default" AS k, 1 AS v FROM pg_catalog.pg_class$$),
  ('of a catalog''s columns', $$SELECT stats_reset AS ts, datname::text COLLATE "default" AS k, 1 AS v FROM pg_catalog.pg_stat_database$$),
  ('with WHERE', 'SELECT ts, k, v FROM av.events WHERE false'),
  ('with ORDER BY', 'SELECT ts, k, v FROM av.events ORDER BY random()'),
  ('with ORDER BY another column', 'SELECT ts, k, v FROM av.events ORDER BY x, w'),
  ('sampled', 'SELECT ts, k, v FROM av.events TABLESAMPLE SYSTEM (1)'),
  ('of ONLY', 'SELECT ts, k, v FROM ONLY av.events'),
  ('with another column', 'SELECT ts, k, w AS v FROM av.events'),
  ('with a column twice', 'SELECT ts, k, v, v AS v2, ts AS ts2 FROM av.events'),
  ('with more columns', 'SELECT ts, k, v, w, x FROM av.events'),
  ('with a security barrier', 'SELECT ts, k, v FROM av.events; ALTER VIEW %1$s SET (security_barrier, security_invoker)')) w(way, query);
-- that look for duplicates
SELECT tampered('deduplicated events ' || way, 'ALTER VIEW %3$s SET SCHEMA av; CREATE OR REPLACE VIEW %1$s AS ' || query, '{k,ts}', harmless => true)
FROM (VALUES
  ('with DISTINCT ON alone', 'SELECT DISTINCT ON (k) ts, k, v FROM av.events'),
  ('with DISTINCT ON of an expression', 'SELECT DISTINCT ON (lower(k)) ts, k, v FROM av.events ORDER BY lower(k)'),
  ('with DISTINCT ON of a column that is not selected', 'SELECT DISTINCT ON (x) ts, k, v FROM av.events ORDER BY x, w'),
  ('with DISTINCT ON of a constant', 'SELECT DISTINCT ON (1 + 1) ts, k, v FROM av.events'),
  ('with DISTINCT', 'SELECT DISTINCT ts, k, v FROM av.events'),
  ('with neither', 'SELECT ts, k, v FROM av.events'),
  ('in another order', 'SELECT DISTINCT ON (k, ts) ts, k, v FROM av.events ORDER BY ts DESC, k USING >, v NULLS FIRST')) w(way, query);

-- ==== the definition likewise
SELECT tampered('definition ' || way, 'ALTER VIEW %4$s SET SCHEMA av; CREATE OR REPLACE VIEW %2$s AS ' || query, harmless => harmless)
FROM (SELECT way, 'SELECT ' || replace(query, 'REST', 'sum(v) AS total, max(ts) AS seen, public.latest(v, ts) AS last'), way ~ '^\*' FROM (VALUES
  ('without FROM', $$'x'::text AS k, 1::bigint AS n, 1::bigint AS total, now() AS seen, 1 AS last$$),
  ('without FROM, grouped', $$'x'::text AS k, count(*) AS n, 1::bigint AS total, now() AS seen, 1 AS last GROUP BY 1$$),
  ('of VALUES', $$column1 AS k, count(*) AS n, 1::bigint AS total, now() AS seen, 1 AS last FROM (VALUES ('x'::text)) s GROUP BY column1$$),
  ('of the source', 'k, count(*) AS n, REST FROM av.events GROUP BY k'),
  ('of a table', 'k, count(*) AS n, REST FROM av.alike GROUP BY k'),
  ('of itself', 'k, n, total, seen, last FROM %2$s'),
  ('of the view that is exact', 'k, count(*) AS n, max(total) AS total, max(seen) AS seen, max(last) AS last FROM av.live_current GROUP BY k'),
  ('of a join', 'e.k, count(*) AS n, sum(e.v) AS total, max(e.ts) AS seen, public.latest(e.v, e.ts) AS last FROM %3$s e JOIN av.alike a ON true GROUP BY e.k'),
  ('of a left join', 'e.k, count(*) AS n, sum(e.v) AS total, max(e.ts) AS seen, public.latest(e.v, e.ts) AS last FROM %3$s e LEFT JOIN av.alike a ON true GROUP BY e.k'),
  ('of two views', 'e.k, count(*) AS n, sum(e.v) AS total, max(e.ts) AS seen, public.latest(e.v, e.ts) AS last FROM %3$s e, %3$s a GROUP BY e.k'),
  ('of a subquery', 'k, count(*) AS n, REST FROM (SELECT * FROM %3$s OFFSET 0) s GROUP BY k'),
  ('of a union', 'k, count(*) AS n, REST FROM %3$s GROUP BY k UNION ALL SELECT k, count(*) AS n, REST FROM %3$s GROUP BY k'),
  ('of a CTE', 'k, n, total, seen, last FROM (WITH s AS (SELECT 1) SELECT k, count(*) AS n, REST FROM %3$s GROUP BY k) x'),
  ('not grouped', 'k, v::bigint AS n, v::bigint AS total, ts AS seen, v AS last FROM %3$s'),
  ('grouped by nothing', 'max(k) AS k, count(*) AS n, REST FROM %3$s'),
  ('grouped by the empty set', 'max(k) AS k, count(*) AS n, REST FROM %3$s GROUP BY ()'),
  ('with grouping sets', 'k, count(*) AS n, REST FROM %3$s GROUP BY GROUPING SETS ((k), ())'),
  ('with ROLLUP', 'k, count(*) AS n, REST FROM %3$s GROUP BY ROLLUP (k)'),
  ('with GROUPING', 'k, GROUPING(k)::bigint AS n, REST FROM %3$s GROUP BY k'),
  ('with bare GROUPING', 'k, count(*) AS n, sum(v) AS total, max(ts) AS seen, GROUPING(k) AS last FROM %3$s GROUP BY k'),
  ('grouped by more than is selected', 'k, count(*) AS n, REST FROM %3$s GROUP BY k, ts'),
  ('with HAVING', 'k, count(*) AS n, REST FROM %3$s GROUP BY k HAVING count(*) > 0'),
  ('with DISTINCT', 'DISTINCT k, count(*) AS n, REST FROM %3$s GROUP BY k'),
  ('with DISTINCT ON', 'DISTINCT ON (k) k, count(*) AS n, REST FROM %3$s GROUP BY k'),
  ('with ORDER BY', 'k, count(*) AS n, REST FROM %3$s GROUP BY k ORDER BY k'),
  ('with LIMIT', 'k, count(*) AS n, REST FROM %3$s GROUP BY k LIMIT 1'),
  ('with a window', 'k, count(*) OVER () AS n, REST FROM %3$s GROUP BY k'),
  ('with a window over an aggregate', 'k, sum(count(*)) OVER ()::bigint AS n, REST FROM %3$s GROUP BY k'),
  ('with a set-returning function', 'k, generate_series(1, 2)::bigint AS n, REST FROM %3$s GROUP BY k'),
  ('with a subquery', 'k, (SELECT count(*) FROM av.alike) AS n, REST FROM %3$s GROUP BY k'),
  ('with a subquery in FILTER', 'k, count(*) FILTER (WHERE v IN (SELECT v FROM av.alike)) AS n, REST FROM %3$s GROUP BY k'),
  ('with an aggregate of an outer query', '(SELECT k) AS k, count(*) AS n, REST FROM %3$s GROUP BY k'),
  ('with a constant measure', 'k, 1::bigint AS n, REST FROM %3$s GROUP BY k'),
  ('with a bare key as a measure', 'k, length(k)::bigint AS n, REST FROM %3$s GROUP BY k'),
  ('with an expression over an aggregate', 'k, count(*) + 1 AS n, REST FROM %3$s GROUP BY k'),
  ('with an expression of two aggregates', 'k, count(*) + count(v) AS n, REST FROM %3$s GROUP BY k'),
  ('with an aggregate in CASE', 'k, CASE WHEN count(*) > 0 THEN 1::bigint ELSE 2 END AS n, REST FROM %3$s GROUP BY k'),
  ('with coalesce of two aggregates', 'k, coalesce(sum(v), count(*)) AS n, REST FROM %3$s GROUP BY k'),
  ('with coalesce of three', 'k, coalesce(sum(v), NULL, 0) AS n, REST FROM %3$s GROUP BY k'),
  ('with an aggregate of two arguments', 'k, regr_count(v, v) AS n, REST FROM %3$s GROUP BY k'),
  ('with an ordered-set aggregate', 'k, mode() WITHIN GROUP (ORDER BY v::bigint) AS n, REST FROM %3$s GROUP BY k'),
  ('with a hypothetical-set aggregate', 'k, rank(1) WITHIN GROUP (ORDER BY v) AS n, REST FROM %3$s GROUP BY k'),
  ('with a DISTINCT aggregate', 'k, count(DISTINCT v) AS n, REST FROM %3$s GROUP BY k'),
  ('with an average', 'k, avg(v)::bigint AS n, REST FROM %3$s GROUP BY k'),
  ('without the time of latest', 'k, count(*) AS n, sum(v) AS total, min(ts) AS seen, public.latest(v, ts) AS last FROM %3$s GROUP BY k'),
  ('with a whole row in latest', 'k, count(*) AS n, sum(v) AS total, max(ts) AS seen, (public.latest(e, ts)).v AS last FROM %3$s e GROUP BY k'),
  ('* with a whole row counted', 'k, count(e) AS n, REST FROM %3$s e GROUP BY k'),
  ('with an ordered aggregate', 'k, sum(v ORDER BY v) AS n, REST FROM %3$s GROUP BY k'),
  ('* with WHERE', 'k, count(*) AS n, REST FROM %3$s WHERE false GROUP BY k'),
  ('* with random()', 'k, count(*) FILTER (WHERE random() < 0.5) AS n, REST FROM %3$s GROUP BY k'),
  ('* with other aggregates', 'k, sum(v) AS n, count(*) AS total, max(ts) AS seen, min(v) AS last FROM %3$s GROUP BY k'),
  ('* with more columns', 'k, count(*) AS n, REST, max(v) AS x, min(v) AS y FROM %3$s GROUP BY k'),
  ('* with one more key', 'k, count(*) AS n, REST, v FROM %3$s GROUP BY k, v'),
  ('* with a key of another expression', 'lower(k) AS k, count(*) AS n, REST FROM %3$s GROUP BY lower(k)'),
  ('* with a constant key', $$'x'::text AS k, count(*) AS n, REST FROM %3$s GROUP BY 1$$)) w(way, query)) w(way, query, harmless);

-- ==== renames, and other changes of what belongs to the owner
SELECT tampered('owner: ' || way, statements, harmless => true)
FROM (VALUES
  ('column of the events renamed', 'ALTER VIEW %3$s RENAME COLUMN v TO w'),
  ('column of the definition renamed', 'ALTER VIEW %4$s RENAME COLUMN n TO m'),
  ('views renamed', 'ALTER VIEW %4$s SET SCHEMA av; ALTER VIEW %2$s RENAME TO d; ALTER VIEW %3$s SET SCHEMA av; ALTER VIEW %1$s RENAME TO e'),
  ('marks moved and renamed', 'ALTER TABLE %5$s SET SCHEMA av'),
  ('a column of the marks renamed', 'ALTER TABLE %5$s RENAME COLUMN k1 TO k2'),
  ('what tells long keys renamed', 'ALTER TABLE %5$s RENAME COLUMN plain TO p'),
  ('a column more in the marks', 'ALTER TABLE %5$s ADD COLUMN x int NOT NULL DEFAULT 1'),
  ('a constraint on the marks', 'ALTER TABLE %5$s ADD CHECK (k1 <> ''c'')'),
  ('row-level security on the marks', 'ALTER TABLE %5$s ENABLE ROW LEVEL SECURITY'),
  ('row-level security on live', 'ALTER TABLE av.live ENABLE ROW LEVEL SECURITY'),
  ('the key''s type moved', 'ALTER TYPE %6$s SET SCHEMA av'),
  ('an attribute of the key''s type renamed', 'ALTER TYPE %6$s RENAME ATTRIBUTE k1 TO k'),
  ('live without its unique index', 'ALTER TABLE av.live DROP CONSTRAINT live_k_key'),
  ('the view that is exact replaced', 'CREATE OR REPLACE VIEW av.live_current AS SELECT k, n, total, seen, last FROM av.live'),
  ('live''s columns fewer', 'CREATE OR REPLACE VIEW av.live_current AS SELECT ''x''::text AS k, 1::bigint AS n, 1::bigint AS total, now() AS seen, 1 AS last; ALTER TABLE av.live DROP COLUMN total'),
  ('live''s key gone', 'CREATE OR REPLACE VIEW av.live_current AS SELECT ''x''::text AS k, 1::bigint AS n, 1::bigint AS total, now() AS seen, 1 AS last; ALTER TABLE av.live DROP COLUMN k'),
  ('live''s columns of other types', 'CREATE OR REPLACE VIEW av.live_current AS SELECT ''x''::text AS k, 1::bigint AS n, 1::bigint AS total, now() AS seen, 1 AS last; ALTER TABLE av.live ALTER n TYPE text, ALTER total TYPE text'),
  ('the marks'' key gone', 'CREATE OR REPLACE VIEW av.live_current AS SELECT ''x''::text AS k, 1::bigint AS n, 1::bigint AS total, now() AS seen, 1 AS last; ALTER TABLE %5$s DROP COLUMN k1'),
  ('the marks'' key of another type', 'CREATE OR REPLACE VIEW av.live_current AS SELECT ''x''::text AS k, 1::bigint AS n, 1::bigint AS total, now() AS seen, 1 AS last; ALTER TABLE %5$s ALTER k1 TYPE bytea USING NULL'),
  ('an attribute more in the key''s type', 'CREATE OR REPLACE VIEW av.live_current AS SELECT ''x''::text AS k, 1::bigint AS n, 1::bigint AS total, now() AS seen, 1 AS last; ALTER TYPE %6$s ADD ATTRIBUTE k2 int'),
  ('no attribute in the key''s type', 'CREATE OR REPLACE VIEW av.live_current AS SELECT ''x''::text AS k, 1::bigint AS n, 1::bigint AS total, now() AS seen, 1 AS last; ALTER TYPE %6$s DROP ATTRIBUTE k1')) w(way, statements);

-- ==== live takes no part in inheritance, nor does what a rollup keeps
BEGIN;
SELECT * FROM make() \gset
SELECT is(try('av_owner', 'CREATE TABLE av.parent (LIKE av.live); ALTER TABLE av.live INHERIT av.parent'), '0A000 "live" cannot be a rollup: it takes part in inheritance', 'live a child');
SELECT is(try('av_owner', 'CREATE TABLE av.child () INHERITS (av.live)'), '0A000 "live" cannot be a rollup: it takes part in inheritance', 'live a parent');
ROLLBACK;

-- ==== a view of the definition that is named in DROP is not taken for a CASCADE
BEGIN;
SELECT * FROM make() \gset
SELECT throws_ok(format('DROP VIEW %s', :'definition'), '2BP01', NULL, 'DROP VIEW definition');
SELECT throws_ok(format('DROP VIEW %s CASCADE', :'definition'), '2BP01', 'the view belongs to rollup "av.live"', 'DROP VIEW definition CASCADE');
SELECT throws_ok(format('DROP VIEW %s', :'events'), '2BP01', NULL, 'DROP VIEW events');
SELECT throws_ok(format('DROP VIEW %s CASCADE', :'events'), '2BP01', 'the view belongs to rollup "av.live"', 'DROP VIEW events CASCADE');
SELECT throws_ok(format('DROP VIEW %s, %s', :'definition', :'events'), '2BP01', NULL, 'DROP VIEW of both');
SELECT throws_ok('DROP VIEW av.live_current', '2BP01', 'the view belongs to rollup "av.live"', 'DROP VIEW live_current');
SELECT throws_ok(format('DROP VIEW %s, av.live_current CASCADE', :'definition'), '2BP01', 'the view belongs to rollup "av.live"', 'DROP VIEW of the definition with live_current');
SELECT is(try('av_owner', format('DROP VIEW %s CASCADE', :'definition')), '2BP01 the view belongs to rollup "av.live"', 'by the owner, too');
SELECT is(count(*), 1::bigint, 'the rollup is there') FROM rollup_status WHERE rollup = 'av.live'::regclass;
-- with what it depends on it goes
SELECT lives_ok(format('DROP TABLE av.live, %s, %s CASCADE', 'av.events', 'av.alike'), 'with live and source');
SELECT is(count(*), 0::bigint, 'the rollup is gone') FROM dailyrollup.rollups WHERE id = :id;
SELECT hasnt_view('dailyrollup', split_part(:'definition', '.', 2), 'and its definition');
ROLLBACK;

SET search_path = public;
DROP SCHEMA av, av_other, av_helpers CASCADE;
DROP ROLE av_owner, av_writer, av_reader, av_other;
SELECT is(count(*), 0::bigint, 'nothing is left') FROM dailyrollup.rollups r LEFT JOIN pg_class c ON c.oid = r.live WHERE c.oid IS NULL;
SELECT * FROM finish();
