/*
 * locks.c
 *		The refresh lock, and the wait for writers.
 *
 * A writer asks once a statement whether a refresh is under way.  It must not
 * pay for that with a write to shared memory, and it must not be told "no"
 * before the refresh's new watermark has been announced.  So the refresh lock
 * is a relation lock, and the question is a conditional RowShareLock on the
 * same relation, given back at once: while no refresh runs it stays in the
 * session's own fast-path slots.  A transaction releases its locks after it
 * has become visible and after it has sent its invalidation messages, hence
 * whoever gets the lock also gets the messages.
 *
 * (Reading the lock table with GetLockConflicts would not do: it leaves out
 * holders whose transaction has ended for the process array, which comes
 * before the messages.  In between a writer would keep the old watermark.)
 */
#include "locks.h"

#include "access/genam.h"
#include "access/xact.h"
#include "catalog/pg_inherits.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "guc.h"

/* ------------------------------------------------------- waits with a limit */

/*
 * Locks are waited for with the server's lock_timeout, set to what is left of
 * dailyrollup.writer_timeout, so that the deadlock detector watches too.  A
 * shorter lock_timeout of the user's own is respected.
 */
typedef struct Patience
{
	TimestampTz until;			/* DT_NOEND: for ever */
	int			guc_level;
	bool		ours;			/* the limit in force is writer_timeout */
	MemoryContext context;		/* where a message may be built */
} Patience;

static Patience
begin_patience(void)
{
	Patience	patience = {.until = DT_NOEND, .context = CurrentMemoryContext};

	if (dr_guc_writer_timeout > 0)
		patience.until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													 dr_guc_writer_timeout);
	return patience;
}

/* Limit the next wait to what is left. */
static void
limit_wait(Patience *patience)
{
	long		left;
	char		value[32];

	patience->guc_level = NewGUCNestLevel();
	patience->ours = false;
	if (patience->until == DT_NOEND)
		return;
	left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), patience->until);
	left = Max(left, 1);
	if (LockTimeout > 0 && LockTimeout <= left)
		return;
	patience->ours = true;
	snprintf(value, sizeof(value), "%ld", left);
	(void) set_config_option("lock_timeout", value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

static void
unlimit_wait(Patience *patience)
{
	AtEOXact_GUC(false, patience->guc_level);
}

/* Called where a wait has failed: true where that was by our own limit; the
 * error is then taken out of the way for a better one. */
static bool
ran_out(Patience *patience)
{
	if (!patience->ours || geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
		return false;
	MemoryContextSwitchTo(patience->context);
	FlushErrorState();
	return true;
}

/* ------------------------------------------------------------ refresh lock */

static void
refresh_tag(LOCKTAG *tag, Oid definition)
{
	SET_LOCKTAG_RELATION(*tag, MyDatabaseId, definition);
}

static int
by_number(const void *a, const void *b)
{
	int			left = *(const int *) a;
	int			right = *(const int *) b;

	return left < right ? -1 : left > right;
}

/* The process ids of these transactions, sorted, for a message. */
static char *
pid_list(VirtualTransactionId *holders)
{
	StringInfoData buf;
	int			pids[64];
	int			n = 0;
	bool		prepared = false;

	for (; VirtualTransactionIdIsValid(*holders) && n < lengthof(pids); holders++)
	{
		PGPROC	   *proc = dr_vxid_proc(*holders);

		if (proc != NULL && dr_proc_lxid(proc) == holders->localTransactionId)
			pids[n++] = proc->pid;
		else
			prepared = true;
	}
	qsort(pids, n, sizeof(int), by_number);

	initStringInfo(&buf);
	for (int i = 0; i < n; i++)
		appendStringInfo(&buf, "%s%d", i == 0 ? "" : ", ", pids[i]);
	if (prepared)
		appendStringInfo(&buf, "%sa prepared transaction", n == 0 ? "" : ", ");
	return buf.data;
}

static void
complain_of_wait(const char *source, const char *pids)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("transactions that write to \"%s\" did not end within %s", source,
					GetConfigOptionByName("dailyrollup.writer_timeout", NULL, false)),
			 errdetail("The refresh waits for process: %s.", pids),
			 errhint("End them, or set dailyrollup.writer_timeout higher.")));
}

