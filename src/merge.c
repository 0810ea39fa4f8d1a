/*
 * merge.c
 *		A window of the source into a rollup's table.
 *
 *		fold	the query over the window is merged into what is stored
 *		seed	it becomes the table's content
 *
 * The query is computed in memory (digest.c) where that can be done, else by a
 * statement; the outcome is the same.  It is merged key by key with INSERT ...
 * ON CONFLICT; or, where many of the stored rows change, by one scan of the
 * table, which updates each row that has something new.
 *
 * The caller works as the rollup's owner, is connected to SPI, and may write to
 * the table.
 */
#include "merge.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "boundary.h"
#include "change.h"
#include "check.h"
#include "debug.h"
#include "digest.h"
#include "duplicates.h"
#include "guc.h"
#include "objects.h"
#include "phrase.h"
#include "plans.h"
#include "query.h"
#include "replace.h"
#include "target.h"

/* To look for a key by the index costs as much as so many rows of a scan. */
#define ROWS_PER_KEY	20

/* A window as parameters of statements. */
typedef struct Bounds
{
	int			n;
	Oid			types[2];
	Datum		values[2];
	const char *lower;			/* SQL; NULL: none */
	const char *upper;
} Bounds;

/* Rows of the table that are looked at together. */
#define BATCH_ROWS		64

/* The table while its rows are updated. */
typedef struct Update
{
	DrTarget	target;
	bool		at_end;			/* of the scan */
	TupleTableSlot *stored[BATCH_ROWS];
	Datum	   *keys;			/* of the stored rows */
	bool	   *key_nulls;
	DrEntry    *entries[BATCH_ROWS];
} Update;

static Bounds
bounds_of(const DrDefinition *def, const DrWindow *window)
{
	Bounds		bounds = {0};

	bounds.types[0] = bounds.types[1] = dr_boundary_type(def->time_kind);
	if (window->has_lower)
	{
		bounds.lower = "$1";
		bounds.values[bounds.n++] = window->lower;
	}
	if (window->has_upper)
	{
		bounds.upper = bounds.n == 0 ? "$1" : "$2";
		bounds.values[bounds.n++] = window->upper;
	}
	return bounds;
}

