/*
 * guard.c
 *		Who may write to live: this library alone, wherever it keeps live.
 *
 * A statement trigger of live refuses each INSERT, UPDATE, DELETE and TRUNCATE
 * but those between dr_guard_let and dr_guard_end.  Of these it lets pass the
 * statements that we run ourselves, not those of a trigger that one of ours
 * fires, which run one trigger deeper, nor those of a function that one of ours
 * calls, or that is called where we write without a statement (target.c): there
 * more error contexts than that of our statement stand between us and them.
 *
 * Such code must not take away either what we are about to write from: the source
 * is kept in use, as by a query over it.  So whoever would truncate, drop or change
 * it, or refresh, promote or flush a rollup of it in the midst, is told so.
 */
#include "guard.h"

#include "access/xact.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"

#include "objects.h"

/* A table that our statements write to. */
typedef struct Let
{
	int32		rollup;
	Oid			table;
	Relation	source;			/* NULL: gone, behind the event triggers' back */
	int			depth;			/* of triggers around them */
	int			nesting;		/* of transactions around them */
	ErrorContextCallback *beneath;	/* the error contexts around them */
} Let;

/* Of this transaction, in its memory, the latest first: a trigger of one table may
 * lead to another one. */
static List *lets = NIL;

static int
trigger_depth(void)
{
	return DatumGetInt32(DirectFunctionCall1(pg_trigger_depth, (Datum) 0));
}

/*
 * From here on our statements write to the table, until dr_guard_end, or an error.
 * The source is locked.
 */
void
dr_guard_let(const DrRollup *rollup, Oid table)
{
	MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
	Let		   *let = palloc(sizeof(Let));

	let->rollup = rollup->id;
	let->table = table;
	let->source = RelationIdGetRelation(rollup->source);
	let->depth = trigger_depth();
	let->nesting = GetCurrentTransactionNestLevel();
	let->beneath = error_context_stack;
	lets = lcons(let, lets);
	MemoryContextSwitchTo(before);
}

void
dr_guard_end(void)
{
	Let		   *let = linitial(lets);

	if (let->source != NULL)
		RelationClose(let->source);
	lets = list_delete_first(lets);
	pfree(let);
}

/* Is a statement of ours changing a table? */
bool
dr_guard_is_open(void)
{
	return lets != NIL;
}

/* Is it one that changes that table? */
bool
dr_guard_is_open_for(Oid table)
{
	ListCell   *cell;

	foreach(cell, lets)
		if (((Let *) lfirst(cell))->table == table)
			return true;
	return false;
}

/* An error where it is one of that rollup's, which calls code of the owner's that
 * would do what the server does not refuse by itself. */
void
dr_guard_check_not_open(const DrRollup *rollup, const char *what)
{
	ListCell   *cell;

	foreach(cell, lets)
		if (((Let *) lfirst(cell))->rollup == rollup->id)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot %s rollup \"%s\" while it is being written in this session",
							what, dr_catalog_name(rollup->live))));
}

/* (What was kept in use is given back by the server.) */
static void
transaction_ended(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT ||
		event == XACT_EVENT_PREPARE)
		lets = NIL;
}

/* Those that began in it end with it; the ones around it go on. */
static void
subtransaction_ended(SubXactEvent event, SubTransactionId mine,
					 SubTransactionId parent, void *arg)
{
	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	while (lets != NIL &&
		   ((Let *) linitial(lets))->nesting >= GetCurrentTransactionNestLevel())
		lets = list_delete_first(lets);
}

void
dr_guard_init(void)
{
	RegisterXactCallback(transaction_ended, NULL);
	RegisterSubXactCallback(subtransaction_ended, NULL);
}

/* Is a statement that is about to write to the table one of ours?  SPI, by which we
 * run each of them, adds one error context. */
static bool
is_ours(Oid table)
{
	const Let  *let = lets == NIL ? NULL : linitial(lets);

	return let != NULL && let->table == table && trigger_depth() == let->depth + 1 &&
		error_context_stack != NULL && error_context_stack->previous == let->beneath;
}

/* Does the library keep live, by the latest row? */
static bool
is_kept(const DrRollup *rollup)
{
	return rollup->state == DR_STATE_NEW || rollup->state == DR_STATE_ON ||
		dr_catalog_folds(rollup);
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_guard);

/* Statement trigger of live: BEFORE INSERT, UPDATE, DELETE or TRUNCATE. */
Datum
dailyrollup_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Oid			live;
	DrRollup   *rollup;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_FOR_STATEMENT(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("this function serves the statement trigger of a rollup's table alone")));
	live = RelationGetRelid(trigger->tg_relation);
	if (is_ours(live))
		PG_RETURN_POINTER(NULL);
	dr_catalog_check_installed();
	rollup = dr_catalog_find(live, NULL);
	if (rollup != NULL && is_kept(rollup))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rollup \"%s\" is maintained by dailyrollup", dr_catalog_name(live)),
				 errdetail("Its state is \"%s\"; a write of others would make it wrong.",
						   dr_catalog_state_name(rollup->state)),
				 errhint("Stop your own fold, or run SELECT rollup_alter(%s, mode => 'off', fold => false)%s.",
						 quote_literal_cstr(dr_objects_relation(live)),
						 dr_catalog_folds(rollup) ? "" :
						 psprintf(" and CALL rollup_run(%s)",
								  quote_literal_cstr(dr_objects_relation(live))))));
	PG_RETURN_POINTER(NULL);
}
