/*
 * tally.c
 *		The measures of one key, while rows are added to them.
 *
 *		count				a number
 *		latest, earliest	the winner, decided as the aggregates do
 *		all others			the value that the aggregate's own transition
 *							function gives
 *
 * Beyond what an aggregate can do, a row may take the place of another one of
 * the same event: exactly that, or not at all where what is left of the rows
 * does not tell.
 */
#include "tally.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "utils/datum.h"
#include "utils/memutils.h"

#include "compat.h"

/* Bytes that a batch may leave until its end. */
#define MUCH		(1024 * 1024)

Size
dr_tally_state_size(const DrTally *tally)
{
	return tally->state_size;
}

/* ---------------------------------------------------------------- the rows */

DrTallyRow *
dr_tally_make_row(const DrTally *tally)
{
	DrTallyRow *row = palloc0(sizeof(DrTallyRow));

	row->values = palloc0(tally->ninputs * sizeof(Datum));
	row->nulls = palloc0(tally->ninputs * sizeof(bool));
	return row;
}

/* Show the event to expressions. */
static void
show_event(DrTally *tally, const Datum *event, const bool *nulls)
{
	int			n = tally->def->nevents;

	ExecClearTuple(tally->slot);
	memcpy(tally->slot->tts_values, event, n * sizeof(Datum));
	memcpy(tally->slot->tts_isnull, nulls, n * sizeof(bool));
	ExecStoreVirtualTuple(tally->slot);
}

/* Evaluate an expression over the event that is shown. */
static void
evaluate(DrTally *tally, int i, DrTallyRow *row)
{
	row->values[i] = ExecEvalExprSwitchContext(tally->inputs[i].state, tally->econtext,
											   &row->nulls[i]);
}

/* Evaluate the first inputs for an event. */
static void
read_inputs(DrTally *tally, const Datum *event, const bool *nulls, int n, DrTallyRow *row)
{
	bool		shown = false;

	for (int i = 0; i < n; i++)
	{
		const DrInput *input = &tally->inputs[i];

		if (input->event >= 0)
		{
			row->values[i] = event[input->event];
			row->nulls[i] = nulls[input->event];
			continue;
		}
		if (!shown)
			show_event(tally, event, nulls);
		shown = true;
		evaluate(tally, i, row);
	}
}

/* The key of an event, to be used before anything else is read or forgotten. */
void
dr_tally_read_key(DrTally *tally, const Datum *event, const bool *nulls, DrTallyRow *row)
{
	read_inputs(tally, event, nulls, tally->def->nkeys, row);
}

static inline bool
holds(const DrTallyRow *row, int condition)
{
	return condition < 0 ||
		(!row->nulls[condition] && DatumGetBool(row->values[condition]));
}

/* An input of a guarded definition, where it has not been read. */
static void
read_input(DrTally *tally, int i, bool *read, DrTallyRow *row)
{
	if (i < 0 || read[i])
		return;
	read[i] = true;
	if (tally->inputs[i].event >= 0)
	{
		row->values[i] = tally->slot->tts_values[tally->inputs[i].event];
		row->nulls[i] = tally->slot->tts_isnull[tally->inputs[i].event];
	}
	else
		evaluate(tally, i, row);
}

/* Each condition before what it guards. */
static void
read_guarded(DrTally *tally, const Datum *event, const bool *nulls, DrTallyRow *row)
{
	bool		read[MaxTupleAttributeNumber * 3 + 1];

	memset(read, 0, tally->ninputs * sizeof(bool));
	show_event(tally, event, nulls);
	read_input(tally, tally->where, read, row);
	row->counts = holds(row, tally->where);
	for (int i = 0; row->counts && i < tally->nmeasures; i++)
	{
		const DrMeasure *measure = &tally->measures[i];

		read_input(tally, measure->filter, read, row);
		if (!holds(row, measure->filter))
			continue;
		read_input(tally, measure->arg, read, row);
		read_input(tally, measure->at, read, row);
	}
}

/* Does the WHERE let an event pass?  The row is used for it alone. */
bool
dr_tally_counts(DrTally *tally, const Datum *event, const bool *nulls, DrTallyRow *row)
{
	bool		read[MaxTupleAttributeNumber * 3 + 1];

	if (tally->where < 0)
		return true;
	read[tally->where] = false;
	show_event(tally, event, nulls);
	read_input(tally, tally->where, read, row);
	return holds(row, tally->where);
}