/*
 * Take the refresh lock, to the end of the transaction; wait for another
 * refresh up to dailyrollup.writer_timeout.
 */
void
dr_locks_refresh(Oid definition, const char *rollup)
{
	Patience	patience = begin_patience();
	LOCKTAG		tag;

	refresh_tag(&tag, definition);
	limit_wait(&patience);
	PG_TRY();
	{
		LockRelationOid(definition, ExclusiveLock);
	}
	PG_CATCH();
	{
		if (ran_out(&patience))
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("another refresh of rollup \"%s\" is under way", rollup),
					 errdetail("It is run by process: %s.",
							   pid_list(GetLockConflicts(&tag, ExclusiveLock, NULL))),
					 errhint("Try again later, or set dailyrollup.writer_timeout higher.")));
		PG_RE_THROW();
	}
	PG_END_TRY();
	unlimit_wait(&patience);
}

/*
 * Lock the source as a reader does, after the wait for writers, to the end of
 * the transaction: no index or constraint that our SQL relies on may go.
 */
void
dr_locks_source(Oid source, const char *name)
{
	Patience	patience = begin_patience();
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, source);
	limit_wait(&patience);
	PG_TRY();
	{
		LockRelationOid(source, AccessShareLock);
	}
	PG_CATCH();
	{
		if (ran_out(&patience))
			complain_of_wait(name, pid_list(GetLockConflicts(&tag, AccessShareLock, NULL)));
		PG_RE_THROW();
	}
	PG_END_TRY();
	unlimit_wait(&patience);
}

/*
 * From here on each lock that a statement waits for is waited for no longer
 * than dailyrollup.writer_timeout; returns what dr_locks_unlimit_waits takes.
 */
int
dr_locks_limit_waits(void)
{
	Patience	patience = begin_patience();

	limit_wait(&patience);
	return patience.guc_level;
}

void
dr_locks_unlimit_waits(int level)
{
	AtEOXact_GUC(false, level);
}

/*
 * Take the refresh lock if no refresh is under way; writers who look whether it
 * is taken hold it for a moment, hence a few tries.
 */
bool
dr_locks_refresh_if_free(Oid definition)
{
	for (int tries = 0; !ConditionalLockRelationOid(definition, ExclusiveLock); tries++)
	{
		if (tries == 20)
			return false;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(5 * 1000L);
	}
	return true;
}

/*
 * Keep refreshes out while DDL of a user's changes a rollup.  The DDL holds
 * tables that a refresh takes after this lock, so we must not queue for it; a
 * few tries, for writers who look whether it is taken hold it for a moment.
 */
void
dr_locks_exclude_refresh(Oid definition, const char *rollup)
{
	for (int tries = 0; !ConditionalLockRelationOid(definition, ExclusiveLock); tries++)
	{
		if (tries == 100)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("a refresh of rollup \"%s\" is under way", rollup),
					 errhint("Try again when it has ended.")));
		CHECK_FOR_INTERRUPTS();
		pg_usleep(10 * 1000L);
	}
}

/* Give the refresh lock back: there was nothing to do. */
void
dr_locks_refresh_undone(Oid definition)
{
	UnlockRelationOid(definition, ExclusiveLock);
}

/* Does this transaction hold the refresh lock? */
static bool
refresh_held(Oid definition)
{
	LOCKTAG		tag;

	refresh_tag(&tag, definition);
	return dr_lock_held_by_me(&tag, ExclusiveLock);
}

/*
 * Is a refresh under way, by us or by others?  On false, invalidation messages
 * have been accepted since the last refresh ended.
 */
bool
dr_locks_refresh_taken(Oid definition)
{
	if (refresh_held(definition))
		return true;
	if (!ConditionalLockRelationOid(definition, RowShareLock))
		return true;
	UnlockRelationOid(definition, RowShareLock);
	return false;
}

/* ------------------------------------------------------------- all at once */

/*
 * Locks that readers or writers would queue behind, were we to wait for them:
 * taken by conditional tries, all or none, until dailyrollup.writer_timeout (or
 * a shorter lock_timeout) has passed.  Milliseconds:
 */
