/*
 * digest.c
 *		The defining query over a window of the source, by one pass in memory.
 *
 * The server scans the window; each row is added to its key's measures
 * (intake.c).
 *
 * Memory is bounded as that of the server's hash aggregation.  Where a pass
 * needs more it is begun anew: its rows are written to files, each of which has
 * a part of the keys, by their hash; and each file is passed over for itself.
 *
 * Where many rows come, a parallel worker reads them, too, by the same snapshot,
 * and each of the two looks at one half of the keys.  No key is looked at by
 * both, so nothing is to be put together: the worker sends the row of each of
 * its keys.
 */
#include "digest.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "attempt.h"
#include "definition.h"
#include "intake.h"
#include "parallel.h"
#include "partner.h"

#define MAX_LEVEL		4

/* Kilobytes of a part that are kept in memory. */
#define PART_MEMORY		32

/* Which half of the keys is whose. */
#define LEADERS_HALF	0
#define PARTNERS_HALF	1

PGDLLEXPORT void dailyrollup_partner(dsm_segment *segment, shm_toc *toc);

/* Where a pass takes its rows from: a scan, or a part of another pass. */
typedef struct Rows
{
	const char *sql;
	ParamListInfo bounds;
	Tuplestorestate *part;
} Rows;

typedef struct Pass
{
	int			level;			/* how often its rows were split before */
	DrKeyTable *table;			/* NULL: rows are split */
	Tuplestorestate *parts[DR_INTAKE_PARTS];
} Pass;

/* What a partner is told of the query. */
typedef struct Details
{
	Oid			source;
	Oid			events;
	Oid			definition;
	bool		deduplicate;
} Details;

struct DrDigest
{
	DestReceiver receiver;
	const DrDefinition *def;
	bool		deduplicate;
	DrIntake   *intake;
	DrTally    *tally;
	MemoryContext context;
	Snapshot	snapshot;		/* the scan's */
	bool		shared;			/* the snapshot: all scans are by it */
	TupleDesc	row_desc;		/* what is returned */
	TupleDesc	key_desc;
	bool		failed;			/* what it had is gone with a subtransaction */

	const Rows *rows;			/* all of the source */
	DrKeyTable *table;			/* that rows of the source go into; or NULL */
	Oid			definition;		/* InvalidOid: no partner is called (any more) */
	uint64		nread;			/* rows, until one is called */
	DrPartner  *partner;
	ErrorContextCallback *errors;	/* beyond the scan */
};

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
		digest->tally = dr_intake_tally(intake);
		digest->row_desc = dr_intake_row_desc(intake);
		digest->key_desc = dr_intake_key_desc(intake);
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

/* ------------------------------------------------------------- a partner */

/* Leave half of the keys to the partner, and forget what was counted of them. */
static void
halve(DrDigest *digest)
{
	Size		size = dr_tally_state_size(digest->tally);
	DrEntry    *entry = digest->table == NULL ? NULL : dr_keytable_first(digest->table);

	/* (the rest of a batch counts for the keys of both) */
	(void) dr_intake_finish(digest->intake);
	dr_intake_halve(digest->intake, LEADERS_HALF);
	for (; entry != NULL; entry = entry->next)
	{
		if (dr_intake_looks_at(digest->intake, entry))
			continue;
		memset(dr_keytable_state(entry), 0, size);
		entry->again = false;
		entry->counted = 0;
	}
}

/* Call a partner, if one may be had, in the midst of a scan. */
static void
call_partner(DrDigest *digest)
{
	Details		details = {
		.source = digest->def->source,
		.events = digest->def->vars_of,
		.definition = digest->definition,
		.deduplicate = digest->deduplicate
	};
	DrTask		task = {
		.details = &details,
		.size = sizeof(Details),
		.sql = digest->rows->sql,
		.params = digest->rows->bounds
	};
	MemoryContext before = MemoryContextSwitchTo(digest->context);

	digest->definition = InvalidOid;
	if (dr_partner_is_allowed() && dr_parallel_is_safe(digest->def))
		digest->partner = dr_partner_begin("dailyrollup_partner", &task, digest->errors);
	MemoryContextSwitchTo(before);
	if (digest->partner == NULL)
		return;
	elog(DEBUG1, "dailyrollup: a parallel worker takes half of the keys");
	digest->shared = true;
	halve(digest);
}

