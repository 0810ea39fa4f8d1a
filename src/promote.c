/*
 * promote.c
 *		The shadow's content becomes live's, in one transaction.
 *
 *	1. take the refresh lock; lock the source as a reader does, then the shadow
 *	2. recompute the keys that wait, in the shadow
 *	3. lock live against writers: whoever folds is over, or comes after us
 *	4. write the rows that differ into live
 *	5. count: rows = keys = the shadow's rows, and each of them the same
 *	6. the unique index, if live lacks it; state on; the shadow goes
 *
 * Nothing is believed: what step 4 reports is not looked at.  If step 5 finds
 * anything else than what it should, all is undone, and the shadow stays.
 *
 * Readers are never kept waiting: they see live's old rows until the commit,
 * and those with an older snapshot after it too.  Locks that others would queue
 * behind are taken by conditional tries.
 */
#include "promote.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "adopt.h"
#include "announce.h"
#include "boundary.h"
#include "catalog_write.h"
#include "debug.h"
#include "change.h"
#include "definition.h"
#include "fold.h"
#include "guard.h"
#include "heal.h"
#include "identity.h"
#include "late.h"
#include "locks.h"
#include "objects.h"
#include "owned.h"
#include "owner.h"
#include "query.h"
#include "replace.h"
#include "shadow.h"
#include "stop.h"
#include "watermark.h"

/* ------------------------------------------------------------------ content */

static void
run(const DrRollup *rollup, const char *sql)
{
	if (SPI_execute(sql, false, 0) < 0)
		elog(ERROR, "could not promote \"%s\"", dr_catalog_name(rollup->live));
}

/* The keys that wait get their content in the shadow; a row that arrives behind
 * its watermark from now on leaves a mark that stays. */
static void
recompute_in_shadow(const DrRollup *rollup, const DrDefinition *def)
{
	Datum		boundary = dr_boundary_datum(def->time_kind, dr_boundary_zone(rollup->time_zone),
											 rollup->shadow_watermark);
	DrIdentity	before;

	dr_identity_enter_sql(rollup->owner, &before);
	dr_guard_let(rollup, rollup->shadow);
	dr_heal_recompute(rollup, def, rollup->shadow, DR_DIRTIES_DAILY, boundary);
	dr_guard_end();
	dr_identity_leave_sql(&before);
}

/*
 * Live's content becomes the shadow's; returns what live had.  Marks that say
 * that live's row does not count go: that was said of the row that goes.
 */
static DrCount
bring_content(const DrRollup *rollup, const DrDefinition *def)
{
	char	   *fresh = dr_query_rows(def, rollup->shadow);
	DrCompared	compared;
	DrCount		count;
	DrIdentity	before;

	dr_identity_enter_sql(rollup->owner, &before);
	dr_guard_let(rollup, rollup->live);
	dr_check_distrust_indexes();
	if (dr_replace_directly(rollup, def, rollup->live, fresh, NULL, rollup->shadow, &compared))
		count = (DrCount) {.rows = compared.stored_rows, .keys = compared.stored_keys};
	else
	{
		count = dr_check_count(rollup, def, rollup->live);
		run(rollup, dr_change_replace(def, rollup, rollup->live, fresh));
	}
	run(rollup, dr_query_forget_marks(rollup, DR_DIRTIES_LIVE));
	dr_guard_end();
	dr_identity_leave_sql(&before);
	return count;
}

/* ------------------------------------------------------------------ counting */

static DrCount
check_content(const DrRollup *rollup, const DrDefinition *def)
{
	DrCompared	now;

	dr_check_compare(rollup, def, &now);
	if (now.stored_rows != now.stored_keys || now.fresh_rows != now.fresh_keys ||
		now.stored_rows != now.fresh_rows || now.common != now.fresh_rows)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the promoted content of rollup \"%s\" is not the shadow's",
						dr_catalog_name(rollup->live)),
				 errdetail("Live has " INT64_FORMAT " rows of " INT64_FORMAT
						   " keys, the shadow " INT64_FORMAT " rows of " INT64_FORMAT
						   " keys; " INT64_FORMAT " rows are the same.",
						   now.stored_rows, now.stored_keys, now.fresh_rows, now.fresh_keys,
						   now.common),
				 errhint("All is as it was before. Look at triggers, rules and indexes of \"%s\", then promote again.",
						 dr_catalog_name(rollup->live))));
	return (DrCount) {.rows = now.stored_rows, .keys = now.stored_keys};
}

