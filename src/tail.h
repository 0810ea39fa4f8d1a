/*
 * tail.h
 *		Where the tail of <live>_current begins, and whether live counts.
 *
 * Layer 4.
 */
#ifndef DR_TAIL_H
#define DR_TAIL_H

#include "dailyrollup.h"

#include "catalog.h"

extern void dr_tail_init(void);
extern bool dr_tail_is_left_alone(const DrRollup *rollup);
extern bool dr_tail_live_counts(const DrRollup *rollup);

#endif							/* DR_TAIL_H */
