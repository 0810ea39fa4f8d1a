/*
 * expression.c
 *		What an expression of a defining query may contain.
 *
 * A row of the source is looked at more than once: when its day is folded, and
 * again by each later recompute, in other sessions and on other days.  It must
 * give the same values each time.  So an expression depends on the row's
 * columns alone, and what it calls is immutable.
 *
 * CHECK constraints of a domain are taken as immutable, as the server takes
 * them: a cast to a domain is allowed.
 */
#include "postgres.h"

#include "expression.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/transam.h"
#include "catalog/heap.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/bitmapset.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

/* The innermost node of an expression that does what it must not. */
typedef struct Culprit
{
	check_function_callback is_one;
	Oid			function;		/* invalid: the node calls none */
	Node	   *node;
} Culprit;

/* Whole rows and system columns are no columns that a view could hold. */
void
dr_expression_check_columns(Node *tree)
{
	Bitmapset  *attnos = NULL;
	int			member = -1;

	pull_varattnos(tree, 1, &attnos);
	while ((member = bms_next_member(attnos, member)) >= 0)
	{
		int			attno = member + FirstLowInvalidHeapAttributeNumber;

		if (attno == 0)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("the defining query of a rollup cannot use a whole row of its source"),
					 errdetail("It would depend on every column, those of the future too."),
					 errhint("Name the columns: ROW(a, b), or count(*) in place of count of a row.")));
		if (attno < 0)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("the defining query of a rollup cannot use the system column \"%s\"",
							NameStr(SystemAttributeDefinition(attno)->attname)),
					 errdetail("Its value changes when the row is written anew or restored.")));
	}
}

static bool
is_mutable(Oid function, void *culprit)
{
	if (func_volatile(function) == PROVOLATILE_IMMUTABLE)
		return false;
	((Culprit *) culprit)->function = function;
	return true;
}

static bool
is_temporary(Oid function, void *culprit)
{
	if (!isTempNamespace(get_func_namespace(function)))
		return false;
	((Culprit *) culprit)->function = function;
	return true;
}

/* What depends on the present without a function: CURRENT_DATE, identity columns. */
static bool
is_present(Node *node)
{
	return IsA(node, SQLValueFunction) || IsA(node, NextValueExpr);
}

static bool
find_culprit(Node *node, Culprit *culprit)
{
	if (node == NULL)
		return false;
	if (expression_tree_walker(node, find_culprit, culprit))
		return true;
	if (check_functions_in_node(node, culprit->is_one, culprit) ||
		(culprit->is_one == is_mutable && is_present(node)))
	{
		culprit->node = node;
		return true;
	}
	return false;
}

/* The operands of a call, operator or cast; NIL for other nodes. */
static List *
operands(Node *node)
{
	switch (nodeTag(node))
	{
		case T_FuncExpr:
			return ((FuncExpr *) node)->args;
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			return ((OpExpr *) node)->args;
		case T_ScalarArrayOpExpr:
			return ((ScalarArrayOpExpr *) node)->args;
		case T_CoerceViaIO:
			return list_make1(((CoerceViaIO *) node)->arg);
		default:
			return NIL;
	}
}

/* The SQL text of an operand; a text constant without its type. */
static char *
operand_text(Node *node, List *context)
{
	if (IsA(node, Const) && ((Const *) node)->consttype == TEXTOID &&
		!((Const *) node)->constisnull)
		return quote_literal_cstr(TextDatumGetCString(((Const *) node)->constvalue));
	return deparse_expression(node, context, false, false);
}

/*
 * Returns a hint how to write node without the session's TimeZone, or NULL
 * where that is not what makes it mutable.
 */
static char *
time_zone_hint(const Culprit *culprit, List *context)
{
	List	   *args = operands(culprit->node);
	char	   *instant = NULL;
	ListCell   *cell;

	foreach(cell, args)
	{
		if (exprType(lfirst(cell)) == TIMESTAMPTZOID)
			instant = operand_text(lfirst(cell), context);
	}
	if (instant == NULL)
		return NULL;

	if (culprit->function == F_DATE_TRUNC_TEXT_TIMESTAMPTZ ||
		culprit->function == F_DATE_TRUNC_TEXT_TIMESTAMPTZ_TEXT)
	{
		char	   *unit = operand_text(linitial(args), context);
		char	   *zone = list_length(args) < 3 ? "'UTC'" : operand_text(lthird(args), context);

		return psprintf("Write date_trunc(%s, %s AT TIME ZONE %s), or use date_bin.",
						unit, instant, zone);
	}
	if (TypeCategory(exprType(culprit->node)) == TYPCATEGORY_STRING)
		return psprintf("Select (%s AT TIME ZONE 'UTC')::date or date_trunc('day', %s AT TIME ZONE 'UTC'), and make text of it in a view on top of the rollup.",
						instant, instant);
	if (culprit->function == F_DATE_TIMESTAMPTZ)
		return psprintf("Write (%s AT TIME ZONE 'UTC')::date.", instant);
	return psprintf("Say which time zone is meant: (%s AT TIME ZONE 'UTC') in place of %s.",
					instant, instant);
}

