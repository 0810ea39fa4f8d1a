/*
 * progress.c
 *		What a pass is doing: for the view rollup_progress, and for whoever
 *		called it from a client.
 *
 * A pass that ends by an error ends its transaction, for its steps' errors are
 * caught: then its slot is given back as well.
 */
#include "progress.h"

#include "access/xact.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "shared.h"

/* A client is told no more often than that. */
#define NOTICE_INTERVAL		(5 * USECS_PER_SEC)

static DrProgressSlot *mine = NULL;
static char *rollup = NULL;
static bool to_client = false;
static TimestampTz told_at = 0;

static void
release_slot(void)
{
	if (mine != NULL)
	{
		LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
		mine->pid = 0;
		LWLockRelease(dr_shared->lock);
	}
	mine = NULL;
}

static void
process_ends(int code, Datum arg)
{
	release_slot();
}

static void
transaction_ended(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT && rollup != NULL)
		dr_progress_end();
}

void
dr_progress_init(void)
{
	RegisterXactCallback(transaction_ended, NULL);
}

static void
claim_slot(Oid live)
{
	static bool registered = false;

	if (dr_shared == NULL)
		return;
	if (!registered)
		before_shmem_exit(process_ends, (Datum) 0);
	registered = true;
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < DR_PASSES && mine == NULL; i++)
		if (dr_shared->passes[i].pid == 0)
		{
			mine = &dr_shared->passes[i];
			memset(mine, 0, sizeof(*mine));
			mine->pid = MyProcPid;
			mine->database = MyDatabaseId;
			mine->live = live;
			mine->started_at = mine->phase_started_at = GetCurrentTimestamp();
		}
	LWLockRelease(dr_shared->lock);
}

/* A pass over that rollup begins. */
void
dr_progress_begin(Oid live, const char *name, bool tell_client)
{
	dr_progress_end();
	rollup = MemoryContextStrdup(TopMemoryContext, name);
	to_client = tell_client;
	told_at = GetCurrentTimestamp();
	claim_slot(live);
}

/* The next step; steps of the same phase are its parts. */
void
dr_progress_phase(const char *phase)
{
	if (mine != NULL && strcmp(mine->phase, phase) != 0)
	{
		LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
		strlcpy(mine->phase, phase, DR_NAMES);
		mine->part = mine->parts = 0;
		mine->rows = 0;
		mine->phase_started_at = GetCurrentTimestamp();
		LWLockRelease(dr_shared->lock);
	}
	if (rollup != NULL && !to_client)
		pgstat_report_activity(STATE_RUNNING, psprintf("dailyrollup: %s of %s", phase, rollup));
}

/* The phase has parts, and is at one of them. */
void
dr_progress_part(int part, int parts)
{
	if (mine != NULL)
	{
		LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
		mine->part = part;
		mine->parts = parts;
		LWLockRelease(dr_shared->lock);
	}
	if (rollup == NULL || !to_client || parts < 2 ||
		GetCurrentTimestamp() - told_at < NOTICE_INTERVAL)
		return;
	told_at = GetCurrentTimestamp();
	ereport(NOTICE,
			(errmsg("rollup \"%s\": part %d of %d", rollup, part, parts)));
}

/* So many more rows were written in this phase. */
void
dr_progress_rows(int64 rows)
{
	if (mine == NULL)
		return;
	LWLockAcquire(dr_shared->lock, LW_EXCLUSIVE);
	mine->rows += rows;
	LWLockRelease(dr_shared->lock);
}

void
dr_progress_end(void)
{
	release_slot();
	if (rollup != NULL)
		pfree(rollup);
	rollup = NULL;
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_progress);

/* The passes that run now in this database, over rollups that the caller may see. */
Datum
dailyrollup_progress(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	DrProgressSlot *passes = palloc0(DR_PASSES * sizeof(DrProgressSlot));

	InitMaterializedSRF(fcinfo, 0);
	if (dr_shared == NULL)
		return (Datum) 0;
	LWLockAcquire(dr_shared->lock, LW_SHARED);
	memcpy(passes, dr_shared->passes, DR_PASSES * sizeof(DrProgressSlot));
	LWLockRelease(dr_shared->lock);
	for (int i = 0; i < DR_PASSES; i++)
	{
		const DrProgressSlot *pass = &passes[i];
		bool		nulls[8] = {false, false, false, pass->part == 0, pass->parts == 0};
		Datum		values[8] = {
			Int32GetDatum(pass->pid), ObjectIdGetDatum(pass->live),
			CStringGetTextDatum(pass->phase), Int32GetDatum(pass->part),
			Int32GetDatum(pass->parts), Int64GetDatum(pass->rows),
			TimestampTzGetDatum(pass->started_at),
			TimestampTzGetDatum(pass->phase_started_at)
		};

		if (pass->pid != 0 && pass->database == MyDatabaseId && dr_catalog_may_see(pass->live))
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
