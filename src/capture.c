/*
 * capture.c
 *		The row triggers of a source: what becomes of a row that was written.
 *
 *		it is late						its key is marked
 *		writes are folded into live		it is kept for the end of the transaction
 *		neither							the trigger's WHEN has left it out
 *
 * Both conditions are constants of a statement (and of each leaf): so a row
 * that is neither costs one comparison.  A change of state that turns the fold
 * on waits for all who write; one that turns it off is met again at the end.
 *
 * What code of the owner's writes while we write to live in this session, a trigger
 * of live's say, is kept, too: the change of state that we are at may turn the fold
 * on, and have read the source before.
 */
#include "capture.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "batch.h"
#include "boundary.h"
#include "catalog.h"
#include "event.h"
#include "guard.h"
#include "guc.h"
#include "identity.h"
#include "late.h"
#include "plans.h"
#include "watermark.h"

/* The rows that one firing of the trigger is about: one, or the two images of
 * an update. */
typedef struct Written
{
	int			n;
	Datum		values[2][MaxHeapAttributeNumber];
	bool		nulls[2][MaxHeapAttributeNumber];
	bool		added;
	bool		frozen;			/* snapshots see it to which its mark is not there */
} Written;

/* Are rows kept for the end of the transaction? */
static bool
are_kept(const DrWatermark *watermark)
{
	return watermark->folds || dr_guard_is_open_for(watermark->live);
}

static void
read_row(DrPlans *plans, Written *written, TupleTableSlot *slot)
{
	int			i = written->n++;

	dr_event_read(plans, slot, written->values[i], written->nulls[i]);
}

static bool
is_late(const DrPlans *plans, const Written *written)
{
	for (int i = 0; i < written->n; i++)
		if (!written->nulls[i][0] && dr_late_is_late(plans, written->values[i][0]))
			return true;
	return false;
}

/* A writer needs no right on the marks; the key's expressions are the owner's
 * and must not run with the writer's rights. */
static void
mark(DrPlans *plans, const Written *written)
{
	DrIdentity	before;

	dr_identity_enter_sql(plans->rollup->owner, &before);
	for (int i = 0; i < written->n; i++)
		dr_late_mark_event(plans, written->values[i], written->nulls[i], DR_DIRTIES_DAILY,
						   written->added && !written->frozen);
	dr_identity_leave_sql(&before);
}

static void
capture(DrPlans *plans, TriggerData *trigger)
{
	Oid			relation = RelationGetRelid(trigger->tg_relation);
	Written		written;		/* large, so it is not set to zeros */

	/* a partition that is being detached concurrently keeps its triggers for a
	 * while, but its rows are no longer the source's */
	if (trigger->tg_trigger->tgisclone && !dr_event_in_source(plans, relation))
		return;
	written.n = 0;
	written.added = TRIGGER_FIRED_BY_INSERT(trigger->tg_event);
	written.frozen = HeapTupleHeaderXminFrozen(trigger->tg_trigtuple->t_data);
	dr_event_locate(plans, relation);
	read_row(plans, &written, trigger->tg_trigslot);
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
	{
		read_row(plans, &written, trigger->tg_newslot);
		if (dr_event_same(plans->def, written.values[0], written.nulls[0],
						  written.values[1], written.nulls[1]))
			return;
	}

	if (is_late(plans, &written))
		mark(plans, &written);
	if (are_kept(dr_watermark_of(plans->live)))
		for (int i = 0; i < written.n; i++)
			dr_batch_collect(plans, written.values[i], written.nulls[i],
							 written.added, dr_guc_backfill);
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_concerns);
PG_FUNCTION_INFO_V1(dailyrollup_concerns_support);
PG_FUNCTION_INFO_V1(dailyrollup_capture);

/*
 * _concerns(time, live), _concerns(old, new, live): does it concern the rollup
 * that a row of that time is written, or one of these is replaced by the other?
 * It does where one is late (NULL, where none is known to be), and where writes
 * are folded.
 */
Datum
dailyrollup_concerns(PG_FUNCTION_ARGS)
{
	int			ntimes = PG_NARGS() - 1;
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, 0);
	bool		known = true;
	Datum		threshold;
	const DrWatermark *watermark;

	if (PG_ARGISNULL(ntimes))
		PG_RETURN_NULL();
	threshold = dr_late_threshold(PG_GETARG_OID(ntimes));
	watermark = dr_watermark_of(PG_GETARG_OID(ntimes));
	if (type != dr_boundary_type(watermark->time_kind))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("the time column of rollup \"%s\" is of type %s, not %s",
						dr_catalog_name(watermark->live),
						format_type_be(dr_boundary_type(watermark->time_kind)),
						format_type_be(type))));
	if (are_kept(watermark))
		PG_RETURN_BOOL(true);
	for (int i = 0; i < ntimes; i++)
	{
		if (PG_ARGISNULL(i))
			known = false;
		else if (dr_boundary_precedes(watermark->time_kind, PG_GETARG_DATUM(i), threshold))
			PG_RETURN_BOOL(true);
	}
	if (!known)
		PG_RETURN_NULL();
	PG_RETURN_BOOL(false);
}

/* time < threshold */
static Expr *
precedes(Expr *time, Oid type, Datum threshold)
{
	TypeCacheEntry *cache = lookup_type_cache(type, TYPECACHE_LT_OPR);
	Const	   *bound = makeConst(type, -1, InvalidOid, cache->typlen, threshold, false,
								  cache->typbyval);
	Expr	   *result = make_opclause(cache->lt_opr, BOOLOID, false, time, (Expr *) bound,
									   InvalidOid, InvalidOid);

	set_opfuncid((OpExpr *) result);
	return result;
}

/* Planner support: a comparison with a constant, or a constant, once a
 * statement. */
Datum
dailyrollup_concerns_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);
	List	   *args;
	Const	   *live;
	Oid			type;
	Datum		threshold;
	const DrWatermark *watermark;
	Expr	   *time;

	if (!IsA(request, SupportRequestSimplify))
		PG_RETURN_POINTER(NULL);
	args = ((SupportRequestSimplify *) request)->fcall->args;
	live = llast(args);
	if (!IsA(live, Const) || live->constisnull)
		PG_RETURN_POINTER(NULL);
	threshold = dr_late_threshold(DatumGetObjectId(live->constvalue));
	watermark = dr_watermark_of(DatumGetObjectId(live->constvalue));
	type = dr_boundary_type(watermark->time_kind);
	time = linitial(args);
	if (exprType((Node *) time) != type)
		PG_RETURN_POINTER(NULL);
	if (are_kept(watermark))
		PG_RETURN_POINTER(makeBoolConst(true, false));
	if (list_length(args) == 2)
		PG_RETURN_POINTER(precedes(time, type, threshold));
	PG_RETURN_POINTER(make_orclause(list_make2(precedes(time, type, threshold),
											   precedes(lsecond(args), type, threshold))));
}

/* Row trigger of a source: AFTER INSERT, UPDATE or DELETE. */
Datum
dailyrollup_capture(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	DrPlans    *plans;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		!TRIGGER_FIRED_AFTER(trigger->tg_event) ||
		trigger->tg_trigger->tgnargs != 1)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("this function serves the row triggers of a rollup's source alone"),
				 errhint("They are made by rollup_create.")));
	plans = dr_plans_of_id(pg_strtoint32(trigger->tg_trigger->tgargs[0]));
	if (plans == NULL)
		dr_catalog_check_installed();
	else
	{
		plans->uses++;
		capture(plans, trigger);
		plans->uses--;
	}
	PG_RETURN_POINTER(NULL);
}
