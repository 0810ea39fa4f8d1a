/*
 * run.c
 *		The pass: whatever a rollup needs now, each step in a transaction of
 *		its own.
 *
 * A pass looks at the rollup's row, chooses a step, makes it, commits, and looks
 * again, until there is nothing to do:
 *
 *		new			begin a shadow, build it in parts, promote
 *		off			begin a shadow if wanted, flush
 *		shadow		refresh the shadow, promote if wanted, else late keys,
 *					flush, diff; or end it
 *		on			reseed as new does; refresh, late keys, check; or leave
 *
 * So a pass that was killed goes on with the next one.  A step that fails is
 * undone, recorded, and ends the pass of its rollup; the others are served.
 */
#include "run.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "boundary.h"
#include "catalog.h"
#include "catalog_write.h"
#include "check.h"
#include "chunk.h"
#include "debug.h"
#include "definition.h"
#include "fold.h"
#include "guc.h"
#include "late.h"
#include "locks.h"
#include "promote.h"
#include "refresh.h"
#include "state.h"

typedef enum Step
{
	STEP_NONE,
	STEP_BEGIN_SHADOW,
	STEP_END_SHADOW,
	STEP_BUILD,
	STEP_REFRESH,
	STEP_PROMOTE,
	STEP_LEAVE_ON,
	STEP_LATE,
	STEP_FLUSH,
	STEP_CHECK,
	STEP_DIFF
} Step;

/* as dailyrollup.runs names them */
static const char *const step_names[] = {
	"none", "state", "state", "seed", "fold", "promote", "state", "late", "flush",
	"check", "diff"
};

/* What a pass has done for a rollup, and what has come of it. */
typedef struct Pass
{
	Oid			live;
	char	   *name;
	bool		begun;			/* a shadow was begun */
	bool		changed;		/* the kept table has got another content */
	bool		healed;
	bool		flushed;
	bool		checked;
	bool		compared;
	bool		skipped;		/* a refresh was under way */
	ErrorData  *failure;
} Pass;

/* More than so much behind, a refresh goes in parts. */
#define LONG_WAY	(8 * USECS_PER_DAY)

/* --------------------------------------------------------------- what to do */

/* The latest midnight that is due. */
static TimestampTz
due_boundary(const DrRollup *rollup)
{
	TimestampTz now = GetCurrentTimestamp();
	Interval	delay = {.time = (TimeOffset) dr_guc_delay * USECS_PER_SEC};
	TimestampTz settled = dr_boundary_before(now, rollup->delay ? rollup->delay : &delay);

	return dr_boundary_latest(dr_boundary_zone(rollup->time_zone),
							  Min(settled, now - USECS_PER_MINUTE));
}

/* Is there no shadow that a content could be built in, or one that was begun
 * before it was asked for? */
static bool
needs_shadow(const Pass *pass, const DrRollup *rollup)
{
	if (!OidIsValid(rollup->shadow))
		return true;
	if (!rollup->has_shadow_watermark)
		return !pass->begun;
	return rollup->reseed != NULL && rollup->shadow_at < rollup->reseed_at;
}

/* A new content is built beside live, then promoted. */
static Step
step_of_build(const Pass *pass, const DrRollup *rollup)
{
	TimestampTz boundary = due_boundary(rollup);

	if (rollup->has_watermark)
		boundary = Max(boundary, rollup->watermark);
	if (needs_shadow(pass, rollup))
		return STEP_BEGIN_SHADOW;
	if (!rollup->has_shadow_watermark || rollup->shadow_watermark < boundary)
		return STEP_BUILD;
	return STEP_PROMOTE;
}

static Step
step_of_off(const Pass *pass, const DrRollup *rollup, DrState wanted)
{
	if (wanted != DR_STATE_OFF)
		return STEP_BEGIN_SHADOW;
	return rollup->fold && !pass->flushed ? STEP_FLUSH : STEP_NONE;
}

