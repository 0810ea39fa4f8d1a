/*
 * pass.c
 *		The pass: whatever a rollup needs now, each step in a transaction of
 *		its own.
 *
 * A pass looks at the rollup's row, chooses a step (steps.c), makes it, commits,
 * and looks again, until there is nothing to do.
 * So a pass that was killed goes on with the next one.  A step that fails is
 * undone, recorded, and ends the pass of its rollup; the others are served.
 */
#include "pass.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "attempt.h"
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
#include "owned.h"
#include "patience.h"
#include "progress.h"
#include "promote.h"
#include "refresh.h"
#include "state.h"
#include "steps.h"
#include "view.h"

/* More than so much behind, a refresh goes in parts. */
#define LONG_WAY	(8 * USECS_PER_DAY)

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
refresh(DrPass *pass, DrRollup *rollup, bool build)
{
	bool		shadow = build || rollup->state == DR_STATE_SHADOW;
	bool		has_watermark = shadow ? rollup->has_shadow_watermark : rollup->has_watermark;
	TimestampTz watermark = shadow ? rollup->shadow_watermark : rollup->watermark;
	TimestampTz boundary = dr_steps_due_boundary(rollup);
	DrRun		run;

	if (rollup->has_watermark)
		boundary = Max(boundary, rollup->watermark);
	if (!has_watermark || boundary - watermark > LONG_WAY)
	{
		DrDefinition *def = dr_definition_read(rollup->source, rollup->events,
											   rollup->definition);

		if (pass->part == 0)
			pass->parts = dr_chunk_count(rollup, def, has_watermark, watermark, boundary);
		dr_progress_part(pass->part + 1, Max(pass->parts, pass->part + 1));
		boundary = dr_chunk_end(rollup, def, has_watermark, watermark, boundary);
	}
	dr_refresh_run(rollup, boundary, build, &run);
	dr_progress_rows(run.folded_keys);
	pass->part++;
	pass->changed = true;
}

static void
heal_late_keys(DrPass *pass, DrRollup *rollup)
{
	DrRun		run;

	dr_refresh_run(rollup, rollup->state == DR_STATE_SHADOW ?
				   rollup->shadow_watermark : rollup->watermark, false, &run);
	pass->healed = true;
}

static void
flush(DrPass *pass, DrRollup *rollup, TimestampTz started_at)
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
check(DrPass *pass, DrRollup *rollup, TimestampTz started_at)
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

/* What the comparison's row says of the shadow itself. */
static void
count_shadow(const DrRollup *rollup, DrRun *run)
{
	DrCount		count = dr_check_count(rollup, dr_definition_read(rollup->source, rollup->events,
																   rollup->definition),
									   rollup->shadow);

	run->counted = true;
	run->rows = count.rows;
	run->keys = count.keys;
}

