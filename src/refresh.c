/*
 * refresh.c
 *		The daily refresh: from watermark W to boundary B, in one transaction.
 *
 * It keeps the shadow in state shadow, else live.  A pass also builds a shadow
 * by refreshes that go from one boundary to the next and leave the marks alone,
 * to replace live's content with it later.
 *
 *	1. take the refresh lock
 *	2. read W and state; check that a refresh may run here
 *	3. wait for every transaction that holds a write lock on the source
 *	4. fold [W, B) into the table, or seed it with everything before B
 *	5. take the marks, bring the marked keys to their history before B (heal.c)
 *	6. advance W to B, if it still is what step 3 left
 *
 * Each statement of steps 4 and 5 takes a snapshot of its own, after step 3.
 * A row below B is then either seen by step 4, or its writer came after step
 * 3, met the refresh lock or the new W, and has marked its key; see late.c.
 *
 * For several rollups steps 1 to 3 are done for all, in order of live's OID,
 * then 4 to 6 for each: nothing is locked while we wait for writers.
 */
#include "refresh.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "announce.h"
#include "boundary.h"
#include "catalog.h"
#include "catalog_write.h"
#include "check.h"
#include "debug.h"
#include "definition.h"
#include "guard.h"
#include "guc.h"
#include "heal.h"
#include "identity.h"
#include "late.h"
#include "locks.h"
#include "merge.h"
#include "objects.h"
#include "owned.h"
#include "owner.h"
#include "query.h"
#include "shadow.h"
#include "stop.h"
#include "watermark.h"

/* One rollup on its way through a refresh. */
typedef struct Refresh
{
	DrRollup   *rollup;			/* as read after step 3 */
	const char *name;			/* of live, for messages */
	DrDefinition *def;
	pg_tz	   *zone;
	TimestampTz boundary;
	bool		build;			/* the shadow is made to replace live's content */

	/* what is kept: live, or the shadow */
	Oid			table;
	bool		has_watermark;
	TimestampTz watermark;		/* of that table */

	bool		seed;
	char		reason[64];		/* of the seed, where there was one to be found */
	bool		waited;			/* step 3 was done */
	DrRun		run;
} Refresh;

/* a boundary must have passed by so much, by the wall clock */
#define SETTLING_TIME	USECS_PER_MINUTE

/* ------------------------------------------------------------------ checks */

static void
add_context(void *arg)
{
	Refresh    *refresh = arg;

	errcontext("refreshing rollup \"%s\" to %s",
			   refresh->name, timestamptz_to_str(refresh->boundary));
}

/* Is it a watermark of the rollup's already?  After a change of its time zone,
 * that need not be a midnight, nor have passed. */
static bool
is_watermark(const Refresh *refresh, TimestampTz instant)
{
	return (refresh->has_watermark && instant == refresh->watermark) ||
		(refresh->rollup->has_watermark && instant == refresh->rollup->watermark);
}

/* The boundary that the caller asks for, or the latest that has settled. */
static TimestampTz
choose_boundary(const Refresh *refresh, bool given, TimestampTz wanted)
{
	TimestampTz settled = GetCurrentTimestamp() - SETTLING_TIME;

	if (!given)
	{
		TimestampTz latest = dr_boundary_latest(refresh->zone, settled);

		/* after a change of zone or clock W may lie ahead: late keys still wait */
		return refresh->has_watermark ? Max(latest, refresh->watermark) : latest;
	}
	if (is_watermark(refresh, wanted))
		return wanted;
	dr_boundary_check(refresh->zone, wanted);
	if (wanted > settled)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("boundary %s has not passed by a minute yet",
						timestamptz_to_str(wanted))));
	return wanted;
}

/* The table that this refresh keeps, as the rollup's row says. */
static void
aim(Refresh *refresh, DrRollup *rollup)
{
	bool		shadow = refresh->build || rollup->state == DR_STATE_SHADOW;

	refresh->rollup = rollup;
	refresh->table = shadow ? rollup->shadow : rollup->live;
	refresh->has_watermark = shadow ? rollup->has_shadow_watermark : rollup->has_watermark;
	refresh->watermark = shadow ? rollup->shadow_watermark : rollup->watermark;
}

