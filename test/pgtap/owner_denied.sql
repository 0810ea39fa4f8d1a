-- An owner who lacks a right that the work over his rollup needs: USAGE on the schema of
-- a key's type, of a function or an operator of the query, EXECUTE, his privileges on his
-- own tables, all of which can be revoked after rollup_create.  Whoever is the cause, the
-- error is 42501 with a hint that names the owner; nothing is done by half, no row is
-- lost, and who only has a key marked, or reads, is not concerned where he need not be.
--
-- Fails when no hint is added (explain_denial in identity.c).
\ir lib/begin.sql
CREATE ROLE od_owner;
CREATE ROLE od_writer;
CREATE ROLE od_reader;
CREATE SCHEMA od_types;
CREATE SCHEMA od_code;
CREATE SCHEMA od AUTHORIZATION od_owner;
GRANT USAGE ON SCHEMA od_types, od_code TO od_owner;
GRANT USAGE ON SCHEMA od TO PUBLIC;
CREATE TYPE od_types.colour AS ENUM ('red', 'green', 'blue');
CREATE DOMAIN od_types.amount AS numeric;
CREATE FUNCTION od_code.twice(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 * 2; END';
CREATE FUNCTION od_code.beyond(int, int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 > $2; END';
CREATE OPERATOR od_code.>>> (LEFTARG = int, RIGHTARG = int, FUNCTION = od_code.beyond);
REVOKE EXECUTE ON FUNCTION od_code.twice FROM PUBLIC;
GRANT EXECUTE ON FUNCTION od_code.twice TO od_owner, od_reader;

SELECT no_plan();

-- a source with a rollup in each mode: a writer of one is not stopped by the others
SET ROLE od_owner;
SET search_path = od, public;
DO $$
DECLARE
	mode text;
BEGIN
	FOREACH mode IN ARRAY '{off,shadow,on}'::text[] LOOP
		EXECUTE format('CREATE TABLE s_%s (c od_types.colour, n od_types.amount, ts timestamptz NOT NULL, v int)', mode);
		EXECUTE format('CREATE INDEX ON s_%s (c, n)', mode);
		EXECUTE format($q$INSERT INTO s_%s SELECT (ARRAY['red', 'green', 'blue'])[1 + i %% 3]::od_types.colour, i %% 2,
			'2026-01-01Z'::timestamptz + i * interval '1 hour', i FROM generate_series(1, 100) i$q$, mode);
		PERFORM rollup_create('r_' || mode, format($q$SELECT c, n, count(*), sum(od_code.twice(v)), latest(c, ts), max(ts),
			max(v) FILTER (WHERE c <> 'red'::od_types.colour) AS most, count(*) FILTER (WHERE v OPERATOR(od_code.>>>) 50) AS many
			FROM s_%s GROUP BY c, n$q$, mode), 'ts', mode => mode);
		EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON s_%s TO od_writer', mode);
		EXECUTE format('GRANT SELECT ON r_%s_current TO od_reader', mode);
	END LOOP;
END $$;
RESET ROLE;
CALL rollup_run('r_off');
CALL rollup_run('r_shadow');
CALL rollup_run('r_on');
SELECT is(string_agg(state, ' ' ORDER BY state), 'off on shadow', 'a rollup in each mode') FROM rollup_status WHERE rollup::text ~ '^r_';

-- What a statement says: "works", or its state and hint.  Whatever it has done is undone.
CREATE FUNCTION od.says(role text, command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	hint text;
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', role);
	EXECUTE command;
	RESET ROLE;
	RAISE SQLSTATE 'OD000';
EXCEPTION WHEN OTHERS THEN
	IF SQLSTATE = 'OD000' THEN RETURN 'works'; END IF;
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RETURN SQLSTATE || ': ' || SQLERRM || ': ' || hint;
END $$;
CREATE TABLE od.calls (n int GENERATED ALWAYS AS IDENTITY, role text, command text);
INSERT INTO od.calls (role, command)
SELECT 'postgres', format(c, oid) FROM (SELECT oid, relname FROM pg_class WHERE oid IN ('r_off'::regclass, 'r_shadow'::regclass, 'r_on'::regclass)) l,
	unnest('{SELECT rollup_verify(%s),SELECT rollup_check(%s),"SELECT rollup_mark(%s, ''-infinity'', ''infinity'')",
		"SELECT rollup_definition(%s)",SELECT rollup_reseed(%s),"SELECT rollup_alter(%s, delay => ''1h'')","SELECT rollup_drop(%s)",
		"SELECT rollup_drop(%s, true)","SELECT count(*) FROM rollup_late WHERE rollup = %s","SELECT rollup_watermark(%s)"}'::text[]) c
UNION ALL
SELECT 'postgres', format(c, oid) FROM (SELECT oid, relname FROM pg_class WHERE oid IN ('r_shadow'::regclass, 'r_on'::regclass)) l,
	unnest('{SELECT rollup_refresh(%s),"SELECT rollup_reseed(%s); SELECT rollup_refresh(%1$s)"}'::text[]) c
UNION ALL
SELECT 'postgres', format(c, oid) FROM (SELECT oid, relname FROM pg_class WHERE oid IN ('r_shadow'::regclass, 'r_off'::regclass)) l,
	unnest('{SELECT rollup_recompute(%s),SELECT rollup_flush(%s)}'::text[]) c
UNION ALL
SELECT 'postgres', format(c, oid) FROM (SELECT oid, relname FROM pg_class WHERE oid = 'r_shadow'::regclass) l,
	unnest('{SELECT rollup_promote(%s),SELECT rollup_diff(%s)}'::text[]) c
UNION ALL
SELECT role, format(c, relname) FROM unnest('{od_writer,postgres}'::text[]) role,
	(SELECT substr(relname, 3) AS relname FROM pg_class WHERE oid IN ('r_off'::regclass, 'r_shadow'::regclass, 'r_on'::regclass)) l,
	unnest(ARRAY[$q$INSERT INTO od.s_%s SELECT c, n, '2026-01-02 00:10Z', v FROM od.s_%1$s LIMIT 1; SELECT public.rollup_fold()$q$,
		$q$DELETE FROM od.s_%s WHERE v = 7; SELECT public.rollup_fold()$q$,
		$q$UPDATE od.s_%s SET v = 8 WHERE v = 7; SELECT public.rollup_fold()$q$,
		$q$INSERT INTO od.s_%s SELECT c, n, 'infinity', v FROM od.s_%1$s LIMIT 1; SELECT public.rollup_fold()$q$,
		$q$SET LOCAL dailyrollup.backfill = on; INSERT INTO od.s_%s SELECT c, n, '2026-01-02 00:10Z', v FROM od.s_%1$s LIMIT 1; SELECT public.rollup_fold()$q$]) c
UNION ALL
SELECT 'postgres', format($q$INSERT INTO od.s_on SELECT c, n, '2026-01-02 00:10Z', v FROM od.s_on LIMIT 1; SET LOCAL ROLE od_reader; SELECT * FROM od.r_on_current$q$)
UNION ALL
SELECT 'od_reader', format('SELECT * FROM od.r_%s_current', relname) FROM
	(SELECT substr(relname, 3) AS relname FROM pg_class WHERE oid IN ('r_off'::regclass, 'r_shadow'::regclass, 'r_on'::regclass)) l;

CREATE TABLE od.rights (nth int, taken text, given text);
INSERT INTO od.rights VALUES
	(1, 'REVOKE USAGE ON SCHEMA od_types FROM od_owner', 'GRANT USAGE ON SCHEMA od_types TO od_owner'),
	(2, 'REVOKE USAGE ON SCHEMA od_code FROM od_owner', 'GRANT USAGE ON SCHEMA od_code TO od_owner'),
	(3, 'REVOKE EXECUTE ON FUNCTION od_code.twice FROM od_owner', 'GRANT EXECUTE ON FUNCTION od_code.twice TO od_owner'),
	(4, 'REVOKE SELECT ON od.s_off, od.s_shadow, od.s_on FROM od_owner', 'GRANT SELECT ON od.s_off, od.s_shadow, od.s_on TO od_owner'),
	(5, 'REVOKE INSERT, UPDATE, DELETE ON od.r_off, od.r_shadow, od.r_on FROM od_owner', 'GRANT INSERT, UPDATE, DELETE ON od.r_off, od.r_shadow, od.r_on TO od_owner'),
	(6, 'REVOKE SELECT ON od.r_off, od.r_shadow, od.r_on FROM od_owner', 'GRANT SELECT ON od.r_off, od.r_shadow, od.r_on TO od_owner'),
	(7, (SELECT format('REVOKE ALL ON %s FROM od_owner', string_agg(marks::text, ', ')) FROM dailyrollup.rollups WHERE live::text ~ '^r_'),
		(SELECT format('GRANT ALL ON %s TO od_owner', string_agg(marks::text, ', ')) FROM dailyrollup.rollups WHERE live::text ~ '^r_')),
	(8, 'REVOKE USAGE ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO od_writer, od_reader', 'GRANT USAGE ON SCHEMA public TO PUBLIC'),
	(9, 'REVOKE USAGE ON SCHEMA dailyrollup FROM PUBLIC', 'GRANT USAGE ON SCHEMA dailyrollup TO PUBLIC'),
	(10, 'REVOKE ALL ON SCHEMA od FROM od_owner, PUBLIC; GRANT USAGE ON SCHEMA od TO od_writer, od_reader', 'GRANT ALL ON SCHEMA od TO od_owner; GRANT USAGE ON SCHEMA od TO PUBLIC');

SELECT is((SELECT string_agg(command, '; ') FROM od.calls WHERE od.says(role, command) !~ '^works$|^55000: rollup "(od.)?r_off" is in state'), NULL,
	'with all rights each of them works');

CREATE TABLE od.said (nth int, role text, command text, answer text);
DO $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT * FROM od.rights ORDER BY nth LOOP
		EXECUTE r.taken;
		INSERT INTO od.said SELECT r.nth, role, command, od.says(role, command) FROM od.calls;
		EXECUTE r.given;
	END LOOP;
END $$;
SELECT is(string_agg(command || ': ' || answer, E'\n' ORDER BY command), NULL, taken || ': works, or the hint')
FROM od.rights LEFT JOIN od.said ON said.nth = rights.nth AND answer <> 'works'
	AND answer !~ '^42501: permission denied for (schema|table|function) \w+: This is done as role "od_owner", which owns the rollup, '
	AND answer !~ '^55000: rollup "(od.)?r_off" is in state'
	-- what the server itself says of a view whose owner may not read a table of it
	AND (command !~ '_current' OR answer !~ '^42501: permission denied for table \w+: $')
GROUP BY rights.nth, taken ORDER BY rights.nth;
SELECT cmp_ok(count(*), '>', 15::bigint, taken || ': is missed')
FROM od.rights LEFT JOIN od.said ON said.nth = rights.nth AND answer ~ '^42501' GROUP BY rights.nth, taken ORDER BY rights.nth;
SELECT is(string_agg(taken || ': ' || command, E'\n'), NULL, 'in mode on, a mark needs no right but on the marks')
FROM od.said JOIN od.rights USING (nth)
WHERE command ~ 's_on' AND command !~ 'r_on' AND answer <> 'works' AND taken !~ 'marks' AND taken !~ 'SCHEMA dailyrollup';
SELECT is(string_agg(taken || ': ' || command, E'\n'), NULL, 'nor does a reader, where no key is marked')
FROM od.said JOIN od.rights USING (nth) WHERE role = 'od_reader' AND answer <> 'works' AND taken !~ ' ON od| ON dailyrollup|FUNCTION';

-- what the owner's own code says of a denial stands
CREATE OR REPLACE FUNCTION od_code.twice(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
$$BEGIN RAISE SQLSTATE '42501' USING MESSAGE = 'no', HINT = 'Ask Ann.'; END$$;
SELECT is(od.says('od_writer', $$INSERT INTO od.s_off VALUES ('red', 0, '2026-01-02', 1); SELECT public.rollup_fold()$$), '42501: no: Ask Ann.',
	'a hint of the owner''s own code stands');
CREATE OR REPLACE FUNCTION od_code.twice(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 * 2; END';

-- a pass: a writer is not stopped, the rollup waits, and catches up
REVOKE USAGE ON SCHEMA od_types FROM od_owner;
SET ROLE od_writer;
INSERT INTO od.s_on SELECT c, n, '2026-01-02 00:10Z', v FROM od.s_on WHERE v < 5;
DELETE FROM od.s_on WHERE v = 7;
UPDATE od.s_on SET n = 1 WHERE v = 8;
RESET ROLE;
\set ON_ERROR_STOP off
\o /dev/null
CALL rollup_run('od.r_on');
\o
\set ON_ERROR_STOP on
SELECT is(:'SQLSTATE'::text, '42501', 'the pass fails');
SELECT is((SELECT outcome || ': ' || reason FROM rollup_runs WHERE rollup = 'od.r_on'::regclass ORDER BY finished_at DESC LIMIT 1),
	'failed: permission denied for schema od_types', 'and says why');
SELECT cmp_ok((SELECT count(*) FROM rollup_late WHERE rollup = 'od.r_on'::regclass), '>', 0::bigint, 'the late keys wait');
GRANT USAGE ON SCHEMA od_types TO od_owner;
CALL rollup_run('od.r_on');
SELECT is((SELECT count(*) FROM rollup_late WHERE rollup = 'od.r_on'::regclass), 0::bigint, 'with the right given back they are computed');
SELECT is_empty(format('SELECT * FROM rollup_verify(%L)', rollup), rollup || ': exact') FROM rollup_status WHERE rollup::text ~ '^(od.)?r_';
SELECT is_empty($$SELECT * FROM rollup_diff('od.r_shadow')$$, 'the shadow too');

-- a function of the key is called for the mark, in mode on too: where the owner may not,
-- the late row is refused, for no mark could tell of it.  What is not late calls nothing.
SET ROLE od_owner;
CREATE TABLE s_called (v int, ts timestamptz NOT NULL);
CREATE INDEX ON s_called (ts);
INSERT INTO s_called SELECT i % 5, '2026-01-01Z'::timestamptz + i * interval '1 hour' FROM generate_series(1, 50) i;
SELECT rollup_create('r_called', 'SELECT od_code.twice(v) AS k, count(*) FROM s_called GROUP BY od_code.twice(v)', 'ts', mode => 'on');
GRANT SELECT, INSERT, UPDATE, DELETE ON s_called TO od_writer;
RESET ROLE;
CALL rollup_run('r_called');
REVOKE EXECUTE ON FUNCTION od_code.twice FROM od_owner;
SELECT is(od.says(role, command), wanted, role || ': ' || command)
FROM unnest('{od_writer,od_owner,postgres}'::text[]) role, (VALUES
	($$INSERT INTO od.s_called VALUES (1, 'infinity')$$, 'works'),
	($$INSERT INTO od.s_called VALUES (1, '2026-01-02')$$, 'denied'),
	($$UPDATE od.s_called SET ts = 'infinity' WHERE v = 1$$, 'denied'),
	($$DELETE FROM od.s_called WHERE v = 1$$, 'denied'),
	($$SET LOCAL dailyrollup.backfill = on; INSERT INTO od.s_called VALUES (1, '2026-01-02')$$, 'denied')) v(command, says),
	LATERAL (SELECT CASE says WHEN 'works' THEN says ELSE '42501: permission denied for function twice: This is done as role "od_owner", which owns the rollup, in a security-restricted operation. The role needs USAGE on the schemas of all that the query names, EXECUTE on its functions, and an owner''s privileges on its own tables.' END AS wanted) w;
SELECT is((SELECT count(*) FROM rollup_late WHERE rollup = 'r_called'::regclass), 0::bigint, 'nothing is done by half');
GRANT EXECUTE ON FUNCTION od_code.twice TO od_owner;
SELECT is(od.says('od_writer', $$DELETE FROM od.s_called WHERE v = 1$$), 'works', 'with the right given back the writer goes on, though he has none');
SET ROLE od_writer;
UPDATE od.s_called SET ts = 'infinity' WHERE v = 1;
RESET ROLE;
SELECT results_eq($$SELECT key->>'k' FROM rollup_late WHERE rollup = 'r_called'::regclass$$, $$VALUES ('2')$$, 'the key is marked');
SELECT lives_ok($$SELECT rollup_refresh('r_called')$$, 'and computed');
SELECT is_empty($$SELECT * FROM rollup_verify('r_called')$$, 'exactly');

SELECT * FROM finish();
SELECT rollup_drop(rollup, true) FROM rollup_status WHERE rollup::text ~ '^(od.)?r_';
DROP SCHEMA od, od_types, od_code CASCADE;
DROP OWNED BY od_owner, od_writer, od_reader;
DROP ROLE od_owner, od_writer, od_reader;
