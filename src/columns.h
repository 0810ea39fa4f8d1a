/*
 * columns.h
 *		Some columns of a query's rows, packed.
 *
 * Layer 1.
 */
#ifndef DR_COLUMNS_H
#define DR_COLUMNS_H

#include "dailyrollup.h"

#include "executor/tuptable.h"

#include "pack.h"

/* The columns, with the values of the row that was read last. */
typedef struct DrColumns
{
	int			n;
	int		   *indexes;		/* into the query's columns */
	DrKind	   *kinds;
	Datum	   *values;
	bool	   *nulls;
	DrPart	   *parts;
	MemoryContext context;
	char	   *bytes;			/* the row, packed */
	Size		size;
	Size		room;
} DrColumns;

extern void dr_columns_init(DrColumns *columns, int room);
extern void dr_columns_add(DrColumns *columns, const DrDefinition *def, int i);
extern void dr_columns_pack(DrColumns *columns, TupleTableSlot *slot, const AttrNumber *attnos);
extern void dr_columns_unpack(const DrColumns *columns, const char *bytes, Datum *values,
							  bool *nulls);

#endif							/* DR_COLUMNS_H */
