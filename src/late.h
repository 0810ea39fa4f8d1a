/*
 * late.h
 *		Rows that arrive behind the watermark.
 *
 * Layer 4.
 */
#ifndef DR_LATE_H
#define DR_LATE_H

#include "dailyrollup.h"

#include "catalog.h"

extern void dr_late_init(void);
extern Datum dr_late_threshold(Oid live);
extern void dr_late_forget_thresholds(void);
extern void dr_late_check_triggers(const DrRollup *rollup);
extern void dr_late_mark_partition(const DrRollup *rollup, const DrDefinition *def,
								   Oid partition, Datum threshold);
extern uint64 dr_late_count(const DrRollup *rollup, const DrDefinition *def,
							uint64 limit);

#endif							/* DR_LATE_H */
