/*
 * catalog.c
 *		The extension's own tables: the only code that knows their columns.
 *
 * Reads are scans of dailyrollup.rollups as of a given snapshot; NULL stands
 * for the latest committed rows and our own.  They ask for no privilege, for
 * a writer or reader has none on our tables.  Writes are SQL, as the owner of
 * the extension.
 *
 * A trigger on dailyrollup.rollups sends a relcache invalidation of the source
 * with each change, an UPDATE by hand included; what a session remembers of a
 * rollup (watermark.c, plans.c) goes with it.
 */
#include "catalog.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "boundary.h"
#include "compat.h"
#include "guc.h"
#include "identity.h"

/* columns of dailyrollup.rollups, as the install script makes them */
enum
{
	Anum_id = 1,
	Anum_live,
	Anum_source,
	Anum_current_view,
	Anum_events,
	Anum_definition,
	Anum_marks,
	Anum_key_type,
	Anum_time_zone,
	Anum_delay,
	Anum_mode,
	Anum_fold,
	Anum_state,
	Anum_was,
	Anum_watermark,
	Anum_reseed,
	Anum_reseed_at,
	Anum_shadow,
	Anum_shadow_watermark,
	Anum_shadow_at,
	Anum_proof,
	Natts_rollups = Anum_proof
};

static const char *const state_names[] = {"new", "off", "shadow", "on"};

/* ---------------------------------------------------------------- reading */

const char *
dr_catalog_state_name(DrState state)
{
	return state_names[state];
}

/* False where there is no state of that name. */
bool
dr_catalog_parse_state(const char *name, DrState *state)
{
	for (int i = 0; i < lengthof(state_names); i++)
		if (strcmp(name, state_names[i]) == 0)
		{
			*state = (DrState) i;
			return true;
		}
	return false;
}

static DrState
state_of(Datum value)
{
	char	   *name = TextDatumGetCString(value);
	DrState		state;

	if (!dr_catalog_parse_state(name, &state))
		elog(ERROR, "unrecognized state \"%s\"", name);
	return state;
}

/*
 * The state that a rollup should be in: its own mode, else dailyrollup.mode,
 * else (unset) the state as it is; a new one is then off.
 */
DrState
dr_catalog_wanted(const DrRollup *rollup)
{
	DrState		wanted;

	if (rollup->mode != NULL && dr_catalog_parse_state(rollup->mode, &wanted))
		return wanted;
	switch (dr_guc_mode)
	{
		case DR_MODE_OFF:
			return DR_STATE_OFF;
		case DR_MODE_SHADOW:
			return DR_STATE_SHADOW;
		case DR_MODE_ON:
			return DR_STATE_ON;
		case DR_MODE_UNSET:
			break;
	}
	return rollup->state == DR_STATE_NEW || rollup->state == DR_STATE_ON ?
		rollup->was : rollup->state;
}

/* The state that a rollup in that state returns to if no mode is wanted: one
 * that is being filled goes through on, to where it was, or to off. */
static DrState
was_of(DrState state, Datum value, bool isnull)
{
	if (!isnull)
		return state_of(value);
	return state == DR_STATE_NEW ? DR_STATE_OFF : state;
}

/* Is each write to the source folded into live? */
bool
dr_catalog_folds(const DrRollup *rollup)
{
	return rollup->fold &&
		(rollup->state == DR_STATE_OFF || rollup->state == DR_STATE_SHADOW);
}

/* Which marks say that live's row of a key does not count. */
char
dr_catalog_dirties_live(const DrRollup *rollup)
{
	if (rollup->state == DR_STATE_NEW || rollup->state == DR_STATE_ON)
		return DR_DIRTIES_DAILY;
	return rollup->fold ? DR_DIRTIES_LIVE : DR_DIRTIES_NONE;
}

static char *
optional_text(Datum value, bool isnull)
{
	return isnull ? NULL : TextDatumGetCString(value);
}

