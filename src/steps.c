/*
 * steps.c
 *		What a pass has to do next, and when there is something.
 *
 * By the rollup's row, and by what the pass has done already:
 *
 *		new			begin a shadow, build it in parts, promote
 *		off			begin a shadow if wanted, flush
 *		shadow		refresh the shadow, promote if wanted, else late keys,
 *					flush, diff; or end it
 *		on			reseed as new does; refresh, late keys, check; or leave
 *
 * Nothing here changes anything.
 */
#include "steps.h"

#include "utils/timestamp.h"

#include "boundary.h"
#include "guc.h"

/* as dailyrollup.runs names them */
const char *const dr_step_names[] = {
	"none", "state", "state", "seed", "fold", "promote", "state", "late", "flush",
	"check", "diff"
};

/* as rollup_progress and rollup_plan name them */
const char *const dr_step_phases[] = {
	"none", "begin shadow", "end shadow", "seed", "refresh", "promote", "leave on",
	"late keys", "flush", "check", "diff"
};

/* --------------------------------------------------------------- what to do */

/* How long after midnight a boundary of the rollup's is due. */
static const Interval *
delay_of(const DrRollup *rollup)
{
	Interval   *delay = rollup->delay;

	if (delay == NULL)
	{
		delay = palloc0(sizeof(Interval));
		delay->time = (TimeOffset) dr_guc_delay * USECS_PER_SEC;
	}
	return delay;
}

/* The latest midnight that is due. */
TimestampTz
dr_steps_due_boundary(const DrRollup *rollup)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz settled = dr_boundary_before(now, delay_of(rollup));

	return dr_boundary_latest(dr_boundary_zone(rollup->time_zone),
							  Min(settled, now - USECS_PER_MINUTE));
}

/* Is there no shadow that a content could be built in, or one that was begun
 * before it was asked for? */
static bool
needs_shadow(const DrPass *pass, const DrRollup *rollup)
{
	if (!OidIsValid(rollup->shadow))
		return true;
	if (!rollup->has_shadow_watermark)
		return !pass->begun;
	return rollup->reseed != NULL && rollup->shadow_at < rollup->reseed_at;
}

/* A new content is built beside live, then promoted. */
static DrStep
step_of_build(const DrPass *pass, const DrRollup *rollup)
{
	TimestampTz boundary = dr_steps_due_boundary(rollup);

	if (rollup->has_watermark)
		boundary = Max(boundary, rollup->watermark);
	if (needs_shadow(pass, rollup))
		return STEP_BEGIN_SHADOW;
	if (!rollup->has_shadow_watermark || rollup->shadow_watermark < boundary)
		return STEP_BUILD;
	return STEP_PROMOTE;
}

static DrStep
step_of_off(const DrPass *pass, const DrRollup *rollup, DrState wanted)
{
	if (wanted != DR_STATE_OFF)
		return STEP_BEGIN_SHADOW;
	return rollup->fold && !pass->flushed ? STEP_FLUSH : STEP_NONE;
}

static DrStep
step_of_shadow(const DrPass *pass, const DrRollup *rollup, DrState wanted)
{
	if (wanted == DR_STATE_OFF)
		return STEP_END_SHADOW;
	if (!OidIsValid(rollup->shadow))
		return STEP_BEGIN_SHADOW;
	if (!rollup->has_shadow_watermark || rollup->shadow_watermark < dr_steps_due_boundary(rollup))
		return STEP_REFRESH;
	if (wanted == DR_STATE_ON)
		return STEP_PROMOTE;
	if (!pass->healed)
		return STEP_LATE;
	if (rollup->fold && !pass->flushed)
		return STEP_FLUSH;
	return pass->changed && !pass->compared ? STEP_DIFF : STEP_NONE;
}

static DrStep
step_of_on(const DrPass *pass, const DrRollup *rollup, DrState wanted)
{
	if (!rollup->has_watermark || rollup->reseed != NULL)
		return step_of_build(pass, rollup);
	if (rollup->watermark < dr_steps_due_boundary(rollup))
		return STEP_REFRESH;
	if (wanted != DR_STATE_ON)
		return STEP_LEAVE_ON;
	if (!pass->healed)
		return STEP_LATE;
	return pass->changed && !pass->checked ? STEP_CHECK : STEP_NONE;
}

DrStep
dr_steps_next(const DrPass *pass, const DrRollup *rollup)
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

/* ----------------------------------------------------------------- due times */

/* Is there anything for a pass to do, but for keys that wait? */
static DrStep
pending_step(const DrRollup *rollup)
{
	DrPass		pass = {.live = rollup->live, .healed = true, .flushed = true};

	return dr_steps_next(&pass, rollup);
}

/* When the worker may try again; 0: at any time.  One that is further ahead than
 * it can be was noted before the clock was set back. */
TimestampTz
dr_steps_retry_at(const DrRollup *rollup)
{
	return rollup->retry_at > GetCurrentTimestamp() + DR_LAST_RETRY ? 0 : rollup->retry_at;
}

/*
 * When the next pass has something to do, and what: DT_NOEND where nothing will
 * ever be, as things are.
 */
