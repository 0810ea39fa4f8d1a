/*
 * seize.c
 *		Live's rows of gathered keys locked without a statement.
 *
 * Key by key, in their order, each by the unique index, as INSERT ... ON
 * CONFLICT does it:
 *
 *		live has no row of the key		it gets what the batch gives; where
 *										others were faster, look again
 *		others write it just now		wait for their end, and look again
 *		live has a row					it is updated, or locked; where others
 *										were faster, look again
 *
 * A row that tells that all events of its key are new is merged with them at
 * once, for nothing but that row decides: the update, which is made only if it
 * is still the key's row, locks it.  The others are locked and kept, until the
 * source has been asked under a snapshot that is newer than all locks.
 */
#include "seize.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "compat.h"
#include "debug.h"
#include "descent.h"
#include "folding.h"
#include "target.h"

/* Bytes free on a page that are soon used up by updates. */
#define LITTLE_ROOM		(BLCKSZ / 8)

/* Live while its rows are locked. */
typedef struct Seizing
{
	const DrDefinition *def;
	DrGather   *gather;
	DrTarget	target;
	Relation	index;
	int			key_of[INDEX_MAX_KEYS]; /* which key each column of the index is */
	Datum		key[INDEX_MAX_KEYS];	/* that is sought */
	ScanKeyData sought[INDEX_MAX_KEYS];
	bool		ordered;		/* the index has the order of the keys */
	DrDescent	descent;
	bool		looked;			/* for the key, before */
	SnapshotData dirty;			/* sees what others are writing, too */
	Snapshot	latest;			/* when we began */
	IndexScanDesc scan;
	Buffer		buffer;			/* where the last row was looked for */
	ItemPointerData place;		/* of the row that was found */
	HeapTupleData found;		/* it, on that page */
	TupleTableSlot *row;		/* likewise */
	int			merged;
} Seizing;

/* ---------------------------------------------------------------- the index */

/* The key that stands in a column of live; -1. */
static int
key_at(const DrTarget *target, AttrNumber attno)
{
	for (int k = 0; k < target->def->nkeys; k++)
		if (target->attnos[target->def->keys[k]] == attno)
			return k;
	return -1;
}

/* Does a column of the index tell the values of a key apart as statements do? */
static bool
is_index_of(Relation index, int i, const DrColumn *key)
{
	TypeCacheEntry *type = lookup_type_cache(getBaseType(key->type), TYPECACHE_BTREE_OPFAMILY);

	return index->rd_opfamily[i] == type->btree_opf &&
		index->rd_indcollation[i] == key->collation;
}

static bool
is_key_index(Seizing *seizing, Relation index, const IndexInfo *info)
{
	const DrTarget *target = &seizing->target;
	Form_pg_index form = index->rd_index;
	int			nkeys = target->def->nkeys;
	Bitmapset  *keys = NULL;

	seizing->ordered = true;
	if (!form->indisunique || !form->indimmediate || !form->indisvalid ||
		index->rd_rel->relam != BTREE_AM_OID || form->indnkeyatts != nkeys ||
		info->ii_Expressions != NIL || info->ii_Predicate != NIL)
		return false;
	for (int i = 0; i < nkeys; i++)
	{
		int			k = key_at(target, form->indkey.values[i]);

		if (k < 0 || !is_index_of(index, i, &target->def->columns[target->def->keys[k]]))
			return false;
		seizing->key_of[i] = k;
		seizing->ordered &= k == i && index->rd_indoption[i] == 0;
		keys = bms_add_member(keys, k);
	}
	return bms_num_members(keys) == nkeys;
}

static void
begin_scan(Seizing *seizing, Relation index, const IndexInfo *info)
{
	int			n = seizing->def->nkeys;

	for (int i = 0; i < n; i++)
		ScanKeyEntryInitialize(&seizing->sought[i], 0, i + 1, info->ii_UniqueStrats[i],
							   InvalidOid, index->rd_indcollation[i],
							   info->ii_UniqueProcs[i], (Datum) 0);
	InitDirtySnapshot(seizing->dirty);
	seizing->index = index;
	seizing->scan = dr_index_beginscan(seizing->target.rel, index, &seizing->dirty, n);
	dr_descent_begin(&seizing->descent, index, seizing->gather->order);
}

/* Find the unique index of the key, and begin to look into it. */
static bool
find_index(Seizing *seizing)
{
	const ResultRelInfo *live = seizing->target.info;

	for (int i = 0; i < live->ri_NumIndices; i++)
	{
		Relation	index = live->ri_IndexRelationDescs[i];
		IndexInfo  *info = live->ri_IndexRelationInfo[i];

		if (!is_key_index(seizing, index, info))
			continue;
		begin_scan(seizing, index, info);
		return true;
	}
	return false;
}

