/*
 * heal.c
 *		The late keys of a refresh: recomputed from their history, or, where
 *		late rows are all that has come to a key, these rows merged.
 *
 * A recompute costs what the key's history does.  To merge a late row costs the
 * same whatever lies behind it.  It is right where the stored row of the key
 * has not got the late row already, and lacks nothing else:
 *
 *	(a)	The row's time lay before W when it was written (late.c sees to that), in
 *		the epoch of the content: since then only folds have changed it, which
 *		read no row before their W, and heals, which took the marks they could
 *		see.
 *	(b)	No mark of the key asks for more: one of an update, a delete, an attached
 *		partition, or one that is no such row's.  A recompute replaces what is
 *		stored, and has the late rows in it.
 *	(c)	With deduplication: of the row's event the source holds as many rows as
 *		there are marks, so it has none from before.
 *
 * Marks and source are read by one snapshot: a row is seen exactly where its
 * mark is.  It is older than the plans, so a partition that comes while they are made
 * has its marks left.  Of keys of which all that is not so, each is recomputed.
 *
 * The caller works as the rollup's owner, is connected to SPI, and may write to
 * the table.
 */
#include "heal.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "executor/tstoreReceiver.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

#include "boundary.h"
#include "debug.h"
#include "duplicates.h"
#include "folding.h"
#include "guc.h"
#include "locks.h"
#include "objects.h"
#include "plans.h"
#include "query.h"
#include "phrase.h"

typedef struct Heal
{
	const DrRollup *rollup;
	const DrDefinition *def;
	Oid			table;
	char		dirties;		/* the marks that are taken */
	Datum		boundary;
	bool		deduplicate;
	Snapshot	snapshot;		/* of marks and source */

	/* $1 .. $3: the epoch, the first and the last time of the late rows */
	Oid			types[3];
	Datum		values[3];

	Tuplestorestate *added;		/* late rows that may be merged */
	int64		nadded;
	Tuplestorestate *waiting;	/* keys that are to be recomputed */
} Heal;

static void
begin_reading(Heal *heal)
{
	CommandCounterIncrement();
	heal->snapshot = RegisterSnapshot(GetLatestSnapshot());
	dr_locks_know_partitions(heal->rollup->source);
}

static void
end_reading(Heal *heal)
{
	UnregisterSnapshot(heal->snapshot);
}

/* ------------------------------------------------------------------ by parts */

/* Run a SELECT by the active snapshot; its rows go to the tuplestore, or to
 * SPI_tuptable. */
static void
read_rows(const Heal *heal, const char *sql, int nparams, Tuplestorestate *rows)
{
	SPIExecuteOptions options = {
		.params = dr_boundary_params(nparams, heal->types, heal->values),
		.read_only = true
	};

	if (rows != NULL)
	{
		options.dest = CreateDestReceiver(DestTuplestore);
		SetTuplestoreDestReceiverParams(options.dest, rows, CurrentMemoryContext, true,
										NULL, NULL);
	}
	if (SPI_execute_extended(sql, &options) < 0)
		elog(ERROR, "could not execute \"%s\"", sql);
	if (rows != NULL)
		options.dest->rDestroy(options.dest);
}

/* Run a statement by the heal's snapshot. */
static void
write_rows(const Heal *heal, const char *sql, int nparams, Oid *types, Datum *values)
{
	dr_plans_run(sql, heal->snapshot, nparams, types, values, NULL);
}

static int64
result(int column)
{
	bool		isnull;

	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
									   column, &isnull));
}

/* k1 .. kn, and e1 .. en where "events" */
static TupleDesc
desc_of(const DrDefinition *def, bool events)
{
	int			n = def->nkeys + (events ? def->nevents : 0);
	TupleDesc	desc = CreateTemplateTupleDesc(n);

	for (int i = 0; i < n; i++)
	{
		bool		is_key = i < def->nkeys;
		const DrColumn *key = is_key ? dr_phrase_key(def, i) : NULL;
		const DrEventColumn *event = is_key ? NULL : &def->events[i - def->nkeys];

		TupleDescInitEntry(desc, i + 1,
						   psprintf("%c%d", is_key ? 'k' : 'e', is_key ? i + 1 : i - def->nkeys + 1),
						   is_key ? key->type : event->type,
						   is_key ? key->typmod : event->typmod, 0);
		TupleDescInitEntryCollation(desc, i + 1, is_key ? key->collation : event->collation);
	}
	return desc;
}

/* How many late rows may be merged?  Theirs are the parameters, too. */
static int64
count_added(Heal *heal)
{
	bool		isnull;

	read_rows(heal, dr_query_added_times(heal->def, heal->rollup, heal->deduplicate), 1, NULL);
	for (int i = 1; i < 3; i++)
		heal->values[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1,
										&isnull);
	return result(1);
}

/* Read which rows are merged, and which keys are recomputed. */
static void
read_marks(Heal *heal)
{
	const DrDefinition *def = heal->def;

	heal->added = tuplestore_begin_heap(true, false, work_mem);
	read_rows(heal, dr_query_added(def, heal->rollup, heal->deduplicate), 1, heal->added);
	dr_plans_register(DR_QUERY_ADDED, desc_of(def, true), heal->added, heal->nadded);

	heal->waiting = tuplestore_begin_heap(true, false, work_mem);
	read_rows(heal, dr_query_waiting(def, heal->rollup, heal->dirties, heal->deduplicate),
			  heal->deduplicate ? 3 : 1, heal->waiting);
	dr_plans_register(DR_QUERY_WAITING, desc_of(def, false), heal->waiting,
					  tuplestore_tuple_count(heal->waiting));
}

