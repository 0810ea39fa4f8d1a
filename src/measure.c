/*
 * measure.c
 *		Which aggregates a rollup can merge, and by which rule.
 *
 * A stored value stands for rows that are not read again.  So from the values
 * of two disjoint sets of rows the value of their union must follow:
 *
 *		count, sum						add
 *		min, max, bool_*, bit_*			combine
 *		latest(v, t)					the side with the greater max(t), which
 *										must therefore be a column too
 *
 * coalesce(measure, constant) hides whether a side had any value.  It merges
 * where the constant changes nothing (sum: 0), or where another column, its
 * "presence", tells it: max(t) of a latest, else a count of the same rows.
 *
 * Aggregates are known by their pg_proc entry, never by how a query spells
 * them.
 */
#include "postgres.h"

#include "measure.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/dependency.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

static const struct
{
	const char *name;
	DrMeasureKind kind;
}			core_aggregates[] =
{
	{"count", DR_COUNT},
	{"sum", DR_SUM},
	{"min", DR_MIN},
	{"max", DR_MAX},
	{"bool_and", DR_BOOL_AND},
	{"every", DR_BOOL_AND},
	{"bool_or", DR_BOOL_OR},
	{"bit_and", DR_BIT_AND},
	{"bit_or", DR_BIT_OR},
};

/*
 * Returns the SQL text of expr, whose Vars are those of vars_of, without
 * parentheses around the whole.
 */
char *
dr_measure_text(const Node *expr, Oid vars_of)
{
	char	   *text = deparse_expression((Node *) expr,
										  deparse_context_for(get_rel_name(vars_of), vars_of),
										  false, false);
	int			depth = 0;
	char		quote = 0;

	if (text[0] != '(')
		return text;
	for (char *c = text; *c; c++)
	{
		if (quote)
			quote = *c == quote ? 0 : quote;
		else if (*c == '\'' || *c == '"')
			quote = *c;
		else if (*c == '(')
			depth++;
		else if (*c == ')' && --depth == 0)
		{
			if (c[1] == '\0')
			{
				*c = '\0';
				return text + 1;
			}
			return text;
		}
	}
	return text;
}

/* " FILTER (WHERE ...)" of a measure, with one more condition unless NULL. */
static char *
filter_text(const Node *filter, const char *also, Oid vars_of)
{
	if (filter == NULL && also == NULL)
		return "";
	if (filter == NULL)
		return psprintf(" FILTER (WHERE %s)", also);
	if (also == NULL)
		return psprintf(" FILTER (WHERE %s)", dr_measure_text(filter, vars_of));
	return psprintf(" FILTER (WHERE (%s) AND %s)", dr_measure_text(filter, vars_of), also);
}

/* "function(arg) FILTER (...) AS name_suffix": a column to add to the query. */
static char *
missing_column_text(const char *function, const Node *arg, const DrColumn *column,
					const char *suffix, Oid vars_of)
{
	return psprintf("%s(%s)%s AS %s", function, dr_measure_text(arg, vars_of),
					filter_text(column->filter, NULL, vars_of),
					quote_identifier(makeObjectName(column->name, NULL, suffix)));
}

/*
 * Whether two arguments are the same value in the same order.  max() of a
 * varchar or of a domain has a cast to the type that max() is declared for: an
 * implicit one in the user's text, an explicit one when read back from a view.
 */
static bool
same_arg(const Node *one, const Node *other)
{
	Oid			types[2] = {exprType(one), exprType(other)};

	while (IsA(one, RelabelType))
		one = (const Node *) ((const RelabelType *) one)->arg;
	while (IsA(other, RelabelType))
		other = (const Node *) ((const RelabelType *) other)->arg;

	return equal(one, other) &&
		(types[0] == types[1] ||
		 lookup_type_cache(types[0], TYPECACHE_BTREE_OPFAMILY)->btree_opf ==
		 lookup_type_cache(types[1], TYPECACHE_BTREE_OPFAMILY)->btree_opf);
}

/* min and max of a type that came with an extension, by their sort operator. */
static bool
is_extreme(Oid aggregate, Oid type, const char *name, DrMeasureKind *kind)
{
	HeapTuple	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggregate));
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);
	Oid			operator;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggregate);
	operator = ((Form_pg_aggregate) GETSTRUCT(tuple))->aggsortop;
	ReleaseSysCache(tuple);
	if (!OidIsValid(operator))
		return false;

	*kind = strcmp(name, "min") == 0 ? DR_MIN : DR_MAX;
	return (strcmp(name, "min") == 0 && operator == entry->lt_opr) ||
		(strcmp(name, "max") == 0 && operator == entry->gt_opr);
}

