-- What is seldom asked for: by hand what otherwise the planner or an aggregate
-- calls, indexes that nobody wanted, bounds that are no midnights.
--
-- Fails when the fold takes another index than the key's (is_key_index in seize.c),
-- when of rows that differ in their image alone another one counts
-- (compare_images in rival.c), when a row that takes another's place is counted besides
-- it (replace_in in tally.c), and when an event of a key with many is not found again
-- (dr_keytable_event in keytable.c).
\ir lib/begin.sql

BEGIN;
SET LOCAL client_min_messages = warning;
SET LOCAL timezone = 'UTC';
CREATE SCHEMA seldom;
SET LOCAL search_path = seldom, public;

SELECT plan(54);

-- ------------------------------------------- functions that others call for us

CREATE TABLE s (k text NOT NULL, ts timestamptz NOT NULL, n int);
CREATE TABLE s_local (k text NOT NULL, ts timestamp NOT NULL, n int);
CREATE TABLE s_day (k text NOT NULL, ts date NOT NULL, n int);
INSERT INTO s VALUES ('a', '2026-01-01 01:00Z', 1), ('b', '2026-01-01 02:00Z', 2);
SELECT rollup_create('r', 'SELECT k, count(*), sum(n) FROM s GROUP BY k', 'ts', mode => 'on');
SELECT rollup_create('r_off', 'SELECT k, count(*), sum(n) FROM s GROUP BY k', 'ts', mode => 'off');
SELECT rollup_create('r_local', 'SELECT k, count(*), sum(n) FROM s_local GROUP BY k', 'ts', mode => 'on');
SELECT rollup_create('r_east', 'SELECT k, count(*) FROM s_local GROUP BY k', 'ts', mode => 'off', time_zone => 'Pacific/Kiritimati');
SELECT rollup_create('r_day', 'SELECT k, count(*), sum(n) FROM s_day GROUP BY k', 'ts', mode => 'on');
SELECT results_eq($$SELECT live::text, action FROM (VALUES (1)) AS one, rollup_refresh(NULL, '2026-01-02Z') AS f(live)$$,
	$$VALUES ('r', 'seed'), ('r_local', 'seed'), ('r_day', 'seed')$$, 'a refresh of all leaves out those that are not to be on');

-- the rollup is a column here, so that the planner cannot put a constant for it
CREATE TABLE names (live regclass);
INSERT INTO names VALUES ('r');
SELECT results_eq($$SELECT dailyrollup._concerns('2026-01-01 23:59Z'::timestamptz, live), dailyrollup._concerns(now() + '1 day', live), dailyrollup._concerns(NULL::timestamptz, live),
		dailyrollup._concerns(now() + '1 day', '2026-01-01Z', live), dailyrollup._concerns(now() + '1 day', NULL, live), dailyrollup._concerns(now(), NULL::regclass),
		dailyrollup._w_floor_timestamptz(live, false) FROM names$$,
	$$VALUES (true, false, NULL::boolean, true, NULL::boolean, NULL::boolean, '-infinity'::timestamptz)$$, 'what a rollup''s triggers and view ask is told to who asks himself');
SELECT throws_ok($$SELECT dailyrollup._concerns(now(), 'names') FROM names$$, '42704', '"seldom.names" is not a rollup', 'of a rollup');
SELECT throws_ok($$SELECT dailyrollup._concerns('2026-01-01'::date, live) FROM names$$, '42804', 'the time column of rollup "seldom.r" is of type timestamp with time zone, not date', 'for a time of its type');
SELECT throws_ok($$SELECT dailyrollup._concerns('2026-01-01'::date, 'r'::regclass)$$, '42804', NULL, 'likewise where the planner knows the rollup');
SELECT is(dailyrollup._wanted_mode(NULL, NULL, NULL), NULL, 'no state, no wanted mode');
SELECT throws_ok($$SELECT dailyrollup._locked(0, '(0,1)', ROW(1))$$, '42501', NULL, 'nor may he be the fold');

-- --------------------------------------------------- bounds that are no midnights

