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
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "shared.h"

/* How long its workers stay away. */
#define HOLD			(10 * USECS_PER_SEC)

static ProcessUtility_hook_type previous_utility = NULL;

/* The database that a command wants for itself; InvalidOid: none. */
static Oid
wanted_alone(Node *command)
{
	const char *name = NULL;
	Oid			database;

	if (IsA(command, DropdbStmt))
		name = ((DropdbStmt *) command)->dbname;
	else if (IsA(command, RenameStmt) &&
			 ((RenameStmt *) command)->renameType == OBJECT_DATABASE)
		name = ((RenameStmt *) command)->subname;
	else if (IsA(command, AlterDatabaseStmt))
		name = ((AlterDatabaseStmt *) command)->dbname;
	else if (IsA(command, CreatedbStmt))
	{
		ListCell   *cell;

		name = "template1";
		foreach(cell, ((CreatedbStmt *) command)->options)
			if (strcmp(lfirst_node(DefElem, cell)->defname, "template") == 0 &&
				lfirst_node(DefElem, cell)->arg != NULL)
				name = defGetString(lfirst_node(DefElem, cell));
	}
	if (name == NULL)
		return InvalidOid;
	database = get_database_oid(name, true);
	if (!OidIsValid(database) ||
		(!dr_is_database_owner(database, GetUserId()) && !have_createdb_privilege()))
		return InvalidOid;
	return database;
}

/* No worker is started there for a moment; the one that is there ends. */
static int
hold(Oid database)
{
	TimestampTz now = GetCurrentTimestamp();
	int			pid = 0;

	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < DR_WORKERS; i++)
		if (dr_shared->holds[i].until <= now || dr_shared->holds[i].database == database)
		{
			dr_shared->holds[i].database = database;
			dr_shared->holds[i].until = now + HOLD;
			break;
		}
	for (int i = 0; i < DR_WORKERS; i++)
		if (dr_shared->workers[i].database == database)
			pid = dr_shared->workers[i].pid;
	if (pid != 0)
		kill(pid, SIGTERM);
	LWLockRelease(dr_shared->lock);
	return pid;
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
			(void) hold(database);
	}
	if (previous_utility)
		previous_utility(statement, query, read_only, context, params, environment, dest, completion);
	else
		standard_ProcessUtility(statement, query, read_only, context, params, environment, dest,
								completion);

	/* what a prepared transaction has changed, nobody was told at its commit */
	if (prepared)
		dr_shared_wish(MyDatabaseId);
}

void
dr_hold_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = utility;
}
