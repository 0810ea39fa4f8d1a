-- Rows of an event that are equal but for the images of floats: the order of them is
-- that of the server's records, and it is the same wherever it is asked for.
\ir lib/begin.sql

SELECT plan(13);

CREATE SCHEMA fi;

-- "x - x" of infinity is what is no number with another sign
CREATE TABLE fi.v (x float8, y float8, z float4);
INSERT INTO fi.v
SELECT x, y, z FROM unnest('{0,-0,1,-1,NaN,Infinity,-Infinity,4.9e-324,NULL}'::float8[] || ('Infinity'::float8 + '-Infinity'::float8)) x,
  unnest('{0,-0,1,NaN,NULL}'::float8[] || - 'NaN'::float8) y, unnest('{0,-0,1,NaN,NULL}'::float4[] || - 'NaN'::float4) z;
SELECT cmp_ok((SELECT count(*) FROM fi.v a, fi.v b WHERE (a.x, a.y, a.z) IS NOT DISTINCT FROM (b.x, b.y, b.z) AND a *<> b),
  '>', 1000::bigint, 'there are rows that are equal and differ in image');
SELECT is((SELECT count(*) FROM fi.v a, fi.v b WHERE (a.x, a.y, a.z) IS NOT DISTINCT FROM (b.x, b.y, b.z) AND (a *< b) IS DISTINCT FROM
  coalesce(dailyrollup._float_image(a.x, a.y, a.z) < dailyrollup._float_image(b.x, b.y, b.z), false)), 0::bigint, 'they are in the order of their records');
SELECT is((SELECT count(*) FROM fi.v WHERE (dailyrollup._float_image(x, y, z) IS NOT NULL) IS DISTINCT FROM
  (coalesce(x = 0 OR x = 'NaN', false) OR coalesce(y = 0 OR y = 'NaN', false) OR coalesce(z = 0 OR z = 'NaN', false))), 0::bigint, 'others have none');
CREATE DOMAIN fi.d AS float4;
SELECT is(dailyrollup._float_image(0::fi.d, NULL::float8, 1::float8), '\x000000003ff0000000000000', 'a domain, NULL');
SELECT is(dailyrollup._float_image(NULL::float8), NULL, 'NULL alone');
SELECT throws_ok('SELECT dailyrollup._float_image(1::float8, ''a''::text)', '42804', 'argument 2 is of type "text", which is no floating-point type', 'no float');
SELECT throws_ok('SELECT dailyrollup._float_image(VARIADIC ''{0}''::float8[])', '42804', 'argument 1 is of type "double precision[]", which is no floating-point type', 'an array');

-- the same row counts wherever it is computed, and in whatever order the rows came
CREATE TABLE fi.s (k int NOT NULL, ts timestamptz NOT NULL, x float8, y float4);
SELECT rollup_create('fi.' || m, 'SELECT k, count(*) AS n, latest(x, ts) AS x, latest(y, ts) AS y, max(ts) AS ts FROM fi.s GROUP BY k', 'ts',
  dedup_by => '{k,ts}', mode => m) FROM unnest('{off,on}'::text[]) m;
CALL rollup_run();
INSERT INTO fi.s SELECT i, date_trunc('day', now(), 'UTC') - interval '3 days', x, y FROM generate_series(1, 20) i,
  LATERAL (SELECT x, y FROM unnest('{0,-0}'::float8[]) x, unnest('{0,-0}'::float4[]) y ORDER BY md5(i || ' ' || x || ' ' || y)) v;
SELECT rollup_fold();
SELECT is((SELECT string_agg(DISTINCT x || ' ' || y, ',') FROM fi."off"), '0 0', 'folded');
INSERT INTO fi.s SELECT i, date_trunc('day', now(), 'UTC') - interval '3 days', '-0', '-0' FROM generate_series(1, 10) i;
SELECT rollup_fold();
SELECT is((SELECT string_agg(DISTINCT x || ' ' || y, ',') FROM fi."off"), '0 0', 'folded again');
SELECT is((SELECT string_agg(DISTINCT x || ' ' || y, ',') FROM fi.on_current), '0 0', 'read');
SELECT rollup_refresh('fi.on');
SELECT is((SELECT string_agg(DISTINCT x || ' ' || y, ',') FROM fi."on"), '0 0', 'refreshed');
SELECT is((SELECT count(*) FROM rollup_verify('fi.off')) + (SELECT count(*) FROM rollup_verify('fi.on')), 0::bigint, 'exact');

-- where the tail begins is known a rollup
SELECT is((SELECT string_agg(coalesce((dailyrollup._tail_from_timestamptz(l::regclass) = rollup_watermark(l::regclass))::text, 'none'), ',' ORDER BY i)
  FROM unnest('{fi.off,fi.on,fi.on,fi.off,fi.on}'::text[]) WITH ORDINALITY u(l, i)), 'none,true,true,none,true', 'the start of each tail');

SELECT rollup_drop('fi.off'), rollup_drop('fi.on');
DROP SCHEMA fi CASCADE;
SELECT * FROM finish();
