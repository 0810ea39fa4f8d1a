/*
 * remove.h
 *		A rollup's objects, removed again.
 *
 * Layer 8.
 */
#ifndef DR_REMOVE_H
#define DR_REMOVE_H

#include "dailyrollup.h"

#include "nodes/parsenodes.h"

#include "catalog.h"

extern void dr_remove(const DrRollup *rollup, bool drop_live, DropBehavior behavior);

#endif							/* DR_REMOVE_H */
