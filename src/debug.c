/*
 * debug.c
 *		Places where a test can stop us, or do something else.
 *
 * In a build with DR_WAITPOINTS, code that reaches DR_WAITPOINT("name") waits
 * while another session holds pg_advisory_lock(hashtext('name')), so that an
 * isolation spec chooses the moment between two steps.  Code that reaches
 * DR_RUN_SQL("name") runs the SQL that the session's setting dr_test.name holds.
 * DR_NOW() is the clock, dr_test.clock seconds from the server's.
 * The ordinary build has none of this.
 */
#include "debug.h"

#ifdef DR_WAITPOINTS
#include "access/xact.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/guc.h"

static const char *wait_in_commit = NULL;
static bool registered = false;

void
dr_debug_waitpoint(const char *name)
{
	/* pg_advisory_lock(bigint) splits its argument like this */
	int64		key = (int32) DatumGetUInt32(hash_any((const unsigned char *) name,
													  strlen(name)));
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId,
						 (uint32) (key >> 32), (uint32) key, 1);
	elog(DEBUG1, "dailyrollup waitpoint %s", name);
	if (LockAcquire(&tag, ShareLock, true, true) != LOCKACQUIRE_NOT_AVAIL)
	{
		LockRelease(&tag, ShareLock, true);
		return;
	}
	(void) LockAcquire(&tag, ShareLock, true, false);
	LockRelease(&tag, ShareLock, true);

	/* who lets go, to stop us at the next one, needs a moment for it */
	pg_usleep(30 * 1000);
}

/* Where a commit is visible to others, but has neither sent its invalidation
 * messages nor released its locks. */
static void
transaction_ended(XactEvent event, void *arg)
{
	const char *name = wait_in_commit;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	wait_in_commit = NULL;
	if (event == XACT_EVENT_COMMIT && name != NULL)
		dr_debug_waitpoint(name);
}

/* Stop in the middle of this transaction's commit. */
void
dr_debug_waitpoint_in_commit(const char *name)
{
	if (!registered)
		RegisterXactCallback(transaction_ended, NULL);
	registered = true;
	wait_in_commit = name;
}

/* Run what the session asks for at that place, as its user. */
void
dr_debug_run(const char *name)
{
	const char *sql = GetConfigOption(psprintf("dr_test.%s", name), true, false);

	if (sql == NULL || sql[0] == '\0')
		return;
	if (SPI_connect() != SPI_OK_CONNECT || SPI_execute(sql, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", sql);
	SPI_finish();
}

/* The clock of those who start workers. */
TimestampTz
dr_debug_now(void)
{
	const char *seconds = GetConfigOption("dr_test.clock", true, false);

	return GetCurrentTimestamp() + (seconds == NULL ? 0 : pg_strtoint32(seconds) * USECS_PER_SEC);
}
#endif
