/* sql/dailyrollup--0.1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION dailyrollup" to load this file. \quit

/*
 * Schema.  The extension's own tables, views and routines; each rollup adds
 * events_<id>, definition_<id>, marks_<id> and key_<id>, owned by its owner.
 */
CREATE SCHEMA dailyrollup;
COMMENT ON SCHEMA dailyrollup IS 'internals of the extension dailyrollup; use the rollup_* routines and views';

/*
 * Tables.  Columns are known to the library by their position: append only.
 */
CREATE SEQUENCE dailyrollup.rollup_id_seq AS pg_catalog.int4;

CREATE TABLE dailyrollup.rollups (
	id pg_catalog.int4 PRIMARY KEY DEFAULT pg_catalog.nextval('dailyrollup.rollup_id_seq'),
	live pg_catalog.regclass NOT NULL UNIQUE,
	source pg_catalog.regclass NOT NULL,
	current_view pg_catalog.regclass NOT NULL,
	events pg_catalog.regclass NOT NULL,
	definition pg_catalog.regclass NOT NULL,
	marks pg_catalog.regclass NOT NULL,
	key_type pg_catalog.regtype NOT NULL,
	time_zone pg_catalog.text NOT NULL,
	delay pg_catalog.interval,
	mode pg_catalog.text CHECK (mode OPERATOR(pg_catalog.=) ANY ('{off,shadow,on}'::pg_catalog.text[])),
	fold pg_catalog.bool NOT NULL,
	state pg_catalog.text NOT NULL CHECK (state OPERATOR(pg_catalog.=) ANY ('{new,off,shadow,on}'::pg_catalog.text[])),
	was pg_catalog.text CHECK (was OPERATOR(pg_catalog.=) ANY ('{off,shadow}'::pg_catalog.text[])),
	watermark pg_catalog.timestamptz,
	reseed pg_catalog.text,
	reseed_at pg_catalog.timestamptz,
	shadow pg_catalog.regclass,
	shadow_watermark pg_catalog.timestamptz,
	shadow_at pg_catalog.timestamptz,
	proof pg_catalog.int8 NOT NULL,
	failures pg_catalog.int4 NOT NULL DEFAULT 0,
	last_error pg_catalog.text,
	retry_at pg_catalog.timestamptz,
	epoch pg_catalog.int8 NOT NULL DEFAULT 0
) WITH (vacuum_truncate = off);
COMMENT ON TABLE dailyrollup.rollups IS 'a row per rollup: its relations, its settings, its state and watermark; written by the library alone';
COMMENT ON COLUMN dailyrollup.rollups.live IS 'the table that readers use, a row per key';
COMMENT ON COLUMN dailyrollup.rollups.source IS 'the event table';
COMMENT ON COLUMN dailyrollup.rollups.current_view IS 'the view that is exact through now';
COMMENT ON COLUMN dailyrollup.rollups.events IS 'view: the deduplicated source, the columns used alone, the time column first';
COMMENT ON COLUMN dailyrollup.rollups.definition IS 'view: the defining query over events';
COMMENT ON COLUMN dailyrollup.rollups.marks IS 'table: the keys of late rows, k1 .. kn, a row per late row, each with what it dirties (d: the table that the daily refresh keeps, l: live where rows are folded on write), with the beginning of the transaction that wrote it, and, where the row may be merged, with the epoch and the row: e1 .. en, the columns of events';
COMMENT ON COLUMN dailyrollup.rollups.key_type IS 'composite type of a key, k1 .. kn';
COMMENT ON COLUMN dailyrollup.rollups.time_zone IS 'the zone whose midnights are boundaries';
COMMENT ON COLUMN dailyrollup.rollups.delay IS 'how long after midnight a boundary falls due; NULL: the default';
COMMENT ON COLUMN dailyrollup.rollups.mode IS 'the mode wanted for this rollup: off, shadow or on; NULL: what dailyrollup.mode says';
COMMENT ON COLUMN dailyrollup.rollups.fold IS 'whether off and shadow fold each write into live; false: live is left to others there';
COMMENT ON COLUMN dailyrollup.rollups.state IS 'new: being filled; off: live is folded on write; shadow: likewise, and the daily refresh keeps a shadow; on: the daily refresh keeps live';
COMMENT ON COLUMN dailyrollup.rollups.was IS 'in states new and on: the state to go on to where no mode is wanted; NULL: off and on';
COMMENT ON COLUMN dailyrollup.rollups.watermark IS 'state on: live is exact for rows before this midnight; NULL there: live does not count; NULL in every other state';
COMMENT ON COLUMN dailyrollup.rollups.reseed IS 'why the next refresh builds live anew; NULL: it does not';
COMMENT ON COLUMN dailyrollup.rollups.reseed_at IS 'when that was asked for: a seed fulfils the wishes made before it';
COMMENT ON COLUMN dailyrollup.rollups.shadow IS 'the table <live>_daily, kept beside live (shadow) or filled to replace its content (new, on); NULL: none';
COMMENT ON COLUMN dailyrollup.rollups.shadow_watermark IS 'the shadow is exact for rows before this midnight, but for keys that wait; NULL: it does not count';
COMMENT ON COLUMN dailyrollup.rollups.shadow_at IS 'when the shadow was begun: it fulfils the wishes for a reseed made before it';
COMMENT ON COLUMN dailyrollup.rollups.proof IS 'a secret that the write-time fold shows to a function of its own statement';
COMMENT ON COLUMN dailyrollup.rollups.failures IS 'how many passes over the rollup have failed since the last one that did not';
COMMENT ON COLUMN dailyrollup.rollups.last_error IS 'the message of the last failure; NULL: the last pass did not fail';
COMMENT ON COLUMN dailyrollup.rollups.retry_at IS 'when the worker tries again; NULL: when something is due';
COMMENT ON COLUMN dailyrollup.rollups.epoch IS 'counts how often the content came about in another way than by a fold: a late row that was marked in an earlier epoch may be in it already; negative: the row comes from a dump, and so may the content, and rows that it has may be written anew';

