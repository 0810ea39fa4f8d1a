-- What a condition on key columns of <live>_current reaches: live, the tail and
-- the marks, each through an index on the key; and what does not run at all.
-- Plans are read as JSON, only what is promised of them is printed.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS dailyrollup;
DROP SCHEMA IF EXISTS expl CASCADE;
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET jit = off;
SET max_parallel_workers_per_gather = 0;
CREATE SCHEMA expl;
SET search_path = expl, public;

CREATE TABLE plain (subject text, name text NOT NULL, n int, ts timestamptz NOT NULL);
CREATE INDEX ON plain (subject, name, ts);
CREATE INDEX ON plain (lower(name), ts);
CREATE TABLE parted (subject varchar(20), name text NOT NULL, n int, ts timestamptz NOT NULL) PARTITION BY RANGE (ts);
CREATE INDEX ON parted (subject, name, ts);
CREATE INDEX ON parted (lower(name), ts);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO ('2026-01-02 00:00Z');
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM ('2026-01-02 00:00Z') TO ('2026-01-03 00:00Z');
CREATE TABLE parted_3 PARTITION OF parted FOR VALUES FROM ('2026-01-03 00:00Z') TO ('2026-01-04 00:00Z');
CREATE TABLE parted_4 PARTITION OF parted FOR VALUES FROM ('2026-01-04 00:00Z') TO (MAXVALUE);
-- 5 days, 5,000 keys: each has a row a day; one subject is NULL
INSERT INTO plain
SELECT nullif('s' || k % 2500, 's2499'), 'N' || k / 2500, k, timestamptz '2026-01-01 00:00Z' + day * interval '1 day' + k * interval '17 seconds'
FROM generate_series(0, 4999) k, generate_series(0, 4) day;
INSERT INTO parted TABLE plain;
SELECT rollup_create(source || '_n', format('SELECT subject, lower(name) AS name, count(*), max(ts), latest(n, ts) FROM %I GROUP BY subject, lower(name)', source), 'ts', mode => 'on')
FROM unnest('{plain,parted}'::text[]) source;

-- All nodes of a plan, each with its path; a parent's lacks the last letter.
CREATE FUNCTION nodes(plan jsonb) RETURNS TABLE (id text, node jsonb) LANGUAGE sql AS $$
    WITH RECURSIVE n(id, node) AS (
        SELECT '', plan
        UNION ALL
        SELECT n.id || chr(64 + c.i::int), c.child
        FROM n, jsonb_array_elements(n.node->'Plans') WITH ORDINALITY c(child, i))
    SELECT id, node FROM n
$$;

CREATE FUNCTION explain(statement text, options text = 'COSTS OFF') RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE plan jsonb;
BEGIN
    EXECUTE format('EXPLAIN (%s, FORMAT JSON) %s', options, statement) INTO plan;
    RETURN plan->0;
END $$;

-- Does an index scan read no more than the condition asks for?  Keys with a NULL
-- have an index of their own in the marks.
CREATE FUNCTION selective(scan jsonb, columns text) RETURNS boolean LANGUAGE sql AS $$
    SELECT coalesce(scan->>'Index Cond' ~ columns, false)
        OR EXISTS (SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                   WHERE c.relname = scan->>'Index Name' AND c.relnamespace = 'dailyrollup'::regnamespace AND i.indpred IS NOT NULL)
$$;

-- Do all scans of these relations below a node find rows by an index condition
-- on the columns?  NULL: nothing scans them.
CREATE FUNCTION by_index(plan jsonb, relations text, columns text) RETURNS boolean LANGUAGE sql AS $$
    SELECT bool_and(CASE s.node->>'Node Type'
        WHEN 'Bitmap Heap Scan' THEN (
            SELECT bool_and(selective(b.node, columns))
            FROM nodes(s.node) b WHERE b.node->>'Node Type' = 'Bitmap Index Scan')
        ELSE selective(s.node, columns) END)
    FROM nodes(plan) s WHERE s.node->>'Relation Name' ~ ('^' || relations || '$')
$$;

-- What the plan of a statement over <source>_n_current promises.
CREATE FUNCTION reached(source text, statement text,
    OUT live boolean, OUT tail boolean, OUT marks boolean, OUT all_marks boolean, OUT function_runs boolean,
    OUT old_partitions boolean, OUT live_read boolean)
