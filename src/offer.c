/*
 * offer.c
 *		What is gathered in memory, as rows for statements; and what these tell.
 *
 * Where live's rows can be locked without a statement (seize.c) that is only
 * what must be looked up in the source, and what follows from it.
 */
#include "offer.h"

#include "access/htup_details.h"
#include "access/tupdesc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"

#include "intake.h"
#include "folding.h"
#include "keytable.h"
#include "tally.h"

/* ------------------------------------------------------------- descriptions */

static void
describe(TupleDesc desc, int n, const char *name, Oid type, int32 typmod, Oid collation)
{
	TupleDescInitEntry(desc, n, name, type, typmod, 0);
	TupleDescInitEntryCollation(desc, n, collation);
}

static void
begin(DrOffered *result, TupleDesc desc)
{
	result->desc = desc;
	result->rows = tuplestore_begin_heap(true, false, work_mem);
	result->count = 0;
}

/* Rows of live. */
void
dr_offer_describe_row(const DrGather *gather, DrOffered *result)
{
	begin(result, dr_intake_row_desc(gather->intake));
}

/* k1 .. kn */
void
dr_offer_describe_key(const DrGather *gather, DrOffered *result)
{
	begin(result, dr_intake_key_desc(gather->intake));
}

/* A number, k1 .. kn. */
void
dr_offer_describe_numbered_key(const DrGather *gather, DrOffered *result)
{
	TupleDesc	keys = dr_intake_key_desc(gather->intake);
	TupleDesc	desc = CreateTemplateTupleDesc(keys->natts + 1);

	describe(desc, 1, DR_FOLDING_NUMBER, INT4OID, -1, InvalidOid);
	for (int i = 0; i < keys->natts; i++)
		TupleDescCopyEntry(desc, i + 2, keys, i + 1);
	begin(result, desc);
}

/* A number, the columns that tell one event from another. */
void
dr_offer_describe_event(const DrGather *gather, DrOffered *result)
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
dr_offer_describe_merged(const DrGather *gather, DrOffered *result)
{
	TupleDesc	row = dr_intake_row_desc(gather->intake);
	TupleDesc	desc = CreateTemplateTupleDesc(row->natts + 1);

	describe(desc, 1, DR_FOLDING_PLACE, TIDOID, -1, InvalidOid);
	for (int i = 0; i < row->natts; i++)
		TupleDescCopyEntry(desc, i + 2, row, i + 1);
	begin(result, desc);
}

static void
put(DrOffered *result, Datum *values, bool *nulls)
{
	tuplestore_putvalues(result->rows, result->desc, values, nulls);
	result->count++;
}

static void
put_numbered_key(const DrGather *gather, const DrEntry *entry, DrOffered *result)
{
	Datum		values[INDEX_MAX_KEYS + 1];
	bool		nulls[INDEX_MAX_KEYS + 1];

	values[0] = Int32GetDatum(dr_gather_fate(gather, entry)->number);
	nulls[0] = false;
	dr_intake_read_key(gather->intake, entry, values + 1, nulls + 1);
	put(result, values, nulls);
}

/* ------------------------------------------------- before the keys are locked */

/* All keys. */
void
dr_offer_all(DrGather *gather, DrOffered *result)
{
	for (int i = 0; i < gather->nentries; i++)
		put_numbered_key(gather, gather->entries[i], result);
}

/* A row of live, with its number, is proposed for its key itself. */
void
dr_offer_propose_stored(DrGather *gather, HeapTuple row, TupleDesc desc, DrOffered *result)
{
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	heap_deform_tuple(row, desc, values, nulls);
	dr_gather_fate(gather, gather->entries[DatumGetInt32(values[0])])->proposed = true;
	put(result, values + 1, nulls + 1);
}

/* For the other keys, what the batch gives. */
void
dr_offer_propose(DrGather *gather, DrOffered *result)
{
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	for (int i = 0; i < gather->nentries; i++)
	{
		if (dr_gather_fate(gather, gather->entries[i])->proposed)
			continue;
		dr_intake_read_row(gather->intake, gather->entries[i], values, nulls);
		put(result, values, nulls);
	}
}

