/*
 * current.c
 *		What the view <live>_current is made of.
 *
 * The view unites three legs, each key in exactly one of them:
 *
 *		live			keys without marks, once live counts
 *		tail			source rows since W, keys without marks; none where each
 *						write is folded into live
 *		marked keys		each from its whole history
 *
 * Where live is left to others it is shown as it is, and none of the legs has a
 * row.
 *
 * Watermark and marks are read by the snapshot of the query that reads live
 * and the source, so a refresh that commits meanwhile changes nothing.
 */
#include "current.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/supportnodes.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "boundary.h"
#include "catalog.h"
#include "compat.h"
#include "identity.h"
#include "marked.h"
#include "plans.h"
#include "query.h"
#include "seen.h"

/* Is live kept by others, and shown as it is?  It may have several rows a key. */
static bool
is_left_alone(const DrRollup *rollup)
{
	return !rollup->fold &&
		(rollup->state == DR_STATE_OFF || rollup->state == DR_STATE_SHADOW);
}

/* Does live's content count?  In state on it does from the first watermark on. */
static bool
counts(const DrRollup *rollup)
{
	return dr_catalog_folds(rollup) ||
		(rollup->state == DR_STATE_ON && rollup->has_watermark);
}

/* The plan for a key with this pattern of NULLs; prepared at first use. */
static SPIPlanPtr
key_plan(DrPlans *plans, const bool *key_is_null)
{
	int			n = plans->def->nkeys;
	ListCell   *cell;
	DrKeyPlan  *made;
	Oid		   *types;
	MemoryContext before;

	foreach(cell, plans->key_plans)
	{
		DrKeyPlan  *known = lfirst(cell);

		if (memcmp(known->key_is_null, key_is_null, n * sizeof(bool)) == 0)
			return known->plan;
	}

	types = palloc(n * sizeof(Oid));
	for (int i = 0; i < n; i++)
		types[i] = plans->def->columns[plans->def->keys[i]].type;
	made = MemoryContextAlloc(plans->context, sizeof(DrKeyPlan));
	made->key_is_null = MemoryContextAlloc(plans->context, n * sizeof(bool));
	memcpy(made->key_is_null, key_is_null, n * sizeof(bool));
	made->plan = dr_plans_prepare(dr_query_key_row(plans->def, key_is_null), n, types, 0);
	before = MemoryContextSwitchTo(plans->context);
	plans->key_plans = lappend(plans->key_plans, made);
	MemoryContextSwitchTo(before);
	return made->plan;
}

/*
 * Who may ask for a row, or whether a key is marked?  The server has checked
 * whoever reads the view, or a view on top of it, or a column of it; all that we
 * know is the outermost user.  So the view brings a proof, which stands in the
 * marks and in a sequence, and which its owner alone can read otherwise.
 */
static void
check_proof(const DrRollup *rollup, bool proven)
{
	if (!proven)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for rollup \"%s\"", dr_catalog_name(rollup->live)),
				 errhint("Its rows are read through the view \"%s\".",
						 dr_catalog_name(rollup->current_view))));
}

/* ------------------------------------------------------------- unmarked keys */

/* What a call of _unmarked knows while its query runs. */
typedef struct Unmarked
{
	Oid			live;
	int64		proof;
	DrMarked   *marked;			/* NULL: no mark counts */
} Unmarked;

/* To a snapshot older than the rollup there is none, nor a mark. */
static Unmarked *
begin_unmarked(FunctionCallInfo fcinfo)
{
	const DrRollup *rollup = dr_seen_rollup(PG_GETARG_OID(0));
	Unmarked   *known = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(Unmarked));

	if (rollup != NULL)
		check_proof(rollup, !PG_ARGISNULL(2) && PG_GETARG_INT64(2) == rollup->proof);
	known->live = PG_GETARG_OID(0);
	known->proof = PG_ARGISNULL(2) ? 0 : PG_GETARG_INT64(2);
	if (rollup != NULL && !is_left_alone(rollup))
		known->marked = dr_marked_begin(rollup, fcinfo, 3);
	fcinfo->flinfo->fn_extra = known;
	return known;
}

/* ------------------------------------------------------------- marked keys */

/* The second argument has the type of the definition's rows; those from the
 * sixth on are the key, of types that the marks have. */
