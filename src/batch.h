/*
 * batch.h
 *		What a transaction has written, kept until it is folded.
 *
 * Layer 8.
 */
#ifndef DR_BATCH_H
#define DR_BATCH_H

#include "dailyrollup.h"

#include "plans.h"
#include "rows.h"

/* The events that a level of the transaction has written. */
typedef struct DrBatch
{
	MemoryContext context;		/* of all that it has */
	Oid			live;
	Oid			source;
	int32		rollup;			/* its id: another one may have got the table */
	bool		backfill;		/* their keys are to be marked, not folded */
	SubTransactionId level;
	SubTransactionId folded_in; /* InvalidSubTransactionId: not folded */
	bool		touches;		/* some were changed or deleted */
	int64		held;			/* bytes that the source stores out of line */
	DrRows		rows;			/* the events' columns, then DR_FOLDING_ADDED */
} DrBatch;

extern void dr_batch_init(void);
extern void dr_batch_collect(DrPlans *plans, const Datum *event, const bool *nulls,
							 bool added, bool backfill);
extern List *dr_batch_lives(void);
extern List *dr_batch_sources(void);
extern DrBatch *dr_batch_take(Oid live, int32 rollup, bool backfill);
extern void dr_batch_end(DrBatch *batch);

#endif							/* DR_BATCH_H */
