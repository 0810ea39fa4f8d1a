/*
 * shared.c
 *		What the processes share: only where the library is preloaded.
 *
 * A transaction that changes what is known of a rollup tells the launcher when
 * it has committed: there may be something to do in its database.
 */
#include "shared.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

DrShared   *dr_shared = NULL;

static shmem_request_hook_type previous_request = NULL;
static shmem_startup_hook_type previous_startup = NULL;

static bool changed = false;	/* in this transaction */
static bool ignored = false;	/* our own changes, in a worker */

static void
request_memory(void)
{
	if (previous_request)
		previous_request();
	RequestAddinShmemSpace(MAXALIGN(sizeof(DrShared)));
	RequestNamedLWLockTranche(DR_SCHEMA, 1);
}

static void
start_memory(void)
{
	bool		found;

	if (previous_startup)
		previous_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	dr_shared = ShmemInitStruct(DR_SCHEMA, sizeof(DrShared), &found);
	if (!found)
	{
		memset(dr_shared, 0, sizeof(DrShared));
		dr_shared->lock = &(GetNamedLWLockTranche(DR_SCHEMA))->lock;
	}
	LWLockRelease(AddinShmemInitLock);
}

/* The caller holds the lock. */
static void
wake(void)
{
	if (dr_shared->launcher != NULL)
		SetLatch(dr_shared->launcher);
}

void
dr_shared_wake_launcher(void)
{
	LWLockAcquire(dr_shared->lock, LW_SHARED);
	wake();
	LWLockRelease(dr_shared->lock);
}

/* Likewise. */
static void
wish(Oid database)
{
	if (dr_shared->nwishes == DR_WISHES)
		dr_shared->look_at_all = true;
	else
		dr_shared->wishes[dr_shared->nwishes++] = database;
	wake();
}

/* There may be something to do in that database: wake the launcher. */
void
dr_shared_wish(Oid database)
{
	if (dr_shared == NULL)
		return;
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	wish(database);
	LWLockRelease(dr_shared->lock);
}

/* This transaction, which has changed something, is being prepared. */
static void
note_prepared(void)
{
	bool		noted = false;

	if (dr_shared == NULL)
		return;
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < DR_PREPARED && !noted; i++)
		if (dr_shared->prepared[i].database == InvalidOid)
		{
			dr_shared->prepared[i].database = MyDatabaseId;
			dr_shared->prepared[i].xid = GetTopTransactionIdIfAny();
			noted = true;
		}
	if (!noted)
		dr_shared->prepared_unknown = true;
	LWLockRelease(dr_shared->lock);
}

/* A prepared transaction has committed: most have not changed anything that the
 * launcher should know of. */
void
dr_shared_prepared_ended(void)
{
	if (dr_shared == NULL)
		return;
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < DR_PREPARED; i++)
	{
		DrPrepared *prepared = &dr_shared->prepared[i];

		if (prepared->database == InvalidOid || TransactionIdIsInProgress(prepared->xid))
			continue;
		wish(prepared->database);
		prepared->database = InvalidOid;
	}
	if (dr_shared->prepared_unknown)
		wish(MyDatabaseId);
	LWLockRelease(dr_shared->lock);
}

/* Should nobody connect to that database for a moment?  The caller holds the
 * lock.  One that has longer to last was made before the clock was set back. */
bool
dr_shared_is_held(Oid database, TimestampTz now)
{
	for (int i = 0; i < DR_WORKERS; i++)
		if (dr_shared->holds[i].database == database && dr_shared->holds[i].until > now &&
			dr_shared->holds[i].until <= now + DR_HOLD)
			return true;
	return false;
}

/* This transaction has changed what is known of a rollup. */
void
dr_shared_note_change(void)
{
	changed = !ignored;
}

/* What this process changes, it need not be told. */
void
dr_shared_ignore_changes(void)
{
	ignored = true;
}

static void
transaction_ended(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT && changed)
		dr_shared_wish(MyDatabaseId);
	if (event == XACT_EVENT_PREPARE && changed)
		note_prepared();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE)
		changed = false;
}

void
dr_shared_init(void)
{
	RegisterXactCallback(transaction_ended, NULL);
	if (!process_shared_preload_libraries_in_progress)
		return;
	previous_request = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_startup = shmem_startup_hook;
	shmem_startup_hook = start_memory;
}
