/*
 * refresh.h
 *		The daily refresh.
 *
 * Layer 9.
 */
#ifndef DR_REFRESH_H
#define DR_REFRESH_H

#include "dailyrollup.h"

#include "catalog.h"

extern void dr_refresh_run(DrRollup *rollup, TimestampTz boundary, bool build, DrRun *run);

#endif							/* DR_REFRESH_H */