-- the rows in [start, end): a local time, or a whole day, may lie within
INSERT INTO s_local SELECT 'h' || i, '2026-01-01'::timestamp + i * interval '1 hour', i FROM generate_series(0, 23) i;
INSERT INTO s_day SELECT 'd' || i, '2026-01-01'::date + i, i FROM generate_series(-3, 3) i;
SELECT lives_ok($$SELECT rollup_refresh(NULL, '2026-01-02Z')$$, 'late rows are there no more');
SELECT rollup_mark('r_local', '2026-01-01 03:30Z', '2026-01-01 06:00Z');
SELECT rollup_mark('r_day', '2025-12-30 12:00Z', '2025-12-31 12:00Z');
SELECT results_eq($$SELECT key->>'k' FROM rollup_late WHERE rollup = 'r_local'::regclass ORDER BY 1$$, $$VALUES ('h4'), ('h5')$$, 'a range of local times');
SELECT results_eq($$SELECT key->>'k' FROM rollup_late WHERE rollup = 'r_day'::regclass ORDER BY 1$$, $$VALUES ('d-1')$$, 'of days: those that begin in it');

-- at the end of what a timestamp can hold a zone in the east has no local time
SELECT throws_ok($$SELECT rollup_mark('r_east', '294276-12-31 23:00Z', 'infinity')$$, '22008', '294276-12-31 23:00:00+00 is out of range in time zone "Pacific/Kiritimati"', 'no time there');
SELECT throws_ok($$SELECT rollup_mark('r_east', '-infinity', '294276-12-31 23:00Z')$$, '22008', NULL, 'neither where it ends');
SELECT is(rollup_mark('r_east', '-infinity', 'infinity'), 24::bigint, 'all times are there, each key of the day is marked');

-- ------------------------------------------------------ indexes that nobody wanted

-- beside the key's own, on a table of ours that the fold looks into
CREATE TABLE adopted (k text NOT NULL, count bigint, sum bigint, own int);
CREATE UNIQUE INDEX ON adopted (own);
CREATE UNIQUE INDEX ON adopted (k text_pattern_ops);
CREATE UNIQUE INDEX ON adopted (k COLLATE "C");
CREATE UNIQUE INDEX ON adopted (k) WHERE k > 'a';
CREATE UNIQUE INDEX ON adopted (lower(k));
CREATE UNIQUE INDEX ON adopted (k, count);
CREATE INDEX ON adopted (sum);
SELECT rollup_create('adopted', 'SELECT k, count(*), sum(n) FROM s GROUP BY k', 'ts', mode => 'off');
SELECT rollup_recompute('adopted');
SELECT rollup_alter('adopted', fold => true);
SET LOCAL dailyrollup.fold_method = 'hash';
INSERT INTO s VALUES ('a', '2026-01-03 01:00Z', 4), ('c', '2026-01-03 02:00Z', 8);
SELECT rollup_fold();
INSERT INTO s VALUES ('a', '2026-01-03 03:00Z', 16), ('c', '2026-01-03 04:00Z', 32);
SELECT rollup_fold();
SELECT results_eq('SELECT k, count, sum FROM adopted ORDER BY k', $$VALUES ('a', 3::bigint, 21::bigint), ('b', 1, 2), ('c', 2, 40)$$, 'a fold finds the key''s index among others');
SELECT is_empty($$SELECT * FROM rollup_verify('adopted')$$, 'and is exact');
RESET dailyrollup.fold_method;

-- unique, but by an equality of its own: it says nothing of duplicates
CREATE TABLE twice (k text NOT NULL, ts timestamptz NOT NULL, n int);
CREATE UNIQUE INDEX ON twice (k text_pattern_ops, ts);
INSERT INTO twice VALUES ('a', '2026-01-01 01:00Z', 1);
SELECT rollup_create('once', 'SELECT k, count(*), sum(n) FROM twice GROUP BY k', 'ts', dedup_by => '{k,ts}', mode => 'on');
SELECT is((SELECT action FROM rollup_refresh('once', '2026-01-02Z')), 'seed', 'a unique index of another operator class');
SELECT is_empty($$SELECT * FROM rollup_verify('once')$$, 'is exact');

