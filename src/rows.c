/*
 * rows.c
 *		Rows kept in memory, and beyond work_mem in a temporary file.
 *
 * In memory they are values, which whoever reads them uses where they are: most
 * never become tuples.  They outlive subtransactions, as a tuplestore does that the
 * transaction owns; those that did not fit go there together, or, if that fails,
 * stay as they were.
 */
#include "rows.h"

#include "access/htup_details.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

/* No rows yet, with these columns; as long as the current memory context. */
void
dr_rows_make(DrRows *rows, TupleDesc desc)
{
	memset(rows, 0, sizeof(DrRows));
	rows->context = CurrentMemoryContext;
	rows->memory = GenerationContextCreate(CurrentMemoryContext, "dailyrollup rows", 0,
										   ALLOCSET_DEFAULT_INITSIZE, 64 * 1024);
	rows->desc = CreateTupleDescCopy(desc);
	rows->references = palloc(desc->natts * sizeof(int));
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attbyval)
			rows->references[rows->nreferences++] = i;
}

/* Their memory goes with the context that they were made in. */
void
dr_rows_end(DrRows *rows)
{
	if (rows->store != NULL)
		tuplestore_end(rows->store);
	rows->store = NULL;
}

/* ------------------------------------------------------------------ in memory */

static Size
size_of(const DrRows *rows, int i, Datum value)
{
	return datumGetSize(value, false, TupleDescAttr(rows->desc, i)->attlen);
}

/* The row, in the memory of those that are there, and not yet one of them; NULL: no
 * memory, and that may be. */
static DrRow *
copy_row(const DrRows *rows, const Datum *values, const bool *nulls, bool may_fail)
{
	int			natts = rows->desc->natts;
	Size		sizes[MaxTupleAttributeNumber + 1];
	Size		size = offsetof(DrRow, values) + natts * sizeof(Datum);
	Size		used = MAXALIGN(size + natts * sizeof(bool));
	Size		total = used;
	DrRow	   *row;

	for (int n = 0; n < rows->nreferences; n++)
	{
		int			i = rows->references[n];

		sizes[n] = nulls[i] ? 0 : size_of(rows, i, values[i]);
		total += MAXALIGN(sizes[n]);
	}
	row = MemoryContextAllocExtended(rows->memory, total,
									 MCXT_ALLOC_HUGE | (may_fail ? MCXT_ALLOC_NO_OOM : 0));
	if (row == NULL)
		return NULL;
	row->next = NULL;
	row->nulls = (bool *) row + size;
	memcpy(row->values, values, natts * sizeof(Datum));
	memcpy(row->nulls, nulls, natts * sizeof(bool));
	for (int n = 0; n < rows->nreferences; n++)
	{
		int			i = rows->references[n];

		if (nulls[i])
			continue;
		row->values[i] = PointerGetDatum((char *) row + used);
		memcpy((char *) row + used, DatumGetPointer(values[i]), sizes[n]);
		used += MAXALIGN(sizes[n]);
	}
	return row;
}

/* Rows from one to another come after those that are there. */
static void
link_rows(DrRows *rows, DrRow *first, DrRow *last)
{
	if (rows->last == NULL)
		rows->first = first;
	else
		rows->last->next = first;
	rows->last = last;
}

static Size
memory_of(const DrRows *rows)
{
	return MemoryContextMemAllocated(rows->memory, false);
}

static Size
limit(void)
{
	return work_mem * (Size) 1024;
}

/* ------------------------------------------------------------- beyond work_mem */

static void
put_values(const DrRows *rows, Tuplestorestate *store, const Datum *values, const bool *nulls)
{
	tuplestore_putvalues(store, rows->desc, unconstify(Datum *, values),
						 unconstify(bool *, nulls));
}

/* A store that outlives the current subtransaction. */
static Tuplestorestate *
begin_store(const DrRows *rows)
{
	MemoryContext memory = MemoryContextSwitchTo(rows->context);
	ResourceOwner owner = CurrentResourceOwner;
	Tuplestorestate *store;

	CurrentResourceOwner = TopTransactionResourceOwner;
	store = tuplestore_begin_heap(true, false, work_mem);
	CurrentResourceOwner = owner;
	MemoryContextSwitchTo(memory);
	return store;
}

