/*
 * order.c
 *		The order of keys: that of ORDER BY in statements, and of an index of them.
 */
#include "order.h"

#include "utils/typcache.h"

DrOrder *
dr_order_make(const DrDefinition *def)
{
	DrOrder    *order = palloc0(offsetof(DrOrder, columns) +
								def->nkeys * sizeof(SortSupportData));

	order->n = def->nkeys;
	for (int i = 0; i < def->nkeys; i++)
	{
		const DrColumn *key = &def->columns[def->keys[i]];
		SortSupport column = &order->columns[i];

		column->ssup_cxt = CurrentMemoryContext;
		column->ssup_collation = key->collation;
		PrepareSortSupportFromOrderingOp(lookup_type_cache(key->type, TYPECACHE_LT_OPR)->lt_opr,
										 column);
	}
	return order;
}
