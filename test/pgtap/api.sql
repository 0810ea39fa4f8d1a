-- The contract of the public API: routines with their arguments, results and
-- properties, aggregates, views with their columns, settings, comments.  What is
-- not listed here is not public.
\ir lib/begin.sql

BEGIN;

SELECT no_plan();

-- All functions of the extension.
CREATE TEMP VIEW functions AS
SELECT p.oid, n.nspname::text COLLATE "default" AS nspname, p.proname::text COLLATE "default" AS proname, p.prokind, p.provolatile, p.proparallel, p.proisstrict, p.prosecdef, p.proconfig, p.proleakproof,
       p.proretset, p.procost, p.prolang, p.prosupport,
       pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
FROM pg_depend d
JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'dailyrollup'
JOIN pg_proc p ON p.oid = d.objid
JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e';

CREATE TEMP VIEW relations AS
SELECT c.oid, n.nspname::text COLLATE "default" AS nspname, c.relname::text COLLATE "default" AS relname, c.relkind
FROM pg_depend d
JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'dailyrollup'
JOIN pg_class c ON c.oid = d.objid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e';

SELECT is(extversion, '0.1.0', 'version') FROM pg_extension WHERE extname = 'dailyrollup';
SELECT is(extrelocatable, false, 'not relocatable') FROM pg_extension WHERE extname = 'dailyrollup';
SELECT is((SELECT (trusted, superuser)::text FROM pg_available_extension_versions WHERE name = 'dailyrollup' AND version = '0.1.0'),
          '(f,t)', 'a superuser installs it');

-- Routines: arguments by name, with their defaults; what they return.
SELECT results_eq(
  $$SELECT proname, arguments FROM functions WHERE nspname = 'public' AND prokind = 'f' ORDER BY 1$$,
  $$VALUES
    ('rollup_alter', 'rollup regclass, query text DEFAULT NULL::text, delay interval DEFAULT NULL::interval, mode text DEFAULT NULL::text, time_zone text DEFAULT NULL::text, fold boolean DEFAULT NULL::boolean'),
    ('rollup_check', 'rollup regclass DEFAULT NULL::regclass'),
    ('rollup_create', 'rollup text, query text, time_column name, dedup_by name[] DEFAULT NULL::name[], dedup_order name[] DEFAULT NULL::name[], time_zone text DEFAULT ''UTC''::text, delay interval DEFAULT NULL::interval, mode text DEFAULT NULL::text, fold boolean DEFAULT NULL::boolean'),
    ('rollup_definition', 'rollup regclass, before timestamp with time zone DEFAULT NULL::timestamp with time zone'),
    ('rollup_diff', 'rollup regclass, scope text DEFAULT NULL::text'),
    ('rollup_drop', 'rollup regclass, drop_table boolean DEFAULT false'),
    ('rollup_flush', 'rollup regclass'),
    ('rollup_fold', ''),
    ('rollup_mark', 'rollup regclass, start_time timestamp with time zone, end_time timestamp with time zone'),
    ('rollup_plan', ''),
    ('rollup_promote', 'rollup regclass DEFAULT NULL::regclass'),
    ('rollup_recompute', 'rollup regclass'),
    ('rollup_refresh', 'rollup regclass DEFAULT NULL::regclass, boundary timestamp with time zone DEFAULT NULL::timestamp with time zone'),
    ('rollup_reseed', 'rollup regclass'),
    ('rollup_schedule', 'cron text DEFAULT ''*/10 * * * *''::text'),
    ('rollup_unschedule', ''),
    ('rollup_verify', 'rollup regclass'),
    ('rollup_watermark', 'rollup regclass')$$,
  'routines and their arguments');
SELECT results_eq(
  $$SELECT proname, arguments FROM functions WHERE nspname = 'public' AND prokind = 'p' ORDER BY 1$$,
  $$VALUES ('rollup_run', 'IN rollup regclass DEFAULT NULL::regclass')$$,
  'procedures and their arguments');
