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
#include "current.h"

#include "access/htup_details.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "boundary.h"
#include "catalog.h"
#include "identity.h"
#include "plans.h"
#include "query.h"

/* Is live kept by others, and shown as it is?  It may have several rows a key. */
static bool
is_left_alone(const DrRollup *rollup)
{
	return !rollup->fold &&
		(rollup->state == DR_STATE_OFF || rollup->state == DR_STATE_SHADOW);
}

/* Does live's content count?  In state on it does from the first watermark on. */
static bool
counts(const DrRollup *rollup)
{
	return dr_catalog_folds(rollup) ||
		(rollup->state == DR_STATE_ON && rollup->has_watermark);
}

/*
 * The rollup by the snapshot of the query that calls us.  To a snapshot older
 * than the rollup there is none, and all is tail.
 */
static DrRollup *
seen(Oid live)
{
	return dr_catalog_find(live, GetActiveSnapshot());
}

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

/*
 * Who may ask for a row?  The server has checked whoever reads the view, or a
 * view on top of it, or a column of it; all that we know is the outermost
 * user.  So the view brings a proof, which stands in the marks and which its
 * owner alone can read otherwise.
 */
static void
check_proof(FunctionCallInfo fcinfo, const DrRollup *rollup)
{
	if (PG_ARGISNULL(2) || PG_GETARG_INT64(2) != rollup->proof)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for rollup \"%s\"", dr_catalog_name(rollup->live)),
				 errhint("Its rows are read through the view \"%s\".",
						 dr_catalog_name(rollup->current_view))));
}

/* The arguments from the fourth on are the key, in the key's types; the second
 * has the type of the definition's rows. */
static void
check_key_arguments(FunctionCallInfo fcinfo, const DrRollup *rollup,
					const DrDefinition *def)
{
	bool		fits = PG_NARGS() == def->nkeys + 3 &&
		!get_fn_expr_variadic(fcinfo->flinfo) &&
		get_typ_typrelid(get_fn_expr_argtype(fcinfo->flinfo, 1)) == rollup->definition;

	for (int i = 0; fits && i < def->nkeys; i++)
		fits = get_fn_expr_argtype(fcinfo->flinfo, i + 3) ==
			def->columns[def->keys[i]].type;
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the arguments are not a key of this rollup")));
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

PG_FUNCTION_INFO_V1(dailyrollup_live_counts);
PG_FUNCTION_INFO_V1(dailyrollup_live_is_left_alone);
PG_FUNCTION_INFO_V1(dailyrollup_marks_that_count);
PG_FUNCTION_INFO_V1(dailyrollup_tail_from);
PG_FUNCTION_INFO_V1(dailyrollup_current_row);

/* Does live's content count, by the caller's snapshot? */
Datum
dailyrollup_live_counts(PG_FUNCTION_ARGS)
{
	DrRollup   *rollup = seen(PG_GETARG_OID(0));

	PG_RETURN_BOOL(rollup != NULL && counts(rollup));
}

/* Is live shown as it is, by the caller's snapshot? */
Datum
dailyrollup_live_is_left_alone(PG_FUNCTION_ARGS)
{
	DrRollup   *rollup = seen(PG_GETARG_OID(0));

	PG_RETURN_BOOL(rollup != NULL && is_left_alone(rollup));
}

/* The kind of marks that count, by the caller's snapshot. */
Datum
dailyrollup_marks_that_count(PG_FUNCTION_ARGS)
{
	DrRollup   *rollup = seen(PG_GETARG_OID(0));

	PG_RETURN_CHAR(rollup == NULL ? DR_DIRTIES_DAILY : dr_catalog_dirties_live(rollup));
}

/* Where the tail begins, by the caller's snapshot; NULL where there is none. */
Datum
dailyrollup_tail_from(PG_FUNCTION_ARGS)
{
	DrTimeKind	kind = dr_boundary_kind(get_func_rettype(fcinfo->flinfo->fn_oid));
	DrRollup   *rollup = seen(PG_GETARG_OID(0));

	if (rollup != NULL &&
		(rollup->state == DR_STATE_OFF || rollup->state == DR_STATE_SHADOW))
		PG_RETURN_NULL();
	if (rollup == NULL || !counts(rollup))
		PG_RETURN_DATUM(dr_boundary_minus_infinity(kind));
	PG_RETURN_DATUM(dr_boundary_datum(kind, dr_boundary_zone(rollup->time_zone),
									  rollup->watermark));
}

/*
 * The row of one key, from its whole history, as a row of the definition; none
 * where the key has no source row.
 */
Datum
dailyrollup_current_row(PG_FUNCTION_ARGS)
{
	DrPlans    *plans;
	int			n;
	Datum	   *values;
	bool	   *key_is_null;
	char	   *nulls;
	DrIdentity	before;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (PG_ARGISNULL(0))
		return (Datum) 0;
	plans = dr_plans_of(PG_GETARG_OID(0));
	check_proof(fcinfo, plans->rollup);
	check_key_arguments(fcinfo, plans->rollup, plans->def);

	n = plans->def->nkeys;
	values = palloc(n * sizeof(Datum));
	key_is_null = palloc(n * sizeof(bool));
	nulls = palloc(n + 1);
	for (int i = 0; i < n; i++)
	{
		key_is_null[i] = PG_ARGISNULL(i + 3);
		values[i] = key_is_null[i] ? (Datum) 0 : PG_GETARG_DATUM(i + 3);
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
	return (Datum) 0;
}
