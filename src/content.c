/*
 * content.c
 *		A table's rows against the rows that it should have, in memory.
 *
 * The rows that there should be ("fresh"), which a query returns, are kept in
 * memory by their keys; then one scan of the table's heap, which no index has
 * a say in, tells of each stored row:
 *
 *		its key is not there			surplus
 *		its key has been met			surplus: a copy
 *		it has another image			changed
 *		else							common
 *
 * A fresh row whose key is not met is missing.
 *
 * Memory is bounded as that of the server's hash aggregation.  Where all keys
 * do not fit, a part of them, by their hash, is compared at a time, and the
 * query and the table are read once for each.
 *
 * It serves where a key is told by the bytes of its values.  The caller works
 * as the rollup's owner, is connected to SPI, and holds locks against writers.
 */
#include "content.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "tcop/dest.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "columns.h"
#include "guc.h"
#include "keytable.h"
#include "pack.h"

/* Tables of so many times the memory are left to the server. */
#define MAX_SIZE		16

/* Keys are split into no more parts; a larger part takes the memory it needs. */
#define MAX_PARTS		65536

/* Of a key with a fresh row. */
typedef struct State
{
	const char *measures;		/* packed */
	Size		size;
	int64		rows;			/* fresh ones, of that image */
	DrEntry    *next_changed;
	ItemPointerData tid;		/* of a changed row */
} State;

typedef struct Places
{
	ItemPointerData *tids;
	Size		n;
	Size		room;
} Places;

struct DrContent
{
	DestReceiver receiver;
	const DrDefinition *def;
	Relation	rel;
	TupleTableSlot *slot;
	AttrNumber *attnos;			/* of the query's columns */
	MemoryContext context;
	MemoryContext part_context;
	MemoryContext row_context;
	Size		limit;
	Size		expected;		/* bytes of fresh rows; 0: not known */

	DrColumns	keys;
	DrColumns	measures;

	/* the part at hand */
	uint32		part;
	uint32		nparts;
	DrKeyTable *fresh;
	DrKeyTable *others;			/* stored keys without a fresh row */
	DrEntry    *changed;
	DrEntry   **last_changed;
	Places		surplus;
	DrCompared	compared;

	/* a visitor's */
	Size		next_surplus;
	DrEntry    *next_changed;
	DrEntry    *next_missing;
};

/* ------------------------------------------------------------------- memory */

static void
begin_part(DrContent *content, uint32 part, uint32 nparts)
{
	MemoryContextReset(content->part_context);
	memset(&content->compared, 0, sizeof(DrCompared));
	memset(&content->surplus, 0, sizeof(Places));
	content->part = part;
	content->nparts = nparts;
	content->fresh = dr_keytable_create(content->part_context, sizeof(State));
	content->others = dr_keytable_create(content->part_context, 0);
	content->changed = NULL;
	content->last_changed = &content->changed;
}

static bool
fits(const DrContent *content)
{
	return content->nparts == MAX_PARTS ||
		dr_keytable_memory(content->fresh) + dr_keytable_memory(content->others) +
		content->surplus.room * sizeof(ItemPointerData) <= content->limit;
}

static void
add_surplus(DrContent *content, const ItemPointerData *tid)
{
	Places	   *places = &content->surplus;

	if (places->n == places->room)
	{
		places->room = Max(places->room * 2, 64);
		places->tids = places->tids == NULL ?
			MemoryContextAlloc(content->part_context, places->room * sizeof(ItemPointerData)) :
			repalloc_huge(places->tids, places->room * sizeof(ItemPointerData));
	}
	places->tids[places->n++] = *tid;
}

static State *
state_of(const DrEntry *entry)
{
	return (State *) dr_keytable_state(entry);
}

/* --------------------------------------------------------------------- rows */

/* Does the row's key belong to the part?  It is left in content->keys. */
static bool
read_key(DrContent *content, TupleTableSlot *slot, const AttrNumber *attnos, DrKey *key)
{
	dr_columns_pack(&content->keys, slot, attnos);
	key->image = content->keys.bytes;
	key->size = content->keys.size;
	key->hash = dr_keytable_hash(key->image, key->size);
	return (key->hash & (content->nparts - 1)) == content->part;
}