static bool
recognise(const Aggref *agg, const char *name, DrMeasureKind *kind)
{
	if (agg->aggfnoid < FirstNormalObjectId &&
		get_func_namespace(agg->aggfnoid) == PG_CATALOG_NAMESPACE)
	{
		for (int i = 0; i < lengthof(core_aggregates); i++)
		{
			if (strcmp(name, core_aggregates[i].name) == 0)
			{
				*kind = core_aggregates[i].kind;
				return true;
			}
		}
		return false;
	}
	if (strcmp(name, "latest") == 0 || strcmp(name, "earliest") == 0)
	{
		Oid			extension = get_extension_oid("dailyrollup", true);

		*kind = strcmp(name, "latest") == 0 ? DR_LATEST : DR_EARLIEST;
		return OidIsValid(extension) &&
			getExtensionOfObject(ProcedureRelationId, agg->aggfnoid) == extension;
	}
	return list_length(agg->aggargtypes) == 1 &&
		is_extreme(agg->aggfnoid, linitial_oid(agg->aggargtypes), name, kind);
}

static void
refuse_avg(const DrColumn *column, const Aggref *agg, Oid vars_of)
{
	char	   *arg = dr_measure_text((Node *) linitial_node(TargetEntry, agg->args)->expr, vars_of);
	char	   *filter = filter_text((Node *) agg->aggfilter, NULL, vars_of);

	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("a rollup cannot merge avg in column \"%s\"", column->name),
			 errdetail("Two averages alone do not give the average of both."),
			 errhint("Select sum(%s)%s and count(%s)%s, and divide them in a view on top of the rollup.",
					 arg, filter, arg, filter)));
}

static void
refuse_distinct(const DrColumn *column, const char *name)
{
	if (strcmp(name, "count") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a rollup cannot merge count(DISTINCT ...) in column \"%s\"", column->name),
				 errdetail("Two counts do not tell which values they have in common."),
				 errhint("Make the value a key, and count the rows in a view on top of the rollup.")));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("a rollup cannot merge an aggregate with DISTINCT in column \"%s\"", column->name),
			 errhint("DISTINCT changes nothing for min, max, bool_and, bool_or, bit_and and bit_or: leave it out. For events that arrive twice there is dedup_by.")));
}

static void
check_aggregate(const DrColumn *column, const Aggref *agg, const char *name, Oid vars_of)
{
	if (agg->aggkind != AGGKIND_NORMAL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a rollup cannot merge the ordered-set aggregate %s in column \"%s\"",
						name, column->name),
				 errdetail("It needs all rows of a key at once.")));
	if (agg->aggdistinct != NIL)
		refuse_distinct(column, name);
	if (agg->aggorder != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a rollup cannot merge an aggregate with ORDER BY in column \"%s\"",
						column->name),
				 errhint("For the value of the last or first row by time there are latest and earliest.")));
	if (strcmp(name, "avg") == 0 && agg->args != NIL)
		refuse_avg(column, agg, vars_of);
}

static void
describe_aggregate(DrColumn *column, Aggref *agg, Oid vars_of)
{
	char	   *name = get_func_name(agg->aggfnoid);

	check_aggregate(column, agg, name, vars_of);
	if (!recognise(agg, name, &column->kind))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a rollup cannot merge aggregate %s in column \"%s\"", name, column->name),
				 errhint("A rollup merges count, sum, min, max, bool_and, bool_or, every, bit_and, bit_or, latest and earliest.")));

	column->aggregate = agg->aggfnoid;
	column->filter = (Node *) agg->aggfilter;
	if (agg->args == NIL)
		return;					/* count(*) */
	column->arg = (Node *) linitial_node(TargetEntry, agg->args)->expr;
	if (column->kind == DR_LATEST || column->kind == DR_EARLIEST)
		column->at = (Node *) lsecond_node(TargetEntry, agg->args)->expr;
}

static bool
is_not_ours_to_call(Oid function, void *context)
{
	return function >= FirstNormalObjectId || func_volatile(function) != PROVOLATILE_IMMUTABLE;
}

static bool
calls_others(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return check_functions_in_node(node, is_not_ours_to_call, NULL) ||
		expression_tree_walker(node, calls_others, NULL);
}

/*
 * Evaluates the second argument of coalesce.  A definition is read by others
 * than the rollup's owner too, with their rights: so nothing is called here
 * that a user can have written.
 */
