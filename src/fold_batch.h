/*
 * fold_batch.h
 *		A batch of what a transaction has written, folded into live.
 *
 * Layer 9.
 */
#ifndef DR_FOLD_BATCH_H
#define DR_FOLD_BATCH_H

#include "dailyrollup.h"

#include "batch.h"

extern void dr_fold_batch(DrBatch *batch);
extern uint64 dr_fold_batch_marked(Oid live);

#endif							/* DR_FOLD_BATCH_H */