/*
 * Read the rollup's row anew: it may have waited for someone who changed it.
 * False where that was a drop.
 */
static bool
read_rollup(Refresh *refresh)
{
	DrRollup   *rollup = dr_catalog_find(refresh->rollup->live, NULL);

	if (rollup == NULL)
		return false;
	aim(refresh, rollup);
	return true;
}

/* Is there a table that this refresh could keep? */
static bool
can_refresh(const Refresh *refresh)
{
	const DrRollup *rollup = refresh->rollup;

	if (refresh->build || rollup->state == DR_STATE_SHADOW)
		return OidIsValid(rollup->shadow);
	return rollup->state == DR_STATE_ON ||
		(rollup->state == DR_STATE_NEW && dr_catalog_wanted(rollup) == DR_STATE_ON);
}

static void
complain_of_state(const DrRollup *rollup)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("rollup \"%s\" is not kept by the daily refresh",
					dr_catalog_name(rollup->live)),
			 errdetail("Its state is \"%s\", the mode wanted for it \"%s\".",
					   dr_catalog_state_name(rollup->state),
					   dr_catalog_state_name(dr_catalog_wanted(rollup))),
			 errhint("CALL rollup_run(%s) makes whatever pass it needs.",
					 quote_literal_cstr(dr_objects_relation(rollup->live)))));
}

/* The marks that this refresh takes.  A mark of live's own (a backfill's) says
 * nothing of a shadow; where there is no shadow it says no more than others. */
static char
taken_marks(const Refresh *refresh)
{
	return refresh->rollup->state == DR_STATE_SHADOW ? DR_DIRTIES_DAILY : DR_DIRTIES_ANY;
}

static uint64
count_marked_keys(const Refresh *refresh, uint64 limit)
{
	DrIdentity	before;
	uint64		keys;

	dr_identity_enter_sql(refresh->rollup->owner, &before);
	keys = dr_late_count(refresh->rollup, refresh->def, DR_DIRTIES_DAILY, limit);
	dr_identity_leave_sql(&before);
	return keys;
}

/* What there is to do, as far as the rollup's row and marks tell. */
static const char *
choose_action(Refresh *refresh)
{
	refresh->seed = false;
	if (refresh->has_watermark && refresh->boundary < refresh->watermark)
		return "none";
	if (!refresh->has_watermark ||
		(refresh->table == refresh->rollup->live && refresh->rollup->reseed != NULL))
	{
		refresh->seed = true;
		return "seed";
	}
	if (refresh->boundary > refresh->watermark)
		return refresh->build ? "seed" : "fold";
	if (refresh->build)
		return "none";
	return count_marked_keys(refresh, 1) > 0 ? "late" : "none";
}

/*
 * Is there work on rows that their writers did not mark?  Of those below W
 * each late one has a mark, and marks are taken by a snapshot no newer than
 * the one that reads the rows: a row is seen wherever its mark is.  Only rows
 * at or after W need the wait for writers.
 */
static bool
reads_unmarked_rows(const Refresh *refresh)
{
	return strcmp(refresh->run.action, "none") != 0 &&
		(!refresh->has_watermark || refresh->boundary > refresh->watermark);
}

/* ------------------------------------------------------------- steps 1 to 3 */

/*
 * The refresh lock is held: read the rollup, and check that a refresh may run.
 * False where the rollup was dropped meanwhile.
 */
static bool
prepare(Refresh *refresh, bool given, TimestampTz wanted)
{
	/* our own writes that follow must meet the lock, not an old threshold */
	dr_late_forget_thresholds();
	if (!read_rollup(refresh))
		return false;
	dr_owned_check_parts(refresh->rollup, false);
	refresh->boundary = choose_boundary(refresh, given, wanted);
	if (!can_refresh(refresh))
		complain_of_state(refresh->rollup);
	dr_watermark_check_zone(refresh->rollup->live);
	refresh->def = dr_definition_read(refresh->rollup->source, refresh->rollup->events,
									  refresh->rollup->definition);
	dr_locks_check_not_in_use(refresh->rollup->source, "refresh a rollup of");
	dr_late_check_triggers(refresh->rollup);
	refresh->run.action = choose_action(refresh);
	return true;
}

