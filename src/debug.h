/*
 * debug.h
 *		Places where a test can stop us, or do something else.
 *
 * Layer 1.
 */
#ifndef DR_DEBUG_H
#define DR_DEBUG_H

#include "dailyrollup.h"

#include "utils/timestamp.h"

#ifdef DR_WAITPOINTS
extern void dr_debug_init(void);
extern void dr_debug_waitpoint(const char *name);
extern void dr_debug_waitpoint_in_commit(const char *name);
extern void dr_debug_run(const char *name);
extern TimestampTz dr_debug_now(void);
#define DR_WAITPOINTS_INIT() dr_debug_init()
#define DR_WAITPOINT(name) dr_debug_waitpoint(name)
#define DR_WAITPOINT_IN_COMMIT(name) dr_debug_waitpoint_in_commit(name)
#define DR_RUN_SQL(name) dr_debug_run(name)
#define DR_NOW() dr_debug_now()
#define DR_SMALLEST_PART	0		/* pages of a part of a seed */
#else
#define DR_WAITPOINTS_INIT() ((void) 0)
#define DR_WAITPOINT(name) ((void) 0)
#define DR_WAITPOINT_IN_COMMIT(name) ((void) 0)
#define DR_RUN_SQL(name) ((void) 0)
#define DR_NOW() GetCurrentTimestamp()
#define DR_SMALLEST_PART	8192
#endif

#endif							/* DR_DEBUG_H */
