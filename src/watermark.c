/*
 * watermark.c
 *		What writers ask for all the time, remembered by the session.
 *
 * A change of a rollup's row sends a relcache invalidation of its source.  The
 * message reaches other sessions after the change is visible and before the
 * changing transaction's locks are released, so a session that finds the
 * refresh lock free, and accepts messages, cannot keep an old watermark.
 */
#include "watermark.h"

#include "access/xact.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "boundary.h"
#include "catalog.h"
#include "debug.h"

static HTAB *watermarks = NULL;

/* The one that was asked for before; NULL: none. */
static DrWatermark *last = NULL;

/* Is there an entry that is not valid? */
static bool stale = false;

/* Counts the relcache invalidations that this session has seen. */
static uint64 invalidations = 0;

static void
forget_watermarks(Datum arg, Oid relation)
{
	HASH_SEQ_STATUS status;
	DrWatermark *entry;

	invalidations++;
	hash_seq_init(&status, watermarks);
	while ((entry = hash_seq_search(&status)) != NULL)
		if (!OidIsValid(relation) || entry->source == relation ||
			entry->live == relation)
		{
			entry->valid = false;
			stale = true;
		}
}

/* Their rollups may have gone for good.  (Within a transaction somebody may be
 * looking at one.) */
static void
remove_stale(XactEvent event, void *arg)
{
	HASH_SEQ_STATUS status;
	DrWatermark *entry;

	if (!stale || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
				   event != XACT_EVENT_PREPARE))
		return;
	last = NULL;
	hash_seq_init(&status, watermarks);
	while ((entry = hash_seq_search(&status)) != NULL)
		if (!entry->valid)
			(void) hash_search(watermarks, &entry->live, HASH_REMOVE, NULL);
	stale = false;
}

/* Before which time the table that is refreshed holds each row but those that
 * are marked.  (Of what a dump has brought back nobody knows.) */
static void
note_content(DrWatermark *entry, const DrRollup *rollup)
{
	bool		shadow = rollup->state == DR_STATE_SHADOW;

	entry->settled = rollup->epoch >= 0 &&
		(shadow ? rollup->has_shadow_watermark : rollup->has_watermark);
	entry->settled_before = shadow ? rollup->shadow_watermark : rollup->watermark;
	entry->epoch = rollup->epoch;
}

/*
 * What the session remembers of a rollup's watermark, read anew where it was
 * told to forget.  The caller has accepted invalidation messages after it
 * found the refresh lock free.
 *
 * Messages are counted before the scan, and the scan takes its snapshot after
 * that: an entry read while a message came in serves this one call only.
 */
const DrWatermark *
dr_watermark_of(Oid live)
{
	bool		found;
	DrWatermark *entry;
	uint64		before;
	DrRollup   *rollup;

	if (last != NULL && last->live == live && last->valid)
		return last;
	last = entry = hash_search(watermarks, &live, HASH_ENTER, &found);
	if (found && entry->valid)
		return entry;

	entry->valid = false;
	stale = true;
	entry->source = InvalidOid;
	before = invalidations;
	rollup = dr_catalog_find(live, NULL);
	DR_WAITPOINT("watermark-read");
	if (rollup == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not a rollup", dr_catalog_name(live))));
	entry->source = rollup->source;
	entry->definition = rollup->definition;
	entry->time_kind = dr_boundary_kind(get_atttype(rollup->events, 1));
	entry->zone = dr_boundary_zone(rollup->time_zone);
	entry->folds = dr_catalog_folds(rollup);
	entry->recorded = rollup->has_watermark || rollup->has_shadow_watermark;
	entry->watermark = rollup->has_watermark ? rollup->watermark : rollup->shadow_watermark;
	if (rollup->has_shadow_watermark)
		entry->watermark = Max(entry->watermark, rollup->shadow_watermark);
	note_content(entry, rollup);
	entry->valid = before == invalidations;
	return entry;
}

/* ---------------------------------------------------------------- time zone */

/* A rollup whose time zone this transaction has changed. */
typedef struct Rezoned
{
	Oid			live;
	SubTransactionId level;		/* that has done it */
} Rezoned;

static List *rezoned = NIL;		/* in the transaction's memory */

/* This transaction changes the rollup's time zone. */
void
dr_watermark_note_zone(Oid live)
{
	MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
	Rezoned    *changed = palloc(sizeof(Rezoned));

	changed->live = live;
	changed->level = GetCurrentSubTransactionId();
	rezoned = lappend(rezoned, changed);
	MemoryContextSwitchTo(before);
}

static void
forget_rezoned(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		rezoned = NIL;
}

/* What is undone has not been. */
static void
subtransaction_ended(SubXactEvent event, SubTransactionId mine,
					 SubTransactionId parent, void *arg)
{
	ListCell   *cell;

	foreach(cell, rezoned)
	{
		Rezoned    *changed = lfirst(cell);

		if (changed->level != mine)
			continue;
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			changed->level = parent;
		else if (event == SUBXACT_EVENT_ABORT_SUB)
			rezoned = foreach_delete_current(rezoned, cell);
	}
}

static bool
is_rezoned(Oid live)
{
	ListCell   *cell;

	foreach(cell, rezoned)
		if (((Rezoned *) lfirst(cell))->live == live)
			return true;
	return false;
}

/*
 * An error where this transaction has changed it: until the commit, writers
 * compute the old zone's midnights, which need not reach the new zone's.
 */
void
dr_watermark_check_zone(Oid live)
{
	if (is_rezoned(live))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("the time zone of rollup \"%s\" was changed in this transaction",
						dr_catalog_name(live)),
				 errhint("Refresh it after the commit.")));
}

void
dr_watermark_init(void)
{
	HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(DrWatermark)};

	watermarks = hash_create("dailyrollup watermarks", 16, &ctl,
							 HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(forget_watermarks, (Datum) 0);
	RegisterXactCallback(remove_stale, NULL);
	RegisterXactCallback(forget_rezoned, NULL);
	RegisterSubXactCallback(subtransaction_ended, NULL);
}
