/*
 * promote.h
 *		The shadow's content becomes live's.
 *
 * Layer 11.
 */
#ifndef DR_PROMOTE_H
#define DR_PROMOTE_H

#include "dailyrollup.h"

#include "catalog.h"
#include "check.h"

/* What a promote has done. */
typedef struct DrPromoted
{
	const char *action;
	DrCount		now;
	DrCount		before;
} DrPromoted;

extern DrPromoted dr_promote(Oid live, bool ordered);

#endif							/* DR_PROMOTE_H */
