-- Content: settings, renames, collations, long keys, keys that become NOT NULL,
-- seeds over what others refer to.  Each section names what it protects.
\ir lib/begin.sql

SELECT no_plan();

CREATE SCHEMA aw;
CREATE SCHEMA aw_helpers;
SET search_path = aw_helpers, public;
\ir lib/roles.sql
-- Is the view exact, is all of it, by the oracle?
CREATE FUNCTION aw_helpers.view_exact(rollup regclass) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  same boolean;
BEGIN
  EXECUTE format('SELECT NOT EXISTS ((TABLE %1$s EXCEPT ALL (%2$s)) UNION ALL ((%2$s) EXCEPT ALL TABLE %1$s))',
                 (SELECT s.current_view FROM public.rollup_status s WHERE s.rollup = view_exact.rollup), public.rollup_definition(rollup))
  INTO same;
  RETURN same;
END $$;

-- ==== Settings of the session.  Constants of a definition are printed, and read
-- again, maybe much later when a kept plan is made anew: neither the settings
-- at the creation nor later ones change what they say.  Protects print_exactly
-- in identity.c and definition_text in check.c.

-- A rollup made with some settings and kept with others.  The predicate is its
-- key, so a mark depends on it too; "hits" of the values make it true.
CREATE FUNCTION pinned(type text, predicate text, vals text[], hits bigint, made_with text, kept_with text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  what text := format('%s, made with %s, kept with %s', predicate, made_with, kept_with);
  hit text;
BEGIN
  BEGIN
    EXECUTE format('CREATE TABLE aw.s (t timestamptz NOT NULL, v %s)', type);
    EXECUTE 'SET LOCAL ' || replace(made_with, '; ', '; SET LOCAL ');
    PERFORM rollup_create('aw.l', format('SELECT %s AS k, count(*) AS n, count(*) FILTER (WHERE %1$s) AS m, latest(v %2$s, t) AS v, max(t) AS mt FROM aw.s WHERE (%1$s) IS NOT NULL OR v IS NOT NULL GROUP BY 1',
                                         predicate, CASE WHEN type = 'text' THEN 'COLLATE "C"' ELSE '' END), 't', mode => 'on');
    EXECUTE format('INSERT INTO aw.s SELECT timestamptz ''2026-01-01 00:00Z'', x::%s FROM unnest($1) x', type) USING vals;
    PERFORM rollup_refresh('aw.l', '2026-01-03 00:00Z');
    EXECUTE format('INSERT INTO aw.s SELECT timestamptz ''2026-01-02 00:00Z'', x::%s FROM unnest($1) x', type) USING vals;
    PERFORM * FROM aw.l_current;

    DISCARD PLANS;
    EXECUTE 'SET LOCAL ' || replace(kept_with, '; ', '; SET LOCAL ');
    EXECUTE format('INSERT INTO aw.s SELECT timestamptz ''2026-01-02 00:00Z'', x::%s FROM unnest($1) x', type) USING vals;
    hit := (SELECT sum(m) || ' ' || (SELECT coalesce(sum(m), 0) FROM aw.l_current WHERE NOT coalesce(k, false)) FROM aw.l_current);
    PERFORM rollup_refresh('aw.l', '2026-01-03 00:00Z');
    hit := hit || ', ' || (SELECT sum(m) || ' ' || coalesce(sum(m) FILTER (WHERE NOT coalesce(k, false)), 0) FROM aw.l);
    EXECUTE format('INSERT INTO aw.s SELECT timestamptz ''2026-01-03 00:00Z'', x::%s FROM unnest($1) x', type) USING vals;
    PERFORM rollup_refresh('aw.l', '2026-01-04 00:00Z');
    hit := hit || ', ' || (SELECT sum(m) || ' ' || coalesce(sum(m) FILTER (WHERE NOT coalesce(k, false)), 0) FROM aw.l);
    IF EXISTS (SELECT FROM rollup_verify('aw.l')) THEN
      hit := hit || ', differs';
    END IF;

    -- in a session like any other
    SET LOCAL extra_float_digits = 1; SET LOCAL datestyle = 'ISO, MDY'; SET LOCAL intervalstyle = 'postgres'; SET LOCAL array_nulls = on;
    SET LOCAL timezone = 'UTC'; SET LOCAL transform_null_equals = off; SET LOCAL standard_conforming_strings = on; SET LOCAL bytea_output = 'hex';
    DISCARD PLANS;
    IF EXISTS (SELECT FROM rollup_verify('aw.l')) OR NOT exact('aw.l') THEN
      hit := hit || ', differs by the usual settings';
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'P0099';
  EXCEPTION WHEN SQLSTATE 'P0099' THEN NULL;
  WHEN OTHERS THEN hit := SQLSTATE || ' ' || SQLERRM;
  END;
  RETURN NEXT is(hit, format('%s 0, %1$s 0, %s 0', 3 * hits, 4 * hits), what);
END $$;

-- with the digits that are needed, and some of the old default
SELECT pinned('float8', $$v > '0.12345678901234567'::float8$$, '{0.12345678901234567,0.123456789012345,0.12345678901234571}', 1, made, kept)
FROM unnest('{extra_float_digits = 0,extra_float_digits = -3,extra_float_digits = -15,extra_float_digits = 1}'::text[]) made,
     unnest('{extra_float_digits = 0,extra_float_digits = -15,extra_float_digits = 3}'::text[]) kept;
SELECT pinned('float4', $$v >= '0.12345679'::float4$$, '{0.12345679,0.123457,0.1234567}', 2, 'extra_float_digits = -3', 'extra_float_digits = 0');
SELECT pinned('float8', $$v = ANY ('{0.12345678901234567,1}'::float8[])$$, '{0.12345678901234567,0.123456789012346,1}', 2, 'extra_float_digits = -3', 'extra_float_digits = 0');
-- dates, by day or month first, with the abbreviation of a zone
SELECT pinned('timestamptz', $$v >= '2026-01-01 00:00+00'::timestamptz$$, '{2025-12-31 23:59:59+00,2026-01-01 00:00:00+00,2026-01-01 02:00:00+00,2026-01-01 12:00:00+00}', 3,
              format('datestyle = %s; timezone = %L', style, zone), kept)
FROM unnest('{"''Postgres, DMY''","''SQL, DMY''","''German''"}'::text[]) style, unnest('{Asia/Kolkata,Asia/Shanghai}'::text[]) zone,
     unnest('{"datestyle = ''Postgres, MDY''; timezone = ''Asia/Kolkata''","datestyle = ''ISO''; timezone = ''Australia/Sydney''"}'::text[]) kept;
SELECT pinned(type, format('v >= ''2026-02-03''::%s', type), '{2026-01-31,2026-02-03,2026-02-28,2026-03-02}', 3, made, kept)
FROM unnest('{date,timestamp}'::text[]) type, unnest('{"datestyle = ''SQL, DMY''","datestyle = ''Postgres, DMY''"}'::text[]) made,
     unnest('{"datestyle = ''SQL, MDY''","datestyle = ''Postgres, MDY''"}'::text[]) kept;
SELECT pinned('interval', $$v >= 'P-1DT-2H'::interval$$, '{P-1DT-3H,P-1DT-2H,P-1DT2H,P1D}', 3, made, kept)
FROM unnest('{"intervalstyle = ''sql_standard''","intervalstyle = ''postgres''","intervalstyle = ''iso_8601''"}'::text[]) made,
     unnest('{"intervalstyle = ''sql_standard''","intervalstyle = ''postgres''"}'::text[]) kept;
SELECT pinned('interval', $$v >= 'P1Y-2M-3DT4H'::interval$$, '{P9M,P10M,P1Y}', 2, 'intervalstyle = ''sql_standard''', 'intervalstyle = ''postgres''');
-- strings with what a backslash, a quote or NULL may mean
SELECT pinned('text', $$v IN (E'a\\b', E'\\', E'it''s\\n')$$, ARRAY[E'a\\b', E'\\', E'it''s\\n', E'a\\\\b', E'ab', E'a\b'], 3, made, kept)
FROM unnest('{standard_conforming_strings = on,standard_conforming_strings = off}'::text[]) made, unnest('{standard_conforming_strings = on,standard_conforming_strings = off}'::text[]) kept;
SELECT pinned('bytea', $$v = decode('5c27', 'hex') OR v = E'\\x5c5c'::bytea$$, ARRAY[E'\\x5c27', E'\\x5c5c', E'\\x5c'], 2, 'bytea_output = ''escape''; standard_conforming_strings = off', 'bytea_output = ''hex''');
SELECT pinned('text', $$coalesce(v = ANY ('{NULL,x}'::text[]), false)$$, '{"NULL",x,y}', 1, made, kept)
FROM unnest('{array_nulls = on}'::text[]) made, unnest('{array_nulls = off,array_nulls = on}'::text[]) kept;
SELECT pinned('int', '(v = NULL) IS NULL', '{1,2}', 2, made, kept) FROM unnest('{transform_null_equals = off}'::text[]) made, unnest('{transform_null_equals = on}'::text[]) kept;
SELECT pinned('int', 'CASE v WHEN 1 THEN true ELSE (v = NULL::int) IS NULL END', '{1,2}', 2, 'transform_null_equals = on', 'transform_null_equals = off');
SELECT pinned('int', 'v > 1', '{1,2}', 1, 'quote_all_identifiers = on', 'quote_all_identifiers = off');
-- what the definition shows is what was asked for
BEGIN;
CREATE TABLE aw.s (k text NOT NULL, t timestamptz NOT NULL, f float8, i interval);
SET LOCAL timezone = 'Asia/Kolkata'; SET LOCAL datestyle = 'Postgres'; SET LOCAL extra_float_digits = -3; SET LOCAL intervalstyle = 'sql_standard';
SELECT rollup_create('aw.l', $$SELECT k, count(*) FILTER (WHERE k <> E'a\\b') AS m, count(*) FILTER (WHERE t >= '2026-01-01 00:00+00'::timestamptz AND f > '0.12345678901234567'::float8 AND i > 'P-1DT-2H'::interval) AS n FROM aw.s GROUP BY k$$,
                     't', mode => 'on');
SELECT isnt(strpos(rollup_definition('aw.l'), shows), 0, 'the definition shows ' || shows)
FROM unnest('{2026-01-01 00:00:00+00,0.12345678901234566,-1 days -02:00:00}'::text[]) shows;
SELECT rollup_definition('aw.l') AS definition \gset
SET LOCAL standard_conforming_strings = off; SET LOCAL datestyle = 'German'; SET LOCAL extra_float_digits = 0; SET LOCAL intervalstyle = 'iso_8601'; SET LOCAL bytea_output = 'escape';
SELECT is(rollup_definition('aw.l'), :'definition'::text, 'whatever the settings');
ROLLBACK;

-- ==== Renames of what a definition uses, in a session that has kept its plans.
-- Protects the callbacks of dr_plans_init in plans.c, and column_renamed in ddl.c.
CREATE SCHEMA lake;
CREATE FUNCTION lake.f(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT upper($1)';
CREATE FUNCTION lake.near(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN abs($1 - $2) < 2; END';
CREATE OPERATOR lake.=~ (LEFTARG = int, RIGHTARG = int, FUNCTION = lake.near);
CREATE TYPE lake.kind AS ENUM ('one', 'two');
CREATE DOMAIN lake.small AS int CHECK (value < 1000);
CREATE COLLATION lake.coll FROM "C";
CREATE AGGREGATE lake.unused(int) (SFUNC = int4pl, STYPE = int);
CREATE TABLE lake.other (n int);
CREATE TABLE lake.s (k text NOT NULL, t timestamptz NOT NULL, v int, d lake.small, kind lake.kind);
SELECT rollup_create('lake.l', $$SELECT lake.f(k) AS k, (k COLLATE lake.coll) || '' AS c, kind, count(*) AS n, count(*) FILTER (WHERE v OPERATOR(lake.=~) 1) AS near,
                                        max(v::lake.small) AS m, count(*) FILTER (WHERE kind = 'one'::lake.kind) AS ones,
                                        count(*) FILTER (WHERE v <> 'lake.other'::regclass::oid::int) AS others FROM lake.s GROUP BY 1, 2, 3$$, 't', mode => 'on');
INSERT INTO lake.s VALUES ('a', '2026-01-01', 1, 1, 'one');
SELECT rollup_refresh('lake.l', '2026-01-03 00:00Z');
CREATE FUNCTION kept(source text, live text, what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  fails text;
BEGIN
  -- as at the end of a pooled session: what is kept is parsed again
  DISCARD PLANS;
  fails := nullif(try(format($s$INSERT INTO %s VALUES ('a', '2026-01-01', 1, 1, 'two')$s$, source)), 'ok');
  RETURN NEXT is(fails, NULL, what || ': a late row');
  RETURN NEXT is(try(format('SELECT * FROM %s_current', live)), 'ok', what || ': is read');
  RETURN NEXT is(try(format('UPDATE %s SET v = v + 1', source)), 'ok', what || ': is changed');
  RETURN NEXT is(try(format('SELECT rollup_refresh(%L, ''2026-01-03 00:00Z'')', live)), 'ok', what || ': is refreshed');
  RETURN NEXT is(try(format('SELECT 1 / exact(%L)::int', live)), 'ok', what || ': exactly');
END $$;
SELECT kept('lake.s', 'lake.l', 'before');
SELECT kept('lake.s', 'lake.l', 'kept');
ALTER FUNCTION lake.f RENAME TO g;
SELECT kept('lake.s', 'lake.l', 'a function renamed');
ALTER FUNCTION lake.near RENAME TO near2;
SELECT kept('lake.s', 'lake.l', 'a function of an operator renamed');
ALTER OPERATOR lake.=~ (int, int) SET SCHEMA aw;
SELECT kept('lake.s', 'lake.l', 'an operator moved');
ALTER FUNCTION lake.g SET SCHEMA aw;
SELECT kept('lake.s', 'lake.l', 'a function moved');
ALTER TYPE lake.kind RENAME TO sort;
SELECT kept('lake.s', 'lake.l', 'a type renamed');
ALTER TYPE lake.sort SET SCHEMA aw;
SELECT kept('lake.s', 'lake.l', 'a type moved');
ALTER TYPE aw.sort RENAME VALUE 'one' TO 'eins';
SELECT kept('lake.s', 'lake.l', 'a value of an enum renamed');
ALTER DOMAIN lake.small RENAME TO tiny;
SELECT kept('lake.s', 'lake.l', 'a domain renamed');
ALTER COLLATION lake.coll RENAME TO coll2;
SELECT kept('lake.s', 'lake.l', 'a collation renamed');
ALTER COLLATION lake.coll2 SET SCHEMA aw;
SELECT kept('lake.s', 'lake.l', 'a collation moved');
ALTER TABLE lake.l RENAME COLUMN n TO "Number";
SELECT kept('lake.s', 'lake.l', 'a measure renamed');
ALTER TABLE lake.l RENAME k TO key;
SELECT kept('lake.s', 'lake.l', 'a key renamed');
ALTER TABLE lake.l RENAME "Number" TO m2;
ALTER TABLE lake.l RENAME m2 TO n;
SELECT kept('lake.s', 'lake.l', 'renamed back');
ALTER TABLE lake.s RENAME COLUMN v TO "V";
ALTER TABLE lake.s RENAME COLUMN "V" TO v;
SELECT kept('lake.s', 'lake.l', 'a column of the source renamed and back');
ALTER TABLE lake.s RENAME TO source;
SELECT kept('lake.source', 'lake.l', 'the source renamed');
ALTER TABLE lake.l RENAME TO live;
ALTER VIEW lake.l_current RENAME TO live_current;
SELECT kept('lake.source', 'lake.live', 'live renamed');
ALTER SCHEMA lake RENAME TO lake2;
SELECT kept('lake2.source', 'lake2.live', 'the schema renamed');
ALTER SCHEMA aw RENAME TO aw2;
SELECT kept('lake2.source', 'lake2.live', 'the schema of functions and types renamed');
ALTER SCHEMA aw2 RENAME TO aw;
-- in one transaction, and taken back
BEGIN;
ALTER FUNCTION aw.g RENAME TO h;
SELECT kept('lake2.source', 'lake2.live', 'renamed in a transaction');
ROLLBACK;
SELECT kept('lake2.source', 'lake2.live', 'which is rolled back');
SELECT rollup_drop('lake2.live');
DROP SCHEMA lake2 CASCADE;
DROP FUNCTION aw.g;
DROP TYPE aw.sort;
DROP COLLATION aw.coll2;

-- ==== latest and the time that it needs compare by one collation.  Protects
-- check_collation in measure.c.
SELECT EXISTS (SELECT FROM pg_collation WHERE collname = 'en-x-icu') AS icu \gset
\if :icu
CREATE TABLE aw.c (k int NOT NULL, t timestamptz NOT NULL, plain text, c text COLLATE "C", en text COLLATE "en-x-icu", v int, vc text COLLATE "C", ven text COLLATE "en-x-icu", vplain text);
CREATE FUNCTION collated(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  same bool;
BEGIN
  TRUNCATE aw.c;
  PERFORM rollup_create('aw.l', query, 't', mode => 'on');
  -- the greatest of the first day is another one by "C" than by "en-x-icu"
  INSERT INTO aw.c SELECT 1, '2026-01-01', l, l, l, i, 'v' || i, 'v' || i, 'v' || i FROM (VALUES (1, 'a'), (2, 'B')) x(i, l);
  PERFORM rollup_refresh('aw.l', '2026-01-02 00:00Z');
  INSERT INTO aw.c SELECT 1, '2026-01-02', l, l, l, i, 'v' || i, 'v' || i, 'v' || i FROM (VALUES (3, 'Z')) x(i, l);
  same := view_exact('aw.l');
  PERFORM rollup_refresh('aw.l', '2026-01-03 00:00Z');
  same := same AND exact('aw.l');
  INSERT INTO aw.c SELECT 1, '2026-01-02', l, l, l, i, 'v' || i, 'v' || i, 'v' || i FROM (VALUES (4, 'b'), (5, 'y')) x(i, l);
  INSERT INTO aw.c SELECT 1, '2026-01-03', l, l, l, i, 'v' || i, 'v' || i, 'v' || i FROM (VALUES (6, 'X')) x(i, l);
  same := same AND view_exact('aw.l');
  PERFORM rollup_refresh('aw.l', '2026-01-04 00:00Z');
  same := same AND exact('aw.l');
  PERFORM rollup_drop('aw.l', true);
  RETURN CASE WHEN same THEN 'exact' ELSE 'differs' END;
EXCEPTION WHEN OTHERS THEN
  RETURN SQLSTATE;
END $$;
SELECT is(collated(format('SELECT k, %s(%s, %s) AS v, %s(%s) AS m FROM aw.c GROUP BY k', winner, value, at, CASE winner WHEN 'latest' THEN 'max' ELSE 'min' END, column_of)), result,
          format('%s(%s, %s) with max or min(%s)', winner, value, at, column_of))
FROM unnest('{latest,earliest}'::text[]) winner, (VALUES
  -- refused: the value brings a collation that max does not know
  ('ven', 'plain', 'plain', '0A000'), ('vc', 'plain', 'plain', '0A000'), ('v::text COLLATE "en-x-icu"', 'plain', 'plain', '0A000'),
  -- two at once
  ('vc', 'en', 'en', '42P22'), ('ven', 'c', 'c', '42P22'),
  -- one, of time or value or of all
  ('vplain', 'en', 'en', 'exact'), ('vplain', 'plain', 'plain', 'exact'), ('ven', 'en', 'en', 'exact'), ('vc', 'c', 'c', 'exact'),
  ('v', 'en', 'en', 'exact'), ('v', 'c', 'c', 'exact'), ('ven', 'plain COLLATE "en-x-icu"', 'plain COLLATE "en-x-icu"', 'exact'),
  ('vplain', 'plain COLLATE "en-x-icu"', 'plain COLLATE "en-x-icu"', 'exact'), ('ven', 't', 't', 'exact')) x(value, at, column_of, result);
SELECT isnt(collated('SELECT k, latest(vplain, plain COLLATE "en-x-icu") AS v, max(plain) AS m FROM aw.c GROUP BY k'), 'exact', 'the collation of the time is part of it');
DROP TABLE aw.c;
\endif

-- ==== Keys too long for an index: the writer of a late row does not notice, the
-- view shows them; the refresh says why it cannot take them.  Protects
-- dr_objects_create_marks in objects.c and dr_phrase_is_plain in phrase.c.
CREATE FUNCTION long_key(n int, seed text DEFAULT '') RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT string_agg(md5(seed || i), '') FROM generate_series(1, n / 32) i
$$;
CREATE FUNCTION long_keys(types text, keys text, value text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  found text;
  refreshed text;
BEGIN
  BEGIN
    EXECUTE format('CREATE TABLE aw.h (%s, t timestamptz NOT NULL, v int)', types);
    PERFORM rollup_create('aw.hl', format('SELECT %s, count(*) AS n, sum(v) AS total FROM aw.h GROUP BY %1$s', keys), 't', mode => 'on');
    PERFORM rollup_refresh('aw.hl', '2026-01-03 00:00Z');
    EXECUTE format('INSERT INTO aw.h SELECT %s, ''2026-01-01'', 1', replace(value, 'SEED', '1'));
    EXECUTE format('INSERT INTO aw.h SELECT %s, d, v FROM (VALUES (timestamptz ''2026-01-02'', 2), (''2026-01-05'', 4)) x(d, v)', replace(value, 'SEED', '1'));
    EXECUTE format('INSERT INTO aw.h SELECT %s, ''2026-01-02'', 8 FROM generate_series(1, 3)', replace(value, 'SEED', '2'));
    found := concat_ws(' ', (SELECT count(*) FROM rollup_late WHERE rollup = 'aw.hl'::regclass), (SELECT string_agg(n || ':' || total, ' ' ORDER BY n, total) FROM aw.hl_current));
    EXECUTE format('SELECT $1 || '' '' || (SELECT string_agg(total::text, '' '') FROM aw.hl_current WHERE (%s) = (SELECT %s))', keys, replace(value, 'SEED', '1')) INTO found USING found;
    refreshed := left(try('SELECT rollup_refresh(''aw.hl'', ''2026-01-03 00:00Z'')'), 40);
    UPDATE aw.h SET v = 1;
    DELETE FROM aw.h;
    INSERT INTO aw.h SELECT;
    RAISE EXCEPTION USING ERRCODE = 'P0099';
  EXCEPTION WHEN SQLSTATE 'P0099' OR not_null_violation THEN NULL;
  WHEN OTHERS THEN found := SQLSTATE || ' ' || SQLERRM;
  END;
  RETURN NEXT is(found, '2 3:7 3:24 7', format('a late row with a long key of %s', types));
  RETURN NEXT matches(refreshed, '^54000 index row (size|requires)', format('the refresh with a long key of %s', types));
END $$;
SELECT long_keys(types, keys, value) FROM (VALUES
  ('k text NOT NULL', 'k', 'long_key(10000, ''SEED'')'),
  ('k text', 'k', 'long_key(10000, ''SEED'')'),
  ('k varchar NOT NULL', 'k', 'long_key(100000, ''SEED'')'),
  ('k text COLLATE "C" NOT NULL', 'k', 'long_key(3000, ''SEED'')'),
  ('k bytea NOT NULL', 'k', 'long_key(10000, ''SEED'')::bytea'),
  ('k text[] NOT NULL', 'k', 'ARRAY[long_key(10000, ''SEED'')]'),
  ('k jsonb NOT NULL', 'k', 'jsonb_build_object(''a'', long_key(10000, ''SEED''))'),
  ('k numeric NOT NULL', 'k', '(''SEED'' || translate(long_key(10000, ''SEED''), ''abcdef'', ''123456''))::numeric'),
  ('a int NOT NULL, k text NOT NULL', 'a, k', '1, long_key(10000, ''SEED'')'),
  ('k text NOT NULL, b int, c text', 'k, b, c', 'long_key(10000, ''SEED''), 1, ''SEED'''),
  ('a text NOT NULL, k text NOT NULL', 'a, k', '''short'', long_key(10000, ''SEED'')'),
  ('a text NOT NULL, k text NOT NULL', 'a, k', 'long_key(1600, ''SEED''), long_key(1600, ''SEED'')')) v(types, keys, value);
-- when the row is gone the refresh goes on
CREATE TABLE aw.h (k text NOT NULL, t timestamptz NOT NULL, v int);
SELECT rollup_create('aw.hl', 'SELECT k, count(*) AS n FROM aw.h GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('aw.hl', '2026-01-03 00:00Z');
INSERT INTO aw.h VALUES (long_key(10000), '2026-01-01', 1), ('a', '2026-01-01', 1);
SELECT is(left(try('SELECT rollup_refresh(''aw.hl'', ''2026-01-04 00:00Z'')'), 5), '54000', 'a refresh that cannot');
SELECT is((SELECT string_agg(n::text, ' ') FROM aw.hl_current), '1 1', 'readers do not notice');
DELETE FROM aw.h WHERE length(k) > 1000;
SELECT is(try('SELECT rollup_refresh(''aw.hl'', ''2026-01-04 00:00Z'')'), 'ok', 'a refresh that can');
SELECT ok(exact('aw.hl'), 'exactly');
SELECT rollup_drop('aw.hl', true);
DROP TABLE aw.h;

-- ==== A seed writes the difference alone: tables that refer to live keep their
-- rows, and rows that do not change are not written.  Protects dr_change_replace in
-- change.c.
CREATE TABLE aw.s (k int, t timestamptz NOT NULL, v int);
INSERT INTO aw.s SELECT nullif(i, 0), timestamptz '2026-01-01 00:00Z' + i * interval '1 minute', i FROM generate_series(0, 50) i;
SELECT rollup_create('aw.l', 'SELECT k, count(*) AS n, sum(v) AS total, max(t) AS seen, latest(v, t) AS v FROM aw.s GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('aw.l', '2026-01-03 00:00Z');
CREATE TABLE aw.ref (k int REFERENCES aw.l (k) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE aw.strict (k int REFERENCES aw.l (k));
INSERT INTO aw.ref SELECT k FROM aw.l WHERE k IS NOT NULL;
INSERT INTO aw.strict SELECT 1;
CREATE TEMP TABLE before AS SELECT ctid AS was, xmin::text AS writer, * FROM aw.l;
CREATE FUNCTION written() RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(coalesce(l.k::text, 'NULL'), ' ' ORDER BY l.k) FROM aw.l l
  WHERE NOT EXISTS (SELECT FROM before b WHERE b.k IS NOT DISTINCT FROM l.k AND b.was = l.ctid AND b.writer = l.xmin::text)
$$;
SELECT is(written(), NULL, 'before');
SELECT rollup_reseed('aw.l');
SELECT is((SELECT action || ' ' || folded_keys FROM rollup_refresh('aw.l', '2026-01-03 00:00Z')), 'seed 51', 'a seed');
SELECT is(written(), NULL, 'that changes nothing writes no row');
SELECT ok(exact('aw.l'), 'exactly');
SELECT is((SELECT count(*) FROM aw.ref), 50::bigint, 'what refers to live is there');
TRUNCATE aw.s;
INSERT INTO aw.s SELECT nullif(i, 0), timestamptz '2026-01-01 00:00Z' + i * interval '1 minute', i FROM generate_series(0, 50) i WHERE i <> 7;
INSERT INTO aw.s VALUES (3, '2026-01-01', 100), (60, '2026-01-01', 1);
SELECT is((SELECT action FROM rollup_refresh('aw.l', '2026-01-03 00:00Z')), 'seed', 'a seed after TRUNCATE, with other rows');
SELECT is(written(), '3 60', 'writes the rows that differ');
SELECT ok(exact('aw.l'), 'exactly');
SELECT is((SELECT count(*) FROM aw.ref), 49::bigint, 'what refers to a key that is gone goes');
SELECT is((SELECT count(*) FROM aw.strict), 1::bigint, 'what keeps a key keeps it');
-- a row that somebody has put in, one that is spoilt, one that is missing
SELECT throws_ok('DELETE FROM aw.l WHERE k = 5', '55000', NULL, 'the guard refuses to');
SELECT format('dailyrollup_%s_guard', id) AS guard FROM dailyrollup.rollups WHERE live = 'aw.l'::regclass \gset
ALTER TABLE aw.l DISABLE TRIGGER :guard;
DELETE FROM aw.l WHERE k = 5;
UPDATE aw.l SET n = 99 WHERE k = 6;
INSERT INTO aw.l (k, n) VALUES (99, 1);
UPDATE aw.l SET seen = NULL WHERE k IS NULL;
SELECT rollup_reseed('aw.l');
SELECT is((SELECT action FROM rollup_refresh('aw.l', '2026-01-03 00:00Z')), 'seed', 'a seed over a table that was tampered with');
SELECT is(written(), '3 5 6 60 NULL', 'mends what differs');
SELECT ok(exact('aw.l'), 'exactly');
-- with a column of the user's
ALTER TABLE aw.l ADD COLUMN note text;
UPDATE aw.l SET note = 'kept' WHERE k = 1;
ALTER TABLE aw.l ENABLE ALWAYS TRIGGER :guard;
SELECT rollup_reseed('aw.l');
SELECT rollup_refresh('aw.l', '2026-01-03 00:00Z');
SELECT is((SELECT note FROM aw.l WHERE k = 1), 'kept', 'a column of the user''s is kept');
ALTER TABLE aw.l DROP COLUMN note;
-- equal values of another image count as different: 1.0 is written as 1.00
CREATE TABLE aw.n (k int NOT NULL, t timestamptz NOT NULL, v numeric);
INSERT INTO aw.n VALUES (1, '2026-01-01', 1.0), (2, '2026-01-01', 2.0);
SELECT rollup_create('aw.nl', 'SELECT k, max(v) AS v FROM aw.n GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('aw.nl', '2026-01-03 00:00Z');
TRUNCATE aw.n;
INSERT INTO aw.n VALUES (1, '2026-01-01', 1.00), (2, '2026-01-01', 2.0);
SELECT rollup_refresh('aw.nl', '2026-01-03 00:00Z');
SELECT is((SELECT string_agg(v::text, ' ' ORDER BY k) FROM aw.nl), '1.00 2.0', 'rows are compared by image');
SELECT rollup_drop('aw.nl', true);
DROP TABLE aw.n;

-- ==== No vacuum takes a lock that readers and writers wait for to give the end
-- of a file back.  Protects dr_objects_create_live and dr_objects_create_marks in
-- objects.c, and the install script.
SELECT ok('vacuum_truncate=off' = ANY (c.reloptions), format('vacuum_truncate of %s', regexp_replace(c.oid::regclass::text, '_\d+', '_N')))
FROM dailyrollup.rollups r JOIN pg_class c ON c.oid IN (r.live, r.marks, 'dailyrollup.rollups'::regclass) WHERE r.live = 'aw.l'::regclass;
SELECT is((SELECT count(*) FROM dailyrollup.rollups r JOIN pg_class c ON c.oid IN (r.live, r.marks, 'dailyrollup.rollups'::regclass)
           WHERE r.live = 'aw.l'::regclass AND 'vacuum_truncate=off' = ANY (c.reloptions)), 3::bigint, 'of live, marks and our own table');
SELECT ok('fillfactor=45' = ANY (reloptions), 'live has room for updates in place') FROM pg_class WHERE oid = 'aw.l'::regclass;

-- ==== A key that was NULL when it was counted: SET NOT NULL on the source does not
-- make live forget to look for it.  Protects dr_phrase_same_key in phrase.c where
-- it is asked about live and marks.
SELECT is((SELECT count(*) FROM aw.l WHERE k IS NULL), 1::bigint, 'a NULL key is there');
DELETE FROM aw.s WHERE k IS NULL;
ALTER TABLE aw.s ALTER k SET NOT NULL;
SELECT is_empty('SELECT * FROM aw.l_current WHERE k IS NULL', 'the view does not show it');
SELECT is((SELECT action || ' ' || late_keys FROM rollup_refresh('aw.l', '2026-01-03 00:00Z')), 'late 1', 'the refresh takes its mark');
SELECT is_empty('SELECT * FROM aw.l WHERE k IS NULL', 'and its row');
SELECT ok(exact('aw.l'), 'exactly');
SELECT is_empty($$SELECT * FROM rollup_verify('aw.l')$$, 'verified');
-- likewise where two of several keys are concerned, and by a seed
CREATE TABLE aw.two (a int, b text, t timestamptz NOT NULL, v int);
SELECT rollup_create('aw.twol', 'SELECT a, b, count(*) AS n FROM aw.two GROUP BY a, b', 't', mode => 'on');
INSERT INTO aw.two VALUES (NULL, NULL, '2026-01-01', 1), (NULL, 'x', '2026-01-01', 1), (1, NULL, '2026-01-01', 1), (1, 'x', '2026-01-01', 1);
SELECT rollup_refresh('aw.twol', '2026-01-03 00:00Z');
BEGIN;
DELETE FROM aw.two WHERE a IS NULL;
ALTER TABLE aw.two ALTER a SET NOT NULL;
SELECT rollup_refresh('aw.twol', '2026-01-03 00:00Z');
SELECT is((SELECT string_agg(concat(a, b), ' ' ORDER BY b) FROM aw.twol), '1x 1', 'one key NOT NULL');
SELECT ok(exact('aw.twol'), 'exactly');
DELETE FROM aw.two WHERE b IS NULL;
ALTER TABLE aw.two ALTER b SET NOT NULL;
SELECT ok((SELECT count(*) = 1 FROM aw.twol_current), 'the view');
SELECT rollup_refresh('aw.twol', '2026-01-03 00:00Z');
SELECT is((SELECT string_agg(concat(a, b), ' ' ORDER BY b) FROM aw.twol), '1x', 'both');
SELECT ok(exact('aw.twol'), 'exactly');
ROLLBACK;
ALTER TABLE aw.two DISABLE TRIGGER USER;
DELETE FROM aw.two WHERE a IS NULL;
ALTER TABLE aw.two ALTER a SET NOT NULL;
SELECT format('ALTER TABLE aw.two ENABLE ALWAYS TRIGGER %I', tgname) FROM pg_trigger WHERE tgrelid = 'aw.two'::regclass \gexec
SELECT is((SELECT count(*) FROM rollup_verify('aw.twol') WHERE class = 'missing_daily'), 2::bigint, 'verify finds what lost its rows without a mark');
SELECT rollup_reseed('aw.twol');
SELECT rollup_refresh('aw.twol', '2026-01-03 00:00Z');
SELECT ok(exact('aw.twol'), 'a seed removes it');
SELECT rollup_drop('aw.twol', true);
DROP TABLE aw.two, aw.ref, aw.strict;
SELECT rollup_drop('aw.l', true);
DROP TABLE aw.s;

-- ==== rollup_verify lets no infinite sum, and none that is no number, pass for
-- another.  Protects differs in compare.c.
CREATE TABLE aw.f (k int NOT NULL, t timestamptz NOT NULL, v8 float8, v4 float4);
INSERT INTO aw.f SELECT 1, '2026-01-01', 1, 1;
SELECT rollup_create('aw.fl', 'SELECT k, sum(v8) AS s8, sum(v4) AS s4 FROM aw.f GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('aw.fl', '2026-01-03 00:00Z');
SELECT is_empty($$SELECT * FROM rollup_verify('aw.fl')$$, 'verified');
SELECT format('ALTER TABLE aw.fl DISABLE TRIGGER dailyrollup_%s_guard', id) FROM dailyrollup.rollups WHERE live = 'aw.fl'::regclass \gexec
CREATE FUNCTION spoilt(col text, source text, live text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  BEGIN
    EXECUTE format('UPDATE aw.f SET %I = %L', 'v' || right(col, 1), source);
    PERFORM rollup_refresh('aw.fl', '2026-01-03 00:00Z');
    EXECUTE format('UPDATE aw.fl SET %I = %L', col, live);
    result := coalesce((SELECT class || ' ' || array_to_string(columns, ' ') FROM rollup_verify('aw.fl')), 'exact');
    RAISE EXCEPTION USING ERRCODE = 'P0099';
  EXCEPTION WHEN SQLSTATE 'P0099' THEN NULL;
  END;
  RETURN result;
END $$;
SELECT is(spoilt(col, source, live), CASE WHEN source IS NOT DISTINCT FROM live THEN 'exact' ELSE 'mismatch ' || col END, format('%s: %s is not %s', col, live, source))
FROM unnest('{s8,s4}'::text[]) col, unnest('{1,0,-1,Infinity,-Infinity,NaN,NULL}'::text[]) source, unnest('{1,0,-1,Infinity,-Infinity,NaN,NULL}'::text[]) live;
SELECT is(spoilt('s8', '1', '1.0000000000000002'), 'exact', 'rounding is no difference');
SELECT is(spoilt('s8', '1', '1.00001'), 'mismatch s8', 'more than rounding is one');
SELECT rollup_drop('aw.fl', true);
DROP TABLE aw.f;

SET search_path = public;
DROP SCHEMA aw, aw_helpers CASCADE;
SELECT is(count(*), 0::bigint, 'nothing is left') FROM dailyrollup.rollups r LEFT JOIN pg_class c ON c.oid = r.live WHERE c.oid IS NULL;
SELECT * FROM finish();
