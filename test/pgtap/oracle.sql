-- One fixed example, its expected rows written out by hand once: as literal
-- VALUES, and as plain SQL that knows neither latest nor the extension's views.
-- Every other test trusts rollup_definition() as its oracle; this one tests it.
\ir lib/begin.sql

BEGIN;
SET LOCAL client_min_messages = warning;
SET LOCAL timezone = 'UTC';
CREATE SCHEMA oracle;

SELECT plan(21);

CREATE TABLE oracle.signals (
	subject text, name text, "timestamp" timestamptz, cloud_event_id text,
	value_number float8, loc_lat float8, loc_lon float8);

SELECT lives_ok($create$
SELECT rollup_create('oracle.signals_latest', $$
  SELECT subject, name,
         max("timestamp")                                                          AS "timestamp",
         latest(value_number, "timestamp") FILTER (WHERE value_number IS NOT NULL) AS value_number,
         max("timestamp")                  FILTER (WHERE value_number IS NOT NULL) AS value_number_ts,
         latest(loc_lat, "timestamp") FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0)  AS loc_lat,
         latest(loc_lon, "timestamp") FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0)  AS loc_lon,
         max("timestamp")             FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0)  AS loc_ts,
         count(*) AS count, min("timestamp") AS first_seen, max("timestamp") AS last_seen
  FROM oracle.signals GROUP BY subject, name $$,
  time_column => 'timestamp', dedup_by => '{subject,name,timestamp}',
  dedup_order => '{cloud_event_id}', mode => 'on')
$create$, 'rollup_create takes the example');

-- The oracle in plain SQL.  An event is the first of its rows by
-- cloud_event_id, then by each other column used.
CREATE FUNCTION oracle.expected(before timestamptz) RETURNS TABLE (
	subject text, name text, "timestamp" timestamptz, value_number float8, value_number_ts timestamptz,
	loc_lat float8, loc_lon float8, loc_ts timestamptz, count bigint, first_seen timestamptz, last_seen timestamptz)
LANGUAGE sql STABLE AS $$
	WITH events AS (
		SELECT DISTINCT ON (s.subject, s.name, s."timestamp") s.*
		FROM oracle.signals s
		WHERE s."timestamp" IS NOT NULL AND (before IS NULL OR s."timestamp" < before)
		ORDER BY s.subject, s.name, s."timestamp", s.cloud_event_id ASC NULLS LAST,
		         s.value_number ASC NULLS LAST, s.loc_lat ASC NULLS LAST, s.loc_lon ASC NULLS LAST)
	SELECT e.subject, e.name, max(e."timestamp"),
	       (array_agg(e.value_number ORDER BY e."timestamp" DESC) FILTER (WHERE e.value_number IS NOT NULL))[1],
	       max(e."timestamp") FILTER (WHERE e.value_number IS NOT NULL),
	       (array_agg(e.loc_lat ORDER BY e."timestamp" DESC) FILTER (WHERE e.loc_lat <> 0 OR e.loc_lon <> 0))[1],
	       (array_agg(e.loc_lon ORDER BY e."timestamp" DESC) FILTER (WHERE e.loc_lat <> 0 OR e.loc_lon <> 0))[1],
	       max(e."timestamp") FILTER (WHERE e.loc_lat <> 0 OR e.loc_lon <> 0),
	       count(*), min(e."timestamp"), max(e."timestamp")
	FROM events e GROUP BY e.subject, e.name $$;

-- The definition as text, run.
CREATE FUNCTION oracle.defined(before timestamptz) RETURNS SETOF oracle.signals_latest
LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN QUERY EXECUTE rollup_definition('oracle.signals_latest', before);
END $$;