/* ------------------------------------------------------------------ the rows */

static void
let_go(Seizing *seizing)
{
	if (BufferIsValid(seizing->buffer))
		ReleaseBuffer(seizing->buffer);
	seizing->buffer = InvalidBuffer;
}

static void
wait_for(Seizing *seizing, TransactionId xid)
{
	let_go(seizing);			/* others may want to clean the page */
	if (seizing->dirty.speculativeToken != 0)
		SpeculativeInsertionWait(xid, seizing->dirty.speculativeToken);
	else
		XactLockTableWait(xid, seizing->target.rel, &seizing->place, XLTW_InsertIndex);
}

/*
 * Look at what stands at a place that the index names.  A scan would clean the
 * page of what our last update has left whenever it can, for the page is meant
 * to be half empty; it is done here where there is not much room left.
 */
static bool
is_row_at(Seizing *seizing, ItemPointer place)
{
	Relation	live = seizing->target.rel;
	bool		all_dead;
	bool		is_there;

	seizing->place = *place;
	seizing->buffer = ReleaseAndReadBuffer(seizing->buffer, live,
										   ItemPointerGetBlockNumber(place));
	if (PageGetHeapFreeSpace(BufferGetPage(seizing->buffer)) < LITTLE_ROOM)
		heap_page_prune_opt(live, seizing->buffer);
	LockBuffer(seizing->buffer, BUFFER_LOCK_SHARE);
	is_there = heap_hot_search_buffer(&seizing->place, live, seizing->buffer, &seizing->dirty,
									  &seizing->found, &all_dead, true);
	LockBuffer(seizing->buffer, BUFFER_LOCK_UNLOCK);
	seizing->scan->kill_prior_tuple = !is_there && all_dead;
	return is_there;
}

static bool
scan_for_row(Seizing *seizing)
{
	bool		is_there = false;
	ItemPointer place;

	index_rescan(seizing->scan, seizing->sought, seizing->def->nkeys, NULL, 0);
	while (!is_there &&
		   (place = index_getnext_tid(seizing->scan, ForwardScanDirection)) != NULL)
		is_there = is_row_at(seizing, place);

	/* no page of the index is held, should we have to wait */
	index_rescan(seizing->scan, NULL, seizing->def->nkeys, NULL, 0);
	return is_there;
}

/* Is there a row?  Where the descent tells of none that is there, a scan must
 * tell, or the index when the key is proposed. */
static bool
look_for_row(Seizing *seizing)
{
	DrDescentResult result = DR_DESCENT_UNKNOWN;
	ItemPointerData place;
	bool		is_there = false;

	if (seizing->ordered && !seizing->looked)
		result = dr_descent_find(&seizing->descent, seizing->key, &place);
	seizing->looked = true;
	if (result == DR_DESCENT_FOUND)
	{
		DR_WAITPOINT("fold-placed");
		is_there = is_row_at(seizing, &place);
		dr_descent_let_go(&seizing->descent);
	}
	return is_there || (result != DR_DESCENT_ABSENT && scan_for_row(seizing));
}

/* Find live's row of the key that is sought, once nobody else is writing it;
 * false where there is none. */
static bool
find_row(Seizing *seizing)
{
	for (;;)
	{
		TransactionId xid;

		CHECK_FOR_INTERRUPTS();
		if (!look_for_row(seizing))
			return false;
		xid = TransactionIdIsValid(seizing->dirty.xmin) ? seizing->dirty.xmin :
			seizing->dirty.xmax;
		if (!TransactionIdIsValid(xid))
			return true;
		wait_for(seizing, xid);
	}
}

static void
fail_to_serialize(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update")));
}

/* In REPEATABLE READ a row must not be newer than our look at it, as for ON
 * CONFLICT. */
static void
check_seen(Seizing *seizing)
{
	bool		isnull;
	TransactionId xmin;

	if (!IsolationUsesXactSnapshot() ||
		table_tuple_satisfies_snapshot(seizing->target.rel, seizing->row, seizing->latest))
		return;
	xmin = DatumGetTransactionId(slot_getsysattr(seizing->row,
												 MinTransactionIdAttributeNumber, &isnull));
	if (!TransactionIdIsCurrentTransactionId(xmin))
		fail_to_serialize();
}

/* Lock the row that was found; false where others have changed it meanwhile. */
static bool
lock_row(Seizing *seizing)
{
	TM_FailureData failure;
	TM_Result	result = table_tuple_lock(seizing->target.rel, &seizing->place,
										  seizing->latest, seizing->row,
										  GetCurrentCommandId(false), LockTupleNoKeyExclusive,
										  LockWaitBlock, 0, &failure);

	if (result != TM_Ok && result != TM_Updated && result != TM_Deleted)
		elog(ERROR, "unexpected state of a row that is to be locked: %d", result);
	return result == TM_Ok;
}

