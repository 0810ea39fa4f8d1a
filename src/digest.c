/*
 * digest.c
 *		The defining query over a window of the source, by one pass in memory.
 *
 * The server scans the window; each row is added to its key's measures
 * (intake.c), in as many passes as memory makes necessary (sweep.c).
 *
 * Where many rows come, a parallel worker reads them, too, by the same snapshot,
 * and each of the two looks at one half of the keys.  No key is looked at by
 * both, so nothing is to be put together: the worker sends the row of each of
 * its keys.
 */
#include "digest.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "attempt.h"
#include "definition.h"
#include "handover.h"
#include "intake.h"
#include "parallel.h"
#include "partner.h"
#include "scan.h"
#include "sweep.h"
#include "worth.h"

/* Which half of the keys is whose. */
#define LEADERS_HALF	0
#define PARTNERS_HALF	1

PGDLLEXPORT void dailyrollup_partner(dsm_segment *segment, shm_toc *toc);

/* What a partner is told of the query. */
typedef struct Details
{
	Oid			source;
	Oid			events;
	Oid			definition;
	bool		deduplicate;
	char		whole_sql[FLEXIBLE_ARRAY_MEMBER];	/* empty: not to be tried */
} Details;

struct DrDigest
{
	DestReceiver receiver;
	const DrDefinition *def;
	bool		deduplicate;
	DrIntake   *intake;
	MemoryContext context;
	DrSweep		sweep;
	bool		failed;			/* what it had is gone with a subtransaction */

	/* the scan */
	const char *whole_sql;		/* whole rows as they are stored; NULL: not to be tried */
	const char *sql;			/* events, with their places */
	ParamListInfo bounds;
	bool		stored;			/* rows come by the former */
	Snapshot	snapshot;
	bool		shared;			/* the snapshot: all scans are by it */

	/* the partner */
	Oid			definition;		/* InvalidOid: none is called (any more) */
	DrWorth		worth;
	DrPartner  *partner;
	ErrorContextCallback *errors;	/* beyond the scan */
};

static void scan(void *arg);

/* ------------------------------------------------------------- preparation */

/*
 * NULL where the query cannot be computed in this way.  The caller works as
 * the rollup's owner, whose expressions are evaluated.
 */
DrDigest *
dr_digest_prepare(const DrDefinition *def, bool deduplicate)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "dailyrollup digest",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);
	DrIntake   *intake = dr_intake_make(def, deduplicate);
	DrDigest   *digest = NULL;

	if (intake != NULL)
	{
		digest = palloc0(sizeof(DrDigest));
		digest->def = def;
		digest->deduplicate = deduplicate;
		digest->intake = intake;
		digest->context = context;
		digest->sweep.intake = intake;
		digest->sweep.context = context;
		digest->sweep.scan = scan;
		digest->sweep.arg = digest;
	}
	MemoryContextSwitchTo(before);
	if (intake == NULL)
		MemoryContextDelete(context);
	return digest;
}

DrIntake *
dr_digest_intake(const DrDigest *digest)
{
	return digest->intake;
}

/* ---------------------------------------------------- a partner is called */

/* Leave half of the keys to the partner, and forget what was counted of them. */
static void
halve(DrDigest *digest)
{
	Size		size = dr_tally_state_size(dr_intake_tally(digest->intake));
	DrKeyTable *table = digest->sweep.table;
	DrEntry    *entry;

	/* (the rest of a batch counts for the keys of both) */
	(void) dr_intake_finish(digest->intake);
	dr_intake_halve(digest->intake, LEADERS_HALF);
	for (entry = table == NULL ? NULL : dr_keytable_first(table); entry != NULL;
		 entry = entry->next)
	{
		if (dr_intake_looks_at(digest->intake, entry))
			continue;
		memset(dr_keytable_state(entry), 0, size);
		entry->again = false;
		entry->counted = 0;
	}
}

static Details *
details_of(const DrDigest *digest, Size *size)
{
	const char *whole_sql = digest->whole_sql == NULL ? "" : digest->whole_sql;
	Details    *details;

	*size = offsetof(Details, whole_sql) + strlen(whole_sql) + 1;
	details = palloc(*size);
	details->source = digest->def->source;
	details->events = digest->def->vars_of;
	details->definition = digest->definition;
	details->deduplicate = digest->deduplicate;
	strcpy(details->whole_sql, whole_sql);
	return details;
}

