/*
 * launcher.c
 *		The launcher: starts a worker where a pass is due.
 *
 * Connected to no database, it knows of each one when the next pass is due there,
 * and starts a worker for it then.  The worker serves the rollups of one database
 * that are due, tells when the next one will be, and ends (worker.c).
 *
 *		launcher	knows the databases, sleeps until one is due, or is told
 *		worker		a pass of each rollup that is due; next_due; exit
 *		backend		a committed change of a rollup tells the launcher (shared.c)
 *
 * Most workers find nothing to do: only a few of these run at a time, for they
 * take processes that others need.  One that makes a pass counts no more.
 */
#include "launcher.h"

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "databases.h"
#include "debug.h"
#include "guc.h"
#include "shared.h"

/* A database that nobody has told about is found after so long, at most. */
#define LOOK_AROUND		USECS_PER_MINUTE

/* After a worker that could not be started; after one that did not come to its end
 * so long, twice, four times, ... */
#define RETRY			(10 * USECS_PER_SEC)
#define MAX_DOUBLINGS	6

/* So long our own workers may take all that the server has before we say so. */
#define PATIENCE		USECS_PER_MINUTE

/* After any other: it may have left what somebody else was doing. */
#define REST			USECS_PER_SEC

/* So many workers at a time that make no pass, or not yet. */
#define LOOKERS			2

static MemoryContext launcher_context;

/* No process was free for a worker: since when, and until when none is tried. */
static TimestampTz refused_since = 0;
static TimestampTz refused_until = 0;
static bool refusal_said = false;

PGDLLEXPORT void dailyrollup_launcher(Datum arg);

/* ------------------------------------------------------------------- slots */

static DrWorkerSlot
read_slot(int i)
{
	DrWorkerSlot slot;

	LWLockAcquire(dr_shared->lock, LW_SHARED);
	slot = dr_shared->workers[i];
	LWLockRelease(dr_shared->lock);
	return slot;
}

static void
free_slot(int i)
{
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	memset(&dr_shared->workers[i], 0, sizeof(DrWorkerSlot));
	LWLockRelease(dr_shared->lock);
}

/* Does any worker have that database?  The caller holds the lock. */
static bool
has_slot(Oid database)
{
	for (int i = 0; i < DR_WORKERS; i++)
		if (dr_shared->workers[i].database == database)
			return true;
	return false;
}

/* Is a worker there already, one of ours or of a launcher before us? */
static bool
is_served(const DrDatabase *database)
{
	bool		served;

	LWLockAcquire(dr_shared->lock, LW_SHARED);
	served = database->handle != NULL || has_slot(database->oid);
	LWLockRelease(dr_shared->lock);
	return served;
}

/* A slot for a worker of that database; -1: there is none free, or the database
 * is held. */
static int
claim_slot(const DrDatabase *database, bool heal, TimestampTz now, uint32 *generation)
{
	DrWorkerSlot *slot;
	int			i = 0;

	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	while (i < DR_WORKERS && OidIsValid(dr_shared->workers[i].database))
		i++;
	if (i == DR_WORKERS || dr_shared_is_held(database->oid, now) || has_slot(database->oid))
		i = -1;
	else
	{
		slot = &dr_shared->workers[i];
		slot->database = database->oid;
		slot->generation = *generation = ++dr_shared->generation;
		slot->heal = heal;
		slot->eager = database->eager;
		slot->since = database->healed_at;
	}
	LWLockRelease(dr_shared->lock);
	return i;
}

/* Slots of workers that an earlier launcher started, and that have ended. */
static void
free_orphans(void)
{
	bool		ours[DR_WORKERS] = {false};
	ListCell   *cell;

	foreach(cell, dr_databases)
		if (((DrDatabase *) lfirst(cell))->handle != NULL)
			ours[((DrDatabase *) lfirst(cell))->slot] = true;
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < DR_WORKERS; i++)
		if (!ours[i] && dr_shared->workers[i].pid == 0)
			memset(&dr_shared->workers[i], 0, sizeof(DrWorkerSlot));
	LWLockRelease(dr_shared->lock);
}

/* ----------------------------------------------------------------- launching */

/* A worker that has ended says when the next one is due. */
static void
collect_worker(DrDatabase *database, TimestampTz now)
{
	DrWorkerSlot slot;
	pid_t		pid;

	if (database->handle == NULL ||
		GetBackgroundWorkerPid(database->handle, &pid) != BGWH_STOPPED)
		return;
	slot = read_slot(database->slot);
	free_slot(database->slot);
	pfree(database->handle);
	database->handle = NULL;
	database->not_before = now +
		(slot.done ? REST : RETRY << Min(database->deaths, MAX_DOUBLINGS));
	database->deaths = slot.done ? 0 : database->deaths + 1;
	refused_until = 0;			/* its process is free */
	if (slot.done && database->heals)
		database->healed_at = database->started_at;
	if (!slot.done && slot.eager)
		database->eager = true;
	if (database->next_due == 0)	/* something new meanwhile */
		return;
	database->next_due = slot.done ? slot.next_due : 0;
}

static bool
any_worker_runs(void)
{
	ListCell   *cell;

	foreach(cell, dr_databases)
		if (((DrDatabase *) lfirst(cell))->handle != NULL)
			return true;
	return false;
}