/* Has the row whose measures were read last the image of the key's fresh row? */
static bool
is_same(const DrContent *content, const State *state)
{
	return state->size == content->measures.size &&
		memcmp(state->measures, content->measures.bytes, state->size) == 0;
}

static void
keep_measures(DrContent *content, State *state)
{
	char	   *measures = dr_keytable_allocate(content->fresh, content->measures.size);

	memcpy(measures, content->measures.bytes, content->measures.size);
	state->measures = measures;
	state->size = content->measures.size;
}

/* A row that there should be.  Of several with one key the first one counts. */
static void
add_fresh(DrContent *content, TupleTableSlot *slot)
{
	DrKey		key;
	State	   *state;

	slot_getallattrs(slot);
	if (!read_key(content, slot, NULL, &key))
		return;
	content->compared.fresh_rows++;
	state = state_of(dr_keytable_enter(content->fresh, &key));
	dr_columns_pack(&content->measures, slot, NULL);
	if (state->measures == NULL)
	{
		content->compared.fresh_keys++;
		keep_measures(content, state);
	}
	if (is_same(content, state))
		state->rows++;
}

static void
add_changed(DrContent *content, DrEntry *entry)
{
	state_of(entry)->tid = content->slot->tts_tid;
	*content->last_changed = entry;
	content->last_changed = &state_of(entry)->next_changed;
}

/* A row of the table, whose key has a fresh row. */
static void
compare_images(DrContent *content, DrEntry *entry)
{
	State	   *state = state_of(entry);
	bool		same;

	dr_columns_pack(&content->measures, content->slot, content->attnos);
	same = is_same(content, state);
	if (same)
		content->compared.common += state->rows;
	if (entry->found)
		add_surplus(content, &content->slot->tts_tid);
	else if (!same)
		add_changed(content, entry);
}

/* A row of the table. */
static void
look_at_stored(DrContent *content)
{
	DrKey		key;
	DrEntry    *entry;

	slot_getallattrs(content->slot);
	if (!read_key(content, content->slot, content->attnos, &key))
		return;
	content->compared.stored_rows++;
	entry = dr_keytable_find(content->fresh, &key);
	if (entry != NULL)
		compare_images(content, entry);
	else
	{
		add_surplus(content, &content->slot->tts_tid);
		entry = dr_keytable_enter(content->others, &key);
	}
	if (!entry->found)
		content->compared.stored_keys++;
	entry->found = true;
}

/* -------------------------------------------------------------------- parts */

static bool
receive_slot(TupleTableSlot *slot, DestReceiver *self)
{
	DrContent  *content = (DrContent *) self;
	MemoryContext before = MemoryContextSwitchTo(content->row_context);

	add_fresh(content, slot);
	MemoryContextSwitchTo(before);
	MemoryContextReset(content->row_context);
	return fits(content);
}

static void
receiver_starts(DestReceiver *self, int operation, TupleDesc typeinfo)
{
}

static void
receiver_ends(DestReceiver *self)
{
}

/* Keep the part's fresh rows; false where memory does not suffice. */
static bool
load(DrContent *content, const char *fresh, ParamListInfo params)
{
	SPIExecuteOptions options = {.params = params, .dest = &content->receiver};

	if (SPI_execute_extended(fresh, &options) < 0)
		elog(ERROR, "could not execute \"%s\"", fresh);
	return fits(content);
}

