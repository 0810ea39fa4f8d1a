/*
 * gather.c
 *		What a transaction has inserted, by keys in memory.
 *
 * The rows of a batch are read once: which of an event's rows counts, and what
 * the query gives over them, is known before any statement runs.  What the
 * tables hold is told by the caller (fold.c), who runs the statements.  Of each
 * event and key is decided what the statements of folding.c would decide:
 *
 *		all rows of the event are new			merged with what is stored
 *		an old row of the event counts			nothing
 *		a new row counts instead of an old one	the key is computed again
 *
 * Where the query has no WHERE, live itself tells that an event is new: its
 * row has an event of each key, and with max(time) the last one.  So the source
 * is asked for the others alone, and for a key that live did not have the row
 * is right as it was proposed.
 *
 * It serves where digest.c does, for keys without a NULL, and where no expression
 * may fail for a row that an old one turns out to beat.
 */
#include "gather.h"

#include "access/htup_details.h"
#include "access/tupdesc.h"
#include "catalog/pg_type.h"
#include "executor/nodeHash.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "digest.h"
#include "folding.h"
#include "keytable.h"
#include "tally.h"

/* An event: its row that counts, of those in the batch. */
typedef struct Event
{
	Datum	   *values;
	bool	   *nulls;
	DrEntry    *entry;
	int64		fresh;			/* its rows in the batch */
	int64		fresh_equal;	/* of these, the same as that one */
	int64		stored;			/* its rows in the source, ours included */
	int64		stored_equal;
	bool		beaten;			/* by one of these */
} Event;

/* What is known of a key; its place is that of its entry, as a number. */
typedef struct Fate
{
	int32		number;
	bool		proposed;		/* by the row that live had */
	bool		is_new;			/* live did not have it */
	bool		has_old;		/* events of which an old row counts */
	bool		has_newest;
	int64		newest;			/* no event that live has of it is later */
	ItemPointerData place;		/* live's row, as it was locked */
	Datum	   *stored;			/* NULL: none */
	bool	   *stored_nulls;
} Fate;

struct DrGather
{
	const DrDefinition *def;
	MemoryContext context;
	DrDigest   *digest;
	DrTally    *tally;
	DrTallyRow *row;
	DrKeyTable *table;
	Size		fate_offset;
	int			newest;			/* the column that is max(time); -1: none */
	DrEntry   **entries;
	int			nentries;
	Event	   *events;
	int			nevents;
	int			room;			/* for events, and entries */
	Size		stored;			/* bytes of live's rows */
};

static Fate *
fate_of(const DrGather *gather, const DrEntry *entry)
{
	return (Fate *) ((char *) dr_keytable_state(entry) + gather->fate_offset);
}

/* ------------------------------------------------------------------ reading */

static int64
instant_of(const DrDefinition *def, Datum time)
{
	return def->time_kind == DR_TIME_DATE ? DatumGetInt32(time) : DatumGetInt64(time);
}

/* A row of an event that is there already. */
static void
add_duplicate(DrGather *gather, Event *event, Datum *values, bool *nulls)
{
	int			order = dr_intake_compare(dr_digest_intake(gather->digest), values, nulls,
										  event->values, event->nulls);

	event->fresh++;
	if (order == 0)
		event->fresh_equal++;
	if (order >= 0)
		return;
	event->values = values;
	event->nulls = nulls;
	event->fresh_equal = 1;
}

static void
make_room(DrGather *gather)
{
	if (gather->nevents < gather->room)
		return;
	gather->room *= 2;
	gather->events = repalloc_huge(gather->events, gather->room * sizeof(Event));
	gather->entries = repalloc_huge(gather->entries, gather->room * sizeof(DrEntry *));
}

