/*
 * state.c
 *		The changes of a rollup's state, and what its owner may order.
 *
 *		off -> shadow		an empty shadow; passes fill it
 *		shadow -> off		the shadow goes
 *		shadow -> on		promote.c
 *		on -> shadow, off	live catches up with the present
 *		new -> on			passes build a shadow, promote.c
 *
 * Every change is made under the refresh lock.  One that turns the fold on
 * stops all who write to the source until its commit: from the snapshot that
 * live is brought to the present by, to the state that says so, no row may come
 * that is neither seen nor folded.
 */
#include "state.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "adopt.h"
#include "boundary.h"
#include "catalog_write.h"
#include "check.h"
#include "debug.h"
#include "definition.h"
#include "fold.h"
#include "guard.h"
#include "identity.h"
#include "late.h"
#include "locks.h"
#include "merge.h"
#include "objects.h"
#include "owned.h"
#include "query.h"
#include "shadow.h"
#include "stop.h"
#include "view.h"
#include "watermark.h"

static DrDefinition *
definition_of(const DrRollup *rollup)
{
	return dr_definition_read(rollup->source, rollup->events, rollup->definition);
}

/* Run a statement over the rollup's tables; $1, if "bounded", is that instant. */
static void
run(const DrRollup *rollup, const DrDefinition *def, const char *sql,
	bool bounded, TimestampTz instant)
{
	Oid			types[1] = {dr_boundary_type(def->time_kind)};
	Datum		values[1] = {(Datum) 0};

	if (bounded)
		values[0] = dr_boundary_datum(def->time_kind, dr_boundary_zone(rollup->time_zone),
									  instant);
	if (SPI_execute_with_args(sql, bounded ? 1 : 0, types, values, NULL, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", sql);
}

static void
forget_marks(const DrRollup *rollup, const DrDefinition *def, char dirties)
{
	DrIdentity	before;

	dr_identity_enter_sql(rollup->owner, &before);
	run(rollup, def, dr_query_forget_marks(rollup, dirties), false, 0);
	dr_identity_leave_sql(&before);
}

/* Nobody writes to the source or to live from here on. */
static void
stop_writers(const DrRollup *rollup)
{
	dr_locks_check_not_in_use(rollup->source, "change the mode of a rollup of");
	dr_stop_writers(rollup->source, rollup->live);
	dr_locks_check_not_in_use(rollup->live, "change the mode of");
}

/* ----------------------------------------------------------- changes of state */

/* From off: late rows are recorded from now on, and passes fill the shadow.  In
 * state new or on a shadow is begun to replace live's content. */
void
dr_state_begin_shadow(DrRollup *rollup)
{
	dr_shadow_drop(rollup);
	dr_shadow_create(rollup, definition_of(rollup));
	if (rollup->state == DR_STATE_OFF)
		dr_catalog_change_state(rollup, DR_STATE_SHADOW);
}

/* To off: what a backfill has left behind is folded, the shadow goes. */
void
dr_state_end_shadow(DrRollup *rollup)
{
	int			waits = dr_locks_limit_waits();

	if (rollup->fold)
		dr_fold_flush(rollup);
	dr_shadow_drop(rollup);
	forget_marks(rollup, definition_of(rollup), DR_DIRTIES_DAILY);
	DR_WAITPOINT("shadow-ended");
	dr_catalog_change_state(rollup, DR_STATE_OFF);
	dr_locks_unlimit_waits(waits);
}

/* In state off, where no late row matters: who met the refresh lock has left
 * marks. */
void
dr_state_forget_late(const DrRollup *rollup)
{
	forget_marks(rollup, definition_of(rollup), DR_DIRTIES_DAILY);
}

/* Live, exact before its watermark, becomes exact through now. */
static void
catch_up(const DrRollup *rollup)
{
	DrDefinition *def = definition_of(rollup);
	DrWindow	tail = {
		.has_lower = true,
		.lower = dr_boundary_datum(def->time_kind, dr_boundary_zone(rollup->time_zone),
								   rollup->watermark)
	};
	DrIdentity	before;

	dr_identity_enter_sql(rollup->owner, &before);
	dr_guard_let(rollup, rollup->live);
	(void) dr_merge_fold(rollup, def, rollup->live, &tail);
	run(rollup, def, dr_query_recompute(def, rollup, rollup->live, DR_DIRTIES_ANY, NULL), false, 0);
	dr_check_written(rollup, def, rollup->live, -1);
	dr_guard_end();
	dr_identity_leave_sql(&before);
}

/*
 * From on to off or shadow.  It is the one change that lets writers wait, for
 * as long as it takes to fold what has come since the watermark.
 */
void
dr_state_leave_on(DrRollup *rollup, DrState to)
{
	int			waits;

	dr_late_check_triggers(rollup);
	stop_writers(rollup);
	rollup = dr_owned_rollup(rollup->live);
	if (rollup->state != DR_STATE_ON || !rollup->has_watermark || rollup->reseed != NULL)
		dr_catalog_complain_of_change(rollup);
	DR_WAITPOINT("leave-on-stopped");
	waits = dr_locks_limit_waits();
	catch_up(rollup);
	DR_WAITPOINT("leave-on-caught-up");
	dr_shadow_drop(rollup);
	dr_catalog_change_state(rollup, to);
	if (to == DR_STATE_SHADOW)
		dr_shadow_create(dr_owned_rollup(rollup->live), definition_of(rollup));
	dr_locks_unlimit_waits(waits);
	DR_WAITPOINT_IN_COMMIT("leave-on-in-commit");
}

/* ------------------------------------------------------------- rollup_alter */

static void
alter_mode(const DrRollup *rollup, const char *mode)
{
	DrState		wanted;

	if (pg_strcasecmp(mode, "default") == 0)
		dr_catalog_set_mode(rollup, NULL);
	else if (dr_catalog_parse_mode(mode, &wanted))
		dr_catalog_set_mode(rollup, dr_catalog_state_name(wanted));
	else
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized mode \"%s\"", mode),
				 errhint("Use 'off', 'shadow', 'on', or 'default' for that of dailyrollup.mode.")));
}

