-- A source with a rollup in each mode, with and without duplicate events, and what is
-- wrong with them; into the first schema of the search_path.
CREATE TABLE s (k text NOT NULL, ts timestamptz NOT NULL, v int, id int GENERATED ALWAYS AS IDENTITY);
CREATE INDEX ON s (k, ts);
INSERT INTO s (k, ts, v) SELECT 'k' || i % 5, '2026-01-01Z'::timestamptz + i * interval '1h', i FROM generate_series(1, 40) i;
SELECT rollup_create('r_' || m || suffix, 'SELECT k, count(*) AS n, sum(v) AS total, latest(v, ts) AS v, max(ts) AS ts FROM s GROUP BY k', 'ts',
	dedup_by => dedup::text[], dedup_order => orders::text[], mode => m)
FROM unnest('{off,shadow,on}'::text[]) m, (VALUES ('', NULL, NULL), ('_once', '{k,ts}', '{id}')) d(suffix, dedup, orders);
CALL rollup_run();

-- Which views, rollups and shadows are not what they should be: marked keys of live or
-- the shadow are exact in the view alone, or everywhere after a refresh.
CREATE FUNCTION wrong(refreshed boolean DEFAULT false) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r record;
	n int;
	found text := '';
BEGIN
	FOR r IN SELECT * FROM rollup_status WHERE rollup::text LIKE 'r\_%' ORDER BY rollup LOOP
		IF refreshed AND r.state <> 'off' THEN PERFORM rollup_refresh(r.rollup, r.watermark); END IF;
		EXECUTE format('SELECT count(*) FROM ((TABLE %1$s EXCEPT ALL (%2$s)) UNION ALL ((%2$s) EXCEPT ALL TABLE %1$s)) x',
			r.current_view, rollup_definition(r.rollup)) INTO n;
		IF n > 0 THEN found := found || r.current_view || ' '; END IF;
		IF EXISTS (SELECT FROM rollup_verify(r.rollup)) THEN found := found || r.rollup || ' '; END IF;
		IF r.state = 'shadow' AND EXISTS (SELECT FROM rollup_diff(r.rollup)) THEN found := found || r.rollup || ' and its shadow '; END IF;
	END LOOP;
	RETURN found;
END $$;
