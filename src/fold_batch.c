/*
 * fold_batch.c
 *		A batch of what a transaction has written, folded into live.
 *
 * A batch of inserts is decided and merged in memory (gather.c, seize.c) where
 * that can be done, else by statements alone; the outcome is the same.
 */
#include "fold_batch.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/nodeHash.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/queryenvironment.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"
#include "utils/typcache.h"

#include "debug.h"
#include "definition.h"
#include "folding.h"
#include "gather.h"
#include "guard.h"
#include "guc.h"
#include "identity.h"
#include "locks.h"
#include "offer.h"
#include "phrase.h"
#include "plans.h"
#include "seize.h"

/* The statements whose plans a session keeps. */
enum
{
	FOLD_ADD,
	FOLD_LOCK,
	FOLD_APPLY,
	FOLD_MARK,
	FOLD_PROPOSE,
	FOLD_FIND,
	FOLD_STORED,
	FOLD_UPDATE,
	FOLD_RECOMPUTE
};

/* With more rows than that, a plan made for fewer is not used. */
#define ROWS_OF_KEPT_PLAN	10000

/* What the planner is told of rows whose statement is kept: the first batch
 * must not decide for all others.  So few that it takes an index. */
#define ESTIMATED_ROWS		10

/* The fold whose statement locks rows just now, and tells us of them. */
typedef struct Locking
{
	DrGather   *gather;			/* NULL: none */
	int64		proof;
} Locking;

static Locking locking = {NULL};

/* -------------------------------------------------------------- statements */

static char *
statement_text(const DrPlans *plans, int statement, bool many)
{
	switch (statement)
	{
		case FOLD_ADD:
			return dr_folding_add(plans->def, plans->rollup);
		case FOLD_LOCK:
			return dr_folding_lock(plans->def, plans->rollup, many);
		case FOLD_APPLY:
			return dr_folding_apply(plans->def, plans->rollup, many);
		case FOLD_PROPOSE:
			return dr_folding_propose(plans->def, plans->rollup);
		case FOLD_FIND:
			return dr_folding_find(plans->def);
		case FOLD_STORED:
			return dr_folding_stored(plans->def, plans->rollup);
		case FOLD_UPDATE:
			return dr_folding_update(plans->def, plans->rollup);
		case FOLD_RECOMPUTE:
			return dr_folding_recompute(plans->def, plans->rollup);
		default:
			return dr_folding_mark(plans->def, plans->rollup);
	}
}

/*
 * Run one of the statements over the registered rows.  By the latest snapshot,
 * at any isolation level: by an older one, what others have deleted since would
 * come back.
 */
static void
run_statement(DrPlans *plans, int statement, int64 rows, int n, Oid *types, Datum *values)
{
	SPIPlanPtr	plan = plans->fold[statement];

	if (rows > ROWS_OF_KEPT_PLAN)
	{
		plan = SPI_prepare(statement_text(plans, statement, true), n, types);
		if (plan == NULL)
			elog(ERROR, "could not prepare the fold of \"%s\"", dr_catalog_name(plans->live));
	}
	else if (plan == NULL)
		plan = plans->fold[statement] =
			dr_plans_prepare(statement_text(plans, statement, false), n, types, CURSOR_OPT_GENERIC_PLAN);
	if (SPI_execute_snapshot(plan, values, NULL, GetLatestSnapshot(), InvalidSnapshot,
							 false, true, 0) < 0)
		elog(ERROR, "could not fold into \"%s\"", dr_catalog_name(plans->live));
}

/* What the planner is told of "count" rows. */
static int64
estimate(int64 count)
{
	return count > ROWS_OF_KEPT_PLAN ? count : ESTIMATED_ROWS;
}

/* The rows that SPI holds as the relation DR_FOLDING_KEYS; the caller ends the
 * store. */
static Tuplestorestate *
register_keys(const DrPlans *plans, bool kept)
{
	TupleDesc	desc = CreateTemplateTupleDesc(plans->def->nkeys);
	Tuplestorestate *keys = tuplestore_begin_heap(true, false, work_mem);
	int64		count = SPI_processed;

	for (int i = 0; i < plans->def->nkeys; i++)
	{
		const DrColumn *key = &plans->def->columns[plans->def->keys[i]];

		TupleDescInitEntry(desc, i + 1, psprintf("k%d", i + 1), key->type, key->typmod, 0);
		TupleDescInitEntryCollation(desc, i + 1, key->collation);
	}
	for (int64 row = 0; row < count; row++)
		tuplestore_puttuple(keys, SPI_tuptable->vals[row]);
	if (SPI_tuptable != NULL)
		SPI_freetuptable(SPI_tuptable);
	dr_plans_register(DR_FOLDING_KEYS, desc, keys, kept ? ESTIMATED_ROWS : count);
	return keys;
}

