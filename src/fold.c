/*
 * fold.c
 *		The write-time fold: once a transaction, at its end.
 *
 * What the transaction has written is kept in batches (batch.c) and folded into
 * live (fold_batch.c) before it commits or is prepared, or by rollup_fold().
 *
 * Before anything is decided the fold locks live, so a promote or another
 * change of state is over by then or comes after us; only then the state is
 * read.  Rollups are taken in order of OID, keys in their own order.
 */
#include "fold.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

#include "batch.h"
#include "debug.h"
#include "fold_batch.h"
#include "guard.h"
#include "locks.h"

/* The rollup, if live, which the caller has locked, still wants rows. */
static DrRollup *
still_folding(Oid live)
{
	DrRollup   *rollup = NULL;

	if (get_rel_name(live) != NULL && dr_catalog_is_installed())
		rollup = dr_catalog_find(live, NULL);

	return rollup != NULL && dr_catalog_folds(rollup) ? rollup : NULL;
}

static void
add_context(void *arg)
{
	errcontext("folding what this transaction has written into rollup \"%s\"",
			   dr_catalog_name(*(Oid *) arg));
}

static void
fold_rollup(Oid live)
{
	ErrorContextCallback context = {
		.previous = error_context_stack, .callback = add_context, .arg = &live
	};
	DrRollup   *rollup;

	error_context_stack = &context;
	LockRelationOid(live, RowExclusiveLock);
	DR_WAITPOINT("fold-live-locked");
	rollup = still_folding(live);
	for (int backfill = 0; backfill <= 1; backfill++)
	{
		DrBatch	   *batch = dr_batch_take(live, rollup ? rollup->id : 0, backfill == 1);

		if (batch == NULL)
			continue;
		dr_fold_batch(batch);
		dr_batch_end(batch);
		DR_WAITPOINT("fold-done");
	}
	error_context_stack = context.previous;
}

/*
 * What a statement of this session is just writing would be seen now, and
 * folded again when its triggers fire; a trigger of live's, while we fold, is
 * in the midst of it too.
 */
static void
check_not_in_use(Oid live)
{
	DrRollup   *rollup = dr_catalog_find(live, NULL);

	if (dr_guard_is_open())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot fold while rows are folded"),
				 errhint("What a trigger of a rollup's table writes is folded after it.")));
	if (rollup != NULL)
		dr_locks_check_not_in_use(rollup->source, "fold a rollup of");
}

/*
 * Sources come before any live.  Who wrote to a leaf alone has no lock on the
 * source: he would have to queue for it behind DDL, with live locked, which
 * somebody who has locked the source may be trying to lock.
 */
static void
lock_sources(void)
{
	List	   *sources = dr_batch_sources();
	ListCell   *cell;

	foreach(cell, sources)
		LockRelationOid(lfirst_oid(cell), AccessShareLock);
}

/*
 * Fold all that there is.  Triggers of live may write to a source again, so
 * look again.  "in_use": statements of this session may be under way.
 */
static void
fold_all(bool in_use)
{
	List	   *lives;

	while ((lives = dr_batch_lives()) != NIL)
	{
		ListCell   *cell;

		lock_sources();
		PushActiveSnapshot(GetTransactionSnapshot());
		foreach(cell, lives)
		{
			if (in_use)
				check_not_in_use(lfirst_oid(cell));
			fold_rollup(lfirst_oid(cell));
		}
		PopActiveSnapshot();
	}
}

/*
 * Fold what this transaction has written, before something that reads the
 * source's rows into live: what it has read must not be folded again.  Rows
 * that a statement of this session is just writing would be.
 */
void
dr_fold_now(void)
{
	fold_all(true);
}

/*
 * Live is computed from the source, this transaction's rows included: forget
 * them.
 */
void
dr_fold_forget(const DrRollup *rollup)
{
	for (int backfill = 0; backfill <= 1; backfill++)
	{
		DrBatch    *batch = dr_batch_take(rollup->live, rollup->id, backfill == 1);

		if (batch != NULL)
			dr_batch_end(batch);
	}
}

/* ------------------------------------------------------------------- flush */

/* Recompute the keys that a backfill has dirtied; returns their number. */
uint64
dr_fold_flush(DrRollup *rollup)
{
	dr_locks_check_not_in_use(rollup->source, "flush a rollup of");
	dr_fold_now();
	LockRelationOid(rollup->source, AccessShareLock);
	LockRelationOid(rollup->live, RowExclusiveLock);
	if (still_folding(rollup->live) == NULL)
		return 0;
	return dr_fold_batch_marked(rollup->live);
}

/* --------------------------------------------------------------- callbacks */

/*
 * The server has closed the transaction's cursors before it calls us.  What a
 * trigger of live has left open must be closed as well, by the server's own
 * rules; it can defer nothing to the end, which the server refuses to what runs
 * with an owner's rights.  A transaction that was made read-only late has written
 * all the same.
 */
static void
fold_at_end(bool prepare)
{
	bool		read_only = XactReadOnly;

	if (dr_batch_lives() == NIL)
		return;
	XactReadOnly = false;
	do
		fold_all(false);
	while (PreCommit_Portals(prepare) || dr_batch_lives() != NIL);
	XactReadOnly = read_only;
}

static void
transaction_ends(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
		fold_at_end(event == XACT_EVENT_PRE_PREPARE);
}

void
dr_fold_init(void)
{
	RegisterXactCallback(transaction_ends, NULL);
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_fold);

Datum
dailyrollup_fold(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("rollup_fold()");
	PreventCommandIfParallelMode("rollup_fold()");
	fold_all(true);
	PG_RETURN_VOID();
}
