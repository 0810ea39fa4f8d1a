-- Who may do what: owners, members, writers, readers, strangers; and what an
-- owner's code, a caller's search_path or a stranger's trigger cannot do.
\ir lib/begin.sql

SELECT no_plan();

CREATE ROLE pt_owner;
CREATE ROLE pt_member IN ROLE pt_owner;
CREATE ROLE pt_member_only NOINHERIT IN ROLE pt_owner;
CREATE ROLE pt_writer;
CREATE ROLE pt_reader;
CREATE ROLE pt_live_reader;
CREATE ROLE pt_stranger;
CREATE ROLE pt_monitor IN ROLE pg_monitor;
CREATE ROLE "pt ""o'wner" CREATEROLE;

CREATE SCHEMA pt AUTHORIZATION pt_owner;
GRANT USAGE ON SCHEMA pt TO PUBLIC;
CREATE SCHEMA pt_helpers;
GRANT USAGE ON SCHEMA pt_helpers TO PUBLIC;
SET search_path = pt_helpers, public;
\ir lib/roles.sql
-- The same as "try" without the message.
CREATE FUNCTION state(role text, statement text) RETURNS text LANGUAGE sql AS $$ SELECT split_part(try(role, statement), ' ', 1) $$;
CREATE SCHEMA pt_stranger AUTHORIZATION pt_stranger;

SET ROLE pt_owner;
CREATE TABLE pt.events (k text, ts timestamptz NOT NULL, n int);
CREATE INDEX ON pt.events (k, ts);
INSERT INTO pt.events VALUES ('a', '2026-01-01', 1), ('b', '2026-01-01', 2), (NULL, '2026-01-02', 3), ('a', '2026-01-05', 4);
SELECT rollup_create('pt.live', 'SELECT k, count(*), sum(n), latest(n, ts), max(ts) FROM pt.events GROUP BY k', 'ts', mode => 'on');
SELECT action FROM rollup_refresh('pt.live', '2026-01-03 00:00Z');
RESET ROLE;
GRANT INSERT ON pt.events TO pt_writer;
GRANT SELECT ON pt.live_current TO pt_reader;
GRANT SELECT ON pt.live TO pt_live_reader;
SELECT id, marks FROM dailyrollup.rollups WHERE live = 'pt.live'::regclass \gset
CREATE FUNCTION marks() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
  EXECUTE format('SELECT count(*) FROM %s', (SELECT r.marks FROM dailyrollup.rollups r WHERE live = 'pt.live'::regclass)) INTO n;
  RETURN n;
END $$;

-- ==== all belongs to the source's owner
SELECT is_empty($$SELECT c.oid::regclass FROM dailyrollup.rollups r, pg_class c
  WHERE r.live = 'pt.live'::regclass AND c.oid IN (r.live, r.current_view, r.events, r.definition, r.marks)
  AND c.relowner <> 'pt_owner'::regrole$$, 'relations belong to the owner');
SELECT is((SELECT typowner::regrole::text FROM dailyrollup.rollups r JOIN pg_type t ON t.oid = r.key_type WHERE r.live = 'pt.live'::regclass),
          'pt_owner', 'the key''s type belongs to the owner');

-- ==== strangers, readers and writers may call no routine
CREATE TABLE calls (call text, owner_state text);
INSERT INTO calls VALUES
  ($$SELECT rollup_refresh('pt.live', '2026-01-04 00:00Z')$$, 'ok'),
  ($$SELECT rollup_refresh('pt.live')$$, 'ok'),
  ($$SELECT rollup_reseed('pt.live')$$, 'ok'),
  ($$SELECT rollup_mark('pt.live', '-infinity', 'infinity')$$, 'ok'),
  ($$SELECT rollup_check('pt.live')$$, 'ok'),
  ($$SELECT rollup_verify('pt.live')$$, 'ok'),
  ($$SELECT rollup_diff('pt.live')$$, '55000'),
  ($$SELECT rollup_diff('pt.live', 'settled')$$, '55000'),
  ($$SELECT rollup_alter('pt.live')$$, 'ok'),
  ($$SELECT rollup_alter('pt.live', delay => '1 hour')$$, 'ok'),
  ($$SELECT rollup_alter('pt.live', mode => 'off')$$, 'ok'),
  ($$SELECT rollup_alter('pt.live', time_zone => 'Asia/Tokyo')$$, 'ok'),
  ($$SELECT rollup_alter('pt.live', fold => false)$$, 'ok'),
  ($$SELECT rollup_promote('pt.live')$$, 'ok'),
  ($$SELECT rollup_recompute('pt.live')$$, '55000'),
  ($$SELECT rollup_flush('pt.live')$$, 'ok'),
  ($$SELECT rollup_definition('pt.live')$$, 'ok'),
  ($$SELECT rollup_definition('pt.live', '2026-01-03')$$, 'ok'),
  ($$SELECT rollup_create('pt.other', 'SELECT k, count(*) FROM pt.events GROUP BY k', 'ts', mode => 'on')$$, 'ok'),
  ($$SELECT rollup_drop('pt.live')$$, 'ok'),
  ($$SELECT rollup_drop('pt.live', true)$$, '42704');