/* ---------------------------------------------------------------- the record */

static void
record(const DrRollup *rollup, const DrPromoted *promoted, TimestampTz started_at)
{
	DrRun		run = {
		.action = "promote", .started_at = started_at,
		.has_to = true, .to_time = rollup->shadow_watermark,
		.outcome = "ok", .counted = true,
		.rows = promoted->now.rows, .keys = promoted->now.keys,
		.reason = psprintf("replaced " INT64_FORMAT " rows of " INT64_FORMAT " keys",
						   promoted->before.rows, promoted->before.keys)
	};

	dr_catalog_insert_run(rollup, &run);
	dr_announce(dr_objects_relation(rollup->live), &run);
	ereport(LOG,
			(errhidestmt(true), errhidecontext(true),
			 errmsg("promoted rollup \"%s\" to %s: " INT64_FORMAT " rows = " INT64_FORMAT
					" keys, replaced " INT64_FORMAT " rows of " INT64_FORMAT " keys",
					dr_catalog_name(rollup->live),
					timestamptz_to_str(rollup->shadow_watermark),
					promoted->now.rows, promoted->now.keys,
					promoted->before.rows, promoted->before.keys)));
}

static void
give_notices(const DrRollup *rollup)
{
	if (rollup->state == DR_STATE_SHADOW)
		ereport(NOTICE,
				(errmsg("rollup \"%s\" ends at %s from now on", dr_catalog_name(rollup->live),
						timestamptz_to_str(rollup->shadow_watermark)),
				 errhint("Read \"%s\" for the present.", dr_catalog_name(rollup->current_view))));
	if (rollup->state == DR_STATE_SHADOW && !rollup->fold)
		ereport(NOTICE,
				(errmsg("fold of rollup \"%s\" is true now", dr_catalog_name(rollup->live)),
				 errdetail("Should it leave mode \"on\", its writes are folded into it.")));
}

/* -------------------------------------------------------------- the promote */

static bool
can_promote(const DrRollup *rollup)
{
	return OidIsValid(rollup->shadow) && rollup->has_shadow_watermark &&
		(rollup->state != DR_STATE_ON || !rollup->has_watermark ||
		 rollup->shadow_watermark >= rollup->watermark);
}

/* Steps 1 and 2; returns the rollup as it is under the locks. */
static DrRollup *
lock_and_settle(Oid live, bool ordered)
{
	DrRollup   *rollup = dr_owned_rollup(live);
	DrDefinition *def;
	int			waits;

	dr_locks_refresh(rollup->definition, dr_catalog_name(live));
	dr_late_forget_thresholds();
	rollup = dr_owned_rollup(live);
	dr_watermark_check_zone(live);
	dr_locks_check_not_in_use(rollup->source, "promote a rollup of");
	dr_late_check_triggers(rollup);
	dr_locks_source(rollup->source, dr_catalog_name(rollup->source));
	if (!OidIsValid(rollup->shadow))
		return rollup;
	dr_stop_users(rollup->shadow, AccessExclusiveLock);
	rollup = dr_owned_rollup(live);
	if (!can_promote(rollup) || (ordered && rollup->state != DR_STATE_SHADOW))
		return rollup;
	def = dr_definition_read(rollup->source, rollup->events, rollup->definition);
	waits = dr_locks_limit_waits();
	dr_owner_follow_shadow(rollup);
	recompute_in_shadow(rollup, def);
	dr_locks_unlimit_waits(waits);
	return rollup;
}

/* A user promotes a shadow; what else is filled is a pass's to promote. */
static void
check_promotable(const DrRollup *rollup, bool ordered)
{
	if (can_promote(rollup) && (!ordered || rollup->state == DR_STATE_SHADOW))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("rollup \"%s\" has no content to promote", dr_catalog_name(rollup->live)),
			 errdetail("Its state is \"%s\".", dr_catalog_state_name(rollup->state)),
			 rollup->state == DR_STATE_SHADOW ?
			 errhint("Its shadow is filled by the next pass: CALL rollup_run(%s), or SELECT rollup_refresh(...).",
					 quote_literal_cstr(dr_objects_relation(rollup->live))) :
			 errhint("Run SELECT rollup_alter(%s, mode => 'shadow') and let a pass fill the shadow.",
					 quote_literal_cstr(dr_objects_relation(rollup->live)))));
}

