/*
 * tail.c
 *		Where the tail of <live>_current begins, and whether live counts.
 *
 * Both by the snapshot of the query that reads live and the source.  While it
 * sees a mark of a key that is not plain, too long for an index, live does not
 * count, and all is tail: exact, if slow, and over with the pass that recomputes
 * the key.  A leg for these alone would cost each query more to plan than all
 * that reads one key.
 */
#include "tail.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/supportnodes.h"
#include "utils/acl.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "boundary.h"
#include "compat.h"
#include "marked.h"
#include "seen.h"

/* Is live kept by others, and shown as it is?  It may have several rows a key. */
bool
dr_tail_is_left_alone(const DrRollup *rollup)
{
	return !rollup->fold &&
		(rollup->state == DR_STATE_OFF || rollup->state == DR_STATE_SHADOW);
}

/* Does live's content count, but for marks?  In state on it does from the first
 * watermark on. */
static bool
may_count(const DrRollup *rollup)
{
	return dr_catalog_folds(rollup) ||
		(rollup->state == DR_STATE_ON && rollup->has_watermark);
}

/* Does it, by the active snapshot? */
bool
dr_tail_live_counts(const DrRollup *rollup)
{
	return may_count(rollup) && !dr_marked_has_long(rollup);
}

/* ------------------------------------------------------------ the tail's start */

/* Where the tail begins, by this version of the rollup's row, whose live counts
 * or not; false: there is none. */
static bool
start_of(const DrRollup *rollup, bool live_counts, DrTimeKind kind, Datum *from)
{
	if (rollup != NULL && dr_tail_is_left_alone(rollup))
		return false;
	if (!live_counts)
		*from = dr_boundary_minus_infinity(kind);
	else if (dr_catalog_folds(rollup))
		return false;
	else
		*from = dr_boundary_datum(kind, dr_boundary_zone(rollup->time_zone),
								  rollup->watermark);
	return true;
}

/* Where it begins, by the active snapshot, to which "rollup" is that row; NULL: it
 * is older than the rollup. */
static bool
tail_from(const DrRollup *rollup, DrTimeKind kind, Datum *from)
{
	return start_of(rollup, rollup != NULL && dr_tail_live_counts(rollup), kind, from);
}

/*
 * The floor: a constant in the plan, at or below each start of the tail that a
 * snapshot which uses the plan can see.  The planner leaves out partitions
 * below it; how many rows are read the start alone decides, which the snapshot
 * sees itself.
 *
 * So it is the least start of all versions of the rollup's row that snapshots
 * of this session can see, an older one than the planner's own included; and no
 * floor where one of them may see a mark of a key that is not plain.  Versions
 * that come later, and such marks, send an invalidation of the source, and the
 * plan is made anew.  Between planning and execution, W might still fall: a
 * partition is truncated that the plan has no lock on; or such a mark is
 * committed.  That is noticed at execution, by the snapshot that reads the source.
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
dr_tail_init(void)
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
	return start_of(rollup, may_count(rollup), kind, from);
}

/* Most have the marks in common. */
static bool
may_have_long(const List *versions)
{
	Oid			asked = InvalidOid;
	ListCell   *cell;

	foreach(cell, versions)
	{
		const DrRollup *rollup = lfirst(cell);

		if (rollup->marks != asked && dr_marked_may_have_long(rollup))
			return true;
		asked = rollup->marks;
	}
	return false;
}

static Datum
least_start(Oid live, DrTimeKind kind)
{
	List	   *versions = dr_catalog_find_versions(live);
	Datum		least = versions == NIL ? dr_boundary_minus_infinity(kind) :
		dr_boundary_infinity(kind);
	ListCell   *cell;

	if (may_have_long(versions))
		return dr_boundary_minus_infinity(kind);
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

PG_FUNCTION_INFO_V1(dailyrollup_live_is_left_alone);
PG_FUNCTION_INFO_V1(dailyrollup_tail_from);
PG_FUNCTION_INFO_V1(dailyrollup_w_floor);
PG_FUNCTION_INFO_V1(dailyrollup_w_floor_support);
PG_FUNCTION_INFO_V1(dailyrollup_floor_holds);
PG_FUNCTION_INFO_V1(dailyrollup_not_plain);

/* Is live shown as it is, by the caller's snapshot? */
Datum
dailyrollup_live_is_left_alone(PG_FUNCTION_ARGS)
{
	const DrRollup *rollup = dr_seen_rollup(PG_GETARG_OID(0));

	PG_RETURN_BOOL(rollup != NULL && dr_tail_is_left_alone(rollup));
}

/* What a call of _tail_from knows while its query runs. */
typedef struct TailFrom
{
	Oid			live;
	bool		none;
	Datum		from;
} TailFrom;

static TailFrom *
find_tail_from(FunctionCallInfo fcinfo)
{
	TailFrom   *known = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, sizeof(TailFrom));

	known->live = PG_GETARG_OID(0);
	known->none = !tail_from(dr_seen_rollup(known->live),
							 dr_boundary_kind(get_func_rettype(fcinfo->flinfo->fn_oid)),
							 &known->from);
	fcinfo->flinfo->fn_extra = known;
	return known;
}

/* Where the tail begins, by the caller's snapshot; NULL where there is none.
 * Asked for each row where the source is read from end to end. */
Datum
dailyrollup_tail_from(PG_FUNCTION_ARGS)
{
	const TailFrom *known = fcinfo->flinfo->fn_extra;

	if (known == NULL || known->live != PG_GETARG_OID(0))
		known = find_tail_from(fcinfo);
	if (known->none)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(known->from);
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

	if (rollup != NULL && dr_tail_is_left_alone(rollup) && !PG_GETARG_BOOL(2))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the fold of rollup \"%s\" was changed after the query's snapshot",
						dr_catalog_name(live)),
				 errhint("Try again in a new transaction.")));
	if (tail_from(rollup, kind, &from) &&
		dr_boundary_precedes(kind, from, PG_GETARG_DATUM(1)))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the tail of rollup \"%s\" begins earlier than when the query was planned",
						dr_catalog_name(live)),
				 errhint("Try the query again.")));
	PG_RETURN_BOOL(true);
}

/*
 * A key that is not plain is being marked: plans of the view that rely on a floor
 * are made anew.  NULL, which the mark's column "plain" says then.
 */
Datum
dailyrollup_not_plain(PG_FUNCTION_ARGS)
{
	Oid			source = PG_GETARG_OID(0);

	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(source)))
		PG_RETURN_NULL();
	if (!dr_is_class_owner(source, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(source));
	CacheInvalidateRelcacheByRelid(source);
	PG_RETURN_NULL();
}
