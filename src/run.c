/*
 * run.c
 *		CALL rollup_run(), and what it would do.
 */
#include "run.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/timestamp.h"

#include "boundary.h"
#include "catalog.h"
#include "owned.h"
#include "pass.h"
#include "steps.h"

/* A rollup whose pass has failed. */
typedef struct Failure
{
	char	   *name;
	ErrorData  *error;
} Failure;

static void
complain_of_failures(List *failed, int n)
{
	StringInfoData list;
	ListCell   *cell;

	initStringInfo(&list);
	foreach(cell, failed)
	{
		Failure    *failure = lfirst(cell);

		appendStringInfo(&list, "%s%s: %s", list.len == 0 ? "" : "\n", failure->name,
						 failure->error->message);
	}
	ereport(ERROR,
			(errcode(((Failure *) linitial(failed))->error->sqlerrcode),
			 errmsg("%d of %d rollups failed", list_length(failed), n),
			 errdetail_internal("%s", list.data),
			 errhint("The view rollup_runs has each of them; the others were served.")));
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_run);
PG_FUNCTION_INFO_V1(dailyrollup_next_due);
PG_FUNCTION_INFO_V1(dailyrollup_plan);

static void
check_can_commit(FunctionCallInfo fcinfo)
{
	PreventCommandDuringRecovery("rollup_run()");
	PreventCommandIfReadOnly("rollup_run()");
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("rollup_run cannot run inside a transaction block"),
				 errdetail("It commits after each step."),
				 errhint("Use CALL rollup_run() alone; rollup_refresh and rollup_promote run inside a transaction.")));
	if (XactIsoLevel != XACT_READ_COMMITTED)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("rollup_run needs READ COMMITTED transactions"),
				 errhint("Set default_transaction_isolation to 'read committed'.")));
}

/* Procedure: a pass over one rollup, or over each of the caller's. */
Datum
dailyrollup_run(PG_FUNCTION_ARGS)
{
	MemoryContext context;
	MemoryContext before;
	List	   *lives = NIL;
	List	   *failed = NIL;
	ListCell   *cell;

	check_can_commit(fcinfo);

	/* what outlives the transactions */
	context = AllocSetContextCreate(PortalContext, "dailyrollup pass", ALLOCSET_DEFAULT_SIZES);
	before = MemoryContextSwitchTo(context);
	if (PG_ARGISNULL(0))
	{
		foreach(cell, dr_owned_all())
			lives = lappend_oid(lives, ((DrRollup *) lfirst(cell))->live);
	}
	else
		lives = list_make1_oid(dr_owned_rollup(PG_GETARG_OID(0))->live);

	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	/* a step must not be one transaction with what the caller has done */
	SPI_commit();
	MemoryContextSwitchTo(context);
	foreach(cell, lives)
	{
		Failure    *failure = palloc0(sizeof(Failure));
		bool		skipped;

		failure->name = dr_catalog_name(lfirst_oid(cell));
		failure->error = dr_pass(lfirst_oid(cell), false, SPI_commit, context,
								 &skipped);
		if (failure->error != NULL)
			failed = lappend(failed, failure);
	}
	SPI_finish();
	if (failed != NIL)
		complain_of_failures(failed, list_length(lives));
	MemoryContextSwitchTo(before);
	PG_RETURN_VOID();
}

/* When the next pass has something to do for the rollup (NULL: never, as things
 * are), and what. */
Datum
dailyrollup_next_due(PG_FUNCTION_ARGS)
{
	DrRollup   *rollup = dr_catalog_find(PG_GETARG_OID(0), NULL);
	const char *reason;
	TupleDesc	desc;
	Datum		values[2];
	bool		nulls[2] = {false, false};
	TimestampTz due;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (rollup == NULL || !dr_catalog_may_see(rollup->live))
		PG_RETURN_NULL();
	due = dr_steps_due(rollup, &reason);
	nulls[0] = due == DT_NOEND;
	values[0] = TimestampTzGetDatum(due);
	values[1] = CStringGetTextDatum(reason);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

static void
return_plan(ReturnSetInfo *result, DrRollup *rollup)
{
	List	   *plan = NIL;
	ListCell   *cell;

	/* the others have a plan */
	if (dr_boundary_knows_zone(rollup->time_zone))
		plan = dr_steps_plan(rollup);
	else
		ereport(WARNING,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("rollup \"%s\": time zone \"%s\" not recognized",
						dr_catalog_name(rollup->live), rollup->time_zone)));
	foreach(cell, plan)
	{
		DrPlannedStep *step = lfirst(cell);
		bool		nulls[6] = {false, false, false, false, false, !step->has_boundary};
		Datum		values[6] = {
			ObjectIdGetDatum(rollup->live), Int32GetDatum(foreach_current_index(cell) + 1),
			CStringGetTextDatum(step->step),
			CStringGetTextDatum(dr_catalog_state_name(step->state)),
			CStringGetTextDatum(dr_catalog_state_name(step->becomes)),
			TimestampTzGetDatum(step->boundary)
		};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
}

/* What the next pass would do for each of the caller's rollups. */
Datum
dailyrollup_plan(PG_FUNCTION_ARGS)
{
	List	   *rollups = dr_owned_all();
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, rollups)
		return_plan((ReturnSetInfo *) fcinfo->resultinfo, lfirst(cell));
	return (Datum) 0;
}
