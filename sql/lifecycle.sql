-- The life of a rollup as its user sees it: create, refresh, late rows, checks,
-- repair, drop; then time columns, time zones, names and every error.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS dailyrollup;
DROP SCHEMA IF EXISTS life CASCADE;
RESET client_min_messages;
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE SCHEMA life;
SET search_path = life, public;

-- Against the oracle, the defining query restricted to the watermark: live, and
-- the view against the whole query.  Duplicates and NULLs count.
CREATE FUNCTION exact(rollup regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    w timestamptz = rollup_watermark(rollup);
    view regclass = (SELECT s.current_view FROM rollup_status s WHERE s.rollup = exact.rollup);
    live_differs bigint;
    current_differs bigint;
    compare text = 'SELECT count(*) FROM ((TABLE %1$s EXCEPT ALL (%2$s)) UNION ALL ((%2$s) EXCEPT ALL TABLE %1$s)) d';
BEGIN
    EXECUTE format(compare, rollup, rollup_definition(rollup, w)) INTO live_differs;
    EXECUTE format(compare, view, rollup_definition(rollup)) INTO current_differs;
    RETURN format('live: %s, current: %s', live_differs, current_differs);
END $$;

-- What a statement says when it fails: SQLSTATE, message, detail and hint.
CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state text; message text; detail text; hint text; result text;
BEGIN
    EXECUTE statement INTO result;
    RETURN 'returns ' || coalesce(quote_literal(result), 'NULL');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
        detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN state || ': ' || message
        || CASE WHEN detail <> '' THEN E'\n    ' || detail ELSE '' END
        || CASE WHEN hint <> '' THEN E'\n    ' || hint ELSE '' END;
END $$;

-- A refresh without its duration.
CREATE FUNCTION refresh(rollup regclass, boundary timestamptz) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s %s .. %s, folded %s, late %s%s', r.action, r.from_time, r.to_time, r.folded_keys,
                  r.late_keys, CASE WHEN r.elapsed < '0' OR r.rollup <> $1 THEN ' ?' END)
    FROM rollup_refresh(rollup, boundary) r
$$;

-- The guard of live, for those who corrupt it on purpose.
CREATE FUNCTION guard(rollup regclass, fires text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s %s TRIGGER dailyrollup_%s_guard', rollup, fires, (SELECT r.id FROM dailyrollup.rollups r WHERE r.live = rollup));
END $$;

\echo ==== Create
CREATE TABLE signals (
    subject text NOT NULL, name text NOT NULL, "timestamp" timestamptz NOT NULL,
    value_number float8, loc_lat float8, loc_lon float8, cloud_event_id text NOT NULL, note text);
CREATE INDEX ON signals (subject, name, "timestamp");
INSERT INTO signals VALUES
    ('car1', 'speed', '2026-01-01 08:00Z', 10, 0, 0, 'a1'),
    ('car1', 'speed', '2026-01-01 09:00Z', 20, 0, 0, 'a2'),
    ('car1', 'speed', '2026-01-01 09:00Z', 99, 0, 0, 'a3'),
    ('car1', 'place', '2026-01-01 10:00Z', NULL, 48.1, 11.5, 'a4'),
    ('car2', 'speed', '2026-01-02 08:00Z', 30, 0, 0, 'b1'),
    ('car1', 'speed', '2026-01-02 00:00Z', NULL, 0, 0, 'a5'),
    ('car1', 'speed', '2026-01-04 12:00Z', 40, 0, 0, 'a6');
SELECT rollup_create('signals_latest', $$
  SELECT subject, name,
         max("timestamp")                                                          AS "timestamp",
         latest(value_number, "timestamp") FILTER (WHERE value_number IS NOT NULL) AS value_number,
         max("timestamp")                  FILTER (WHERE value_number IS NOT NULL) AS value_number_ts,
         latest(loc_lat, "timestamp") FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0)  AS loc_lat,
         max("timestamp")             FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0)  AS loc_ts,
         count(*) AS count, min("timestamp") AS first_seen
  FROM signals GROUP BY subject, name $$,
  time_column => 'timestamp', dedup_by => '{subject,name,timestamp}', dedup_order => '{cloud_event_id}', mode => 'on');
SELECT attname, format_type(atttypid, atttypmod), attnotnull, atthasdef FROM pg_attribute WHERE attrelid = 'signals_latest'::regclass AND attnum > 0 ORDER BY attnum;
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'signals_latest'::regclass;
SELECT indexrelid::regclass, pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'signals_latest'::regclass;
-- a number in our names is not its own
SELECT regexp_replace(pg_get_triggerdef(oid), '\d+', 'N', 'g') AS trigger, tgenabled FROM pg_trigger WHERE tgrelid = 'signals_latest'::regclass;
SELECT reloptions FROM pg_class WHERE oid = 'signals_latest'::regclass;
\d signals_latest_current
SELECT rollup, source, current_view, state, wanted_mode, mode, fold, watermark, lag, shadow, time_zone, delay, late_keys, reseed,
       last_action, last_outcome, last_run_at
FROM rollup_status;
SELECT rollup_watermark('signals_latest');
\pset format unaligned
\pset tuples_only on
SELECT rollup_definition('signals_latest', '2026-01-03 00:00Z');
SELECT rollup_definition('signals_latest');
\pset format aligned
\pset tuples_only off

\echo ==== Before the first refresh the view counts the whole source, live nothing
TABLE signals_latest;
SELECT * FROM signals_latest_current ORDER BY subject, name;
SELECT * FROM rollup_verify('signals_latest');
SELECT * FROM rollup_check('signals_latest');
-- what arrives before the first refresh waits for nothing
INSERT INTO signals VALUES ('car3', 'speed', '2026-01-01 08:00Z', 1, 0, 0, 'c1');
SELECT count(*) AS late FROM rollup_late;

\echo ==== The first refresh seeds
SELECT refresh('signals_latest', '2026-01-03 00:00Z');
SELECT * FROM signals_latest ORDER BY subject, name;
SELECT * FROM signals_latest_current ORDER BY subject, name;
SELECT rollup_watermark('signals_latest');
SELECT exact('signals_latest');
SELECT * FROM rollup_verify('signals_latest');

\echo ==== Rows of the tail: live stands still, the view follows
INSERT INTO signals VALUES
    ('car1', 'speed', '2026-01-03 00:00Z', 50, 0, 0, 'a7'),
    ('car1', 'speed', '2026-01-03 00:00Z', 51, 0, 0, 'a6'),
    ('car4', 'speed', '2026-01-03 07:00Z', 60, 0, 0, 'd1');