static void
check_key_arguments(FunctionCallInfo fcinfo, const DrPlans *plans)
{
	if (PG_NARGS() != plans->def->nkeys + 5 ||
		get_typ_typrelid(get_fn_expr_argtype(fcinfo->flinfo, 1)) != plans->rollup->definition)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the arguments are not a key of this rollup")));
}

/* Is it the first of the key's marks, of those that count? */
static bool
is_first_mark(FunctionCallInfo fcinfo, DrMarked **marked)
{
	const DrRollup *rollup = dr_seen_rollup(PG_GETARG_OID(0));
	ItemPointerData first;

	if (rollup == NULL || is_left_alone(rollup) ||
		PG_GETARG_CHAR(3) != dr_catalog_dirties_live(rollup))
		return false;
	if (*marked == NULL)
		*marked = dr_marked_begin(rollup, fcinfo, 5);
	return dr_marked_find(*marked, fcinfo->args + 5, &first) &&
		ItemPointerEquals(&first, (ItemPointer) PG_GETARG_POINTER(4));
}

/* Put the one row that SPI has found, if any, into the function's result. */
static void
return_row(ReturnSetInfo *result)
{
	TupleDesc	desc = result->setDesc;
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *nulls = palloc(desc->natts * sizeof(bool));

	if (SPI_processed == 0)
		return;
	for (int i = 0; i < desc->natts; i++)
		values[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
								  i + 1, &nulls[i]);
	tuplestore_putvalues(result->setResult, desc, values, nulls);
}

/* ------------------------------------------------------------ the tail's start */

/* Where the tail begins, by this version of the rollup's row; false: there is
 * none. */
static bool
tail_from(const DrRollup *rollup, DrTimeKind kind, Datum *from)
{
	if (rollup != NULL &&
		(rollup->state == DR_STATE_OFF || rollup->state == DR_STATE_SHADOW))
		return false;
	*from = rollup == NULL || !counts(rollup) ? dr_boundary_minus_infinity(kind) :
		dr_boundary_datum(kind, dr_boundary_zone(rollup->time_zone), rollup->watermark);
	return true;
}

/*
 * The floor: a constant in the plan, at or below each start of the tail that a
 * snapshot which uses the plan can see.  The planner leaves out partitions
 * below it; how many rows are read the start alone decides, which the snapshot
 * sees itself.
 *
 * So it is the least start of all versions of the rollup's row that snapshots
 * of this session can see, an older one than the planner's own included.  Versions
 * that come later send an invalidation of the source, and the plan is made anew.
 * Between planning and execution, W might still fall: a partition is truncated
 * that the plan has no lock on.  That is noticed at execution, by the snapshot
 * that reads the source.
 *
 * The floor stands in a plan twice: where it is relied on, and where it is
 * verified.  The latter must not be the lower one, so the former is what the
 * latter has remembered.
 */
typedef struct Floor
{
	Oid			live;			/* hash key */
	LocalTransactionId lxid;
	const void *planning;		/* whose it is */
	Datum		value;			/* by value, for each of the three types */
} Floor;

static HTAB *floors = NULL;

/* As with the thresholds (late.c). */
static void
transaction_ended(XactEvent event, void *arg)
{
	if ((event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		 event != XACT_EVENT_PREPARE) ||
		floors == NULL || hash_get_num_entries(floors) <= DR_KEPT_ENTRIES)
		return;
	hash_destroy(floors);
	floors = NULL;
}

void
dr_current_init(void)
{
	RegisterXactCallback(transaction_ended, NULL);
}

static void
init_floors(void)
{
	HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(Floor)};

	floors = hash_create("dailyrollup floors", 16, &ctl, HASH_ELEM | HASH_BLOBS);
}

/* In state shadow a promote gives live the shadow's watermark, which readers
 * need not notice. */
static bool
least_start_of(const DrRollup *rollup, DrTimeKind kind, Datum *from)
{
	if (rollup->state == DR_STATE_SHADOW && rollup->has_shadow_watermark)
	{
		*from = dr_boundary_datum(kind, dr_boundary_zone(rollup->time_zone),
								  rollup->shadow_watermark);
		return true;
	}
	return tail_from(rollup, kind, from);
}

