/*
 * adopt.h
 *		An existing table as live.
 *
 * Layer 5.
 */
#ifndef DR_ADOPT_H
#define DR_ADOPT_H

#include "dailyrollup.h"

#include "catalog.h"

extern void dr_adopt_check(Oid live, const DrDefinition *def);
extern void dr_adopt_check_extra_columns(const DrRollup *rollup);
extern void dr_adopt_warn_of_triggers(Oid live);
extern bool dr_adopt_has_unique_index(Oid live, const DrDefinition *def);
extern bool dr_adopt_ensure_unique_index(const DrRollup *rollup, const DrDefinition *def);

#endif							/* DR_ADOPT_H */
