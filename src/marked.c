/*
 * marked.c
 *		Which keys have marks, by the active snapshot; and whether any key has
 *		one that is too long for an index.
 *
 * Of plain keys alone it is told which they are (objects.c): of the others it is
 * enough to know that there are some (tail.c).
 *
 * The first few keys are looked up by the marks' indexes.  Whoever goes on to
 * ask for other ones has all marked keys read into memory, as long as there is
 * room for them.
 *
 * A key's columns are the first of the marks' (objects.c).  Equality is that of
 * their types, and NULL is a value like any other.  The owner may have changed
 * the marks in any way, so nothing is taken for granted.
 */
#include "marked.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/nbtree.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/nodeHash.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "compat.h"
#include "marks.h"

/* So many keys are looked up one by one, before all marked ones are read. */
#define FEW_KEYS	32

typedef struct KeyType
{
	TypeCacheEntry *entry;
	Oid			collation;
	bool		byval;
	int16		len;
} KeyType;

/* A marked key, and the first of its marks. */
typedef struct MarkedKey
{
	const NullableDatum *key;
	ItemPointerData mark;
	uint32		hash;
	char		status;
} MarkedKey;

struct DrMarked
{
	Oid			relation;
	char		dirties;		/* which marks count */
	int			n;				/* columns of a key */
	KeyType    *types;
	MemoryContext context;

	/* the key that was looked up last */
	int			lookups;
	NullableDatum *last;
	bool		last_found;
	ItemPointerData last_mark;

	/* all of them, once they have been read */
	bool		read_all;		/* tried */
	struct marked_hash *all;	/* NULL: not read, or too many */
};

static bool same_key(const DrMarked *marked, const NullableDatum *a, const NullableDatum *b);
static uint32 hash_of(const DrMarked *marked, const NullableDatum *key);

#define SH_PREFIX		marked
#define SH_ELEMENT_TYPE MarkedKey
#define SH_KEY_TYPE		const NullableDatum *
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_of((tb)->private_data, (k))
#define SH_EQUAL(tb, a, b)	same_key((tb)->private_data, (a), (b))
#define SH_STORE_HASH
#define SH_GET_HASH(tb, a)	((a)->hash)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* -------------------------------------------------------------------- keys */

static bool
same_value(const KeyType *type, Datum a, Datum b)
{
	return DatumGetBool(FunctionCall2Coll(&type->entry->eq_opr_finfo, type->collation, a, b));
}

static bool
same_key(const DrMarked *marked, const NullableDatum *a, const NullableDatum *b)
{
	for (int i = 0; i < marked->n; i++)
		if (a[i].isnull != b[i].isnull ||
			(!a[i].isnull && !same_value(&marked->types[i], a[i].value, b[i].value)))
			return false;
	return true;
}

/* The same bytes: cheaper to ask, and enough where rows of a key follow each
 * other. */
static bool
same_image(const DrMarked *marked, const NullableDatum *a, const NullableDatum *b)
{
	for (int i = 0; i < marked->n; i++)
		if (a[i].isnull != b[i].isnull ||
			(!a[i].isnull && !datum_image_eq(a[i].value, b[i].value,
											 marked->types[i].byval, marked->types[i].len)))
			return false;
	return true;
}

static uint32
hash_of(const DrMarked *marked, const NullableDatum *key)
{
	uint32		hash = 0;

	for (int i = 0; i < marked->n; i++)
		hash = hash_combine(hash, key[i].isnull ? 0 :
							DatumGetUInt32(FunctionCall1Coll(&marked->types[i].entry->hash_proc_finfo,
															 marked->types[i].collation,
															 key[i].value)));
	return murmurhash32(hash);
}

static void
copy_key(const DrMarked *marked, NullableDatum *to, const NullableDatum *from)
{
	for (int i = 0; i < marked->n; i++)
	{
		to[i].isnull = from[i].isnull;
		to[i].value = from[i].isnull ? (Datum) 0 :
			datumCopy(from[i].value, marked->types[i].byval, marked->types[i].len);
	}
}

/* The key of a row of the marks, if that is plain, and of the kind that counts. */
static bool
read_key(const DrMarked *marked, TupleTableSlot *slot, NullableDatum *key)
{
	if (slot_attisnull(slot, DR_MARKS_PLAIN(marked->n)) ||
		!dr_marks_is_of_kind(slot, marked->n, marked->dirties))
		return false;
	for (int i = 0; i < marked->n; i++)
		key[i].value = slot_getattr(slot, i + 1, &key[i].isnull);
	return true;
}

/* ------------------------------------------------------------------- begin */

/* An error where the function's arguments from that one on are not a key of the
 * marks, or the marks not as they were made. */
static void
check_columns(const DrMarked *marked, TupleDesc desc, FunctionCallInfo fcinfo, int first)
{
	bool		fits = marked->n > 0 && !get_fn_expr_variadic(fcinfo->flinfo) &&
		dr_marks_is_kept(desc, marked->n);

	for (int i = 0; fits && i < marked->n; i++)
		fits = dr_marks_is_column(desc, i + 1, get_fn_expr_argtype(fcinfo->flinfo, first + i));
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the arguments are not a key of this rollup")));
}

