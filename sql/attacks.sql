-- What a rollup that its owner has broken says to those who watch over all of
-- them: the views of status warn of it and show the others.
--
-- Protects try_list_late in check.c, and refuse_view in definition.c.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS dailyrollup;
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set SHOW_CONTEXT never
CREATE ROLE regress_attacks_owner;
CREATE SCHEMA attacks;
CREATE SCHEMA attacks_owner AUTHORIZATION regress_attacks_owner;
SET search_path = attacks, public;
CREATE TABLE events (k text NOT NULL, ts timestamptz NOT NULL);
INSERT INTO events VALUES ('a', '2026-01-01');
SELECT rollup_create('events_n', 'SELECT k, count(*) AS n FROM events GROUP BY k', 'ts', mode => 'on');
SELECT action FROM rollup_refresh('events_n', '2026-01-03 00:00Z');
INSERT INTO events VALUES ('a', '2026-01-01'), ('b', '2026-01-01');
SET ROLE regress_attacks_owner;
CREATE TABLE attacks_owner.broken (k text NOT NULL, ts timestamptz NOT NULL);
INSERT INTO attacks_owner.broken VALUES ('a', '2026-01-01');
SELECT rollup_create('attacks_owner.broken_n', 'SELECT k, count(*) AS n FROM attacks_owner.broken GROUP BY k', 'ts', mode => 'on');
SELECT action FROM rollup_refresh('attacks_owner.broken_n', '2026-01-03 00:00Z');
INSERT INTO attacks_owner.broken VALUES ('a', '2026-01-01');
RESET ROLE;
SELECT rollup, state, late_keys, last_outcome FROM rollup_status ORDER BY rollup::text;
SELECT rollup, key, marks FROM rollup_late ORDER BY rollup::text, key::text;

\echo ==== The owner replaces the view that is the definition
SELECT split_part(definition::text, '.', 2) AS definition FROM dailyrollup.rollups WHERE live = 'attacks_owner.broken_n'::regclass \gset
SET ROLE regress_attacks_owner;
\set ECHO none
ALTER VIEW dailyrollup.:definition SET SCHEMA attacks_owner;
ALTER VIEW attacks_owner.:definition RENAME TO definition;
\set ECHO all
CREATE OR REPLACE VIEW attacks_owner.definition AS SELECT 'x'::text AS k, 1::bigint AS n;
RESET ROLE;
SELECT rollup, state, late_keys, last_outcome FROM rollup_status ORDER BY rollup::text;
SELECT rollup, key, marks FROM rollup_late ORDER BY rollup::text, key::text;
SELECT rollup, action, outcome FROM rollup_runs ORDER BY id;
SELECT rollup, action FROM rollup_refresh('events_n', '2026-01-03 00:00Z');
-- by name, for whoever it is
SELECT * FROM attacks_owner.broken_n_current;
SELECT rollup_refresh('attacks_owner.broken_n', '2026-01-03 00:00Z');
SELECT rollup_verify('attacks_owner.broken_n');
SELECT rollup_check('attacks_owner.broken_n');
SELECT rollup_definition('attacks_owner.broken_n');
INSERT INTO attacks_owner.broken VALUES ('b', '2026-01-01');
SELECT rollup_watermark('attacks_owner.broken_n');

\echo ==== The hint is right
SET ROLE regress_attacks_owner;
SELECT rollup_drop('attacks_owner.broken_n', true);
SELECT rollup_create('attacks_owner.broken_n', 'SELECT k, count(*) AS n FROM attacks_owner.broken GROUP BY k', 'ts', mode => 'on');
RESET ROLE;
SELECT rollup, action FROM rollup_refresh(NULL, '2026-01-03 00:00Z') ORDER BY rollup::text;
SELECT rollup, state, late_keys, last_outcome FROM rollup_status ORDER BY rollup::text;

SELECT rollup_drop(rollup, true) FROM rollup_status;
SET search_path = public;
DROP SCHEMA attacks, attacks_owner CASCADE;
DROP ROLE regress_attacks_owner;