-- The first three days, as they come in before the refresh to the third.
INSERT INTO oracle.signals VALUES
-- subject, name,    timestamp,                event,  value, lat,  lon
  ('car1', 'speed', '2026-01-01 08:00:00+00', 'e01',   10,    NULL, NULL),
  ('car1', 'speed', '2026-01-01 09:00:00+00', 'e03',   30,    NULL, NULL),
  ('car1', 'speed', '2026-01-01 09:00:00+00', 'e02',   20,    NULL, NULL),  -- the same instant: e02 is the event
  ('car1', 'speed', '2026-01-01 09:00:00+00', 'e02',   20,    NULL, NULL),  -- delivered twice
  ('car1', 'speed', '2026-01-02 07:00:00+00', 'e04',   NULL,  NULL, NULL),  -- counts, but leaves the value as it is
  ('car1', 'fix',   '2026-01-01 08:00:00+00', 'e05',   NULL,  48.1, 11.5),
  ('car1', 'fix',   '2026-01-01 10:00:00+00', 'e06',   NULL,  0,    0),     -- no fix
  ('car1', 'fix',   '2026-01-02 10:00:00+00', 'e07',   NULL,  48.2, 0),
  ('car2', 'speed', '2026-01-02 23:59:59.999999+00', 'e08', 5, NULL, NULL),
  ('car2', 'speed', '2026-01-03 00:00:00+00', 'e09',   6,     NULL, NULL),  -- the watermark's own instant: tail
  ('car2', NULL,    '2026-01-01 00:00:00+00', NULL,    1,     NULL, NULL),  -- an event without an id is the last
  ('car2', NULL,    '2026-01-01 00:00:00+00', 'e10',   2,     NULL, NULL),
  (NULL,   'speed', '2026-01-01 12:00:00+00', 'e11',   7,     NULL, NULL),
  (NULL,   NULL,    '-infinity',              'e12',   NULL,  NULL, NULL),
  ('car3', 'speed', NULL,                     'e13',   99,    NULL, NULL),  -- belongs to no window
  ('car4', 'speed', 'infinity',               'e14',   8,     NULL, NULL),
  ('car5', 'speed', '2026-01-01 01:00:00+00', 'e15',   2,     NULL, NULL),
  ('car5', 'speed', '2026-01-01 01:00:00+00', 'e15',   1,     NULL, NULL);  -- the same event id: the lesser value

CREATE TABLE oracle.first_all (LIKE oracle.signals_latest);
INSERT INTO oracle.first_all (subject, name, "timestamp", value_number, value_number_ts,
	loc_lat, loc_lon, loc_ts, count, first_seen, last_seen) VALUES
  ('car1', 'speed', '2026-01-02 07:00+00', 20, '2026-01-01 09:00+00', NULL, NULL, NULL, 3, '2026-01-01 08:00+00', '2026-01-02 07:00+00'),
  ('car1', 'fix', '2026-01-02 10:00+00', NULL, NULL, 48.2, 0, '2026-01-02 10:00+00', 3, '2026-01-01 08:00+00', '2026-01-02 10:00+00'),
  ('car2', 'speed', '2026-01-03 00:00+00', 6, '2026-01-03 00:00+00', NULL, NULL, NULL, 2, '2026-01-02 23:59:59.999999+00', '2026-01-03 00:00+00'),
  ('car2', NULL, '2026-01-01 00:00+00', 2, '2026-01-01 00:00+00', NULL, NULL, NULL, 1, '2026-01-01 00:00+00', '2026-01-01 00:00+00'),
  (NULL, 'speed', '2026-01-01 12:00+00', 7, '2026-01-01 12:00+00', NULL, NULL, NULL, 1, '2026-01-01 12:00+00', '2026-01-01 12:00+00'),
  (NULL, NULL, '-infinity', NULL, NULL, NULL, NULL, NULL, 1, '-infinity', '-infinity'),
  ('car4', 'speed', 'infinity', 8, 'infinity', NULL, NULL, NULL, 1, 'infinity', 'infinity'),
  ('car5', 'speed', '2026-01-01 01:00+00', 1, '2026-01-01 01:00+00', NULL, NULL, NULL, 1, '2026-01-01 01:00+00', '2026-01-01 01:00+00');

