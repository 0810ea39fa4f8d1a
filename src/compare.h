/*
 * compare.h
 *		Statements that compare live with what it should be.
 *
 * The caller has entered the identity that the text is for (identity.h).
 *
 * Layer 4.
 */
#ifndef DR_COMPARE_H
#define DR_COMPARE_H

#include "dailyrollup.h"

#include "catalog.h"

#define DR_COMPARE_COLUMNS	6

extern char *dr_compare_verify(const DrDefinition *def, const DrRollup *rollup,
							   char dirties, const char *upper);
extern char *dr_compare_diff(const DrDefinition *def, const DrRollup *rollup,
							 bool through_now);
extern char *dr_compare_count(const char *comparison);

#endif							/* DR_COMPARE_H */
