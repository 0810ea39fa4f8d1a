/*
 * digest.c
 *		The defining query over a window of the source, by one pass in memory.
 *
 * The server scans the window; each row is added to its key's measures.  With
 * deduplication, the instants that were seen under a key tell a row of a new
 * event from one of an event that was there before.  The earlier row is then
 * read once more, from its place in the table:
 *
 *		the rows are the same			nothing
 *		the earlier one counts			nothing
 *		the later one counts			it takes the earlier one's place in the
 *										measures; where that cannot be done, the
 *										key is left to be computed again
 *
 * It serves where a key is told by the bytes of its values, duplicates by key
 * and instant, and the measures' states can be kept outside of their
 * aggregates.
 *
 * Memory is bounded as that of the server's hash aggregation.  Where a pass
 * needs more it is begun anew: its rows are written to files, each of which has
 * a part of the keys, by their hash; and each file is passed over for itself.
 */
#include "digest.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "attempt.h"
#include "compat.h"
#include "pack.h"
#include "rival.h"
#include "room.h"

/* Rows that are looked at together. */
#define BATCH_ROWS		128
#define BATCH_ROOM		(64 * 1024)

/* Parts that the keys of one pass are split into, by so many bits of a hash. */
#define PART_BITS		5
#define PARTS			(1 << PART_BITS)
#define MAX_LEVEL		4

/* Kilobytes of a part that are kept in memory. */
#define PART_MEMORY		32

/* Columns of the scan before those of the event, where duplicates are looked
 * for. */
enum
{
	PLACE_TID,
	PLACE_TABLE,
	PLACE_COLUMNS
};

typedef struct Row
{
	Datum	   *values;			/* the columns of the scan */
	bool	   *nulls;
	DrKey		key;
	DrEntry    *candidate;
} Row;

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
	bool		overflows;
	DrKeyTable *table;			/* NULL: rows are split */
	Tuplestorestate *parts[PARTS];
} Pass;

struct DrDigest
{
	DestReceiver receiver;
	const DrDefinition *def;
	DrTally    *tally;
	DrRivals   *rivals;			/* NULL: no duplicates are looked for */
	MemoryContext context;
	Size		limit;
	Snapshot	snapshot;		/* the scan's */

	/* what is read: places and events; what is returned */
	TupleDesc	desc;
	TupleDesc	row_desc;
	TupleDesc	key_desc;
	int			first_event;
	DrKind	   *kinds;
	DrKind	   *key_kinds;

	Row			rows[BATCH_ROWS];
	int			nrows;
	DrRoom		room;
	DrTallyRow *row;
	DrTallyRow *earlier;

	Pass	   *pass;
	bool		failed;			/* what it had is gone with a subtransaction */
};

/* ------------------------------------------------------------- preparation */

/* The scan's columns: each event with its place, or without. */
static TupleDesc
scan_desc(const DrDefinition *def, bool placed)
{
	TupleDesc	events = dr_tally_event_desc(def);
	TupleDesc	desc;

	if (!placed)
		return events;
	desc = CreateTemplateTupleDesc(PLACE_COLUMNS + def->nevents);
	TupleDescInitEntry(desc, PLACE_TID + 1, "place", TIDOID, -1, 0);
	TupleDescInitEntry(desc, PLACE_TABLE + 1, "table", OIDOID, -1, 0);
	for (int i = 0; i < def->nevents; i++)
		TupleDescCopyEntry(desc, PLACE_COLUMNS + i + 1, events, i + 1);
	return desc;
}

static void
make_rows(DrDigest *digest)
{
	int			natts = digest->desc->natts;

	for (int i = 0; i < BATCH_ROWS; i++)
	{
		digest->rows[i].values = palloc(natts * sizeof(Datum));
		digest->rows[i].nulls = palloc(natts * sizeof(bool));
	}
	dr_room_make(&digest->room, BATCH_ROOM);
	digest->row = dr_tally_make_row(digest->tally);
	digest->earlier = dr_tally_make_row(digest->tally);
}

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
	DrTally    *tally = dr_tally_prepare(def, deduplicate);
	DrDigest   *digest = NULL;

	if (tally != NULL)
	{
		digest = palloc0(sizeof(DrDigest));
		digest->def = def;
		digest->tally = tally;
		digest->context = context;
		digest->limit = get_hash_memory_limit();
		digest->first_event = deduplicate ? PLACE_COLUMNS : 0;
		digest->desc = scan_desc(def, deduplicate);
		digest->row_desc = dr_tally_row_desc(def);
		digest->key_desc = dr_tally_key_desc(def);
		digest->kinds = dr_pack_kinds(digest->desc);
		digest->key_kinds = dr_pack_kinds(digest->key_desc);
		if (deduplicate)
			digest->rivals = dr_rivals_make(def, dr_tally_event_desc(def));
		make_rows(digest);
	}
	MemoryContextSwitchTo(before);
	if (tally == NULL)
		MemoryContextDelete(context);
	return digest;
}

