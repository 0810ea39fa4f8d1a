-- Keys of every type that the server can order, with values that are equal and
-- yet differ, through a rollup's whole life: seed, refreshes, late inserts, deletes
-- and updates, a content built anew; then folded on write, beside a shadow, and
-- promoted; with each type of the time column, with duplicates and without, by each
-- method of the folds.  What comes out is compared with a query written by hand.
\ir lib/begin.sql

SELECT no_plan();

CREATE SCHEMA kt;
SET search_path = kt, public;
CREATE TYPE pair AS (a numeric, b text);
CREATE TYPE nested AS (p pair, l text[]);
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE DOMAIN code AS text CHECK (value <> '');
CREATE DOMAIN amount AS numeric(8, 3);
CREATE DOMAIN codes AS code[];
CREATE DOMAIN stay AS daterange;
CREATE TYPE span AS RANGE (subtype = float8);
SELECT EXISTS (SELECT FROM pg_collation WHERE collname = 'en-x-icu') AS icu \gset
\if :icu
CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
\else
CREATE COLLATION loose FROM "C";
\endif

CREATE TABLE kinds (i int GENERATED ALWAYS AS IDENTITY, type text, vals text[]);
INSERT INTO kinds (type, vals) VALUES
  ('text', '{a,"",A,"b ",b,"\"quoted\" ''","NULL",Ä}'), ('text COLLATE "C"', '{a,A,b}'), ('text COLLATE loose', '{a,A,á,b,B}'), ('varchar(5)', '{a,"a ",bcdef}'), ('char(4)', '{a,"a ","a  ",b,""}'), ('char(4) COLLATE loose', '{a,"A ",b}'),
  ('name', '{a,A,xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx}'), ('"char"', '{a,b,""}'), ('bytea', '{"\\\\x","\\\\x00","\\\\x0001","\\\\xff"}'), ('boolean', '{t,f}'),
  ('smallint', '{0,-32768,32767}'), ('integer', '{0,-2147483648,2147483647}'), ('bigint', '{0,-9223372036854775808,9223372036854775807}'), ('oid', '{0,1,4294967295}'),
  ('numeric', '{1,1.0,1.00,0,-0.00,NaN,Infinity,-Infinity,123456789012345678901234567890.1,1e-30}'), ('numeric(6,2)', '{1,1.1,-1.25}'), ('numeric(3,-2)', '{1234,1249,100}'),
  ('real', '{0,-0,NaN,Infinity,1.5,1e-40}'), ('double precision', '{0,-0,NaN,-Infinity,1.5,5e-324}'), ('money', '{1.00,-2.50,0}'),
  ('date', '{2026-01-01,infinity,-infinity,0001-01-01}'), ('time', '{00:00,24:00,12:34:56.789}'), ('timetz', '{00:00+00,01:00+01,12:00-05}'), ('timestamp', '{2026-01-01,infinity,-infinity}'),
  ('timestamptz', '{2026-01-01 00:00+00,2026-01-01 05:30+05:30,infinity,-infinity}'), ('interval', '{1 day,24 hours,1 month,30 days,-1 hour,0}'),
  ('uuid', '{00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000002}'), ('inet', '{10.0.0.1,10.0.0.1/8,::1,10.0.0.0/8}'), ('cidr', '{10.0.0.0/8,10.0.0.0/9,::/0}'),
  ('macaddr', '{08:00:2b:01:02:03,08:00:2b:01:02:04}'), ('macaddr8', '{08:00:2b:01:02:03:04:05,08:00:2b:01:02:03:04:06}'), ('bit(3)', '{101,000}'), ('varbit', '{101,10100,""}'),
  ('pg_lsn', '{0/0,1/A}'), ('xid8', '{0,18446744073709551615}'), ('tid', '{"(0,1)","(4294967295,1)"}'), ('oidvector', '{1 2,1,""}'),
  ('tsvector', '{"a b",a,"a:1A b"}'), ('tsquery', '{a,"a & b","a | b"}'), ('jsonb', '{1,1.0,1.00,"\"a\"","{\"a\": 1.0, \"b\": null}","{\"a\": 1, \"b\": null}",[],null}'),
  ('int[]', '{"{}","{1}","{1,NULL}","{{1},{2}}","[0:1]={1,2}"}'), ('numeric[]', '{"{1.0}","{1.00}","{}"}'), ('text[]', '{"{a,NULL}","{a,\"NULL\"}"}'), ('float8[]', '{"{-0,NaN}","{0,NaN}"}'),
  ('int4range', '{"[1,3)","[1,2]",empty,"(,5)"}'), ('int8range', '{"[1,3)",empty}'), ('numrange', '{"[1.0,2)","[1.00,2.0)","(1,)"}'), ('tsrange', '{"[2026-01-01,)"}'), ('tstzrange', '{"[2026-01-01 00:00+00,infinity)","[2026-01-01 01:00+01,infinity)"}'), ('daterange', '{"[2026-01-01,2026-01-02]","[2026-01-01,2026-01-03)"}'),
  ('int4multirange', '{"{}","{[1,3),[3,5)}","{[1,5)}"}'), ('nummultirange', '{"{[1.0,2]}","{[1,2.00]}"}'), ('span', '{"[-0,1)","[0,1)",empty}'),
  ('mood', '{sad,ok,happy}'), ('mood[]', '{"{sad,happy}","{}"}'), ('pair', '{"(1.0,a)","(1.00,a)","(,)","(1,)"}'), ('pair[]', '{"{\"(1.0,a)\"}","{\"(1,a)\"}"}'), ('nested', '{"(\"(1,a)\",\"{x,NULL}\")","(\"(1.0,a)\",\"{x,NULL}\")","(,)"}'),
  ('code', '{a,A}'), ('amount', '{1,1.5}'), ('codes', '{"{a}","{a,b}"}'), ('stay', '{"[2026-01-01,2026-01-05)",empty}'),
  ('regclass', '{pg_class,pg_type}'), ('regtype', '{text,int}'), ('regproc', '{now}');