GRANT CREATE ON SCHEMA pt TO pt_stranger;
GRANT SELECT ON pt.events TO pt_stranger;
SELECT is(state(role, call), '42501', role || ' may not: ' || call)
FROM unnest('{pt_stranger,pt_reader,pt_live_reader,pt_writer,pt_monitor,pt_member_only}'::text[]) role, calls
WHERE call !~ 'rollup_create' OR role <> 'pt_writer';
REVOKE ALL ON SCHEMA pt FROM pt_stranger;
GRANT USAGE ON SCHEMA pt TO pt_stranger;
REVOKE ALL ON pt.events FROM pt_stranger;
SELECT ok(exact('pt.live'), 'nothing has changed');
SELECT is(rollup_watermark('pt.live'), '2026-01-03 00:00Z'::timestamptz, 'nor the watermark');
-- without a name they have none
SELECT is(see('pt_stranger', 'SELECT count(*) FROM rollup_refresh()'), '0', 'a stranger refreshes nothing');
SELECT is(see('pt_stranger', 'SELECT count(*) FROM rollup_check()'), '0', 'a stranger checks nothing');
SELECT is(see('pt_monitor', 'SELECT count(*) FROM rollup_refresh()'), '0', 'nor does a monitor refresh');
SELECT is(see('pt_stranger', 'SELECT count(*) FROM rollup_promote()'), '0', 'a stranger promotes nothing');
-- who can read the view may know how far the table goes
SELECT is(see('pt_reader', $$SELECT rollup_watermark('pt.live')$$), '2026-01-03 00:00:00+00', 'a reader knows the watermark');
-- into another's schema, over one's own source
SET ROLE pt_stranger;
CREATE TABLE pt_stranger.bait (k text, ts timestamptz NOT NULL, n int);
RESET ROLE;
SELECT is(state('pt_stranger', $$SELECT rollup_create('pt.mine', 'SELECT k, count(*) FROM pt_stranger.bait GROUP BY k', 'ts', mode => 'on')$$), '42501',
          'no rollup in a schema where its owner may not create');
SELECT is(state('pt_stranger', $$SELECT rollup_create('dailyrollup.mine', 'SELECT k, count(*) FROM pt_stranger.bait GROUP BY k', 'ts', mode => 'on')$$), '42501',
          'none in the extension''s schema');

-- ==== a member of the owning role may
BEGIN;
SELECT is(state('pt_member', call), owner_state, 'a member may: ' || call) FROM calls;
ROLLBACK;
BEGIN;
SELECT is(state('pt_member_only', $$SET LOCAL ROLE pt_owner; SELECT rollup_reseed('pt.live')$$), 'ok', 'one that does not inherit may after SET ROLE');
ROLLBACK;
BEGIN;
SELECT is(state('pt_member', $$SELECT rollup_create('pt.other', 'SELECT k, count(*) FROM pt.events GROUP BY k', 'ts', mode => 'on')$$), 'ok', 'a member creates');
SELECT is((SELECT relowner::regrole::text FROM pg_class WHERE oid = to_regclass('pt.other')), 'pt_owner', 'for the owner');
ROLLBACK;

-- ==== the extension's own tables are the library's
SELECT is(state(role, statement), '42501', role || ' may not: ' || statement)
FROM unnest('{pt_owner,pt_member,pt_writer,pt_reader,pt_stranger,pt_monitor}'::text[]) role,
     unnest(ARRAY['UPDATE dailyrollup.rollups SET watermark = NULL', 'DELETE FROM dailyrollup.rollups', 'INSERT INTO dailyrollup.rollups DEFAULT VALUES',
                  'TRUNCATE dailyrollup.rollups', 'DELETE FROM dailyrollup.runs', 'INSERT INTO dailyrollup.runs DEFAULT VALUES', 'TRUNCATE dailyrollup.runs',
                  'SELECT nextval(''dailyrollup.rollup_id_seq'')', 'SELECT setval(''dailyrollup.rollup_id_seq'', 1)',
                  'CREATE TABLE dailyrollup.mine ()', 'DROP VIEW public.rollup_status',
                  'CREATE TRIGGER t AFTER INSERT ON dailyrollup.rollups EXECUTE FUNCTION dailyrollup._capture(''1'')']) statement;
SELECT is(state(role, format('%s %s', verb, relation)), '42501', format('%s may not: %s %s', role, verb, relation))
FROM unnest('{pt_writer,pt_reader,pt_stranger,pt_monitor}'::text[]) role,
     unnest(ARRAY['DELETE FROM', 'TRUNCATE', 'DROP TABLE']) verb,
     unnest(ARRAY['pt.live', :'marks']) relation;
