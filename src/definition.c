/*
 * definition.c
 *		From a defining query to a DrDefinition, with every rejection.
 *
 * There are two ways to the same struct: from the text that a user gives, and
 * from the two views that an existing rollup is stored in.
 *
 *		text  -> analysed query over the source     Vars: source's columns
 *		views -> definition_<id> over events_<id>   Vars: events_<id>'s columns
 *
 * Both are a query over one relation, which is described by the same code.
 * Expressions stay as parse analysis made them: nothing is folded or planned.
 *
 * SQL text is not written here, and no rollup is looked up.
 */
#include "postgres.h"

#include "definition.h"

#include "access/relation.h"
#include "access/sysattr.h"
#include "catalog/heap.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/analyze.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteHandler.h"
#include "rewrite/rewriteManip.h"
#include "storage/lockdefs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"
#include "expression.h"
#include "measure.h"
#include "shape.h"
#include "source.h"

/* Each also occupies an attribute in the tables that belong to the rollup. */
#define MAX_COLUMNS	1500

/*
 * Positions of errors inside the query refer to its own text, which is an
 * argument and not the statement that the client sent.
 */
static void
query_error_context(void *query)
{
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(query);
	}
	errcontext("defining query of a rollup");
}

/* Only an owner may hold up the writers of a table. */
static void
check_owner_before_lock(const RangeVar *name, Oid relation, Oid old_relation, void *arg)
{
	if (OidIsValid(relation) && !dr_is_class_owner(relation, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER,
					   get_relkind_objtype(get_rel_relkind(relation)), name->relname);
}

/*
 * Lock the source, if the query has one, as the triggers to come will need it.
 * At once: parse analysis takes a weaker lock, and to make that stronger with
 * a writer in between who goes on to change the table would deadlock.
 */
static void
lock_source(RawStmt *statement)
{
	SelectStmt *select = (SelectStmt *) statement->stmt;

	if (IsA(select, SelectStmt) && select->withClause == NULL &&
		list_length(select->fromClause) == 1 &&
		IsA(linitial(select->fromClause), RangeVar))
		(void) RangeVarGetRelidExtended(linitial(select->fromClause),
										ShareRowExclusiveLock, RVR_MISSING_OK,
										check_owner_before_lock, NULL);
}

/*
 * Parses and analyses text with the caller's search_path; locks the source in
 * ShareRowExclusiveLock to the end of the transaction.
 */
static Query *
analyse(const char *text)
{
	ErrorContextCallback callback = {
		.previous = error_context_stack,
		.callback = query_error_context,
		.arg = unconstify(char *, text)
	};
	List	   *statements;
	Query	   *query;

	error_context_stack = &callback;
	statements = raw_parser(text, RAW_PARSE_DEFAULT);
	dr_shape_check_statements(statements);
	lock_source(linitial_node(RawStmt, statements));
	query = parse_analyze_fixedparams(linitial_node(RawStmt, statements), text, NULL, 0, NULL);
	dr_shape_check_query(query);
	error_context_stack = callback.previous;
	return query;
}

/*
 * Makes the one relation of query the only thing that its targets and WHERE
 * refer to, as varno 1; returns that relation.
 */
static Oid
isolate(Query *query)
{
	RangeTblRef *from = linitial_node(RangeTblRef, query->jointree->fromlist);
	RangeTblEntry *entry = rt_fetch(from->rtindex, query->rtable);

	if (list_length(query->jointree->fromlist) != 1 || entry->rtekind != RTE_RELATION)
		elog(ERROR, "defining query is not over one relation");

	query->targetList = (List *) dr_flatten_groups(query, (Node *) query->targetList);
	ChangeVarNodes((Node *) query->targetList, from->rtindex, 1, 0);
	ChangeVarNodes(query->jointree->quals, from->rtindex, 1, 0);
	return entry->relid;
}

/* The source's column behind a bare Var. */
static const DrEventColumn *
event_of(const DrDefinition *def, const Var *var)
{
	return &def->events[def->vars_of == def->source ? dr_source_event(def, var->varattno) :
						var->varattno - 1];
}

/* ---- columns ---- */

static void
check_name(const DrDefinition *def, const char *name, int position)
{
	if (strcmp(name, "?column?") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_DEFINITION),
				 errmsg("column %d of the defining query has no name", position),
				 errhint("Name it with AS.")));
	if (SystemAttributeByName(name) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_COLUMN),
				 errmsg("column name \"%s\" conflicts with a system column name", name),
				 errhint("Name it otherwise with AS.")));
	for (int i = 0; i < def->ncolumns; i++)
	{
		if (strcmp(def->columns[i].name, name) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_COLUMN),
					 errmsg("column \"%s\" is selected more than once", name),
					 errhint("Give each column a name of its own with AS.")));
	}
}

