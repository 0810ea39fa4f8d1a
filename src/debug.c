/*
 * debug.c
 *		Places where a test can stop us, or do something else.
 *
 * In a build with DR_WAITPOINTS, code that reaches DR_WAITPOINT("name") waits
 * while another session holds pg_advisory_lock(hashtext('name')), so that an
 * isolation spec chooses the moment between two steps.  A session whose setting
 * dr_test.stop_at is "name", or "name:n" for the n-th time that it comes there,
 * waits while another one holds pg_advisory_lock(hashtext('dr_test.stop')): so
 * many can be stopped, each at a place of its own.  With "everywhere" it waits at
 * each, for that lock and for 'dr_test.stop_next' in turn.  Each commit of a
 * transaction that has written is the place "in-commit".  Code that reaches
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

/* Returns whether it had to wait. */
static bool
wait_while_locked(const char *name)
{
	/* pg_advisory_lock(bigint) splits its argument like this */
	int64		key = (int32) DatumGetUInt32(hash_any((const unsigned char *) name,
													  strlen(name)));
	LOCKTAG		tag;
	bool		waits;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId,
						 (uint32) (key >> 32), (uint32) key, 1);
	waits = LockAcquire(&tag, ShareLock, true, true) == LOCKACQUIRE_NOT_AVAIL;
	if (waits)
		(void) LockAcquire(&tag, ShareLock, true, false);
	LockRelease(&tag, ShareLock, true);
	return waits;
}

/* Stop at each place, but that which it was at before. */
static void
stop_everywhere(const char *name)
{
	static const char *last = "";
	static bool even = false;

	if (strcmp(name, last) == 0)
		return;
	last = name;
	even = !even;
	(void) wait_while_locked(even ? "dr_test.stop" : "dr_test.stop_next");
}

/* Is it here that this session is to stop, and the time that it is? */
static bool
is_stop(const char *name, const char *stop_at)
{
	static char sought[NAMEDATALEN] = "";
	static int	to_come = 0;
	int			length = strlen(name);

	if (strcmp(stop_at, sought) != 0)
	{
		const char *number = strchr(stop_at, ':');

		strlcpy(sought, stop_at, sizeof(sought));
		to_come = number != NULL ? atoi(number + 1) : 1;
	}
	return strncmp(sought, name, length) == 0 &&
		(sought[length] == '\0' || sought[length] == ':') && --to_come == 0;
}

static void
stop_where_asked(const char *name)
{
	const char *stop_at = GetConfigOption("dr_test.stop_at", true, false);

	if (stop_at != NULL && strcmp(stop_at, "everywhere") == 0)
		stop_everywhere(name);
	else if (is_stop(name, stop_at != NULL ? stop_at : ""))
		(void) wait_while_locked("dr_test.stop");
}

void
dr_debug_waitpoint(const char *name)
{
	elog(DEBUG1, "dailyrollup waitpoint %s", name);
	/* who lets go, to stop us at the next one, needs a moment for it */
	if (wait_while_locked(name))
		pg_usleep(30 * 1000);
	stop_where_asked(name);
}

/* Where a commit is visible to others, but has neither sent its invalidation
 * messages nor released its locks. */
static void
transaction_ended(XactEvent event, void *arg)
{
	const char *name = wait_in_commit;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_PREPARE && event != XACT_EVENT_ABORT)
		return;
	wait_in_commit = NULL;
	if (event == XACT_EVENT_COMMIT && name != NULL)
		dr_debug_waitpoint(name);
	if (event != XACT_EVENT_ABORT && TransactionIdIsValid(GetTopTransactionIdIfAny()))
		dr_debug_waitpoint("in-commit");
}

void
dr_debug_init(void)
{
	RegisterXactCallback(transaction_ended, NULL);
}

/* Stop in the middle of this transaction's commit. */
void
dr_debug_waitpoint_in_commit(const char *name)
{
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
