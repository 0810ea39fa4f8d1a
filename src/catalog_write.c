/*
 * catalog_write.c
 *		What is written to the extension's own tables.
 *
 * Each is one statement, as the owner of the extension.  What rests on what was
 * read before compares and sets: it does nothing where that has changed.
 */
#include "catalog_write.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "guc.h"
#include "identity.h"

/*
 * Run one statement over our tables as the owner of the extension; returns the
 * number of rows that it wrote.  By the latest snapshot, as we read: to a
 * REPEATABLE READ transaction a row that was made after it began is still one
 * to be changed.
 */
static uint64
write_rows(const char *sql, int n, Oid *types, Datum *values, const char *nulls)
{
	DrIdentity	before;
	SPIPlanPtr	plan;
	uint64		rows;

	dr_identity_enter_extension_sql(&before);
	plan = SPI_prepare(sql, n, types);
	if (plan == NULL ||
		SPI_execute_snapshot(plan, values, nulls, GetLatestSnapshot(),
							 InvalidSnapshot, false, true, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", sql);
	rows = SPI_processed;
	dr_identity_leave_sql(&before);
	return rows;
}

/* Write the one row of a rollup, which another session may have removed. */
static void
write_rollup(const DrRollup *rollup, const char *sql, int n, Oid *types, Datum *values,
			 const char *nulls)
{
	if (write_rows(sql, n, types, values, nulls) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("rollup \"%s\" was dropped meanwhile", dr_catalog_name(rollup->live))));
}

/* For a compare and set that was in vain. */
void
dr_catalog_complain_of_change(const DrRollup *rollup)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("rollup \"%s\" was changed meanwhile", dr_catalog_name(rollup->live)),
			 errhint("Try again.")));
}

static Datum
text_or_null(const char *text, char *null)
{
	*null = text == NULL ? 'n' : ' ';
	return text == NULL ? (Datum) 0 : CStringGetTextDatum(text);
}

int32
dr_catalog_next_id(void)
{
	DrIdentity	before;
	Oid			sequence = dr_catalog_table("rollup_id_seq");
	int64		id;

	dr_identity_enter_extension(&before);
	id = DatumGetInt64(DirectFunctionCall1(nextval_oid,
										   ObjectIdGetDatum(sequence)));
	dr_identity_leave(&before);
	return (int32) id;
}

void
dr_catalog_insert(const DrRollup *r)
{
	Oid			types[] = {
		INT4OID, REGCLASSOID, REGCLASSOID, REGCLASSOID, REGCLASSOID, REGCLASSOID,
		REGCLASSOID, REGTYPEOID, TEXTOID, INTERVALOID, TEXTOID, BOOLOID, TEXTOID, INT8OID
	};
	char		nulls[] = "              ";
	Datum		values[] = {
		Int32GetDatum(r->id), ObjectIdGetDatum(r->live),
		ObjectIdGetDatum(r->source), ObjectIdGetDatum(r->current_view),
		ObjectIdGetDatum(r->events), ObjectIdGetDatum(r->definition),
		ObjectIdGetDatum(r->marks), ObjectIdGetDatum(r->key_type),
		CStringGetTextDatum(r->time_zone), IntervalPGetDatum(r->delay),
		(Datum) 0, BoolGetDatum(r->fold),
		CStringGetTextDatum(dr_catalog_state_name(r->state)), Int64GetDatum(r->proof)
	};

	nulls[9] = r->delay == NULL ? 'n' : ' ';
	values[10] = text_or_null(r->mode, &nulls[10]);
	write_rows("INSERT INTO dailyrollup.rollups (id, live, source, current_view, events,"
			   " definition, marks, key_type, time_zone, delay, mode, fold, state, proof)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
			   lengthof(types), types, values, nulls);
}

/*
 * What a fold did not make may hold rows whose marks wait: from here on these
 * marks ask for a recompute.  That of a dump (below 0) ends with the next fold.
 */
#define NEXT_EPOCH	" epoch = pg_catalog.abs(epoch) + 1"
#define EPOCH_AFTER(seeded) \
	" epoch = CASE WHEN " seeded " OR epoch < 0 THEN pg_catalog.abs(epoch) + 1 ELSE epoch END"

/* When a wish for a reseed is made: later than whatever does not fulfil it, even
 * if the clock was set back. */
#define WISH_TIME \
	" GREATEST(pg_catalog.clock_timestamp()," \
	" shadow_at OPERATOR(pg_catalog.+) '1 microsecond'::pg_catalog.interval," \
	" reseed_at OPERATOR(pg_catalog.+) '1 microsecond'::pg_catalog.interval)"

