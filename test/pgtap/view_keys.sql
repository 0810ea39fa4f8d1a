-- The view <live>_current and the marks, for keys of every kind: looked up one by
-- one, read at once, or too many for that; with indexes or without.  Protects
-- marked.c.
\ir lib/begin.sql

SELECT no_plan();

CREATE SCHEMA vk;
SET search_path = vk, public;
CREATE COLLATION whatever (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TYPE pair AS (a int, b text);
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE DOMAIN code AS text CHECK (value <> '');

-- i-th key, for i from 0 to 99, as SQL: equal ones may differ in their image, by j
CREATE TABLE kinds (type text, key text);
INSERT INTO kinds VALUES
  ('text', $$'k' || i$$),
  ('text', $$nullif('k' || i, 'k7')$$),
  ('text COLLATE whatever', $$CASE WHEN j % 2 = 0 THEN 'k' ELSE 'K' END || i$$),
  ('varchar(8)', $$'k' || i$$),
  ('char(8)', $$'k' || i || repeat(' ', j % 3)$$),
  ('code', $$'k' || i$$),
  ('int', $$nullif(i, 7)$$),
  ('numeric', $$round(i, j % 3)$$),
  ('float8', $$CASE i WHEN 7 THEN float8 'NaN' WHEN 8 THEN float8 '-0' ELSE i END$$),
  ('int[]', $$ARRAY[i, nullif(i, 7), NULL]$$),
  ('pair', $$ROW(nullif(i, 7), 'k' || i)::pair$$),
  ('mood', $$(enum_range(NULL::mood))[1 + i % 3]$$),
  ('int4range', $$int4range(i, i + 5)$$),
  ('bit(8)', $$i::bit(8)$$),                -- cannot be hashed
  ('money', $$i::money$$),
  ('jsonb', $$jsonb_build_object('a', round(i, j % 3))$$),
  ('text', $$'k' || repeat(i::text, CASE WHEN i % 3 = 0 THEN 2000 ELSE 1 END)$$);   -- too long for an entry, and compressed

-- Does the view agree with the definition, as a whole, and key by key?
CREATE FUNCTION agrees(what text, by_key boolean DEFAULT true) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  n bigint;
  oracle text = format('(%s) o', rollup_definition('l'));
BEGIN
  EXECUTE format('SELECT count(*) FROM ((TABLE l_current EXCEPT ALL SELECT * FROM %1$s) UNION ALL (SELECT * FROM %1$s EXCEPT ALL TABLE l_current)) d', oracle) INTO n;
  RETURN NEXT is(n, 0::bigint, what || ': the whole view');
  IF NOT by_key THEN
    RETURN;
  END IF;
  EXECUTE format('SELECT count(*) FROM (SELECT DISTINCT k FROM l UNION SELECT k FROM %1$s) k LEFT JOIN LATERAL (SELECT count(*) AS n, sum(c.n) AS rows, sum(c.total) AS total FROM l_current c WHERE c.k = k.k OFFSET 0) c ON true
                  LEFT JOIN %1$s ON o.k = k.k WHERE k.k IS NOT NULL AND (c.n, c.rows, c.total) IS DISTINCT FROM (CASE WHEN o.n IS NULL THEN 0 ELSE 1 END, o.n, o.total)', oracle) INTO n;
  RETURN NEXT is(n, 0::bigint, what || ': each key');
  EXECUTE format('SELECT count(*) FROM (SELECT n, total FROM l_current WHERE k IS NULL EXCEPT ALL SELECT n, total FROM %s WHERE k IS NULL) d', oracle) INTO n;
  RETURN NEXT is(n, 0::bigint, what || ': no key');
END $$;

CREATE FUNCTION rounds(type text, key text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
  index regclass;
BEGIN
  EXECUTE format('CREATE TABLE s (k %s, v int, t timestamptz NOT NULL)', type);
  EXECUTE format('INSERT INTO s SELECT %s, 1000 * i + j, ''2026-01-01'' FROM generate_series(0, 99) i, generate_series(0, 2) j WHERE i %% 10 <> 9', key);
  PERFORM rollup_create('l', 'SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k', 't', mode => 'on');
  PERFORM rollup_refresh('l', '2026-01-02 00:00Z');
  RETURN QUERY SELECT agrees(type || ', no mark');
  -- a tail, keys that are new to it, and a few late keys, one of them several times
  EXECUTE format('INSERT INTO s SELECT %s, 1, ''2026-01-02'' FROM generate_series(0, 99) i, generate_series(0, 1) j WHERE i %% 5 = 4', key);
  EXECUTE format('INSERT INTO s SELECT %s, 2, ''2026-01-01'' FROM generate_series(5, 9) i, generate_series(0, 3) j', key);
  RETURN QUERY SELECT agrees(type || ', few marks');
  -- more than are looked up one by one; keys whose rows are gone
  EXECUTE format('INSERT INTO s SELECT %s, 3, ''2026-01-01'' FROM generate_series(0, 79) i, generate_series(0, 3) j', key);
  EXECUTE format('DELETE FROM s WHERE k IN (SELECT %s FROM generate_series(20, 40) i, generate_series(0, 2) j)', key);
  RETURN QUERY SELECT agrees(type || ', many marks');
  -- an index more, and none
  EXECUTE format('CREATE INDEX ON %s (k1)', (SELECT marks FROM dailyrollup.rollups WHERE live = 'l'::regclass));
  RETURN QUERY SELECT agrees(type || ', an index more');
  FOR index IN SELECT i.indexrelid FROM pg_index i JOIN dailyrollup.rollups r ON r.marks = i.indrelid WHERE r.live = 'l'::regclass LOOP
    EXECUTE format('DROP INDEX %s', index);
  END LOOP;
  RETURN QUERY SELECT agrees(type || ', no index');
  -- others, which are not over the key as it is compared
  EXECUTE format('CREATE INDEX ON %s (plain) WHERE plain IS NOT NULL', (SELECT marks FROM dailyrollup.rollups WHERE live = 'l'::regclass));
  IF type LIKE 'text%' THEN
    EXECUTE format('CREATE INDEX ON %s (k1 COLLATE "C") WHERE plain IS NOT NULL', (SELECT marks FROM dailyrollup.rollups WHERE live = 'l'::regclass));
  END IF;
  RETURN QUERY SELECT agrees(type || ', other indexes');
  PERFORM rollup_drop('l', true);
  DROP TABLE s;
END $$;
SELECT rounds(type, key) FROM kinds;

-- ==== live's row of a key too long for an entry of live's index as well: none is
-- made, but the key is marked
CREATE TABLE s (k text, v int, t timestamptz NOT NULL);
INSERT INTO s SELECT 'k' || i, 1, '2026-01-01' FROM generate_series(1, 50) i;
SELECT rollup_create('l', 'SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('l', '2026-01-02 00:00Z');
CREATE FUNCTION long(i int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT string_agg(sha512((i || ' ' || j)::bytea)::text, '') FROM generate_series(1, 100) j $$;
INSERT INTO s SELECT long(i), 1, '2026-01-01' FROM generate_series(1, 40) i, generate_series(1, 3);
INSERT INTO s SELECT long(i), 1, '2026-01-02' FROM generate_series(30, 50) i;
SELECT agrees('long keys');
SELECT is((SELECT n FROM l_current WHERE k = long(35)), 4::bigint, 'late and in the tail');
SET work_mem = '64kB';
SET hash_mem_multiplier = 1;
SELECT agrees('more than there is memory for');
RESET work_mem;
RESET hash_mem_multiplier;
SELECT rollup_drop('l', true);

-- ==== plain keys, more than there is memory for: none is kept, each is looked up
DROP TABLE s;
CREATE TABLE s (k text, v int, t timestamptz NOT NULL);
INSERT INTO s SELECT lpad(i::text, 1000, 'k'), i, '2026-01-01' FROM generate_series(1, 200) i;
SELECT rollup_create('l', 'SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('l', '2026-01-02 00:00Z');
INSERT INTO s SELECT lpad(i::text, 1000, 'k'), 1, '2026-01-01' FROM generate_series(101, 200) i;
CREATE FUNCTION kept() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'dailyrollup all marked keys' $$;
BEGIN;
DECLARE c CURSOR FOR TABLE l_current;
MOVE 60 c;
SELECT is(kept(), 2::bigint, 'where there is room, they are kept in memory');
ROLLBACK;
SET work_mem = '64kB';
SET hash_mem_multiplier = 1;
BEGIN;
DECLARE c CURSOR FOR TABLE l_current;
MOVE 60 c;
SELECT is(kept(), 0::bigint, 'where there is not, none of them');
ROLLBACK;
SELECT agrees('plain keys, more than there is memory for');
RESET work_mem;
RESET hash_mem_multiplier;
SELECT rollup_drop('l', true);

-- ==== the key of a row that WHERE leaves out is nobody's business
DROP TABLE s;
CREATE TABLE s (d int NOT NULL, v int, t timestamptz NOT NULL);
CREATE FUNCTION dear(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE COST 10000 AS 'BEGIN RETURN $1 <> 0; END';
INSERT INTO s SELECT i % 5, i, '2026-01-01' FROM generate_series(1, 50) i;
SELECT rollup_create('l', 'SELECT 12 / d AS k, count(*) AS n, sum(v) AS total FROM s WHERE dear(d) GROUP BY 12 / d', 't', mode => 'on');
SELECT agrees('all is tail', by_key => false);
SELECT rollup_refresh('l', '2026-01-02 00:00Z');
INSERT INTO s SELECT i % 5, i, '2026-01-02' FROM generate_series(1, 20) i;
SELECT agrees('with a tail', by_key => false);
SELECT rollup_drop('l', true);
TRUNCATE s;
INSERT INTO s SELECT i % 5, i, '2026-01-01' FROM generate_series(1, 50) i;
SELECT rollup_create('l', 'SELECT 12 / d AS k, count(*) AS n, sum(v) AS total FROM s WHERE dear(d) GROUP BY 12 / d', 't', dedup_by => '{d,v,t}', mode => 'on');
SELECT agrees('all is tail', by_key => false);
SELECT rollup_refresh('l', '2026-01-02 00:00Z');
INSERT INTO s SELECT i % 5, i, '2026-01-02' FROM generate_series(1, 20) i;
SELECT agrees('with a tail', by_key => false);
SELECT rollup_drop('l', true);

-- ==== partitions before the watermark do not even stand in the plan
DROP TABLE s;
CREATE TABLE s (k text, v int, t timestamptz NOT NULL) PARTITION BY RANGE (t);
CREATE TABLE s_before PARTITION OF s FOR VALUES FROM (MINVALUE) TO ('2026-01-02 00:00Z');
CREATE TABLE s_after PARTITION OF s FOR VALUES FROM ('2026-01-02 00:00Z') TO (MAXVALUE);
INSERT INTO s VALUES ('a', 1, '2026-01-01'), ('a', NULL, '2026-01-02'), (NULL, 1, '2026-01-01');
SELECT rollup_create('l', 'SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k', 't', mode => 'on');
CREATE FUNCTION plan_names(what text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE line text; found boolean = false;
BEGIN
  FOR line IN EXPLAIN TABLE l_current LOOP found := found OR line LIKE '%' || what || '%'; END LOOP;
  RETURN found;
END $$;
SELECT is(plan_names('s_before'), true, 'not filled yet: all of the source');
SELECT rollup_refresh('l', '2026-01-02 00:00Z');
SELECT results_eq($$SELECT plan_names('s_after'), plan_names('s_before'), plan_names('Subplans Removed')$$, 'VALUES (true, false, false)', 'then the tail alone');
-- a key with a NULL is found by the index, too
INSERT INTO s VALUES (NULL, 1, '2026-01-01');
SELECT format('SELECT is((SELECT string_agg(plain::text, '','') FROM %s), ''true'', ''a key that is NULL is short enough'')', marks) FROM dailyrollup.rollups WHERE live = 'l'::regclass \gexec
SELECT agrees('partitions');
SELECT rollup_drop('l', true);

-- ==== a session that changes the rollup itself sees its own changes
DROP TABLE s;
CREATE TABLE s (k text, v int, t timestamptz NOT NULL);
INSERT INTO s SELECT 'k' || i, 1, '2026-01-01' FROM generate_series(1, 50) i;
SELECT rollup_create('l', 'SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k', 't', mode => 'on');
PREPARE whole AS SELECT count(*) || ' ' || sum(n) FROM l_current;
PREPARE one AS SELECT n FROM l_current WHERE k = 'k1';
SET plan_cache_mode = force_generic_plan;
BEGIN;
EXECUTE whole;
EXECUTE one;
SELECT rollup_refresh('l', '2026-01-02 00:00Z');
SELECT agrees('a refresh of one''s own');
INSERT INTO s VALUES ('k1', 1, '2026-01-01'), ('k1', 1, '2026-01-02');
SELECT agrees('late rows of one''s own');
SAVEPOINT a;
SELECT rollup_refresh('l', '2026-01-02 00:00Z');
TRUNCATE s;
SELECT agrees('a TRUNCATE of one''s own');
ROLLBACK TO a;
SELECT agrees('undone');
COMMIT;
SELECT agrees('committed');
-- ==== a cursor sees nothing of what comes after it, of marked keys neither
INSERT INTO s VALUES ('k1', 1, '2026-01-01');
BEGIN;
DECLARE c CURSOR FOR SELECT n FROM l_current WHERE k = 'k1';
INSERT INTO s VALUES ('k1', 1, '2026-01-01'), ('k1', 1, '2026-01-02');
CREATE FUNCTION fetched() RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE c refcursor := 'c'; n bigint; BEGIN FETCH c INTO n; RETURN n; END $$;
SELECT is(fetched() + 2, (SELECT n FROM l_current WHERE k = 'k1'), 'a cursor sees a marked key as of its own snapshot');
COMMIT;
SELECT rollup_drop('l', true);

-- ==== code of the query itself has the session forget what the query runs by
CREATE FUNCTION forget() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('vk.armed', true) = 'yes' THEN
    PERFORM set_config('vk.armed', 'no', false);
    BEGIN
      EXECUTE (SELECT format('CREATE OR REPLACE VIEW %s AS SELECT ''x''::text AS k, 1::bigint AS n, 1::bigint AS total', definition) FROM dailyrollup.rollups WHERE live = 'vk.l'::regclass);
      PERFORM n FROM vk.l_current WHERE k = 'k2';
      RAISE 'it was not asked for';
    EXCEPTION WHEN object_not_in_prerequisite_state THEN
      PERFORM set_config('vk.armed', 'forgot', false);
    END;
    FOR i IN 1 .. 200 LOOP
      EXECUTE format('SELECT %s, %L', i, repeat('x', i * 10));
    END LOOP;
  END IF;
END $$;
CREATE FUNCTION same(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM vk.forget(); RETURN v; END $$;
SELECT rollup_create('l', 'SELECT k, count(*) AS n, sum(same(v)) AS total FROM s GROUP BY k', 't', mode => 'on');
SELECT rollup_refresh('l', '2026-01-02 00:00Z');
INSERT INTO s VALUES ('k1', 1, '2026-01-01'), ('k2', 1, '2026-01-01');
SET vk.armed = 'yes';
SELECT is((SELECT total FROM l_current WHERE k = 'k1'), (SELECT sum(v) FROM s WHERE k = 'k1'), 'the query comes to its end');
SELECT is(current_setting('vk.armed'), 'forgot', 'though its plan was forgotten');
SELECT agrees('after that');
SELECT rollup_drop('l', true);

SET search_path = public;
DROP SCHEMA vk CASCADE;
SELECT * FROM finish();