SELECT is(state(role, 'TABLE ' || relation), '42501', format('%s may not read %s', role, relation))
FROM unnest('{pt_writer,pt_stranger,pt_monitor}'::text[]) role,
     unnest(ARRAY['pt.live', 'pt.live_current', :'marks', (SELECT events::text FROM dailyrollup.rollups WHERE id = :id),
                  (SELECT definition::text FROM dailyrollup.rollups WHERE id = :id)]) relation;

-- ==== a writer needs INSERT on the source alone
SELECT is(state('pt_writer', $$INSERT INTO pt.events VALUES ('a', '2026-01-01', 10), ('late', '2026-01-02', 20), ('tail', '2026-01-07', 30)$$), 'ok',
          'a writer writes late rows');
SELECT is(marks(), 2::bigint, 'and has marked their keys');
SELECT is((SELECT string_agg(key->>'k', ',' ORDER BY key->>'k') FROM rollup_late WHERE rollup = 'pt.live'::regclass), 'a,late', 'these');
SELECT is(state('pt_writer', $$UPDATE pt.events SET n = 0$$), '42501', 'no more than that');
SELECT is(state('pt_writer', $$DELETE FROM pt.events$$), '42501', 'no more than that');
SELECT is(state('pt_writer', $$TRUNCATE pt.events$$), '42501', 'no more than that');
GRANT SELECT, UPDATE, DELETE, TRUNCATE ON pt.events TO pt_writer;
SELECT is(state('pt_writer', $$UPDATE pt.events SET k = 'moved' WHERE k = 'b'$$), 'ok', 'with UPDATE: an update');
SELECT is(state('pt_writer', $$DELETE FROM pt.events WHERE k IS NULL$$), 'ok', 'with DELETE: a delete');
SELECT is(marks(), 5::bigint, 'marked too');
SELECT ok(exact('pt.live') IS FALSE, 'live waits');
-- a user who may write elsewhere only
SELECT is(state('pt_stranger', $$INSERT INTO pt.events VALUES ('a', '2026-01-01', 10)$$), '42501', 'a stranger may not write');

-- ==== a reader needs SELECT on the view alone, also where marks wait
SELECT is(see('pt_reader', $$SELECT string_agg(concat(k, ':', count, ':', sum), ' ' ORDER BY k) FROM pt.live_current$$),
          'a:3:15 late:1:20 moved:1:2 tail:1:30', 'a reader reads the view');
SELECT is(see('pt_reader', $$SELECT sum FROM pt.live_current WHERE k = 'late'$$), '20', 'a marked key');
SELECT is(see('pt_reader', $$SELECT count(*) FROM pt.live_current WHERE k IS NULL$$), '0', 'one whose rows are gone');
SELECT is(see('pt_reader', $$SELECT sum FROM pt.live_current WHERE k = 'tail'$$), '30', 'one of the tail');
SELECT is(state('pt_reader', 'TABLE pt.live'), '42501', 'but not the table');
SELECT is(state('pt_reader', 'TABLE pt.events'), '42501', 'nor the source');
SELECT is(state('pt_live_reader', 'TABLE pt.live'), 'ok', 'a reader of the table reads it');
SELECT is(state('pt_live_reader', 'TABLE pt.live_current'), '42501', 'but not the view');
-- nor by the functions behind the view, whatever is passed
SELECT isnt(state(role, call), 'ok', format('%s fails with %s', role, call))
FROM unnest('{pt_writer,pt_stranger,pt_monitor}'::text[]) role,
     unnest(ARRAY[$$SELECT * FROM dailyrollup._current_row(NULL::pt.live, 'late'::text)$$,
                  $$SELECT * FROM dailyrollup._current_row(NULL::pt.live, 1::int8, 'late'::text)$$,
                  $$SELECT * FROM dailyrollup._current_row(NULL::pt.live, 0::int8, 'late'::text)$$,
                  $$SELECT * FROM dailyrollup._current_row(NULL::pt.live, NULL::int8, 'late'::text)$$]) call;
SELECT is(see('pt_stranger', $$SELECT count(*) FROM dailyrollup._late('pt.live')$$), '0', '_late shows a stranger nothing');
SELECT is(see('pt_reader', $$SELECT count(*) FROM dailyrollup._late('pt.live')$$), '0', 'nor a reader');
-- a view of one's own on the view
GRANT CREATE ON SCHEMA pt TO pt_reader;
SELECT is(state('pt_reader', $$CREATE VIEW pt.mine AS SELECT k, sum FROM pt.live_current; GRANT SELECT ON pt.mine TO pt_stranger$$), 'ok', 'a view on the view');
SELECT is(see('pt_stranger', $$SELECT sum FROM pt.mine WHERE k = 'late'$$), '20', 'which others read');
SELECT is(see('pt_stranger', $$SELECT sum FROM pt.mine WHERE k = 'tail'$$), '30', 'and its tail');