/* Lock the keys, then decide under a newer snapshot. */
static void
fold_under_locks(DrPlans *plans, const DrBatch *batch)
{
	Tuplestorestate *keys;

	run_statement(plans, FOLD_LOCK, batch->rows.count, 0, NULL, NULL);
	keys = register_keys(plans, batch->rows.count <= ROWS_OF_KEPT_PLAN);
	DR_WAITPOINT("fold-locked");
	run_statement(plans, FOLD_APPLY, batch->rows.count, 0, NULL, NULL);
	tuplestore_end(keys);
}

static void
mark(DrPlans *plans, const DrBatch *batch)
{
	Oid			types[1] = {CHAROID};
	Datum		values[1] = {CharGetDatum(DR_DIRTIES_LIVE)};

	run_statement(plans, FOLD_MARK, batch->rows.count, 1, types, values);
}

/* --------------------------------------------------------- a batch in memory */

/* Run a statement over rows, which are forgotten then. */
static void
run_over(DrPlans *plans, int statement, const char *name, DrOffered *rows)
{
	Oid			types[1] = {INT8OID};
	Datum		values[1] = {Int64GetDatum(plans->rollup->proof)};
	int			n = statement == FOLD_PROPOSE ? 1 : 0;

	dr_plans_register(name, rows->desc, rows->rows, ESTIMATED_ROWS);
	run_statement(plans, statement, rows->count, n, types, values);
	if (SPI_unregister_relation(name) != SPI_OK_REL_UNREGISTER)
		elog(ERROR, "could not unregister \"%s\"", name);
	tuplestore_end(rows->rows);
}

