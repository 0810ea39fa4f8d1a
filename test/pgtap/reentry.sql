-- Code of the owner's, which the query, a trigger, a constraint or an index calls
-- while we write to live, leads back to the rollup: it writes to the source or to
-- live, or calls our routines, or drops what we work with.  It is refused, by an
-- error that says so, or nothing is wrong afterwards.  Protects guard.c, the frame
-- of dr_target_open, dr_guard_check_not_open in ddl.c and remove.c, heal_by_parts in
-- heal.c, are_kept in capture.c.
\ir lib/begin.sql
\set ON_ERROR_ROLLBACK off

SELECT no_plan();

CREATE ROLE re_owner;
CREATE SCHEMA re AUTHORIZATION re_owner;
CREATE SCHEMA re_helpers;
GRANT USAGE ON SCHEMA re_helpers TO PUBLIC;
SET search_path = re_helpers, public;
\ir lib/roles.sql

-- What is done, once, by whatever calls re.act(); sequences outlast an abort.
SET ROLE re_owner;
SET check_function_bodies = off;
CREATE SEQUENCE re.acted;
CREATE TABLE re.action (statement text);
INSERT INTO re.action VALUES ('SELECT 1');
CREATE FUNCTION re.act() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
  IF NOT (SELECT is_called FROM re.acted) THEN
    PERFORM nextval('re.acted');
    EXECUTE (SELECT statement FROM re.action);
  END IF;
  RETURN true;
