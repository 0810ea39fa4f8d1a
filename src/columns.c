/*
 * columns.c
 *		Some columns of a query's rows, packed.
 */
#include "columns.h"

#include "utils/lsyscache.h"
#include "utils/memutils.h"

#define FIRST_ROOM	4096

/* Room for so many columns, and for their bytes, in the memory context at hand. */
void
dr_columns_init(DrColumns *columns, int room)
{
	columns->n = 0;
	columns->indexes = palloc(room * sizeof(int));
	columns->kinds = palloc(room * sizeof(DrKind));
	columns->values = palloc(room * sizeof(Datum));
	columns->nulls = palloc(room * sizeof(bool));
	columns->parts = palloc(room * sizeof(DrPart));
	columns->context = CurrentMemoryContext;
	columns->room = FIRST_ROOM;
	columns->bytes = palloc(columns->room);
}

/* The query's column of that index is one of them. */
void
dr_columns_add(DrColumns *columns, const DrDefinition *def, int i)
{
	DrKind	   *kind = &columns->kinds[columns->n];

	get_typlenbyval(def->columns[i].type, &kind->typlen, &kind->typbyval);
	columns->indexes[columns->n++] = i;
}

/*
 * Pack those of the slot, which has the query's columns at "attnos"; NULL: in
 * the query's order.  What is made on the way is left in the memory context at
 * hand.
 */
void
dr_columns_pack(DrColumns *columns, TupleTableSlot *slot, const AttrNumber *attnos)
{
	for (int i = 0; i < columns->n; i++)
	{
		int			column = columns->indexes[i];
		int			at = attnos == NULL ? column : attnos[column] - 1;

		columns->values[i] = slot->tts_values[at];
		columns->nulls[i] = slot->tts_isnull[at];
	}
	columns->size = dr_pack_measure(columns->kinds, columns->n, columns->values,
									columns->nulls, columns->parts);
	if (columns->size > columns->room)
	{
		pfree(columns->bytes);
		columns->room = columns->size * 2;
		columns->bytes = MemoryContextAllocHuge(columns->context, columns->room);
	}
	dr_pack_write(columns->bytes, columns->size, columns->kinds, columns->n,
				  columns->values, columns->nulls, columns->parts);
}

/* The values in such bytes, into which they point, at the query's columns. */
void
dr_columns_unpack(const DrColumns *columns, const char *bytes, Datum *values, bool *nulls)
{
	dr_pack_read(bytes, columns->kinds, columns->n, columns->values, columns->nulls);
	for (int i = 0; i < columns->n; i++)
	{
		values[columns->indexes[i]] = columns->values[i];
		nulls[columns->indexes[i]] = columns->nulls[i];
	}
}