-- on the marks: of other columns, of another class, over expressions, partial
INSERT INTO s VALUES ('a', '2026-01-01 05:00Z', 64), ('late', '2026-01-01 05:00Z', 128);
DO $$
DECLARE marks regclass := (SELECT marks FROM dailyrollup.rollups WHERE live = 'r'::regclass);
BEGIN
	EXECUTE format('CREATE INDEX ON %s (epoch, k1) WHERE plain IS NOT NULL', marks);
	EXECUTE format('CREATE INDEX ON %s (k1 text_pattern_ops) WHERE plain IS NOT NULL', marks);
	EXECUTE format('CREATE INDEX ON %s USING hash (k1) WHERE plain IS NOT NULL', marks);
	EXECUTE format('CREATE INDEX ON %s (lower(k1)) WHERE plain IS NOT NULL', marks);
	EXECUTE format('CREATE INDEX ON %s (k1) WHERE k1 > ''b''', marks);
END $$;
INSERT INTO s VALUES ('late', '2026-01-01 06:00Z', 256);
SELECT results_eq('SELECT * FROM r_current ORDER BY k',
	$$SELECT k, count(*), sum(n)::bigint FROM s GROUP BY k ORDER BY k$$, 'a view finds marks by the right index');
SELECT results_eq($$SELECT * FROM r_current WHERE k = 'late'$$, $$VALUES ('late', 2::bigint, 384::bigint)$$, 'of one key, too');
SELECT is((SELECT late_keys FROM rollup_refresh('r', '2026-01-02Z')), 3::bigint, 'so does a refresh');
SELECT is_empty($$SELECT * FROM rollup_verify('r')$$, 'and is exact');

-- more marks than fit into memory
INSERT INTO s SELECT 'm' || i, '2026-01-01 07:00Z', 1 FROM generate_series(1, 3000) i;
SET LOCAL work_mem = '64kB';
SET LOCAL hash_mem_multiplier = 1;
SELECT results_eq('SELECT count(*), sum(count)::bigint FROM r_current',
	'SELECT count(DISTINCT k), count(*) FROM s', 'a view with more marks than fit into memory');
RESET work_mem;
RESET hash_mem_multiplier;

-- ----------------------------------------- rows of one event that differ elsewhere

CREATE TABLE d (k text NOT NULL, ts timestamptz NOT NULL, n int, note text);
SELECT rollup_create('d_r', 'SELECT k, count(*), sum(n), max(note) AS note FROM d GROUP BY k', 'ts', dedup_by => '{k,ts}', mode => 'on');
SELECT rollup_create('d_off', 'SELECT k, count(*), sum(n), max(note) AS note FROM d GROUP BY k', 'ts', dedup_by => '{k,ts}', mode => 'off');
SELECT is((SELECT action FROM rollup_refresh('d_r', '2026-01-01Z')), 'seed', 'of nothing');
INSERT INTO d SELECT 'k' || i % 5, '2026-01-01'::timestamptz + (i % 10) * interval '1 hour', i % 7, (i * 7919 % 13)::text FROM generate_series(1, 200) i;
SELECT is((SELECT action FROM rollup_refresh('d_r', '2026-01-02Z')), 'fold', 'a fold whose rows have nothing but their image to tell which counts');
SELECT is_empty($$SELECT * FROM rollup_verify('d_r')$$, 'takes the one that the definition takes');
SELECT is((SELECT sum(count) FROM d_r), 10::numeric, 'of each event');

