/*
 * order.h
 *		The order of keys: that of ORDER BY in statements, and of an index of them.
 *
 * Layer 1.
 */
#ifndef DR_ORDER_H
#define DR_ORDER_H

#include "dailyrollup.h"

#include "utils/sortsupport.h"

typedef struct DrOrder
{
	int			n;
	SortSupportData columns[FLEXIBLE_ARRAY_MEMBER];
} DrOrder;

extern DrOrder *dr_order_make(const DrDefinition *def);

/* Compare two values of a key's column; they are not NULL. */
static inline int
dr_order_compare_column(DrOrder *order, int i, Datum a, Datum b)
{
	return order->columns[i].comparator(a, b, &order->columns[i]);
}

static inline int
dr_order_compare(DrOrder *order, const Datum *a, const Datum *b)
{
	int			result = 0;

	for (int i = 0; result == 0 && i < order->n; i++)
		result = dr_order_compare_column(order, i, a[i], b[i]);
	return result;
}

#endif							/* DR_ORDER_H */
