/*
 * aggregates.h
 *		Which of two rows latest() and earliest() keep.
 *
 * Whoever merges two partial results asks here, so that a merge decides as
 * the aggregates do.
 *
 * Layer 1.
 */
#ifndef DR_AGGREGATES_H
#define DR_AGGREGATES_H

#include "dailyrollup.h"

/* How rows of given types compare; opaque. */
typedef struct DrContest DrContest;

/* A row, or the winner of several.  at_isnull: no row has had a time yet. */
typedef struct DrEntrant
{
	Datum		value;
	Datum		at;
	bool		value_isnull;
	bool		at_isnull;
} DrEntrant;

extern DrContest *dr_aggregates_prepare(Oid value_type, Oid at_type, Oid collation,
										bool latest, MemoryContext context);
extern bool dr_aggregates_wins(DrContest *contest, const DrEntrant *challenger,
							   const DrEntrant *champion);

#endif							/* DR_AGGREGATES_H */
