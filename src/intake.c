/*
 * intake.c
 *		Rows of the source added to the measures of their keys, in memory.
 *
 * With deduplication, the instants that were seen under a key tell a row of a
 * new event from one of an event that was there before.  The earlier row is
 * then read once more, from its place in the table:
 *
 *		the rows are the same			nothing
 *		the earlier one counts			nothing
 *		the later one counts			it takes the earlier one's place in the
 *										measures; where that cannot be done, the
 *										key is left to be computed again
 *
 * Rows are looked at in batches, whose keys are fetched into the processor's
 * cache ahead.  They come as parts of them are kept, all columns side by side;
 * or from where the source stores them, and no more of them is taken apart than
 * tells the key, where that is not looked at.
 *
 * It serves where a key is told by the bytes of its values, duplicates by key
 * and instant, and the measures' states can be kept outside of their
 * aggregates.
 */
#include "intake.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"

#include "compat.h"
#include "layout.h"
#include "pack.h"
#include "rival.h"
#include "room.h"

/* Rows that are looked at together. */
#define BATCH_ROWS		128
#define BATCH_ROOM		(64 * 1024)

typedef struct Row
{
	Datum	   *values;			/* the columns of the scan */
	bool	   *nulls;
	DrKey		key;
	DrEntry    *candidate;
} Row;

struct DrIntake
{
	const DrDefinition *def;
	DrTally    *tally;
	DrRivals   *rivals;			/* NULL: no duplicates are looked for */
	Snapshot	snapshot;		/* that earlier rows are read by */

	/* what is returned */
	TupleDesc	row_desc;
	TupleDesc	key_desc;

	/* what is read: places and events */
	DrLayout   *layout;
	TupleDesc	desc;
	int			first_event;
	DrKind	   *kinds;
	int			nreferences;	/* columns that are passed by reference */
	int		   *references;
	DrKind	   *key_kinds;

	Row			rows[BATCH_ROWS];
	int			nrows;
	DrRoom		room;
	DrTallyRow *row;
	DrTallyRow *earlier;

	int			half;			/* of the keys, which alone is looked at; or all */

	/* where rows go */
	DrKeyTable *table;			/* NULL: into the parts */
	Tuplestorestate **parts;
	int			level;			/* how often the rows were split before */
	Size		limit;			/* bytes that the table may take */
	bool		overflows;		/* it takes more */
};

/* ------------------------------------------------------------- preparation */

static void
make_rows(DrIntake *intake)
{
	int			natts = intake->desc->natts;

	for (int i = 0; i < BATCH_ROWS; i++)
	{
		intake->rows[i].values = palloc(natts * sizeof(Datum));
		intake->rows[i].nulls = palloc(natts * sizeof(bool));
	}
	intake->references = palloc(natts * sizeof(int));
	for (int i = 0; i < natts; i++)
		if (!intake->kinds[i].typbyval)
			intake->references[intake->nreferences++] = i;
	dr_room_make(&intake->room, BATCH_ROOM);
	intake->row = dr_tally_make_row(intake->tally);
	intake->earlier = dr_tally_make_row(intake->tally);
}

/* For rows with the columns of an event, each with its place where duplicates
 * are looked for; NULL where the query cannot be computed in this way. */
DrIntake *
dr_intake_make(const DrDefinition *def, bool deduplicate)
{
	DrTally    *tally = dr_tally_prepare(def, deduplicate);
	DrIntake   *intake;

	if (tally == NULL)
		return NULL;
	intake = palloc0(sizeof(DrIntake));
	intake->def = def;
	intake->tally = tally;
	intake->limit = get_hash_memory_limit();
	intake->layout = dr_layout_make(def, tally, deduplicate);
	intake->desc = dr_layout_desc(intake->layout);
	intake->first_event = dr_layout_first_event(intake->layout);
	intake->kinds = dr_pack_kinds(intake->desc);
	intake->half = DR_INTAKE_ALL;
	intake->row_desc = dr_tally_row_desc(def);
	intake->key_desc = dr_tally_key_desc(def);
	intake->key_kinds = dr_pack_kinds(intake->key_desc);
	if (deduplicate)
		intake->rivals = dr_rivals_make(def, dr_tally_event_desc(def));
	make_rows(intake);
	return intake;
}

DrTally *
dr_intake_tally(const DrIntake *intake)
{
	return intake->tally;
}

/* The columns of what is taken. */
TupleDesc
dr_intake_desc(const DrIntake *intake)
{
	return intake->desc;
}

TupleDesc
dr_intake_row_desc(const DrIntake *intake)
{
	return intake->row_desc;
}

TupleDesc
dr_intake_key_desc(const DrIntake *intake)
{
	return intake->key_desc;
}

