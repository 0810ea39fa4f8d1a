/*
 * rival.c
 *		Which of two rows of one event counts.
 *
 * Of each event the place of the row that counts is remembered.  Where another
 * row comes, that one is read again.  The first by dedup_order counts, then by
 * image: the order of dr_phrase_dedup_order.
 */
#include "rival.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/sortsupport.h"
#include "utils/typcache.h"

/* A table that rows come from, the source or a leaf, and its number. */
typedef struct Leaf
{
	Oid			relation;		/* hash key */
	DrLeafNumber number;
} Leaf;

/* The same, once an earlier row of it is to be read again. */
typedef struct OpenLeaf
{
	Oid			relation;
	Relation	rel;			/* NULL: not yet */
	TupleTableSlot *slot;
	AttrNumber *attnos;			/* of the events' columns */
} OpenLeaf;

struct DrRivals
{
	const DrDefinition *def;
	MemoryContext context;
	TupleDesc	desc;			/* of events */
	DrKind	   *kinds;

	HTAB	   *leaves;
	OpenLeaf   *open_leaves;
	int			nleaves;
	Leaf		last_leaf;

	Datum	   *values;			/* the earlier row */
	bool	   *nulls;
	SortSupport order;
	FmgrInfo	compare_images;
	MemoryContext scratch;		/* of one comparison */
};

/* ------------------------------------------------------------- preparation */

/* By dedup_order, each column ASC NULLS LAST. */
static void
make_order(DrRivals *rivals)
{
	const DrDefinition *def = rivals->def;

	rivals->order = palloc0(def->ndedup_order * sizeof(SortSupportData));
	for (int i = 0; i < def->ndedup_order; i++)
	{
		const DrEventColumn *column = &def->events[def->dedup_order[i]];
		SortSupport order = &rivals->order[i];

		order->ssup_cxt = CurrentMemoryContext;
		order->ssup_collation = column->collation;
		order->ssup_nulls_first = false;
		PrepareSortSupportFromOrderingOp(lookup_type_cache(column->type,
														   TYPECACHE_LT_OPR)->lt_opr, order);
	}
	fmgr_info(F_BTRECORDIMAGECMP, &rivals->compare_images);
}

