-- The whole story, on telemetry of a fleet that is made up here, the same each
-- time but for its dates: a table that went wrong in silence is adopted,
-- compared, replaced by a proven one, and kept from then on.  Every figure is
-- computed; the demo fails where one is not what it should be.
\set ON_ERROR_STOP on
\pset footer off
\pset null '-'
SET timezone = 'UTC';
SET client_min_messages = warning;	-- the headings say what the NOTICEs would

-- It is noon of :today in the story, whatever the clock says: yesterday's, or
-- the day's before where the day is younger than an hour.  :next_day is over.
SELECT date_trunc('day', now() - interval '1 hour') - interval '1 day' AS today,
	date_trunc('day', now() - interval '1 hour') AS next_day \gset
\set first_day ':''today''::timestamptz - interval ''4 days'''

CREATE FUNCTION pg_temp.expect(what text, got anyelement, wanted anyelement) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF got IS DISTINCT FROM wanted THEN
		RAISE EXCEPTION '%: % instead of %', what, got, wanted;
	END IF;
END $$;

-- What a statement that must fail says.
CREATE FUNCTION pg_temp.refused(statement text) RETURNS TABLE (error text, message text, hint text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RAISE EXCEPTION USING ERRCODE = 'assert_failure', MESSAGE = 'this was not refused: ' || statement;
EXCEPTION WHEN object_not_in_prerequisite_state THEN
	GET STACKED DIAGNOSTICS error = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN NEXT;
END $$;

\echo
\echo '1. A fleet: one row per reading, and the team''s own table with the latest of each vehicle and signal'
\echo

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

CREATE TABLE lake.signals_latest (
	subject text NOT NULL,
	name text NOT NULL,
	"timestamp" timestamptz,
	value_number float8,
	value_number_ts timestamptz,
	value_string text,
	value_string_ts timestamptz,
	loc_lat float8,
	loc_lon float8,
	loc_ts timestamptz,
	count bigint,
	first_seen timestamptz,
	last_seen timestamptz
);
CREATE INDEX ON lake.signals_latest (subject, name);

-- Their fold: the old rows of these vehicles and signals are deleted, and
-- inserted again together with what has arrived.  Two variables have changed
-- places in the DELETE.
CREATE FUNCTION lake.fold() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	subjects text[] := ARRAY(SELECT DISTINCT subject FROM arrived);
	names text[] := ARRAY(SELECT DISTINCT name FROM arrived);
BEGIN
	WITH old AS (
		DELETE FROM lake.signals_latest
		WHERE subject = ANY (names) AND name = ANY (subjects)
		RETURNING *
	), parts AS (
		SELECT * FROM old
		UNION ALL
		SELECT subject, name, "timestamp",
			value_number, CASE WHEN value_number IS NOT NULL THEN "timestamp" END,
			value_string, CASE WHEN value_string IS NOT NULL THEN "timestamp" END,
			loc_lat, loc_lon, CASE WHEN loc_lat <> 0 OR loc_lon <> 0 THEN "timestamp" END,
			1, "timestamp", "timestamp"
		FROM arrived
	)
	INSERT INTO lake.signals_latest
	SELECT subject, name, max("timestamp"),
		(array_agg(value_number ORDER BY value_number_ts DESC NULLS LAST))[1], max(value_number_ts),
		(array_agg(value_string ORDER BY value_string_ts DESC NULLS LAST))[1], max(value_string_ts),
		(array_agg(loc_lat ORDER BY loc_ts DESC NULLS LAST))[1],
		(array_agg(loc_lon ORDER BY loc_ts DESC NULLS LAST))[1], max(loc_ts),
		sum(count), min(first_seen), max(last_seen)
	FROM parts GROUP BY subject, name;
	RETURN NULL;
END $$;
CREATE TRIGGER fold AFTER INSERT ON lake.signals
	REFERENCING NEW TABLE AS arrived FOR EACH STATEMENT EXECUTE FUNCTION lake.fold();

-- What will arrive, and in which hour of the story.  7,666 keys send a reading
-- an hour; 1% send a second one, which arrives 3 to 48 hours late; 0.5% are
-- delivered twice; 0.2% have a second event at the same instant; one is stamped
-- far in the future.  In the hour before noon, the 108th, only 3,258 keys have
-- reported yet.
CREATE UNLOGGED TABLE arrivals AS
WITH random AS (
	SELECT hour, key, hour * 7666 + key AS i,
		(hour * 7666 + key) * 40503 % 65537 / 65537.0 AS b,
		(hour * 7666 + key) * 1103515245 % 2147483648 / 2147483648.0 AS c
	FROM generate_series(0::bigint, 120) hour, generate_series(0::bigint, 7665) key
), reading AS (
	SELECT hour, key, i, b, c,
		'vehicle-' || lpad((key / 8)::text, 4, '0') AS subject,
		(ARRAY['speed', 'soc', 'odometer', 'location', 'temperature', 'range', 'state', 'pressure'])[1 + (key % 8)::int] AS name,
		:first_day + hour * interval '1 hour' + b * interval '59 minutes' AS "timestamp"
	FROM random
), shaped AS (
	SELECT i, hour, key, b, subject, name, "timestamp",
		CASE WHEN name NOT IN ('location', 'state') THEN round((c * 100)::numeric, 2)::float8 END AS value_number,
		CASE WHEN name = 'state' THEN (ARRAY['parked', 'driving', 'charging'])[1 + floor(c * 3)::int] END AS value_string,
		CASE WHEN name = 'location' THEN CASE WHEN c < 0.1 THEN 0 ELSE 48 + c END END AS loc_lat,
		CASE WHEN name = 'location' THEN CASE WHEN c < 0.1 THEN 0 ELSE 11 + b::float8 END END AS loc_lon,
		'event-' || i AS cloud_event_id
	FROM reading
), arriving AS (
	SELECT hour AS arrives, * FROM shaped
	UNION ALL	-- late
	SELECT hour + 3 + floor(b * 45)::bigint, i, hour, key, b, subject, name, "timestamp" + interval '1 minute',
		value_number / 2, value_string, loc_lat, loc_lon, cloud_event_id || '-l'
	FROM shaped WHERE i % 100 = 42
	UNION ALL	-- delivered twice
	SELECT hour AS arrives, * FROM shaped WHERE i % 200 = 7
	UNION ALL	-- another event at the same instant
	SELECT hour, i, hour, key, b, subject, name, "timestamp",
		value_number + 1, value_string, loc_lat, loc_lon, cloud_event_id || '-b'
	FROM shaped WHERE i % 500 = 11
	UNION ALL	-- a clock gone wrong
	SELECT hour, i, hour, key, b, subject, name, '2035-01-01 00:00+00',
		value_number, value_string, loc_lat, loc_lon, cloud_event_id || '-f'
	FROM shaped WHERE i = 100000
)
SELECT CASE WHEN arrives = 107 AND key >= 3258 THEN 108 ELSE arrives END AS arrives,
	subject, name, "timestamp", value_number, value_string, loc_lat, loc_lon, cloud_event_id
FROM arriving;
CREATE INDEX ON arrivals (arrives);
ANALYZE arrivals;

-- Lets everything arrive that does so in these hours, hour by hour.
CREATE FUNCTION pg_temp.arrive(first_hour int, last_hour int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	total bigint := 0;
	n bigint;
BEGIN
	FOR hour IN first_hour .. last_hour LOOP
		INSERT INTO lake.signals
			SELECT subject, name, "timestamp", value_number, value_string, loc_lat, loc_lon, cloud_event_id
			FROM arrivals WHERE arrives = hour;
		GET DIAGNOSTICS n = ROW_COUNT;
		total := total + n;
	END LOOP;
	RETURN total;
END $$;

\echo '   for 108 hours readings arrive, and each time the team''s trigger folds them into their table ...'
\echo

SELECT pg_temp.arrive(0, 107) AS readings;
VACUUM ANALYZE lake.signals;
VACUUM ANALYZE lake.signals_latest;

SELECT sum(n) AS "rows of their table", count(*) AS keys, max(n) AS "most rows of one key"
FROM (SELECT count(*) AS n FROM lake.signals_latest GROUP BY subject, name) k;
SELECT pg_temp.expect('rows of the broken table', sum(n), 823520::numeric),
	pg_temp.expect('its keys', count(*), 7666::bigint)
FROM (SELECT count(*) AS n FROM lake.signals_latest GROUP BY subject, name) k \g /dev/null

\echo '   The DELETE in their fold looks for subject = ANY (names) and name = ANY (subjects). It removes'
\echo '   nothing, and nobody is told: each hour appends a row a key.'
\echo
\echo '2. Adopt it: the table stays as it is, their fold goes on'
\echo

CREATE EXTENSION dailyrollup;

-- the delay makes the midnight that began :today the latest that is due
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
	delay => now() - (:'today'::timestamptz + interval '30 minutes'),
	mode => 'shadow') AS rollup;

SELECT rollup, state, wanted_mode, fold FROM rollup_status;

\echo '3. CALL rollup_run(): the right content, through the last midnight, is built beside it'
\echo

CALL rollup_run();
SELECT action, to_time AS watermark, folded_keys, duplicates, outcome, reason,
	date_trunc('milliseconds', elapsed) AS elapsed FROM rollup_runs ORDER BY id;

\echo '4. The diff: their table against the shadow'
\echo

CREATE TEMP TABLE diff AS SELECT * FROM rollup_diff('lake.signals_latest');
SELECT class, count(*) AS keys, sum(copies) AS rows FROM diff GROUP BY class;
SELECT pg_temp.expect('differences', count(*), 7666::bigint),
	pg_temp.expect('duplicated keys', count(*) FILTER (WHERE class = 'duplicate'), 7666::bigint),
	pg_temp.expect('their rows', sum(copies), 823520::numeric) FROM diff \g /dev/null

\echo '   One of these keys: each of its rows counts the readings of one hour alone'
\echo

SELECT d.key->>'subject' AS subject, d.key->>'name' AS name, d.copies AS rows,
	l.count AS "count in the newest row", s.count AS "count in the shadow"
FROM diff d
	JOIN lake.signals_latest_daily s ON s.subject = d.key->>'subject' AND s.name = d.key->>'name'
	CROSS JOIN LATERAL (SELECT count FROM lake.signals_latest l
		WHERE l.subject = s.subject AND l.name = s.name ORDER BY l.last_seen DESC LIMIT 1) l
WHERE d.key = '{"subject": "vehicle-0042", "name": "speed"}';

\echo '5. Promote: the shadow''s content becomes the table''s, counted and compared before it commits'
\echo

SELECT * FROM rollup_promote() \gset
SELECT :'rollup' AS rollup, :'action' AS action, :rows AS rows, :keys AS keys,
	:replaced_rows AS replaced_rows, :replaced_keys AS replaced_keys;
\echo '  ' :rows 'rows =' :keys 'keys, replaced' :replaced_rows 'rows of' :replaced_keys 'keys'
\echo
SELECT pg_temp.expect('promoted rows', :rows, 7666), pg_temp.expect('promoted keys', :keys, 7666),
	pg_temp.expect('replaced rows', :replaced_rows, 823520),
	pg_temp.expect('replaced keys', :replaced_keys, 7666) \g /dev/null

\echo '6. Mode on: the daily refresh alone keeps the table from now on; the team drops its fold'
\echo

DROP TRIGGER fold ON lake.signals;
SELECT rollup, state, wanted_mode, watermark FROM rollup_status;

\echo '7. The rest of the day arrives, and with it late rows of the days before'
\echo

SELECT pg_temp.arrive(108, 119) AS readings;
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

\echo '8. A day later the next pass folds the day, and computes each late key from its history'
\echo

SELECT coalesce(max(id), 0) AS last_id FROM rollup_runs \gset
SELECT rollup_alter('lake.signals_latest', delay => now() - (:'next_day'::timestamptz + interval '30 minutes')) \g /dev/null
CALL rollup_run();
SELECT action, from_time AS "from", to_time AS watermark, folded_keys, late_keys, rows, keys, outcome,
	date_trunc('milliseconds', elapsed) AS elapsed FROM rollup_runs WHERE id > :last_id ORDER BY id;

\echo '9. An old deployment brings the team''s trigger back: what it would write is refused'
\echo

CREATE TRIGGER fold AFTER INSERT ON lake.signals
	REFERENCING NEW TABLE AS arrived FOR EACH STATEMENT EXECUTE FUNCTION lake.fold();
SELECT * FROM pg_temp.refused($$ INSERT INTO lake.signals
	VALUES ('vehicle-0042', 'speed', now(), 50, NULL, NULL, NULL, 'event-refused') $$) \gset
\echo '   ERROR: ' :message
\echo '   HINT:  ' :hint
\echo
DROP TRIGGER fold ON lake.signals;

\echo '10. The next day goes on: one vehicle in the table and, through now, in the view'
\echo

SELECT pg_temp.arrive(120, 200) AS readings;

SELECT 'table' AS "read from", name, value_number, value_string, round(loc_lat::numeric, 4) AS loc_lat, count, last_seen
FROM lake.signals_latest WHERE subject = 'vehicle-0042' AND name IN ('speed', 'location', 'state')
UNION ALL
SELECT 'view _current', name, value_number, value_string, round(loc_lat::numeric, 4), count, last_seen
FROM lake.signals_latest_current WHERE subject = 'vehicle-0042' AND name IN ('speed', 'location', 'state')
ORDER BY name, 1;

\echo '11. Counted, not believed: the table before its watermark, the view through now'
\echo

SELECT rows, keys, dup_keys AS "keys with more than one row"
FROM rollup_check('lake.signals_latest');
SELECT pg_temp.expect('rows', rows, 7666::bigint), pg_temp.expect('keys', keys, 7666::bigint)
FROM rollup_check('lake.signals_latest') \g /dev/null

SELECT count(*) AS verify FROM rollup_verify('lake.signals_latest') \gset
SELECT rollup_definition('lake.signals_latest') AS definition \gset
SELECT count(*) AS current FROM (
	(TABLE lake.signals_latest_current EXCEPT ALL (:definition))
	UNION ALL
	((:definition) EXCEPT ALL TABLE lake.signals_latest_current)) d \gset
SELECT count(*) AS source_rows FROM lake.signals \gset
\echo '  ' :source_rows 'readings;' :verify 'differing rows in the table,' :current 'in the view'
SELECT pg_temp.expect('differing rows of the table', :verify, 0),
	pg_temp.expect('differing rows of the view', :current, 0) \g /dev/null
