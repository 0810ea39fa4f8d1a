-- What DDL does to a rollup: TRUNCATE, partitions that come and go, drops,
-- renames, changed columns, the extension itself.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS dailyrollup;
DROP SCHEMA IF EXISTS ddl CASCADE;
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE SCHEMA ddl;
SET search_path = ddl, public;
\set SHOW_CONTEXT never

-- Against the oracle: live, and the view; of live the rollup's own columns.
CREATE FUNCTION exact(rollup regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    view regclass = (SELECT s.current_view FROM rollup_status s WHERE s.rollup = exact.rollup);
    columns text = (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = view AND attnum > 0);
    live_differs bigint;
    current_differs bigint;
    compare text = 'SELECT count(*) FROM ((SELECT %3$s FROM %1$s EXCEPT ALL (%2$s)) UNION ALL ((%2$s) EXCEPT ALL SELECT %3$s FROM %1$s)) d';
BEGIN
    EXECUTE format(compare, view, rollup_definition(rollup), columns) INTO current_differs;
    IF rollup_watermark(rollup) IS NULL THEN
        RETURN format('live does not count, current: %s', current_differs);
    END IF;
    EXECUTE format(compare, rollup, rollup_definition(rollup, rollup_watermark(rollup)), columns) INTO live_differs;
    RETURN format('live: %s, current: %s', live_differs, current_differs);
END $$;
CREATE FUNCTION refresh(rollup regclass, boundary timestamptz = '2026-01-03 00:00Z') RETURNS text LANGUAGE sql AS $$
    SELECT action || ', ' || exact(rollup) FROM rollup_refresh(rollup, boundary)
$$;
-- What a statement says when it fails; a number in our names is not its own.
CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state text; message text; hint text;
BEGIN
    EXECUTE statement;
    RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    RETURN regexp_replace(state || ': ' || message || CASE WHEN hint <> '' THEN E'\n    ' || hint ELSE '' END,
                          '(dailyrollup|marks|events|definition|key)_\d+', '\1_N', 'g');
END $$;
CREATE FUNCTION late(rollup regclass) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(key::text, ' ' ORDER BY key::text) FROM rollup_late l WHERE l.rollup = late.rollup
$$;
-- All that there is of rollups, without their numbers.
CREATE FUNCTION left_over() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT * FROM (
        SELECT regexp_replace(relname, '\d+$', 'N') FROM pg_class
        WHERE relnamespace = 'dailyrollup'::regnamespace AND relname ~ '_\d+$' AND relkind IN ('r', 'v')
        UNION ALL SELECT regexp_replace(typname, '\d+$', 'N') FROM pg_type
        WHERE typnamespace = 'dailyrollup'::regnamespace AND typname ~ '^key_\d+$'
        UNION ALL SELECT 'trigger on ' || tgrelid::regclass FROM pg_trigger WHERE tgname ~ '^dailyrollup_\d+_'
        UNION ALL SELECT 'rollup ' || live FROM dailyrollup.rollups
        UNION ALL SELECT 'run' FROM dailyrollup.runs n WHERE NOT EXISTS (SELECT FROM dailyrollup.rollups WHERE id = n.rollup_id)) x
    ORDER BY 1
$$;
\pset format unaligned
\pset tuples_only on

\echo ==== TRUNCATE of a plain source
CREATE TABLE devices (device text PRIMARY KEY);
CREATE TABLE plain (device text NOT NULL REFERENCES devices, ts timestamptz NOT NULL, n int);
CREATE INDEX ON plain (device);
INSERT INTO devices SELECT 'd' || i FROM generate_series(0, 9) i;
CREATE FUNCTION fill(source regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO %s (device, ts, n) SELECT ''d'' || i %% 4, timestamptz ''2026-01-01'' + i * interval ''1 hour'', i FROM generate_series(0, 95) i', source);
END $$;
SELECT fill('plain');
SELECT rollup_create('plain_n', 'SELECT device, count(*), sum(n), latest(n, ts), max(ts) FROM plain GROUP BY device', 'ts', mode => 'on');
SELECT refresh('plain_n');
TRUNCATE plain;
SELECT watermark IS NULL, state, reseed FROM rollup_status;
SELECT count(*) FROM plain_n_current;
SELECT exact('plain_n');
SELECT refresh('plain_n');
SELECT count(*) FROM plain_n;
SELECT action, reason FROM rollup_runs ORDER BY id DESC LIMIT 1;
-- taken back
SELECT fill('plain');
SELECT refresh('plain_n');
BEGIN;
TRUNCATE plain;
SELECT exact('plain_n');
ROLLBACK;
SELECT exact('plain_n');
-- truncated and filled in one transaction, before and after the old watermark
BEGIN;
TRUNCATE plain;
INSERT INTO plain VALUES ('d7', '2026-01-01', 7), ('d8', '2026-01-04', 8);
COMMIT;
SELECT exact('plain_n');
SELECT refresh('plain_n');
-- truncated, filled and refreshed
BEGIN;
TRUNCATE plain;
SELECT fill('plain');
SELECT refresh('plain_n');
INSERT INTO plain VALUES ('d7', '2026-01-01', 7);
COMMIT;
SELECT exact('plain_n');
SELECT refresh('plain_n');
-- by CASCADE from another table, and without ordinary triggers
TRUNCATE devices CASCADE;
SELECT exact('plain_n');
SELECT refresh('plain_n');
INSERT INTO devices SELECT 'd' || i FROM generate_series(0, 9) i;
SELECT fill('plain');
SELECT refresh('plain_n');
SET session_replication_role = replica;
TRUNCATE plain;
RESET session_replication_role;
SELECT exact('plain_n');
SELECT fill('plain');
SELECT refresh('plain_n');

\echo ==== Children of a plain source do not count
CREATE TABLE child () INHERITS (plain);
INSERT INTO child VALUES ('d1', '2026-01-01', 1000);
SELECT exact('plain_n');
INSERT INTO plain VALUES ('d1', '2026-01-01', 1);
SELECT late('plain_n');
SELECT refresh('plain_n');
SELECT sum FROM plain_n WHERE device = 'd1';
SELECT rollup_mark('plain_n', '-infinity', 'infinity');
SELECT refresh('plain_n');
TRUNCATE child;
SELECT exact('plain_n');
DROP TABLE child;
SELECT exact('plain_n');

\echo ==== A partitioned source: TRUNCATE at each level
CREATE TABLE parted (gone int, device text NOT NULL, ts timestamptz NOT NULL, n int) PARTITION BY RANGE (ts);
ALTER TABLE parted DROP COLUMN gone;
CREATE INDEX ON parted (device);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2026-01-01') TO ('2026-01-02');
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM ('2026-01-02') TO ('2026-01-03') PARTITION BY LIST (device);
CREATE TABLE parted_2_a PARTITION OF parted_2 FOR VALUES IN ('d0', 'd1');
CREATE TABLE parted_2_b PARTITION OF parted_2 DEFAULT;
CREATE TABLE parted_3 PARTITION OF parted FOR VALUES FROM ('2026-01-03') TO ('2026-01-10');
SELECT fill('parted');
SELECT rollup_create('parted_n', 'SELECT device, count(*), sum(n), latest(n, ts), max(ts) FROM parted GROUP BY device', 'ts', dedup_by => '{device,ts}', mode => 'on');
SELECT refresh('parted_n');
-- a leaf
TRUNCATE parted_1;
SELECT watermark IS NULL, reseed FROM rollup_status WHERE rollup = 'parted_n'::regclass;
SELECT exact('parted_n');
SELECT refresh('parted_n');
SELECT count, sum FROM parted_n WHERE device = 'd1';
-- the middle, a leaf below it, one after the watermark, all
TRUNCATE parted_2_b;
SELECT exact('parted_n'), refresh('parted_n');
SELECT count(*) FROM parted_n;
TRUNCATE parted_2;
SELECT exact('parted_n'), refresh('parted_n');
SELECT count(*) FROM parted_n;
TRUNCATE parted_3;
SELECT exact('parted_n'), refresh('parted_n');
SELECT fill('parted');
SELECT refresh('parted_n');
TRUNCATE parted;
SELECT exact('parted_n'), refresh('parted_n');
-- ONLY has no rows of its own: PostgreSQL refuses it
SELECT try('TRUNCATE ONLY parted');
SELECT fill('parted');
SELECT refresh('parted_n');

\echo ==== Partitions that come later
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES FROM ('2025-12-01') TO ('2026-01-01') PARTITION BY LIST (device);
CREATE TABLE parted_0_a PARTITION OF parted_0 FOR VALUES IN ('d0', 'd1');
CREATE TABLE IF NOT EXISTS parted_0_a PARTITION OF parted_0 FOR VALUES IN ('d0', 'd1');
CREATE TABLE parted_0_b PARTITION OF parted_0 DEFAULT;
INSERT INTO parted VALUES ('d0', '2025-12-05', 5), ('d5', '2025-12-05', 5);
INSERT INTO parted_0_a VALUES ('d1', '2025-12-05', 5);
SELECT late('parted_n');
SELECT exact('parted_n'), refresh('parted_n');
TRUNCATE parted_0_b;
SELECT exact('parted_n'), refresh('parted_n');
TRUNCATE parted_0;
SELECT exact('parted_n'), refresh('parted_n');
-- made in another schema
CREATE SCHEMA ddl_2;
CREATE TABLE ddl_2.parted_1 PARTITION OF parted FOR VALUES FROM ('2025-11-01') TO ('2025-12-01');
INSERT INTO parted VALUES ('d0', '2025-11-05', 5);
SELECT late('parted_n'), exact('parted_n'), refresh('parted_n');
TRUNCATE ddl_2.parted_1;
SELECT exact('parted_n'), refresh('parted_n');
-- made as an element of CREATE SCHEMA
BEGIN;
CREATE SCHEMA ddl_3 CREATE TABLE parted_1 PARTITION OF ddl.parted FOR VALUES FROM ('2025-10-01') TO ('2025-11-01');
INSERT INTO parted VALUES ('d5', '2025-10-05', 5);
SELECT late('parted_n'), exact('parted_n'), refresh('parted_n');
TRUNCATE ddl_3.parted_1;
SELECT exact('parted_n'), refresh('parted_n');
ROLLBACK;

\echo ==== ATTACH of a filled partition: its keys are marked
-- columns in another order, one dropped
CREATE TABLE other_order (n int, x text, ts timestamptz NOT NULL, y bigint, device text NOT NULL);
ALTER TABLE other_order DROP COLUMN x;
ALTER TABLE other_order DROP COLUMN y;
INSERT INTO other_order (device, ts, n) VALUES ('d0', '2025-09-01', 100), ('d6', '2025-09-02', 100), ('d6', '2025-09-02', 100);
BEGIN;
ALTER TABLE parted ATTACH PARTITION other_order FOR VALUES FROM ('2025-09-01') TO ('2025-10-01');
SELECT late('parted_n');
ROLLBACK;
SELECT late('parted_n');
ALTER TABLE parted ATTACH PARTITION other_order FOR VALUES FROM ('2025-09-01') TO ('2025-10-01');
SELECT late('parted_n');
SELECT watermark FROM rollup_status WHERE rollup = 'parted_n'::regclass;
SELECT exact('parted_n'), refresh('parted_n');
-- written to directly
INSERT INTO other_order (device, ts, n) VALUES ('d7', '2025-09-03', 8);
UPDATE other_order SET n = 101 WHERE device = 'd0';
UPDATE other_order SET device = 'd9' WHERE device = 'd6';
SELECT late('parted_n');
SELECT exact('parted_n'), refresh('parted_n');
-- moved from partition to partition, over the watermark and back
UPDATE parted SET ts = '2026-01-05' WHERE device = 'd7';
UPDATE parted SET ts = ts - interval '120 days' WHERE device = 'd2' AND ts > '2026-01-03';
SELECT late('parted_n');
SELECT exact('parted_n'), refresh('parted_n');
DELETE FROM other_order WHERE device = 'd9';
SELECT late('parted_n');
SELECT exact('parted_n'), refresh('parted_n');
TRUNCATE other_order;
SELECT exact('parted_n'), refresh('parted_n');
-- one whose rows come after the watermark
CREATE TABLE after_w (device text NOT NULL, ts timestamptz NOT NULL, n int);
INSERT INTO after_w VALUES ('d8', '2026-01-11', 1);
ALTER TABLE parted ATTACH PARTITION after_w FOR VALUES FROM ('2026-01-10') TO ('2026-02-01');
SELECT late('parted_n'), exact('parted_n');
-- one with partitions of its own; one below a partition; from another schema
CREATE TABLE sub (device text NOT NULL, ts timestamptz NOT NULL, n int) PARTITION BY LIST (device);
CREATE TABLE sub_a PARTITION OF sub FOR VALUES IN ('d0');
CREATE TABLE sub_rest PARTITION OF sub DEFAULT;
INSERT INTO sub VALUES ('d0', '2025-08-01', 1), ('d1', '2025-08-01', 1);
ALTER TABLE parted ATTACH PARTITION sub FOR VALUES FROM ('2025-08-01') TO ('2025-09-01');
SELECT late('parted_n'), exact('parted_n'), refresh('parted_n');
TRUNCATE sub_rest;
SELECT exact('parted_n'), refresh('parted_n');
CREATE TABLE ddl_2.below (n int, device text NOT NULL, ts timestamptz NOT NULL);
INSERT INTO ddl_2.below VALUES (1, 'd5', '2025-08-02');
ALTER TABLE ddl.sub ATTACH PARTITION ddl_2.below FOR VALUES IN ('d5');
SELECT late('parted_n'), exact('parted_n'), refresh('parted_n');
INSERT INTO ddl_2.below VALUES (2, 'd5', '2025-08-03');
SELECT late('parted_n'), exact('parted_n'), refresh('parted_n');
TRUNCATE ddl_2.below;
SELECT exact('parted_n'), refresh('parted_n');
-- before the first refresh there is nothing to mark
SELECT rollup_create('parted_m', 'SELECT device, max(ts) FROM parted GROUP BY device', 'ts', mode => 'on');
CREATE TABLE early (device text NOT NULL, ts timestamptz NOT NULL, n int);
INSERT INTO early VALUES ('d0', '2025-07-01', 1);
ALTER TABLE parted ATTACH PARTITION early FOR VALUES FROM ('2025-07-01') TO ('2025-08-01');
SELECT late('parted_m'), exact('parted_m'), late('parted_n');
SELECT refresh('parted_m'), refresh('parted_n');

\echo ==== DETACH, and DROP of a partition: a WARNING, and live keeps what is gone
INSERT INTO parted VALUES ('d0', '2025-12-05', 5), ('d5', '2025-12-05', 5), ('d0', '2025-08-05', 1), ('d1', '2025-08-05', 1);
SELECT refresh('parted_m'), refresh('parted_n');
SELECT rollup_drop('parted_m', true);
ALTER TABLE parted DETACH PARTITION early;
SELECT exact('parted_n');
SELECT rollup_reseed('parted_n');
SELECT refresh('parted_n');
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'early'::regclass;
-- a table on its own again
INSERT INTO early VALUES ('d0', '2025-07-01', 1);
TRUNCATE early;
SELECT late('parted_n'), exact('parted_n');
-- come back: its keys are marked, so no reseed is needed
ALTER TABLE parted DETACH PARTITION parted_1;
UPDATE parted_1 SET n = n + 1000;
ALTER TABLE parted ATTACH PARTITION parted_1 FOR VALUES FROM ('2026-01-01') TO ('2026-01-02');
SELECT late('parted_n'), exact('parted_n'), refresh('parted_n');
-- in the middle; from the middle; concurrently
ALTER TABLE sub DETACH PARTITION sub_a;
ALTER TABLE parted DETACH PARTITION sub;
SELECT count(*) FROM pg_trigger WHERE tgrelid = ANY ('{sub,sub_a,sub_rest}'::regclass[]);
ALTER TABLE parted DETACH PARTITION after_w CONCURRENTLY;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'after_w'::regclass;
TRUNCATE after_w;
SELECT exact('parted_n') ~ 'live: 0, current: 0' AS exact;
SELECT rollup_reseed('parted_n');
SELECT refresh('parted_n');
-- concurrently, interrupted, finalized
CREATE TABLE pending PARTITION OF parted FOR VALUES FROM ('2025-06-01') TO ('2025-07-01');
INSERT INTO parted VALUES ('d0', '2025-06-01', 1);
SELECT refresh('parted_n');
BEGIN;
SELECT count(*) > 0 FROM parted;
PREPARE TRANSACTION 'ddl';
SET statement_timeout = '200ms';
ALTER TABLE parted DETACH PARTITION pending CONCURRENTLY;
RESET statement_timeout;
ROLLBACK PREPARED 'ddl';
INSERT INTO pending (device, ts, n) VALUES ('d1', '2025-06-01', 1);
ALTER TABLE parted DETACH PARTITION pending FINALIZE;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'pending'::regclass;
SELECT rollup_reseed('parted_n');
SELECT refresh('parted_n');
DROP TABLE parted_1;
SELECT exact('parted_n') ~ 'live: 0, current: 0' AS exact;
SELECT rollup_reseed('parted_n');
SELECT refresh('parted_n');
DROP TABLE parted_0_a;
SELECT rollup_reseed('parted_n');
SELECT refresh('parted_n');
-- with partitions of its own, and by CASCADE
DROP TABLE parted_2;
DROP SCHEMA ddl_2 CASCADE;
SELECT rollup_reseed('parted_n');
SELECT refresh('parted_n');

\echo ==== Our own things are not dropped one by one
SELECT id FROM dailyrollup.rollups WHERE live = 'plain_n'::regclass \gset
SELECT try('DROP VIEW plain_n_current');
SELECT try(format('DROP TABLE dailyrollup.marks_%s', :id));
SELECT try(format('DROP TABLE dailyrollup.marks_%s CASCADE', :id));
SELECT try(format('DROP TRIGGER dailyrollup_%s_%s ON plain', :id, event)) FROM unnest('{insert,update,delete,truncate}'::text[]) event;
SELECT try(format('DROP TRIGGER dailyrollup_%s_guard ON plain_n', :id));
SELECT try(format('DROP VIEW dailyrollup.events_%s', :id));
SELECT try(format('DROP TYPE dailyrollup.key_%s', :id));
SELECT try(format('DROP TYPE dailyrollup.key_%s CASCADE', :id));
SELECT id AS parted FROM dailyrollup.rollups WHERE live = 'parted_n'::regclass \gset
SELECT try(format('DROP TRIGGER dailyrollup_%s_insert ON parted_3', :parted));
-- one of that name of another table is nobody's business
CREATE TABLE namesake (a int);
SELECT format('CREATE TRIGGER dailyrollup_%1$s_insert AFTER UPDATE ON namesake FOR EACH STATEMENT EXECUTE FUNCTION nothing(); DROP TRIGGER dailyrollup_%1$s_insert ON namesake', :parted) AS namesake \gset
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
:namesake;
DROP TABLE namesake;
DROP FUNCTION nothing;
BEGIN;
SELECT try(format('DROP TRIGGER dailyrollup_%s_truncate ON parted_3', :parted));
ROLLBACK;
SELECT try('DROP TABLE plain_n');
SELECT try('DROP TABLE plain');
SELECT try('DROP TABLE parted');
SELECT try('DROP FUNCTION dailyrollup._capture()');
SELECT try('DROP SCHEMA dailyrollup CASCADE');
INSERT INTO plain VALUES ('d1', '2026-01-01', 1);
INSERT INTO parted VALUES ('d1', '2026-01-04', 1);
SELECT late('plain_n'), exact('plain_n'), refresh('plain_n'), exact('parted_n');

\echo ==== Columns
ALTER TABLE plain ADD COLUMN unused int DEFAULT 7, ADD COLUMN doc jsonb;
INSERT INTO plain VALUES ('d2', '2026-01-01', 1, 2, '{}');
SELECT late('plain_n'), exact('plain_n'), refresh('plain_n');
ALTER TABLE plain ALTER COLUMN unused TYPE bigint;
ALTER TABLE plain DROP COLUMN unused;
INSERT INTO plain VALUES ('d3', '2026-01-01', 1, '{}');
SELECT late('plain_n'), exact('plain_n'), refresh('plain_n');
SELECT try('ALTER TABLE plain DROP COLUMN n');
SELECT try('ALTER TABLE plain DROP COLUMN ts');
SELECT try('ALTER TABLE plain ALTER COLUMN n TYPE bigint');
SELECT try('ALTER TABLE plain ALTER COLUMN device TYPE varchar(10)');
SELECT try('ALTER TABLE plain ALTER COLUMN ts TYPE timestamp');
SELECT try('ALTER TABLE plain_n DROP COLUMN sum');
SELECT try('ALTER TABLE plain_n ALTER COLUMN count TYPE numeric');
-- NULLs where there were none
ALTER TABLE plain ALTER COLUMN device DROP NOT NULL, ALTER COLUMN ts DROP NOT NULL;
INSERT INTO plain VALUES (NULL, '2026-01-01', 1), (NULL, '2026-01-04', 2), ('d1', NULL, 4);
SELECT late('plain_n'), exact('plain_n'), refresh('plain_n');
SELECT refresh('plain_n', '2026-01-05 00:00Z');
-- a column of live that is the user's own; whoever writes it puts the guard aside
ALTER TABLE plain_n ADD COLUMN note text;
SELECT try($$UPDATE plain_n SET note = 'kept' WHERE device = 'd1'$$);
BEGIN;
SELECT format('dailyrollup_%s_guard', id) AS guard FROM dailyrollup.rollups WHERE live = 'plain_n'::regclass \gset
ALTER TABLE plain_n DISABLE TRIGGER :guard;
UPDATE plain_n SET note = 'kept' WHERE device = 'd1';
ALTER TABLE plain_n ENABLE ALWAYS TRIGGER :guard;
COMMIT;
INSERT INTO plain VALUES ('d1', '2026-01-01', 1), ('d8', '2026-01-01', 1);
SELECT late('plain_n'), exact('plain_n'), refresh('plain_n', '2026-01-05 00:00Z');
SELECT device, note FROM plain_n WHERE device IN ('d1', 'd8') ORDER BY device;
SELECT count(*) FROM rollup_verify('plain_n');
ALTER TABLE plain_n DROP COLUMN note;
INSERT INTO plain VALUES ('d1', '2026-01-01', 1);
SELECT late('plain_n'), exact('plain_n'), refresh('plain_n', '2026-01-05 00:00Z');

\echo ==== Renames and moves
ALTER TABLE plain RENAME TO "Plain 2";
ALTER TABLE "Plain 2" RENAME COLUMN ts TO "at";
ALTER TABLE "Plain 2" RENAME COLUMN n TO "N";
ALTER TABLE "Plain 2" RENAME COLUMN device TO "select";
INSERT INTO "Plain 2" ("select", "at", "N") VALUES ('d1', '2026-01-01', 1), ('d1', '2026-01-06', 1);
SELECT late('plain_n'), exact('plain_n'), refresh('plain_n', '2026-01-05 00:00Z');
ALTER TABLE plain_n RENAME TO "Live 2";
ALTER VIEW plain_n_current RENAME TO now;
INSERT INTO "Plain 2" ("select", "at", "N") VALUES ('d2', '2026-01-01', 1);
SELECT late('"Live 2"'), exact('"Live 2"'), refresh('"Live 2"', '2026-01-05 00:00Z');
SELECT rollup, source, current_view FROM rollup_status WHERE source = '"Plain 2"'::regclass;
CREATE SCHEMA "ddl 4";
ALTER TABLE "Plain 2" SET SCHEMA "ddl 4";
INSERT INTO "ddl 4"."Plain 2" ("select", "at", "N") VALUES ('d3', '2026-01-01', 1);
SELECT late('"Live 2"'), exact('"Live 2"'), refresh('"Live 2"', '2026-01-05 00:00Z');
ALTER TABLE "Live 2" SET SCHEMA "ddl 4";
ALTER SCHEMA "ddl 4" RENAME TO "ddl 5";
INSERT INTO "ddl 5"."Plain 2" ("select", "at", "N") VALUES ('d4', '2026-01-01', 1);
SELECT late('"ddl 5"."Live 2"'), exact('"ddl 5"."Live 2"'), refresh('"ddl 5"."Live 2"', '2026-01-05 00:00Z');
UPDATE "ddl 5"."Plain 2" SET "at" = '2026-01-07' WHERE "select" = 'd4';
SELECT late('"ddl 5"."Live 2"'), exact('"ddl 5"."Live 2"'), refresh('"ddl 5"."Live 2"', '2026-01-08 00:00Z');
TRUNCATE "ddl 5"."Plain 2";
SELECT exact('"ddl 5"."Live 2"'), refresh('"ddl 5"."Live 2"');
-- partitions too
ALTER TABLE parted RENAME COLUMN device TO d;
ALTER TABLE parted_3 RENAME TO third;
INSERT INTO third (d, ts, n) VALUES ('d1', '2026-01-03', 1);
SELECT refresh('parted_n', '2026-01-05 00:00Z');
INSERT INTO third (d, ts, n) VALUES ('d1', '2026-01-04', 1);
SELECT late('parted_n'), exact('parted_n'), refresh('parted_n', '2026-01-05 00:00Z');

\echo ==== Triggers that are disabled
INSERT INTO "ddl 5"."Plain 2" ("select", "at", "N") VALUES ('d1', '2026-01-01', 1);
SELECT refresh('"ddl 5"."Live 2"');
SELECT format('ALTER TABLE "ddl 5"."Plain 2" DISABLE TRIGGER dailyrollup_%s_insert', :id) AS disable,
       (SELECT string_agg(format('ALTER TABLE "ddl 5"."Plain 2" ENABLE ALWAYS TRIGGER dailyrollup_%s_%s;', :id, event), ' ')
        FROM unnest('{insert,update,delete,truncate}'::text[]) event) AS enable \gset
\set ECHO none
:disable;
\set ECHO all
INSERT INTO "ddl 5"."Plain 2" ("select", "at", "N") VALUES ('d1', '2026-01-01', 2);
SELECT late('"ddl 5"."Live 2"'), exact('"ddl 5"."Live 2"');
SELECT try('SELECT rollup_refresh(''"ddl 5"."Live 2"'', ''2026-01-04 00:00Z'')');
ALTER TABLE "ddl 5"."Plain 2" ENABLE TRIGGER USER;
SELECT try('SELECT rollup_refresh(''"ddl 5"."Live 2"'', ''2026-01-04 00:00Z'')');
\set ECHO none
:enable
\set ECHO all
SELECT rollup_mark('"ddl 5"."Live 2"', '2026-01-01', '2026-01-02');
SELECT exact('"ddl 5"."Live 2"'), refresh('"ddl 5"."Live 2"');

\echo ==== DROP ... CASCADE clears the rollup
SELECT left_over();
-- live; the source stays and can be written to
DROP TABLE "ddl 5"."Live 2" CASCADE;
INSERT INTO "ddl 5"."Plain 2" ("select", "at", "N") VALUES ('d1', '2026-01-01', 2);
TRUNCATE "ddl 5"."Plain 2";
DROP TABLE parted_n CASCADE;
INSERT INTO parted VALUES ('d1', '2026-01-04', 1);
TRUNCATE parted;
SELECT left_over();
-- the source; live stays
SELECT rollup_create('parted_n', 'SELECT d, count(*) FROM parted GROUP BY d', 'ts', mode => 'on');
SELECT refresh('parted_n');
DROP TABLE parted CASCADE;
SELECT left_over();
SELECT to_regclass('parted_n'), to_regclass('parted_n_current');
DROP TABLE parted_n;
-- a column; the source goes on without it
CREATE TABLE plain (k int, ts timestamptz NOT NULL, n int);
CREATE FUNCTION make() RETURNS regclass LANGUAGE sql AS $$
    SELECT rollup_create('ddl.plain_n', 'SELECT k, sum(n) FROM ddl.plain GROUP BY k', 'ts', mode => 'on')
$$;
SELECT make();
ALTER TABLE plain DROP COLUMN n CASCADE;
SELECT left_over();
INSERT INTO plain VALUES (1, '2026-01-01');
DROP TABLE plain_n;
ALTER TABLE plain ADD COLUMN n int;
-- a function of the definition
CREATE FUNCTION doubled(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
SELECT rollup_create('plain_n', 'SELECT doubled(k) AS k, sum(n) FROM plain GROUP BY doubled(k)', 'ts', mode => 'on');
SELECT try('DROP FUNCTION doubled(int)');
DROP FUNCTION doubled(int) CASCADE;
SELECT left_over();
DROP TABLE plain_n;
-- the schema of live, of the source, of both
CREATE SCHEMA ddl_3;
SELECT rollup_create('ddl_3.plain_n', 'SELECT k, sum(n) FROM plain GROUP BY k', 'ts', mode => 'on');
SELECT try('DROP SCHEMA ddl_3');
DROP SCHEMA ddl_3 CASCADE;
SELECT left_over();
INSERT INTO plain VALUES (1, '2026-01-01', 1);
ALTER TABLE plain SET SCHEMA "ddl 5";
SELECT rollup_create('plain_n', 'SELECT k, sum(n) FROM "ddl 5".plain GROUP BY k', 'ts', mode => 'on');
DROP SCHEMA "ddl 5" CASCADE;
SELECT left_over();
DROP TABLE plain_n;
-- what is dropped is not dropped where the transaction fails
CREATE TABLE plain (k int, ts timestamptz NOT NULL, n int);
SELECT make();
SELECT refresh('plain_n');
BEGIN;
DROP TABLE plain CASCADE;
SELECT left_over();
ROLLBACK;
INSERT INTO plain VALUES (1, '2026-01-01', 1);
SELECT late('plain_n'), exact('plain_n'), refresh('plain_n');

SELECT rollup_drop('plain_n', true);
DROP TABLE plain;

\echo ==== Owners
CREATE ROLE regress_ddl_owner;
CREATE ROLE regress_ddl_heir;
CREATE SCHEMA ddl_6 AUTHORIZATION regress_ddl_owner;
SET ROLE regress_ddl_owner;
CREATE TABLE ddl_6.plain (k int, ts timestamptz NOT NULL, n int);
SELECT rollup_create('ddl_6.plain_n', 'SELECT k, sum(n) FROM ddl_6.plain GROUP BY k', 'ts', mode => 'on');
SELECT action FROM rollup_refresh('ddl_6.plain_n', '2026-01-03 00:00Z');
RESET ROLE;
REASSIGN OWNED BY regress_ddl_owner TO regress_ddl_heir;
SET ROLE regress_ddl_heir;
INSERT INTO ddl_6.plain VALUES (1, '2026-01-01', 1), (1, '2026-01-03', 2);
SELECT rollup, key FROM rollup_late;
SELECT * FROM ddl_6.plain_n_current;
SELECT action FROM rollup_refresh('ddl_6.plain_n', '2026-01-03 00:00Z');
SELECT * FROM ddl_6.plain_n;
SELECT * FROM ddl_6.plain_n_current;
RESET ROLE;
DROP OWNED BY regress_ddl_heir;
SELECT left_over();
DROP ROLE regress_ddl_owner;
DROP ROLE regress_ddl_heir;

\echo ==== Columns dropped before the rollup was made
CREATE TABLE gaps (a int, device text, b int, n int, ts timestamptz NOT NULL, c int, id int);
ALTER TABLE gaps DROP COLUMN a, DROP COLUMN b, DROP COLUMN c;
SELECT rollup_create('gaps_n', 'SELECT device, count(*), latest(n, ts), max(ts) FROM gaps GROUP BY device', 'ts', dedup_by => '{device,ts}', dedup_order => '{id}', mode => 'on');
INSERT INTO gaps VALUES ('d1', 1, '2026-01-01', 2), ('d1', 2, '2026-01-01', 1), ('d2', 3, '2026-01-02', 1);
SELECT refresh('gaps_n');
INSERT INTO gaps VALUES ('d1', 3, '2026-01-01', 0), ('d3', 4, '2026-01-02', 1), ('d2', 4, '2026-01-05', 1);
UPDATE gaps SET device = 'd4' WHERE device = 'd2' AND n = 3;
SELECT late('gaps_n');
SELECT exact('gaps_n'), refresh('gaps_n');
SELECT * FROM gaps_n ORDER BY device;

\echo ==== The extension
SELECT try('DROP EXTENSION dailyrollup');
DROP EXTENSION dailyrollup CASCADE;
SELECT to_regclass('gaps_n'), to_regclass('gaps_n_current'), to_regnamespace('dailyrollup'), to_regproc('rollup_create');
SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'dailyrollup%';
INSERT INTO gaps VALUES ('d1', 3, '2026-01-01', 0);
CREATE EXTENSION dailyrollup SCHEMA public;
DROP TABLE gaps_n;
SELECT rollup_create('gaps_n', 'SELECT device, count(*) FROM gaps GROUP BY device', 'ts', mode => 'on');
SELECT refresh('gaps_n');
INSERT INTO gaps VALUES ('d1', 3, '2026-01-01', 0);
SELECT late('gaps_n'), exact('gaps_n'), refresh('gaps_n');
-- what came while the extension's event triggers were off
ALTER EVENT TRIGGER dailyrollup_ddl_ended DISABLE;
CREATE RULE own AS ON INSERT TO gaps_n DO ALSO NOTHING;
ALTER EVENT TRIGGER dailyrollup_ddl_ended ENABLE ALWAYS;
SELECT side, rows, keys FROM rollup_check('gaps_n');
SELECT action FROM rollup_refresh('gaps_n');
DROP RULE own ON gaps_n;
-- it stays in the schema that it was made in
SELECT try('ALTER EXTENSION dailyrollup SET SCHEMA ddl');
SET search_path = public;
DROP SCHEMA ddl CASCADE;
SELECT count(*) FROM dailyrollup.rollups;
-- in a schema of its own
DROP EXTENSION dailyrollup;
CREATE SCHEMA "Own";
CREATE EXTENSION dailyrollup SCHEMA "Own";
CREATE SCHEMA ddl;
CREATE TABLE ddl.plain (k int, ts timestamptz NOT NULL, n int);
SELECT "Own".rollup_create('ddl.plain_n', 'SELECT k, "Own".latest(n, ts), max(ts) FROM ddl.plain GROUP BY k', 'ts', mode => 'on');
INSERT INTO ddl.plain VALUES (1, '2026-01-01', 1);
SELECT action FROM "Own".rollup_refresh('ddl.plain_n', '2026-01-03 00:00Z');
INSERT INTO ddl.plain VALUES (1, '2026-01-02', 2), (1, '2026-01-03', 3);
SELECT key FROM "Own".rollup_late;
SELECT * FROM ddl.plain_n_current;
SELECT action FROM "Own".rollup_refresh('ddl.plain_n', '2026-01-05 00:00Z');
SELECT * FROM ddl.plain_n;
SELECT "Own".rollup_drop('ddl.plain_n', true);
DROP EXTENSION dailyrollup;
DROP SCHEMA "Own";
DROP SCHEMA ddl CASCADE;
