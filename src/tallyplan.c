/*
 * tallyplan.c
 *		How the measures of a definition are computed row by row.
 *
 * Arguments and filters that several measures share are evaluated once a row;
 * a bare column is not evaluated at all, nor is what a condition keeps from
 * being evaluated, for it may fail: 1 / n, where n <> 0.  Measures that are the same share
 * their state, and the greatest time of a latest stands in that one's.
 */
#include "tallyplan.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

static int
append_input(DrTally *tally, Node *expr)
{
	DrInput	   *input = &tally->inputs[tally->ninputs];

	input->expr = expr;
	input->event = -1;
	if (IsA(expr, Var))
		input->event = ((Var *) expr)->varattno - 1;
	else
		input->state = ExecPrepareExpr((Expr *) expr, tally->estate);
	return tally->ninputs++;
}

/* An input, which others may have asked for already; -1 for none. */
static int
find_input(DrTally *tally, Node *expr)
{
	if (expr == NULL)
		return -1;
	for (int i = 0; i < tally->ninputs; i++)
		if (equal(tally->inputs[i].expr, expr))
			return i;
	return append_input(tally, expr);
}

static DrKind
kept_as(Oid type)
{
	DrKind		kept;

	get_typlenbyval(type, &kept.typlen, &kept.typbyval);
	return kept;
}

static const Aggref *
aggref_of(const DrColumn *column)
{
	Node	   *expr = column->expr;

	if (IsA(expr, CoalesceExpr))
		expr = linitial(((CoalesceExpr *) expr)->args);
	return castNode(Aggref, expr);
}

/* The sums whose state only their aggregate knows, by an addition of numerics;
 * that gives the same sum. */
static bool
sums_numerics(DrMeasure *measure, Oid type)
{
	type = getBaseType(type);
	if (measure->column->kind != DR_SUM || (type != NUMERICOID && type != INT8OID))
		return false;
	fmgr_info(F_NUMERIC_ADD, &measure->step);
	fmgr_info(F_NUMERIC_ADD, &measure->combine);
	measure->convert = type == INT8OID ? int8_numeric : NULL;
	measure->value = kept_as(NUMERICOID);
	return true;
}

/* The functions of an aggregate of the server's; false where its state is one
 * that only it knows. */
static bool
find_functions(DrMeasure *measure, const Aggref *aggref)
{
	HeapTuple	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	Form_pg_aggregate form;
	bool		usable;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	usable = aggref->aggfnoid < FirstNormalObjectId &&
		form->aggtranstype != INTERNALOID && !OidIsValid(form->aggfinalfn) &&
		OidIsValid(form->aggcombinefn) && func_strict(form->aggcombinefn) &&
		heap_attisnull(tuple, Anum_pg_aggregate_agginitval, NULL);
	if (usable)
	{
		fmgr_info(form->aggtransfn, &measure->step);
		fmgr_info(form->aggcombinefn, &measure->combine);
		measure->value = kept_as(aggref->aggtype);
	}
	ReleaseSysCache(tuple);
	return usable;
}

static DrRule
rule_of(Oid step)
{
	switch (step)
	{
		case F_INT8LARGER:
		case F_TIMESTAMP_LARGER:
		case F_TIMESTAMPTZ_LARGER:
			return RULE_LARGER_INT64;
		case F_INT8SMALLER:
		case F_TIMESTAMP_SMALLER:
		case F_TIMESTAMPTZ_SMALLER:
			return RULE_SMALLER_INT64;
		default:
			return RULE_CALL;
	}
}

static void
prepare_winner(DrTally *tally, DrMeasure *measure)
{
	const DrColumn *column = measure->column;
	Oid			type = exprType(column->arg);
	Oid			at_type = exprType(column->at);

	measure->rule = RULE_WINNER;
	measure->by_time = tally->inputs[measure->at].event == 0;
	measure->value = measure->given;
	measure->time = kept_as(at_type);
	measure->contest = dr_aggregates_prepare(type, at_type, measure->collation,
											 column->kind == DR_LATEST, CurrentMemoryContext);
}

/* Does the other column tell more than this one, or as much?  What is stored
 * under a coalesce may be its constant, which without one is NULL. */
