/*
 * offer.h
 *		What is gathered in memory, as rows for statements; and what these tell.
 *
 * Layer 8.
 */
#ifndef DR_OFFER_H
#define DR_OFFER_H

#include "dailyrollup.h"

#include "access/htup.h"

#include "gather.h"

/* Rows for a statement. */
typedef struct DrOffered
{
	TupleDesc	desc;
	Tuplestorestate *rows;
	int64		count;
} DrOffered;

extern void dr_offer_describe_row(const DrGather *gather, DrOffered *result);
extern void dr_offer_describe_event(const DrGather *gather, DrOffered *result);
extern void dr_offer_describe_key(const DrGather *gather, DrOffered *result);
extern void dr_offer_describe_numbered_key(const DrGather *gather, DrOffered *result);
extern void dr_offer_describe_merged(const DrGather *gather, DrOffered *result);

/* before and while the keys are locked */
extern void dr_offer_all(DrGather *gather, DrOffered *result);
extern void dr_offer_propose_stored(DrGather *gather, HeapTuple row, TupleDesc desc,
									DrOffered *result);
extern void dr_offer_propose(DrGather *gather, DrOffered *result);
extern void dr_offer_is_locked(DrGather *gather, ItemPointer place, HeapTuple row,
							   TupleDesc desc);
extern void dr_offer_is_new(DrGather *gather, HeapTuple key, TupleDesc desc);

/* after that */
extern void dr_offer_events(DrGather *gather, DrOffered *result);
extern void dr_offer_found(DrGather *gather, HeapTuple row, TupleDesc desc);
extern void dr_offer_merge(DrGather *gather, DrOffered *result);
extern void dr_offer_again(DrGather *gather, DrOffered *result);

#endif							/* DR_OFFER_H */
