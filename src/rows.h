/*
 * rows.h
 *		Rows kept in memory, and beyond work_mem in a temporary file.
 *
 * Layer 0.
 */
#ifndef DR_ROWS_H
#define DR_ROWS_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "executor/tuptable.h"
#include "utils/tuplestore.h"

/* A row in memory. */
typedef struct DrRow
{
	struct DrRow *next;
	bool	   *nulls;
	Datum		values[FLEXIBLE_ARRAY_MEMBER];
} DrRow;

typedef struct DrRows
{
	MemoryContext context;		/* of all that they have */
	MemoryContext memory;		/* of those in memory; NULL: they are in the store */
	TupleDesc	desc;
	int			nreferences;	/* columns that are passed by reference */
	int		   *references;
	int64		count;
	DrRow	   *first;
	DrRow	   *last;
	Tuplestorestate *store;		/* NULL: all are in memory */
} DrRows;

/* Reads them one after another, from the first on. */
typedef struct DrRowsReader
{
	const DrRows *rows;
	DrRow	   *next;
	TupleTableSlot *slot;		/* NULL: in memory */
} DrRowsReader;

extern void dr_rows_make(DrRows *rows, TupleDesc desc);
extern void dr_rows_end(DrRows *rows);
extern void dr_rows_put(DrRows *rows, const Datum *values, const bool *nulls);
extern Tuplestorestate *dr_rows_store(DrRows *rows);
extern void dr_rows_store_half(DrRows *rows);
extern bool dr_rows_join(DrRows *rows, const DrRows *others);
extern void dr_rows_append(DrRows *rows, const DrRows *others);

extern void dr_rows_begin_read(const DrRows *rows, DrRowsReader *reader);
extern bool dr_rows_read(DrRowsReader *reader, bool keep, Datum **values, bool **nulls);
extern void dr_rows_end_read(DrRowsReader *reader);

#endif							/* DR_ROWS_H */
