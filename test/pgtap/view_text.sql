-- The text of <live>_current is replaced when fold is set to false: what the
-- view's owner has given to the view stays, and so do views on top.  Protects
-- view.c; readers beside it: isolation spec fold_view.
\ir lib/begin.sql

SELECT no_plan();

CREATE ROLE view_text_owner;
CREATE ROLE view_text_reader;
CREATE SCHEMA vt;
GRANT USAGE, CREATE ON SCHEMA vt TO view_text_owner;
GRANT USAGE ON SCHEMA vt TO view_text_reader;
SET search_path = vt, public;

CREATE TABLE src (k varchar(9) COLLATE "C" NOT NULL, ts timestamptz NOT NULL, v numeric(8,2) NOT NULL);
ALTER TABLE src OWNER TO view_text_owner;
INSERT INTO src VALUES ('a', '2026-01-01 10:00Z', 1), ('b', '2026-01-01 11:00Z', 2);
SET ROLE view_text_owner;
SELECT rollup_create('l', 'SELECT k, count(*) AS n, sum(v) AS total, latest(v, ts) AS v, max(ts) AS ts FROM src GROUP BY k', 'ts', mode => 'off');
CALL rollup_run('l');

ALTER VIEW l_current SET (security_barrier);
ALTER VIEW l_current RENAME COLUMN total TO "Sum";
ALTER VIEW l_current ALTER COLUMN n SET DEFAULT 7;
COMMENT ON VIEW l_current IS 'mine';
GRANT SELECT (k, n) ON l_current TO view_text_reader;
CREATE VIEW above AS SELECT k, "Sum" FROM l_current;
RESET ROLE;
-- all that the server knows of a view but its text
CREATE FUNCTION pg_temp.view(name regclass) RETURNS text LANGUAGE sql AS $$
  SELECT jsonb_build_array(c.relowner, c.relacl, c.reloptions, obj_description(c.oid, 'pg_class'),
    (SELECT jsonb_agg(jsonb_build_array(a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attacl, pg_get_expr(d.adbin, d.adrelid)) ORDER BY a.attnum)
     FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = c.oid AND a.attnum > 0))::text
  FROM pg_class c WHERE c.oid = name
$$;
CREATE FUNCTION pg_temp.text_of(name regclass) RETURNS text LANGUAGE sql AS
  $$ SELECT CASE WHEN pg_get_viewdef(name) ~ '_live_is_left_alone' THEN 'long' ELSE 'short' END $$;
CREATE TEMP TABLE before AS SELECT pg_temp.view('l_current');

SELECT is(pg_temp.text_of('l_current'), 'short', 'nobody can see live left alone');

-- its owner need not be one who could make it again
REVOKE CREATE ON SCHEMA vt FROM view_text_owner;
SET ROLE view_text_owner;
SELECT lives_ok($$SELECT rollup_alter('l', fold => false)$$, 'fold is set to false');
INSERT INTO l VALUES ('z', 100, 100, 100, '2026-01-01');
SELECT is((SELECT string_agg(k || '=' || "Sum", ' ' ORDER BY k) FROM above), 'a=1.00 b=2.00 z=100', 'a view on top shows live');
RESET ROLE;
SELECT is(pg_temp.text_of('l_current'), 'long', 'the view has the long text');
SELECT results_eq($$SELECT pg_temp.view('l_current')$$, 'TABLE before', 'all that its owner has given to it stays');
SET ROLE view_text_reader;
SELECT is((SELECT string_agg(k || '=' || n, ' ' ORDER BY k) FROM l_current), 'a=1 b=1 z=100', 'a reader of columns reads on');
SELECT throws_ok('TABLE l_current', '42501');
SET ROLE view_text_owner;
DELETE FROM l WHERE k = 'z';
BEGIN; SELECT rollup_recompute('l'); SELECT rollup_alter('l', fold => true); COMMIT;
CALL rollup_run('l');
RESET ROLE;
SELECT is(pg_temp.text_of('l_current'), 'short', 'a pass has given the short text to it');
SELECT results_eq($$SELECT pg_temp.view('l_current')$$, 'TABLE before', 'and all has stayed');
SELECT is((SELECT string_agg(k || '=' || "Sum", ' ' ORDER BY k) FROM above), 'a=1.00 b=2.00', 'and is exact');