static void
check_key(const DrDefinition *def, const DrColumn *column)
{
	if (!contain_var_clause(column->expr))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("key \"%s\" is a constant", column->name),
				 errdetail("A key must depend on a column of the source."),
				 errhint("Add the constant in a view on top of the rollup.")));
	for (int i = 0; i < def->nkeys; i++)
	{
		const DrColumn *other = &def->columns[def->keys[i]];

		if (equal(other->expr, column->expr))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("keys \"%s\" and \"%s\" are the same", other->name, column->name),
					 errhint("Select it once, and again in a view on top of the rollup.")));
	}
	dr_expression_check(column->expr, psprintf("key \"%s\"", column->name), def->vars_of);
	dr_expression_check_output(column);
}

static void
check_measure(const DrDefinition *def, const DrColumn *column)
{
	char	   *place = psprintf("column \"%s\"", column->name);

	dr_expression_check(column->arg, place, def->vars_of);
	dr_expression_check(column->at, place, def->vars_of);
	dr_expression_check(column->filter, psprintf("the FILTER of column \"%s\"", column->name),
						def->vars_of);
	if (column->at != NULL)
		dr_expression_check_ordered(exprType(column->at),
									psprintf("the time in column \"%s\"", column->name));
	dr_expression_check_output(column);
}

static void
describe_key(DrDefinition *def, DrColumn *column)
{
	column->is_key = true;
	if (IsA(column->expr, Var))
	{
		const DrEventColumn *event = event_of(def, (Var *) column->expr);

		column->not_null = event->not_null || event == &def->events[0];
	}
}

static void
describe_measure(const DrDefinition *def, DrColumn *column)
{
	if (!contain_aggs_of_level(column->expr, 0))
		ereport(ERROR,
				(errcode(ERRCODE_GROUPING_ERROR),
				 errmsg("column \"%s\" is neither a key nor a measure", column->name),
				 errhint("Put its expression into GROUP BY, or into an aggregate such as latest.")));
	dr_measure_describe(column, def->vars_of);
}

/* Fills the next column; checks it if the query is fresh from a user. */
static void
describe_column(DrDefinition *def, const TargetEntry *entry, const char *name, bool fresh)
{
	DrColumn   *column = &def->columns[def->ncolumns];

	if (fresh)
		check_name(def, name, def->ncolumns + 1);
	column->name = pstrdup(name);
	column->expr = (Node *) entry->expr;
	column->type = exprType(column->expr);
	column->typmod = exprTypmod(column->expr);
	column->collation = exprCollation(column->expr);
	column->at_column = -1;
	column->presence = -1;

	/* without ORDER BY and the like, only GROUP BY refers to a target */
	if (entry->ressortgroupref != 0)
	{
		describe_key(def, column);
		if (fresh)
			check_key(def, column);
		def->keys[def->nkeys++] = def->ncolumns;
	}
	else
	{
		describe_measure(def, column);
		if (fresh)
			check_measure(def, column);
	}
	def->ncolumns++;
}

static void
check_targets(const DrDefinition *def, List *targets)
{
	bool		has_measure = false;
	ListCell   *cell;

	if (list_length(targets) > MAX_COLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("a rollup can have at most %d columns, not %d",
						MAX_COLUMNS, list_length(targets))));
	foreach(cell, targets)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (entry->resjunk)
			ereport(ERROR,
					(errcode(ERRCODE_GROUPING_ERROR),
					 errmsg("a GROUP BY expression is not selected"),
					 errdetail("It is %s.", dr_measure_text((Node *) entry->expr, def->vars_of)),
					 errhint("Select it: a row of the rollup is found by all of its keys.")));
		has_measure |= entry->ressortgroupref == 0;
	}
	if (!has_measure)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a rollup needs at least one measure"),
				 errhint("Add an aggregate, such as count(*), to the query.")));
}

/*
 * Fills the columns, the keys and WHERE from query, which is over one relation,
 * def->vars_of, as varno 1.  Names are those of the view that stores the query.
 * With NULL they are the query's own, and all is checked: what is stored has
 * been, and must stay readable whatever happened to its functions since.
 */
static void
describe(DrDefinition *def, const Query *query, TupleDesc view)
{
	bool		fresh = view == NULL;
	ListCell   *cell;

	if (fresh)
		check_targets(def, query->targetList);
	def->columns = palloc0_array(DrColumn, list_length(query->targetList));
	def->keys = palloc0_array(int, list_length(query->targetList));
	foreach(cell, query->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		describe_column(def, entry,
						fresh ? entry->resname :
						NameStr(TupleDescAttr(view, entry->resno - 1)->attname),
						fresh);
	}

	def->where = query->jointree->quals;
	if (fresh)
		dr_expression_check(def->where, "the WHERE condition", def->vars_of);
	dr_measure_resolve(def);
}

