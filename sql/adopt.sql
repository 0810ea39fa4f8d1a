-- Adoption: an existing table, with whatever content, becomes a rollup.  Which
-- tables can; that nothing changes it before that is asked for; who may write to
-- it when; how it becomes right, and what it keeps of its own.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS dailyrollup;
DROP SCHEMA IF EXISTS adopt CASCADE;
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE SCHEMA adopt;
SET search_path = adopt, public;
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
-- What a statement says when it fails; a number in our names is not its own.
CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state text; message text; detail text; hint text;
BEGIN
    EXECUTE statement;
    RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
        detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN regexp_replace(state || ': ' || message
        || CASE WHEN detail <> '' THEN E'\n    ' || detail ELSE '' END
        || CASE WHEN hint <> '' THEN E'\n    ' || hint ELSE '' END, '(dailyrollup|marks|events|definition|key)_\d+', '\1_N', 'g');
END $$;
CREATE FUNCTION refresh(rollup regclass, boundary timestamptz = '2026-01-03 00:00Z') RETURNS text LANGUAGE sql AS $$
    SELECT format('%s to %s, folded %s, late %s', r.action, r.to_time, r.folded_keys, r.late_keys)
    FROM rollup_refresh(rollup, boundary) r
$$;
CREATE FUNCTION status(rollup regclass) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s, wanted %s, fold %s, shadow %s', s.state, s.wanted_mode, s.fold, coalesce(s.shadow::text, '-'))
    FROM rollup_status s WHERE s.rollup = status.rollup
$$;
\pset format unaligned
\pset tuples_only on

CREATE TABLE readings (car text, signal text, ts timestamptz NOT NULL, v int, label varchar(8), price numeric(8, 2));
CREATE INDEX ON readings (car, signal, ts);
INSERT INTO readings VALUES
    ('a', 'speed', '2026-01-01 08:00Z', 1, 'x', 1.5), ('a', 'speed', '2026-01-02 08:00Z', 2, 'y', 2), ('a', 'place', '2026-01-02 09:00Z', 4, 'z', NULL),
    ('b', 'speed', '2026-01-01 10:00Z', 8, NULL, 0), (NULL, 'speed', '2026-01-04 10:00Z', 16, 'w', 1), ('b', NULL, '2026-01-05 10:00Z', 32, '', 1);
-- What a pass does depends on the clock, but for rollups that fall due ten
-- thousand days after midnight: they are refreshed by hand.
CREATE FUNCTION make(rollup text = 'live', mode text = NULL, fold boolean = NULL, query text = 'SELECT car, signal, count(*) AS n, sum(v) AS total, max(ts) AS seen FROM adopt.readings GROUP BY car, signal')
RETURNS regclass LANGUAGE sql AS $$
    SELECT rollup_create(rollup, query, 'ts', delay => '10000 days', mode => mode, fold => fold)
$$;

\echo ==== Columns
-- makes the table, a rollup of it, and takes both back
CREATE FUNCTION shape(columns text, query text = 'SELECT car, signal, count(*) AS n, sum(v) AS total, max(ts) AS seen FROM adopt.readings GROUP BY car, signal', prefix text = 'TABLE') RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
    EXECUTE format('CREATE %s live %s', prefix, columns);
    result = try(format('SELECT adopt.make(%L, query => %L)', 'live', query));
    IF result = 'ok' THEN
        result = concat_ws(', ', result, status('live'), exact('live'));
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'SHAPE', MESSAGE = result;
EXCEPTION WHEN SQLSTATE 'SHAPE' THEN
    RETURN SQLERRM;
