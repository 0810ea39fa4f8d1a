/*
 * intact.h
 *		What must hold of live, its shadow and the marks.
 *
 * Layer 4.
 */
#ifndef DR_INTACT_H
#define DR_INTACT_H

#include "dailyrollup.h"

#include "catalog.h"

extern void dr_intact_check_table(Oid table, bool is_live);
extern void dr_intact_check_visible(const DrRollup *rollup, Oid relation);
extern void dr_intact_check(const DrRollup *rollup);
extern void dr_intact_warn(const DrRollup *rollup);

#endif							/* DR_INTACT_H */