SELECT results_eq(
  $$SELECT proname, result FROM functions WHERE nspname = 'public' AND prokind = 'f' ORDER BY 1$$,
  $$VALUES
    ('rollup_alter', 'void'),
    ('rollup_check', 'TABLE(rollup regclass, side text, rows bigint, keys bigint, dup_keys bigint, dup_rows bigint)'),
    ('rollup_create', 'regclass'),
    ('rollup_definition', 'text'),
    ('rollup_diff', 'TABLE(class text, key jsonb, columns name[], live jsonb, daily jsonb, copies bigint)'),
    ('rollup_drop', 'void'),
    ('rollup_flush', 'bigint'),
    ('rollup_fold', 'void'),
    ('rollup_mark', 'bigint'),
    ('rollup_plan', 'TABLE(rollup regclass, step_number integer, step text, state text, becomes text, boundary timestamp with time zone)'),
    ('rollup_promote', 'TABLE(rollup regclass, action text, rows bigint, keys bigint, replaced_rows bigint, replaced_keys bigint)'),
    ('rollup_recompute', 'void'),
    ('rollup_refresh', 'TABLE(rollup regclass, action text, from_time timestamp with time zone, to_time timestamp with time zone, folded_keys bigint, late_keys bigint, elapsed interval)'),
    ('rollup_reseed', 'void'),
    ('rollup_schedule', 'bigint'),
    ('rollup_unschedule', 'boolean'),
    ('rollup_verify', 'TABLE(class text, key jsonb, columns name[], live jsonb, daily jsonb, copies bigint)'),
    ('rollup_watermark', 'timestamp with time zone')$$,
  'routines and their results');
-- volatile and unsafe where they write, or take a snapshot of their own
SELECT results_eq(
  $$SELECT proname, provolatile::text, proparallel::text, proisstrict FROM functions WHERE nspname = 'public' AND prokind = 'f' ORDER BY 1$$,
  $$VALUES
    ('rollup_alter', 'v', 'u', false),
    ('rollup_check', 'v', 'u', false),
    ('rollup_create', 'v', 'u', false),
    ('rollup_definition', 's', 'r', false),
    ('rollup_diff', 'v', 'u', false),
    ('rollup_drop', 'v', 'u', true),
    ('rollup_flush', 'v', 'u', true),
    ('rollup_fold', 'v', 'u', false),
    ('rollup_mark', 'v', 'u', true),
    ('rollup_plan', 's', 'u', false),
    ('rollup_promote', 'v', 'u', false),
    ('rollup_recompute', 'v', 'u', true),
    ('rollup_refresh', 'v', 'u', false),
    ('rollup_reseed', 'v', 'u', true),
    ('rollup_schedule', 'v', 'u', false),
    ('rollup_unschedule', 'v', 'u', false),
    ('rollup_verify', 'v', 'u', true),
    ('rollup_watermark', 's', 's', true)$$,
  'volatility, parallel safety, strictness');

-- Aggregates
SELECT results_eq(
  $$SELECT f.proname, f.arguments, f.result, f.proparallel::text, f.proisstrict,
           a.aggcombinefn <> 0 AND a.aggserialfn <> 0 AND a.aggdeserialfn <> 0, a.aggfinalmodify::text
    FROM functions f JOIN pg_aggregate a ON a.aggfnoid = f.oid WHERE f.prokind = 'a' ORDER BY 1$$,
  $$VALUES
    ('earliest', 'value anyelement, at "any"', 'anyelement', 's', false, true, 'r'),
    ('latest', 'value anyelement, at "any"', 'anyelement', 's', false, true, 'r')$$,
  'aggregates, parallel safe with combine, serialize and deserialize');
SELECT is(count(*), 2::bigint, 'aggregates are in the public schema') FROM functions WHERE prokind = 'a' AND nspname = 'public';

-- No function runs as its owner, or with settings of its own; all others are
-- internal, and written in C.
SELECT is_empty($$SELECT proname FROM functions WHERE prosecdef$$, 'no function is SECURITY DEFINER');
SELECT is_empty($$SELECT proname FROM functions WHERE proconfig IS NOT NULL$$, 'no function has a SET clause');
SELECT is_empty($$SELECT proname FROM functions WHERE proleakproof$$, 'no function claims to be leakproof');
SELECT is_empty($$SELECT proname FROM functions WHERE prokind <> 'a' AND prolang <> (SELECT oid FROM pg_language WHERE lanname = 'c')$$, 'all functions are in C');
SELECT is_empty($$SELECT nspname, proname FROM functions WHERE nspname <> 'public' AND (nspname <> 'dailyrollup' OR proname !~ '^_')$$,
                'what is not public is dailyrollup._…');
