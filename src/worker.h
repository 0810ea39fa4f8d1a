/*
 * worker.h
 *		The background worker: it makes the passes.
 *
 * Layer 11.
 */
#ifndef DR_WORKER_H
#define DR_WORKER_H

#include "dailyrollup.h"

extern void dr_worker_init(void);

#endif							/* DR_WORKER_H */
