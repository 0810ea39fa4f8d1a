/*
 * run.h
 *		CALL rollup_run(), and what it would do.
 *
 * Layer 12: SQL-callable functions only.
 */
#ifndef DR_RUN_H
#define DR_RUN_H

#include "dailyrollup.h"

#endif							/* DR_RUN_H */