/* Live did not have that key, and has it now. */
void
dr_offer_is_new(DrGather *gather, HeapTuple key, TupleDesc desc)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];
	DrEntry    *entry;

	heap_deform_tuple(key, desc, values, nulls);
	dr_intake_find(gather->intake, gather->table, 1, values, nulls, &entry);
	if (entry != NULL)			/* a trigger may have changed the key */
		dr_gather_fate(gather, entry)->is_new = true;
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
	dr_intake_find(gather->intake, gather->table, 1, key, key_nulls, &entry);
	return entry;
}

/* Whoever knows the proof may have made the row up. */
static void
check_types(const DrGather *gather, TupleDesc desc)
{
	TupleDesc	expected = dr_intake_row_desc(gather->intake);
	bool		same = desc->natts == expected->natts;

	for (int i = 0; same && i < desc->natts; i++)
		same = TupleDescAttr(desc, i)->atttypid == TupleDescAttr(expected, i)->atttypid;
	if (!same)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("this is no row of the rollup")));
}

/*
 * Live has a row at that place, and it is locked.  (A row of another key is
 * locked where a trigger has changed the key.)
 */
void
dr_offer_is_locked(DrGather *gather, ItemPointer place, HeapTuple row, TupleDesc desc)
{
	const DrDefinition *def = gather->def;
	MemoryContext before = MemoryContextSwitchTo(gather->context);
	Datum	   *values = palloc(def->ncolumns * sizeof(Datum));
	bool	   *nulls = palloc(def->ncolumns * sizeof(bool));
	DrEntry    *entry;

	check_types(gather, desc);
	heap_deform_tuple(row, desc, values, nulls);
	entry = entry_of_row(gather, values, nulls);
	if (entry != NULL)
		dr_gather_keep(gather, entry, place, values, nulls);
	pfree(values);
	pfree(nulls);
	MemoryContextSwitchTo(before);
}

/* ---------------------------------------------------------------- after that */

/* The events that may have an older row. */
void
dr_offer_events(DrGather *gather, DrOffered *result)
{
	const DrDefinition *def = gather->def;
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	for (int i = 0; i < gather->nevents; i++)
	{
		const DrGatherEvent *event = &gather->events[i];

		if (dr_gather_is_told_new(gather, event))
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
dr_offer_found(DrGather *gather, HeapTuple row, TupleDesc desc)
{
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];
	DrGatherEvent *event;
	int			order;

	heap_deform_tuple(row, desc, values, nulls);
	event = &gather->events[DatumGetInt32(values[0])];
	order = dr_intake_compare(gather->intake, values + 1, nulls + 1,
							  event->values, event->nulls);
	event->stored++;
	if (order == 0)
		event->stored_equal++;
	if (order < 0)
		event->beaten = true;
}

/* Live's rows that change, by their places, and what they become. */
void
dr_offer_merge(DrGather *gather, DrOffered *result)
{
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	for (int i = 0; i < gather->nentries; i++)
	{
		DrEntry    *entry = gather->entries[i];
		DrFate	   *fate = dr_gather_fate(gather, entry);

		if (fate->stored == NULL || entry->again || entry->counted == 0)
			continue;
		dr_tally_merge(gather->tally, gather->table, entry, fate->stored, fate->stored_nulls);
		values[0] = PointerGetDatum(&fate->place);
		nulls[0] = false;
		dr_intake_read_row(gather->intake, entry, values + 1, nulls + 1);
		put(result, values, nulls);
		dr_tally_forget(gather->tally);
	}
}

/* The keys that are to be computed again. */
void
dr_offer_again(DrGather *gather, DrOffered *result)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];

	for (int i = 0; i < gather->nentries; i++)
	{
		if (!gather->entries[i]->again)
			continue;
		dr_intake_read_key(gather->intake, gather->entries[i], values, nulls);
		put(result, values, nulls);
	}
}