/* The row, which decides alone, is merged with the batch; false likewise. */
static bool
merge_row(Seizing *seizing, int i, Datum *values, bool *nulls)
{
	bool		written;

	dr_gather_merge(seizing->gather, i, values, nulls);
	written = dr_target_update_contested(&seizing->target, seizing->row, values, nulls);
	dr_gather_merged(seizing->gather, i, written);
	seizing->merged += written;
	return written;
}

/* The row is merged, or locked and kept; false likewise.  Its values stand on
 * the page, where they stay as they are. */
static bool
take_row(Seizing *seizing, int i)
{
	const DrTarget *target = &seizing->target;
	TupleTableSlot *row = seizing->row;
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];
	bool		taken;

	ExecStoreBufferHeapTuple(&seizing->found, row, seizing->buffer);
	check_seen(seizing);
	slot_getallattrs(row);
	for (int n = 0; n < seizing->def->ncolumns; n++)
	{
		values[n] = row->tts_values[target->attnos[n] - 1];
		nulls[n] = row->tts_isnull[target->attnos[n] - 1];
	}
	if (dr_gather_is_decided(seizing->gather, i, values, nulls))
		taken = merge_row(seizing, i, values, nulls);
	else
	{
		taken = lock_row(seizing);
		if (taken)
			dr_gather_keep(seizing->gather, seizing->gather->entries[i], &seizing->place,
						   values, nulls);
	}
	if (!taken && IsolationUsesXactSnapshot())
		fail_to_serialize();
	ExecClearTuple(row);
	return taken;
}

static void
seek(Seizing *seizing, int i)
{
	bool		nulls[INDEX_MAX_KEYS];

	dr_gather_key(seizing->gather, i, seizing->key, nulls);
	for (int n = 0; n < seizing->def->nkeys; n++)
		seizing->sought[n].sk_argument = seizing->key[seizing->key_of[n]];
	seizing->looked = false;
}

static void
seize_key(Seizing *seizing, int i)
{
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	seek(seizing, i);
	for (;;)
	{
		if (find_row(seizing))
		{
			DR_WAITPOINT("fold-found");
			if (take_row(seizing, i))
				return;
			continue;
		}
		DR_WAITPOINT("fold-missed");
		dr_gather_row(seizing->gather, i, values, nulls);
		if (dr_target_propose(&seizing->target, RelationGetRelid(seizing->index), values, nulls))
		{
			dr_gather_add(seizing->gather, i);
			return;
		}
	}
}

static void
seize_keys(Seizing *seizing)
{
	seizing->row = table_slot_create(seizing->target.rel, NULL);
	seizing->latest = RegisterSnapshot(GetLatestSnapshot());
	dr_gather_sort(seizing->gather);
	for (int i = 0; i < seizing->gather->nentries; i++)
		seize_key(seizing, i);
	elog(DEBUG1, "dailyrollup: %d keys locked without a statement, %d rows merged",
		 seizing->gather->nentries, seizing->merged);
	let_go(seizing);
	index_endscan(seizing->scan);
	dr_descent_end(&seizing->descent);
	UnregisterSnapshot(seizing->latest);
	ExecDropSingleTupleTableSlot(seizing->row);
}

/* Would a statement do no more than we? */
static bool
is_plain(const DrDefinition *def, const DrRollup *rollup, Relation live)
{
	return live->rd_rel->relkind == RELKIND_RELATION &&
		live->rd_tableam == GetHeapamTableAmRoutine() &&
		!live->rd_rel->relrowsecurity && live->rd_rules == NULL &&
		!dr_target_fires_triggers(rollup, live) && dr_folding_takes_any(def, rollup->live);
}

/*
 * Lock the keys, which the gather learns of.  False, and nothing is done, where
 * a statement must do it.  The caller has locked live, and may write to it.
 */
bool
dr_seize(DrGather *gather, const DrDefinition *def, const DrRollup *rollup)
{
	Seizing		seizing = {.def = def, .gather = gather};
	Relation	live = table_open(rollup->live, NoLock);
	bool		possible = is_plain(def, rollup, live);

	if (possible)
	{
		CommandCounterIncrement();	/* this transaction may have written rows before */
		dr_target_open(&seizing.target, def, live, true);
		possible = find_index(&seizing);
		if (possible)
			seize_keys(&seizing);
		dr_target_close(&seizing.target);
		CommandCounterIncrement();
	}
	table_close(live, NoLock);
	return possible;
}