/* By which snapshot the rows are read that come from now on. */
void
dr_intake_by(DrIntake *intake, Snapshot snapshot)
{
	intake->snapshot = snapshot;
}

/* Which columns the rows have that come as they are stored. */
void
dr_intake_set_stored(DrIntake *intake, List *columns)
{
	dr_layout_set_stored(intake->layout, intake->def, columns);
}

/* May the table take more? */
bool
dr_intake_is_room(const DrIntake *intake, const DrKeyTable *table)
{
	return dr_keytable_memory(table) <= intake->limit;
}

/* What was read of the source goes with whatever has read it. */
void
dr_intake_leave_source(DrIntake *intake)
{
	if (intake->rivals != NULL)
		dr_rivals_end(intake->rivals);
}

/* ------------------------------------------------------------------- look-ups */

/* Is the key looked at?  The bits of its hash that split rows, and those that
 * tables find it by, say nothing of it. */
static inline bool
is_looked_at(const DrIntake *intake, uint32 hash)
{
	return intake->half == DR_INTAKE_ALL || (murmurhash32(hash) & 1) == intake->half;
}

/* What a key is found by, to the end of the batch; false where it is not looked
 * at, but for "any" key. */
static bool
make_key(DrIntake *intake, const Datum *values, const bool *nulls, bool any, DrKey *key)
{
	int			n = intake->def->nkeys;
	DrPart		parts[INDEX_MAX_KEYS];
	char	   *image;

	key->size = dr_pack_measure(intake->key_kinds, n, values, nulls, parts);
	key->hash = dr_pack_hash(intake->key_kinds, n, values, nulls, parts);
	if (!any && !is_looked_at(intake, key->hash))
		return false;
	key->image = image = dr_room_allocate(&intake->room, key->size);
	dr_pack_write(image, key->size, intake->key_kinds, n, values, nulls, parts);
	return true;
}

static void
end_batch(DrIntake *intake)
{
	intake->nrows = 0;
	dr_room_clear(&intake->room);
	dr_tally_forget(intake->tally);
}

/*
 * The entries of keys that stand somewhere else, each or NULL; "keys" has the
 * values of one key after those of another.
 */
void
dr_intake_find(DrIntake *intake, DrKeyTable *table, int n, const Datum *keys,
			   const bool *nulls, DrEntry **entries)
{
	int			nkeys = intake->def->nkeys;
	MemoryContext before = MemoryContextSwitchTo(intake->room.beyond);
	DrKey	   *sought = palloc(n * sizeof(DrKey));

	for (int i = 0; i < n; i++)
	{
		(void) make_key(intake, keys + i * nkeys, nulls + i * nkeys, true, &sought[i]);
		dr_keytable_prefetch(table, sought[i].hash);
	}
	for (int i = 0; i < n; i++)
		entries[i] = dr_keytable_candidate(table, sought[i].hash);
	for (int i = 0; i < n; i++)
		if (!dr_keytable_is(entries[i], &sought[i]))
			entries[i] = dr_keytable_find(table, &sought[i]);
	MemoryContextSwitchTo(before);
	end_batch(intake);
}

/* The entry of a key, a new one where there is none. */
DrEntry *
dr_intake_enter_key(DrIntake *intake, DrKeyTable *table, const Datum *values, const bool *nulls)
{
	MemoryContext before = MemoryContextSwitchTo(intake->room.beyond);
	DrEntry    *entry;
	DrKey		key;

	(void) make_key(intake, values, nulls, true, &key);
	entry = dr_keytable_enter(table, &key);
	MemoryContextSwitchTo(before);
	end_batch(intake);
	return entry;
}

/* The entry of an event's key, a new one where there is none; NULL for a key
 * with a NULL. */
DrEntry *
dr_intake_enter(DrIntake *intake, DrKeyTable *table, const Datum *event, const bool *nulls)
{
	MemoryContext before = MemoryContextSwitchTo(intake->room.beyond);
	DrTallyRow *row = intake->row;
	bool		has_null = false;

	dr_tally_read_key(intake->tally, event, nulls, row);
	MemoryContextSwitchTo(before);
	for (int i = 0; i < intake->def->nkeys; i++)
		has_null |= row->nulls[i];
	if (!has_null)
		return dr_intake_enter_key(intake, table, row->values, row->nulls);
	end_batch(intake);
	return NULL;
}

/* Which of two rows of an event counts: the first (< 0), the other one, or are
 * they the same?  The intake looks for duplicates. */
