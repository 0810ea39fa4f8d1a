/*
 * catalog.c
 *		The extension's own tables: the only code that knows their columns.
 *
 * Reads are scans of dailyrollup.rollups as of a given snapshot; NULL stands
 * for the latest committed rows and our own.  They ask for no privilege, for
 * a writer or reader has none on our tables.  Writes are SQL, as the owner of
 * the extension.
 *
 * What writers ask for all the time, a rollup's watermark, is remembered per
 * session.  A trigger on dailyrollup.rollups sends a relcache invalidation of
 * the source with each change, an UPDATE by hand included; it reaches other
 * sessions after the change is visible and before the changing transaction's
 * locks are released, so a session that finds the refresh lock free, and
 * accepts messages, cannot keep an old watermark.
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
	Anum_watermark,
	Anum_reseed,
	Anum_proof,
	Anum_reseed_at,
	Natts_rollups = Anum_reseed_at
};

static HTAB *watermarks = NULL;

/* Counts the relcache invalidations that this session has seen. */
static uint64 invalidations = 0;

/* ---------------------------------------------------------------- reading */

static const char *
state_name(DrState state)
{
	return state == DR_STATE_ON ? "on" : "new";
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
	rollup->fold = null[Anum_fold] ? -1 : DatumGetBool(v[Anum_fold]);
	rollup->state = strcmp(TextDatumGetCString(v[Anum_state]), "on") == 0 ?
		DR_STATE_ON : DR_STATE_NEW;
	rollup->has_watermark = !null[Anum_watermark];
	if (rollup->has_watermark)
		rollup->watermark = DatumGetTimestampTz(v[Anum_watermark]);
	rollup->reseed = optional_text(v[Anum_reseed], null[Anum_reseed]);
	if (!null[Anum_reseed_at])
		rollup->reseed_at = DatumGetTimestampTz(v[Anum_reseed_at]);
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

/* ------------------------------------------------------------ remembering */

static void
forget_watermarks(Datum arg, Oid relation)
{
	HASH_SEQ_STATUS status;
	DrWatermark *entry;

	invalidations++;
	hash_seq_init(&status, watermarks);
	while ((entry = hash_seq_search(&status)) != NULL)
		if (!OidIsValid(relation) || entry->source == relation ||
			entry->live == relation)
			entry->valid = false;
}

/*
 * What the session remembers of a rollup's watermark, read anew where it was
 * told to forget.  The caller has accepted invalidation messages after it
 * found the refresh lock free.
 *
 * Messages are counted before the scan, and the scan takes its snapshot after
 * that: an entry read while a message came in serves this one call only.
 */
const DrWatermark *
dr_catalog_watermark(Oid live)
{
	bool		found;
	DrWatermark *entry = hash_search(watermarks, &live, HASH_ENTER, &found);
	uint64		before;
	DrRollup   *rollup;

	if (found && entry->valid)
		return entry;

	entry->valid = false;
	entry->source = InvalidOid;
	before = invalidations;
	rollup = dr_catalog_find(live, NULL);
	if (rollup == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not a rollup", dr_catalog_name(live))));
	entry->source = rollup->source;
	entry->definition = rollup->definition;
	entry->time_kind = dr_boundary_kind(get_atttype(rollup->events, 1));
	entry->zone = dr_boundary_zone(rollup->time_zone);
	entry->recorded = rollup->state == DR_STATE_ON && rollup->has_watermark;
	entry->watermark = rollup->watermark;
	entry->valid = before == invalidations;
	return entry;
}

PG_FUNCTION_INFO_V1(dailyrollup_rollup_changed);

void
dr_catalog_init(void)
{
	HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(DrWatermark)};

	watermarks = hash_create("dailyrollup watermarks", 16, &ctl,
							 HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(forget_watermarks, (Datum) 0);
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
write_rollup(const DrRollup *rollup, const char *sql, int n, Oid *types, Datum *values)
{
	if (write_rows(sql, n, types, values, NULL) != 1)
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
	Oid			types[Natts_rollups] = {
		INT4OID, REGCLASSOID, REGCLASSOID, REGCLASSOID, REGCLASSOID,
		REGCLASSOID, REGCLASSOID, REGTYPEOID, TEXTOID, INTERVALOID, TEXTOID,
		BOOLOID, TEXTOID, TIMESTAMPTZOID, TEXTOID, INT8OID, TIMESTAMPTZOID
	};
	char		nulls[Natts_rollups + 1];
	Datum		values[Natts_rollups] = {
		Int32GetDatum(r->id), ObjectIdGetDatum(r->live),
		ObjectIdGetDatum(r->source), ObjectIdGetDatum(r->current_view),
		ObjectIdGetDatum(r->events), ObjectIdGetDatum(r->definition),
		ObjectIdGetDatum(r->marks), ObjectIdGetDatum(r->key_type),
		CStringGetTextDatum(r->time_zone), IntervalPGetDatum(r->delay)
	};

	memset(nulls, ' ', Natts_rollups);
	nulls[Natts_rollups] = '\0';
	nulls[Anum_delay - 1] = r->delay == NULL ? 'n' : ' ';
	values[Anum_mode - 1] = text_or_null(r->mode, &nulls[Anum_mode - 1]);
	values[Anum_fold - 1] = BoolGetDatum(r->fold == 1);
	nulls[Anum_fold - 1] = r->fold < 0 ? 'n' : ' ';
	values[Anum_state - 1] = CStringGetTextDatum(state_name(r->state));
	values[Anum_watermark - 1] = TimestampTzGetDatum(r->watermark);
	nulls[Anum_watermark - 1] = r->has_watermark ? ' ' : 'n';
	values[Anum_reseed - 1] = text_or_null(r->reseed, &nulls[Anum_reseed - 1]);
	values[Anum_proof - 1] = Int64GetDatum(r->proof);
	values[Anum_reseed_at - 1] = TimestampTzGetDatum(r->reseed_at);
	nulls[Anum_reseed_at - 1] = r->reseed ? ' ' : 'n';

	write_rows("INSERT INTO dailyrollup.rollups VALUES "
			   "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
			   Natts_rollups, types, values, nulls);
}

/*
 * Compare and set: the watermark moves from what "rollup" says to "boundary",
 * and the state becomes on.  False where the row no longer says that: it was
 * changed by another transaction since.  A seed fulfils the wish that "rollup"
 * knew of; one that was made meanwhile stays.
 */
bool
dr_catalog_advance(const DrRollup *rollup, TimestampTz boundary, bool seeded)
{
	Oid			types[5] = {INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID, BOOLOID, TIMESTAMPTZOID};
	char		nulls[] = "     ";
	Datum		values[5] = {
		Int32GetDatum(rollup->id), TimestampTzGetDatum(boundary),
		TimestampTzGetDatum(rollup->watermark), BoolGetDatum(seeded),
		TimestampTzGetDatum(rollup->reseed_at)
	};

	nulls[2] = rollup->has_watermark ? ' ' : 'n';
	nulls[4] = rollup->reseed ? ' ' : 'n';
	return write_rows("UPDATE dailyrollup.rollups"
					  " SET watermark = $2, state = 'on',"
					  " reseed = CASE WHEN $4 AND reseed_at IS NOT DISTINCT FROM $5"
					  " THEN NULL ELSE reseed END,"
					  " reseed_at = CASE WHEN $4 AND reseed_at IS NOT DISTINCT FROM $5"
					  " THEN NULL ELSE reseed_at END"
					  " WHERE id = $1 AND watermark IS NOT DISTINCT FROM $3",
					  5, types, values, nulls) == 1;
}

/* From now on live does not count, and the next refresh seeds. */
void
dr_catalog_forget_watermark(const DrRollup *rollup, const char *reason)
{
	Oid			types[2] = {INT4OID, TEXTOID};
	Datum		values[2] = {Int32GetDatum(rollup->id), CStringGetTextDatum(reason)};

	write_rollup(rollup,
				 "UPDATE dailyrollup.rollups SET watermark = NULL, reseed = $2,"
				 " reseed_at = clock_timestamp() WHERE id = $1", 2, types, values);
}

void
dr_catalog_ask_reseed(const DrRollup *rollup, const char *reason)
{
	Oid			types[2] = {INT4OID, TEXTOID};
	Datum		values[2] = {Int32GetDatum(rollup->id), CStringGetTextDatum(reason)};

	write_rollup(rollup,
				 "UPDATE dailyrollup.rollups SET reseed = $2,"
				 " reseed_at = clock_timestamp() WHERE id = $1", 2, types, values);
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
				 1, types, values);
}

void
dr_catalog_insert_run(const DrRollup *rollup, const DrRun *run)
{
	Oid			types[10] = {
		INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID,
		TIMESTAMPTZOID, INT8OID, INT8OID, TEXTOID, TEXTOID
	};
	char		nulls[] = "          ";
	Datum		values[10] = {
		Int32GetDatum(rollup->id), CStringGetTextDatum(run->action),
		TimestampTzGetDatum(run->started_at),
		TimestampTzGetDatum(GetCurrentTimestamp()),
		TimestampTzGetDatum(run->from_time), TimestampTzGetDatum(run->to_time),
		Int64GetDatum(run->folded_keys), Int64GetDatum(run->late_keys),
		CStringGetTextDatum(run->outcome)
	};

	nulls[4] = run->has_from ? ' ' : 'n';
	nulls[5] = run->has_to ? ' ' : 'n';
	values[9] = text_or_null(run->reason, &nulls[9]);
	write_rows("INSERT INTO dailyrollup.runs (rollup_id, action, started_at,"
			   " finished_at, from_time, to_time, folded_keys, late_keys,"
			   " outcome, reason) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
			   10, types, values, nulls);
}

/* ------------------------------------------------------------------- SQL */

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