static void
set_types(DrMarked *marked, TupleDesc desc)
{
	marked->types = palloc(marked->n * sizeof(KeyType));
	for (int i = 0; i < marked->n; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		marked->types[i].entry = lookup_type_cache(att->atttypid, TYPECACHE_EQ_OPR_FINFO |
												   TYPECACHE_HASH_PROC_FINFO |
												   TYPECACHE_BTREE_OPFAMILY);
		marked->types[i].collation = att->attcollation;
		marked->types[i].byval = att->attbyval;
		marked->types[i].len = att->attlen;
	}
}

/*
 * To ask for marks that say that live's row does not count.  The arguments of
 * the calling function, from that one on, are the key.  What is returned lives
 * as long as the function's place in the query.
 */
DrMarked *
dr_marked_begin(const DrRollup *rollup, FunctionCallInfo fcinfo, int first)
{
	MemoryContext context = AllocSetContextCreate(fcinfo->flinfo->fn_mcxt,
												  "dailyrollup marked keys",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);
	DrMarked   *marked = palloc0(sizeof(DrMarked));
	Relation	rel = table_open(rollup->marks, AccessShareLock);

	marked->relation = rollup->marks;
	marked->dirties = dr_catalog_dirties_live(rollup);
	marked->n = PG_NARGS() - first;
	marked->context = context;
	marked->last = palloc(marked->n * sizeof(NullableDatum));
	check_columns(marked, RelationGetDescr(rel), fcinfo, first);
	set_types(marked, RelationGetDescr(rel));
	table_close(rel, AccessShareLock);
	MemoryContextSwitchTo(before);
	return marked;
}

/* Is it over the key's columns, as they are compared? */
static bool
is_over_key(const void *context, Relation index)
{
	const DrMarked *marked = context;
	Form_pg_index form = index->rd_index;

	if (form->indnkeyatts != marked->n)
		return false;
	for (int i = 0; i < marked->n; i++)
		if (form->indkey.values[i] != i + 1 ||
			index->rd_indcollation[i] != marked->types[i].collation ||
			index->rd_opfamily[i] != marked->types[i].entry->btree_opf)
			return false;
	return true;
}

/* ----------------------------------------------------------------- one key */

/* The scan keys that ask an index over the key's columns for that key. */
static void
set_scan_keys(const DrMarked *marked, Relation index, const NullableDatum *key,
			  ScanKey scan_keys)
{
	for (int i = 0; i < marked->n; i++)
	{
		Oid			type = index->rd_opcintype[i];
		Oid			equal;

		if (key[i].isnull)
		{
			ScanKeyEntryInitialize(&scan_keys[i], SK_ISNULL | SK_SEARCHNULL, i + 1,
								   InvalidStrategy, InvalidOid, InvalidOid, InvalidOid,
								   (Datum) 0);
			continue;
		}
		equal = get_opfamily_member(index->rd_opfamily[i], type, type, BTEqualStrategyNumber);
		ScanKeyEntryInitialize(&scan_keys[i], 0, i + 1, BTEqualStrategyNumber, InvalidOid,
							   index->rd_indcollation[i], get_opcode(equal), key[i].value);
	}
}

static void
note_mark(DrMarked *marked, ItemPointer mark)
{
	marked->last_found = true;
	marked->last_mark = *mark;
}

/* Look for marks of the key by that index.  Equal ones stand there in the order of
 * their places. */