static Step
step_of_shadow(const Pass *pass, const DrRollup *rollup, DrState wanted)
{
	if (wanted == DR_STATE_OFF)
		return STEP_END_SHADOW;
	if (!OidIsValid(rollup->shadow))
		return STEP_BEGIN_SHADOW;
	if (!rollup->has_shadow_watermark || rollup->shadow_watermark < due_boundary(rollup))
		return STEP_REFRESH;
	if (wanted == DR_STATE_ON)
		return STEP_PROMOTE;
	if (!pass->healed)
		return STEP_LATE;
	if (rollup->fold && !pass->flushed)
		return STEP_FLUSH;
	return pass->changed && !pass->compared ? STEP_DIFF : STEP_NONE;
}

static Step
step_of_on(const Pass *pass, const DrRollup *rollup, DrState wanted)
{
	if (!rollup->has_watermark || rollup->reseed != NULL)
		return step_of_build(pass, rollup);
	if (rollup->watermark < due_boundary(rollup))
		return STEP_REFRESH;
	if (wanted != DR_STATE_ON)
		return STEP_LEAVE_ON;
	if (!pass->healed)
		return STEP_LATE;
	return pass->changed && !pass->checked ? STEP_CHECK : STEP_NONE;
}

static Step
next_step(const Pass *pass, const DrRollup *rollup)
{
	DrState		wanted = dr_catalog_wanted(rollup);

	switch (rollup->state)
	{
		case DR_STATE_NEW:
			return step_of_build(pass, rollup);
		case DR_STATE_OFF:
			return step_of_off(pass, rollup, wanted);
		case DR_STATE_SHADOW:
			return step_of_shadow(pass, rollup, wanted);
		case DR_STATE_ON:
			return step_of_on(pass, rollup, wanted);
	}
	return STEP_NONE;
}

/* -------------------------------------------------------------------- steps */

/* The change of state that a step makes, for the record. */
static void
record_change(const DrRollup *rollup, TimestampTz started_at)
{
	DrRollup   *now = dr_catalog_find(rollup->live, NULL);
	DrRun		run = {.action = "state", .started_at = started_at, .outcome = "ok"};

	if (now == NULL || now->state == rollup->state)
		return;
	run.reason = psprintf("%s to %s", dr_catalog_state_name(rollup->state),
						  dr_catalog_state_name(now->state));
	dr_catalog_insert_run(rollup, &run);
}

/* One refresh, or one part of a seed. */
static void
refresh(Pass *pass, DrRollup *rollup, bool build)
{
	bool		shadow = build || rollup->state == DR_STATE_SHADOW;
	bool		has_watermark = shadow ? rollup->has_shadow_watermark : rollup->has_watermark;
	TimestampTz watermark = shadow ? rollup->shadow_watermark : rollup->watermark;
	TimestampTz boundary = due_boundary(rollup);
	DrRun		run;

	if (rollup->has_watermark)
		boundary = Max(boundary, rollup->watermark);
	if (!has_watermark || boundary - watermark > LONG_WAY)
		boundary = dr_chunk_end(rollup, dr_definition_read(rollup->source, rollup->events,
														   rollup->definition),
								has_watermark, watermark, boundary);
	dr_refresh_run(rollup, boundary, build, &run);
	pass->changed = true;
}

static void
heal_late_keys(Pass *pass, DrRollup *rollup)
{
	DrRun		run;

	dr_refresh_run(rollup, rollup->state == DR_STATE_SHADOW ?
				   rollup->shadow_watermark : rollup->watermark, false, &run);
	pass->healed = true;
}

static void
flush(Pass *pass, DrRollup *rollup, TimestampTz started_at)
{
	DrRun		run = {
		.action = "flush", .started_at = started_at, .outcome = "ok", .kept = true
	};

	/* what a trigger that does not fire has left out, no mark tells */
	dr_late_check_triggers(rollup);
	run.late_keys = dr_fold_flush(rollup);
	if (rollup->state == DR_STATE_OFF)
		dr_state_forget_late(rollup);
	if (run.late_keys > 0)
		dr_catalog_insert_run(rollup, &run);
	pass->flushed = true;
}