-- of contrib what is there
CREATE FUNCTION contrib(extension name, type text, vals text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM pg_available_extensions WHERE name = extension) THEN
    EXECUTE format('CREATE EXTENSION IF NOT EXISTS %I SCHEMA public', extension);
    INSERT INTO kinds (type, vals) VALUES (type, vals);
  END IF;
END $$;
SELECT count(contrib(e, t, v::text[])) FROM (VALUES
  ('citext', 'citext', '{a,A,b,B,""}'), ('hstore', 'hstore', '{"a=>1","b=>1, a=>1","a=>1, b=>1",""}'), ('ltree', 'ltree', '{a.b,a,A,""}'),
  ('cube', 'cube', '{"(1,2)","(1),(2)","(1.0, 2)","(0),(0)"}'), ('seg', 'seg', '{"1.0 .. 2.0","1 .. 2","1.00","~1","1"}'), ('isn', 'isbn', '{0-393-04002-X,0-393-04003-8}'), ('isn', 'isbn13', '{978-0-393-04002-9}'), ('isn', 'ismn', '{M-2306-7118-7}'), ('isn', 'ismn13', '{979-0-2306-7118-7}'), ('isn', 'issn', '{1436-4522}'), ('isn', 'issn13', '{977-1436-45200-8}'), ('isn', 'upc', '{220356483481}'), ('isn', 'ean13', '{978-0-393-04002-9,979-0-060-11561-5}')) x(e, t, v);

