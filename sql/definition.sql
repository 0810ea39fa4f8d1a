-- Which defining queries make a rollup, and what each other is told.
-- A line of the output is: SQLSTATE, message; then detail and hint.
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS dailyrollup;
CREATE EXTENSION citext;
SET timezone = 'UTC';
CREATE SCHEMA def;
SET search_path = def, public;

CREATE COLLATION lax (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE DOMAIN instant AS timestamptz;
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE spot AS (lat float8, lon float8);
CREATE TYPE shape AS (at point, name text);
CREATE TABLE events (
    id int PRIMARY KEY, subject text NOT NULL, name text, ts timestamptz NOT NULL,
    n int, num numeric, flt float8, flag bool, bits bit(8), lat float8, lon float8,
    d date, t timestamp, seen timestamptz, i instant, doc jsonb, raw json, pt point,
    loose text COLLATE lax, plain text COLLATE "C", ci citext, vc varchar(20), nums int[], x xid, v interval, day_text text);
CREATE TABLE other (subject text, label text);
CREATE FUNCTION shaky(int) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT $1';
CREATE FUNCTION firm(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';

-- Creates the rollup and takes it back; returns what the caller would see.
CREATE FUNCTION try(query text, time_column name = 'ts', dedup_by name[] = NULL, dedup_order name[] = NULL)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state text; message text; detail text; hint text;
BEGIN
    PERFORM rollup_create('def.rolled', query, time_column => time_column, mode => 'on',
                          dedup_by => dedup_by, dedup_order => dedup_order);
    RAISE EXCEPTION USING errcode = 'DR000', message = 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
        detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN CASE state WHEN 'DR000' THEN '' ELSE state || ': ' END || message
        || CASE WHEN detail <> '' THEN E'\n    ' || detail ELSE '' END
        || CASE WHEN hint <> '' THEN E'\n    ' || hint ELSE '' END;
END $$;
\pset format unaligned
\pset tuples_only on

\echo ==== The example of the manual, and what else is accepted
SELECT try($$SELECT subject, name, max(ts) AS ts,
  latest(flt, ts) FILTER (WHERE flt IS NOT NULL) AS value, max(ts) FILTER (WHERE flt IS NOT NULL) AS value_ts,
  latest(lat, ts) FILTER (WHERE lat <> 0 OR lon <> 0) AS lat, max(ts) FILTER (WHERE lat <> 0 OR lon <> 0) AS loc_ts,
  count(*) AS count, min(ts) AS first_seen, max(ts) AS last_seen
  FROM events GROUP BY subject, name$$, 'ts', '{subject,name,ts}', '{id}');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject');
SELECT try('SELECT count(*), e.subject AS s FROM def.events AS e WHERE n > 3 GROUP BY 2;');
SELECT try('SELECT n, sum(n), sum(num) AS sn, sum(v) AS sv, min(num), max(num), bool_and(flag), every(flag), bool_or(flag), bit_and(n), bit_or(n) AS b FROM events GROUP BY n');
SELECT try('SELECT n % 10 AS bucket, date_bin(''1 hour'', ts, ''2000-01-01'') AS hour, count(name) FROM events GROUP BY 1, 2');
SELECT try('SELECT date_trunc(''day'', ts AT TIME ZONE ''UTC'') AS day, count(*) FROM events GROUP BY day');
SELECT try('SELECT subject, min(ci), max(ci) FROM events GROUP BY subject');
SELECT try('SELECT subject, earliest(n, t + ''1 minute''), min(t + ''1 minute'') AS m FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(ROW(lat, lon)::spot, ts) AS spot, max(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(n, vc), max(vc) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(n, i), max(i) FROM events GROUP BY subject');
SELECT try('SELECT n::positive AS p, count(raw), count(pt) AS points FROM events GROUP BY 1');
SELECT try('SELECT doc, nums, loose, bits, flag, count(*) FROM events GROUP BY doc, nums, loose, bits, flag');
SELECT try('SELECT d, count(*) FROM events GROUP BY d', 'd');
SELECT try('SELECT t, count(*) FROM events GROUP BY t', 't');

\echo ==== Not one SELECT
SELECT try('');
SELECT try(' ; -- nothing');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject; SELECT 1');
SELECT try('DELETE FROM events');
SELECT try('INSERT INTO events (id) SELECT 1');
SELECT try('UPDATE events SET n = 1 RETURNING n');
SELECT try('TRUNCATE events');
SELECT try('CREATE TABLE z AS SELECT subject, count(*) FROM events GROUP BY subject');
SELECT try('EXPLAIN SELECT 1');
SELECT try('BEGIN');
SELECT try('DO $x$ $x$');
SELECT try('VALUES (1)');
SELECT try('TABLE events');
SELECT try('SELECT subject, count(*) INTO z FROM events GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM events WHERE n = $1 GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject LIMIT');
SELECT try('SELECT subject, count(*) FROM nowhere GROUP BY subject');
SELECT try('SELECT nothing, count(*) FROM events GROUP BY nothing');
SELECT try('SELECT subject, n, count(*) FROM events GROUP BY subject');
SELECT try('SELECT subject, sum(name) FROM events GROUP BY subject');

\echo ==== FROM
SELECT try('SELECT 1 AS one, count(*)');
SELECT try('SELECT e.subject, count(*) FROM events e, other o GROUP BY 1');
SELECT try('SELECT e.subject, count(*) FROM events e JOIN other o USING (subject) GROUP BY 1');
SELECT try('SELECT e.subject, count(*) FROM events e LEFT JOIN other o ON true GROUP BY 1');
SELECT try('SELECT e.subject, count(*) FROM events e CROSS JOIN LATERAL (SELECT e.n) x GROUP BY 1');
SELECT try('SELECT subject, count(*) FROM (SELECT * FROM events) e GROUP BY subject');
SELECT try('SELECT g, count(*) FROM generate_series(1, 2) g GROUP BY g');
SELECT try('SELECT g, count(*) FROM ROWS FROM (generate_series(1, 2)) g GROUP BY g');
SELECT try('SELECT g, count(*) FROM xmltable(''/a'' PASSING (''<a/>''::xml) COLUMNS g int) GROUP BY g');
SELECT try('SELECT column1 AS c, count(*) FROM (VALUES (1)) v GROUP BY 1');
SELECT try('SELECT subject, count(*) FROM ONLY events GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM events TABLESAMPLE system (10) GROUP BY subject');

\echo ==== Clauses
SELECT try('WITH e AS (SELECT * FROM events) SELECT subject, count(*) FROM e GROUP BY subject');
SELECT try('WITH e AS (DELETE FROM events RETURNING *) SELECT subject, count(*) FROM e GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject UNION ALL SELECT subject, 1 FROM other');
SELECT try('SELECT subject FROM events EXCEPT SELECT subject FROM other');
SELECT try('SELECT DISTINCT subject, count(*) FROM events GROUP BY subject');
SELECT try('SELECT DISTINCT ON (subject) subject, count(*) FROM events GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject ORDER BY subject');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject LIMIT 1');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject LIMIT ALL');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject OFFSET 1');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject FETCH FIRST ROW ONLY');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject FOR UPDATE');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject FOR KEY SHARE');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject HAVING count(*) > 1');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject HAVING true');
SELECT try('SELECT subject, sum(count(*)) OVER () AS s FROM events GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject WINDOW w AS (ORDER BY subject)');
SELECT try('SELECT subject, (SELECT 1) AS one, count(*) FROM events GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM events WHERE subject IN (SELECT subject FROM other) GROUP BY subject');
SELECT try('SELECT subject, count(*) FILTER (WHERE EXISTS (SELECT FROM other)) FROM events GROUP BY subject');
SELECT try('SELECT subject, generate_series(1, 2) AS g, count(*) FROM events GROUP BY subject');
SELECT try('SELECT unnest(nums) AS u, count(*) FROM events GROUP BY u');
SELECT try('SELECT subject, name, count(*) FROM events GROUP BY GROUPING SETS (subject, name)');
SELECT try('SELECT subject, name, count(*) FROM events GROUP BY ROLLUP (subject, name)');
SELECT try('SELECT subject, name, count(*) FROM events GROUP BY CUBE (subject, name)');
SELECT try('SELECT count(*) FROM events GROUP BY ()');
SELECT try('SELECT subject, GROUPING(subject), count(*) FROM events GROUP BY subject');
SELECT try('SELECT subject, 1 + GROUPING(subject) AS g, count(*) FROM events GROUP BY subject');
SELECT try('SELECT count(*) FROM events');
SELECT try('SELECT subject FROM events');
SELECT try('SELECT count(*) FROM events GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject, n + 1');
SELECT try('SELECT subject, name FROM events GROUP BY subject, name');