int
dr_intake_compare(DrIntake *intake, Datum *a, bool *a_nulls, const Datum *b, const bool *b_nulls)
{
	MemoryContext before = MemoryContextSwitchTo(intake->room.beyond);
	int			result = dr_rivals_compare(intake->rivals, a, a_nulls, b, b_nulls);

	MemoryContextSwitchTo(before);
	end_batch(intake);
	return result;
}

/* --------------------------------------------------------------------- rows */

static int64
instant_of(const DrIntake *intake, const Row *row)
{
	Datum		time = row->values[intake->first_event];

	return intake->def->time_kind == DR_TIME_DATE ? DatumGetInt32(time) : DatumGetInt64(time);
}

/* Where that cannot be, nobody could read the row again: nor is the key added up. */
static void
set_place(DrIntake *intake, DrEntry *entry, DrEvent *event, const Row *row)
{
	if (!dr_rivals_place(intake->rivals, event, row->values[DR_LAYOUT_TID],
						 row->values[DR_LAYOUT_TABLE]))
		entry->again = true;
}

/* An event whose place is known has another row. */
static void
settle_duplicate(DrIntake *intake, DrEntry *entry, DrEvent *event, Row *row)
{
	const Datum *earlier;
	const bool *nulls;

	if (!dr_rivals_beaten(intake->rivals, intake->snapshot, event,
						  row->values + intake->first_event, row->nulls + intake->first_event))
		return;
	earlier = dr_rivals_earlier(intake->rivals, &nulls);
	dr_tally_read(intake->tally, earlier, nulls, intake->earlier);
	entry->again = !dr_tally_replace(intake->tally, intake->table, entry,
									 intake->earlier, intake->row);
	set_place(intake, entry, event, row);
}

static void
add_row(DrIntake *intake, DrEntry *entry, Row *row)
{
	DrKeyTable *table = intake->table;
	DrEvent    *event;
	bool		found;

	if (entry->again)
		return;
	dr_tally_read(intake->tally, row->values + intake->first_event,
				  row->nulls + intake->first_event, intake->row);
	if (intake->rivals != NULL)
	{
		event = dr_keytable_event(table, entry, instant_of(intake, row), &found);
		if (found)
		{
			settle_duplicate(intake, entry, event, row);
			return;
		}
		set_place(intake, entry, event, row);
	}
	if (intake->row->counts)
		dr_tally_add(intake->tally, table, entry, intake->row);
}

/* Write each row to the part of its key. */
static void
split_batch(DrIntake *intake)
{
	for (int i = 0; i < intake->nrows; i++)
	{
		Row		   *row = &intake->rows[i];
		uint32		part = row->key.hash >> (32 - DR_INTAKE_PART_BITS * (intake->level + 1));

		tuplestore_putvalues(intake->parts[part & (DR_INTAKE_PARTS - 1)], intake->desc,
							 row->values, row->nulls);
	}
}

/* Find who may be the rows' entries, and have them fetched, with the events
 * that were seen last. */
static void
find_candidates(DrIntake *intake)
{
	int			n = intake->nrows;

	for (int i = 0; i < n; i++)
		dr_keytable_prefetch(intake->table, intake->rows[i].key.hash);
	for (int i = 0; i < n; i++)
	{
		Row		   *row = &intake->rows[i];

		row->candidate = dr_keytable_candidate(intake->table, row->key.hash);
	}
	for (int i = 0; i < n; i++)
		if (intake->rows[i].candidate != NULL && intake->rows[i].candidate->events != NULL)
			dr_prefetch(intake->rows[i].candidate->events);
}

static DrEntry *
entry_of(DrIntake *intake, const Row *row)
{
	if (dr_keytable_is(row->candidate, &row->key))
		return row->candidate;
	return dr_keytable_enter(intake->table, &row->key);
}

/* Add the rows of the batch, or split them. */
static void
add_batch(DrIntake *intake)
{
	MemoryContext before = MemoryContextSwitchTo(intake->room.beyond);

	if (intake->table == NULL)
		split_batch(intake);
	else
	{
		find_candidates(intake);
		for (int i = 0; i < intake->nrows && !intake->overflows; i++)
		{
			add_row(intake, entry_of(intake, &intake->rows[i]), &intake->rows[i]);
			dr_tally_relieve(intake->tally);
			intake->overflows = !dr_intake_is_room(intake, intake->table);
		}
	}
	MemoryContextSwitchTo(before);
	end_batch(intake);
}

/* Does the row matter?  Its key is found, then.  A row that WHERE leaves out has
 * none, but where it is needed to tell duplicates. */