-- equal by each column, but of different images
CREATE TABLE i (k text NOT NULL, ts timestamptz NOT NULL, n numeric);
SELECT rollup_create('i_r', 'SELECT k, count(*), sum(n), latest(n, ts) AS n, max(ts) FROM i GROUP BY k', 'ts', dedup_by => '{k,ts}', mode => 'on');
SELECT is((SELECT action FROM rollup_refresh('i_r', '2026-01-01Z')), 'seed', 'of nothing');
INSERT INTO i SELECT 'k' || i % 30, '2026-01-01'::timestamptz + (i % 6) * interval '1 hour', round(1, (i * 7 % 11)) FROM generate_series(1, 600) i;
SELECT is((SELECT action FROM rollup_refresh('i_r', '2026-01-02Z')), 'fold', 'a fold whose rows have not even that');
SELECT is_empty($$SELECT * FROM rollup_verify('i_r')$$, 'counts the same one');
SELECT is((SELECT sum(count) FROM i_r), 30::numeric, 'of each event');
SELECT is_empty($$SELECT k, n::text FROM i_r EXCEPT SELECT k, (array_agg(n::text ORDER BY ROW(n) USING OPERATOR(pg_catalog.*<)))[1] FROM i GROUP BY k$$, 'by its image');
-- an image is compared only where equal values may differ in it: it is dear
SELECT is(replace(substring(pg_get_viewdef(events) from 'ROW\(.*?\)'), 's.', ''), row_of, 'columns of which the image is compared: ' || live)
FROM dailyrollup.rollups JOIN (VALUES ('i_r'::regclass, 'ROW(n)'), ('d_r', NULL)) v(live, row_of) USING (live);

-- a row that counts instead of one that was read before it: with and without a
-- value, one that a filter takes, the same again; more events than are looked
-- through one by one, in no order
CREATE TABLE o (k text NOT NULL, ts timestamptz NOT NULL, n int, note text, o int);
-- (measures of which each can take such a row: others have the key computed again)
SELECT rollup_create('o_count', 'SELECT k, count(*), count(n) AS c, latest(note, ts) AS note, max(ts) AS ts FROM o GROUP BY k', 'ts', dedup_by => '{k,ts}', dedup_order => '{o}', mode => 'on');
SELECT rollup_create('o_big', 'SELECT k, count(*), max(n) FILTER (WHERE n > 1) AS big FROM o WHERE n IS NOT NULL GROUP BY k', 'ts', dedup_by => '{k,ts}', dedup_order => '{o}', mode => 'on');
SELECT rollup_create('i_last', 'SELECT k, latest(n, ts) AS n, max(ts) FROM i GROUP BY k', 'ts', dedup_by => '{k,ts}', mode => 'on');
INSERT INTO o SELECT format('k%s', i / 16), '2026-01-01'::timestamptz + (i / 2 % 8) * interval '1 hour', nullif(i % 4, 0), 'first ' || i, 2 FROM generate_series(0, 255) i;
INSERT INTO o SELECT format('k%s', i / 16), '2026-01-01'::timestamptz + (i / 2 % 8) * interval '1 hour', nullif(i / 16 % 4, 0), 'then ' || i, 1 + i % 3 FROM generate_series(0, 255) i;
INSERT INTO o SELECT 'one', '2026-01-01'::timestamptz + (i * 7919 % 1000) * interval '1 minute', i % 5, 'm' || i, 2 - i / 1000 FROM generate_series(1, 2500) i;
SELECT is(action, 'seed', live || ': rows that beat others') FROM unnest('{o_count,o_big,i_last}'::text[]) live, LATERAL rollup_refresh(live::regclass, '2026-01-02Z') r;
SELECT is_empty(format('SELECT * FROM rollup_verify(%L)', live), live || ' is exact') FROM unnest('{o_count,o_big,i_last}'::text[]) live;
SELECT is_empty($$SELECT k, n::text FROM i_last EXCEPT SELECT k, n::text FROM i_r$$, 'by their image, too');
SELECT is((SELECT count FROM o_count WHERE k = 'one'), 1000::bigint, 'each event counts once');

-- ------------------------------------------- expressions of which errors come