CREATE TABLE dailyrollup.runs (
	id pg_catalog.int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	rollup_id pg_catalog.int4 NOT NULL,
	action pg_catalog.text NOT NULL,
	started_at pg_catalog.timestamptz NOT NULL,
	finished_at pg_catalog.timestamptz NOT NULL,
	from_time pg_catalog.timestamptz,
	to_time pg_catalog.timestamptz,
	folded_keys pg_catalog.int8,
	late_keys pg_catalog.int8,
	outcome pg_catalog.text NOT NULL,
	reason pg_catalog.text,
	"rows" pg_catalog.int8,
	keys pg_catalog.int8,
	missing_daily pg_catalog.int8,
	missing_live pg_catalog.int8,
	mismatches pg_catalog.int8,
	duplicates pg_catalog.int8
);
CREATE INDEX runs_rollup_id_idx ON dailyrollup.runs (rollup_id, id);
COMMENT ON TABLE dailyrollup.runs IS 'a row per step of a pass or refresh, written in its own transaction; of one that failed, when that has been undone';

CREATE TABLE dailyrollup.past_runs (
	rollup_id pg_catalog.int4,
	action pg_catalog.text,
	outcome pg_catalog.text,
	runs pg_catalog.int8 NOT NULL,
	PRIMARY KEY (rollup_id, action, outcome)
);
COMMENT ON TABLE dailyrollup.past_runs IS 'how many rows of runs have been deleted for their age: what counts them may not fall';