\echo ==== Columns
SELECT try('SELECT subject, 1 AS one, count(*) FROM events GROUP BY subject, one');
SELECT try('SELECT subject, NULL AS nothing, count(*) FROM events GROUP BY subject, nothing');
SELECT try('SELECT subject, ''x'' || ''y'' AS c, count(*) FROM events GROUP BY subject, c');
SELECT try('SELECT subject, 1 AS one, count(*) FROM events GROUP BY subject');
SELECT try('SELECT id, subject, count(*) FROM events GROUP BY id');
SELECT try('SELECT n, n + 1 AS next, count(*) FROM events GROUP BY n');
SELECT try('SELECT n, n AS again, count(*) FROM events GROUP BY n');
SELECT try('SELECT n, n AS again, count(*) FROM events GROUP BY 1, 2');
SELECT try('SELECT subject || ''x'', count(*) FROM events GROUP BY 1');
SELECT try('SELECT subject, coalesce(sum(n), 0) + 1 FROM events GROUP BY 1');
SELECT try('SELECT subject, max(n), max(num) FROM events GROUP BY subject');
SELECT try('SELECT subject AS count, count(*) FROM events GROUP BY subject');
SELECT try('SELECT subject AS xmin, count(*) FROM events GROUP BY subject');
SELECT try('SELECT subject, count(*) AS tableoid FROM events GROUP BY subject');
SELECT try('SELECT tableoid, count(*) FROM events GROUP BY tableoid');
SELECT try('SELECT subject, max(ctid) FROM events GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM events WHERE xmin = ''7''::xid GROUP BY subject');
SELECT try('SELECT other, count(*) FROM other GROUP BY other');
SELECT try('SELECT subject, count(e) FROM events e GROUP BY subject');
SELECT try('SELECT subject, count(*) FILTER (WHERE e IS NOT NULL) FROM events e GROUP BY subject');
SELECT try('SELECT subject, latest(ROW(lat, lon), ts), max(ts) FROM events GROUP BY subject');
SELECT try('SELECT ROW(lat, lon) AS r, count(*) FROM events GROUP BY r');
SELECT try('SELECT subject, latest(ARRAY[ROW(lat, lon)], ts) AS r, max(ts) FROM events GROUP BY subject');
SELECT try('SELECT raw, count(*) FROM events GROUP BY raw');
SELECT try('SELECT x, count(*) FROM events GROUP BY x');
SELECT try('SELECT subject, latest(raw, ts), max(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(pt, ts), max(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(ARRAY[pt], ts) AS p, max(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(ROW(pt, name)::shape, ts) AS p, max(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(n, pt), max(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(n, NULL), max(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(NULL, ts), max(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, max(loose || plain) FROM events GROUP BY subject');
SELECT try('SELECT loose || plain AS k, count(*) FROM events GROUP BY 1');
SELECT try('SELECT ' || string_agg('n + ' || g || ' AS c' || g, ', ') || ', count(*) FROM events GROUP BY ' || string_agg(g::text, ', ')) FROM generate_series(1, 33) g;
SELECT try('SELECT n, ' || string_agg('max(n + ' || g || ') AS c' || g, ', ') || ' FROM events GROUP BY n') FROM generate_series(1, 1500) g;

