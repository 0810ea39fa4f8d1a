/*
 * late.c
 *		Rows that arrive behind the watermark: the threshold and the marks.
 *
 * A row trigger of the source (capture.c) asks in its WHEN whether the row's
 * time lies below a threshold.  Where it does, the row's key is written into
 * the marks, in the writer's own transaction; the next refresh recomputes each
 * marked key from its history.
 *
 *		refresh		lock ... wait for writers ... fold [W, B) ... W := B, commit
 *		writer A	 lock source, threshold W, commit          (is waited for)
 *		writer B	      lock source, threshold >= B          (marks)
 *		writer C	                                   threshold B   (marks)
 *
 * The threshold is computed once a statement and leaf, after its first row:
 *
 *	- A refresh is under way: at least every boundary that it can have, the
 *	  latest midnight passed.
 *	- No refresh is under way: W.  A refresh that starts later waits for us,
 *	  since we hold a lock on the source and have a transaction id.
 *
 * A mark too many costs a recompute, never truth.
 */
#include "late.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "boundary.h"
#include "compat.h"
#include "debug.h"
#include "definition.h"
#include "event.h"
#include "identity.h"
#include "intact.h"
#include "locks.h"
#include "objects.h"
#include "owned.h"
#include "plans.h"
#include "query.h"
#include "watermark.h"

/* A threshold, which may hold for the rest of a transaction. */
typedef struct Threshold
{
	Oid			live;			/* hash key */
	LocalTransactionId lxid;
	uint64		generation;
	Datum		value;			/* by value, for each of the three types */

	/* rows with a time below that may be merged, if the content's epoch stays */
	Datum		settled_before;
	int64		epoch;
} Threshold;

static HTAB *thresholds = NULL;

/* The one that was asked for before; NULL: none. */
static Threshold *last = NULL;

/* Thresholds of an earlier generation are void. */
static uint64 generation = 0;

/* An event with more bytes is not kept in its mark. */
#define MAX_EVENT_SIZE	1000

/* -------------------------------------------------------------- threshold */

void
dr_late_forget_thresholds(void)
{
	generation++;
}

/* The locks that a subtransaction took are given back with it. */
static void
subtransaction_ended(SubXactEvent event, SubTransactionId mine,
					 SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		dr_late_forget_thresholds();
}

/* None outlives its transaction: where there are many, of rollups that may have gone
 * for good, they are freed. */
static void
transaction_ended(XactEvent event, void *arg)
{
	if ((event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		 event != XACT_EVENT_PREPARE) ||
		thresholds == NULL || hash_get_num_entries(thresholds) <= DR_KEPT_ENTRIES)
		return;
	hash_destroy(thresholds);
	thresholds = NULL;
	last = NULL;
}

void
dr_late_init(void)
{
	RegisterSubXactCallback(subtransaction_ended, NULL);
	RegisterXactCallback(transaction_ended, NULL);
}

static Threshold *
enter_threshold(Oid live, bool *found)
{
	HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(Threshold)};

	if (thresholds == NULL)
		thresholds = hash_create("dailyrollup thresholds", 16, &ctl,
								 HASH_ELEM | HASH_BLOBS);
	return hash_search(thresholds, &live, HASH_ENTER, found);
}

/*
 * Does every refresh that starts from now on wait for this transaction?  It
 * does where we hold a write lock on the source and have a transaction id.
 * (A statement straight into a leaf holds the leaf's lock alone, and asks for
 * the threshold again the next time.)
 */
static bool
refreshes_wait_for_us(Oid source)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, source);
	return TransactionIdIsValid(GetTopTransactionIdIfAny()) &&
		dr_lock_held_by_me(&tag, RowExclusiveLock);
}

/* At least every boundary that a refresh now under way can have. */
static TimestampTz
highest_boundary(const DrWatermark *known)
{
	TimestampTz highest = dr_boundary_latest(known->zone, GetCurrentTimestamp());

	if (known->recorded)
		highest = Max(highest, dr_boundary_next(known->zone, known->watermark));
	return highest;
}

static bool
holds(const Threshold *entry)
{
	return entry->lxid == dr_my_lxid() && entry->generation == generation;
}

/* The caller has a lock on the source or the leaf that it writes to, and has
 * written a row. */
