/*
 * fold.c
 *		The write-time fold: once a transaction, at its end.
 *
 * The row triggers (capture.c) hand over each event that was written.  They
 * are kept in batches, one for each rollup and subtransaction level:
 *
 *		a subtransaction aborts		its batches go
 *		a subtransaction commits	its batches become its parent's
 *		before commit or prepare	the batches are folded into live
 *
 * rollup_fold() folds what there is at once.  Where that happens in a
 * subtransaction that aborts, what the levels above it had written is to be
 * folded again: a batch remembers in which level it was folded.
 *
 * Before anything is decided the fold locks live, so a promote or another
 * change of state is over by then or comes after us; only then the state is
 * read.  Rollups are taken in order of OID, keys in their own order.
 */
#include "fold.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/queryenvironment.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

#include "debug.h"
#include "definition.h"
#include "folding.h"
#include "guard.h"
#include "identity.h"
#include "locks.h"

/* The events that a level of the transaction has written. */
typedef struct Batch
{
	Oid			live;
	bool		backfill;		/* their keys are to be marked, not folded */
	SubTransactionId level;
	SubTransactionId folded_in; /* InvalidSubTransactionId: not folded */
	bool		touches;		/* some were changed or deleted */
	int64		count;
	TupleDesc	desc;			/* the events' columns, then DR_FOLDING_ADDED */
	Tuplestorestate *rows;
} Batch;

/* The statements whose plans a session keeps. */
enum
{
	FOLD_ADD,
	FOLD_LOCK,
	FOLD_APPLY,
	FOLD_MARK
};

/* With more rows than that, a plan made for fewer is not used. */
#define ROWS_OF_KEPT_PLAN	10000

static List *batches = NIL;		/* of this transaction, in its memory */

/* ------------------------------------------------------------------ batches */

static TupleDesc
describe_rows(const DrDefinition *def)
{
	TupleDesc	desc = CreateTemplateTupleDesc(def->nevents + 1);

	for (int i = 0; i < def->nevents; i++)
	{
		TupleDescInitEntry(desc, i + 1, def->events[i].name,
						   def->events[i].type, def->events[i].typmod, 0);
		TupleDescInitEntryCollation(desc, i + 1, def->events[i].collation);
	}
	TupleDescInitEntry(desc, def->nevents + 1, DR_FOLDING_ADDED, BOOLOID, -1, 0);
	return desc;
}

/* A store that outlives the current subtransaction. */
static Tuplestorestate *
begin_store(void)
{
	ResourceOwner before = CurrentResourceOwner;
	Tuplestorestate *store;

	CurrentResourceOwner = TopTransactionResourceOwner;
	store = tuplestore_begin_heap(true, false, work_mem);
	CurrentResourceOwner = before;
	return store;
}

static Batch *
batch_of(const DrPlans *plans, bool backfill)
{
	SubTransactionId level = GetCurrentSubTransactionId();
	MemoryContext before;
	Batch	   *batch;
	ListCell   *cell;

	foreach(cell, batches)
	{
		batch = lfirst(cell);
		if (batch->live == plans->live && batch->level == level &&
			batch->backfill == backfill && batch->folded_in == InvalidSubTransactionId)
			return batch;
	}

	before = MemoryContextSwitchTo(TopTransactionContext);
	batch = palloc0(sizeof(Batch));
	batch->live = plans->live;
	batch->backfill = backfill;
	batch->level = level;
	batch->desc = describe_rows(plans->def);
	batch->rows = begin_store();
	batches = lappend(batches, batch);
	MemoryContextSwitchTo(before);
	return batch;
}

/* Take an event: one that was inserted, or what an update or a delete has met
 * or left. */
void
dr_fold_collect(DrPlans *plans, const Datum *event, const bool *nulls,
				bool added, bool backfill)
{
	Batch	   *batch = batch_of(plans, backfill);
	int			n = plans->def->nevents;
	Datum	   *values = palloc((n + 1) * sizeof(Datum));
	bool	   *isnull = palloc((n + 1) * sizeof(bool));

	/* what a trigger of live's writes while we change live may have been seen
	 * by our statement, or not: its key is computed anew */
	added = added && !dr_guard_is_open();

	memcpy(values, event, n * sizeof(Datum));
	memcpy(isnull, nulls, n * sizeof(bool));
	values[n] = BoolGetDatum(added);
	isnull[n] = false;
	tuplestore_putvalues(batch->rows, batch->desc, values, isnull);
	batch->touches |= !added;
	batch->count++;
	pfree(values);
	pfree(isnull);
}