static Datum
least_start(Oid live, DrTimeKind kind)
{
	List	   *versions = dr_catalog_find_versions(live);
	Datum		least = versions == NIL ? dr_boundary_minus_infinity(kind) :
		dr_boundary_infinity(kind);
	ListCell   *cell;

	foreach(cell, versions)
	{
		Datum		from;

		if (least_start_of(lfirst(cell), kind, &from) &&
			dr_boundary_precedes(kind, from, least))
			least = from;
	}
	return least;
}

/* The floor of what is planned now. */
static Datum
find_floor(Oid live, DrTimeKind kind, const void *planning, bool verified)
{
	Floor	   *known;
	bool		found;
	Datum		value;

	if (floors == NULL)
		init_floors();
	known = hash_search(floors, &live, HASH_FIND, NULL);
	if (known != NULL && (known->planning != planning || known->lxid != dr_my_lxid()))
		known = NULL;
	if (!verified)
		return known != NULL ? known->value : dr_boundary_minus_infinity(kind);

	value = least_start(live, kind);
	if (known != NULL && dr_boundary_precedes(kind, known->value, value))
		value = known->value;
	known = hash_search(floors, &live, HASH_ENTER, &found);
	known->planning = planning;
	known->lxid = dr_my_lxid();
	known->value = value;
	return value;
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_live_counts);
PG_FUNCTION_INFO_V1(dailyrollup_live_is_left_alone);
PG_FUNCTION_INFO_V1(dailyrollup_unmarked);
PG_FUNCTION_INFO_V1(dailyrollup_unmarked_support);
PG_FUNCTION_INFO_V1(dailyrollup_tail_from);
PG_FUNCTION_INFO_V1(dailyrollup_w_floor);
PG_FUNCTION_INFO_V1(dailyrollup_w_floor_support);
PG_FUNCTION_INFO_V1(dailyrollup_floor_holds);
PG_FUNCTION_INFO_V1(dailyrollup_current_row);

/* Does live's content count, by the caller's snapshot? */
Datum
dailyrollup_live_counts(PG_FUNCTION_ARGS)
{
	const DrRollup *rollup = dr_seen_rollup(PG_GETARG_OID(0));

	PG_RETURN_BOOL(rollup != NULL && counts(rollup));
}

/* Is live shown as it is, by the caller's snapshot? */
Datum
dailyrollup_live_is_left_alone(PG_FUNCTION_ARGS)
{
	const DrRollup *rollup = dr_seen_rollup(PG_GETARG_OID(0));

	PG_RETURN_BOOL(rollup != NULL && is_left_alone(rollup));
}

/*
 * Has the key no mark that counts, by the caller's snapshot?  The arguments from
 * the fourth on are the key; the second tells that the view depends on its type.
 */
Datum
dailyrollup_unmarked(PG_FUNCTION_ARGS)
{
	Unmarked   *known = fcinfo->flinfo->fn_extra;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	if (known == NULL || known->live != PG_GETARG_OID(0) ||
		PG_ARGISNULL(2) || known->proof != PG_GETARG_INT64(2))
		known = begin_unmarked(fcinfo);
	PG_RETURN_BOOL(known->marked == NULL ||
				   !dr_marked_find(known->marked, fcinfo->args + 3, NULL));
}

/* Planner support: as a rule, all rows pass. */
Datum
dailyrollup_unmarked_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);

	if (!IsA(request, SupportRequestSelectivity))
		PG_RETURN_POINTER(NULL);
	((SupportRequestSelectivity *) request)->selectivity = 1.0;
	PG_RETURN_POINTER(request);
}

/* Where the tail begins, by the caller's snapshot; NULL where there is none. */
Datum
dailyrollup_tail_from(PG_FUNCTION_ARGS)
{
	Datum		from;

	if (!tail_from(dr_seen_rollup(PG_GETARG_OID(0)),
				   dr_boundary_kind(get_func_rettype(fcinfo->flinfo->fn_oid)), &from))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(from);
}

/* The floor where no planner has put one: none. */
Datum
dailyrollup_w_floor(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(dr_boundary_minus_infinity(
						dr_boundary_kind(get_func_rettype(fcinfo->flinfo->fn_oid))));
}

