/*
 * view.c
 *		The text of <live>_current, where it changes; and its permits (permit.c),
 *		which are live's owner's.
 *
 *		long		shows also a live that is left to others (fold false)
 *		short		all others: it costs less to plan
 *
 * The long text is right always.  So it is put into the view by whoever sets
 * fold to false, in the same transaction.  The short one is right for a
 * snapshot that sees no version of the rollup's row by which live is left
 * alone: a later pass has it, once nobody has another snapshot, and no reader
 * is in the way.
 *
 * The text is replaced as a rule, not by CREATE OR REPLACE VIEW: the view stays
 * with all that its owner has given to it.
 */
#include "view.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/view.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "rewrite/rewriteDefine.h"
#include "rewrite/rewriteHandler.h"
#include "rewrite/rewriteSupport.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "definition.h"
#include "identity.h"
#include "locks.h"
#include "objects.h"
#include "stop.h"

/* What the view calls now. */
typedef struct Text
{
	Oid			namespace;
	Oid			permit_type;
	bool		ours;
	bool		is_long;
	List	   *permits;		/* of Const: what it shows to our functions */
} Text;

static void
note_call(Text *text, const FuncExpr *call, const char *name)
{
	ListCell   *cell;

	text->ours |= strcmp(name, "_floor_holds") == 0;
	text->is_long |= strcmp(name, "_live_is_left_alone") == 0;
	foreach(cell, call->args)
	{
		Const	   *arg = lfirst(cell);

		if (IsA(arg, Const) && arg->consttype == text->permit_type && !arg->constisnull)
			text->permits = lappend(text->permits, arg);
	}
}

static bool
look_for_calls(Node *node, void *context)
{
	Text	   *text = context;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, look_for_calls, context, 0);
	if (IsA(node, FuncExpr))
	{
		FuncExpr   *call = (FuncExpr *) node;
		char	   *name = get_func_name(call->funcid);

		if (name != NULL && get_func_namespace(call->funcid) == text->namespace)
			note_call(text, call, name);
	}
	return expression_tree_walker(node, look_for_calls, context);
}

/* The view's query, a copy; NULL: it is none of ours, or its owner has added to
 * it. */
static Query *
read_query(const DrRollup *rollup, Text *text)
{
	Relation	rel = relation_open(rollup->current_view, AccessShareLock);
	Relation	definition = relation_open(rollup->definition, AccessShareLock);
	Query	   *query = NULL;

	memset(text, 0, sizeof(Text));
	text->namespace = get_namespace_oid(DR_SCHEMA, false);
	text->permit_type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
										CStringGetDatum("_permit"),
										ObjectIdGetDatum(text->namespace));
	if (rel->rd_rel->relkind == RELKIND_VIEW &&
		rel->rd_att->natts == definition->rd_att->natts)
	{
		query = copyObject(get_view_query(rel));
		(void) look_for_calls((Node *) query, text);
	}
	relation_close(definition, AccessShareLock);
	relation_close(rel, AccessShareLock);
	return text->ours ? query : NULL;
}

/* Has the view the other text?  Its owner may have put anything else into it: that
 * is none of ours. */
static bool
can_become(const DrRollup *rollup, bool is_long)
{
	Text		text;

	return read_query(rollup, &text) != NULL && text.is_long != is_long;
}

/* -------------------------------------------------------------- two texts */

/* The text, parsed as the owner; the view's columns have the names that its
 * owner has given to them.  */
static Query *
parse_text(const DrRollup *rollup, bool is_long)
{
	DrDefinition *def = dr_definition_read(rollup->source, rollup->events, rollup->definition);
	DrIdentity	before;
	char	   *sql;
	Query	   *query;
	ListCell   *cell;

	dr_identity_enter(rollup->owner, &before);
	sql = dr_objects_current(def, rollup, is_long);
	query = parse_analyze_fixedparams(linitial_node(RawStmt, pg_parse_query(sql)), sql,
									  NULL, 0, NULL);
	dr_identity_leave(&before);
	foreach(cell, query->targetList)
	{
		TargetEntry *entry = lfirst(cell);

		entry->resname = get_attname(rollup->current_view, entry->resno, false);
	}
	return query;
}