-- ==== the refresh, by the owner, makes it exact
SELECT is(see('pt_owner', $$SELECT action FROM rollup_refresh('pt.live', '2026-01-06 00:00Z')$$), 'fold', 'the owner refreshes');
SELECT ok(exact('pt.live'), 'exactly');
SELECT is(marks(), 0::bigint, 'no mark is left');
-- TRUNCATE by the writer
BEGIN;
SELECT is(state('pt_writer', 'TRUNCATE pt.events'), 'ok', 'with TRUNCATE: a truncate');
SELECT is(rollup_watermark('pt.live'), NULL, 'the watermark is gone');
SELECT is(see('pt_reader', 'SELECT count(*) FROM pt.live_current'), '0', 'a reader sees nothing');
ROLLBACK;
-- row-level security of the source, which its owner does not underlie
BEGIN;
ALTER TABLE pt.events ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON pt.events FOR ALL TO pt_writer USING (k = 'a') WITH CHECK (true);
SELECT is(state('pt_writer', $$INSERT INTO pt.events VALUES ('b', '2026-01-01', 100)$$), 'ok', 'with row-level security: a late row');
SELECT is(see('pt_reader', $$SELECT sum FROM pt.live_current WHERE k = 'b'$$), '100', 'is read by others');
SELECT is(see('pt_owner', $$SELECT action FROM rollup_refresh('pt.live', '2026-01-06 00:00Z')$$), 'late', 'the owner refreshes');
SELECT ok(exact('pt.live'), 'exactly');
ROLLBACK;

-- ==== the views show one's own rollups
SET ROLE pt_stranger;
SELECT rollup_create('pt_stranger.bait_n', 'SELECT k, count(*) FROM pt_stranger.bait GROUP BY k', 'ts', mode => 'on');
SELECT rollup_refresh('pt_stranger.bait_n', '2026-01-03 00:00Z');
INSERT INTO pt_stranger.bait VALUES ('x', '2026-01-01', 1);
RESET ROLE;
INSERT INTO pt.events VALUES ('a', '2026-01-01', 1);
SELECT is(see(role, format('SELECT string_agg(DISTINCT rollup::text, '' '' ORDER BY rollup::text) FROM %s WHERE rollup::text ~ ''^pt''', view)), sees, format('%s sees in %s', role, view))
FROM unnest('{rollup_status,rollup_runs,rollup_late}'::text[]) view,
     (VALUES ('pt_owner', 'pt.live'), ('pt_member', 'pt.live'), ('pt_member_only', NULL), ('pt_writer', NULL), ('pt_reader', NULL),
             ('pt_live_reader', NULL), ('pt_stranger', 'pt_stranger.bait_n'), ('pt_monitor', 'pt.live pt_stranger.bait_n')) v(role, sees);
SELECT is(see('pt_monitor', $$SELECT late_keys FROM rollup_status WHERE rollup = 'pt.live'::regclass$$), '1', 'a monitor knows how many keys wait');
SELECT is(see(role, $$SELECT count(*) FROM rollup_refresh(NULL, '2026-01-06 00:00Z')$$), n, format('%s refreshes %s', role, n))
FROM (VALUES ('pt_owner', '1'), ('pt_stranger', '1'), ('pt_reader', '0')) v(role, n);