SELECT count(*) AS late FROM rollup_late;
SELECT subject, name, "timestamp", value_number, count FROM signals_latest_current ORDER BY subject, name;
SELECT exact('signals_latest');

\echo ==== Late rows wait as marks, the view knows them already
INSERT INTO signals VALUES
    ('car2', 'speed', '2026-01-02 23:59:59.999999Z', 31, 0, 0, 'b2'),
    ('car2', 'speed', '2026-01-01 00:00Z', 29, 0, 0, 'b0'),
    ('car5', 'speed', '2025-12-31 00:00Z', 70, 0, 0, 'e1'),
    -- a copy of an event that counts, earlier in dedup_order
    ('car1', 'speed', '2026-01-01 09:00Z', 21, 0, 0, 'a0');
SELECT rollup, key, marks FROM rollup_late ORDER BY key;
SELECT late_keys FROM rollup_status;
SELECT subject, name, "timestamp", value_number, count FROM signals_latest ORDER BY subject, name;
SELECT subject, name, "timestamp", value_number, count FROM signals_latest_current ORDER BY subject, name;
-- keys that wait are not compared
SELECT * FROM rollup_verify('signals_latest');

\echo ==== The same boundary again heals them; once more there is nothing to do
SELECT refresh('signals_latest', '2026-01-03 00:00Z');
SELECT exact('signals_latest');
SELECT count(*) AS late FROM rollup_late;
SELECT refresh('signals_latest', '2026-01-03 00:00Z');
-- a boundary before the watermark: the watermark stays, marks too
INSERT INTO signals VALUES ('car2', 'speed', '2026-01-02 12:00Z', 32, 0, 0, 'b3');
SELECT refresh('signals_latest', '2026-01-02 00:00Z');
SELECT rollup_watermark('signals_latest');
SELECT rollup, key, marks FROM rollup_late;

\echo ==== A fold over several days at once takes the waiting keys along
SELECT refresh('signals_latest', '2026-01-06 00:00Z');
SELECT exact('signals_latest');
SELECT subject, name, "timestamp", value_number, value_number_ts, count FROM signals_latest ORDER BY subject, name;
-- a day without rows
SELECT refresh('signals_latest', '2026-01-07 00:00Z');
SELECT exact('signals_latest');

\echo ==== Updates and deletes
-- within the tail
INSERT INTO signals VALUES ('car6', 'speed', '2026-01-08 00:00Z', 1, 0, 0, 'f1'), ('car6', 'speed', '2026-01-08 01:00Z', 2, 0, 0, 'f2');
UPDATE signals SET value_number = 3 WHERE cloud_event_id = 'f2';
DELETE FROM signals WHERE cloud_event_id = 'f1';
SELECT count(*) AS late FROM rollup_late;
-- of a settled row: the value, the key, the time over the watermark and back
UPDATE signals SET value_number = 71 WHERE subject = 'car5';
UPDATE signals SET subject = 'car7' WHERE subject = 'car4';
UPDATE signals SET "timestamp" = '2026-01-08 05:00Z' WHERE cloud_event_id = 'b0';
UPDATE signals SET "timestamp" = '2026-01-06 05:00Z' WHERE cloud_event_id = 'f2';
-- all rows of a key
DELETE FROM signals WHERE subject = 'car3';
-- a column that the rollup does not use changes nothing, nor does the same value again
UPDATE signals SET note = 'x' WHERE cloud_event_id = 'a4';
UPDATE signals SET loc_lat = 48.1, cloud_event_id = 'a4' WHERE cloud_event_id = 'a4';
SELECT rollup, key, marks FROM rollup_late ORDER BY key;
SELECT exact('signals_latest');
SELECT subject, name, "timestamp", value_number, count FROM signals_latest_current ORDER BY subject, name;
SELECT refresh('signals_latest', '2026-01-07 00:00Z');
SELECT exact('signals_latest');
SELECT subject, name FROM signals_latest ORDER BY subject, name;

\echo ==== A late row that was taken back leaves nothing
BEGIN;
SAVEPOINT s;
INSERT INTO signals VALUES ('car8', 'speed', '2026-01-01 00:00Z', 1, 0, 0, 'g1');
SELECT rollup, key, marks FROM rollup_late;
ROLLBACK TO s;
SELECT rollup, key, marks FROM rollup_late;
COMMIT;
-- a refresh too
BEGIN;
INSERT INTO signals VALUES ('car8', 'speed', '2026-01-01 00:00Z', 1, 0, 0, 'g1');
SELECT refresh('signals_latest', '2026-01-08 00:00Z');
SELECT exact('signals_latest');
INSERT INTO signals VALUES ('car8', 'speed', '2026-01-07 23:00Z', 2, 0, 0, 'g2');
SELECT rollup, key, marks FROM rollup_late;
ROLLBACK;
SELECT rollup_watermark('signals_latest'), (SELECT count(*) FROM rollup_late) AS late;
SELECT exact('signals_latest');

\echo ==== Reseed
SELECT rollup_reseed('signals_latest');
SELECT watermark, reseed FROM rollup_status;
SELECT exact('signals_latest');
-- even where the boundary stays
SELECT refresh('signals_latest', '2026-01-07 00:00Z');
SELECT watermark, reseed, last_action FROM rollup_status;
SELECT exact('signals_latest');

\echo ==== A load without triggers, and rollup_mark
SET session_replication_role = replica;
INSERT INTO signals VALUES ('car9', 'speed', '2026-01-01 00:00Z', 1, 0, 0, 'h1');
RESET session_replication_role;
SELECT rollup, key, marks FROM rollup_late;
BEGIN;
ALTER TABLE signals DISABLE TRIGGER USER;
INSERT INTO signals VALUES
    ('car9', 'speed', '2026-01-01 01:00Z', 2, 0, 0, 'h2'),
    ('car1', 'place', '2026-01-02 00:00Z', NULL, 48.2, 11.6, 'h3'),
    ('car1', 'place', '2026-01-03 00:00Z', NULL, 48.3, 11.7, 'h4');
SELECT tgname ~ '^dailyrollup_\d+_' AS ours, tgenabled FROM pg_trigger WHERE tgrelid = 'signals'::regclass ORDER BY tgname;
ALTER TABLE signals ENABLE TRIGGER USER;
-- ENABLE TRIGGER USER makes them ordinary ones
DO $$
DECLARE name name;
BEGIN
    FOR name IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'signals'::regclass LOOP
        EXECUTE format('ALTER TABLE signals ENABLE ALWAYS TRIGGER %I', name);
    END LOOP;