static void
append_rows(Batch *to, Batch *from)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(from->desc, &TTSOpsMinimalTuple);

	tuplestore_rescan(from->rows);
	while (tuplestore_gettupleslot(from->rows, true, false, slot))
		tuplestore_puttupleslot(to->rows, slot);
	ExecDropSingleTupleTableSlot(slot);
	to->touches |= from->touches;
	to->count += from->count;
}

static void
discard(Batch *batch)
{
	batches = list_delete_ptr(batches, batch);
	tuplestore_end(batch->rows);
}

static Batch *
find_alike(const Batch *batch, SubTransactionId level)
{
	ListCell   *cell;

	foreach(cell, batches)
	{
		Batch	   *other = lfirst(cell);

		if (other != batch && other->live == batch->live &&
			other->level == level && other->backfill == batch->backfill &&
			other->folded_in == batch->folded_in)
			return other;
	}
	return NULL;
}

static void
level_committed(SubTransactionId mine, SubTransactionId parent)
{
	List	   *all = list_copy(batches);
	ListCell   *cell;

	foreach(cell, all)
	{
		Batch	   *batch = lfirst(cell);
		Batch	   *alike;

		if (batch->folded_in == mine)
			batch->folded_in = parent;
		if (batch->folded_in == batch->level)
		{
			discard(batch);
			continue;
		}
		if (batch->level != mine)
			continue;
		alike = find_alike(batch, parent);
		batch->level = parent;
		if (alike == NULL)
			continue;
		append_rows(alike, batch);
		discard(batch);
	}
	list_free(all);
}

static void
level_aborted(SubTransactionId mine)
{
	List	   *all = list_copy(batches);
	ListCell   *cell;

	foreach(cell, all)
	{
		Batch	   *batch = lfirst(cell);

		if (batch->level == mine)
			discard(batch);
		else if (batch->folded_in == mine)
			batch->folded_in = InvalidSubTransactionId;
	}
	list_free(all);
}

/* -------------------------------------------------------------- statements */

static void
register_rows(const char *name, TupleDesc desc, Tuplestorestate *rows, int64 count)
{
	EphemeralNamedRelation relation = palloc0(sizeof(EphemeralNamedRelationData));

	relation->md.name = pstrdup(name);
	relation->md.reliddesc = InvalidOid;
	relation->md.tupdesc = desc;
	relation->md.enrtype = ENR_NAMED_TUPLESTORE;
	relation->md.enrtuples = count;
	relation->reldata = rows;
	if (SPI_register_relation(relation) != SPI_OK_REL_REGISTER)
		elog(ERROR, "could not register \"%s\"", name);
}

static char *
statement_text(const DrPlans *plans, int statement)
{
	switch (statement)
	{
		case FOLD_ADD:
			return dr_folding_add(plans->def, plans->rollup);
		case FOLD_LOCK:
			return dr_folding_lock(plans->def, plans->rollup);
		case FOLD_APPLY:
			return dr_folding_apply(plans->def, plans->rollup);
		default:
			return dr_folding_mark(plans->def, plans->rollup);
	}
}

/*
 * Run one of the statements over the registered rows.  By the latest snapshot,
 * at any isolation level: by an older one, what others have deleted since would
 * come back.
 */
static void
run_statement(DrPlans *plans, int statement, int64 rows, int n, Oid *types, Datum *values)
{
	SPIPlanPtr	plan = plans->fold[statement];

	if (rows > ROWS_OF_KEPT_PLAN)
	{
		plan = SPI_prepare(statement_text(plans, statement), n, types);
		if (plan == NULL)
			elog(ERROR, "could not prepare the fold of \"%s\"", dr_catalog_name(plans->live));
	}
	else if (plan == NULL)
		plan = plans->fold[statement] =
			dr_plans_prepare(statement_text(plans, statement), n, types, CURSOR_OPT_GENERIC_PLAN);
	if (SPI_execute_snapshot(plan, values, NULL, GetLatestSnapshot(), InvalidSnapshot,
							 false, true, 0) < 0)
		elog(ERROR, "could not fold into \"%s\"", dr_catalog_name(plans->live));
}

/* The rows that SPI holds as the relation DR_FOLDING_KEYS; returns their
 * number. */
