/*
 * stop.c
 *		Locks that readers or writers would queue behind, were we to wait for
 *		them.
 *
 * They are taken by conditional tries, all or none, until
 * dailyrollup.writer_timeout (or a shorter lock_timeout) has passed.
 */
#include "stop.h"

#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/wait_event.h"

#include "attempt.h"
#include "catalog.h"
#include "compat.h"
#include "guc.h"
#include "debug.h"
#include "patience.h"

/* Milliseconds. */
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

/* What is locked of a relation: a view, against its readers. */
static LOCKMODE
mode_of(Oid relation, LOCKMODE mode)
{
	return get_rel_relkind(relation) == RELKIND_VIEW ? AccessExclusiveLock : mode;
}

/* All of them, or none: then the one that was in the way. */
static Oid
try_all(List *relations, LOCKMODE mode)
{
	ListCell   *cell;
	ListCell   *taken;

	foreach(cell, relations)
	{
		if (try_one(lfirst_oid(cell), mode_of(lfirst_oid(cell), mode)))
			continue;
		foreach(taken, relations)
		{
			if (taken == cell)
				break;
			UnlockRelationOid(lfirst_oid(taken), mode_of(lfirst_oid(taken), mode));
		}
		return lfirst_oid(cell);
	}
	return InvalidOid;
}

/* (A lock_timeout that dr_patience_limit has set may be a little shorter.) */
static void
complain_of_holders(Oid relation, LOCKMODE mode)
{
	LOCKTAG		tag;
	char	   *pids;
	const char *limit = LockTimeout > 0 &&
		(dr_guc_writer_timeout == 0 || LockTimeout + SLICE < dr_guc_writer_timeout) ?
		"lock_timeout" : "dailyrollup.writer_timeout";

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relation);
	pids = dr_patience_pids(GetLockConflicts(&tag, mode, NULL));
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not lock \"%s\" within %s", dr_catalog_name(relation),
					GetConfigOptionByName(limit, NULL, false)),
			 pids[0] != '\0' ? errdetail("It is in use by process: %s.", pids) : 0,
			 errhint("Try again when these transactions have ended, or set %s higher.", limit)));
}

/* Adds those whom a process waits for. */
static List *
add_blockers(List *pids, int pid)
{
	ArrayType  *blockers = DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids,
																  Int32GetDatum(pid)));
	int			n = ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers));
	int32	   *items = (int32 *) ARR_DATA_PTR(blockers);

	for (int i = 0; i < n; i++)
		pids = list_append_unique_int(pids, items[i]);
	return pids;
}

/*
 * An error where whoever is in the way waits for what we hold, himself or through
 * others: a command that drops live, say, and has come as far as what is locked by
 * us already.  The server would not see that: he has looked for a deadlock before
 * we began to try, and we do not wait as long as it takes to look.  (Called while
 * we hold no lock that the next try would give back.)
 */
static void
check_circle(Oid relation, LOCKMODE mode)
{
	LOCKTAG		tag;
	List	   *pids = NIL;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relation);
	for (VirtualTransactionId *holder = GetLockConflicts(&tag, mode, NULL);
		 VirtualTransactionIdIsValid(*holder);
		 holder++)
	{
		PGPROC	   *proc = dr_vxid_proc(*holder);

		if (proc != NULL && dr_proc_lxid(proc) == holder->localTransactionId)
			pids = list_append_unique_int(pids, proc->pid);
	}
	for (int i = 0; i < list_length(pids); i++)
	{
		if (list_nth_int(pids, i) == MyProcPid)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
					 errmsg("could not lock \"%s\": who uses it waits for this transaction",
							dr_catalog_name(relation)),
					 errdetail("It is in use by process: %s.",
							   dr_patience_pids(GetLockConflicts(&tag, mode, NULL))),
					 errhint("Try again when that transaction has ended.")));
		pids = add_blockers(pids, list_nth_int(pids, i));
	}
}