\echo ==== Aggregates
SELECT try('SELECT subject, avg(n) FROM events GROUP BY subject');
SELECT try('SELECT subject, avg(n + 1) FILTER (WHERE n > 0) AS mean FROM events GROUP BY subject');
SELECT try('SELECT subject, avg(DISTINCT n) FROM events GROUP BY subject');
SELECT try('SELECT subject, count(DISTINCT n) FROM events GROUP BY subject');
SELECT try('SELECT subject, max(DISTINCT n) FROM events GROUP BY subject');
SELECT try('SELECT subject, sum(DISTINCT n) FROM events GROUP BY subject');
SELECT try('SELECT subject, string_agg(name, '','') FROM events GROUP BY subject');
SELECT try('SELECT subject, array_agg(name ORDER BY ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, sum(n ORDER BY ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, array_agg(n) FROM events GROUP BY subject');
SELECT try('SELECT subject, jsonb_agg(n) FROM events GROUP BY subject');
SELECT try('SELECT subject, stddev(n) FROM events GROUP BY subject');
SELECT try('SELECT subject, corr(lat, lon) FROM events GROUP BY subject');
SELECT try('SELECT subject, mode() WITHIN GROUP (ORDER BY n) FROM events GROUP BY subject');
SELECT try('SELECT subject, percentile_cont(0.5) WITHIN GROUP (ORDER BY n) FROM events GROUP BY subject');
SELECT try('SELECT subject, rank(1) WITHIN GROUP (ORDER BY n) FROM events GROUP BY subject');
SELECT try('SELECT subject, count(*) + 1 AS c FROM events GROUP BY subject');
SELECT try('SELECT subject, count(*)::int FROM events GROUP BY subject');
SELECT try('SELECT subject, round(avg(n), 2) AS mean FROM events GROUP BY subject');
SELECT try('SELECT subject, sum(n) / count(*) AS mean FROM events GROUP BY subject');
SELECT try('SELECT subject, subject || max(name) AS s FROM events GROUP BY subject');
SELECT try('SELECT subject, ARRAY[min(n), max(n)] AS a FROM events GROUP BY subject');
SELECT try('SELECT subject, CASE WHEN true THEN max(n) END AS c FROM events GROUP BY subject');
-- latest of somebody else; min and max that no order backs
CREATE FUNCTION take(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $2';
CREATE AGGREGATE def.latest(int) (sfunc = take, stype = int);
CREATE AGGREGATE def.max(positive) (sfunc = take, stype = int);
CREATE AGGREGATE def.count(int) (sfunc = take, stype = int);
CREATE AGGREGATE def.sum(positive) (sfunc = take, stype = int);
SELECT try('SELECT subject, latest(n) FROM events GROUP BY subject');
SELECT try('SELECT subject, def.max(n::positive) FROM events GROUP BY subject');
SELECT try('SELECT subject, def.count(n) FROM events GROUP BY subject');
SELECT try('SELECT subject, sum(n::positive) FROM events GROUP BY subject');
DROP AGGREGATE def.latest(int);
DROP AGGREGATE def.max(positive);
DROP AGGREGATE def.count(int);
DROP AGGREGATE def.sum(positive);

\echo ==== latest and earliest need their time
SELECT try('SELECT subject, latest(n, ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, earliest(n, ts) AS first, max(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(flt, ts) FILTER (WHERE flt IS NOT NULL) AS value_number, max(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(n, ts) FILTER (WHERE n > 0 OR (name <> '')('')) AS "The Value", max(ts) FILTER (WHERE n > 0) AS a FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(n, ts), max(seen) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(n, ts), min(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(n, ts), coalesce(max(ts), ''-infinity'') AS ts FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(n, t + ''1 day'') AS a_rather_long_name_that_is_not_far_from_the_limit_of_63_bytes FROM events GROUP BY subject');

\echo ==== coalesce
SELECT try('SELECT subject, coalesce(sum(n), 0) AS s, coalesce(sum(num), 0.00) AS n, coalesce(sum(v), ''0'') AS v, coalesce(sum(flt), 0) AS f FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(bool_and(flag), true) AS a, coalesce(bool_or(flag), false) AS o, coalesce(bit_or(n), 0) AS b FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(count(n), 7) AS c, coalesce(max(n), 0) AS m FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(max(n), 0) AS m, count(n) FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(max(n), 0) AS m FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(max(n), 0) AS m, count(*) FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(max(n) FILTER (WHERE n IS NOT NULL), 0) AS m, count(*) FILTER (WHERE n IS NOT NULL) FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(min(n) FILTER (WHERE flag), 0) AS m, count(n) FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(max(ts), ''epoch'') AS m, count(*) FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(max(vc), '''') AS m, count(vc) FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(sum(n), 1) AS m FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(bool_and(flag), false) AS m FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(bool_or(flag), true) AS m FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(bit_or(n), 1) AS m FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(bit_and(n), -1) AS m FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(bit_or(bits), B''00000000'') AS m FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(latest(n, ts), 0) AS n, max(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(latest(n, seen), 0) AS n, max(seen) FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(latest(n, seen) FILTER (WHERE flag), 0) AS n, max(seen) FILTER (WHERE flag) FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(latest(n, seen) FILTER (WHERE flag AND n IS NOT NULL), 0) AS n, max(seen) FILTER (WHERE flag AND n IS NOT NULL) FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(latest(n, seen), 0) AS n FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(max(n), NULL) AS m FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(max(n), min(n)) AS m FROM events GROUP BY subject');
SELECT try('SELECT subject, coalesce(max(n), 1, 2) AS m FROM events GROUP BY subject');
SELECT try('SELECT n, coalesce(max(n), n) AS m FROM events GROUP BY n');
SELECT try('SELECT n, coalesce(max(n), shaky(1)) AS m FROM events GROUP BY n');
SELECT try('SELECT n, coalesce(max(n), firm(1)) AS m FROM events GROUP BY n');
SELECT try('SELECT n, coalesce(max(n), abs(-1)) AS m, count(n) FROM events GROUP BY n');
SELECT try('SELECT n, coalesce(max(ts), now()) AS m, count(n) FROM events GROUP BY n');
SELECT try('SELECT n, coalesce(sum(n), 0.5) AS m FROM events GROUP BY n');

\echo ==== Immutable
SELECT try('SELECT date_trunc(''day'', ts) AS day, count(*) FROM events GROUP BY day');
-- immutable since PostgreSQL 16; before it, 42P17 with the way out
SELECT try('SELECT date_trunc(''day'', ts, ''Europe/Berlin'') AS day, count(*) FROM events GROUP BY day')
     = CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'accepted' ELSE
$$42P17: key "day" must be immutable
    Function date_trunc(text,timestamp with time zone,text) is STABLE.
    Write date_trunc('day', ts AT TIME ZONE 'Europe/Berlin'), or use date_bin.$$ END;
SELECT try('SELECT ts::date AS day, count(*) FROM events GROUP BY day');
SELECT try('SELECT ts::text AS day, count(*) FROM events GROUP BY day');
SELECT try('SELECT d::text AS day, count(*) FROM events GROUP BY day');
SELECT try('SELECT to_char(ts, ''YYYY'') AS year, count(*) FROM events GROUP BY year');
SELECT try('SELECT to_char(date_trunc(''day'', ts), ''YYYY'') AS year, count(*) FROM events GROUP BY year');
SELECT try('SELECT extract(hour FROM ts) AS hour, count(*) FROM events GROUP BY hour');
SELECT try('SELECT ts::timestamp AS t, count(*) FROM events GROUP BY 1');
SELECT try('SELECT subject, count(*) FROM events WHERE ts > now() - interval ''7 days'' GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM events WHERE d > current_date GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM events WHERE ts < t GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM events WHERE random() < 0.5 GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM events WHERE subject = current_user GROUP BY subject');
SELECT try('SELECT subject, sum(shaky(n)) FROM events GROUP BY subject');
SELECT try('SELECT subject, sum(n) FILTER (WHERE shaky(n) > 0) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(n, ts + ''1 day'') AS n, max(ts + ''1 day'') AS m FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(shaky(n), ts) AS n, max(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, max(ts - ''1 day'') FROM events GROUP BY subject');
SELECT try('SELECT subject, max(day_text::timestamptz) FROM events GROUP BY subject');
SELECT try('SELECT subject, sum(firm(n)) FROM events WHERE ts < ''2026-01-01'' GROUP BY subject');
CREATE FUNCTION pg_temp.passing(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE TYPE pg_temp.passing AS (a int);
SELECT replace(try('SELECT subject, sum(pg_temp.passing(n)) FROM events GROUP BY subject'), pg_my_temp_schema()::regnamespace::text, 'pg_temp');
SELECT replace(try('SELECT subject, latest(ROW(n)::pg_temp.passing, ts) AS p, max(ts) FROM events GROUP BY subject'), pg_my_temp_schema()::regnamespace::text, 'pg_temp');

\echo ==== The source
CREATE VIEW a_view AS SELECT * FROM events;
CREATE MATERIALIZED VIEW a_matview AS SELECT * FROM events;
CREATE SEQUENCE a_sequence;
CREATE FOREIGN DATA WRAPPER nowhere;
CREATE SERVER nowhere FOREIGN DATA WRAPPER nowhere;
CREATE FOREIGN TABLE a_foreign (subject text, ts timestamptz) SERVER nowhere;
CREATE TEMPORARY TABLE a_temporary (subject text, ts timestamptz);
CREATE UNLOGGED TABLE an_unlogged (subject text, ts timestamptz);
CREATE TABLE a_parent (subject text, ts timestamptz);
CREATE TABLE a_child () INHERITS (a_parent);
CREATE TABLE a_partitioned (subject text, ts timestamptz) PARTITION BY LIST (subject);
CREATE TABLE a_partition PARTITION OF a_partitioned FOR VALUES IN ('a') PARTITION BY RANGE (ts);
CREATE TABLE a_leaf PARTITION OF a_partition DEFAULT;
CREATE TABLE a_forced (subject text, ts timestamptz);
ALTER TABLE a_forced ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SELECT try('SELECT subject, count(*) FROM a_view GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM a_matview GROUP BY subject');
SELECT try('SELECT last_value, count(*) FROM a_sequence GROUP BY 1');
SELECT try('SELECT subject, count(*) FROM a_foreign GROUP BY subject');
SELECT replace(try('SELECT subject, count(*) FROM a_temporary GROUP BY subject'), pg_my_temp_schema()::regnamespace::text, 'pg_temp');
SELECT try('SELECT subject, count(*) FROM an_unlogged GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM a_parent GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM a_child GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM a_partitioned GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM a_leaf GROUP BY subject');
SELECT try('SELECT subject, count(*) FROM a_forced GROUP BY subject');
ALTER TABLE a_forced NO FORCE ROW LEVEL SECURITY;
BEGIN;
SET LOCAL client_min_messages = warning;
SELECT rollup_create('a_told', 'SELECT subject, count(*) FROM a_forced GROUP BY subject', 'ts');
ALTER TABLE a_forced DISABLE ROW LEVEL SECURITY;
ALTER TABLE a_forced ENABLE ROW LEVEL SECURITY;
ALTER TABLE a_forced ADD COLUMN nothing_more int;
ROLLBACK;
SELECT try('SELECT relname, count(*) FROM pg_class GROUP BY relname');
SELECT try('SELECT table_name, count(*) FROM information_schema.tables GROUP BY 1');
DROP TABLE a_child;
SELECT try('SELECT subject, count(*) FROM a_parent GROUP BY subject');
CREATE UNLOGGED TABLE a_fast_partition PARTITION OF a_partitioned FOR VALUES IN ('b');
SELECT try('SELECT subject, count(*) FROM a_partitioned GROUP BY subject');
DROP TABLE a_fast_partition;
CREATE FOREIGN TABLE a_far_partition PARTITION OF a_partitioned FOR VALUES IN ('c') SERVER nowhere;
SELECT try('SELECT subject, count(*) FROM a_partitioned GROUP BY subject');
DROP FOREIGN TABLE a_far_partition;

\echo ==== The time column
CREATE TABLE clocks (a int, f float8, tz timetz, i instant, "Odd time" timestamp,
    g timestamp GENERATED ALWAYS AS ('epoch'::timestamp + a * interval '1 second') STORED);
SELECT try('SELECT a, count(*) FROM clocks GROUP BY a', 'nothing');
SELECT try('SELECT a, count(*) FROM clocks GROUP BY a', 'xmin');
SELECT try('SELECT a, count(*) FROM clocks GROUP BY a', 'a');
SELECT try('SELECT a, count(*) FROM clocks GROUP BY a', 'f');
SELECT try('SELECT a, count(*) FROM clocks GROUP BY a', 'tz');
SELECT try('SELECT a, count(*) FROM clocks GROUP BY a', 'i');
SELECT try('SELECT a, count(*) FROM clocks GROUP BY a', 'odd time');
SELECT try('SELECT a, count(*) FROM clocks GROUP BY a', '"Odd time"');
SELECT try('SELECT a, count(*) FROM clocks GROUP BY a', 'Odd time');
SELECT try('SELECT a, count(*) FROM clocks GROUP BY a', 'g');

\echo ==== Deduplication
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject', 'ts', '{}', '{}');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject', 'ts', '{subject,ts,id}');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject', 'ts', '{subject,ts,nothing}');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject', 'ts', '{subject,ts,ctid}');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject', 'ts', '{subject,ts}', '{nothing}');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject', 'ts', '{subject,subject,ts}');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject', 'ts', '{subject,ts}', '{id,id}');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject', 'ts', '{subject,ts}', '{id,subject}');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject', 'ts', NULL, '{id}');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject', 'ts', '{subject}');
SELECT try('SELECT subject, name, n + id AS k, count(*) FROM events GROUP BY 1, 2, 3', 'ts', '{subject,n}');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject', 'ts', '{subject,ts,raw}');
SELECT try('SELECT subject, count(*) FROM events GROUP BY subject', 'ts', '{subject,ts}', '{pt}');
SELECT try('SELECT subject, count(raw) FROM events GROUP BY subject', 'ts', '{subject,ts}');
SELECT try('SELECT num, ci, loose, doc, count(*) FROM events GROUP BY 1, 2, 3, 4', 'ts', '{num,ci,loose,doc,ts}');
SELECT try('SELECT n + 1 AS k, lower(name) AS l, d - 1 AS y, not flag AS f, ts AT TIME ZONE ''UTC'' AS u, count(*) FROM events GROUP BY 1, 2, 3, 4, 5', 'ts', '{n,name,d,flag,ts}');
SELECT try('SELECT scale(num) AS k, count(*) FROM events GROUP BY 1', 'ts', '{num,ts}');
SELECT try('SELECT lat::text AS k, count(*) FROM events GROUP BY 1', 'ts', '{lat,ts}');
SELECT try('SELECT upper(ci) AS k, count(*) FROM events GROUP BY 1', 'ts', '{ci,ts}');
SELECT try('SELECT loose || ''x'' AS k, count(*) FROM events GROUP BY 1', 'ts', '{loose,ts}');
SELECT try('SELECT doc -> ''a'' AS k, count(*) FROM events GROUP BY 1', 'ts', '{doc,ts}');
SELECT try('SELECT extract(day FROM v) AS k, count(*) FROM events GROUP BY 1', 'ts', '{v,ts}');
SELECT try('SELECT nums[1] AS k, count(*) FROM events GROUP BY 1', 'ts', '{nums,ts}');

\echo ==== Where an error is, is shown in the query
SELECT rollup_create('def.rolled', $$SELECT subject, count(*)
  FROM events GRUOP BY subject$$, time_column => 'ts', mode => 'on');
SELECT rollup_create('def.rolled', $$SELECT subject,
  count(nothing) FROM events GROUP BY subject$$, time_column => 'ts', mode => 'on');
SELECT rollup_create('def.rolled', 'SELECT subject, count(*) FROM events GROUP BY subject LIMIT 1', time_column => 'ts', mode => 'on');

\echo ==== Names are those of the caller
SET search_path = public;
SELECT def.try('SELECT subject, count(*) FROM events GROUP BY subject');
SET search_path = def, public;

\echo ==== What is accepted with a notice
SET client_min_messages = notice;
SELECT try('SELECT subject, sum(flt), sum(n) AS n, sum(n::float4) AS f FROM events GROUP BY subject');
SELECT try('SELECT a, count(*) FROM clocks GROUP BY a', 'g');
SELECT try('SELECT subject, latest(lat, ts) AS lat, latest(lon, ts) AS lon, max(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(lat, ts) AS lat, latest(lon, ts) AS lon, max(ts) FROM events GROUP BY subject', 'ts', '{subject,ts}');
SELECT try('SELECT subject, earliest(lat, ts) AS lat, coalesce(earliest(lon, ts), 0) AS lon, min(ts) FROM events GROUP BY subject');
SELECT try('SELECT subject, latest(lat, ts) AS lat, latest(lat, ts) AS again, earliest(lon, ts) AS lon, max(ts), min(ts) FROM events GROUP BY subject');

SET client_min_messages = error;
DROP SCHEMA def CASCADE;
DROP FOREIGN DATA WRAPPER nowhere CASCADE;
DROP EXTENSION citext;
