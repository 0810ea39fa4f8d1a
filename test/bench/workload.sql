-- What every benchmark has: the workload, the definition, and the same things
-- written by hand.  Deterministic: each value is a hash of the row's number.
CREATE EXTENSION IF NOT EXISTS dailyrollup;
CREATE SCHEMA bench;

-- the midnight that begins day d; all days are over, whatever the clock says
CREATE FUNCTION bench.midnight(d int) RETURNS timestamptz LANGUAGE sql IMMUTABLE
RETURN timestamptz '2024-01-01 00:00+00' + d * interval '24 hours';

-- evenly in [0, 1)
CREATE FUNCTION bench.random(i bigint, salt bigint) RETURNS float8 LANGUAGE sql IMMUTABLE
RETURN (hashint8extended(i, salt) & 4503599627370495) / 4503599627370496.0::float8;

CREATE TYPE bench.event AS (
	subject text,
	name text,
	"timestamp" timestamptz,
	value_number float8,
	value_string text,
	loc_lat float8,
	loc_lon float8,
	cloud_event_id text
);

-- The n events that arrive on day d, in this order.  20,000 subjects, some of
-- which send much more than others, x 20 names: 16 numbers, 3 strings, a
-- position.  0.5% are an earlier event once more, 0.2% another event of an earlier
-- one's key and instant, a share of late is stamped 1 to 48 hours earlier.
CREATE FUNCTION bench.events(d int, n bigint, late float8 DEFAULT 0.008, subjects int DEFAULT 20000) RETURNS SETOF bench.event LANGUAGE sql STABLE AS $$
	SELECT 'vehicle-' || lpad(floor(subjects * power(bench.random(e, 2), 1.5))::text, 5, '0'), name,
		bench.midnight(d) + interval '1 microsecond' * floor((e - day - 1 + bench.random(e, 4)) * (86400e6 / n))
			- CASE WHEN bench.random(e, 5) < late THEN interval '1 hour' * (1 + 47 * bench.random(e, 6)) ELSE interval '0' END,
		CASE WHEN name NOT LIKE 'state%' AND name <> 'location' THEN round((100 * v)::numeric, 2)::float8 END,
		CASE WHEN name LIKE 'state%' THEN (ARRAY['parked', 'driving', 'charging', 'asleep'])[1 + floor(v * 4)::int] END,
		CASE WHEN name = 'location' THEN CASE WHEN v < 0.1 THEN 0 ELSE 48 + v END END,
		CASE WHEN name = 'location' THEN CASE WHEN v < 0.1 THEN 0 ELSE 11 + v * v END END,
		'event-' || content
	FROM (SELECT d * 1000000000::bigint AS day, d * 1000000000::bigint + i AS row,
			bench.random(d * 1000000000::bigint + i, 1) AS kind FROM generate_series(1, n) i OFFSET 0) r,
		LATERAL (SELECT CASE WHEN kind < 0.007 AND row - day > 100
			THEN row - 1 - floor(99 * bench.random(row, 8))::bigint ELSE row END AS e) earlier,
		LATERAL (SELECT CASE WHEN kind < 0.005 THEN e ELSE row END AS content) c,
		LATERAL (SELECT (ARRAY['location', 'stateIgnition', 'stateDoors', 'stateCharging',
			'speed', 'soc', 'odometer', 'range', 'temperatureOutside', 'temperatureInside',
			'pressureFrontLeft', 'pressureFrontRight', 'pressureRearLeft', 'pressureRearRight',
			'voltage', 'current', 'power', 'energy', 'heading', 'altitude'])[1 + floor(20 * bench.random(e, 3))::int] AS name,
			bench.random(content, 7) AS v) values
$$;

-- schema.signals, plain or with a partition for each of these days
CREATE FUNCTION bench.make_source(schema text, partitioned boolean, first_day int, last_day int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('DROP SCHEMA IF EXISTS %I CASCADE', schema);
	EXECUTE format('CREATE SCHEMA %I', schema);
	EXECUTE format('CREATE TABLE %I.signals (subject text NOT NULL, name text NOT NULL, "timestamp" timestamptz NOT NULL,
		value_number float8, value_string text, loc_lat float8, loc_lon float8, cloud_event_id text NOT NULL) %s',
		schema, CASE WHEN partitioned THEN 'PARTITION BY RANGE ("timestamp")' ELSE '' END);
	FOR d IN first_day .. CASE WHEN partitioned THEN last_day ELSE first_day - 1 END LOOP
		EXECUTE format('CREATE TABLE %1$I.%2$I PARTITION OF %1$I.signals FOR VALUES FROM (%3$L) TO (%4$L)',
			schema, 'signals_' || d - first_day, bench.midnight(d), bench.midnight(d + 1));
	END LOOP;