/* Call a partner, if one may be had, in the midst of a scan. */
static void
call_partner(DrDigest *digest)
{
	Size		size;
	DrTask		task = {
		.details = details_of(digest, &size),
		.size = size,
		.sql = digest->sql,
		.params = digest->bounds
	};
	MemoryContext before = MemoryContextSwitchTo(digest->context);

	digest->definition = InvalidOid;
	if (dr_partner_is_allowed() && dr_parallel_is_safe(digest->def))
		digest->partner = dr_partner_begin("dailyrollup_partner", &task, digest->errors);
	MemoryContextSwitchTo(before);
	if (digest->partner == NULL)
		return;
	elog(DEBUG1, "dailyrollup: a parallel worker takes half of the keys, after " UINT64_FORMAT
		 " of about %.0f rows, for about %.0f keys", digest->worth.nread,
		 dr_worth_rows(&digest->worth), dr_worth_keys(&digest->worth));
	digest->shared = true;
	halve(digest);
}

/* Is it time to call a partner, before the next row is read?  (After so many rows no
 * batch waits, as a rule, whose keys would be missing.  Of rows that are split no keys
 * are known but what an earlier scan has seen.) */
static bool
is_partner_due(DrDigest *digest)
{
	DrWorth    *worth = &digest->worth;

	if (!OidIsValid(digest->definition))
		return false;
	if (dr_worth_is_due(worth))
	{
		if (digest->sweep.table != NULL)
			dr_worth_sample(worth, dr_keytable_count(digest->sweep.table));
		if (dr_worth_decide(worth))
			return true;
	}
	worth->nread++;
	return false;
}

/* --------------------------------------------------------------------- scan */

static bool
receive_slot(TupleTableSlot *slot, DestReceiver *self)
{
	DrDigest   *digest = (DrDigest *) self;

	/* rows of a part, and earlier rows, are read after the scan, too */
	if (digest->snapshot == NULL)
	{
		digest->snapshot = RegisterSnapshot(GetActiveSnapshot());
		dr_intake_by(digest->intake, digest->snapshot);
	}
	if (is_partner_due(digest))
		call_partner(digest);
	return digest->stored ? dr_intake_take_stored(digest->intake, slot) :
		dr_intake_take(digest->intake, slot);
}

static void
receiver_starts(DestReceiver *self, int operation, TupleDesc typeinfo)
{
}

static void
receiver_ends(DestReceiver *self)
{
}

static void
forget_snapshot(DrDigest *digest)
{
	if (digest->snapshot != NULL)
		UnregisterSnapshot(digest->snapshot);
	digest->snapshot = NULL;
}

/* A scan that gives rows as they are stored, where there is one; else by the other
 * statement. */
static DrScan *
begin_scan(DrDigest *digest)
{
	Snapshot	snapshot = digest->shared ? digest->snapshot : NULL;
	DrScan	   *scan;

	digest->stored = false;
	if (digest->whole_sql != NULL)
	{
		scan = dr_scan_begin(digest->whole_sql, digest->bounds, snapshot);
		digest->stored = dr_scan_is_stored(scan);
		if (digest->stored)
		{
			elog(DEBUG1, "dailyrollup: rows are read as they are stored");
			dr_intake_set_stored(digest->intake, dr_scan_columns(scan));
			return scan;
		}
		dr_scan_end(scan);
		digest->whole_sql = NULL;
	}
	return dr_scan_begin(digest->sql, digest->bounds, snapshot);
}

/* Read the source, once more perhaps. */
static void
scan(void *arg)
{
	DrDigest   *digest = arg;
	DestReceiver receiver = {
		.receiveSlot = receive_slot,
		.rStartup = receiver_starts,
		.rShutdown = receiver_ends,
		.rDestroy = receiver_ends,
		.mydest = DestNone
	};
	DrScan	   *scan;

	digest->receiver = receiver;
	if (!digest->shared)
		forget_snapshot(digest);
	scan = begin_scan(digest);
	dr_worth_begin(&digest->worth, dr_scan_expected(scan),
				   digest->def->nkeys + dr_intake_tally(digest->intake)->nmeasures);
	dr_scan_run(scan, &digest->receiver);
	dr_scan_end(scan);
}

/* ------------------------------------------------------------------ all of it */

/* Alone, or with a partner; false where a statement must compute it. */
static bool
compute(DrDigest *digest, DrSwept *result)
{
	bool		done;

	digest->errors = error_context_stack;
	done = dr_sweep_run(&digest->sweep, result);
	if (digest->partner == NULL)
		return done;
	done = done && dr_handover_take(digest->intake, digest->def, digest->partner, result);
	dr_partner_end(digest->partner);
	digest->partner = NULL;
	return done;
}

