/*
 * gather.h
 *		What a transaction has inserted, by keys in memory.
 *
 * Layer 6.
 */
#ifndef DR_GATHER_H
#define DR_GATHER_H

#include "dailyrollup.h"

#include "access/htup.h"
#include "access/tupdesc.h"
#include "storage/itemptr.h"
#include "utils/tuplestore.h"

#include "catalog.h"

typedef struct DrGather DrGather;

/* Rows for a statement. */
typedef struct DrGathered
{
	TupleDesc	desc;
	Tuplestorestate *rows;
	int64		count;
} DrGathered;

extern DrGather *dr_gather_begin(const DrDefinition *def, const DrRollup *rollup,
								 Tuplestorestate *rows, TupleDesc desc);
extern void dr_gather_end(DrGather *gather);
extern void dr_gather_describe_row(const DrGather *gather, DrGathered *result);
extern void dr_gather_describe_event(const DrGather *gather, DrGathered *result);
extern void dr_gather_describe_key(const DrGather *gather, DrGathered *result);
extern void dr_gather_describe_numbered_key(const DrGather *gather, DrGathered *result);
extern void dr_gather_describe_merged(const DrGather *gather, DrGathered *result);

/* before and while the keys are locked */
extern void dr_gather_all(DrGather *gather, DrGathered *result);
extern void dr_gather_propose_stored(DrGather *gather, HeapTuple row, TupleDesc desc,
									 DrGathered *result);
extern void dr_gather_propose(DrGather *gather, DrGathered *result);
extern void dr_gather_is_locked(DrGather *gather, ItemPointer place, HeapTuple row,
								TupleDesc desc);
extern void dr_gather_is_new(DrGather *gather, HeapTuple key, TupleDesc desc);

/* after that */
extern void dr_gather_events(DrGather *gather, DrGathered *result);
extern void dr_gather_found(DrGather *gather, HeapTuple row, TupleDesc desc);
extern void dr_gather_decide(DrGather *gather);
extern void dr_gather_merge(DrGather *gather, DrGathered *result);
extern void dr_gather_again(DrGather *gather, DrGathered *result);

#endif							/* DR_GATHER_H */