/* Planner support: the floor as a constant. */
Datum
dailyrollup_w_floor_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);
	PlannerInfo *root;
	FuncExpr   *call;
	Const	   *live;
	Const	   *verified;
	Datum		value;
	int16		len;
	bool		byval;

	if (!IsA(request, SupportRequestSimplify))
		PG_RETURN_POINTER(NULL);
	root = ((SupportRequestSimplify *) request)->root;
	call = ((SupportRequestSimplify *) request)->fcall;
	live = linitial(call->args);
	verified = lsecond(call->args);
	if (root == NULL || !ActiveSnapshotSet() ||
		!IsA(live, Const) || live->constisnull || !IsA(verified, Const) || verified->constisnull)
		PG_RETURN_POINTER(NULL);

	value = find_floor(DatumGetObjectId(live->constvalue), dr_boundary_kind(call->funcresulttype),
					   root->glob, DatumGetBool(verified->constvalue));
	get_typlenbyval(call->funcresulttype, &len, &byval);
	PG_RETURN_POINTER(makeConst(call->funcresulttype, -1, InvalidOid, len, value, false, byval));
}

/*
 * Is the tail, by the caller's snapshot, what the plan takes it for?  And is live
 * not left alone, where the view would not show it?  That is for readers of
 * whose snapshots view.c cannot know: on a standby.
 */
Datum
dailyrollup_floor_holds(PG_FUNCTION_ARGS)
{
	DrTimeKind	kind = dr_boundary_kind(get_fn_expr_argtype(fcinfo->flinfo, 1));
	Oid			live = PG_GETARG_OID(0);
	const DrRollup *rollup = dr_seen_rollup(live);
	Datum		from;

	if (rollup != NULL && is_left_alone(rollup) && !PG_GETARG_BOOL(2))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the fold of rollup \"%s\" was changed after the query's snapshot",
						dr_catalog_name(live)),
				 errhint("Try again in a new transaction.")));
	if (tail_from(rollup, kind, &from) &&
		dr_boundary_precedes(kind, from, PG_GETARG_DATUM(1)))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the watermark of rollup \"%s\" went back after the query was planned",
						dr_catalog_name(live)),
				 errhint("Try the query again.")));
	PG_RETURN_BOOL(true);
}

/* Put the row of the key, the arguments from the sixth on, into the result. */
static void
return_key_row(FunctionCallInfo fcinfo, DrPlans *plans)
{
	int			n = plans->def->nkeys;
	Datum	   *values = palloc(n * sizeof(Datum));
	bool	   *key_is_null = palloc(n * sizeof(bool));
	char	   *nulls = palloc(n + 1);
	DrIdentity	before;

	for (int i = 0; i < n; i++)
	{
		key_is_null[i] = PG_ARGISNULL(i + 5);
		values[i] = key_is_null[i] ? (Datum) 0 : PG_GETARG_DATUM(i + 5);
		nulls[i] = key_is_null[i] ? 'n' : ' ';
	}
	nulls[n] = '\0';

	plans->uses++;
	dr_identity_enter_sql(plans->rollup->owner, &before);

	/* read-only: under the snapshot of the query that calls us */
	if (SPI_execute_plan(key_plan(plans, key_is_null), values, nulls, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not compute a row of \"%s\"", dr_catalog_name(plans->live));
	return_row((ReturnSetInfo *) fcinfo->resultinfo);
	dr_identity_leave_sql(&before);
	plans->uses--;
}

/*
 * The row of one marked key, from its whole history, as a row of the definition;
 * none where the key has no source row, or where another of its marks has the
 * row.
 */
Datum
dailyrollup_current_row(PG_FUNCTION_ARGS)
{
	DrPlans    *plans;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (PG_ARGISNULL(0))
		return (Datum) 0;
	plans = dr_plans_of(PG_GETARG_OID(0));
	check_proof(plans->rollup, !PG_ARGISNULL(2) && PG_GETARG_INT64(2) == plans->rollup->proof);
	check_key_arguments(fcinfo, plans);
	if (PG_ARGISNULL(3) || PG_ARGISNULL(4) ||
		!is_first_mark(fcinfo, (DrMarked **) &fcinfo->flinfo->fn_extra))
		return (Datum) 0;
	return_key_row(fcinfo, plans);
	return (Datum) 0;
}
