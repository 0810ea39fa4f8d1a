/*
 * permit.h
 *		What <live>_current shows to the functions behind it.
 *
 * Layer 3.
 */
#ifndef DR_PERMIT_H
#define DR_PERMIT_H

#include "dailyrollup.h"

#include "fmgr.h"

/* A value of the type dailyrollup._permit: that role, as live's owner, has let
 * somebody ask for rows of live.  InvalidOid: nobody has. */
typedef struct DrPermit
{
	Oid			live;
	Oid			owner;
} DrPermit;

#define PG_GETARG_PERMIT(n)	((const DrPermit *) PG_GETARG_POINTER(n))

extern bool dr_permit_equal(const DrPermit *a, const DrPermit *b);

#endif							/* DR_PERMIT_H */