/* Not for fewer rows than are read while it starts, by the server's costs. */
static bool
is_partner_due(DrDigest *digest)
{
	if (!OidIsValid(digest->definition))
		return false;
	return digest->table == NULL || ++digest->nread * cpu_tuple_cost > parallel_setup_cost;
}

static void
dismiss_partner(DrDigest *digest)
{
	if (digest->partner != NULL)
		dr_partner_end(digest->partner);
	digest->partner = NULL;
}

/* ------------------------------------------------------------------- passes */

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
	return dr_intake_take(digest->intake, slot);
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

static void
scan(DrDigest *digest, const Rows *rows)
{
	SPIExecuteOptions options = {
		.params = rows->bounds,
		.dest = &digest->receiver
	};

	if (digest->shared)
		PushActiveSnapshot(digest->snapshot);
	else
		forget_snapshot(digest);
	options.read_only = digest->shared;
	if (SPI_execute_extended(rows->sql, &options) < 0)
		elog(ERROR, "could not execute \"%s\"", rows->sql);
	if (options.read_only)
		PopActiveSnapshot();
}

static void
read_part(DrDigest *digest, const Rows *rows)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(dr_intake_desc(digest->intake),
													&TTSOpsMinimalTuple);

	tuplestore_rescan(rows->part);
	while (tuplestore_gettupleslot(rows->part, true, false, slot) &&
		   dr_intake_take(digest->intake, slot))
		CHECK_FOR_INTERRUPTS();
	ExecDropSingleTupleTableSlot(slot);
}

static void
forget_pass(Pass *pass)
{
	for (int i = 0; i < DR_INTAKE_PARTS; i++)
		if (pass->parts[i] != NULL)
			tuplestore_end(pass->parts[i]);
	if (pass->table != NULL)
		dr_keytable_destroy(pass->table);
	pfree(pass);
}

/* One pass over the rows; NULL where memory does not suffice. */
static Pass *
try_pass(DrDigest *digest, const Rows *rows, int level, bool split)
{
	MemoryContext before = MemoryContextSwitchTo(digest->context);
	Pass	   *pass = palloc0(sizeof(Pass));

	pass->level = level;
	if (split)
		for (int i = 0; i < DR_INTAKE_PARTS; i++)
			pass->parts[i] = tuplestore_begin_heap(true, false, PART_MEMORY);
	else
		pass->table = dr_keytable_create(digest->context, dr_tally_state_size(digest->tally));
	MemoryContextSwitchTo(before);
	dr_intake_aim(digest->intake, pass->table, pass->parts, level);
	digest->table = pass->table;

	if (rows->part != NULL)
		read_part(digest, rows);
	else
		scan(digest, rows);
	if (dr_intake_finish(digest->intake))
		return pass;
	forget_pass(pass);
	return NULL;
}

static void
append_all(DrDigest *digest, DrKeyTable *table, DrDigested *result)
{
	for (DrEntry *entry = dr_keytable_first(table); entry != NULL; entry = entry->next)
		dr_digest_append(digest, result, entry);
}

static bool pass_over(DrDigest *digest, const Rows *rows, int level, DrKeyTable **whole,
					  DrDigested *result);

/* Append what comes of the parts of a split pass. */
static bool
pass_over_parts(DrDigest *digest, Pass *pass, DrDigested *result)
{
	for (int i = 0; i < DR_INTAKE_PARTS; i++)
	{
		Rows		part = {.part = pass->parts[i]};
		DrKeyTable *table;

		if (!pass_over(digest, &part, pass->level + 1, &table, result))
			return false;
		if (table != NULL)
		{
			append_all(digest, table, result);
			dr_keytable_destroy(table);
		}
		tuplestore_end(pass->parts[i]);
		pass->parts[i] = NULL;
	}
	return true;
}

/*
 * Pass over rows until all of them are counted.  The table is returned; or,
 * where not all keys fit into memory, NULL, and their rows are appended.
 * False where even a small part of the keys needs more memory than there is.
 */
