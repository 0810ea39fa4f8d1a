-- What a fold did not make may hold rows whose marks wait: each change that brings
-- live or its shadow another content, or none, begins an epoch, so that a mark from
-- before it, or one by a session that remembers what was before it, asks for a
-- recompute.  A fold begins none: marks from before it are merged.
--
-- Fails when one of these does not (NEXT_EPOCH in catalog_write.c).
\ir lib/begin.sql

SELECT no_plan();
CREATE SCHEMA ep;
CREATE TABLE ep.src (k text NOT NULL, ts timestamptz NOT NULL);
INSERT INTO ep.src VALUES ('a', '2026-01-01'), ('b', '2026-01-02');
SELECT rollup_create('ep.live', 'SELECT k, count(*) AS n FROM ep.src GROUP BY k', 'ts', mode => 'on');
CREATE TABLE ep.seen (epoch bigint);
INSERT INTO ep.seen VALUES (0);
CREATE FUNCTION ep.begins(begins boolean, what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE now bigint := (SELECT epoch FROM dailyrollup.rollups WHERE live = 'ep.live'::regclass);
BEGIN
  RETURN NEXT is(now > (SELECT epoch FROM ep.seen), begins, what);
  UPDATE ep.seen SET epoch = now;
END $$;

SELECT rollup_refresh('ep.live', '2026-01-02 00:00Z');
SELECT ep.begins(true, 'a seed');
SELECT rollup_refresh('ep.live', '2026-01-03 00:00Z');
SELECT ep.begins(false, 'a fold');
INSERT INTO ep.src VALUES ('a', '2026-01-01');
SELECT rollup_refresh('ep.live', '2026-01-03 00:00Z');
SELECT ep.begins(false, 'late keys');
TRUNCATE ep.src;
SELECT ep.begins(true, 'TRUNCATE');
SELECT rollup_refresh('ep.live', '2026-01-03 00:00Z');
SELECT ep.begins(true, 'the seed after it');
CALL rollup_run('ep.live');
SELECT ep.begins(false, 'a pass that folds');
SELECT rollup_alter('ep.live', mode => 'off');
SELECT ep.begins(false, 'a wish');
CALL rollup_run('ep.live');
SELECT ep.begins(true, 'on to off');
SELECT rollup_alter('ep.live', mode => 'shadow');
CALL rollup_run('ep.live');
SELECT ep.begins(true, 'off to shadow');
SELECT rollup_reseed('ep.live');
SELECT ep.begins(true, 'a shadow that counts no more');
SELECT rollup_refresh('ep.live');
SELECT ep.begins(true, 'its seed');
SELECT count(*) AS promoted FROM rollup_promote('ep.live') \gset
SELECT ep.begins(true, 'a promote');
SELECT is_empty($$SELECT * FROM rollup_verify('ep.live')$$, 'exact');

SELECT rollup_drop('ep.live', true);
DROP SCHEMA ep CASCADE;
SELECT * FROM finish();
