-- Names that SQL must quote, that our own statements use, or that are as long as
-- can be: of schemas, tables, columns, types, functions, roles; through a rollup's
-- life in each mode.  Protects the quoting in phrase.c, objects.c and query.c.
\ir lib/begin.sql

SELECT no_plan();

CREATE SCHEMA id_helpers;
GRANT USAGE ON SCHEMA id_helpers TO PUBLIC;
SET search_path = id_helpers, public;
-- "long" is cut to what is asked for; the others are taken as they are
CREATE TABLE names (i int GENERATED ALWAYS AS IDENTITY, name text);
INSERT INTO names (name) VALUES ('plain'), ('Upper Case'), ('a.b'), ('"'), ('a"b""c'), (''''), ('a''); DROP TABLE names; --'), ('"); DROP TABLE names; --'), (E'new\nline'), (E'tab\tand\\backslash'), ('$1'), ('$$'), ('%s %I'), ('--'), ('/*'), (';'),
  ('Ünï😀'), (U&'\202E'), (' '), ('1'), ('*'), ('select'), ('user'), ('table'), ('null'), ('order'), ('public'), ('pg_catalog'), ('excluded'), ('new'), ('old'),
  ('k1'), ('e1'), ('k'), ('e'), ('l'), ('w'), ('f'), ('v'), ('m'), ('r'), ('s'), ('waiting'), ('fresh'), ('gone'), ('stored'), ('ranked'), ('surplus'), ('deleted'), ('marks'), ('proof'), ('plain'), ('dirties'), ('epoch'), ('tid'), ('n'),
  (repeat('x', 63)), (repeat('"', 63)), (repeat('é', 31));
-- What each kind of object is called, where that is the name: no two of a table's
-- columns are the same, and a rollup's has "_current" and "_daily" behind it.
CREATE FUNCTION cut(name text, bytes int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  WHILE octet_length(name) > bytes LOOP
    name := left(name, -1);
  END LOOP;
  RETURN name;
END $$;
CREATE FUNCTION other(name text, suffix text) RETURNS text LANGUAGE sql AS $$ SELECT cut(name, 63 - octet_length(suffix)) || suffix $$;

CREATE FUNCTION wrong(what text, a text, b text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  n bigint;
BEGIN
  EXECUTE format('SELECT count(*) FROM ((%1$s EXCEPT ALL (%2$s)) UNION ALL ((%2$s) EXCEPT ALL %1$s)) d', a, b) INTO n;
  RETURN CASE WHEN n = 0 THEN '' ELSE format('%s: %s; ', what, n) END;
END $$;
CREATE FUNCTION life(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  s text := format('%I.%I', name, name);
  live text := format('%I.%I', name, cut(other(name, 'l'), 55));
  k text := quote_ident(name);
  t text := quote_ident(other(name, 't'));
  v text := quote_ident(other(name, 'v'));
  n text := quote_ident(other(name, 'n'));
  m text := quote_ident(other(name, 'm'));
  f text := format('%I.%I', name, other(name, 'f'));
  before text := format('%s < ''2026-01-03''', t);
  oracle text := format('SELECT %s(%s) AS k, count(*), sum(%s), (array_agg(%3$s ORDER BY %s DESC, %3$s DESC))[1], max(%4$s) FROM (SELECT DISTINCT ON (%2$s, %4$s) * FROM %s ORDER BY %2$s, %4$s, %3$s) o WHERE {WHERE} GROUP BY 1', f, k, v, t, s);
  result text := '';
  mode text;