/* False where the row's key has a NULL. */
static bool
add_row(DrGather *gather, Datum *values, bool *nulls)
{
	DrEntry    *entry = dr_intake_enter(dr_digest_intake(gather->digest), gather->table, values, nulls);
	DrEvent    *known;
	bool		found;

	if (entry == NULL)
		return false;
	make_room(gather);
	if (entry->nevents == 0)
	{
		fate_of(gather, entry)->number = gather->nentries;
		gather->entries[gather->nentries++] = entry;
	}
	known = dr_keytable_event(gather->table, entry, instant_of(gather->def, values[0]), &found);
	if (found)
		add_duplicate(gather, &gather->events[ItemPointerGetBlockNumberNoCheck(&known->tid)],
					  values, nulls);
	else
	{
		Event		event = {
			.values = values, .nulls = nulls, .entry = entry,
			.fresh = 1, .fresh_equal = 1
		};

		ItemPointerSet(&known->tid, gather->nevents, FirstOffsetNumber);
		gather->events[gather->nevents++] = event;
	}
	return true;
}

/* Read the batch; false where a key has a NULL. */
static bool
read_rows(DrGather *gather, Tuplestorestate *rows, TupleDesc desc)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	bool		fit = true;

	tuplestore_rescan(rows);
	while (fit && tuplestore_gettupleslot(rows, true, false, slot))
	{
		Datum	   *values = palloc(desc->natts * sizeof(Datum));
		bool	   *nulls = palloc(desc->natts * sizeof(bool));

		CHECK_FOR_INTERRUPTS();
		heap_deform_tuple(ExecCopySlotHeapTuple(slot), desc, values, nulls);
		if (!nulls[0])
			fit = add_row(gather, values, nulls);
	}
	ExecDropSingleTupleTableSlot(slot);
	return fit;
}

static void
add_event(DrGather *gather, const Event *event)
{
	dr_tally_read(gather->tally, event->values, event->nulls, gather->row);
	if (gather->row->counts)
		dr_tally_add(gather->tally, gather->table, event->entry, gather->row);
	dr_tally_forget(gather->tally);
}

/* Is there a key of which the WHERE leaves nothing? */
static bool
is_any_void(const DrGather *gather)
{
	for (int i = 0; i < gather->nentries; i++)
		if (gather->entries[i]->counted == 0)
			return true;
	return false;
}

/* The column that is the time of the last event, without any condition; -1. */
static int
find_newest(const DrDefinition *def)
{
	for (int i = 0; def->where == NULL && i < def->ncolumns; i++)
	{
		const DrColumn *column = &def->columns[i];

		if (!column->is_key && column->kind == DR_MAX && column->filter == NULL &&
			column->otherwise == NULL && IsA(column->arg, Var) &&
			((Var *) column->arg)->varattno == 1)
			return i;
	}
	return -1;
}

static bool
gather_rows(DrGather *gather, const DrRollup *rollup, Tuplestorestate *rows, TupleDesc desc)
{
	if (!read_rows(gather, rows, desc))
		return false;
	for (int i = 0; i < gather->nevents; i++)
		add_event(gather, &gather->events[i]);
	return !is_any_void(gather) || dr_folding_nulls_allowed(gather->def, rollup->live);
}

/*
 * Gather the rows, whose columns are those of events.  NULL where that cannot
 * be done.  The caller works as the rollup's owner; all is in its memory.
 */
DrGather *
dr_gather_begin(const DrDefinition *def, const DrRollup *rollup, Tuplestorestate *rows,
				TupleDesc desc)
{
	DrDigest   *digest = dr_folding_is_blind_at_ties(def) ? NULL : dr_digest_prepare(def, true);
	DrGather   *gather;

	if (digest == NULL)
		return NULL;
	if (dr_digest_tally(digest)->may_fail)	/* for a row that an old one beats */
	{
		dr_digest_end(digest);
		return NULL;
	}
	gather = palloc0(sizeof(DrGather));
	gather->def = def;
	gather->context = CurrentMemoryContext;
	gather->digest = digest;
	gather->tally = dr_digest_tally(digest);
	gather->row = dr_tally_make_row(gather->tally);
	gather->fate_offset = MAXALIGN(dr_tally_state_size(gather->tally));
	gather->table = dr_keytable_create(CurrentMemoryContext,
									   gather->fate_offset + sizeof(Fate));
	gather->newest = find_newest(def);
	gather->room = 64;
	gather->events = palloc(gather->room * sizeof(Event));
	gather->entries = palloc(gather->room * sizeof(DrEntry *));
	if (gather_rows(gather, rollup, rows, desc))
		return gather;
	dr_gather_end(gather);
	return NULL;
}

