-- The view rollup_metrics: names, labels and values are an interface.  The numbers
-- of rollups in each state, what they follow, and who sees them.
\ir lib/begin.sql

SELECT no_plan();

CREATE ROLE mt_owner;
CREATE ROLE mt_member IN ROLE mt_owner;
CREATE ROLE mt_other;
CREATE ROLE mt_monitor IN ROLE pg_monitor;
CREATE ROLE mt_stranger;
CREATE SCHEMA mt AUTHORIZATION mt_owner;
CREATE SCHEMA "Mt.x" AUTHORIZATION mt_other;
GRANT USAGE ON SCHEMA mt, "Mt.x" TO PUBLIC;

SET ROLE mt_owner;
CREATE TABLE mt.events (k int, at timestamptz NOT NULL, n int);
CREATE INDEX ON mt.events (k, at);
INSERT INTO mt.events SELECT i % 5, date_trunc('day', now()) - i * interval '5 hours', i FROM generate_series(1, 30) i;
SELECT rollup_create('mt.kept', 'SELECT k, count(*), sum(n) FROM mt.events GROUP BY k', 'at', mode => 'on');
SELECT rollup_create('mt.compared', 'SELECT k, count(*), sum(n) FROM mt.events GROUP BY k', 'at', mode => 'shadow');
SELECT rollup_create('mt.folded', 'SELECT k, count(*), sum(n) FROM mt.events GROUP BY k', 'at', mode => 'off');
SELECT rollup_create('mt.unfilled', 'SELECT k, count(*), sum(n) FROM mt.events GROUP BY k', 'at', mode => 'on');
CALL rollup_run('mt.kept');
CALL rollup_run('mt.compared');
CALL rollup_run('mt.folded');
RESET ROLE;
SET ROLE mt_other;
CREATE TABLE "Mt.x".events (k int, at timestamptz NOT NULL);
SELECT rollup_create('"Mt.x"."a.B"', 'SELECT k, count(*) FROM "Mt.x".events GROUP BY k', 'at', mode => 'on');
RESET ROLE;

-- a number of one rollup; the labels beside database and rollup as text
CREATE FUNCTION mt.number(rollup text, metric text, labels jsonb DEFAULT '{}') RETURNS float8 LANGUAGE sql STABLE AS $$
  SELECT m.value FROM public.rollup_metrics m
  WHERE m.name = 'dailyrollup_' || metric AND m.labels @> number.labels AND m.labels->>'rollup' = number.rollup
