/*
 * guard.c
 *		Who may write to live: this library alone, wherever it keeps live.
 *
 * A statement trigger of live refuses each INSERT, UPDATE, DELETE and TRUNCATE
 * but those between dr_guard_let and dr_guard_end.  Of these it lets pass the
 * statements that we run ourselves, not those of a trigger that one of ours
 * fires: those run one trigger deeper.
 */
#include "guard.h"

#include "access/xact.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"

#include "catalog.h"
#include "objects.h"

/* The statements that pass. */
static DrGuard let = {InvalidOid};

static int
trigger_depth(void)
{
	return DatumGetInt32(DirectFunctionCall1(pg_trigger_depth, (Datum) 0));
}

/*
 * From here on our statements write to live, until dr_guard_end, or an error.
 * Returns what is to be restored then: a trigger of live may lead here again.
 */
DrGuard
dr_guard_let(Oid live)
{
	DrGuard		before = let;

	let.live = live;
	let.depth = trigger_depth();
	let.nesting = GetCurrentTransactionNestLevel();
	return before;
}

void
dr_guard_end(DrGuard before)
{
	let = before;
}

/* Is a statement of ours changing live? */
bool
dr_guard_is_open(void)
{
	return OidIsValid(let.live);
}

static void
transaction_ended(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT)
		let.live = InvalidOid;
}

/* A subtransaction that a statement of ours has begun may end within it. */
static void
subtransaction_ended(SubXactEvent event, SubTransactionId mine,
					 SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB &&
		GetCurrentTransactionNestLevel() <= let.nesting)
		let.live = InvalidOid;
}

void
dr_guard_init(void)
{
	RegisterXactCallback(transaction_ended, NULL);
	RegisterSubXactCallback(subtransaction_ended, NULL);
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
	if (live == let.live && trigger_depth() == let.depth + 1)
		PG_RETURN_POINTER(NULL);
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