/*
 * Steps 1 to 3.  Where the rollup was dropped while we waited for its refresh
 * lock: an error if it was "named", else NULL.
 */
static Refresh *
begin_refresh(DrRollup *rollup, bool named, bool build, bool given, TimestampTz wanted)
{
	Refresh    *refresh = palloc0(sizeof(Refresh));
	ErrorContextCallback context;

	refresh->build = build;
	aim(refresh, rollup);
	refresh->name = dr_catalog_name(rollup->live);
	refresh->zone = dr_boundary_zone(rollup->time_zone);
	refresh->boundary = choose_boundary(refresh, given, wanted);
	refresh->run.started_at = GetCurrentTimestamp();

	context.previous = error_context_stack;
	context.callback = add_context;
	context.arg = refresh;
	error_context_stack = &context;

	dr_locks_refresh(rollup->definition, refresh->name);
	if (!prepare(refresh, given, wanted))
	{
		if (named)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("the rollup was dropped while its refresh waited")));
		dr_locks_refresh_undone(rollup->definition);
		error_context_stack = context.previous;
		return NULL;
	}
	DR_WAITPOINT("refresh-locked");

	if (reads_unmarked_rows(refresh))
	{
		dr_locks_wait_for_writers(rollup->source, dr_catalog_name(rollup->source));
		refresh->waited = true;
	}
	DR_WAITPOINT("refresh-waited");

	error_context_stack = context.previous;
	return refresh;
}

/* ------------------------------------------------------------- steps 4 to 6 */

/* From the table's watermark to B. */
static DrWindow
window_of(const Refresh *refresh)
{
	DrTimeKind	kind = refresh->def->time_kind;
	DrWindow	window = {
		.has_lower = true,
		.has_upper = true,
		.lower = dr_boundary_datum(kind, refresh->zone, refresh->watermark),
		.upper = dr_boundary_datum(kind, refresh->zone, refresh->boundary)
	};

	return window;
}

/*
 * Everything before B into the table, whatever it held.  The marks go first: a
 * mark seen by the earlier statement belongs to a row that the later one sees.
 */
static void
seed(Refresh *refresh)
{
	DrWindow	window = window_of(refresh);

	/* Rows are found by their place: nobody may move one.  Readers and foreign keys
	 * are not kept waiting.  By tries: a concurrent build of an index waits for our
	 * snapshot, and where both wait the server would end the build, which is dearer. */
	dr_stop_users(refresh->table, ShareRowExclusiveLock);
	if (!refresh->build &&
		SPI_execute(dr_query_forget_marks(refresh->rollup, taken_marks(refresh)),
					false, 0) != SPI_OK_DELETE)
		elog(ERROR, "could not take the marks of rollup \"%s\"", refresh->name);
	dr_locks_know_partitions(refresh->rollup->source);
	window.has_lower = false;
	DR_WAITPOINT("seed-marks-taken");
	refresh->run.folded_keys = dr_merge_seed(refresh->rollup, refresh->def, refresh->table,
											 &window);
	dr_check_written(refresh->rollup, refresh->def, refresh->table, refresh->run.folded_keys);
	DR_WAITPOINT("refresh-folded");
}

static void
fold(Refresh *refresh)
{
	DrWindow	window = window_of(refresh);

	refresh->run.folded_keys = dr_merge_fold(refresh->rollup, refresh->def, refresh->table,
											 &window);
	DR_WAITPOINT("refresh-folded");
}

static void
heal_marked_keys(Refresh *refresh)
{
	DrWindow	window = window_of(refresh);

	refresh->run.late_keys = dr_heal_marked_keys(refresh->rollup, refresh->def, refresh->table,
												 taken_marks(refresh), window.upper);
}

