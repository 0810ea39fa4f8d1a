/*
 * shadow.h
 *		The table <live>_daily.
 *
 * Layer 8.
 */
#ifndef DR_SHADOW_H
#define DR_SHADOW_H

#include "dailyrollup.h"

#include "catalog.h"

extern void dr_shadow_create(DrRollup *rollup, const DrDefinition *def);
extern void dr_shadow_drop(DrRollup *rollup);
extern void dr_shadow_remove(Oid shadow);

#endif							/* DR_SHADOW_H */