-- The same before 2026-01-03: car4 has no row yet, car2 one event less.
CREATE TABLE oracle.first_settled (LIKE oracle.signals_latest);
INSERT INTO oracle.first_settled SELECT * FROM oracle.first_all
	WHERE (subject, name) IS DISTINCT FROM ('car2', 'speed') AND subject IS DISTINCT FROM 'car4';
INSERT INTO oracle.first_settled (subject, name, "timestamp", value_number, value_number_ts, count, first_seen, last_seen) VALUES
  ('car2', 'speed', '2026-01-02 23:59:59.999999+00', 5, '2026-01-02 23:59:59.999999+00', 1,
   '2026-01-02 23:59:59.999999+00', '2026-01-02 23:59:59.999999+00');

SELECT bag_eq('SELECT * FROM oracle.expected(NULL)', 'SELECT * FROM oracle.first_all',
	'plain SQL gives the rows written out by hand');
SELECT bag_eq($$SELECT * FROM oracle.expected('2026-01-03 00:00+00')$$, 'SELECT * FROM oracle.first_settled',
	'and before the watermark');
SELECT bag_eq('SELECT * FROM oracle.defined(NULL)', 'SELECT * FROM oracle.first_all',
	'rollup_definition gives them');
SELECT bag_eq($$SELECT * FROM oracle.defined('2026-01-03 00:00+00')$$, 'SELECT * FROM oracle.first_settled',
	'and before the watermark');
SELECT bag_eq('SELECT * FROM oracle.signals_latest_current', 'SELECT * FROM oracle.first_all',
	'_current gives them before any refresh');
SELECT is_empty('SELECT * FROM oracle.signals_latest', 'live is empty before any refresh');

SELECT results_eq(
	$$SELECT action FROM rollup_refresh('oracle.signals_latest', '2026-01-03 00:00+00')$$,
	ARRAY['seed'], 'the first refresh seeds');
SELECT bag_eq('SELECT * FROM oracle.signals_latest', 'SELECT * FROM oracle.first_settled', 'live after the seed');
SELECT bag_eq('SELECT * FROM oracle.signals_latest_current', 'SELECT * FROM oracle.first_all', '_current after the seed');

-- A day later: late rows, one of them a better row of an event that live has;
-- an update across the watermark; a key that loses its last row; a new tail.
INSERT INTO oracle.signals VALUES
  ('car1', 'speed', '2026-01-01 09:00:00+00', 'e01b', 15,     NULL, NULL),  -- now e01b is the event
  ('car1', 'speed', '2026-01-03 09:00:00+00', 'e20',  NULL,   NULL, NULL),
  ('car1', 'fix',   '2026-01-02 12:00:00+00', 'e21',  NULL,   0,    11.6),  -- late, and the latest fix
  ('car6', 'fix',   '2025-12-31 00:00:00+00', 'e22',  NULL,   0,    NULL),  -- neither is true: no fix
  ('car6', 'fix',   '2026-01-04 00:00:00+00', 'e23',  NULL,   1,    1);     -- tail of the next watermark too
UPDATE oracle.signals SET "timestamp" = '2026-01-03 12:00+00' WHERE cloud_event_id = 'e08';
DELETE FROM oracle.signals WHERE subject IS NULL AND name = 'speed';