void
dr_gather_end(DrGather *gather)
{
	dr_keytable_destroy(gather->table);
	dr_digest_end(gather->digest);
}

/* ------------------------------------------------------------- descriptions */

static void
describe(TupleDesc desc, int n, const char *name, Oid type, int32 typmod, Oid collation)
{
	TupleDescInitEntry(desc, n, name, type, typmod, 0);
	TupleDescInitEntryCollation(desc, n, collation);
}

static void
begin(DrGathered *result, TupleDesc desc)
{
	result->desc = desc;
	result->rows = tuplestore_begin_heap(true, false, work_mem);
	result->count = 0;
}

/* Rows of live. */
void
dr_gather_describe_row(const DrGather *gather, DrGathered *result)
{
	begin(result, dr_digest_row_desc(gather->digest));
}

/* k1 .. kn */
void
dr_gather_describe_key(const DrGather *gather, DrGathered *result)
{
	begin(result, dr_digest_key_desc(gather->digest));
}

/* A number, k1 .. kn. */
void
dr_gather_describe_numbered_key(const DrGather *gather, DrGathered *result)
{
	TupleDesc	keys = dr_digest_key_desc(gather->digest);
	TupleDesc	desc = CreateTemplateTupleDesc(keys->natts + 1);

	describe(desc, 1, DR_FOLDING_NUMBER, INT4OID, -1, InvalidOid);
	for (int i = 0; i < keys->natts; i++)
		TupleDescCopyEntry(desc, i + 2, keys, i + 1);
	begin(result, desc);
}

/* A number, the columns that tell one event from another. */
void
dr_gather_describe_event(const DrGather *gather, DrGathered *result)
{
	const DrDefinition *def = gather->def;
	TupleDesc	desc = CreateTemplateTupleDesc(def->ndedup + 1);

	describe(desc, 1, DR_FOLDING_NUMBER, INT4OID, -1, InvalidOid);
	for (int i = 0; i < def->ndedup; i++)
	{
		const DrEventColumn *event = &def->events[def->dedup_by[i]];

		describe(desc, i + 2, event->name, event->type, event->typmod, event->collation);
	}
	begin(result, desc);
}

/* A place in live, its row there. */
void
dr_gather_describe_merged(const DrGather *gather, DrGathered *result)
{
	TupleDesc	row = dr_digest_row_desc(gather->digest);
	TupleDesc	desc = CreateTemplateTupleDesc(row->natts + 1);

	describe(desc, 1, DR_FOLDING_PLACE, TIDOID, -1, InvalidOid);
	for (int i = 0; i < row->natts; i++)
		TupleDescCopyEntry(desc, i + 2, row, i + 1);
	begin(result, desc);
}

static void
put(DrGathered *result, Datum *values, bool *nulls)
{
	tuplestore_putvalues(result->rows, result->desc, values, nulls);
	result->count++;
}

static void
put_numbered_key(const DrGather *gather, const DrEntry *entry, DrGathered *result)
{
	Datum		values[INDEX_MAX_KEYS + 1];
	bool		nulls[INDEX_MAX_KEYS + 1];

	values[0] = Int32GetDatum(fate_of(gather, entry)->number);
	nulls[0] = false;
	dr_intake_read_key(dr_digest_intake(gather->digest), entry, values + 1, nulls + 1);
	put(result, values, nulls);
}

/* ------------------------------------------------- before the keys are locked */

/* All keys. */
void
dr_gather_all(DrGather *gather, DrGathered *result)
{
	for (int i = 0; i < gather->nentries; i++)
		put_numbered_key(gather, gather->entries[i], result);
}