/* What the measures need of an event; it lives until dr_tally_forget. */
void
dr_tally_read(DrTally *tally, const Datum *event, const bool *nulls, DrTallyRow *row)
{
	if (tally->guarded)
	{
		read_guarded(tally, event, nulls, row);
		return;
	}
	read_inputs(tally, event, nulls, tally->ninputs, row);
	row->counts = holds(row, tally->where);
}

void
dr_tally_forget(DrTally *tally)
{
	ResetExprContext(tally->econtext);
}

/* The same, in the midst of a batch, where much has come together: values that
 * are stored out of line, and were read. */
void
dr_tally_relieve(DrTally *tally)
{
	if (MemoryContextMemAllocated(tally->econtext->ecxt_per_tuple_memory, false) > MUCH)
		dr_tally_forget(tally);
}

/* -------------------------------------------------------------- the states */

/*
 * A copy that lives as long as the table, in the room that the value before it
 * had if that is large enough.
 */
static Datum
keep(DrKeyTable *table, const DrKind *kept, Datum datum, Datum before, uint32 *room)
{
	char	   *data = DatumGetPointer(before);
	Size		size;

	if (kept->typbyval)
		return datum;
	if (kept->typlen == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(datum)))
		datum = PointerGetDatum(detoast_external_attr((struct varlena *) DatumGetPointer(datum)));
	size = datumGetSize(datum, false, kept->typlen);
	if (*room < size)
	{
		*room = MAXALIGN(size + size / 4);
		data = dr_keytable_allocate(table, *room);
	}
	memcpy(data, DatumGetPointer(datum), size);
	return PointerGetDatum(data);
}

static void
set_value(DrKeyTable *table, const DrMeasure *measure, DrValueState *state, Datum value)
{
	if (state->has && !measure->value.typbyval && value == state->value)
		return;
	state->value = keep(table, &measure->value, value, state->value, &state->room);
	state->has = true;
}

/* As the server's aggregates do it: a strict function starts with the first
 * value; one that is not gets NULLs, too. */
static void
call_step(DrKeyTable *table, DrMeasure *measure, DrValueState *state, Datum arg)
{
	LOCAL_FCINFO(fcinfo, 2);
	Datum		result;

	if (measure->convert != NULL)
		arg = DirectFunctionCall1(measure->convert, arg);
	if (!state->has && measure->step.fn_strict)
	{
		set_value(table, measure, state, arg);
		return;
	}
	InitFunctionCallInfoData(*fcinfo, &measure->step, 2, measure->collation, NULL, NULL);
	fcinfo->args[0].value = state->value;
	fcinfo->args[0].isnull = !state->has;
	fcinfo->args[1].value = arg;
	fcinfo->args[1].isnull = false;
	result = FunctionCallInvoke(fcinfo);
	if (!fcinfo->isnull)
		set_value(table, measure, state, result);
}

static void
crown(DrKeyTable *table, const DrMeasure *measure, DrWinnerState *state, const DrEntrant *row)
{
	state->row.at = keep(table, &measure->time, row->at, state->row.at, &state->at_room);
	if (!row->value_isnull)
		state->row.value = keep(table, &measure->value, row->value, state->row.value,
								&state->value_room);
	state->row.value_isnull = row->value_isnull;
	state->has = true;
}

static void
compete(DrKeyTable *table, DrMeasure *measure, DrWinnerState *state, const DrEntrant *row)
{
	if (!row->at_isnull &&
		(!state->has || dr_aggregates_wins(measure->contest, row, &state->row)))
		crown(table, measure, state, row);
}

static DrEntrant
entrant_of(const DrMeasure *measure, const DrTallyRow *row)
{
	DrEntrant	entrant = {
		.value = row->values[measure->arg],
		.value_isnull = row->nulls[measure->arg],
		.at = row->values[measure->at],
		.at_isnull = row->nulls[measure->at]
	};

	return entrant;
}

/* Does the row change the measure at all?  (No aggregate used here takes notice
 * of a NULL, but for the value of latest and earliest.) */