SELECT is_empty($$SELECT nspname, proname FROM functions WHERE nspname = 'public' AND prokind IN ('f', 'p') AND proname !~ '^rollup_'$$, 'public routines are called rollup_…');
-- the view <live>_current must stay usable in parallel, and must not be inlined as a constant
SELECT results_eq(
  $$SELECT proname, provolatile::text, proparallel::text, prosupport <> 0 FROM functions
    WHERE proname ~ '^_(settled|floor_holds|w_floor|unmarked|tail_from|concerns|current_row)' AND proname !~ 'support$' ORDER BY 1$$,
  $$VALUES
    ('_concerns', 's', 'u', true),
    ('_concerns', 's', 'u', true),
    ('_current_row', 's', 'r', false),
    ('_floor_holds', 's', 's', false),
    ('_floor_holds', 's', 's', false),
    ('_floor_holds', 's', 's', false),
    ('_settled', 's', 's', true),
    ('_tail_from_date', 's', 's', false),
    ('_tail_from_timestamp', 's', 's', false),
    ('_tail_from_timestamptz', 's', 's', false),
    ('_unmarked', 'v', 's', true),
    ('_w_floor_date', 's', 's', true),
    ('_w_floor_timestamp', 's', 's', true),
    ('_w_floor_timestamptz', 's', 's', true)$$,
  'functions of the view and the triggers');

-- Views and their columns
SELECT bag_eq(
  $$SELECT nspname, relname, relkind::text FROM relations WHERE relkind IN ('r', 'v', 'S')$$,
  $$VALUES ('public', 'rollup_late', 'v'), ('public', 'rollup_runs', 'v'), ('public', 'rollup_status', 'v'),
           ('public', 'rollup_metrics', 'v'), ('public', 'rollup_progress', 'v'),
           ('dailyrollup', '_visible_rollups', 'v'),
           ('dailyrollup', 'rollups', 'r'), ('dailyrollup', 'runs', 'r'), ('dailyrollup', 'past_runs', 'r'),
           ('dailyrollup', 'rollup_id_seq', 'S'), ('dailyrollup', 'runs_id_seq', 'S')$$,
  'relations');
CREATE FUNCTION pg_temp.columns(relation regclass) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
  FROM pg_attribute WHERE attrelid = relation AND attnum > 0 AND NOT attisdropped
$$;
SELECT is(pg_temp.columns('rollup_status'),
  'rollup regclass, source regclass, current_view regclass, state text, wanted_mode text, mode text, fold boolean, '
  'watermark timestamp with time zone, lag interval, shadow regclass, time_zone text, delay interval, late_keys bigint, oldest_late interval, reseed text, '
  'next_due timestamp with time zone, next_step text, run_by text, last_action text, last_outcome text, last_run_at timestamp with time zone, '
  'failures integer, last_error text, retry_at timestamp with time zone, rows bigint, keys bigint, checked_at timestamp with time zone, '
  'missing_daily bigint, missing_live bigint, mismatches bigint, duplicates bigint, compared_at timestamp with time zone, activity text',
  'columns of rollup_status');
SELECT is(pg_temp.columns('rollup_late'), 'rollup regclass, key jsonb, marks bigint, since timestamp with time zone', 'columns of rollup_late');
SELECT is(pg_temp.columns('rollup_progress'),
  'rollup regclass, pid integer, phase text, part integer, parts integer, rows bigint, started_at timestamp with time zone, phase_started_at timestamp with time zone',
  'columns of rollup_progress');
SELECT is(pg_temp.columns('rollup_metrics'), 'name text, labels jsonb, value double precision, help text', 'columns of rollup_metrics');
SELECT is(pg_temp.columns('rollup_runs'),
  'id bigint, rollup regclass, action text, started_at timestamp with time zone, finished_at timestamp with time zone, elapsed interval, '
  'from_time timestamp with time zone, to_time timestamp with time zone, folded_keys bigint, late_keys bigint, outcome text, reason text, '
  'rows bigint, keys bigint, missing_daily bigint, missing_live bigint, mismatches bigint, duplicates bigint',
  'columns of rollup_runs');
