/*
 * shape.c
 *		Which statements can define a rollup at all: one SELECT over one
 *		relation, with a plain GROUP BY.
 *
 * A rollup is kept by merging the results of the query over parts of the
 * source.  Each clause that is refused here either looks at more than one
 * group at a time (DISTINCT, HAVING over a partial result, LIMIT, windows), or
 * takes rows from elsewhere than the source (joins, subqueries).
 *
 * What can be seen before names are looked up is decided before, so that the
 * message is about the clause and not about a name inside it.  What columns
 * and expressions may be is not decided here.
 */
#include "postgres.h"

#include "shape.h"

#include "tcop/utility.h"

/* Raises feature_not_supported; text and hint are complete. */
static void
refuse(const char *text, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg_internal("%s", text),
			 hint ? errhint("%s", hint) : 0));
}

/* FROM as it was written: one relation, by its name. */
static void
check_from(List *from)
{
	Node	   *item;

	if (from == NIL)
		refuse("the defining query of a rollup needs a source in FROM", NULL);
	if (list_length(from) > 1)
		refuse("the defining query of a rollup cannot have several items in FROM",
			   "Name the source alone, and join the rollup with other tables in a view on top of it.");

	item = linitial(from);
	switch (nodeTag(item))
	{
		case T_RangeVar:
			if (!((RangeVar *) item)->inh)
				refuse("the source of a rollup cannot be written with ONLY",
					   "Leave ONLY out: a plain table has no children here, and of a partitioned table all partitions are counted.");
			break;
		case T_JoinExpr:
			refuse("the defining query of a rollup cannot have a join",
				   "Name the source alone, and join the rollup with other tables in a view on top of it.");
			break;
		case T_RangeSubselect:
			refuse("the defining query of a rollup cannot have a subquery in FROM",
				   "Name the table itself; conditions go to WHERE or FILTER, duplicates to dedup_by.");
			break;
		case T_RangeTableSample:
			refuse("the source of a rollup cannot be written with TABLESAMPLE", NULL);
			break;
		default:
			refuse("the defining query of a rollup cannot have a function in FROM",
				   "Name a table: a rollup follows the rows that are written to it.");
	}
}

/* The clauses around GROUP BY, as they were written. */
static void
check_clauses(const SelectStmt *select)
{
	if (select->withClause != NULL)
		refuse("the defining query of a rollup cannot have WITH",
			   "Name the source itself in FROM.");
	if (select->op != SETOP_NONE)
		refuse("the defining query of a rollup cannot have UNION, INTERSECT or EXCEPT",
			   "Create a rollup for each part, and unite them in a view on top.");
	if (select->valuesLists != NIL)
		refuse("the defining query of a rollup cannot be VALUES", NULL);
	if (select->intoClause != NULL)
		refuse("the defining query of a rollup cannot have INTO",
			   "The name of the table is the first argument of rollup_create.");
	if (select->lockingClause != NIL)
		refuse("the defining query of a rollup cannot have FOR UPDATE or FOR SHARE", NULL);
	if (select->distinctClause != NIL)
		refuse("the defining query of a rollup cannot have SELECT DISTINCT",
			   "GROUP BY leaves a row for each key; for events that arrive twice there is dedup_by.");
	if (select->sortClause != NIL)
		refuse("the defining query of a rollup cannot have ORDER BY",
			   "A table has no order: sort where the rollup is read.");
	if (select->limitCount != NULL || select->limitOffset != NULL)
		refuse("the defining query of a rollup cannot have LIMIT, OFFSET or FETCH FIRST",
			   "Limit the rows where the rollup is read.");
	if (select->havingClause != NULL)
		refuse("the defining query of a rollup cannot have HAVING",
			   "Filter the rows in a view on top of the rollup.");
	if (select->windowClause != NIL)
		refuse("the defining query of a rollup cannot have window functions",
			   "Compute them in a view on top of the rollup.");
}

/*
 * Statements are what raw_parser returned.  Raises an error unless there is
 * one, a SELECT, that has only FROM, WHERE and GROUP BY, over one relation.
 */
void
dr_shape_check_statements(List *statements)
{
	Node	   *statement;

	if (statements == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the defining query of a rollup is empty")));
	if (list_length(statements) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the defining query of a rollup must be a single statement, not %d",
						list_length(statements))));

	statement = linitial_node(RawStmt, statements)->stmt;
	if (!IsA(statement, SelectStmt))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the defining query of a rollup must be a SELECT, not %s",
						CreateCommandName(statement))));

	check_clauses((SelectStmt *) statement);
	check_from(((SelectStmt *) statement)->fromClause);
}

/*
 * The same SELECT after parse analysis, which alone tells a subquery or a
 * window function in an expression from other things.
 */
void
dr_shape_check_query(const Query *query)
{
	if (query->hasSubLinks)
		refuse("the defining query of a rollup cannot have subqueries",
			   "A rollup follows the rows of its source only: put the values into the source, or join in a view on top.");
	if (query->hasWindowFuncs)
		refuse("the defining query of a rollup cannot have window functions",
			   "Compute them in a view on top of the rollup.");
	if (query->hasTargetSRFs)
		refuse("the defining query of a rollup cannot have set-returning functions",
			   "Call them in a view on top of the rollup.");
	if (query->groupingSets != NIL)
		refuse("the defining query of a rollup cannot have GROUPING SETS, ROLLUP, CUBE or GROUP BY ()",
			   "Create a rollup for each set of keys.");
	if (query->groupClause == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_GROUPING_ERROR),
				 errmsg("the defining query of a rollup needs GROUP BY"),
				 errhint("Group by the columns that a row of the rollup stands for.")));
	if (list_length(query->groupClause) > INDEX_MAX_KEYS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("a rollup can have at most %d keys, not %d",
						INDEX_MAX_KEYS, list_length(query->groupClause)),
				 errdetail("The keys are the columns of a unique index.")));
}
