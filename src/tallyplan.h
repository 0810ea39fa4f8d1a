/*
 * tallyplan.h
 *		How the measures of a definition are computed row by row.
 *
 * Layer 2.
 */
#ifndef DR_TALLYPLAN_H
#define DR_TALLYPLAN_H

#include "dailyrollup.h"

#include "executor/executor.h"
#include "fmgr.h"

#include "aggregates.h"
#include "pack.h"

typedef enum DrRule
{
	RULE_COUNT,
	RULE_LARGER_INT64,			/* max of a time or an integer of 64 bits */
	RULE_SMALLER_INT64,
	RULE_CALL,
	RULE_WINNER,

	/* without a state of their own: */
	RULE_SAME,					/* what another measure is */
	RULE_TIME_OF				/* the time of another one's winner */
} DrRule;

/* What the keys, the measures and the WHERE are computed from. */
typedef struct DrInput
{
	Node	   *expr;
	int			event;			/* a bare column; -1: an expression */
	ExprState  *state;
} DrInput;

typedef struct DrMeasure
{
	const DrColumn *column;
	DrRule		rule;
	Size		offset;			/* of its state */
	int			arg;			/* inputs; -1: none */
	int			at;
	int			filter;
	DrKind		given;			/* the argument */
	DrKind		time;
	DrKind		value;			/* what is kept */
	Oid			collation;
	FmgrInfo	step;
	FmgrInfo	combine;
	PGFunction	convert;		/* the argument, before a step; or NULL */
	DrContest  *contest;
	bool		by_time;		/* "at" is the bare time column */
	const struct DrMeasure *other;
} DrMeasure;

/* The states; zeros mean that there is no value yet. */
typedef struct DrValueState
{
	Datum		value;
	uint32		room;			/* bytes there, where it is a reference */
	bool		has;
} DrValueState;

typedef struct DrWinnerState
{
	DrEntrant	row;
	uint32		value_room;
	uint32		at_room;
	bool		has;
} DrWinnerState;

typedef struct DrTally
{
	const DrDefinition *def;
	EState	   *estate;			/* evaluates inputs, shown an event by the slot */
	ExprContext *econtext;
	TupleTableSlot *slot;
	int			ninputs;
	DrInput	   *inputs;			/* the keys first */
	int			where;			/* -1: none */
	bool		guarded;		/* an expression under a condition */
	bool		may_fail;		/* an expression, for a row of an event that does not count */
	int			nmeasures;
	DrMeasure  *measures;
	Size		state_size;
} DrTally;

extern TupleDesc dr_tally_event_desc(const DrDefinition *def);
extern TupleDesc dr_tally_row_desc(const DrDefinition *def);
extern TupleDesc dr_tally_key_desc(const DrDefinition *def);
extern DrTally *dr_tally_prepare(const DrDefinition *def, bool deduplicate);
extern void dr_tally_end(DrTally *tally);

#endif							/* DR_TALLYPLAN_H */