/* A row of live, with its number, is proposed for its key itself. */
void
dr_gather_propose_stored(DrGather *gather, HeapTuple row, TupleDesc desc, DrGathered *result)
{
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	heap_deform_tuple(row, desc, values, nulls);
	fate_of(gather, gather->entries[DatumGetInt32(values[0])])->proposed = true;
	put(result, values + 1, nulls + 1);
}

/* For the other keys, what the batch gives. */
void
dr_gather_propose(DrGather *gather, DrGathered *result)
{
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	for (int i = 0; i < gather->nentries; i++)
	{
		if (fate_of(gather, gather->entries[i])->proposed)
			continue;
		dr_digest_read_row(gather->digest, gather->entries[i], values, nulls);
		put(result, values, nulls);
	}
}

/* Live did not have that key, and has it now. */
void
dr_gather_is_new(DrGather *gather, HeapTuple key, TupleDesc desc)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];
	DrEntry    *entry;

	heap_deform_tuple(key, desc, values, nulls);
	dr_intake_find(dr_digest_intake(gather->digest), gather->table, 1, values, nulls, &entry);
	if (entry != NULL)			/* a trigger may have changed the key */
		fate_of(gather, entry)->is_new = true;
}

static DrEntry *
entry_of_row(DrGather *gather, const Datum *values, const bool *nulls)
{
	const DrDefinition *def = gather->def;
	Datum		key[INDEX_MAX_KEYS];
	bool		key_nulls[INDEX_MAX_KEYS];
	DrEntry    *entry;

	for (int i = 0; i < def->nkeys; i++)
	{
		key[i] = values[def->keys[i]];
		key_nulls[i] = nulls[def->keys[i]];
	}
	dr_intake_find(dr_digest_intake(gather->digest), gather->table, 1, key, key_nulls, &entry);
	return entry;
}

static void
note_stored(const DrGather *gather, Fate *fate, ItemPointer place, Datum *values, bool *nulls)
{
	fate->place = *place;
	fate->stored = values;
	fate->stored_nulls = nulls;
	fate->has_newest = gather->newest >= 0 && !nulls[gather->newest];
	if (fate->has_newest)
		fate->newest = instant_of(gather->def, values[gather->newest]);
}

/* Whoever knows the proof may have made the row up. */
static void
check_types(const DrGather *gather, TupleDesc desc)
{
	TupleDesc	expected = dr_digest_row_desc(gather->digest);
	bool		same = desc->natts == expected->natts;

	for (int i = 0; same && i < desc->natts; i++)
		same = TupleDescAttr(desc, i)->atttypid == TupleDescAttr(expected, i)->atttypid;
	if (!same)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("this is no row of the rollup")));
}

/*
 * Live has a row at that place, and it is locked: its values stay.  Where there
 * are too many of them, the key is computed again.  (A row of another key is
 * locked where a trigger has changed the key.)
 */
void
dr_gather_is_locked(DrGather *gather, ItemPointer place, HeapTuple row, TupleDesc desc)
{
	const DrDefinition *def = gather->def;
	MemoryContext before = MemoryContextSwitchTo(gather->context);
	Datum	   *values = palloc(def->ncolumns * sizeof(Datum));
	bool	   *nulls = palloc(def->ncolumns * sizeof(bool));
	HeapTuple	copy = heap_copytuple(row);
	DrEntry    *entry;

	check_types(gather, desc);
	heap_deform_tuple(copy, desc, values, nulls);
	entry = entry_of_row(gather, values, nulls);
	gather->stored += row->t_len;
	if (entry != NULL && gather->stored <= get_hash_memory_limit())
		note_stored(gather, fate_of(gather, entry), place, values, nulls);
	else
	{
		if (entry != NULL)
			entry->again = true;
		gather->stored -= row->t_len;
		heap_freetuple(copy);
	}
	MemoryContextSwitchTo(before);
}

/* ---------------------------------------------------------------- after that */