END $$;
COMMIT;
SELECT class, key, columns, live->'loc_lat' AS live, daily->'loc_lat' AS daily FROM rollup_verify('signals_latest');
-- from start to before end
SELECT rollup_mark('signals_latest', '2026-01-02 00:00Z', '2026-01-03 00:00Z');
SELECT rollup, key, marks FROM rollup_late ORDER BY key;
SELECT rollup_mark('signals_latest', '-infinity', 'infinity') = count(DISTINCT (subject, name)) AS all_keys FROM signals;
SELECT refresh('signals_latest', '2026-01-07 00:00Z');
SELECT exact('signals_latest');
SELECT rollup_mark('signals_latest', '2030-01-01 00:00Z', 'infinity');

\echo ==== What corrupts live is found, by rollup_verify
UPDATE signals_latest SET count = count + 1, value_number = NULL WHERE subject = 'car5';
-- which takes some effort
SELECT guard('signals_latest', 'DISABLE');
UPDATE signals_latest SET count = count + 1, value_number = NULL WHERE subject = 'car5';
UPDATE signals_latest SET loc_lat = loc_lat WHERE subject = 'car1';
DELETE FROM signals_latest WHERE subject = 'car2';
INSERT INTO signals_latest (subject, name, count) VALUES ('nobody', 'speed', 1), (NULL, NULL, 2);
SELECT guard('signals_latest', 'ENABLE ALWAYS');
SELECT class, key, columns, copies FROM rollup_verify('signals_latest') ORDER BY class, key;
SELECT live - '{subject,name}'::text[] AS live, daily - '{subject,name}'::text[] AS daily FROM rollup_verify('signals_latest') WHERE class = 'mismatch';
SELECT live, daily FROM rollup_verify('signals_latest') WHERE class = 'missing_daily' AND key->>'subject' = 'nobody';
SELECT live, daily->'count' AS count FROM rollup_verify('signals_latest') WHERE class = 'missing_live';
SELECT * FROM rollup_check('signals_latest');
-- five equal copies
ALTER TABLE signals_latest DROP CONSTRAINT signals_latest_subject_name_key;
SELECT guard('signals_latest', 'DISABLE');
INSERT INTO signals_latest SELECT l.* FROM signals_latest l, generate_series(1, 4) WHERE subject = 'car6';
SELECT guard('signals_latest', 'ENABLE ALWAYS');
SELECT class, key, columns, live->'count' AS count, daily, copies FROM rollup_verify('signals_latest') WHERE class = 'duplicate';
SELECT * FROM rollup_check('signals_latest');
-- without its index live cannot be kept; a mark takes its key out of the comparison
SELECT try($$SELECT refresh('signals_latest', '2026-01-08 00:00Z')$$);
SELECT guard('signals_latest', 'DISABLE');
DELETE FROM signals_latest WHERE subject = 'car6';
SELECT guard('signals_latest', 'ENABLE ALWAYS');
ALTER TABLE signals_latest ADD UNIQUE NULLS NOT DISTINCT (subject, name);
SELECT rollup_mark('signals_latest', '-infinity', 'infinity') > 0 AS marked;
SELECT class, key FROM rollup_verify('signals_latest') ORDER BY class, key;
-- a mark heals what its key has lost or got wrong, a reseed what has no source row
SELECT refresh('signals_latest', '2026-01-07 00:00Z');
SELECT class, key FROM rollup_verify('signals_latest') ORDER BY class, key;
SELECT rollup_reseed('signals_latest');
SELECT refresh('signals_latest', '2026-01-08 00:00Z');
SELECT * FROM rollup_verify('signals_latest');
SELECT exact('signals_latest');
SELECT * FROM rollup_check();

\echo ==== What was run
SELECT rollup, action, from_time, to_time, folded_keys, late_keys, outcome, reason,
       rows, keys, missing_daily, missing_live, mismatches, duplicates,
       started_at <= finished_at AND elapsed = finished_at - started_at AS times
FROM rollup_runs ORDER BY id;
SELECT rollup, source, current_view, state, wanted_mode, mode, fold, watermark, lag > '0' AS lag, shadow, time_zone, delay, late_keys, reseed,
       last_action, last_outcome, last_run_at IS NOT NULL AS last_run
FROM rollup_status;

\echo ==== Many late keys: the refresh prefers a seed
ALTER SYSTEM SET dailyrollup.max_late_keys = 2;
SELECT pg_reload_conf();
\set ECHO none
\o /dev/null
SELECT $$SELECT CASE WHEN current_setting('dailyrollup.max_late_keys') <> '2' THEN pg_sleep(0.05) END$$ FROM generate_series(1, 200) \gexec
\o
\set ECHO all
SHOW dailyrollup.max_late_keys;
INSERT INTO signals SELECT 'car' || i, 'late', '2026-01-02', i, 0, 0, 'i' || i FROM generate_series(1, 2) i;
SELECT refresh('signals_latest', '2026-01-08 00:00Z');
INSERT INTO signals SELECT 'car' || i, 'late', '2026-01-03', i, 0, 0, 'j' || i FROM generate_series(1, 3) i;
SELECT refresh('signals_latest', '2026-01-08 00:00Z');
SELECT exact('signals_latest');
INSERT INTO signals SELECT 'car' || i, 'late', '2026-01-04', i, 0, 0, 'k' || i FROM generate_series(1, 3) i;
SELECT refresh('signals_latest', '2026-01-09 00:00Z');
SELECT exact('signals_latest');
SELECT action, from_time, to_time, late_keys, reason FROM rollup_runs ORDER BY id DESC LIMIT 3;
ALTER SYSTEM RESET dailyrollup.max_late_keys;
SELECT pg_reload_conf();
\set ECHO none
\o /dev/null
SELECT $$SELECT CASE WHEN current_setting('dailyrollup.max_late_keys') <> '-1' THEN pg_sleep(0.05) END$$ FROM generate_series(1, 200) \gexec
\o
\set ECHO all
SHOW dailyrollup.max_late_keys;