LANGUAGE plpgsql AS $$
DECLARE
    plan jsonb = explain(statement, 'COSTS OFF, ANALYZE, TIMING OFF, SUMMARY OFF')->'Plan';
    columns text = '\m(subject|k1)\M';
    marks_name text = (SELECT relname FROM pg_class WHERE oid = (SELECT r.marks FROM dailyrollup.rollups r WHERE r.live = (reached.source || '_n')::regclass));
BEGIN
    live = by_index(plan, source || '_n', columns);
    tail = by_index(plan, source || '(_\d)?', columns);
    -- of the leg of marked keys: the function's sibling
    SELECT bool_and(by_index(p.node, marks_name, columns)) INTO marks
    FROM nodes(plan) f JOIN nodes(plan) p ON p.id = left(f.id, -1)
    WHERE f.node->>'Function Name' = '_current_row';
    SELECT bool_or((node->>'Actual Loops')::numeric > 0) INTO function_runs
    FROM nodes(plan) WHERE node->>'Function Name' = '_current_row';
    -- whoever else asks for marks, reads them all
    SELECT bool_or(node->>'Node Type' = 'Seq Scan' AND (node->>'Actual Loops')::numeric > 0) INTO all_marks
    FROM nodes(plan) WHERE node->>'Relation Name' = marks_name;
    SELECT bool_or((node->>'Actual Loops')::numeric > 0) INTO live_read
    FROM nodes(plan) WHERE node->>'Relation Name' = source || '_n';
    -- partitions before the watermark, which need not even stand in the plan
    SELECT coalesce(bool_or((node->>'Actual Loops')::numeric > 0), false) INTO old_partitions
    FROM nodes(plan) WHERE node->>'Relation Name' IN ('parted_1', 'parted_2');
END $$;

-- The same for all comparisons, and whether the answer is the oracle's.
CREATE TABLE comparisons (id int GENERATED ALWAYS AS IDENTITY, condition text);
INSERT INTO comparisons (condition) VALUES
    ($$subject = 's7'$$),
    ($$subject = 's7' AND name = 'n1'$$),
    ($$subject IN ('s7', 's8', 'nobody')$$),
    ($$subject IN ('s7', 's8') AND name IN ('n0', 'n1')$$),
    ($$subject = ANY ('{s7,s8,NULL}')$$),
    ($$subject = ANY (ARRAY(SELECT 's' || i FROM generate_series(7, 9) i))$$),
    ($$subject = (SELECT 's' || 7)$$),
    ($$subject IS NULL$$),
    ($$subject IS NULL AND name = 'n1'$$),
    ($$(subject, name) = ('s7', 'n1')$$),
    ($$(subject, name) IN (('s7', 'n1'), ('s8', 'n0'))$$);