END $$;

CREATE FUNCTION bench.make_index(schema text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE INDEX ON %I.signals (subject, name, "timestamp")', schema);
END $$;

-- the defining query, over any relation with the source's columns
CREATE FUNCTION bench.definition(source text) RETURNS text LANGUAGE sql IMMUTABLE RETURN format($$
	SELECT subject, name,
		max("timestamp") AS "timestamp",
		latest(value_number, "timestamp") FILTER (WHERE value_number IS NOT NULL) AS value_number,
		max("timestamp") FILTER (WHERE value_number IS NOT NULL) AS value_number_ts,
		latest(value_string, "timestamp") FILTER (WHERE value_string IS NOT NULL) AS value_string,
		max("timestamp") FILTER (WHERE value_string IS NOT NULL) AS value_string_ts,
		latest(loc_lat, "timestamp") FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0) AS loc_lat,
		latest(loc_lon, "timestamp") FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0) AS loc_lon,
		max("timestamp") FILTER (WHERE loc_lat <> 0 OR loc_lon <> 0) AS loc_ts,
		count(*) AS count, min("timestamp") AS first_seen, max("timestamp") AS last_seen
	FROM %s AS s GROUP BY subject, name $$, source);

-- The floor of a refresh: a day read once, grouped by the key; no row is returned.
CREATE FUNCTION bench.scan_and_hash(source text, day int) RETURNS text LANGUAGE sql IMMUTABLE RETURN format($$
	SELECT subject, name, count(*), min("timestamp"), max("timestamp") FROM %s
	WHERE "timestamp" >= %L AND "timestamp" < %L GROUP BY subject, name OFFSET 1000000000 $$, source, bench.midnight(day), bench.midnight(day + 1));

-- one row, six hours before a day
CREATE FUNCTION bench.late_row(source text, day int) RETURNS text LANGUAGE sql IMMUTABLE RETURN format($$
	INSERT INTO %1$s SELECT subject, name, %2$L::timestamptz - interval '6 hours', 1, NULL, NULL, NULL, 'late' FROM %1$s LIMIT 1 $$,
	source, bench.midnight(day));

-- The source without what was delivered twice, by hand; condition: 'WHERE …'.
CREATE FUNCTION bench.deduplicated(source text, condition text) RETURNS text LANGUAGE sql IMMUTABLE RETURN format($$
	(SELECT DISTINCT ON (subject, name, "timestamp") * FROM %s %s
	ORDER BY subject, name, "timestamp", cloud_event_id, value_number, value_string, loc_lat, loc_lon) $$, source, condition);

-- Merges rows of the definition's shape, by hand, as _current has to.
CREATE FUNCTION bench.merged(parts text) RETURNS text LANGUAGE sql IMMUTABLE RETURN format($$
	SELECT subject, name,
		max("timestamp") AS "timestamp",
		latest(value_number, value_number_ts) AS value_number, max(value_number_ts) AS value_number_ts,
		latest(value_string, value_string_ts) AS value_string, max(value_string_ts) AS value_string_ts,
		latest(loc_lat, loc_ts) AS loc_lat, latest(loc_lon, loc_ts) AS loc_lon, max(loc_ts) AS loc_ts,
		sum(count)::bigint AS count, min(first_seen) AS first_seen, max(last_seen) AS last_seen
	FROM (%s) AS p GROUP BY subject, name $$, parts);

-- Merges row n of the definition's shape into row l, by hand; for SET.
CREATE FUNCTION bench.assignments(n text) RETURNS text LANGUAGE sql IMMUTABLE RETURN replace($$
	"timestamp" = greatest(l."timestamp", n."timestamp"),
	value_number = CASE WHEN n.value_number_ts >= l.value_number_ts OR l.value_number_ts IS NULL THEN n.value_number ELSE l.value_number END,
	value_number_ts = greatest(l.value_number_ts, n.value_number_ts),
	value_string = CASE WHEN n.value_string_ts >= l.value_string_ts OR l.value_string_ts IS NULL THEN n.value_string ELSE l.value_string END,
	value_string_ts = greatest(l.value_string_ts, n.value_string_ts),
	loc_lat = CASE WHEN n.loc_ts >= l.loc_ts OR l.loc_ts IS NULL THEN n.loc_lat ELSE l.loc_lat END,
	loc_lon = CASE WHEN n.loc_ts >= l.loc_ts OR l.loc_ts IS NULL THEN n.loc_lon ELSE l.loc_lon END,
	loc_ts = greatest(l.loc_ts, n.loc_ts),
	count = l.count + n.count,
	first_seen = least(l.first_seen, n.first_seen),
	last_seen = greatest(l.last_seen, n.last_seen) $$, ' n.', ' ' || n || '.');