\echo ==== A writer that does not end
SHOW dailyrollup.writer_timeout;
BEGIN;
INSERT INTO signals VALUES ('car1', 'speed', '2026-01-09 08:00Z', 80, 0, 0, 'l1');
PREPARE TRANSACTION 'life';
SET dailyrollup.writer_timeout = '10ms';
SELECT * FROM rollup_refresh('signals_latest', '2026-01-10 00:00Z');
\echo :SQLSTATE
-- late keys alone need not wait for it
INSERT INTO signals VALUES ('car1', 'speed', '2026-01-08 08:00Z', 80, 0, 0, 'l0');
SELECT refresh('signals_latest', '2026-01-09 00:00Z');
COMMIT PREPARED 'life';
SELECT refresh('signals_latest', '2026-01-10 00:00Z');
RESET dailyrollup.writer_timeout;
SELECT exact('signals_latest');
-- a refresh announces itself, so it cannot be prepared
BEGIN;
SELECT refresh('signals_latest', '2026-01-11 00:00Z');
PREPARE TRANSACTION 'refresh';
\echo :SQLSTATE
SELECT rollup_watermark('signals_latest');

\echo ==== Where a refresh cannot run
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM rollup_refresh('signals_latest', '2026-01-11 00:00Z');
\echo :SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT * FROM rollup_refresh('signals_latest', '2026-01-11 00:00Z');
\echo :SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT * FROM rollup_refresh('signals_latest', '2026-01-11 00:00Z');
\echo :SQLSTATE
ROLLBACK;
\set SHOW_CONTEXT never
BEGIN READ ONLY;
SELECT rollup_mark('signals_latest', '2026-01-01', '2026-01-02');
\echo :SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT rollup_reseed('signals_latest');
\echo :SQLSTATE
ROLLBACK;
\set SHOW_CONTEXT errors
-- but reading and checking does
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;
SELECT count(*) FROM rollup_verify('signals_latest');
SELECT rows = keys AS same FROM rollup_check('signals_latest');
SELECT count(*) > 0 AS some FROM signals_latest_current;
SELECT exact('signals_latest');
COMMIT;
-- in the middle of a statement over the source
INSERT INTO signals SELECT 'car1', 'speed', '2026-01-10 08:00Z', 1, 0, 0, r.action
FROM rollup_refresh('signals_latest', '2026-01-11 00:00Z') r;
\echo :SQLSTATE
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM signals;
FETCH 1 FROM c \g /dev/null
SELECT * FROM rollup_refresh('signals_latest', '2026-01-11 00:00Z');
\echo :SQLSTATE
ROLLBACK;
SELECT exact('signals_latest');

\echo ==== Drop
CREATE VIEW mine AS SELECT subject FROM signals_latest_current;
SELECT try($$SELECT rollup_drop('signals_latest')$$);
DROP VIEW mine;
SELECT rollup_drop('signals_latest', NULL) IS NULL AS nothing_happens, count(*) AS rollups FROM rollup_status;
SELECT id FROM dailyrollup.rollups WHERE live = 'signals_latest'::regclass \gset
SELECT rollup_drop('signals_latest');
SELECT count(*) > 0 AS live_stays FROM signals_latest;
SELECT to_regclass('signals_latest_current') AS view, count(*) AS rollups FROM rollup_status;
SELECT tgname FROM pg_trigger WHERE tgrelid = 'signals'::regclass;
SELECT relname FROM pg_class WHERE relnamespace = 'dailyrollup'::regnamespace AND relname ~ '_[0-9]+$';
SELECT count(*) AS runs FROM dailyrollup.runs WHERE rollup_id = :id;
INSERT INTO signals VALUES ('car1', 'speed', '2026-01-01 08:00Z', 80, 0, 0, 'm0');
DROP TABLE signals_latest;
SELECT rollup_create('signals_latest', 'SELECT subject, count(*) FROM signals GROUP BY subject', 'timestamp', mode => 'on');
SELECT rollup_drop('signals_latest', drop_table => true);
SELECT to_regclass('signals_latest') AS live;
DROP TABLE signals;

\echo ==== Every rollup at once
SET client_min_messages = warning;
CREATE TABLE one (k int, ts timestamptz NOT NULL);
CREATE TABLE two (k int, ts timestamptz NOT NULL);
INSERT INTO one VALUES (1, '2026-01-01 01:00Z');
INSERT INTO two VALUES (1, '2026-01-01 01:00Z'), (2, '2026-01-01 22:30Z');
SELECT rollup_create('one_n', 'SELECT k, count(*) FROM one GROUP BY k', 'ts', mode => 'on');
SELECT rollup_create('two_n', 'SELECT k, count(*) FROM two GROUP BY k', 'ts', time_zone => 'Europe/Berlin', delay => '1 day 2:00', mode => 'on', fold => true);
SELECT rollup_create('two_m', 'SELECT k, max(ts) FROM two GROUP BY k', 'ts', mode => 'on');
SELECT rollup, time_zone, delay, state FROM rollup_status ORDER BY rollup::text;
-- a boundary that is none for one of them: none is refreshed
SELECT try('SELECT count(*) FROM rollup_refresh(NULL, ''2026-01-02 00:00Z'')');
SELECT rollup, watermark FROM rollup_status ORDER BY rollup::text;
-- by default the latest midnight of each one's zone
SELECT rollup, action, from_time, to_time AT TIME ZONE s.time_zone = date_trunc('day', now() - interval '1 minute', s.time_zone) AT TIME ZONE s.time_zone AS latest_midnight, folded_keys
FROM rollup_refresh() JOIN rollup_status s USING (rollup) ORDER BY rollup::text;
SELECT rollup, action FROM rollup_refresh() ORDER BY rollup::text;
SELECT rollup, side, rows, keys, dup_keys, dup_rows FROM rollup_check() ORDER BY rollup::text;
-- two rollups of one source each have marks of their own
INSERT INTO two VALUES (3, '2026-01-01 00:00Z');
SELECT rollup, key, marks FROM rollup_late ORDER BY rollup::text;
SELECT rollup, action, late_keys FROM rollup_refresh() ORDER BY rollup::text;
SELECT r, exact(r) FROM unnest('{one_n,two_n,two_m}'::regclass[]) r;
SELECT rollup_drop(r, true) FROM unnest('{one_n,two_n,two_m}'::regclass[]) r;

\echo ==== An empty source
TRUNCATE one;
SELECT rollup_create('one_n', 'SELECT k, count(*), coalesce(sum(k), 0) AS sum FROM one GROUP BY k', 'ts', mode => 'on');
SELECT * FROM one_n_current;
SELECT refresh('one_n', '2026-01-02 00:00Z');
SELECT refresh('one_n', '2026-01-03 00:00Z');
SELECT exact('one_n');
INSERT INTO one VALUES (1, '2026-01-02');
SELECT * FROM one_n_current;
SELECT refresh('one_n', '2026-01-03 00:00Z');
DELETE FROM one;
SELECT refresh('one_n', '2026-01-03 00:00Z');
TABLE one_n;
SELECT rollup_drop('one_n', true);