static void
check(Pass *pass, DrRollup *rollup, TimestampTz started_at)
{
	DrCount		count = dr_check_count(rollup, dr_definition_read(rollup->source, rollup->events,
																   rollup->definition),
									   rollup->live);
	DrRun		run = {
		.action = "check", .started_at = started_at, .outcome = "ok",
		.counted = true, .rows = count.rows, .keys = count.keys
	};

	if (count.rows != count.keys)
	{
		run.outcome = "corrupt";
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("rollup \"%s\" has " INT64_FORMAT " rows of " INT64_FORMAT " keys",
						pass->name, count.rows, count.keys),
				 errhint("Find out what writes to it, or what became of its unique index; rollup_reseed builds it anew.")));
	}
	dr_catalog_insert_run(rollup, &run);
	pass->checked = true;
}

static void
compare(Pass *pass, DrRollup *rollup, TimestampTz started_at)
{
	DrRun		run = {.action = "diff", .started_at = started_at, .outcome = "ok"};
	char	   *keys = NULL;

	pass->compared = true;
	if (!dr_check_diff(rollup, &run, &keys))
		return;
	if (keys != NULL)
	{
		run.outcome = "differs";
		ereport(LOG,
				(errmsg("rollup \"%s\" differs from its shadow: " INT64_FORMAT " missing_daily, "
						INT64_FORMAT " missing_live, " INT64_FORMAT " mismatch, "
						INT64_FORMAT " duplicate", pass->name, run.missing_daily,
						run.missing_live, run.mismatches, run.duplicates),
				 errdetail_log("%s", keys)));
	}
	dr_catalog_insert_run(rollup, &run);
}

static void
perform(Pass *pass, Step step, DrRollup *rollup, TimestampTz started_at)
{
	switch (step)
	{
		case STEP_BEGIN_SHADOW:
			dr_state_begin_shadow(rollup);
			pass->begun = true;
			break;
		case STEP_END_SHADOW:
			dr_state_end_shadow(rollup);
			break;
		case STEP_BUILD:
			refresh(pass, rollup, true);
			break;
		case STEP_REFRESH:
			refresh(pass, rollup, false);
			break;
		case STEP_PROMOTE:
			dr_promote(rollup->live, false);
			pass->changed = true;
			break;
		case STEP_LEAVE_ON:
			dr_state_leave_on(rollup, dr_catalog_wanted(rollup));
			break;
		case STEP_LATE:
			heal_late_keys(pass, rollup);
			break;
		case STEP_FLUSH:
			flush(pass, rollup, started_at);
			break;
		case STEP_CHECK:
			check(pass, rollup, started_at);
			break;
		case STEP_DIFF:
			compare(pass, rollup, started_at);
			break;
		case STEP_NONE:
			break;
	}
}

/* ------------------------------------------------------------- transactions */

/*
 * Choose the next step and make it, under the refresh lock; false where there
 * is none, or the rollup is gone, or is somebody else's for the moment.
 */
static bool
make_step(Pass *pass, Step *step)
{
	TimestampTz started_at = GetCurrentTimestamp();
	DrRollup   *rollup = dr_catalog_find(pass->live, NULL);

	if (rollup == NULL)
		return false;
	dr_catalog_owned(pass->live);
	if (!dr_locks_refresh_if_free(rollup->definition))
	{
		pass->skipped = true;
		return false;
	}
	dr_late_forget_thresholds();
	rollup = dr_catalog_find(pass->live, NULL);
	if (rollup == NULL)
		return false;
	*step = next_step(pass, rollup);
	if (*step == STEP_NONE)
		return false;
	perform(pass, *step, rollup, started_at);
	record_change(rollup, started_at);
	return true;
}

/* A step that failed, in a transaction that has undone it. */
static void
record_failure(Pass *pass, Step step, TimestampTz started_at)
{
	DrRollup   *rollup = dr_catalog_find(pass->live, NULL);
	DrRun		run = {
		.action = step_names[step], .started_at = started_at,
		.outcome = "failed", .reason = pass->failure->message
	};

	ereport(WARNING,
			(errcode(pass->failure->sqlerrcode),
			 errmsg("rollup \"%s\": %s", pass->name, pass->failure->message),
			 pass->failure->detail ? errdetail_internal("%s", pass->failure->detail) : 0,
			 pass->failure->hint ? errhint("%s", pass->failure->hint) : 0));
	if (rollup != NULL)
		dr_catalog_insert_run(rollup, &run);
}