static inline bool
notices(const DrMeasure *measure, const DrTallyRow *row)
{
	if (!holds(row, measure->filter))
		return false;
	if (measure->rule == RULE_WINNER)
		return !row->nulls[measure->at];
	return measure->arg < 0 || !row->nulls[measure->arg];
}

static void
add_to(DrKeyTable *table, DrMeasure *measure, char *states, const DrTallyRow *row)
{
	void	   *state = states + measure->offset;
	DrValueState	   *value = state;
	DrEntrant	entrant;

	switch (measure->rule)
	{
		case RULE_COUNT:
			(*(int64 *) state)++;
			break;
		case RULE_LARGER_INT64:
			if (!value->has ||
				DatumGetInt64(row->values[measure->arg]) > DatumGetInt64(value->value))
				value->value = row->values[measure->arg];
			value->has = true;
			break;
		case RULE_SMALLER_INT64:
			if (!value->has ||
				DatumGetInt64(row->values[measure->arg]) < DatumGetInt64(value->value))
				value->value = row->values[measure->arg];
			value->has = true;
			break;
		case RULE_CALL:
			call_step(table, measure, value, row->values[measure->arg]);
			break;
		case RULE_WINNER:
			entrant = entrant_of(measure, row);
			compete(table, measure, state, &entrant);
			break;
		case RULE_SAME:
		case RULE_TIME_OF:
			break;
	}
}

/* What is computed on the way goes with dr_tally_forget. */
static MemoryContext
enter_memory(DrTally *tally)
{
	return MemoryContextSwitchTo(tally->econtext->ecxt_per_tuple_memory);
}

/* Add a row that counts. */
void
dr_tally_add(DrTally *tally, DrKeyTable *table, DrEntry *entry, const DrTallyRow *row)
{
	char	   *states = dr_keytable_state(entry);
	MemoryContext before = enter_memory(tally);

	for (int i = 0; i < tally->nmeasures; i++)
	{
		DrMeasure    *measure = &tally->measures[i];

		if (measure->rule < RULE_SAME && notices(measure, row))
			add_to(table, measure, states, row);
	}
	entry->counted++;
	MemoryContextSwitchTo(before);
}

/* ------------------------------------------------------------- replacement */

static bool
is_same_input(const DrKind *kept, const DrTallyRow *a, const DrTallyRow *b, int input)
{
	if (a->nulls[input] || b->nulls[input])
		return a->nulls[input] && b->nulls[input];
	return datum_image_eq(a->values[input], b->values[input], kept->typbyval, kept->typlen);
}

/* May the old row be the winner, as far as its time tells? */
static bool
may_have_won(const DrMeasure *measure, const DrWinnerState *state, const DrTallyRow *old)
{
	return datum_image_eq(state->row.at, old->values[measure->at],
						  measure->time.typbyval, measure->time.typlen);
}

static bool
replace_winner(DrKeyTable *table, DrMeasure *measure, DrWinnerState *state,
			   const DrTallyRow *old, const DrTallyRow *row, bool noticed, bool notice)
{
	DrEntrant	entrant = entrant_of(measure, row);

	if (noticed && notice &&
		is_same_input(&measure->given, old, row, measure->arg) &&
		is_same_input(&measure->time, old, row, measure->at))
		return true;
	if (noticed && may_have_won(measure, state, old))
	{
		/* no other event of the key has this time: the winner is the old row */
		if (!measure->by_time || !notice)
			return false;
		crown(table, measure, state, &entrant);
		return true;
	}
	if (notice)
		compete(table, measure, state, &entrant);
	return true;
}

static bool
replace_in(DrKeyTable *table, DrMeasure *measure, char *states,
		   const DrTallyRow *old, const DrTallyRow *row)
{
	void	   *state = states + measure->offset;
	bool		noticed = old->counts && notices(measure, old);
	bool		notice = row->counts && notices(measure, row);

	if (measure->rule >= RULE_SAME || (!noticed && !notice))
		return true;
	if (measure->rule == RULE_COUNT)
	{
		*(int64 *) state += notice - noticed;
		return true;
	}
	if (measure->rule == RULE_WINNER)
		return replace_winner(table, measure, state, old, row, noticed, notice);
	if (noticed)
		return notice && is_same_input(&measure->given, old, row, measure->arg);
	add_to(table, measure, states, row);
	return true;
}