/* Look at the part's stored rows, by the heap; false likewise. */
static bool
walk(DrContent *content)
{
	MemoryContext before;
	TableScanDesc scan;
	bool		goes_on = true;

	CommandCounterIncrement();
	PushActiveSnapshot(GetLatestSnapshot());
	scan = table_beginscan(content->rel, GetActiveSnapshot(), 0, NULL);
	before = MemoryContextSwitchTo(content->row_context);
	while (goes_on && table_scan_getnextslot(scan, ForwardScanDirection, content->slot))
	{
		CHECK_FOR_INTERRUPTS();
		look_at_stored(content);
		MemoryContextReset(content->row_context);
		goes_on = fits(content);
	}
	MemoryContextSwitchTo(before);
	ExecClearTuple(content->slot);
	table_endscan(scan);
	PopActiveSnapshot();
	return goes_on;
}

static void
add_up(DrCompared *total, const DrCompared *part)
{
	total->fresh_rows += part->fresh_rows;
	total->fresh_keys += part->fresh_keys;
	total->stored_rows += part->stored_rows;
	total->stored_keys += part->stored_keys;
	total->common += part->common;
}

/* Compare a part; where memory does not suffice, the two halves of it. */
static void
compare_part(DrContent *content, const char *fresh, ParamListInfo params,
			 DrContentVisit visit, void *arg, DrCompared *result, uint32 part, uint32 nparts)
{
	begin_part(content, part, nparts);
	if (!load(content, fresh, params) || !walk(content))
	{
		compare_part(content, fresh, params, visit, arg, result, part, nparts * 2);
		compare_part(content, fresh, params, visit, arg, result, part + nparts, nparts * 2);
		return;
	}
	add_up(result, &content->compared);
	content->next_surplus = 0;
	content->next_changed = content->changed;
	content->next_missing = dr_keytable_first(content->fresh);
	if (visit != NULL)
		visit(content, arg);
}

/* Into how many parts are keys split at first?  A row takes about twice as much
 * as it does in its table. */
static uint32
first_parts(const DrContent *content)
{
	uint32		nparts = 1;

	while (nparts < MAX_PARTS && content->expected * 2 / nparts > content->limit)
		nparts *= 2;
	return nparts;
}

/*
 * Compare the table's rows with those that "fresh" returns, a SELECT of the
 * query's columns, which is run once or more often.  The visitor, if any, is
 * called for each part of the keys, and may write to the rows of that part.
 */
void
dr_content_compare(DrContent *content, const char *fresh, ParamListInfo params,
				   DrContentVisit visit, void *arg, DrCompared *result)
{
	uint32		nparts = first_parts(content);

	memset(result, 0, sizeof(DrCompared));
	for (uint32 part = 0; part < nparts; part++)
		compare_part(content, fresh, params, visit, arg, result, part, nparts);
}

/* -------------------------------------------------------------- the outcome */

bool
dr_content_next_surplus(DrContent *content, ItemPointerData *tid)
{
	if (content->next_surplus == content->surplus.n)
		return false;
	*tid = content->surplus.tids[content->next_surplus++];
	return true;
}

static void
unpack(const DrContent *content, const DrEntry *entry, Datum *values, bool *nulls)
{
	dr_columns_unpack(&content->keys, entry->key.image, values, nulls);
	dr_columns_unpack(&content->measures, state_of(entry)->measures, values, nulls);
}

bool
dr_content_next_changed(DrContent *content, ItemPointerData *tid, Datum *values, bool *nulls)
{
	DrEntry    *entry = content->next_changed;

	if (entry == NULL)
		return false;
	*tid = state_of(entry)->tid;
	unpack(content, entry, values, nulls);
	content->next_changed = state_of(entry)->next_changed;
	return true;
}

bool
dr_content_next_missing(DrContent *content, Datum *values, bool *nulls)
{
	DrEntry    *entry = content->next_missing;

	while (entry != NULL && entry->found)
		entry = entry->next;
	if (entry == NULL)
		return false;
	unpack(content, entry, values, nulls);
	content->next_missing = entry->next;
	return true;
}

/* --------------------------------------------------------------- begin, end */

static bool
is_column_of(Form_pg_attribute attribute, const DrDefinition *def)
{
	for (int i = 0; i < def->ncolumns; i++)
	{
		const DrColumn *column = &def->columns[i];

		if (strcmp(column->name, NameStr(attribute->attname)) == 0)
			return attribute->atttypid == column->type &&
				attribute->atttypmod == column->typmod &&
				attribute->attcollation == column->collation &&
				attribute->attgenerated == '\0';
	}
	return false;
}