CREATE FUNCTION fragile(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF $1 < 0 THEN RAISE EXCEPTION 'not now' USING ERRCODE = '55000'; END IF;
	RETURN $1;
END $$;
CREATE TABLE f (k text NOT NULL, ts timestamptz NOT NULL, n int, o int);
INSERT INTO f VALUES ('a', '2026-01-01 01:00Z', 1, 1), ('a', '2026-01-01 01:00Z', -1, 2);
SELECT rollup_create('f_r', 'SELECT k, count(*), sum(fragile(n)) FROM f GROUP BY k', 'ts', dedup_by => '{k,ts}', dedup_order => '{o}', mode => 'on');
SELECT lives_ok($$SELECT rollup_refresh('f_r', '2026-01-02Z')$$, 'an expression that fails for a row that does not count');
SELECT rollup_create('f_any', $$SELECT k, count(*) FILTER (WHERE n = ANY ('{1,2}') AND o <> ALL (ARRAY[n, 7])) AS some, count(*) FROM f GROUP BY k$$, 'ts', mode => 'on');
SELECT is((SELECT action FROM rollup_refresh('f_any', '2026-01-02Z')), 'seed', 'ANY and ALL in a filter');
SELECT is_empty($$SELECT * FROM rollup_verify('f_any')$$, 'are exact');

-- latest by a text: it and max compare it alike, also where one is in a coalesce
CREATE TABLE c (k text NOT NULL, ts timestamptz NOT NULL, n int, note text COLLATE "C");
INSERT INTO c VALUES ('a', '2026-01-01 01:00Z', 1, 'B'), ('a', '2026-01-01 02:00Z', 2, 'a'), ('b', '2026-01-01 02:00Z', NULL, 'c');
SELECT rollup_create('c_r', 'SELECT k, coalesce(latest(n, note) FILTER (WHERE n IS NOT NULL), 0) AS n, max(note) FILTER (WHERE n IS NOT NULL) AS note FROM c GROUP BY k', 'ts', mode => 'on');
SELECT is((SELECT action FROM rollup_refresh('c_r', '2026-01-02Z')), 'seed', 'latest by a text, in a coalesce');
SELECT results_eq($$SELECT k, n, note = 'a' FROM c_r ORDER BY k$$, $$VALUES ('a', 2, true), ('b', 0, NULL)$$, 'by its collation');

-- -------------------------------------------------- a constraint that writes to live

CREATE FUNCTION meddle(key text) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF key = 'a' AND current_setting('seldom.meddle', true) = 'on' THEN
		SET LOCAL seldom.meddle = 'off';
		UPDATE seldom.adopted SET own = 1 WHERE k = 'a';
	END IF;
	RETURN true;
END $$;
ALTER TABLE adopted ADD CHECK (meddle(k));
SET LOCAL seldom.meddle = 'on';
INSERT INTO s VALUES ('a', '2026-01-03 05:00Z', 512);
SELECT throws_ok(format('SET LOCAL dailyrollup.fold_method = %s; SELECT rollup_fold()', method), '55000', NULL, 'the row that a fold changes, changed by a constraint of it: ' || method) FROM unnest('{hash,statement}'::text[]) method;
RESET seldom.meddle;
SELECT lives_ok('SELECT rollup_fold()', 'one that does not');
SELECT is_empty($$SELECT * FROM rollup_verify('adopted')$$, 'is no matter');

-- --------------------------------------------------------------- what is refused

SELECT throws_ok(format('DROP TABLE %s CASCADE', marks), '2BP01', NULL, 'DROP of a rollup''s marks') FROM dailyrollup.rollups WHERE live = 'r'::regclass;

SELECT throws_ok($$SELECT rollup_create('of_ours', 'SELECT action, count(*) FROM dailyrollup.runs GROUP BY action', 'started_at')$$, '42809', NULL, 'our own tables as a source');
CREATE FOREIGN DATA WRAPPER nothing;
CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
CREATE TABLE p (k text NOT NULL, ts timestamptz NOT NULL) PARTITION BY RANGE (ts);
CREATE FOREIGN TABLE p_far PARTITION OF p FOR VALUES FROM ('2026-01-01Z') TO ('2026-01-02Z') SERVER nowhere;
SELECT throws_ok($$SELECT rollup_create('p_r', 'SELECT k, count(*) FROM p GROUP BY k', 'ts')$$, '42809', 'the source of a rollup cannot have a foreign partition', 'a partition elsewhere');
SELECT throws_ok($$SELECT rollup_create('p_f', 'SELECT k, count(*) FROM p_far GROUP BY k', 'ts')$$, '42809', NULL, 'a table elsewhere');

SELECT * FROM finish();
ROLLBACK;
