-- The views rollup_status, rollup_runs and rollup_progress and rollup_plan(): their
-- columns, what they say of rollups in each state, who sees them; the history that
-- is pruned without a counter that falls.
--
-- A column that is renamed, or a row of another owner's that is seen, makes it fail.
\ir lib/begin.sql

SELECT no_plan();

CREATE ROLE st_owner;
CREATE ROLE st_member IN ROLE st_owner;
CREATE ROLE st_other;
CREATE ROLE st_monitor IN ROLE pg_monitor;
CREATE ROLE st_stranger;
CREATE SCHEMA st AUTHORIZATION st_owner;
CREATE SCHEMA st2 AUTHORIZATION st_other;
GRANT USAGE ON SCHEMA st, st2 TO PUBLIC;

SET ROLE st_owner;
CREATE TABLE st.events (k int, at timestamptz NOT NULL, n int);
CREATE INDEX ON st.events (k, at);
INSERT INTO st.events SELECT i % 5, date_trunc('day', now()) - i * interval '5 hours', i FROM generate_series(1, 30) i;
SELECT rollup_create('st.kept', 'SELECT k, count(*), sum(n) FROM st.events GROUP BY k', 'at', mode => 'on');
SELECT rollup_create('st.compared', 'SELECT k, count(*), sum(n) FROM st.events GROUP BY k', 'at', mode => 'shadow', delay => '1 day');
SELECT rollup_create('st.folded', 'SELECT k, count(*), sum(n) FROM st.events GROUP BY k', 'at', mode => 'off', time_zone => 'Europe/Berlin');
SELECT rollup_create('st.unfilled', 'SELECT k, count(*), sum(n) FROM st.events GROUP BY k', 'at', mode => 'on');
RESET ROLE;
SET ROLE st_other;
CREATE TABLE st2.events (k int, at timestamptz NOT NULL);
SELECT rollup_create('st2.theirs', 'SELECT k, count(*) FROM st2.events GROUP BY k', 'at', mode => 'on');
RESET ROLE;

