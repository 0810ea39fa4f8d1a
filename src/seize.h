/*
 * seize.h
 *		Live's rows of gathered keys locked without a statement.
 *
 * Layer 8.
 */
#ifndef DR_SEIZE_H
#define DR_SEIZE_H

#include "dailyrollup.h"

#include "gather.h"

extern bool dr_seize(DrGather *gather, const DrDefinition *def, const DrRollup *rollup);

#endif							/* DR_SEIZE_H */