\echo ==== A row a day
CREATE TABLE readings (ts timestamptz NOT NULL, n int);
INSERT INTO readings VALUES ('2026-01-01 00:00Z', 1), ('2026-01-01 23:59Z', 2), ('2026-01-02 00:00Z', 3), ('2026-01-03 05:00Z', 4);
SELECT rollup_create('by_day', $$SELECT date_trunc('day', ts AT TIME ZONE 'UTC') AS day, count(*), sum(n) FROM readings GROUP BY day$$, 'ts', mode => 'on');
SELECT refresh('by_day', '2026-01-03 00:00Z');
SELECT * FROM by_day ORDER BY day;
SELECT * FROM by_day_current ORDER BY day;
SELECT refresh('by_day', '2026-01-04 00:00Z');
INSERT INTO readings VALUES ('2026-01-01 12:00Z', 5), ('2025-12-31 12:00Z', 6);
SELECT rollup, key, marks FROM rollup_late ORDER BY key;
SELECT * FROM by_day_current ORDER BY day;
SELECT refresh('by_day', '2026-01-04 00:00Z');
SELECT * FROM by_day ORDER BY day;
SELECT exact('by_day');

\echo ==== NULL is a key like any other, also beside others
CREATE TABLE nulls (a text, b int, ts timestamptz NOT NULL, n int);
CREATE INDEX ON nulls (a, b);
INSERT INTO nulls VALUES (NULL, NULL, '2026-01-01', 1), (NULL, 1, '2026-01-01', 2), ('x', NULL, '2026-01-01', 3), ('x', 1, '2026-01-01', 4), ('', NULL, '2026-01-01', 5);
SELECT rollup_create('nulls_n', 'SELECT a, b, count(*), sum(n), max(n) FROM nulls GROUP BY a, b', 'ts', mode => 'on');
SELECT refresh('nulls_n', '2026-01-02 00:00Z');
INSERT INTO nulls SELECT a, b, ts + interval '1 day', n * 10 FROM nulls;
\pset null <NULL>
SELECT * FROM nulls_n_current ORDER BY a, b;
SELECT refresh('nulls_n', '2026-01-03 00:00Z');
SELECT exact('nulls_n');
INSERT INTO nulls VALUES (NULL, NULL, '2026-01-01', 6), ('x', NULL, '2026-01-02', 7), ('y', NULL, '2026-01-02', 8);
DELETE FROM nulls WHERE a IS NULL AND b = 1 OR a = '';
UPDATE nulls SET b = NULL WHERE a = 'x' AND b = 1 AND n = 4;
SELECT rollup, key, marks FROM rollup_late WHERE rollup = 'nulls_n'::regclass ORDER BY key;
SELECT * FROM nulls_n_current ORDER BY a, b;
SELECT exact('nulls_n');
SELECT refresh('nulls_n', '2026-01-03 00:00Z');
SELECT * FROM nulls_n ORDER BY a, b;
SELECT exact('nulls_n');
SELECT guard('nulls_n', 'DISABLE');
UPDATE nulls_n SET sum = NULL WHERE a IS NULL;
SELECT class, key, columns FROM rollup_verify('nulls_n');

\echo ==== Constants for "no value"
CREATE TABLE points (k text NOT NULL, ts timestamptz NOT NULL, n int, flag bool, label text);
INSERT INTO points VALUES ('a', '2026-01-01', -5, false, NULL), ('b', '2026-01-01', NULL, NULL, 'one'), ('c', '2026-01-01', NULL, NULL, NULL);
SELECT rollup_create('points_n', $$
    SELECT k, coalesce(sum(n), 0) AS sum, count(n) AS n, coalesce(max(n), 0) AS max, coalesce(min(n), 100) AS min,
           coalesce(bool_or(flag), false) AS any, coalesce(bool_and(flag), true) AS every,
           coalesce(latest(label, ts) FILTER (WHERE label IS NOT NULL), 'none') AS label,
           max(ts) FILTER (WHERE label IS NOT NULL) AS label_at
    FROM points GROUP BY k$$, 'ts', mode => 'on');
SELECT refresh('points_n', '2026-01-02 00:00Z');
SELECT * FROM points_n ORDER BY k;
INSERT INTO points VALUES ('a', '2026-01-02', -7, true, 'two'), ('b', '2026-01-02', -1, NULL, NULL), ('c', '2026-01-02', NULL, NULL, NULL), ('d', '2026-01-02', 0, false, 'none');
SELECT * FROM points_n_current ORDER BY k;
SELECT refresh('points_n', '2026-01-03 00:00Z');
SELECT * FROM points_n ORDER BY k;
SELECT exact('points_n');

\echo ==== Times without an end, and none at all
CREATE TABLE ends (k int NOT NULL, ts timestamptz, n int);
INSERT INTO ends VALUES (1, '-infinity', 1), (1, 'infinity', 2), (1, NULL, 4), (2, 'infinity', 8), (3, NULL, 16), (4, '9999-01-01', 32), (5, '4713-01-01 00:00Z BC', 64);
SELECT rollup_create('ends_n', 'SELECT k, sum(n), min(ts), max(ts) FROM ends GROUP BY k', 'ts', mode => 'on');
SELECT * FROM ends_n_current ORDER BY k;
SELECT refresh('ends_n', '2026-01-02 00:00Z');
SELECT * FROM ends_n ORDER BY k;
SELECT * FROM ends_n_current ORDER BY k;
SELECT refresh('ends_n', '2026-01-03 00:00Z');
INSERT INTO ends VALUES (2, '-infinity', 128), (3, NULL, 256), (6, 'infinity', 512);
SELECT rollup, key, marks FROM rollup_late WHERE rollup = 'ends_n'::regclass;
-- a row that gets its time later, and one that loses it
UPDATE ends SET ts = '2026-01-01' WHERE n = 16;
UPDATE ends SET ts = NULL WHERE n = 64;
UPDATE ends SET ts = '2026-01-02' WHERE n = 32;
SELECT rollup, key, marks FROM rollup_late WHERE rollup = 'ends_n'::regclass ORDER BY key;
SELECT exact('ends_n');
SELECT refresh('ends_n', '2026-01-03 00:00Z');
SELECT * FROM ends_n ORDER BY k;
SELECT exact('ends_n');

