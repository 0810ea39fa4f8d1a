/*
 * definition.h
 *		From a defining query to a DrDefinition, with every rejection.
 *
 * Layer 2.
 */
#ifndef DR_DEFINITION_H
#define DR_DEFINITION_H

#include "dailyrollup.h"

extern DrDefinition *dr_definition_parse(const char *query, const char *time_column,
										 List *dedup_by, List *dedup_order);
extern DrDefinition *dr_definition_read(Oid source, Oid events, Oid definition);
extern void dr_definition_notice(const DrDefinition *def);

#endif							/* DR_DEFINITION_H */
