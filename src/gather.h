/*
 * gather.h
 *		What a transaction has inserted, by keys in memory.
 *
 * Layer 6.
 */
#ifndef DR_GATHER_H
#define DR_GATHER_H

#include "dailyrollup.h"

#include "access/tupdesc.h"
#include "storage/itemptr.h"

#include "catalog.h"
#include "intake.h"
#include "keytable.h"
#include "order.h"
#include "rows.h"
#include "tally.h"

/* An event: its row that counts, of those in the batch. */
typedef struct DrGatherEvent
{
	Datum	   *values;
	bool	   *nulls;
	DrEntry    *entry;
	int64		fresh;			/* its rows in the batch */
	int64		fresh_equal;	/* of these, the same as that one */
	int64		stored;			/* its rows in the source, ours included */
	int64		stored_equal;
	bool		beaten;			/* by one of these */
} DrGatherEvent;

/* What is known of a key; its place is that of its entry, as a number. */
typedef struct DrFate
{
	int32		number;
	bool		proposed;		/* by the row that live had */
	bool		is_new;			/* live did not have it */
	bool		has_old;		/* events of which an old row counts */
	bool		has_newest;
	int64		newest;			/* no event that live has of it is later */
	int64		oldest;			/* of the batch */
	ItemPointerData place;		/* live's row, as it was locked */
	Datum	   *stored;			/* NULL: none */
	bool	   *stored_nulls;
} DrFate;

typedef struct DrGather
{
	const DrDefinition *def;
	MemoryContext context;
	DrIntake   *intake;
	DrTally    *tally;
	DrTallyRow *row;
	DrKeyTable *table;
	DrOrder    *order;
	bool		deduplicate;	/* else there are no events, each row counts */
	Size		fate_offset;
	int			newest;			/* the column that is max(time); -1: none */
	DrEntry   **entries;
	int			nentries;
	DrGatherEvent *events;
	int			nevents;
	int			room;			/* for events, and entries */
	Size		stored;			/* bytes of live's rows */
} DrGather;

extern DrGather *dr_gather_begin(const DrDefinition *def, const DrRollup *rollup,
								 const DrRows *rows);
extern void dr_gather_end(DrGather *gather);
extern DrFate *dr_gather_fate(const DrGather *gather, const DrEntry *entry);

/* while the keys are locked: each has a number, from 0, in their order */
extern void dr_gather_sort(DrGather *gather);
extern void dr_gather_key(const DrGather *gather, int i, Datum *values, bool *nulls);
extern void dr_gather_row(const DrGather *gather, int i, Datum *values, bool *nulls);
extern void dr_gather_add(DrGather *gather, int i);
extern bool dr_gather_is_decided(DrGather *gather, int i, const Datum *values,
								 const bool *nulls);
extern void dr_gather_merge(DrGather *gather, int i, Datum *values, bool *nulls);
extern void dr_gather_merged(DrGather *gather, int i, bool written);
extern void dr_gather_keep(DrGather *gather, DrEntry *entry, ItemPointer place, Datum *values,
						   bool *nulls);

/* after that */
extern bool dr_gather_is_told_new(const DrGather *gather, const DrGatherEvent *event);
extern void dr_gather_decide(DrGather *gather);

#endif							/* DR_GATHER_H */
