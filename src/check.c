/*
 * check.c
 *		Counting and comparing a rollup's table, and showing its definition.
 *
 * Counts read the heap: an index that has lost entries, or gained some, must
 * not be asked whether the table is right.
 */
#include "check.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "boundary.h"
#include "compat.h"
#include "definition.h"
#include "identity.h"
#include "query.h"

static void
set_locally(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

static int64
count_column(int column)
{
	bool		isnull;

	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
									   column, &isnull));
}

/* Count live's rows and keys in the heap. */
DrCount
dr_check_count(const DrRollup *rollup, const DrDefinition *def)
{
	DrIdentity	before;
	DrCount		count;

	dr_identity_enter_sql(rollup->owner, &before);
	set_locally("enable_indexscan", "off");
	set_locally("enable_indexonlyscan", "off");
	set_locally("enable_bitmapscan", "off");
	if (SPI_execute(dr_query_count_live(def, rollup), false, 1) != SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "could not count \"%s\"", dr_catalog_name(rollup->live));
	count.rows = count_column(1);
	count.keys = count_column(2);
	count.dup_keys = count_column(3);
	count.dup_rows = count_column(4);
	dr_identity_leave_sql(&before);
	return count;
}

/* Add SPI's result to the function's, column by column. */
static void
return_spi_rows(ReturnSetInfo *result, int columns)
{
	Datum	   *values = palloc(columns * sizeof(Datum));
	bool	   *nulls = palloc(columns * sizeof(bool));

	for (uint64 row = 0; row < SPI_processed; row++)
	{
		for (int i = 0; i < columns; i++)
			values[i] = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc,
									  i + 1, &nulls[i]);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
}