-- nothing that the server can order is left out
SELECT is_empty($$SELECT c.opcintype::regtype FROM pg_opclass c JOIN pg_am m ON m.oid = c.opcmethod
  WHERE m.amname = 'btree' AND c.opcdefault AND c.opcintype <> 'record'::regtype
  AND NOT EXISTS (SELECT FROM kinds k, LATERAL (SELECT to_regtype(split_part(k.type, ' COLLATE', 1)) AS t) x JOIN pg_type t ON t.oid = x.t
                  WHERE c.opcintype = t.oid OR CASE t.typtype WHEN 'e' THEN 'anyenum' WHEN 'r' THEN 'anyrange' WHEN 'm' THEN 'anymultirange' ELSE CASE WHEN t.typcategory = 'A' THEN 'anyarray' END END::regtype = c.opcintype)$$,
  'each type with an order is a key here');

-- citext orders by the collation, and compares without it
SELECT to_regtype('citext') IS NOT NULL AND :'icu' AS citext \gset
\if :citext
CREATE TABLE folded (k citext COLLATE loose, t timestamptz NOT NULL);
SELECT throws_ok($$SELECT rollup_create('kt.l', 'SELECT k, count(*) AS n FROM kt.folded GROUP BY k', 't')$$, '0A000', 'key "k" is of type citext with nondeterministic collation "loose"', 'a type that does not heed its collation');
SELECT throws_ok($$SELECT rollup_create('kt.l', 'SELECT t, count(*) AS n FROM kt.folded GROUP BY t', 't', dedup_by => '{t,k}')$$, '0A000', 'column "k" in dedup_by is of type citext with nondeterministic collation "loose"', 'nor does it tell events apart');
SELECT lives_ok($$SELECT rollup_create('kt.l', 'SELECT k::text AS k, count(*) AS n FROM kt.folded GROUP BY 1', 't')$$, 'as text it is');
SELECT rollup_drop('kt.l', true);
\endif

