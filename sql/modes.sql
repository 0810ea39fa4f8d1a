-- Modes and states: what each routine does in each state, every change of
-- state, rollup_alter, rollup_promote, rollup_diff, the pass, and what DDL and
-- TRUNCATE make of a rollup with a shadow.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS dailyrollup;
DROP SCHEMA IF EXISTS modes CASCADE;
RESET client_min_messages;
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE SCHEMA modes;
SET search_path = modes, public;
\set SHOW_CONTEXT never

-- Against the oracle, the defining query: live before its watermark, or whole
-- where writes are folded into it; the shadow before its own; the view through
-- now.  Where live is left to others the view shall be live as it is.
CREATE FUNCTION exact(rollup regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    r dailyrollup.rollups = (SELECT x FROM dailyrollup.rollups x WHERE x.live = rollup);
    columns text = (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = r.definition AND attnum > 0);
    compare text = 'SELECT count(*) FROM ((SELECT %3$s FROM %1$s EXCEPT ALL (%2$s)) UNION ALL ((%2$s) EXCEPT ALL SELECT %3$s FROM %1$s)) d';
    folds boolean = r.state IN ('off', 'shadow') AND r.fold;
    left_alone boolean = r.state IN ('off', 'shadow') AND NOT r.fold;
    result text = r.state;
    n bigint;
BEGIN
    IF folds OR r.watermark IS NOT NULL THEN
        EXECUTE format(compare, rollup, rollup_definition(rollup, r.watermark), columns) INTO n;
        result = result || ', live: ' || n;
    END IF;
    IF r.shadow_watermark IS NOT NULL THEN
        EXECUTE format(compare, r.shadow, rollup_definition(rollup, r.shadow_watermark), columns) INTO n;
        result = result || ', daily: ' || n;
    END IF;
    EXECUTE format(compare, r.current_view, CASE WHEN left_alone THEN format('SELECT %s FROM %s', columns, rollup) ELSE rollup_definition(rollup) END, '*') INTO n;
    RETURN result || CASE WHEN left_alone THEN ', current as live: ' ELSE ', current: ' END || n;
END $$;

-- What a statement says: SQLSTATE, message, detail and hint, or its result.  A
-- number in our names is not its own.
CREATE FUNCTION try(statement text, undo boolean = false) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state text; message text; detail text; hint text; result text;
BEGIN
    BEGIN
        IF statement ~ '^SELECT' THEN
            EXECUTE statement INTO result;
        ELSE
            EXECUTE statement;
        END IF;
        IF undo THEN
            RAISE EXCEPTION USING ERRCODE = 'MODES';
        END IF;
    EXCEPTION WHEN SQLSTATE 'MODES' THEN
    END;
    RETURN 'returns ' || coalesce(quote_literal(result), 'NULL');
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
        detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN regexp_replace(state || ': ' || message
        || CASE WHEN detail <> '' THEN E'\n    ' || detail ELSE '' END
        || CASE WHEN hint <> '' THEN E'\n    ' || hint ELSE '' END, '(dailyrollup|marks|events|definition|key)_\d+', '\1_N', 'g');
END $$;

-- A refresh without its duration.
CREATE FUNCTION refresh(rollup regclass, boundary timestamptz = '2026-01-03 00:00Z') RETURNS text LANGUAGE sql AS $$
    SELECT format('%s to %s, folded %s, late %s', r.action, r.to_time, r.folded_keys, r.late_keys)
    FROM rollup_refresh(rollup, boundary) r
$$;

-- A rollup as it is.  Its watermark, where that is not today's.
CREATE FUNCTION status(rollup regclass) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s, wanted %s, mode %s, fold %s, shadow %s, watermark %s, reseed %s', s.state, s.wanted_mode, coalesce(s.mode, '-'), s.fold,
                  coalesce(s.shadow::text, '-'),
                  CASE WHEN s.watermark IS NULL THEN '-' WHEN s.watermark < '2026-02-01' AND s.watermark > '2025-12-01' THEN s.watermark::text ELSE 'by the clock' END,
                  coalesce(s.reseed, '-'))
    FROM rollup_status s WHERE s.rollup = status.rollup
$$;
-- What passes and refreshes have done, in order.
CREATE FUNCTION runs(rollup regclass) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(concat_ws(' ', n.action, CASE WHEN n.outcome <> 'ok' THEN n.outcome END, '(' || n.reason || ')'), ', ' ORDER BY n.id)
    FROM rollup_runs n WHERE n.rollup = runs.rollup