/* Does live tell that no row of the event was there before ours? */
static bool
is_told_new(const DrGather *gather, const Event *event)
{
	const Fate *fate = fate_of(gather, event->entry);

	if (gather->def->where != NULL)
		return false;
	return fate->is_new ||
		(fate->has_newest && instant_of(gather->def, event->values[0]) > fate->newest);
}

/* The events that may have an older row. */
void
dr_gather_events(DrGather *gather, DrGathered *result)
{
	const DrDefinition *def = gather->def;
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	for (int i = 0; i < gather->nevents; i++)
	{
		const Event *event = &gather->events[i];

		if (is_told_new(gather, event))
			continue;
		values[0] = Int32GetDatum(i);
		nulls[0] = false;
		for (int j = 0; j < def->ndedup; j++)
		{
			values[j + 1] = event->values[def->dedup_by[j]];
			nulls[j + 1] = event->nulls[def->dedup_by[j]];
		}
		put(result, values, nulls);
	}
}

/* A row of the source, with the number of its event. */
void
dr_gather_found(DrGather *gather, HeapTuple row, TupleDesc desc)
{
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];
	Event	   *event;
	int			order;

	heap_deform_tuple(row, desc, values, nulls);
	event = &gather->events[DatumGetInt32(values[0])];
	order = dr_intake_compare(dr_digest_intake(gather->digest), values + 1, nulls + 1,
							  event->values, event->nulls);
	event->stored++;
	if (order == 0)
		event->stored_equal++;
	if (order < 0)
		event->beaten = true;
}

/* The source's rows include the new ones, so a row that counts is an old one
 * where the source has it more often than it was inserted. */
static void
decide_event(DrGather *gather, const Event *event)
{
	if (event->stored <= event->fresh)
		return;
	if (event->beaten || event->stored_equal > event->fresh_equal)
		fate_of(gather, event->entry)->has_old = true;
	else
		event->entry->again = true;
}

/*
 * What is merged is what remains of the batch.  A key that live did not have
 * must have got just that; it has not where others have deleted the row that
 * was proposed.
 */
static void
decide_key(DrGather *gather, DrEntry *entry)
{
	const Fate *fate = fate_of(gather, entry);

	if (fate->is_new && (fate->proposed || fate->has_old || entry->counted == 0))
		entry->again = true;
	if (entry->again || !fate->has_old)
		return;
	memset(dr_keytable_state(entry), 0, dr_tally_state_size(gather->tally));
	entry->counted = 0;
}

/* All rows of events that may be older have been told. */
void
dr_gather_decide(DrGather *gather)
{
	for (int i = 0; i < gather->nevents; i++)
		decide_event(gather, &gather->events[i]);
	for (int i = 0; i < gather->nentries; i++)
		decide_key(gather, gather->entries[i]);
	for (int i = 0; i < gather->nevents; i++)
	{
		const Event *event = &gather->events[i];

		if (fate_of(gather, event->entry)->has_old && !event->entry->again &&
			event->stored <= event->fresh)
			add_event(gather, event);
	}
}

/* Live's rows that change, by their places, and what they become. */
void
dr_gather_merge(DrGather *gather, DrGathered *result)
{
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	for (int i = 0; i < gather->nentries; i++)
	{
		DrEntry    *entry = gather->entries[i];
		Fate	   *fate = fate_of(gather, entry);

		if (fate->stored == NULL || entry->again || entry->counted == 0)
			continue;
		dr_tally_merge(gather->tally, gather->table, entry, fate->stored, fate->stored_nulls);
		values[0] = PointerGetDatum(&fate->place);
		nulls[0] = false;
		dr_digest_read_row(gather->digest, entry, values + 1, nulls + 1);
		put(result, values, nulls);
		dr_tally_forget(gather->tally);
	}
}

/* The keys that are to be computed again. */
void
dr_gather_again(DrGather *gather, DrGathered *result)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];

	for (int i = 0; i < gather->nentries; i++)
	{
		if (!gather->entries[i]->again)
			continue;
		dr_intake_read_key(dr_digest_intake(gather->digest), gather->entries[i], values, nulls);
		put(result, values, nulls);
	}
}