/* The owner of a relation; InvalidOid where there is none. */
Oid
dr_catalog_relation_owner(Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

static DrRollup *
rollup_from_tuple(HeapTuple tuple, TupleDesc desc)
{
	Datum		v[Natts_rollups + 1];
	bool		null[Natts_rollups + 1];
	DrRollup   *rollup = palloc0(sizeof(DrRollup));

	heap_deform_tuple(tuple, desc, v + 1, null + 1);
	rollup->id = DatumGetInt32(v[Anum_id]);
	rollup->live = DatumGetObjectId(v[Anum_live]);
	rollup->source = DatumGetObjectId(v[Anum_source]);
	rollup->current_view = DatumGetObjectId(v[Anum_current_view]);
	rollup->events = DatumGetObjectId(v[Anum_events]);
	rollup->definition = DatumGetObjectId(v[Anum_definition]);
	rollup->marks = DatumGetObjectId(v[Anum_marks]);
	rollup->key_type = DatumGetObjectId(v[Anum_key_type]);
	rollup->time_zone = TextDatumGetCString(v[Anum_time_zone]);
	if (!null[Anum_delay])
		rollup->delay = DatumGetIntervalP(datumCopy(v[Anum_delay], false,
													sizeof(Interval)));
	rollup->mode = optional_text(v[Anum_mode], null[Anum_mode]);
	rollup->fold = DatumGetBool(v[Anum_fold]);
	rollup->state = state_of(v[Anum_state]);
	rollup->was = was_of(rollup->state, v[Anum_was], null[Anum_was]);
	rollup->has_watermark = !null[Anum_watermark];
	if (rollup->has_watermark)
		rollup->watermark = DatumGetTimestampTz(v[Anum_watermark]);
	rollup->reseed = optional_text(v[Anum_reseed], null[Anum_reseed]);
	if (!null[Anum_reseed_at])
		rollup->reseed_at = DatumGetTimestampTz(v[Anum_reseed_at]);
	if (!null[Anum_shadow])
		rollup->shadow = DatumGetObjectId(v[Anum_shadow]);
	rollup->has_shadow_watermark = !null[Anum_shadow_watermark];
	if (rollup->has_shadow_watermark)
		rollup->shadow_watermark = DatumGetTimestampTz(v[Anum_shadow_watermark]);
	if (!null[Anum_shadow_at])
		rollup->shadow_at = DatumGetTimestampTz(v[Anum_shadow_at]);
	rollup->proof = DatumGetInt64(v[Anum_proof]);
	rollup->owner = dr_catalog_relation_owner(rollup->live);
	return rollup;
}

static Oid
own_table(const char *name)
{
	Oid			namespace = get_namespace_oid(DR_SCHEMA, true);
	Oid			table = OidIsValid(namespace) ?
		get_relname_relid(name, namespace) : InvalidOid;

	if (!OidIsValid(table))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"%s\" is not installed in this database",
						DR_SCHEMA),
				 errhint("Run CREATE EXTENSION dailyrollup.")));
	return table;
}

static int
by_live(const ListCell *a, const ListCell *b)
{
	Oid			left = ((DrRollup *) lfirst(a))->live;
	Oid			right = ((DrRollup *) lfirst(b))->live;

	return left < right ? -1 : left > right;
}

/* The rollups whose column "attno" (0: any) holds "value", in order of live's
 * OID, as of the snapshot. */
static List *
scan(AttrNumber attno, RegProcedure equal, Datum value, Snapshot snapshot)
{
	Relation	rel = table_open(own_table("rollups"), AccessShareLock);
	ScanKeyData key;
	SysScanDesc desc;
	HeapTuple	tuple;
	List	   *found = NIL;

	if (attno != 0)
		ScanKeyInit(&key, attno, BTEqualStrategyNumber, equal, value);
	desc = systable_beginscan(rel, InvalidOid, false, snapshot,
							  attno != 0 ? 1 : 0, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(desc)))
		found = lappend(found, rollup_from_tuple(tuple, RelationGetDescr(rel)));
	systable_endscan(desc);
	table_close(rel, AccessShareLock);

	list_sort(found, by_live);
	return found;
}

/* The rollup whose live table that is, or NULL. */
DrRollup *
dr_catalog_find(Oid live, Snapshot snapshot)
{
	List	   *found = scan(Anum_live, F_OIDEQ, ObjectIdGetDatum(live), snapshot);

	return found == NIL ? NULL : linitial(found);
}

DrRollup *
dr_catalog_find_id(int32 id)
{
	List	   *found = scan(Anum_id, F_INT4EQ, Int32GetDatum(id), NULL);

	return found == NIL ? NULL : linitial(found);
}