-- What <schema>.signals_latest_current is, by hand: live, and the day from
-- :day on, of all keys or of those that the condition leaves ('AND …').
CREATE FUNCTION bench.current_by_hand(schema text, day int, condition text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN bench.merged(format('SELECT * FROM %I.signals_latest WHERE true %s UNION ALL %s', schema, condition,
	bench.definition(bench.deduplicated(schema || '.signals',
		format('WHERE "timestamp" >= %L %s', bench.midnight(day), condition)))));

CREATE FUNCTION bench.make_rollup(schema text, mode text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM rollup_create(schema || '.signals_latest', bench.definition(schema || '.signals'), time_column => 'timestamp',
		dedup_by => '{subject,name,timestamp}', dedup_order => '{cloud_event_id}', mode => mode);
END $$;

-- Triggers by hand that compare with a constant, as a rollup's do once a statement
-- has begun: what any row triggers with a condition cost.
CREATE FUNCTION bench.make_constant_triggers(schema text, day int) RETURNS void LANGUAGE plpgsql AS $make$
DECLARE
	source text := format('%I.signals', schema);
	late text := format('%%s."timestamp" < %L', bench.midnight(day));
BEGIN
	EXECUTE format('CREATE FUNCTION %I.late() RETURNS trigger LANGUAGE plpgsql AS $late$ BEGIN RAISE ''a late row''; END $late$', schema);
	EXECUTE format('CREATE TRIGGER late_insert AFTER INSERT ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION %I.late()', source, format(late, 'NEW'), schema);
	EXECUTE format('CREATE TRIGGER late_update AFTER UPDATE ON %s FOR EACH ROW WHEN (%s OR %s) EXECUTE FUNCTION %I.late()', source, format(late, 'OLD'), format(late, 'NEW'), schema);
	EXECUTE format('CREATE TRIGGER late_delete AFTER DELETE ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION %I.late()', source, format(late, 'OLD'), schema);
	FOR source IN SELECT relid::regclass::text FROM pg_partition_tree(format('%I.signals', schema)) LOOP
		EXECUTE format('CREATE TRIGGER late_truncate AFTER TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION %I.late()', source, schema);
	END LOOP;
END $make$;

CREATE FUNCTION bench.refresh(schema text, day int) RETURNS TABLE (action text, folded_keys bigint, late_keys bigint) LANGUAGE sql
AS $$ SELECT action, folded_keys, late_keys FROM rollup_refresh((schema || '.signals_latest')::regclass, bench.midnight(day)) $$;

-- rows by which two queries differ
CREATE FUNCTION bench.differences(a text, b text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM ((%s EXCEPT ALL (%s)) UNION ALL ((%2$s) EXCEPT ALL %1$s)) d', '(' || a || ')', b) INTO n;
	RETURN n;
END $$;

-- A fold by trigger, by hand, that is exact like the write-time fold: it locks
-- its keys in their order, merges what is new, and computes a key anew where an
-- event arrived before already.
CREATE FUNCTION bench.make_trigger(schema text) RETURNS void LANGUAGE plpgsql AS $make$
BEGIN
	EXECUTE format('CREATE TABLE %I.signals_latest AS SELECT * FROM (%s) q', schema,
		bench.definition(bench.deduplicated(schema || '.signals', '')));
	EXECUTE format('ALTER TABLE %I.signals_latest ADD UNIQUE (subject, name), SET (fillfactor = 80)', schema);
	EXECUTE format($sql$
	CREATE FUNCTION %1$I.fold() RETURNS trigger LANGUAGE plpgsql AS $fold$
	DECLARE
		seen text[];
		seen_names text[];
	BEGIN
		INSERT INTO %1$I.signals_latest (subject, name, count)
			SELECT subject, name, 0 FROM arrived GROUP BY subject, name ORDER BY subject, name
			ON CONFLICT (subject, name) DO UPDATE SET count = 0 WHERE false;
		SELECT array_agg(subject), array_agg(name) INTO seen, seen_names FROM (
			SELECT DISTINCT subject, name
			FROM (SELECT subject, name, "timestamp", count(*) AS n FROM arrived GROUP BY subject, name, "timestamp") a
			WHERE n < (SELECT count(*) FROM %1$I.signals s
				WHERE s.subject = a.subject AND s.name = a.name AND s."timestamp" = a."timestamp")) k;
		UPDATE %1$I.signals_latest l SET %4$s
		FROM (%2$s) n
		WHERE l.subject = n.subject AND l.name = n.name
			AND (seen IS NULL OR (n.subject, n.name) NOT IN (SELECT * FROM unnest(seen, seen_names)));
		UPDATE %1$I.signals_latest l SET
			"timestamp" = n."timestamp", value_number = n.value_number, value_number_ts = n.value_number_ts,
			value_string = n.value_string, value_string_ts = n.value_string_ts, loc_lat = n.loc_lat, loc_lon = n.loc_lon,
			loc_ts = n.loc_ts, count = n.count, first_seen = n.first_seen, last_seen = n.last_seen
		FROM unnest(seen, seen_names) k (subject, name), LATERAL (%3$s) n
		WHERE l.subject = k.subject AND l.name = k.name;
		RETURN NULL;
	END $fold$;
	CREATE TRIGGER fold AFTER INSERT ON %1$I.signals REFERENCING NEW TABLE AS arrived
		FOR EACH STATEMENT EXECUTE FUNCTION %1$I.fold() $sql$, schema,
		bench.definition(bench.deduplicated('arrived', '')),
		bench.definition(bench.deduplicated(schema || '.signals', 'r WHERE r.subject = k.subject AND r.name = k.name')),
		bench.assignments('n'));
END $make$;

-- The fold that makes a day's writes dearer as the day fills: the state at the
-- last midnight is kept, and a key that arrives is computed from it and from
-- all its rows of the day; from its whole history, where a row is late.
CREATE FUNCTION bench.make_day_trigger(schema text) RETURNS void LANGUAGE plpgsql AS $make$
BEGIN
	PERFORM bench.make_trigger(schema);
	EXECUTE format('CREATE TABLE %1$I.at_midnight (LIKE %1$I.signals_latest INCLUDING INDEXES); CREATE TABLE %1$I.midnight (now timestamptz);
		INSERT INTO %1$I.midnight VALUES (''-infinity'')', schema);
	EXECUTE format($sql$
	CREATE OR REPLACE FUNCTION %1$I.fold() RETURNS trigger LANGUAGE plpgsql AS $fold$
	DECLARE
		today timestamptz := (SELECT now FROM %1$I.midnight);
	BEGIN
		INSERT INTO %1$I.at_midnight
			SELECT n.* FROM (SELECT DISTINCT subject, name FROM arrived WHERE "timestamp" < today) k, LATERAL (%2$s) n
			ON CONFLICT (subject, name) DO UPDATE SET ("timestamp", value_number, value_number_ts, value_string, value_string_ts,
				loc_lat, loc_lon, loc_ts, count, first_seen, last_seen) = (excluded."timestamp", excluded.value_number,
				excluded.value_number_ts, excluded.value_string, excluded.value_string_ts, excluded.loc_lat, excluded.loc_lon,
				excluded.loc_ts, excluded.count, excluded.first_seen, excluded.last_seen);
		INSERT INTO %1$I.signals_latest
			SELECT n.* FROM (SELECT DISTINCT subject, name FROM arrived ORDER BY subject, name) k, LATERAL (%3$s) n
			ON CONFLICT (subject, name) DO UPDATE SET ("timestamp", value_number, value_number_ts, value_string, value_string_ts,
				loc_lat, loc_lon, loc_ts, count, first_seen, last_seen) = (excluded."timestamp", excluded.value_number,
				excluded.value_number_ts, excluded.value_string, excluded.value_string_ts, excluded.loc_lat, excluded.loc_lon,
				excluded.loc_ts, excluded.count, excluded.first_seen, excluded.last_seen);
		RETURN NULL;
	END $fold$ $sql$, schema,
		bench.definition(bench.deduplicated(schema || '.signals', 'r WHERE r.subject = k.subject AND r.name = k.name AND r."timestamp" < today')),
		bench.merged(format('SELECT * FROM %I.at_midnight b WHERE b.subject = k.subject AND b.name = k.name UNION ALL %s', schema,
			bench.definition(bench.deduplicated(schema || '.signals', 'r WHERE r.subject = k.subject AND r.name = k.name AND r."timestamp" >= today')))));
END $make$;

-- a new day begins
CREATE FUNCTION bench.midnight_passes(schema text, day int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('TRUNCATE %1$I.at_midnight; INSERT INTO %1$I.at_midnight SELECT * FROM %1$I.signals_latest;
		UPDATE %1$I.midnight SET now = %2$L', schema, bench.midnight(day));
END $$;