static void
forget_marks_read(Heal *heal)
{
	if (SPI_unregister_relation(DR_QUERY_ADDED) != SPI_OK_REL_UNREGISTER ||
		SPI_unregister_relation(DR_QUERY_WAITING) != SPI_OK_REL_UNREGISTER)
		elog(ERROR, "could not unregister the late rows");
	tuplestore_end(heal->added);
	tuplestore_end(heal->waiting);
}

/*
 * Merge, recompute, and take the marks; false, and nothing is done, where the marks
 * that are there may be others than those that were read: code of the owner's, of
 * an index of the source, say, has written something meanwhile, late rows perhaps.
 */
static bool
heal_by_parts(Heal *heal, uint64 *nkeys)
{
	const DrDefinition *def = heal->def;
	Oid			time = heal->types[1];
	CommandId	command = GetCurrentCommandId(false);
	uint64		keys;

	read_marks(heal);
	CommandCounterIncrement();
	if (GetCurrentCommandId(false) != command)
	{
		forget_marks_read(heal);
		return false;
	}
	read_rows(heal, dr_query_count_added(def), 0, NULL);
	keys = result(1);

	/* before anything is written: a trigger of the table may write late rows */
	write_rows(heal, dr_query_forget_marks(heal->rollup, heal->dirties), 0, NULL, NULL);
	DR_WAITPOINT("heal-marks-taken");
	if (tuplestore_tuple_count(heal->waiting) > 0)
		write_rows(heal, dr_query_recompute_waiting(def, heal->rollup, heal->table, "$1"),
				   1, &time, &heal->boundary);
	DR_WAITPOINT("heal-recomputed");
	write_rows(heal, dr_query_merge_added(def, heal->rollup, heal->table, heal->deduplicate),
			   0, NULL, NULL);
	elog(DEBUG1, "dailyrollup: " INT64_FORMAT " late rows may be merged; " INT64_FORMAT " of "
		 UINT64_FORMAT " late keys were recomputed", heal->nadded,
		 tuplestore_tuple_count(heal->waiting), keys);
	forget_marks_read(heal);
	*nkeys = keys;
	return true;
}

/* ------------------------------------------------------------------- at once */

/* Recompute each marked key, by one statement; returns the number of keys. */
static uint64
recompute(Heal *heal)
{
	char	   *sql = dr_query_recompute(heal->def, heal->rollup, heal->table, heal->dirties, "$1");

	begin_reading(heal);
	write_rows(heal, sql, 1, &heal->types[1], &heal->boundary);
	end_reading(heal);
	return result(1);
}

/*
 * Can late rows be merged at all?  Not where a mark holds none; nor where one may
 * have the time of a NULL that is stored as a constant (a fold's rows have later
 * times than any stored one); nor where the table may refuse, or change, what late
 * rows alone give a key that it has: the statement that merges them proposes that
 * first.
 */
static bool
can_merge(const DrDefinition *def, Oid table)
{
	LockRelationOid(table, RowExclusiveLock);
	return dr_guc_fold_method != DR_FOLD_STATEMENT &&
		dr_objects_mark_holds_event(def) &&
		!(dr_folding_is_blind_at_ties(def) && dr_duplicates_may_tie(def)) &&
		dr_folding_takes_any(def, table);
}

static Heal
make_heal(const DrRollup *rollup, const DrDefinition *def, Oid table, char dirties,
		  Datum boundary)
{
	Oid			time = dr_boundary_type(def->time_kind);

	return (Heal)
	{
		.rollup = rollup,
		.def = def,
		.table = table,
		.dirties = dirties,
		.boundary = boundary,
		.deduplicate = dr_duplicates_are_possible(def),
		.types = {INT8OID, time, time},
		.values = {Int64GetDatum(rollup->epoch)}
	};
}

/*
 * Bring the table's rows of the marked keys, of marks of that kind, to what the
 * source gives them before "boundary", a value of the time column's type.
 * Returns the number of keys.
 */
uint64
dr_heal_marked_keys(const DrRollup *rollup, const DrDefinition *def, Oid table, char dirties,
					Datum boundary)
{
	Heal		heal = make_heal(rollup, def, table, dirties, boundary);
	uint64		keys = 0;
	bool		done = false;

	if (!can_merge(def, table))
		return recompute(&heal);

	begin_reading(&heal);
	PushActiveSnapshot(heal.snapshot);
	heal.nadded = count_added(&heal);
	if (heal.nadded > 0)
		done = heal_by_parts(&heal, &keys);
	PopActiveSnapshot();
	end_reading(&heal);
	return done ? keys : recompute(&heal);
}

/* The same of a table that is not the one whose epoch the marks know: each of the
 * keys is recomputed. */
void
dr_heal_recompute(const DrRollup *rollup, const DrDefinition *def, Oid table, char dirties,
				  Datum boundary)
{
	Heal		heal = make_heal(rollup, def, table, dirties, boundary);

	(void) recompute(&heal);
}
