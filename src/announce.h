/*
 * announce.h
 *		NOTIFY dailyrollup: what others may want to know of a rollup.
 *
 * Layer 3.
 */
#ifndef DR_ANNOUNCE_H
#define DR_ANNOUNCE_H

#include "dailyrollup.h"

#include "catalog.h"

extern void dr_announce(const char *rollup, const DrRun *run);

#endif							/* DR_ANNOUNCE_H */