static void
set_off(const char *setting)
{
	(void) set_config_option(setting, "off", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/* The same, of statements that look up live's rows: by its index or their
 * place, however small it was when the plan was made. */
static void
run_by_index(DrPlans *plans, int statement, const char *name, DrOffered *rows)
{
	int			level = NewGUCNestLevel();

	set_off("enable_seqscan");
	set_off("enable_hashjoin");
	set_off("enable_mergejoin");
	run_over(plans, statement, name, rows);
	AtEOXact_GUC(false, level);
}

/* What live must not be proposed is left out: it gets its own rows. */
static void
propose_stored(DrPlans *plans, DrGather *gather, DrOffered *content)
{
	DrOffered	keys;

	dr_offer_describe_numbered_key(gather, &keys);
	dr_offer_all(gather, &keys);
	run_by_index(plans, FOLD_STORED, DR_FOLDING_KNOWN, &keys);
	for (uint64 i = 0; i < SPI_processed; i++)
		dr_offer_propose_stored(gather, SPI_tuptable->vals[i], SPI_tuptable->tupdesc, content);
	SPI_freetuptable(SPI_tuptable);
}

/* Lock the keys, and learn which of them are new, and what live has of the
 * others. */
static void
lock_gathered(DrPlans *plans, DrGather *gather)
{
	Locking		before = locking;
	DrOffered	content;

	dr_offer_describe_row(gather, &content);
	if (!dr_folding_takes_any(plans->def, plans->live))
		propose_stored(plans, gather, &content);
	dr_offer_propose(gather, &content);
	locking.gather = gather;
	locking.proof = plans->rollup->proof;
	PG_TRY();
	{
		run_over(plans, FOLD_PROPOSE, DR_FOLDING_CONTENT, &content);
	}
	PG_FINALLY();
	{
		locking = before;
	}
	PG_END_TRY();
	for (uint64 i = 0; i < SPI_processed; i++)
		dr_offer_is_new(gather, SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
	SPI_freetuptable(SPI_tuptable);
}

/* Decide for each event and key, by what the source has. */
static void
decide(DrPlans *plans, DrGather *gather)
{
	DrOffered	events;

	dr_offer_describe_event(gather, &events);
	dr_offer_events(gather, &events);
	if (events.count > 0)
	{
		run_over(plans, FOLD_FIND, DR_FOLDING_EVENTS, &events);
		for (uint64 i = 0; i < SPI_processed; i++)
			dr_offer_found(gather, SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
		SPI_freetuptable(SPI_tuptable);
	}
	dr_gather_decide(gather);
}

static void
update_known(DrPlans *plans, DrGather *gather)
{
	DrOffered	merged;

	dr_offer_describe_merged(gather, &merged);
	dr_offer_merge(gather, &merged);
	if (merged.count > 0)
		run_by_index(plans, FOLD_UPDATE, DR_FOLDING_MERGED, &merged);
}

static void
recompute(DrPlans *plans, DrGather *gather)
{
	DrOffered	keys;

	dr_offer_describe_key(gather, &keys);
	dr_offer_again(gather, &keys);
	if (keys.count > 0)
		run_over(plans, FOLD_RECOMPUTE, DR_FOLDING_KEYS, &keys);
}

/* Where each row counts there is nothing to decide; one statement does it all
 * where the keys cannot be locked without one. */
static bool
fold_gathered(DrPlans *plans, DrGather *gather)
{
	DR_WAITPOINT("fold-proposing");
	if (!dr_seize(gather, plans->def, plans->rollup))
	{
		if (!gather->deduplicate)
			return false;
		lock_gathered(plans, gather);
	}
	DR_WAITPOINT("fold-locked");
	if (gather->deduplicate)
	{
		decide(plans, gather);
		update_known(plans, gather);
	}
	DR_WAITPOINT("fold-merged");
	recompute(plans, gather);
	return true;
}

/* Inserts alone; false where that cannot be done in memory. */
static bool
fold_in_memory(DrPlans *plans, const DrBatch *batch)
{
	DrGather   *gather;
	bool		done;

	if (batch->touches || batch->rows.count > ROWS_OF_KEPT_PLAN ||
		batch->held > get_hash_memory_limit() ||
		dr_guc_fold_method == DR_FOLD_STATEMENT)
		return false;
	gather = dr_gather_begin(plans->def, plans->rollup, &batch->rows);
	if (gather == NULL)
		return false;
	done = fold_gathered(plans, gather);
	dr_gather_end(gather);
	return done;
}

/* ----------------------------------------------------------------- the fold */

static void
fold_by_statements(DrPlans *plans, DrBatch *batch)
{
	dr_plans_register(DR_FOLDING_ROWS, batch->rows.desc, dr_rows_store(&batch->rows),
					  estimate(batch->rows.count));
	if (batch->backfill)
		mark(plans, batch);
	else if (batch->touches || dr_folding_needs_locks(plans->def))
		fold_under_locks(plans, batch);
	else
		run_statement(plans, FOLD_ADD, batch->rows.count, 0, NULL, NULL);
}

/* Live is locked, and folded into. */
void
dr_fold_batch(DrBatch *batch)
{
	DrPlans    *plans = dr_plans_of(batch->live);
	DrIdentity	before;

	plans->uses++;
	dr_identity_enter_sql(plans->rollup->owner, &before);
	dr_guard_let(plans->rollup, batch->live);
	if (batch->backfill || !fold_in_memory(plans, batch))
		fold_by_statements(plans, batch);
	dr_guard_end();
	dr_identity_leave_sql(&before);
	plans->uses--;
}

/* Bring the keys that are locked to what the source gives, and take their marks. */
static void
flush_keys(DrPlans *plans)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	dr_locks_know_partitions(plans->rollup->source);
	dr_plans_run(dr_folding_flush(plans->def, plans->rollup), snapshot, 0, NULL, NULL, NULL);
	UnregisterSnapshot(snapshot);
}

/*
 * Recompute live's marked keys instead; returns their number.  Each is locked
 * first, and computed under a newer snapshot, so that a writer who folds
 * meanwhile comes before or after us.
 */
uint64
dr_fold_batch_marked(Oid live)
{
	DrPlans    *plans = dr_plans_of(live);
	DrIdentity	before;
	Tuplestorestate *keys;
	int64		count;

	plans->uses++;
	dr_identity_enter_sql(plans->rollup->owner, &before);
	dr_guard_let(plans->rollup, live);
	if (SPI_execute(dr_folding_marked_keys(plans->def, plans->rollup), false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the marks of \"%s\"", dr_catalog_name(live));
	keys = register_keys(plans, false);
	count = tuplestore_tuple_count(keys);
	if (count > 0 &&
		SPI_execute(dr_folding_lock_marked(plans->def, plans->rollup), false, 0) < 0)
		elog(ERROR, "could not lock keys of \"%s\"", dr_catalog_name(live));
	DR_WAITPOINT("flush-locked");
	if (count > 0)
		flush_keys(plans);
	DR_WAITPOINT("flush-recomputed");
	tuplestore_end(keys);
	dr_guard_end();
	dr_identity_leave_sql(&before);
	plans->uses--;
	return count;
}

/* --------------------------------------------------------------------- SQL */

/*
 * _locked(proof, place, row) of a row of live that is locked now: always false,
 * for it is not to be written yet.
 */
PG_FUNCTION_INFO_V1(dailyrollup_locked);

Datum
dailyrollup_locked(PG_FUNCTION_ARGS)
{
	HeapTupleHeader row = PG_GETARG_HEAPTUPLEHEADER(2);
	HeapTupleData tuple = {
		.t_len = HeapTupleHeaderGetDatumLength(row),
		.t_data = row
	};
	TupleDesc	desc;

	if (locking.gather == NULL || PG_GETARG_INT64(0) != locking.proof)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("this function serves the write-time fold alone")));
	desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(row), HeapTupleHeaderGetTypMod(row));
	dr_offer_is_locked(locking.gather, (ItemPointer) PG_GETARG_POINTER(1), &tuple, desc);
	ReleaseTupleDesc(desc);
	PG_RETURN_BOOL(false);
}
