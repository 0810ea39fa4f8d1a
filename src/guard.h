/*
 * guard.h
 *		Who may write to live.
 *
 * Layer 5.
 */
#ifndef DR_GUARD_H
#define DR_GUARD_H

#include "dailyrollup.h"

extern void dr_guard_init(void);
extern void dr_guard_let(Oid live);
extern void dr_guard_end(void);
extern bool dr_guard_is_open(void);

#endif							/* DR_GUARD_H */