static Const *
constant_of(const DrColumn *column, Node *expr)
{
	Node	   *value = NULL;

	if (!contain_var_clause(expr) && !contain_agg_clause(expr) &&
		!contain_mutable_functions(expr) && !calls_others(expr, NULL))
		value = eval_const_expressions(NULL, expr);
	if (value == NULL || !IsA(value, Const))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("coalesce in column \"%s\" needs a constant after the aggregate",
						column->name),
				 errdetail("It may use immutable functions of PostgreSQL itself, and no column."),
				 errhint("Select the aggregate alone, and use coalesce in a view on top of the rollup.")));
	if (((Const *) value)->constisnull)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("coalesce in column \"%s\" has NULL as its constant", column->name),
				 errhint("It changes nothing: select the aggregate alone.")));
	return (Const *) value;
}

static bool
is_zero(const Const *value)
{
	Oid			input;
	Oid			ioparam;
	Datum		zero;
	TypeCacheEntry *type = lookup_type_cache(value->consttype, TYPECACHE_EQ_OPR_FINFO);

	getTypeInputInfo(value->consttype, &input, &ioparam);
	zero = OidInputFunctionCall(input, "0", ioparam, -1);
	return DatumGetBool(FunctionCall2Coll(&type->eq_opr_finfo, value->constcollid,
										  value->constvalue, zero));
}

/* Whether merging with the constant is the same as merging with no value. */
static bool
is_identity(const DrColumn *column)
{
	const Const *value = column->otherwise;

	switch (column->kind)
	{
		case DR_SUM:
			return is_zero(value);
		case DR_BOOL_AND:
			return DatumGetBool(value->constvalue);
		case DR_BOOL_OR:
			return !DatumGetBool(value->constvalue);
		case DR_BIT_OR:
			return TypeCategory(value->consttype) == TYPCATEGORY_NUMERIC && is_zero(value);
		default:
			return false;
	}
}

static void
refuse_expression(const DrColumn *column)
{
	if (IsA(column->expr, GroupingFunc))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a rollup cannot have GROUPING in column \"%s\"", column->name),
				 errdetail("There is one set of keys, so it is always 0.")));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("column \"%s\" is an expression over aggregates", column->name),
			 errdetail("A measure is an aggregate alone, or coalesce of an aggregate and a constant of its own type."),
			 errhint("Select the aggregates as they are, and compute the expression in a view on top of the rollup.")));
}

/*
 * Fills the fields of a measure from column->expr, which contains an
 * aggregate; raises an error where a rollup cannot merge it.  What depends on
 * other columns is left to dr_measure_resolve.
 */
void
dr_measure_describe(DrColumn *column, Oid vars_of)
{
	Node	   *expr = column->expr;

	column->at_column = -1;
	column->presence = -1;
	if (IsA(expr, Aggref))
	{
		describe_aggregate(column, (Aggref *) expr, vars_of);
		return;
	}

	if (IsA(expr, CoalesceExpr))
	{
		List	   *args = ((CoalesceExpr *) expr)->args;

		if (list_length(args) == 2 && IsA(linitial(args), Aggref))
		{
			describe_aggregate(column, linitial(args), vars_of);
			column->otherwise = constant_of(column, lsecond(args));
			/* a count is never NULL */
			if (column->kind == DR_COUNT)
				column->otherwise = NULL;
			return;
		}
	}
	refuse_expression(column);
}

/* The conditions of a FILTER that must all hold. */
static List *
conditions(Node *filter)
{
	List	   *result = NIL;
	ListCell   *cell;

	if (filter == NULL)
		return NIL;
	if (!is_andclause(filter))
		return list_make1(filter);
	foreach(cell, ((BoolExpr *) filter)->args)
		result = list_concat(result, conditions(lfirst(cell)));
	return result;
}

static bool
is_time_column(const DrDefinition *def, const Node *expr)
{
	AttrNumber	attno = def->vars_of == def->source ? def->events[0].attno : 1;

	return IsA(expr, Var) && ((const Var *) expr)->varattno == attno;
}

/* Whether value cannot be NULL in the rows that a measure looks at. */
static bool
is_never_null(const DrDefinition *def, const Node *value, Node *filter)
{
	ListCell   *cell;

	if (value == NULL)
		return false;
	if (is_time_column(def, value))
		return true;
	foreach(cell, conditions(filter))
	{
		NullTest   *test = lfirst(cell);

		if (IsA(test, NullTest) && test->nulltesttype == IS_NOT_NULL &&
			same_arg((Node *) test->arg, value))
			return true;
	}
	return false;
}

