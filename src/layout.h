/*
 * layout.h
 *		Where the columns of events stand in rows that are read.
 *
 * Layer 3.
 */
#ifndef DR_LAYOUT_H
#define DR_LAYOUT_H

#include "dailyrollup.h"

#include "executor/tuptable.h"

#include "tallyplan.h"

/* Columns before those of the event, where duplicates are looked for. */
enum
{
	DR_LAYOUT_TID,
	DR_LAYOUT_TABLE,
	DR_LAYOUT_PLACE
};

typedef struct DrLayout DrLayout;

extern DrLayout *dr_layout_make(const DrDefinition *def, const DrTally *tally, bool placed);
extern TupleDesc dr_layout_desc(const DrLayout *layout);
extern int	dr_layout_first_event(const DrLayout *layout);
extern void dr_layout_set_stored(DrLayout *layout, const DrDefinition *def, List *columns);
extern void dr_layout_read_all(const DrLayout *layout, TupleTableSlot *slot, Datum *values,
							   bool *nulls);
extern void dr_layout_read_early(const DrLayout *layout, TupleTableSlot *slot, Datum *values,
								 bool *nulls);
extern void dr_layout_read_stored(const DrLayout *layout, TupleTableSlot *slot, Datum *values,
								  bool *nulls);

#endif							/* DR_LAYOUT_H */
