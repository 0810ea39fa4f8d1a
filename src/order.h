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

/* The order of a key's column. */
typedef struct DrOrderColumn
{
	SortSupportData sort;
	bool		bytewise;		/* texts, by their bytes */
} DrOrderColumn;

typedef struct DrOrder
{
	int			n;
	DrOrderColumn columns[FLEXIBLE_ARRAY_MEMBER];
} DrOrder;

extern DrOrder *dr_order_make(const DrDefinition *def);

static inline bool
dr_order_is_plain(const char *text)
{
	return !VARATT_IS_1B_E(text) && !VARATT_IS_4B_C(text);
}

static inline int
dr_order_compare_bytes(const char *a, const char *b)
{
	int			n = VARSIZE_ANY_EXHDR(a);
	int			m = VARSIZE_ANY_EXHDR(b);
	int			result = memcmp(VARDATA_ANY(a), VARDATA_ANY(b), Min(n, m));

	return result != 0 ? result : n - m;
}

/* Compare two values of a key's column; they are not NULL. */
static inline int
dr_order_compare_column(DrOrder *order, int i, Datum a, Datum b)
{
	DrOrderColumn *column = &order->columns[i];

	if (column->bytewise && dr_order_is_plain(DatumGetPointer(a)) &&
		dr_order_is_plain(DatumGetPointer(b)))
		return dr_order_compare_bytes(DatumGetPointer(a), DatumGetPointer(b));
	return column->sort.comparator(a, b, &column->sort);
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
