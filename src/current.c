/*
 * current.c
 *		What the view <live>_current is made of.
 *
 * The view unites three legs, each key in exactly one of them:
 *
 *		live			keys without marks, once live counts
 *		tail			source rows since W, keys without marks; none where each
 *						write is folded into live
 *		marked keys		each from its whole history
 *
 * Where live is left to others it is shown as it is, and none of the legs has a
 * row.
 *
 * Watermark and marks are read by the snapshot of the query that reads live
 * and the source, so a refresh that commits meanwhile changes nothing.
 */
#include "dailyrollup.h"

#include "access/htup_details.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/supportnodes.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "catalog.h"
#include "identity.h"
#include "marked.h"
#include "permit.h"
#include "plans.h"
#include "query.h"
#include "seen.h"
#include "tail.h"
#include "view.h"

/* The plan for a key with this pattern of NULLs; prepared at first use. */
static SPIPlanPtr
key_plan(DrPlans *plans, const bool *key_is_null)
{
	int			n = plans->def->nkeys;
	ListCell   *cell;
	DrKeyPlan  *made;
	Oid		   *types;
	MemoryContext before;

	foreach(cell, plans->key_plans)
	{
		DrKeyPlan  *known = lfirst(cell);

		if (memcmp(known->key_is_null, key_is_null, n * sizeof(bool)) == 0)
			return known->plan;
	}

	types = palloc(n * sizeof(Oid));
	for (int i = 0; i < n; i++)
		types[i] = plans->def->columns[plans->def->keys[i]].type;
	made = MemoryContextAlloc(plans->context, sizeof(DrKeyPlan));
	made->key_is_null = MemoryContextAlloc(plans->context, n * sizeof(bool));
	memcpy(made->key_is_null, key_is_null, n * sizeof(bool));
	made->plan = dr_plans_prepare(dr_query_key_row(plans->def, key_is_null), n, types, 0);
	before = MemoryContextSwitchTo(plans->context);
	plans->key_plans = lappend(plans->key_plans, made);
	MemoryContextSwitchTo(before);
	return made->plan;
}

/* Is the caller permitted to ask?  After a REASSIGN OWNED that nobody has told us
 * of the view has the permit that it had, until the next pass. */
static void
check_permit(const DrRollup *rollup, const DrPermit *permit)
{
	if (permit->owner != rollup->owner && !dr_view_has_permit(rollup, permit))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for rollup \"%s\"", dr_catalog_name(rollup->live)),
				 errhint("Its rows are read through the view \"%s\".",
						 dr_catalog_name(rollup->current_view))));
}

/* ------------------------------------------------------------- unmarked keys */

/* What a call of _settled or _unmarked knows while its query runs. */
typedef struct Unmarked
{
	DrPermit	permit;
	bool		none;			/* live does not count */
	DrMarked   *marked;			/* NULL: no mark counts */
} Unmarked;

/* To a snapshot older than the rollup there is no live, nor a mark. */
static Unmarked *
begin_unmarked(FunctionCallInfo fcinfo, bool of_live)
{
	const DrPermit *permit = PG_GETARG_PERMIT(0);
	const DrRollup *rollup = dr_seen_rollup(permit->live);
	Unmarked   *known = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(Unmarked));

	known->permit = *permit;
	if (rollup != NULL)
		check_permit(rollup, permit);
	known->none = of_live && (rollup == NULL || !dr_tail_live_counts(rollup));
	if (rollup != NULL && !dr_tail_is_left_alone(rollup))
		known->marked = dr_marked_begin(rollup, fcinfo, 2);
	fcinfo->flinfo->fn_extra = known;
	return known;
}

/* Has the key, the arguments from the third on, no mark that counts; and, for a
 * row of live, does that count? */
static bool
is_unmarked(FunctionCallInfo fcinfo, bool of_live)
{
	Unmarked   *known = fcinfo->flinfo->fn_extra;

	if (known == NULL || !dr_permit_equal(&known->permit, PG_GETARG_PERMIT(0)))
		known = begin_unmarked(fcinfo, of_live);
	return !known->none &&
		(known->marked == NULL || !dr_marked_find(known->marked, fcinfo->args + 2, NULL));
}

/* ------------------------------------------------------------- marked keys */

/* The second argument has the type of the definition's rows; those from the
 * fifth on are the key, of types that the marks have. */
