/*
 * owner.h
 *		A rollup belongs to the owner of its source.
 *
 * Layer 8.
 */
#ifndef DR_OWNER_H
#define DR_OWNER_H

#include "dailyrollup.h"

#include "catalog.h"

extern void dr_owner_follow(const DrRollup *rollup);
extern void dr_owner_follow_shadow(const DrRollup *rollup);
extern void dr_owner_follow_reassigned(void);
extern void dr_owner_check(const DrRollup *rollup, Oid relation);

#endif							/* DR_OWNER_H */
