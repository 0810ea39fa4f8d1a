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
 */
#include "digest.h"

#include "access/htup_details.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "attempt.h"
#include "intake.h"

#define MAX_LEVEL		4

/* Kilobytes of a part that are kept in memory. */
#define PART_MEMORY		32

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

struct DrDigest
{
	DestReceiver receiver;
	const DrDefinition *def;
	DrIntake   *intake;
	MemoryContext context;
	Snapshot	snapshot;		/* the scan's */
	TupleDesc	row_desc;		/* what is returned */
	TupleDesc	key_desc;
	bool		failed;			/* what it had is gone with a subtransaction */
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
		digest->intake = intake;
		digest->context = context;
		digest->row_desc = dr_tally_row_desc(def);
		digest->key_desc = dr_tally_key_desc(def);
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

DrTally *
dr_digest_tally(const DrDigest *digest)
{
	return dr_intake_tally(digest->intake);
}

TupleDesc
dr_digest_row_desc(const DrDigest *digest)
{
	return digest->row_desc;
}

TupleDesc
dr_digest_key_desc(const DrDigest *digest)
{
	return digest->key_desc;
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

	forget_snapshot(digest);
	if (SPI_execute_extended(rows->sql, &options) < 0)
		elog(ERROR, "could not execute \"%s\"", rows->sql);
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
		pass->table = dr_keytable_create(digest->context, dr_tally_state_size(dr_digest_tally(digest)));
	MemoryContextSwitchTo(before);
	dr_intake_aim(digest->intake, pass->table, pass->parts, level);

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
	const Rows *rows;
	DrDigested *result;
	bool		done;
} Attempt;

static void
attempt_pass(void *arg)
{
	Attempt    *attempt = arg;

	attempt->done = pass_over(attempt->digest, attempt->rows, 0, &attempt->result->whole,
							  attempt->result);
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
try_to_pass_over(DrDigest *digest, const Rows *rows, DrDigested *result)
{
	Attempt		attempt = {.digest = digest, .rows = rows, .result = result};
	ErrorData  *error = dr_attempt(attempt_pass, &attempt);

	if (error == NULL)
		return attempt.done;
	if (!may_be_of_expression(error))
		ReThrowError(error);
	elog(DEBUG1, "dailyrollup: rows that may not count: %s", error->message);
	FreeErrorData(error);
	digest->failed = true;
	return false;
}

/* The row of an entry, a value for each column of the query. */
void
dr_digest_read_row(const DrDigest *digest, const DrEntry *entry, Datum *values, bool *nulls)
{
	const DrDefinition *def = digest->def;
	Datum		keys[INDEX_MAX_KEYS];
	bool		key_nulls[INDEX_MAX_KEYS];

	dr_intake_read_key(digest->intake, entry, keys, key_nulls);
	for (int i = 0; i < def->nkeys; i++)
	{
		values[def->keys[i]] = keys[i];
		nulls[def->keys[i]] = key_nulls[i];
	}
	dr_tally_result(dr_digest_tally(digest), entry, values, nulls);
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
	dr_digest_read_row(digest, entry, values, nulls);
	tuplestore_putvalues(result->rows, digest->row_desc, values, nulls);
	result->nrows++;
}

/*
 * Compute the query over the rows that the statement returns: where duplicates
 * are looked for, the place and the table of each, and the columns of its
 * event.  False, and nothing is returned, where a statement must compute it:
 * the rows of a few keys need more memory than there is, or an expression has
 * failed.
 */
bool
dr_digest_run(DrDigest *digest, const char *sql, ParamListInfo bounds, DrDigested *result)
{
	Rows		rows = {.sql = sql, .bounds = bounds};
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
	if (dr_digest_tally(digest)->may_fail ? try_to_pass_over(digest, &rows, result) :
		pass_over(digest, &rows, 0, &result->whole, result))
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
		leave_source(digest);
		dr_tally_end(dr_digest_tally(digest));
	}
	MemoryContextDelete(digest->context);
}
