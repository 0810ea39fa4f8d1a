/*
 * create.h
 *		A rollup's objects, made.
 *
 * Layer 9.
 */
#ifndef DR_CREATE_H
#define DR_CREATE_H

#include "dailyrollup.h"

#include "catalog.h"

extern void dr_create_truncate_triggers(const DrRollup *rollup, Oid relation);

#endif							/* DR_CREATE_H */