/* Who cancels the pass does not mean one rollup. */
static bool
ends_the_pass(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED ||
		error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN;
}

/*
 * One step, committed, or undone and recorded.  False where the pass of this
 * rollup has ended.
 */
static bool
try_step(Pass *pass, MemoryContext context)
{
	ResourceOwner owner = CurrentResourceOwner;
	TimestampTz started_at = GetCurrentTimestamp();
	volatile Step step = STEP_NONE;
	volatile bool more = false;

	PushActiveSnapshot(GetTransactionSnapshot());
	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		MemoryContextSwitchTo(CurTransactionContext);
		more = make_step(pass, (Step *) &step);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		pass->failure = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		more = false;
		if (ends_the_pass(pass->failure))
			ReThrowError(pass->failure);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;

	if (pass->failure != NULL)
	{
		record_failure(pass, step, started_at);

		/* a comparison is evidence, never correctness */
		if (step == STEP_DIFF)
		{
			pass->failure = NULL;
			pass->compared = true;
			more = true;
		}
	}
	PopActiveSnapshot();
	SPI_commit();
	DR_WAITPOINT("run-committed");
	return more;
}

static Pass *
run_rollup(Oid live, MemoryContext context)
{
	Pass	   *pass = palloc0(sizeof(Pass));

	pass->live = live;
	pass->name = dr_catalog_name(live);
	while (try_step(pass, context))
		CHECK_FOR_INTERRUPTS();
	if (pass->skipped)
		ereport(NOTICE,
				(errmsg("rollup \"%s\" is left out: a refresh of it is under way", pass->name)));
	return pass;
}

static void
complain_of_failures(List *failed, int n)
{
	StringInfoData list;
	ListCell   *cell;

	initStringInfo(&list);
	foreach(cell, failed)
	{
		Pass	   *pass = lfirst(cell);

		appendStringInfo(&list, "%s%s: %s", list.len == 0 ? "" : "\n", pass->name,
						 pass->failure->message);
	}
	ereport(ERROR,
			(errcode(((Pass *) linitial(failed))->failure->sqlerrcode),
			 errmsg("%d of %d rollups failed", list_length(failed), n),
			 errdetail_internal("%s", list.data),
			 errhint("The view rollup_runs has each of them; the others were served.")));
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_run);

static void
check_can_commit(FunctionCallInfo fcinfo)
{
	PreventCommandDuringRecovery("rollup_run()");
	PreventCommandIfReadOnly("rollup_run()");
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("rollup_run cannot run inside a transaction block"),
				 errdetail("It commits after each step."),
				 errhint("Use CALL rollup_run() alone; rollup_refresh and rollup_promote run inside a transaction.")));
	if (XactIsoLevel != XACT_READ_COMMITTED)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("rollup_run needs READ COMMITTED transactions"),
				 errhint("Set default_transaction_isolation to 'read committed'.")));
}

/* Procedure: a pass over one rollup, or over each of the caller's. */
Datum
dailyrollup_run(PG_FUNCTION_ARGS)
{
	MemoryContext context;
	MemoryContext before;
	List	   *lives = NIL;
	List	   *failed = NIL;
	ListCell   *cell;

	check_can_commit(fcinfo);

	/* what outlives the transactions */
	context = AllocSetContextCreate(PortalContext, "dailyrollup pass", ALLOCSET_DEFAULT_SIZES);
	before = MemoryContextSwitchTo(context);
	if (PG_ARGISNULL(0))
	{
		foreach(cell, dr_catalog_owned_all())
			lives = lappend_oid(lives, ((DrRollup *) lfirst(cell))->live);
	}
	else
		lives = list_make1_oid(dr_catalog_owned(PG_GETARG_OID(0))->live);

	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	/* a step must not be one transaction with what the caller has done */
	SPI_commit();
	MemoryContextSwitchTo(context);
	foreach(cell, lives)
	{
		Pass	   *pass = run_rollup(lfirst_oid(cell), context);

		if (pass->failure != NULL)
			failed = lappend(failed, pass);
	}
	SPI_finish();
	if (failed != NIL)
		complain_of_failures(failed, list_length(lives));
	MemoryContextSwitchTo(before);
	PG_RETURN_VOID();
}