$$;
-- The guard of live, for those who corrupt it on purpose.
CREATE FUNCTION guard(rollup regclass, fires text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s %s TRIGGER dailyrollup_%s_guard', rollup, fires, (SELECT r.id FROM dailyrollup.rollups r WHERE r.live = rollup));
END $$;
\pset format unaligned
\pset tuples_only on

-- What a pass does depends on the clock, but for rollups that fall due ten
-- thousand days after midnight: they are refreshed by hand.
CREATE TABLE readings (k text, ts timestamptz NOT NULL, v int, id int);
CREATE INDEX ON readings (k, ts);
INSERT INTO readings VALUES
    ('a', '2026-01-01 08:00Z', 1, 1), ('a', '2026-01-02 08:00Z', 2, 2), ('b', '2026-01-02 09:00Z', 4, 3),
    (NULL, '2026-01-01 10:00Z', 8, 4), ('a', '2026-01-04 10:00Z', 16, 5), ('c', '2026-01-05 10:00Z', 32, 6);
CREATE FUNCTION make(rollup text, mode text = NULL, fold boolean = NULL, dedup_by name[] = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT rollup_create(rollup, 'SELECT k, count(*) AS n, sum(v) AS total, latest(v, ts), max(ts) FROM modes.readings GROUP BY k', 'ts', dedup_by => dedup_by,
                         dedup_order => CASE WHEN dedup_by IS NOT NULL THEN '{id}'::name[] END, delay => '10000 days', mode => mode, fold => fold)::text
$$;

\echo ==== Each mode, from new
SELECT make('by_default');
SELECT make('off', 'off');
SELECT make('shadow', 'shadow');
SELECT make('on', 'on');
SELECT make('left_alone', 'off', false);
SELECT make('shadow_alone', 'shadow', false);
SELECT r, status(r), exact(r) FROM unnest('{by_default,off,shadow,on,left_alone,shadow_alone}'::regclass[]) r;
CALL rollup_run();
SELECT r, status(r), exact(r) FROM unnest('{by_default,off,shadow,on,left_alone,shadow_alone}'::regclass[]) r;
SELECT r, runs(r) FROM unnest('{by_default,off,shadow,on,left_alone,shadow_alone}'::regclass[]) r;
-- once more there is nothing to do
CALL rollup_run();
SELECT r, runs(r) FROM unnest('{by_default,off,shadow,on,left_alone,shadow_alone}'::regclass[]) r;

\echo ==== What each routine does in each state
SELECT make('new_one', 'off');
SELECT make('new_on', 'on');
-- a shadow without a watermark: it was begun, and could not be filled
SELECT make('unfilled', 'off');
CALL rollup_run('unfilled');
SELECT rollup_alter('unfilled', mode => 'shadow');
SELECT format('dailyrollup_%s_insert', id) AS trigger FROM dailyrollup.rollups WHERE live = 'unfilled'::regclass \gset
ALTER TABLE readings DISABLE TRIGGER :trigger;
-- the name of the trigger has a number that is not its own
SET client_min_messages = error;
\set VERBOSITY terse
CALL rollup_run('unfilled');
\echo :SQLSTATE
\set VERBOSITY default
RESET client_min_messages;
SELECT regexp_replace(runs('unfilled'), '_\d+_', '_N_');
ALTER TABLE readings ENABLE ALWAYS TRIGGER :trigger;
SELECT refresh(r) FROM unnest('{shadow,shadow_alone,on}'::regclass[]) r;
SELECT r, status(r), exact(r) FROM unnest('{new_one,new_on,off,left_alone,unfilled,shadow,shadow_alone,on}'::regclass[]) r;
CREATE FUNCTION routines(rollup regclass) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT E'\n' || format(call, rollup, '') || E'\n    ' || try('SELECT ' || format(call, quote_literal(rollup)), true)
    FROM unnest(ARRAY['rollup_watermark(%1$s)', 'rollup_definition(%1$s) IS NOT NULL', 'refresh(%1$s)', 'string_agg(side || rows, '' '') FROM rollup_check(%1$s)',
        'count(*) FROM rollup_verify(%1$s)', 'count(*) FROM rollup_diff(%1$s)', '(action, rows, keys, replaced_rows, replaced_keys) FROM rollup_promote(%1$s)',
        'rollup_recompute(%1$s)', 'rollup_flush(%1$s)', 'rollup_reseed(%1$s)', 'rollup_mark(%1$s, ''-infinity'', ''infinity'')',
        'rollup_alter(%1$s, fold => true)', 'rollup_alter(%1$s, fold => false)', 'rollup_alter(%1$s, time_zone => ''Asia/Tokyo'')', 'rollup_drop(%1$s)']) WITH ORDINALITY c(call, i)
    ORDER BY i
$$;
SELECT routines('new_one');
SELECT routines('new_on');
SELECT routines('off');
SELECT routines('left_alone');
SELECT routines('unfilled');
SELECT routines('shadow');
SELECT routines('shadow_alone');
SELECT routines('on');
SELECT r, status(r), exact(r) FROM unnest('{new_one,new_on,off,left_alone,unfilled,shadow,shadow_alone,on}'::regclass[]) r;

-- NULL, what is no rollup, what is another's
SELECT try('SELECT rollup_alter(NULL)');
SELECT try('SELECT count(*) FROM rollup_diff(NULL)');
SELECT try('SELECT rollup_recompute(NULL)');
SELECT try('SELECT rollup_flush(NULL)');
SELECT call || E'\n    ' || try('SELECT ' || call)
FROM unnest('{rollup_alter(''readings''),rollup_diff(''readings''),rollup_promote(''readings''),rollup_recompute(''readings''),rollup_flush(''readings''),rollup_diff(''shadow_daily'')}'::text[]) call;
CALL rollup_run('readings');
CREATE ROLE regress_modes_stranger;
GRANT USAGE ON SCHEMA modes TO regress_modes_stranger;
SET ROLE regress_modes_stranger;
SELECT call || E'\n    ' || try('SELECT ' || call)
FROM unnest('{rollup_alter(''on''),rollup_diff(''shadow''),rollup_promote(''shadow''),rollup_recompute(''off''),rollup_flush(''off'')}'::text[]) call;
CALL rollup_run('on');
-- without a name there is none of his
SELECT * FROM rollup_promote();
CALL rollup_run();
SELECT rollup_fold();
RESET ROLE;
DROP OWNED BY regress_modes_stranger;
DROP ROLE regress_modes_stranger;

\echo ==== Where a pass cannot run, and where it can
BEGIN;
CALL rollup_run();
\echo :SQLSTATE
ROLLBACK;
SELECT try('CALL rollup_run()');
DO $$ BEGIN CALL rollup_run('on'); EXCEPTION WHEN division_by_zero THEN END $$;
\echo :SQLSTATE
SET default_transaction_isolation = 'repeatable read';
CALL rollup_run();
\echo :SQLSTATE
SET default_transaction_isolation = 'serializable';
CALL rollup_run();
\echo :SQLSTATE
RESET default_transaction_isolation;
SET default_transaction_read_only = on;
CALL rollup_run();
\echo :SQLSTATE
RESET default_transaction_read_only;
CREATE PROCEDURE with_a_setting() LANGUAGE plpgsql SET work_mem = '1MB' AS $$ BEGIN CALL rollup_run(); END $$;
CALL with_a_setting();
\echo :SQLSTATE
-- in a procedure that may commit, and in DO
CREATE PROCEDURE passes() LANGUAGE plpgsql AS $$
DECLARE r regclass;
BEGIN
    FOR r IN SELECT s.rollup FROM rollup_status s WHERE s.state = 'on' ORDER BY s.rollup::text LOOP
        INSERT INTO readings VALUES ('late', '2026-01-02 12:00Z', 64, 7);
        CALL rollup_run(r);
        RAISE NOTICE '%', exact(r);
    END LOOP;
END $$;
CALL passes();
SELECT runs('on');
DO $$ BEGIN CALL rollup_run(); END $$;
SELECT r, status(r), exact(r) FROM unnest('{new_one,new_on,off,left_alone,unfilled,shadow,shadow_alone,on}'::regclass[]) r;

\echo ==== A rollup that fails does not keep the others from being served
SELECT string_agg(format('ALTER TABLE readings DISABLE TRIGGER dailyrollup_%s_delete;', id), ' ') AS disable,
       string_agg(format('ALTER TABLE readings ENABLE ALWAYS TRIGGER dailyrollup_%s_delete;', id), ' ') AS enable
FROM dailyrollup.rollups WHERE live IN ('on'::regclass, 'shadow') \gset
:disable
INSERT INTO readings VALUES ('late', '2026-01-02 13:00Z', 128, 8);
SELECT rollup, late_keys FROM rollup_status WHERE late_keys > 0 ORDER BY rollup::text;
SET client_min_messages = error;
\set VERBOSITY terse
CALL rollup_run();
\echo :SQLSTATE
\set VERBOSITY default
RESET client_min_messages;
SELECT rollup, late_keys, last_action, last_outcome FROM rollup_status ORDER BY rollup::text;
SELECT rollup, action, regexp_replace(reason, '_\d+_', '_N_') FROM rollup_runs WHERE outcome = 'failed' ORDER BY id;
:enable
CALL rollup_run();
SELECT rollup, late_keys, last_action, last_outcome FROM rollup_status WHERE rollup IN ('on'::regclass, 'shadow') ORDER BY rollup::text;
SELECT r, exact(r) FROM unnest('{new_one,new_on,off,left_alone,unfilled,shadow,shadow_alone,on}'::regclass[]) r;
SELECT rollup_drop(r, true) FROM unnest('{new_one,new_on,left_alone,unfilled,shadow_alone,by_default}'::regclass[]) r;

\echo ==== rollup_alter
-- nothing
SELECT rollup_alter('off');
SELECT status('off');
-- the mode is a wish, which a pass fulfils
SELECT rollup_alter('off', mode => 'shadow');
SELECT status('off');
SELECT rollup_alter('off', mode => 'default');
SELECT status('off');
SELECT try(format('SELECT rollup_alter(''off'', mode => %L)', mode)) FROM unnest('{new,NEW,unset,bogus,""}'::text[]) WITH ORDINALITY u(mode, i) ORDER BY i;
SELECT status('off');
-- the delay
SELECT rollup_alter('off', delay => '1 day 2:00');
SELECT delay FROM rollup_status WHERE rollup = 'off'::regclass;
SELECT rollup_alter('off', delay => '-1');
SELECT delay IS NULL FROM rollup_status WHERE rollup = 'off'::regclass;
SELECT try(format('SELECT rollup_alter(''off'', delay => %L)', delay)) FROM unnest('{-2,-1 day,1 month,1 day -1 hour,36526 days}'::text[]) WITH ORDINALITY u(delay, i) ORDER BY i;
SELECT rollup_alter('off', delay => '0');
SELECT delay FROM rollup_status WHERE rollup = 'off'::regclass;
-- the zone
SELECT try(format('SELECT rollup_alter(''off'', time_zone => %L)', zone)) FROM unnest('{Mars/Olympus,"",europe/berlin}'::text[]) WITH ORDINALITY u(zone, i) ORDER BY i;
SELECT time_zone FROM rollup_status WHERE rollup = 'off'::regclass;
SELECT rollup_alter('off', time_zone => 'UTC');
-- the query
SELECT try($$SELECT rollup_alter('off', query => 'SELECT k, count(*) AS n FROM modes.readings GROUP BY k')$$);
-- all or nothing
SELECT try($$SELECT rollup_alter('off', delay => '1 hour', mode => 'shadow', time_zone => 'Mars/Olympus')$$);
SELECT status('off'), delay FROM rollup_status WHERE rollup = 'off'::regclass;
SELECT rollup_alter('off', delay => '10000 days', mode => 'off', time_zone => 'UTC', fold => true);
SELECT status('off'), delay, time_zone FROM rollup_status WHERE rollup = 'off'::regclass;
BEGIN READ ONLY;
SELECT rollup_alter('off', mode => 'off');
\echo :SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT try($$SELECT rollup_alter('off', mode => 'off', delay => '1 day', fold => false)$$);
SELECT try($$SELECT rollup_alter('off', fold => true)$$);
SELECT try($$SELECT rollup_recompute('off')$$);
SELECT try($$SELECT rollup_flush('off')$$);
SELECT try($$SELECT rollup_promote('shadow')$$);
ROLLBACK;
SELECT status('off'), exact('off');
-- fold: live is left to others, whose writes the guard lets pass; and taken back
UPDATE off SET total = 0 WHERE k = 'a';
\echo :SQLSTATE
SELECT rollup_alter('off', fold => false);
SELECT status('off');
UPDATE off SET total = 0 WHERE k = 'a';
INSERT INTO readings VALUES ('d', '2026-01-02 14:00Z', 256, 9);
SELECT exact('off');
SELECT class, key, columns, live->'total' AS live, daily->'total' AS daily FROM rollup_verify('off') ORDER BY key;
SELECT try($$SELECT rollup_alter('off', fold => true)$$);
BEGIN;
SELECT rollup_recompute('off');
SELECT rollup_alter('off', fold => true);
COMMIT;
SELECT status('off'), exact('off');
UPDATE off SET total = 0 WHERE k = 'a';
\echo :SQLSTATE
INSERT INTO readings VALUES ('d', '2026-01-02 15:00Z', 512, 10);
SELECT exact('off');
-- in state on the fold is not asked for yet
SELECT rollup_alter('on', fold => false);
SELECT status('on'), exact('on');
UPDATE "on" SET total = 0 WHERE k = 'a';
\echo :SQLSTATE
SELECT rollup_alter('on', fold => true);

\echo ==== Another time zone: the watermark stays what it is, an instant or a local midnight
SELECT refresh('on');
BEGIN;
SELECT rollup_alter('on', time_zone => 'Asia/Tokyo');
SELECT try($$SELECT refresh('on')$$);
INSERT INTO readings VALUES ('zone', '2026-01-02 16:00Z', 1, 11), ('zone', '2026-01-03 01:00Z', 2, 12);
COMMIT;
SELECT status('on'), exact('on'), late_keys FROM rollup_status WHERE rollup = 'on'::regclass;
SELECT try($$SELECT refresh('on', '2026-01-04 00:00Z')$$);
SELECT try($$SELECT refresh('on', '2026-01-03 00:00Z')$$), exact('on');
SELECT try($$SELECT refresh('on', '2026-01-03 15:00Z')$$), exact('on');
SELECT rollup_alter('on', time_zone => 'UTC');
-- back over the watermark
SELECT try($$SELECT refresh('on', '2026-01-03 00:00Z')$$), exact('on');
INSERT INTO readings VALUES ('zone', '2026-01-03 14:00Z', 4, 13), ('zone', '2026-01-03 16:00Z', 8, 14);
CALL rollup_run('on');
SELECT status('on'), exact('on');
SELECT try($$SELECT refresh('on', '2026-01-04 00:00Z')$$), exact('on');
CREATE TABLE local (k int NOT NULL, t timestamp NOT NULL);
INSERT INTO local SELECT i % 2, t FROM generate_series(timestamp '2026-01-01 00:30', '2026-01-04 12:00', '1 hour') WITH ORDINALITY AS g(t, i);
SELECT rollup_create(r, 'SELECT k, count(*), max(t) FROM local GROUP BY k', 't', time_zone => 'America/New_York', delay => '10000 days', mode => mode)
FROM (VALUES ('local_on', 'on'), ('local_shadow', 'shadow')) v(r, mode);
CALL rollup_run();
SELECT r, refresh(r, '2026-01-03 05:00Z'), exact(r) FROM unnest('{local_on,local_shadow}'::regclass[]) r;
INSERT INTO local VALUES (0, '2026-01-02 23:59'), (1, '2026-01-03 00:00');
SELECT r, rollup_alter(r, time_zone => 'Europe/Berlin'), status(r), exact(r) FROM unnest('{local_on,local_shadow}'::regclass[]) r;
INSERT INTO local VALUES (0, '2026-01-02 23:58'), (1, '2026-01-03 00:01');
SELECT r, refresh(r, '2026-01-03 23:00Z'), exact(r) FROM unnest('{local_on,local_shadow}'::regclass[]) r;
SET client_min_messages = warning;
DROP TABLE local CASCADE;
DROP TABLE local_on, local_shadow;
RESET client_min_messages;
SELECT relname FROM pg_class WHERE relnamespace = 'modes'::regnamespace AND relname LIKE 'local%daily%';

\echo ==== Every change of state, each after writes of every kind, in one transaction of many levels
SELECT rollup_drop(r, true) FROM unnest('{off,shadow,on}'::regclass[]) r;
SET client_min_messages = warning;
SELECT make('plain'), make('dedup', dedup_by => '{k,ts}');
-- an old row, one of the day before yesterday, one of the future; copies of old
-- events that win, and that lose; rows that change, and move; keys that come and go
CREATE PROCEDURE write_some(i int) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO readings VALUES ('a', '2026-01-01 00:00Z', 1, 1000 + i), ('a', '2026-01-02 08:00Z', 3 + i, 1 - i), ('b', '2026-01-02 09:00Z', 5, 1000 + i);
    INSERT INTO readings SELECT 'new' || i, timestamptz '2026-01-01' + d * interval '1 day', d, 2000 + i FROM generate_series(0, 6) d;
    INSERT INTO readings VALUES ('a', '2999-01-01 00:00Z', 7, 3000 + i), (NULL, '2026-01-02 00:00Z', NULL, 3000 + i);
    BEGIN
        INSERT INTO readings VALUES ('never', '2026-01-01 00:00Z', 9, 4000 + i);
        UPDATE readings SET v = -1;
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN
        UPDATE readings SET v = v + 1 WHERE id = 2000 + i AND ts = '2026-01-03';
    END;
    UPDATE readings SET k = 'moved' WHERE k = 'new' || i AND ts >= '2026-01-05';
    UPDATE readings SET ts = ts + interval '1 day' WHERE id = 1000 + i AND k = 'b';
    DELETE FROM readings WHERE k = 'new' || i - 1;
    DELETE FROM readings WHERE k IS NULL AND id = 3000 + i - 1;
END $$;
-- to a mode; then writes, a refresh, writes, a pass
CREATE PROCEDURE go(r regclass, mode text, i int, INOUT result text = NULL) LANGUAGE plpgsql AS $$
BEGIN
    CALL write_some(i);
    PERFORM rollup_alter(r, mode => mode);
    COMMIT;
    result = exact(r);
    CALL rollup_run(r);
    result = result || E'\n   ' || status(r) || E'\n   ' || exact(r);
    CALL write_some(i + 1);
    COMMIT;
    result = result || E'\n   ' || exact(r);
    IF mode <> 'off' THEN
        PERFORM refresh(r, timestamptz '2026-01-02 00:00Z' + i / 10 * interval '1 day');
        result = result || E'\n   refreshed: ' || exact(r);
        COMMIT;
    END IF;
    CALL write_some(i + 2);
    COMMIT;
    result = result || E'\n   ' || exact(r);
    CALL rollup_run(r);
    result = result || E'\n   ' || exact(r);
END $$;
CALL go('plain', 'shadow', 10);
CALL go('dedup', 'shadow', 14);
CALL go('plain', 'on', 20);
CALL go('dedup', 'on', 24);
CALL go('plain', 'off', 30);
CALL go('dedup', 'off', 34);
CALL go('plain', 'on', 40);
CALL go('dedup', 'on', 44);
CALL go('plain', 'shadow', 50);
CALL go('dedup', 'shadow', 54);
CALL go('plain', 'off', 60);
CALL go('dedup', 'off', 64);
-- to shadow and on without a pass in between, and back
SELECT rollup_alter(r, mode => 'shadow') FROM unnest('{plain,dedup}'::regclass[]) r;
CALL go('plain', 'off', 70);
CALL go('dedup', 'off', 74);
SELECT runs('plain');
SELECT runs('dedup');
SELECT r, count(*) FROM unnest('{plain,dedup}'::regclass[]) r, rollup_verify(r) GROUP BY r ORDER BY r::text;

\echo ==== The mode of the server, for those that have none of their own; unset changes nothing
SELECT rollup_alter('plain', mode => 'default');
ALTER SYSTEM SET dailyrollup.mode = 'shadow';
SELECT pg_reload_conf();
\set ECHO none
\o /dev/null
SELECT $$SELECT CASE WHEN current_setting('dailyrollup.mode') <> 'shadow' THEN pg_sleep(0.05) END$$ FROM generate_series(1, 200) \gexec
\o
\set ECHO all
SHOW dailyrollup.mode;
SELECT r, status(r), exact(r) FROM unnest('{plain,dedup}'::regclass[]) r;
CALL rollup_run();
ALTER SYSTEM SET dailyrollup.mode = 'on';
SELECT pg_reload_conf();
\set ECHO none
\o /dev/null
SELECT $$SELECT CASE WHEN current_setting('dailyrollup.mode') <> 'on' THEN pg_sleep(0.05) END$$ FROM generate_series(1, 200) \gexec
\o
\set ECHO all
SHOW dailyrollup.mode;
SELECT r, status(r), exact(r) FROM unnest('{plain,dedup}'::regclass[]) r;
CALL rollup_run();
SELECT r, status(r), exact(r) FROM unnest('{plain,dedup}'::regclass[]) r;
ALTER SYSTEM SET dailyrollup.mode = 'shadwo';
\echo :SQLSTATE
ALTER SYSTEM SET dailyrollup.databases = 'lake,,pond';
\echo :SQLSTATE
ALTER SYSTEM RESET dailyrollup.mode;
SELECT pg_reload_conf();
\set ECHO none
\o /dev/null
SELECT $$SELECT CASE WHEN current_setting('dailyrollup.mode') <> 'unset' THEN pg_sleep(0.05) END$$ FROM generate_series(1, 200) \gexec
\o
\set ECHO all
SHOW dailyrollup.mode;
CALL rollup_run();
SELECT r, status(r), exact(r) FROM unnest('{plain,dedup}'::regclass[]) r;
CALL write_some(80);
SELECT exact('plain');
ALTER SYSTEM SET dailyrollup.mode = 'off';
SELECT pg_reload_conf();
\set ECHO none
\o /dev/null
SELECT $$SELECT CASE WHEN current_setting('dailyrollup.mode') <> 'off' THEN pg_sleep(0.05) END$$ FROM generate_series(1, 200) \gexec
\o
\set ECHO all
SHOW dailyrollup.mode;
CALL rollup_run();
SELECT r, status(r), exact(r) FROM unnest('{plain,dedup}'::regclass[]) r;
ALTER SYSTEM RESET dailyrollup.mode;
SELECT pg_reload_conf();
\set ECHO none
\o /dev/null
SELECT $$SELECT CASE WHEN current_setting('dailyrollup.mode') <> 'unset' THEN pg_sleep(0.05) END$$ FROM generate_series(1, 200) \gexec
\o
\set ECHO all
SHOW dailyrollup.mode;
CALL rollup_run();
SELECT r, status(r), exact(r) FROM unnest('{plain,dedup}'::regclass[]) r;
RESET client_min_messages;

\echo ==== rollup_promote
SELECT rollup_drop(r, true) FROM unnest('{plain,dedup}'::regclass[]) r;
TRUNCATE readings;
INSERT INTO readings VALUES
    ('a', '2026-01-01 08:00Z', 1, 1), ('a', '2026-01-02 08:00Z', 2, 2), ('b', '2026-01-02 09:00Z', 4, 3),
    (NULL, '2026-01-01 10:00Z', 8, 4), ('a', '2026-01-04 10:00Z', 16, 5), ('c', '2026-01-05 10:00Z', 32, 6);
SET client_min_messages = warning;
-- two of them with a filled shadow, one with an empty one, and one of each other state
SELECT make('one', 'shadow'), make('two', 'shadow', false), make('on', 'on'), make('off', 'off'), make('empty', 'off');
CALL rollup_run();
SELECT make('fresh', 'shadow');
SELECT rollup_alter('empty', mode => 'shadow');
SELECT format('ALTER TABLE readings DISABLE TRIGGER dailyrollup_%s_insert', id) AS disable,
       format('ALTER TABLE readings ENABLE ALWAYS TRIGGER dailyrollup_%s_insert', id) AS enable
FROM dailyrollup.rollups WHERE live = 'empty'::regclass \gset
:disable;
\set VERBOSITY terse
SET client_min_messages = error;
CALL rollup_run('empty');
RESET client_min_messages;
\set VERBOSITY default
:enable;
SELECT r, refresh(r) FROM unnest('{one,two,on}'::regclass[]) r;
INSERT INTO readings VALUES ('b', '2026-01-01 00:00Z', 64, 7), ('d', '2026-01-02 00:00Z', 128, 8), ('b', '2026-01-03 00:00Z', 256, 9);
-- what is to become live is checked: one that cannot be written leaves all as they were
CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.k = 'd' THEN RETURN NULL; END IF; RETURN NEW; END $$;
CREATE TRIGGER swallow BEFORE INSERT OR UPDATE ON two FOR EACH ROW EXECUTE FUNCTION swallow();
SELECT * FROM rollup_promote();
\echo :SQLSTATE
SELECT r, status(r), exact(r) FROM unnest('{one,two,on,off,empty,fresh}'::regclass[]) r;
DROP TRIGGER swallow ON two;
SELECT * FROM rollup_promote() ORDER BY rollup::text;
SELECT r, status(r), exact(r) FROM unnest('{one,two,on,off,empty,fresh}'::regclass[]) r;
SELECT * FROM rollup_promote('one');
-- live stands still until the next refresh
SELECT k, n, total FROM one ORDER BY k;
INSERT INTO readings VALUES ('b', '2026-01-01 01:00Z', 512, 10), ('e', '2026-01-04 00:00Z', 1024, 11);
SELECT k, n, total FROM one ORDER BY k;
SELECT k, n, total FROM one_current ORDER BY k;
SELECT r, refresh(r, '2026-01-05 00:00Z'), exact(r) FROM unnest('{one,two}'::regclass[]) r;
CALL rollup_run('one');
SELECT runs('one');
-- the announcement of a promote forbids to prepare it
SELECT refresh('empty');
BEGIN;
SELECT * FROM rollup_promote('empty');
PREPARE TRANSACTION 'promote';
\echo :SQLSTATE
SELECT status('empty'), exact('empty');
-- taken back, and in the middle of a transaction that writes before and after
BEGIN;
INSERT INTO readings VALUES ('f', '2026-01-01 01:00Z', 1, 12), ('f', '2026-01-03 01:00Z', 2, 13);
SAVEPOINT s;
SELECT * FROM rollup_promote('empty');
INSERT INTO readings VALUES ('f', '2026-01-01 01:00Z', 4, 14);
SELECT status('empty'), exact('empty');
ROLLBACK TO s;
INSERT INTO readings VALUES ('f', '2026-01-01 01:00Z', 8, 15), ('f', '2026-01-03 01:00Z', 16, 16);
COMMIT;
SELECT status('empty'), exact('empty');
BEGIN;
INSERT INTO readings VALUES ('g', '2026-01-01 01:00Z', 1, 17), ('g', '2026-01-03 01:00Z', 2, 18);
SELECT * FROM rollup_promote('empty');
INSERT INTO readings VALUES ('g', '2026-01-01 01:00Z', 4, 19), ('g', '2026-01-03 01:00Z', 8, 20);
SELECT status('empty'), exact('empty');
COMMIT;
SELECT status('empty'), exact('empty');
SELECT refresh('empty'), exact('empty');
-- in the middle of a statement over the source, and with a cursor over live
SELECT rollup_alter('off', mode => 'shadow');
CALL rollup_run('off');
SELECT refresh('off');
INSERT INTO readings SELECT 'g', '2026-01-01 01:00Z', rows, 21 FROM rollup_promote('off');
\echo :SQLSTATE
BEGIN;
DECLARE c CURSOR FOR TABLE off;
FETCH 1 FROM c \g /dev/null
SELECT * FROM rollup_promote('off');
\echo :SQLSTATE
ROLLBACK;
SELECT status('off'), exact('off');

\echo ==== rollup_diff, rollup_check and rollup_verify in state shadow
SET client_min_messages = warning;
SELECT rollup_drop(r, true) FROM unnest('{one,two,on,off,empty,fresh}'::regclass[]) r;
TRUNCATE readings;
INSERT INTO readings SELECT chr(97 + i), timestamptz '2026-01-01 08:00Z' + i * interval '5 min', i, i FROM generate_series(0, 9) i;
INSERT INTO readings VALUES (NULL, '2026-01-02', 100, 100), ('a', '2026-01-03', 1, 101), ('tail', '2026-01-04', 1, 102), (NULL, '2026-01-05', 1, 103);
SELECT make('live', 'shadow'), make('alone', 'shadow', false);
CALL rollup_run();
RESET client_min_messages;
SELECT r, refresh(r) FROM unnest('{live,alone}'::regclass[]) r;
-- all: the shadow united with what came since, for a table that we fold; settled: what has had no rows since
CREATE FUNCTION diff(rollup regclass, scope text = NULL) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT concat_ws(' ', class, key, columns, 'live ' || (live->>'n') || '/' || (live->>'total'), 'daily ' || (daily->>'n') || '/' || (daily->>'total'), copies)
    FROM rollup_diff(rollup, scope) ORDER BY class, key, live IS NULL
$$;
SELECT * FROM diff('live');
SELECT * FROM diff('alone');
-- to who folds by himself and has missed some of the present, it is no difference under settled
UPDATE alone SET n = 1, total = 0 WHERE k = 'a';
DELETE FROM alone WHERE k = 'tail';
UPDATE alone SET n = n + 10 WHERE k IS NULL;
SELECT * FROM diff('alone');
SELECT * FROM diff('alone', 'settled');
SELECT * FROM diff('alone', 'all');
SELECT rollup_recompute('alone');
SELECT * FROM diff('alone', 'all');
-- one row of the shadow
UPDATE live_daily SET total = total + 1 WHERE k = 'b';
SELECT * FROM diff('live');
SELECT class, key, columns, live - 'max' AS live, daily - 'max' AS daily, copies FROM rollup_diff('live');
SELECT * FROM diff('live', 'settled');
-- live is none the wiser
SELECT count(*) FROM rollup_verify('live');
SELECT exact('live');
UPDATE live_daily SET total = total - 1 WHERE k = 'b';
SELECT * FROM diff('live');
-- one of a key with rows in the tail
UPDATE live_daily SET n = 0 WHERE k = 'a';
UPDATE live_daily SET n = 0 WHERE k IS NULL;
SELECT * FROM diff('live');
SELECT * FROM diff('live', 'settled');
-- a refresh does not find out, a pass with nothing to refresh does not look
CALL rollup_run('live');
SELECT runs('live');
-- five equal copies, of a key in live and of one in the shadow; different copies; on both sides
ALTER TABLE alone DROP CONSTRAINT alone_k_key;
ALTER TABLE alone_daily DROP CONSTRAINT alone_daily_k_key;
INSERT INTO alone SELECT a.* FROM alone a, generate_series(1, 4) WHERE k = 'c';
SELECT * FROM diff('alone');
SELECT * FROM rollup_check('alone');
INSERT INTO alone SELECT k, n + 1, total, latest, max FROM alone WHERE k = 'd';
INSERT INTO alone_daily SELECT a.* FROM alone_daily a, generate_series(1, 2) WHERE k IN ('d', 'e');
INSERT INTO alone SELECT a.* FROM alone a WHERE k IS NULL OR k = 'a';
-- each class, for the NULL key, too
DELETE FROM alone_daily WHERE k = 'f';
DELETE FROM alone WHERE k = 'g';
INSERT INTO alone (k, n) VALUES ('nobody', 1);
INSERT INTO alone_daily (k, n) VALUES ('nowhere', NULL);
UPDATE alone SET n = NULL, total = NULL WHERE k = 'h';
SELECT * FROM diff('alone');
SELECT * FROM diff('alone', 'all');
SELECT * FROM rollup_check('alone');
SELECT class, key, columns, live->'n' AS live, daily->'n' AS daily, copies FROM rollup_verify('alone') ORDER BY class, key;
-- an index that has been lied to is not asked
SET enable_seqscan = off;
SELECT * FROM rollup_check('alone');
RESET enable_seqscan;
-- keys that wait are left out
INSERT INTO readings VALUES ('g', '2026-01-01', 1, 104), ('h', '2026-01-01', 1, 105), ('c', '2026-01-01', 1, 106);
SELECT * FROM diff('alone');
-- with the refresh, and its numbers with the run; a diff that differs fails nothing
CREATE FUNCTION compared(rollup regclass) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT concat_ws(' ', outcome, missing_daily, missing_live, mismatches, duplicates) FROM rollup_runs n WHERE n.rollup = compared.rollup AND action = 'diff' ORDER BY id
$$;
DELETE FROM alone_daily a USING alone_daily b WHERE a.k = b.k AND a.ctid > b.ctid;
ALTER TABLE alone_daily ADD UNIQUE NULLS NOT DISTINCT (k);
SELECT rollup_alter('alone', delay => '-1');
CALL rollup_run('alone');
SELECT * FROM compared('alone');
SELECT rollup_recompute('alone');
SELECT * FROM diff('alone');

\echo ==== Flush and recompute
SET client_min_messages = warning;
SELECT rollup_drop(r, true) FROM unnest('{live,alone}'::regclass[]) r;
SELECT make('off', 'off'), make('left_alone', 'off', false), make('shadow', 'shadow'), make('on', 'on'), make('dedup', 'off', true, '{k,ts}');
CALL rollup_run();
SELECT r, refresh(r) FROM unnest('{shadow,on}'::regclass[]) r;
RESET client_min_messages;
CREATE FUNCTION all_exact() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT r || ': ' || exact(r) FROM unnest('{off,left_alone,shadow,on,dedup}'::regclass[]) r
$$;
-- a backfill leaves marks, of each kind that the state knows
SET dailyrollup.backfill = on;
INSERT INTO readings VALUES ('b', '2025-12-01', 1000, 200), ('old', '2025-12-01', 2000, 201), ('old', '2025-12-01', 2000, 202), (NULL, '2026-01-06', 4000, 203);
DELETE FROM readings WHERE k = 'c';
UPDATE readings SET k = 'was d' WHERE k = 'd';
RESET dailyrollup.backfill;
SELECT * FROM all_exact();
SELECT rollup, key, marks FROM rollup_late ORDER BY rollup::text, key;
SELECT class, key FROM rollup_verify('off');
SELECT k, n FROM off ORDER BY k;
SELECT r, rollup_flush(r) FROM unnest('{off,left_alone,shadow,on,dedup}'::regclass[]) r;
SELECT * FROM all_exact();
SELECT rollup, count(*) FROM rollup_late GROUP BY rollup ORDER BY rollup::text;
SELECT k, n FROM off ORDER BY k;
SELECT r, rollup_flush(r) FROM unnest('{off,left_alone,shadow,on,dedup}'::regclass[]) r;
-- the pass flushes, too, and heals what the refresh keeps
SET dailyrollup.backfill = on;
DELETE FROM readings WHERE k = 'old';
INSERT INTO readings VALUES ('e', '2025-12-02', 1, 204);
RESET dailyrollup.backfill;
CALL rollup_run();
SELECT * FROM all_exact();
SELECT r, runs(r) FROM unnest('{off,left_alone,shadow,on,dedup}'::regclass[]) r;
-- a key is in the backfill and in an ordinary write of the same transaction
BEGIN;
INSERT INTO readings VALUES ('e', '2025-12-03', 2, 205);
SET LOCAL dailyrollup.backfill = on;
INSERT INTO readings VALUES ('e', '2025-12-04', 4, 206), ('f', '2025-12-04', 4, 206);
SET LOCAL dailyrollup.backfill = off;
INSERT INTO readings VALUES ('e', '2025-12-05', 8, 207), ('f', '2026-01-05', 4, 206);
COMMIT;
SELECT * FROM all_exact();
CALL rollup_run();
SELECT * FROM all_exact();
-- recompute, of a table that was corrupted, in a transaction that writes before and after
SELECT guard('off', 'DISABLE'), guard('dedup', 'DISABLE'), guard('shadow', 'DISABLE');
UPDATE off SET total = 0;
DELETE FROM off WHERE k IN ('e', 'f');
INSERT INTO off (k, n) VALUES ('nobody', 1);
UPDATE dedup SET total = 0;
TRUNCATE shadow;
SELECT guard('off', 'ENABLE ALWAYS'), guard('dedup', 'ENABLE ALWAYS'), guard('shadow', 'ENABLE ALWAYS');
UPDATE left_alone SET total = 0;
SELECT * FROM all_exact();
BEGIN;
INSERT INTO readings VALUES ('e', '2025-12-06', 16, 208), ('g', '2025-12-06', 16, 208), ('h', '2026-01-06', 16, 208);
SELECT r, rollup_recompute(r) FROM unnest('{off,left_alone,shadow,dedup}'::regclass[]) r;
INSERT INTO readings VALUES ('e', '2025-12-07', 32, 209), ('g', '2025-12-07', 32, 209), ('h', '2026-01-07', 32, 209);
COMMIT;
SELECT * FROM all_exact();
SELECT r, count(*) FROM unnest('{off,left_alone,shadow,dedup}'::regclass[]) r, rollup_verify(r) GROUP BY r ORDER BY r::text;
-- rollup_mark: of live where we fold, of the shadow, of live under on
SELECT r, rollup_mark(r, '2026-01-01', '2026-01-02') FROM unnest('{off,left_alone,shadow,on,dedup}'::regclass[]) r;
SELECT rollup, count(*), sum(marks) FROM rollup_late GROUP BY rollup ORDER BY rollup::text;
CALL rollup_run();
SELECT count(*) FROM rollup_late;
SELECT * FROM all_exact();
-- what the triggers have missed
SET session_replication_role = replica;
INSERT INTO readings VALUES ('e', '2025-12-08', 64, 210);
RESET session_replication_role;
SELECT * FROM all_exact();
BEGIN;
SELECT string_agg(format('ALTER TABLE readings %%s TRIGGER dailyrollup_%s_insert;', id), ' ') AS triggers FROM dailyrollup.rollups \gset
SELECT format(:'triggers', 'DISABLE', 'DISABLE', 'DISABLE', 'DISABLE', 'DISABLE') AS disable, format(:'triggers', 'ENABLE ALWAYS', 'ENABLE ALWAYS', 'ENABLE ALWAYS', 'ENABLE ALWAYS', 'ENABLE ALWAYS') AS enable \gset
:disable
INSERT INTO readings VALUES ('e', '2026-01-01 12:00Z', 128, 211), ('missed', '2026-01-01 12:00Z', 128, 211);
:enable
COMMIT;
SELECT * FROM all_exact();
SELECT class, key FROM rollup_verify('off') ORDER BY key;
SELECT r, rollup_mark(r, '2026-01-01', '2026-01-02') FROM unnest('{off,shadow,on,dedup}'::regclass[]) r;
SELECT * FROM all_exact();
CALL rollup_run();
SELECT * FROM all_exact();
-- a reseed under on: live keeps its content until the pass has built another
SELECT guard('on', 'DISABLE');
UPDATE "on" SET total = 0;
SELECT guard('on', 'ENABLE ALWAYS');
SELECT rollup_reseed('on');
SELECT status('on'), exact('on');
CALL rollup_run('on');
SELECT status('on'), exact('on');
SELECT runs('on');

\echo ==== rollup_fold: what a transaction has written so far
BEGIN;
INSERT INTO readings VALUES ('folded', '2026-01-01', 1, 300), ('folded', '2026-01-01', 2, 301);
SELECT (SELECT n FROM off WHERE k = 'folded') AS off, (SELECT n FROM dedup WHERE k = 'folded') AS dedup;
SELECT rollup_fold();
SELECT (SELECT n FROM off WHERE k = 'folded') AS off, (SELECT n FROM dedup WHERE k = 'folded') AS dedup, (SELECT n FROM left_alone WHERE k = 'folded') AS left_alone,
       (SELECT n FROM shadow WHERE k = 'folded') AS shadow, (SELECT n FROM "on" WHERE k = 'folded') AS "on";
SELECT * FROM all_exact();
INSERT INTO readings VALUES ('folded', '2026-01-02', 4, 302);
SAVEPOINT s;
INSERT INTO readings VALUES ('folded', '2026-01-03', 8, 303);
SELECT rollup_fold();
SELECT * FROM all_exact();
ROLLBACK TO s;
SELECT rollup_fold(), rollup_fold();
SELECT * FROM all_exact();
DELETE FROM readings WHERE k = 'folded' AND ts = '2026-01-01';
COMMIT;
SELECT * FROM all_exact();
SELECT n, total FROM off WHERE k = 'folded';
BEGIN READ ONLY;
SELECT rollup_fold();
\echo :SQLSTATE
ROLLBACK;

\echo ==== TRUNCATE of the source
SET client_min_messages = warning;
SELECT rollup_drop(r, true) FROM unnest('{off,left_alone,shadow,on,dedup}'::regclass[]) r;
CREATE TABLE parts (LIKE readings) PARTITION BY RANGE (ts);
CREATE TABLE parts_old PARTITION OF parts FOR VALUES FROM (MINVALUE) TO ('2026-01-02 00:00Z');
CREATE TABLE parts_new PARTITION OF parts FOR VALUES FROM ('2026-01-02 00:00Z') TO (MAXVALUE);
INSERT INTO parts SELECT chr(97 + i % 4), timestamptz '2026-01-01 08:00Z' + i * interval '5 hours', i, i FROM generate_series(0, 15) i;
-- rollups of both sources in each state, with no mode of their own any more
CREATE PROCEDURE fill_each_state(source text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM rollup_create(source || '_' || r, format('SELECT k, count(*) AS n, sum(v) AS total, latest(v, ts), max(ts) FROM modes.%I GROUP BY k', source),
                          'ts', delay => '10000 days', mode => mode, fold => fold)
    FROM (VALUES ('off', 'off', true), ('left_alone', 'off', false), ('shadow', 'shadow', true), ('shadow_alone', 'shadow', false), ('on', 'on', true)) v(r, mode, fold);
    COMMIT;
    CALL rollup_run();
    PERFORM rollup_alter(rollup, mode => 'default') FROM rollup_status;
END $$;
CALL fill_each_state('readings');
CALL fill_each_state('parts');
SELECT refresh(r) FROM unnest('{readings_shadow,readings_shadow_alone,readings_on,parts_shadow,parts_shadow_alone,parts_on}'::regclass[]) r;
RESET client_min_messages;
CREATE FUNCTION each(source text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT r || ': ' || status(r) || E'\n  ' || exact(r)
    FROM unnest('{off,left_alone,shadow,shadow_alone,on}'::text[]) WITH ORDINALITY u(state, i), LATERAL (SELECT (source || '_' || state)::regclass) v(r) ORDER BY i
$$;
SELECT * FROM each('readings');
-- taken back
BEGIN;
TRUNCATE readings;
SELECT * FROM each('readings');
INSERT INTO readings VALUES ('x', '2026-01-01', 1, 1), ('x', '2026-01-05', 2, 2);
SELECT * FROM each('readings');
ROLLBACK;
SELECT * FROM each('readings');
-- and not: rows written before and after it, in the same transaction and in others
BEGIN;
INSERT INTO readings VALUES ('never', '2026-01-01', 1, 1), ('never', '2026-01-05', 2, 2);
TRUNCATE readings;
INSERT INTO readings VALUES ('x', '2026-01-01', 1, 1), ('x', '2026-01-05', 2, 2);
COMMIT;
SELECT * FROM each('readings');
INSERT INTO readings VALUES ('y', '2026-01-01', 4, 3), ('y', '2026-01-05', 8, 4);
DELETE FROM readings WHERE k = 'x' AND ts = '2026-01-01';
SELECT * FROM each('readings');
SELECT routines('readings_off');
SELECT routines('readings_on');
CALL rollup_run();
SELECT * FROM each('readings');
SELECT r, runs(r) FROM unnest('{readings_off,readings_left_alone,readings_shadow,readings_shadow_alone,readings_on}'::regclass[]) r;
-- twice, and with a refresh by hand in between
TRUNCATE readings;
SELECT r || ': ' || try(format('SELECT refresh(%L)', r)) FROM unnest('{readings_off,readings_left_alone,readings_shadow,readings_shadow_alone,readings_on}'::regclass[]) r;
INSERT INTO readings VALUES ('z', '2026-01-01', 1, 1), ('z', '2026-01-05', 2, 2);
SELECT * FROM each('readings');
TRUNCATE readings;
INSERT INTO readings VALUES ('z', '2026-01-02', 4, 1), ('z', '2026-01-06', 8, 2);
CALL rollup_run();
SELECT * FROM each('readings');
-- one that has a mode of its own goes there instead
SELECT rollup_alter('readings_off', mode => 'on'), rollup_alter('readings_on', mode => 'shadow'), rollup_alter('readings_shadow', mode => 'off');
TRUNCATE readings;
INSERT INTO readings VALUES ('z', '2026-01-02', 4, 1), ('z', '2026-01-06', 8, 2);
SELECT * FROM each('readings');
CALL rollup_run();
SELECT * FROM each('readings');
-- a leaf
SELECT * FROM each('parts');
BEGIN;
INSERT INTO parts VALUES ('x', '2026-01-01', 1, 100), ('x', '2026-01-05', 2, 101);
TRUNCATE parts_old;
INSERT INTO parts VALUES ('x', '2026-01-01', 4, 102), ('x', '2026-01-05', 8, 103);
COMMIT;
SELECT * FROM each('parts');
CALL rollup_run();
SELECT * FROM each('parts');
TRUNCATE parts;
SELECT * FROM each('parts');
CALL rollup_run();
SELECT * FROM each('parts');
SELECT count(*) FROM parts_off, parts_on;

\echo ==== The shadow and the guard belong to the rollup
SET client_min_messages = warning;
SELECT rollup_drop(rollup, true) FROM rollup_status WHERE source IN ('readings'::regclass, 'parts');
INSERT INTO readings SELECT chr(97 + i % 4), timestamptz '2026-01-01 08:00Z' + i * interval '5 hours', i, i FROM generate_series(0, 15) i;
SELECT make('live', 'shadow');
CALL rollup_run();
SELECT refresh('live');
RESET client_min_messages;
SELECT try('DROP TABLE live_daily');
SELECT try('DROP TABLE live_daily CASCADE');
SELECT try(format('DROP TRIGGER dailyrollup_%s_guard ON live', id)) FROM dailyrollup.rollups;
SELECT split_part(try('DROP TABLE live'), E'\n', 1);
SELECT try('DROP VIEW live_current');
SELECT try('ALTER TABLE live_daily SET UNLOGGED');
SELECT try('ALTER TABLE live_daily ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY');
SELECT split_part(try('ALTER TABLE live DROP COLUMN total'), E'\n', 1);
SELECT split_part(try('ALTER TABLE live ALTER COLUMN total TYPE numeric'), E'\n', 1);
SELECT status('live'), exact('live');
-- who spoils the shadow all the same gets another by rollup_reseed, or on the way through off
TRUNCATE live_daily;
SELECT class, count(*) FROM rollup_diff('live') GROUP BY class;
SELECT rollup_reseed('live');
SELECT status('live'), exact('live');
CALL rollup_run();
SELECT refresh('live'), status('live'), exact('live'), count(*) FROM rollup_diff('live');
UPDATE live_daily SET n = 0;
SELECT rollup_alter('live', mode => 'off');
CALL rollup_run();
SELECT rollup_alter('live', mode => 'shadow');
CALL rollup_run();
SELECT refresh('live'), exact('live'), count(*) FROM rollup_diff('live');
-- asked for with the refresh by hand, and before a promote
UPDATE live_daily SET n = 0;
SELECT rollup_reseed('live');
SELECT refresh('live', '2026-01-04 00:00Z'), status('live'), exact('live');
UPDATE live_daily SET n = 0;
SELECT rollup_reseed('live');
SELECT try('SELECT (action, rows, keys) FROM rollup_promote(''live'')', true), status('live'), exact('live');
CALL rollup_run();
SELECT refresh('live'), status('live'), exact('live');

\echo ==== Renames, schemas, columns, owners, with a shadow
CREATE FUNCTION follow(rollup regclass, boundary timestamptz) RETURNS text LANGUAGE sql AS $$
    SELECT exact(rollup) || E'\n' || refresh(rollup, boundary) || E'\n' || exact(rollup) || E'\n' || count(*) FROM rollup_diff(rollup)
$$;
CREATE SCHEMA modes_2;
ALTER TABLE live RENAME TO "Live 2";
INSERT INTO readings VALUES ('a', '2026-01-01', 1, 100), ('new', '2026-01-02', 1, 101), ('a', '2026-01-10', 1, 102);
SELECT status('"Live 2"'), follow('"Live 2"', '2026-01-04');
ALTER TABLE "Live 2" SET SCHEMA modes_2;
INSERT INTO readings VALUES ('a', '2026-01-01', 1, 103), ('new 2', '2026-01-02', 1, 104), ('a', '2026-01-10', 1, 105);
SELECT status('modes_2."Live 2"'), follow('modes_2."Live 2"', '2026-01-05');
ALTER TABLE modes_2."Live 2" RENAME COLUMN total TO "Sum";
ALTER TABLE modes_2."Live 2" RENAME COLUMN k TO "Key";
INSERT INTO readings VALUES ('a', '2026-01-01', 1, 106), ('new 3', '2026-01-02', 1, 107), ('a', '2026-01-10', 1, 108);
SELECT status('modes_2."Live 2"'), follow('modes_2."Live 2"', '2026-01-06');
SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'live_daily'::regclass AND attnum > 0;
ALTER TABLE readings RENAME COLUMN v TO value;
ALTER TABLE readings RENAME TO "Readings";
INSERT INTO "Readings" VALUES ('a', '2026-01-01', 1, 109), ('new 4', '2026-01-02', 1, 110), ('a', '2026-01-10', 1, 111);
SELECT follow('modes_2."Live 2"', '2026-01-07');
ALTER TABLE live_daily RENAME TO whatever;
INSERT INTO "Readings" VALUES ('a', '2026-01-01', 1, 112), ('new 5', '2026-01-02', 1, 113), ('a', '2026-01-10', 1, 114);
SELECT status('modes_2."Live 2"'), follow('modes_2."Live 2"', '2026-01-08');
CREATE ROLE regress_modes_owner;
GRANT ALL ON SCHEMA modes, modes_2 TO regress_modes_owner;
SELECT try('ALTER TABLE whatever OWNER TO regress_modes_owner');
SELECT try('ALTER TABLE modes_2."Live 2" OWNER TO regress_modes_owner');
ALTER TABLE "Readings" OWNER TO regress_modes_owner;
SELECT relname, relowner::regrole FROM pg_class WHERE oid IN ('whatever'::regclass, 'modes_2."Live 2"'::regclass);
INSERT INTO "Readings" VALUES ('a', '2026-01-01', 1, 115), ('new 6', '2026-01-02', 1, 116), ('a', '2026-01-10', 1, 117);
SELECT exact('modes_2."Live 2"');
SET ROLE regress_modes_owner;
CALL rollup_run();
SELECT refresh('modes_2."Live 2"', '2026-01-09');
SELECT rollup_alter('modes_2."Live 2"', mode => 'on');
CALL rollup_run();
SELECT rollup, state FROM rollup_status;
INSERT INTO "Readings" VALUES ('a', '2026-01-01', 1, 118), ('new 7', '2026-01-10', 1, 119);
SELECT rollup_alter('modes_2."Live 2"', mode => 'shadow');
CALL rollup_run();
RESET ROLE;
SELECT status('modes_2."Live 2"'), exact('modes_2."Live 2"');
ALTER TABLE "Readings" RENAME TO readings;
ALTER TABLE readings RENAME COLUMN value TO v;
ALTER TABLE readings OWNER TO CURRENT_USER;

\echo ==== What goes with a CASCADE, and with rollup_drop
DROP TABLE parts;
CREATE FUNCTION left_over() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT * FROM (
        SELECT regexp_replace(oid::regclass::text, '\d+$', 'N') FROM pg_class
        WHERE relnamespace = 'dailyrollup'::regnamespace AND relname ~ '_\d+$' AND relkind IN ('r', 'v')
        UNION ALL SELECT oid::regclass::text FROM pg_class WHERE relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname ~ '^modes') AND relkind IN ('r', 'v')
        UNION ALL SELECT 'trigger on ' || tgrelid::regclass FROM pg_trigger WHERE tgname ~ '^dailyrollup_\d+_'
        UNION ALL SELECT 'rollup ' || live FROM dailyrollup.rollups
        UNION ALL SELECT 'run' FROM dailyrollup.runs n WHERE NOT EXISTS (SELECT FROM dailyrollup.rollups WHERE id = n.rollup_id)) x
    ORDER BY 1
$$;
SET client_min_messages = warning;
SELECT left_over();
BEGIN;
DROP SCHEMA modes_2 CASCADE;
SELECT left_over();
ROLLBACK;
BEGIN;
DROP TABLE modes_2."Live 2" CASCADE;
SELECT left_over();
ROLLBACK;
BEGIN;
DROP TABLE readings CASCADE;
SELECT left_over();
ROLLBACK;
BEGIN;
ALTER TABLE readings DROP COLUMN k CASCADE;
SELECT left_over();
ROLLBACK;
BEGIN;
SELECT rollup_drop('modes_2."Live 2"');
SELECT left_over();
ROLLBACK;
SELECT rollup_drop('modes_2."Live 2"', true);
SELECT left_over();
DROP SCHEMA modes_2;
DROP OWNED BY regress_modes_owner;
DROP ROLE regress_modes_owner;
-- in each state; live stays as it is, and anybody's
CALL fill_each_state('readings');
SELECT rollup_alter('readings_on', mode => 'off');
SELECT make('fresh', 'shadow');
SELECT rollup_drop(r) FROM unnest('{fresh,readings_off,readings_left_alone,readings_shadow,readings_shadow_alone,readings_on}'::regclass[]) r;
SELECT left_over();
INSERT INTO readings VALUES ('a', '2026-01-01', 1, 1);
UPDATE readings_off SET total = 0;
UPDATE readings_on SET total = 0;
DROP TABLE fresh, readings_off, readings_left_alone, readings_shadow, readings_shadow_alone, readings_on;
RESET client_min_messages;

\echo ==== Something in the way of the shadow
SET client_min_messages = warning;
SELECT make('live', 'off');
CALL rollup_run();
CREATE VIEW live_daily AS SELECT 1;
SELECT rollup_alter('live', mode => 'shadow');
RESET client_min_messages;
CALL rollup_run();
\echo :SQLSTATE
SELECT status('live'), exact('live'), runs('live');
DROP VIEW live_daily;
CALL rollup_run();
SELECT status('live'), exact('live'), runs('live');
SELECT rollup_drop('live', true);
-- in state new nothing can be filled, but the refresh of mode on does without
SET client_min_messages = warning;
CREATE TABLE live_daily ();
SELECT make('live', 'on');
RESET client_min_messages;
CALL rollup_run();
SELECT status('live'), exact('live');
SELECT refresh('live'), exact('live');
DROP TABLE live_daily;
CALL rollup_run();
SELECT status('live'), exact('live');
-- a name that is too long for one, but not for the view
SET client_min_messages = warning;
SELECT make(repeat('x', 55), 'off');
CALL rollup_run(('x' || repeat('x', 54))::regclass);
SELECT left(exact(repeat('x', 55)::regclass), 30);
-- one that live was given later
DO $$ BEGIN EXECUTE format('ALTER TABLE %s RENAME TO %s', repeat('x', 55), repeat('y', 58)); END $$;
SELECT rollup_alter(repeat('y', 58)::regclass, mode => 'shadow');
CALL rollup_run(('y' || repeat('y', 57))::regclass);
SELECT left(exact(repeat('y', 58)::regclass), 30);

SET client_min_messages = warning;
DROP SCHEMA modes CASCADE;
SELECT count(*) FROM dailyrollup.rollups;
SELECT relname FROM pg_class WHERE relnamespace = 'dailyrollup'::regnamespace AND relname ~ '_[0-9]+$';
