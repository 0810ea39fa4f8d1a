/*
 * guard.h
 *		Who may write to live.
 *
 * Layer 5.
 */
#ifndef DR_GUARD_H
#define DR_GUARD_H

#include "dailyrollup.h"

/* Whose statements may write to live. */
typedef struct DrGuard
{
	Oid			live;			/* InvalidOid: nobody's */
	int			depth;			/* of triggers around them */
	int			nesting;		/* of transactions around them */
} DrGuard;

extern void dr_guard_init(void);
extern DrGuard dr_guard_let(Oid live);
extern void dr_guard_end(DrGuard before);
extern bool dr_guard_is_open(void);

#endif							/* DR_GUARD_H */
