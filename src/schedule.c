/*
 * schedule.c
 *		The pg_cron job that makes the passes.
 *
 * pg_cron keeps all jobs of a server in one of its databases, the one that
 * cron.database_name says.  A job belongs to a role and runs as that role.  Ours
 * is the one named "dailyrollup" of the calling role: it runs rollup_run(),
 * which serves each rollup that the role owns.
 *
 * Everything here runs with the caller's rights, so pg_cron decides what the
 * caller may schedule and see.  Names are qualified, and of the caller's
 * settings those do not count by which they, or the rows of cron.job, could mean
 * something else.
 *
 * When a rollup is due is not asked here (steps.c).
 */
#include "schedule.h"

#include "access/genam.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#define JOB_NAME		"dailyrollup"
#define CRON			"pg_cron"
#define CRON_SCHEMA		"cron"
#define CRON_JOBS		"job"

/* The job as it should be. */
typedef struct Job
{
	char	   *schedule;
	char	   *command;
	char	   *database;
	char	   *role;
} Job;

/* ------------------------------------------------------------ SQL as the caller */

static void
set_locally(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/* Connect to SPI, with settings that the caller did not choose.  An error needs
 * no disconnect. */
static int
connect_to_sql(void)
{
	int			guc_level = NewGUCNestLevel();

	set_locally("search_path", "pg_catalog, pg_temp");

	/* off would make the policy on cron.job an error */
	set_locally("row_security", "on");
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	return guc_level;
}

static void
disconnect_from_sql(int guc_level)
{
	SPI_finish();
	AtEOXact_GUC(false, guc_level);
}

/* Run a query with text parameters; true where it has a row. */
static bool
query(const char *sql, int n, const char **texts, bool read_only)
{
	Oid		   *types = palloc(n * sizeof(Oid));
	Datum	   *values = palloc(n * sizeof(Datum));

	for (int i = 0; i < n; i++)
	{
		types[i] = TEXTOID;
		values[i] = CStringGetTextDatum(texts[i]);
	}
	if (SPI_execute_with_args(sql, n, types, values, NULL, read_only, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", sql);
	return SPI_processed > 0;
}

/* A column of the row that "query" has found. */
static Datum
column(int n)
{
	bool		isnull;
	Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, n,
									  &isnull);

	if (isnull)
		elog(ERROR, "pg_cron has given NULL where it has a value");
	return value;
}

/* --------------------------------------------------------------- is it there? */

/* The value of a setting of pg_cron's; NULL where its library is not loaded, even
 * if postgresql.conf has a line for it. */
static const char *
cron_setting(const char *name)
{
	const char *value = GetConfigOption(name, true, false);

	if (value == NULL || (GetConfigOptionFlags(name, true) & GUC_CUSTOM_PLACEHOLDER))
		return NULL;
	return value;
}

static bool
cron_is_loaded(void)
{
	return cron_setting("cron.database_name") != NULL;
}

/* Does pg_cron run the jobs of this database's cron.job? */
static bool
cron_lives_here(void)
{
	return cron_is_loaded() &&
		strcmp(cron_setting("cron.database_name"), get_database_name(MyDatabaseId)) == 0;
}

/* pg_cron's table; InvalidOid where the extension is not in this database. */
static Oid
cron_jobs(void)
{
	Oid			extension = get_extension_oid(CRON, true);
	Oid			namespace = get_namespace_oid(CRON_SCHEMA, true);
	Oid			jobs = OidIsValid(namespace) ?
		get_relname_relid(CRON_JOBS, namespace) : InvalidOid;

	if (!OidIsValid(extension) || !OidIsValid(jobs) ||
		getExtensionOfObject(RelationRelationId, jobs) != extension)
		return InvalidOid;
	return jobs;
}

static bool
may_use_cron(Oid jobs)
{
	return DatumGetBool(DirectFunctionCall2(has_schema_privilege_id,
											ObjectIdGetDatum(get_rel_namespace(jobs)),
											CStringGetTextDatum("USAGE")));
}

static bool
may_see_jobs(Oid jobs)
{
	return may_use_cron(jobs) &&
		DatumGetBool(DirectFunctionCall2(has_table_privilege_id, ObjectIdGetDatum(jobs),
										 CStringGetTextDatum("SELECT")));
}

/* Could CREATE EXTENSION make it? */
static bool
cron_is_installed(void)
{
	const char *name = CRON;
	int			guc_level = connect_to_sql();
	bool		found = query("SELECT FROM pg_catalog.pg_available_extensions() e"
							  " WHERE e.name::pg_catalog.text OPERATOR(pg_catalog.=) $1",
							  1, &name, true);

	disconnect_from_sql(guc_level);
	return found;
}

/* An error unless the server runs pg_cron. */
static void
check_cron_is_loaded(void)
{
	if (cron_is_loaded())
		return;
	if (cron_is_installed())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_cron is not loaded"),
				 errhint("Add pg_cron to shared_preload_libraries, set cron.database_name to %s, restart the server, and run CREATE EXTENSION pg_cron here.",
						 quote_literal_cstr(get_database_name(MyDatabaseId)))));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("pg_cron is not installed on this server"),
			 errhint("Install it (on Debian the package postgresql-" PG_MAJORVERSION "-cron) and add it to shared_preload_libraries; or have something else run CALL rollup_run() every few minutes.")));
}