$$;
CREATE FUNCTION mt.names(rollup text) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT string_agg(DISTINCT substr(m.name, 13), ' ' ORDER BY substr(m.name, 13)) FROM public.rollup_metrics m WHERE m.labels->>'rollup' = names.rollup
$$;
-- what a role sees
CREATE FUNCTION mt.see(role text, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  EXECUTE query INTO result;
  RESET ROLE;
  RETURN result;
END $$;

-- ==== the interface
SELECT is((SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
           FROM pg_attribute WHERE attrelid = 'rollup_metrics'::regclass AND attnum > 0),
          'name text, labels jsonb, value double precision, help text', 'the columns');
SELECT results_eq(
  $$SELECT DISTINCT name, ARRAY(SELECT jsonb_object_keys(labels) ORDER BY 1)::text FROM rollup_metrics ORDER BY 1, 2$$,
  $$VALUES ('dailyrollup_diff_rows', '{class,database,rollup}'),
           ('dailyrollup_failures', '{database,rollup}'),
           ('dailyrollup_lag_seconds', '{database,rollup}'),
           ('dailyrollup_late_keys', '{database,rollup}'),
           ('dailyrollup_refresh_seconds', '{database,rollup}'),
           ('dailyrollup_refresh_total', '{action,database,outcome,rollup}'),
           ('dailyrollup_state_info', '{database,rollup,state,wanted_mode}'),
           ('dailyrollup_table_rows', '{database,kind,rollup,side}'),
           ('dailyrollup_watermark_timestamp_seconds', '{database,rollup}')$$,
  'names, each with its labels');
SELECT is_empty($$SELECT name, labels FROM rollup_metrics GROUP BY 1, 2 HAVING count(*) > 1$$, 'no two numbers of one name and labels');
SELECT is_empty($$SELECT name FROM rollup_metrics GROUP BY name HAVING count(DISTINCT help) > 1 OR min(help) !~ '^[A-Z].*\.$'$$, 'one sentence of help for each name');
SELECT is_empty($$SELECT name, labels FROM rollup_metrics WHERE value IS NULL OR labels->>'rollup' IS NULL$$, 'a number that there is not is no row');
SELECT is((SELECT string_agg(DISTINCT labels->>'database', ' ') FROM rollup_metrics), current_database()::text, 'the database');
SELECT is((SELECT count(*) FROM rollup_status s WHERE s.rollup NOT IN (SELECT (labels->>'rollup')::regclass FROM rollup_metrics)), 0::bigint,
          'the rollup''s name is one that SQL understands');
SELECT is(mt.see('mt_other', $$SELECT min(labels->>'rollup') FROM rollup_metrics$$), '"Mt.x"."a.B"', 'quoted, and with its schema, whatever the search_path');

-- ==== which of them a rollup has
SELECT is(mt.names('mt.kept'), 'failures lag_seconds late_keys refresh_seconds refresh_total state_info table_rows watermark_timestamp_seconds', 'on');
SELECT is(mt.names('mt.compared'), 'diff_rows failures lag_seconds late_keys refresh_seconds refresh_total state_info table_rows watermark_timestamp_seconds', 'shadow');
SELECT is(mt.names('mt.unfilled'), 'failures late_keys state_info', 'new: no watermark, and nothing was done');
SELECT is(mt.names('mt.folded') ~ 'watermark|lag|diff', false, 'off: no watermark, nothing to compare');

-- ==== state
SELECT is(mt.number('mt.kept', 'state_info', '{"state": "on", "wanted_mode": "on"}'), 1::float8, 'state on');
SELECT is(mt.number('mt.compared', 'state_info', '{"state": "shadow", "wanted_mode": "shadow"}'), 1::float8, 'state shadow');
SELECT is(mt.number('mt.unfilled', 'state_info', '{"state": "new", "wanted_mode": "on"}'), 1::float8, 'state new, wanted on');
SELECT rollup_alter('mt.kept', mode => 'off');
SELECT is(mt.number('mt.kept', 'state_info', '{"state": "on", "wanted_mode": "off"}'), 1::float8, 'a wish that no pass has fulfilled yet');
SELECT rollup_alter('mt.kept', mode => 'on');

-- ==== watermark and lag
SELECT is(to_timestamp(mt.number('mt.kept', 'watermark_timestamp_seconds')), rollup_watermark('mt.kept'), 'the watermark');
SELECT is(to_timestamp(mt.number('mt.compared', 'watermark_timestamp_seconds')), s.watermark, 'of a shadow, too') FROM rollup_status s WHERE rollup = 'mt.compared'::regclass;
SELECT cmp_ok(abs(mt.number('mt.kept', 'lag_seconds') - extract(epoch FROM clock_timestamp() - rollup_watermark('mt.kept'))::float8), '<', 60::float8, 'the lag is that to now');
TRUNCATE mt.events;
SELECT is(mt.number('mt.kept', 'lag_seconds'), NULL, 'without a watermark there is no lag');
CALL rollup_run('mt.kept');
SELECT isnt(mt.number('mt.kept', 'lag_seconds'), NULL, 'until it has one again');
INSERT INTO mt.events SELECT i % 5, date_trunc('day', now()) - i * interval '5 hours', i FROM generate_series(1, 30) i;
CALL rollup_run('mt.compared');

-- ==== the shadow, counted by the pass that compares
SELECT is(mt.number('mt.compared', 'table_rows', format('{"side": "daily", "kind": "%s"}', kind)::jsonb), n::float8, kind || ' of the shadow')
FROM rollup_check('mt.compared'), LATERAL (VALUES ('rows', rows), ('keys', keys)) v(kind, n) WHERE side = 'daily';
SELECT cmp_ok(mt.number('mt.compared', 'table_rows', '{"side": "daily", "kind": "rows"}'), '=', 5::float8, 'a row for each of five keys');

-- ==== late keys
SELECT is(mt.number('mt.kept', 'late_keys'), (SELECT count(*) FROM rollup_late WHERE rollup = 'mt.kept'::regclass)::float8, 'late keys');
SELECT cmp_ok(mt.number('mt.kept', 'late_keys'), '>', 0::float8, 'which are some');
CALL rollup_run('mt.kept');
SELECT is(mt.number('mt.kept', 'late_keys'), 0::float8, 'healed');

-- ==== what was done
SELECT is((SELECT string_agg(format('%s %s %s', labels->>'action', labels->>'outcome', value), ', ' ORDER BY labels->>'action')
           FROM rollup_metrics WHERE name = 'dailyrollup_refresh_total' AND labels->>'rollup' = 'mt.kept'),
          (SELECT string_agg(format('%s %s %s', action, outcome, n), ', ' ORDER BY action COLLATE "C")
           FROM (SELECT action, outcome, count(*) AS n FROM rollup_runs WHERE rollup = 'mt.kept'::regclass GROUP BY 1, 2) r),
          'each row of rollup_runs counts');
SELECT is(mt.number('mt.kept', 'refresh_total', '{"action": "late", "outcome": "ok"}'), 1::float8, 'a recompute of late keys');
SELECT is(mt.number('mt.kept', 'refresh_seconds'),
          (SELECT extract(epoch FROM elapsed)::float8 FROM rollup_runs WHERE rollup = 'mt.kept'::regclass AND action = 'late'), 'how long it took');
ALTER TABLE mt.events DISABLE TRIGGER USER;
SELECT rollup_reseed('mt.kept');
\set ON_ERROR_STOP 0
CALL rollup_run('mt.kept');
\set ON_ERROR_STOP 1
SELECT cmp_ok((SELECT sum(value) FROM rollup_metrics WHERE name = 'dailyrollup_refresh_total' AND labels @> '{"rollup": "mt.kept", "outcome": "failed"}'), '=', 1::float8, 'a failure is counted');
SELECT is(mt.number('mt.kept', 'refresh_seconds'),
          (SELECT extract(epoch FROM elapsed)::float8 FROM rollup_runs WHERE rollup = 'mt.kept'::regclass AND action = 'late'), 'and is no refresh');
-- rows that are deleted for their age still count
CREATE TEMP TABLE before AS SELECT labels, value FROM rollup_metrics WHERE name = 'dailyrollup_refresh_total';
WITH gone AS (DELETE FROM dailyrollup.runs RETURNING rollup_id, action, outcome)
INSERT INTO dailyrollup.past_runs AS p (rollup_id, action, outcome, runs)
SELECT rollup_id, action, outcome, count(*) FROM gone GROUP BY 1, 2, 3
ON CONFLICT (rollup_id, action, outcome) DO UPDATE SET runs = p.runs + EXCLUDED.runs;
SELECT bag_eq($$SELECT labels, value FROM rollup_metrics WHERE name = 'dailyrollup_refresh_total'$$, 'TABLE before', 'a counter does not fall');
INSERT INTO dailyrollup.runs (rollup_id, action, started_at, finished_at, outcome)
SELECT id, 'late', now() - interval '2500 ms', now(), 'ok' FROM dailyrollup.rollups WHERE live = 'mt.kept'::regclass;
SELECT is(mt.number('mt.kept', 'refresh_total', '{"action": "late", "outcome": "ok"}'), 2::float8, 'old and new rows together');
SELECT is(mt.number('mt.kept', 'refresh_seconds'), 2.5::float8, 'the last refresh is the newest row');

-- ==== failures in a row
SELECT is(mt.number('mt.compared', 'failures'), 0::float8, 'no failure');
UPDATE dailyrollup.rollups SET failures = 3, last_error = 'x' WHERE live = 'mt.compared'::regclass;
SELECT is(mt.number('mt.compared', 'failures'), 3::float8, 'failures of passes in a row');

-- ==== the comparison of live and shadow
CREATE FUNCTION mt.diff() RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(format('%s %s', labels->>'class', value), ', ' ORDER BY labels->>'class') FROM rollup_metrics
  WHERE name = 'dailyrollup_diff_rows' AND labels->>'rollup' = 'mt.compared'
$$;
CREATE FUNCTION mt.write_diff(a int, b int, c int, d int, at timestamptz) RETURNS void LANGUAGE sql AS $$
  INSERT INTO dailyrollup.runs (rollup_id, action, started_at, finished_at, outcome, missing_daily, missing_live, mismatches, duplicates)
  SELECT id, 'diff', at, at, 'differs', a, b, c, d FROM dailyrollup.rollups WHERE live = 'mt.compared'::regclass
$$;
SELECT mt.write_diff(1, 2, 3, 4, clock_timestamp());
SELECT is(mt.diff(), 'duplicate 4, mismatch 3, missing_daily 1, missing_live 2', 'rows by class');
SELECT mt.write_diff(0, 0, 0, 0, clock_timestamp());
SELECT is(mt.diff(), 'duplicate 0, mismatch 0, missing_daily 0, missing_live 0', 'of the last comparison');
DELETE FROM dailyrollup.runs WHERE action = 'diff';
SELECT mt.write_diff(1, 2, 3, 4, (SELECT shadow_at - interval '1 hour' FROM dailyrollup.rollups WHERE live = 'mt.compared'::regclass));
SELECT is(mt.diff(), NULL, 'not of a shadow that there was before');
SELECT mt.write_diff(1, 2, 3, 4, clock_timestamp());
UPDATE dailyrollup.rollups SET state = 'on' WHERE live = 'mt.compared'::regclass;
SELECT is(mt.diff(), NULL, 'and not where nothing is compared any more');
UPDATE dailyrollup.rollups SET state = 'shadow' WHERE live = 'mt.compared'::regclass;

-- ==== rows and keys
CREATE FUNCTION mt.tables(rollup text) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(format('%s %s %s', labels->>'side', labels->>'kind', value), ', ' ORDER BY labels->>'side', labels->>'kind') FROM rollup_metrics
  WHERE name = 'dailyrollup_table_rows' AND labels->>'rollup' = tables.rollup
$$;
CREATE FUNCTION mt.write_count(rollup text, action text, "rows" int, keys int) RETURNS void LANGUAGE sql AS $$
  INSERT INTO dailyrollup.runs (rollup_id, action, started_at, finished_at, outcome, "rows", keys)
  SELECT id, action, clock_timestamp(), clock_timestamp(), 'ok', write_count."rows", write_count.keys
  FROM dailyrollup.rollups WHERE live = write_count.rollup::regclass
$$;
SELECT is(mt.tables('mt.kept'), NULL, 'not counted');
SELECT mt.write_count('mt.kept', 'promote', 5, 5);
SELECT is(mt.tables('mt.kept'), 'live keys 5, live rows 5', 'counted by a promote');
SELECT mt.write_count('mt.kept', 'check', 823520, 7666);
SELECT is(mt.tables('mt.kept'), 'live keys 7666, live rows 823520', 'by the last check');
SELECT mt.write_count('mt.compared', 'check', 7, 6);
SELECT mt.write_count('mt.compared', 'diff', 9, 8);
SELECT is(mt.tables('mt.compared'), 'daily keys 8, daily rows 9, live keys 6, live rows 7', 'both sides');

-- ==== who asks for one number pays for no other
CREATE FUNCTION mt.plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  line text;
  lines text = '';
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
    lines = lines || line || E'\n';
  END LOOP;
  RETURN lines;
END $$;
SELECT matches(mt.plan('TABLE rollup_metrics'), '_late\(', 'all numbers: the marks are read');
SELECT doesnt_match(mt.plan($$SELECT value FROM rollup_metrics WHERE name = 'dailyrollup_failures'$$), '_late\(|dailyrollup\.(past_)?runs', 'one of the rollup''s row: no other table');
SELECT doesnt_match(mt.plan($$SELECT value FROM rollup_metrics WHERE name = 'dailyrollup_refresh_total'$$), '_late\(', 'one of the runs: no marks');

-- ==== who sees what
CREATE FUNCTION mt.rollups(role text) RETURNS text LANGUAGE sql AS $$
  SELECT mt.see(role, $q$SELECT string_agg(DISTINCT labels->>'rollup', ' ' ORDER BY labels->>'rollup') FROM public.rollup_metrics$q$)
$$;
SELECT is(mt.rollups(role), 'mt.compared mt.folded mt.kept mt.unfilled', role || ' sees the owner''s') FROM unnest('{mt_owner,mt_member}'::text[]) role;
SELECT is(mt.rollups('mt_other'), '"Mt.x"."a.B"', 'another owner sees his own');
SELECT is(mt.rollups('mt_stranger'), NULL, 'a stranger sees nothing');
SELECT is(mt.rollups('mt_monitor'), (SELECT string_agg(DISTINCT labels->>'rollup', ' ' ORDER BY labels->>'rollup') FROM rollup_metrics), 'pg_monitor sees all');
SELECT cmp_ok(length(mt.rollups('mt_monitor')), '>', 50, 'which are several');

-- ==== it goes with the rollup
SELECT rollup_drop('mt.unfilled', drop_table => true);
SELECT is(mt.names('mt.unfilled'), NULL, 'a rollup that was dropped has no numbers');

DROP SCHEMA mt, "Mt.x" CASCADE;
DROP ROLE mt_owner, mt_member, mt_other, mt_monitor, mt_stranger;
SELECT * FROM finish();
