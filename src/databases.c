/*
 * databases.c
 *		Which databases the background worker serves, and when each is due.
 *
 * A database is in the launcher's list from the moment that it is seen in
 * pg_database; whether it has the extension, only a worker can find out.
 */
#include "databases.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "compat.h"
#include "guc.h"
#include "shared.h"

List	   *dr_databases = NIL;

/* ------------------------------------------------------------------ the list */

static DrDatabase *
find_database(Oid oid)
{
	ListCell   *cell;

	foreach(cell, dr_databases)
		if (((DrDatabase *) lfirst(cell))->oid == oid)
			return lfirst(cell);
	return NULL;
}

/* Is it one of dailyrollup.databases? */
static bool
is_named(const char *name)
{
	List	   *names;
	ListCell   *cell;

	if (!SplitIdentifierString(pstrdup(dr_guc_databases), ',', &names) || names == NIL)
		return true;
	foreach(cell, names)
		if (strcmp(lfirst(cell), name) == 0)
			return true;
	return false;
}

static void
see_database(Form_pg_database form, MemoryContext context)
{
	DrDatabase *database;
	MemoryContext before;

	if (!form->datallowconn || !dr_database_is_valid(form) || !is_named(NameStr(form->datname)))
		return;
	database = find_database(form->oid);
	if (database == NULL)
	{
		before = MemoryContextSwitchTo(context);
		database = palloc0(sizeof(DrDatabase));
		database->oid = form->oid;
		database->name = pstrdup(NameStr(form->datname));
		dr_databases = lappend(dr_databases, database);
		MemoryContextSwitchTo(before);
	}
	database->seen = true;
}

/* Bring the list, in that context, up to pg_database. */
void
dr_databases_look(MemoryContext context)
{
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;
	ListCell   *cell;

	foreach(cell, dr_databases)
		((DrDatabase *) lfirst(cell))->seen = false;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
		see_database((Form_pg_database) GETSTRUCT(tuple), context);
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();

	foreach(cell, dr_databases)
	{
		DrDatabase *database = lfirst(cell);

		if (!database->seen && database->handle == NULL)
			dr_databases = foreach_delete_current(dr_databases, cell);
	}
}

/* ------------------------------------------------------------- when one is due */

/* Databases that have something new are due now; with "all" each of them, with
 * "eager" also what waits for its next try. */
void
dr_databases_take_wishes(bool all, bool eager)
{
	Oid			wishes[DR_WISHES];
	int			n;
	ListCell   *cell;

	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	n = dr_shared->nwishes;
	memcpy(wishes, dr_shared->wishes, n * sizeof(Oid));
	all = all || dr_shared->look_at_all;
	dr_shared->nwishes = 0;
	dr_shared->look_at_all = false;
	LWLockRelease(dr_shared->lock);

	foreach(cell, dr_databases)
	{
		DrDatabase *database = lfirst(cell);

		for (int i = 0; i < n; i++)
			if (wishes[i] == database->oid)
				database->next_due = 0;
		if (all)
			database->next_due = 0;
		if (eager)
			database->eager = true;
	}
}

/* Has the clock been set back?  Then no time that was noted before holds: each
 * database is due now, and waits for nothing. */
bool
dr_databases_mind_clock(TimestampTz now)
{
	static TimestampTz last = 0;
	bool		set_back = now < last;
	ListCell   *cell;

	last = now;
	if (!set_back)
		return false;
	foreach(cell, dr_databases)
	{
		DrDatabase *database = lfirst(cell);

		database->next_due = database->not_before = 0;
		database->healed_at = Min(database->healed_at, now);
		database->started_at = Min(database->started_at, now);
	}
	return true;
}

bool
dr_databases_heal_is_due(const DrDatabase *database, TimestampTz now)
{
	return dr_guc_late_interval > 0 &&
		now >= database->healed_at + (TimestampTz) dr_guc_late_interval * USECS_PER_SEC;
}

/* When a worker should look at the database again. */
TimestampTz
dr_databases_due(const DrDatabase *database)
{
	TimestampTz due = database->next_due;

	/* without the extension, or without a rollup, nothing is ever due */
	if (due != DT_NOEND && due != 0 && dr_guc_late_interval > 0)
		due = Min(due, database->healed_at +
				  (TimestampTz) dr_guc_late_interval * USECS_PER_SEC);
	return Max(due, database->not_before);
}

/* ------------------------------------------------------------- this database */

/* Is this database the worker's to serve? */
bool
dr_databases_serves_this(void)
{
	return dr_shared != NULL && dr_guc_worker && !RecoveryInProgress() &&
		is_named(get_database_name(MyDatabaseId));
}

/* What would have the worker serve it. */
const char *
dr_databases_advice(void)
{
	if (dr_shared == NULL)
		return "Add dailyrollup to shared_preload_libraries";
	if (!dr_guc_worker)
		return "Set dailyrollup.worker to on";
	return psprintf("Add %s to dailyrollup.databases",
					quote_identifier(get_database_name(MyDatabaseId)));
}

PG_FUNCTION_INFO_V1(dailyrollup_worker_serves);

/* Does the worker make the passes in this database? */
Datum
dailyrollup_worker_serves(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(dr_databases_serves_this());
}
