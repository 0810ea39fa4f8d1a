/*
 * intake.h
 *		Rows of the source added to the measures of their keys, in memory.
 *
 * Layer 4.
 */
#ifndef DR_INTAKE_H
#define DR_INTAKE_H

#include "dailyrollup.h"

#include "executor/tuptable.h"
#include "utils/snapshot.h"
#include "utils/tuplestore.h"

#include "keytable.h"
#include "tally.h"

/* Parts that rows are split into, by so many bits of their keys' hashes. */
#define DR_INTAKE_PART_BITS		5
#define DR_INTAKE_PARTS			(1 << DR_INTAKE_PART_BITS)

#define DR_INTAKE_ALL			(-1)

typedef struct DrIntake DrIntake;

extern DrIntake *dr_intake_make(const DrDefinition *def, bool deduplicate);
extern DrTally *dr_intake_tally(const DrIntake *intake);
extern TupleDesc dr_intake_desc(const DrIntake *intake);
extern TupleDesc dr_intake_row_desc(const DrIntake *intake);
extern TupleDesc dr_intake_key_desc(const DrIntake *intake);
extern bool dr_intake_is_room(const DrIntake *intake, const DrKeyTable *table);
extern void dr_intake_by(DrIntake *intake, Snapshot snapshot);
extern void dr_intake_set_stored(DrIntake *intake, List *columns);
extern void dr_intake_aim(DrIntake *intake, DrKeyTable *table, Tuplestorestate **parts, int level);
extern void dr_intake_halve(DrIntake *intake, int half);
extern bool dr_intake_looks_at(const DrIntake *intake, const DrEntry *entry);
extern bool dr_intake_take(DrIntake *intake, TupleTableSlot *slot);
extern bool dr_intake_take_stored(DrIntake *intake, TupleTableSlot *slot);
extern bool dr_intake_finish(DrIntake *intake);
extern void dr_intake_leave_source(DrIntake *intake);

extern void dr_intake_find(DrIntake *intake, DrKeyTable *table, int n, const Datum *keys,
						   const bool *nulls, DrEntry **entries);
extern DrEntry *dr_intake_enter_key(DrIntake *intake, DrKeyTable *table, const Datum *values,
									const bool *nulls);
extern DrEntry *dr_intake_enter(DrIntake *intake, DrKeyTable *table, const Datum *event,
								const bool *nulls);
extern int	dr_intake_compare(DrIntake *intake, Datum *a, bool *a_nulls, const Datum *b,
							  const bool *b_nulls);
extern void dr_intake_read_key(const DrIntake *intake, const DrEntry *entry, Datum *values,
							   bool *nulls);
extern void dr_intake_read_row(const DrIntake *intake, const DrEntry *entry, Datum *values,
							   bool *nulls);
extern void dr_intake_end(DrIntake *intake);

#endif							/* DR_INTAKE_H */
