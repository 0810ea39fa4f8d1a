/*
 * order.c
 *		The order of keys: that of ORDER BY in statements, and of an index of them.
 */
#include "order.h"

#include "catalog/pg_opfamily.h"
#include "utils/typcache.h"

#include "compat.h"

static void
make_column(const DrColumn *key, DrOrderColumn *column)
{
	TypeCacheEntry *type = lookup_type_cache(key->type, TYPECACHE_LT_OPR |
											 TYPECACHE_BTREE_OPFAMILY);

	column->sort.ssup_cxt = CurrentMemoryContext;
	column->sort.ssup_collation = key->collation;
	PrepareSortSupportFromOrderingOp(type->lt_opr, &column->sort);
	column->bytewise = type->btree_opf == TEXT_BTREE_FAM_OID && type->typlen == -1 &&
		dr_collation_is_c(key->collation);
}

DrOrder *
dr_order_make(const DrDefinition *def)
{
	DrOrder    *order = palloc0(offsetof(DrOrder, columns) +
								def->nkeys * sizeof(DrOrderColumn));

	order->n = def->nkeys;
	for (int i = 0; i < def->nkeys; i++)
		make_column(&def->columns[def->keys[i]], &order->columns[i]);
	return order;
}