\echo ==== Ways of writing
CREATE TABLE devices (device text PRIMARY KEY);
CREATE TABLE measured (
    id int PRIMARY KEY, device text NOT NULL REFERENCES devices ON DELETE CASCADE ON UPDATE CASCADE, at timestamptz NOT NULL,
    day date GENERATED ALWAYS AS ((at AT TIME ZONE 'UTC')::date) STORED, n int);
CREATE FUNCTION shift() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.device = 'slow' THEN
        NEW.at = NEW.at - interval '1 day';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER shift BEFORE INSERT ON measured FOR EACH ROW EXECUTE FUNCTION shift();
INSERT INTO devices VALUES ('a'), ('b'), ('c'), ('slow');
INSERT INTO measured (id, device, at, n) SELECT i, chr(97 + i % 3), timestamptz '2026-01-01' + i * interval '5 hours', i FROM generate_series(1, 12) i;
SELECT rollup_create('measured_n', 'SELECT device, day, count(*), sum(n), max(n) FILTER (WHERE n <> 7) AS max FROM measured WHERE n > 0 GROUP BY device, day', 'at', mode => 'on');
SELECT rollup_create('measured_d', 'SELECT device, count(*), sum(n) FROM measured GROUP BY device', 'day', mode => 'on');
SELECT refresh(r, '2026-01-03 00:00Z') FROM unnest('{measured_n,measured_d}'::regclass[]) r;
CREATE FUNCTION late() RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
    SELECT string_agg(rollup || ' ' || key, ' ' ORDER BY rollup::text, key) INTO result FROM rollup_late WHERE rollup IN ('measured_n'::regclass, 'measured_d');
    IF exact('measured_n') !~ 'current: 0' OR exact('measured_d') !~ 'current: 0' THEN
        RETURN concat('wrong: ', result);
    END IF;
    PERFORM refresh(r, '2026-01-03 00:00Z') FROM unnest('{measured_n,measured_d}'::regclass[]) r;
    IF exact('measured_n') <> 'live: 0, current: 0' OR exact('measured_d') <> 'live: 0, current: 0' THEN
        RETURN concat('not healed: ', result);
    END IF;
    RETURN result;
END $$;
COPY measured (id, device, at, n) FROM stdin;
20	a	2026-01-01 01:00Z	20
21	b	2026-01-03 01:00Z	21
22	slow	2026-01-03 01:00Z	22
\.
SELECT late();
INSERT INTO measured (id, device, at, n) VALUES (20, 'a', '2026-01-05', 30), (23, 'b', '2026-01-02', 23)
ON CONFLICT (id) DO UPDATE SET n = excluded.n, at = excluded.at;
SELECT late();
INSERT INTO measured (id, device, at, n) VALUES (20, 'a', '2026-01-05', 31), (23, 'b', '2026-01-02', 24) ON CONFLICT DO NOTHING;
SELECT late();
MERGE INTO measured m USING (VALUES (1, 'a'), (2, NULL), (24, 'c')) v(id, device) ON m.id = v.id
WHEN MATCHED AND v.device IS NULL THEN DELETE
WHEN MATCHED THEN UPDATE SET device = v.device
WHEN NOT MATCHED THEN INSERT (id, device, at, n) VALUES (v.id, v.device, '2026-01-01', 24);
SELECT late();
WITH moved AS (DELETE FROM measured WHERE id IN (3, 20) RETURNING *)
INSERT INTO measured (id, device, at, n) SELECT id + 100, device, at, n FROM moved;
SELECT late();
-- WHERE decides anew
UPDATE measured SET n = -n WHERE id = 4;
SELECT late();
-- by the foreign key
UPDATE devices SET device = 'aa' WHERE device = 'a';
SELECT late();
DELETE FROM devices WHERE device = 'b';
SELECT late();
-- in a cursor loop, with a handled error in between
DO $$
DECLARE r record;
BEGIN
    FOR r IN SELECT * FROM measured WHERE at < '2026-01-03' ORDER BY id LOOP
        BEGIN
            UPDATE measured SET n = n + 1 WHERE id = r.id;
            IF r.id % 2 = 0 THEN
                RAISE division_by_zero;
            END IF;
        EXCEPTION WHEN division_by_zero THEN
        END;
    END LOOP;
END $$;
SELECT late();
-- a refresh, and a TRUNCATE, that are taken back in the middle of a transaction
BEGIN;
SAVEPOINT s;
SELECT refresh('measured_n', '2026-01-06 00:00Z');
INSERT INTO measured (id, device, at, n) VALUES (30, 'c', '2026-01-05', 30);
ROLLBACK TO s;
INSERT INTO measured (id, device, at, n) VALUES (31, 'c', '2026-01-05', 31), (32, 'c', '2026-01-02', 32);
SAVEPOINT t;
TRUNCATE measured;
INSERT INTO measured (id, device, at, n) VALUES (33, 'c', '2026-01-01', 33);
ROLLBACK TO t;
INSERT INTO measured (id, device, at, n) VALUES (34, 'c', '2026-01-01', 34);
COMMIT;
SELECT exact('measured_n'), exact('measured_d');
SELECT late();
SELECT refresh(r, '2026-01-06 00:00Z') FROM unnest('{measured_n,measured_d}'::regclass[]) r;
SELECT exact('measured_n'), exact('measured_d');
SELECT * FROM measured_n ORDER BY device, day;