static void
compare(DrPass *pass, DrRollup *rollup, TimestampTz started_at)
{
	DrRun		run = {.action = "diff", .started_at = started_at, .outcome = "ok"};
	char	   *keys = NULL;

	pass->compared = true;
	if (!dr_check_diff(rollup, &run, &keys))
		return;
	count_shadow(rollup, &run);
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
perform(DrPass *pass, DrStep step, DrRollup *rollup, TimestampTz started_at)
{
	dr_progress_phase(dr_step_phases[step]);
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
make_step(DrPass *pass, DrStep *step)
{
	TimestampTz started_at = GetCurrentTimestamp();
	DrRollup   *rollup = dr_catalog_find(pass->live, NULL);

	if (rollup == NULL)
		return false;
	dr_owned_rollup(pass->live);
	if (!dr_locks_refresh_if_free(rollup->definition))
	{
		pass->skipped = true;
		return false;
	}
	dr_late_forget_thresholds();
	rollup = dr_catalog_find(pass->live, NULL);
	if (rollup == NULL)
		return false;

	/* after a failure all is looked at: it may be the check that has failed */
	if (rollup->failures > 0)
		pass->changed = true;
	*step = dr_steps_next(pass, rollup);
	if (*step == STEP_NONE)
	{
		dr_view_renew(rollup);
		dr_view_shorten(rollup);
		return false;
	}
	perform(pass, *step, rollup, started_at);
	record_change(rollup, started_at);
	return true;
}

static TimestampTz
retry_time(const DrRollup *rollup)
{
	TimestampTz wait = DR_FIRST_RETRY;

	for (int i = 0; i < rollup->failures && wait < DR_LAST_RETRY; i++)
		wait *= 2;
	return GetCurrentTimestamp() + Min(wait, DR_LAST_RETRY);
}

/* A step that failed, in a transaction that has undone it. */
static void
record_failure(DrPass *pass, DrStep step, TimestampTz started_at)
{
	DrRollup   *rollup = dr_catalog_find(pass->live, NULL);
	DrRun		run = {
		.action = dr_step_names[step], .started_at = started_at,
		.outcome = "failed", .reason = pass->failure->message
	};

	/* nobody waits for what the worker has to say of it */
	if (rollup == NULL && pass->scheduled)
		return;

	/* the same again and again would fill the server's log */
	if (rollup == NULL || rollup->last_error == NULL ||
		strcmp(rollup->last_error, pass->failure->message) != 0 || !pass->scheduled)
		ereport(WARNING,
				(errcode(pass->failure->sqlerrcode),
				 errmsg("rollup \"%s\": %s", pass->name, pass->failure->message),
				 pass->failure->detail ? errdetail_internal("%s", pass->failure->detail) : 0,
				 pass->failure->hint ? errhint("%s", pass->failure->hint) : 0));
	if (rollup == NULL)
		return;
	dr_catalog_insert_run(rollup, &run);
	if (step != STEP_DIFF)
		dr_catalog_note_failure(rollup, pass->failure->message, retry_time(rollup));
}

/* The pass has come to its end. */
static void
record_success(DrPass *pass)
{
	DrRollup   *rollup = dr_catalog_find(pass->live, NULL);

	if (rollup == NULL || pass->skipped)
		return;
	if (rollup->failures > 0)
		dr_catalog_note_success(rollup);
	dr_catalog_forget_runs(rollup, GetCurrentTimestamp() -
						   (TimestampTz) dr_guc_history * USECS_PER_SEC);
}

/* Who cancels the pass does not mean one rollup.  A function of an owner's can
 * raise that error too: it means its own. */
static bool
ends_the_pass(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED && error->funcname != NULL &&
		strcmp(error->funcname, "ProcessInterrupts") == 0;
}

/* A step, as an attempt. */
typedef struct Attempt
{
	DrPass	   *pass;
	DrStep		step;
	bool		more;
} Attempt;

static void
attempt_step(void *arg)
{
	Attempt    *attempt = arg;
	int			level = dr_patience_limit_all();

	MemoryContextSwitchTo(CurTransactionContext);
	attempt->more = make_step(attempt->pass, &attempt->step);
	AtEOXact_GUC(true, level);
}

/*
 * One step, committed, or undone and recorded.  False where the pass of this
 * rollup has ended.
 */
static bool
try_step(DrPass *pass, MemoryContext context, DrPassCommit commit)
{
	TimestampTz started_at = GetCurrentTimestamp();
	Attempt		attempt = {.pass = pass, .step = STEP_NONE};

	PushActiveSnapshot(GetTransactionSnapshot());
	MemoryContextSwitchTo(context);
	pass->failure = dr_attempt(attempt_step, &attempt);
	if (pass->failure != NULL && ends_the_pass(pass->failure))
		ReThrowError(pass->failure);

	if (pass->failure != NULL)
	{
		attempt.more = false;
		record_failure(pass, attempt.step, started_at);

		/* a comparison is evidence, never correctness */
		if (attempt.step == STEP_DIFF)
		{
			pass->failure = NULL;
			pass->compared = true;
			attempt.more = true;
		}
	}
	if (!attempt.more && pass->failure == NULL)
		record_success(pass);
	PopActiveSnapshot();
	commit();
	DR_WAITPOINT("run-committed");
	return attempt.more;
}

/*
 * A pass over one rollup, in transactions of its own: "commit" ends one and
 * begins another.  Returns why it failed, in the context, or NULL.
 * "scheduled": by the worker.
 * "skipped": a refresh of somebody else's is under way.
 */
ErrorData *
dr_pass(Oid live, bool scheduled, DrPassCommit commit, MemoryContext context, bool *skipped)
{
	DrPass	   *pass = MemoryContextAllocZero(context, sizeof(DrPass));

	pass->live = live;
	pass->name = MemoryContextStrdup(context, dr_catalog_name(live));
	pass->scheduled = scheduled;
	dr_progress_begin(live, pass->name, !scheduled);
	while (try_step(pass, context, commit))
		CHECK_FOR_INTERRUPTS();
	dr_progress_end();
	*skipped = pass->skipped;
	if (pass->skipped && !scheduled)
		ereport(NOTICE,
				(errmsg("rollup \"%s\" is left out: a refresh of it is under way", pass->name)));
	return pass->failure;
}
