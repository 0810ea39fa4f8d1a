-- A part of a rollup that has got another owner than the source, which takes a
-- superuser without event triggers, or a REASSIGN OWNED that a library which is not
-- preloaded knows nothing of: each routine of the owner's tells what to do, and that
-- brings all together again.
--
-- Fails when the parts are not looked at (dr_owned_check_parts in owned.c), and when
-- ALTER TABLE source OWNER looks at live alone (dr_owner_follow in owner.c).
\ir lib/begin.sql
CREATE ROLE op_owner;
CREATE ROLE op_other;
CREATE SCHEMA op AUTHORIZATION op_owner;
GRANT USAGE ON SCHEMA op TO op_other;
SET search_path = op, public;

SELECT plan(41);

SET ROLE op_owner;
CREATE TABLE s (k text NOT NULL, ts timestamptz NOT NULL, v int);
CREATE INDEX ON s (k);
INSERT INTO s SELECT 'k' || i % 5, '2026-01-01Z'::timestamptz + i * interval '1 hour', i FROM generate_series(1, 40) i;
SELECT rollup_create('r', 'SELECT k, count(*), sum(v), max(ts) FROM s GROUP BY k', 'ts', mode => 'shadow', delay => '0');
RESET ROLE;
CALL rollup_run('r');

CREATE VIEW parts AS
SELECT p.part, CASE WHEN p.part = 'key' THEN t.typowner ELSE c.relowner END::regrole AS owner
FROM dailyrollup.rollups r
JOIN pg_type t ON t.oid = r.key_type
CROSS JOIN LATERAL (VALUES ('live', r.live), ('current', r.current_view), ('marks', r.marks),
	('events', r.events), ('definition', r.definition), ('shadow', r.shadow), ('key', NULL)) p(part, relation)
LEFT JOIN pg_class c ON c.oid = p.relation
WHERE r.live = 'r'::regclass;

-- give one part to somebody else, or the source alone
CREATE PROCEDURE give(part text) LANGUAGE plpgsql AS $$
DECLARE
	r dailyrollup.rollups;
BEGIN
	SELECT * INTO r FROM dailyrollup.rollups WHERE live = 'r'::regclass;
	ALTER EVENT TRIGGER dailyrollup_ddl_ended DISABLE;
	EXECUTE CASE part
		WHEN 'source' THEN 'ALTER TABLE s OWNER TO op_other'
		WHEN 'key' THEN format('ALTER TYPE %s OWNER TO op_other', format_type(r.key_type, NULL))
		ELSE format('ALTER TABLE %s OWNER TO op_other', CASE part WHEN 'live' THEN r.live WHEN 'current' THEN r.current_view
			WHEN 'marks' THEN r.marks WHEN 'events' THEN r.events WHEN 'definition' THEN r.definition WHEN 'shadow' THEN r.shadow END)
	END;
	ALTER EVENT TRIGGER dailyrollup_ddl_ended ENABLE ALWAYS;
END $$;