/* Every rollup, in order of live's OID. */
List *
dr_catalog_all(void)
{
	return scan(0, InvalidOid, (Datum) 0, NULL);
}

/* A relation's name for messages: schema.name, unquoted. */
char *
dr_catalog_name(Oid relation)
{
	char	   *name = get_rel_name(relation);

	if (name == NULL)
		return psprintf("%u", relation);
	return psprintf("%s.%s",
					get_namespace_name(get_rel_namespace(relation)), name);
}

/*
 * The rollup of that name, for a routine that only its owner may call: an
 * error where there is none, or where the caller is not a member of the
 * owning role.
 */
DrRollup *
dr_catalog_owned(Oid live)
{
	DrRollup   *rollup = dr_catalog_find(live, NULL);

	if (rollup == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not a rollup", dr_catalog_name(live)),
				 errhint("The view rollup_status lists the rollups; rollup_create defines one.")));
	if (!dr_is_class_owner(live, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(live));
	return rollup;
}

/* Each rollup that the caller owns (a superuser: all), in order of OID. */
List *
dr_catalog_owned_all(void)
{
	List	   *all = dr_catalog_all();
	List	   *owned = NIL;
	ListCell   *cell;

	foreach(cell, all)
	{
		DrRollup   *rollup = lfirst(cell);

		if (OidIsValid(rollup->owner) &&
			dr_is_class_owner(rollup->live, GetUserId()))
			owned = lappend(owned, rollup);
	}
	return owned;
}

/* ---------------------------------------------------------------- writing */

/*
 * Run one statement over our tables as the owner of the extension; returns the
 * number of rows that it wrote.  By the latest snapshot, as we read: to a
 * REPEATABLE READ transaction a row that was made after it began is still one
 * to be changed.
 */
