/*
 * duplicates.h
 *		Can two rows of the source be of one event?
 *
 * Layer 2.
 */
#ifndef DR_DUPLICATES_H
#define DR_DUPLICATES_H

#include "dailyrollup.h"

extern bool dr_duplicates_may_tie(const DrDefinition *def);
extern bool dr_duplicates_are_possible(const DrDefinition *def);

#endif							/* DR_DUPLICATES_H */
