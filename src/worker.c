/*
 * worker.c
 *		The background worker: it makes the passes.
 *
 * A launcher, connected to no database, knows of each one when the next pass is
 * due there, and starts a worker for it then.  The worker serves the rollups of
 * one database that are due, tells when the next one will be, and ends.
 *
 *		launcher	knows the databases, sleeps until one is due, or is told
 *		worker		a pass of each rollup that is due; next_due; exit
 *		backend		a committed change of a rollup tells the launcher (shared.c)
 *
 * A database is in the launcher's list from the moment that it is seen in
 * pg_database; whether it has the extension, only a worker can find out.
 */
#include "worker.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "catalog.h"
#include "compat.h"
#include "guc.h"
#include "pass.h"
#include "shared.h"
#include "steps.h"

/* A database that nobody has told about is found after so long, at most. */
#define LOOK_AROUND		USECS_PER_MINUTE

/* After a worker that could not be started, or did not come to its end: so long,
 * twice, four times, ... */
#define RETRY			(10 * USECS_PER_SEC)
#define MAX_DOUBLINGS	6

/* So long our own workers may take all that the server has before we say so. */
#define PATIENCE		USECS_PER_MINUTE

/* After any other: it may have left what somebody else was doing. */
#define REST			USECS_PER_SEC

/* What the launcher knows of a database. */
typedef struct Database
{
	Oid			oid;
	char	   *name;
	bool		seen;			/* in the last look at pg_database */
	TimestampTz next_due;		/* DT_NOEND: nothing is */
	TimestampTz not_before;		/* whatever is due */
	TimestampTz healed_at;		/* when late keys were last looked at */
	TimestampTz waits_since;	/* for a worker; 0: it does not */
	int			deaths;			/* of workers, since the last that came to its end */
	BackgroundWorkerHandle *handle; /* of its worker; NULL: none runs */
	int			slot;			/* of its worker */
} Database;

static List *databases = NIL;
static MemoryContext launcher_context;
static bool no_worker_said = false;
static TimestampTz last_now = 0;

PGDLLEXPORT void dailyrollup_launcher(Datum arg);
PGDLLEXPORT void dailyrollup_worker(Datum arg);

/* ------------------------------------------------------------------- slots */

static void
free_slot(int i)
{
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	memset(&dr_shared->workers[i], 0, sizeof(DrWorkerSlot));
	LWLockRelease(dr_shared->lock);
}

/* A slot for a worker of that database; -1: there is none free, or the database
 * is held. */
static int
claim_slot(const Database *database, bool heal)
{
	int			slot = -1;

	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < DR_WORKERS && slot < 0 && !dr_shared_is_held(database->oid); i++)
		if (dr_shared->workers[i].database == InvalidOid)
		{
			slot = i;
			dr_shared->workers[i].database = database->oid;
			dr_shared->workers[i].heal = heal;
		}
	LWLockRelease(dr_shared->lock);
	return slot;
}

/* ---------------------------------------------------------------- databases */

static Database *
find_database(Oid oid)
{
	ListCell   *cell;

	foreach(cell, databases)
		if (((Database *) lfirst(cell))->oid == oid)
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
see_database(Form_pg_database form)
{
	Database   *database;
	MemoryContext before;

	if (!form->datallowconn || !dr_database_is_valid(form) || !is_named(NameStr(form->datname)))
		return;
	database = find_database(form->oid);
	if (database == NULL)
	{
		before = MemoryContextSwitchTo(launcher_context);
		database = palloc0(sizeof(Database));
		database->oid = form->oid;
		database->name = pstrdup(NameStr(form->datname));
		databases = lappend(databases, database);
		MemoryContextSwitchTo(before);
	}
	database->seen = true;
}

/* Bring the list up to pg_database. */
static void
look_at_databases(void)
{
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;
	ListCell   *cell;

	foreach(cell, databases)
		((Database *) lfirst(cell))->seen = false;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
		see_database((Form_pg_database) GETSTRUCT(tuple));
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();

	foreach(cell, databases)
	{
		Database   *database = lfirst(cell);

		if (!database->seen && database->handle == NULL)
			databases = foreach_delete_current(databases, cell);
	}
}

/* ----------------------------------------------------------------- launching */

/* Databases that have something new are due now. */
static void
take_wishes(bool all)
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

	foreach(cell, databases)
	{
		Database   *database = lfirst(cell);

		for (int i = 0; i < n; i++)
			if (wishes[i] == database->oid)
				database->next_due = 0;
		if (all)
			database->next_due = 0;
	}
}