/* They live as long as the current memory context. */
DrRivals *
dr_rivals_make(const DrDefinition *def, TupleDesc events)
{
	DrRivals   *rivals = palloc0(sizeof(DrRivals));
	HASHCTL		ctl = {
		.keysize = sizeof(Oid),
		.entrysize = sizeof(Leaf),
		.hcxt = CurrentMemoryContext
	};

	rivals->def = def;
	rivals->context = CurrentMemoryContext;
	rivals->scratch = AllocSetContextCreate(CurrentMemoryContext, "dailyrollup rivals",
											ALLOCSET_DEFAULT_SIZES);
	rivals->desc = BlessTupleDesc(events);
	rivals->kinds = dr_pack_kinds(events);
	rivals->leaves = hash_create("dailyrollup leaves", 16, &ctl,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	rivals->values = palloc(def->nevents * sizeof(Datum));
	rivals->nulls = palloc(def->nevents * sizeof(bool));
	make_order(rivals);
	return rivals;
}

/* Close the tables; what was remembered of events is void then. */
void
dr_rivals_end(DrRivals *rivals)
{
	for (int i = 0; i < rivals->nleaves; i++)
	{
		OpenLeaf   *leaf = &rivals->open_leaves[i];

		if (leaf->rel == NULL)
			continue;
		ExecDropSingleTupleTableSlot(leaf->slot);
		table_close(leaf->rel, NoLock);
	}
	rivals->nleaves = 0;
}

/* ------------------------------------------------------------------- places */

static Leaf *
add_leaf(DrRivals *rivals, Oid relation)
{
	MemoryContext before = MemoryContextSwitchTo(rivals->context);
	Leaf	   *leaf = hash_search(rivals->leaves, &relation, HASH_ENTER, NULL);
	OpenLeaf	closed = {.relation = relation};

	leaf->number = rivals->nleaves++;
	rivals->open_leaves = rivals->open_leaves == NULL ? palloc(sizeof(OpenLeaf)) :
		repalloc(rivals->open_leaves, rivals->nleaves * sizeof(OpenLeaf));
	rivals->open_leaves[leaf->number] = closed;
	MemoryContextSwitchTo(before);
	return leaf;
}

/* Remember the place of an event's row; false where it is in one leaf too many. */
bool
dr_rivals_place(DrRivals *rivals, DrEvent *event, Datum tid, Datum table)
{
	Oid			relation = DatumGetObjectId(table);
	Leaf	   *leaf;

	if (relation != rivals->last_leaf.relation)
	{
		leaf = hash_search(rivals->leaves, &relation, HASH_FIND, NULL);
		if (leaf == NULL && rivals->nleaves == DR_MOST_LEAVES)
			return false;
		rivals->last_leaf = leaf != NULL ? *leaf : *add_leaf(rivals, relation);
	}
	event->tid = *(ItemPointer) DatumGetPointer(tid);
	event->leaf = rivals->last_leaf.number;
	return true;
}

/* --------------------------------------------------------------- comparison */

static void
open_leaf(DrRivals *rivals, OpenLeaf *leaf)
{
	const DrDefinition *def = rivals->def;
	MemoryContext before = MemoryContextSwitchTo(rivals->context);

	leaf->rel = table_open(leaf->relation, AccessShareLock);
	leaf->slot = table_slot_create(leaf->rel, NULL);
	leaf->attnos = palloc(def->nevents * sizeof(AttrNumber));
	for (int i = 0; i < def->nevents; i++)
		leaf->attnos[i] = get_attnum(leaf->relation, def->events[i].source_name);
	MemoryContextSwitchTo(before);
}

/* Read the event's row again, from its place, by a snapshot that has seen it
 * there. */
static void
read_earlier(DrRivals *rivals, Snapshot snapshot, const DrEvent *event)
{
	OpenLeaf   *leaf = &rivals->open_leaves[event->leaf];
	ItemPointerData tid = event->tid;

	if (leaf->rel == NULL)
		open_leaf(rivals, leaf);
	if (!table_tuple_fetch_row_version(leaf->rel, &tid, snapshot, leaf->slot))
		elog(ERROR, "could not find the row of an event again");
	for (int i = 0; i < rivals->def->nevents; i++)
		rivals->values[i] = slot_getattr(leaf->slot, leaf->attnos[i], &rivals->nulls[i]);
}

static bool
is_same(const DrRivals *rivals, const Datum *values, const bool *nulls)
{
	for (int i = 0; i < rivals->def->nevents; i++)
	{
		const DrKind *kind = &rivals->kinds[i];

		if (nulls[i] != rivals->nulls[i])
			return false;
		if (!nulls[i] && !datum_image_eq(values[i], rivals->values[i],
										 kind->typbyval, kind->typlen))
			return false;
	}
	return true;
}

static int
compare_images(DrRivals *rivals, Datum *values, bool *nulls)
{
	HeapTuple	row = heap_form_tuple(rivals->desc, values, nulls);
	HeapTuple	earlier = heap_form_tuple(rivals->desc, rivals->values, rivals->nulls);

	return DatumGetInt32(FunctionCall2(&rivals->compare_images,
									   heap_copy_tuple_as_datum(row, rivals->desc),
									   heap_copy_tuple_as_datum(earlier, rivals->desc)));
}

static int
compare_rows(DrRivals *rivals, Datum *values, bool *nulls)
{
	const DrDefinition *def = rivals->def;

	if (is_same(rivals, values, nulls))
		return 0;
	for (int i = 0; i < def->ndedup_order; i++)
	{
		int			n = def->dedup_order[i];
		int			result = ApplySortComparator(values[n], nulls[n], rivals->values[n],
												 rivals->nulls[n], &rivals->order[i]);

		if (result != 0)
			return result;
	}
	return compare_images(rivals, values, nulls) < 0 ? -1 : 1;
}

/* Which of two rows counts, this one (< 0) or the earlier one; 0: they are the
 * same. */
static int
compare(DrRivals *rivals, Datum *values, bool *nulls)
{
	MemoryContext before = MemoryContextSwitchTo(rivals->scratch);
	int			result = compare_rows(rivals, values, nulls);

	MemoryContextSwitchTo(before);
	MemoryContextReset(rivals->scratch);
	return result;
}

/*
 * Does the row count instead of the event's earlier one?  That is at hand then,
 * by dr_rivals_earlier, until the next question.
 */
bool
dr_rivals_beaten(DrRivals *rivals, Snapshot snapshot, const DrEvent *event,
				 Datum *values, bool *nulls)
{
	read_earlier(rivals, snapshot, event);
	return compare(rivals, values, nulls) < 0;
}

/* Which of two rows counts: the first (< 0), the other one (> 0), or are they
 * the same? */
int
dr_rivals_compare(DrRivals *rivals, Datum *a, bool *a_nulls, const Datum *b,
				  const bool *b_nulls)
{
	memcpy(rivals->values, b, rivals->def->nevents * sizeof(Datum));
	memcpy(rivals->nulls, b_nulls, rivals->def->nevents * sizeof(bool));
	return compare(rivals, a, a_nulls);
}

const Datum *
dr_rivals_earlier(const DrRivals *rivals, const bool **nulls)
{
	*nulls = rivals->nulls;
	return rivals->values;
}
