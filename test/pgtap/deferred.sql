-- Deferred constraints around the write-time fold: a deferred trigger of the source that
-- writes to it at COMMIT, or calls us; one that a trigger of live's fires while we fold;
-- foreign keys from and to live; SET CONSTRAINTS midway.
-- Exact afterwards, in each mode, or an error that says why.
--
-- Fails when what is written while we fold is not folded in turn (the loops of fold_all and
-- fold_at_end in fold.c).
\ir lib/begin.sql
CREATE SCHEMA df;
SET search_path = df, public;

SELECT no_plan();

\ir lib/each_mode.sql
ALTER TABLE s ADD UNIQUE (k, ts, v) DEFERRABLE INITIALLY DEFERRED;

-- the source's deferred trigger does this, once a transaction
CREATE TABLE does (what text);
CREATE FUNCTION later() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	statement text;
BEGIN
	IF coalesce(current_setting('df.done', true), '') <> 'yes' THEN
		PERFORM set_config('df.done', 'yes', true);
		FOR statement IN SELECT what FROM does LOOP EXECUTE statement; END LOOP;
	END IF;
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER later AFTER INSERT OR UPDATE OR DELETE ON s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION later();

-- ==== it writes to the source
INSERT INTO does VALUES ('INSERT INTO df.s (k, ts, v) SELECT ''k1'', ''2026-01-02 00:30Z'', max(id) + 1000 FROM df.s');
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-02 00:10Z', 101);
SELECT is((SELECT count(*) FROM s WHERE ts = '2026-01-02 00:30Z'), 1::bigint, 'written at COMMIT');
SELECT is(wrong() || wrong(true), '', 'a deferred trigger inserts');
BEGIN;
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-02 00:11Z', 102);
SET CONSTRAINTS ALL IMMEDIATE;
INSERT INTO s (k, ts, v) VALUES ('new', now(), 103);
SET CONSTRAINTS ALL DEFERRED;
UPDATE s SET v = v + 1000 WHERE k = 'k0';
COMMIT;
SELECT is(wrong() || wrong(true), '', 'constraints immediate and deferred midway');
BEGIN;
SAVEPOINT a;
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-02 00:12Z', 104);
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK TO a;
DELETE FROM s WHERE v = 9;
SAVEPOINT b;
UPDATE s SET ts = ts + interval '1s' WHERE v = 10;
SELECT rollup_fold() WHERE false;
RELEASE b;
COMMIT;
SELECT is(wrong() || wrong(true), '', 'savepoints');
UPDATE does SET what = 'UPDATE df.s SET k = ''k2'' WHERE v = 7; DELETE FROM df.s WHERE v = 6';
DELETE FROM s WHERE v = 5;
SELECT is((SELECT k FROM s WHERE v = 7), 'k2', 'updated at COMMIT');
SELECT is(wrong() || wrong(true), '', 'a deferred trigger updates and deletes');
UPDATE does SET what = 'DO $d$ BEGIN INSERT INTO df.s (k, ts, v) VALUES (''k3'', ''2026-01-02 00:30Z'', 7); RAISE ''x'';
	EXCEPTION WHEN raise_exception THEN INSERT INTO df.s (k, ts, v) VALUES (''k3'', ''2026-01-02 00:31Z'', 8); END $d$';
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-02 00:13Z', 105);
SELECT is((SELECT string_agg(v::text, ' ') FROM s WHERE k = 'k3' AND ts >= '2026-01-02 00:30Z' AND ts < '2026-01-02 00:32Z'), '8', 'with an error within');
SELECT is(wrong() || wrong(true), '', 'a deferred trigger fails and goes on');
-- a constraint that is broken at the end: nothing has happened
UPDATE does SET what = 'INSERT INTO df.s (k, ts, v) SELECT k, ts, v FROM df.s WHERE v = 14';
\set ON_ERROR_STOP 0
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-02 00:14Z', 106);
\set ON_ERROR_STOP 1
SELECT is(:'LAST_ERROR_SQLSTATE'::text, '23505', 'a deferred constraint is broken');
SELECT is((SELECT count(*) FROM s WHERE v = 106), 0::bigint, 'nothing is written');
SELECT is(wrong() || wrong(true), '', 'nor folded');