static bool
stores_enough(const DrColumn *other, const DrColumn *column)
{
	return other->otherwise == NULL || equal(other->otherwise, column->otherwise);
}

/* Is it a measure that is there already, or the greatest (least) of the times
 * that another one's winner was chosen by? */
static bool
shares_state(const DrTally *tally, DrMeasure *measure)
{
	DrMeasureKind chooser = measure->rule == RULE_LARGER_INT64 ? DR_LATEST : DR_EARLIEST;

	for (const DrMeasure *other = tally->measures; other < measure; other++)
	{
		if (other->filter != measure->filter || other->rule >= RULE_SAME)
			continue;
		if (other->column->aggregate == measure->column->aggregate &&
			other->arg == measure->arg && other->at == measure->at &&
			other->collation == measure->collation &&
			stores_enough(other->column, measure->column))
			measure->rule = RULE_SAME;
		else if ((measure->rule == RULE_LARGER_INT64 || measure->rule == RULE_SMALLER_INT64) &&
				 other->column->kind == chooser && other->at == measure->arg)
			measure->rule = RULE_TIME_OF;
		else
			continue;
		measure->other = other;
		return true;
	}
	return false;
}

static bool
prepare_measure(DrTally *tally, DrMeasure *measure, const DrColumn *column)
{
	const Aggref *aggref = aggref_of(column);
	Size		size = sizeof(DrValueState);

	measure->column = column;
	measure->arg = find_input(tally, column->arg);
	if (column->arg != NULL)
		measure->given = kept_as(exprType(column->arg));
	measure->at = find_input(tally, column->at);
	measure->filter = find_input(tally, column->filter);
	measure->collation = aggref->inputcollid;
	measure->offset = tally->state_size;
	switch (column->kind)
	{
		case DR_COUNT:
			measure->rule = RULE_COUNT;
			size = sizeof(int64);
			break;
		case DR_LATEST:
		case DR_EARLIEST:
			prepare_winner(tally, measure);
			size = sizeof(DrWinnerState);
			break;
		default:
			if (!sums_numerics(measure, exprType(column->arg)) &&
				!find_functions(measure, aggref))
				return false;
			measure->rule = rule_of(measure->step.fn_oid);
	}
	if (!shares_state(tally, measure))
		tally->state_size += MAXALIGN(size);
	return true;
}

/* ------------------------------------------------------------------- columns */

static void
describe(TupleDesc desc, int n, const char *name, Oid type, int32 typmod, Oid collation)
{
	TupleDescInitEntry(desc, n, name, type, typmod, 0);
	TupleDescInitEntryCollation(desc, n, collation);
}

/* An event's columns. */
TupleDesc
dr_tally_event_desc(const DrDefinition *def)
{
	TupleDesc	desc = CreateTemplateTupleDesc(def->nevents);

	for (int i = 0; i < def->nevents; i++)
		describe(desc, i + 1, def->events[i].name, def->events[i].type,
				 def->events[i].typmod, def->events[i].collation);
	return desc;
}

/* The query's columns. */
TupleDesc
dr_tally_row_desc(const DrDefinition *def)
{
	TupleDesc	desc = CreateTemplateTupleDesc(def->ncolumns);

	for (int i = 0; i < def->ncolumns; i++)
		describe(desc, i + 1, def->columns[i].name, def->columns[i].type,
				 def->columns[i].typmod, def->columns[i].collation);
	return desc;
}

/* The key's columns, k1 .. kn. */
TupleDesc
dr_tally_key_desc(const DrDefinition *def)
{
	TupleDesc	desc = CreateTemplateTupleDesc(def->nkeys);

	for (int i = 0; i < def->nkeys; i++)
	{
		const DrColumn *key = &def->columns[def->keys[i]];

		describe(desc, i + 1, psprintf("k%d", i + 1), key->type, key->typmod,
				 key->collation);
	}
	return desc;
}

/* --------------------------------------------------------------- preparation */

static bool
is_bare_key(const DrDefinition *def, int event)
{
	for (int i = 0; i < def->nkeys; i++)
	{
		Node	   *expr = def->columns[def->keys[i]].expr;

		if (IsA(expr, Var) && ((Var *) expr)->varattno == event + 1)
			return true;
	}
	return false;
}