CREATE FUNCTION exact(source text, condition text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    same boolean;
BEGIN
    EXECUTE format('WITH a AS MATERIALIZED (SELECT * FROM %1$I WHERE %3$s), b AS MATERIALIZED (SELECT * FROM (%2$s) d WHERE %3$s)
                    SELECT NOT EXISTS ((TABLE a EXCEPT ALL TABLE b) UNION ALL (TABLE b EXCEPT ALL TABLE a))',
                   source || '_n_current', rollup_definition(source || '_n'), condition) INTO same;
    RETURN same;
END $$;
CREATE FUNCTION compare(source text) RETURNS TABLE (condition text, live boolean, tail boolean, marks boolean, function_runs boolean, old_partitions boolean, exact boolean)
LANGUAGE sql AS $$
    SELECT c.condition, r.live, r.tail, r.marks, r.function_runs, r.old_partitions, exact(source, c.condition)
    FROM comparisons c, reached(source, format('SELECT * FROM %I WHERE %s', source || '_n_current', c.condition)) r
    ORDER BY c.id
$$;
CREATE FUNCTION analyze_all() RETURNS void LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN
    FOR r IN SELECT * FROM dailyrollup.rollups WHERE live IN ('plain_n'::regclass, 'parted_n') LOOP
        EXECUTE format('ANALYZE %s, %s, %s', r.live, r.source, r.marks);
    END LOOP;
END $$;

\pset null -
\echo ==== Before the first refresh: the tail is the whole source
SELECT analyze_all();
SELECT condition, tail, function_runs, exact FROM compare('plain');
SELECT condition, tail, function_runs, exact FROM compare('parted');
SELECT function_runs FROM reached('plain', 'SELECT * FROM plain_n_current');

\echo ==== Many keys are marked, but none of those asked for
SELECT action, folded_keys FROM rollup_refresh('plain_n', '2026-01-03 00:00Z');
SELECT action, folded_keys FROM rollup_refresh('parted_n', '2026-01-03 00:00Z');
CREATE FUNCTION late(condition text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE source text;
BEGIN
    FOREACH source IN ARRAY '{plain,parted}'::text[] LOOP
        EXECUTE format('INSERT INTO %1$I SELECT subject, name, n + 1, ts + interval ''1 second'' FROM %1$I WHERE ts < ''2026-01-02'' AND %2$s', source, condition);
    END LOOP;
END $$;
SELECT late($$subject ~ '^s1'$$);
SELECT rollup, count(*) FROM rollup_late WHERE rollup IN ('plain_n'::regclass, 'parted_n') GROUP BY rollup ORDER BY rollup::text;
SELECT analyze_all();
SELECT * FROM compare('plain');
SELECT * FROM compare('parted');

-- one key asks for its own marks alone, wherever it does
SELECT all_marks, live_read FROM reached('plain', $$SELECT * FROM plain_n_current WHERE subject = 's7' AND name = 'n1'$$);
SELECT all_marks, live_read FROM reached('parted', $$SELECT * FROM parted_n_current WHERE subject = 's7' AND name = 'n1'$$);

\echo ==== Keys asked for are marked
SELECT late($$(subject = 's7' OR subject IS NULL)$$);
SELECT analyze_all();
SELECT * FROM compare('plain');
SELECT * FROM compare('parted');

\echo ==== Parameters
PREPARE one_plain(text) AS SELECT * FROM plain_n_current WHERE subject = $1;
PREPARE two_plain(text, text) AS SELECT * FROM plain_n_current WHERE subject = $1 AND name = $2;
PREPARE any_plain(text[]) AS SELECT * FROM plain_n_current WHERE subject = ANY ($1);
PREPARE one_parted(text) AS SELECT * FROM parted_n_current WHERE subject = $1;
PREPARE two_parted(text, text) AS SELECT * FROM parted_n_current WHERE subject = $1 AND name = $2;
PREPARE any_parted(text[]) AS SELECT * FROM parted_n_current WHERE subject = ANY ($1);
CREATE VIEW parameters AS
    SELECT source, call, r.live, r.tail, r.marks, r.function_runs, r.old_partitions
    FROM unnest('{plain,parted}'::text[]) source,
        unnest('{one_%s(''s8''),"two_%s(''s8'', ''n1'')","any_%s(''{s8,s9}'')"}'::text[]) call,
        reached(source, 'EXECUTE ' || format(call, source)) r
    ORDER BY source DESC, call;
SET plan_cache_mode = force_generic_plan;
TABLE parameters;
SET plan_cache_mode = force_custom_plan;
TABLE parameters;
RESET plan_cache_mode;
EXECUTE one_plain('s7');
EXECUTE any_parted('{s7,s8}');

\echo ==== LATERAL with OFFSET 0
CREATE VIEW laterals AS
    SELECT source, r.live, r.tail, r.marks, r.function_runs, r.old_partitions
    FROM unnest('{plain,parted}'::text[]) source,
        reached(source, format('SELECT c.* FROM unnest(ARRAY[''s8'', ''s9'', ''nobody'']) k,
                                LATERAL (SELECT * FROM %I c WHERE c.subject = k OFFSET 0) c', source || '_n_current')) r
    ORDER BY source DESC;
TABLE laterals;
SELECT c.* FROM unnest(ARRAY['s7', 's8', 'nobody']) k, LATERAL (SELECT * FROM plain_n_current c WHERE c.subject = k OFFSET 0) c ORDER BY 1, 2;
SELECT c.* FROM unnest(ARRAY['s7', 's8', 'nobody']) k, LATERAL (SELECT * FROM parted_n_current c WHERE c.subject = k OFFSET 0) c ORDER BY 1, 2;

\echo ==== A join does not reach them
SELECT live, tail, marks FROM reached('plain', $$SELECT c.* FROM unnest(ARRAY['s8', 's9', 'nobody']) k JOIN plain_n_current c ON c.subject = k$$);

\echo ==== No mark at all
SELECT action FROM rollup_refresh('plain_n', '2026-01-03 00:00Z');
SELECT action FROM rollup_refresh('parted_n', '2026-01-03 00:00Z');
DO $$
DECLARE marks regclass;
BEGIN
    FOR marks IN SELECT r.marks FROM dailyrollup.rollups r WHERE live IN ('plain_n'::regclass, 'parted_n') LOOP
        EXECUTE format('TRUNCATE %s', marks);
    END LOOP;
END $$;
SELECT analyze_all();
-- an empty table may well be read as a whole
SELECT condition, live, tail, function_runs, old_partitions, exact FROM compare('plain');
SELECT condition, live, tail, function_runs, old_partitions, exact FROM compare('parted');
-- nor without a condition
SELECT function_runs, old_partitions FROM reached('plain', 'SELECT * FROM plain_n_current');
SELECT function_runs, old_partitions FROM reached('parted', 'SELECT * FROM parted_n_current');
SELECT exact('plain', 'true'), exact('parted', 'true');
-- planned are those alone that may hold rows since the watermark, once nobody
-- has a snapshot from before it
DO $$
BEGIN
    FOR i IN 1 .. 100 LOOP
        EXIT WHEN explain('SELECT * FROM parted_n_current')::text !~ 'parted_1';
        PERFORM pg_sleep(0.1);
    END LOOP;
END $$;
SELECT DISTINCT node->>'Relation Name' AS planned FROM nodes(explain($$SELECT * FROM parted_n_current WHERE subject = 's7'$$)->'Plan')
WHERE node->>'Relation Name' ~ '^parted_\d' ORDER BY 1;
-- and all, to be left out when the query starts, where a version of the rollup's row
-- has stored something elsewhere, which a dead one may have lost
CREATE FUNCTION left_out() RETURNS numeric LANGUAGE sql AS $f$
    SELECT sum((node->>'Subplans Removed')::numeric) FROM nodes(explain($$SELECT * FROM parted_n_current WHERE subject = 's7'$$)->'Plan')
$f$;
SELECT left_out();
BEGIN;
UPDATE dailyrollup.rollups SET last_error = (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) i) WHERE live = 'parted_n'::regclass;
SELECT left_out(), exact('parted', 'true');
ROLLBACK;

\echo ==== Rows that are not late call no trigger
CREATE FUNCTION calls(statement text) RETURNS TABLE (relation text, calls text) LANGUAGE sql AS $$
    SELECT t->>'Relation', t->>'Calls'
    FROM jsonb_array_elements(explain(statement, 'ANALYZE, COSTS OFF, TIMING OFF')->'Triggers') t
    WHERE (t->>'Calls')::numeric > 0 ORDER BY 1
$$;
SELECT * FROM calls($$INSERT INTO plain SELECT 's1', 'N1', i, '2026-01-03' FROM generate_series(1, 100) i$$);
SELECT * FROM calls($$INSERT INTO parted SELECT 's1', 'N1', i, '2026-01-03' FROM generate_series(1, 100) i$$);
SELECT * FROM calls($$UPDATE parted SET n = 0 WHERE ts >= '2026-01-04'$$);
SELECT * FROM calls($$INSERT INTO plain SELECT 's1', 'N1', i, timestamptz '2026-01-03' - i % 2 * interval '1 second' FROM generate_series(1, 100) i$$);
SELECT * FROM calls($$INSERT INTO parted SELECT 's1', 'N1', i, timestamptz '2026-01-03' - i % 2 * interval '1 second' FROM generate_series(1, 100) i$$);
SELECT * FROM calls($$DELETE FROM plain WHERE subject = 's9'$$);
SELECT * FROM calls($$UPDATE plain SET ts = ts + interval '1 day' WHERE subject = 's8'$$);
SELECT exact('plain', 'true'), exact('parted', 'true');

DEALLOCATE ALL;
SET search_path = public;
DROP SCHEMA expl CASCADE;