-- ==== it calls us: refused while rows of the source wait for their triggers
CREATE FUNCTION refuses(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	hint text;
BEGIN
	UPDATE does SET what = statement;
	INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-02 00:15Z', 107);
	SET CONSTRAINTS ALL IMMEDIATE;
	RETURN NEXT fail(statement || ' is refused');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RETURN NEXT is(SQLSTATE || ' ' || SQLERRM, (SELECT '55006 ' || SQLERRM WHERE SQLERRM LIKE 'cannot % of "s" because it is being used by active queries in this session'), statement);
END $$;
SELECT refuses(statement) FROM unnest('{SELECT public.rollup_fold(),SELECT public.rollup_refresh(''df.r_on''),SELECT public.rollup_promote(''df.r_shadow''),
	SELECT public.rollup_recompute(''df.r_off''),SELECT public.rollup_flush(''df.r_off''),"SELECT public.rollup_alter(''df.r_off'', fold => false)"}'::text[]) statement;
TRUNCATE does;
SELECT is(wrong() || wrong(true), '', 'exact after that');

-- ==== a trigger of live's writes to a table whose deferred trigger writes to the source
CREATE TABLE aside (k text);
CREATE FUNCTION to_aside() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.k = 'k1' THEN INSERT INTO df.aside VALUES (NEW.k); END IF;
	RETURN NULL;
END $$;
CREATE FUNCTION from_aside() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF (SELECT count(*) FROM df.aside) < 4 THEN
		INSERT INTO df.s (k, ts, v) VALUES ('k1', '2026-01-03 00:30Z', nextval('df.s_id_seq') + 2000);
		INSERT INTO df.s (k, ts, v) VALUES ('aside', '2026-01-03 00:30Z', nextval('df.s_id_seq') + 3000);
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER to_aside AFTER INSERT OR UPDATE ON r_off FOR EACH ROW EXECUTE FUNCTION to_aside();
CREATE CONSTRAINT TRIGGER from_aside AFTER INSERT ON aside DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION from_aside();
\set ON_ERROR_STOP 0
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-02 00:16Z', 108);
\set ON_ERROR_STOP 1
SELECT is(:'LAST_ERROR_SQLSTATE'::text, '42501', 'not deferred: the fold is a security-restricted operation');
SELECT is(wrong() || wrong(true), '', 'and nothing is done');
BEGIN;
SET CONSTRAINTS ALL IMMEDIATE;
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-02 00:16Z', 108);
COMMIT;
SELECT is((SELECT count(*) FROM s WHERE k = 'aside'), 3::bigint, 'at once: three times around');
SELECT is(wrong() || wrong(true), '', 'and exact');
TRUNCATE aside;
BEGIN;
DELETE FROM s WHERE k = 'aside' OR v = 13;
SET CONSTRAINTS ALL IMMEDIATE;
UPDATE s SET v = v + 1 WHERE k = 'k1';
COMMIT;
SELECT is(wrong() || wrong(true), '', 'updates and deletes too');
DROP TRIGGER to_aside ON r_off;

-- ==== foreign keys of live
CREATE TABLE parent (k text PRIMARY KEY);
INSERT INTO parent SELECT DISTINCT k FROM s;
ALTER TABLE r_off ADD CONSTRAINT up FOREIGN KEY (k) REFERENCES parent;
BEGIN;
INSERT INTO s (k, ts, v) VALUES ('fresh', '2026-01-02 00:17Z', 109);
INSERT INTO parent VALUES ('fresh');
COMMIT;
SELECT is(wrong() || wrong(true), '', 'the parent comes after the event, before the fold');
\set ON_ERROR_STOP 0
INSERT INTO s (k, ts, v) VALUES ('orphan', '2026-01-02 00:17Z', 110);
\set ON_ERROR_STOP 1
SELECT is(:'LAST_ERROR_SQLSTATE'::text, '23503', 'no parent: the writer is told');
SELECT is(wrong() || wrong(true), '', 'and nothing is done');
CREATE TABLE child (k text REFERENCES r_off (k), cascading text REFERENCES r_off (k) ON DELETE CASCADE);
INSERT INTO child VALUES ('k2', NULL), (NULL, 'k3');
\set ON_ERROR_STOP 0
DELETE FROM s WHERE k = 'k2';
\set ON_ERROR_STOP 1
SELECT is(:'LAST_ERROR_SQLSTATE'::text, '23503', 'a key that is referred to stays');
DELETE FROM s WHERE k = 'k3';
SELECT is((SELECT count(*) FROM child), 1::bigint, 'or takes with it what refers to it');
SELECT is(wrong() || wrong(true), '', 'exact');
DROP TABLE child;
ALTER TABLE r_off DROP CONSTRAINT up;
-- from the source to live: a key must be there before its first event is folded
SELECT throws_ok('ALTER TABLE s ADD FOREIGN KEY (k) REFERENCES r_off (k) DEFERRABLE INITIALLY DEFERRED', '0A000', NULL, 'a deferrable one is refused');
ALTER TABLE s ADD CONSTRAINT down FOREIGN KEY (k) REFERENCES r_off (k);
INSERT INTO s (k, ts, v) VALUES ('k1', '2026-01-02 00:18Z', 111);
\set ON_ERROR_STOP 0
INSERT INTO s (k, ts, v) VALUES ('first', '2026-01-02 00:18Z', 112);
\set ON_ERROR_STOP 1
SELECT is(:'LAST_ERROR_SQLSTATE'::text, '23503', 'one of the source to live is met before the fold');
DELETE FROM s WHERE k = 'k0';
SELECT is(wrong() || wrong(true), '', 'exact');

SELECT * FROM finish();
ALTER TABLE s DROP CONSTRAINT down;
SELECT rollup_drop(rollup, true) FROM rollup_status WHERE rollup::text LIKE 'r\_%';
DROP SCHEMA df CASCADE;