END $$;
SELECT shape('(car text, signal text, n bigint, total bigint, seen timestamptz)');
SELECT shape('(seen timestamptz, total bigint, n bigint, signal text, car text)');
SELECT shape('(total bigint PRIMARY KEY, n bigint NOT NULL DEFAULT 0, car text NOT NULL, seen timestamptz, signal text NOT NULL, UNIQUE (car, signal))');
-- those of its own
SELECT shape('(note text, car text, signal text, n bigint, total bigint, seen timestamptz, more jsonb)');
SELECT shape('(car text, signal text, n bigint, total bigint, seen timestamptz, since timestamptz NOT NULL DEFAULT now())');
SELECT shape('(id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, car text, signal text, n bigint, total bigint, seen timestamptz)');
SELECT shape('(id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, car text, signal text, n bigint, total bigint, seen timestamptz)');
SELECT shape('(id serial, car text, signal text, n bigint, total bigint, seen timestamptz, mean bigint GENERATED ALWAYS AS (total / n) STORED)');
SELECT shape('(id int NOT NULL, car text, signal text, n bigint, total bigint, seen timestamptz)');
CREATE DOMAIN no_null AS int NOT NULL;
CREATE DOMAIN zero AS int DEFAULT 0;
SELECT shape('(id no_null, car text, signal text, n bigint, total bigint, seen timestamptz)');
SELECT shape('(id no_null DEFAULT 1, car text, signal text, n bigint, total bigint, seen timestamptz)');
SELECT shape('(id zero NOT NULL, car text, signal text, n bigint, total bigint, seen timestamptz)');
SELECT shape('(id int PRIMARY KEY, car text, signal text, n bigint, total bigint, seen timestamptz)');
-- the query's
SELECT shape('(car text, signal text, n bigint, total bigint)');
SELECT shape('(car text, signal text, n bigint, total bigint, "Seen" timestamptz)');
SELECT shape('()');
SELECT shape('(car text, signal text, n int, total bigint, seen timestamptz)');
SELECT shape('(car text, signal text, n bigint, total numeric, seen timestamptz)');
SELECT shape('(car text, signal text, n bigint, total bigint, seen timestamp)');
SELECT shape('(car text, signal text, n bigint, total bigint, seen timestamptz(3))');
SELECT shape('(car varchar, signal text, n bigint, total bigint, seen timestamptz)');
SELECT shape('(car text COLLATE "C", signal text, n bigint, total bigint, seen timestamptz)');
SELECT shape('(car text, signal text, n bigint GENERATED ALWAYS AS (total + 1) STORED, total bigint, seen timestamptz)');
SELECT shape('(car text, signal text, n bigint GENERATED ALWAYS AS IDENTITY, total bigint, seen timestamptz)');
SELECT shape('(car text, signal text, n bigint GENERATED BY DEFAULT AS IDENTITY, total bigint, seen timestamptz)');
CREATE DOMAIN amount AS bigint;
SELECT shape('(car text, signal text, n bigint, total amount, seen timestamptz)');
-- type modifiers
SELECT shape('(label varchar(8), price numeric(8, 2))', 'SELECT label, max(price) AS price FROM adopt.readings GROUP BY label');
SELECT shape('(label varchar, price numeric)', 'SELECT label, max(price) AS price FROM adopt.readings GROUP BY label');
SELECT shape('(label varchar(9), price numeric)', 'SELECT label, max(price) AS price FROM adopt.readings GROUP BY label');
SELECT shape('(label varchar(8), price numeric)', 'SELECT label, max(price) AS price FROM adopt.readings GROUP BY label');
SELECT shape('(label varchar(8), price numeric(8, 3))', 'SELECT label, max(price)::numeric(8, 2) AS price FROM adopt.readings GROUP BY label');
-- dropped columns are none
CREATE TABLE live (gone int, car text, signal text, gone_2 int NOT NULL, n bigint, total bigint, seen timestamptz);
ALTER TABLE live DROP COLUMN gone, DROP COLUMN gone_2;
SELECT make();
SELECT status('live'), exact('live');
SELECT rollup_drop('live', true);