SELECT pg_catalog.pg_extension_config_dump('dailyrollup.rollup_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('dailyrollup.rollups', '');
SELECT pg_catalog.pg_extension_config_dump('dailyrollup.runs', '');
SELECT pg_catalog.pg_extension_config_dump('dailyrollup.past_runs', '');
SELECT pg_catalog.pg_extension_config_dump('dailyrollup.runs_id_seq', '');

-- Whatever changes a rollup's row, sessions that remember it must notice.
CREATE FUNCTION dailyrollup._rollup_changed() RETURNS trigger
	AS 'MODULE_PATHNAME', 'dailyrollup_rollup_changed' LANGUAGE C;
CREATE TRIGGER rollup_changed AFTER INSERT OR UPDATE OR DELETE ON dailyrollup.rollups
	FOR EACH ROW EXECUTE FUNCTION dailyrollup._rollup_changed();
ALTER TABLE dailyrollup.rollups ENABLE ALWAYS TRIGGER rollup_changed;

-- A row that is inserted is that of a new rollup, or comes from a dump.
CREATE FUNCTION dailyrollup._rollup_inserted() RETURNS trigger
	AS 'MODULE_PATHNAME', 'dailyrollup_rollup_inserted' LANGUAGE C;
CREATE TRIGGER rollup_inserted BEFORE INSERT ON dailyrollup.rollups
	FOR EACH ROW EXECUTE FUNCTION dailyrollup._rollup_inserted();
ALTER TABLE dailyrollup.rollups ENABLE ALWAYS TRIGGER rollup_inserted;
CREATE FUNCTION dailyrollup._latest_step(pg_catalog.internal, pg_catalog.anyelement, pg_catalog."any")
RETURNS pg_catalog.internal
AS 'MODULE_PATHNAME', 'dailyrollup_latest_step'
LANGUAGE C CALLED ON NULL INPUT IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION dailyrollup._earliest_step(pg_catalog.internal, pg_catalog.anyelement, pg_catalog."any")
RETURNS pg_catalog.internal
AS 'MODULE_PATHNAME', 'dailyrollup_earliest_step'
LANGUAGE C CALLED ON NULL INPUT IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION dailyrollup._winner_combine(pg_catalog.internal, pg_catalog.internal)
RETURNS pg_catalog.internal
AS 'MODULE_PATHNAME', 'dailyrollup_winner_combine'
LANGUAGE C CALLED ON NULL INPUT IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION dailyrollup._winner_serialize(pg_catalog.internal)
RETURNS pg_catalog.bytea
AS 'MODULE_PATHNAME', 'dailyrollup_winner_serialize'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION dailyrollup._winner_deserialize(pg_catalog.bytea, pg_catalog.internal)
RETURNS pg_catalog.internal
AS 'MODULE_PATHNAME', 'dailyrollup_winner_deserialize'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION dailyrollup._winner_final(pg_catalog.internal, pg_catalog.anyelement, pg_catalog."any")
RETURNS pg_catalog.anyelement
AS 'MODULE_PATHNAME', 'dailyrollup_winner_final'
LANGUAGE C CALLED ON NULL INPUT IMMUTABLE PARALLEL SAFE;

-- SSPACE is what a state takes whose value is a number: the planner's default
-- for internal states, 8 kB a group, would keep it from hashing many groups.
CREATE AGGREGATE @extschema@.latest(value pg_catalog.anyelement, at pg_catalog."any") (
    SFUNC = dailyrollup._latest_step,
    STYPE = pg_catalog.internal,
    SSPACE = 128,
    FINALFUNC = dailyrollup._winner_final,
    FINALFUNC_EXTRA,
    FINALFUNC_MODIFY = READ_ONLY,
    COMBINEFUNC = dailyrollup._winner_combine,
    SERIALFUNC = dailyrollup._winner_serialize,
    DESERIALFUNC = dailyrollup._winner_deserialize,
    PARALLEL = SAFE
);

CREATE AGGREGATE @extschema@.earliest(value pg_catalog.anyelement, at pg_catalog."any") (
    SFUNC = dailyrollup._earliest_step,
    STYPE = pg_catalog.internal,
    SSPACE = 128,
    FINALFUNC = dailyrollup._winner_final,
    FINALFUNC_EXTRA,
    FINALFUNC_MODIFY = READ_ONLY,
    COMBINEFUNC = dailyrollup._winner_combine,
    SERIALFUNC = dailyrollup._winner_serialize,
    DESERIALFUNC = dailyrollup._winner_deserialize,
    PARALLEL = SAFE
);

COMMENT ON AGGREGATE @extschema@.latest(pg_catalog.anyelement, pg_catalog."any") IS
'The value in the row with the greatest time "at"; the result has the value''s type. A NULL value counts (leave it out with FILTER), a row with a NULL time does not; NULL if no row has a time. At equal times a value wins against NULL, then the greater value by its type''s default btree order, then the one with the greater binary image (compared byte by byte; 1.0 and 1.00 differ in it), so that the result does not depend on the order of rows. Errors: undefined_function (42883) for a value or time whose type has no default btree order, indeterminate_datatype (42P18) for a time of type unknown.';

COMMENT ON AGGREGATE @extschema@.earliest(pg_catalog.anyelement, pg_catalog."any") IS
'The value in the row with the least time "at"; the result has the value''s type. A NULL value counts (leave it out with FILTER), a row with a NULL time does not; NULL if no row has a time. At equal times a value wins against NULL, then the lesser value by its type''s default btree order, then the one with the greater binary image (compared byte by byte; 1.0 and 1.00 differ in it), so that the result does not depend on the order of rows. Errors: undefined_function (42883) for a value or time whose type has no default btree order, indeterminate_datatype (42P18) for a time of type unknown.';

/*
 * Capture of rows: the conditions in the triggers' WHEN, the triggers' functions.
 */
CREATE FUNCTION dailyrollup._concerns_support(pg_catalog.internal) RETURNS pg_catalog.internal
	AS 'MODULE_PATHNAME', 'dailyrollup_concerns_support' LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION dailyrollup._concerns("time" pg_catalog.anyelement, rollup pg_catalog.regclass) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'dailyrollup_concerns' LANGUAGE C STABLE PARALLEL UNSAFE
	SUPPORT dailyrollup._concerns_support;
CREATE FUNCTION dailyrollup._concerns("old" pg_catalog.anyelement, "new" pg_catalog.anyelement, rollup pg_catalog.regclass) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'dailyrollup_concerns' LANGUAGE C STABLE PARALLEL UNSAFE
	SUPPORT dailyrollup._concerns_support;
CREATE FUNCTION dailyrollup._capture() RETURNS trigger
	AS 'MODULE_PATHNAME', 'dailyrollup_capture' LANGUAGE C;
CREATE FUNCTION dailyrollup._locked(proof pg_catalog.int8, place pg_catalog.tid, stored pg_catalog.record) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'dailyrollup_locked' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
CREATE FUNCTION dailyrollup._not_plain(source pg_catalog.oid) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'dailyrollup_not_plain' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
CREATE FUNCTION dailyrollup._guard() RETURNS trigger
	AS 'MODULE_PATHNAME', 'dailyrollup_guard' LANGUAGE C;
CREATE FUNCTION dailyrollup._truncated() RETURNS trigger
	AS 'MODULE_PATHNAME', 'dailyrollup_truncated' LANGUAGE C;

/*
 * What the view <live>_current is made of.
 */
CREATE FUNCTION dailyrollup._live_is_left_alone(rollup pg_catalog.regclass) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'dailyrollup_live_is_left_alone' LANGUAGE C STRICT STABLE PARALLEL SAFE;
CREATE FUNCTION dailyrollup._unmarked_support(pg_catalog.internal) RETURNS pg_catalog.internal
	AS 'MODULE_PATHNAME', 'dailyrollup_unmarked_support' LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION dailyrollup._float_image(VARIADIC floats "any") RETURNS pg_catalog.bytea
	AS 'MODULE_PATHNAME', 'dailyrollup_float_image' LANGUAGE C IMMUTABLE PARALLEL SAFE;
CREATE TYPE dailyrollup._permit;
CREATE FUNCTION dailyrollup._permit_in(pg_catalog.cstring) RETURNS dailyrollup._permit
	AS 'MODULE_PATHNAME', 'dailyrollup_permit_in' LANGUAGE C STRICT STABLE PARALLEL SAFE;
CREATE FUNCTION dailyrollup._permit_out(dailyrollup._permit) RETURNS pg_catalog.cstring
	AS 'MODULE_PATHNAME', 'dailyrollup_permit_out' LANGUAGE C STRICT STABLE PARALLEL SAFE;
CREATE TYPE dailyrollup._permit (
	INPUT = dailyrollup._permit_in,
	OUTPUT = dailyrollup._permit_out,
	INTERNALLENGTH = 8,
	ALIGNMENT = int4);
COMMENT ON TYPE dailyrollup._permit IS 'what <live>_current shows to the functions behind it: the names of an owner and his table, which he alone can turn into one';
CREATE FUNCTION dailyrollup._settled(permit dailyrollup._permit, key_type anyelement, VARIADIC "key" "any") RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'dailyrollup_settled' LANGUAGE C STABLE PARALLEL SAFE COST 5
	SUPPORT dailyrollup._unmarked_support;
-- volatile, for then it stays where it stands, above a GROUP BY
CREATE FUNCTION dailyrollup._unmarked(permit dailyrollup._permit, key_type anyelement, VARIADIC "key" "any") RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'dailyrollup_unmarked' LANGUAGE C VOLATILE PARALLEL SAFE COST 5
	SUPPORT dailyrollup._unmarked_support;
CREATE FUNCTION dailyrollup._tail_from_timestamptz(rollup pg_catalog.regclass) RETURNS pg_catalog.timestamptz
	AS 'MODULE_PATHNAME', 'dailyrollup_tail_from' LANGUAGE C STRICT STABLE PARALLEL SAFE;
CREATE FUNCTION dailyrollup._tail_from_timestamp(rollup pg_catalog.regclass) RETURNS pg_catalog.timestamp
	AS 'MODULE_PATHNAME', 'dailyrollup_tail_from' LANGUAGE C STRICT STABLE PARALLEL SAFE;
CREATE FUNCTION dailyrollup._tail_from_date(rollup pg_catalog.regclass) RETURNS pg_catalog.date
	AS 'MODULE_PATHNAME', 'dailyrollup_tail_from' LANGUAGE C STRICT STABLE PARALLEL SAFE;
CREATE FUNCTION dailyrollup._w_floor_support(pg_catalog.internal) RETURNS pg_catalog.internal
	AS 'MODULE_PATHNAME', 'dailyrollup_w_floor_support' LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;
CREATE FUNCTION dailyrollup._w_floor_timestamptz(rollup pg_catalog.regclass, verified pg_catalog.bool) RETURNS pg_catalog.timestamptz
	AS 'MODULE_PATHNAME', 'dailyrollup_w_floor' LANGUAGE C STRICT STABLE PARALLEL SAFE
	SUPPORT dailyrollup._w_floor_support;
CREATE FUNCTION dailyrollup._floor_holds(rollup pg_catalog.regclass, floor pg_catalog.timestamptz, shows_left_alone pg_catalog.bool) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'dailyrollup_floor_holds' LANGUAGE C STRICT STABLE PARALLEL SAFE;
CREATE FUNCTION dailyrollup._w_floor_timestamp(rollup pg_catalog.regclass, verified pg_catalog.bool) RETURNS pg_catalog.timestamp
	AS 'MODULE_PATHNAME', 'dailyrollup_w_floor' LANGUAGE C STRICT STABLE PARALLEL SAFE
	SUPPORT dailyrollup._w_floor_support;
CREATE FUNCTION dailyrollup._floor_holds(rollup pg_catalog.regclass, floor pg_catalog.timestamp, shows_left_alone pg_catalog.bool) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'dailyrollup_floor_holds' LANGUAGE C STRICT STABLE PARALLEL SAFE;
CREATE FUNCTION dailyrollup._w_floor_date(rollup pg_catalog.regclass, verified pg_catalog.bool) RETURNS pg_catalog.date
	AS 'MODULE_PATHNAME', 'dailyrollup_w_floor' LANGUAGE C STRICT STABLE PARALLEL SAFE
	SUPPORT dailyrollup._w_floor_support;
CREATE FUNCTION dailyrollup._floor_holds(rollup pg_catalog.regclass, floor pg_catalog.date, shows_left_alone pg_catalog.bool) RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'dailyrollup_floor_holds' LANGUAGE C STRICT STABLE PARALLEL SAFE;
CREATE FUNCTION dailyrollup._current_row(permit dailyrollup._permit, definition anyelement, dirties pg_catalog."char", mark pg_catalog.tid, VARIADIC "key" "any") RETURNS SETOF anyelement
	AS 'MODULE_PATHNAME', 'dailyrollup_current_row' LANGUAGE C STABLE PARALLEL RESTRICTED ROWS 1 COST 100;

/*
 * Routines.
 */
CREATE FUNCTION @extschema@.rollup_create(
	rollup pg_catalog.text,
	query pg_catalog.text,
	time_column pg_catalog.name,
	dedup_by pg_catalog.name[] DEFAULT NULL,
	dedup_order pg_catalog.name[] DEFAULT NULL,
	time_zone pg_catalog.text DEFAULT 'UTC',
	delay pg_catalog.interval DEFAULT NULL,
	mode pg_catalog.text DEFAULT NULL,
	fold pg_catalog.bool DEFAULT NULL) RETURNS pg_catalog.regclass
	AS 'MODULE_PATHNAME', 'dailyrollup_create' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_create(pg_catalog.text, pg_catalog.text, pg_catalog.name, pg_catalog.name[], pg_catalog.name[], pg_catalog.text, pg_catalog.interval, pg_catalog.text, pg_catalog.bool)
	IS 'defines a rollup: creates the table, or adopts the one of that name, its view <table>_current and the capture of rows; fills nothing (the first pass does)';

CREATE FUNCTION @extschema@.rollup_drop(rollup pg_catalog.regclass, drop_table pg_catalog.bool DEFAULT false) RETURNS pg_catalog.void
	AS 'MODULE_PATHNAME', 'dailyrollup_drop' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_drop(pg_catalog.regclass, pg_catalog.bool)
	IS 'forgets a rollup: removes its view, shadow, triggers and marks; the table stays unless drop_table';

CREATE FUNCTION @extschema@.rollup_refresh(
	rollup pg_catalog.regclass DEFAULT NULL,
	boundary pg_catalog.timestamptz DEFAULT NULL) RETURNS TABLE (
	rollup pg_catalog.regclass,
	action pg_catalog.text,
	from_time pg_catalog.timestamptz,
	to_time pg_catalog.timestamptz,
	folded_keys pg_catalog.int8,
	late_keys pg_catalog.int8,
	elapsed pg_catalog.interval)
	AS 'MODULE_PATHNAME', 'dailyrollup_refresh' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_refresh(pg_catalog.regclass, pg_catalog.timestamptz)
	IS 'advances the watermark to a midnight (by default the latest one at least a minute old), folds what lies before it and recomputes late keys, in this transaction; NULL: each rollup of the caller';

CREATE FUNCTION @extschema@.rollup_reseed(rollup pg_catalog.regclass) RETURNS pg_catalog.void
	AS 'MODULE_PATHNAME', 'dailyrollup_reseed' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_reseed(pg_catalog.regclass)
	IS 'asks the next refresh or pass to build the table anew from the whole source, in state shadow the shadow; readers keep the old content until it commits';

CREATE FUNCTION @extschema@.rollup_mark(rollup pg_catalog.regclass, start_time pg_catalog.timestamptz, end_time pg_catalog.timestamptz) RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME', 'dailyrollup_mark' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_mark(pg_catalog.regclass, pg_catalog.timestamptz, pg_catalog.timestamptz)
	IS 'marks each key that has source rows with start_time <= time < end_time, so that it is recomputed; returns the number of keys';

CREATE FUNCTION @extschema@.rollup_watermark(rollup pg_catalog.regclass) RETURNS pg_catalog.timestamptz
	AS 'MODULE_PATHNAME', 'dailyrollup_watermark' LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.rollup_watermark(pg_catalog.regclass)
	IS 'the midnight before which the table is exact (in state shadow: its shadow), by the caller''s snapshot; NULL where there is none';

CREATE FUNCTION @extschema@.rollup_definition(rollup pg_catalog.regclass, before pg_catalog.timestamptz DEFAULT NULL) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME', 'dailyrollup_definition' LANGUAGE C STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.rollup_definition(pg_catalog.regclass, pg_catalog.timestamptz)
	IS 'the defining SELECT over the deduplicated source, restricted to time < before; before NULL: the whole source';

CREATE FUNCTION @extschema@.rollup_check(
	rollup pg_catalog.regclass DEFAULT NULL) RETURNS TABLE (
	rollup pg_catalog.regclass,
	side pg_catalog.text,
	"rows" pg_catalog.int8,
	keys pg_catalog.int8,
	dup_keys pg_catalog.int8,
	dup_rows pg_catalog.int8)
	AS 'MODULE_PATHNAME', 'dailyrollup_check' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_check(pg_catalog.regclass)
	IS 'counts rows and distinct keys in the heap, never through an index; NULL: each rollup of the caller';

CREATE FUNCTION @extschema@.rollup_verify(
	rollup pg_catalog.regclass) RETURNS TABLE (
	class pg_catalog.text,
	"key" pg_catalog.jsonb,
	columns pg_catalog.name[],
	live pg_catalog.jsonb,
	daily pg_catalog.jsonb,
	copies pg_catalog.int8)
	AS 'MODULE_PATHNAME', 'dailyrollup_verify' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_verify(pg_catalog.regclass)
	IS 'compares the table with its definition, before the watermark in state on, else over the whole source, in one snapshot, keys that wait for a recompute left out; no row: exact';

CREATE FUNCTION @extschema@.rollup_diff(
	rollup pg_catalog.regclass,
	scope pg_catalog.text DEFAULT NULL) RETURNS TABLE (
	class pg_catalog.text,
	"key" pg_catalog.jsonb,
	columns pg_catalog.name[],
	live pg_catalog.jsonb,
	daily pg_catalog.jsonb,
	copies pg_catalog.int8)
	AS 'MODULE_PATHNAME', 'dailyrollup_diff' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_diff(pg_catalog.regclass, pg_catalog.text)
	IS 'compares the table with its shadow, in one snapshot, keys that wait for a recompute left out; scope all: the shadow united with what came since its watermark, settled: keys without such rows; no row: they agree';

CREATE FUNCTION @extschema@.rollup_alter(
	rollup pg_catalog.regclass,
	query pg_catalog.text DEFAULT NULL,
	delay pg_catalog.interval DEFAULT NULL,
	mode pg_catalog.text DEFAULT NULL,
	time_zone pg_catalog.text DEFAULT NULL,
	fold pg_catalog.bool DEFAULT NULL) RETURNS pg_catalog.void
	AS 'MODULE_PATHNAME', 'dailyrollup_alter' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_alter(pg_catalog.regclass, pg_catalog.text, pg_catalog.interval, pg_catalog.text, pg_catalog.text, pg_catalog.bool)
	IS 'changes what is wanted of a rollup; NULL leaves a setting, mode default and delay -1 return to those of the server; the next pass brings the rollup to the mode';

CREATE FUNCTION @extschema@.rollup_promote(
	rollup pg_catalog.regclass DEFAULT NULL) RETURNS TABLE (
	rollup pg_catalog.regclass,
	action pg_catalog.text,
	"rows" pg_catalog.int8,
	keys pg_catalog.int8,
	replaced_rows pg_catalog.int8,
	replaced_keys pg_catalog.int8)
	AS 'MODULE_PATHNAME', 'dailyrollup_promote' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_promote(pg_catalog.regclass)
	IS 'gives the table its shadow''s content, counted and compared before it may commit; from then on the daily refresh alone keeps it; NULL: each rollup of the caller that has a filled shadow';

CREATE FUNCTION @extschema@.rollup_recompute(rollup pg_catalog.regclass) RETURNS pg_catalog.void
	AS 'MODULE_PATHNAME', 'dailyrollup_recompute' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_recompute(pg_catalog.regclass)
	IS 'brings the table to its query''s content over the whole source, in states off and shadow';

CREATE FUNCTION @extschema@.rollup_flush(rollup pg_catalog.regclass) RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME', 'dailyrollup_flush' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_flush(pg_catalog.regclass)
	IS 'recomputes the keys that writes under dailyrollup.backfill have dirtied; returns their number; in state on they are late keys like any other, and 0 is returned';

CREATE FUNCTION @extschema@.rollup_fold() RETURNS pg_catalog.void
	AS 'MODULE_PATHNAME', 'dailyrollup_fold' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_fold()
	IS 'folds what this transaction has written so far, for those who must read it from the table before they commit';

CREATE FUNCTION @extschema@.rollup_plan() RETURNS TABLE (
	rollup pg_catalog.regclass,
	step_number pg_catalog.int4,
	step pg_catalog.text,
	state pg_catalog.text,
	becomes pg_catalog.text,
	boundary pg_catalog.timestamptz)
	AS 'MODULE_PATHNAME', 'dailyrollup_plan' LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_plan()
	IS 'what the next pass would do for each rollup of the caller, but for keys that wait: its steps in order, the state before and after each, the midnight that it brings the table to; no row: nothing';

CREATE PROCEDURE @extschema@.rollup_run(rollup pg_catalog.regclass DEFAULT NULL)
	AS 'MODULE_PATHNAME', 'dailyrollup_run' LANGUAGE C;
COMMENT ON PROCEDURE @extschema@.rollup_run(pg_catalog.regclass)
	IS 'the pass: brings a rollup to the mode wanted for it, seeds or refreshes it where a boundary is due, recomputes late keys, promotes, checks, compares; each step in a transaction of its own; NULL: each rollup of the caller';

CREATE FUNCTION @extschema@.rollup_schedule(cron pg_catalog.text DEFAULT '*/10 * * * *') RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME', 'dailyrollup_schedule' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_schedule(pg_catalog.text)
	IS 'has pg_cron make the passes: creates or replaces the caller''s job in this database, CALL rollup_run() as the caller; returns pg_cron''s number of it';

CREATE FUNCTION @extschema@.rollup_unschedule() RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'dailyrollup_unschedule' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.rollup_unschedule()
	IS 'removes the job that rollup_schedule has made for the caller; false: there was none';

/*
 * Views.
 */
CREATE FUNCTION dailyrollup._scheduled() RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'dailyrollup_scheduled' LANGUAGE C STABLE PARALLEL UNSAFE;

CREATE FUNCTION dailyrollup._late(rollup pg_catalog.regclass) RETURNS TABLE ("key" pg_catalog.jsonb, marks pg_catalog.int8, since pg_catalog.timestamptz)
	AS 'MODULE_PATHNAME', 'dailyrollup_late' LANGUAGE C STRICT STABLE PARALLEL UNSAFE ROWS 100;

CREATE FUNCTION dailyrollup._wanted_mode(mode pg_catalog.text, state pg_catalog.text, was pg_catalog.text) RETURNS pg_catalog.text
	AS 'MODULE_PATHNAME', 'dailyrollup_wanted_mode' LANGUAGE C STABLE PARALLEL SAFE;

CREATE VIEW dailyrollup._visible_rollups WITH (security_barrier) AS
	SELECT r.*
	FROM dailyrollup.rollups r JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) r.live
	WHERE pg_catalog.pg_has_role(c.relowner, 'USAGE') OR pg_catalog.pg_has_role('pg_monitor', 'USAGE');