static int64
register_keys(const DrPlans *plans)
{
	TupleDesc	desc = CreateTemplateTupleDesc(plans->def->nkeys);
	Tuplestorestate *keys = tuplestore_begin_heap(true, false, work_mem);
	int64		count = SPI_processed;

	for (int i = 0; i < plans->def->nkeys; i++)
	{
		const DrColumn *key = &plans->def->columns[plans->def->keys[i]];

		TupleDescInitEntry(desc, i + 1, psprintf("k%d", i + 1), key->type, key->typmod, 0);
		TupleDescInitEntryCollation(desc, i + 1, key->collation);
	}
	for (int64 row = 0; row < count; row++)
		tuplestore_puttuple(keys, SPI_tuptable->vals[row]);
	if (SPI_tuptable != NULL)
		SPI_freetuptable(SPI_tuptable);
	register_rows(DR_FOLDING_KEYS, desc, keys, count);
	return count;
}

/* Lock the keys, then decide under a newer snapshot. */
static void
fold_under_locks(DrPlans *plans, const Batch *batch)
{
	run_statement(plans, FOLD_LOCK, batch->count, 0, NULL, NULL);
	register_keys(plans);
	DR_WAITPOINT("fold-locked");
	run_statement(plans, FOLD_APPLY, batch->count, 0, NULL, NULL);
}

static void
mark(DrPlans *plans, const Batch *batch)
{
	Oid			types[2] = {INT8OID, CHAROID};
	Datum		values[2] = {
		Int64GetDatum(plans->rollup->proof), CharGetDatum(DR_DIRTIES_LIVE)
	};

	run_statement(plans, FOLD_MARK, batch->count, 2, types, values);
}

static void
add_context(void *arg)
{
	errcontext("folding what this transaction has written into rollup \"%s\"",
			   dr_catalog_name(*(Oid *) arg));
}

/* ----------------------------------------------------------------- the fold */

/* Live is locked, and folded into. */
static void
fold_batch(Batch *batch)
{
	DrPlans    *plans = dr_plans_of(batch->live);
	DrIdentity	before;

	plans->uses++;
	dr_identity_enter_sql(plans->rollup->owner, &before);
	dr_guard_let(batch->live);
	register_rows(DR_FOLDING_ROWS, batch->desc, batch->rows, batch->count);
	if (batch->backfill)
		mark(plans, batch);
	else if (batch->touches || dr_folding_needs_locks(plans->def))
		fold_under_locks(plans, batch);
	else
		run_statement(plans, FOLD_ADD, batch->count, 0, NULL, NULL);
	dr_guard_end();
	dr_identity_leave_sql(&before);
	plans->uses--;
}

/* Does live, which the caller has locked, still want our rows? */
static bool
still_folds(Oid live)
{
	DrRollup   *rollup;

	if (get_rel_name(live) == NULL)
		return false;
	rollup = dr_catalog_find(live, NULL);
	return rollup != NULL && dr_catalog_folds(rollup);
}

/* An empty batch for rows of all levels. */
static Batch *
gather_into(const Batch *like)
{
	MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
	Batch	   *batch = palloc0(sizeof(Batch));

	batch->live = like->live;
	batch->backfill = like->backfill;
	batch->desc = like->desc;
	batch->rows = begin_store();
	MemoryContextSwitchTo(before);
	return batch;
}

/*
 * What is not folded yet of a rollup, as one batch; NULL: nothing.  What this
 * level itself has written goes with it, should it abort; what the levels
 * above have written must be kept for that case.
 */
static Batch *
take_batch(Oid live, bool backfill)
{
	SubTransactionId level = GetCurrentSubTransactionId();
	Batch	   *taken = NULL;
	List	   *found = NIL;
	ListCell   *cell;

	foreach(cell, batches)
	{
		Batch	   *batch = lfirst(cell);

		if (batch->live == live && batch->backfill == backfill &&
			batch->folded_in == InvalidSubTransactionId)
			found = lappend(found, batch);
	}
	if (list_length(found) == 1 && ((Batch *) linitial(found))->level == level)
	{
		taken = linitial(found);
		batches = list_delete_ptr(batches, taken);
		return taken;
	}
	foreach(cell, found)
	{
		Batch	   *batch = lfirst(cell);

		if (taken == NULL)
			taken = gather_into(batch);
		append_rows(taken, batch);
		batch->folded_in = level;
		if (batch->level == level)
			discard(batch);
	}
	list_free(found);
	return taken;
}