/* An error unless the extension pg_cron is here, and the caller may use it. */
static void
check_cron_is_usable(const Job *job)
{
	Oid			jobs = cron_jobs();

	if (!OidIsValid(jobs))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"%s\" does not exist in this database", CRON),
				 errhint("Run CREATE EXTENSION pg_cron, as a superuser.")));
	if (!may_use_cron(jobs))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for schema %s", CRON_SCHEMA),
				 errhint("A superuser lets the role schedule jobs: GRANT USAGE ON SCHEMA cron TO %s.",
						 quote_identifier(job->role))));
}

/* An error where pg_cron runs the jobs of another database; the call to make
 * there is the hint. */
static void
check_cron_lives_here(const char *call)
{
	if (!cron_lives_here())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_cron keeps its jobs in database \"%s\"",
						cron_setting("cron.database_name")),
				 errdetail("This is database \"%s\".", get_database_name(MyDatabaseId)),
				 errhint("There, as a superuser, run: %s", call)));
}

/*
 * What makes the same job from pg_cron's own database.  The name has the database
 * in it: there is one job of a name and a role.
 */
static char *
call_to_schedule_from_there(const Job *job)
{
	return psprintf("SELECT cron.schedule_in_database(%s, %s, %s, %s, %s);",
					quote_literal_cstr(psprintf("%s in %s", JOB_NAME, job->database)),
					quote_literal_cstr(job->schedule), quote_literal_cstr(job->command),
					quote_literal_cstr(job->database), quote_literal_cstr(job->role));
}

static char *
call_to_unschedule_from_there(const Job *job)
{
	return psprintf("SELECT cron.unschedule(jobid) FROM cron.job WHERE command = %s AND database = %s AND username = %s;",
					quote_literal_cstr(job->command), quote_literal_cstr(job->database),
					quote_literal_cstr(job->role));
}

/* -------------------------------------------------------------------- the job */

/*
 * Find the caller's job.  "fits": pg_cron would run it, here; its own
 * replacement of a job leaves that as it is.
 */
static bool
find_job(const Job *job, int64 *id, bool *fits)
{
	char	   *port = psprintf("%d", PostPortNumber);
	const char *texts[] = {JOB_NAME, job->role, job->database, cron_setting("cron.host"), port};

	if (!query("SELECT j.jobid, j.active AND j.database OPERATOR(pg_catalog.=) $3"
			   " AND j.nodename OPERATOR(pg_catalog.=) $4"
			   " AND j.nodeport OPERATOR(pg_catalog.=) $5::pg_catalog.int4"
			   " FROM cron.job j"
			   " WHERE j.jobname::pg_catalog.text OPERATOR(pg_catalog.=) $1"
			   " AND j.username OPERATOR(pg_catalog.=) $2",
			   lengthof(texts), texts, false))
		return false;
	*id = DatumGetInt64(column(1));
	*fits = DatumGetBool(column(2));
	return true;
}

/* By its number: the type of names has changed from version to version. */
static void
remove_job(int64 id)
{
	char	   *number = psprintf(INT64_FORMAT, id);
	const char *texts[] = {number};

	query("SELECT cron.unschedule($1::pg_catalog.int8)", 1, texts, false);
}

/*
 * Replaced in place where that is enough: pg_cron ends a run of a job that is
 * removed.
 */
static int64
make_job(const Job *job)
{
	const char *texts[] = {JOB_NAME, job->schedule, job->command};
	int64		id;
	bool		fits;

	if (find_job(job, &id, &fits) && !fits)
		remove_job(id);
	query("SELECT cron.schedule($1, $2, $3)", lengthof(texts), texts, false);
	return DatumGetInt64(column(1));
}