DrTally *
dr_digest_tally(const DrDigest *digest)
{
	return digest->tally;
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

/* --------------------------------------------------------------------- rows */

/* What a key is found by, to the end of the batch. */
static void
make_key(DrDigest *digest, const Datum *values, const bool *nulls, DrKey *key)
{
	int			n = digest->def->nkeys;
	DrPart		parts[INDEX_MAX_KEYS];
	char	   *image;

	key->size = dr_pack_measure(digest->key_kinds, n, values, nulls, parts);
	key->image = image = dr_room_allocate(&digest->room, key->size);
	dr_pack_write(image, key->size, digest->key_kinds, n, values, nulls, parts);
	key->hash = dr_keytable_hash(image, key->size);
}

static void
end_batch(DrDigest *digest)
{
	digest->nrows = 0;
	dr_room_clear(&digest->room);
	dr_tally_forget(digest->tally);
}

/*
 * The entries of keys that stand somewhere else, each or NULL; "keys" has the
 * values of one key after those of another.
 */
void
dr_digest_find(DrDigest *digest, DrKeyTable *table, int n, const Datum *keys,
			   const bool *nulls, DrEntry **entries)
{
	int			nkeys = digest->def->nkeys;
	MemoryContext before = MemoryContextSwitchTo(digest->room.beyond);
	DrKey	   *sought = palloc(n * sizeof(DrKey));

	for (int i = 0; i < n; i++)
	{
		make_key(digest, keys + i * nkeys, nulls + i * nkeys, &sought[i]);
		dr_keytable_prefetch(table, sought[i].hash);
	}
	for (int i = 0; i < n; i++)
		entries[i] = dr_keytable_candidate(table, sought[i].hash);
	for (int i = 0; i < n; i++)
		if (!dr_keytable_is(entries[i], &sought[i]))
			entries[i] = dr_keytable_find(table, &sought[i]);
	MemoryContextSwitchTo(before);
	end_batch(digest);
}

/* The entry of an event's key, a new one where there is none; NULL for a key
 * with a NULL. */
DrEntry *
dr_digest_enter(DrDigest *digest, DrKeyTable *table, const Datum *event, const bool *nulls)
{
	MemoryContext before = MemoryContextSwitchTo(digest->room.beyond);
	DrTallyRow *row = digest->row;
	DrEntry    *entry = NULL;
	bool		has_null = false;
	DrKey		key;

	dr_tally_read_key(digest->tally, event, nulls, row);
	for (int i = 0; i < digest->def->nkeys; i++)
		has_null |= row->nulls[i];
	if (!has_null)
	{
		make_key(digest, row->values, row->nulls, &key);
		entry = dr_keytable_enter(table, &key);
	}
	MemoryContextSwitchTo(before);
	end_batch(digest);
	return entry;
}

/* Which of two rows of an event counts: the first (< 0), the other one, or are
 * they the same?  The digest looks for duplicates. */
int
dr_digest_compare(DrDigest *digest, Datum *a, bool *a_nulls, const Datum *b, const bool *b_nulls)
{
	MemoryContext before = MemoryContextSwitchTo(digest->room.beyond);
	int			result = dr_rivals_compare(digest->rivals, a, a_nulls, b, b_nulls);

	MemoryContextSwitchTo(before);
	end_batch(digest);
	return result;
}

/* --------------------------------------------------------------------- rows */

static int64
instant_of(const DrDigest *digest, const Row *row)
{
	Datum		time = row->values[digest->first_event];

	return digest->def->time_kind == DR_TIME_DATE ? DatumGetInt32(time) : DatumGetInt64(time);
}

static void
set_place(DrDigest *digest, DrEvent *event, const Row *row)
{
	dr_rivals_place(digest->rivals, event, row->values[PLACE_TID], row->values[PLACE_TABLE]);
}

/* An event whose place is known has another row. */
static void
settle_duplicate(DrDigest *digest, DrEntry *entry, DrEvent *event, Row *row)
{
	const Datum *earlier;
	const bool *nulls;

	if (!dr_rivals_beaten(digest->rivals, digest->snapshot, event,
						  row->values + digest->first_event, row->nulls + digest->first_event))
		return;
	earlier = dr_rivals_earlier(digest->rivals, &nulls);
	dr_tally_read(digest->tally, earlier, nulls, digest->earlier);
	entry->again = !dr_tally_replace(digest->tally, digest->pass->table, entry,
									 digest->earlier, digest->row);
	set_place(digest, event, row);
}

static void
add_row(DrDigest *digest, DrEntry *entry, Row *row)
{
	DrKeyTable *table = digest->pass->table;
	DrEvent    *event;
	bool		found;

	if (entry->again)
		return;
	dr_tally_read(digest->tally, row->values + digest->first_event,
				  row->nulls + digest->first_event, digest->row);
	if (digest->rivals != NULL)
	{
		event = dr_keytable_event(table, entry, instant_of(digest, row), &found);
		if (found)
		{
			settle_duplicate(digest, entry, event, row);
			return;
		}
		set_place(digest, event, row);
	}
	if (digest->row->counts)
		dr_tally_add(digest->tally, table, entry, digest->row);
}

/* Find the keys of the batch.  A row that WHERE leaves out has none, but where
 * it is needed to tell duplicates. */
static void
find_keys(DrDigest *digest)
{
	int			kept = 0;

	for (int i = 0; i < digest->nrows; i++)
	{
		Row			read = digest->rows[i];
		Row		   *row = &digest->rows[kept];

		if (digest->rivals == NULL &&
			!dr_tally_counts(digest->tally, read.values, read.nulls, digest->row))
			continue;
		digest->rows[i] = *row;
		*row = read;
		kept++;
		dr_tally_read_key(digest->tally, row->values + digest->first_event,
						  row->nulls + digest->first_event, digest->row);
		make_key(digest, digest->row->values, digest->row->nulls, &row->key);
	}
	digest->nrows = kept;
}

/* Write each row to the part of its key. */
static void
split_batch(DrDigest *digest)
{
	Pass	   *pass = digest->pass;

	for (int i = 0; i < digest->nrows; i++)
	{
		Row		   *row = &digest->rows[i];
		uint32		part = row->key.hash >> (32 - PART_BITS * (pass->level + 1));

		tuplestore_putvalues(pass->parts[part & (PARTS - 1)], digest->desc,
							 row->values, row->nulls);
	}
}

/* Find who may be the rows' entries, and have them fetched, with the events
 * that were seen last. */
static void
find_candidates(DrDigest *digest)
{
	int			n = digest->nrows;

	for (int i = 0; i < n; i++)
		dr_keytable_prefetch(digest->pass->table, digest->rows[i].key.hash);
	for (int i = 0; i < n; i++)
	{
		Row		   *row = &digest->rows[i];

		row->candidate = dr_keytable_candidate(digest->pass->table, row->key.hash);
	}
	for (int i = 0; i < n; i++)
		if (digest->rows[i].candidate != NULL && digest->rows[i].candidate->events != NULL)
			dr_prefetch(digest->rows[i].candidate->events);
}

static DrEntry *
entry_of(DrDigest *digest, const Row *row)
{
	if (dr_keytable_is(row->candidate, &row->key))
		return row->candidate;
	return dr_keytable_enter(digest->pass->table, &row->key);
}

/* Add the rows of the batch, or split them. */
static void
add_batch(DrDigest *digest)
{
	MemoryContext before = MemoryContextSwitchTo(digest->room.beyond);
	Pass	   *pass = digest->pass;

	find_keys(digest);
	if (pass->table == NULL)
		split_batch(digest);
	else
	{
		find_candidates(digest);
		for (int i = 0; i < digest->nrows && !pass->overflows; i++)
		{
			add_row(digest, entry_of(digest, &digest->rows[i]), &digest->rows[i]);
			dr_tally_relieve(digest->tally);
			pass->overflows = dr_keytable_memory(pass->table) > digest->limit;
		}
	}
	MemoryContextSwitchTo(before);
	end_batch(digest);
}

/* A row of the scan, or of a part; false where memory does not suffice. */
static bool
receive(DrDigest *digest, TupleTableSlot *slot)
{
	Row		   *row = &digest->rows[digest->nrows++];

	slot_getallattrs(slot);
	for (int i = 0; i < digest->desc->natts; i++)
	{
		const DrKind *kind = &digest->kinds[i];

		row->nulls[i] = slot->tts_isnull[i];
		row->values[i] = slot->tts_values[i];
		if (!kind->typbyval && !row->nulls[i])
		{
			Size		size = datumGetSize(row->values[i], false, kind->typlen);
			char	   *copy = dr_room_allocate(&digest->room, size);

			memcpy(copy, DatumGetPointer(row->values[i]), size);
			row->values[i] = PointerGetDatum(copy);
		}
	}
	if (digest->nrows == BATCH_ROWS || digest->room.used > BATCH_ROOM / 2)
		add_batch(digest);
	return !digest->pass->overflows;
}

/* ------------------------------------------------------------------- passes */

static bool
receive_slot(TupleTableSlot *slot, DestReceiver *self)
{
	DrDigest   *digest = (DrDigest *) self;

	/* rows of a part, and earlier rows, are read after the scan, too */
	if (digest->snapshot == NULL)
		digest->snapshot = RegisterSnapshot(GetActiveSnapshot());
	return receive(digest, slot);
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
	TupleTableSlot *slot = MakeSingleTupleTableSlot(digest->desc, &TTSOpsMinimalTuple);

	tuplestore_rescan(rows->part);
	while (!digest->pass->overflows && tuplestore_gettupleslot(rows->part, true, false, slot))
	{
		CHECK_FOR_INTERRUPTS();
		(void) receive(digest, slot);
	}
	ExecDropSingleTupleTableSlot(slot);
}

static void
forget_pass(Pass *pass)
{
	for (int i = 0; i < PARTS; i++)
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
		for (int i = 0; i < PARTS; i++)
			pass->parts[i] = tuplestore_begin_heap(true, false, PART_MEMORY);
	else
		pass->table = dr_keytable_create(digest->context, dr_tally_state_size(digest->tally));
	digest->pass = pass;
	MemoryContextSwitchTo(before);

	if (rows->part != NULL)
		read_part(digest, rows);
	else
		scan(digest, rows);
	if (digest->nrows > 0 && !pass->overflows)
		add_batch(digest);
	if (!pass->overflows)
		return pass;
	end_batch(digest);
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
	for (int i = 0; i < PARTS; i++)
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
		 level, PARTS);
	pass = try_pass(digest, rows, level, true);
	done = pass_over_parts(digest, pass, result);
	forget_pass(pass);
	return done;
}

