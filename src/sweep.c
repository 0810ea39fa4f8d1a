/*
 * sweep.c
 *		Passes over rows of the source, within the memory that there is.
 *
 * Memory is bounded as that of the server's hash aggregation.  Where a pass
 * needs more it is begun anew: its rows are written to files, each of which has
 * a part of the keys, by their hash; and each file is passed over for itself.
 */
#include "sweep.h"

#include "executor/tuptable.h"
#include "miscadmin.h"

#define MAX_LEVEL		4

/* Kilobytes of a part that are kept in memory. */
#define PART_MEMORY		32

typedef struct Pass
{
	int			level;			/* how often its rows were split before */
	DrKeyTable *table;			/* NULL: rows are split */
	Tuplestorestate *parts[DR_INTAKE_PARTS];
} Pass;

/* ------------------------------------------------------------------ outcome */

void
dr_sweep_begin(DrSwept *result)
{
	memset(result, 0, sizeof(DrSwept));
	result->rows = tuplestore_begin_heap(false, false, work_mem);
	result->again = tuplestore_begin_heap(true, false, work_mem);
}

void
dr_sweep_end(DrSwept *result)
{
	tuplestore_end(result->rows);
	tuplestore_end(result->again);
}

void
dr_sweep_append_row(const DrIntake *intake, DrSwept *result, Datum *values, bool *nulls)
{
	tuplestore_putvalues(result->rows, dr_intake_row_desc(intake), values, nulls);
	result->nrows++;
}

/* A key that is to be computed again. */
void
dr_sweep_append_again(const DrIntake *intake, DrSwept *result, Datum *keys, bool *nulls)
{
	tuplestore_putvalues(result->again, dr_intake_key_desc(intake), keys, nulls);
	result->nagain++;
}

/* A key's row, or the key, where it is to be computed again. */
void
dr_sweep_append(const DrIntake *intake, DrSwept *result, const DrEntry *entry)
{
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	if (entry->again)
	{
		dr_intake_read_key(intake, entry, values, nulls);
		dr_sweep_append_again(intake, result, values, nulls);
	}
	else if (entry->counted > 0)
	{
		dr_intake_read_row(intake, entry, values, nulls);
		dr_sweep_append_row(intake, result, values, nulls);
	}
}

static void
append_table(const DrIntake *intake, DrSwept *result, DrKeyTable *table)
{
	for (DrEntry *entry = dr_keytable_first(table); entry != NULL; entry = entry->next)
		dr_sweep_append(intake, result, entry);
}

/* ------------------------------------------------------------------- passes */

static void
read_part(DrSweep *sweep, Tuplestorestate *part)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(dr_intake_desc(sweep->intake),
													&TTSOpsMinimalTuple);

	tuplestore_rescan(part);
	while (tuplestore_gettupleslot(part, true, false, slot) &&
		   dr_intake_take(sweep->intake, slot))
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

/* One pass over a part, or all rows; NULL where memory does not suffice. */
static Pass *
try_pass(DrSweep *sweep, Tuplestorestate *part, int level, bool split)
{
	MemoryContext before = MemoryContextSwitchTo(sweep->context);
	Pass	   *pass = palloc0(sizeof(Pass));

	pass->level = level;
	if (split)
		for (int i = 0; i < DR_INTAKE_PARTS; i++)
			pass->parts[i] = tuplestore_begin_heap(true, false, PART_MEMORY);
	else
		pass->table = dr_keytable_create(sweep->context, dr_tally_state_size(dr_intake_tally(sweep->intake)));
	MemoryContextSwitchTo(before);
	dr_intake_aim(sweep->intake, pass->table, pass->parts, level);
	sweep->table = pass->table;

	if (part != NULL)
		read_part(sweep, part);
	else
		sweep->scan(sweep->arg);
	if (dr_intake_finish(sweep->intake))
		return pass;
	forget_pass(pass);
	return NULL;
}

static bool pass_over(DrSweep *sweep, Tuplestorestate *part, int level, DrKeyTable **whole,
					  DrSwept *result);

/* Append what comes of the parts of a split pass. */
static bool
pass_over_parts(DrSweep *sweep, Pass *pass, DrSwept *result)
{
	for (int i = 0; i < DR_INTAKE_PARTS; i++)
	{
		DrKeyTable *table;

		if (!pass_over(sweep, pass->parts[i], pass->level + 1, &table, result))
			return false;
		if (table != NULL)
		{
			append_table(sweep->intake, result, table);
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
pass_over(DrSweep *sweep, Tuplestorestate *part, int level, DrKeyTable **whole,
		  DrSwept *result)
{
	Pass	   *pass = try_pass(sweep, part, level, false);
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
	pass = try_pass(sweep, part, level, true);
	done = pass_over_parts(sweep, pass, result);
	forget_pass(pass);
	return done;
}

/*
 * Pass over all rows; what comes of it is added to the result.  False where a
 * few keys need more memory than there is.
 */
bool
dr_sweep_run(DrSweep *sweep, DrSwept *result)
{
	return pass_over(sweep, NULL, 0, &result->whole, result);
}