static uint64
run(const char *sql, Bounds *bounds)
{
	if (SPI_execute_with_args(sql, bounds->n, bounds->types, bounds->values, NULL,
							  false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", sql);
	return SPI_processed;
}

/* ------------------------------------------------------- by scan and update */

/* Is one scan of the table less work than to look for each key? */
static bool
is_scan_cheaper(Relation rel, uint64 keys)
{
	BlockNumber pages;
	double		tuples;
	double		visible;

	table_relation_estimate_size(rel, NULL, &pages, &tuples, &visible);
	return keys * (double) ROWS_PER_KEY > tuples;
}

/*
 * May its rows be updated without a statement?  What statements do besides is
 * to fire triggers, and to wait for other writers; so there must be neither.
 * The lock lets everybody read, and lock rows.
 */
static bool
may_update_directly(const DrRollup *rollup, Relation rel, uint64 keys)
{
	return keys > 0 && !dr_target_fires_triggers(rollup, rel) &&
		(dr_guc_fold_method == DR_FOLD_HASH || is_scan_cheaper(rel, keys)) &&
		ConditionalLockRelation(rel, ShareRowExclusiveLock);
}

static void
begin_update(Update *update, const DrDefinition *def, Relation rel)
{
	dr_target_open(&update->target, def, rel, false);
	update->at_end = false;
	for (int i = 0; i < BATCH_ROWS; i++)
		update->stored[i] = table_slot_create(rel, NULL);
	update->keys = palloc(BATCH_ROWS * def->nkeys * sizeof(Datum));
	update->key_nulls = palloc(BATCH_ROWS * def->nkeys * sizeof(bool));
}

static void
end_update(Update *update)
{
	for (int i = 0; i < BATCH_ROWS; i++)
		ExecDropSingleTupleTableSlot(update->stored[i]);
	dr_target_close(&update->target);
}

/* The next stored rows; returns how many.  Each is taken apart at once, for the
 * scan gives its next tuple in the place of this one. */
static int
read_batch(Update *update, TableScanDesc scan)
{
	int			n = 0;

	CHECK_FOR_INTERRUPTS();
	while (n < BATCH_ROWS && !update->at_end)
	{
		/* (a scan that is asked once more would begin anew) */
		if (table_scan_getnextslot(scan, ForwardScanDirection, update->stored[n]))
			slot_getallattrs(update->stored[n++]);
		else
			update->at_end = true;
	}
	return n;
}

static void
find_entries(Update *update, const DrDefinition *def, int n, DrDigest *digest,
			 DrKeyTable *table)
{
	for (int i = 0; i < n; i++)
		for (int k = 0; k < def->nkeys; k++)
			update->keys[i * def->nkeys + k] =
				slot_getattr(update->stored[i], update->target.attnos[def->keys[k]],
							 &update->key_nulls[i * def->nkeys + k]);
	dr_intake_find(dr_digest_intake(digest), table, n, update->keys, update->key_nulls, update->entries);
}

/* Merge what a stored row's key has new into the row. */
static void
update_row(DrTarget *target, TupleTableSlot *stored, DrTally *tally, DrKeyTable *table,
		   DrEntry *entry)
{
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	for (int i = 0; i < target->def->ncolumns; i++)
	{
		values[i] = stored->tts_values[target->attnos[i] - 1];
		nulls[i] = stored->tts_isnull[target->attnos[i] - 1];
	}
	entry->found = true;
	dr_tally_merge(tally, table, entry, values, nulls);
	dr_tally_result(tally, entry, values, nulls);
	dr_target_update_stored(target, stored, values, nulls);
	dr_tally_forget(tally);
}

/* Update each stored row whose key is in the digest; returns their number. */
static uint64
update_stored(const DrDefinition *def, Relation rel, DrDigest *digest, DrKeyTable *table)
{
	Update		update;
	TableScanDesc scan;
	uint64		updated = 0;
	int			n;

	CommandCounterIncrement();
	PushActiveSnapshot(GetLatestSnapshot());
	begin_update(&update, def, rel);
	scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);
	while ((n = read_batch(&update, scan)) > 0)
	{
		find_entries(&update, def, n, digest, table);
		for (int i = 0; i < n; i++)
		{
			DrEntry    *entry = update.entries[i];

			/* (of copies of a row, which there should not be, one is updated) */
			if (entry == NULL || entry->again || entry->counted == 0 || entry->found)
				continue;
			update_row(&update.target, update.stored[i], dr_intake_tally(dr_digest_intake(digest)), table, entry);
			updated++;
		}
	}
	table_endscan(scan);
	end_update(&update);
	PopActiveSnapshot();
	CommandCounterIncrement();
	elog(DEBUG1, "dailyrollup: updated " UINT64_FORMAT " rows by one scan", updated);
	return updated;
}

/* ------------------------------------------------------------- fold and seed */

/* The window in memory; NULL where that cannot be done. */
static DrDigest *
digest_window(const DrRollup *rollup, const DrDefinition *def, const Bounds *bounds,
			  DrSwept *digested)
{
	bool		deduplicate = dr_duplicates_are_possible(def);
	DrDigest   *digest;

	if (dr_guc_fold_method == DR_FOLD_STATEMENT)
		return NULL;
	digest = dr_digest_prepare(def, deduplicate);
	if (digest == NULL ||
		dr_digest_run(digest, rollup->definition,
					  dr_query_window(def, bounds->lower, bounds->upper, true, false),
					  dr_query_window(def, bounds->lower, bounds->upper, false, deduplicate),
					  dr_boundary_params(bounds->n, bounds->types, bounds->values), digested))
		return digest;
	elog(DEBUG1, "dailyrollup: rows were read in vain; a statement computes them");
	dr_digest_end(digest);
	return NULL;
}

/* Append the keys that are merged by a statement. */
static void
append_rest(DrDigest *digest, DrSwept *digested)
{
	if (digested->whole == NULL)
		return;
	for (DrEntry *entry = dr_keytable_first(digested->whole); entry != NULL; entry = entry->next)
		if (!entry->found)
			dr_sweep_append(dr_digest_intake(digest), digested, entry);
}

/* What was computed, as a statement's source. */
static char *
content_of(const DrRollup *rollup, const DrDefinition *def, const Bounds *bounds,
		   DrDigest *digest, const DrSwept *digested)
{
	dr_plans_register(DR_QUERY_DIGESTED, dr_intake_row_desc(dr_digest_intake(digest)),
					  digested->rows, digested->nrows);
	dr_plans_register(DR_QUERY_WAITING, dr_intake_key_desc(dr_digest_intake(digest)),
					  digested->again, digested->nagain);
	return dr_query_digested(def, rollup, bounds->lower, bounds->upper, digested->nagain > 0);
}

static void
forget_content(void)
{
	if (SPI_unregister_relation(DR_QUERY_DIGESTED) != SPI_OK_REL_UNREGISTER ||
		SPI_unregister_relation(DR_QUERY_WAITING) != SPI_OK_REL_UNREGISTER)
		elog(ERROR, "could not unregister what was computed");
}

static void
end_digest(DrDigest *digest, DrSwept *digested)
{
	dr_sweep_end(digested);
	dr_digest_end(digest);
}

/* Merge the query over the window into what the table holds; returns the
 * number of keys. */
uint64
dr_merge_fold(const DrRollup *rollup, const DrDefinition *def, Oid table,
			  const DrWindow *window)
{
	Bounds		bounds = bounds_of(def, window);
	DrSwept	digested;
	DrDigest   *digest = digest_window(rollup, def, &bounds, &digested);
	uint64		keys = 0;

	if (digest == NULL)
		return run(dr_query_fold(def, table,
								 dr_query_content(def, bounds.lower, bounds.upper)), &bounds);

	if (digested.whole != NULL)
	{
		Relation	rel = table_open(table, RowExclusiveLock);

		if (may_update_directly(rollup, rel, dr_keytable_count(digested.whole)))
			keys = update_stored(def, rel, digest, digested.whole);
		table_close(rel, NoLock);
	}
	DR_WAITPOINT("merge-updated");
	append_rest(digest, &digested);
	if (digested.nrows + digested.nagain > 0)
	{
		keys += run(dr_query_fold(def, table,
								  content_of(rollup, def, &bounds, digest, &digested)), &bounds);
		forget_content();
	}
	end_digest(digest, &digested);
	return keys;
}

/* A content becomes the table's, by a statement; returns the number of keys. */
static uint64
seed_by_statement(const DrRollup *rollup, const DrDefinition *def, Oid table,
				  const char *content, Bounds *bounds)
{
	bool		isnull;

	(void) run(dr_change_replace(def, rollup, table, content), bounds);
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
									   1, &isnull));
}

