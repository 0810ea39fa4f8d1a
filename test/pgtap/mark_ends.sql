-- A mark is the writer's: it comes and goes with his savepoints and his prepared
-- transaction, while others mark the same keys and refreshes take their marks.  In each
-- mode, with rows of a key merged and of one computed anew; what waits is exact in
-- _current, and in live after the next refresh.
--
-- Fails when the mark of a row that was deleted or changed is taken for that of one that
-- was inserted (capture.c).
\ir lib/begin.sql
CREATE SCHEMA me;
SET search_path = me, public;

SELECT no_plan();

\ir lib/each_mode.sql

CREATE FUNCTION late() RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(DISTINCT key->>'k', ' ' ORDER BY key->>'k') FROM rollup_late WHERE rollup::text LIKE 'r\_on%' OR rollup::text LIKE 'r\_shadow%'
$$;

-- ==== savepoints
BEGIN;
SAVEPOINT a;
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-01 02:30Z', 100), ('gone', '2026-01-01 02:30Z', 100);
SELECT is(late(), 'gone k1', 'marked in a subtransaction');
ROLLBACK TO a;
SELECT is(late(), NULL, 'no more');
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-01 02:30Z', 101);
SELECT is(late(), 'k1', 'marked again outside');
SAVEPOINT b;
DELETE FROM s WHERE k = 'k1' AND v = 101;
UPDATE s SET v = v + 1000 WHERE k = 'k2';
ROLLBACK TO b;
SAVEPOINT c;
INSERT INTO s (k, ts, v) VALUES ('k3', '2026-01-01 02:30Z', 102);
SAVEPOINT d;
DELETE FROM s WHERE k = 'k4';
RELEASE c;
COMMIT;
SELECT is(late(), 'k1 k3 k4', 'what was not rolled back');
SELECT is(wrong(), '', 'and waits');
SELECT is(wrong(true), '', 'and is computed');
SELECT is(late(), NULL, 'no mark is left');
-- a refresh of one's own between, which is rolled back
BEGIN;
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-01 03:30Z', 103);
SAVEPOINT a;
SELECT rollup_refresh(rollup, watermark) FROM rollup_status WHERE rollup::text LIKE 'r\_on%' OR rollup::text LIKE 'r\_shadow%';
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-01 04:30Z', 104);
ROLLBACK TO a;
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-01 05:30Z', 105);
COMMIT;
SELECT is(late(), 'k1', 'a refresh that is rolled back leaves the marks');
SELECT is(wrong(), '', 'which wait');
SELECT is(wrong(true), '', 'and are computed');

-- ==== prepared transactions: those of the same keys commit, and refreshes go on
CREATE PROCEDURE others() LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO me.s (k, ts, v) VALUES ('k1', '2026-01-01 06:10Z', 200), ('k2', '2026-01-01 06:10Z', 200), ('other', '2026-01-01 06:10Z', 200);
	DELETE FROM me.s WHERE k = 'other' AND v <> 200;
END $$;
-- where writes are folded, others would wait for the keys
SELECT rollup_drop(rollup, true) FROM rollup_status WHERE rollup::text LIKE 'r\_shadow%' OR rollup::text LIKE 'r\_off%';

BEGIN;
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-01 06:30Z', 106), ('fresh', '2026-01-01 06:30Z', 106);
DELETE FROM s WHERE k = 'k2' AND v = 7;
SAVEPOINT a;
UPDATE s SET v = 1000 WHERE k = 'k3';
ROLLBACK TO a;
UPDATE s SET v = v + 1 WHERE k = 'k0' AND v = 10;
PREPARE TRANSACTION 'me_commits';
SELECT is(wrong(), '', 'prepared: not there yet');
CALL others();
SELECT is(late(), 'k1 k2 other', 'others mark the same keys');
SELECT is(wrong(true), '', 'and their marks are taken');
SELECT is(late(), NULL, 'all that are there');
COMMIT PREPARED 'me_commits';
SELECT is(late(), 'fresh k0 k1 k2', 'the prepared marks come with its commit');
SELECT is(wrong(), '', 'prepared, refreshed, committed');
SELECT is(wrong(true), '', 'and computed');

BEGIN;
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-01 07:30Z', 107), ('never', '2026-01-01 07:30Z', 107);
DELETE FROM s WHERE k = 'k4';
PREPARE TRANSACTION 'me_rolls_back';
CALL others();
SELECT is(wrong(true), '', 'prepared, refreshed');
ROLLBACK PREPARED 'me_rolls_back';
SELECT is(late(), NULL, 'its marks go with it');
SELECT is(wrong(true), '', 'rolled back');

SELECT * FROM finish();
SELECT rollup_drop(rollup, true) FROM rollup_status WHERE rollup::text LIKE 'r\_%';
DROP SCHEMA me CASCADE;