static bool
pass_over(DrDigest *digest, const Rows *rows, int level, DrKeyTable **whole,
		  DrDigested *result)
{
	Pass	   *pass = try_pass(digest, rows, level, false);
	bool		done;

	*whole = NULL;
	if (pass != NULL)
	{
		*whole = pass->table;
		pfree(pass);
		return true;
	}
	if (level == MAX_LEVEL)
	{
		elog(DEBUG1, "dailyrollup: the rows of a key do not fit into memory");
		return false;
	}
	elog(DEBUG1, "dailyrollup: keys of level %d do not fit into memory, and are split into %d parts",
		 level, DR_INTAKE_PARTS);
	pass = try_pass(digest, rows, level, true);
	done = pass_over_parts(digest, pass, result);
	forget_pass(pass);
	return done;
}

/* Columns of what a partner sends: of a row, and whether its key is to be
 * computed again. */
static TupleDesc
sent_desc(const DrDigest *digest)
{
	TupleDesc	desc = CreateTemplateTupleDesc(digest->row_desc->natts + 1);

	for (int i = 1; i <= digest->row_desc->natts; i++)
		TupleDescCopyEntry(desc, i, digest->row_desc, i);
	TupleDescInitEntry(desc, desc->natts, "again", BOOLOID, -1, 0);
	return desc;
}

/* A key's row that the partner has computed, or (again) its key. */
static void
take_row(DrDigest *digest, DrDigested *result, Datum *values, bool *nulls, bool again)
{
	const DrDefinition *def = digest->def;
	Datum		keys[INDEX_MAX_KEYS];
	bool		key_nulls[INDEX_MAX_KEYS];
	DrEntry    *entry;

	for (int i = 0; i < def->nkeys; i++)
	{
		keys[i] = values[def->keys[i]];
		key_nulls[i] = nulls[def->keys[i]];
	}
	if (result->whole != NULL && dr_intake_is_room(digest->intake, result->whole))
	{
		entry = dr_intake_enter_key(digest->intake, result->whole, keys, key_nulls);
		entry->again = again;
		entry->counted = 1;
		if (!again)
			dr_tally_merge(digest->tally, result->whole, entry, values, nulls);
		dr_tally_forget(digest->tally);
	}
	else if (again)
	{
		tuplestore_putvalues(result->again, digest->key_desc, keys, key_nulls);
		result->nagain++;
	}
	else
	{
		tuplestore_putvalues(result->rows, digest->row_desc, values, nulls);
		result->nrows++;
	}
}

/* Take what the partner has computed; false where it could not. */
static bool
take_from_partner(DrDigest *digest, DrDigested *result)
{
	TupleTableSlot *slot;
	int			n = digest->row_desc->natts;
	bool		done;

	if (digest->partner == NULL)
		return true;
	slot = MakeSingleTupleTableSlot(sent_desc(digest), &TTSOpsMinimalTuple);
	while (dr_partner_next(digest->partner, slot))
	{
		slot_getallattrs(slot);
		take_row(digest, result, slot->tts_values, slot->tts_isnull,
				 DatumGetBool(slot->tts_values[n]));
	}
	ExecDropSingleTupleTableSlot(slot);
	done = dr_partner_finish(digest->partner);
	return done;
}

/* Pass over all rows of the source; false as above. */
static bool
pass_over_source(DrDigest *digest, DrDigested *result)
{
	bool		done;

	digest->errors = error_context_stack;
	done = pass_over(digest, digest->rows, 0, &result->whole, result) &&
		take_from_partner(digest, result);
	dismiss_partner(digest);
	return done;
}

/* What was read of the source goes with the subtransaction that has read it. */
static void
leave_source(DrDigest *digest)
{
	dr_intake_leave_source(digest->intake);
	forget_snapshot(digest);
}

/* A pass over all rows, as an attempt. */
typedef struct Attempt
{
	DrDigest   *digest;
	DrDigested *result;
	bool		done;
} Attempt;

