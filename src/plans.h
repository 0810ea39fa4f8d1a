/*
 * plans.h
 *		What a session keeps of a rollup to run SQL over it again and again.
 *
 * Layer 3.
 */
#ifndef DR_PLANS_H
#define DR_PLANS_H

#include "dailyrollup.h"

#include "executor/spi.h"
#include "utils/tuplestore.h"

#include "catalog.h"

/* The plan that computes one key's row, for one pattern of NULLs in the key. */
typedef struct DrKeyPlan
{
	bool	   *key_is_null;
	SPIPlanPtr	plan;
} DrKeyPlan;

#define DR_FOLD_STATEMENTS	9

/*
 * Valid until invalidation messages are accepted; whoever goes on using it
 * counts itself in "uses".  Of "rollup" the relations, the id and the owner may be
 * used; its state and watermark may be old.
 */
typedef struct DrPlans
{
	Oid			live;
	MemoryContext context;
	int			uses;			/* up the stack; an error leaves it too high */
	DrRollup   *rollup;
	DrDefinition *def;

	/* event.c: where the events' columns stand in that relation */
	Oid			event_relation;
	AttrNumber *event_attnos;
	AttrNumber	event_last;		/* the greatest of them */

	/* late.c: writing a mark */
	SPIPlanPtr	mark[2];		/* with the event: 1 */

	/* fold.c: the write-time fold */
	SPIPlanPtr	fold[DR_FOLD_STATEMENTS];

	/* current.c: one key's row */
	List	   *key_plans;		/* of DrKeyPlan */
} DrPlans;

extern void dr_plans_init(void);
extern DrPlans *dr_plans_of(Oid live);
extern DrPlans *dr_plans_of_id(int32 id);
extern void dr_plans_register(const char *name, TupleDesc desc, Tuplestorestate *rows,
							  int64 count);
extern SPIPlanPtr dr_plans_prepare(const char *sql, int n, Oid *types, int options);
extern void dr_plans_run(const char *sql, Snapshot snapshot, int n, Oid *types, Datum *values,
						 const char *nulls);

#endif							/* DR_PLANS_H */
