/*
 * parallel.c
 *		May a parallel worker compute the defining query?
 *
 * By the rules of the server: what its functions are declared as.  (The source
 * is neither temporary nor foreign.  A policy, which may call anything, applies
 * to it for an owner of the rollup who is not the source's.)
 */
#include "parallel.h"

#include "catalog/pg_proc.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/typcache.h"

/* The functions that the query itself calls, aggregates among them. */
static bool
is_query_safe(const DrDefinition *def)
{
	Query	   *query = makeNode(Query);

	query->commandType = CMD_SELECT;
	for (int i = 0; i < def->ncolumns; i++)
		query->targetList = lappend(query->targetList,
									makeTargetEntry((Expr *) def->columns[i].expr, i + 1,
													NULL, false));
	query->jointree = makeFromExpr(NIL, def->where);
	return max_parallel_hazard(query) == PROPARALLEL_SAFE;
}

/* Values of the type are compared where two rows are of one time. */
static bool
is_order_safe(Oid type)
{
	Oid			function = lookup_type_cache(type, TYPECACHE_CMP_PROC)->cmp_proc;

	return !OidIsValid(function) || func_parallel(function) == PROPARALLEL_SAFE;
}

static bool
are_orders_safe(const DrDefinition *def)
{
	for (int i = 0; i < def->nevents; i++)
		if (!is_order_safe(def->events[i].type))
			return false;
	for (int i = 0; i < def->ncolumns; i++)
		if (def->columns[i].arg != NULL && !is_order_safe(exprType(def->columns[i].arg)))
			return false;
	return true;
}

/* The caller works as the rollup's owner. */
bool
dr_parallel_is_safe(const DrDefinition *def)
{
	return check_enable_rls(def->source, InvalidOid, true) != RLS_ENABLED &&
		is_query_safe(def) && are_orders_safe(def);
}
