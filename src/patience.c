/*
 * patience.c
 *		Waits for locks that have a limit.
 *
 * Locks are waited for with the server's lock_timeout, set to what is left of
 * dailyrollup.writer_timeout, so that the deadlock detector watches too.  A
 * shorter lock_timeout of the user's own is respected.
 */
#include "patience.h"

#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/guc.h"

#include "compat.h"
#include "guc.h"

DrPatience
dr_patience_begin(void)
{
	DrPatience	patience = {.until = DT_NOEND, .context = CurrentMemoryContext};

	if (dr_guc_writer_timeout > 0)
		patience.until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													 dr_guc_writer_timeout);
	return patience;
}

/* Limit the next wait to what is left. */
void
dr_patience_limit(DrPatience *patience)
{
	long		left;
	char		value[32];

	patience->guc_level = NewGUCNestLevel();
	patience->ours = false;
	if (patience->until == DT_NOEND)
		return;
	left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), patience->until);
	left = Max(left, 1);
	if (LockTimeout > 0 && LockTimeout <= left)
		return;
	patience->ours = true;
	snprintf(value, sizeof(value), "%ld", left);
	(void) set_config_option("lock_timeout", value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

void
dr_patience_unlimit(DrPatience *patience)
{
	AtEOXact_GUC(false, patience->guc_level);
}

/* From here on no wait is without a limit: a little longer than that of those that
 * have a message of their own.  Returns the level of settings to end. */
int
dr_patience_limit_all(void)
{
	DrPatience	patience = dr_patience_begin();

	if (patience.until != DT_NOEND)
		patience.until += USECS_PER_SEC;
	dr_patience_limit(&patience);
	return patience.guc_level;
}

/* Called where a wait has failed: true where that was by our own limit; the
 * error is then taken out of the way for a better one. */
bool
dr_patience_ran_out(DrPatience *patience)
{
	if (!patience->ours || geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
		return false;
	MemoryContextSwitchTo(patience->context);
	FlushErrorState();
	return true;
}

static int
by_number(const void *a, const void *b)
{
	int			left = *(const int *) a;
	int			right = *(const int *) b;

	return left < right ? -1 : left > right;
}

/* The process ids of these transactions, sorted, for a message. */
char *
dr_patience_pids(VirtualTransactionId *holders)
{
	StringInfoData buf;
	int			pids[64];
	int			n = 0;
	bool		prepared = false;

	for (; VirtualTransactionIdIsValid(*holders) && n < lengthof(pids); holders++)
	{
		PGPROC	   *proc = dr_vxid_proc(*holders);

		if (proc != NULL && dr_proc_lxid(proc) == holders->localTransactionId)
			pids[n++] = proc->pid;
		else
			prepared = true;
	}
	qsort(pids, n, sizeof(int), by_number);

	initStringInfo(&buf);
	for (int i = 0; i < n; i++)
		appendStringInfo(&buf, "%s%d", i == 0 ? "" : ", ", pids[i]);
	if (prepared)
		appendStringInfo(&buf, "%sa prepared transaction", n == 0 ? "" : ", ");
	return buf.data;
}