/* Do key and instant tell one event from another? */
static bool
are_told_by_instant(const DrDefinition *def)
{
	for (int i = 0; i < def->ndedup; i++)
		if (def->dedup_by[i] != 0 && !is_bare_key(def, def->dedup_by[i]))
			return false;
	return true;
}

/* Is there more than the columns of events in it, as a whole row? */
static bool
is_beyond_columns(Node *expr)
{
	List	   *vars = pull_var_clause(expr, PVC_RECURSE_AGGREGATES);
	ListCell   *cell;

	foreach(cell, vars)
		if (((Var *) lfirst(cell))->varattno <= 0)
			return true;
	return false;
}

/*
 * Can keys and duplicates be told without the server?  (Rows that WHERE leaves
 * out take part in deduplication, by a key that must not be computed for them.)
 */
static bool
is_possible(const DrDefinition *def, bool deduplicate)
{
	if ((deduplicate && !are_told_by_instant(def)) || is_beyond_columns(def->where))
		return false;
	for (int i = 0; i < def->ncolumns; i++)
		if (is_beyond_columns(def->columns[i].expr))
			return false;
	for (int i = 0; i < def->nkeys; i++)
	{
		const DrColumn *key = &def->columns[def->keys[i]];

		if (!dr_pack_tells_apart(key->type, key->collation) ||
			(deduplicate && def->where != NULL && !IsA(key->expr, Var)))
			return false;
	}
	return true;
}

static bool
is_expression(const DrTally *tally, int input)
{
	return input >= 0 && tally->inputs[input].event < 0;
}

/* Is there an expression that is to be evaluated only if a condition holds? */
static bool
is_guarded(const DrTally *tally)
{
	for (int i = 0; i < tally->nmeasures; i++)
	{
		const DrMeasure *measure = &tally->measures[i];
		bool		args = is_expression(tally, measure->arg) || is_expression(tally, measure->at);

		if (args && (measure->filter >= 0 || tally->where >= 0))
			return true;
		if (is_expression(tally, measure->filter) && tally->where >= 0)
			return true;
	}
	return false;
}

/* Is there an expression, other than a key, that may raise an error?  A function
 * that is no leak does not. */
static bool
may_fail(const DrTally *tally)
{
	for (int i = tally->def->nkeys; i < tally->ninputs; i++)
		if (is_expression(tally, i) && contain_leaked_vars(tally->inputs[i].expr))
			return true;
	return false;
}

/*
 * NULL where the query cannot be computed row by row: "deduplicate" says
 * whether the rows of one event must be told from others.
 */
DrTally *
dr_tally_prepare(const DrDefinition *def, bool deduplicate)
{
	DrTally    *tally;
	bool		possible = true;

	if (!is_possible(def, deduplicate))
		return NULL;
	tally = palloc0(sizeof(DrTally));
	tally->def = def;
	tally->estate = CreateExecutorState();
	tally->econtext = GetPerTupleExprContext(tally->estate);
	tally->slot = MakeSingleTupleTableSlot(dr_tally_event_desc(def), &TTSOpsVirtual);
	tally->econtext->ecxt_scantuple = tally->slot;
	tally->inputs = palloc0((def->ncolumns * 3 + 1) * sizeof(DrInput));
	tally->measures = palloc0(def->ncolumns * sizeof(DrMeasure));
	for (int i = 0; i < def->nkeys; i++)
		(void) append_input(tally, def->columns[def->keys[i]].expr);
	for (int i = 0; i < def->ncolumns; i++)
		if (!def->columns[i].is_key)
			possible &= prepare_measure(tally, &tally->measures[tally->nmeasures++],
										&def->columns[i]);
	tally->where = find_input(tally, def->where);
	tally->guarded = is_guarded(tally);
	tally->may_fail = deduplicate && may_fail(tally);
	if (possible)
		return tally;
	dr_tally_end(tally);
	return NULL;
}

void
dr_tally_end(DrTally *tally)
{
	ExecDropSingleTupleTableSlot(tally->slot);
	FreeExecutorState(tally->estate);
}
