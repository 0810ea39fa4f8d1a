/*
 * schedule.h
 *		The pg_cron job that makes the passes.
 *
 * Layer 13.
 */
#ifndef DR_SCHEDULE_H
#define DR_SCHEDULE_H

#include "dailyrollup.h"

extern bool dr_schedule_is_active(void);

#endif							/* DR_SCHEDULE_H */