\echo ==== timestamp and date: the boundary is the local midnight, whatever the zone of the session
CREATE TABLE local (k int NOT NULL, t timestamp NOT NULL, d date NOT NULL);
INSERT INTO local SELECT i % 2, t, t::date FROM generate_series(timestamp '2026-03-06 12:00', '2026-03-09 12:00', '1 hour') WITH ORDINALITY AS g(t, i);
SELECT rollup_create('local_t', 'SELECT k, count(*), min(t), max(t) FROM local GROUP BY k', 't', time_zone => 'America/New_York', mode => 'on');
SELECT rollup_create('local_d', 'SELECT k, count(*), min(d), max(d) FROM local GROUP BY k', 'd', time_zone => 'America/New_York', mode => 'on');
SET timezone = 'Asia/Tokyo';
SELECT refresh(r, '2026-03-08 05:00Z') FROM unnest('{local_t,local_d}'::regclass[]) r;
SELECT * FROM local_t ORDER BY k;
SELECT * FROM local_d ORDER BY k;
SELECT * FROM local_t_current ORDER BY k;
SELECT * FROM local_d_current ORDER BY k;
SELECT rollup_definition('local_t', '2026-03-08 05:00Z') LIKE '%2026-03-08 00:00:00%' AS t, rollup_definition('local_d', '2026-03-08 05:00Z') LIKE '%2026-03-08%' AS d;
INSERT INTO local VALUES (7, '2026-03-07 23:59:59', '2026-03-07'), (8, '2026-03-08 00:00', '2026-03-08');
SELECT rollup, key FROM rollup_late WHERE rollup IN ('local_t'::regclass, 'local_d') ORDER BY rollup::text;
SELECT refresh(r, '2026-03-09 04:00Z') FROM unnest('{local_t,local_d}'::regclass[]) r;
SELECT r, exact(r) FROM unnest('{local_t,local_d}'::regclass[]) r;
SELECT * FROM local_t ORDER BY k;
SELECT * FROM local_d ORDER BY k;
SET timezone = 'UTC';