/* A worker has ended: whoever waits for one need not wait longer. */
static void
serve_waiting(void)
{
	ListCell   *cell;

	foreach(cell, databases)
		if (((Database *) lfirst(cell))->waits_since != 0)
			((Database *) lfirst(cell))->not_before = 0;
}

/* A worker that has ended says when the next one is due. */
static void
collect_worker(Database *database)
{
	DrWorkerSlot slot;
	pid_t		pid;

	if (database->handle == NULL ||
		GetBackgroundWorkerPid(database->handle, &pid) != BGWH_STOPPED)
		return;
	LWLockAcquire(dr_shared->lock, LW_SHARED);
	slot = dr_shared->workers[database->slot];
	LWLockRelease(dr_shared->lock);
	free_slot(database->slot);
	pfree(database->handle);
	database->handle = NULL;
	serve_waiting();
	database->not_before = GetCurrentTimestamp() +
		(slot.done ? REST : RETRY << Min(database->deaths, MAX_DOUBLINGS));
	database->deaths = slot.done ? 0 : database->deaths + 1;
	if (database->next_due == 0)	/* something new meanwhile */
		return;
	database->next_due = slot.done ? slot.next_due : 0;
}

static bool
heal_is_due(const Database *database, TimestampTz now)
{
	return dr_guc_late_interval > 0 &&
		now >= database->healed_at + (TimestampTz) dr_guc_late_interval * USECS_PER_SEC;
}

/* When a worker should look at the database again. */
static TimestampTz
due_time(const Database *database)
{
	TimestampTz due = database->next_due;

	/* without the extension, or without a rollup, nothing is ever due */
	if (due != DT_NOEND && due != 0 && dr_guc_late_interval > 0)
		due = Min(due, database->healed_at +
				  (TimestampTz) dr_guc_late_interval * USECS_PER_SEC);
	return Max(due, database->not_before);
}

static bool
any_worker_runs(void)
{
	ListCell   *cell;

	foreach(cell, databases)
		if (((Database *) lfirst(cell))->handle != NULL)
			return true;
	return false;
}

/* The server has no process for another worker.  That is said where it is not our
 * own workers that have them, or where it lasts. */
static void
wait_for_worker(Database *database, TimestampTz now)
{
	database->not_before = now + RETRY;
	if (database->waits_since == 0)
		database->waits_since = now;
	if (no_worker_said || (any_worker_runs() && now < database->waits_since + PATIENCE))
		return;
	no_worker_said = true;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("no background worker is free to make the passes of database \"%s\"",
					database->name),
			 errdetail("The launcher tries again."),
			 errhint("You might need to increase max_worker_processes.")));
}

/* Start a worker; where that is not possible now, later. */
static void
start_worker(Database *database, TimestampTz now)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_notify_pid = MyProcPid
	};
	bool		heal = heal_is_due(database, now);
	MemoryContext before;

	database->slot = claim_slot(database, heal);
	if (database->slot < 0)
	{
		database->not_before = now + RETRY;
		return;
	}
	snprintf(worker.bgw_library_name, BGW_MAXLEN, DR_SCHEMA);
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "dailyrollup_worker");
	snprintf(worker.bgw_type, BGW_MAXLEN, "dailyrollup worker");
	snprintf(worker.bgw_name, BGW_MAXLEN, "dailyrollup worker for database %u", database->oid);
	worker.bgw_main_arg = Int32GetDatum(database->slot);

	before = MemoryContextSwitchTo(launcher_context);
	if (RegisterDynamicBackgroundWorker(&worker, &database->handle))
	{
		database->next_due = DT_NOEND;	/* the worker will say */
		if (heal)
			database->healed_at = now;
		database->waits_since = 0;
	}
	else
	{
		free_slot(database->slot);
		database->handle = NULL;
		wait_for_worker(database, now);
	}
	MemoryContextSwitchTo(before);
}

/* Slots of workers that an earlier launcher started, and that have ended. */
static void
free_orphans(void)
{
	bool		ours[DR_WORKERS] = {false};
	ListCell   *cell;

	foreach(cell, databases)
		if (((Database *) lfirst(cell))->handle != NULL)
			ours[((Database *) lfirst(cell))->slot] = true;
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < DR_WORKERS; i++)
		if (!ours[i] && dr_shared->workers[i].pid == 0)
			memset(&dr_shared->workers[i], 0, sizeof(DrWorkerSlot));
	LWLockRelease(dr_shared->lock);
}

