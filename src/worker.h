/*
 * worker.h
 *		A worker: it makes the passes of one database.
 *
 * Layer 12: started by its name (launcher.c).
 */
#ifndef DR_WORKER_H
#define DR_WORKER_H

#include "dailyrollup.h"

#endif							/* DR_WORKER_H */
