/*
 * rival.h
 *		Which of two rows of one event counts.
 *
 * Layer 2.
 */
#ifndef DR_RIVAL_H
#define DR_RIVAL_H

#include "dailyrollup.h"

#include "utils/snapshot.h"

#include "keytable.h"
#include "pack.h"

/* Where the events' rows come from, and the earlier row of one of them. */
typedef struct DrRivals DrRivals;

extern DrRivals *dr_rivals_make(const DrDefinition *def, TupleDesc events);
extern void dr_rivals_end(DrRivals *rivals);
extern bool dr_rivals_place(DrRivals *rivals, DrEvent *event, Datum tid, Datum relation);
extern bool dr_rivals_beaten(DrRivals *rivals, Snapshot snapshot, const DrEvent *event,
							 Datum *values, bool *nulls);
extern int	dr_rivals_compare(DrRivals *rivals, Datum *a, bool *a_nulls, const Datum *b,
							  const bool *b_nulls);
extern const Datum *dr_rivals_earlier(const DrRivals *rivals, const bool **nulls);

#endif							/* DR_RIVAL_H */
