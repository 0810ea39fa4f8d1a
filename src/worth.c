/*
 * worth.c
 *		Is a parallel worker worth what it costs?
 *
 * A worker reads the whole window, too, adds one half of the rows, and hands over
 * the row of each key of that half.  In the server's units of cost, with r rows, of
 * which n were read before, and k keys:
 *
 *		alone		(r - n) * (read + add)
 *		with it		r * (read + add / 2) + k / 2 * parallel_tuple_cost
 *					+ parallel_setup_cost
 *
 * So it pays where a key has several rows, and where it is called early.  The
 * planner knows how many rows come, but of several columns hardly how many keys;
 * so these are told by the first rows.  While every key is as likely as any other
 * one, the keys found twice among n rows tell how many there are; where more new
 * ones come than that lets expect, they come in clumps, or a few of them much more
 * often, and will go on as they did when the rows doubled.
 *
 * It is asked whenever twice as many rows have been read as the last time.
 */
#include "worth.h"

#include <math.h>

#include "optimizer/optimizer.h"

/* Fewer rows tell nothing of the keys. */
#define SAMPLE		4096

/* Where more rows have come than were expected: so many times those read. */
#define MORE		5

/* Keys come in clumps where half of the rows had less than so much of the keys
 * that they should have had. */
#define EVENLY		0.9

/* Rows are read anew; what was seen of the keys stays. */
void
dr_worth_begin(DrWorth *worth, double expected, int work)
{
	worth->expected = expected;
	worth->work = work;
	worth->nread = 0;
	worth->next_look = 1;
}

/* How many rows there will have been. */
double
dr_worth_rows(const DrWorth *worth)
{
	double		nread = Max((double) worth->nread, worth->latest.rows);

	return nread < worth->expected ? worth->expected : nread * MORE;
}

/* So many keys were found. */
void
dr_worth_sample(DrWorth *worth, double keys)
{
	worth->earlier = worth->latest;
	worth->latest.rows = worth->nread;
	worth->latest.keys = keys;
}

/* Of that many keys, all alike, how many are found in so many rows? */
static double
found(double keys, double rows)
{
	return keys * -expm1(-rows / keys);
}

/* How many keys are there, all alike, of which the sample found some twice? */
static double
keys_behind(const DrSample *sample)
{
	double		low = 0;		/* rows a key */
	double		high = sample->rows;

	for (int i = 0; i < 60; i++)
	{
		double		middle = (low + high) / 2;

		if (found(sample->rows / middle, sample->rows) > sample->keys)
			low = middle;
		else
			high = middle;
	}
	return sample->rows / high;
}

/* How many keys there will have been. */
double
dr_worth_keys(const DrWorth *worth)
{
	const DrSample *earlier = &worth->earlier;
	const DrSample *latest = &worth->latest;
	double		rows = dr_worth_rows(worth);
	double		keys;

	if (latest->rows < SAMPLE || latest->keys >= latest->rows || latest->keys < 1)
		return rows;
	keys = keys_behind(latest);
	if (earlier->keys < EVENLY * found(keys, earlier->rows))
		return Min(rows, latest->keys * pow(rows / latest->rows,
											log2(latest->keys / Max(earlier->keys, 1))));
	return found(keys, rows);
}

/* Is it worth it, from here on?  The next time to ask is when twice as many have
 * been read. */
bool
dr_worth_decide(DrWorth *worth)
{
	double		rows = dr_worth_rows(worth);
	double		add = worth->work * cpu_operator_cost;
	double		alone = (rows - worth->nread) * (cpu_tuple_cost + add);
	double		together = rows * (cpu_tuple_cost + add / 2) +
		dr_worth_keys(worth) / 2 * parallel_tuple_cost + parallel_setup_cost;

	worth->next_look = worth->nread * 2;
	return together < alone;
}
