/*
 * batch.c
 *		What a transaction has written, kept until it is folded.
 *
 * The row triggers (capture.c) hand over each event.  They are kept in batches,
 * one for each rollup and subtransaction level:
 *
 *		a subtransaction aborts		its batches go
 *		a subtransaction commits	its batches become its parent's
 *
 * The latter cannot fail, for then some would be the parent's whose rows are gone:
 * what does not fit into memory together remains apart, and goes to a temporary
 * file when there is more.
 *
 * Where a batch is folded in a subtransaction that aborts, what the levels
 * above it had written is to be folded again: a batch remembers in which level
 * it was folded.
 */
#include "batch.h"

#include "access/detoast.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/memutils.h"

#include "folding.h"
#include "guard.h"

/* Of this transaction, in its memory, in the order of levels; that which is under way
 * has the last ones, so that they are found at once, however many there are. */
static List *batches = NIL;

/* Some have been folded. */
static bool any_folded = false;

/* Some of one level did not fit into memory together. */
static bool crowded = false;

static DrBatch *
nth_last(int n)
{
	return list_nth(batches, list_length(batches) - 1 - n);
}

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

/* An empty batch, in a memory context of its own. */
static DrBatch *
make_batch(Oid live, int32 rollup, bool backfill, TupleDesc desc)
{
	MemoryContext context = AllocSetContextCreate(TopTransactionContext, "dailyrollup batch",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);
	DrBatch    *batch = palloc0(sizeof(DrBatch));

	batch->context = context;
	batch->live = live;
	batch->rollup = rollup;
	batch->backfill = backfill;
	dr_rows_make(&batch->rows, desc);
	MemoryContextSwitchTo(before);
	return batch;
}

/* Of two that do not fit together one takes more than half of the memory. */
static void
make_room(void)
{
	ListCell   *cell;

	foreach(cell, batches)
		dr_rows_store_half(&((DrBatch *) lfirst(cell))->rows);
	crowded = false;
}

/* The batch that the current level writes to. */
static DrBatch *
batch_of(const DrPlans *plans, bool backfill)
{
	SubTransactionId level = GetCurrentSubTransactionId();
	MemoryContext before;
	DrBatch    *batch;

	for (int i = 0; i < list_length(batches) && nth_last(i)->level == level; i++)
	{
		batch = nth_last(i);
		if (batch->live == plans->live && batch->rollup == plans->rollup->id &&
			batch->backfill == backfill && batch->folded_in == InvalidSubTransactionId)
			return batch;
	}

	if (crowded)
		make_room();
	batch = make_batch(plans->live, plans->rollup->id, backfill, describe_rows(plans->def));
	batch->source = plans->def->source;
	batch->level = level;
	before = MemoryContextSwitchTo(TopTransactionContext);
	batches = lappend(batches, batch);
	MemoryContextSwitchTo(before);
	return batch;
}

/* A value that stands for itself: where it lies out of line in the source's
 * storage, the row or the table may be gone when it is read. */
static Datum
held_value(DrBatch *batch, int i, Datum value)
{
	struct varlena *held;

	if (TupleDescAttr(batch->rows.desc, i)->attlen != -1 ||
		!VARATT_IS_EXTERNAL(DatumGetPointer(value)))
		return value;
	held = detoast_external_attr((struct varlena *) DatumGetPointer(value));
	batch->held += VARSIZE_ANY(held);
	return PointerGetDatum(held);
}

/* Take an event: one that was inserted, or what an update or a delete has met
 * or left. */
void
dr_batch_collect(DrPlans *plans, const Datum *event, const bool *nulls,
				bool added, bool backfill)
{
	DrBatch	   *batch = batch_of(plans, backfill);
	int			n = plans->def->nevents;
	Datum		values[MaxTupleAttributeNumber];
	bool		isnull[MaxTupleAttributeNumber];

	/* what a trigger of live's writes while we change live may have been seen
	 * by our statement, or not: its key is computed anew */
	added = added && !dr_guard_is_open();

	memcpy(isnull, nulls, n * sizeof(bool));
	for (int i = 0; i < n; i++)
		values[i] = nulls[i] ? (Datum) 0 : held_value(batch, i, event[i]);
	values[n] = BoolGetDatum(added);
	isnull[n] = false;
	dr_rows_put(&batch->rows, values, isnull);
	batch->touches |= !added;
}

static void
add_what_is_told(DrBatch *to, const DrBatch *from)
{
	to->touches |= from->touches;
	to->held += from->held;
}

/* Free a batch that is no longer in the list. */
void
dr_batch_end(DrBatch *batch)
{
	dr_rows_end(&batch->rows);
	MemoryContextDelete(batch->context);
}

/* One of its level that could be joined with it, if both fit. */
static DrBatch *
find_alike(const DrBatch *batch)
{
	if (batch->rows.store != NULL)
		return NULL;
	for (int i = 0; i < list_length(batches) && nth_last(i)->level == batch->level; i++)
	{
		DrBatch    *other = nth_last(i);

		if (other != batch && other->rows.store == NULL &&
			other->live == batch->live && other->rollup == batch->rollup &&
			other->backfill == batch->backfill && other->folded_in == batch->folded_in)
			return other;
	}
	return NULL;
}

