-- What roles can do and see; into the first schema of the search_path, which they
-- may use.

-- Runs a statement: "ok", or SQLSTATE and message, without numbers in names of ours.
CREATE FUNCTION try(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE statement;
  RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
  RETURN SQLSTATE || ' ' || regexp_replace(SQLERRM, '_\d+', '_N', 'g');
END $$;

-- The same as a role.
CREATE FUNCTION try(role text, statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  EXECUTE statement;
  RESET ROLE;
  RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
  RETURN SQLSTATE || ' ' || regexp_replace(SQLERRM, '_\d+', '_N', 'g');
END $$;

-- What a query returns to a role, a row of one column, or the error.
CREATE FUNCTION see(role text, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  EXECUTE format('SET LOCAL ROLE %I', role);
  EXECUTE query INTO result;
  RESET ROLE;
  RETURN result;
EXCEPTION WHEN OTHERS THEN
  RETURN SQLSTATE || ': ' || SQLERRM;
END $$;

-- Is the rollup exact, by the oracle?  Live is its table alone, without tables that
-- inherit from it.
CREATE FUNCTION exact(rollup regclass) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  same boolean;
BEGIN
  EXECUTE format('SELECT NOT EXISTS ((SELECT * FROM ONLY %1$s EXCEPT ALL (%2$s)) UNION ALL ((%2$s) EXCEPT ALL SELECT * FROM ONLY %1$s))
                     AND NOT EXISTS ((TABLE %3$s EXCEPT ALL (%4$s)) UNION ALL ((%4$s) EXCEPT ALL TABLE %3$s))',
                 rollup, public.rollup_definition(rollup, public.rollup_watermark(rollup)),
                 (SELECT s.current_view FROM public.rollup_status s WHERE s.rollup = exact.rollup), public.rollup_definition(rollup))
  INTO same;
  RETURN same;
END $$;
