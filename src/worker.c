/*
 * worker.c
 *		A worker: it makes the passes of one database.
 *
 * It serves the rollups that are due, tells the launcher when the next one will
 * be, and ends.
 */
#include "worker.h"

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "debug.h"
#include "guc.h"
#include "pass.h"
#include "shared.h"
#include "steps.h"

/* A rollup that somebody else is at is looked at again after so long. */
#define SKIPPED_REST	(10 * USECS_PER_SEC)

PGDLLEXPORT void dailyrollup_worker(Datum arg);

/* -------------------------------------------------------------------- its slot */

static int	my_slot;

static void
worker_ends(int code, Datum arg)
{
	DrWorkerSlot *slot = &dr_shared->workers[my_slot];

	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	if (slot->pid == MyProcPid)
		slot->pid = 0;
	LWLockRelease(dr_shared->lock);
	dr_shared_wake_launcher();
}

/* What is to be done; false: nothing, for the launcher that meant us is gone, or
 * somebody wants the database. */
static bool
take_slot(DrWorkerSlot *work)
{
	DrWorkerSlot *slot = &dr_shared->workers[my_slot];
	uint32		generation;
	bool		mine;

	memcpy(&generation, MyBgworkerEntry->bgw_extra, sizeof(generation));
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	mine = OidIsValid(slot->database) && slot->generation == generation &&
		!dr_shared_is_held(slot->database, DR_NOW());
	if (mine)
		slot->pid = MyProcPid;
	*work = *slot;
	LWLockRelease(dr_shared->lock);
	before_shmem_exit(worker_ends, (Datum) 0);
	return mine;
}

/* This worker makes a pass: the launcher may let others look. */
static void
report_busy(void)
{
	static bool said = false;

	if (said)
		return;
	said = true;
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	if (dr_shared->workers[my_slot].pid == MyProcPid)
		dr_shared->workers[my_slot].busy = true;
	LWLockRelease(dr_shared->lock);
	dr_shared_wake_launcher();
}

static void
report_next(TimestampTz next)
{
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	if (dr_shared->workers[my_slot].pid == MyProcPid)
	{
		dr_shared->workers[my_slot].next_due = next;
		dr_shared->workers[my_slot].done = true;
	}
	LWLockRelease(dr_shared->lock);
}

/* ------------------------------------------------------------------ its passes */

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
		{"transaction_timeout", "0"},	/* not every server has it */
		{"lock_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"session_replication_role", "origin"},
		{"search_path", ""}
	};

	for (int i = 0; i < lengthof(settings); i++)
		if (GetConfigOption(settings[i][0], true, false) != NULL)
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

/* When the rollup is due; DT_NOEND where it is gone.  What a backfill has marked
 * was looked at "since". */
static TimestampTz
due(Oid live, TimestampTz since)
{
	DrRollup   *rollup = dr_catalog_find(live, NULL);
	const char *reason;
	TimestampTz at;

	if (rollup == NULL)
		return DT_NOEND;
	at = dr_steps_due(rollup, &reason);
	return dr_guc_late_interval > 0 ? at : Min(at, dr_steps_flush_due(rollup, since));
}

/* The same, of a rollup that cannot be looked at: after a while.  The others must
 * not suffer. */
static TimestampTz
try_due(Oid live, TimestampTz since)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile TimestampTz at = DT_NOEND;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		at = due(live, since);
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

/* Is a pass of the rollup to be made now? */
static bool
is_due(Oid live, const DrWorkerSlot *work)
{
	DrRollup   *rollup = dr_catalog_find(live, NULL);
	TimestampTz at = work->heal ? 0 : try_due(live, work->since);
	TimestampTz now = GetCurrentTimestamp();

	if (rollup == NULL)
		return false;

	/* the server's mode has changed, and it is this rollup's */
	if (work->eager && rollup->mode == NULL && rollup->failures > 0)
		return true;
	return Max(at, dr_steps_retry_at(rollup)) <= now;
}

/* A pass over the rollup, where one is due; false where somebody else is at it. */
static bool
serve(Oid live, const DrWorkerSlot *work, MemoryContext context)
{
	bool		skipped;

	if (!is_due(live, work))
		return true;
	report_busy();
	(void) dr_pass(live, true, next_transaction, context, &skipped);
	return !skipped;
}

/* Serve them; returns when the next one is due. */
static TimestampTz
serve_all(List *lives, const DrWorkerSlot *work, MemoryContext context)
{
	TimestampTz started_at = GetCurrentTimestamp();
	TimestampTz next = DT_NOEND;
	List	   *skipped = NIL;
	ListCell   *cell;

	foreach(cell, lives)
		if (!serve(lfirst_oid(cell), work, context))
		{
			MemoryContext before = MemoryContextSwitchTo(context);

			skipped = lappend_oid(skipped, lfirst_oid(cell));
			MemoryContextSwitchTo(before);
		}
	foreach(cell, lives)
	{
		TimestampTz at = try_due(lfirst_oid(cell), started_at);

		/* whoever is at it tells us of what he commits */
		if (list_member_oid(skipped, lfirst_oid(cell)))
			at = Max(at, GetCurrentTimestamp() + SKIPPED_REST);
		next = Min(next, at);
	}
	return next;
}

static void
serve_database(const DrWorkerSlot *work)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "dailyrollup worker",
												  ALLOCSET_DEFAULT_SIZES);
	TimestampTz next;
	List	   *lives;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	lives = list_rollups(context);
	PopActiveSnapshot();
	next = serve_all(lives, work, context);

	/* without the extension nothing is due; with it, late keys may always be, or
	 * a transaction that was prepared long ago */
	if (next == DT_NOEND && dr_catalog_is_installed())
		next = GetCurrentTimestamp() + USECS_PER_DAY;
	CommitTransactionCommand();
	report_next(next);
}

void
dailyrollup_worker(Datum arg)
{
	DrWorkerSlot work;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	my_slot = DatumGetInt32(arg);
	if (!take_slot(&work))
		proc_exit(0);
	BackgroundWorkerInitializeConnectionByOid(work.database, InvalidOid, 0);
	pgstat_report_appname("dailyrollup worker");
	dr_shared_ignore_changes();
	StartTransactionCommand();
	override_settings();
	CommitTransactionCommand();
	serve_database(&work);
	proc_exit(0);
}