/* The clock was set back: no time that was noted before means anything. */
static void
forget_times(void)
{
	ListCell   *cell;

	foreach(cell, databases)
	{
		Database   *database = lfirst(cell);

		database->next_due = database->not_before = database->healed_at = 0;
		if (database->waits_since != 0)
			database->waits_since = last_now;
	}
}

static void
collect_workers(void)
{
	ListCell   *cell;

	foreach(cell, databases)
		collect_worker(lfirst(cell));
}

/* Start what is due; returns how long there is nothing to do, in milliseconds. */
static long
start_workers(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next = now + LOOK_AROUND;
	bool		waits = false;
	ListCell   *cell;

	if (now < last_now)
		forget_times();
	last_now = now;
	free_orphans();
	collect_workers();
	foreach(cell, databases)
	{
		Database   *database = lfirst(cell);

		if (database->handle != NULL)
			continue;
		if (dr_guc_worker && due_time(database) <= now)
			start_worker(database, now);
		if (database->handle == NULL && dr_guc_worker)
			next = Min(next, due_time(database));
		waits = waits || database->waits_since != 0;
	}
	no_worker_said = no_worker_said && waits;
	return Max(TimestampDifferenceMilliseconds(now, next), 10);
}

static void
launcher_ends(int code, Datum arg)
{
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	dr_shared->launcher = NULL;
	LWLockRelease(dr_shared->lock);
}

void
dailyrollup_launcher(Datum arg)
{
	MemoryContext loop;
	bool		all = true;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("dailyrollup launcher");

	launcher_context = AllocSetContextCreate(TopMemoryContext, "dailyrollup launcher",
											 ALLOCSET_DEFAULT_SIZES);
	loop = AllocSetContextCreate(TopMemoryContext, "dailyrollup launcher loop",
								 ALLOCSET_DEFAULT_SIZES);
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	dr_shared->launcher = MyLatch;
	LWLockRelease(dr_shared->lock);
	before_shmem_exit(launcher_ends, (Datum) 0);

	for (;;)
	{
		long		timeout;

		MemoryContextSwitchTo(loop);
		MemoryContextReset(loop);
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			all = true;
		}
		look_at_databases();
		MemoryContextSwitchTo(loop);
		take_wishes(all);
		all = false;
		timeout = start_workers();
		pgstat_report_activity(STATE_IDLE, NULL);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 timeout, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ShutdownRequestPending)
			proc_exit(1);		/* the postmaster starts another, or ends too */
	}
}

/* ------------------------------------------------------------------- worker */

static void
next_transaction(void)
{
	CommitTransactionCommand();
	StartTransactionCommand();
}

/* What the database's settings may say must not keep a pass from its end. */
static void
override_settings(void)
{
	const char *const settings[][2] = {
		{"session_authorization", GetUserNameFromId(BOOTSTRAP_SUPERUSERID, false)},
		{"role", "none"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"statement_timeout", "0"},
		{"lock_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"session_replication_role", "origin"},
		{"search_path", ""}
	};

	for (int i = 0; i < lengthof(settings); i++)
		SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
}

/* The rollups of this database, those that have failed last: they may make us wait.
 * NIL where there is no extension. */
static List *
list_rollups(MemoryContext context)
{
	List	   *all = dr_catalog_all();
	MemoryContext before = MemoryContextSwitchTo(context);
	List	   *lives = NIL;
	List	   *failing = NIL;
	ListCell   *cell;

	foreach(cell, all)
	{
		DrRollup   *rollup = lfirst(cell);

		if (rollup->failures == 0)
			lives = lappend_oid(lives, rollup->live);
		else
			failing = lappend_oid(failing, rollup->live);
	}
	lives = list_concat(lives, failing);
	MemoryContextSwitchTo(before);
	return lives;
}

/* When the rollup is due; DT_NOEND where it is gone.  One of which that cannot be
 * told (a time zone that the server has lost) is looked at again after a while:
 * the others must not suffer. */
static TimestampTz
due(Oid live)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	const char *reason;
	volatile TimestampTz at = DT_NOEND;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		DrRollup   *rollup = dr_catalog_find(live, NULL);

		if (rollup != NULL)
			at = dr_steps_due(rollup, &reason);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		at = GetCurrentTimestamp() + USECS_PER_HOUR;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return at;
}

