/*
 * check.h
 *		Counting and comparing: nothing is believed because a statement
 *		reported success.
 *
 * Layer 5.
 */
#ifndef DR_CHECK_H
#define DR_CHECK_H

#include "dailyrollup.h"

#include "catalog.h"
#include "content.h"

typedef struct DrCount
{
	int64		rows;
	int64		keys;
	int64		dup_keys;		/* keys with more than one row */
	int64		dup_rows;		/* rows beyond one a key */
} DrCount;

extern DrCount dr_check_count(const DrRollup *rollup, const DrDefinition *def, Oid table);
extern void dr_check_distrust_indexes(void);
extern void dr_check_written(const DrRollup *rollup, const DrDefinition *def, Oid table,
							 int64 expected);
extern void dr_check_compare(const DrRollup *rollup, const DrDefinition *def,
							 DrCompared *result);
extern int64 dr_check_count_differences(const DrRollup *rollup, const DrDefinition *def,
										char waiting);
extern bool dr_check_diff(const DrRollup *rollup, DrRun *run, char **keys);

#endif							/* DR_CHECK_H */
