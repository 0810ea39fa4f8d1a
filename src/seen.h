/*
 * seen.h
 *		A rollup's row as the reader's snapshot sees it.
 *
 * Layer 3.
 */
#ifndef DR_SEEN_H
#define DR_SEEN_H

#include "dailyrollup.h"

#include "catalog.h"

extern void dr_seen_init(void);
extern const DrRollup *dr_seen_rollup(Oid live);

#endif							/* DR_SEEN_H */
