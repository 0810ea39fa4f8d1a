/*
 * debug.c
 *		Places where a test can stop us.
 *
 * In a build with DR_WAITPOINTS, code that reaches DR_WAITPOINT("name") waits
 * while another session holds pg_advisory_lock(hashtext('name')), so that an
 * isolation spec chooses the moment between two steps.  The ordinary build
 * has none of this.
 */
#include "debug.h"

#ifdef DR_WAITPOINTS
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lock.h"

void
dr_debug_waitpoint(const char *name)
{
	/* pg_advisory_lock(bigint) splits its argument like this */
	int64		key = (int32) DatumGetUInt32(hash_any((const unsigned char *) name,
													  strlen(name)));
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId,
						 (uint32) (key >> 32), (uint32) key, 1);
	elog(DEBUG1, "dailyrollup waitpoint %s", name);
	(void) LockAcquire(&tag, ShareLock, true, false);
	LockRelease(&tag, ShareLock, true);
}
#endif