/* A pass over the rollup, where one is due; false where somebody else is at it. */
static bool
serve(Oid live, bool heal, MemoryContext context)
{
	DrRollup   *rollup = dr_catalog_find(live, NULL);
	TimestampTz at = due(live);
	TimestampTz now = GetCurrentTimestamp();
	bool		skipped = false;

	if (rollup == NULL || dr_steps_retry_at(rollup) > now || (at > now && !heal))
		return true;

	/* what has failed may have been the late keys */
	(void) dr_pass(live, true, heal || rollup->failures > 0, next_transaction, context, &skipped);
	return !skipped;
}

/* Serve them; returns when the next one is due. */
static TimestampTz
serve_all(List *lives, bool heal, MemoryContext context)
{
	TimestampTz next = DT_NOEND;
	List	   *skipped = NIL;
	ListCell   *cell;

	foreach(cell, lives)
		if (!serve(lfirst_oid(cell), heal, context))
		{
			MemoryContext before = MemoryContextSwitchTo(context);

			skipped = lappend_oid(skipped, lfirst_oid(cell));
			MemoryContextSwitchTo(before);
		}
	foreach(cell, lives)
	{
		TimestampTz at = due(lfirst_oid(cell));

		/* whoever is at it tells us of what he commits */
		if (list_member_oid(skipped, lfirst_oid(cell)))
			at = Max(at, GetCurrentTimestamp() + RETRY);
		next = Min(next, at);
	}
	return next;
}

static void
report_next(int slot, TimestampTz next)
{
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	if (dr_shared->workers[slot].pid == MyProcPid)
	{
		dr_shared->workers[slot].next_due = next;
		dr_shared->workers[slot].done = true;
	}
	LWLockRelease(dr_shared->lock);
}

static void
worker_ends(int code, Datum arg)
{
	DrWorkerSlot *slot = &dr_shared->workers[DatumGetInt32(arg)];

	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	if (slot->pid == MyProcPid)
		slot->pid = 0;
	LWLockRelease(dr_shared->lock);
}

void
dailyrollup_worker(Datum arg)
{
	int			slot = DatumGetInt32(arg);
	Oid			database;
	bool		heal;
	bool		held;
	MemoryContext context;
	List	   *lives;
	TimestampTz next;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	database = dr_shared->workers[slot].database;
	heal = dr_shared->workers[slot].heal;
	held = dr_shared_is_held(database);
	if (OidIsValid(database))
		dr_shared->workers[slot].pid = MyProcPid;
	LWLockRelease(dr_shared->lock);
	before_shmem_exit(worker_ends, arg);

	/* the launcher that meant us is gone, or somebody wants the database */
	if (!OidIsValid(database) || held)
		proc_exit(0);

	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	pgstat_report_appname("dailyrollup worker");
	dr_shared_ignore_changes();
	StartTransactionCommand();
	override_settings();
	CommitTransactionCommand();

	context = AllocSetContextCreate(TopMemoryContext, "dailyrollup worker",
									ALLOCSET_DEFAULT_SIZES);
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	lives = list_rollups(context);
	PopActiveSnapshot();
	next = serve_all(lives, heal, context);

	/* without the extension nothing is due; with it, late keys may always be, or
	 * a transaction that was prepared long ago */
	if (next == DT_NOEND && dr_catalog_is_installed())
		next = GetCurrentTimestamp() + USECS_PER_DAY;
	CommitTransactionCommand();
	report_next(slot, next);
	proc_exit(0);
}

/* Is this database the worker's to serve? */
static bool
serves_this_database(void)
{
	return dr_shared != NULL && dr_guc_worker && !RecoveryInProgress() &&
		is_named(get_database_name(MyDatabaseId));
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_worker_serves);

/* Does the worker make the passes in this database? */
Datum
dailyrollup_worker_serves(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(serves_this_database());
}

void
dr_worker_init(void)
{
	BackgroundWorker launcher = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = 5
	};

	if (!process_shared_preload_libraries_in_progress || IsBinaryUpgrade)
		return;
	snprintf(launcher.bgw_library_name, BGW_MAXLEN, DR_SCHEMA);
	snprintf(launcher.bgw_function_name, BGW_MAXLEN, "dailyrollup_launcher");
	snprintf(launcher.bgw_type, BGW_MAXLEN, "dailyrollup launcher");
	snprintf(launcher.bgw_name, BGW_MAXLEN, "dailyrollup launcher");
	RegisterBackgroundWorker(&launcher);
}