-- What the rollup of kind i shall be before that day (NULL: the whole).
CREATE FUNCTION oracle(i int, before text DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
  SELECT format('SELECT k, count(*) AS n, sum(v) AS total, (array_agg(v ORDER BY t DESC, v DESC NULLS LAST))[1] AS v, max(t) AS t FROM (%s) s WHERE %s GROUP BY k',
                CASE WHEN i % 2 = 0 THEN format('SELECT DISTINCT ON (k, t, e) * FROM s_%s ORDER BY k, t, e, o, v NULLS LAST', i) ELSE format('TABLE s_%s', i) END,
                CASE WHEN before IS NULL THEN 'true' ELSE format('t < %L', before) END)
$$;
-- Is one the same as the other?  ""; or what it is about.
CREATE FUNCTION same(what text, a text, b text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  n bigint;
BEGIN
  EXECUTE format('SELECT count(*) FROM ((%1$s EXCEPT ALL (%2$s)) UNION ALL ((%2$s) EXCEPT ALL %1$s)) d', a, b) INTO n;
  RETURN CASE WHEN n = 0 THEN '' ELSE format('%s: %s; ', what, n) END;
END $$;
CREATE FUNCTION live(what text, i int, before text DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
  SELECT same(what, format('TABLE l_%s', i), oracle(i, before))
$$;
-- The view as a whole; by one key, as a constant, one of a list, a parameter; none.
CREATE FUNCTION view(what text, i int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  wrong text := same(what || ': view', format('TABLE l_%s_current', i), oracle(i));
  keys text[] := (SELECT array_agg(format('%L::%s', x, plain) ORDER BY n) FROM kinds k, unnest(vals) WITH ORDINALITY u(x, n) WHERE k.i = view.i);
  key text;
BEGIN
  FOREACH key IN ARRAY keys[:3] LOOP
    wrong := wrong || same(what || ': ' || key, format('SELECT * FROM l_%s_current WHERE k = %s', i, key), format('SELECT * FROM (%s) o WHERE k = %s', oracle(i), key));
  END LOOP;
  key := keys[1 + length(what) % cardinality(keys)];
  RETURN wrong || same(what || ': list with ' || key, format('SELECT * FROM l_%s_current WHERE k IN (%s, %s)', i, key, keys[1]), format('SELECT * FROM (%s) o WHERE k IN (%s, %s)', oracle(i), key, keys[1]))
    || same(what || ': parameter ' || key, format('SELECT c.* FROM (VALUES (%s)) x(k), LATERAL (SELECT * FROM l_%s_current c WHERE c.k = x.k OFFSET 0) c', key, i), format('SELECT * FROM (%s) o WHERE k = %s', oracle(i), key))
    || same(what || ': no key', format('SELECT * FROM l_%s_current WHERE k IS NULL', i), format('SELECT * FROM (%s) o WHERE k IS NULL', oracle(i)));
END $$;
-- Rows of some values, and of none, thrice on that day, each event twice.
CREATE FUNCTION write(i int, day date, first int, last int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('INSERT INTO s_%s SELECT x.k::%s, ($1 + h * interval ''8 hours'')::%s, 10 * x.n + h + extract(doy FROM $1), h, o
                  FROM (SELECT k, n FROM unnest($2 || NULL::text) WITH ORDINALITY u(k, n)) x, generate_series(0, 2) h, generate_series(1, 2) o
                  WHERE x.n BETWEEN $3 AND $4 OR x.k IS NULL', i, (SELECT plain FROM kinds k WHERE k.i = write.i), (SELECT time_type FROM kinds k WHERE k.i = write.i))
  USING day, (SELECT vals FROM kinds k WHERE k.i = write.i), first, last;
END $$;
-- Rows of all values deleted, changed, given another key.
CREATE FUNCTION change(i int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  key text := (SELECT format('%L::%s', vals[1], plain) FROM kinds k WHERE k.i = change.i);
BEGIN
  EXECUTE format('DELETE FROM s_%s WHERE e = 0 AND (k IS NULL OR k = %s)', i, key);
  EXECUTE format('UPDATE s_%s SET v = -v WHERE e = 1', i);
  EXECUTE format('UPDATE s_%s SET k = %s WHERE k IS NULL AND e = 2 AND o = 1', i, key);
END $$;
CREATE FUNCTION forget(i int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE (SELECT format('DELETE FROM s_%s WHERE k = %L::%s', k.i, vals[1], plain) FROM kinds k WHERE k.i = forget.i);
END $$;
CREATE FUNCTION method(i int) RETURNS text LANGUAGE sql AS $$ SELECT set_config('dailyrollup.fold_method', CASE WHEN i % 4 < 2 THEN 'auto' ELSE 'statement' END, true) $$;
ALTER TABLE kinds ADD plain text GENERATED ALWAYS AS (split_part(type, ' COLLATE', 1)) STORED,
  ADD time_type text GENERATED ALWAYS AS (CASE i % 3 WHEN 0 THEN 'timestamptz' WHEN 1 THEN 'timestamp' ELSE 'date' END) STORED;

SELECT format('CREATE TABLE s_%s (k %s, t %s NOT NULL, v int, e int, o int); CREATE INDEX ON s_%1$s (k)', i, type, time_type) FROM kinds ORDER BY i \gexec
SELECT count(rollup_create(format('kt.l_%s', i), format('SELECT k, count(*) AS n, sum(v) AS total, latest(v, t) AS v, max(t) AS t FROM s_%s GROUP BY k', i), 't', mode => 'on',
                     dedup_by => CASE WHEN i % 2 = 0 THEN '{k,t,e}'::name[] END, dedup_order => CASE WHEN i % 2 = 0 THEN '{o}'::name[] END)) FROM kinds;

-- ==== In mode on, day by day.
CREATE FUNCTION days(i int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  l regclass := format('kt.l_%s', i);
  wrong text;
BEGIN
  PERFORM method(i);
  PERFORM write(i, '2026-01-01', 1, 99), write(i, '2026-01-02', 1, 2);
  wrong := view('new', i);
  PERFORM rollup_refresh(l, '2026-01-02 00:00Z');
  wrong := wrong || live('seed', i, '2026-01-02') || view('seed', i);
  PERFORM write(i, '2026-01-03', 2, 99);
  PERFORM rollup_refresh(l, '2026-01-04 00:00Z');
  wrong := wrong || live('fold', i, '2026-01-04');
  PERFORM write(i, '2025-12-31', 1, 1), write(i, '2026-01-01', 3, 99);
  wrong := wrong || view('late rows', i);
  PERFORM rollup_refresh(l, '2026-01-04 00:00Z');
  wrong := wrong || live('late rows', i, '2026-01-04');
  PERFORM change(i);
  wrong := wrong || view('changed rows', i);
  PERFORM write(i, '2026-01-04', 1, 99);
  PERFORM rollup_refresh(l, '2026-01-05 00:00Z');
  wrong := wrong || live('changed rows', i, '2026-01-05');
  PERFORM forget(i);
  PERFORM rollup_refresh(l, '2026-01-05 00:00Z');
  wrong := wrong || live('a key that is gone', i, '2026-01-05');
  PERFORM rollup_reseed(l), write(i, '2026-01-05', 1, 99);
  PERFORM rollup_refresh(l, '2026-01-06 00:00Z');
  RETURN wrong || live('built anew', i, '2026-01-06') || view('built anew', i) || same('verify', format('SELECT class FROM rollup_verify(%L)', l), 'SELECT NULL::text WHERE false');
END $$;
SELECT is(days(i), '', type || ' day by day') FROM kinds ORDER BY i;

-- ==== Folded on write, then beside a shadow, then promoted.  Each transaction
-- folds at its end, so this is not one function.
SELECT count(rollup_alter(format('kt.l_%s', i)::regclass, mode => 'off')) FROM kinds;
CALL rollup_run();
SELECT is(live('off', i) || view('off', i), '', type || ' in state off') FROM kinds ORDER BY i;
SELECT format('BEGIN; SELECT kt.method(%s), kt.write(%1$s, ''2026-01-02'', 2, 99), kt.write(%1$s, ''2026-01-06'', 1, 2), kt.write(%1$s, current_date + 3, 1, 99); COMMIT; BEGIN; SELECT kt.method(%1$s), kt.change(%1$s); COMMIT', i) FROM kinds ORDER BY i \gexec
SELECT is(live('folded', i) || view('folded', i), '', type || ' folded on write') FROM kinds ORDER BY i;
SELECT count(rollup_alter(format('kt.l_%s', i)::regclass, mode => 'shadow')) FROM kinds;
CALL rollup_run();
SELECT format('BEGIN; SELECT kt.method(%s), kt.write(%1$s, ''2026-01-07'', 1, 99), kt.write(%1$s, current_date + 4, 2, 99); DELETE FROM kt.s_%1$s WHERE e = 2; COMMIT', i) FROM kinds ORDER BY i \gexec
SELECT is(live('shadow', i) || view('shadow', i) || same('diff', format('SELECT class FROM rollup_diff(%L)', format('kt.l_%s', i)), 'SELECT NULL::text WHERE false'), '', type || ' beside a shadow') FROM kinds ORDER BY i;
SELECT is((SELECT string_agg(DISTINCT action, ' ') FROM rollup_promote()), 'promoted', 'all are promoted');
SELECT is(live('promoted', i, rollup_watermark(format('kt.l_%s', i)::regclass)::date::text) || view('promoted', i), '', type || ' promoted') FROM kinds ORDER BY i;

SET search_path = public;
SELECT count(rollup_drop(rollup, true)) FROM rollup_status WHERE rollup::text ~ '^kt\.';
DROP SCHEMA kt CASCADE;
SELECT is(count(*), 0::bigint, 'nothing is left') FROM dailyrollup.rollups r LEFT JOIN pg_class c ON c.oid = r.live WHERE c.oid IS NULL;
SELECT * FROM finish();