static void
compare(ReturnSetInfo *result, const DrRollup *rollup, const DrDefinition *def)
{
	Oid			types[1] = {dr_boundary_type(def->time_kind)};
	Datum		values[1] = {
		dr_boundary_datum(def->time_kind, dr_boundary_zone(rollup->time_zone),
						  rollup->watermark)
	};
	DrIdentity	before;

	dr_identity_enter_sql(rollup->owner, &before);
	if (SPI_execute_with_args(dr_query_verify(def, rollup), 1, types, values, NULL,
							  true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not compare \"%s\"", dr_catalog_name(rollup->live));
	return_spi_rows(result, 6);
	dr_identity_leave_sql(&before);
}

static char *
definition_text(const DrRollup *rollup, const DrDefinition *def,
				bool bounded, TimestampTz before)
{
	DrIdentity	identity;
	char	   *bound = NULL;
	char	   *text;

	dr_identity_enter(rollup->owner, &identity);

	/* the text must mean the same in a session with other settings */
	set_locally("datestyle", "ISO, YMD");
	set_locally("intervalstyle", "postgres");
	set_locally("timezone", "UTC");
	set_locally("extra_float_digits", "3");
	if (bounded)
	{
		Oid			type = dr_boundary_type(def->time_kind);
		Oid			output;
		bool		varlena;

		getTypeOutputInfo(type, &output, &varlena);
		bound = psprintf("%s::pg_catalog.%s",
						 quote_literal_cstr(OidOutputFunctionCall(output,
																  dr_boundary_bound(def->time_kind,
																					dr_boundary_zone(rollup->time_zone),
																					before))),
						 dr_boundary_type_name(def->time_kind));
	}
	text = dr_query_definition(def, bound);
	dr_identity_leave(&identity);
	return text;
}

/* May the caller see what is known of the rollup? */
static bool
may_see(const DrRollup *rollup)
{
	return has_privs_of_role(GetUserId(), rollup->owner) ||
		has_privs_of_role(GetUserId(), get_role_oid("pg_monitor", false));
}

static void
list_late(ReturnSetInfo *result, const DrRollup *rollup)
{
	DrDefinition *def = dr_definition_read(rollup->source, rollup->events, rollup->definition);
	DrIdentity	before;

	dr_identity_enter_sql(rollup->owner, &before);
	if (SPI_execute(dr_query_list_late(def, rollup), true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list the marks of \"%s\"", dr_catalog_name(rollup->live));
	return_spi_rows(result, 2);
	dr_identity_leave_sql(&before);
}

/*
 * The views of status show all rollups to those who watch over them: one whose
 * owner has broken its objects must not hide the others.
 */
static void
try_list_late(ReturnSetInfo *result, const DrRollup *rollup)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		list_late(result, rollup);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(error);
		if (error->sqlerrcode != ERRCODE_UNDEFINED_OBJECT)	/* not just dropped */
			ereport(WARNING,
				(errcode(error->sqlerrcode),
				 errmsg("could not list the late keys of rollup \"%s\": %s",
						dr_catalog_name(rollup->live), error->message)));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_check);
PG_FUNCTION_INFO_V1(dailyrollup_verify);
PG_FUNCTION_INFO_V1(dailyrollup_definition);
PG_FUNCTION_INFO_V1(dailyrollup_watermark);
PG_FUNCTION_INFO_V1(dailyrollup_late);

Datum
dailyrollup_check(PG_FUNCTION_ARGS)
{
	List	   *rollups = PG_ARGISNULL(0) ? dr_catalog_owned_all() :
		list_make1(dr_catalog_owned(PG_GETARG_OID(0)));
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, rollups)
	{
		DrRollup   *rollup = lfirst(cell);
		DrDefinition *def = dr_definition_read(rollup->source, rollup->events, rollup->definition);
		DrCount		count = dr_check_count(rollup, def);
		Datum		values[6] = {
			ObjectIdGetDatum(rollup->live), CStringGetTextDatum("live"),
			Int64GetDatum(count.rows), Int64GetDatum(count.keys),
			Int64GetDatum(count.dup_keys), Int64GetDatum(count.dup_rows)
		};
		bool		nulls[6] = {false};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

Datum
dailyrollup_verify(PG_FUNCTION_ARGS)
{
	Oid			live = PG_GETARG_OID(0);
	DrRollup   *rollup;

	dr_catalog_owned(live);

	/* watermark, live, marks and source by one snapshot */
	PushActiveSnapshot(XactIsoLevel == XACT_READ_COMMITTED ?
					   GetLatestSnapshot() : GetTransactionSnapshot());
	rollup = dr_catalog_find(live, GetActiveSnapshot());
	if (rollup == NULL || !rollup->has_watermark)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rollup \"%s\" has no watermark yet", dr_catalog_name(live)),
				 errhint("The next rollup_refresh fills it.")));
	InitMaterializedSRF(fcinfo, 0);
	compare((ReturnSetInfo *) fcinfo->resultinfo, rollup,
			dr_definition_read(rollup->source, rollup->events, rollup->definition));
	PopActiveSnapshot();
	return (Datum) 0;
}

Datum
dailyrollup_definition(PG_FUNCTION_ARGS)
{
	DrRollup   *rollup;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	rollup = dr_catalog_owned(PG_GETARG_OID(0));
	PG_RETURN_TEXT_P(cstring_to_text(definition_text(rollup,
													 dr_definition_read(rollup->source, rollup->events, rollup->definition),
													 !PG_ARGISNULL(1),
													 PG_ARGISNULL(1) ? 0 : PG_GETARG_TIMESTAMPTZ(1))));
}

/* W by the caller's snapshot. */
Datum
dailyrollup_watermark(PG_FUNCTION_ARGS)
{
	Oid			live = PG_GETARG_OID(0);
	DrRollup   *rollup = dr_catalog_find(live, GetActiveSnapshot());

	if (rollup == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not a rollup", dr_catalog_name(live)),
				 errhint("The view rollup_status lists the rollups; rollup_create defines one.")));
	if (!rollup->has_watermark)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(rollup->watermark);
}

/* The waiting keys of a rollup; none where the caller may not see them. */
Datum
dailyrollup_late(PG_FUNCTION_ARGS)
{
	DrRollup   *rollup = dr_catalog_find(PG_GETARG_OID(0), GetActiveSnapshot());

	InitMaterializedSRF(fcinfo, 0);
	if (rollup != NULL && OidIsValid(rollup->owner) && may_see(rollup))
		try_list_late((ReturnSetInfo *) fcinfo->resultinfo, rollup);
	return (Datum) 0;
}