CREATE VIEW @extschema@.rollup_late WITH (security_barrier) AS
	SELECT r.live AS rollup, l."key", l.marks, l.since
	FROM dailyrollup._visible_rollups r CROSS JOIN LATERAL dailyrollup._late(r.live) l;
COMMENT ON VIEW @extschema@.rollup_late IS 'keys that wait for a recompute, with the number of their marks and the beginning of the first transaction that marked them; rows of one''s own rollups, all for pg_monitor';

CREATE VIEW @extschema@.rollup_runs WITH (security_barrier) AS
	SELECT n.id, r.live AS rollup, n.action, n.started_at, n.finished_at,
		n.finished_at OPERATOR(pg_catalog.-) n.started_at AS elapsed,
		n.from_time, n.to_time, n.folded_keys, n.late_keys, n.outcome, n.reason,
		n."rows", n.keys, n.missing_daily, n.missing_live, n.mismatches, n.duplicates
	FROM dailyrollup.runs n JOIN dailyrollup._visible_rollups r ON r.id OPERATOR(pg_catalog.=) n.rollup_id;
COMMENT ON VIEW @extschema@.rollup_runs IS 'each refresh and each step of a pass, with its window, its counts, its outcome and reason; rows of one''s own rollups, all for pg_monitor';

CREATE FUNCTION dailyrollup._next_due(rollup pg_catalog.regclass, OUT next_due pg_catalog.timestamptz, OUT reason pg_catalog.text)
	AS 'MODULE_PATHNAME', 'dailyrollup_next_due' LANGUAGE C STRICT STABLE PARALLEL UNSAFE;
