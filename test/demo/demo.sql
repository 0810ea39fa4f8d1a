-- The main job, on telemetry of a fleet that is made up here, the same each
-- time: 1,000 vehicles, 8 signals, six days, over a million readings.
\set ON_ERROR_STOP on
\pset footer off
\pset null '-'
SET timezone = 'UTC';

\echo
\echo '1. A fleet''s telemetry: one row per reading of a vehicle'
\echo

\echo '   making up 1.1 million of them, and letting three days of them arrive ...'
\echo

CREATE EXTENSION dailyrollup;
CREATE SCHEMA lake;
CREATE TABLE lake.signals (
	subject text NOT NULL,
	name text NOT NULL,
	"timestamp" timestamptz NOT NULL,
	value_number float8,
	value_string text,
	loc_lat float8,
	loc_lon float8,
	cloud_event_id text NOT NULL
);
CREATE INDEX ON lake.signals (subject, name, "timestamp");

-- What will arrive, and when.  A few vehicles send most of it; 1% arrives
-- hours to two days late; 0.5% is delivered twice; 0.2% has a second event at
-- the same instant; one reading is stamped far in the future.
CREATE UNLOGGED TABLE arrivals AS
WITH random AS (
	SELECT i,
		i * 2654435761 % 4294967296 / 4294967296.0 AS a,
		i * 40503 % 65537 / 65537.0 AS b,
		i * 1103515245 % 2147483648 / 2147483648.0 AS c
	FROM generate_series(1::bigint, 1100000) i
), reading AS (
	SELECT i, b,
		'vehicle-' || lpad(floor(1000 * a * a * a)::text, 4, '0') AS subject,
		(ARRAY['speed', 'soc', 'odometer', 'location', 'temperature', 'range', 'state', 'pressure'])[1 + (i % 8)::int] AS name,
		timestamptz '2026-01-05 00:00+00' + i * interval '471 milliseconds' AS "timestamp",
		c
	FROM random
), shaped AS (
	SELECT i, subject, name, "timestamp",
		CASE WHEN name NOT IN ('location', 'state') THEN round((c * 100)::numeric, 2)::float8 END AS value_number,
		CASE WHEN name = 'state' THEN (ARRAY['parked', 'driving', 'charging'])[1 + floor(c * 3)::int] END AS value_string,
		CASE WHEN name = 'location' THEN CASE WHEN c < 0.1 THEN 0 ELSE 48 + c END END AS loc_lat,
		CASE WHEN name = 'location' THEN CASE WHEN c < 0.1 THEN 0 ELSE 11 + b::float8 END END AS loc_lon,
		'event-' || i AS cloud_event_id,
		"timestamp" + CASE WHEN i % 100 = 42 THEN interval '3 hours' + b * interval '45 hours'
			ELSE interval '0' END AS arrived_at
	FROM reading
)
SELECT subject, name, "timestamp", value_number, value_string, loc_lat, loc_lon, cloud_event_id, arrived_at FROM shaped
UNION ALL	-- delivered twice
SELECT subject, name, "timestamp", value_number, value_string, loc_lat, loc_lon, cloud_event_id, arrived_at + interval '1 minute'
FROM shaped WHERE i % 200 = 7
UNION ALL	-- another event at the same instant
SELECT subject, name, "timestamp", value_number + 1, value_string, loc_lat, loc_lon, cloud_event_id || '-b', arrived_at + interval '5 seconds'
FROM shaped WHERE i % 500 = 11
UNION ALL	-- a clock gone wrong
SELECT subject, name, '2035-01-01 00:00+00', value_number, value_string, loc_lat, loc_lon, cloud_event_id || '-f', arrived_at
FROM shaped WHERE i = 100000;