/* ---- entry points ---- */

/*
 * Returns the definition that query gives, with Vars of the source; raises an
 * error where a rollup cannot be kept exact for it.  Names are looked up as
 * the caller would, expressions are copies in the current memory context.  The
 * source stays locked in ShareRowExclusiveLock; the caller owns it.
 */
DrDefinition *
dr_definition_parse(const char *query_text, const char *time_column,
					List *dedup_by_names, List *dedup_order_names)
{
	DrDefinition *def = palloc0_object(DrDefinition);
	Query	   *query = analyse(query_text);
	Bitmapset  *used = NULL;
	AttrNumber	time;
	List	   *dedup_by;
	List	   *dedup_order;

	def->source = def->vars_of = isolate(query);
	dr_source_check(def->source);
	def->partitioned = get_rel_relkind(def->source) == RELKIND_PARTITIONED_TABLE;
	dr_expression_check_columns((Node *) query->targetList);
	dr_expression_check_columns(query->jointree->quals);

	time = dr_source_column(def->source, time_column, "time_column");
	dedup_by = dr_source_columns(def->source, dedup_by_names, "dedup_by");
	dedup_order = dr_source_columns(def->source, dedup_order_names, "dedup_order");
	pull_varattnos((Node *) query->targetList, 1, &used);
	pull_varattnos(query->jointree->quals, 1, &used);
	dr_source_describe_events(def, time, used, list_concat_copy(dedup_by, dedup_order));

	describe(def, query, NULL);
	dr_source_describe_dedup(def, dedup_by, dedup_order);
	dr_expression_check_equalities(def);
	return def;
}

/* ---- what is stored ---- */

/*
 * The views belong to the rollup's owner, who can have replaced them: nothing
 * in them is taken for granted.
 */
static void
refuse_view(Oid view)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("view \"%s\" is not as rollup_create made it", get_rel_name(view)),
			 errdetail("It is part of a rollup's definition."),
			 errhint("Remove the rollup by rollup_drop, and create it again.")));
}

/* Does a query read one relation, and do what both views may do at the most? */
static bool
is_plain(const Query *query)
{
	Node	   *from = list_length(query->jointree->fromlist) == 1 ?
		linitial(query->jointree->fromlist) : NULL;

	return query->commandType == CMD_SELECT && query->setOperations == NULL &&
		query->cteList == NIL && !query->hasSubLinks && !query->hasWindowFuncs &&
		!query->hasTargetSRFs && query->groupingSets == NIL &&
		query->havingQual == NULL && query->limitCount == NULL &&
		query->limitOffset == NULL && query->rowMarks == NIL &&
		from != NULL && IsA(from, RangeTblRef) &&
		rt_fetch(((RangeTblRef *) from)->rtindex, query->rtable)->rtekind == RTE_RELATION;
}

static bool
is_source_column(const Node *expr)
{
	const Var  *var = (const Var *) expr;

	return IsA(expr, Var) && var->varno == 1 && var->varlevelsup == 0 &&
		var->varattno > 0;
}

static void
check_events_view(const Query *query, Oid view)
{
	ListCell   *cell;

	if (query->hasAggs || query->groupClause != NIL ||
		(query->distinctClause != NIL) != query->hasDistinctOn)
		refuse_view(view);
	foreach(cell, query->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (!entry->resjunk && !is_source_column((Node *) entry->expr))
			refuse_view(view);
	}
}

static void
check_definition_view(const Query *query, Oid view)
{
	ListCell   *cell;

	if (query->groupClause == NIL || query->distinctClause != NIL ||
		query->sortClause != NIL || list_length(query->groupClause) > INDEX_MAX_KEYS)
		refuse_view(view);
	foreach(cell, query->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (entry->resjunk ||
			(entry->ressortgroupref == 0) != contain_aggs_of_level((Node *) entry->expr, 0))
			refuse_view(view);
	}
}

/* Reads the source, its columns and the deduplication from events_<id>. */
static void
read_events(DrDefinition *def, const Query *query, TupleDesc view)
{
	ListCell   *cell;

	def->events = palloc0_array(DrEventColumn, view->natts);
	foreach(cell, query->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);
		DrEventColumn *event = &def->events[def->nevents];

		if (entry->resjunk)
			continue;
		dr_source_describe(def->source, castNode(Var, entry->expr)->varattno, event);
		event->name = pstrdup(NameStr(TupleDescAttr(view, entry->resno - 1)->attname));
		def->nevents++;
	}

	if (query->distinctClause == NIL)
		return;
	def->dedup_by = palloc0_array(int, def->nevents);
	def->dedup_order = palloc0_array(int, def->nevents);
	foreach(cell, query->sortClause)
	{
		SortGroupClause *item = lfirst_node(SortGroupClause, cell);
		TargetEntry *entry = get_sortgroupclause_tle(item, query->targetList);

		/* the last item, if any, is by image */
		if (entry->resjunk)
			continue;
		if (get_sortgroupref_clause_noerr(item->tleSortGroupRef, query->distinctClause) != NULL)
			def->dedup_by[def->ndedup++] = entry->resno - 1;
		else
			def->dedup_order[def->ndedup_order++] = entry->resno - 1;
	}
}