static bool
find_key(DrIntake *intake, Row *row)
{
	const Datum *event = row->values + intake->first_event;
	const bool *nulls = row->nulls + intake->first_event;
	MemoryContext before = MemoryContextSwitchTo(intake->room.beyond);
	bool		matters = false;

	if (intake->rivals != NULL || dr_tally_counts(intake->tally, event, nulls, intake->row))
	{
		dr_tally_read_key(intake->tally, event, nulls, intake->row);
		matters = make_key(intake, intake->row->values, intake->row->nulls, false, &row->key);
	}
	MemoryContextSwitchTo(before);
	return matters;
}

/* Keep the row's values to the end of the batch. */
static void
keep_values(DrIntake *intake, Row *row)
{
	for (int i = 0; i < intake->nreferences; i++)
	{
		int			n = intake->references[i];
		int			typlen = intake->kinds[n].typlen;
		char	   *value = DatumGetPointer(row->values[n]);
		Size		size;
		char	   *copy;

		if (row->nulls[n])
			continue;
		size = typlen == -1 ? VARSIZE_ANY(value) :
			datumGetSize(PointerGetDatum(value), false, typlen);
		copy = dr_room_allocate(&intake->room, size);
		memcpy(copy, value, size);
		row->values[n] = PointerGetDatum(copy);
	}
}

/* The row that was read last is kept, or not; false where memory does not
 * suffice. */
static bool
take_row(DrIntake *intake, Row *row, bool matters)
{
	if (matters)
	{
		keep_values(intake, row);
		intake->nrows++;
	}
	else
		dr_tally_relieve(intake->tally);
	if (intake->nrows == BATCH_ROWS || dr_room_is_full(&intake->room))
		add_batch(intake);
	return !intake->overflows;
}

/* A row of the scan, or of a part; false where memory does not suffice. */
bool
dr_intake_take(DrIntake *intake, TupleTableSlot *slot)
{
	Row		   *row = &intake->rows[intake->nrows];

	dr_layout_read_all(intake->layout, slot, row->values, row->nulls);
	return take_row(intake, row, find_key(intake, row));
}

/* The same, of a row as the source stores it, which its slot points to. */
bool
dr_intake_take_stored(DrIntake *intake, TupleTableSlot *slot)
{
	Row		   *row = &intake->rows[intake->nrows];
	bool		all = intake->half == DR_INTAKE_ALL;
	bool		matters;

	if (all)
		dr_layout_read_stored(intake->layout, slot, row->values, row->nulls);
	else
		dr_layout_read_early(intake->layout, slot, row->values, row->nulls);
	matters = find_key(intake, row);
	if (matters && !all)
		dr_layout_read_stored(intake->layout, slot, row->values, row->nulls);
	return take_row(intake, row, matters);
}

/* The rest of them; false likewise. */
bool
dr_intake_finish(DrIntake *intake)
{
	if (intake->nrows > 0 && !intake->overflows)
		add_batch(intake);
	return !intake->overflows;
}

/*
 * Where the rows that come from now on go: to the entries of a table, or (NULL)
 * to DR_INTAKE_PARTS parts, by bits of their keys' hashes that "level" splits
 * before did not look at.  Rows that were not finished are forgotten.
 */
void
dr_intake_aim(DrIntake *intake, DrKeyTable *table, Tuplestorestate **parts, int level)
{
	end_batch(intake);
	intake->table = table;
	intake->parts = parts;
	intake->level = level;
	intake->overflows = false;
}

/* From now on rows of that half of the keys alone (0 or 1) are looked at, of
 * which each has about as many as the other; or of all. */
void
dr_intake_halve(DrIntake *intake, int half)
{
	intake->half = half;
}

bool
dr_intake_looks_at(const DrIntake *intake, const DrEntry *entry)
{
	return is_looked_at(intake, entry->key.hash);
}

/* The values of an entry's key; they point into the entry. */
void
dr_intake_read_key(const DrIntake *intake, const DrEntry *entry, Datum *values, bool *nulls)
{
	dr_pack_read(entry->key.image, intake->key_kinds, intake->def->nkeys, values, nulls);
}

/* The row of an entry, a value for each column of the query. */
void
dr_intake_read_row(const DrIntake *intake, const DrEntry *entry, Datum *values, bool *nulls)
{
	const DrDefinition *def = intake->def;
	Datum		keys[INDEX_MAX_KEYS];
	bool		key_nulls[INDEX_MAX_KEYS];

	dr_intake_read_key(intake, entry, keys, key_nulls);
	for (int i = 0; i < def->nkeys; i++)
	{
		values[def->keys[i]] = keys[i];
		nulls[def->keys[i]] = key_nulls[i];
	}
	dr_tally_result(intake->tally, entry, values, nulls);
}

/* Its memory is that of the caller. */
void
dr_intake_end(DrIntake *intake)
{
	dr_intake_leave_source(intake);
	dr_tally_end(intake->tally);
}