/* Returns the index of the bare max(at) or min(at) beside a latest, or -1. */
static int
find_at_column(const DrDefinition *def, const DrColumn *column)
{
	DrMeasureKind kind = column->kind == DR_LATEST ? DR_MAX : DR_MIN;

	for (int i = 0; i < def->ncolumns; i++)
	{
		const DrColumn *other = &def->columns[i];

		if (!other->is_key && other->kind == kind && other->otherwise == NULL &&
			same_arg(other->arg, column->at) &&
			equal(other->filter, column->filter))
			return i;
	}
	return -1;
}

/* Returns the index of a count of the non-NULL arguments of column, or -1. */
static int
find_presence(const DrDefinition *def, const DrColumn *column)
{
	for (int i = 0; i < def->ncolumns; i++)
	{
		const DrColumn *other = &def->columns[i];

		if (!other->is_key && other->kind == DR_COUNT &&
			equal(other->filter, column->filter) &&
			(other->arg ? same_arg(other->arg, column->arg) :
			 is_never_null(def, column->arg, column->filter)))
			return i;
	}
	return -1;
}

/* The collation that a measure compares by. */
static Oid
collation_of(const DrColumn *column)
{
	Node	   *expr = column->expr;

	if (IsA(expr, CoalesceExpr))
		expr = linitial(((CoalesceExpr *) expr)->args);
	return castNode(Aggref, expr)->inputcollid;
}

/* latest compares time and value by one collation, max its time by its own. */
static void
check_collation(const DrColumn *column, const DrColumn *at)
{
	if (!type_is_collatable(exprType(column->at)) ||
		collation_of(column) == collation_of(at))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("columns \"%s\" and \"%s\" order their time by different collations",
					column->name, at->name),
			 errhint("Give the value and the time one collation by COLLATE, in both columns.")));
}

static void
resolve_at(const DrDefinition *def, DrColumn *column)
{
	bool		latest = column->kind == DR_LATEST;

	column->at_column = find_at_column(def, column);
	if (column->at_column < 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s in column \"%s\" needs its time as a column of the rollup",
						latest ? "latest" : "earliest", column->name),
				 errdetail("Of two values that are merged, the one of the %s time wins.",
						   latest ? "later" : "earlier"),
				 errhint("Add %s to the query.",
						 missing_column_text(latest ? "max" : "min", column->at, column, "ts",
											 def->vars_of))));
	check_collation(column, &def->columns[column->at_column]);
}

/* A NULL value that became the constant must not meet a value at one time. */
static void
check_tie(const DrDefinition *def, const DrColumn *column)
{
	char	   *also;

	if (is_time_column(def, column->at) ||
		is_never_null(def, column->arg, column->filter))
		return;

	also = psprintf("%s IS NOT NULL",
					deparse_expression(column->arg,
									   deparse_context_for(get_rel_name(def->vars_of), def->vars_of),
									   false, false));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("coalesce of %s in column \"%s\" cannot be merged where the value may be NULL",
					column->kind == DR_LATEST ? "latest" : "earliest", column->name),
			 errdetail("At equal times a value wins over NULL, which the constant hides."),
			 errhint("Write%s for the measure and for its time, or use coalesce in a view on top of the rollup.",
					 filter_text(column->filter, also, def->vars_of))));
}

static void
resolve_presence(const DrDefinition *def, DrColumn *column)
{
	if (column->kind == DR_LATEST || column->kind == DR_EARLIEST)
	{
		check_tie(def, column);
		column->presence = column->at_column;
		return;
	}
	if (is_identity(column))
		return;

	column->presence = find_presence(def, column);
	if (column->presence < 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("coalesce in column \"%s\" cannot be merged without a count of its values",
						column->name),
				 errdetail("Whether the constant stands for a value or for none must be told apart."),
				 errhint("Add %s to the query, or use coalesce in a view on top of the rollup.",
						 missing_column_text("count", column->arg, column, "count",
											 def->vars_of))));
}

/*
 * Fills at_column and presence of all measures once each is described; raises
 * an error, with the missing column as a hint, where there is none.
 */
void
dr_measure_resolve(const DrDefinition *def)
{
	for (int i = 0; i < def->ncolumns; i++)
	{
		DrColumn   *column = &def->columns[i];

		if (column->is_key)
			continue;
		if (column->kind == DR_LATEST || column->kind == DR_EARLIEST)
			resolve_at(def, column);
		if (column->otherwise != NULL)
			resolve_presence(def, column);
	}
}