static const Threshold *
threshold_of(Oid live)
{
	bool		found;
	Threshold  *entry;
	const DrWatermark *known;

	if (last != NULL && last->live == live && holds(last))
		return last;
	last = entry = enter_threshold(live, &found);
	if (found && holds(entry))
		return entry;
	entry->lxid = InvalidLocalTransactionId;

	known = dr_watermark_of(live);
	if (dr_locks_refresh_taken(known->definition))
	{
		known = dr_watermark_of(live);
		entry->value = dr_boundary_datum(known->time_kind, known->zone,
										 highest_boundary(known));
	}
	else
	{
		known = dr_watermark_of(live);
		entry->value = known->recorded ?
			dr_boundary_datum(known->time_kind, known->zone, known->watermark) :
			dr_boundary_minus_infinity(known->time_kind);
	}
	entry->settled_before = known->settled ?
		dr_boundary_datum(known->time_kind, known->zone, known->settled_before) :
		dr_boundary_minus_infinity(known->time_kind);
	entry->epoch = known->epoch;

	if (refreshes_wait_for_us(known->source))
	{
		entry->lxid = dr_my_lxid();
		entry->generation = generation;
	}
	return entry;
}

/*
 * Rows with a time below this must be marked; a value of the time column's
 * type.  Same caller.
 */
Datum
dr_late_threshold(Oid live)
{
	return threshold_of(live)->value;
}

/* ---------------------------------------------------------------- triggers */

/* How a trigger of that name fires on the table; 0: there is none. */
static char
trigger_enabled(Relation pg_trigger, Oid relation, const char *name)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	char		enabled = 0;

	ScanKeyInit(&keys[0], Anum_pg_trigger_tgrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(relation));
	ScanKeyInit(&keys[1], Anum_pg_trigger_tgname, BTEqualStrategyNumber,
				F_NAMEEQ, CStringGetDatum(name));
	scan = systable_beginscan(pg_trigger, TriggerRelidNameIndexId, true, NULL, 2, keys);
	if (HeapTupleIsValid(tuple = systable_getnext(scan)))
		enabled = ((Form_pg_trigger) GETSTRUCT(tuple))->tgenabled;
	systable_endscan(scan);
	return enabled;
}

/* Is it the source or below it?  Children of a plain source are none of ours. */
static bool
is_in_source(const DrRollup *rollup, Oid relation)
{
	return relation == rollup->source || get_rel_relispartition(relation);
}

static void
check_trigger(Relation pg_trigger, const DrRollup *rollup, Oid relation, const char *event)
{
	char	   *name = dr_objects_trigger_name(rollup->id, event);
	char		enabled = trigger_enabled(pg_trigger, relation, name);

	/* that of a partition that was dropped or detached goes with it */
	if (enabled == 0)
		AcceptInvalidationMessages();
	if (enabled == 0 && !is_in_source(rollup, relation))
		return;
	if (enabled == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("trigger \"%s\" of \"%s\" is missing", name,
						dr_catalog_name(relation)),
				 errdetail("Late rows may have been written without a mark."),
				 errhint("Give the trigger its name back, or remove the rollup by rollup_drop and create it again.")));
	if (enabled != TRIGGER_FIRES_ALWAYS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("trigger \"%s\" of \"%s\" does not always fire", name,
						dr_catalog_name(relation)),
				 errdetail("Late rows may have been written without a mark."),
				 errhint("Run ALTER TABLE %s ENABLE ALWAYS TRIGGER %s, then mark the time of the rows written meanwhile by rollup_mark.",
						 dr_objects_relation(relation), name)));
}

/* Nothing is lost where the guard is off; but who knows what comes. */
static void
warn_of_guard(Relation pg_trigger, const DrRollup *rollup)
{
	char	   *name = dr_objects_trigger_name(rollup->id, "guard");

	if (trigger_enabled(pg_trigger, rollup->live, name) != TRIGGER_FIRES_ALWAYS)
		ereport(WARNING,
				(errmsg("trigger \"%s\" of \"%s\" is missing or does not always fire", name,
						dr_catalog_name(rollup->live)),
				 errdetail("It refuses writes of others, which would make the rollup wrong."),
				 errhint("Run ALTER TABLE %s ENABLE ALWAYS TRIGGER %s.",
						 dr_objects_relation(rollup->live), name)));
}

/*
 * An error where a trigger on the source or a leaf is missing or does not
 * always fire: late rows may have come without a mark, or may come so from
 * now on, and nobody would ever know.
 */
void
dr_late_check_triggers(const DrRollup *rollup)
{
	List	   *relations = find_all_inheritors(rollup->source, NoLock, NULL);
	Relation	pg_trigger = table_open(TriggerRelationId, AccessShareLock);
	ListCell   *cell;

	foreach(cell, relations)
	{
		Oid			relation = lfirst_oid(cell);

		if (!is_in_source(rollup, relation))
			continue;
		if (relation != rollup->source)
			DR_WAITPOINT("leaf-listed");
		for (int i = 0; i < DR_ROW_EVENTS; i++)
			check_trigger(pg_trigger, rollup, relation, dr_objects_row_events[i]);
		if (relation == rollup->source || get_rel_relkind(relation) == RELKIND_RELATION)
			check_trigger(pg_trigger, rollup, relation, "truncate");
	}
	warn_of_guard(pg_trigger, rollup);
	table_close(pg_trigger, AccessShareLock);

	/* that a mark was to be written is not enough */
	dr_intact_check(rollup);
}