/* With too many late keys, one pass over the whole source is cheaper. */
static void
prefer_seed_to_many_late_keys(Refresh *refresh)
{
	uint64		limit = dr_guc_max_late_keys;

	if (refresh->seed || refresh->build)
		return;
	if (dr_guc_max_late_keys < 0)
	{
		limit = DR_LATE_KEYS_FLOOR;
		if (dr_late_count(refresh->rollup, refresh->def, DR_DIRTIES_DAILY, limit + 1) <= limit)
			return;
		limit = Max(limit, dr_check_count(refresh->rollup, refresh->def, refresh->table).rows / 5);
	}
	if (dr_late_count(refresh->rollup, refresh->def, DR_DIRTIES_DAILY, limit + 1) <= limit)
		return;

	refresh->seed = true;
	refresh->run.action = "seed";
	/* no palloc: we are in SPI, and it shall outlive that */
	snprintf(refresh->reason, sizeof(refresh->reason), "more than " UINT64_FORMAT " late keys", limit);
	refresh->run.reason = refresh->reason;
	ereport(WARNING,
			(errmsg("rollup \"%s\" has more than " UINT64_FORMAT " late keys",
					refresh->name, limit),
			 errdetail("The refresh builds it anew."),
			 errhint("dailyrollup.max_late_keys sets the limit.")));
}

static void
complain_of_change(const Refresh *refresh)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("rollup \"%s\" was changed while it was refreshed",
					refresh->name),
			 errhint("Refresh again.")));
}

static void
advance_watermark(Refresh *refresh)
{
	if (DR_NOW() < refresh->boundary &&
		!is_watermark(refresh, refresh->boundary))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the clock went back behind %s during the refresh",
						timestamptz_to_str(refresh->boundary)),
				 errhint("Refresh again when the clock is right.")));
	if (refresh->table == refresh->rollup->shadow)
	{
		dr_catalog_advance_shadow(refresh->rollup, refresh->boundary, refresh->seed);
		return;
	}

	/* a content that was being built to replace this one is needed no more */
	if (refresh->seed)
		dr_shadow_drop(refresh->rollup);
	if (!dr_catalog_advance(refresh->rollup, refresh->boundary, refresh->seed))
		complain_of_change(refresh);
}

/* Steps 4 and 5, as the rollup's owner. */
static void
bring_content(Refresh *refresh)
{
	DrIdentity	before;

	dr_identity_enter_sql(refresh->rollup->owner, &before);
	dr_guard_let(refresh->rollup, refresh->table);
	prefer_seed_to_many_late_keys(refresh);
	if (refresh->seed)
		seed(refresh);
	else
	{
		if (refresh->boundary > refresh->watermark)
			fold(refresh);
		if (!refresh->build)
			heal_marked_keys(refresh);
	}
	dr_guard_end();
	dr_identity_leave_sql(&before);
}

/* Step 6, and the record of the run. */
static void
settle(Refresh *refresh)
{
	DrRun	   *run = &refresh->run;

	DR_WAITPOINT("refresh-before-advance");
	if (refresh->seed || refresh->boundary > refresh->watermark)
		advance_watermark(refresh);
	DR_WAITPOINT("refresh-advanced");

	if (refresh->seed)
	{
		run->has_from = false;
		run->reason = run->reason ? run->reason : refresh->rollup->reseed;
	}
	run->has_to = true;
	run->to_time = refresh->boundary;
	run->outcome = "ok";
	run->kept = true;
	dr_catalog_insert_run(refresh->rollup, run);
	dr_announce(dr_objects_relation(refresh->rollup->live), run);
	ereport(LOG,
			(errhidestmt(true), errhidecontext(true),
			 errmsg("refreshed rollup \"%s\" to %s: %s, " INT64_FORMAT " keys folded, "
					INT64_FORMAT " late keys", refresh->name,
					timestamptz_to_str(refresh->boundary), run->action,
					run->folded_keys, run->late_keys)));
	DR_WAITPOINT_IN_COMMIT("refresh-in-commit");
}