/* What was read of the source goes with the subtransaction that has read it. */
static void
leave_source(DrDigest *digest)
{
	if (digest->rivals != NULL)
		dr_rivals_end(digest->rivals);
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
	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case ERRCODE_TRANSACTION_ROLLBACK:
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE:
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

/* The values of an entry's key; they point into the entry. */
void
dr_digest_read_key(const DrDigest *digest, const DrEntry *entry, Datum *values, bool *nulls)
{
	dr_pack_read(entry->key.image, digest->key_kinds, digest->def->nkeys, values, nulls);
}

/* The row of an entry, a value for each column of the query. */
void
dr_digest_read_row(const DrDigest *digest, const DrEntry *entry, Datum *values, bool *nulls)
{
	const DrDefinition *def = digest->def;
	Datum		keys[INDEX_MAX_KEYS];
	bool		key_nulls[INDEX_MAX_KEYS];

	dr_digest_read_key(digest, entry, keys, key_nulls);
	for (int i = 0; i < def->nkeys; i++)
	{
		values[def->keys[i]] = keys[i];
		nulls[def->keys[i]] = key_nulls[i];
	}
	dr_tally_result(digest->tally, entry, values, nulls);
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
		dr_digest_read_key(digest, entry, values, nulls);
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
	if (digest->tally->may_fail ? try_to_pass_over(digest, &rows, result) :
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
		dr_tally_end(digest->tally);
	}
	MemoryContextDelete(digest->context);
}
