/*
 * heal.h
 *		The late keys of a refresh.
 *
 * Layer 8.
 */
#ifndef DR_HEAL_H
#define DR_HEAL_H

#include "dailyrollup.h"

#include "catalog.h"

extern uint64 dr_heal_marked_keys(const DrRollup *rollup, const DrDefinition *def, Oid table,
								  char dirties, Datum boundary);
extern void dr_heal_recompute(const DrRollup *rollup, const DrDefinition *def, Oid table,
							  char dirties, Datum boundary);

#endif							/* DR_HEAL_H */
