/*
 * target.h
 *		Writing to a rollup's table without a statement.
 *
 * Layer 4.
 */
#ifndef DR_TARGET_H
#define DR_TARGET_H

#include "dailyrollup.h"

#include "nodes/execnodes.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"

#include "catalog.h"

/* The table while its rows are written. */
typedef struct DrTarget
{
	Relation	rel;
	const DrDefinition *def;
	EState	   *estate;
	ResultRelInfo *info;
	TupleTableSlot *place;		/* a row by its place alone */
	TupleTableSlot *fresh;
	AttrNumber *attnos;			/* of the query's columns */
	bool		may_update;		/* its rows are told apart where replicas need that */

	/* a stored row that is changed in its form; "columns" of the query by attributes */
	TupleTableSlot *patched;
	HeapTuple	patch;
	int		   *columns;

	ErrorContextCallback context;	/* says nothing; see guard.c */
} DrTarget;

extern bool dr_target_fires_triggers(const DrRollup *rollup, Relation rel);
extern void dr_target_open(DrTarget *target, const DrDefinition *def, Relation rel,
						   bool contested);
extern void dr_target_close(DrTarget *target);
extern void dr_target_update_stored(DrTarget *target, TupleTableSlot *stored,
									const Datum *values, const bool *nulls);
extern bool dr_target_update_contested(DrTarget *target, TupleTableSlot *stored,
									   const Datum *values, const bool *nulls);
extern void dr_target_update(DrTarget *target, ItemPointer tid, const Datum *values,
							 const bool *nulls);
extern void dr_target_delete(DrTarget *target, ItemPointer tid);
extern void dr_target_insert(DrTarget *target, const Datum *values, const bool *nulls);
extern bool dr_target_propose(DrTarget *target, Oid arbiter, const Datum *values,
							  const bool *nulls);

#endif							/* DR_TARGET_H */