CREATE FUNCTION dailyrollup._worker_serves() RETURNS pg_catalog.bool
	AS 'MODULE_PATHNAME', 'dailyrollup_worker_serves' LANGUAGE C STABLE PARALLEL SAFE;
CREATE FUNCTION dailyrollup._progress() RETURNS TABLE (
	pid pg_catalog.int4, rollup pg_catalog.regclass, phase pg_catalog.text,
	part pg_catalog.int4, parts pg_catalog.int4, "rows" pg_catalog.int8,
	started_at pg_catalog.timestamptz, phase_started_at pg_catalog.timestamptz)
	AS 'MODULE_PATHNAME', 'dailyrollup_progress' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1;

CREATE VIEW @extschema@.rollup_progress WITH (security_barrier) AS
	SELECT p.rollup, p.pid, p.phase, p.part, p.parts, p."rows", p.started_at, p.phase_started_at
	FROM dailyrollup._progress() p JOIN dailyrollup._visible_rollups r ON r.live OPERATOR(pg_catalog.=) p.rollup;
COMMENT ON VIEW @extschema@.rollup_progress IS 'the passes that run now: what each is doing, at which part of how many; empty where the library is not preloaded; rows of one''s own rollups, all for pg_monitor';

CREATE VIEW @extschema@.rollup_status WITH (security_barrier) AS
	SELECT r.live AS rollup, r.source, r.current_view, r.state,
		dailyrollup._wanted_mode(r.mode, r.state, r.was) AS wanted_mode, r.mode, r.fold,
		coalesce(r.watermark, r.shadow_watermark) AS watermark,
		pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) coalesce(r.watermark, r.shadow_watermark) AS lag,
		r.shadow, r.time_zone, r.delay,
		l.late_keys, l.oldest_late,
		r.reseed,
		d.next_due, d.reason AS next_step, CASE WHEN dailyrollup._worker_serves() THEN 'worker' WHEN dailyrollup._scheduled() THEN 'pg_cron' ELSE 'nobody' END AS run_by,
		n.action AS last_action, n.outcome AS last_outcome, n.finished_at AS last_run_at,
		r.failures, r.last_error, r.retry_at,
		c."rows", c.keys, c.finished_at AS checked_at,
		f.missing_daily, f.missing_live, f.mismatches, f.duplicates, f.finished_at AS compared_at,
		(SELECT p.phase FROM dailyrollup._progress() p WHERE p.rollup OPERATOR(pg_catalog.=) r.live LIMIT 1) AS activity
	FROM dailyrollup._visible_rollups r
	CROSS JOIN LATERAL (
		SELECT pg_catalog.count(*) AS late_keys,
			pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.min(k.since) AS oldest_late
		FROM dailyrollup._late(r.live) k) l
	CROSS JOIN LATERAL dailyrollup._next_due(r.live) d
	LEFT JOIN LATERAL (
		SELECT m.* FROM dailyrollup.runs m
		WHERE m.rollup_id OPERATOR(pg_catalog.=) r.id
		ORDER BY m.id DESC LIMIT 1) n ON true
	LEFT JOIN LATERAL (
		SELECT m.* FROM dailyrollup.runs m
		WHERE m.rollup_id OPERATOR(pg_catalog.=) r.id AND m."rows" IS NOT NULL
		AND m.action OPERATOR(pg_catalog.=) ANY ('{check,promote}'::pg_catalog.text[])
		ORDER BY m.id DESC LIMIT 1) c ON true
	LEFT JOIN LATERAL (
		SELECT m.* FROM dailyrollup.runs m
		WHERE m.rollup_id OPERATOR(pg_catalog.=) r.id AND m.mismatches IS NOT NULL
		ORDER BY m.id DESC LIMIT 1) f ON true;