#define TRY_ALONE	1000		/* before we queue at all */
#define SLICE		100			/* that we queue for at a time */

static bool
only_autovacuum_holds(Oid relation, LOCKMODE mode)
{
	LOCKTAG		tag;
	VirtualTransactionId *holder;
	bool		only = true;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relation);
	for (holder = GetLockConflicts(&tag, mode, NULL);
		 only && VirtualTransactionIdIsValid(*holder);
		 holder++)
	{
		PGPROC	   *proc = dr_vxid_proc(*holder);

		if (proc == NULL)
			return false;
		LWLockAcquire(ProcArrayLock, LW_SHARED);
		only = dr_proc_lxid(proc) == holder->localTransactionId &&
			(proc->statusFlags & PROC_IS_AUTOVACUUM) != 0 &&
			(proc->statusFlags & PROC_VACUUM_FOR_WRAPAROUND) == 0;
		LWLockRelease(ProcArrayLock);
	}
	return only;
}

/*
 * One try.  A vacuum of the server's own may run for hours; it gives way to who
 * waits for it, which takes deadlock_timeout.
 */
static bool
try_one(Oid relation, LOCKMODE mode)
{
	if (ConditionalLockRelationOid(relation, mode))
		return true;
	if (!only_autovacuum_holds(relation, mode))
		return false;
	LockRelationOid(relation, mode);
	return true;
}

/* All of them, or none: then the one that was in the way. */
static Oid
try_all(List *relations, LOCKMODE mode)
{
	ListCell   *cell;
	ListCell   *taken;

	foreach(cell, relations)
	{
		if (try_one(lfirst_oid(cell), mode))
			continue;
		foreach(taken, relations)
		{
			if (taken == cell)
				break;
			UnlockRelationOid(lfirst_oid(taken), mode);
		}
		return lfirst_oid(cell);
	}
	return InvalidOid;
}

static void
complain_of_holders(Oid relation, LOCKMODE mode)
{
	LOCKTAG		tag;
	char	   *pids;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relation);
	pids = pid_list(GetLockConflicts(&tag, mode, NULL));
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not lock \"%s\" within %s", get_rel_name(relation),
					GetConfigOptionByName("dailyrollup.writer_timeout", NULL, false)),
			 pids[0] != '\0' ? errdetail("It is in use by process: %s.", pids) : 0,
			 errhint("Try again when these transactions have ended, or set dailyrollup.writer_timeout higher.")));
}

/* Wait a little before the next try; false when there is no time left. */
static bool
wait_a_little(const Patience *patience, TimestampTz since, int tries)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now >= patience->until ||
		(LockTimeout > 0 && TimestampDifferenceExceeds(since, now, LockTimeout)))
		return false;
	CHECK_FOR_INTERRUPTS();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Min(10 * (tries + 1), SLICE), PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return true;
}

/*
 * Queue for the locks as everybody does, but not for longer than a slice of
 * time: whoever queues behind us waits no longer either.
 */
static bool
lock_in_slice(List *relations, LOCKMODE mode)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	char		slice[32];
	bool		locked = false;

	snprintf(slice, sizeof(slice), "%d", SLICE);
	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		ListCell   *cell;

		(void) set_config_option("lock_timeout", slice, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
		foreach(cell, relations)
			LockRelationOid(lfirst_oid(cell), mode);
		locked = true;
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
			error->sqlerrcode != ERRCODE_T_R_DEADLOCK_DETECTED)
			ReThrowError(error);
		FreeErrorData(error);
		locked = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return locked;
}

/* The source first, then its partitions, then live. */
static List *
writers_relations(Oid source, Oid live)
{
	List	   *relations = list_copy(find_all_inheritors(source, NoLock, NULL));

	relations = lcons_oid(source, list_delete_oid(relations, source));
	return lappend_oid(relations, live);
}

/*
 * Tries, each after a little while; in vain for long, for under many writers
 * there is hardly a moment without one, they queue in slices.  With a source
 * the relations are its and live's, listed anew each time.
 */