-- what a routine says: its state, and the hint where that is for us
CREATE FUNCTION says(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	told text;
BEGIN
	BEGIN
		EXECUTE command;
		RAISE SQLSTATE 'OP000';
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS told = PG_EXCEPTION_HINT;
		IF SQLSTATE = 'OP000' THEN RETURN 'works'; END IF;
		RETURN SQLSTATE || coalesce(': ' || nullif(told, ''), '');
	END;
END $$;
CREATE TABLE routines (command text);
INSERT INTO routines VALUES ($$SELECT rollup_refresh('r')$$), ($$SELECT rollup_refresh()$$), ($$SELECT rollup_promote('r')$$), ($$SELECT rollup_promote()$$),
	($$SELECT rollup_check('r')$$), ($$SELECT rollup_verify('r')$$), ($$SELECT rollup_diff('r')$$), ($$SELECT rollup_alter('r', delay => '1h')$$),
	($$SELECT rollup_recompute('r')$$), ($$SELECT rollup_reseed('r')$$), ($$SELECT rollup_flush('r')$$), ($$SELECT rollup_mark('r', '-infinity', 'infinity')$$),
	($$SELECT rollup_definition('r')$$), ($$SELECT rollup_drop('r')$$);
GRANT SELECT ON routines TO op_owner, op_other;

-- parts but the shadow
CREATE FUNCTION checked(part text, owner text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	CALL give(part);
	EXECUTE format('SET LOCAL ROLE %I', owner);
	RETURN NEXT is((SELECT string_agg(command || ': ' || says(command), '; ') FROM routines
		WHERE says(command) NOT LIKE '55000: Run ALTER TABLE op.s OWNER TO ' || owner || ': %'), NULL,
		part || ': each routine says what to do');
	EXECUTE format('ALTER TABLE op.s OWNER TO %I', owner);
	RESET ROLE;
	RETURN NEXT is((SELECT string_agg(p.part, ', ') FROM parts p WHERE p.owner::text <> $2), NULL, part || ': all is together again');
	EXECUTE format('SET LOCAL ROLE %I', owner);
	INSERT INTO s VALUES ('k1', '2026-01-01 12:00Z', 1), ('late', '2026-01-01 12:00Z', 1);
	DELETE FROM s WHERE k = 'k2' AND v = 2;
	PERFORM rollup_fold();
	RETURN NEXT is((SELECT action FROM rollup_refresh('r', rollup_watermark('r'))), 'late', part || ': a refresh works');
	RETURN NEXT ok(NOT EXISTS (SELECT FROM rollup_verify('r')) AND NOT EXISTS (SELECT FROM rollup_diff('r')), part || ': and all is exact');
	RESET ROLE;
END $$;

GRANT ALL ON SCHEMA op TO op_other;
SELECT checked('live', 'op_owner');
SELECT checked('current', 'op_owner');
SELECT checked('marks', 'op_owner');
SELECT checked('events', 'op_owner');
SELECT checked('definition', 'op_owner');
SELECT checked('key', 'op_owner');

-- the source alone
SELECT checked('source', 'op_other');
ALTER TABLE s OWNER TO op_owner;

-- a shadow follows by itself; what reads it before says what to do
CALL give('shadow');
SET ROLE op_owner;
SELECT is((SELECT string_agg(says(command), '; ' ORDER BY command) FROM routines WHERE command ~ 'diff|check'),
	'55000: Run ALTER TABLE op.s OWNER TO op_owner: all of the rollup is handed over.; 55000: Run ALTER TABLE op.s OWNER TO op_owner: all of the rollup is handed over.',
	'shadow: who reads it says what to do');
SELECT is(says($$SELECT rollup_verify('r')$$), 'works', 'shadow: who does not, works');
INSERT INTO s VALUES ('k1', '2026-01-01 12:00Z', 1);
SELECT is((SELECT action FROM rollup_refresh('r', rollup_watermark('r'))), 'late', 'shadow: a refresh works');
RESET ROLE;
SELECT is((SELECT owner::text FROM parts WHERE part = 'shadow'), 'op_owner', 'and hands it over');
CALL give('shadow');
SET ROLE op_owner;
SELECT is((SELECT action FROM rollup_promote('r')), 'promoted', 'shadow: a promote works');
RESET ROLE;

-- strangers are told no more than before
CALL give('live');
SET ROLE op_other;
SELECT throws_ok($$SELECT rollup_drop('r')$$, '55000', NULL, 'who has live but not the source has no right to the rollup');
RESET ROLE;

-- all of it is given away at once, and nobody tells: the view shows its old permit, which
-- serves its readers until the pass that renews it; what the old owner has kept ends then.
-- Fails without dr_view_has_permit (current.c), and without dr_view_renew (pass.c)
ALTER TABLE s OWNER TO op_owner;
CREATE TABLE kept (p dailyrollup._permit);
GRANT INSERT ON kept TO op_owner;
SET ROLE op_owner;
INSERT INTO kept VALUES ('op_owner.op.r');
SELECT rollup_alter('r', mode => 'on');
INSERT INTO s VALUES ('k1', '2026-01-01 12:00Z', 1), ('late', '2026-01-01 12:00Z', 1);
RESET ROLE;
CALL rollup_run('r');
INSERT INTO s VALUES ('k1', '2026-01-01 12:00Z', 1), ('later', '2026-01-01 12:00Z', 1);
ALTER TABLE kept OWNER TO op_other;
REASSIGN OWNED BY op_owner TO op_other;
CREATE FUNCTION asked() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE format('SELECT dailyrollup._unmarked(p, NULL::%s, ''later''::text) FROM kept', (SELECT key_type FROM dailyrollup.rollups WHERE live = 'r'::regclass)) INTO answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION wrong() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM ((TABLE r_current EXCEPT ALL (%1$s)) UNION ALL ((%1$s) EXCEPT ALL TABLE r_current)) d', rollup_definition('r')) INTO n;
	RETURN n;
END $$;
SELECT is((SELECT count(*) FROM rollup_late WHERE rollup = 'r'::regclass), 2::bigint, 'reassigned, while keys wait');
SELECT is(wrong(), 0::bigint, 'the view serves its readers');
SELECT is(asked(), 'false', 'its old permit counts');
CALL rollup_run('r');
SELECT is(wrong(), 0::bigint, 'so it does after a pass');
SELECT is(asked(), '42501', 'its old permit does not count any more');
ALTER TABLE s OWNER TO op_owner;
SELECT is(asked(), 'true', 'but where live is the old owner''s again');
SELECT is(wrong(), 0::bigint, 'the view serves its readers');

SELECT * FROM finish();
DROP VIEW parts;
SELECT rollup_drop('r', true);
DROP SCHEMA op CASCADE;
DROP OWNED BY op_owner, op_other;
DROP ROLE op_owner, op_other;
