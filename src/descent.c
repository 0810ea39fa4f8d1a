/*
 * descent.c
 *		A btree that is asked for one key after another, in their order.
 *
 * A scan goes down from the root for each key.  Keys that come in their order
 * lie near one another: the page above the last key's leaf leads to the next
 * one's, which its downlinks tell, from the last one on.  A copy of that page
 * will do:
 *
 *		the leaf was split			it is known by its high key, and the rest
 *									of its keys stand to the right
 *		it was deleted				likewise; no page gets another use that the
 *									caller's snapshot, which is older than the
 *									copy, could have been led to
 *		the key lies beyond			from the root again
 *
 * Where the root is a leaf, the next key's is sought to the right of it.
 *
 * What is told was so while the leaf was locked; so whoever inserts an absent
 * key looks for it again.
 */
#include "descent.h"

#include "access/nbtree.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* The index has the key's columns, in their order, and maybe others; a snapshot
 * is held to the end. */
void
dr_descent_begin(DrDescent *descent, Relation index, DrOrder *order)
{
	Buffer		buffer = ReadBuffer(index, BTREE_METAPAGE);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	descent->root = BTPageGetMeta(BufferGetPage(buffer))->btm_fastroot;
	UnlockReleaseBuffer(buffer);
	descent->index = index;
	descent->order = order;
	descent->parent = palloc(BLCKSZ);
	descent->has_parent = false;
	descent->leaf = InvalidBuffer;
}

void
dr_descent_end(DrDescent *descent)
{
	dr_descent_let_go(descent);
	pfree(descent->parent);
}

/* While its leaf is pinned, VACUUM keeps the place that was found. */
void
dr_descent_let_go(DrDescent *descent)
{
	if (BufferIsValid(descent->leaf))
		ReleaseBuffer(descent->leaf);
	descent->leaf = InvalidBuffer;
}

/* -------------------------------------------------------------- comparison */

/* Compare the key's first n columns with an item that has NULLs, which are last. */
static int
compare_with_nulls(const DrDescent *descent, IndexTuple tuple, int n)
{
	int			result = 0;

	for (int i = 0; result == 0 && i < n; i++)
	{
		bool		isnull;
		Datum		value = index_getattr(tuple, i + 1, RelationGetDescr(descent->index), &isnull);

		result = isnull ? -1 :
			dr_order_compare_column(descent->order, i, descent->key[i], value);
	}
	return result;
}

/* The same without NULLs: column by column as they lie. */
static int
compare_columns(const DrDescent *descent, IndexTuple tuple, int n)
{
	TupleDesc	desc = RelationGetDescr(descent->index);
	const char *data = (char *) tuple + IndexInfoFindDataOffset(tuple->t_info);
	Size		at = 0;

	for (int i = 0; i < n; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);
		int			result;

		at = att_align_pointer(at, column->attalign, column->attlen, data + at);
		result = dr_order_compare_column(descent->order, i, descent->key[i],
										 fetchatt(column, data + at));
		if (result != 0)
			return result;
		at = att_addlength_pointer(at, column->attlen, data + at);
	}
	return 0;
}

/* Compare the key with an item.  Columns that a page above the leaves leaves out
 * are less than any value. */
static int
compare(const DrDescent *descent, Page page, OffsetNumber item)
{
	IndexTuple	tuple = (IndexTuple) PageGetItem(page, PageGetItemId(page, item));
	int			n = Min(descent->order->n, BTreeTupleGetNAtts(tuple, descent->index));
	int			result = IndexTupleHasNulls(tuple) ?
		compare_with_nulls(descent, tuple, n) : compare_columns(descent, tuple, n);

	return result == 0 && BTreeTupleIsPivot(tuple) ? 1 : result;
}

/* The first item from "low" on, and before "high", that is not less than the
 * key; "high", if there is none. */
static OffsetNumber
search(const DrDescent *descent, Page page, OffsetNumber low, OffsetNumber high, bool *equal)
{
	*equal = false;
	while (low < high)
	{
		OffsetNumber mid = low + (high - low) / 2;
		int			result = compare(descent, page, mid);

		if (result > 0)
			low = mid + 1;
		else
		{
			high = mid;
			*equal = result == 0;
		}
	}
	return low;
}

/* Does the key lie to the right of the page? */
static bool
is_beyond(const DrDescent *descent, Page page)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);

	return !P_RIGHTMOST(opaque) &&
		(P_IGNORE(opaque) || compare(descent, page, P_HIKEY) > 0);
}

/* -------------------------------------------------------------- the way down */

/* From one page to another one, or to one at its right where the key lies
 * beyond that.  It is locked.  Before the page "bound" the key does not lie
 * beyond. */