static void
lock_all(List *relations, Oid source, Oid live, LOCKMODE mode)
{
	Patience	patience = begin_patience();
	TimestampTz since = GetCurrentTimestamp();
	Oid			in_the_way;

	for (int tries = 0;; tries++)
	{
		if (OidIsValid(source))
			relations = writers_relations(source, live);
		in_the_way = try_all(relations, mode);
		if (!OidIsValid(in_the_way))
			break;
		if (!wait_a_little(&patience, since, tries))
			complain_of_holders(in_the_way, mode);
		if (TimestampDifferenceExceeds(since, GetCurrentTimestamp(), TRY_ALONE) &&
			lock_in_slice(relations, mode))
			break;
	}

	/* a partition may have come while we waited */
	if (OidIsValid(source) &&
		list_difference_oid(writers_relations(source, live), relations) != NIL)
		lock_all(NIL, source, live, mode);
}

/* One relation, to the end of the transaction. */
void
dr_locks_at_once(Oid relation, LOCKMODE mode)
{
	lock_all(list_make1_oid(relation), InvalidOid, InvalidOid, mode);
}

/* Stop all who write to the source, to a partition or to live, to the end of the
 * transaction. */
void
dr_locks_writers_at_once(Oid source, Oid live)
{
	lock_all(NIL, source, live, ShareRowExclusiveLock);
}

/* --------------------------------------------------------- wait for writers */

/*
 * May the holder of a write lock be left out?  Only where it is that very
 * transaction that still runs there (a prepared transaction keeps the virtual
 * id of a session that does something else by now), and it is a vacuum or a
 * safe concurrent index build, or has no transaction id: then it has written
 * no row, and its triggers ask for the threshold after its first.
 */
static bool
writes_nothing(VirtualTransactionId holder)
{
	PGPROC	   *proc;
	bool		harmless = false;

	proc = dr_vxid_proc(holder);
	if (proc == NULL)
		return false;

	LWLockAcquire(ProcArrayLock, LW_SHARED);
	if (dr_proc_lxid(proc) == holder.localTransactionId)
		harmless = !TransactionIdIsValid(proc->xid) ||
			(proc->statusFlags & (PROC_IN_VACUUM | PROC_IS_AUTOVACUUM |
								  PROC_IN_SAFE_IC)) != 0;
	LWLockRelease(ProcArrayLock);
	return harmless;
}

static void
wait_for_writers_of(Oid relation, const char *source, Patience *patience)
{
	LOCKTAG		tag;
	VirtualTransactionId *holder;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relation);
	for (holder = GetLockConflicts(&tag, ShareLock, NULL);
		 VirtualTransactionIdIsValid(*holder);
		 holder++)
	{
		if (writes_nothing(*holder))
			continue;
		limit_wait(patience);
		PG_TRY();
		{
			(void) VirtualXactLock(*holder, true);
		}
		PG_CATCH();
		{
			if (ran_out(patience))
				complain_of_wait(source, pid_list(holder));
			PG_RE_THROW();
		}
		PG_END_TRY();
		unlimit_wait(patience);
	}
}

/*
 * Wait until every transaction that holds a write lock on the source or on an
 * inheritor now has ended.  As CREATE INDEX CONCURRENTLY does, this queues
 * nobody; unlike it, a row written straight into a leaf counts, for it locks
 * the leaf alone.  Takes no lock itself.  "name" is the source's, for messages.
 */
void
dr_locks_wait_for_writers(Oid source, const char *name)
{
	List	   *relations = find_all_inheritors(source, NoLock, NULL);
	Patience	patience = begin_patience();
	ListCell   *cell;

	foreach(cell, relations)
		wait_for_writers_of(lfirst_oid(cell), name, &patience);
}

/*
 * An error where this session is in the middle of a query over the source, or
 * has trigger events waiting for it: what such a statement has written is
 * invisible to us, yet our transaction holds its lock, so nothing would wait
 * for it.  Looks at the session's own state only, hence without a lock.
 */
void
dr_locks_check_not_in_use(Oid source, const char *what)
{
	List	   *relations = find_all_inheritors(source, NoLock, NULL);
	ListCell   *cell;

	foreach(cell, relations)
	{
		Relation	rel = RelationIdGetRelation(lfirst_oid(cell));

		if (rel == NULL)
			continue;
		CheckTableNotInUse(rel, what);
		RelationClose(rel);
	}
}