/* pg_cron takes a job of any role. */
static void
warn_of_role_without_login(const Job *job)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	bool		can_login = !HeapTupleIsValid(tuple) ||
		((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (!can_login)
		ereport(WARNING,
				(errmsg("role \"%s\" cannot log in", job->role),
				 errdetail("pg_cron runs the job as this role, and may not be able to."),
				 errhint("Run ALTER ROLE %s LOGIN, or schedule as a member of it that can log in.",
						 quote_identifier(job->role))));
}

/* Is a pass scheduled in this database, as far as the caller can see? */
bool
dr_schedule_is_active(void)
{
	Oid			jobs;
	const char *launches;
	const char *texts[] = {get_database_name(MyDatabaseId), "\\mrollup_run\\M"};
	int			guc_level;
	bool		found;

	if (!cron_lives_here())
		return false;
	launches = cron_setting("cron.launch_active_jobs");
	jobs = cron_jobs();
	if (!OidIsValid(jobs) || !may_see_jobs(jobs) ||
		(launches != NULL && strcmp(launches, "off") == 0))
		return false;

	/* read-only: a view calls this */
	guc_level = connect_to_sql();
	found = query("SELECT FROM cron.job j WHERE j.active"
				  " AND j.database OPERATOR(pg_catalog.=) $1"
				  " AND j.command OPERATOR(pg_catalog.~*) $2",
				  lengthof(texts), texts, true);
	disconnect_from_sql(guc_level);
	return found;
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_schedule);
PG_FUNCTION_INFO_V1(dailyrollup_unschedule);
PG_FUNCTION_INFO_V1(dailyrollup_scheduled);

/* The job of a caller who calls the function "fn": rollup_run is beside it. */
static Job
job_of_caller(Oid fn, char *schedule)
{
	char	   *procedure =
		quote_qualified_identifier(get_namespace_name(get_func_namespace(fn)), "rollup_run");
	Job			job = {
		.schedule = schedule,
		.command = psprintf("CALL %s()", procedure),
		.database = get_database_name(MyDatabaseId),
		.role = GetUserNameFromId(GetUserId(), false)
	};

	return job;
}

static void
add_context(void *job)
{
	errcontext("scheduling \"%s\" with pg_cron at \"%s\"", ((Job *) job)->command,
			   ((Job *) job)->schedule);
}

/* Creates or replaces the caller's job; returns pg_cron's number of it. */
Datum
dailyrollup_schedule(PG_FUNCTION_ARGS)
{
	Job			job;
	ErrorContextCallback context = {.callback = add_context, .arg = &job};
	int			guc_level;
	int64		id;

	PreventCommandDuringRecovery("rollup_schedule()");
	PreventCommandIfReadOnly("rollup_schedule()");
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not be null", "cron")));
	job = job_of_caller(fcinfo->flinfo->fn_oid, text_to_cstring(PG_GETARG_TEXT_PP(0)));
	check_cron_is_loaded();
	check_cron_lives_here(call_to_schedule_from_there(&job));
	check_cron_is_usable(&job);

	context.previous = error_context_stack;
	error_context_stack = &context;
	guc_level = connect_to_sql();
	id = make_job(&job);
	disconnect_from_sql(guc_level);
	error_context_stack = context.previous;
	warn_of_role_without_login(&job);
	PG_RETURN_INT64(id);
}

/* Removes the caller's job; false where there was none. */
Datum
dailyrollup_unschedule(PG_FUNCTION_ARGS)
{
	Job			job = job_of_caller(fcinfo->flinfo->fn_oid, NULL);
	int			guc_level;
	int64		id;
	bool		fits;
	bool		found;

	PreventCommandDuringRecovery("rollup_unschedule()");
	PreventCommandIfReadOnly("rollup_unschedule()");
	if (!OidIsValid(cron_jobs()) && (!cron_is_loaded() || cron_lives_here()))
		PG_RETURN_BOOL(false);
	check_cron_is_loaded();
	check_cron_lives_here(call_to_unschedule_from_there(&job));
	check_cron_is_usable(&job);

	guc_level = connect_to_sql();
	found = find_job(&job, &id, &fits);
	if (found)
		remove_job(id);
	disconnect_from_sql(guc_level);
	PG_RETURN_BOOL(found);
}

/* Is a pass scheduled in this database, as far as the caller can see? */
Datum
dailyrollup_scheduled(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(dr_schedule_is_active());
}