static void
check_key_arguments(FunctionCallInfo fcinfo, const DrPlans *plans)
{
	if (PG_NARGS() != plans->def->nkeys + 4 ||
		get_typ_typrelid(get_fn_expr_argtype(fcinfo->flinfo, 1)) != plans->rollup->definition)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the arguments are not a key of this rollup")));
}

/* Is it the first of the key's marks, of those that count? */
static bool
is_first_mark(FunctionCallInfo fcinfo, DrMarked **marked)
{
	const DrRollup *rollup = dr_seen_rollup(PG_GETARG_PERMIT(0)->live);
	ItemPointerData first;

	if (rollup == NULL || dr_tail_is_left_alone(rollup) ||
		PG_GETARG_CHAR(2) != dr_catalog_dirties_live(rollup))
		return false;
	if (*marked == NULL)
		*marked = dr_marked_begin(rollup, fcinfo, 4);
	return dr_marked_find(*marked, fcinfo->args + 4, &first) &&
		ItemPointerCompare(&first, (ItemPointer) PG_GETARG_POINTER(3)) == 0;
}

/* Put the one row that SPI has found, if any, into the function's result. */
static void
return_row(ReturnSetInfo *result)
{
	TupleDesc	desc = result->setDesc;
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *nulls = palloc(desc->natts * sizeof(bool));

	if (SPI_processed == 0)
		return;
	for (int i = 0; i < desc->natts; i++)
		values[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
								  i + 1, &nulls[i]);
	tuplestore_putvalues(result->setResult, desc, values, nulls);
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_settled);
PG_FUNCTION_INFO_V1(dailyrollup_unmarked);
PG_FUNCTION_INFO_V1(dailyrollup_unmarked_support);
PG_FUNCTION_INFO_V1(dailyrollup_current_row);

/*
 * Does live's row of the key count, by the caller's snapshot?  The arguments from
 * the third on are the key; the second tells that the view depends on its type.
 */
Datum
dailyrollup_settled(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	PG_RETURN_BOOL(is_unmarked(fcinfo, true));
}

/* Has the key no mark that counts, by the caller's snapshot? */
Datum
dailyrollup_unmarked(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	PG_RETURN_BOOL(is_unmarked(fcinfo, false));
}

/* Planner support: as a rule, all rows pass. */
Datum
dailyrollup_unmarked_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);

	if (!IsA(request, SupportRequestSelectivity))
		PG_RETURN_POINTER(NULL);
	((SupportRequestSelectivity *) request)->selectivity = 1.0;
	PG_RETURN_POINTER(request);
}

/* Put the row of the key, the arguments from the fifth on, into the result. */
static void
return_key_row(FunctionCallInfo fcinfo, DrPlans *plans)
{
	int			n = plans->def->nkeys;
	Datum	   *values = palloc(n * sizeof(Datum));
	bool	   *key_is_null = palloc(n * sizeof(bool));
	char	   *nulls = palloc(n + 1);
	DrIdentity	before;

	for (int i = 0; i < n; i++)
	{
		key_is_null[i] = PG_ARGISNULL(i + 4);
		values[i] = key_is_null[i] ? (Datum) 0 : PG_GETARG_DATUM(i + 4);
		nulls[i] = key_is_null[i] ? 'n' : ' ';
	}
	nulls[n] = '\0';

	plans->uses++;
	dr_identity_enter_sql(plans->rollup->owner, &before);

	/* read-only: under the snapshot of the query that calls us */
	if (SPI_execute_plan(key_plan(plans, key_is_null), values, nulls, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not compute a row of \"%s\"", dr_catalog_name(plans->live));
	return_row((ReturnSetInfo *) fcinfo->resultinfo);
	dr_identity_leave_sql(&before);
	plans->uses--;
}

/*
 * The row of one marked key, from its whole history, as a row of the definition;
 * none where the key has no source row, or where another of its marks has the
 * row.
 */
Datum
dailyrollup_current_row(PG_FUNCTION_ARGS)
{
	DrPlans    *plans;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (PG_ARGISNULL(0) || !OidIsValid(PG_GETARG_PERMIT(0)->live))
		return (Datum) 0;
	plans = dr_plans_of(PG_GETARG_PERMIT(0)->live);
	check_permit(plans->rollup, PG_GETARG_PERMIT(0));
	check_key_arguments(fcinfo, plans);
	if (PG_ARGISNULL(2) || PG_ARGISNULL(3) ||
		!is_first_mark(fcinfo, (DrMarked **) &fcinfo->flinfo->fn_extra))
		return (Datum) 0;
	return_key_row(fcinfo, plans);
	return (Datum) 0;
}
