/*
 * parallel.h
 *		May a parallel worker compute the defining query?
 *
 * Layer 1.
 */
#ifndef DR_PARALLEL_H
#define DR_PARALLEL_H

#include "dailyrollup.h"

extern bool dr_parallel_is_safe(const DrDefinition *def);

#endif							/* DR_PARALLEL_H */
