/*
 * expression.h
 *		What an expression of a defining query may contain.
 *
 * Layer 1.
 */
#ifndef DR_EXPRESSION_H
#define DR_EXPRESSION_H

#include "dailyrollup.h"

extern void dr_expression_check_columns(Node *tree);
extern void dr_expression_check(Node *expr, const char *place, Oid vars_of);
extern void dr_expression_check_output(const DrColumn *column);
extern void dr_expression_check_equalities(const DrDefinition *def);
extern void dr_expression_check_ordered(Oid type, const char *place);

#endif							/* DR_EXPRESSION_H */