CREATE FUNCTION st.see(role text, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  EXECUTE query INTO result;
  RESET ROLE;
  RETURN result;
END $$;
CREATE FUNCTION st.columns(relation regclass) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
  FROM pg_attribute WHERE attrelid = relation AND attnum > 0
$$;

-- ==== the interface
SELECT is(st.columns('rollup_status'),
          'rollup regclass, source regclass, current_view regclass, state text, wanted_mode text, mode text, fold boolean, '
          'watermark timestamp with time zone, lag interval, shadow regclass, time_zone text, delay interval, '
          'late_keys bigint, oldest_late interval, reseed text, next_due timestamp with time zone, next_step text, run_by text, '
          'last_action text, last_outcome text, last_run_at timestamp with time zone, failures integer, last_error text, '
          'retry_at timestamp with time zone, rows bigint, keys bigint, checked_at timestamp with time zone, '
          'missing_daily bigint, missing_live bigint, mismatches bigint, duplicates bigint, compared_at timestamp with time zone, activity text',
          'the columns of rollup_status');
SELECT is(st.columns('rollup_runs'),
          'id bigint, rollup regclass, action text, started_at timestamp with time zone, finished_at timestamp with time zone, elapsed interval, '
          'from_time timestamp with time zone, to_time timestamp with time zone, folded_keys bigint, late_keys bigint, outcome text, reason text, '
          'rows bigint, keys bigint, missing_daily bigint, missing_live bigint, mismatches bigint, duplicates bigint',
          'the columns of rollup_runs');
SELECT is(st.columns('rollup_progress'),
          'rollup regclass, pid integer, phase text, part integer, parts integer, rows bigint, started_at timestamp with time zone, phase_started_at timestamp with time zone',
          'the columns of rollup_progress');
SELECT is(pg_get_function_result('rollup_plan'::regproc),
          'TABLE(rollup regclass, step_number integer, step text, state text, becomes text, boundary timestamp with time zone)',
          'the columns of rollup_plan');

-- ==== before and after a pass
SELECT results_eq($$SELECT state, wanted_mode, mode, watermark, late_keys, next_step, last_action, failures, activity FROM rollup_status WHERE rollup = 'st.kept'::regclass$$,
                  $$VALUES ('new', 'on', 'on', NULL::timestamptz, 0::bigint, 'begin shadow', NULL::text, 0, NULL::text)$$, 'a new rollup');
SELECT is((SELECT count(*) FROM rollup_plan() WHERE rollup = 'st.kept'::regclass), 4::bigint, 'its plan has four steps');
SELECT is((SELECT run_by FROM rollup_status WHERE rollup = 'st.kept'::regclass), 'nobody', 'nobody makes its passes');
CALL rollup_run('st.kept');
CALL rollup_run('st.compared');
CALL rollup_run('st.folded');
SELECT results_eq($$SELECT rollup::text, state, wanted_mode, watermark IS NOT NULL, shadow::text, delay, time_zone, fold, last_outcome, failures, reseed
                    FROM rollup_status WHERE rollup::text ~ '^st\.' ORDER BY 1$$,
                  $$VALUES ('st.compared', 'shadow', 'shadow', true, 'st.compared_daily', interval '1 day', 'UTC', true, 'ok', 0, NULL::text),
                           ('st.folded', 'off', 'off', false, NULL, NULL, 'Europe/Berlin', true, 'ok', 0, NULL),
                           ('st.kept', 'on', 'on', true, NULL, NULL, 'UTC', true, 'ok', 0, NULL),
                           ('st.unfilled', 'new', 'on', false, NULL, NULL, 'UTC', true, NULL, 0, NULL)$$, 'each state');
SELECT results_eq($$SELECT rows, keys, checked_at IS NOT NULL FROM rollup_status WHERE rollup = 'st.kept'::regclass$$, $$VALUES (5::bigint, 5::bigint, true)$$, 'rows and keys of the last check');
SELECT results_eq($$SELECT missing_daily, missing_live, mismatches, duplicates, compared_at IS NOT NULL FROM rollup_status WHERE rollup = 'st.compared'::regclass$$,
                  $$VALUES (0::bigint, 0::bigint, 0::bigint, 0::bigint, true)$$, 'what the last comparison has found');
SELECT results_eq($$SELECT s.rows, s.checked_at FROM rollup_status s WHERE rollup = 'st.compared'::regclass$$,
                  $$SELECT rows, finished_at FROM rollup_runs WHERE rollup = 'st.compared'::regclass AND action = 'promote'$$, 'which are of the table, not of its shadow');
SELECT is((SELECT format('%s %s', rows, keys) FROM rollup_runs WHERE rollup = 'st.compared'::regclass AND action = 'diff'), '5 5', 'those of the shadow stand in the comparison''s row');
SELECT ok(lag BETWEEN clock_timestamp() - watermark - interval '1 min' AND clock_timestamp() - watermark, 'the lag') FROM rollup_status WHERE rollup = 'st.kept'::regclass;
SELECT is((SELECT string_agg(DISTINCT rollup::text, ' ' ORDER BY rollup::text) FROM rollup_plan() WHERE rollup::text ~ '^st\.'), 'st.unfilled', 'only the unfilled one has something to do');
SELECT is_empty('TABLE rollup_progress', 'no pass runs: no progress');

INSERT INTO st.events VALUES (1, now() - interval '4 days', 1), (8, now() - interval '4 days', 1);
SELECT results_eq($$SELECT late_keys, oldest_late >= '0' AND oldest_late < '1 min' FROM rollup_status WHERE rollup = 'st.kept'::regclass$$, $$VALUES (2::bigint, true)$$, 'late keys, and how long the oldest has waited');

-- ==== a failure
CREATE TABLE st.unfilled_daily (x int);
\set ON_ERROR_STOP off
CALL rollup_run('st.unfilled');
\set ON_ERROR_STOP on
SELECT results_eq($$SELECT failures, last_error, retry_at > now(), next_due = retry_at, last_action, last_outcome FROM rollup_status WHERE rollup = 'st.unfilled'::regclass$$,
                  $$VALUES (1, 'relation "unfilled_daily" already exists', true, true, 'state', 'failed')$$, 'a pass that has failed: how often, why, when again');
SELECT is((SELECT reason FROM rollup_runs WHERE rollup = 'st.unfilled'::regclass), 'relation "unfilled_daily" already exists', 'in rollup_runs, too');
DROP TABLE st.unfilled_daily;

-- ==== the plan of each change of state, of a refresh and of what one leaves to do
CREATE FUNCTION st.plan(of regclass) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(format('%s: %s to %s', step, state, becomes), ', ' ORDER BY step_number) FROM rollup_plan() WHERE rollup = of $$;
SELECT rollup_create('st.behind', 'SELECT k, count(*) AS n FROM st.events GROUP BY k', (SELECT attname FROM pg_attribute WHERE attrelid = 'st.events'::regclass AND atttypid = 'timestamptz'::regtype), mode => 'on');
SELECT rollup_refresh('st.behind', date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '3 days');
SELECT is(st.plan('st.behind'), 'refresh: on to on, check: on to on', 'a watermark that is behind');
SELECT rollup_reseed('st.behind');
SELECT is(st.plan('st.behind'), 'begin shadow: on to on, seed: on to on, promote: on to on, check: on to on', 'a reseed');
SELECT rollup_alter('st.behind', mode => 'shadow');
SELECT is(st.plan('st.behind'), 'begin shadow: on to on, seed: on to on, promote: on to on, leave on: on to shadow, refresh: shadow to shadow, diff: shadow to shadow', 'and then to another state');
SELECT rollup_drop('st.behind', true);
SELECT rollup_alter('st.folded', mode => 'on');
SELECT is(st.plan('st.folded'), 'begin shadow: off to shadow, refresh: shadow to shadow, promote: shadow to on, check: on to on', 'off to on');
SELECT rollup_alter('st.folded', mode => 'off');
SELECT is(st.plan('st.folded'), NULL, 'off stays off');
SELECT rollup_alter('st.compared', mode => 'off');
SELECT is(st.plan('st.compared'), 'end shadow: shadow to off', 'shadow to off');
SELECT rollup_alter('st.compared', mode => 'shadow');

-- ==== who sees what
CREATE FUNCTION st.rollups(role text, relation text) RETURNS text LANGUAGE sql AS $$
  SELECT st.see(role, format('SELECT string_agg(DISTINCT c.relname, '' '' ORDER BY c.relname) FROM public.%s v JOIN pg_class c ON c.oid = v.rollup', relation))
$$;
SELECT is(st.rollups(role, 'rollup_status'), 'compared folded kept unfilled', role || ' sees the owner''s rollups') FROM unnest('{st_owner,st_member}'::text[]) role;
SELECT is(st.rollups(role, 'rollup_runs'), 'compared folded kept unfilled', 'and their runs') FROM unnest('{st_owner,st_member}'::text[]) role;
SELECT is(st.rollups('st_owner', 'rollup_late'), 'compared kept', 'and their late keys');
SELECT is(st.rollups('st_owner', 'rollup_plan()'), 'unfilled', 'and their plan');
SELECT is(st.rollups('st_other', 'rollup_status'), 'theirs', 'another owner sees his own');
SELECT is(st.rollups('st_other', 'rollup_runs'), NULL, 'no run of others');
SELECT is(st.rollups('st_other', 'rollup_plan()'), 'theirs', 'his own plan');
SELECT is(st.rollups('st_stranger', relation), NULL, 'a stranger sees nothing of ' || relation) FROM unnest('{rollup_status,rollup_runs,rollup_late,rollup_progress,rollup_plan()}'::text[]) relation;
SELECT is(st.rollups('st_monitor', 'rollup_status'), 'compared folded kept theirs unfilled', 'pg_monitor sees all');
SELECT is(st.rollups('st_monitor', 'rollup_runs'), 'compared folded kept unfilled', 'and all runs');
SELECT is(st.rollups('st_monitor', 'rollup_progress'), NULL, 'and may look at the progress');

-- the functions beneath the views, too
CREATE FUNCTION st.due(role text) RETURNS text LANGUAGE sql AS $$
  SELECT st.see(role, $q$SELECT format('%s %s', next_due IS NULL, reason) FROM dailyrollup._next_due('st.unfilled')$q$)
$$;
SELECT is(st.due(role), 'f begin shadow', role || ' sees when a rollup is due') FROM unnest('{st_owner,st_member,st_monitor}'::text[]) role;
SELECT is(st.due(role), 't ', role || ' does not') FROM unnest('{st_other,st_stranger}'::text[]) role;

-- ==== a time zone that the server has lost
UPDATE dailyrollup.rollups SET time_zone = 'Lost/Zone' WHERE live IN ('st.folded'::regclass, 'st.compared'::regclass);
SELECT results_eq($$SELECT rollup::text, next_step FROM rollup_status WHERE rollup::text ~ '^st\.(folded|unfilled)' ORDER BY 1$$,
                  $$VALUES ('st.folded', 'time zone "Lost/Zone" not recognized'), ('st.unfilled', 'begin shadow')$$, 'a rollup of a zone that is lost has its row, and why');
SELECT ok((SELECT count(*) > 0 FROM rollup_plan() WHERE rollup = 'st.unfilled'::regclass), 'the plan of the others');
SELECT ok((SELECT count(*) > 0 FROM rollup_metrics WHERE labels->>'rollup' = 'st.folded'), 'its numbers');
SELECT lives_ok($$SELECT rollup_alter('st.compared', time_zone => 'UTC')$$, 'the way out');
SELECT lives_ok($$SELECT rollup_alter('st.folded', time_zone => 'Europe/Berlin')$$, 'of both');
SELECT is((SELECT count(*) FROM rollup_status WHERE next_step ~ 'not recognized'), 0::bigint, 'found again');

-- ==== the history
CREATE FUNCTION st.total(rollup text) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(format('%s %s %s', labels->>'action', labels->>'outcome', value), ', ' ORDER BY labels->>'action', labels->>'outcome')
  FROM public.rollup_metrics WHERE name = 'dailyrollup_refresh_total' AND labels->>'rollup' = total.rollup
$$;
SELECT st.total('st.kept') AS before, st.total('st.compared') AS others \gset
SELECT isnt(:'before'::text, '', 'there are counters');
UPDATE dailyrollup.runs SET started_at = started_at - interval '91 days', finished_at = finished_at - interval '91 days'
FROM dailyrollup.rollups r WHERE r.id = rollup_id AND r.live IN ('st.kept'::regclass, 'st.compared'::regclass);
UPDATE dailyrollup.runs SET started_at = started_at + interval '2 days', finished_at = finished_at + interval '2 days'
FROM dailyrollup.rollups r WHERE r.id = rollup_id AND r.live = 'st.compared'::regclass;
SELECT count(*) AS compared_runs FROM rollup_runs WHERE rollup = 'st.compared'::regclass \gset
DELETE FROM st.events WHERE k = 8;
CALL rollup_run('st.kept');
CALL rollup_run('st.compared');
SELECT is((SELECT string_agg(action || ' ' || outcome, ', ' ORDER BY id) FROM rollup_runs WHERE rollup = 'st.kept'::regclass), 'late ok', 'runs older than dailyrollup.history have gone, the new one is there');
SELECT cmp_ok((SELECT count(*)::int FROM rollup_runs WHERE rollup = 'st.compared'::regclass), '>=', :compared_runs, 'younger ones stay');
SELECT is((SELECT string_agg(DISTINCT s.word, ' ') FROM regexp_split_to_table(:'before', ', ') s(word)
           WHERE s.word NOT IN (SELECT regexp_split_to_table(st.total('st.kept'), ', '))), NULL, 'no counter has fallen');
SELECT is(st.total('st.kept'), replace(:'before', 'promote ok', 'late ok 1, promote ok'), 'the counters go on from where they were');

-- ==== it goes with the rollup
SELECT rollup_drop('st.unfilled', drop_table => true);
SELECT is((SELECT count(*) FROM dailyrollup.runs n LEFT JOIN dailyrollup.rollups r ON r.id = n.rollup_id WHERE r.id IS NULL), 0::bigint, 'a rollup that was dropped leaves no run');

DROP SCHEMA st, st2 CASCADE;
DROP ROLE st_owner, st_member, st_other, st_monitor, st_stranger;
SELECT * FROM finish();