-- Each public object explains itself.
SELECT is_empty($$SELECT proname FROM functions WHERE nspname = 'public' AND length(coalesce(obj_description(oid, 'pg_proc'), '')) < 20$$,
                'routines and aggregates have comments');
SELECT is_empty($$SELECT relname FROM relations WHERE nspname = 'public' AND length(coalesce(obj_description(oid, 'pg_class'), '')) < 20$$,
                'views have comments');
SELECT is_empty($$SELECT relname FROM relations WHERE nspname = 'dailyrollup' AND relkind = 'r' AND obj_description(oid, 'pg_class') IS NULL$$,
                'tables have comments');
SELECT isnt(obj_description('dailyrollup'::regnamespace, 'pg_namespace'), NULL, 'the schema has a comment');
SELECT isnt(obj_description(oid, 'pg_extension'), NULL, 'the extension has a comment') FROM pg_extension WHERE extname = 'dailyrollup';

-- What a dump must carry
SELECT bag_eq($$SELECT unnest(extconfig)::regclass::text FROM pg_extension WHERE extname = 'dailyrollup'$$,
              $$VALUES ('dailyrollup.rollups'), ('dailyrollup.runs'), ('dailyrollup.past_runs'), ('dailyrollup.rollup_id_seq'), ('dailyrollup.runs_id_seq')$$,
              'tables of the dump');

-- Triggers that never sleep
SELECT bag_eq($$SELECT evtname::text COLLATE "default", evtevent::text, evtenabled::text FROM pg_event_trigger WHERE evtname ~ '^dailyrollup'$$,
              $$VALUES ('dailyrollup_ddl_ended', 'ddl_command_end', 'A'), ('dailyrollup_dropped', 'sql_drop', 'A')$$, 'event triggers');
SELECT bag_eq($$SELECT tgname::text COLLATE "default", tgenabled::text FROM pg_trigger WHERE tgrelid = 'dailyrollup.rollups'::regclass AND NOT tgisinternal$$,
              $$VALUES ('rollup_changed', 'A'), ('rollup_inserted', 'A')$$, 'the triggers of the extension''s own table');

-- Settings
LOAD 'dailyrollup';
SELECT results_eq(
  $$SELECT name::text, boot_val::text, unit::text, context::text, vartype::text FROM pg_settings WHERE name LIKE 'dailyrollup.%' ORDER BY 1$$,
  $$VALUES ('dailyrollup.backfill', 'off', NULL, 'user', 'bool'),
           ('dailyrollup.databases', '', NULL, 'sighup', 'string'),
           ('dailyrollup.delay', '12600', 's', 'sighup', 'integer'),
           ('dailyrollup.fold_method', 'auto', NULL, 'user', 'enum'),
           ('dailyrollup.history', '7776000', 's', 'sighup', 'integer'),
           ('dailyrollup.late_interval', '3600', 's', 'sighup', 'integer'),
           ('dailyrollup.max_late_keys', '-1', NULL, 'sighup', 'integer'),
           ('dailyrollup.mode', 'unset', NULL, 'sighup', 'enum'),
           ('dailyrollup.worker', 'on', NULL, 'sighup', 'bool'),
           ('dailyrollup.writer_timeout', '300000', 'ms', 'user', 'integer')$$,
  'settings');
SELECT is_empty($$SELECT name FROM pg_settings WHERE name LIKE 'dailyrollup.%' AND (short_desc !~ '^[A-Z].*\.$' OR coalesce(extra_desc, '') = '')$$,
                'settings are described by sentences');
SELECT throws_ok('SET dailyrollup.no_such_setting = 1', '42602', NULL, 'the prefix is reserved');
SELECT is(enumvals, '{unset,off,shadow,on}', 'modes') FROM pg_settings WHERE name = 'dailyrollup.mode';
SELECT throws_ok('SET dailyrollup.mode = on', '55P02', NULL, 'the wanted mode is the server''s');
SELECT throws_ok('SET dailyrollup.delay = 1', '55P02', NULL, 'the delay is the server''s');
SELECT throws_ok('SET dailyrollup.max_late_keys = 1', '55P02', NULL, 'max_late_keys is the server''s');
SELECT throws_ok('SET dailyrollup.writer_timeout = -1', '22023', NULL, 'writer_timeout is not negative');
SELECT lives_ok($$SET LOCAL dailyrollup.writer_timeout = '2min'$$, 'writer_timeout has a unit');
SELECT is(current_setting('dailyrollup.writer_timeout'), '2min', 'and shows it');

