/*
 * tally.h
 *		The measures of one key, while rows are added to them.
 *
 * Layer 3.
 */
#ifndef DR_TALLY_H
#define DR_TALLY_H

#include "dailyrollup.h"

#include "keytable.h"
#include "tallyplan.h"

/* What a row means to the measures: the key's values, then those of arguments
 * and filters.  The WHERE of the definition decides whether it counts. */
typedef struct DrTallyRow
{
	Datum	   *values;
	bool	   *nulls;
	bool		counts;
} DrTallyRow;

extern Size dr_tally_state_size(const DrTally *tally);
extern DrTallyRow *dr_tally_make_row(const DrTally *tally);
extern bool dr_tally_counts(DrTally *tally, const Datum *event, const bool *nulls,
						   DrTallyRow *row);
extern void dr_tally_read_key(DrTally *tally, const Datum *event, const bool *nulls,
							  DrTallyRow *row);
extern void dr_tally_read(DrTally *tally, const Datum *event, const bool *nulls,
						  DrTallyRow *row);
extern void dr_tally_forget(DrTally *tally);
extern void dr_tally_relieve(DrTally *tally);
extern void dr_tally_add(DrTally *tally, DrKeyTable *table, DrEntry *entry,
						 const DrTallyRow *row);
extern bool dr_tally_replace(DrTally *tally, DrKeyTable *table, DrEntry *entry,
							 const DrTallyRow *old, const DrTallyRow *row);
extern void dr_tally_merge(DrTally *tally, DrKeyTable *table, DrEntry *entry,
						   const Datum *stored, const bool *nulls);
extern void dr_tally_result(const DrTally *tally, const DrEntry *entry,
							Datum *values, bool *nulls);

#endif							/* DR_TALLY_H */