static void
find_by_index(DrMarked *marked, Relation rel, Relation index, const NullableDatum *key)
{
	ScanKeyData scan_keys[INDEX_MAX_KEYS];
	NullableDatum *other = palloc(marked->n * sizeof(NullableDatum));
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan = dr_index_beginscan(rel, index, GetActiveSnapshot(), marked->n);

	set_scan_keys(marked, index, key, scan_keys);
	index_rescan(scan, scan_keys, marked->n, NULL, 0);
	while (!marked->last_found && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		if (read_key(marked, slot, other))
			note_mark(marked, &slot->tts_tid);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	pfree(other);
}

/* A scan that begins with the first row: no matter which one others are at. */
static TableScanDesc
begin_scan(Relation rel)
{
	return table_beginscan_strat(rel, GetActiveSnapshot(), 0, NULL, true, false);
}

/* Look for them where somebody has dropped an index. */
static void
find_by_scan(DrMarked *marked, Relation rel, const NullableDatum *key)
{
	NullableDatum *other = palloc(marked->n * sizeof(NullableDatum));
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = begin_scan(rel);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		if (!read_key(marked, slot, other) || !same_key(marked, key, other))
			continue;
		note_mark(marked, &slot->tts_tid);
		break;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	pfree(other);
}

/* Look one key up. */
static void
look_up(DrMarked *marked, const NullableDatum *key)
{
	Relation	rel = table_open(marked->relation, AccessShareLock);
	Relation	index = dr_marks_open_index(rel, marked->n, IS_NOT_NULL, is_over_key, marked);

	marked->last_found = false;
	if (index == NULL)
		find_by_scan(marked, rel, key);
	else
	{
		find_by_index(marked, rel, index, key);
		index_close(index, AccessShareLock);
	}
	table_close(rel, AccessShareLock);
}

static void
remember(DrMarked *marked, const NullableDatum *key)
{
	MemoryContext before = MemoryContextSwitchTo(marked->context);

	if (marked->lookups > 0)
		for (int i = 0; i < marked->n; i++)
			if (!marked->last[i].isnull && !marked->types[i].byval)
				pfree(DatumGetPointer(marked->last[i].value));
	copy_key(marked, marked->last, key);
	marked->lookups++;
	MemoryContextSwitchTo(before);
}

/* ---------------------------------------------------------------- all keys */

static bool
can_be_hashed(const DrMarked *marked)
{
	for (int i = 0; i < marked->n; i++)
		if (!OidIsValid(marked->types[i].entry->hash_proc))
			return false;
	return true;
}

/* Add the key of a row, unless it is there; they come in the order of their
 * places. */
static void
add_key(DrMarked *marked, NullableDatum *key, ItemPointer mark)
{
	bool		found;
	MarkedKey  *entry = marked_insert(marked->all, key, &found);
	NullableDatum *own;

	if (found)
		return;
	own = palloc(marked->n * sizeof(NullableDatum));
	copy_key(marked, own, key);
	entry->key = own;
	entry->mark = *mark;
}

/* Read all marked keys; give it up where they are too many. */
static void
read_all(DrMarked *marked)
{
	MemoryContext context = AllocSetContextCreate(marked->context, "dailyrollup all marked keys",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);
	Relation	rel = table_open(marked->relation, AccessShareLock);
	NullableDatum *key = palloc(marked->n * sizeof(NullableDatum));
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = begin_scan(rel);
	bool		fits = true;

	marked->all = marked_create(context, 64, marked);
	while (fits && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		if (read_key(marked, slot, key))
			add_key(marked, key, &slot->tts_tid);
		fits = MemoryContextMemAllocated(context, false) <= get_hash_memory_limit();
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
	MemoryContextSwitchTo(before);
	if (fits)
		return;
	marked->all = NULL;
	MemoryContextDelete(context);
}

static bool
find_among_all(DrMarked *marked, const NullableDatum *key, ItemPointer mark)
{
	MarkedKey  *entry = marked->all->members == 0 ? NULL : marked_lookup(marked->all, key);

	if (entry != NULL && mark != NULL)
		*mark = entry->mark;
	return entry != NULL;
}

/*
 * Has the key a mark that counts?  Where "mark" is given, it is set to the first
 * of them, by place: the same one for whoever asks by this snapshot.
 */
bool
dr_marked_find(DrMarked *marked, const NullableDatum *key, ItemPointer mark)
{
	if (marked->all != NULL)
		return find_among_all(marked, key, mark);
	if (marked->lookups == 0 || !same_image(marked, key, marked->last))
	{
		if (marked->lookups >= FEW_KEYS && !marked->read_all)
		{
			marked->read_all = true;
			if (can_be_hashed(marked))
				read_all(marked);
			if (marked->all != NULL)
				return find_among_all(marked, key, mark);
		}
		look_up(marked, key);
		remember(marked, key);
	}
	if (marked->last_found && mark != NULL)
		*mark = marked->last_mark;
	return marked->last_found;
}

/* --------------------------------------------------------------- long keys */

/* How many columns a key has; 0: its type is gone. */
static int
key_columns(const DrRollup *rollup)
{
	TupleDesc	desc = lookup_rowtype_tupdesc_noerror(rollup->key_type, -1, true);
	int			n = desc == NULL ? 0 : desc->natts;

	if (desc != NULL)
		ReleaseTupleDesc(desc);
	return n;
}

/* Is there a mark that counts, of a key that is not plain, by the active snapshot? */
bool
dr_marked_has_long(const DrRollup *rollup)
{
	Relation	rel = table_open(rollup->marks, AccessShareLock);
	bool		found = dr_marks_has_long(rel, GetActiveSnapshot(), key_columns(rollup),
								 dr_catalog_dirties_live(rollup));

	table_close(rel, AccessShareLock);
	return found;
}

/* May any snapshot of this session see such a mark, or one that is not committed
 * yet?  "rollup" may be an old version; where its marks are gone, live does not
 * count to a snapshot that sees it, as with such a mark (seen.c). */
bool
dr_marked_may_have_long(const DrRollup *rollup)
{
	Relation	rel = try_relation_open(rollup->marks, AccessShareLock);
	SnapshotData snapshot;
	bool		found;

	if (rel == NULL)
		return true;
	InitNonVacuumableSnapshot(snapshot, GlobalVisTestFor(rel));
	found = dr_marks_has_long(rel, &snapshot, key_columns(rollup), 0);
	relation_close(rel, AccessShareLock);
	return found;
}
