/*
 * pass.h
 *		The pass: whatever a rollup needs now.
 *
 * Layer 12.
 */
#ifndef DR_PASS_H
#define DR_PASS_H

#include "dailyrollup.h"

#include "catalog.h"

/* Ends a transaction and begins another. */
typedef void (*DrPassCommit) (void);

extern ErrorData *dr_pass(Oid live, bool scheduled, DrPassCommit commit,
						  MemoryContext context, bool *skipped);

#endif							/* DR_PASS_H */