/* Somebody has promoted it before. */
static DrPromoted
already_on(const DrRollup *rollup)
{
	DrPromoted	promoted = {.action = "already on"};

	promoted.now = dr_check_count(rollup, dr_definition_read(rollup->source, rollup->events,
															  rollup->definition),
								  rollup->live);
	return promoted;
}

/*
 * Promote a rollup in the caller's transaction.  "ordered": by a user, who wants
 * it so whatever mode was wanted before.
 */
DrPromoted
dr_promote(Oid live, bool ordered)
{
	TimestampTz started_at = GetCurrentTimestamp();
	DrRollup   *rollup = lock_and_settle(live, ordered);
	DrDefinition *def;
	DrPromoted	promoted = {.action = "promoted"};
	DrIdentity	before;
	int			waits;

	if (ordered && rollup->state == DR_STATE_ON)
		return already_on(rollup);
	check_promotable(rollup, ordered);
	DR_WAITPOINT("promote-settled");
	/* (live would be locked before rows of other rollups that come before it) */
	dr_fold_now();
	dr_stop_users(live, ShareRowExclusiveLock);
	waits = dr_locks_limit_waits();
	dr_locks_check_not_in_use(live, "promote");
	def = dr_definition_read(rollup->source, rollup->events, rollup->definition);

	promoted.before = bring_content(rollup, def);
	DR_RUN_SQL("promote_swapped");
	DR_WAITPOINT("promote-swapped");
	promoted.now = check_content(rollup, def);

	dr_identity_enter_sql(rollup->owner, &before);
	dr_adopt_ensure_unique_index(rollup, def);
	dr_identity_leave_sql(&before);
	DR_WAITPOINT("promote-indexed");

	if (ordered && dr_catalog_wanted(rollup) != DR_STATE_ON)
	{
		dr_catalog_set_mode(rollup, "on");
		ereport(NOTICE,
				(errmsg("the mode of rollup \"%s\" is \"on\" now", dr_catalog_name(live))));
	}
	record(rollup, &promoted, started_at);
	give_notices(rollup);
	dr_catalog_promote(rollup);
	DR_WAITPOINT("promote-recorded");
	dr_shadow_remove(rollup->shadow);
	dr_locks_unlimit_waits(waits);
	DR_WAITPOINT_IN_COMMIT("promote-in-commit");
	return promoted;
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_promote);

static void
return_promoted(ReturnSetInfo *result, Oid live, const DrPromoted *promoted)
{
	bool		done = strcmp(promoted->action, "promoted") == 0;
	bool		nulls[6] = {false, false, false, false, !done, !done};
	Datum		values[6] = {
		ObjectIdGetDatum(live), CStringGetTextDatum(promoted->action),
		Int64GetDatum(promoted->now.rows), Int64GetDatum(promoted->now.keys),
		Int64GetDatum(promoted->before.rows), Int64GetDatum(promoted->before.keys)
	};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

static void
promote_one(ReturnSetInfo *result, DrRollup *rollup, bool named)
{
	DrPromoted	promoted;

	if (rollup->state == DR_STATE_ON)
		promoted = already_on(rollup);
	else if (named || (rollup->state == DR_STATE_SHADOW && can_promote(rollup)))
		promoted = dr_promote(rollup->live, true);
	else
	{
		ereport(NOTICE,
				(errmsg("rollup \"%s\" is not promoted: it has no filled shadow",
						dr_catalog_name(rollup->live)),
				 errdetail("Its state is \"%s\".", dr_catalog_state_name(rollup->state))));
		return;
	}
	return_promoted(result, rollup->live, &promoted);
}

Datum
dailyrollup_promote(PG_FUNCTION_ARGS)
{
	bool		named = !PG_ARGISNULL(0);
	List	   *rollups;
	ListCell   *cell;

	dr_locks_check_transaction("rollup_promote()");
	rollups = named ? list_make1(dr_owned_rollup(PG_GETARG_OID(0))) : dr_owned_all();
	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, rollups)
		promote_one((ReturnSetInfo *) fcinfo->resultinfo, lfirst(cell), named);
	return (Datum) 0;
}