/* The delay '-1' stands for the setting's. */
static void
alter_delay(const DrRollup *rollup, Interval *delay)
{
	bool		none = delay->month == 0 && delay->day == 0 && delay->time == -USECS_PER_SEC;

	dr_catalog_set_delay(rollup, none ? NULL : dr_boundary_check_delay(delay));
}

/*
 * Another zone's midnights from now on.  A watermark is an instant, and stays
 * one; where the time column has no zone it is a local midnight, and stays that.
 */
static void
alter_time_zone(const DrRollup *rollup, const char *time_zone)
{
	pg_tz	   *to = dr_boundary_zone(time_zone);
	TimestampTz watermark = rollup->watermark;
	TimestampTz shadow_watermark = rollup->shadow_watermark;

	/* the zone that it was may be one that the server has lost */
	if (definition_of(rollup)->time_kind != DR_TIME_TIMESTAMPTZ)
	{
		pg_tz	   *from = dr_boundary_zone(rollup->time_zone);

		if (rollup->has_watermark)
			watermark = dr_boundary_translate(watermark, from, to);
		if (rollup->has_shadow_watermark)
			shadow_watermark = dr_boundary_translate(shadow_watermark, from, to);
	}
	dr_watermark_note_zone(rollup->live);
	dr_catalog_set_time_zone(rollup, time_zone, watermark, shadow_watermark);
}

/* Live is left to others from now on. */
static void
stop_folding(const DrRollup *rollup)
{
	dr_locks_check_not_in_use(rollup->source, "change the fold of a rollup of");
	dr_stop_writers_and_readers(rollup->source, rollup->live, rollup->current_view);
	dr_locks_check_not_in_use(rollup->live, "change the fold of");
	dr_fold_now();
	forget_marks(rollup, definition_of(rollup), DR_DIRTIES_LIVE);
	dr_view_show_left_alone(rollup);
	dr_catalog_set_fold(rollup, false);
}