/* Returns a copy of what a view stores, and its columns in *columns. */
static Query *
read_view(Oid view, TupleDesc *columns)
{
	/* the rewrite rule must not change while it is read */
	Relation	relation = try_relation_open(view, AccessShareLock);
	Query	   *query;

	if (relation == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the rollup was dropped meanwhile")));
	if (relation->rd_rel->relkind != RELKIND_VIEW)
		refuse_view(view);
	query = copyObject(get_view_query(relation));

	*columns = CreateTupleDescCopy(RelationGetDescr(relation));
	relation_close(relation, AccessShareLock);
	if (!is_plain(query))
		refuse_view(view);
	return query;
}

/*
 * Returns the definition that the two views of a rollup store, with Vars of
 * the events view, which is over the source.  Takes no lock on the source, and keeps none on the views.
 */
DrDefinition *
dr_definition_read(Oid source, Oid events, Oid definition)
{
	DrDefinition *def = palloc0_object(DrDefinition);
	TupleDesc	columns;
	Query	   *query = read_view(events, &columns);

	def->source = isolate(query);
	if (def->source != source)
		refuse_view(events);
	check_events_view(query, events);
	def->vars_of = events;
	def->partitioned = get_rel_relkind(def->source) == RELKIND_PARTITIONED_TABLE;
	read_events(def, query, columns);
	def->time_kind = dr_source_time_kind(&def->events[0], def->source);

	query = read_view(definition, &columns);
	if (isolate(query) != events)
		refuse_view(definition);
	check_definition_view(query, definition);
	describe(def, query, columns);
	return def;
}

/* ---- notices ---- */

static bool
same_moment(const DrColumn *one, const DrColumn *other)
{
	return one->at != NULL && other->at != NULL && one->kind == other->kind &&
		equal(one->at, other->at) && equal(one->filter, other->filter);
}

/* Two values of one time and FILTER can come from two rows of that time. */
static void
notice_torn(const DrDefinition *def)
{
	for (int i = 0; i < def->ncolumns; i++)
	{
		for (int j = i + 1; j < def->ncolumns; j++)
		{
			const DrColumn *one = &def->columns[i];
			const DrColumn *other = &def->columns[j];

			if (same_moment(one, other) && !equal(one->arg, other->arg))
			{
				ereport(NOTICE,
						(errmsg("columns \"%s\" and \"%s\" can come from two rows of the same time",
								one->name, other->name),
						 errhint("Keep them together with %s(ROW(%s, %s)::type, ...) of a composite type, or let dedup_by leave one row of each time.",
								 one->kind == DR_LATEST ? "latest" : "earliest",
								 dr_measure_text(one->arg, def->vars_of),
								 dr_measure_text(other->arg, def->vars_of))));
				return;
			}
		}
	}
}

/* Tells what a definition that is allowed may still do unexpectedly. */
void
dr_definition_notice(const DrDefinition *def)
{
	const DrEventColumn *time = &def->events[0];

	for (int i = 0; i < def->ncolumns; i++)
	{
		const DrColumn *column = &def->columns[i];

		if (!column->is_key && column->kind == DR_SUM &&
			(exprType(column->arg) == FLOAT4OID || exprType(column->arg) == FLOAT8OID))
			ereport(NOTICE,
					(errmsg("the sum in column \"%s\" is exact only up to rounding", column->name),
					 errdetail("A sum of type %s depends on the order of the rows.",
							   format_type_be(exprType(column->arg))),
					 errhint(IsA(column->arg, Var) ? "Write sum(%s::numeric) for an exact one." :
							 "Write sum((%s)::numeric) for an exact one.",
							 dr_measure_text(column->arg, def->vars_of))));
	}
	if (def->ndedup == 0)
		notice_torn(def);
	if (!time->not_null)
		ereport(NOTICE,
				(errmsg("rows in which \"%s\" is NULL are not counted", time->source_name),
				 errhint("ALTER TABLE %s ALTER COLUMN %s SET NOT NULL, if there are none.",
						 dr_source_name(def->source), quote_identifier(time->source_name))));
}
