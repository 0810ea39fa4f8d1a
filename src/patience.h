/*
 * patience.h
 *		Waits for locks that have a limit.
 *
 * Layer 2.
 */
#ifndef DR_PATIENCE_H
#define DR_PATIENCE_H

#include "dailyrollup.h"

#include "storage/lock.h"
#include "utils/timestamp.h"

typedef struct DrPatience
{
	TimestampTz until;			/* DT_NOEND: for ever */
	int			guc_level;
	bool		ours;			/* the limit in force is writer_timeout */
	MemoryContext context;		/* where a message may be built */
} DrPatience;

extern DrPatience dr_patience_begin(void);
extern void dr_patience_limit(DrPatience *patience);
extern void dr_patience_unlimit(DrPatience *patience);
extern int	dr_patience_limit_all(void);
extern bool dr_patience_ran_out(DrPatience *patience);
extern char *dr_patience_pids(VirtualTransactionId *holders);

#endif							/* DR_PATIENCE_H */
