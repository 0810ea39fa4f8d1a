/*
 * guard.h
 *		Who may write to live.
 *
 * Layer 5.
 */
#ifndef DR_GUARD_H
#define DR_GUARD_H

#include "catalog.h"

extern void dr_guard_init(void);
extern void dr_guard_let(const DrRollup *rollup, Oid table);
extern void dr_guard_end(void);
extern bool dr_guard_is_open(void);
extern bool dr_guard_is_open_for(Oid table);
extern void dr_guard_check_not_open(const DrRollup *rollup, const char *what);

#endif							/* DR_GUARD_H */
