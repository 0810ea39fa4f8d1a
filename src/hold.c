/*
 * hold.c
 *		Databases that somebody wants for himself.
 *
 * DROP DATABASE, ALTER DATABASE with RENAME or SET TABLESPACE, and CREATE DATABASE
 * of its template, want nobody else in the database: a worker that is there is
 * ended first, and none is started for a moment.
 *
 * Here is all that a library that is preloaded knows of commands of others: what
 * REASSIGN OWNED has done is told to owner.c.
 */
#include "hold.h"

#include <signal.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "debug.h"
#include "owner.h"
#include "shared.h"

static ProcessUtility_hook_type previous_utility = NULL;

/* --------------------------------------------------- which one a command wants */

/* The value of an option that names something; NULL: it has none. */
static const char *
name_of_option(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
		if (strcmp(lfirst_node(DefElem, cell)->defname, name) == 0 &&
			lfirst_node(DefElem, cell)->arg != NULL)
			return defGetString(lfirst_node(DefElem, cell));
	return NULL;
}

/* Does it exist, and may the caller do that to it? */
static Oid
owned_database(const char *name)
{
	Oid			database = get_database_oid(name, true);

	return OidIsValid(database) && database != MyDatabaseId &&
		dr_is_database_owner(database, GetUserId()) ? database : InvalidOid;
}

/* May the caller create databases?  (The server's own function is exported by its
 * newest minor releases alone.) */
static bool
may_create_databases(void)
{
	HeapTuple	tuple;
	bool		allowed;

	if (superuser())
		return true;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (!HeapTupleIsValid(tuple))
		return false;
	allowed = ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
	ReleaseSysCache(tuple);
	return allowed;
}

/* The template of a new database: a copy of one that is marked as such is made by
 * whoever may create databases. */
static Oid
copied_database(const CreatedbStmt *command)
{
	const char *name = name_of_option(command->options, "template");
	Oid			database = get_database_oid(name ? name : "template1", true);
	HeapTuple	tuple;
	bool		allowed;

	if (!OidIsValid(database) || OidIsValid(get_database_oid(command->dbname, true)) ||
		!may_create_databases())
		return InvalidOid;
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	allowed = ((Form_pg_database) GETSTRUCT(tuple))->datistemplate ||
		dr_is_database_owner(database, GetUserId());
	ReleaseSysCache(tuple);
	return allowed ? database : InvalidOid;
}

static Oid
renamed_database(const RenameStmt *command)
{
	if (command->renameType != OBJECT_DATABASE || !may_create_databases() ||
		OidIsValid(get_database_oid(command->newname, true)))
		return InvalidOid;
	return owned_database(command->subname);
}

/* The database that a command wants for itself; InvalidOid: none.  A command that
 * will be refused ends nobody's pass. */
static Oid
wanted_alone(Node *command, bool top_level)
{
	if (IsA(command, RenameStmt))
		return renamed_database((RenameStmt *) command);
	if (!IsA(command, DropdbStmt) && !IsA(command, AlterDatabaseStmt) &&
		!IsA(command, CreatedbStmt))
		return InvalidOid;

	/* what these refuse to be part of */
	if (IsInTransactionBlock(top_level))
		return InvalidOid;
	if (IsA(command, DropdbStmt))
		return owned_database(((DropdbStmt *) command)->dbname);
	if (IsA(command, CreatedbStmt))
		return copied_database((CreatedbStmt *) command);
	if (name_of_option(((AlterDatabaseStmt *) command)->options, "tablespace") == NULL)
		return InvalidOid;
	return owned_database(((AlterDatabaseStmt *) command)->dbname);
}

/* ------------------------------------------------------------------------ hold */

/* No worker is started there for a moment; those that are there end. */
static void
hold(Oid database)
{
	TimestampTz now = DR_NOW();

	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < DR_WORKERS; i++)
		if (dr_shared->holds[i].until <= now || dr_shared->holds[i].until > now + DR_HOLD ||
			dr_shared->holds[i].database == database)
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
	/* (after a ROLLBACK it may have been freed) */
	bool		reassigns = IsA(statement->utilityStmt, ReassignOwnedStmt);
	bool		prepared = IsA(statement->utilityStmt, TransactionStmt) &&
		((TransactionStmt *) statement->utilityStmt)->kind == TRANS_STMT_COMMIT_PREPARED;

	if (dr_shared != NULL && IsTransactionState())
	{
		Oid			database = wanted_alone(statement->utilityStmt,
											context == PROCESS_UTILITY_TOPLEVEL);

		/* the server itself waits a few seconds for those who are there */
		if (OidIsValid(database))
			hold(database);
	}
	if (previous_utility)
		previous_utility(statement, query, read_only, context, params, environment, dest, completion);
	else
		standard_ProcessUtility(statement, query, read_only, context, params, environment, dest,
								completion);

	if (reassigns)
		dr_owner_follow_reassigned();

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