/* No process is free for a worker.  That is said where it lasts. */
static void
note_refusal(const DrDatabase *database, TimestampTz now)
{
	if (refused_since == 0 || now > refused_until + LOOK_AROUND)	/* nobody asked meanwhile */
		refused_since = now;
	refused_until = now + RETRY;
	if (refusal_said || now - refused_since < (any_worker_runs() ? PATIENCE : RETRY))
		return;
	refusal_said = true;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("no background worker is free to make the passes of database \"%s\"",
					database->name),
			 errdetail("The launcher tries again."),
			 errhint("You might need to increase max_worker_processes.")));
}

static void
note_start(DrDatabase *database, bool heal, TimestampTz now)
{
	database->next_due = DT_NOEND;	/* the worker will say */
	database->heals = heal || dr_guc_late_interval == 0;
	database->eager = false;
	database->started_at = now;
	refused_since = refused_until = 0;
	refusal_said = false;
}

/* Start a worker; where that is not possible now, later. */
static void
start_worker(DrDatabase *database, TimestampTz now)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_notify_pid = MyProcPid
	};
	bool		heal = dr_databases_heal_is_due(database, now);
	uint32		generation;
	MemoryContext before;

	database->slot = claim_slot(database, heal, now, &generation);
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
	memcpy(worker.bgw_extra, &generation, sizeof(generation));

	before = MemoryContextSwitchTo(launcher_context);
	if (RegisterDynamicBackgroundWorker(&worker, &database->handle))
		note_start(database, heal, now);
	else
	{
		free_slot(database->slot);
		database->handle = NULL;
		note_refusal(database, now);
	}
	MemoryContextSwitchTo(before);
}

/* How many workers make no pass; one that is kept from its look counts no more
 * after a while. */
static int
count_lookers(TimestampTz now)
{
	int			n = 0;
	ListCell   *cell;

	foreach(cell, dr_databases)
	{
		DrDatabase *database = lfirst(cell);

		if (database->handle != NULL && now - database->started_at < RETRY &&
			!read_slot(database->slot).busy)
			n++;
	}
	return n;
}

/* The database that has been due for longest; NULL: none is. */
static DrDatabase *
most_overdue(TimestampTz now)
{
	DrDatabase *found = NULL;
	ListCell   *cell;

	foreach(cell, dr_databases)
	{
		DrDatabase *database = lfirst(cell);
		TimestampTz due = dr_databases_due(database);

		if (due <= now && (found == NULL || due < dr_databases_due(found)) &&
			!is_served(database))
			found = database;
	}
	return found;
}

/* When there is something to do again, unless somebody wakes us. */
static TimestampTz
next_time(TimestampTz now)
{
	TimestampTz next = now + LOOK_AROUND;
	ListCell   *cell;

	if (!dr_guc_worker)
		return next;
	if (count_lookers(now) >= LOOKERS)
		return now + RETRY;
	foreach(cell, dr_databases)
		if (!is_served(lfirst(cell)))
			next = Min(next, Max(dr_databases_due(lfirst(cell)), refused_until));
	return next;
}

/* Start what is due; returns how long there is nothing to do, in milliseconds. */
static long
start_workers(TimestampTz now)
{
	DrDatabase *database;
	ListCell   *cell;

	free_orphans();
	foreach(cell, dr_databases)
		collect_worker(lfirst(cell), now);
	while (dr_guc_worker && refused_until <= now && count_lookers(now) < LOOKERS &&
		   (database = most_overdue(now)) != NULL)
		start_worker(database, now);
	return Max(TimestampDifferenceMilliseconds(now, next_time(now)), 10);
}

/* ---------------------------------------------------------------------- loop */

/* Which databases there are and what is due there.  "all": the configuration may
 * have changed. */
static void
look(bool all, TimestampTz now)
{
	static int	mode = -1;
	bool		eager = mode != dr_guc_mode;

	mode = dr_guc_mode;
	dr_databases_look(launcher_context);
	dr_databases_take_wishes(all, eager);
	if (dr_databases_mind_clock(now))
		refused_since = refused_until = 0;
}

static void
launcher_ends(int code, Datum arg)
{
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	dr_shared->launcher = NULL;
	LWLockRelease(dr_shared->lock);
}

static void
begin(void)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("dailyrollup launcher");

	launcher_context = AllocSetContextCreate(TopMemoryContext, "dailyrollup launcher",
											 ALLOCSET_DEFAULT_SIZES);
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	dr_shared->launcher = MyLatch;
	LWLockRelease(dr_shared->lock);
	before_shmem_exit(launcher_ends, (Datum) 0);
}

void
dailyrollup_launcher(Datum arg)
{
	MemoryContext loop;
	bool		all = true;

	begin();
	loop = AllocSetContextCreate(TopMemoryContext, "dailyrollup launcher loop",
								 ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		TimestampTz now;
		long		timeout;

		MemoryContextSwitchTo(loop);
		MemoryContextReset(loop);
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			all = true;
		}
		now = DR_NOW();
		look(all, now);
		MemoryContextSwitchTo(loop);
		all = false;
		timeout = start_workers(now);
		pgstat_report_activity(STATE_IDLE, NULL);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 timeout, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ShutdownRequestPending)
			proc_exit(1);		/* the postmaster starts another, or ends too */
	}
}

void
dr_launcher_init(void)
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