END $$;
CREATE FUNCTION re.checked(bigint) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN re.act(); END $$;
CREATE FUNCTION re.value(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM re.act(); RETURN $1; END $$;
CREATE FUNCTION re.trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM re.act(); RETURN NULL; END $$;
CREATE FUNCTION re.empties() RETURNS bool LANGUAGE sql AS 'DELETE FROM re.l; SELECT true';
CREATE FUNCTION re.empties(bigint) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT re.empties()';
RESET check_function_bodies;
RESET ROLE;

-- A partitioned source, and a rollup of it in that state.
CREATE PROCEDURE make(mode text, measure text DEFAULT 'v', dedup name[] DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM setval('re.acted', 1, true);
  SET LOCAL ROLE re_owner;
  CREATE TABLE re.s (k text NOT NULL, t timestamptz NOT NULL, v int) PARTITION BY RANGE (t);
  CREATE TABLE re.s_1 PARTITION OF re.s FOR VALUES FROM (MINVALUE) TO ('2026-01-03');
  CREATE TABLE re.s_2 PARTITION OF re.s FOR VALUES FROM ('2026-01-03') TO (MAXVALUE);
  INSERT INTO re.s SELECT 'k' || i % 3, '2026-01-01Z'::timestamptz + i * interval '3h', i FROM generate_series(1, 30) i;
  INSERT INTO re.s VALUES ('k0', now(), 0);
  PERFORM public.rollup_create('re.l', format('SELECT k, count(*) AS n, sum(%s) AS total FROM re.s GROUP BY k', measure), 't', dedup_by => dedup, mode => mode);
  IF mode = 'on' THEN
    PERFORM public.rollup_refresh('re.l', '2026-01-03 00:00Z');
  END IF;
END $$;
CREATE PROCEDURE unmake() LANGUAGE plpgsql AS $$
BEGIN
  PERFORM setval('re.acted', 1, true);
  PERFORM public.rollup_drop('re.l', true);
  DROP TABLE re.s CASCADE;
END $$;
-- What becomes of a statement while that is done in its midst.
CREATE FUNCTION while_done(done text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  became text;
BEGIN
  UPDATE re.action a SET statement = done;
  PERFORM setval('re.acted', 1, false);
  became := re_helpers.try(statement) || CASE WHEN (SELECT is_called FROM re.acted) THEN '' ELSE ', and nothing was done' END;
  PERFORM setval('re.acted', 1, true);
  RETURN became;
END $$;
-- What is wrong with live and its view, by the oracle.
CREATE FUNCTION wrong() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  differs text;
BEGIN
  EXECUTE format('SELECT string_agg(x::text, '' '') FROM ((TABLE re.l_current EXCEPT ALL (%1$s)) UNION ALL ((%1$s) EXCEPT ALL TABLE re.l_current)) x',
                 public.rollup_definition('re.l')) INTO differs;
  RETURN concat_ws(' ', differs, (SELECT string_agg(class || key, ' ') FROM public.rollup_verify('re.l')));
END $$;
CREATE FUNCTION ends(what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  RETURN NEXT is(re_helpers.wrong(), '', what || ': exact');
  IF (SELECT state FROM public.rollup_status WHERE rollup = 're.l'::regclass) = 'on' THEN
    PERFORM public.rollup_refresh('re.l', public.rollup_watermark('re.l'));
    RETURN NEXT is(re_helpers.wrong(), '', what || ': and after a refresh');
  END IF;
END $$;

-- ==== It writes to live: nobody but us does that, however we are called.
SELECT format($f$CALL make('on', %1$L); SELECT rollup_mark('re.l', '-infinity', 'infinity'); %2$s;
SELECT matches(while_done(%3$L, 'SELECT rollup_refresh(''re.l'', ''2026-01-04 00:00Z'')'), '^(55000 rollup "re.l" is maintained by dailyrollup|55006 cannot TRUNCATE .*)$', %4$L || %3$L);
SELECT ends(%4$L || %3$L); CALL unmake();$f$, measure, ddl, action, place || ': ')
FROM unnest('{"DELETE FROM re.l","UPDATE re.l SET n = 0","INSERT INTO re.l VALUES (''junk'', 1, 1)","TRUNCATE re.l"}'::text[]) action,
  (VALUES ('a measure', 're.value(v)', ''), ('a CHECK of live', 'v', 'ALTER TABLE re.l ADD CHECK (re.checked(n)) NOT VALID'),
          ('a trigger of live', 'v', 'CREATE TRIGGER x AFTER INSERT OR UPDATE ON re.l FOR EACH ROW EXECUTE FUNCTION re.trigger()')) p(place, measure, ddl) \gexec
-- where there is neither a statement of ours nor one of SPI's between us and it
CALL make('off');
CALL rollup_run('re.l');
ALTER TABLE re.l ADD CHECK (re.empties(n)) NOT VALID;
SELECT matches(try('INSERT INTO re.s VALUES (''k1'', ''2026-01-01'', 1), (''new'', ''2026-01-01'', 1); SELECT rollup_fold()'), '^55000 ', 'a CHECK of live, in SQL alone');
ALTER TABLE re.l DROP CONSTRAINT l_n_check;
SELECT ends('a CHECK of live, in SQL alone');
CALL unmake();

-- ==== It takes away what we work with, or sets out to do the same.
SELECT format($f$CALL make('on', %1$L); SELECT rollup_reseed('re.l'); %2$s;
SELECT matches(while_done(%3$L, 'SELECT rollup_refresh(''re.l'', ''2026-01-04 00:00Z'')'), '^55006 cannot ', %4$L || %3$L);
SELECT ends(%4$L || %3$L); CALL unmake();$f$, measure, ddl, action, place || ': ')
FROM unnest('{"SELECT public.rollup_drop(''re.l'')","SELECT public.rollup_drop(''re.l'', true)","DROP TABLE re.s CASCADE","DROP TABLE re.l CASCADE","DROP OWNED BY re_owner","TRUNCATE re.s","TRUNCATE re.s_1",
  "SELECT public.rollup_refresh(''re.l'', ''2026-01-04 00:00Z'')","SELECT public.rollup_refresh()"}'::text[]) action,
  (VALUES ('a measure', 're.value(v)', ''),
          ('a trigger of live', 'v', 'CREATE TRIGGER x AFTER INSERT OR UPDATE ON re.l FOR EACH ROW EXECUTE FUNCTION re.trigger()')) p(place, measure, ddl) \gexec
-- a seed, which no watermark tells that the source was emptied
SELECT format($f$CALL make('off'); SELECT rollup_alter('re.l', mode => 'on'); CREATE TRIGGER x AFTER INSERT ON re.l FOR EACH ROW EXECUTE FUNCTION re.trigger();
SELECT matches(while_done(%1$L, 'SELECT rollup_refresh(''re.l'', ''2026-01-04 00:00Z'')'), '^55006 cannot ', 'a first seed: ' || %1$L);
SELECT rollup_refresh('re.l', '2026-01-04 00:00Z'); SELECT ends('a first seed: ' || %1$L); CALL unmake();$f$, action)
FROM unnest('{"TRUNCATE re.s","TRUNCATE re.s_1"}'::text[]) action \gexec
-- the shadow's refresh, and its promote
CALL make('shadow', 're.value(v)');
CALL rollup_run('re.l');
INSERT INTO re.s VALUES ('k1', '2026-01-01', 1);
SELECT matches(while_done(action, statement), '^55006 cannot ', statement || ': ' || action)
FROM unnest('{"SELECT rollup_refresh(''re.l'', rollup_watermark(''re.l''))","SELECT rollup_promote(''re.l'')"}'::text[]) statement,
  unnest('{"SELECT public.rollup_promote(''re.l'')","SELECT public.rollup_drop(''re.l'')"}'::text[]) action;
SELECT ends('in state shadow');
CALL unmake();

-- ==== It writes a late row while the marks are read, as the predicate of an index
-- of the source, which is asked when a statement is planned: the mark stays.
SELECT format($f$CALL make('on', dedup => '{k,t}'); CREATE INDEX ON re.s (v) WHERE re.checked(1); INSERT INTO re.s VALUES ('k1', '2026-01-01', 1), ('k2', '2026-01-01', 1);
SELECT is(while_done('INSERT INTO re.s VALUES (''k0'', ''2026-01-02'', 100)', %1$L), 'ok', %1$L); SELECT ends(%1$L); CALL unmake();$f$, statement)
FROM unnest('{"SELECT rollup_refresh(''re.l'', ''2026-01-03 00:00Z'')","SELECT rollup_refresh(''re.l'', ''2026-01-04 00:00Z'')"}'::text[]) statement \gexec

-- ==== A trigger of live writes to the source while the rollup leaves mode on, rows of
-- the tail and late ones, when a tail has been folded, or late keys recomputed.
SELECT $$CALL make('on')$$, 'CREATE TRIGGER x AFTER INSERT OR UPDATE ON re.l FOR EACH ROW EXECUTE FUNCTION re.trigger()', format('SELECT rollup_alter(%L, mode => %L)', 're.l', mode),
  $$SELECT rollup_refresh('re.l')$$, before,
  format('UPDATE re.action SET statement = %L', action), $$SELECT setval('re.acted', 1, false)$$, $$CALL rollup_run('re.l')$$,
  $$SELECT ok(is_called, 'it has written') FROM re.acted$$, format('SELECT is(state, %L, %L) FROM rollup_status WHERE rollup = %L::regclass', mode, 'it has left', 're.l'),
  format('SELECT ends(%L)', 'on to ' || mode || ': ' || action), $$CALL rollup_run('re.l')$$, $$SELECT ends('and a pass later')$$, 'CALL unmake()'
FROM unnest('{"INSERT INTO re.s VALUES (''k0'', now(), 100)","INSERT INTO re.s VALUES (''new'', now(), 100), (''k1'', ''2026-01-01'', 100)","UPDATE re.s SET v = v + 100 WHERE k = ''k0''","DELETE FROM re.s WHERE k = ''k0''"}'::text[]) action,
  unnest('{off,shadow}'::text[]) mode, unnest('{"-- a tail is folded","UPDATE re.s SET t = ''2026-01-01'', v = 1 WHERE t > ''2026-02-01''"}'::text[]) before \gexec

-- ==== It fails in the midst of another rollup, and is caught: we go on.
CALL make('on');
SET ROLE re_owner;
CREATE TABLE re.other (k text, t timestamptz NOT NULL);
INSERT INTO re.other VALUES ('a', '2026-01-01');
SELECT rollup_create('re.failing', 'SELECT k, count(*) AS n FROM re.other GROUP BY k', 't', mode => 'on');
ALTER TABLE re.failing ADD CHECK (n < 0);
RESET ROLE;
CREATE TRIGGER x AFTER INSERT OR UPDATE ON re.l FOR EACH ROW EXECUTE FUNCTION re.trigger();
INSERT INTO re.s VALUES ('k1', '2026-01-01', 1);
UPDATE re.s SET v = v + 1 WHERE k = 'k2' AND t < '2026-01-02';
SELECT is(while_done($a$DO $d$ BEGIN PERFORM public.rollup_refresh('re.failing', '2026-01-03 00:00Z'); EXCEPTION WHEN check_violation THEN NULL; END $d$ $a$,
                     'SELECT rollup_refresh(''re.l'', ''2026-01-04 00:00Z'')'), 'ok', 'a refresh within a refresh that fails');
SELECT ends('a refresh within a refresh that fails');
SELECT rollup_drop('re.failing', true);
CALL unmake();

SET search_path = public;
DROP SCHEMA re, re_helpers CASCADE;
DROP ROLE re_owner;
SELECT is(count(*), 0::bigint, 'nothing is left') FROM dailyrollup.rollups r LEFT JOIN pg_class c ON c.oid = r.live WHERE c.oid IS NULL;
SELECT * FROM finish();