-- Lets everything arrive that does so within the span.
CREATE FUNCTION pg_temp.arrive(start_time timestamptz, end_time timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	INSERT INTO lake.signals
		SELECT subject, name, "timestamp", value_number, value_string, loc_lat, loc_lon, cloud_event_id
		FROM arrivals WHERE arrived_at >= start_time AND arrived_at < end_time;
	GET DIAGNOSTICS n = ROW_COUNT;
	RETURN n;
END $$;

SELECT pg_temp.arrive('2026-01-05', '2026-01-08') AS "readings of the first three days";
ANALYZE lake.signals;

\echo '2. The rollup: one row per vehicle and signal'
\echo

-- its NOTICE says what the next heading says
SET client_min_messages = warning;
SELECT rollup_create('lake.signals_latest', $$
	SELECT subject, name,
		max("timestamp")                                                          AS "timestamp",
		latest(value_number, "timestamp") FILTER (WHERE value_number IS NOT NULL) AS value_number,
		max("timestamp")                  FILTER (WHERE value_number IS NOT NULL) AS value_number_ts,
		latest(value_string, "timestamp") FILTER (WHERE value_string IS NOT NULL) AS value_string,
		max("timestamp")                  FILTER (WHERE value_string IS NOT NULL) AS value_string_ts,
		latest(loc_lat, "timestamp") FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0)  AS loc_lat,
		latest(loc_lon, "timestamp") FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0)  AS loc_lon,
		max("timestamp")             FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0)  AS loc_ts,
		count(*) AS count, min("timestamp") AS first_seen, max("timestamp") AS last_seen
	FROM lake.signals GROUP BY subject, name $$,
	time_column => 'timestamp',
	dedup_by => '{subject,name,timestamp}', dedup_order => '{cloud_event_id}',
	mode => 'on') AS rollup;
RESET client_min_messages;

\echo '3. The first refresh fills it, up to the midnight of 8 January'
\echo

SELECT action, to_time AS watermark, folded_keys, date_trunc('milliseconds', elapsed) AS elapsed
FROM rollup_refresh('lake.signals_latest', '2026-01-08 00:00+00');

\echo '4. Two more days arrive, and with them late rows of the days before'
\echo

SELECT pg_temp.arrive('2026-01-08', '2026-01-10') AS readings;
SELECT count(*) AS "late keys waiting", sum(marks) AS "late rows" FROM rollup_late;

\echo '   One of these keys: the table ends at the watermark, the view is right at once'
\echo

SELECT key->>'subject' AS late_subject, key->>'name' AS late_name
FROM rollup_late ORDER BY marks DESC, key LIMIT 1 \gset

SELECT 'table' AS "read from", count, last_seen FROM lake.signals_latest
WHERE subject = :'late_subject' AND name = :'late_name'
UNION ALL
SELECT 'view _current', count, last_seen FROM lake.signals_latest_current
WHERE subject = :'late_subject' AND name = :'late_name'
UNION ALL
SELECT 'source, by hand', count(DISTINCT "timestamp"), max("timestamp") FROM lake.signals
WHERE subject = :'late_subject' AND name = :'late_name';

\echo '5. The next refresh: two days at once, and each late key from its history'
\echo

SELECT action, from_time AS "from", to_time AS watermark, folded_keys, late_keys,
	date_trunc('milliseconds', elapsed) AS elapsed
FROM rollup_refresh('lake.signals_latest', '2026-01-10 00:00+00');

SELECT rows, keys, dup_keys AS "keys with more than one row"
FROM rollup_check('lake.signals_latest');

\echo '6. Today goes on: one vehicle in the table and, through now, in the view'
\echo

SELECT pg_temp.arrive('2026-01-10', 'infinity') AS readings;

SELECT 'table' AS "read from", name, value_number, value_string, round(loc_lat::numeric, 4) AS loc_lat, count, last_seen
FROM lake.signals_latest WHERE subject = 'vehicle-0042' AND name IN ('speed', 'location', 'state')
UNION ALL
SELECT 'view _current', name, value_number, value_string, round(loc_lat::numeric, 4), count, last_seen
FROM lake.signals_latest_current WHERE subject = 'vehicle-0042' AND name IN ('speed', 'location', 'state')
ORDER BY name, 1;

\echo '7. Counted, not believed: the table against its definition'
\echo

SELECT watermark, late_keys AS "late keys", last_action AS "last refresh" FROM rollup_status;
\echo '   Late keys can be recomputed at any time; the watermark stays'
\echo

SELECT action, to_time AS watermark, folded_keys, late_keys
FROM rollup_refresh('lake.signals_latest', '2026-01-10 00:00+00');
SELECT count(*) AS differing, count(*) = 0 AS exact FROM rollup_verify('lake.signals_latest') \gset
SELECT count(*) AS source_rows FROM lake.signals WHERE "timestamp" < rollup_watermark('lake.signals_latest') \gset
\echo :source_rows 'source rows before the watermark,' :differing 'differing rows'
\if :exact
\else
	DO $$ BEGIN RAISE EXCEPTION 'the rollup differs from its definition'; END $$;
\endif