/* A wish for a reseed that the named time fulfils is gone; a later one stays. */
#define FULFIL_RESEED(at) \
	" reseed = CASE WHEN reseed_at <= " at " THEN NULL ELSE reseed END," \
	" reseed_at = CASE WHEN reseed_at <= " at " THEN NULL ELSE reseed_at END"

/*
 * Compare and set: live's watermark moves from what "rollup" says to
 * "boundary", and the state becomes on.  False where the row no longer says
 * that: it was changed by another transaction since.  A seed fulfils the wish
 * that "rollup" knew of; one that was made meanwhile stays.
 */
bool
dr_catalog_advance(const DrRollup *rollup, TimestampTz boundary, bool seeded)
{
	Oid			types[6] = {INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, BOOLOID};
	char		nulls[] = "      ";
	Datum		values[6] = {
		Int32GetDatum(rollup->id), TimestampTzGetDatum(boundary),
		TimestampTzGetDatum(rollup->watermark),
		TimestampTzGetDatum(rollup->reseed_at),
		CStringGetTextDatum(dr_catalog_state_name(rollup->state)), BoolGetDatum(seeded)
	};

	nulls[2] = rollup->has_watermark ? ' ' : 'n';
	nulls[3] = seeded && rollup->reseed ? ' ' : 'n';
	return write_rows("UPDATE dailyrollup.rollups"
					  " SET watermark = $2, state = 'on',"
					  " was = CASE WHEN state = 'on' THEN was END,"
					  EPOCH_AFTER("$6") "," FULFIL_RESEED("$4")
					  " WHERE id = $1 AND watermark IS NOT DISTINCT FROM $3 AND state = $5",
					  6, types, values, nulls) == 1;
}

/*
 * The "WHERE" of changes that rest on what "rollup" says of state and shadow:
 * $1 to $4.
 */
#define AS_IT_WAS \
	" WHERE id = $1 AND state = $2 AND shadow IS NOT DISTINCT FROM $3" \
	" AND shadow_watermark IS NOT DISTINCT FROM $4"

/* Compare and set: "changes" has $5, of that type; an error where others have
 * changed it. */
static void
change_as_it_was(const DrRollup *rollup, const char *changes, Oid type, Datum value,
				 bool isnull)
{
	Oid			types[5] = {INT4OID, TEXTOID, REGCLASSOID, TIMESTAMPTZOID, type};
	char		nulls[] = "     ";
	Datum		values[5] = {
		Int32GetDatum(rollup->id),
		CStringGetTextDatum(dr_catalog_state_name(rollup->state)),
		ObjectIdGetDatum(rollup->shadow),
		TimestampTzGetDatum(rollup->shadow_watermark), value
	};

	nulls[2] = OidIsValid(rollup->shadow) ? ' ' : 'n';
	nulls[3] = rollup->has_shadow_watermark ? ' ' : 'n';
	nulls[4] = isnull ? 'n' : ' ';
	if (write_rows(psprintf("UPDATE dailyrollup.rollups SET %s" AS_IT_WAS, changes),
				   5, types, values, nulls) != 1)
		dr_catalog_complain_of_change(rollup);
}

/* The shadow's watermark moves to "boundary". */
void
dr_catalog_advance_shadow(const DrRollup *rollup, TimestampTz boundary, bool seeded)
{
	change_as_it_was(rollup, seeded ? "shadow_watermark = $5," NEXT_EPOCH :
					 "shadow_watermark = $5," EPOCH_AFTER("false"), TIMESTAMPTZOID,
					 TimestampTzGetDatum(boundary), false);
}

/* A new shadow without content, or none (InvalidOid).  It fulfils the wishes made
 * before it, whatever the clock says. */
void
dr_catalog_set_shadow(const DrRollup *rollup, Oid shadow)
{
	change_as_it_was(rollup, "shadow = $5, shadow_watermark = NULL," NEXT_EPOCH ","
					 " shadow_at = CASE WHEN $5 IS NOT NULL"
					 " THEN GREATEST(pg_catalog.clock_timestamp(), reseed_at) END",
					 REGCLASSOID, ObjectIdGetDatum(shadow), !OidIsValid(shadow));
}

/* To off or shadow: live has no watermark there. */
void
dr_catalog_change_state(const DrRollup *rollup, DrState state)
{
	change_as_it_was(rollup, "state = $5, was = NULL, watermark = NULL," NEXT_EPOCH ","
					 " reseed = NULL, reseed_at = NULL",
					 TEXTOID, CStringGetTextDatum(dr_catalog_state_name(state)), false);
}