\echo ==== Tables
SELECT shape('(car text, signal text, n bigint, total bigint, seen timestamptz)', prefix => 'UNLOGGED TABLE');
SELECT shape('(car text, signal text, n bigint, total bigint, seen timestamptz) PARTITION BY LIST (car)');
SELECT shape($$AS SELECT ''::text AS car, ''::text AS signal, 0::bigint AS n, 0::bigint AS total, now() AS seen$$, prefix => 'VIEW');
SELECT shape($$AS SELECT ''::text AS car, ''::text AS signal, 0::bigint AS n, 0::bigint AS total, now() AS seen$$, prefix => 'MATERIALIZED VIEW');
SELECT shape('AS (car text, signal text, n bigint, total bigint, seen timestamptz)', prefix => 'TYPE');
SELECT shape('', prefix => 'SEQUENCE');
SELECT shape('ON readings (v)', prefix => 'INDEX');
CREATE FOREIGN DATA WRAPPER regress_adopt;
CREATE SERVER regress_adopt FOREIGN DATA WRAPPER regress_adopt;
SELECT shape('(car text, signal text, n bigint, total bigint, seen timestamptz) SERVER regress_adopt', prefix => 'FOREIGN TABLE');
DROP FOREIGN DATA WRAPPER regress_adopt CASCADE;
CREATE TABLE parent (car text, signal text, n bigint, total bigint, seen timestamptz);
SELECT shape('() INHERITS (parent)');
CREATE TABLE child () INHERITS (parent);
SELECT try('SELECT adopt.make(''parent'')');
DROP TABLE parent CASCADE;
CREATE TABLE parent (car text, signal text, n bigint, total bigint, seen timestamptz) PARTITION BY LIST (car);
SELECT shape('PARTITION OF parent DEFAULT');
DROP TABLE parent;
CREATE TYPE row_of_live AS (car text, signal text, n bigint, total bigint, seen timestamptz);
SELECT shape('OF row_of_live');
-- a constraint that can wait for the end of the transaction, when the fold has passed
SELECT shape('(car text, signal text, n bigint, total bigint, seen timestamptz, UNIQUE (car, signal) DEFERRABLE INITIALLY DEFERRED)');
SELECT shape('(car text, signal text, n bigint, total bigint, seen timestamptz, UNIQUE (car, signal) DEFERRABLE)');
CREATE TABLE live (car text, signal text, n bigint, total bigint, seen timestamptz);
-- by any other name
SELECT try('SELECT adopt.make(''pg_temp.live'')');
SELECT try('SELECT adopt.make(''readings'')');
SELECT try('SELECT adopt.make(''pg_catalog.pg_class'')');
SELECT try('SELECT adopt.make(''dailyrollup.rollups'')');
CREATE RULE nothing AS ON DELETE TO live DO INSTEAD NOTHING;
SELECT try('SELECT adopt.make()');
DROP RULE nothing ON live;
ALTER TABLE live ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SELECT try('SELECT adopt.make()');
ALTER TABLE live DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
CREATE VIEW live_current AS SELECT 1;
SELECT try('SELECT adopt.make()');
DROP VIEW live_current;
CREATE ROLE regress_adopt_owner;
GRANT ALL ON SCHEMA adopt TO regress_adopt_owner;
ALTER TABLE live OWNER TO regress_adopt_owner;
SELECT try('SELECT adopt.make()');
SET ROLE regress_adopt_owner;
SELECT try('SELECT adopt.make()');
CREATE TABLE own (car text, signal text, ts timestamptz NOT NULL, v int);
RESET ROLE;
ALTER TABLE live OWNER TO CURRENT_USER;
SET ROLE regress_adopt_owner;
SELECT try($$SELECT adopt.make(query => 'SELECT car, signal, count(*) AS n, sum(v) AS total, max(ts) AS seen FROM adopt.own GROUP BY car, signal')$$);
RESET ROLE;
DROP OWNED BY regress_adopt_owner;
DROP ROLE regress_adopt_owner;
-- arguments
SELECT try('SELECT adopt.make(fold => true)');
SELECT try('SELECT adopt.make(mode => ''bogus'')');
SELECT try('SELECT adopt.make(query => ''SELECT car, count(*) AS n FROM adopt.nope GROUP BY car'')');
-- nothing of all that has left a trace
SELECT tgname FROM pg_trigger WHERE tgrelid IN ('live'::regclass, 'readings'::regclass);
RESET client_min_messages;
SELECT make(fold => false);
SET client_min_messages = warning;
SELECT status('live'), exact('live');
-- once more; a rollup's view, its shadow, its marks
SELECT try('SELECT adopt.make()');
SELECT try('SELECT adopt.make(''live_current'')');
SELECT rollup_alter('live', mode => 'shadow');
CALL rollup_run();
SELECT try('SELECT adopt.make(''live_daily'')');
SELECT try(format('SELECT rollup_create(%L, ''SELECT car AS k1, signal AS k2, count(*) AS proof FROM adopt.readings GROUP BY car, signal'', ''ts'')', marks)) FROM dailyrollup.rollups;
-- what would have been refused is refused later, too
CREATE TABLE other (LIKE live);
SELECT statement || E'\n    ' || try(statement) FROM unnest(ARRAY[
    'CREATE RULE nothing AS ON DELETE TO live DO INSTEAD NOTHING', 'ALTER TABLE live SET UNLOGGED', 'ALTER TABLE live ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY',
    'ALTER TABLE live ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED', 'ALTER TABLE live INHERIT other', 'ALTER TABLE other INHERIT live', 'CREATE TABLE third () INHERITS (live)',
    'ALTER TABLE live ALTER n TYPE numeric', 'ALTER TABLE live DROP COLUMN n', 'ALTER TABLE live DROP COLUMN n CASCADE']) statement;
