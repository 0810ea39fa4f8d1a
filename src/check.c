/*
 * check.c
 *		Counting and comparing a rollup's table, and showing its definition.
 *
 * Counts read the heap: an index that has lost entries, or gained some, must
 * not be asked whether the table is right.
 */
#include "check.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "attempt.h"
#include "boundary.h"
#include "compare.h"
#include "compat.h"
#include "definition.h"
#include "identity.h"
#include "intact.h"
#include "objects.h"
#include "owned.h"
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

/*
 * Until the identity is left, tables are read by their heap.  What is off gets a
 * high price, not a prohibition: there must be another way.
 */
void
dr_check_distrust_indexes(void)
{
	set_locally("enable_indexscan", "off");
	set_locally("enable_indexonlyscan", "off");
	set_locally("enable_bitmapscan", "off");
	set_locally("enable_seqscan", "on");
	set_locally("enable_sort", "on");
	set_locally("enable_hashagg", "on");
	set_locally("enable_hashjoin", "on");
	set_locally("enable_mergejoin", "on");
	set_locally("enable_nestloop", "on");
}

/* Run a query that returns one row of counts. */
static void
run_count(const DrRollup *rollup, const char *sql)
{
	if (SPI_execute(sql, false, 0) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not count \"%s\"", dr_catalog_name(rollup->live));
}

/* Count rows and keys of live, or of the shadow, in the heap. */
DrCount
dr_check_count(const DrRollup *rollup, const DrDefinition *def, Oid table)
{
	DrIdentity	before;
	DrCount		count;

	dr_identity_enter_sql(rollup->owner, &before);
	dr_check_distrust_indexes();
	run_count(rollup, dr_query_count(def, table));
	count.rows = count_column(1);
	count.keys = count_column(2);
	count.dup_keys = count_column(3);
	count.dup_rows = count_column(4);
	dr_identity_leave_sql(&before);
	return count;
}

/*
 * An error where a table that was just written does not have one row a key, or
 * not so many as it should (-1: not known).  What a statement reports is not
 * believed: a trigger may have left rows out.
 */
void
dr_check_written(const DrRollup *rollup, const DrDefinition *def, Oid table, int64 expected)
{
	DrCount		count = dr_check_count(rollup, def, table);

	if (count.rows == count.keys && (expected < 0 || count.rows == expected))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("\"%s\" does not have what was written to it", dr_catalog_name(table)),
			 expected < 0 ?
			 errdetail("It has " INT64_FORMAT " rows of " INT64_FORMAT " keys.",
					   count.rows, count.keys) :
			 errdetail("It has " INT64_FORMAT " rows of " INT64_FORMAT " keys; there should be "
					   INT64_FORMAT ".", count.rows, count.keys, expected),
			 errhint("All is as it was before. Look at its triggers; REINDEX it.")));
}

/* Compare live with the shadow in memory; false where that cannot be done. */
static bool
compare_in_memory(const DrRollup *rollup, const DrDefinition *def, DrCompared *result)
{
	Relation	live = table_open(rollup->live, AccessShareLock);
	Relation	shadow = table_open(rollup->shadow, AccessShareLock);
	DrContent  *content = dr_content_prepare(def, live, shadow);

	if (content != NULL)
	{
		dr_content_compare(content, dr_query_rows(def, rollup->shadow), NULL, NULL, NULL, result);
		dr_content_end(content);
	}
	table_close(shadow, NoLock);
	table_close(live, NoLock);
	return content != NULL;
}

/* The same by three counts. */
static void
compare_by_counts(const DrRollup *rollup, const DrDefinition *def, DrCompared *result)
{
	DrCount		live = dr_check_count(rollup, def, rollup->live);
	DrCount		shadow = dr_check_count(rollup, def, rollup->shadow);

	run_count(rollup, dr_query_count_common(def, rollup));
	result->common = count_column(1);
	result->stored_rows = live.rows;
	result->stored_keys = live.keys;
	result->fresh_rows = shadow.rows;
	result->fresh_keys = shadow.keys;
}