static Buffer
go_to(const DrDescent *descent, Buffer buffer, BlockNumber block, BlockNumber bound)
{
	for (;;)
	{
		Page		page;
		BTPageOpaque opaque;

		buffer = ReleaseAndReadBuffer(buffer, descent->index, block);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		_bt_checkpage(descent->index, buffer);
		page = BufferGetPage(buffer);
		opaque = BTPageGetOpaque(page);
		if ((opaque->btpo_next == bound && !P_IGNORE(opaque)) || !is_beyond(descent, page))
			return buffer;
		block = opaque->btpo_next;
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	}
}

/* The downlink to follow: the last one that is less than the key, which is
 * sought from the given one on, for it is likely to be near. */
static OffsetNumber
choose(const DrDescent *descent, Page page, OffsetNumber from)
{
	OffsetNumber end = PageGetMaxOffsetNumber(page) + 1;
	bool		equal;

	for (int step = 1; from + step < end; step *= 2)
	{
		if (compare(descent, page, from + step) <= 0)
		{
			end = from + step;
			break;
		}
		from += step;
	}
	return search(descent, page, from + 1, end, &equal) - 1;
}

static BlockNumber
downlink(Page page, OffsetNumber item)
{
	return BTreeTupleGetDownLink((IndexTuple) PageGetItem(page, PageGetItemId(page, item)));
}

/* Come to the key's parent from the root; false where a leaf is met, which is
 * the key's, and locked. */
static bool
find_parent(DrDescent *descent)
{
	Buffer		buffer = InvalidBuffer;
	BlockNumber block = descent->root;

	for (;;)
	{
		Page		page;
		uint32		level;

		buffer = go_to(descent, buffer, block, InvalidBlockNumber);
		page = BufferGetPage(buffer);
		level = BTPageGetOpaque(page)->btpo_level;
		if (level <= 1)
			break;
		block = downlink(page, choose(descent, page, P_FIRSTDATAKEY(BTPageGetOpaque(page))));
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	}
	descent->has_parent = BTPageGetOpaque(BufferGetPage(buffer))->btpo_level == 1;
	if (!descent->has_parent)
	{
		descent->leaf = buffer;
		descent->root = BufferGetBlockNumber(buffer);
		return false;
	}
	memcpy(descent->parent, BufferGetPage(buffer), BLCKSZ);
	descent->child = P_FIRSTDATAKEY(BTPageGetOpaque((Page) descent->parent));
	UnlockReleaseBuffer(buffer);
	return true;
}

/* Where the key's leaf stands in the parent; false where the key lies beyond. */
static bool
find_child(DrDescent *descent)
{
	Page		page = (Page) descent->parent;

	descent->child = choose(descent, page, descent->child);
	return descent->child < PageGetMaxOffsetNumber(page) || !is_beyond(descent, page);
}

/* Follow the parent to that leaf, which is locked then. */
static void
follow_parent(DrDescent *descent)
{
	Page		page = (Page) descent->parent;
	BlockNumber bound = descent->child < PageGetMaxOffsetNumber(page) ?
		downlink(page, descent->child + 1) : InvalidBlockNumber;

	descent->leaf = go_to(descent, InvalidBuffer, downlink(page, descent->child), bound);
}

/* The key does not lie beyond the parent that is found for it. */
static void
find_leaf(DrDescent *descent)
{
	if (!descent->has_parent || !find_child(descent))
	{
		if (!find_parent(descent))
			return;
		(void) find_child(descent);
	}
	follow_parent(descent);
}

/* What stands in the key's leaf, at the first item that is not less. */
static DrDescentResult
look_at_leaf(DrDescent *descent, ItemPointer place)
{
	Page		page = BufferGetPage(descent->leaf);
	BTPageOpaque opaque = BTPageGetOpaque(page);
	OffsetNumber item;
	IndexTuple	tuple;
	bool		equal;

	item = search(descent, page, P_FIRSTDATAKEY(opaque), PageGetMaxOffsetNumber(page) + 1, &equal);
	if (!equal)
		return P_IGNORE(opaque) ? DR_DESCENT_UNKNOWN : DR_DESCENT_ABSENT;
	tuple = (IndexTuple) PageGetItem(page, PageGetItemId(page, item));
	if (ItemIdIsDead(PageGetItemId(page, item)) || BTreeTupleIsPosting(tuple))
		return DR_DESCENT_UNKNOWN;
	*place = tuple->t_tid;
	return DR_DESCENT_FOUND;
}

/*
 * Find the place of a key's row, or of one that was the key's; the caller lets
 * it go.  Of several places none is told.  The keys come in the order of the
 * index.
 */
DrDescentResult
dr_descent_find(DrDescent *descent, const Datum *key, ItemPointer place)
{
	DrDescentResult result;

	if (descent->root == P_NONE)
		return DR_DESCENT_UNKNOWN;
	pgstat_count_index_scan(descent->index);
	descent->key = key;
	find_leaf(descent);
	result = look_at_leaf(descent, place);
	LockBuffer(descent->leaf, BUFFER_LOCK_UNLOCK);
	if (result != DR_DESCENT_FOUND)
		dr_descent_let_go(descent);
	return result;
}