TimestampTz
dr_steps_due(const DrRollup *rollup, const char **reason)
{
	TimestampTz soon = Max(GetCurrentTimestamp(), dr_steps_retry_at(rollup));
	DrStep		step;
	bool		shadow = rollup->state == DR_STATE_SHADOW;
	TimestampTz boundary;

	if (!dr_boundary_knows_zone(rollup->time_zone))
	{
		*reason = psprintf("time zone \"%s\" not recognized", rollup->time_zone);
		return soon;
	}
	step = pending_step(rollup);
	if (step != STEP_NONE || rollup->failures > 0)
	{
		*reason = step != STEP_NONE ? dr_step_phases[step] : "retry";
		return soon;
	}
	if (rollup->state == DR_STATE_OFF)
	{
		*reason = rollup->fold ? "none: each write is folded" : "none: it is left to others";
		return DT_NOEND;
	}
	boundary = dr_boundary_next(dr_boundary_zone(rollup->time_zone),
								Max(shadow ? rollup->shadow_watermark : rollup->watermark,
									dr_steps_due_boundary(rollup)));
	*reason = psprintf("refresh to %s", timestamptz_to_str(boundary));
	return dr_boundary_after(boundary, delay_of(rollup));
}

/*
 * When the first midnight falls due after the last that was due at "since": then
 * the worker looks for what a backfill has marked in state off, where nothing else
 * is ever due.  DT_NOEND: it need not.
 */
TimestampTz
dr_steps_flush_due(const DrRollup *rollup, TimestampTz since)
{
	pg_tz	   *zone;

	if (rollup->state != DR_STATE_OFF || !rollup->fold ||
		!dr_boundary_knows_zone(rollup->time_zone))
		return DT_NOEND;
	zone = dr_boundary_zone(rollup->time_zone);
	return dr_boundary_after(dr_boundary_next(zone, dr_boundary_before(since, delay_of(rollup))),
							 delay_of(rollup));
}

/* ---------------------------------------------------------------------- plan */

/* What a step would make of the rollup's row. */
static void
pretend(DrPass *pass, DrStep step, DrRollup *rollup)
{
	switch (step)
	{
		case STEP_BEGIN_SHADOW:
			pass->begun = true;
			rollup->shadow = rollup->live;	/* some table */
			rollup->has_shadow_watermark = false;
			rollup->shadow_at = Max(GetCurrentTimestamp(), rollup->reseed_at);
			if (rollup->state == DR_STATE_OFF)
				rollup->state = DR_STATE_SHADOW;
			break;
		case STEP_END_SHADOW:
			rollup->state = DR_STATE_OFF;
			break;
		case STEP_BUILD:
			rollup->has_shadow_watermark = true;
			rollup->shadow_watermark = Max(dr_steps_due_boundary(rollup), rollup->has_watermark ?
										   rollup->watermark : DT_NOBEGIN);
			break;
		case STEP_REFRESH:
			pass->changed = true;
			if (rollup->state == DR_STATE_SHADOW)
			{
				rollup->has_shadow_watermark = true;
				rollup->shadow_watermark = dr_steps_due_boundary(rollup);
			}
			else
				rollup->watermark = dr_steps_due_boundary(rollup);
			break;
		case STEP_PROMOTE:
			pass->changed = true;
			rollup->was = rollup->state == DR_STATE_NEW ? rollup->was : DR_STATE_ON;
			rollup->state = DR_STATE_ON;
			rollup->has_watermark = true;
			rollup->watermark = rollup->shadow_watermark;
			rollup->reseed = NULL;
			rollup->shadow = InvalidOid;
			rollup->has_shadow_watermark = false;
			break;
		case STEP_LEAVE_ON:
			pass->begun = true;
			rollup->state = dr_catalog_wanted(rollup);
			rollup->shadow = rollup->state == DR_STATE_SHADOW ? rollup->live : InvalidOid;
			rollup->has_watermark = rollup->has_shadow_watermark = false;
			break;
		case STEP_CHECK:
			pass->checked = true;
			break;
		case STEP_DIFF:
			pass->compared = true;
			break;
		case STEP_LATE:
		case STEP_FLUSH:
		case STEP_NONE:
			break;
	}
}

/*
 * What the next pass would do, but for keys that wait: a list of DrPlannedStep,
 * in order.
 */
List *
dr_steps_plan(DrRollup *rollup)
{
	DrPass		pass = {
		.live = rollup->live, .healed = true, .flushed = true,
		.changed = rollup->failures > 0
	};
	List	   *plan = NIL;
	DrStep		step;

	while ((step = dr_steps_next(&pass, rollup)) != STEP_NONE && list_length(plan) < 20)
	{
		DrPlannedStep *planned = palloc0(sizeof(DrPlannedStep));

		planned->step = dr_step_phases[step];
		planned->state = rollup->state;
		pretend(&pass, step, rollup);
		planned->becomes = rollup->state;
		planned->has_boundary = step == STEP_BUILD || step == STEP_REFRESH || step == STEP_PROMOTE;
		planned->boundary = rollup->has_shadow_watermark ? rollup->shadow_watermark :
			rollup->watermark;
		plan = lappend(plan, planned);
	}
	return plan;
}