static void
fold_rollup(Oid live)
{
	ErrorContextCallback context = {
		.previous = error_context_stack, .callback = add_context, .arg = &live
	};
	bool		wanted;

	error_context_stack = &context;
	LockRelationOid(live, RowExclusiveLock);
	DR_WAITPOINT("fold-live-locked");
	wanted = still_folds(live);
	for (int backfill = 0; backfill <= 1; backfill++)
	{
		Batch	   *batch = take_batch(live, backfill == 1);

		if (batch == NULL)
			continue;
		if (wanted)
			fold_batch(batch);
		tuplestore_end(batch->rows);
	}
	error_context_stack = context.previous;
}

/* What a statement of this session is just writing would be seen now, and
 * folded again when its triggers fire. */
static void
check_not_in_use(Oid live)
{
	DrRollup   *rollup = dr_catalog_find(live, NULL);

	if (rollup != NULL)
		dr_locks_check_not_in_use(rollup->source, "fold a rollup of");
}

static List *
rollups_to_fold(void)
{
	List	   *lives = NIL;
	ListCell   *cell;

	foreach(cell, batches)
	{
		Batch	   *batch = lfirst(cell);

		if (batch->folded_in == InvalidSubTransactionId)
			lives = list_append_unique_oid(lives, batch->live);
	}
	list_sort(lives, list_oid_cmp);
	return lives;
}

/*
 * Fold all that there is.  Triggers of live may write to a source again, so
 * look again; "at_end": constraints of live that were deferred until now are
 * checked, for the server has done so before we came.
 */
static void
fold_all(bool at_end)
{
	List	   *lives;

	while ((lives = rollups_to_fold()) != NIL)
	{
		ListCell   *cell;

		PushActiveSnapshot(GetTransactionSnapshot());
		foreach(cell, lives)
		{
			check_not_in_use(lfirst_oid(cell));
			fold_rollup(lfirst_oid(cell));
		}
		PopActiveSnapshot();
		if (at_end)
			AfterTriggerFireDeferred();
	}
}

/*
 * Fold what this transaction has written, before something that reads the
 * source's rows into live: what it has read must not be folded again.  Rows
 * that a statement of this session is just writing would be.
 */
void
dr_fold_now(void)
{
	fold_all(false);
}

/* ------------------------------------------------------------------- flush */

/*
 * Recompute the keys that a backfill has dirtied; returns their number.  Each
 * is locked first, and computed under a newer snapshot, so that a writer who
 * folds meanwhile comes before or after us.
 */
uint64
dr_fold_flush(DrRollup *rollup)
{
	DrPlans    *plans;
	DrIdentity	before;
	int64		keys;

	dr_locks_check_not_in_use(rollup->source, "flush a rollup of");
	dr_fold_now();
	LockRelationOid(rollup->live, RowExclusiveLock);
	if (!still_folds(rollup->live))
		return 0;
	plans = dr_plans_of(rollup->live);
	plans->uses++;
	dr_identity_enter_sql(plans->rollup->owner, &before);
	dr_guard_let(rollup->live);
	if (SPI_execute(dr_folding_marked_keys(plans->def, plans->rollup), false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the marks of \"%s\"", dr_catalog_name(rollup->live));
	keys = register_keys(plans);
	if (keys > 0 &&
		SPI_execute(dr_folding_lock_marked(plans->def, plans->rollup), false, 0) < 0)
		elog(ERROR, "could not lock keys of \"%s\"", dr_catalog_name(rollup->live));
	DR_WAITPOINT("flush-locked");
	if (keys > 0 &&
		SPI_execute(dr_folding_flush(plans->def, plans->rollup), false, 0) < 0)
		elog(ERROR, "could not recompute keys of \"%s\"", dr_catalog_name(rollup->live));
	dr_guard_end();
	dr_identity_leave_sql(&before);
	plans->uses--;
	return keys;
}

/* --------------------------------------------------------------- callbacks */

static void
transaction_ends(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			fold_all(true);
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			/* gone with the transaction's memory and files */
			batches = NIL;
			break;
		default:
			break;
	}
}

static void
subtransaction_ends(SubXactEvent event, SubTransactionId mine,
					SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_PRE_COMMIT_SUB)
		level_committed(mine, parent);
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		level_aborted(mine);
}

void
dr_fold_init(void)
{
	RegisterXactCallback(transaction_ends, NULL);
	RegisterSubXactCallback(subtransaction_ends, NULL);
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_fold);

Datum
dailyrollup_fold(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("rollup_fold()");
	PreventCommandIfParallelMode("rollup_fold()");
	fold_all(false);
	PG_RETURN_VOID();
}
