/*
 * run.h
 *		The pass.
 *
 * Layer 10.
 */
#ifndef DR_RUN_H
#define DR_RUN_H

#include "dailyrollup.h"

#endif							/* DR_RUN_H */
