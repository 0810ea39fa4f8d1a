/*
 * marked.h
 *		Which keys have marks, by the active snapshot; and whether any key has
 *		one that is too long for an index.
 *
 * Whoever asks needs no right on the marks: it is for the caller to know that
 * the answer is nobody else's business.
 *
 * Layer 3.
 */
#ifndef DR_MARKED_H
#define DR_MARKED_H

#include "dailyrollup.h"

#include "fmgr.h"
#include "storage/itemptr.h"

#include "catalog.h"

/* What somebody who asks again and again, by one snapshot, knows already. */
typedef struct DrMarked DrMarked;

extern DrMarked *dr_marked_begin(const DrRollup *rollup, FunctionCallInfo fcinfo, int first);
extern bool dr_marked_has_long(const DrRollup *rollup);
extern bool dr_marked_may_have_long(const DrRollup *rollup);
extern bool dr_marked_find(DrMarked *marked, const NullableDatum *key, ItemPointer mark);

#endif							/* DR_MARKED_H */