-- ==== code of the owner runs as the owner, whoever is the cause
CREATE TABLE pt.seen (who text, what text);
ALTER TABLE pt.seen OWNER TO pt_owner;
GRANT INSERT ON pt.seen TO PUBLIC;
CREATE SEQUENCE pt.as_owner;
CREATE SEQUENCE pt.as_other;
GRANT ALL ON pt.as_owner, pt.as_other TO PUBLIC;
SET ROLE pt_owner;
-- immutable, it says; a sequence counts its calls, for it may not write
CREATE FUNCTION pt.spy(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  PERFORM nextval(CASE WHEN current_user = 'pt_owner' THEN 'pt.as_owner' ELSE 'pt.as_other' END);
  RETURN lower($1);
END $$;
CREATE FUNCTION pt.spy_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO pt.seen VALUES (current_user, TG_TABLE_NAME);
  RETURN coalesce(NEW, OLD);
END $$;
CREATE TABLE pt.spied (k text, ts timestamptz NOT NULL, n int);
INSERT INTO pt.spied VALUES ('A', '2026-01-01', 1), ('B', '2026-01-02', 2);
RESET ROLE;
-- made by a superuser, for the owner of the source
SELECT rollup_create('pt.spied_n', $$SELECT pt.spy(k) AS k, count(*) FILTER (WHERE pt.spy(k) <> 'x') AS n FROM pt.spied WHERE pt.spy(k) <> 'y' GROUP BY pt.spy(k)$$, 'ts', mode => 'on');
SELECT is(relowner::regrole::text, 'pt_owner', 'a superuser''s rollup belongs to the owner of the source') FROM pg_class WHERE oid = 'pt.spied_n'::regclass;
SELECT marks AS spied_marks FROM dailyrollup.rollups WHERE live = 'pt.spied_n'::regclass \gset
SET ROLE pt_owner;
CREATE TRIGGER spy BEFORE INSERT OR UPDATE OR DELETE ON pt.spied_n FOR EACH ROW EXECUTE FUNCTION pt.spy_trigger();
CREATE TRIGGER spy AFTER INSERT OR DELETE ON :spied_marks FOR EACH ROW EXECUTE FUNCTION pt.spy_trigger();
RESET ROLE;
GRANT INSERT ON pt.spied TO pt_writer;
SELECT is((SELECT is_called FROM pt.as_other), false, 'creation calls nothing as another');

CREATE FUNCTION spied(what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  RETURN NEXT is((SELECT is_called FROM pt.as_other), false, what || ': as nobody else');
  RETURN NEXT is((SELECT is_called FROM pt.as_owner), true, what || ': as the owner');
  RETURN NEXT is((SELECT count(*) FROM pt.seen WHERE who <> 'pt_owner'), 0::bigint, what || ': triggers as the owner');
  PERFORM setval('pt.as_owner', 1, false), setval('pt.as_other', 1, false);
  DELETE FROM pt.seen;
END $$;
SELECT rollup_refresh('pt.spied_n', '2026-01-03 00:00Z');
SELECT ok(EXISTS (SELECT FROM pt.seen WHERE what = 'spied_n'), 'the trigger on live ran');
SELECT spied('a superuser''s seed');
SELECT is(state('pt_writer', $$INSERT INTO pt.spied VALUES ('A', '2026-01-01', 3)$$), 'ok', 'a late row');
SELECT ok(EXISTS (SELECT FROM pt.seen WHERE what LIKE 'marks%'), 'the trigger on the marks ran');
SELECT spied('a writer''s late row');
INSERT INTO pt.spied VALUES ('C', '2026-01-01', 3), ('D', '2026-01-04', 3);
SELECT spied('a superuser''s late row');
SELECT rollup_refresh('pt.spied_n', '2026-01-05 00:00Z');
SELECT spied('a superuser''s fold and recompute');
SELECT rollup_mark('pt.spied_n', '-infinity', 'infinity');
SELECT spied('a superuser''s rollup_mark');
SELECT rollup_refresh('pt.spied_n', '2026-01-05 00:00Z');
SELECT setval('pt.as_owner', 1, false);
SELECT count(*) FROM rollup_verify('pt.spied_n');
SELECT spied('a superuser''s rollup_verify');
SELECT rollup_definition('pt.spied_n', '2026-01-05'), count(*) FROM rollup_check('pt.spied_n');
SELECT is((SELECT is_called FROM pt.as_other), false, 'definition and check call nothing as another');
SELECT is(see('pt_owner', $$SELECT current_user$$), 'pt_owner', 'the caller is who he was');
SELECT is(current_user, session_user, 'so is the superuser');
-- what a security-restricted operation forbids
SET ROLE pt_owner;
CREATE OR REPLACE FUNCTION pt.spy_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE 'SET ROLE NONE';
  RETURN NEW;
END $$;
RESET ROLE;
INSERT INTO pt.spied VALUES ('E', '2026-01-06', 3);
SELECT throws_ok($$SELECT rollup_refresh('pt.spied_n', '2026-01-07 00:00Z')$$, '42501', NULL, 'no change of the role inside a refresh');
SET ROLE pt_owner;
CREATE OR REPLACE FUNCTION pt.spy_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  CREATE TEMP TABLE planted (n int);
  RETURN NEW;
END $$;
RESET ROLE;
SELECT throws_ok($$SELECT rollup_refresh('pt.spied_n', '2026-01-07 00:00Z')$$, '42501', NULL, 'no temporary table inside a refresh');
SET ROLE pt_owner;
CREATE OR REPLACE FUNCTION pt.spy_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('search_path', 'pt', false), set_config('dailyrollup_test.planted', 'yes', false);
  RETURN NEW;
END $$;
RESET ROLE;
SELECT lives_ok($$SELECT rollup_refresh('pt.spied_n', '2026-01-07 00:00Z')$$, 'settings of the owner''s code');
SELECT is(current_setting('search_path'), 'pt_helpers, public', 'end with the refresh');
SELECT isnt(current_setting('dailyrollup_test.planted', true), 'yes', 'and leave nothing');

-- ==== a hostile search_path: operators and functions of those names elsewhere
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
DO $$
DECLARE
  type text;
  operator text;
  f text;
BEGIN
  FOREACH type IN ARRAY '{text,int4,int8,timestamptz,timestamp,date,oid,bool,name,jsonb,regclass,numeric,interval}'::text[] LOOP
    EXECUTE format('CREATE FUNCTION evil.compare(%1$s, %1$s) RETURNS bool LANGUAGE plpgsql AS ''BEGIN RAISE EXCEPTION ''''evil operator''''; END''', type);
    FOREACH operator IN ARRAY '{=,<>,<,<=,>,>=}'::text[] LOOP
      EXECUTE format('CREATE OPERATOR evil.%2$s (LEFTARG = %1$s, RIGHTARG = %1$s, FUNCTION = evil.compare)', type, operator);
    END LOOP;
    FOREACH f IN ARRAY '{count,sum,min,max,to_jsonb,nextval,num_nulls,array_remove,quote_ident,format,length,lower,abs}'::text[] LOOP
      EXECUTE format('CREATE FUNCTION evil.%2$I(%1$s) RETURNS %1$s LANGUAGE plpgsql AS ''BEGIN RAISE EXCEPTION ''''evil function''''; END''', type, f);
    END LOOP;
  END LOOP;
END $$;
CREATE FUNCTION evil.concatenate(text, text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''evil operator''; END';
CREATE OPERATOR evil.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.concatenate);
CREATE OPERATOR evil.~ (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.compare);
CREATE FUNCTION evil.subtract(timestamptz, timestamptz) RETURNS interval LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''evil operator''; END';
CREATE OPERATOR evil.- (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = evil.subtract);
CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''evil function''; END';
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''evil function''; END';
CREATE FUNCTION evil.pg_has_role(oid, text) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''evil function''; END';
CREATE FUNCTION evil.regexp_match(text, text) RETURNS text[] LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''evil function''; END';
CREATE TYPE evil.int8 AS (broken int);
CREATE TYPE evil.text AS (broken int);
CREATE TYPE evil.regclass AS (broken int);
GRANT SELECT ON pt.live TO pt_reader;
SET ROLE pt_owner;
CREATE TABLE pt.parts (k text, ts timestamptz NOT NULL, n int) PARTITION BY RANGE (ts);
CREATE TABLE pt.parts_1 PARTITION OF pt.parts FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE pt.parts_2 (k text, ts timestamptz NOT NULL, n int);
INSERT INTO pt.parts VALUES ('a', '2026-01-01', 1);
INSERT INTO pt.parts_2 VALUES ('b', '2025-12-01', 1);
SELECT public.rollup_create('pt.parts_n', 'SELECT k, count(*), sum(n), max(ts), public.latest(n, ts) FROM pt.parts GROUP BY k', 'ts', dedup_by => '{k,ts}', mode => 'on');
RESET ROLE;
CREATE FUNCTION hostile(role pg_catalog.text, statement pg_catalog.text) RETURNS pg_catalog.text LANGUAGE plpgsql AS $$
DECLARE message pg_catalog.text;
BEGIN
  EXECUTE 'SET LOCAL search_path = evil, pg_catalog, public';
  EXECUTE pg_catalog.format('SET LOCAL ROLE %I', role);
  EXECUTE statement;
  RESET ROLE;
  EXECUTE 'SET LOCAL search_path = pt_helpers, public';
  RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
  RETURN message;
END $$;
CREATE TABLE hostile_calls (i int GENERATED ALWAYS AS IDENTITY, role text, statement text);
INSERT INTO hostile_calls (role, statement)
SELECT role, statement FROM unnest(ARRAY[
  $$SELECT public.rollup_refresh('pt.parts_n', '2026-01-03 00:00Z')$$,
  $$INSERT INTO pt.parts VALUES ('a', '2026-01-01 01:00Z', 2), ('c', '2026-01-05', 2)$$,
  $$UPDATE pt.parts SET n = 3$$,
  $$ALTER TABLE pt.parts ATTACH PARTITION pt.parts_2 FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')$$,
  $$SELECT * FROM pt.parts_n_current$$,
  $$SELECT * FROM public.rollup_late$$,
  $$SELECT * FROM public.rollup_status$$,
  $$SELECT * FROM public.rollup_runs$$,
  $$SELECT public.rollup_mark('pt.parts_n', '-infinity', 'infinity')$$,
  $$SELECT public.rollup_refresh('pt.parts_n', '2026-01-06 00:00Z')$$,
  $$SELECT public.rollup_check('pt.parts_n')$$,
  $$SELECT public.rollup_verify('pt.parts_n')$$,
  $$SELECT public.rollup_watermark('pt.parts_n')$$,
  $$SELECT public.rollup_definition('pt.parts_n', '2026-01-03')$$,
  $$SELECT public.rollup_reseed('pt.parts_n')$$,
  $$SELECT public.rollup_refresh('pt.parts_n', '2026-01-06 00:00Z')$$,
  $$CREATE TABLE pt.parts_3 PARTITION OF pt.parts FOR VALUES FROM ('2027-01-01') TO ('2028-01-01')$$,
  $$ALTER TABLE pt.parts DETACH PARTITION pt.parts_2$$,
  $$DROP TABLE pt.parts_3$$,
  $$TRUNCATE pt.parts_1$$,
  $$DELETE FROM pt.parts$$,
  $$SELECT public.rollup_refresh('pt.parts_n', '2026-01-07 00:00Z')$$,
  $$SELECT public.rollup_drop('pt.parts_n')$$]) WITH ORDINALITY s(statement, i),
  LATERAL (VALUES ('pt_owner'), (current_user::text)) r(role)
WHERE role = 'pt_owner' OR statement ~ 'SELECT'
ORDER BY i, role;
DELETE FROM hostile_calls WHERE statement ~ 'rollup_drop' AND role <> 'pt_owner';
SELECT is(hostile('pt_owner', 'SELECT 1 = 1'), 'evil operator', 'a hostile search_path');
SELECT is(hostile('pt_owner', 'SELECT now()'), 'evil function', 'a hostile search_path');
BEGIN;
SET LOCAL client_min_messages = error;
SELECT is(hostile(role, statement), 'ok', format('a hostile search_path as %s: %s', CASE WHEN role = 'pt_owner' THEN role ELSE 'superuser' END, statement))
FROM hostile_calls ORDER BY i;
SELECT is(hostile('pt_reader', 'SELECT * FROM pt.live_current'), 'ok', 'a hostile search_path of a reader');
ROLLBACK;
-- a writer's, with a temporary table in the way
CREATE TEMP TABLE rollups (id int);
CREATE TEMP TABLE events (id int);
SELECT lives_ok($$INSERT INTO pt.events VALUES ('a', '2026-01-01', 1)$$, 'temporary tables of our names: a late row');
SELECT lives_ok($$SELECT rollup_refresh('pt.live', '2026-01-07 00:00Z')$$, 'a refresh');
SELECT ok(exact('pt.live'), 'exactly');

-- ==== our trigger functions on others' tables
SET ROLE pt_stranger;
CREATE TABLE pt_stranger.fake (k text, ts timestamptz NOT NULL, n int);
RESET ROLE;
SELECT is(rollup_watermark('pt.live'), '2026-01-07 00:00Z'::timestamptz, 'before the attack');
BEGIN;
SELECT state('pt_stranger', format('CREATE TRIGGER t AFTER INSERT ON pt_stranger.fake FOR EACH ROW EXECUTE FUNCTION dailyrollup._capture(%L)', :id)) AS created \gset
SELECT isnt(state('pt_stranger', $$INSERT INTO pt_stranger.fake VALUES ('a', '2026-01-01', 1)$$), 'ok', '_capture of another''s rollup fails');
SELECT is(marks(), 0::bigint, 'and marks nothing');
ROLLBACK;
BEGIN;
SELECT state('pt_stranger', format('CREATE TRIGGER t AFTER TRUNCATE ON pt_stranger.fake EXECUTE FUNCTION dailyrollup._truncated(%L)', :id)) AS created \gset
SELECT state('pt_stranger', 'TRUNCATE pt_stranger.fake') AS created \gset
SELECT is(rollup_watermark('pt.live'), '2026-01-07 00:00Z'::timestamptz, '_truncated of another''s rollup changes nothing');
ROLLBACK;
BEGIN;
SELECT state('pt_stranger', 'CREATE TRIGGER t AFTER INSERT ON pt_stranger.fake FOR EACH ROW EXECUTE FUNCTION dailyrollup._rollup_changed()') AS created \gset
SELECT isnt(state('pt_stranger', $$INSERT INTO pt_stranger.fake VALUES ('a', '2026-01-01', 1)$$), 'ok', '_rollup_changed serves our table alone');
ROLLBACK;
BEGIN;
SELECT isnt(state('pt_stranger', format('CREATE TRIGGER t %s ON pt_stranger.fake %s EXECUTE FUNCTION dailyrollup.%s(%L); INSERT INTO pt_stranger.fake VALUES (''a'', ''2026-01-01'', 1); TRUNCATE pt_stranger.fake',
                                      fires, level, f, :id)), 'ok', format('%s as %s, %s', f, fires, level))
FROM (VALUES ('_capture', 'BEFORE INSERT', 'FOR EACH ROW'), ('_capture', 'AFTER INSERT', 'FOR EACH STATEMENT'), ('_capture', 'AFTER TRUNCATE', ''),
             ('_guard', 'BEFORE INSERT', 'FOR EACH ROW'), ('_guard', 'AFTER INSERT', 'FOR EACH ROW'),
             ('_truncated', 'AFTER INSERT', 'FOR EACH ROW'), ('_truncated', 'AFTER INSERT', '')) v(f, fires, level);
ROLLBACK;
SELECT isnt(state('pt_stranger', call), 'ok', call)
FROM unnest(ARRAY['SELECT dailyrollup._capture()', 'SELECT dailyrollup._truncated()', 'SELECT dailyrollup._guard()', 'SELECT dailyrollup._rollup_changed()',
                  'SELECT dailyrollup._ddl_ended()', 'SELECT dailyrollup._dropped()', 'CREATE EVENT TRIGGER e ON sql_drop EXECUTE FUNCTION dailyrollup._dropped()',
                  'SELECT dailyrollup._concerns_support(NULL)']) call;
SELECT ok(exact('pt.live'), 'after the attack');

-- ==== identifiers
CREATE SCHEMA "pt ""s'chema" AUTHORIZATION "pt ""o'wner";
SET ROLE "pt ""o'wner";
CREATE TABLE "pt ""s'chema"."e'v""ents" ("k""'" text, "t""s" timestamptz NOT NULL);
SELECT rollup_create('"pt ""s''chema"."l''i""ve"', $$SELECT "k""'", count(*) AS "c'""nt" FROM "pt ""s'chema"."e'v""ents" GROUP BY 1$$, 't"s', mode => 'on');
SELECT rollup_refresh('"pt ""s''chema"."l''i""ve"', '2026-01-03 00:00Z');
INSERT INTO "pt ""s'chema"."e'v""ents" VALUES ('a''b"', '2026-01-01'), ('c', '2026-01-04');
RESET ROLE;
SELECT is((SELECT string_agg(key::text, ' ') FROM rollup_late WHERE rollup = '"pt ""s''chema"."l''i""ve"'::regclass), '{"k\"''": "a''b\""}', 'a quoted late key');
SELECT is(see('pt "o''wner', $$SELECT action FROM rollup_refresh('"pt ""s''chema"."l''i""ve"', '2026-01-05 00:00Z')$$), 'fold', 'a refresh as a quoted owner');
SELECT ok(exact('"pt ""s''chema"."l''i""ve"'), 'exactly');
SELECT is(state('pt "o''wner', $$SELECT rollup_drop('"pt ""s''chema"."l''i""ve"', true)$$), 'ok', 'and gone');

-- ==== default privileges: where PUBLIC may not execute new functions, writers and
-- readers still can; where all is open, the extension's tables are not
-- where PUBLIC may not read the server's catalogs, DDL is looked at all the same
BEGIN;
REVOKE SELECT ON pg_trigger, pg_rewrite, pg_class FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION pg_event_trigger_ddl_commands() FROM PUBLIC;
SELECT is(state('pt_stranger', 'SELECT FROM pg_rewrite'), '42501', 'catalogs that nobody may read');
SELECT is(state('pt_stranger', 'CREATE TABLE pt_stranger.of_his_own (k int)'), 'ok', 'and a table that is made');
ROLLBACK;
DROP VIEW pt.mine;
SELECT rollup_drop(rollup, true) FROM rollup_status WHERE rollup::text ~ '^pt';
BEGIN;
DROP EXTENSION dailyrollup CASCADE;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO pt_stranger;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO pt_stranger;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO pt_stranger;
CREATE FUNCTION pt_helpers.closed() RETURNS void LANGUAGE sql AS '';
CREATE EXTENSION dailyrollup SCHEMA public;
SELECT rollup_create('pt.live', 'SELECT k, count(*), sum(n) FROM pt.events GROUP BY k', 'ts', mode => 'on');
SELECT rollup_refresh('pt.live', '2026-01-07 00:00Z');
GRANT SELECT ON pt.live_current TO pt_reader;
SELECT is(has_function_privilege('pt_stranger', 'pt_helpers.closed()', 'EXECUTE'), false, 'PUBLIC may not execute new functions');
SELECT is(state('pt_writer', $$INSERT INTO pt.events VALUES ('new', '2026-01-01', 1)$$), 'ok', 'a writer writes all the same');
SELECT is(see('pt_reader', $$SELECT sum FROM pt.live_current WHERE k = 'new'$$), '1', 'a reader reads');
SELECT is(state('pt_stranger', statement), '42501', 'for all that: ' || statement)
FROM unnest(ARRAY['UPDATE dailyrollup.rollups SET watermark = NULL', 'DELETE FROM dailyrollup.runs', 'SELECT nextval(''dailyrollup.rollup_id_seq'')',
                  'CREATE TABLE dailyrollup.mine ()', format('TABLE %s', (SELECT r.marks FROM dailyrollup.rollups r)),
                  format('DELETE FROM %s', (SELECT r.marks FROM dailyrollup.rollups r))]) statement;

ROLLBACK;

SET search_path = public;
DROP SCHEMA pt, pt_stranger, pt_helpers, evil, "pt ""s'chema" CASCADE;
DROP ROLE pt_member, pt_member_only, pt_owner, pt_writer, pt_reader, pt_live_reader, pt_stranger, pt_monitor, "pt ""o'wner";
SELECT is(count(*), 0::bigint, 'nothing is left') FROM dailyrollup.rollups r LEFT JOIN pg_class c ON c.oid = r.live WHERE c.oid IS NULL;
SELECT * FROM finish();