/*
 * Live has got the shadow's content, and its watermark.  One that was filled
 * while no mode was wanted goes on to where it was.
 */
void
dr_catalog_promote(const DrRollup *rollup)
{
	bool		passes_on = rollup->state != DR_STATE_SHADOW && rollup->was != DR_STATE_ON &&
		rollup->mode == NULL && dr_guc_mode == DR_MODE_UNSET;
	char	   *was = passes_on ?
		quote_literal_cstr(dr_catalog_state_name(rollup->was)) : "NULL";

	change_as_it_was(rollup,
					 psprintf("state = 'on', was = %s, watermark = $5, fold = %s," NEXT_EPOCH ","
							  " shadow = NULL, shadow_watermark = NULL, shadow_at = NULL,"
							  FULFIL_RESEED("shadow_at"), was,
							  rollup->state == DR_STATE_SHADOW ? "true" : "fold"),
					 TIMESTAMPTZOID, TimestampTzGetDatum(rollup->shadow_watermark), false);
}

/*
 * What was computed from the source counts no more, by the latest row: live
 * does not where the daily refresh keeps it or writes are folded into it, nor
 * does a shadow.
 */
void
dr_catalog_forget_content(const DrRollup *rollup, const char *reason)
{
	Oid			types[2] = {INT4OID, TEXTOID};
	Datum		values[2] = {Int32GetDatum(rollup->id), CStringGetTextDatum(reason)};

	write_rollup(rollup,
				 "UPDATE dailyrollup.rollups SET shadow_watermark = NULL, watermark = NULL," NEXT_EPOCH ","
				 " was = CASE WHEN state IN ('off', 'shadow') AND fold THEN state ELSE was END,"
				 " reseed = CASE WHEN state = 'on' THEN $2 ELSE reseed END,"
				 " reseed_at = CASE WHEN state = 'on' THEN" WISH_TIME " ELSE reseed_at END,"
				 " state = CASE WHEN state IN ('off', 'shadow') AND fold THEN 'new' ELSE state END"
				 " WHERE id = $1", 2, types, values, NULL);
}

/* Set one column of the rollup's row, whatever else it says by now. */
static void
set_column(const DrRollup *rollup, const char *column, Oid type, Datum value, bool isnull)
{
	Oid			types[2] = {INT4OID, type};
	Datum		values[2] = {Int32GetDatum(rollup->id), value};
	char		nulls[] = "  ";

	nulls[1] = isnull ? 'n' : ' ';
	write_rollup(rollup, psprintf("UPDATE dailyrollup.rollups SET %s WHERE id = $1", column),
				 2, types, values, nulls);
}

/* What the owner changes is tried at once, whatever has failed before. */
#define AT_ONCE ", retry_at = NULL"

void
dr_catalog_ask_reseed(const DrRollup *rollup, const char *reason)
{
	set_column(rollup, "reseed = $2, reseed_at =" WISH_TIME AT_ONCE,
			   TEXTOID, CStringGetTextDatum(reason), false);
}

/* NULL: none of its own. */
void
dr_catalog_set_mode(const DrRollup *rollup, const char *mode)
{
	char		null;
	Datum		value = text_or_null(mode, &null);

	set_column(rollup, "mode = $2" AT_ONCE, TEXTOID, value, mode == NULL);
}

/* NULL: none of its own. */
void
dr_catalog_set_delay(const DrRollup *rollup, Interval *delay)
{
	set_column(rollup, "delay = $2" AT_ONCE, INTERVALOID, IntervalPGetDatum(delay), delay == NULL);
}

void
dr_catalog_set_fold(const DrRollup *rollup, bool fold)
{
	set_column(rollup, "fold = $2" AT_ONCE, BOOLOID, BoolGetDatum(fold), false);
}