/* The query over the window becomes the table's content, whatever it held;
 * returns the number of keys. */
uint64
dr_merge_seed(const DrRollup *rollup, const DrDefinition *def, Oid table,
			  const DrWindow *window)
{
	Bounds		bounds = bounds_of(def, window);
	DrSwept	digested;
	DrDigest   *digest = digest_window(rollup, def, &bounds, &digested);
	char	   *content;
	DrCompared	compared;
	int			level = NewGUCNestLevel();
	uint64		keys;

	dr_check_distrust_indexes();
	if (digest == NULL)
	{
		content = dr_query_content(def, bounds.lower, bounds.upper);
		keys = seed_by_statement(rollup, def, table, content, &bounds);
		AtEOXact_GUC(false, level);
		return keys;
	}
	append_rest(digest, &digested);
	content = content_of(rollup, def, &bounds, digest, &digested);
	if (digested.whole != NULL &&
		dr_replace_directly(rollup, def, table, content,
							dr_boundary_params(bounds.n, bounds.types, bounds.values),
							InvalidOid, &compared))
		keys = compared.fresh_rows;
	else
		keys = seed_by_statement(rollup, def, table, content, &bounds);
	AtEOXact_GUC(false, level);
	forget_content();
	end_digest(digest, &digested);
	return keys;
}