/* All of them in a store, which is theirs, as statements read them. */
Tuplestorestate *
dr_rows_store(DrRows *rows)
{
	Tuplestorestate *store;

	if (rows->store != NULL)
		return rows->store;
	store = begin_store(rows);
	for (const DrRow *row = rows->first; row != NULL; row = row->next)
		put_values(rows, store, row->values, row->nulls);
	rows->store = store;
	rows->first = rows->last = NULL;
	MemoryContextDelete(rows->memory);
	rows->memory = NULL;
	return store;
}

/* The same, if they take more than half of what they may. */
void
dr_rows_store_half(DrRows *rows)
{
	if (rows->store == NULL && memory_of(rows) > limit() / 2)
		(void) dr_rows_store(rows);
}

/* ---------------------------------------------------------------------- all */

/* Add a row, of whose values none stands out of line. */
void
dr_rows_put(DrRows *rows, const Datum *values, const bool *nulls)
{
	if (rows->store == NULL && memory_of(rows) > limit())
		(void) dr_rows_store(rows);
	if (rows->store == NULL)
	{
		DrRow	   *row = copy_row(rows, values, nulls, false);

		link_rows(rows, row, row);
	}
	else
		put_values(rows, rows->store, values, nulls);
	rows->count++;
}

/* Add the others, if both are in memory, and fit in there together; else false, and
 * nothing is done.  Raises no error. */
bool
dr_rows_join(DrRows *rows, const DrRows *others)
{
	DrRow	   *first = NULL;
	DrRow	  **next = &first;
	DrRow	   *last = NULL;

	if (rows->store != NULL || others->store != NULL ||
		memory_of(rows) + memory_of(others) > limit())
		return false;
	for (const DrRow *row = others->first; row != NULL; row = row->next)
	{
		last = *next = copy_row(rows, row->values, row->nulls, true);
		if (last == NULL)
			return false;
		next = &last->next;
	}
	if (last != NULL)
		link_rows(rows, first, last);
	rows->count += others->count;
	return true;
}

/* Add the others in any case; what an error leaves is of no use to anybody. */
void
dr_rows_append(DrRows *rows, const DrRows *others)
{
	DrRowsReader reader;
	Datum	   *values;
	bool	   *nulls;

	dr_rows_begin_read(others, &reader);
	while (dr_rows_read(&reader, false, &values, &nulls))
		dr_rows_put(rows, values, nulls);
	dr_rows_end_read(&reader);
}

void
dr_rows_begin_read(const DrRows *rows, DrRowsReader *reader)
{
	reader->rows = rows;
	reader->next = rows->first;
	reader->slot = NULL;
	if (rows->store == NULL)
		return;
	reader->slot = MakeSingleTupleTableSlot(rows->desc, &TTSOpsMinimalTuple);
	tuplestore_rescan(rows->store);
}

/* The next row of the store; "keep": in the current memory context. */
static bool
read_store(DrRowsReader *reader, bool keep, Datum **values, bool **nulls)
{
	TupleDesc	desc = reader->rows->desc;

	if (!tuplestore_gettupleslot(reader->rows->store, true, false, reader->slot))
		return false;
	if (keep)
	{
		*values = palloc(desc->natts * sizeof(Datum));
		*nulls = palloc(desc->natts * sizeof(bool));
		heap_deform_tuple(ExecCopySlotHeapTuple(reader->slot), desc, *values, *nulls);
		return true;
	}
	slot_getallattrs(reader->slot);
	*values = reader->slot->tts_values;
	*nulls = reader->slot->tts_isnull;
	return true;
}

/* The next row; false: there is none.  Its values stay as long as the rows, or, if
 * these are not to be kept, until the next one is read. */
bool
dr_rows_read(DrRowsReader *reader, bool keep, Datum **values, bool **nulls)
{
	DrRow	   *row = reader->next;

	if (reader->slot != NULL)
		return read_store(reader, keep, values, nulls);
	if (row == NULL)
		return false;
	*values = row->values;
	*nulls = row->nulls;
	reader->next = row->next;
	return true;
}

void
dr_rows_end_read(DrRowsReader *reader)
{
	if (reader->slot != NULL)
		ExecDropSingleTupleTableSlot(reader->slot);
}