CREATE TABLE oracle.second_all (LIKE oracle.signals_latest);
INSERT INTO oracle.second_all (subject, name, "timestamp", value_number, value_number_ts,
	loc_lat, loc_lon, loc_ts, count, first_seen, last_seen) VALUES
  ('car1', 'speed', '2026-01-03 09:00+00', 15, '2026-01-01 09:00+00', NULL, NULL, NULL, 4, '2026-01-01 08:00+00', '2026-01-03 09:00+00'),
  ('car1', 'fix', '2026-01-02 12:00+00', NULL, NULL, 0, 11.6, '2026-01-02 12:00+00', 4, '2026-01-01 08:00+00', '2026-01-02 12:00+00'),
  ('car2', 'speed', '2026-01-03 12:00+00', 5, '2026-01-03 12:00+00', NULL, NULL, NULL, 2, '2026-01-03 00:00+00', '2026-01-03 12:00+00'),
  ('car2', NULL, '2026-01-01 00:00+00', 2, '2026-01-01 00:00+00', NULL, NULL, NULL, 1, '2026-01-01 00:00+00', '2026-01-01 00:00+00'),
  (NULL, NULL, '-infinity', NULL, NULL, NULL, NULL, NULL, 1, '-infinity', '-infinity'),
  ('car4', 'speed', 'infinity', 8, 'infinity', NULL, NULL, NULL, 1, 'infinity', 'infinity'),
  ('car5', 'speed', '2026-01-01 01:00+00', 1, '2026-01-01 01:00+00', NULL, NULL, NULL, 1, '2026-01-01 01:00+00', '2026-01-01 01:00+00'),
  ('car6', 'fix', '2026-01-04 00:00+00', NULL, NULL, 1, 1, '2026-01-04 00:00+00', 2, '2025-12-31 00:00+00', '2026-01-04 00:00+00');

CREATE TABLE oracle.second_settled (LIKE oracle.signals_latest);
INSERT INTO oracle.second_settled SELECT * FROM oracle.second_all
	WHERE subject IS DISTINCT FROM 'car4' AND subject IS DISTINCT FROM 'car6';
INSERT INTO oracle.second_settled (subject, name, "timestamp", count, first_seen, last_seen) VALUES
  ('car6', 'fix', '2025-12-31 00:00+00', 1, '2025-12-31 00:00+00', '2025-12-31 00:00+00');

SELECT bag_eq('SELECT * FROM oracle.expected(NULL)', 'SELECT * FROM oracle.second_all',
	'a day later: plain SQL gives the rows written out by hand');
SELECT bag_eq('SELECT * FROM oracle.signals_latest_current', 'SELECT * FROM oracle.second_all',
	'_current with late rows waiting');
SELECT set_eq(
	$$SELECT key FROM rollup_late WHERE rollup = 'oracle.signals_latest'::regclass$$,
	$$VALUES ('{"subject": "car1", "name": "speed"}'::jsonb), ('{"subject": "car1", "name": "fix"}'),
	         ('{"subject": "car2", "name": "speed"}'), ('{"subject": null, "name": "speed"}'),
	         ('{"subject": "car6", "name": "fix"}')$$,
	'the keys that wait');
SELECT is_empty($$SELECT * FROM rollup_verify('oracle.signals_latest')$$, 'rollup_verify leaves them out');

SELECT results_eq(
	$$SELECT action FROM rollup_refresh('oracle.signals_latest', '2026-01-04 00:00+00')$$,
	ARRAY['fold'], 'the next refresh folds');
SELECT bag_eq($$SELECT * FROM oracle.expected('2026-01-04 00:00+00')$$, 'SELECT * FROM oracle.second_settled',
	'plain SQL before the new watermark gives the rows written out by hand');
SELECT bag_eq($$SELECT * FROM oracle.defined('2026-01-04 00:00+00')$$, 'SELECT * FROM oracle.second_settled',
	'rollup_definition gives them');
SELECT bag_eq('SELECT * FROM oracle.signals_latest', 'SELECT * FROM oracle.second_settled', 'live after the fold');
SELECT bag_eq('SELECT * FROM oracle.signals_latest_current', 'SELECT * FROM oracle.second_all', '_current after the fold');
SELECT is_empty($$SELECT * FROM rollup_verify('oracle.signals_latest')$$, 'rollup_verify agrees');
SELECT is_empty($$SELECT key FROM rollup_late WHERE rollup = 'oracle.signals_latest'::regclass$$, 'no key waits');

SELECT * FROM finish();
ROLLBACK;