static void
attempt_pass(void *arg)
{
	Attempt    *attempt = arg;

	attempt->done = pass_over_source(attempt->digest, attempt->result);
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
try_to_pass_over(DrDigest *digest, DrDigested *result)
{
	Attempt		attempt = {.digest = digest, .result = result};
	ErrorData  *error = dr_attempt(attempt_pass, &attempt);

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

/* A key's row, or the key, where it is to be computed again. */
void
dr_digest_append(DrDigest *digest, DrDigested *result, const DrEntry *entry)
{
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	if (!entry->again && entry->counted == 0)
		return;
	if (entry->again)
	{
		dr_intake_read_key(digest->intake, entry, values, nulls);
		tuplestore_putvalues(result->again, digest->key_desc, values, nulls);
		result->nagain++;
		return;
	}
	dr_intake_read_row(digest->intake, entry, values, nulls);
	tuplestore_putvalues(result->rows, digest->row_desc, values, nulls);
	result->nrows++;
}

static void
begin_result(DrDigest *digest, DrDigested *result)
{
	DestReceiver receiver = {
		.receiveSlot = receive_slot,
		.rStartup = receiver_starts,
		.rShutdown = receiver_ends,
		.rDestroy = receiver_ends,
		.mydest = DestNone
	};

	digest->receiver = receiver;
	memset(result, 0, sizeof(DrDigested));
	result->rows = tuplestore_begin_heap(false, false, work_mem);
	result->again = tuplestore_begin_heap(true, false, work_mem);
}

/*
 * Compute the query over the rows that the statement returns: where duplicates
 * are looked for, the place and the table of each, and the columns of its
 * event.  False, and nothing is returned, where a statement must compute it:
 * the rows of a few keys need more memory than there is, or an expression has
 * failed.  A parallel worker may have a part in it where "definition", the view
 * that the definition was read from, is valid.
 */
bool
dr_digest_run(DrDigest *digest, Oid definition, const char *sql, ParamListInfo bounds,
			  DrDigested *result)
{
	Rows		rows = {.sql = sql, .bounds = bounds};

	digest->rows = &rows;
	digest->definition = definition;
	begin_result(digest, result);
	if (digest->tally->may_fail ? try_to_pass_over(digest, result) :
		pass_over_source(digest, result))
		return true;
	tuplestore_end(result->rows);
	tuplestore_end(result->again);
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

/* Send what was appended: rows, or keys. */
static void
send_all(const DrDigest *digest, DestReceiver *dest, Tuplestorestate *store, bool again)
{
	TupleDesc	desc = again ? digest->key_desc : digest->row_desc;
	TupleTableSlot *from = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	TupleTableSlot *to = MakeSingleTupleTableSlot(sent_desc(digest), &TTSOpsVirtual);
	int			last = digest->row_desc->natts;

	while (tuplestore_gettupleslot(store, true, false, from))
	{
		CHECK_FOR_INTERRUPTS();
		slot_getallattrs(from);
		ExecClearTuple(to);
		memset(to->tts_isnull, true, last * sizeof(bool));
		for (int i = 0; i < desc->natts; i++)
		{
			int			n = again ? digest->def->keys[i] : i;

			to->tts_values[n] = from->tts_values[i];
			to->tts_isnull[n] = from->tts_isnull[i];
		}
		to->tts_values[last] = BoolGetDatum(again);
		to->tts_isnull[last] = false;
		ExecStoreVirtualTuple(to);
		if (!dest->receiveSlot(to, dest))
			break;
	}
	ExecDropSingleTupleTableSlot(from);
	ExecDropSingleTupleTableSlot(to);
}

/* The partner's half; false where a statement must compute it. */
static bool
compute_half(const DrOrder *order)
{
	const Details *details = order->task.details;
	Rows		rows = {.sql = order->task.sql, .bounds = order->task.params};
	DrDefinition *def = dr_definition_read(details->source, details->events, details->definition);
	DrDigest   *digest = dr_digest_prepare(def, details->deduplicate);
	DrDigested	result;

	if (digest == NULL)
		return false;
	begin_result(digest, &result);
	digest->snapshot = RegisterSnapshot(GetActiveSnapshot());
	digest->shared = true;
	dr_intake_by(digest->intake, digest->snapshot);
	dr_intake_halve(digest->intake, PARTNERS_HALF);
	if (!pass_over(digest, &rows, 0, &result.whole, &result))
		return false;
	if (result.whole != NULL)
		append_all(digest, result.whole, &result);
	send_all(digest, order->rows, result.rows, false);
	send_all(digest, order->rows, result.again, true);
	dr_digest_end(digest);
	return true;
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