static void
refuse_mutable(Node *expr, const char *place, Oid vars_of)
{
	Culprit		culprit = {.is_one = is_mutable};
	char	   *hint = NULL;

	if (find_culprit(expr, &culprit))
		hint = time_zone_hint(&culprit,
							  deparse_context_for(get_rel_name(vars_of), vars_of));

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
			 errmsg("%s must be immutable", place),
			 OidIsValid(culprit.function)
			 ? errdetail("Function %s is %s.", format_procedure(culprit.function),
						 func_volatile(culprit.function) == PROVOLATILE_STABLE ? "STABLE" : "VOLATILE")
			 : errdetail("It depends on the session or on the present time."),
			 hint ? errhint("%s", hint)
			 : errhint("A row must give the same value whenever it is counted; compute what does not in a view on top of the rollup.")));
}

/*
 * Raises an error unless expr is immutable and lasts longer than the session.
 * Place names it in messages; vars_of is the relation of its Vars.
 */
void
dr_expression_check(Node *expr, const char *place, Oid vars_of)
{
	Culprit		culprit = {.is_one = is_temporary};

	if (expr == NULL)
		return;
	if (find_culprit(expr, &culprit))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s cannot use a temporary function", place),
				 errdetail("Function %s ends with this session.",
						   format_procedure(culprit.function))));
	if (contain_mutable_functions(expr))
		refuse_mutable(expr, place, vars_of);
}

static bool
type_is_temporary(Oid type)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for type %u", type);
	result = isTempNamespace(((Form_pg_type) GETSTRUCT(tuple))->typnamespace);
	ReleaseSysCache(tuple);
	return result;
}

/* Raises undefined_function where type has no default btree order. */
void
dr_expression_check_ordered(Oid type, const char *place)
{
	TypeCacheEntry *entry = lookup_type_cache(type,
											  TYPECACHE_EQ_OPR | TYPECACHE_LT_OPR |
											  TYPECACHE_CMP_PROC);

	if (!OidIsValid(entry->eq_opr) || !OidIsValid(entry->lt_opr) ||
		!OidIsValid(entry->cmp_proc))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("%s is of type %s, which has no btree order",
						place, format_type_be(type)),
				 errdetail("Keys and measures are compared, and there is no default btree operator class for the type."),
				 errhint("Cast it to a type that has one.")));
}

static void
check_equality(Oid type, Oid collation, const char *place)
{
	Oid			base = getBaseType(type);

	if (!OidIsValid(collation) || get_collation_isdeterministic(collation) ||
		base < FirstNormalObjectId || get_typtype(base) != TYPTYPE_BASE ||
		OidIsValid(get_element_type(base)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s is of type %s with nondeterministic collation \"%s\"",
					place, format_type_be(type), get_collation_name(collation)),
			 errdetail("The order of an extension's type may take values for equal that its = tells apart."),
			 errhint("Cast it to text, or use a deterministic collation.")));
}

/*
 * Raises an error where a key, or a column that tells events apart, is of an
 * extension's type with a nondeterministic collation: the server's types heed it
 * in every operator, such a type may do so in its order alone.  citext does:
 * values that are one to a unique index are two to its =, and an INSERT ... ON
 * CONFLICT tries for ever.
 */
void
dr_expression_check_equalities(const DrDefinition *def)
{
	for (int i = 0; i < def->nkeys; i++)
	{
		const DrColumn *key = &def->columns[def->keys[i]];

		check_equality(key->type, key->collation, psprintf("key \"%s\"", key->name));
	}
	for (int i = 0; i < def->ndedup; i++)
	{
		const DrEventColumn *event = &def->events[def->dedup_by[i]];

		check_equality(event->type, event->collation,
					   psprintf("column \"%s\" in dedup_by", event->source_name));
	}
}

/* Raises an error unless a column of a table can hold the values, and compare. */
void
dr_expression_check_output(const DrColumn *column)
{
	char	   *place = psprintf("column \"%s\"", column->name);

	if (column->type == RECORDOID)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("%s has pseudo-type record", place),
				 errhint("Create a composite type, and cast the row to it: ROW(a, b)::type.")));
	if (get_typtype(column->type) == TYPTYPE_PSEUDO)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("%s has pseudo-type %s", place, format_type_be(column->type)),
				 errhint("Cast it to the type that the column shall have.")));
	if (type_is_temporary(column->type))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s cannot be of a temporary type", place),
				 errdetail("Type %s ends with this session.", format_type_be(column->type))));
	dr_expression_check_ordered(column->type, place);
	if (type_is_collatable(column->type) && !OidIsValid(column->collation))
		ereport(ERROR,
				(errcode(ERRCODE_INDETERMINATE_COLLATION),
				 errmsg("no collation was derived for %s with collatable type %s",
						place, format_type_be(column->type)),
				 errhint("Use the COLLATE clause to set the collation explicitly.")));
}
