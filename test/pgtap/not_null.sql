-- A unique index rules duplicates out only where its columns hold no NULL.
-- From PostgreSQL 18 on NOT NULL may be NOT VALID: old rows may hold one.
\ir lib/begin.sql

BEGIN;

SELECT plan(3);

CREATE SCHEMA nn;
CREATE TABLE nn.s (k text NOT NULL, e text, ts timestamptz NOT NULL);
CREATE UNIQUE INDEX ON nn.s (e);
INSERT INTO nn.s SELECT 'a', NULL, '2026-01-01 01:00Z' FROM generate_series(1, 3);
DO $$
BEGIN
  IF current_setting('server_version_num')::int >= 180000 THEN
    EXECUTE 'ALTER TABLE nn.s ADD CONSTRAINT s_e NOT NULL e NOT VALID';
  END IF;
END $$;
SELECT rollup_create('nn.r', 'SELECT k, count(*) AS count FROM nn.s GROUP BY k', 'ts',
                     dedup_by => '{k,e,ts}', mode => 'on');
SELECT is((SELECT action FROM rollup_refresh('nn.r', '2026-01-02 00:00Z')), 'seed', 'a seed');
SELECT results_eq('SELECT count FROM nn.r', 'SELECT 1::bigint', 'NULLs are equal');
SELECT is_empty($$SELECT * FROM rollup_verify('nn.r')$$, 'and exact');

SELECT * FROM finish();
ROLLBACK;