/* Each write is folded into live from now on, which therefore must be right. */
static void
start_folding(const DrRollup *rollup)
{
	DrDefinition *def = definition_of(rollup);
	DrIdentity	before;
	int64		differences;

	dr_locks_check_transaction("rollup_alter()");
	stop_writers(rollup);

	/* what code of the owner's writes meanwhile is folded at the end */
	dr_guard_let(rollup, rollup->live);
	differences = dr_check_count_differences(rollup, def, DR_DIRTIES_NONE);
	dr_guard_end();
	if (differences > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("writes cannot be folded into \"%s\": its content is not that of its query",
						dr_catalog_name(rollup->live)),
				 errhint("Run rollup_recompute and rollup_alter(..., fold => true) in one transaction; rollup_verify shows what differs.")));
	dr_identity_enter_sql(rollup->owner, &before);
	dr_adopt_ensure_unique_index(rollup, def);
	dr_identity_leave_sql(&before);
	forget_marks(rollup, def, DR_DIRTIES_LIVE);
	dr_catalog_set_fold(rollup, true);
}

static void
alter_fold(const DrRollup *rollup, bool fold)
{
	bool		takes_effect = rollup->state == DR_STATE_OFF || rollup->state == DR_STATE_SHADOW;

	if (fold == rollup->fold)
		return;
	if (!fold && takes_effect)
		stop_folding(rollup);
	else if (takes_effect)
		start_folding(rollup);
	else
	{
		/* it tells as soon as the state is another one */
		if (!fold)
			dr_view_show_left_alone(rollup);
		dr_catalog_set_fold(rollup, fold);
	}
}

/* -------------------------------------------------------------- recompute */

/*
 * Nobody folds into live from here on, and what is in the source stays so:
 * where writes are folded, nobody commits one without live's lock.  Where they
 * are not, the source's writers are stopped, before live's (lock order).
 */
static void
freeze(const DrRollup *rollup)
{
	dr_locks_check_not_in_use(rollup->source, "recompute a rollup of");
	/* (live would be locked before rows of other rollups that come before it) */
	dr_fold_now();
	if (!rollup->fold)
		stop_writers(rollup);
	else
	{
		dr_locks_source(rollup->source, dr_catalog_name(rollup->source));
		dr_stop_users(rollup->live, ShareRowExclusiveLock);
		dr_locks_check_not_in_use(rollup->live, "recompute");
	}

	/* what we have written ourselves is among what is read */
	dr_fold_forget(rollup);
}

/* Live from the whole source, now; compared with it afterwards. */
static void
recompute(const DrRollup *rollup)
{
	DrDefinition *def;
	DrWindow	all = {0};
	DrIdentity	before;

	freeze(rollup);
	DR_WAITPOINT("recompute-frozen");
	def = definition_of(rollup);
	dr_identity_enter_sql(rollup->owner, &before);
	dr_guard_let(rollup, rollup->live);
	run(rollup, def, dr_query_forget_marks(rollup, DR_DIRTIES_LIVE), false, 0);
	dr_locks_know_partitions(rollup->source);
	(void) dr_merge_seed(rollup, def, rollup->live, &all);
	dr_guard_end();
	dr_identity_leave_sql(&before);
	DR_WAITPOINT("recompute-seeded");

	/* what an ATTACH has brought meanwhile, waits */
	if (dr_check_count_differences(rollup, def, DR_DIRTIES_LIVE) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("\"%s\" does not have what was written to it",
						dr_catalog_name(rollup->live)),
				 errhint("All is as it was before. Look at its triggers; REINDEX it.")));
}

static void
check_recomputable(const DrRollup *rollup)
{
	const char *live = quote_literal_cstr(dr_objects_relation(rollup->live));

	if (rollup->state == DR_STATE_ON)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rollup \"%s\" cannot be recomputed in state \"on\"",
						dr_catalog_name(rollup->live)),
				 errdetail("Its table ends at the watermark; what came later would be counted twice."),
				 errhint("Run SELECT rollup_reseed(%s): the next pass builds it anew.", live)));
	if (rollup->state == DR_STATE_NEW)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rollup \"%s\" is not filled yet", dr_catalog_name(rollup->live)),
				 errhint("CALL rollup_run(%s) fills it.", live)));
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_alter);
PG_FUNCTION_INFO_V1(dailyrollup_recompute);
PG_FUNCTION_INFO_V1(dailyrollup_flush);
PG_FUNCTION_INFO_V1(dailyrollup_reseed);

