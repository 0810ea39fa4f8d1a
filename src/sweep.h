/*
 * sweep.h
 *		Passes over rows of the source, within the memory that there is.
 *
 * Layer 5.
 */
#ifndef DR_SWEEP_H
#define DR_SWEEP_H

#include "dailyrollup.h"

#include "utils/tuplestore.h"

#include "intake.h"
#include "keytable.h"
#include "tally.h"

/*
 * What has come of it.  "whole" holds every key where all of them fitted into
 * memory; else "rows" has a row for each, with the query's columns.  A key of
 * "again" is in neither and has to be computed in another way; its columns are
 * k1 .. kn.
 */
typedef struct DrSwept
{
	DrKeyTable *whole;
	Tuplestorestate *rows;
	Tuplestorestate *again;
	uint64		nrows;
	uint64		nagain;
} DrSwept;

typedef struct DrSweep
{
	DrIntake   *intake;
	MemoryContext context;		/* of tables */
	void		(*scan) (void *arg);	/* gives all rows to the intake, each time */
	void	   *arg;
	DrKeyTable *table;			/* where rows that are scanned go; NULL: to parts */
} DrSweep;

extern void dr_sweep_begin(DrSwept *result);
extern bool dr_sweep_run(DrSweep *sweep, DrSwept *result);
extern void dr_sweep_end(DrSwept *result);

extern void dr_sweep_append(const DrIntake *intake, DrSwept *result, const DrEntry *entry);
extern void dr_sweep_append_row(const DrIntake *intake, DrSwept *result, Datum *values,
								bool *nulls);
extern void dr_sweep_append_again(const DrIntake *intake, DrSwept *result, Datum *keys,
								  bool *nulls);

#endif							/* DR_SWEEP_H */