/* Wait a little before the next try; false when there is no time left. */
static bool
wait_a_little(const DrPatience *patience, TimestampTz since, int tries)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now >= patience->until ||
		(LockTimeout > 0 && TimestampDifferenceExceeds(since, now, LockTimeout)))
		return false;
	DR_WAITPOINT("locks-tried");
	CHECK_FOR_INTERRUPTS();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Min(10 * (tries + 1), SLICE), PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return true;
}

/* Locks that are queued for, as an attempt. */
typedef struct Locking
{
	List	   *relations;
	LOCKMODE	mode;
} Locking;

static void
lock_queued(void *arg)
{
	const Locking *locking = arg;
	int			level = NewGUCNestLevel();
	char		slice[32];
	ListCell   *cell;

	snprintf(slice, sizeof(slice), "%d", SLICE);
	(void) set_config_option("lock_timeout", slice, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	foreach(cell, locking->relations)
		LockRelationOid(lfirst_oid(cell), mode_of(lfirst_oid(cell), locking->mode));
	AtEOXact_GUC(false, level);
}

/*
 * Queue for the locks as everybody does, but not for longer than a slice of
 * time: whoever queues behind us waits no longer either.
 */
static bool
lock_in_slice(List *relations, LOCKMODE mode)
{
	Locking		locking = {.relations = relations, .mode = mode};
	ErrorData  *error = dr_attempt(lock_queued, &locking);

	if (error == NULL)
		return true;
	if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
		error->sqlerrcode != ERRCODE_T_R_DEADLOCK_DETECTED)
		ReThrowError(error);
	FreeErrorData(error);
	return false;
}

/* The source first, then its partitions, then the others. */
static List *
with_partitions(Oid source, List *others)
{
	List	   *relations = list_copy(find_all_inheritors(source, NoLock, NULL));

	relations = lcons_oid(source, list_delete_oid(relations, source));
	return list_concat(relations, others);
}

/*
 * Tries, each after a little while; in vain for long, for under many writers
 * there is hardly a moment without one, they queue in slices.  With a source its
 * partitions are listed anew each time.
 */
static void
lock_all(Oid source, List *others, LOCKMODE mode)
{
	DrPatience	patience = dr_patience_begin();
	TimestampTz since = GetCurrentTimestamp();
	List	   *relations = others;
	Oid			in_the_way;

	for (int tries = 0;; tries++)
	{
		if (OidIsValid(source))
		{
			relations = with_partitions(source, others);
			DR_WAITPOINT("partitions-listed");
		}
		in_the_way = try_all(relations, mode);
		if (!OidIsValid(in_the_way))
			break;
		if (!wait_a_little(&patience, since, tries))
			complain_of_holders(in_the_way, mode_of(in_the_way, mode));
		if (!TimestampDifferenceExceeds(since, GetCurrentTimestamp(), TRY_ALONE))
			continue;
		check_circle(in_the_way, mode_of(in_the_way, mode));
		if (lock_in_slice(relations, mode))
			break;
	}

	/* a partition may have come while we waited */
	if (OidIsValid(source) &&
		list_difference_oid(with_partitions(source, others), relations) != NIL)
		lock_all(source, others, mode);
}

/* One relation, to the end of the transaction. */
void
dr_stop_users(Oid relation, LOCKMODE mode)
{
	lock_all(InvalidOid, list_make1_oid(relation), mode);
}

/* Stop all who write to the source, to a partition or to live, to the end of the
 * transaction. */
void
dr_stop_writers(Oid source, Oid live)
{
	lock_all(source, list_make1_oid(live), ShareRowExclusiveLock);
}

/* And all who read the view. */
void
dr_stop_writers_and_readers(Oid source, Oid live, Oid view)
{
	lock_all(source, list_make2_oid(live, view), ShareRowExclusiveLock);
}

/* Stop all who use the source, a partition or one of the others in any way. */
void
dr_stop_everybody(Oid source, List *others)
{
	lock_all(source, others, AccessExclusiveLock);
}