/* The rollup, by its owner, under its refresh lock. */
static DrRollup *
take(Oid live)
{
	dr_locks_refresh(dr_owned_rollup(live)->definition, dr_catalog_name(live));

	/* our own writes that follow must meet the lock, not an old threshold */
	dr_late_forget_thresholds();
	return dr_owned_rollup(live);
}

Datum
dailyrollup_alter(PG_FUNCTION_ARGS)
{
	DrRollup   *rollup;
	int			waits;

	PreventCommandIfReadOnly("rollup_alter()");
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	rollup = dr_owned_rollup(PG_GETARG_OID(0));
	if (!PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the query of a rollup cannot be altered"),
				 errhint("Create another rollup, or remove this one by rollup_drop and create it again.")));
	waits = dr_locks_limit_waits();
	if (!PG_ARGISNULL(2))
		alter_delay(rollup, PG_GETARG_INTERVAL_P(2));
	if (!PG_ARGISNULL(3))
		alter_mode(rollup, text_to_cstring(PG_GETARG_TEXT_PP(3)));
	if (!PG_ARGISNULL(4))
		alter_time_zone(take(rollup->live), text_to_cstring(PG_GETARG_TEXT_PP(4)));
	if (!PG_ARGISNULL(5))
		alter_fold(take(rollup->live), PG_GETARG_BOOL(5));
	DR_WAITPOINT("altered");
	dr_locks_unlimit_waits(waits);
	PG_RETURN_VOID();
}

/* The next refresh or pass fills the shadow anew. */
static void
forget_shadow(const DrRollup *rollup)
{
	if (rollup->state != DR_STATE_SHADOW)
		dr_catalog_complain_of_change(rollup);
	dr_catalog_set_shadow(rollup, rollup->shadow);
}

Datum
dailyrollup_recompute(PG_FUNCTION_ARGS)
{
	DrRollup   *rollup;
	int			waits;

	dr_locks_check_transaction("rollup_recompute()");
	check_recomputable(dr_owned_rollup(PG_GETARG_OID(0)));
	rollup = take(PG_GETARG_OID(0));
	check_recomputable(rollup);
	waits = dr_locks_limit_waits();
	recompute(rollup);
	dr_locks_unlimit_waits(waits);
	PG_RETURN_VOID();
}

/* Returns the number of keys that were recomputed. */
Datum
dailyrollup_flush(PG_FUNCTION_ARGS)
{
	DrRollup   *rollup = dr_owned_rollup(PG_GETARG_OID(0));
	uint64		keys;
	int			waits;

	dr_locks_check_transaction("rollup_flush()");
	waits = dr_locks_limit_waits();
	keys = dr_fold_flush(rollup);
	dr_locks_unlimit_waits(waits);
	PG_RETURN_INT64(keys);
}

/* The next refresh or pass builds live anew, or the shadow. */
Datum
dailyrollup_reseed(PG_FUNCTION_ARGS)
{
	DrRollup   *rollup = dr_owned_rollup(PG_GETARG_OID(0));

	PreventCommandIfReadOnly("rollup_reseed()");
	if (rollup->state == DR_STATE_SHADOW)
	{
		forget_shadow(take(rollup->live));
		PG_RETURN_VOID();
	}
	if (rollup->state == DR_STATE_OFF)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rollup \"%s\" is in state \"%s\"", dr_catalog_name(rollup->live),
						dr_catalog_state_name(rollup->state)),
				 errhint("rollup_recompute brings the table to its query's content there.")));
	dr_catalog_ask_reseed(rollup, "rollup_reseed");
	DR_WAITPOINT("reseed-asked");
	PG_RETURN_VOID();
}