-- Calls by name, as the documentation writes them
CREATE SCHEMA api;
CREATE TABLE api.events (k text, at timestamptz NOT NULL, n int);
SELECT is(rollup_create(rollup => 'api.n', query => 'SELECT k, count(*) FROM api.events GROUP BY k', time_column => 'at', dedup_by => '{k,at}',
                        dedup_order => '{n}', time_zone => 'UTC', delay => '1 hour', mode => 'on', fold => false)::text,
          'api.n', 'rollup_create by name');
SELECT is((SELECT action FROM rollup_refresh(rollup => 'api.n', boundary => '2026-01-02 00:00Z')), 'seed', 'rollup_refresh by name');
SELECT is(rollup_watermark(rollup => 'api.n'), '2026-01-02 00:00Z'::timestamptz, 'rollup_watermark by name');
SELECT is(rollup_mark(rollup => 'api.n', start_time => '-infinity', end_time => 'infinity'), 0::bigint, 'rollup_mark by name');
SELECT lives_ok($$SELECT rollup_alter(rollup => 'api.n', query => NULL, delay => '2 hours', mode => 'on', time_zone => 'UTC', fold => true)$$, 'rollup_alter by name');
SELECT is((SELECT (rollup, action, rows, keys, replaced_rows, replaced_keys)::text FROM rollup_promote(rollup => 'api.n')), '(api.n,"already on",0,0,,)', 'rollup_promote by name');
SELECT is(rollup_flush(rollup => 'api.n'), 0::bigint, 'rollup_flush by name');

-- a mode in letters of any case, as the setting
SELECT rollup_alter('api.n', mode => 'Default');
SELECT is((SELECT mode FROM dailyrollup.rollups), NULL, 'rollup_alter: no mode of its own');
SELECT rollup_alter('api.n', mode => 'ON');
SELECT is((SELECT mode FROM dailyrollup.rollups), 'on', 'rollup_alter: mode ON is on');
SELECT rollup_create('api.m', 'SELECT k, count(*) FROM api.events GROUP BY k', time_column => 'at', mode => 'Off');
SELECT is((SELECT mode FROM dailyrollup.rollups WHERE live = 'api.m'::regclass), 'off', 'rollup_create: mode Off is off');
SELECT rollup_drop('api.m', true);

SELECT throws_ok($$SELECT rollup_recompute(rollup => 'api.n')$$, '55000', NULL, 'rollup_recompute by name');
SELECT throws_ok($$SELECT class, key, columns, live, daily, copies FROM rollup_diff(rollup => 'api.n', scope => 'all')$$, '55000', NULL, 'rollup_diff by name');
SELECT lives_ok($$SELECT rollup_fold()$$, 'rollup_fold');
SELECT throws_ok($$CALL rollup_run(rollup => 'api.n')$$, '25001', NULL, 'rollup_run by name');
SELECT is((SELECT (side, rows, keys, dup_keys, dup_rows)::text FROM rollup_check(rollup => 'api.n')), '(live,0,0,0,0)', 'rollup_check by name');
SELECT is_empty($$SELECT class, key, columns, live, daily, copies FROM rollup_verify(rollup => 'api.n')$$, 'rollup_verify by name');
SELECT matches(rollup_definition(rollup => 'api.n', before => '2026-01-02'), '^SELECT .*GROUP BY', 'rollup_definition by name');
SELECT lives_ok($$SELECT rollup_reseed(rollup => 'api.n')$$, 'rollup_reseed by name');
SELECT is((SELECT reseed FROM rollup_status WHERE rollup = 'api.n'::regclass), 'rollup_reseed', 'and it is noted');
SELECT lives_ok($$SELECT rollup_drop(rollup => 'api.n', drop_table => true)$$, 'rollup_drop by name');
SELECT hasnt_table('api', 'n', 'and the table is gone');

SELECT * FROM finish();
ROLLBACK;
