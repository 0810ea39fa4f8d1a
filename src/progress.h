/*
 * progress.h
 *		What a pass is doing: for the view rollup_progress, and for whoever
 *		called it from a client.
 *
 * Layer 3.
 */
#ifndef DR_PROGRESS_H
#define DR_PROGRESS_H

#include "dailyrollup.h"

extern void dr_progress_init(void);
extern void dr_progress_begin(Oid live, const char *name, bool to_client);
extern void dr_progress_phase(const char *phase);
extern void dr_progress_part(int part, int parts);
extern void dr_progress_rows(int64 rows);
extern void dr_progress_end(void);

#endif							/* DR_PROGRESS_H */