-- whose snapshot nobody knows meets an error, never an empty view
UPDATE dailyrollup.rollups SET fold = false WHERE live = 'l'::regclass;
SELECT throws_ok('TABLE l_current', '40001', NULL, 'the short text does not show a live that is left alone');
UPDATE dailyrollup.rollups SET fold = true WHERE live = 'l'::regclass;

-- a query of this session over the view
SET ROLE view_text_owner;
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM l_current;
FETCH c;
SELECT throws_ok($$SELECT rollup_alter('l', fold => false)$$, '55006');
ROLLBACK;

-- a statement of this session that has the view open
RESET ROLE;
CREATE FUNCTION alters() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.rollup_alter('vt.l', fold => false); RETURN NULL; END $$;
CREATE TRIGGER alters INSTEAD OF INSERT ON l_current FOR EACH ROW EXECUTE FUNCTION alters();
SELECT throws_ok($$INSERT INTO l_current (k) VALUES ('x')$$, '55006', 'cannot change the fold of "l_current" because it is being used by active queries in this session', 'from a trigger of the view''s');
DROP TRIGGER alters ON l_current;

-- the text is read as the owner, whoever puts it there
CREATE FUNCTION is_owner(int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN current_user = 'view_text_owner'; END $$;
CREATE DOMAIN checked AS int CHECK (is_owner(VALUE));
CREATE TYPE crate AS (n checked);
CREATE TABLE boxes (k int NOT NULL, ts timestamptz NOT NULL, b crate);
ALTER TABLE boxes OWNER TO view_text_owner;
GRANT CREATE ON SCHEMA vt TO view_text_owner;
SET ROLE view_text_owner;
SELECT rollup_create('boxed', 'SELECT k, count(*) FILTER (WHERE b = ''(1)''::crate) AS n FROM boxes GROUP BY k', 'ts', mode => 'off');
RESET ROLE;
SELECT throws_ok($$SELECT '(1)'::crate$$, '23514', NULL, 'a constant that its owner alone can read');
SELECT lives_ok($$SELECT rollup_alter('boxed', fold => false)$$, 'a superuser has the view''s text read');
SELECT is(pg_temp.text_of('boxed_current'), 'long', 'as the owner');
SELECT rollup_drop('boxed', true);
REVOKE CREATE ON SCHEMA vt FROM view_text_owner;

-- what its owner has put there instead is left as it is
GRANT CREATE ON SCHEMA vt TO view_text_owner;
SET ROLE view_text_owner;
CREATE OR REPLACE VIEW l_current AS SELECT k, n, total AS "Sum", v, ts FROM l;
SELECT lives_ok($$SELECT rollup_alter('l', fold => false)$$, 'fold is set to false beneath a view of the owner''s');
SELECT unalike(pg_get_viewdef('l_current'::regclass), '%\_floor\_holds%', 'which stays');
CREATE FUNCTION _floor_holds() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE OR REPLACE VIEW l_current AS SELECT k, n, total AS "Sum", v, ts FROM l WHERE _floor_holds() = 1;
CREATE TEMP TABLE own AS SELECT pg_get_viewdef('l_current'::regclass);
SELECT rollup_recompute('l'), rollup_alter('l', fold => true);
SELECT rollup_alter('l', fold => false);
SELECT results_eq($$SELECT pg_get_viewdef('l_current'::regclass)$$, 'TABLE own', 'likewise with a function of our function''s name');
CREATE OR REPLACE VIEW l_current AS SELECT k, n, total AS "Sum", v, ts FROM l WHERE dailyrollup._float_image(n::float8) IS NULL;
TRUNCATE own; INSERT INTO own SELECT pg_get_viewdef('l_current'::regclass);
SELECT rollup_recompute('l'), rollup_alter('l', fold => true);
SELECT rollup_alter('l', fold => false);
SELECT results_eq($$SELECT pg_get_viewdef('l_current'::regclass)$$, 'TABLE own', 'with one of our functions');
DROP TABLE own;
DROP VIEW above;
SELECT rollup_drop('l', true);
RESET ROLE;

SET search_path = public;
SET client_min_messages = error;
DROP SCHEMA vt CASCADE;
DROP ROLE view_text_owner, view_text_reader;
SELECT * FROM finish();
