/*
 * create.h
 *		A rollup's objects: made, and removed again.
 *
 * Layer 5.
 */
#ifndef DR_CREATE_H
#define DR_CREATE_H

#include "dailyrollup.h"

#include "nodes/parsenodes.h"

#include "catalog.h"

extern void dr_create_truncate_triggers(const DrRollup *rollup, Oid relation);
extern void dr_create_remove(const DrRollup *rollup, bool drop_live, DropBehavior behavior);

#endif							/* DR_CREATE_H */