/* Count the rows and keys of live ("stored") and of the shadow ("fresh"), and
 * the rows that they have in common byte by byte; in the heap. */
void
dr_check_compare(const DrRollup *rollup, const DrDefinition *def, DrCompared *result)
{
	DrIdentity	before;

	dr_identity_enter_sql(rollup->owner, &before);
	dr_check_distrust_indexes();
	if (!compare_in_memory(rollup, def, result))
		compare_by_counts(rollup, def, result);
	dr_identity_leave_sql(&before);
}

/* How many keys differ between live and the definition over the whole source,
 * but for those with marks of the kind "waiting". */
int64
dr_check_count_differences(const DrRollup *rollup, const DrDefinition *def, char waiting)
{
	DrIdentity	before;
	int64		keys;

	dr_identity_enter_sql(rollup->owner, &before);
	run_count(rollup, psprintf("SELECT pg_catalog.count(*) FROM (%s) d(a, b, c, d, e, f)",
							   dr_compare_verify(def, rollup, waiting, NULL)));
	keys = count_column(1);
	dr_identity_leave_sql(&before);
	return keys;
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

/* Run a comparison whose $1, if any, is that watermark. */
static void
run_comparison(const DrRollup *rollup, const DrDefinition *def, const char *sql,
			   bool bounded, TimestampTz watermark)
{
	Oid			types[1] = {dr_boundary_type(def->time_kind)};
	Datum		values[1];

	if (bounded)
		values[0] = dr_boundary_datum(def->time_kind, dr_boundary_zone(rollup->time_zone),
									  watermark);
	if (SPI_execute_with_args(sql, bounded ? 1 : 0, types, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not compare \"%s\"", dr_catalog_name(rollup->live));
}

/*
 * Live against the definition: before its watermark, or, where it has none
 * because each write is folded into it, against all.
 */
static void
verify(ReturnSetInfo *result, const DrRollup *rollup)
{
	DrDefinition *def = dr_definition_read(rollup->source, rollup->events, rollup->definition);
	bool		bounded = rollup->state == DR_STATE_ON;
	DrIdentity	before;

	dr_identity_enter_sql(rollup->owner, &before);
	run_comparison(rollup, def,
				   dr_compare_verify(def, rollup, dr_catalog_dirties_live(rollup),
									 bounded ? "$1" : NULL),
				   bounded, rollup->watermark);
	return_spi_rows(result, DR_COMPARE_COLUMNS);
	dr_identity_leave_sql(&before);
}

/* Live against the shadow; "through_now": united with the tail. */
static void
diff(ReturnSetInfo *result, const DrRollup *rollup, bool through_now)
{
	DrDefinition *def = dr_definition_read(rollup->source, rollup->events, rollup->definition);
	DrIdentity	before;

	dr_identity_enter_sql(rollup->owner, &before);
	run_comparison(rollup, def, dr_compare_diff(def, rollup, through_now),
				   true, rollup->shadow_watermark);
	return_spi_rows(result, DR_COMPARE_COLUMNS);
	dr_identity_leave_sql(&before);
}

static bool
can_diff(const DrRollup *rollup)
{
	return rollup->state == DR_STATE_SHADOW && rollup->has_shadow_watermark;
}

/* Counts the differences, by the caller's snapshot, and names some keys; false
 * where there is nothing to compare. */
bool
dr_check_diff(const DrRollup *rollup, DrRun *run, char **keys)
{
	MemoryContext context = CurrentMemoryContext;
	DrDefinition *def;
	DrIdentity	before;
	char	   *list;

	if (!can_diff(rollup))
		return false;
	def = dr_definition_read(rollup->source, rollup->events, rollup->definition);
	dr_identity_enter_sql(rollup->owner, &before);
	run_comparison(rollup, def,
				   dr_compare_count(dr_compare_diff(def, rollup, rollup->fold)),
				   true, rollup->shadow_watermark);
	run->compared = true;
	run->missing_daily = count_column(1);
	run->missing_live = count_column(2);
	run->mismatches = count_column(3);
	run->duplicates = count_column(4);
	list = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 5);
	*keys = list == NULL ? NULL : MemoryContextStrdup(context, list);
	dr_identity_leave_sql(&before);
	return true;
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

/* The late keys of a rollup, as an attempt. */
typedef struct LateList
{
	ReturnSetInfo *result;
	const DrRollup *rollup;
} LateList;

static void
list_late(void *arg)
{
	const LateList *list = arg;
	const DrRollup *rollup = list->rollup;
	DrDefinition *def = dr_definition_read(rollup->source, rollup->events, rollup->definition);
	DrIdentity	before;

	dr_identity_enter_sql(rollup->owner, &before);
	if (SPI_execute(dr_query_list_late(def, rollup, rollup->state == DR_STATE_SHADOW ?
									   DR_DIRTIES_ANY : dr_catalog_dirties_live(rollup)),
					true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list the marks of \"%s\"", dr_catalog_name(rollup->live));
	return_spi_rows(list->result, 3);
	dr_identity_leave_sql(&before);
}

/*
 * The views of status show all rollups to those who watch over them: one whose
 * owner has broken its objects must not hide the others.
 */
static void
try_list_late(ReturnSetInfo *result, const DrRollup *rollup)
{
	LateList	list = {.result = result, .rollup = rollup};
	ErrorData  *error = dr_attempt(list_late, &list);

	if (error == NULL || error->sqlerrcode == ERRCODE_UNDEFINED_OBJECT) /* just dropped */
		return;
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("could not list the late keys of rollup \"%s\": %s",
					dr_catalog_name(rollup->live), error->message)));
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_check);
PG_FUNCTION_INFO_V1(dailyrollup_verify);
PG_FUNCTION_INFO_V1(dailyrollup_diff);
PG_FUNCTION_INFO_V1(dailyrollup_definition);
PG_FUNCTION_INFO_V1(dailyrollup_watermark);
PG_FUNCTION_INFO_V1(dailyrollup_late);

static void
return_count(ReturnSetInfo *result, const DrRollup *rollup, const char *side, Oid table)
{
	DrDefinition *def = dr_definition_read(rollup->source, rollup->events, rollup->definition);
	DrCount		count = dr_check_count(rollup, def, table);
	Datum		values[6] = {
		ObjectIdGetDatum(rollup->live), CStringGetTextDatum(side),
		Int64GetDatum(count.rows), Int64GetDatum(count.keys),
		Int64GetDatum(count.dup_keys), Int64GetDatum(count.dup_rows)
	};
	bool		nulls[6] = {false};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* What there is of a rollup: none where it has gone since it was listed, and no
 * shadow where that has gone while live was counted. */
static void
return_counts(ReturnSetInfo *result, Oid live)
{
	DrRollup   *rollup;

	LockRelationOid(live, AccessShareLock);
	rollup = dr_catalog_find(live, NULL);
	if (rollup == NULL)
		return;
	dr_owned_check_parts(rollup, true);
	dr_intact_warn(rollup);
	return_count(result, rollup, "live", live);
	if (!OidIsValid(rollup->shadow))
		return;
	LockRelationOid(rollup->shadow, AccessShareLock);
	if (get_rel_name(rollup->shadow) != NULL)
		return_count(result, rollup, "daily", rollup->shadow);
}

Datum
dailyrollup_check(PG_FUNCTION_ARGS)
{
	List	   *rollups = PG_ARGISNULL(0) ? dr_owned_all() :
		list_make1(dr_owned_rollup(PG_GETARG_OID(0)));
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, rollups)
		return_counts((ReturnSetInfo *) fcinfo->resultinfo, ((DrRollup *) lfirst(cell))->live);
	return (Datum) 0;
}

/*
 * The rollup by a snapshot that is pushed here and that live, shadow, marks and
 * source are read by too; only its owner may ask.
 */
static DrRollup *
begin_comparison(Oid live)
{
	DrRollup   *rollup;

	dr_owned_rollup(live);
	PushActiveSnapshot(XactIsoLevel == XACT_READ_COMMITTED ?
					   GetLatestSnapshot() : GetTransactionSnapshot());
	rollup = dr_catalog_find(live, GetActiveSnapshot());
	if (rollup == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" was no rollup yet when this transaction began",
						dr_catalog_name(live))));
	return rollup;
}

