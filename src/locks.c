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
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_inherits.h"
#include "commands/extension.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/utility.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "patience.h"

/* ------------------------------------------------------------ refresh lock */

static void
refresh_tag(LOCKTAG *tag, Oid definition)
{
	SET_LOCKTAG_RELATION(*tag, MyDatabaseId, definition);
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
 * Keep the extension, to the end of the transaction: a DROP of it locks it
 * first, and then in its own order what we lock in ours.
 */
void
dr_locks_extension(void)
{
	Oid			extension = get_extension_oid(DR_SCHEMA, true);

	if (OidIsValid(extension))
		LockDatabaseObject(ExtensionRelationId, extension, 0, AccessShareLock);
}

/*
 * Take the refresh lock, to the end of the transaction; wait for another
 * refresh up to dailyrollup.writer_timeout.
 */
void
dr_locks_refresh(Oid definition, const char *rollup)
{
	DrPatience	patience = dr_patience_begin();
	LOCKTAG		tag;

	refresh_tag(&tag, definition);
	dr_patience_limit(&patience);
	PG_TRY();
	{
		dr_locks_extension();
		LockRelationOid(definition, ExclusiveLock);
	}
	PG_CATCH();
	{
		if (dr_patience_ran_out(&patience))
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("another refresh of rollup \"%s\" is under way", rollup),
					 errdetail("It is run by process: %s.",
							   dr_patience_pids(GetLockConflicts(&tag, ExclusiveLock, NULL))),
					 errhint("Try again later, or set dailyrollup.writer_timeout higher.")));
		PG_RE_THROW();
	}
	PG_END_TRY();
	dr_patience_unlimit(&patience);
}

/*
 * Lock the source as a reader does, after the wait for writers, to the end of
 * the transaction: no index or constraint that our SQL relies on may go.
 */
void
dr_locks_source(Oid source, const char *name)
{
	DrPatience	patience = dr_patience_begin();
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, source);
	dr_patience_limit(&patience);
	PG_TRY();
	{
		LockRelationOid(source, AccessShareLock);
	}
	PG_CATCH();
	{
		if (dr_patience_ran_out(&patience))
			complain_of_wait(name, dr_patience_pids(GetLockConflicts(&tag, AccessShareLock, NULL)));
		PG_RE_THROW();
	}
	PG_END_TRY();
	dr_patience_unlimit(&patience);
}

/*
 * From here on each lock that a statement waits for is waited for no longer
 * than dailyrollup.writer_timeout; returns what dr_locks_unlimit_waits takes.
 */
int
dr_locks_limit_waits(void)
{
	DrPatience	patience = dr_patience_begin();

	dr_patience_limit(&patience);
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
	dr_locks_extension();
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
wait_for_writers_of(Oid relation, const char *source, DrPatience *patience)
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
		dr_patience_limit(patience);
		PG_TRY();
		{
			(void) VirtualXactLock(*holder, true);
		}
		PG_CATCH();
		{
			if (dr_patience_ran_out(patience))
				complain_of_wait(source, dr_patience_pids(holder));
			PG_RE_THROW();
		}
		PG_END_TRY();
		dr_patience_unlimit(patience);
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
	DrPatience	patience = dr_patience_begin();
	ListCell   *cell;

	foreach(cell, relations)
		wait_for_writers_of(lfirst_oid(cell), name, &patience);
}

/* Wait until the transactions that have brought partitions of the parent, of which
 * the snapshot knows, are over.  Adds those that have partitions themselves. */
static List *
wait_for_partitions(Relation pg_inherits, Oid parent, Snapshot snapshot, List *parents)
{
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_inherits_inhparent, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(parent));
	scan = systable_beginscan(pg_inherits, InheritsParentIndexId, true, snapshot, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		TransactionId xid = HeapTupleHeaderGetXmin(tuple->t_data);
		Oid			child = ((Form_pg_inherits) GETSTRUCT(tuple))->inhrelid;

		if (TransactionIdIsNormal(xid) && !TransactionIdIsCurrentTransactionId(xid))
			XactLockTableWait(xid, NULL, NULL, XLTW_None);
		if (get_rel_relkind(child) == RELKIND_PARTITIONED_TABLE)
			parents = lappend_oid(parents, child);
	}
	systable_endscan(scan);
	return parents;
}

/*
 * Plans that are made from now on read each partition of which a snapshot that was
 * taken before knows.
 *
 * A plan reads those that its session knew when the planning began, and may have
 * waited for locks since.  So who takes marks, and then reads the source for them,
 * does it by a snapshot that he had before: by a later one he would see the mark of
 * rows in a partition that came meanwhile, and not the rows.  And a transaction is
 * seen to have committed a moment before others are told what it has changed; its
 * own lock lasts beyond that.
 */
void
dr_locks_know_partitions(Oid source)
{
	List	   *parents = list_make1_oid(source);
	Snapshot	snapshot;
	Relation	pg_inherits;
	ListCell   *cell;

	if (get_rel_relkind(source) != RELKIND_PARTITIONED_TABLE)
		return;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	pg_inherits = table_open(InheritsRelationId, AccessShareLock);
	foreach(cell, parents)
		parents = wait_for_partitions(pg_inherits, lfirst_oid(cell), snapshot, parents);
	table_close(pg_inherits, AccessShareLock);
	UnregisterSnapshot(snapshot);
	AcceptInvalidationMessages();
}

/*
 * An older snapshot than one taken after the wait for writers cannot see what
 * was waited for, so a transaction that keeps one cannot refresh, or promote.
 */
void
dr_locks_check_transaction(const char *function)
{
	PreventCommandDuringRecovery(function);
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	if (XactIsoLevel != XACT_READ_COMMITTED)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s needs a READ COMMITTED transaction", function),
				 errhint("Use BEGIN ISOLATION LEVEL READ COMMITTED.")));
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