static void
finish_refresh(Refresh *refresh)
{
	DrRun	   *run = &refresh->run;
	int			waits;
	ErrorContextCallback context;

	context.previous = error_context_stack;
	context.callback = add_context;
	context.arg = refresh;
	error_context_stack = &context;

	/* those who were waited for may have changed it, as TRUNCATE does */
	if (!read_rollup(refresh) || !can_refresh(refresh))
		complain_of_change(refresh);
	run->action = choose_action(refresh);
	run->has_from = run->has_to = refresh->has_watermark;
	run->from_time = run->to_time = refresh->watermark;
	if (reads_unmarked_rows(refresh) && !refresh->waited)
		complain_of_change(refresh);

	if (strcmp(run->action, "none") == 0)
		dr_locks_refresh_undone(refresh->rollup->definition);
	else
	{
		dr_locks_source(refresh->rollup->source, dr_catalog_name(refresh->rollup->source));
		refresh->def = dr_definition_read(refresh->rollup->source, refresh->rollup->events,
										  refresh->rollup->definition);
		DR_WAITPOINT("refresh-source-locked");
		waits = dr_locks_limit_waits();
		dr_owner_follow_shadow(refresh->rollup);
		bring_content(refresh);
		settle(refresh);
		dr_locks_unlimit_waits(waits);
	}
	error_context_stack = context.previous;
}

/*
 * One refresh, in the caller's transaction, for a pass that holds the refresh
 * lock: to that boundary, of the table that is kept, or of a shadow that is
 * built.  What it did stands in "run".
 */
void
dr_refresh_run(DrRollup *rollup, TimestampTz boundary, bool build, DrRun *run)
{
	Refresh    *refresh = begin_refresh(rollup, true, build, true, boundary);

	finish_refresh(refresh);
	*run = refresh->run;
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_refresh);

/* Does the daily refresh keep a table of this rollup? */
static bool
is_refreshed(DrRollup *rollup)
{
	Refresh		refresh = {.build = false};

	aim(&refresh, rollup);
	return can_refresh(&refresh);
}

static void
return_run(ReturnSetInfo *result, const Refresh *refresh)
{
	const DrRun *run = &refresh->run;
	Interval	elapsed = {.time = GetCurrentTimestamp() - run->started_at};
	bool		nulls[7] = {false, false, !run->has_from, !run->has_to};
	Datum		values[7] = {
		ObjectIdGetDatum(refresh->rollup->live), CStringGetTextDatum(run->action),
		TimestampTzGetDatum(run->from_time), TimestampTzGetDatum(run->to_time),
		Int64GetDatum(run->folded_keys), Int64GetDatum(run->late_keys),
		IntervalPGetDatum(&elapsed)
	};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

Datum
dailyrollup_refresh(PG_FUNCTION_ARGS)
{
	List	   *rollups;
	List	   *refreshes = NIL;
	bool		given = !PG_ARGISNULL(1);
	TimestampTz wanted = given ? PG_GETARG_TIMESTAMPTZ(1) : 0;
	ListCell   *cell;

	dr_locks_check_transaction("rollup_refresh()");
	rollups = PG_ARGISNULL(0) ? dr_owned_all() : list_make1(dr_owned_rollup(PG_GETARG_OID(0)));
	InitMaterializedSRF(fcinfo, 0);

	foreach(cell, rollups)
	{
		Refresh    *refresh;

		if (PG_ARGISNULL(0) && !is_refreshed(lfirst(cell)))
			continue;
		refresh = begin_refresh(lfirst(cell), !PG_ARGISNULL(0), false, given, wanted);
		if (refresh != NULL)
			refreshes = lappend(refreshes, refresh);
	}
	foreach(cell, refreshes)
	{
		finish_refresh(lfirst(cell));
		return_run((ReturnSetInfo *) fcinfo->resultinfo, lfirst(cell));
	}
	return (Datum) 0;
}