static uint64
write_rows(const char *sql, int n, Oid *types, Datum *values, const char *nulls)
{
	DrIdentity	before;
	SPIPlanPtr	plan;
	uint64		rows;

	dr_identity_enter_extension_sql(&before);
	plan = SPI_prepare(sql, n, types);
	if (plan == NULL ||
		SPI_execute_snapshot(plan, values, nulls, GetLatestSnapshot(),
							 InvalidSnapshot, false, true, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", sql);
	rows = SPI_processed;
	dr_identity_leave_sql(&before);
	return rows;
}

/* Write the one row of a rollup, which another session may have removed. */
static void
write_rollup(const DrRollup *rollup, const char *sql, int n, Oid *types, Datum *values,
			 const char *nulls)
{
	if (write_rows(sql, n, types, values, nulls) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("rollup \"%s\" was dropped meanwhile", dr_catalog_name(rollup->live))));
}

static Datum
text_or_null(const char *text, char *null)
{
	*null = text == NULL ? 'n' : ' ';
	return text == NULL ? (Datum) 0 : CStringGetTextDatum(text);
}

int32
dr_catalog_next_id(void)
{
	DrIdentity	before;
	Oid			sequence = own_table("rollup_id_seq");
	int64		id;

	dr_identity_enter_extension(&before);
	id = DatumGetInt64(DirectFunctionCall1(nextval_oid,
										   ObjectIdGetDatum(sequence)));
	dr_identity_leave(&before);
	return (int32) id;
}

void
dr_catalog_insert(const DrRollup *r)
{
	Oid			types[] = {
		INT4OID, REGCLASSOID, REGCLASSOID, REGCLASSOID, REGCLASSOID, REGCLASSOID,
		REGCLASSOID, REGTYPEOID, TEXTOID, INTERVALOID, TEXTOID, BOOLOID, TEXTOID, INT8OID
	};
	char		nulls[] = "              ";
	Datum		values[] = {
		Int32GetDatum(r->id), ObjectIdGetDatum(r->live),
		ObjectIdGetDatum(r->source), ObjectIdGetDatum(r->current_view),
		ObjectIdGetDatum(r->events), ObjectIdGetDatum(r->definition),
		ObjectIdGetDatum(r->marks), ObjectIdGetDatum(r->key_type),
		CStringGetTextDatum(r->time_zone), IntervalPGetDatum(r->delay),
		(Datum) 0, BoolGetDatum(r->fold),
		CStringGetTextDatum(dr_catalog_state_name(r->state)), Int64GetDatum(r->proof)
	};

	nulls[9] = r->delay == NULL ? 'n' : ' ';
	values[10] = text_or_null(r->mode, &nulls[10]);
	write_rows("INSERT INTO dailyrollup.rollups (id, live, source, current_view, events,"
			   " definition, marks, key_type, time_zone, delay, mode, fold, state, proof)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
			   lengthof(types), types, values, nulls);
}

/* A wish for a reseed that the named time fulfils is gone; a later one stays. */
#define FULFIL_RESEED(at) \
	" reseed = CASE WHEN reseed_at <= " at " THEN NULL ELSE reseed END," \
	" reseed_at = CASE WHEN reseed_at <= " at " THEN NULL ELSE reseed_at END"

/*
 * Compare and set: live's watermark moves from what "rollup" says to
 * "boundary", and the state becomes on.  False where the row no longer says
 * that: it was changed by another transaction since.  A seed fulfils the wish
 * that "rollup" knew of; one that was made meanwhile stays.
 */
bool
dr_catalog_advance(const DrRollup *rollup, TimestampTz boundary, bool seeded)
{
	Oid			types[5] = {INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID};
	char		nulls[] = "     ";
	Datum		values[5] = {
		Int32GetDatum(rollup->id), TimestampTzGetDatum(boundary),
		TimestampTzGetDatum(rollup->watermark),
		TimestampTzGetDatum(rollup->reseed_at),
		CStringGetTextDatum(dr_catalog_state_name(rollup->state))
	};

	nulls[2] = rollup->has_watermark ? ' ' : 'n';
	nulls[3] = seeded && rollup->reseed ? ' ' : 'n';
	return write_rows("UPDATE dailyrollup.rollups"
					  " SET watermark = $2, state = 'on', was = NULL," FULFIL_RESEED("$4")
					  " WHERE id = $1 AND watermark IS NOT DISTINCT FROM $3 AND state = $5",
					  5, types, values, nulls) == 1;
}

/*
 * The "WHERE" of changes that rest on what "rollup" says of state and shadow:
 * $1 to $4.
 */
#define AS_IT_WAS \
	" WHERE id = $1 AND state = $2 AND shadow IS NOT DISTINCT FROM $3" \
	" AND shadow_watermark IS NOT DISTINCT FROM $4"

/* Compare and set: "changes" has $5, of that type; false as above. */
static bool
change_as_it_was(const DrRollup *rollup, const char *changes, Oid type, Datum value,
				 bool isnull)
{
	Oid			types[5] = {INT4OID, TEXTOID, REGCLASSOID, TIMESTAMPTZOID, type};
	char		nulls[] = "     ";
	Datum		values[5] = {
		Int32GetDatum(rollup->id),
		CStringGetTextDatum(dr_catalog_state_name(rollup->state)),
		ObjectIdGetDatum(rollup->shadow),
		TimestampTzGetDatum(rollup->shadow_watermark), value
	};

	nulls[2] = OidIsValid(rollup->shadow) ? ' ' : 'n';
	nulls[3] = rollup->has_shadow_watermark ? ' ' : 'n';
	nulls[4] = isnull ? 'n' : ' ';
	return write_rows(psprintf("UPDATE dailyrollup.rollups SET %s" AS_IT_WAS, changes),
					  5, types, values, nulls) == 1;
}

/* The shadow's watermark moves to "boundary". */
bool
dr_catalog_advance_shadow(const DrRollup *rollup, TimestampTz boundary)
{
	return change_as_it_was(rollup, "shadow_watermark = $5", TIMESTAMPTZOID,
							TimestampTzGetDatum(boundary), false);
}

/* A new shadow without content, or none (InvalidOid). */
bool
dr_catalog_set_shadow(const DrRollup *rollup, Oid shadow)
{
	return change_as_it_was(rollup, "shadow = $5, shadow_watermark = NULL,"
							" shadow_at = CASE WHEN $5 IS NOT NULL THEN pg_catalog.clock_timestamp() END",
							REGCLASSOID, ObjectIdGetDatum(shadow), !OidIsValid(shadow));
}

/* To off or shadow: live has no watermark there. */
bool
dr_catalog_change_state(const DrRollup *rollup, DrState state)
{
	return change_as_it_was(rollup, "state = $5, was = NULL, watermark = NULL,"
							" reseed = NULL, reseed_at = NULL",
							TEXTOID, CStringGetTextDatum(dr_catalog_state_name(state)), false);
}

/*
 * Live has got the shadow's content, and its watermark.  One that was filled
 * while no mode was wanted goes on to where it was.
 */
bool
dr_catalog_promote(const DrRollup *rollup)
{
	bool		passes_on = rollup->state == DR_STATE_NEW &&
		rollup->mode == NULL && dr_guc_mode == DR_MODE_UNSET;
	char	   *was = passes_on ?
		quote_literal_cstr(dr_catalog_state_name(rollup->was)) : "NULL";

	return change_as_it_was(rollup,
							psprintf("state = 'on', was = %s, watermark = $5, fold = %s,"
									 " shadow = NULL, shadow_watermark = NULL, shadow_at = NULL,"
									 FULFIL_RESEED("shadow_at"), was,
									 rollup->state == DR_STATE_SHADOW ? "true" : "fold"),
							TIMESTAMPTZOID, TimestampTzGetDatum(rollup->shadow_watermark), false);
}

/*
 * What was computed from the source counts no more, by the latest row: live
 * does not where the daily refresh keeps it or writes are folded into it, nor
 * does a shadow.
 */
void
dr_catalog_forget_content(const DrRollup *rollup, const char *reason)
{
	Oid			types[2] = {INT4OID, TEXTOID};
	Datum		values[2] = {Int32GetDatum(rollup->id), CStringGetTextDatum(reason)};

	write_rollup(rollup,
				 "UPDATE dailyrollup.rollups SET shadow_watermark = NULL, watermark = NULL,"
				 " was = CASE WHEN state IN ('off', 'shadow') AND fold THEN state ELSE was END,"
				 " reseed = CASE WHEN state = 'on' THEN $2 ELSE reseed END,"
				 " reseed_at = CASE WHEN state = 'on' THEN pg_catalog.clock_timestamp() ELSE reseed_at END,"
				 " state = CASE WHEN state IN ('off', 'shadow') AND fold THEN 'new' ELSE state END"
				 " WHERE id = $1", 2, types, values, NULL);
}

/* Set one column of the rollup's row, whatever else it says by now. */
static void
set_column(const DrRollup *rollup, const char *column, Oid type, Datum value, bool isnull)
{
	Oid			types[2] = {INT4OID, type};
	Datum		values[2] = {Int32GetDatum(rollup->id), value};
	char		nulls[] = "  ";

	nulls[1] = isnull ? 'n' : ' ';
	write_rollup(rollup, psprintf("UPDATE dailyrollup.rollups SET %s WHERE id = $1", column),
				 2, types, values, nulls);
}

void
dr_catalog_ask_reseed(const DrRollup *rollup, const char *reason)
{
	set_column(rollup, "reseed = $2, reseed_at = pg_catalog.clock_timestamp()",
			   TEXTOID, CStringGetTextDatum(reason), false);
}

/* NULL: none of its own. */
void
dr_catalog_set_mode(const DrRollup *rollup, const char *mode)
{
	char		null;
	Datum		value = text_or_null(mode, &null);

	set_column(rollup, "mode = $2", TEXTOID, value, mode == NULL);
}

/* NULL: none of its own. */
void
dr_catalog_set_delay(const DrRollup *rollup, Interval *delay)
{
	set_column(rollup, "delay = $2", INTERVALOID, IntervalPGetDatum(delay), delay == NULL);
}

void
dr_catalog_set_fold(const DrRollup *rollup, bool fold)
{
	set_column(rollup, "fold = $2", BOOLOID, BoolGetDatum(fold), false);
}

/* The watermarks are what they become; one that is not there stays so. */
void
dr_catalog_set_time_zone(const DrRollup *rollup, const char *time_zone,
						 TimestampTz watermark, TimestampTz shadow_watermark)
{
	Oid			types[4] = {INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum		values[4] = {
		Int32GetDatum(rollup->id), CStringGetTextDatum(time_zone),
		TimestampTzGetDatum(watermark), TimestampTzGetDatum(shadow_watermark)
	};

	write_rollup(rollup, "UPDATE dailyrollup.rollups SET time_zone = $2,"
				 " watermark = CASE WHEN watermark IS NOT NULL THEN $3 END,"
				 " shadow_watermark = CASE WHEN shadow_watermark IS NOT NULL THEN $4 END"
				 " WHERE id = $1", 4, types, values, NULL);
}

/* Forget a rollup and its history. */
void
dr_catalog_delete(const DrRollup *rollup)
{
	Oid			types[1] = {INT4OID};
	Datum		values[1] = {Int32GetDatum(rollup->id)};

	write_rows("DELETE FROM dailyrollup.runs WHERE rollup_id = $1",
			   1, types, values, NULL);
	write_rollup(rollup, "DELETE FROM dailyrollup.rollups WHERE id = $1",
				 1, types, values, NULL);
}

void
dr_catalog_insert_run(const DrRollup *rollup, const DrRun *run)
{
	Oid			types[16] = {
		INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID,
		TIMESTAMPTZOID, INT8OID, INT8OID, TEXTOID, TEXTOID,
		INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID
	};
	char		nulls[] = "                ";
	Datum		values[16] = {
		Int32GetDatum(rollup->id), CStringGetTextDatum(run->action),
		TimestampTzGetDatum(run->started_at),
		TimestampTzGetDatum(GetCurrentTimestamp()),
		TimestampTzGetDatum(run->from_time), TimestampTzGetDatum(run->to_time),
		Int64GetDatum(run->folded_keys), Int64GetDatum(run->late_keys),
		CStringGetTextDatum(run->outcome), (Datum) 0,
		Int64GetDatum(run->rows), Int64GetDatum(run->keys),
		Int64GetDatum(run->missing_daily), Int64GetDatum(run->missing_live),
		Int64GetDatum(run->mismatches), Int64GetDatum(run->duplicates)
	};

	nulls[4] = run->has_from ? ' ' : 'n';
	nulls[5] = run->has_to ? ' ' : 'n';
	values[9] = text_or_null(run->reason, &nulls[9]);
	if (!run->counted)
		nulls[10] = nulls[11] = 'n';
	if (!run->compared)
		nulls[12] = nulls[13] = nulls[14] = nulls[15] = 'n';
	write_rows("INSERT INTO dailyrollup.runs (rollup_id, action, started_at,"
			   " finished_at, from_time, to_time, folded_keys, late_keys,"
			   " outcome, reason, \"rows\", keys,"
			   " missing_daily, missing_live, mismatches, duplicates)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
			   16, types, values, nulls);
}

/* ------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_rollup_changed);
PG_FUNCTION_INFO_V1(dailyrollup_wanted_mode);

/* The mode wanted for a rollup of that mode, state and former state. */
Datum
dailyrollup_wanted_mode(PG_FUNCTION_ARGS)
{
	DrRollup	rollup = {.mode = NULL};

	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	if (!PG_ARGISNULL(0))
		rollup.mode = text_to_cstring(PG_GETARG_TEXT_PP(0));
	rollup.state = state_of(PG_GETARG_DATUM(1));
	rollup.was = was_of(rollup.state, PG_ARGISNULL(2) ? (Datum) 0 : PG_GETARG_DATUM(2),
						PG_ARGISNULL(2));
	PG_RETURN_TEXT_P(cstring_to_text(dr_catalog_state_name(dr_catalog_wanted(&rollup))));
}

static void
invalidate_source(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	Oid			source = DatumGetObjectId(heap_getattr(tuple, Anum_source, desc, &isnull));

	/* the source may be gone: a rollup is deleted after a DROP ... CASCADE */
	if (!isnull && SearchSysCacheExists1(RELOID, ObjectIdGetDatum(source)))
		CacheInvalidateRelcacheByRelid(source);
}

/* Row trigger of dailyrollup.rollups. */
Datum
dailyrollup_rollup_changed(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	TupleDesc	desc;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		RelationGetRelid(trigger->tg_relation) != own_table("rollups"))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("this function serves a trigger of dailyrollup.rollups alone")));
	desc = RelationGetDescr(trigger->tg_relation);
	invalidate_source(trigger->tg_trigtuple, desc);
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
		invalidate_source(trigger->tg_newtuple, desc);
	PG_RETURN_POINTER(NULL);
}
