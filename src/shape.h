/*
 * shape.h
 *		Which statements can define a rollup at all.
 *
 * Layer 1.
 */
#ifndef DR_SHAPE_H
#define DR_SHAPE_H

#include "dailyrollup.h"

#include "nodes/parsenodes.h"

extern void dr_shape_check_statements(List *statements);
extern void dr_shape_check_query(const Query *query);

#endif							/* DR_SHAPE_H */
