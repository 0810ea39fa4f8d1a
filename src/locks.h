/*
 * locks.h
 *		Who may do what at the same time.
 *
 * Lock order, obeyed everywhere:
 *
 *		0. the extension, against a DROP
 *		1. the rollup's refresh lock (several rollups: in order of live's OID)
 *		2. the source (a refresh: only after the wait for writers)
 *		3. the shadow
 *		4. live (a change that stops writers: with the source, all at once)
 *		5. marks
 *		6. the rollup's row in dailyrollup.rollups
 *
 * The refresh lock is ExclusiveLock on the rollup's view definition_<id>,
 * held to the end of the transaction: one refresh at a time.  Nobody else
 * takes a lock on that view stronger than a reader's, but for a DROP.
 *
 * Layer 3.
 */
#ifndef DR_LOCKS_H
#define DR_LOCKS_H

#include "dailyrollup.h"

extern void dr_locks_extension(void);
extern void dr_locks_refresh(Oid definition, const char *rollup);
extern bool dr_locks_refresh_if_free(Oid definition);
extern void dr_locks_exclude_refresh(Oid definition, const char *rollup);
extern void dr_locks_refresh_undone(Oid definition);
extern bool dr_locks_refresh_taken(Oid definition);
extern void dr_locks_wait_for_writers(Oid source, const char *name);
extern void dr_locks_source(Oid source, const char *name);
extern void dr_locks_know_partitions(Oid source);
extern int	dr_locks_limit_waits(void);
extern void dr_locks_unlimit_waits(int level);
extern void dr_locks_check_transaction(const char *function);
extern void dr_locks_check_not_in_use(Oid source, const char *what);

#endif							/* DR_LOCKS_H */