SELECT status('live'), exact('live');
SELECT rollup_drop('live', true);
-- a table that is the source of another rollup, or holds another's rows
CREATE TABLE live (car text, signal text, n bigint NOT NULL, total bigint, seen timestamptz);
SELECT rollup_create('cars', 'SELECT car, count(*) AS signals, max(seen) AS seen FROM live GROUP BY car', 'seen', delay => '10000 days', mode => 'off');
SELECT make();
CALL rollup_run();
BEGIN;
SELECT rollup_recompute('live');
SELECT rollup_alter('live', fold => true);
COMMIT;
INSERT INTO readings VALUES ('c', 'speed', '2026-01-06', 64), ('a', 'speed', '2026-01-06', 128);
DELETE FROM readings WHERE car = 'b' AND signal = 'speed';
SELECT exact('live'), exact('cars');
SELECT * FROM cars ORDER BY car;
SELECT rollup_drop(r, true) FROM unnest('{cars,live}'::regclass[]) r;

\echo ==== The incident: a live table that others fold into, and that has gone wrong
TRUNCATE readings;
INSERT INTO readings SELECT 'car' || i % 5, 'speed', timestamptz '2026-01-01 08:00Z' + i * interval '3 hours', i FROM generate_series(0, 19) i;
INSERT INTO readings VALUES (NULL, 'speed', '2026-01-01 12:00Z', 100), ('car1', NULL, '2026-01-02 12:00Z', 200);
CREATE TABLE live (note text, total bigint, signal text, n bigint, car text, seen timestamptz, id int GENERATED ALWAYS AS IDENTITY, level int NOT NULL DEFAULT 7);
-- the old fold means to replace a row, and its delete removes nothing
CREATE FUNCTION old_fold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM live WHERE car = NEW.signal AND signal = NEW.car;
    INSERT INTO live (car, signal, n, total, seen) SELECT car, signal, count(*), sum(v), max(ts) FROM readings
    WHERE car IS NOT DISTINCT FROM NEW.car AND signal IS NOT DISTINCT FROM NEW.signal GROUP BY car, signal;
    RETURN NULL;
END $$;
CREATE TRIGGER old_fold AFTER INSERT ON readings FOR EACH ROW EXECUTE FUNCTION old_fold();
INSERT INTO readings SELECT car, signal, ts + interval '1 hour', v FROM readings WHERE v < 12;
INSERT INTO live (car, signal, n, total, seen) SELECT car, signal, count(*), sum(v), max(ts) FROM readings GROUP BY car, signal;
UPDATE live SET note = 'note ' || id;
SELECT count(*), count(DISTINCT (car, signal)) FROM live;
-- what it holds, and where: nothing but the old fold changes that
CREATE TABLE as_it_was AS SELECT ctid AS place, xmin::text AS writer, l.* FROM live l;
CREATE FUNCTION untouched() RETURNS boolean LANGUAGE sql AS $$
    SELECT NOT EXISTS (SELECT FROM (SELECT ctid AS place, xmin::text AS writer, l.* FROM live l) l FULL JOIN as_it_was w USING (place, writer) WHERE l.id IS DISTINCT FROM w.id OR l IS NULL OR w IS NULL)
