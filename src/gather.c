/*
 * gather.c
 *		What a transaction has inserted, by keys in memory.
 *
 * The rows of a batch are read once: which of an event's rows counts, and what
 * the query gives over them, is known before anything is looked up.  What the
 * tables hold is told by those who look (seize.c, offer.c for statements).  Of each
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
 * Where no event can be there twice each row counts, and is added as it is read.
 *
 * It serves where digest.c does, for keys without a NULL, and where no expression
 * may fail for a row that an old one turns out to beat.
 */
#include "gather.h"

#include "access/htup_details.h"
#include "access/tupdesc.h"
#include "catalog/pg_type.h"
#include "executor/nodeHash.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "duplicates.h"
#include "folding.h"
#include "intake.h"
#include "keytable.h"
#include "phrase.h"
#include "tally.h"

DrFate *
dr_gather_fate(const DrGather *gather, const DrEntry *entry)
{
	return (DrFate *) ((char *) dr_keytable_state(entry) + gather->fate_offset);
}

/* ------------------------------------------------------------------ reading */

static int64
instant_of(const DrDefinition *def, Datum time)
{
	return def->time_kind == DR_TIME_DATE ? DatumGetInt32(time) : DatumGetInt64(time);
}

/* A row of an event that is there already. */
static void
add_duplicate(DrGather *gather, DrGatherEvent *event, Datum *values, bool *nulls)
{
	int			order = dr_intake_compare(gather->intake, values, nulls,
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
	if (gather->nevents < gather->room && gather->nentries < gather->room)
		return;
	gather->room *= 2;
	gather->events = repalloc_huge(gather->events, gather->room * sizeof(DrGatherEvent));
	gather->entries = repalloc_huge(gather->entries, gather->room * sizeof(DrEntry *));
}

/* False where the row's key has a NULL. */
static bool
add_row(DrGather *gather, Datum *values, bool *nulls)
{
	DrEntry    *entry = dr_intake_enter(gather->intake, gather->table, values, nulls);
	DrEvent    *known;
	DrFate	   *fate;
	int64		instant;
	bool		found;

	if (entry == NULL)
		return false;
	make_room(gather);
	instant = instant_of(gather->def, values[0]);
	fate = dr_gather_fate(gather, entry);
	if (entry->nevents == 0)
	{
		fate->number = gather->nentries;
		gather->entries[gather->nentries++] = entry;
	}
	if (entry->nevents == 0 || instant < fate->oldest)
		fate->oldest = instant;
	known = dr_keytable_event(gather->table, entry, instant, &found);
	if (found)
		add_duplicate(gather, &gather->events[ItemPointerGetBlockNumberNoCheck(&known->tid)],
					  values, nulls);
	else
	{
		DrGatherEvent event = {
			.values = values, .nulls = nulls, .entry = entry,
			.fresh = 1, .fresh_equal = 1
		};

		ItemPointerSet(&known->tid, gather->nevents, FirstOffsetNumber);
		gather->events[gather->nevents++] = event;
	}
	return true;
}

/* A row that counts for itself; false where its key has a NULL. */
static bool
add_single(DrGather *gather, Datum *values, bool *nulls)
{
	DrEntry    *entry;

	if (!dr_tally_counts(gather->tally, values, nulls, gather->row))
		return true;
	entry = dr_intake_enter(gather->intake, gather->table, values, nulls);
	if (entry == NULL)
		return false;
	make_room(gather);
	if (entry->counted == 0)
		gather->entries[gather->nentries++] = entry;
	dr_tally_read(gather->tally, values, nulls, gather->row);
	dr_tally_add(gather->tally, gather->table, entry, gather->row);
	dr_tally_forget(gather->tally);
	return true;
}

/* Read the batch; false where a key has a NULL.  The rows of events stay. */
static bool
read_rows(DrGather *gather, const DrRows *rows)
{
	DrRowsReader reader;
	Datum	   *values;
	bool	   *nulls;
	bool		fit = true;

	dr_rows_begin_read(rows, &reader);
	while (fit && dr_rows_read(&reader, gather->deduplicate, &values, &nulls))
	{
		CHECK_FOR_INTERRUPTS();
		if (!nulls[0])
			fit = gather->deduplicate ? add_row(gather, values, nulls) :
				add_single(gather, values, nulls);
	}
	dr_rows_end_read(&reader);
	return fit;
}

static void
add_event(DrGather *gather, const DrGatherEvent *event)
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
gather_rows(DrGather *gather, const DrRollup *rollup, const DrRows *rows)
{
	if (!read_rows(gather, rows))
		return false;
	for (int i = 0; i < gather->nevents; i++)
		add_event(gather, &gather->events[i]);
	return !is_any_void(gather) || dr_folding_nulls_allowed(gather->def, rollup->live);
}

/*
 * Gather the rows, whose columns are those of events, and which stay to the end.
 * NULL where that cannot be done.  The caller works as the rollup's owner; all is in
 * its memory.
 */
DrGather *
dr_gather_begin(const DrDefinition *def, const DrRollup *rollup, const DrRows *rows)
{
	bool		deduplicate = dr_duplicates_are_possible(def);
	DrIntake   *intake = dr_folding_is_blind_at_ties(def) ? NULL :
		dr_intake_make(def, deduplicate);
	DrGather   *gather;

	if (intake == NULL)
		return NULL;
	if (dr_intake_tally(intake)->may_fail)	/* for a row that an old one beats */
	{
		dr_intake_end(intake);
		return NULL;
	}
	gather = palloc0(sizeof(DrGather));
	gather->def = def;
	gather->context = CurrentMemoryContext;
	gather->deduplicate = deduplicate;
	gather->intake = intake;
	gather->tally = dr_intake_tally(intake);
	gather->row = dr_tally_make_row(gather->tally);
	gather->fate_offset = MAXALIGN(dr_tally_state_size(gather->tally));
	gather->table = dr_keytable_create(CurrentMemoryContext,
									   gather->fate_offset + sizeof(DrFate));
	gather->order = dr_order_make(def);
	gather->newest = find_newest(def);
	gather->room = 64;
	gather->events = palloc(gather->room * sizeof(DrGatherEvent));
	gather->entries = palloc(gather->room * sizeof(DrEntry *));
	if (gather_rows(gather, rollup, rows))
		return gather;
	dr_gather_end(gather);
	return NULL;
}

void
dr_gather_end(DrGather *gather)
{
	dr_keytable_destroy(gather->table);
	dr_intake_end(gather->intake);
}

/* ------------------------------------------------------------------- order */

/* A key while keys are ordered. */
typedef struct Ordered
{
	DrEntry    *entry;
	Datum	   *values;
} Ordered;

#define ST_SORT sort_keys
#define ST_ELEMENT_TYPE Ordered
#define ST_COMPARE(a, b, order) dr_order_compare(order, (a)->values, (b)->values)
#define ST_COMPARE_ARG_TYPE DrOrder
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* Number the keys in their own order, that of ORDER BY in statements. */
void
dr_gather_sort(DrGather *gather)
{
	int			nkeys = gather->def->nkeys;
	Ordered    *keys = palloc(gather->nentries * sizeof(Ordered));
	Datum	   *values = palloc(gather->nentries * nkeys * sizeof(Datum));
	bool		nulls[INDEX_MAX_KEYS];

	for (int i = 0; i < gather->nentries; i++)
	{
		keys[i].entry = gather->entries[i];
		keys[i].values = values + i * nkeys;
		dr_intake_read_key(gather->intake, keys[i].entry, keys[i].values, nulls);
	}
	sort_keys(keys, gather->nentries, gather->order);
	for (int i = 0; i < gather->nentries; i++)
	{
		gather->entries[i] = keys[i].entry;
		dr_gather_fate(gather, keys[i].entry)->number = i;
	}
	pfree(values);
	pfree(keys);
}

/* ------------------------------------------------------------- live's rows */

static void
note_newest(const DrGather *gather, DrFate *fate, const Datum *values, const bool *nulls)
{
	fate->has_newest = gather->newest >= 0 && !nulls[gather->newest];
	if (fate->has_newest)
		fate->newest = instant_of(gather->def, values[gather->newest]);
}

/* Live's row of a key: its values stay.  Where there are too many of them, the
 * key is computed again. */
void
dr_gather_keep(DrGather *gather, DrEntry *entry, ItemPointer place, Datum *values, bool *nulls)
{
	MemoryContext before = MemoryContextSwitchTo(gather->context);
	TupleDesc	desc = dr_intake_row_desc(gather->intake);
	HeapTuple	copy = heap_form_tuple(desc, values, nulls);
	DrFate	   *fate = dr_gather_fate(gather, entry);

	if (gather->stored + copy->t_len > get_hash_memory_limit())
	{
		entry->again = true;
		heap_freetuple(copy);
	}
	else
	{
		gather->stored += copy->t_len;
		fate->place = *place;
		fate->stored = palloc(desc->natts * sizeof(Datum));
		fate->stored_nulls = palloc(desc->natts * sizeof(bool));
		heap_deform_tuple(copy, desc, fate->stored, fate->stored_nulls);
		note_newest(gather, fate, fate->stored, fate->stored_nulls);
	}
	MemoryContextSwitchTo(before);
}

/* The key of that number. */
void
dr_gather_key(const DrGather *gather, int i, Datum *values, bool *nulls)
{
	dr_intake_read_key(gather->intake, gather->entries[i], values, nulls);
}

/* What the batch gives for it. */
void
dr_gather_row(const DrGather *gather, int i, Datum *values, bool *nulls)
{
	dr_intake_read_row(gather->intake, gather->entries[i], values, nulls);
}

/* Live did not have it, and has that row now. */
void
dr_gather_add(DrGather *gather, int i)
{
	dr_gather_fate(gather, gather->entries[i])->is_new = true;
}

/*
 * Live has that row of it.  Does the row tell that all events are new, or does
 * each row count anyway?  Where memory does not suffice the key is computed
 * again.
 */
bool
dr_gather_is_decided(DrGather *gather, int i, const Datum *values, const bool *nulls)
{
	DrEntry    *entry = gather->entries[i];
	DrFate	   *fate = dr_gather_fate(gather, entry);

	note_newest(gather, fate, values, nulls);
	if (gather->deduplicate &&
		(gather->def->where != NULL || !fate->has_newest || fate->oldest <= fate->newest))
		return false;
	entry->again |= gather->stored > get_hash_memory_limit();
	return !entry->again;
}

/* The row that decides becomes what it gives with the batch; the values last
 * until dr_gather_merged.  The memory that this takes is counted to the end. */
void
dr_gather_merge(DrGather *gather, int i, Datum *values, bool *nulls)
{
	Size		before = dr_keytable_memory(gather->table);

	dr_tally_merge(gather->tally, gather->table, gather->entries[i], values, nulls);
	gather->stored += dr_keytable_memory(gather->table) - before;
	dr_intake_read_row(gather->intake, gather->entries[i], values, nulls);
}

/* "written": live has it now.  Else that row had been changed before, and the
 * key, of which more has been added up than counts, is computed again. */
void
dr_gather_merged(DrGather *gather, int i, bool written)
{
	gather->entries[i]->again = !written;
	dr_tally_forget(gather->tally);
}

/* ---------------------------------------------------------------- after that */

/* Does live tell that no row of the event was there before ours? */
bool
dr_gather_is_told_new(const DrGather *gather, const DrGatherEvent *event)
{
	const DrFate *fate = dr_gather_fate(gather, event->entry);

	if (gather->def->where != NULL)
		return false;
	return fate->is_new ||
		(fate->has_newest && instant_of(gather->def, event->values[0]) > fate->newest);
}

/* The source's rows include the new ones, so a row that counts is an old one
 * where the source has it more often than it was inserted. */
static void
decide_event(DrGather *gather, const DrGatherEvent *event)
{
	if (event->stored <= event->fresh)
		return;
	if (event->beaten || event->stored_equal > event->fresh_equal)
		dr_gather_fate(gather, event->entry)->has_old = true;
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
	const DrFate *fate = dr_gather_fate(gather, entry);

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
		const DrGatherEvent *event = &gather->events[i];

		if (dr_gather_fate(gather, event->entry)->has_old && !event->entry->again &&
			event->stored <= event->fresh)
			add_event(gather, event);
	}
}
