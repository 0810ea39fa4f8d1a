-- A unique index rules duplicates out only where its columns hold no NULL.
-- From PostgreSQL 18 on NOT NULL may be NOT VALID: old rows may hold one.  What
-- the source has been declared NOT NULL since may still be NULL in live.
\ir lib/begin.sql

SELECT plan(13);

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

-- A key with a NULL goes, and there can be none any more, before it is computed.
CREATE TABLE nn.t (k text, l int NOT NULL, ts timestamptz NOT NULL, v int);
INSERT INTO nn.t VALUES ('a', 1, '2026-01-01 01:00Z', 1), (NULL, 1, '2026-01-01 01:00Z', 2), (NULL, 2, '2026-01-01 01:00Z', 4);
SELECT rollup_create('nn.kept', 'SELECT k, l, count(*) AS count, sum(v) AS v FROM nn.t GROUP BY k, l', 'ts', mode => 'on');
SELECT rollup_create('nn.folded', 'SELECT k, l, count(*) AS count, sum(v) AS v FROM nn.t GROUP BY k, l', 'ts', mode => 'off');
SELECT count(*) FROM rollup_refresh('nn.kept', '2026-01-02 00:00Z');
CALL rollup_run('nn.folded');
SELECT bag_eq('SELECT k, l, v FROM nn.kept', $$VALUES ('a', 1, 1::bigint), (NULL, 1, 2), (NULL, 2, 4)$$, 'on: keys with a NULL');
SELECT bag_eq('TABLE nn.folded', 'TABLE nn.kept', 'off: likewise');
SET dailyrollup.backfill = on;
DELETE FROM nn.t WHERE k IS NULL;
RESET dailyrollup.backfill;
SELECT bag_eq('SELECT k, l, v FROM nn.kept', $$VALUES ('a', 1, 1::bigint), (NULL, 1, 2), (NULL, 2, 4)$$, 'on: they are marked');
SELECT bag_eq('TABLE nn.folded', 'TABLE nn.kept', 'off: likewise');
ALTER TABLE nn.t ALTER k SET NOT NULL;
SELECT is((SELECT late_keys FROM rollup_refresh('nn.kept', '2026-01-02 00:00Z')), 2::bigint, 'on: both are computed');
SELECT results_eq('SELECT k, l, v FROM nn.kept', $$VALUES ('a', 1, 1::bigint)$$, 'and gone');
SELECT ok(rollup_flush('nn.folded') IS NOT NULL, 'off: a flush');
SELECT results_eq('SELECT k, l, v FROM nn.folded', $$VALUES ('a', 1, 1::bigint)$$, 'and they are gone');

-- the same within the transaction whose rows are folded at its end
CREATE TABLE nn.u (k text, l int NOT NULL, ts timestamptz NOT NULL, v int);
INSERT INTO nn.u TABLE nn.t;
SELECT rollup_create('nn.at_once', 'SELECT k, l, count(*) AS count, sum(v) AS v, latest(v, ts) AS last, max(ts) AS ts FROM nn.u GROUP BY k, l', 'ts', mode => 'off');
CALL rollup_run('nn.at_once');
INSERT INTO nn.u VALUES (NULL, 1, '2026-01-01 01:00Z', 2), (NULL, 2, '2026-01-01 01:00Z', 4);
SELECT results_eq('SELECT k, l, v FROM nn.at_once ORDER BY k, l', $$VALUES ('a', 1, 1::bigint), (NULL, 1, 2), (NULL, 2, 4)$$, 'keys with a NULL');
BEGIN;
INSERT INTO nn.u VALUES (NULL, 1, '2026-01-01 02:00Z', 3);
DELETE FROM nn.u WHERE k IS NULL;
ALTER TABLE nn.u ALTER k SET NOT NULL;
COMMIT;
SELECT results_eq('SELECT k, l, v FROM nn.at_once', $$VALUES ('a', 1, 1::bigint)$$, 'and they are gone at the commit');

DROP SCHEMA nn CASCADE;
SELECT * FROM finish();