Datum
dailyrollup_verify(PG_FUNCTION_ARGS)
{
	Oid			live = PG_GETARG_OID(0);
	DrRollup   *rollup = begin_comparison(live);

	if (rollup->state == DR_STATE_NEW ||
		(rollup->state == DR_STATE_ON && !rollup->has_watermark))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rollup \"%s\" has no watermark yet", dr_catalog_name(live)),
				 errhint("The next rollup_refresh or pass fills it.")));
	InitMaterializedSRF(fcinfo, 0);
	verify((ReturnSetInfo *) fcinfo->resultinfo, rollup);
	PopActiveSnapshot();
	return (Datum) 0;
}

/* Is the scope "all"?  NULL stands for what fits the rollup. */
static bool
scope_is_all(FunctionCallInfo fcinfo, const DrRollup *rollup)
{
	char	   *scope;

	if (PG_ARGISNULL(1))
		return rollup->fold;
	scope = text_to_cstring(PG_GETARG_TEXT_PP(1));
	if (strcmp(scope, "all") == 0)
		return true;
	if (strcmp(scope, "settled") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized scope \"%s\"", scope),
				 errhint("Use 'all' or 'settled'; NULL chooses the one that fits.")));
	return false;
}

Datum
dailyrollup_diff(PG_FUNCTION_ARGS)
{
	DrRollup   *rollup;

	InitMaterializedSRF(fcinfo, 0);
	if (PG_ARGISNULL(0))
		return (Datum) 0;
	rollup = begin_comparison(PG_GETARG_OID(0));
	if (!can_diff(rollup))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rollup \"%s\" has no shadow to compare with",
						dr_catalog_name(rollup->live)),
				 errdetail("Its state is \"%s\".", dr_catalog_state_name(rollup->state)),
				 errhint("In mode \"shadow\" the pass builds one: CALL rollup_run(%s).",
						 quote_literal_cstr(dr_objects_relation(rollup->live)))));
	LockRelationOid(rollup->shadow, AccessShareLock);
	if (get_rel_name(rollup->shadow) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rollup \"%s\" was promoted, or left state shadow, meanwhile",
						dr_catalog_name(rollup->live))));
	dr_owned_check_parts(rollup, true);
	diff((ReturnSetInfo *) fcinfo->resultinfo, rollup, scope_is_all(fcinfo, rollup));
	PopActiveSnapshot();
	return (Datum) 0;
}

Datum
dailyrollup_definition(PG_FUNCTION_ARGS)
{
	DrRollup   *rollup;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	rollup = dr_owned_rollup(PG_GETARG_OID(0));
	PG_RETURN_TEXT_P(cstring_to_text(definition_text(rollup,
													 dr_definition_read(rollup->source, rollup->events, rollup->definition),
													 !PG_ARGISNULL(1),
													 PG_ARGISNULL(1) ? 0 : PG_GETARG_TIMESTAMPTZ(1))));
}

/* W by the caller's snapshot: live's, or the shadow's in state shadow. */
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
	if (rollup->state == DR_STATE_SHADOW && rollup->has_shadow_watermark)
		PG_RETURN_TIMESTAMPTZ(rollup->shadow_watermark);
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
	if (rollup != NULL && dr_catalog_may_see(rollup->live))
		try_list_late((ReturnSetInfo *) fcinfo->resultinfo, rollup);
	return (Datum) 0;
}
