/*
 * seen.c
 *		A rollup's row as the reader's snapshot sees it.
 *
 * The view <live>_current asks for it several times in a query.  Snapshots with
 * the same content see the same rows, so the last one found is remembered with
 * the snapshot that it was found by.
 */
#include "seen.h"

#include "access/xact.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

static struct
{
	MemoryContext context;
	SnapshotData snapshot;		/* what tells it from others is in context */
	Oid			live;			/* InvalidOid: nothing is remembered */
	const DrRollup *rollup;		/* in context; NULL: it sees none */
} last;

/* Counts the relcache invalidations that this session has seen. */
static uint64 invalidations = 0;

/* Our table was rewritten, the extension dropped and created again, live handed
 * over: all rare, so any message will do. */
static void
forget(Datum arg, Oid relation)
{
	invalidations++;
	last.live = InvalidOid;
}

/* How many ids of subtransactions a snapshot goes by.  Where it could not hold all,
 * it asks for their parents; then it may have a number and no ids. */
static int
count_subids(const SnapshotData *snapshot)
{
	return snapshot->suboverflowed && !snapshot->takenDuringRecovery ? 0 : snapshot->subxcnt;
}

static bool
same_ids(const TransactionId *a, const TransactionId *b, int n)
{
	return n <= 0 || memcmp(a, b, n * sizeof(TransactionId)) == 0;
}

static bool
same_snapshot(const SnapshotData *a, const SnapshotData *b)
{
	return a->xmin == b->xmin && a->xmax == b->xmax && a->curcid == b->curcid &&
		a->xcnt == b->xcnt && a->suboverflowed == b->suboverflowed &&
		a->takenDuringRecovery == b->takenDuringRecovery &&
		count_subids(a) == count_subids(b) &&
		same_ids(a->xip, b->xip, a->xcnt) && same_ids(a->subxip, b->subxip, count_subids(a));
}

static TransactionId *
copy_ids(const TransactionId *ids, int n)
{
	TransactionId *copy = palloc(Max(n, 1) * sizeof(TransactionId));

	if (n > 0)
		memcpy(copy, ids, n * sizeof(TransactionId));
	return copy;
}

/* The version that the snapshot sees; NULL: none.  One whose marks are gone is of a
 * rollup that was dropped: live is another one's by now, which is younger than
 * the snapshot. */
static const DrRollup *
find_version(Oid live, Snapshot snapshot)
{
	const DrRollup *rollup = dr_catalog_find(live, snapshot);

	if (rollup != NULL && !SearchSysCacheExists1(RELOID, ObjectIdGetDatum(rollup->marks)))
		return NULL;
	return rollup;
}

/* Find the rollup, and remember it, unless a message came in meanwhile. */
static const DrRollup *
find(Oid live, Snapshot snapshot)
{
	uint64		before = invalidations;
	MemoryContext caller;
	const DrRollup *rollup;

	last.live = InvalidOid;
	MemoryContextReset(last.context);
	caller = MemoryContextSwitchTo(last.context);
	rollup = find_version(live, snapshot);
	last.rollup = rollup;
	last.snapshot = *snapshot;
	last.snapshot.xip = copy_ids(snapshot->xip, snapshot->xcnt);
	last.snapshot.subxip = copy_ids(snapshot->subxip, count_subids(snapshot));
	MemoryContextSwitchTo(caller);
	if (before == invalidations)
		last.live = live;
	return rollup;
}

/*
 * The rollup by the snapshot of the query that calls; NULL where it is older
 * than the rollup.  Valid until the next call.
 *
 * What this transaction has written itself is not told by the snapshot alone,
 * nor is what a snapshot of another kind sees.
 */
const DrRollup *
dr_seen_rollup(Oid live)
{
	Snapshot	snapshot = GetActiveSnapshot();

	if (TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
		snapshot->snapshot_type != SNAPSHOT_MVCC)
		return find_version(live, snapshot);
	if (last.live == live && same_snapshot(&last.snapshot, snapshot))
		return last.rollup;
	return find(live, snapshot);
}

void
dr_seen_init(void)
{
	last.context = AllocSetContextCreate(CacheMemoryContext, "dailyrollup row seen last",
										 ALLOCSET_SMALL_SIZES);
	CacheRegisterRelcacheCallback(forget, (Datum) 0);
}
