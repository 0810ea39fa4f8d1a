-- A session that creates and drops rollups does not grow: what it keeps of one to run
-- SQL over it goes with the rollup.  Not in one transaction, for it goes at the end of
-- one.
--
-- Fails when a kept entry is freed only where it is asked for again (free_garbage in
-- plans.c, remove_stale in watermark.c, transaction_ended in late.c and current.c).
\ir lib/begin.sql
CREATE SCHEMA memory;
SET search_path = memory, public;

SELECT plan(7);

CREATE TABLE s (k text NOT NULL, ts timestamptz NOT NULL, v int);
INSERT INTO s SELECT 'k' || i % 5, '2026-01-01Z'::timestamptz + i * interval '1 hour', i FROM generate_series(1, 40) i;

-- marks, recomputed keys, folded writes: each keeps plans of its own
CREATE PROCEDURE live_and_die(times int) LANGUAGE plpgsql AS $$
DECLARE
	total bigint;
BEGIN
	FOR i IN 1 .. times LOOP
		PERFORM rollup_create('r', 'SELECT k, count(*), sum(v), max(ts) FROM s GROUP BY k', 'ts', mode => CASE WHEN i % 2 = 0 THEN 'on' ELSE 'off' END);
		IF i % 2 = 0 THEN PERFORM rollup_refresh('r', '2026-01-02Z'); END IF;
		COMMIT;
		IF i % 2 = 1 THEN CALL rollup_run('r'); END IF;
		INSERT INTO s VALUES ('k1', '2026-01-01 12:00Z', 1);
		COMMIT;
		UPDATE s SET v = v + 1 WHERE k = 'k2';
		COMMIT;
		EXECUTE 'SELECT sum(count) FROM r_current' INTO total;
		IF total IS DISTINCT FROM (SELECT count(*) FROM s) THEN RAISE 'the view counts % rows', total; END IF;
		PERFORM rollup_drop('r', true);
		COMMIT;
	END LOOP;
END $$;

CREATE VIEW kept AS SELECT count(*) FILTER (WHERE name = 'dailyrollup plans') AS entries,
	count(*) FILTER (WHERE name IN ('SPI Plan', 'CachedPlan', 'CachedPlanSource', 'CachedPlanQuery')) AS plans FROM pg_backend_memory_contexts;
CREATE TABLE before (entries bigint, plans bigint);
CREATE TABLE after (LIKE before);

CALL live_and_die(10);
INSERT INTO before TABLE kept;
CALL live_and_die(10);
INSERT INTO after TABLE kept;
SELECT ok(k.entries <= b.entries + 2, format('entries: %s, then %s', b.entries, k.entries)) FROM after k, before b;
SELECT ok(k.plans <= b.plans + 6, format('plans: %s, then %s', b.plans, k.plans)) FROM after k, before b;

-- nor what it remembers of watermarks, thresholds and floors (as many rollups as make
-- late.c and current.c forget theirs, twice over)
CREATE TABLE remembered (round int, name text, bytes bigint);
CREATE PROCEDURE note(round int) LANGUAGE sql AS $$
	INSERT INTO remembered SELECT round, name, used_bytes FROM pg_backend_memory_contexts
	WHERE name IN ('dailyrollup watermarks', 'dailyrollup thresholds', 'dailyrollup floors') $$;
CALL live_and_die(33);
CALL note(1);
CALL live_and_die(66);
CALL note(2);
SELECT cmp_ok(coalesce((SELECT bytes FROM remembered r WHERE round = 2 AND r.name = n.name), 0), '<=', coalesce((SELECT bytes FROM remembered r WHERE round = 1 AND r.name = n.name), 0) + 500, n.name)
FROM (VALUES ('dailyrollup watermarks'), ('dailyrollup thresholds'), ('dailyrollup floors')) n(name);

-- those of a rollup that stays, stay
SELECT rollup_create('r', 'SELECT k, count(*), sum(v), max(ts) FROM s GROUP BY k', 'ts', mode => 'on');
SELECT rollup_refresh('r', '2026-01-02Z');
INSERT INTO s VALUES ('k3', '2026-01-01 12:00Z', 1);
TRUNCATE before;
INSERT INTO before TABLE kept;
SELECT cmp_ok((SELECT entries FROM before), '>', 0::bigint, 'a rollup that is there has an entry');
INSERT INTO s VALUES ('k3', '2026-01-01 12:00Z', 1);
SELECT is(k.entries, b.entries, 'for the next statement, too') FROM kept k, before b;

SELECT * FROM finish();
SELECT rollup_drop('r', true);
DROP SCHEMA memory CASCADE;