/* What was read of the source goes with the subtransaction that has read it. */
static void
leave_source(DrDigest *digest)
{
	dr_intake_leave_source(digest->intake);
	forget_snapshot(digest);
}

/* The same, as an attempt. */
typedef struct Attempt
{
	DrDigest   *digest;
	DrSwept *result;
	bool		done;
} Attempt;

static void
attempt_to_compute(void *arg)
{
	Attempt    *attempt = arg;

	attempt->done = compute(attempt->digest, attempt->result);
	leave_source(attempt->digest);
}

/* May the error be one of an expression?  Not one that comes from outside. */
static bool
may_be_of_expression(const ErrorData *error)
{
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		return false;
	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case ERRCODE_TRANSACTION_ROLLBACK:
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_SYSTEM_ERROR:
		case ERRCODE_INTERNAL_ERROR:
			return false;
		default:
			return true;
	}
}

/*
 * The same, where an expression may fail for a row that does not count, for
 * another row of its event does.  A statement does not evaluate it; so false,
 * and the statement tells whether it fails there, too.
 */
static bool
try_to_compute(DrDigest *digest, DrSwept *result)
{
	Attempt		attempt = {.digest = digest, .result = result};
	ErrorData  *error = dr_attempt(attempt_to_compute, &attempt);

	if (error == NULL)
		return attempt.done;
	if (!may_be_of_expression(error))
		ReThrowError(error);
	elog(DEBUG1, "dailyrollup: rows that may not count: %s", error->message);
	FreeErrorData(error);
	digest->failed = true;
	digest->partner = NULL;
	return false;
}

/*
 * Compute the query over the rows that a statement returns: whole ones, where
 * they come as they are stored; else by the other statement, where duplicates
 * are looked for, the place and the table of each, and the columns of its
 * event.  False, and nothing is returned, where a statement must compute it:
 * the rows of a few keys need more memory than there is, or an expression has
 * failed.  A parallel worker may have a part in it where "definition", the view
 * that the definition was read from, is valid.
 */
bool
dr_digest_run(DrDigest *digest, Oid definition, const char *whole_sql, const char *sql,
			  ParamListInfo bounds, DrSwept *result)
{
	/* (who may not read all columns is content with some) */
	digest->whole_sql =
		pg_class_aclcheck(digest->def->source, GetUserId(), ACL_SELECT) == ACLCHECK_OK ?
		whole_sql : NULL;
	digest->sql = sql;
	digest->bounds = bounds;
	digest->definition = definition;
	dr_sweep_begin(result);
	if (dr_intake_tally(digest->intake)->may_fail ? try_to_compute(digest, result) :
		compute(digest, result))
		return true;
	dr_sweep_end(result);
	return false;
}

void
dr_digest_end(DrDigest *digest)
{
	if (!digest->failed)
	{
		dr_intake_end(digest->intake);
		forget_snapshot(digest);
	}
	MemoryContextDelete(digest->context);
}

/* ------------------------------------------------------ in a parallel worker */

/* The partner's half; false where a statement must compute it. */
static bool
compute_half(const DrOrder *order)
{
	const Details *details = order->task.details;
	DrDefinition *def = dr_definition_read(details->source, details->events, details->definition);
	DrDigest   *digest = dr_digest_prepare(def, details->deduplicate);
	DrSwept		result;
	bool		done;

	if (digest == NULL)
		return false;
	digest->whole_sql = *details->whole_sql == '\0' ? NULL : details->whole_sql;
	digest->sql = order->task.sql;
	digest->bounds = order->task.params;
	digest->snapshot = RegisterSnapshot(GetActiveSnapshot());
	digest->shared = true;
	dr_intake_by(digest->intake, digest->snapshot);
	dr_intake_halve(digest->intake, PARTNERS_HALF);
	dr_sweep_begin(&result);
	done = dr_sweep_run(&digest->sweep, &result);
	if (done)
		dr_handover_send(digest->intake, def, order->rows, &result);
	dr_sweep_end(&result);
	dr_digest_end(digest);
	return done;
}

/* What a partner does. */
void
dailyrollup_partner(dsm_segment *segment, shm_toc *toc)
{
	DrOrder    *order = dr_partner_read_order(segment, toc);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	if (!compute_half(order))
		dr_partner_give_up(order);
	order->rows->rShutdown(order->rows);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "could not disconnect from SPI");
}
