/*
 * change.h
 *		Parts of statements that change a rollup's table, or its shadow.
 *
 * The caller has entered the identity that the text is for (identity.h).
 *
 * Layer 3.
 */
#ifndef DR_CHANGE_H
#define DR_CHANGE_H

#include "dailyrollup.h"

#include "lib/stringinfo.h"

#include "catalog.h"

extern char *dr_change_replace(const DrDefinition *def, const DrRollup *rollup, Oid table,
							   const char *fresh);
extern void dr_change_append_merge(StringInfo buf, const DrDefinition *def, Oid table,
								   const char *partial);
extern void dr_change_append_recompute(StringInfo buf, const DrDefinition *def,
									   const DrRollup *rollup, Oid table, const char *upper);
extern char *dr_change_stored(const DrDefinition *def, const DrRollup *rollup,
							  const char *keys);
extern char *dr_change_content_of_waiting(const DrDefinition *def, const DrRollup *rollup,
										  const char *lower, const char *upper);

#endif							/* DR_CHANGE_H */
