-- What a superuser drops while our event triggers are off leaves a rollup without
-- a table: its routines tell so, others are served, and rollup_drop removes the rest.
--
-- Fails when nobody asks whether live is there (dr_owned_rollup in catalog.c) or may
-- remove what is left (is_owned there); and when a table that is gone has no error
-- (dr_phrase_relation in phrase.c).
\ir lib/begin.sql

BEGIN;
SET LOCAL client_min_messages = warning;
CREATE ROLE re_owner;
CREATE ROLE re_stranger;
CREATE SCHEMA re;
GRANT ALL ON SCHEMA re TO re_owner, re_stranger;
SET LOCAL search_path = re, public;

SELECT plan(27);

SET LOCAL ROLE re_owner;
CREATE TABLE s (k text NOT NULL, ts timestamptz NOT NULL, n int);
CREATE INDEX ON s (k);
INSERT INTO s VALUES ('a', '2026-01-01 01:00Z', 1), ('b', '2026-01-01 02:00Z', 2);
SET LOCAL client_min_messages = error;
SELECT rollup_create(live, 'SELECT k, count(*), sum(n) FROM s GROUP BY k', 'ts', mode => 'on') FROM unnest('{gone,stays,bare}'::text[]) live;
SELECT is((SELECT count(*) FROM rollup_refresh(NULL, '2026-01-02Z')), 3::bigint, 'three rollups');
INSERT INTO s VALUES ('a', '2026-01-01 03:00Z', 4);
RESET ROLE;

SELECT 'gone'::regclass::oid AS gone \gset
ALTER EVENT TRIGGER dailyrollup_dropped DISABLE;
DROP TABLE gone CASCADE;
DO $$ BEGIN EXECUTE format('DROP TABLE %s CASCADE', (SELECT marks FROM dailyrollup.rollups WHERE live = 'bare'::regclass)); END $$;
ALTER EVENT TRIGGER dailyrollup_dropped ENABLE ALWAYS;

-- by its OID, for it has no name
SELECT throws_ok(format('SELECT %s', replace(call, '$', :'gone')), '42P01', format('the table of the rollup with OID %s does not exist', :'gone'), call)
FROM unnest(ARRAY['rollup_definition($)', 'rollup_check($)', 'rollup_verify($)', 'rollup_diff($)', 'rollup_mark($, ''-infinity'', ''infinity'')',
	'rollup_reseed($)', 'rollup_flush($)', 'rollup_recompute($)', 'rollup_alter($, delay => ''1h'')', 'rollup_refresh($, ''2026-01-03Z'')', 'rollup_promote($)']) call;
SET LOCAL ROLE re_owner;
SELECT throws_ok(format('SELECT rollup_reseed(%s)', :'gone'), '42P01', NULL, 'the owner is told, too');
SELECT throws_ok('SELECT rollup_verify(''bare'')', '42P01', NULL, 'marks that are gone');
SELECT throws_like('SELECT rollup_verify(''bare'')', 'relation with OID % does not exist', 'are told');
RESET ROLE;

SELECT rollup_drop('bare', true);
-- who looks at all is not kept from the others
SELECT results_eq($$SELECT rollup::text FROM rollup_status ORDER BY 1$$, $$VALUES ('stays')$$, 'the status');
SELECT results_eq($$SELECT DISTINCT rollup::text FROM rollup_late$$, $$VALUES ('stays')$$, 'the late keys');
SELECT results_eq($$SELECT rollup::text FROM rollup_check()$$, $$VALUES ('stays')$$, 'a check');
SELECT results_eq($$SELECT rollup::text, action FROM rollup_refresh(NULL, '2026-01-03Z')$$, $$VALUES ('stays', 'fold')$$, 'a refresh');
SELECT lives_ok($$INSERT INTO s VALUES ('b', '2026-01-01 04:00Z', 8)$$, 'a writer');
SELECT is_empty($$SELECT * FROM rollup_verify('stays')$$, 'it is exact');

SET LOCAL ROLE re_stranger;
SELECT throws_ok(format('SELECT rollup_%s(%s)', call, :'gone'), '42501', 'must be owner of table ' || :'gone', 'a stranger: ' || call) FROM unnest('{drop,reseed,check}'::text[]) call;
SET LOCAL ROLE re_owner;
SELECT lives_ok(format('SELECT rollup_drop(%s)', :'gone'), 'the source''s owner removes what is left');
RESET ROLE;
SELECT results_eq('SELECT live::text FROM dailyrollup.rollups', $$VALUES ('stays')$$, 'one rollup');
SELECT is((SELECT count(*) FROM pg_class WHERE relnamespace = 'dailyrollup'::regnamespace AND relname ~ '_[0-9]+$'), 4::bigint, 'and its parts');

SELECT * FROM finish();
ROLLBACK;
