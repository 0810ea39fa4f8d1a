/*
 * steps.h
 *		What a pass has to do next, and when there is something.
 *
 * Layer 5.
 */
#ifndef DR_STEPS_H
#define DR_STEPS_H

#include "dailyrollup.h"

#include "catalog.h"

typedef enum DrStep
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
} DrStep;

extern const char *const dr_step_names[];	/* as dailyrollup.runs has them */
extern const char *const dr_step_phases[];	/* as rollup_progress has them */

/* What a pass has done for a rollup, and what has come of it. */
typedef struct DrPass
{
	Oid			live;
	char	   *name;
	int			part;			/* of a seed, how many were made in this pass */
	int			parts;			/* and how many there were, about */
	bool		begun;			/* a shadow was begun */
	bool		changed;		/* the kept table has got another content */
	bool		healed;
	bool		flushed;
	bool		checked;
	bool		compared;
	bool		scheduled;		/* by the worker */
	bool		skipped;		/* a refresh was under way */
	ErrorData  *failure;
} DrPass;

/* What a pass would do. */
typedef struct DrPlannedStep
{
	const char *step;
	DrState		state;			/* before it */
	DrState		becomes;		/* after it */
	bool		has_boundary;
	TimestampTz boundary;
} DrPlannedStep;

/* A failing rollup is tried again after a minute, two, four, up to an hour. */
#define DR_FIRST_RETRY	USECS_PER_MINUTE
#define DR_LAST_RETRY	USECS_PER_HOUR

extern TimestampTz dr_steps_due_boundary(const DrRollup *rollup);
extern DrStep dr_steps_next(const DrPass *pass, const DrRollup *rollup);
extern TimestampTz dr_steps_retry_at(const DrRollup *rollup);
extern TimestampTz dr_steps_flush_due(const DrRollup *rollup, TimestampTz since);
extern TimestampTz dr_steps_due(const DrRollup *rollup, const char **reason);
extern List *dr_steps_plan(DrRollup *rollup);

#endif							/* DR_STEPS_H */