$$;
RESET client_min_messages;
SELECT make();
SELECT untouched(), status('live'), exact('live');
SELECT count(*), count(DISTINCT (car, signal)) FROM live_current;
SELECT tgname ~ '^dailyrollup_\d+_guard$' AS guard, tgenabled FROM pg_trigger WHERE tgrelid = 'live'::regclass;
CALL rollup_run();
CALL rollup_run();
SELECT untouched(), status('live');
SELECT rollup_alter('live', mode => 'shadow');
CALL rollup_run();
SELECT refresh('live');
CALL rollup_run();
SELECT untouched(), status('live'), exact('live');
-- the old fold still works as it did
INSERT INTO readings VALUES ('car1', 'speed', '2026-01-01 13:00Z', 300), ('car9', 'speed', '2026-01-05 13:00Z', 400);
SELECT count(*), count(DISTINCT (car, signal)) FROM live;
SELECT status('live'), exact('live');
CALL rollup_run();
SELECT exact('live');
DELETE FROM as_it_was;
INSERT INTO as_it_was SELECT ctid, xmin::text, l.* FROM live l;
-- how wrong it is
SELECT class, key, columns, live - '{car,signal}'::text[] AS live, daily - '{car,signal}'::text[] AS daily, copies FROM rollup_diff('live') ORDER BY class, key;
SELECT class, count(*), sum(copies) FROM rollup_diff('live', 'all') GROUP BY class ORDER BY class;
SELECT class, count(*), sum(copies) FROM rollup_verify('live') GROUP BY class ORDER BY class;
SELECT * FROM rollup_check('live');
UPDATE live SET note = note WHERE car = 'car9';
SELECT action, outcome, missing_daily, missing_live, mismatches, duplicates FROM rollup_runs WHERE rollup = 'live'::regclass AND action = 'diff' ORDER BY id;
-- the whole flip: content, unique index, fold; what is a row's own stays with it
SELECT try($$SELECT rollup_alter('live', fold => true)$$);
SELECT * FROM rollup_promote();
SELECT status('live'), exact('live');
SELECT * FROM rollup_check('live');
SELECT count(*) FROM rollup_verify('live');
SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'live'::regclass;
SELECT l.car, l.signal, l.n, l.note = 'note ' || l.id AS own_note, l.level, (SELECT count(*) FROM as_it_was w WHERE w.id = l.id) AS was_there FROM live l ORDER BY l.car, l.signal;
-- the forgotten old fold is refused, and so is what it hangs on
INSERT INTO readings VALUES ('car1', 'speed', '2026-01-06 13:00Z', 500);
\echo :SQLSTATE
DROP TRIGGER old_fold ON readings;
INSERT INTO readings VALUES ('car1', 'speed', '2026-01-02 13:00Z', 500), ('car7', 'speed', '2026-01-03 14:00Z', 600), ('car9', 'speed', '2026-01-06 14:00Z', 600);
DELETE FROM readings WHERE car = 'car2';
SELECT exact('live');
SELECT refresh('live', '2026-01-05 00:00Z'), exact('live');
-- back to shadow and off: it is folded into now, whatever it was before
SELECT rollup_alter('live', mode => 'off');
CALL rollup_run();
SELECT status('live'), exact('live');
INSERT INTO readings VALUES ('car1', 'speed', '2026-01-02 13:00Z', 700), ('car8', 'speed', '2026-01-06 14:00Z', 800);
SELECT exact('live');
SELECT car, signal, n, id IS NOT NULL AS id, level FROM live WHERE car IN ('car1', 'car8') ORDER BY 1, 2;
-- without the rollup the table is its owner's again
SELECT rollup_drop('live');
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'live'::regclass;
UPDATE live SET n = 0;
DELETE FROM live WHERE car = 'car1';
TRUNCATE live;
-- and can be adopted anew
SELECT make(mode => 'on');
SELECT status('live'), exact('live');
SET client_min_messages = warning;
CALL rollup_run();
RESET client_min_messages;
SELECT status('live'), exact('live');
SELECT count(*) FROM pg_index WHERE indrelid = 'live'::regclass;
SELECT rollup_drop('live', true);

