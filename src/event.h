/*
 * event.h
 *		The columns of an event, in a row of the source or of a partition.
 *
 * Layer 5.
 */
#ifndef DR_EVENT_H
#define DR_EVENT_H

#include "dailyrollup.h"

#include "executor/tuptable.h"

#include "plans.h"

extern bool dr_event_in_source(const DrPlans *plans, Oid relation);
extern void dr_event_locate(DrPlans *plans, Oid relation);
extern void dr_event_read(const DrPlans *plans, TupleTableSlot *slot, Datum *values, bool *nulls);
extern bool dr_event_same(const DrDefinition *def, const Datum *a, const bool *a_null,
						  const Datum *b, const bool *b_null);

#endif							/* DR_EVENT_H */
