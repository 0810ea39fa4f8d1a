/*
 * hold.c
 *		Databases that somebody wants for himself.
 *
 * CREATE, DROP and ALTER DATABASE want nobody else in the database: a worker
 * that is there is ended first, and none is started for a moment.
 */
#include "hold.h"

#include <signal.h>

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "shared.h"

static ProcessUtility_hook_type previous_utility = NULL;

/* The argument of an option, as text; NULL: not given. */
static const char *
option(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *element = lfirst_node(DefElem, cell);

		if (strcmp(element->defname, name) == 0 && element->arg != NULL)
			return defGetString(element);
	}
	return NULL;
}

/* Anybody who may create databases may copy a template. */
static bool
may_copy(Oid database)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool		may = HeapTupleIsValid(tuple) &&
		((Form_pg_database) GETSTRUCT(tuple))->datistemplate && have_createdb_privilege();

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return may;
}

/* The database that a command wants for itself; InvalidOid: none, or one that is
 * not the caller's. */
static Oid
wanted_alone(Node *command)
{
	const char *name = NULL;
	bool		copies = IsA(command, CreatedbStmt);
	Oid			database;

	if (IsA(command, DropdbStmt))
		name = ((DropdbStmt *) command)->dbname;
	else if (IsA(command, RenameStmt) &&
			 ((RenameStmt *) command)->renameType == OBJECT_DATABASE)
		name = ((RenameStmt *) command)->subname;
	else if (IsA(command, AlterDatabaseStmt) &&
			 option(((AlterDatabaseStmt *) command)->options, "tablespace") != NULL)
		name = ((AlterDatabaseStmt *) command)->dbname;
	else if (copies)
	{
		name = option(((CreatedbStmt *) command)->options, "template");
		if (name == NULL)
			name = "template1";
	}
	database = name == NULL ? InvalidOid : get_database_oid(name, true);
	if (!OidIsValid(database) || dr_is_database_owner(database, GetUserId()) ||
		(copies && may_copy(database)))
		return database;
	return InvalidOid;
}

/* No worker is started there for a moment; those that are there end: one of ours,
 * and one of a launcher that is gone. */
static void
hold(Oid database)
{
	TimestampTz now = GetCurrentTimestamp();

	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < DR_WORKERS; i++)
		if (dr_shared->holds[i].until <= now || dr_shared->holds[i].database == database)
		{
			dr_shared->holds[i].database = database;
			dr_shared->holds[i].until = now + DR_HOLD;
			break;
		}
	for (int i = 0; i < DR_WORKERS; i++)
		if (dr_shared->workers[i].database == database && dr_shared->workers[i].pid != 0)
			kill(dr_shared->workers[i].pid, SIGTERM);
	LWLockRelease(dr_shared->lock);
}

static void
utility(PlannedStmt *statement, const char *query, bool read_only, ProcessUtilityContext context,
		ParamListInfo params, QueryEnvironment *environment, DestReceiver *dest,
		QueryCompletion *completion)
{
	bool		prepared = IsA(statement->utilityStmt, TransactionStmt) &&
		((TransactionStmt *) statement->utilityStmt)->kind == TRANS_STMT_COMMIT_PREPARED;

	if (dr_shared != NULL && IsTransactionState())
	{
		Oid			database = wanted_alone(statement->utilityStmt);

		/* the server itself waits a few seconds for those who are there */
		if (OidIsValid(database))
			hold(database);
	}
	if (previous_utility)
		previous_utility(statement, query, read_only, context, params, environment, dest, completion);
	else
		standard_ProcessUtility(statement, query, read_only, context, params, environment, dest,
								completion);

	/* what a prepared transaction has changed, nobody was told at its commit */
	if (prepared)
		dr_shared_prepared_ended();
}

void
dr_hold_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = utility;
}