COMMENT ON VIEW @extschema@.rollup_status IS 'a row per rollup: state, watermark, waiting keys, last run, next one and who makes it, last error, last counts; rows of one''s own rollups, all for pg_monitor';

-- Each leg asks for what it needs alone: whoever reads one name pays for no other.
CREATE VIEW @extschema@.rollup_metrics WITH (security_barrier) AS
	SELECT m.name,
		pg_catalog.jsonb_build_object('database', pg_catalog.current_database(),
			'rollup', pg_catalog.format('%I.%I', s.nspname, c.relname)) OPERATOR(pg_catalog.||) m.labels AS labels,
		m.value, m.help
	FROM dailyrollup._visible_rollups r
	JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) r.live
	JOIN pg_catalog.pg_namespace s ON s.oid OPERATOR(pg_catalog.=) c.relnamespace
	CROSS JOIN LATERAL (
		SELECT 'dailyrollup_state_info' AS name,
			pg_catalog.jsonb_build_object('state', r.state, 'wanted_mode', dailyrollup._wanted_mode(r.mode, r.state, r.was)) AS labels,
			1::pg_catalog.float8 AS value,
			'State that the rollup is in and mode that is wanted for it; the value is always 1.' AS help
		UNION ALL
		SELECT 'dailyrollup_watermark_timestamp_seconds', '{}',
			pg_catalog.date_part('epoch', coalesce(r.watermark, r.shadow_watermark)),
			'Midnight before which the table that the daily refresh keeps is exact, in seconds since 1970.'
		WHERE coalesce(r.watermark, r.shadow_watermark) IS NOT NULL
		UNION ALL
		SELECT 'dailyrollup_lag_seconds', '{}',
			pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) coalesce(r.watermark, r.shadow_watermark)),
			'Seconds from the watermark to now; at most a day and the delay where all is well.'
		WHERE coalesce(r.watermark, r.shadow_watermark) IS NOT NULL
		UNION ALL
		SELECT 'dailyrollup_late_keys', '{}',
			(SELECT pg_catalog.count(*) FROM dailyrollup._late(r.live))::pg_catalog.float8,
			'Keys that wait for a recompute.'
		UNION ALL
		SELECT 'dailyrollup_failures', '{}', r.failures::pg_catalog.float8,
			'Passes over the rollup that have failed since the last one that did not.'
		UNION ALL
		SELECT 'dailyrollup_refresh_seconds', '{}',
			pg_catalog.date_part('epoch', n.finished_at OPERATOR(pg_catalog.-) n.started_at),
			'How long the last refresh took, its waits included.'
		FROM (SELECT l.* FROM dailyrollup.runs l
			WHERE l.rollup_id OPERATOR(pg_catalog.=) r.id
			AND l.action OPERATOR(pg_catalog.=) ANY ('{seed,fold,late}'::pg_catalog.text[])
			AND l.outcome OPERATOR(pg_catalog.=) 'ok'
			ORDER BY l.id DESC LIMIT 1) n
		UNION ALL
		SELECT 'dailyrollup_refresh_total',
			pg_catalog.jsonb_build_object('action', n.action, 'outcome', n.outcome),
			pg_catalog.sum(n.runs)::pg_catalog.float8,
			'Steps of passes and refreshes, by what they did and what came of it.'
		FROM (SELECT l.action, l.outcome, pg_catalog.count(*) AS runs FROM dailyrollup.runs l
			WHERE l.rollup_id OPERATOR(pg_catalog.=) r.id GROUP BY l.action, l.outcome
			UNION ALL
			SELECT p.action, p.outcome, p.runs FROM dailyrollup.past_runs p
			WHERE p.rollup_id OPERATOR(pg_catalog.=) r.id) n
		GROUP BY n.action, n.outcome
		UNION ALL
		SELECT 'dailyrollup_diff_rows', pg_catalog.jsonb_build_object('class', k.class), k."rows"::pg_catalog.float8,
			'Rows of the last comparison of the table with its shadow, by class; 0 everywhere: they agree.'
		FROM (SELECT l.* FROM dailyrollup.runs l
			WHERE l.rollup_id OPERATOR(pg_catalog.=) r.id
			AND l.action OPERATOR(pg_catalog.=) 'diff' AND l.missing_daily IS NOT NULL
			AND l.started_at OPERATOR(pg_catalog.>=) r.shadow_at
			ORDER BY l.id DESC LIMIT 1) n
		CROSS JOIN LATERAL (VALUES ('missing_daily', n.missing_daily), ('missing_live', n.missing_live),
			('mismatch', n.mismatches), ('duplicate', n.duplicates)) k(class, "rows")
		WHERE r.state OPERATOR(pg_catalog.=) 'shadow'
		UNION ALL
		SELECT 'dailyrollup_table_rows', pg_catalog.jsonb_build_object('side', b.side, 'kind', k.kind), k."rows"::pg_catalog.float8,
			'Rows and distinct keys of the table (live) and of its shadow (daily) when they were last counted; two numbers that differ mean duplicates.'
		FROM (VALUES ('live', '{check,promote}'::pg_catalog.text[]), ('daily', '{diff}')) b(side, actions)
		CROSS JOIN LATERAL (SELECT l.* FROM dailyrollup.runs l
			WHERE l.rollup_id OPERATOR(pg_catalog.=) r.id
			AND l.action OPERATOR(pg_catalog.=) ANY (b.actions) AND l."rows" IS NOT NULL
			ORDER BY l.id DESC LIMIT 1) n
		CROSS JOIN LATERAL (VALUES ('rows', n."rows"), ('keys', n.keys)) k(kind, "rows")
		WHERE b.side OPERATOR(pg_catalog.=) 'live' OR (r.shadow IS NOT NULL AND n.started_at OPERATOR(pg_catalog.>=) r.shadow_at)
	) m;
