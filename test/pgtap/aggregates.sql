-- latest(value, at) and earliest(value, at) against an oracle in plain SQL:
-- the first row by time, then value before NULL, then value, then image.
--
-- PGOPTIONS='-c dailyrollup_test.seed=0.3' tries other random data.
\ir lib/begin.sql

BEGIN;
SET LOCAL client_min_messages = warning;
SET LOCAL timezone = 'UTC';

SELECT no_plan();

DO $$ BEGIN
  PERFORM setseed(coalesce(nullif(current_setting('dailyrollup_test.seed', true), ''), '0.5')::float8);
END $$;

CREATE DOMAIN price AS numeric CHECK (VALUE < 1000);
CREATE DOMAIN stamp AS timestamptz;
CREATE DOMAIN words AS text[];
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE fix AS (lat numeric, lon float8, note text);
CREATE DOMAIN fix_domain AS fix;
CREATE TYPE no_order AS (n integer, doc json);

-- A table of random rows with many ties: 40 groups, 5 instants and NULL, the
-- values of the pool and NULL.
CREATE FUNCTION fill(value_type text, pool text[], time_type text, times text[], n integer)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DROP TABLE IF EXISTS stream;
  EXECUTE format('CREATE TABLE stream (g integer, part integer, v %s, at %s)', value_type, time_type);
  EXECUTE format(
    'INSERT INTO stream
     SELECT (random() * 39)::int, (random() * 4)::int,
            CASE WHEN random() < 0.9 THEN ($1[1 + floor(random() * cardinality($1))::int])::%s END,
            CASE WHEN random() < 0.9 THEN ($2[1 + floor(random() * cardinality($2))::int])::%s END
     FROM generate_series(1, $3)', value_type, time_type)
  USING pool, times, n;
END $$;

-- The oracle's choice as a table (g, v), group by group.  Rows have an image
-- order of their own; other values borrow that of a row of one column.  IS
-- DISTINCT FROM NULL, since IS NULL looks into rows.
CREATE FUNCTION oracle(latest boolean, is_row boolean) RETURNS text LANGUAGE sql AS $$
  SELECT format('SELECT DISTINCT ON (g) g, v FROM stream WHERE at IS DISTINCT FROM NULL
                 ORDER BY g, at %1$s, v IS NOT DISTINCT FROM NULL, v %1$s, %2$s USING OPERATOR(pg_catalog.*>)',
                CASE WHEN latest THEN 'DESC' ELSE 'ASC' END,
                CASE WHEN is_row THEN 'v' ELSE 'ROW(v)' END)
$$;

-- How many groups of two queries differ, by image, or exist on one side only.
CREATE FUNCTION differing(a text, b text, is_row boolean) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE result bigint;
BEGIN
  EXECUTE format(
    'SELECT count(*) FROM (%s) a FULL JOIN (%s) b USING (g)
     WHERE a.g IS NULL OR b.g IS NULL
        OR (a.v IS DISTINCT FROM NULL) <> (b.v IS DISTINCT FROM NULL)
        OR a.v IS DISTINCT FROM NULL AND NOT %s', a, b,
    CASE WHEN is_row THEN 'a.v OPERATOR(pg_catalog.*=) b.v'
         ELSE 'record_image_eq(ROW(a.v), ROW(b.v))' END)
  INTO result;
  RETURN result;
END $$;

-- One test for each of: the rows as they come, in random orders, merged from
-- random parts in random order.
CREATE FUNCTION agrees(label text, is_row boolean = false) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  agg text; the_time text; want text; bad bigint;
BEGIN
  FOR agg, the_time IN VALUES ('latest', 'max(at)'), ('earliest', 'min(at)') LOOP
    want := oracle(agg = 'latest', is_row);
    RETURN NEXT is(
      differing(want, format('SELECT g, %s(v, at) AS v FROM stream GROUP BY g HAVING count(at) > 0', agg), is_row),
      0::bigint, format('%s, %s: is what the oracle chooses', label, agg));
    bad := 0;
    FOR i IN 1 .. 4 LOOP
      bad := bad + differing(want, format(
        'SELECT g, %s(v, at ORDER BY random()) AS v FROM stream GROUP BY g HAVING count(at) > 0', agg), is_row);
    END LOOP;
    RETURN NEXT is(bad, 0::bigint, format('%s, %s: whatever the order of rows', label, agg));
    -- a time that has no max() is merged by latest(at, at)
    bad := differing(want, format(
      'SELECT g, %1$s(v, at ORDER BY random()) AS v
       FROM (SELECT g, %1$s(v, at ORDER BY random()) AS v, %1$s(at, at) AS at
             FROM stream GROUP BY g, part) parts
       GROUP BY g HAVING count(at) > 0', agg), is_row);
    RETURN NEXT is(bad, 0::bigint, format('%s, %s: however the rows are split', label, agg));
  END LOOP;
END $$;

CREATE FUNCTION property(value_type text, pool text[],
                         time_type text = 'timestamptz',
                         times text[] = '{-infinity,2026-08-07 10:00,2026-08-07 10:00:00.000001,2026-08-08,infinity}',
                         is_row boolean = false)
RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fill(value_type, pool, time_type, times, 1500);
  RETURN QUERY SELECT agrees(value_type || ' by ' || time_type, is_row);
END $$;

--
-- What the definition says, by hand
--
CREATE FUNCTION pick(agg text, rows text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
  EXECUTE format('SELECT %s(v, at)::text FROM (VALUES %s) x(v, at)', agg, rows) INTO result;
  RETURN result;
END $$;

SELECT is(pick('latest', $$(1, date '2026-01-01'), (2, '2026-01-03'), (3, '2026-01-02')$$), '2', 'latest: the greatest time');
SELECT is(pick('earliest', $$(2, date '2026-01-02'), (1, '2026-01-01'), (3, '2026-01-03')$$), '1', 'earliest: the least time');
SELECT is(pick('latest', $$(1, date '2026-01-01'), (NULL, '2026-01-03')$$), NULL, 'latest: a NULL value can win');
SELECT is(pick('earliest', $$(NULL, date '2026-01-01'), (1, '2026-01-03')$$), NULL, 'earliest: a NULL value can win');
SELECT is(pick('latest', $$(1, date '2026-01-01'), (2, NULL)$$), '1', 'latest: a NULL time never wins');
SELECT is(pick('earliest', $$(2, NULL), (1, date '2026-01-01')$$), '1', 'earliest: a NULL time never wins');
SELECT is(pick('latest', $$(1, NULL::date), (2, NULL)$$), NULL, 'latest: no time at all');
SELECT is(pick('latest', $$(1, date '2026-01-01'), (NULL, '2026-01-01')$$), '1', 'latest: a value wins against NULL');
SELECT is(pick('latest', $$(NULL, date '2026-01-01'), (1, '2026-01-01')$$), '1', 'latest: a value wins against NULL before it');
SELECT is(pick('earliest', $$(1, date '2026-01-01'), (NULL, '2026-01-01')$$), '1', 'earliest: a value wins against NULL');
SELECT is(pick('earliest', $$(NULL, date '2026-01-01'), (1, '2026-01-01')$$), '1', 'earliest: a value wins against NULL before it');
SELECT is(pick('latest', $$(1, date '2026-01-01'), (2, '2026-01-01')$$), '2', 'latest: the greater value at equal times');
SELECT is(pick('earliest', $$(2, date '2026-01-01'), (1, '2026-01-01')$$), '1', 'earliest: the less value at equal times');
SELECT is((SELECT latest(v, v) FROM (SELECT 1 WHERE false) x(v)), NULL, 'no row: NULL');
SELECT is(pg_typeof(latest(1::price, now()))::text, 'price', 'the result has the value''s type')
  FROM generate_series(1, 3);

-- equal values of different images: the greater one, in either aggregate
CREATE FUNCTION both_orders(agg text, a text, b text) RETURNS text LANGUAGE sql AS $$
  SELECT pick(agg, format('(%s, 1), (%s, 1)', a, b)) || ' ' || pick(agg, format('(%s, 1), (%s, 1)', b, a))
$$;
SELECT is(both_orders(agg, a, b), want || ' ' || want, format('%s: the image tells %s from %s', agg, a, b))
  FROM (VALUES ('latest'), ('earliest')) x(agg),
       LATERAL (VALUES
         ('1.0::numeric', '1.00::numeric',
          CASE WHEN record_image_gt(ROW(1.0), ROW(1.00)) THEN '1.0' ELSE '1.00' END),
         ('0::float8', '''-0''::float8', '-0'),
         ('0::float4', '''-0''::float4', '-0'),
         ('''a''::bpchar', '''a  ''::bpchar', 'a'),
         ('interval ''1 day''', 'interval ''24:00''',
          CASE WHEN record_image_gt(ROW(interval '1 day'), ROW(interval '24:00')) THEN '1 day' ELSE '24:00:00' END)
       ) y(a, b, want);

--
-- Properties, for kinds of values
--
SELECT property('integer', '{-1,0,1,2147483647}');
SELECT property('bigint', '{-1,0,9223372036854775807}');
SELECT property('smallint', '{-1,0,7}');
SELECT property('boolean', '{true,false}');
SELECT property('"char"', '{a,b}');
SELECT property('oid', '{1,4294967295}');
SELECT property('float8', '{0,-0,1.5,-1,NaN,Infinity}');
SELECT property('float4', '{0,-0,1.5,NaN}');
SELECT property('numeric', '{1,1.0,1.00,0,0.000,-1,NaN,Infinity,123456789012345678901234567890.5}');
SELECT property('price', '{1.0,1.00,2}');
SELECT property('text', '{"",a,A,b,"ä",abcdefghijklmnopqrstuvwxyz}');
SELECT property('varchar(3)', '{a,A,"b "}');
SELECT property('bpchar', '{a,"a ","a  ",b}');
SELECT property('bytea', '{"\\x","\\x00","\\x0001","\\xff"}');
SELECT property('name', '{a,abc}');
SELECT property('uuid', '{00000000-0000-0000-0000-000000000001,f0000000-0000-0000-0000-000000000000}');
SELECT property('interval', '{1 day,24:00,1 mon,30 days,720:00}');
SELECT property('timetz', '{10:00+00,11:00+01,12:00+00}');
SELECT property('timestamptz', '{2026-01-01,infinity}');
SELECT property('macaddr', '{08:00:2b:01:02:03,08:00:2b:01:02:04}');
SELECT property('inet', '{10.0.0.1,10.0.0.1/8,::1}');
SELECT property('bit varying', '{1,10,101}');
SELECT property('mood', '{sad,ok,happy}');
SELECT property('jsonb', '{"{}","{\"a\": 1}","{\"a\": 1.0}","[1]"}');
SELECT property('integer[]', '{"{}","{1,2}","{1,NULL}","[0:1]={1,2}","{{1,2}}"}');
SELECT property('numeric[]', '{"{1.0}","{1.00}","{1.0,2}","{1.00,2}"}');
SELECT property('words', '{"{a,b}","{a}","{}"}');
SELECT property('int4range', '{empty,"[1,3)","(,)","[2,)"}');
SELECT property('numrange', '{empty,"[1.0,3)","[1.00,3.0)","[1,3]","(,3)"}');
SELECT property('nummultirange', '{"{}","{[1.0,3)}","{[1.00,3)}","{[1,2),[3,4)}"}');
SELECT property('fix', '{"(1.0,0,a)","(1.00,0,a)","(1.0,-0,a)","(1.0,0,)","(,,)","(2,0,a)"}', is_row => true);
SELECT property('fix_domain', '{"(1.0,0,a)","(1.00,0,a)","(1.0,-0,a)","(,,b)"}', is_row => true);

-- and kinds of times
SELECT property('numeric', '{1.0,1.00,2}', 'timestamp', '{2026-01-01,2026-01-02,-infinity,0044-03-15 BC}');
SELECT property('numeric', '{1.0,1.00,2}', 'date', '{2026-01-01,2026-01-02,-infinity,infinity}');
SELECT property('numeric', '{1.0,1.00,2}', 'stamp', '{2026-01-01,2026-01-02}');
SELECT property('text', '{a,b}', 'bigint', '{-9223372036854775808,0,9223372036854775807}');
SELECT property('text', '{a,b}', 'integer', '{-2147483648,0,2147483647}');
SELECT property('text', '{a,b}', 'smallint', '{-1,1}');
SELECT property('text', '{a,b}', 'float8', '{0,-0,NaN,1e300}');
SELECT property('text', '{a,b}', 'numeric', '{1,1.0,1.00,12345678901234567890}');
SELECT property('numeric', '{1.0,1.00}', 'text', '{a,abcdefghijklmnopqrstuvwxyz,b}');
SELECT property('numeric', '{1.0,1.00}', 'interval', '{1 day,24:00,1 mon}');
SELECT property('numeric', '{1.0,1.00}', 'time', '{10:00,11:00}');
SELECT property('numeric', '{1.0,1.00}', 'uuid', '{00000000-0000-0000-0000-000000000001,f0000000-0000-0000-0000-000000000000}');
SELECT property('numeric', '{1.0,1.00}', 'fix', '{"(1.0,0,a)","(1.00,0,a)","(2,,)"}');
SELECT property('numeric', '{1.0,1.00}', 'integer[]', '{"{1}","{1,2}","{}"}');

--
-- Collations
--
CREATE COLLATION plain (provider = libc, locale = 'C');
SELECT is((SELECT latest(v COLLATE "C", 1) FROM (VALUES ('a'), ('B')) x(v)), 'a', 'the value''s collation orders it');

SELECT CASE WHEN EXISTS (SELECT FROM pg_collation WHERE collprovider = 'i') THEN 'icu' ELSE 'no_icu' END AS icu \gset
\if :{?icu}
SELECT :'icu' = 'icu' AS has_icu \gset
\endif
\if :has_icu
CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE COLLATION unicode_order (provider = icu, locale = 'und');
SELECT is((SELECT latest(v COLLATE unicode_order, 1) FROM (VALUES ('a'), ('B')) x(v)), 'B', 'an ICU collation orders the value');
SELECT is(both_orders(agg, '''a'' COLLATE any_case', '''A'' COLLATE any_case'), 'a a',
          agg || ': nondeterministically equal texts are told apart by image')
  FROM (VALUES ('latest'), ('earliest')) x(agg);
SELECT fill('text COLLATE any_case', '{a,A,b,B,aa,Aa,aA,""}', 'timestamptz', '{2026-01-01,2026-01-02}', 1500);
\else
SELECT skip('no ICU', 3);
SELECT fill('text COLLATE plain', '{a,A,b,B,aa,Aa,aA,""}', 'timestamptz', '{2026-01-01,2026-01-02}', 1500);
\endif
SELECT agrees('collated text');

--
-- Toasted values
--
CREATE TABLE toasted (g integer, v text, at integer);
ALTER TABLE toasted ALTER v SET STORAGE EXTERNAL;
CREATE TABLE compressed (LIKE toasted);
ALTER TABLE compressed ALTER v SET STORAGE MAIN;
INSERT INTO toasted
SELECT i % 10, CASE WHEN i % 7 = 0 THEN 'short' ELSE repeat(md5((i % 50)::text), 300 + i % 50) END, i % 20
FROM generate_series(1, 500) i ORDER BY random();
INSERT INTO compressed SELECT g, repeat(md5(at::text), 300) || v, at FROM toasted;
SELECT ok((SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'toasted'::regclass) > 1000000, 'values are external');
SELECT ok((SELECT min(pg_column_size(v)) FROM compressed) < 5000, 'values are compressed');
DROP TABLE stream;
CREATE TABLE stream AS SELECT g, (random() * 4)::int AS part, v, at FROM toasted;
SELECT agrees('external text');
TRUNCATE stream;
INSERT INTO stream SELECT g, (random() * 4)::int, v, at FROM compressed;
SELECT agrees('compressed text');
SELECT is((SELECT md5(latest(v, v)) FROM toasted), (SELECT md5(max(v)) FROM toasted), 'an external time');
SELECT is((SELECT md5(earliest(v, v)) FROM compressed), (SELECT md5(min(v)) FROM compressed), 'a compressed time');

-- an expanded object becomes flat
CREATE FUNCTION expanded(i integer) RETURNS integer[] LANGUAGE plpgsql AS $$
DECLARE a integer[] := ARRAY[]::integer[];
BEGIN
  FOR k IN 1 .. i LOOP a[k] := k; END LOOP;
  RETURN a;
END $$;
SELECT is((SELECT latest(expanded(i), i % 7) FROM generate_series(0, 50) i),
          (SELECT array_agg(k) FROM generate_series(1, 48) k), 'expanded arrays');

--
-- Rows: one value, one image, whatever it is packed in
--
-- A column that is stored compressed stays so in a row that is made from it,
-- and then begins with other bytes than in a row whose column never was.  The
-- number, which has to choose, comes after it.
CREATE TYPE load AS (note text, n numeric);
CREATE TYPE load_range AS RANGE (subtype = load);
CREATE TYPE cargo AS (first load, stops load[], id integer);
CREATE TABLE loose (id integer, note text, n numeric);
INSERT INTO loose SELECT id, repeat('x', 5000), n FROM (VALUES (1, 1.0), (2, 1.00), (3, 1.000)) x(id, n);
CREATE TABLE pristine AS SELECT id, ROW(repeat('x', 5000), n)::load AS l FROM loose;
SELECT isnt((SELECT min(pg_column_size(ROW(note, n)::load)) FROM loose),
            (SELECT min(pg_column_size(ROW(note || '', n)::load)) FROM loose), 'rows are packed in two ways');

-- winners of the same three values, each packed in either way
CREATE FUNCTION pickings(shape text, agg text) RETURNS TABLE (winner text) LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 0 .. 7 LOOP
    FOR j IN 1 .. 3 LOOP
      RETURN QUERY EXECUTE format(
        'SELECT md5(%s(%s, 1 ORDER BY random())::text)
         FROM (SELECT id, l FROM pristine WHERE $1 & (1 << id - 1) = 0
               UNION ALL SELECT id, ROW(note, n)::load FROM loose WHERE $1 & (1 << id - 1) <> 0) x', agg, shape) USING i;
    END LOOP;
  END LOOP;
END $$;
SELECT is((SELECT count(DISTINCT winner) FROM pickings(shape, agg)), 1::bigint,
          format('%s: packing does not choose among values like %s', agg, shape))
  FROM (VALUES ('latest'), ('earliest')) x(agg),
       (VALUES ('l'), ('ROW(l, 1)'), ('ARRAY[NULL, l]'), ('ROW(l, ARRAY[l], 1)::cargo'), ('ARRAY[ROW(l, NULL, 1)::cargo]'),
               ('load_range(l, NULL)'), ('load_range(NULL, l)'), ('ARRAY[load_range(l, l, ''[]'')]'),
               ('load_multirange(load_range(l, ROW(''y'', 1)::load), load_range(ROW(''z'', 2)::load, NULL))'),
               ('load_multirange()'), ('load_range(l, l)')) y(shape);
SELECT is((SELECT latest(loose, 1) FROM loose)::text,
          (SELECT earliest(ROW(id, note, n)::loose, -id) FROM loose)::text, 'whole rows of a table');

-- anonymous rows, columns dropped and added since
SELECT is((SELECT latest(ROW(i, i::text), i) FROM generate_series(1, 20) i)::text, '(20,20)', 'anonymous rows');
SELECT is((SELECT latest(ROW(i / 10, v), 1) FROM (VALUES (11, 1.0), (12, 1.00)) x(i, v)) *=
          (SELECT latest(ROW(i / 10, v), 1) FROM (VALUES (12, 1.00), (11, 1.0)) x(i, v)), true, 'anonymous rows that differ by image');
CREATE TABLE altered (a numeric, b text, c numeric);
INSERT INTO altered VALUES (1.0, 'x', 7), (1.00, 'y', 7);
ALTER TABLE altered DROP b;
ALTER TABLE altered ADD d text DEFAULT 'z', ADD e numeric;
SELECT is((SELECT latest(x, 1 ORDER BY x.a::text) FROM altered x) *= (SELECT latest(x, 1 ORDER BY x.a::text DESC) FROM altered x), true,
          'rows with dropped and added columns');

--
-- Errors
--
SELECT throws_ok('SELECT latest(''{}''::json, now())', '42883', 'could not identify a comparison function for type json', 'latest: a value without order');
SELECT throws_ok('SELECT earliest(point ''(0,0)'', now())', '42883', 'could not identify a comparison function for type point', 'earliest: a value without order');
SELECT throws_ok('SELECT latest(NULL::xml, now())', '42883', NULL, 'even if it is NULL');
SELECT throws_ok('SELECT latest(1, ''{}''::json)', '42883', 'could not identify a comparison function for type json', 'a time without order');
SELECT throws_ok('SELECT latest(1, NULL::json)', '42883', NULL, 'even if it is NULL');
SELECT throws_ok('SELECT latest(1, ''2026-01-01'')', '42P18', 'could not determine the type of the time', 'a time of type unknown');
SELECT throws_ok('SELECT earliest(1, NULL)', '42P18', NULL, 'an untyped NULL');
SELECT throws_ok('SELECT latest(NULL::no_order, now())', '42883', NULL, 'a row type with a member without order');
SELECT throws_ok('SELECT latest(ARRAY[''{}''::json], now())', '42883', NULL, 'an array whose elements have no order');
SELECT throws_ok('SELECT latest(1, NULL::json[])', '42883', NULL, 'an array of times without order');
SELECT throws_ok('SELECT latest(ROW(1, ''{}''::json), now())', '42883', NULL, 'an anonymous row with a column without order');
SELECT throws_ok('SELECT latest(1, ROW(''{}''::json))', '42883', NULL, 'an anonymous row as time');
CREATE TABLE conflict (a text COLLATE "C", b text COLLATE "POSIX");
INSERT INTO conflict VALUES ('x', 'y');
SELECT throws_ok('SELECT latest(1, a || b) FROM conflict', '42P22', NULL, 'a time of no collation');
SELECT throws_ok('SELECT latest(a || b, now()) FROM conflict', '42P22', NULL, 'a value of no collation, with the first row');
SELECT throws_ok('SELECT latest(a, b) FROM conflict', '42P22', NULL, 'value and time disagree about the collation');
SELECT lives_ok('SELECT latest(a, b COLLATE "C") FROM conflict', 'which a COLLATE clause settles');
SELECT lives_ok('SELECT latest(''{}''::json, now()) WHERE false', 'no row, no call, no error');

-- support functions are not for calling: nothing is of type internal (which
-- minor releases say in different words)
SELECT throws_ok(format('SELECT dailyrollup.%s', call), NULL::char(5), NULL, call || ' cannot be called')
  FROM (VALUES ('_latest_step(NULL, 1, now())'), ('_earliest_step(NULL, 1, now())'), ('_winner_combine(NULL, NULL)'),
               ('_winner_serialize(NULL)'), ('_winner_deserialize(''\x'', NULL)'), ('_winner_final(NULL, 1, now())')) x(call);

--
-- Ways to call an aggregate
--
SELECT fill('numeric', '{1,1.0,1.00,2,3}', 'timestamptz', '{2026-01-01,2026-01-02,2026-01-03}', 1000);
SELECT is((SELECT latest(DISTINCT v, at) FROM stream), (SELECT latest(v, at) FROM stream), 'DISTINCT');
SELECT is((SELECT latest(v, at) FILTER (WHERE v <> 3) FROM stream),
          (SELECT latest(v, at) FROM stream WHERE v <> 3), 'FILTER');
SELECT is((SELECT latest(v, at) FILTER (WHERE false) FROM stream), NULL, 'FILTER that leaves nothing');

SELECT is((SELECT count(*) FROM (
    (SELECT g, part, latest(v, at), earliest(v, at) FROM stream GROUP BY CUBE (g, part))
    EXCEPT ALL
    (SELECT g, part, latest(v, at), earliest(v, at) FROM stream GROUP BY g, part
     UNION ALL SELECT g, NULL, latest(v, at), earliest(v, at) FROM stream GROUP BY g
     UNION ALL SELECT NULL, part, latest(v, at), earliest(v, at) FROM stream GROUP BY part
     UNION ALL SELECT NULL, NULL, latest(v, at), earliest(v, at) FROM stream)) x), 0::bigint, 'GROUPING SETS');

-- windows: the state goes on after each result; a moving frame starts again
CREATE TABLE numbered AS SELECT row_number() OVER (ORDER BY random()) AS i, g % 4 AS g, v, v::text || repeat('x', g) AS w, at FROM stream LIMIT 400;
SELECT is((SELECT count(*) FROM (SELECT i, g, w, at, latest(w, at) OVER (ORDER BY i) AS a FROM numbered) n
           WHERE a IS DISTINCT FROM (SELECT latest(w, at) FROM numbered m WHERE m.i <= n.i)), 0::bigint, 'a growing window');
SELECT is((SELECT count(*) FROM (SELECT i, g, earliest(w, at) OVER f AS a, earliest(v, at) OVER f AS b FROM numbered
                                 WINDOW f AS (ORDER BY i ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING)) n
           WHERE (a, b) IS DISTINCT FROM (SELECT ROW(earliest(w, at), earliest(v, at)) FROM numbered m
                                          WHERE m.i BETWEEN n.i - 3 AND n.i + 1)), 0::bigint, 'a moving window');
SELECT is((SELECT count(*) FROM (SELECT g, latest(w, at) OVER (PARTITION BY g) AS a FROM numbered) n
           WHERE a IS DISTINCT FROM (SELECT latest(w, at) FROM numbered m WHERE m.g = n.g)), 0::bigint, 'a partitioned window');
SELECT is((SELECT count(DISTINCT (array_agg)[i]) FROM
           (SELECT array_agg(a ORDER BY i) FROM (SELECT i, latest(i::text, i) OVER (ORDER BY i) AS a FROM numbered) n) x,
           generate_series(1, 400) i), 400::bigint, 'results outlive the next row');

--
-- Plans
--
CREATE FUNCTION plan_of(query text, options text = 'COSTS OFF') RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; result text := '';
BEGIN
  FOR line IN EXECUTE format('EXPLAIN (%s) %s', options, query) LOOP result := result || line || E'\n'; END LOOP;
  RETURN result;
END $$;

CREATE TABLE big AS
SELECT i % 5000 AS g, (random() * 100)::int AS n, round((random() * 3)::numeric, 1 + i % 3) AS num,
       repeat(md5((i % 7)::text), 1 + i % 30) AS t, (random() * 3)::int / 2.0 AS f,
       ROW(round((random() * 3)::numeric, 1 + i % 3), 0, CASE WHEN i % 5 > 0 THEN 'n' END)::fix AS row,
       ARRAY[round((random() * 2)::numeric, 1 + i % 2)] AS arr, CASE WHEN i % 3 > 0 THEN 'happy'::mood END AS m,
       timestamptz '2026-01-01' + ((random() * 50)::int * interval '1 hour') AS at
FROM generate_series(1, 60000) i;
ANALYZE big;

SET LOCAL max_parallel_workers_per_gather = 0;
SET LOCAL enable_hashagg = off;
CREATE TABLE serial AS SELECT g, latest(n, at) AS n, latest(num, at) AS num, earliest(t, at) AS t, latest(f, at) AS f,
  latest(row, at) AS row, earliest(arr, at) AS arr, latest(m, at) AS m, latest(ROW(num, t), at)::text AS anonymous,
  earliest(num, num) AS by_num
FROM big GROUP BY g;
CREATE TABLE serial_all AS SELECT 1 AS g, latest(n, at) AS n, latest(num, at) AS num, earliest(t, at) AS t, latest(f, at) AS f,
  latest(row, at) AS row, earliest(arr, at) AS arr, latest(m, at) AS m, latest(ROW(num, t), at)::text AS anonymous,
  earliest(num, num) AS by_num
FROM big;

SELECT md5(latest(v, at)) AS toasted_latest FROM toasted \gset

-- image-exact comparison with the serial result
CREATE FUNCTION equals_serial(query text, serial regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE result bigint;
BEGIN
  EXECUTE format('SELECT count(*) FROM (%s) a FULL JOIN %s b USING (g)
                  WHERE NOT coalesce(record_image_eq(ROW(a.n, a.num, a.t, a.f, a.arr, a.m, a.anonymous, a.by_num),
                                                 ROW(b.n, b.num, b.t, b.f, b.arr, b.m, b.anonymous, b.by_num))
                        AND a.row OPERATOR(pg_catalog.*=) b.row, false)', query, serial) INTO result;
  RETURN result;
END $$;

SELECT $$SELECT g, latest(n, at) AS n, latest(num, at) AS num, earliest(t, at) AS t, latest(f, at) AS f,
  latest(row, at) AS row, earliest(arr, at) AS arr, latest(m, at) AS m, latest(ROW(num, t), at)::text AS anonymous,
  earliest(num, num) AS by_num
FROM big GROUP BY g$$ AS per_group,
$$SELECT 1 AS g, latest(n, at) AS n, latest(num, at) AS num, earliest(t, at) AS t, latest(f, at) AS f,
  latest(row, at) AS row, earliest(arr, at) AS arr, latest(m, at) AS m, latest(ROW(num, t), at)::text AS anonymous,
  earliest(num, num) AS by_num
FROM big$$ AS for_all \gset

SELECT alike(plan_of(:'per_group'), '%GroupAggregate%', 'the serial result is from a sorted plan');

-- hashing that spills
SET LOCAL enable_hashagg = on;
SET LOCAL enable_sort = off;
SET LOCAL work_mem = '64kB';
SET LOCAL hash_mem_multiplier = 1;
SELECT matches(plan_of(:'per_group', 'ANALYZE, COSTS OFF, TIMING OFF'), 'HashAggregate.*Batches: ([2-9]|\d\d)', 'a hash aggregate spills');
SELECT is(equals_serial(:'per_group', 'serial'), 0::bigint, 'spilled groups are the same');
SET LOCAL work_mem = '64MB';
SELECT matches(plan_of(:'per_group', 'ANALYZE, COSTS OFF, TIMING OFF'), 'HashAggregate.*Batches: 1 ', 'a hash aggregate does not spill');
SELECT is(equals_serial(:'per_group', 'serial'), 0::bigint, 'hashed groups are the same');
RESET enable_sort;

-- workers
SET LOCAL max_parallel_workers_per_gather = 3;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SELECT matches(plan_of(:'for_all'), 'Finalize Aggregate.*Gather.*Partial Aggregate.*Parallel Seq Scan', 'a parallel plan for all rows');
SELECT matches(plan_of(:'per_group'), 'Finalize (Hash|Group)Aggregate.*Gather.*Partial (Hash|Group)Aggregate.*Parallel Seq Scan', 'a parallel plan per group');
SELECT matches(plan_of(:'for_all', 'ANALYZE, COSTS OFF, TIMING OFF'), 'Workers Launched: [1-9]', 'workers are launched');
SELECT is(equals_serial(:'for_all', 'serial_all'), 0::bigint, 'parallel: the same for all rows');
SELECT is(equals_serial(:'per_group', 'serial'), 0::bigint, 'parallel: the same per group');
SET LOCAL parallel_leader_participation = off;
SELECT is(equals_serial(:'per_group', 'serial'), 0::bigint, 'parallel, by workers alone: the same per group');
SET LOCAL work_mem = '64kB';
SELECT is(equals_serial(:'per_group', 'serial'), 0::bigint, 'parallel, spilling: the same per group');
SELECT is((SELECT latest(NULLIF(n, n), at) FROM big), NULL, 'parallel: NULL wins where there is no value');
SELECT is((SELECT latest(n, NULLIF(at, at)) FROM big), NULL, 'parallel: no time at all');
SELECT throws_ok('SELECT latest(to_json(at), at) FROM big', '42883', NULL, 'parallel: an error in a worker');
SELECT is((SELECT md5(latest(v, at)) FROM toasted), :'toasted_latest', 'parallel: external text');
-- partitions, aggregated one by one and then combined
CREATE TABLE parted (g integer, num numeric, at timestamptz) PARTITION BY RANGE (at);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO ('2026-01-02');
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM ('2026-01-02') TO (MAXVALUE);
INSERT INTO parted SELECT g % 10, num, at FROM big;
ANALYZE parted;
SET LOCAL enable_partitionwise_aggregate = on;
SELECT alike(plan_of('SELECT g, latest(num, at) FROM parted GROUP BY g'), '%Partial%', 'partitions are aggregated partially');
SELECT is((SELECT count(*) FROM ((SELECT g, latest(num, at)::text, earliest(num, at)::text FROM parted GROUP BY g)
                                 EXCEPT ALL
                                 (SELECT g % 10, latest(num, at)::text, earliest(num, at)::text FROM big GROUP BY g % 10)) x),
          0::bigint, 'partitionwise: the same');

\if :has_icu
SET LOCAL max_parallel_workers_per_gather = 0;
CREATE TABLE collated (p integer, g integer, v text) PARTITION BY LIST (p);
CREATE TABLE collated_1 PARTITION OF collated FOR VALUES IN (1);
CREATE TABLE collated_2 PARTITION OF collated FOR VALUES IN (2);
INSERT INTO collated VALUES (1, 0, 'B'), (1, 1, 'a'), (2, 0, 'a'), (2, 1, 'B');
SELECT alike(plan_of('SELECT g, latest(v COLLATE unicode_order, 1) FROM collated GROUP BY g'), '%Partial%', 'partitions with a collation');
SELECT is((SELECT array_agg(v COLLATE "C") FROM (SELECT latest(v COLLATE unicode_order, 1) AS v FROM collated GROUP BY g) x), '{B,B}', 'the collation travels');
SELECT is((SELECT array_agg(v COLLATE "C") FROM (SELECT earliest(v COLLATE any_case, 2) AS v FROM collated GROUP BY g) x), '{a,a}', 'a nondeterministic one, too');
\else
SELECT skip('no ICU', 3);
\endif

--
-- Declarations and privileges
--
SELECT is((SELECT count(*) FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
                           JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'dailyrollup'
           WHERE proname IN ('latest', 'earliest', '_latest_step', '_earliest_step', '_winner_combine',
                             '_winner_serialize', '_winner_deserialize', '_winner_final')
             AND proparallel = 's' AND provolatile = 'i'), 8::bigint, 'all are immutable and parallel safe');
SELECT is((SELECT count(*) FROM pg_proc p WHERE proname IN ('latest', 'earliest') AND prokind = 'a'
           AND obj_description(oid, 'pg_proc') ~ 'NULL.*equal times.*42883'), 2::bigint, 'the comments say what happens');
CREATE ROLE nobody_in_particular;
SET LOCAL ROLE nobody_in_particular;
CREATE TEMP TABLE seen AS SELECT latest(1, now()) AS v;
RESET ROLE;
SELECT results_eq('SELECT v FROM seen', 'VALUES (1)', 'who has no right to the internal schema can aggregate');

SELECT finish();
ROLLBACK;