/* The watermarks are what they become; one that is not there stays so. */
void
dr_catalog_set_time_zone(const DrRollup *rollup, const char *time_zone,
						 TimestampTz watermark, TimestampTz shadow_watermark)
{
	Oid			types[4] = {INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum		values[4] = {
		Int32GetDatum(rollup->id), CStringGetTextDatum(time_zone),
		TimestampTzGetDatum(watermark), TimestampTzGetDatum(shadow_watermark)
	};

	write_rollup(rollup, "UPDATE dailyrollup.rollups SET time_zone = $2," NEXT_EPOCH ","
				 " watermark = CASE WHEN watermark IS NOT NULL THEN $3 END,"
				 " shadow_watermark = CASE WHEN shadow_watermark IS NOT NULL THEN $4 END" AT_ONCE
				 " WHERE id = $1", 4, types, values, NULL);
}

/* A pass has failed; the worker makes the next one at that time. */
void
dr_catalog_note_failure(const DrRollup *rollup, const char *error, TimestampTz retry_at)
{
	Oid			types[3] = {INT4OID, TEXTOID, TIMESTAMPTZOID};
	Datum		values[3] = {
		Int32GetDatum(rollup->id), CStringGetTextDatum(error), TimestampTzGetDatum(retry_at)
	};

	write_rollup(rollup, "UPDATE dailyrollup.rollups SET failures = failures + 1,"
				 " last_error = $2, retry_at = $3 WHERE id = $1", 3, types, values, NULL);
}

/* One has not failed. */
void
dr_catalog_note_success(const DrRollup *rollup)
{
	set_column(rollup, "failures = 0, last_error = NULL, retry_at = $2",
			   TIMESTAMPTZOID, (Datum) 0, true);
}

/* Forget runs that ended before that time, but for the last one; how many they
 * were is kept, for what counts runs may not fall. */
void
dr_catalog_forget_runs(const DrRollup *rollup, TimestampTz before)
{
	Oid			types[2] = {INT4OID, TIMESTAMPTZOID};
	Datum		values[2] = {Int32GetDatum(rollup->id), TimestampTzGetDatum(before)};

	write_rows("WITH gone AS (DELETE FROM dailyrollup.runs r WHERE r.rollup_id = $1"
			   " AND r.finished_at < $2 AND r.id <"
			   " (SELECT pg_catalog.max(m.id) FROM dailyrollup.runs m WHERE m.rollup_id = $1)"
			   " RETURNING r.action, r.outcome)"
			   " INSERT INTO dailyrollup.past_runs AS p (rollup_id, action, outcome, runs)"
			   " SELECT $1, g.action, g.outcome, pg_catalog.count(*) FROM gone g"
			   " GROUP BY g.action, g.outcome"
			   " ON CONFLICT (rollup_id, action, outcome) DO UPDATE SET runs = p.runs + excluded.runs",
			   2, types, values, NULL);
}

/* Forget a rollup and its history. */
void
dr_catalog_delete(const DrRollup *rollup)
{
	Oid			types[1] = {INT4OID};
	Datum		values[1] = {Int32GetDatum(rollup->id)};

	write_rows("DELETE FROM dailyrollup.runs WHERE rollup_id = $1",
			   1, types, values, NULL);
	write_rows("DELETE FROM dailyrollup.past_runs WHERE rollup_id = $1",
			   1, types, values, NULL);
	write_rollup(rollup, "DELETE FROM dailyrollup.rollups WHERE id = $1",
				 1, types, values, NULL);
}

void
dr_catalog_insert_run(const DrRollup *rollup, const DrRun *run)
{
	Oid			types[16] = {
		INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID,
		TIMESTAMPTZOID, INT8OID, INT8OID, TEXTOID, TEXTOID,
		INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID
	};
	char		nulls[] = "                ";
	Datum		values[16] = {
		Int32GetDatum(rollup->id), CStringGetTextDatum(run->action),
		TimestampTzGetDatum(run->started_at),
		TimestampTzGetDatum(GetCurrentTimestamp()),
		TimestampTzGetDatum(run->from_time), TimestampTzGetDatum(run->to_time),
		Int64GetDatum(run->folded_keys), Int64GetDatum(run->late_keys),
		CStringGetTextDatum(run->outcome), (Datum) 0,
		Int64GetDatum(run->rows), Int64GetDatum(run->keys),
		Int64GetDatum(run->missing_daily), Int64GetDatum(run->missing_live),
		Int64GetDatum(run->mismatches), Int64GetDatum(run->duplicates)
	};

	nulls[4] = run->has_from ? ' ' : 'n';
	nulls[5] = run->has_to ? ' ' : 'n';
	values[9] = text_or_null(run->reason, &nulls[9]);
	if (!run->kept)
		nulls[6] = nulls[7] = 'n';
	if (!run->counted)
		nulls[10] = nulls[11] = 'n';
	if (!run->compared)
		nulls[12] = nulls[13] = nulls[14] = nulls[15] = 'n';
	write_rows("INSERT INTO dailyrollup.runs (rollup_id, action, started_at,"
			   " finished_at, from_time, to_time, folded_keys, late_keys,"
			   " outcome, reason, \"rows\", keys,"
			   " missing_daily, missing_live, mismatches, duplicates)"
			   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
			   16, types, values, nulls);
}
