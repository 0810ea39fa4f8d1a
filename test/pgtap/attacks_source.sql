-- What later DDL may not make of a source; and a refresh that has nothing to do.
\ir lib/begin.sql

SELECT no_plan();

CREATE ROLE ax_owner;
CREATE SCHEMA ax AUTHORIZATION ax_owner;
CREATE SCHEMA ax_helpers;
GRANT USAGE ON SCHEMA ax_helpers TO PUBLIC;
SET search_path = ax_helpers, public;
\ir lib/roles.sql
CREATE FOREIGN DATA WRAPPER ax_wrapper;
CREATE SERVER ax_server FOREIGN DATA WRAPPER ax_wrapper;
GRANT USAGE ON FOREIGN SERVER ax_server TO ax_owner;

SET ROLE ax_owner;
CREATE TABLE ax.plain (k text NOT NULL, t timestamptz NOT NULL, v int);
CREATE TABLE ax.parted (k text NOT NULL, t timestamptz NOT NULL, v int) PARTITION BY RANGE (t);
CREATE TABLE ax.parted_1 PARTITION OF ax.parted FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE ax.parted_2 PARTITION OF ax.parted FOR VALUES FROM ('2026-02-01') TO ('2026-03-01') PARTITION BY LIST (k);
CREATE TABLE ax.parted_2_a PARTITION OF ax.parted_2 FOR VALUES IN ('a');
CREATE UNLOGGED TABLE ax.unlogged (k text NOT NULL, t timestamptz NOT NULL, v int);
CREATE TABLE ax.logged (k text NOT NULL, t timestamptz NOT NULL, v int);
CREATE FOREIGN TABLE ax.elsewhere (k text NOT NULL, t timestamptz NOT NULL, v int) SERVER ax_server;
CREATE TABLE ax.holder (k text NOT NULL, t timestamptz NOT NULL, v int) PARTITION BY LIST (k);
CREATE UNLOGGED TABLE ax.holder_a PARTITION OF ax.holder FOR VALUES IN ('a');
INSERT INTO ax.plain VALUES ('a', '2026-01-01', 1);
INSERT INTO ax.parted VALUES ('a', '2026-01-01', 1), ('a', '2026-02-01', 2);
SELECT rollup_create('ax.plain_n', 'SELECT k, count(*) AS n, sum(v) AS total FROM ax.plain GROUP BY k', 't', mode => 'on');
SELECT rollup_create('ax.parted_n', 'SELECT k, count(*) AS n, sum(v) AS total FROM ax.parted GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh(r, '2026-01-03 00:00Z') FROM unnest('{ax.plain_n,ax.parted_n}'::regclass[]) r;
RESET ROLE;

-- ==== What rollup_create refuses is refused later, too, by whoever does it.
-- Protects dr_source_check_again in source.c, the tags of the event trigger
-- (install script), and changed, relation_altered and check_own_table in ddl.c.
CREATE TABLE refused (i int GENERATED ALWAYS AS IDENTITY, statement text, says text);
INSERT INTO refused (statement, says)
SELECT replace(statement, '%', source), '0A000 the source of a rollup cannot force row-level security on its owner' FROM unnest('{ax.plain,ax.parted}'::text[]) source,
  unnest('{ALTER TABLE % ENABLE ROW LEVEL SECURITY; ALTER TABLE % FORCE ROW LEVEL SECURITY,
           ALTER TABLE % FORCE ROW LEVEL SECURITY; ALTER TABLE % ENABLE ROW LEVEL SECURITY,
           "ALTER TABLE % ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
           "ALTER TABLE % ADD COLUMN x int, FORCE ROW LEVEL SECURITY, ENABLE ROW LEVEL SECURITY"}'::text[]) statement;
INSERT INTO refused (statement, says) VALUES
  ('ALTER TABLE ax.plain SET UNLOGGED', '0A000 the source of a rollup cannot be an unlogged table'),
  ('ALTER TABLE ax.plain ADD COLUMN x int, SET UNLOGGED', '0A000 the source of a rollup cannot be an unlogged table');
INSERT INTO refused (statement, says)
SELECT statement, '0A000 the source of a rollup cannot have an unlogged partition' FROM unnest(ARRAY[
  $$ALTER TABLE ax.parted_1 SET UNLOGGED$$,
  $$ALTER TABLE ax.parted_2_a SET UNLOGGED$$,
  $$CREATE UNLOGGED TABLE ax.parted_3 PARTITION OF ax.parted FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')$$,
  $$CREATE UNLOGGED TABLE ax.parted_2_b PARTITION OF ax.parted_2 FOR VALUES IN ('b')$$,
  $$CREATE SCHEMA ax_made CREATE UNLOGGED TABLE parted_3 PARTITION OF ax.parted FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')$$,
  $$ALTER TABLE ax.parted ATTACH PARTITION ax.unlogged FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')$$,
  $$ALTER TABLE ax.parted_2 ATTACH PARTITION ax.unlogged FOR VALUES IN ('b')$$,
  $$ALTER TABLE ax.parted ATTACH PARTITION ax.holder FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')$$]) statement;
INSERT INTO refused (statement, says)
SELECT statement, '42809 the source of a rollup cannot have a foreign partition' FROM unnest(ARRAY[
  $$CREATE FOREIGN TABLE ax.parted_3 PARTITION OF ax.parted FOR VALUES FROM ('2026-03-01') TO ('2026-04-01') SERVER ax_server$$,
  $$CREATE FOREIGN TABLE ax.parted_2_b PARTITION OF ax.parted_2 FOR VALUES IN ('b') SERVER ax_server$$,
  $$CREATE FOREIGN TABLE ax.parted_2_b PARTITION OF ax.parted_2 DEFAULT SERVER ax_server$$]) statement;
-- live and the marks, which must outlast a crash and hide nothing from their owner
INSERT INTO refused (statement, says)
SELECT format('ALTER TABLE %s SET UNLOGGED', relation), '0A000 table "ax.parted_n" of a rollup cannot be unlogged' FROM unnest('{ax.parted_n}'::regclass[]) relation
UNION ALL
SELECT format('ALTER TABLE %s SET UNLOGGED', r.marks), format('0A000 table "%s" of a rollup cannot be unlogged', r.marks) FROM dailyrollup.rollups r WHERE live = 'ax.plain_n'::regclass
UNION ALL
SELECT format(statement, relation), format('0A000 table "%s" of a rollup cannot force row-level security on its owner', relation)
FROM dailyrollup.rollups r, unnest(ARRAY[r.live, r.marks]) relation, unnest(ARRAY[
  'ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', 'ALTER TABLE %1$s FORCE ROW LEVEL SECURITY; ALTER TABLE %1$s ENABLE ROW LEVEL SECURITY']) statement
WHERE live = 'ax.plain_n'::regclass;
-- PostgreSQL refuses these by itself: row triggers, which we have, on a foreign table
INSERT INTO refused (statement, says)
SELECT statement, NULL FROM unnest(ARRAY[
  $$ALTER TABLE ax.parted ATTACH PARTITION ax.elsewhere FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')$$,
  $$ALTER TABLE ax.parted_2 ATTACH PARTITION ax.elsewhere FOR VALUES IN ('b')$$]) statement;
GRANT CREATE ON DATABASE :"DBNAME" TO ax_owner;
SELECT matches(try(role, statement), CASE WHEN says IS NULL THEN '^42' ELSE '^' || regexp_replace(says, '_\d+', '_N', 'g') || '$' END, format('%s may not: %s', role, statement)) FROM refused, unnest('{ax_owner,postgres}'::text[]) role ORDER BY i, role;
SELECT is(try(role, statement), 'ok', format('%s may: %s', role, statement)) FROM unnest('{ax_owner,postgres}'::text[]) role, unnest(ARRAY[
  'ALTER TABLE ax.plain ENABLE ROW LEVEL SECURITY; ALTER TABLE ax.plain DISABLE ROW LEVEL SECURITY',
  'ALTER TABLE ax.plain FORCE ROW LEVEL SECURITY; ALTER TABLE ax.plain NO FORCE ROW LEVEL SECURITY',
  'ALTER TABLE ax.plain SET LOGGED',
  'ALTER TABLE ax.logged ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; ALTER TABLE ax.logged DISABLE ROW LEVEL SECURITY, SET UNLOGGED; ALTER TABLE ax.logged SET LOGGED',
  'CREATE UNLOGGED TABLE ax.free (a int); CREATE TABLE ax.child () INHERITS (ax.plain); DROP TABLE ax.free, ax.child',
  'CREATE TABLE ax.parted_3 PARTITION OF ax.parted FOR VALUES FROM (''2026-03-01'') TO (''2026-04-01''); ALTER TABLE ax.parted DETACH PARTITION ax.parted_3; ALTER TABLE ax.parted_3 SET UNLOGGED; DROP TABLE ax.parted_3']) statement;
SELECT ok(exact('ax.plain_n') AND exact('ax.parted_n'), 'all is exact');
-- with the rollup the prohibition goes
BEGIN;
SELECT rollup_drop('ax.plain_n');
SELECT lives_ok('ALTER TABLE ax.plain SET UNLOGGED, ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', 'without a rollup all of it is allowed');
ROLLBACK;

-- ==== Who plans a query over a partition evaluates what its owner has put into it:
-- that must not be a superuser, by a rollup of his.  Protects check_partition_owner in
-- source.c.
\set mixed '0A000 the source of a superuser''s rollup cannot have partitions of others'
BEGIN;
SELECT is(try('postgres', 'ALTER TABLE ax.parted OWNER TO postgres'), :'mixed', 'a superuser takes the source alone');
SELECT is(try('postgres', 'ALTER TABLE ax.parted_1 OWNER TO postgres; ALTER TABLE ax.parted_2 OWNER TO postgres; ALTER TABLE ax.parted OWNER TO postgres'), :'mixed', 'all but a leaf');
SELECT is(try('postgres', 'ALTER TABLE ax.parted_1 OWNER TO postgres; ALTER TABLE ax.parted_2 OWNER TO postgres; ALTER TABLE ax.parted_2_a OWNER TO postgres; ALTER TABLE ax.parted OWNER TO postgres'), 'ok', 'the partitions before it');
SELECT is(try('postgres', format('ALTER TABLE ax.%s OWNER TO ax_owner', part)), :'mixed', 'and gives one away: ' || part) FROM unnest('{parted_1,parted_2,parted_2_a}'::text[]) part;
SET ROLE ax_owner;
CREATE TABLE ax.his (k text NOT NULL, t timestamptz NOT NULL, v int);
RESET ROLE;
SELECT is(try('postgres', $$ALTER TABLE ax.parted ATTACH PARTITION ax.his FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')$$), :'mixed', 'or attaches another''s');
SELECT is(try('postgres', 'ALTER TABLE ax.parted OWNER TO ax_owner; ALTER TABLE ax.parted_1 OWNER TO ax_owner'), 'ok', 'the source before its partitions');
SELECT is(try('postgres', $$ALTER TABLE ax.parted ATTACH PARTITION ax.his FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')$$), 'ok', 'a role that is no superuser may have partitions of others');
SELECT is(try('postgres', 'ALTER TABLE ax.his OWNER TO postgres'), 'ok', 'a superuser''s, too');
ROLLBACK;
BEGIN;
CREATE TABLE ax.taken (k text NOT NULL, t timestamptz NOT NULL, v int) PARTITION BY RANGE (t);
CREATE TABLE ax.taken_1 PARTITION OF ax.taken DEFAULT;
ALTER TABLE ax.taken_1 OWNER TO ax_owner;
SELECT is(try('postgres', $$SELECT rollup_create('ax.taken_n', 'SELECT k, count(*) AS n FROM ax.taken GROUP BY k', 't')$$), :'mixed', 'no rollup of such a source');
ALTER TABLE ax.taken_1 OWNER TO postgres;
SELECT is(try('postgres', $$SELECT rollup_create('ax.taken_n', 'SELECT k, count(*) AS n FROM ax.taken GROUP BY k', 't')$$), 'ok', 'but where all is a superuser''s');
ROLLBACK;

-- ==== A refresh that does nothing gives the refresh lock back at once, so it
-- can be prepared and keeps nobody waiting.  One that does something keeps it
-- to the end of its transaction.  Protects finish_refresh in refresh.c and
-- dr_locks_refresh_undone in locks.c.
SELECT definition FROM dailyrollup.rollups WHERE live = 'ax.plain_n'::regclass \gset
CREATE FUNCTION held(relation regclass) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(mode, ' ' ORDER BY mode) FROM pg_locks l WHERE l.relation = held.relation AND mode <> 'AccessShareLock'
$$;
BEGIN;
SELECT is((SELECT string_agg(action, ' ') FROM rollup_refresh('ax.plain_n', '2026-01-03 00:00Z')), 'none', 'nothing to do');
SELECT is(held(:'definition'), NULL, 'and no refresh lock is held');
SELECT is((SELECT string_agg(action, ' ') FROM rollup_refresh('ax.plain_n', '2026-01-02 00:00Z')), 'none', 'a boundary before the watermark');
SELECT is(held(:'definition'), NULL, 'and no refresh lock is held');
SELECT is((SELECT string_agg(action, ' ') FROM rollup_refresh(NULL, '2026-01-03 00:00Z')), 'none none', 'all of them');
SELECT is(held(:'definition'), NULL, 'and no refresh lock is held');
-- a late row of the same transaction is marked by the watermark
INSERT INTO ax.plain VALUES ('b', '2026-01-02', 4), ('b', '2026-01-05', 8);
SELECT is((SELECT count(*) FROM rollup_late), 1::bigint, 'a late row of the transaction');
SELECT is((SELECT string_agg(action, ' ') FROM rollup_refresh('ax.plain_n', '2026-01-03 00:00Z')), 'late', 'is something to do');
SELECT is(held(:'definition'), 'ExclusiveLock', 'and the refresh lock is held');
SELECT is((SELECT string_agg(action, ' ') FROM rollup_refresh('ax.plain_n', '2026-01-03 00:00Z')), 'none', 'another one has nothing to do');
SELECT is(held(:'definition'), 'ExclusiveLock', 'and leaves the lock of the first');
COMMIT;
SELECT is(held(:'definition'), NULL, 'the end of the transaction releases it');
SELECT ok(exact('ax.plain_n'), 'exactly');
-- no test in between: a transaction with temporary tables cannot be prepared
BEGIN;
SELECT action FROM rollup_refresh('ax.plain_n', '2026-01-03 00:00Z') \gset
PREPARE TRANSACTION 'ax_none';
SELECT is(:'action'::text, 'none', 'nothing to do');
SELECT is((SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'ax_none'), 1::bigint, 'is prepared');
SET dailyrollup.writer_timeout = '1s';
SELECT is((SELECT action FROM rollup_refresh('ax.plain_n', '2026-01-04 00:00Z')), 'fold', 'another refresh does not wait for it');
COMMIT PREPARED 'ax_none';
SELECT ok(exact('ax.plain_n'), 'exactly');
-- in a savepoint
BEGIN;
SAVEPOINT s;
SELECT is((SELECT action FROM rollup_refresh('ax.plain_n', '2026-01-04 00:00Z')), 'none', 'nothing to do, in a savepoint');
ROLLBACK TO s;
SELECT is((SELECT action FROM rollup_refresh('ax.plain_n', '2026-01-05 00:00Z')), 'fold', 'something to do, after it');
SELECT is(held(:'definition'), 'ExclusiveLock', 'the refresh lock is held');
COMMIT;
SELECT ok(exact('ax.plain_n'), 'exactly');
RESET dailyrollup.writer_timeout;

-- ==== Everything is found by our schema's name: were it renamed, late rows would be
-- written, the source emptied and live changed, and nobody would ever know.  Protects
-- check_schema in ddl.c, and dr_catalog_check_installed in the triggers' functions.
SELECT is(try('ALTER SCHEMA dailyrollup RENAME TO ax_renamed'), '0A000 schema "dailyrollup" cannot be renamed', 'our schema keeps its name');
-- (a session that remembers the rollups)
INSERT INTO ax.plain VALUES ('a', '2026-01-01', 1);
UPDATE ax.parted SET v = 6 WHERE t < '2026-01-02';
BEGIN;
ALTER EVENT TRIGGER dailyrollup_ddl_ended DISABLE;
ALTER SCHEMA dailyrollup RENAME TO ax_renamed;
SELECT matches(try(statement), '^42704 ', 'but while event triggers are off: ' || statement)
FROM unnest('{"INSERT INTO ax.plain VALUES (''a'', ''2026-01-01'', 1)","UPDATE ax.parted SET v = 7 WHERE t < ''2026-01-02''","DELETE FROM ax.plain","TRUNCATE ax.plain","TRUNCATE ax.parted_1","DELETE FROM ax.plain_n"}'::text[]) statement;
ALTER SCHEMA ax_renamed RENAME TO dailyrollup;
ALTER EVENT TRIGGER dailyrollup_ddl_ended ENABLE ALWAYS;
COMMIT;
INSERT INTO ax.plain VALUES ('a', '2026-01-01', 1);
SELECT rollup_refresh('ax.plain_n', rollup_watermark('ax.plain_n'));
SELECT ok(exact('ax.plain_n'), 'it has its name again, and all is well');

SET search_path = public;
SELECT rollup_drop(rollup, true) FROM rollup_status;
DROP SCHEMA ax, ax_helpers CASCADE;
DROP SERVER ax_server CASCADE;
DROP FOREIGN DATA WRAPPER ax_wrapper;
DROP OWNED BY ax_owner;
DROP ROLE ax_owner;
SELECT is(count(*), 0::bigint, 'nothing is left') FROM dailyrollup.rollups r LEFT JOIN pg_class c ON c.oid = r.live WHERE c.oid IS NULL;
SELECT * FROM finish();
