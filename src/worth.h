/*
 * worth.h
 *		Is a parallel worker worth what it costs?
 *
 * Layer 1.
 */
#ifndef DR_WORTH_H
#define DR_WORTH_H

#include "postgres.h"

/* So many keys were found in so many rows. */
typedef struct DrSample
{
	double		rows;
	double		keys;
} DrSample;

/* What is known of a window while it is read. */
typedef struct DrWorth
{
	double		expected;		/* rows, by the planner */
	int			work;			/* what is done with each row, in operators */
	uint64		nread;
	uint64		next_look;
	DrSample	earlier;		/* half as many rows */
	DrSample	latest;
} DrWorth;

extern void dr_worth_begin(DrWorth *worth, double expected, int work);
extern double dr_worth_rows(const DrWorth *worth);
extern double dr_worth_keys(const DrWorth *worth);
extern bool dr_worth_decide(DrWorth *worth);
extern void dr_worth_sample(DrWorth *worth, double keys);

/* A row comes: is it time to look at those before it? */
static inline bool
dr_worth_is_due(const DrWorth *worth)
{
	return worth->nread == worth->next_look;
}

#endif							/* DR_WORTH_H */