/* ------------------------------------------------------------------- marks */

/* Is the event short, and stored in the row? */
static bool
is_short(const DrDefinition *def, const Datum *event, const bool *nulls)
{
	Size		size = 0;

	for (int i = 0; i < def->nevents; i++)
	{
		int16		len = get_typlen(def->events[i].type);

		if (nulls[i])
			continue;
		if (len == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(event[i])))
			return false;
		size += datumGetSize(event[i], false, len);
	}
	return size <= MAX_EVENT_SIZE;
}

/*
 * May a row that was inserted be merged into what is stored?  It may where the
 * content had been brought past its time before, so that no fold can read it.
 */
static bool
may_be_merged(const DrPlans *plans, const Threshold *threshold, const Datum *event,
			  const bool *nulls)
{
	return dr_objects_mark_holds_event(plans->def) &&
		dr_boundary_precedes(plans->def->time_kind, event[0], threshold->settled_before) &&
		is_short(plans->def, event, nulls);
}

static SPIPlanPtr
prepare_mark(const DrPlans *plans, bool whole)
{
	int			n = plans->def->nevents;
	Oid		   *types = palloc((n + 2) * sizeof(Oid));

	for (int i = 0; i < n; i++)
		types[i] = plans->def->events[i].type;
	types[n] = CHAROID;
	types[n + 1] = INT8OID;
	return dr_plans_prepare(dr_query_mark_event(plans->def, plans->rollup, whole),
							n + 2, types, CURSOR_OPT_GENERIC_PLAN);
}

/*
 * Mark the key of an event; the caller works as the rollup's owner.  Of a row
 * that was added, and of nothing else that happens to a key, the mark may hold
 * the event itself.
 */
void
dr_late_mark_event(DrPlans *plans, const Datum *event, const bool *nulls, char dirties,
				   bool added)
{
	int			n = plans->def->nevents;
	const Threshold *threshold = threshold_of(plans->live);
	bool		whole = added && may_be_merged(plans, threshold, event, nulls);
	Datum		values[MaxTupleAttributeNumber + 2];
	char		null_flags[MaxTupleAttributeNumber + 3];

	if (plans->mark[whole] == NULL)
		plans->mark[whole] = prepare_mark(plans, whole);
	for (int i = 0; i < n; i++)
	{
		values[i] = event[i];
		null_flags[i] = nulls[i] ? 'n' : ' ';
	}
	values[n] = CharGetDatum(dirties);
	values[n + 1] = Int64GetDatum(threshold->epoch);
	strlcpy(null_flags + n, "  ", sizeof(null_flags) - n);
	if (SPI_execute_plan(plans->mark[whole], values, null_flags, false, 0) != SPI_OK_INSERT)
		elog(ERROR, "could not mark a key of \"%s\"", dr_catalog_name(plans->live));
	DR_WAITPOINT("marked");
}

/* Which rows' keys are marked, and why. */
typedef struct Span
{
	bool		bounded;		/* start <= time < end; else: start <= time */
	Datum		start;			/* of the time column's type */
	Datum		end;
	char		dirties;
} Span;

/*
 * Mark each key of the relation's rows in the span; returns the number of
 * keys.  By the latest snapshot: a REPEATABLE READ transaction may attach rows
 * that it does not see itself.
 */
static uint64
mark_span(const DrRollup *rollup, const DrDefinition *def, Oid relation, const Span *span)
{
	Oid			type = dr_boundary_type(def->time_kind);
	Oid			types[3] = {type, type, CHAROID};
	Datum		values[3] = {span->start, span->end, CharGetDatum(span->dirties)};
	DrIdentity	before;
	SPIPlanPtr	plan;
	uint64		rows;

	dr_identity_enter_sql(rollup->owner, &before);
	plan = SPI_prepare(dr_query_mark_range(def, rollup, relation, span->bounded), 3, types);
	if (plan == NULL ||
		SPI_execute_snapshot(plan, values, span->bounded ? NULL : " n ",
							 GetLatestSnapshot(), InvalidSnapshot,
							 false, true, 0) != SPI_OK_INSERT)
		elog(ERROR, "could not mark keys of \"%s\"", dr_catalog_name(rollup->live));
	DR_WAITPOINT("span-marked");
	rows = SPI_processed;
	dr_identity_leave_sql(&before);
	return rows;
}

/*
 * Mark the keys of a leaf row by row.  Reads the table itself, as the source's
 * owner may read it through the source.
 */