\echo ==== A day of 23 hours, of 25, one that starts at 01:00, one whose midnight comes twice
CREATE TABLE hours (zone text NOT NULL, ts timestamptz NOT NULL);
CREATE FUNCTION days(zone text, boundaries timestamptz[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE b timestamptz;
BEGIN
    TRUNCATE hours;
    INSERT INTO hours SELECT zone, ts FROM generate_series(boundaries[1] - interval '1 day', boundaries[cardinality(boundaries)] + interval '1 day', '30 min') ts;
    PERFORM rollup_create('hours_n', 'SELECT zone, count(*), max(ts) FROM hours GROUP BY zone', 'ts', time_zone => zone, mode => 'on');
    FOREACH b IN ARRAY boundaries LOOP
        RETURN NEXT b AT TIME ZONE zone || ': ' || try(format('SELECT refresh(%L, %L)', 'hours_n', b))
            || coalesce((SELECT '; rows: ' || count FROM hours_n), '');
    END LOOP;
    RETURN NEXT exact('hours_n');
    PERFORM rollup_drop('hours_n', true);
END $$;
\pset format unaligned
\pset tuples_only on
SELECT days('America/New_York', '{2026-03-08 04:00Z,2026-03-08 05:00Z,2026-03-09 05:00Z,2026-03-09 04:00Z}');
SELECT days('America/New_York', '{2025-11-02 04:00Z,2025-11-03 04:00Z,2025-11-03 05:00Z}');
SELECT days('Asia/Beirut', '{2025-03-28 22:00Z,2025-03-29 21:00Z,2025-03-29 22:00Z,2025-03-30 21:00Z}');
SELECT days('Asia/Beirut', '{2025-10-24 21:00Z,2025-10-25 21:00Z,2025-10-25 22:00Z,2025-10-26 22:00Z}');
SELECT days('America/Havana', '{2025-11-02 05:00Z,2025-11-02 04:00Z,2025-11-03 04:00Z,2025-11-03 05:00Z}');
SELECT days('Asia/Kathmandu', '{2026-01-01 18:00Z,2026-01-01 18:15Z}');

\echo ==== Names
SET client_encoding = 'UTF8';
CREATE SCHEMA "Ein Schema.mit ""Ärger""";
CREATE TABLE "Ein Schema.mit ""Ärger"""."table" ("select" text, "a.b ""c""" int, U&"new\000Aline" timestamptz NOT NULL, "größe" int, "e" int, "$1" int);
SELECT rollup_create('"Ein Schema.mit ""Ärger"""."it''s \ ""live"""', $$
    SELECT "select" AS "user", "a.b ""c""" + 1 AS "l", "größe" % 2 AS "%s", latest("e", "new
line") AS "größte ""e""", max("new
line") AS "Order", count("$1") AS "count"
    FROM "Ein Schema.mit ""Ärger"""."table" GROUP BY 1, 2, 3$$, E'new\nline', dedup_by => ARRAY['select', 'a.b "c"', E'new\nline', 'größe'], mode => 'on');
INSERT INTO "Ein Schema.mit ""Ärger"""."table" VALUES ('x', 1, '2026-01-01', 1, 1, 1), (NULL, 2, '2026-01-02', 2, 2, 2), ('x', 1, '2026-01-02', 3, 3, NULL);
SELECT refresh(rollup, '2026-01-02 00:00Z') FROM rollup_status WHERE rollup::text LIKE '%Ärger%';
INSERT INTO "Ein Schema.mit ""Ärger"""."table" VALUES ('x', 1, '2026-01-01', 1, 4, 1), ('y', 1, '2026-01-01', 1, 4, 1);
SELECT rollup, key FROM rollup_late WHERE rollup::text LIKE '%Ärger%' ORDER BY key;
SELECT * FROM "Ein Schema.mit ""Ärger"""."it's \ ""live""_current" ORDER BY 1;
SELECT exact(rollup) FROM rollup_status WHERE rollup::text LIKE '%Ärger%';
SELECT refresh(rollup, '2026-01-03 00:00Z') FROM rollup_status WHERE rollup::text LIKE '%Ärger%';
SELECT exact(rollup) FROM rollup_status WHERE rollup::text LIKE '%Ärger%';
UPDATE "Ein Schema.mit ""Ärger"""."it's \ ""live""" SET "größte ""e""" = 7 WHERE "user" = 'x';
SELECT guard(rollup, 'DISABLE') FROM rollup_status WHERE rollup::text LIKE '%Ärger%';
UPDATE "Ein Schema.mit ""Ärger"""."it's \ ""live""" SET "größte ""e""" = 7 WHERE "user" = 'x';
SELECT class, key, columns FROM rollup_verify((SELECT rollup FROM rollup_status WHERE rollup::text LIKE '%Ärger%'));
SELECT rollup_definition(rollup, '2026-01-02 00:00Z') FROM rollup_status WHERE rollup::text LIKE '%Ärger%';
SELECT rollup_drop(rollup, true) FROM rollup_status WHERE rollup::text LIKE '%Ärger%';
DROP SCHEMA "Ein Schema.mit ""Ärger""" CASCADE;
-- live columns with the names of our own
CREATE TABLE own (x int, e int, l int, m int, u int, k1 int, ts timestamptz NOT NULL);
INSERT INTO own VALUES (1, 2, 3, 4, 5, 6, '2026-01-01'), (1, 2, 3, 4, NULL, NULL, '2026-01-02');
SELECT rollup_create('own_n', 'SELECT x, e, l AS k2, m AS t, sum(u) AS r, sum(k1) AS k1, max(ts) AS excluded, count(*) AS key FROM own GROUP BY x, e, l, m', 'ts', mode => 'on');
SELECT refresh('own_n', '2026-01-02 00:00Z');
SELECT refresh('own_n', '2026-01-03 00:00Z');
INSERT INTO own VALUES (1, 2, 3, 4, 5, 6, '2026-01-01');
SELECT key FROM rollup_late WHERE rollup = 'own_n'::regclass;
SELECT exact('own_n');
SELECT refresh('own_n', '2026-01-03 00:00Z');
SELECT exact('own_n');
SELECT * FROM rollup_verify('own_n');

\echo ==== Errors: rollup_create
CREATE FUNCTION make(rollup text = 'made', query text = 'SELECT k, count(*) FROM one GROUP BY k', time_column name = 'ts', dedup_by name[] = NULL,
    dedup_order name[] = NULL, time_zone text = 'UTC', delay interval = NULL, mode text = 'on') RETURNS text LANGUAGE sql AS $$
    SELECT try(format('SELECT rollup_create(%L, %L, %L, %L, %L, %L, %L, %L)', rollup, query, time_column, dedup_by, dedup_order, time_zone, delay, mode))
$$;
SELECT make(rollup => NULL);
SELECT make(query => NULL);
SELECT make(time_column => NULL);
SELECT make(time_zone => NULL);
SELECT make(dedup_by => '{k,NULL}');
SELECT make(dedup_order => '{NULL}');
SELECT make(mode => 'bogus');
SELECT make(mode => 'NEW');
SELECT make(mode => '');
SELECT make(time_zone => 'Mars/Olympus');
SELECT make(time_zone => '');
SELECT make(delay => '-1 second');
SELECT make(delay => '1 month');
SELECT make(delay => '1 day -1 hour');
SELECT make(time_column => 'nope');
SELECT make(time_column => 'k');
SELECT make(time_column => 'ctid');
SELECT make(dedup_by => '{nope}');
SELECT make(query => 'SELECT k, count(*) FROM nope GROUP BY k');
SELECT make(mode => 'new');
SELECT make(mode => 'default');
SELECT make(rollup => 'one');
SELECT make(rollup => 'by_day');
SELECT make(rollup => 'by_day_current');
CREATE VIEW some_view AS SELECT 1;
SELECT make(rollup => 'some_view');
SELECT make(rollup => 'by_day_day_key');
CREATE VIEW made_current AS SELECT 1;
SELECT make();
DROP VIEW made_current;
SELECT make(rollup => '');
SELECT make(rollup => 'a.b.c.d');
SELECT make(rollup => 'nodb.life.made');
SELECT make(rollup => 'nowhere.made');
SELECT make(rollup => '"unclosed');
SELECT make(rollup => 'pg_temp.made');
SELECT make(rollup => 'pg_catalog.made');
SELECT make(rollup => repeat('x', 55)) ~ '^returns';
SELECT rollup_drop(rollup, true) FROM rollup_status WHERE rollup::text LIKE 'xxx%';
SELECT make(rollup => repeat('x', 56));
SELECT make(rollup => repeat('x', 57));
SELECT make(rollup => repeat('ä', 28));
SELECT make(rollup => repeat('x', 64));
SELECT count(*) FROM pg_class WHERE relnamespace = 'life'::regnamespace AND relname LIKE 'made%';

\echo ==== Errors: what is not a rollup
CREATE SEQUENCE some_sequence;
SELECT format(call, quote_literal(relation)) || E'\n  ' || try('SELECT ' || format(call, quote_literal(relation)))
FROM unnest('{nope,one,some_view,some_sequence,by_day_day_key,by_day_current}'::text[]) WITH ORDINALITY AS r(relation, i),
     unnest('{rollup_drop(%s),rollup_refresh(%s),rollup_reseed(%s),rollup_watermark(%s),rollup_definition(%s),rollup_check(%s),rollup_verify(%s)}'::text[]
            || 'rollup_mark(%s, now(), now())'::text) WITH ORDINALITY AS c(call, j)
ORDER BY j, i;
SELECT try('SELECT rollup_drop(0)');

\echo ==== NULL
SELECT try('SELECT rollup_drop(NULL)');
SELECT try('SELECT rollup_reseed(NULL)');
SELECT try('SELECT rollup_watermark(NULL)');
SELECT try('SELECT rollup_definition(NULL)');
SELECT try('SELECT rollup_definition(NULL, ''2026-01-01'')');
SELECT try('SELECT rollup_verify(NULL)');
SELECT try('SELECT rollup_mark(NULL, ''2026-01-01'', ''2026-01-02'')');
SELECT try('SELECT rollup_mark(''by_day'', NULL, ''2026-01-02'')');
SELECT try('SELECT rollup_mark(''by_day'', ''2026-01-01'', NULL)');
SELECT count(*) FROM rollup_late WHERE rollup = 'by_day'::regclass;

\echo ==== Errors: boundaries and times
SELECT try(format('SELECT refresh(%L, %L)', 'by_day', b))
FROM unnest(ARRAY['2026-01-05 00:00:01Z', '2026-01-05 01:00Z', 'infinity', '-infinity', '2026-01-05 00:00+01', '2026-01-04 00:00Z', '2026-01-03 00:00Z',
                  '4713-01-02 00:00Z BC']) WITH ORDINALITY AS a(b, i) ORDER BY i;
-- the next midnight, and one far off
SELECT split_part(try(format('SELECT refresh(%L, %L)', 'by_day', date_trunc('day', now(), 'UTC') + interval '1 day')), ' boundary ', 1);
SELECT try($$SELECT refresh('by_day', '2999-01-01 00:00Z')$$);
SELECT try($$SELECT rollup_mark('by_day', '2026-01-02', '2026-01-02')$$);
SELECT try($$SELECT rollup_mark('by_day', 'infinity', '-infinity')$$);
SELECT rollup_definition('by_day', 'infinity');
SELECT rollup_definition('by_day', '-infinity');

\pset format aligned
\pset tuples_only off
SET search_path = public;
DROP SCHEMA life CASCADE;
SELECT count(*) AS rollups FROM dailyrollup.rollups;
SELECT relname FROM pg_class WHERE relnamespace = 'dailyrollup'::regnamespace AND relname ~ '_[0-9]+$';