/* The fewer rows go to the more: a transaction may have very many levels, each of a
 * few rows, which end one after the other.  Raises no error. */
static void
join(DrBatch *one, DrBatch *other)
{
	DrBatch    *more = one->rows.count > other->rows.count ? one : other;
	DrBatch    *less = more == one ? other : one;

	if (!dr_rows_join(&more->rows, &less->rows))
	{
		crowded = true;
		return;
	}
	add_what_is_told(more, less);
	batches = list_delete_ptr(batches, less);
	dr_batch_end(less);
}

/* What it has folded, its parent has folded. */
static void
fold_committed(SubTransactionId mine, SubTransactionId parent)
{
	ListCell   *cell;

	foreach(cell, batches)
	{
		DrBatch    *batch = lfirst(cell);

		if (batch->folded_in != mine)
			continue;
		batch->folded_in = parent;
		if (batch->level == parent)
		{
			batches = foreach_delete_current(batches, cell);
			dr_batch_end(batch);
		}
	}
}

/* Its batches, the last ones, become the parent's.  Nothing is allocated in the memory
 * of the subtransaction, which the server would then keep. */
static void
level_committed(SubTransactionId mine, SubTransactionId parent)
{
	int			n = 0;

	if (any_folded)
		fold_committed(mine, parent);
	for (; n < list_length(batches) && nth_last(n)->level == mine; n++)
		nth_last(n)->level = parent;
	while (n-- > 0)
	{
		DrBatch    *alike = find_alike(nth_last(n));

		if (alike != NULL)
			join(nth_last(n), alike);
	}
}

static void
level_aborted(SubTransactionId mine)
{
	ListCell   *cell;

	while (batches != NIL && nth_last(0)->level == mine)
	{
		dr_batch_end(nth_last(0));
		batches = list_delete_last(batches);
	}
	if (!any_folded)
		return;
	foreach(cell, batches)
	{
		DrBatch    *batch = lfirst(cell);

		if (batch->folded_in == mine)
			batch->folded_in = InvalidSubTransactionId;
	}
}

/*
 * What is not folded yet of a rollup, as one batch; NULL: nothing.  What this
 * level itself has written goes with it, should it abort; what the levels
 * above have written must be kept for that case.  What was written for another
 * rollup that had the table before is forgotten in the same way.
 */
DrBatch *
dr_batch_take(Oid live, int32 rollup, bool backfill)
{
	SubTransactionId level = GetCurrentSubTransactionId();
	DrBatch	   *taken = NULL;
	List	   *found = NIL;
	ListCell   *cell;

	foreach(cell, batches)
	{
		DrBatch	   *batch = lfirst(cell);

		if (batch->live == live && batch->backfill == backfill &&
			batch->folded_in == InvalidSubTransactionId)
			found = lappend(found, batch);
	}
	if (list_length(found) == 1 && ((DrBatch *) linitial(found))->level == level &&
		((DrBatch *) linitial(found))->rollup == rollup)
	{
		taken = linitial(found);
		batches = list_delete_ptr(batches, taken);
		return taken;
	}
	foreach(cell, found)
	{
		DrBatch	   *batch = lfirst(cell);

		if (batch->rollup == rollup)
		{
			if (taken == NULL)
				taken = make_batch(live, rollup, backfill, batch->rows.desc);
			dr_rows_append(&taken->rows, &batch->rows);
			add_what_is_told(taken, batch);
		}
		batch->folded_in = level;
		any_folded = true;
		if (batch->level == level)
		{
			batches = list_delete_ptr(batches, batch);
			dr_batch_end(batch);
		}
	}
	list_free(found);
	return taken;
}

static List *
oids_to_fold(bool sources)
{
	List	   *oids = NIL;
	ListCell   *cell;

	foreach(cell, batches)
	{
		DrBatch	   *batch = lfirst(cell);

		if (batch->folded_in == InvalidSubTransactionId)
			oids = list_append_unique_oid(oids, sources ? batch->source : batch->live);
	}
	list_sort(oids, list_oid_cmp);
	return oids;
}

/* The rollups for which there is something to fold, in order of live's OID. */
List *
dr_batch_lives(void)
{
	return oids_to_fold(false);
}

/* Their sources, in order of OID. */
List *
dr_batch_sources(void)
{
	return oids_to_fold(true);
}

/* --------------------------------------------------------------- callbacks */

/* All is gone with the transaction's memory and files. */
static void
transaction_ended(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE ||
		event == XACT_EVENT_ABORT)
	{
		batches = NIL;
		any_folded = false;
		crowded = false;
	}
}

static void
subtransaction_ends(SubXactEvent event, SubTransactionId mine,
					SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		level_committed(mine, parent);
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		level_aborted(mine);
}

void
dr_batch_init(void)
{
	RegisterXactCallback(transaction_ended, NULL);
	RegisterSubXactCallback(subtransaction_ends, NULL);
}