/* Has it the query's columns, as the query gives them?  "only": and no others. */
bool
dr_content_has_columns(const DrDefinition *def, Relation rel, bool only)
{
	TupleDesc	desc = RelationGetDescr(rel);
	int			n = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (attribute->attisdropped)
			continue;
		if (is_column_of(attribute, def))
			n++;
		else if (only)
			return false;
	}
	return n == def->ncolumns;
}

/* Are keys told by their bytes? */
static bool
are_keys_plain(const DrDefinition *def)
{
	for (int i = 0; i < def->nkeys; i++)
	{
		const DrColumn *key = &def->columns[def->keys[i]];

		if (!dr_pack_tells_apart(key->type, key->collation))
			return false;
	}
	return true;
}

/* Bytes of the table, with what is stored out of line. */
static Size
size_of(Relation table)
{
	Size		blocks = RelationGetNumberOfBlocks(table);
	Relation	toast;

	if (OidIsValid(table->rd_rel->reltoastrelid))
	{
		toast = table_open(table->rd_rel->reltoastrelid, AccessShareLock);
		blocks += RelationGetNumberOfBlocks(toast);
		table_close(toast, AccessShareLock);
	}
	return blocks * BLCKSZ;
}

/* Has the table the query's columns, and a size that memory is for? */
static bool
suits(const DrDefinition *def, Relation table)
{
	return dr_content_has_columns(def, table, false) &&
		size_of(table) / MAX_SIZE <= get_hash_memory_limit();
}

/*
 * NULL where rows of the table cannot be compared in this way.  "fresh" is the
 * table that the other rows are in, if they are in one.
 */
DrContent *
dr_content_prepare(const DrDefinition *def, Relation table, Relation fresh)
{
	DestReceiver receiver = {
		.receiveSlot = receive_slot,
		.rStartup = receiver_starts,
		.rShutdown = receiver_ends,
		.rDestroy = receiver_ends,
		.mydest = DestNone
	};
	MemoryContext context;
	MemoryContext before;
	DrContent  *content;

	if (dr_guc_fold_method == DR_FOLD_STATEMENT || !are_keys_plain(def) ||
		!suits(def, table) || (fresh != NULL && !suits(def, fresh)))
		return NULL;
	context = AllocSetContextCreate(CurrentMemoryContext, "dailyrollup content",
									ALLOCSET_DEFAULT_SIZES);
	before = MemoryContextSwitchTo(context);
	content = palloc0(sizeof(DrContent));
	content->receiver = receiver;
	content->def = def;
	content->rel = table;
	content->slot = table_slot_create(table, NULL);
	content->context = context;
	content->part_context = AllocSetContextCreate(context, "dailyrollup part",
												  ALLOCSET_DEFAULT_SIZES);
	content->row_context = AllocSetContextCreate(context, "dailyrollup row",
												 ALLOCSET_DEFAULT_SIZES);
	content->limit = get_hash_memory_limit();
	content->expected = fresh == NULL ? 0 : size_of(fresh);
	dr_columns_init(&content->keys, def->nkeys);
	dr_columns_init(&content->measures, def->ncolumns);
	content->attnos = palloc(def->ncolumns * sizeof(AttrNumber));
	for (int i = 0; i < def->nkeys; i++)
		dr_columns_add(&content->keys, def, def->keys[i]);
	for (int i = 0; i < def->ncolumns; i++)
	{
		content->attnos[i] = get_attnum(RelationGetRelid(table), def->columns[i].name);
		if (!def->columns[i].is_key)
			dr_columns_add(&content->measures, def, i);
	}
	MemoryContextSwitchTo(before);
	return content;
}

void
dr_content_end(DrContent *content)
{
	ExecDropSingleTupleTableSlot(content->slot);
	MemoryContextDelete(content->context);
}