static void
mark_leaf(const DrRollup *rollup, Oid leaf, const Span *span)
{
	DrPlans    *plans = dr_plans_of(rollup->live);
	int			n = plans->def->nevents;
	Datum	   *values = palloc(n * sizeof(Datum));
	bool	   *nulls = palloc(n * sizeof(bool));
	Relation	rel = table_open(leaf, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	DrIdentity	before;

	plans->uses++;
	dr_event_locate(plans, leaf);
	dr_identity_enter_sql(rollup->owner, &before);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		dr_event_read(plans, slot, values, nulls);
		if (!nulls[0] &&
			(!span->bounded || dr_boundary_precedes(plans->def->time_kind, values[0], span->end)))
			dr_late_mark_event(plans, values, nulls, span->dirties, false);
	}
	dr_identity_leave_sql(&before);
	plans->uses--;
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}

/*
 * Mark the keys of a partition that was attached.  The rollup's owner need not
 * have a right on the partition itself, nor do its policies count for whoever
 * reads through the source: then its rows are read one by one.
 */
static void
mark_partition(const DrRollup *rollup, const DrDefinition *def, Oid partition,
			   const Span *span)
{
	List	   *relations = find_all_inheritors(partition, AccessShareLock, NULL);
	ListCell   *cell;

	if (pg_class_aclcheck(partition, rollup->owner, ACL_SELECT) == ACLCHECK_OK &&
		check_enable_rls(partition, rollup->owner, true) != RLS_ENABLED)
	{
		mark_span(rollup, def, partition, span);
		return;
	}
	foreach(cell, relations)
		if (get_rel_relkind(lfirst_oid(cell)) == RELKIND_RELATION)
			mark_leaf(rollup, lfirst_oid(cell), span);
}

/*
 * An attached partition's rows below the threshold are late; where writes are
 * folded into live, none of them has been.
 */
void
dr_late_mark_attached(const DrRollup *rollup, Oid partition)
{
	DrDefinition *def = dr_definition_read(rollup->source, rollup->events, rollup->definition);
	Span		late = {
		.bounded = true,
		.start = dr_boundary_minus_infinity(def->time_kind),
		.end = dr_late_threshold(rollup->live),
		.dirties = DR_DIRTIES_DAILY
	};
	Span		all = {
		.start = dr_boundary_minus_infinity(def->time_kind),
		.dirties = DR_DIRTIES_LIVE
	};

	mark_partition(rollup, def, partition, &late);
	if (dr_watermark_of(rollup->live)->folds)
		mark_partition(rollup, def, partition, &all);
}

/* Is a row of that time, no NULL, behind the threshold? */
bool
dr_late_is_late(const DrPlans *plans, Datum time)
{
	return dr_boundary_precedes(plans->def->time_kind, time, dr_late_threshold(plans->live));
}

/* How many keys wait, counted up to the limit; the caller works as the owner
 * and has connected to SPI. */
uint64
dr_late_count(const DrRollup *rollup, const DrDefinition *def, char dirties, uint64 limit)
{
	Oid			types[1] = {INT8OID};
	Datum		values[1] = {Int64GetDatum((int64) limit)};
	bool		isnull;

	if (SPI_execute_with_args(dr_query_count_late(def, rollup, dirties), 1, types, values,
							  NULL, false, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not count the marks of \"%s\"", dr_catalog_name(rollup->live));
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
									   1, &isnull));
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_mark);

Datum
dailyrollup_mark(PG_FUNCTION_ARGS)
{
	DrRollup   *rollup = dr_owned_rollup(PG_GETARG_OID(0));
	TimestampTz start = PG_GETARG_TIMESTAMPTZ(1);
	TimestampTz end = PG_GETARG_TIMESTAMPTZ(2);
	DrDefinition *def = dr_definition_read(rollup->source, rollup->events, rollup->definition);
	pg_tz	   *zone = dr_boundary_zone(rollup->time_zone);
	Span		span = {.bounded = !TIMESTAMP_IS_NOEND(end), .dirties = DR_DIRTIES_DAILY};
	uint64		keys = 0;

	PreventCommandIfReadOnly("rollup_mark()");
	if (start >= end)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("start_time must be before end_time")));
	span.start = dr_boundary_bound(def->time_kind, zone, start);
	span.end = dr_boundary_bound(def->time_kind, zone, end);
	if (rollup->state != DR_STATE_OFF)
		keys = mark_span(rollup, def, rollup->source, &span);
	if (dr_catalog_folds(rollup))
	{
		span.dirties = DR_DIRTIES_LIVE;
		keys = mark_span(rollup, def, rollup->source, &span);
	}
	else if (rollup->state == DR_STATE_OFF)
		ereport(NOTICE,
				(errmsg("rollup \"%s\" is off and folds nothing: no key was marked",
						dr_catalog_name(rollup->live))));
	PG_RETURN_INT64(keys);
}
