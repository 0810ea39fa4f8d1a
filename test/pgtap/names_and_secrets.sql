-- What DDL of a user's does to a rollup by names and by inheritance, and what
-- others can have the server tell them.  Each section names what it protects.
\ir lib/begin.sql

SELECT no_plan();

CREATE ROLE ns_owner;
CREATE ROLE ns_heir;
CREATE ROLE ns_other;
CREATE ROLE ns_writer;
CREATE SCHEMA ns AUTHORIZATION ns_owner;
GRANT USAGE ON SCHEMA ns TO PUBLIC;
CREATE SCHEMA ns_helpers;
GRANT USAGE ON SCHEMA ns_helpers TO PUBLIC;
SET search_path = ns_helpers, public;
\ir lib/roles.sql
-- The keys that wait.
CREATE FUNCTION ns_helpers.waiting(rollup regclass) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(l.key->>'k', ',' ORDER BY l.key->>'k') FROM public.rollup_late l WHERE l.rollup = waiting.rollup
$$;
-- Is TRUNCATE of the table watched?
CREATE FUNCTION ns_helpers.watched(relation regclass) RETURNS boolean LANGUAGE sql AS $$
  SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = relation AND tgfoid = 'dailyrollup._truncated'::regproc)
$$;

-- ==== Whoever writes, attaches or refreshes may have the server print what it
-- parses and plans, and the owner's data with it.  Code of the owner's that
-- runs inside the rollup's SQL looks: the settings are off there, and back
-- afterwards.  Protects print_no_plans in identity.c.  What the server prints
-- is not read here, nor whether the plan that writes a mark is a generic one:
-- no SQL shows the plans that a library keeps.  A reader's own query holds the
-- definition of the tail, which runs with his settings; what runs for waiting
-- keys is tested in the isolation test writer_prints_plans.
CREATE SEQUENCE ns.printed;
CREATE SEQUENCE ns.silent;
GRANT ALL ON ns.printed, ns.silent TO PUBLIC;
SET ROLE ns_owner;
-- immutable, it says; sequences count its calls, for it may not write
CREATE FUNCTION ns.spy(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  PERFORM nextval(CASE WHEN 'on' IN (current_setting('debug_print_plan'), current_setting('debug_print_parse'), current_setting('debug_print_rewritten'))
                       THEN 'ns.printed' ELSE 'ns.silent' END);
  RETURN lower($1);
END $$;
CREATE TABLE ns.spied (k text, t timestamptz NOT NULL, v int) PARTITION BY RANGE (t);
CREATE TABLE ns.spied_1 PARTITION OF ns.spied FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE ns.spied_0 (k text, t timestamptz NOT NULL, v int);
INSERT INTO ns.spied VALUES ('A', '2026-01-01', 1), ('B', '2026-01-05', 2);
INSERT INTO ns.spied_0 VALUES ('C', '2025-12-01', 4);
SELECT rollup_create('ns.spied_n', $$SELECT ns.spy(k) AS k, count(*) AS n FROM ns.spied GROUP BY ns.spy(k)$$, 't', mode => 'on');
SELECT rollup_refresh('ns.spied_n', '2026-01-03 00:00Z');
GRANT INSERT ON ns.spied TO ns_writer;
RESET ROLE;
-- Runs a statement as a role that has the server print all that it can.
CREATE FUNCTION printing(role text, statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  printed bool;
  silent bool;
  after text;
  result text;
BEGIN
  PERFORM setval('ns.printed', 1, false), setval('ns.silent', 1, false);
  PERFORM set_config('debug_print_' || s, 'on', true) FROM unnest('{plan,parse,rewritten}'::text[]) s;
  result := try(role, statement);
  after := concat(current_setting('debug_print_plan'), ' ', current_setting('debug_print_parse'), ' ', current_setting('debug_print_rewritten'));
  PERFORM set_config('debug_print_' || s, 'off', true) FROM unnest('{plan,parse,rewritten}'::text[]) s;
  SELECT is_called INTO printed FROM ns.printed;
  SELECT is_called INTO silent FROM ns.silent;
  RETURN NEXT is(result, 'ok', role || ': ' || statement);
  RETURN NEXT is(printed, false, '- nothing of the owner''s is printed');
  RETURN NEXT is(silent, true, '- though code of the owner''s ran');
  RETURN NEXT is(after, 'on on on', '- the settings are back');
END $$;
SELECT printing('ns_writer', $$INSERT INTO ns.spied VALUES ('Late', '2026-01-01', 8)$$);
SELECT printing('ns_owner', $$ALTER TABLE ns.spied ATTACH PARTITION ns.spied_0 FOR VALUES FROM ('2025-12-01') TO ('2026-01-01')$$);
SELECT is(waiting('ns.spied_n'), 'c,late', 'the keys are marked');
SELECT printing('ns_owner', $$SELECT rollup_mark('ns.spied_n', '-infinity', 'infinity')$$);
SELECT printing('ns_owner', $$SELECT rollup_verify('ns.spied_n')$$);
SELECT printing('ns_owner', $$SELECT rollup_refresh('ns.spied_n', '2026-01-06 00:00Z')$$);
SELECT ok(exact('ns.spied_n'), 'exact');
SELECT is(try('ns_owner', $$SET LOCAL debug_print_parse = on; SELECT ns.spy('x')$$), 'ok', 'the function outside a rollup''s SQL');
SELECT is((SELECT is_called FROM ns.printed), true, 'does see the settings');

-- ==== A trigger that has the name of a rollup's guard, but guards something else, is
-- its owner's.  Protects is_guard in drop.c.
SELECT format('dailyrollup_%s_guard', id) AS guard FROM dailyrollup.rollups WHERE live = 'ns.spied_n'::regclass \gset
CREATE TABLE ns.unguarded (k text);
CREATE TRIGGER :guard BEFORE INSERT ON ns.unguarded EXECUTE FUNCTION suppress_redundant_updates_trigger();
SELECT lives_ok(format('DROP TRIGGER %I ON ns.unguarded', :'guard'), 'DROP of a trigger by the name of the guard');
SELECT throws_ok(format('DROP TRIGGER %I ON ns.spied_n', :'guard'), '2BP01', NULL, 'of the guard');

-- ==== A partition with row-level security is attached: its policies do not
-- count for who reads through the source, so all its keys are marked, whoever
-- the partition belongs to.  Protects mark_partition in late.c
SET ROLE ns_owner;
CREATE TABLE ns.parted (k text NOT NULL, t timestamptz NOT NULL, v int) PARTITION BY RANGE (t);
CREATE TABLE ns.parted_1 PARTITION OF ns.parted FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
INSERT INTO ns.parted VALUES ('a', '2026-01-01', 1), ('b', '2026-01-05', 2);
SELECT rollup_create('ns.parted_n', 'SELECT k, count(*) AS n, sum(v) AS total FROM ns.parted GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('ns.parted_n', '2026-01-03 00:00Z');
-- forced on the source's owner
CREATE TABLE ns.forced (k text NOT NULL, t timestamptz NOT NULL, v int);
INSERT INTO ns.forced VALUES ('a', '2025-01-01', 1), ('forced', '2025-01-01', 2);
ALTER TABLE ns.forced ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
-- the same at a leaf below what is attached, and at its top
CREATE TABLE ns.sub (k text NOT NULL, t timestamptz NOT NULL, v int) PARTITION BY LIST (k);
CREATE TABLE ns.sub_x PARTITION OF ns.sub FOR VALUES IN ('sub x');
CREATE TABLE ns.sub_y PARTITION OF ns.sub FOR VALUES IN ('sub y');
INSERT INTO ns.sub VALUES ('sub x', '2024-01-01', 1), ('sub y', '2024-01-01', 2);
ALTER TABLE ns.sub_x ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE TABLE ns.top (k text NOT NULL, t timestamptz NOT NULL, v int) PARTITION BY LIST (k);
CREATE TABLE ns.top_x PARTITION OF ns.top FOR VALUES IN ('top x');
INSERT INTO ns.top VALUES ('top x', '2023-01-01', 1);
ALTER TABLE ns.top ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
RESET ROLE;
-- another's, who shows the source's owner some of its rows
CREATE TABLE ns.others (k text NOT NULL, t timestamptz NOT NULL, v int);
INSERT INTO ns.others VALUES ('a', '2022-01-01', 1), ('others', '2022-01-01', 2);
ALTER TABLE ns.others ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON ns.others TO ns_owner USING (k = 'a');
ALTER TABLE ns.others OWNER TO ns_other;
GRANT SELECT ON ns.others TO ns_owner;
SELECT is(try('ns_owner', $$ALTER TABLE ns.parted ATTACH PARTITION ns.forced FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')$$), 'ok', 'a partition that forces row-level security is attached');
SELECT is(waiting('ns.parted_n'), 'a,forced', 'all its keys are marked');
SELECT is(try('ns_owner', $$ALTER TABLE ns.parted ATTACH PARTITION ns.sub FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')$$), 'ok', 'one with such a leaf');
SELECT is(waiting('ns.parted_n'), 'a,forced,sub x,sub y', 'all its keys are marked');
SELECT is(try('ns_owner', $$ALTER TABLE ns.parted ATTACH PARTITION ns.top FOR VALUES FROM ('2023-01-01') TO ('2024-01-01')$$), 'ok', 'a partitioned one');
SELECT is(waiting('ns.parted_n'), 'a,forced,sub x,sub y,top x', 'all its keys are marked');
SELECT is(try(current_user, $$ALTER TABLE ns.parted ATTACH PARTITION ns.others FOR VALUES FROM ('2022-01-01') TO ('2023-01-01')$$), 'ok', 'one of another owner');
SELECT is(waiting('ns.parted_n'), 'a,forced,others,sub x,sub y,top x', 'all its keys are marked');
SELECT ok(watched(p), format('%s is watched', p)) FROM unnest('{ns.forced,ns.sub_x,ns.sub_y,ns.top_x,ns.others}'::regclass[]) p;
SELECT is(try('ns_owner', $$SELECT rollup_refresh('ns.parted_n', '2026-01-06 00:00Z')$$), 'ok', 'the owner refreshes');
SELECT ok(exact('ns.parted_n'), 'exact');

-- ==== Code of a user's that runs inside the command changes the search_path:
-- what the command has changed is not looked up by its name.  Protects
-- list_changed and partition_attached in ddl.c
CREATE SCHEMA ns_away;
GRANT USAGE ON SCHEMA ns_away TO PUBLIC;
SET ROLE ns_owner;
CREATE FUNCTION ns.astray(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF current_setting('ns.astray', true) = 'on' THEN
    PERFORM set_config('search_path', 'ns_away, ns_helpers, public', false);
  END IF;
  RETURN $1;
END $$;
CREATE TABLE ns.wild (k text NOT NULL, t timestamptz NOT NULL, v int) PARTITION BY LIST (ns.astray(k));
CREATE TABLE ns.wild_1 PARTITION OF ns.wild FOR VALUES IN ('a', 'b');
INSERT INTO ns.wild VALUES ('a', '2026-01-01', 1), ('b', '2026-01-05', 2);
SELECT rollup_create('ns.wild_n', 'SELECT k, count(*) AS n, sum(v) AS total FROM ns.wild GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('ns.wild_n', '2026-01-03 00:00Z');
CREATE TABLE ns.wild_2 (k text NOT NULL, t timestamptz NOT NULL, v int);
INSERT INTO ns.wild_2 VALUES ('astray', '2026-01-01', 1);
SET search_path = ns, ns_helpers, public;
SET ns.astray = on;
ALTER TABLE wild ATTACH PARTITION wild_2 FOR VALUES IN ('astray');
SET ns.astray = off;
SELECT is(current_setting('search_path'), 'ns_away, ns_helpers, public', 'the search_path was changed inside ATTACH PARTITION');
RESET ROLE;
SELECT is(waiting('ns.wild_n'), 'astray', 'the partition''s key is marked all the same');
SELECT ok(watched('ns.wild_2'), 'its TRUNCATE is watched');
ALTER TABLE ns.wild_n ADD COLUMN extra text;
SET search_path = ns, ns_helpers, public;
SET ns.astray = on;
SELECT throws_ok($$ALTER TABLE wild_n OWNER TO ns_heir, ALTER COLUMN extra TYPE varchar USING ns.astray(extra)$$, '55000', NULL,
                 'nor does live get another owner so');
SET ns.astray = off;
SET search_path = ns_helpers, public;
SELECT is(relowner::regrole::text, 'ns_owner', 'it is the source''s owner''s') FROM pg_class WHERE oid = 'ns.wild_n'::regclass;
ALTER TABLE ns.wild_n DROP COLUMN extra;
SELECT lives_ok($$SELECT rollup_refresh('ns.wild_n', '2026-01-06 00:00Z')$$, 'a refresh');
SELECT ok(exact('ns.wild_n'), 'exact');

-- ==== A column of live is renamed by commands for other kinds of relations,
-- which the server accepts, or along with the column of a table from which live
-- inherits, where the event trigger that refuses that was put aside: the
-- definition follows.  Protects column_renamed in ddl.c and the tags of the event
-- trigger in the install script
SET ROLE ns_owner;
CREATE TABLE ns.src (k text NOT NULL, t timestamptz NOT NULL, v int);
INSERT INTO ns.src VALUES ('a', '2026-01-01', 1), ('b', '2026-01-05', 2);
SELECT rollup_create('ns.live', 'SELECT k, count(*) AS n, sum(v) AS total FROM ns.src GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('ns.live', '2026-01-03 00:00Z');
CREATE TABLE ns.parent (total bigint);
RESET ROLE;
SELECT is(try('ns_owner', 'ALTER TABLE ns.live INHERIT ns.parent'), '0A000 "live" cannot be a rollup: it takes part in inheritance', 'inheritance is refused');
BEGIN;
ALTER EVENT TRIGGER dailyrollup_ddl_ended DISABLE;
ALTER TABLE ns.live INHERIT ns.parent;
ALTER EVENT TRIGGER dailyrollup_ddl_ended ENABLE ALWAYS;
COMMIT;
-- Renames; then a late row, a reader, a refresh.
CREATE FUNCTION rename(statement text, columns text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  day timestamptz := rollup_watermark('ns.live') + '1 day';
BEGIN
  RETURN NEXT is(try('ns_owner', statement), 'ok', statement);
  RETURN QUERY SELECT is((SELECT string_agg(attname, ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = r.relation AND attnum > 0), columns, '- columns of ' || r.what)
    FROM (SELECT 'live' AS what, live AS relation FROM dailyrollup.rollups WHERE live = 'ns.live'::regclass
          UNION ALL SELECT 'the definition', definition FROM dailyrollup.rollups WHERE live = 'ns.live'::regclass) r;
  RETURN NEXT is(try('ns_owner', $q$INSERT INTO ns.src VALUES ('a', '2026-01-01', 1)$q$), 'ok', '- a late row');
  RETURN NEXT is(try('ns_owner', $q$SELECT * FROM ns.live_current WHERE k = 'a'$q$), 'ok', '- a reader of the key');
  RETURN NEXT is(try('ns_owner', format('SELECT rollup_refresh(''ns.live'', %L)', day)), 'ok', '- a refresh');
  RETURN NEXT ok(exact('ns.live'), '- exact');
EXCEPTION WHEN undefined_column THEN
  RETURN NEXT fail('- ' || SQLERRM);
END $$;
SELECT rename('ALTER MATERIALIZED VIEW ns.live RENAME COLUMN n TO n2', 'k,n2,total');
SELECT rename('ALTER FOREIGN TABLE ns.live RENAME COLUMN n2 TO n3', 'k,n3,total');
SELECT rename('ALTER TABLE ns.parent RENAME COLUMN total TO sum', 'k,n3,sum');
SELECT is(try('ns_owner', 'CREATE TABLE ns.grandparent (sum bigint); ALTER TABLE ns.parent INHERIT ns.grandparent'), 'ok', 'a table above that one');
SELECT rename('ALTER TABLE ns.grandparent RENAME COLUMN sum TO amount', 'k,n3,amount');
-- a rename elsewhere, with names that the definition has
SELECT rename('CREATE TABLE ns.bystander (n3 int); ALTER TABLE ns.bystander RENAME COLUMN n3 TO amount', 'k,n3,amount');

-- ==== A table inherits from live, made in the same way: its rows are not live's,
-- and a refresh leaves them alone, also one that lies at the place of one of
-- live's.  Protects ONLY in change.c, compare.c, query.c and objects.c
BEGIN;
ALTER EVENT TRIGGER dailyrollup_ddl_ended DISABLE;
SET LOCAL ROLE ns_owner;
CREATE TABLE ns.archive () INHERITS (ns.live);
RESET ROLE;
ALTER EVENT TRIGGER dailyrollup_ddl_ended ENABLE ALWAYS;
COMMIT;
SET ROLE ns_owner;
INSERT INTO ns.archive (k, n3, amount) VALUES ('a', 1000, 1000), ('old', 5, 5), ('a', 2000, 2000);
CREATE TABLE ns.archived AS TABLE ns.archive;
RESET ROLE;
-- Is everything in its place?
CREATE FUNCTION apart(what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  RETURN NEXT ok(NOT EXISTS ((TABLE ns.archive EXCEPT ALL TABLE ns.archived) UNION ALL (TABLE ns.archived EXCEPT ALL TABLE ns.archive)),
                 what || ': the archive''s rows are what they were');
  RETURN NEXT ok(exact('ns.live'), '- live is exact');
  RETURN NEXT is((SELECT count(*) FROM rollup_verify('ns.live')), 0::bigint, '- and so it is said');
END $$;
SELECT apart('a table that inherits from live');
SELECT is((SELECT count(*) FROM ns.live_current), 2::bigint, 'the view shows live''s keys alone');
SELECT is((SELECT c.keys FROM rollup_check('ns.live') c WHERE c.side = 'live'), 2::bigint, 'rollup_check counts live''s rows alone');
SELECT rollup_reseed('ns.live');
SELECT lives_ok($$SELECT rollup_refresh('ns.live', '2026-01-20 00:00Z')$$, 'a seed');
SELECT apart('after a seed');
INSERT INTO ns.src VALUES ('a', '2026-01-01', 1), ('new', '2026-01-21', 1), ('b', '2026-01-21', 1);
SELECT lives_ok($$SELECT rollup_refresh('ns.live', '2026-01-22 00:00Z')$$, 'a fold and a recompute');
SELECT apart('after a fold and a recompute');
INSERT INTO ns.src VALUES ('old', '2026-01-01', 1);
DELETE FROM ns.src WHERE k IN ('a', 'old');
SELECT lives_ok($$SELECT rollup_refresh('ns.live', '2026-01-23 00:00Z')$$, 'a recompute of keys that are gone');
SELECT apart('after keys are gone');

-- ==== Temporary tables come and go between late rows of one transaction, and
-- with each the prepared plans of a rollup are made anew: the old ones are
-- freed at once, or the transaction would fill the memory.  Protects dr_plans_of
-- in plans.c
CREATE FUNCTION plans_kept() RETURNS bigint LANGUAGE sql AS $$
  SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'dailyrollup plans'
$$;
SELECT rollup_refresh('ns.live', '2026-01-24 00:00Z');
INSERT INTO ns.src VALUES ('c', '2026-01-01', 1);
SELECT plans_kept() AS kept \gset
SELECT cmp_ok(plans_kept(), '>=', 1::bigint, 'plans are kept');
BEGIN;
DO $$
BEGIN
  FOR i IN 1 .. 300 LOOP
    CREATE TEMP TABLE ns_passing (a int);
    DROP TABLE ns_passing;
    INSERT INTO ns.src VALUES ('c', '2026-01-01', 1);
  END LOOP;
END $$;
SELECT cmp_ok(plans_kept(), '<=', :kept + 2::bigint, 'as many after 300 late rows, each after DDL');
DO $$
BEGIN
  FOR i IN 1 .. 300 LOOP
    CREATE TEMP TABLE ns_passing (a int);
    DROP TABLE ns_passing;
    PERFORM FROM ns.live_current WHERE k = 'c';
  END LOOP;
END $$;
SELECT cmp_ok(plans_kept(), '<=', :kept + 2::bigint, 'as many after 300 reads of a waiting key');
SELECT is((SELECT n FROM ns.live_current WHERE k = 'c'), 301::bigint, 'the key''s rows');
COMMIT;
SELECT lives_ok($$SELECT rollup_refresh('ns.live', '2026-01-25 00:00Z')$$, 'a refresh');
SELECT ok(exact('ns.live'), 'exact');

SET search_path = public;
DROP SCHEMA ns, ns_helpers, ns_away CASCADE;
DROP ROLE ns_owner, ns_heir, ns_other, ns_writer;
SELECT is(count(*), 0::bigint, 'nothing is left') FROM dailyrollup.rollups r LEFT JOIN pg_class c ON c.oid = r.live WHERE c.oid IS NULL;
SELECT * FROM finish();