COMMENT ON VIEW @extschema@.rollup_metrics IS 'numbers for a monitoring system: name, labels, value, help; names and labels are an interface; rows of one''s own rollups, all for pg_monitor';

GRANT SELECT ON @extschema@.rollup_late, @extschema@.rollup_runs, @extschema@.rollup_status, @extschema@.rollup_progress, @extschema@.rollup_metrics TO PUBLIC;

/*
 * Privileges, whatever the installing role's default privileges say: our tables
 * are nobody's else, our functions check for themselves.
 */
DO $$
DECLARE
	statement pg_catalog.text;
BEGIN
	FOR statement IN
		SELECT pg_catalog.format('REVOKE ALL ON SCHEMA dailyrollup FROM %s',
			CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::pg_catalog.text END)
		FROM pg_catalog.pg_namespace n CROSS JOIN LATERAL pg_catalog.aclexplode(n.nspacl) a
		WHERE n.nspname OPERATOR(pg_catalog.=) 'dailyrollup' AND a.grantee OPERATOR(pg_catalog.<>) n.nspowner
		UNION ALL
		SELECT pg_catalog.format('REVOKE ALL ON dailyrollup.%I FROM %s', c.relname,
			CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::pg_catalog.text END)
		FROM pg_catalog.pg_class c CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) a
		WHERE c.relnamespace OPERATOR(pg_catalog.=) 'dailyrollup'::pg_catalog.regnamespace
		AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,v,S}'::pg_catalog."char"[])
		AND a.grantee OPERATOR(pg_catalog.<>) c.relowner
	LOOP
		EXECUTE statement;
	END LOOP;
