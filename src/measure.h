/*
 * measure.h
 *		Which aggregates a rollup can merge, and by which rule.
 *
 * Layer 1.
 */
#ifndef DR_MEASURE_H
#define DR_MEASURE_H

#include "dailyrollup.h"

extern void dr_measure_describe(DrColumn *column, Oid vars_of);
extern void dr_measure_resolve(const DrDefinition *def);
extern char *dr_measure_text(const Node *expr, Oid vars_of);

#endif							/* DR_MEASURE_H */