BEGIN
  EXECUTE format('CREATE ROLE %I', other('id ' || name, 'r'));
  EXECUTE format('CREATE SCHEMA %I AUTHORIZATION %I', name, other('id ' || name, 'r'));
  EXECUTE format('SET LOCAL ROLE %I', other('id ' || name, 'r'));
  EXECUTE format('CREATE DOMAIN %I.%I AS text CHECK (VALUE <> ''no'')', name, other(name, 'd'));
  EXECUTE format('CREATE FUNCTION %s(text) RETURNS text LANGUAGE sql IMMUTABLE AS ''SELECT $1''', f);
  EXECUTE format('CREATE TABLE %s (%s %I.%I, %s timestamptz NOT NULL, %s int) PARTITION BY RANGE (%5$s)', s, k, name, other(name, 'd'), t, v);
  EXECUTE format('CREATE TABLE %I.%I PARTITION OF %s DEFAULT', name, other(name, 'p'), s);
  FOREACH mode IN ARRAY '{on,off}'::text[] LOOP
    PERFORM public.rollup_create(live, format('SELECT %s(%s) AS %2$s, count(*) AS %s, sum(%s) AS %4$s, public.latest(%4$s, %s) AS %s, max(%5$s) AS %5$s FROM %7$s GROUP BY 1', f, k, n, v, t, m, s),
                                 other(name, 't'), dedup_by => ARRAY[name, other(name, 't')]::name[], dedup_order => ARRAY[other(name, 'v')]::name[], mode => mode);
    EXECUTE format('INSERT INTO %s SELECT nullif(''k'' || i %% 3, ''k0''), ''2026-01-01''::timestamptz + i * interval ''10 hours'', i FROM generate_series(1, 8) i', s);
    IF mode = 'on' THEN
      PERFORM public.rollup_refresh(live::regclass, '2026-01-02 00:00Z');
    END IF;
    EXECUTE format('INSERT INTO %s VALUES (''k1'', ''2026-01-01'', 7), (''k1'', ''2026-01-01'', 6), (''late'', ''2026-01-01'', 1), (NULL, ''2026-01-01'', 2)', s);
    EXECUTE format('UPDATE %s SET %s = %2$s + 1 WHERE %2$s < 3', s, v);
    result := result || wrong(mode || ' view', format('TABLE %I.%I', name, cut(other(name, 'l'), 55) || '_current'), replace(oracle, '{WHERE}', 'true'))
      || wrong(mode || ' key', format('SELECT * FROM %I.%I WHERE %s = ''late''', name, cut(other(name, 'l'), 55) || '_current', k), format('SELECT * FROM (%s) o WHERE k = ''late''', replace(oracle, '{WHERE}', 'true')));
    IF mode = 'on' THEN
      result := result || CASE WHEN (SELECT string_agg(DISTINCT key, '') FROM (SELECT jsonb_object_keys(l.key) AS key FROM public.rollup_late l WHERE l.rollup = live::regclass) x) IS DISTINCT FROM name THEN 'rollup_late; ' ELSE '' END;
      PERFORM public.rollup_refresh(live::regclass, '2026-01-03 00:00Z');
      EXECUTE format('DELETE FROM %s WHERE %s = 4', s, v);
      PERFORM public.rollup_refresh(live::regclass, '2026-01-03 00:00Z');
      result := result || wrong('live', format('TABLE %s', live), replace(oracle, '{WHERE}', before)) || wrong('verify', format('SELECT class FROM public.rollup_verify(%L)', live), 'SELECT NULL::text WHERE false');
      PERFORM public.rollup_reseed(live::regclass);
      PERFORM public.rollup_refresh(live::regclass, '2026-01-03 00:00Z');
      result := result || wrong('seed', format('TABLE %s', live), replace(oracle, '{WHERE}', before));
    END IF;
    PERFORM public.rollup_mark(live::regclass, '-infinity', 'infinity'), public.rollup_check(live::regclass), public.rollup_alter(live::regclass, fold => false), public.rollup_definition(live::regclass);
    EXECUTE format('TRUNCATE %s', s);
    EXECUTE format('ALTER TABLE %s RENAME COLUMN %s TO renamed', live, v);
    PERFORM public.rollup_drop(live::regclass, true);
  END LOOP;
  RESET ROLE;
  EXECUTE format('DROP SCHEMA %I CASCADE; DROP ROLE %I', name, other('id ' || name, 'r'));
  RETURN result;
END $$;
-- a schema of the server's or ours cannot be made: those names are columns' alone
CREATE FUNCTION schema_of(name text) RETURNS text LANGUAGE sql AS $$ SELECT CASE WHEN name IN ('public', 'pg_catalog') THEN 'not ' || name ELSE name END $$;
BEGIN;
SELECT is(life(schema_of(name)), '', format('called %s', replace(quote_literal(name), E'\n', '\n'))) FROM names ORDER BY i;
ROLLBACK;

-- With a shadow, and promoted, by passes that commit; the worst of the names.
CREATE TABLE worst (i int GENERATED ALWAYS AS IDENTITY, name text);
INSERT INTO worst (name) SELECT name FROM names WHERE name ~ '["''\n]|DROP' OR octet_length(name) > 60;
SELECT format('CREATE SCHEMA %1$I; CREATE TABLE %1$I.%1$I (%1$I text, %2$I timestamptz NOT NULL); INSERT INTO %1$I.%1$I VALUES (''a'', ''2026-01-01''), (NULL, ''2026-01-02'')', name, other(name, 't')) FROM worst ORDER BY i \gexec
SELECT count(rollup_create(format('%I.%I', name, cut(other(name, 'l'), 55)), format('SELECT %1$I, count(*) AS %2$I FROM %1$I.%1$I GROUP BY 1', name, other(name, 'n')), other(name, 't'), mode => 'shadow')) FROM worst;
CALL rollup_run();
SELECT format('INSERT INTO %1$I.%1$I VALUES (''a'', ''2026-01-01''), (''b'', ''2026-01-02''), (''a'', current_date + 1)', name) FROM worst ORDER BY i \gexec
SELECT is_empty('SELECT rollup, d.* FROM rollup_status s, LATERAL rollup_diff(s.rollup) d', 'no difference from the shadows');
SELECT is((SELECT count(*) FROM rollup_promote()), (SELECT count(*) FROM worst), 'all are promoted');
SELECT is_empty('SELECT rollup, v.* FROM rollup_status s, LATERAL rollup_verify(s.rollup) v', 'and exact');
CALL rollup_run();
SELECT is((SELECT string_agg(DISTINCT state, ' ') FROM rollup_status), 'on', 'and stay so');
SELECT is((SELECT count(DISTINCT labels ->> 'rollup') FROM rollup_metrics), (SELECT count(*) FROM worst), 'each has its metrics');
SELECT count(rollup_drop(rollup, true)) FROM rollup_status;
SELECT format('DROP SCHEMA %I CASCADE', name) FROM worst ORDER BY i \gexec
SELECT ok(EXISTS (SELECT FROM names), 'nobody has dropped our table');
SET search_path = public;
DROP SCHEMA id_helpers CASCADE;
SELECT is(count(*), 0::bigint, 'nothing is left') FROM dailyrollup.rollups r LEFT JOIN pg_class c ON c.oid = r.live WHERE c.oid IS NULL;
SELECT * FROM finish();
