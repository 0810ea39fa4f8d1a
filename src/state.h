/*
 * state.h
 *		The changes of a rollup's state, and what its owner may order.
 *
 * Layer 11.
 */
#ifndef DR_STATE_H
#define DR_STATE_H

#include "dailyrollup.h"

#include "catalog.h"

extern void dr_state_begin_shadow(DrRollup *rollup);
extern void dr_state_end_shadow(DrRollup *rollup);
extern void dr_state_forget_late(const DrRollup *rollup);
extern void dr_state_leave_on(DrRollup *rollup, DrState to);

#endif							/* DR_STATE_H */