END $$;
GRANT USAGE ON SCHEMA dailyrollup TO PUBLIC;
GRANT USAGE ON TYPE dailyrollup._permit TO PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA dailyrollup TO PUBLIC;
GRANT EXECUTE ON FUNCTION
	@extschema@.latest(pg_catalog.anyelement, pg_catalog."any"),
	@extschema@.earliest(pg_catalog.anyelement, pg_catalog."any"),
	@extschema@.rollup_create(pg_catalog.text, pg_catalog.text, pg_catalog.name, pg_catalog.name[], pg_catalog.name[], pg_catalog.text, pg_catalog.interval, pg_catalog.text, pg_catalog.bool),
	@extschema@.rollup_drop(pg_catalog.regclass, pg_catalog.bool),
	@extschema@.rollup_refresh(pg_catalog.regclass, pg_catalog.timestamptz),
	@extschema@.rollup_reseed(pg_catalog.regclass),
	@extschema@.rollup_mark(pg_catalog.regclass, pg_catalog.timestamptz, pg_catalog.timestamptz),
	@extschema@.rollup_watermark(pg_catalog.regclass),
	@extschema@.rollup_definition(pg_catalog.regclass, pg_catalog.timestamptz),
	@extschema@.rollup_check(pg_catalog.regclass),
	@extschema@.rollup_verify(pg_catalog.regclass),
	@extschema@.rollup_diff(pg_catalog.regclass, pg_catalog.text),
	@extschema@.rollup_alter(pg_catalog.regclass, pg_catalog.text, pg_catalog.interval, pg_catalog.text, pg_catalog.text, pg_catalog.bool),
	@extschema@.rollup_promote(pg_catalog.regclass),
	@extschema@.rollup_recompute(pg_catalog.regclass),
	@extschema@.rollup_flush(pg_catalog.regclass),
	@extschema@.rollup_fold(),
	@extschema@.rollup_plan(),
	@extschema@.rollup_schedule(pg_catalog.text),
	@extschema@.rollup_unschedule()
	TO PUBLIC;
GRANT EXECUTE ON PROCEDURE @extschema@.rollup_run(pg_catalog.regclass) TO PUBLIC;

/*
 * Event triggers: partitions that come and go, relations that are dropped.
 */
CREATE FUNCTION dailyrollup._ddl_ended() RETURNS event_trigger
	AS 'MODULE_PATHNAME', 'dailyrollup_ddl_ended' LANGUAGE C;
CREATE FUNCTION dailyrollup._dropped() RETURNS event_trigger
	AS 'MODULE_PATHNAME', 'dailyrollup_dropped' LANGUAGE C;
CREATE EVENT TRIGGER dailyrollup_ddl_ended ON ddl_command_end
	WHEN TAG IN ('ALTER TABLE', 'ALTER VIEW', 'ALTER FOREIGN TABLE', 'ALTER MATERIALIZED VIEW', 'ALTER TYPE', 'CREATE TABLE', 'CREATE FOREIGN TABLE', 'CREATE SCHEMA', 'ALTER SCHEMA', 'CREATE TRIGGER', 'CREATE RULE')
	EXECUTE FUNCTION dailyrollup._ddl_ended();
CREATE EVENT TRIGGER dailyrollup_dropped ON sql_drop
	EXECUTE FUNCTION dailyrollup._dropped();
ALTER EVENT TRIGGER dailyrollup_ddl_ended ENABLE ALWAYS;
ALTER EVENT TRIGGER dailyrollup_dropped ENABLE ALWAYS;
