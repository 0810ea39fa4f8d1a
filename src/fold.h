/*
 * fold.h
 *		The write-time fold.
 *
 * Layer 10.
 */
#ifndef DR_FOLD_H
#define DR_FOLD_H

#include "dailyrollup.h"

#include "catalog.h"

extern void dr_fold_init(void);
extern void dr_fold_now(void);
extern void dr_fold_forget(const DrRollup *rollup);
extern uint64 dr_fold_flush(DrRollup *rollup);

#endif							/* DR_FOLD_H */
