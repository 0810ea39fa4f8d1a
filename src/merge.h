/*
 * merge.h
 *		A window of the source into a rollup's table.
 *
 * Layer 8.
 */
#ifndef DR_MERGE_H
#define DR_MERGE_H

#include "dailyrollup.h"

#include "catalog.h"

/* lower <= time < upper, by values of the time column's type */
typedef struct DrWindow
{
	bool		has_lower;
	bool		has_upper;
	Datum		lower;
	Datum		upper;
} DrWindow;

extern uint64 dr_merge_fold(const DrRollup *rollup, const DrDefinition *def, Oid table,
							const DrWindow *window);
extern uint64 dr_merge_seed(const DrRollup *rollup, const DrDefinition *def, Oid table,
							const DrWindow *window);

#endif							/* DR_MERGE_H */