/*
 * A row takes the place of another row of its event.  False where that cannot
 * be done: the state is void then.
 */
bool
dr_tally_replace(DrTally *tally, DrKeyTable *table, DrEntry *entry,
				 const DrTallyRow *old, const DrTallyRow *row)
{
	char	   *states = dr_keytable_state(entry);
	MemoryContext before = enter_memory(tally);
	bool		done = true;

	entry->counted += row->counts - old->counts;
	for (int i = 0; done && i < tally->nmeasures; i++)
		done = replace_in(table, &tally->measures[i], states, old, row);
	MemoryContextSwitchTo(before);
	return done;
}

/* ------------------------------------------------------------ stored values */

/* Has the stored row a value of that measure, or only the constant that stands
 * for none? */
static bool
is_present(const DrDefinition *def, const DrColumn *column, const Datum *stored,
		   const bool *nulls)
{
	const DrColumn *presence;

	if (nulls[column - def->columns])
		return false;
	if (column->otherwise == NULL || column->presence < 0)
		return true;
	presence = &def->columns[column->presence];
	if (nulls[column->presence])
		return false;
	return presence->kind != DR_COUNT || DatumGetInt64(stored[column->presence]) > 0;
}

static void
merge_in(const DrDefinition *def, DrKeyTable *table, DrMeasure *measure, char *states,
		 const Datum *stored, const bool *nulls)
{
	const DrColumn *column = measure->column;
	Datum		value = stored[column - def->columns];
	bool		present = is_present(def, column, stored, nulls);
	void	   *state = states + measure->offset;
	DrValueState	   *known = state;

	if (measure->rule >= RULE_SAME)
		return;
	if (measure->rule == RULE_WINNER)
	{
		DrEntrant	entrant = {
			.value = value,
			.value_isnull = !present,
			.at = stored[column->at_column],
			.at_isnull = nulls[column->at_column]
		};

		compete(table, measure, state, &entrant);
	}
	else if (!present)
		return;
	else if (measure->rule == RULE_COUNT)
		*(int64 *) state += DatumGetInt64(value);
	else
		set_value(table, measure, known, !known->has ? value :
				  FunctionCall2Coll(&measure->combine, measure->collation,
									value, known->value));
}

/* Merge a row of the rollup's table: a value for each column of the query. */
void
dr_tally_merge(DrTally *tally, DrKeyTable *table, DrEntry *entry,
			   const Datum *stored, const bool *nulls)
{
	MemoryContext before = enter_memory(tally);

	for (int i = 0; i < tally->nmeasures; i++)
		merge_in(tally->def, table, &tally->measures[i], dr_keytable_state(entry),
				 stored, nulls);
	MemoryContextSwitchTo(before);
}

static Datum
result_of(const DrMeasure *measure, const char *states, bool *isnull)
{
	const void *state;
	const DrWinnerState *winner;
	const DrValueState *value;

	if (measure->rule == RULE_SAME)
		return result_of(measure->other, states, isnull);
	state = states + (measure->rule == RULE_TIME_OF ? measure->other : measure)->offset;
	winner = state;
	value = state;
	if (measure->rule == RULE_TIME_OF)
	{
		*isnull = !winner->has;
		return winner->row.at;
	}

	if (measure->rule == RULE_COUNT)
	{
		*isnull = false;
		return Int64GetDatum(*(const int64 *) state);
	}
	if (measure->rule == RULE_WINNER)
	{
		*isnull = !winner->has || winner->row.value_isnull;
		return winner->row.value;
	}
	*isnull = !value->has;
	return value->value;
}

/* The measures' values, at the places of their columns. */
void
dr_tally_result(const DrTally *tally, const DrEntry *entry, Datum *values, bool *nulls)
{
	for (int i = 0; i < tally->nmeasures; i++)
	{
		const DrMeasure *measure = &tally->measures[i];
		const DrColumn *column = measure->column;
		int			n = column - tally->def->columns;

		values[n] = result_of(measure, dr_keytable_state(entry), &nulls[n]);
		if (nulls[n] && column->otherwise != NULL)
		{
			values[n] = column->otherwise->constvalue;
			nulls[n] = false;
		}
	}
}
