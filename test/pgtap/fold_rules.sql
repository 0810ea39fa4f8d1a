-- A write that is folded into live goes by the server's rules for live.  What DDL is
-- not let do to live is done by a superuser here while the event triggers are off.
--
-- Fails when a fold writes to live what a statement may not (is_plain in seize.c).
\ir lib/begin.sql

SELECT plan(5);

CREATE ROLE fr_owner;
CREATE SCHEMA fr;
GRANT ALL ON SCHEMA fr TO fr_owner;
SET ROLE fr_owner;
CREATE TABLE fr.s (k text NOT NULL, ts timestamptz NOT NULL);
INSERT INTO fr.s VALUES ('a', '2026-01-01Z');
SELECT rollup_create('fr.live', 'SELECT k, count(*) AS n FROM fr.s GROUP BY k', 'ts', mode => 'off');
RESET ROLE;
CALL rollup_run('fr.live');

CREATE PROCEDURE fr.unwatched(command text) LANGUAGE plpgsql AS $$
BEGIN
  ALTER EVENT TRIGGER dailyrollup_ddl_ended DISABLE;
  EXECUTE command;
  ALTER EVENT TRIGGER dailyrollup_ddl_ended ENABLE ALWAYS;
END $$;

-- a row is written, and folded
CREATE FUNCTION fr.write() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO fr.s VALUES ('a', '2026-01-02Z');
  PERFORM rollup_fold();
  RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
  RETURN SQLSTATE;
END $$;

SELECT is(fr.write(), 'ok', 'a write');
CALL fr.unwatched('CREATE RULE x AS ON UPDATE TO fr.live DO ALSO NOTHING');
SELECT is(fr.write(), '0A000', 'where live has a rule');
CALL fr.unwatched('DROP RULE x ON fr.live');
CALL fr.unwatched('ALTER TABLE fr.live ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY');
SELECT is(fr.write(), '42501', 'where policies hold for its owner');
CALL fr.unwatched('ALTER TABLE fr.live DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY');
SELECT is(fr.write(), 'ok', 'where neither is');
SELECT is_empty($$SELECT * FROM rollup_verify('fr.live')$$, 'live is exact');

SELECT rollup_drop('fr.live', true);
DROP SCHEMA fr CASCADE;
DROP ROLE fr_owner;
SELECT * FROM finish();
