/*
 * launcher.h
 *		The launcher: starts a worker where a pass is due.
 *
 * Layer 13.
 */
#ifndef DR_LAUNCHER_H
#define DR_LAUNCHER_H

#include "dailyrollup.h"

extern void dr_launcher_init(void);

#endif							/* DR_LAUNCHER_H */
