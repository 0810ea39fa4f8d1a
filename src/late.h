/*
 * late.h
 *		Rows that arrive behind the watermark.
 *
 * Layer 8.
 */
#ifndef DR_LATE_H
#define DR_LATE_H

#include "dailyrollup.h"

#include "catalog.h"
#include "plans.h"

extern void dr_late_init(void);
extern Datum dr_late_threshold(Oid live);
extern void dr_late_forget_thresholds(void);
extern void dr_late_check_triggers(const DrRollup *rollup);
extern bool dr_late_is_late(const DrPlans *plans, Datum time);
extern void dr_late_mark_event(DrPlans *plans, const Datum *event, const bool *nulls,
							   char dirties, bool added);
extern void dr_late_mark_attached(const DrRollup *rollup, Oid partition);
extern uint64 dr_late_count(const DrRollup *rollup, const DrDefinition *def,
							char dirties, uint64 limit);

#endif							/* DR_LATE_H */