/* The caller holds the view against its readers. */
static void
store_text(const DrRollup *rollup, Query *query)
{
	DrIdentity	before;

	dr_identity_enter(rollup->owner, &before);
	StoreViewQuery(rollup->current_view, query, true);
	CommandCounterIncrement();
	dr_identity_leave(&before);
}

/*
 * From now on, to the end of the transaction nobody reads the view, and it shows
 * a live that is left to others.
 *
 * What the text names is locked before the view: whoever drops one of these goes
 * on to the view.
 */
void
dr_view_show_left_alone(const DrRollup *rollup)
{
	Query	   *query;

	if (!can_become(rollup, true))
		return;
	query = parse_text(rollup, true);
	dr_stop_users(rollup->current_view, AccessExclusiveLock);
	dr_locks_check_not_in_use(rollup->current_view, "change the fold of");
	if (can_become(rollup, true))
		store_text(rollup, query);
}

/* Is live, or was it to a snapshot that anybody has, left to others? */
static bool
may_be_left_alone(const DrRollup *rollup)
{
	List	   *versions;
	ListCell   *cell;

	/* else what is dead to everybody is known as of some time ago */
	(void) GetOldestNonRemovableTransactionId(NULL);
	versions = dr_catalog_find_versions(rollup->live);
	foreach(cell, versions)
		if (!((DrRollup *) lfirst(cell))->fold)
			return true;
	return versions == NIL;
}

/*
 * Give the view the short text, if it may have that, and nobody reads it at the
 * moment: who comes now waits for no more than our commit.  The caller holds the
 * refresh lock, so fold stays as it is.
 */
void
dr_view_shorten(const DrRollup *rollup)
{
	Query	   *query;

	if (!rollup->fold || !can_become(rollup, false) || may_be_left_alone(rollup))
		return;
	query = parse_text(rollup, false);
	if (ConditionalLockRelationOid(rollup->current_view, AccessExclusiveLock) &&
		can_become(rollup, false))
		store_text(rollup, query);
}

/* ------------------------------------------------------------------ permits */

/* Whose permits it shows to our functions are the owner's after this; false: they
 * are already. */
static bool
replace_permits(const DrRollup *rollup, const Text *text)
{
	bool		replaced = false;
	ListCell   *cell;

	foreach(cell, text->permits)
	{
		DrPermit   *permit = (DrPermit *) DatumGetPointer(((Const *) lfirst(cell))->constvalue);

		if (permit->live != rollup->live || permit->owner == rollup->owner)
			continue;
		permit->owner = rollup->owner;
		replaced = true;
	}
	return replaced;
}

static Query *
read_renewed(const DrRollup *rollup)
{
	Text		text;
	Query	   *query = read_query(rollup, &text);

	return query != NULL && replace_permits(rollup, &text) ? query : NULL;
}

/*
 * Live has been handed over: the view's permits are to be the new owner's.  Its
 * query stays as it is stored otherwise, so nobody needs a right on what it names.
 * Not where somebody else reads the view: the next pass will do it.
 */
void
dr_view_renew(const DrRollup *rollup)
{
	Query	   *query;
	DrIdentity	before;

	if (read_renewed(rollup) == NULL ||
		!ConditionalLockRelationOid(rollup->current_view, AccessExclusiveLock))
		return;
	query = read_renewed(rollup);
	if (query == NULL)
		return;
	dr_identity_enter(rollup->owner, &before);
	DefineQueryRewrite(pstrdup(ViewSelectRuleName), rollup->current_view, NULL, CMD_SELECT, true,
					   true, list_make1(query));
	CommandCounterIncrement();
	dr_identity_leave(&before);
}

/* Does the view, as it is stored, show that permit to our functions? */
bool
dr_view_has_permit(const DrRollup *rollup, const DrPermit *permit)
{
	Text		text;
	ListCell   *cell;

	if (read_query(rollup, &text) == NULL)
		return false;
	foreach(cell, text.permits)
		if (dr_permit_equal((DrPermit *) DatumGetPointer(((Const *) lfirst(cell))->constvalue),
							permit))
			return true;
	return false;
}