\echo ==== The guard, by state
SET client_min_messages = warning;
TRUNCATE readings;
INSERT INTO readings SELECT 'car' || i % 3, 'speed', timestamptz '2026-01-01 08:00Z' + i * interval '3 hours', i FROM generate_series(0, 19) i;
CREATE TABLE cars (car text PRIMARY KEY);
INSERT INTO cars VALUES ('car0'), ('car1'), ('car2'), ('car3');
CREATE TABLE live (car text REFERENCES cars ON DELETE CASCADE ON UPDATE CASCADE, signal text, n bigint, total bigint, seen timestamptz, note text);
CREATE UNIQUE INDEX mine ON live (signal, car) NULLS NOT DISTINCT;
SELECT make();
-- each way of writing, taken back: those that the guard lets pass
CREATE FUNCTION writes(what text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    way text; statement text; result text;
BEGIN
    FOR way, statement IN VALUES
        ('INSERT', $s$INSERT INTO live (car, n) VALUES ('car3', 1)$s$),
        ('none', $s$INSERT INTO live SELECT * FROM live WHERE false$s$),
        ('conflict', $s$INSERT INTO live (car, signal, n) VALUES ('car0', 'speed', 1) ON CONFLICT (signal, car) DO NOTHING$s$),
        ('upsert', $s$INSERT INTO live (car, signal, n) VALUES ('car0', 'speed', 1) ON CONFLICT (signal, car) DO UPDATE SET n = 0$s$),
        ('UPDATE', $s$UPDATE live SET n = n$s$),
        ('own column', $s$UPDATE live SET note = 'x'$s$),
        ('DELETE', $s$DELETE FROM live$s$),
        ('WITH', $s$WITH d AS (DELETE FROM live RETURNING *) SELECT count(*) FROM d$s$),
        ('MERGE', $s$MERGE INTO live l USING cars c ON l.car = c.car WHEN MATCHED THEN UPDATE SET n = 0 WHEN NOT MATCHED THEN INSERT (car) VALUES (c.car)$s$),
        ('TRUNCATE', $s$TRUNCATE live$s$),
        ('TRUNCATE cascade', $s$TRUNCATE cars CASCADE$s$),
        ('FK delete', $s$DELETE FROM cars WHERE car = 'car0'$s$),
        ('FK update', $s$UPDATE cars SET car = 'car00' WHERE car = 'car0'$s$),
        ('COPY', $s$COPY live (car, n) FROM PROGRAM 'echo "car3	1"'$s$),
        ('replica', $s$SET LOCAL session_replication_role = replica; UPDATE live SET n = n$s$),
        ('by a view', $s$CREATE VIEW through AS TABLE live; UPDATE through SET n = n$s$),
        ('FOR UPDATE', $s$CREATE TEMP TABLE t AS SELECT * FROM live FOR UPDATE$s$)
    LOOP
        BEGIN
            EXECUTE statement;
            RAISE EXCEPTION USING ERRCODE = 'GUARD';
        EXCEPTION
            WHEN SQLSTATE 'GUARD' THEN result = concat_ws(', ', result, way);
            WHEN object_not_in_prerequisite_state THEN
                IF SQLERRM !~ 'is maintained by dailyrollup' THEN
                    result = concat_ws(', ', result, way || ': ' || SQLERRM);
                END IF;
        END;
    END LOOP;
    RETURN what || ': ' || coalesce(result, '');
END $$;
SELECT writes('off, left to others');
SELECT rollup_recompute('live');
SELECT writes('recomputed');
SELECT rollup_alter('live', mode => 'shadow');
CALL rollup_run();
SELECT refresh('live');
SELECT writes('shadow, left to others');
BEGIN;
SELECT rollup_recompute('live');
SELECT rollup_alter('live', fold => true);
SELECT writes('before the commit');
COMMIT;
SELECT writes('shadow, folded'), status('live'), exact('live');
SELECT rollup_alter('live', mode => 'on');
CALL rollup_run();
SELECT writes('on'), exact('live');
SELECT rollup_alter('live', mode => 'off');
CALL rollup_run();
SELECT writes('off, folded'), exact('live');
TRUNCATE readings;
SELECT writes('new'), exact('live');
INSERT INTO readings SELECT 'car' || i % 3, 'speed', timestamptz '2026-01-01 08:00Z' + i * interval '3 hours', i FROM generate_series(0, 19) i;
CALL rollup_run();
SELECT writes('off, folded'), exact('live');
SELECT rollup_alter('live', fold => false);
SELECT writes('off, left to others again');
BEGIN;
SELECT rollup_recompute('live');
SELECT rollup_alter('live', fold => true);
ROLLBACK;
SELECT writes('off, left to others again');
SELECT rollup_alter('live', mode => 'on');
CALL rollup_run();
SELECT refresh('live');
SELECT rollup_alter('live', fold => false, mode => 'off');
SELECT writes('on, to be left to others'), status('live');
CALL rollup_run();
SELECT writes('off, left to others'), status('live');
SELECT count(*) FROM rollup_verify('live');
-- in state on nobody but the refresh writes, byte for byte
SELECT rollup_alter('live', mode => 'on');
CALL rollup_run();
SELECT refresh('live');
CREATE TABLE frozen AS SELECT ctid AS place, xmin::text AS writer, xmax::text AS locker, l.* FROM live l;
INSERT INTO readings VALUES ('car1', 'speed', '2026-01-01', 1), ('car3', 'speed', '2026-01-01', 1), ('car1', 'speed', '2026-01-05', 1);
UPDATE readings SET v = v + 1 WHERE car = 'car0';
DELETE FROM readings WHERE car = 'car2';
SET dailyrollup.backfill = on;
INSERT INTO readings VALUES ('car1', 'speed', '2026-01-01', 1);
RESET dailyrollup.backfill;
SELECT rollup_flush('live'), rollup_fold();
SELECT count(*) FROM (SELECT ctid AS place, xmin::text AS writer, xmax::text AS locker, l.* FROM live l EXCEPT TABLE frozen) d;
SELECT exact('live');
SELECT refresh('live'), exact('live');

\echo ==== The guard, inside our own statements
SELECT rollup_alter('live', mode => 'off');
CALL rollup_run();
SELECT exact('live');
-- a trigger of live that writes to live, when a writer's transaction is folded, and when all is recomputed
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE adopt.live SET total = 0 WHERE car = NEW.car; RETURN NULL; END $$;
CREATE TRIGGER meddle AFTER INSERT OR UPDATE ON live FOR EACH ROW EXECUTE FUNCTION meddle();
INSERT INTO readings VALUES ('car1', 'speed', '2026-01-02', 1);
\echo :SQLSTATE
BEGIN;
SELECT format('ALTER TABLE live DISABLE TRIGGER dailyrollup_%s_guard; UPDATE live SET n = 0; ALTER TABLE live ENABLE ALWAYS TRIGGER dailyrollup_%s_guard', id, id) AS spoil FROM dailyrollup.rollups \gset
ALTER TABLE live DISABLE TRIGGER meddle;
:spoil;
ALTER TABLE live ENABLE TRIGGER meddle;
SELECT try($$SELECT rollup_recompute('live')$$);
ROLLBACK;
BEGIN;
INSERT INTO readings VALUES ('car1', 'speed', '2026-01-02', 1);
SELECT rollup_fold();
\echo :SQLSTATE
ROLLBACK;
SELECT exact('live');
-- one that only looks, or writes elsewhere, even to the source
CREATE TABLE seen (car text, n bigint);
CREATE OR REPLACE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO adopt.seen SELECT NEW.car, count(*) FROM adopt.live;
    -- an attempt that is taken back does not close the guard to those who may
    BEGIN
        DELETE FROM adopt.live;
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
    END;
    IF NEW.n % 5 = 0 THEN
        INSERT INTO adopt.readings VALUES (NEW.car, 'fives', '2026-01-02', 1);
    END IF;
    RETURN NULL;
END $$;
INSERT INTO readings SELECT 'car1', 'speed', '2026-01-02', i FROM generate_series(1, 5) i;
INSERT INTO readings SELECT 'car3', 'speed', '2026-01-02', i FROM generate_series(1, 5) i;
UPDATE readings SET signal = 'fresh' WHERE car = 'car1' AND v = 5;
SELECT exact('live'), count(*) > 0 FROM seen;
SELECT car, signal, n FROM live ORDER BY car, signal;
-- after such a statement the guard is as strict as before
INSERT INTO readings VALUES ('car1', 'speed', '2026-01-02', 1);
SELECT writes('off, folded');
BEGIN;
INSERT INTO readings VALUES ('car1', 'speed', '2026-01-02', 1);
SELECT rollup_fold();
SELECT writes('off, folded');
SAVEPOINT s;
SELECT try($$SELECT rollup_promote('live')$$);
SELECT writes('off, folded');
ROLLBACK TO s;
SELECT writes('off, folded');
COMMIT;
-- nor does a statement of ours that fails leave it open
CREATE OR REPLACE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE division_by_zero; END $$;
BEGIN;
INSERT INTO readings VALUES ('car1', 'speed', '2026-01-02', 1);
SELECT try('SELECT rollup_fold()');
SELECT writes('off, folded');
COMMIT;
DO $$
BEGIN
    INSERT INTO readings VALUES ('car1', 'speed', '2026-01-02', 1);
    PERFORM rollup_fold();
EXCEPTION WHEN division_by_zero THEN
    UPDATE live SET n = 0;
END $$;
\echo :SQLSTATE
DROP TRIGGER meddle ON live;
SELECT writes('off, folded'), exact('live');
SELECT rollup_drop('live', true);

\echo ==== The unique index: one is made where live has none that keeps it at a row a key
CREATE FUNCTION indexed(VARIADIC statements text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    statement text; result text;
BEGIN
    CREATE TABLE live (car text, signal text, n bigint, total bigint, seen timestamptz, other int);
    FOREACH statement IN ARRAY statements LOOP
        EXECUTE statement;
    END LOOP;
    PERFORM make();
    PERFORM rollup_recompute('live');
    result = try($s$SELECT rollup_alter('adopt.live', fold => true)$s$);
    IF result = 'ok' THEN
        INSERT INTO readings VALUES ('car1', 'speed', '2026-01-02', 1), ('car9', 'place', '2026-01-02', 1);
        INSERT INTO readings SELECT 'car9', NULL, '2026-01-02', 1 FROM pg_attribute WHERE attrelid = 'live'::regclass AND attname = 'signal' AND NOT attnotnull;
        PERFORM rollup_fold();
        result = exact('live');
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'INDEX',
        MESSAGE = concat_ws(E'\n    ', result, (SELECT string_agg(substr(pg_get_indexdef(indexrelid), strpos(pg_get_indexdef(indexrelid), 'USING')), E'\n    ' ORDER BY indexrelid)
                                                FROM pg_index WHERE indrelid = 'live'::regclass));
EXCEPTION WHEN SQLSTATE 'INDEX' THEN
    RETURN SQLERRM;
END $$;
-- it has one
SELECT indexed('CREATE UNIQUE INDEX ON live (car, signal) NULLS NOT DISTINCT');
SELECT indexed('CREATE UNIQUE INDEX ON live (signal DESC, car) INCLUDE (n) NULLS NOT DISTINCT');
SELECT indexed('ALTER TABLE live ALTER car SET NOT NULL, ALTER signal SET NOT NULL', 'ALTER TABLE live ADD PRIMARY KEY (car, signal)', 'DELETE FROM readings WHERE car IS NULL OR signal IS NULL');
SELECT indexed('ALTER TABLE live ADD UNIQUE NULLS NOT DISTINCT (car, signal)');
-- it has none
SELECT indexed(VARIADIC '{}');
SELECT indexed('CREATE INDEX ON live (car, signal)');
SELECT indexed('CREATE UNIQUE INDEX ON live (car, signal)');
SELECT indexed('CREATE UNIQUE INDEX ON live (car, signal, n) NULLS NOT DISTINCT');
SELECT indexed('CREATE UNIQUE INDEX ON live (car, signal) NULLS NOT DISTINCT WHERE n > 0');
SELECT indexed('CREATE UNIQUE INDEX ON live (lower(car), signal) NULLS NOT DISTINCT');
SELECT indexed('CREATE UNIQUE INDEX ON live (car COLLATE "C", signal) NULLS NOT DISTINCT');
SELECT indexed('CREATE UNIQUE INDEX ON live (car text_pattern_ops, signal) NULLS NOT DISTINCT');
SELECT indexed('CREATE UNIQUE INDEX ON live (signal, car, signal) NULLS NOT DISTINCT');
-- one that keeps less than a row a key
SELECT indexed('CREATE UNIQUE INDEX ON live (signal, signal) NULLS NOT DISTINCT', 'DELETE FROM readings WHERE car <> ''car1''');

\echo ==== A promote that the table does not allow
TRUNCATE readings;
INSERT INTO readings SELECT 'car' || i % 3, 'speed', timestamptz '2026-01-01 08:00Z' + i * interval '3 hours', NULLIF(i % 3, 0) FROM generate_series(0, 19) i;
CREATE TABLE live (car text, signal text, n bigint, total bigint NOT NULL, seen timestamptz, note text DEFAULT 'new', CHECK (n < 100));
INSERT INTO live VALUES ('car1', 'speed', 5, 0, '2026-01-01', 'kept'), ('car1', 'speed', 5, 0, '2026-01-01', 'surplus'), ('car1', 'speed', 6, 0, '2026-01-01', 'surplus'), ('gone', 'speed', 1, 1, NULL, 'gone');
SELECT make(mode => 'shadow');
CALL rollup_run();
SELECT refresh('live');
RESET client_min_messages;
SELECT rollup_alter('live', mode => 'on');
CALL rollup_run();
\echo :SQLSTATE
SELECT status('live'), exact('live');
SELECT * FROM live ORDER BY car, n, note;
SELECT action, outcome, reason FROM rollup_runs WHERE rollup = 'live'::regclass ORDER BY id;
SELECT * FROM rollup_promote();
\echo :SQLSTATE
SELECT status('live'), exact('live');
ALTER TABLE live ALTER COLUMN total DROP NOT NULL;
SELECT * FROM rollup_promote();
SELECT status('live'), exact('live');
SELECT * FROM live ORDER BY car;
SELECT * FROM rollup_check('live');
SELECT count(*) FROM rollup_verify('live');
-- a table that allows no NULL key: a new NULL key stops the refresh, not its writers; the view shows it
ALTER TABLE live ALTER COLUMN signal SET NOT NULL;
INSERT INTO readings VALUES ('car1', NULL, '2026-01-02', 1);
SELECT try($$SELECT refresh('adopt.live')$$);
SELECT exact('live');
ALTER TABLE live ALTER COLUMN signal DROP NOT NULL;
SELECT refresh('live'), exact('live');
-- nor more than a hundred
INSERT INTO readings SELECT 'car2', 'speed', '2026-01-02', 1 FROM generate_series(1, 100);
SELECT split_part(try($$SELECT refresh('adopt.live')$$), E'\n', 1);
ALTER TABLE live DROP CONSTRAINT live_n_check;
SELECT refresh('live'), exact('live');
SELECT rollup_drop('live', true);

SET client_min_messages = warning;
SET search_path = public;
DROP SCHEMA adopt CASCADE;
SELECT count(*) FROM dailyrollup.rollups;
SELECT relname FROM pg_class WHERE relnamespace = 'dailyrollup'::regnamespace AND relname ~ '_[0-9]+$';
