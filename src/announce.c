/*
 * announce.c
 *		NOTIFY dailyrollup: what others may want to know of a rollup.
 *
 * The payload is a JSON object: "rollup" (its name), "action", "watermark", and
 * where they were counted "rows" and "keys".  A transaction that has notified
 * cannot be prepared: good, for the refresh lock must not outlive its session.
 */
#include "announce.h"

#include "catalog/pg_type.h"
#include "commands/async.h"
#include "lib/stringinfo.h"
#include "utils/json.h"
#include "utils/timestamp.h"

/* Tell, when the transaction commits, of a run that ended at its to_time.  The
 * rollup's name is as SQL reads it. */
void
dr_announce(const char *rollup, const DrRun *run)
{
	StringInfoData payload;

	initStringInfo(&payload);
	appendStringInfoString(&payload, "{\"rollup\": ");
	escape_json(&payload, rollup);
	appendStringInfo(&payload, ", \"action\": \"%s\", \"watermark\": ", run->action);
	escape_json(&payload, JsonEncodeDateTime(NULL, TimestampTzGetDatum(run->to_time),
											 TIMESTAMPTZOID, NULL));
	if (run->counted)
		appendStringInfo(&payload, ", \"rows\": " INT64_FORMAT ", \"keys\": " INT64_FORMAT,
						 run->rows, run->keys);
	appendStringInfoChar(&payload, '}');
	Async_Notify(DR_SCHEMA, payload.data);
}
