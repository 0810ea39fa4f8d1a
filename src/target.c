/*
 * target.c
 *		Writing to a rollup's table without a statement.
 *
 * What statements do besides is to fire triggers, and to wait for other
 * writers.  So the caller has seen that there are no triggers but the guard,
 * which lets us pass anyway, and holds a lock that no writer holds, or one on
 * each row that it changes, or asks whether a row was still what it has read.
 * Indexes, constraints and generated columns are looked after here as by a
 * statement.
 */
#include "target.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "objects.h"
#include "patch.h"

/* Would a statement fire other triggers than the guard? */
bool
dr_target_fires_triggers(const DrRollup *rollup, Relation rel)
{
	char	   *guard = dr_objects_trigger_name(rollup->id, "guard");

	for (int i = 0; rel->trigdesc != NULL && i < rel->trigdesc->numtriggers; i++)
		if (strcmp(rel->trigdesc->triggers[i].tgname, guard) != 0)
			return true;
	return false;
}

/* Which column of the query each attribute is that an update changes. */
static void
prepare_patch(DrTarget *target)
{
	TupleDesc	desc = RelationGetDescr(target->rel);

	target->patched = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
	target->patch = dr_patch_make();
	target->columns = palloc(desc->natts * sizeof(int));
	for (int i = 0; i < desc->natts; i++)
		target->columns[i] = -1;
	for (int i = 0; i < target->def->ncolumns; i++)
		if (!target->def->columns[i].is_key)
			target->columns[target->attnos[i] - 1] = i;
}

/* Between us and code that an index or a constraint calls there is an error context,
 * as there is below a statement (guard.c). */
static void
say_nothing(void *arg)
{
}

/* "contested": others may insert rows of the same keys, see dr_target_propose. */
void
dr_target_open(DrTarget *target, const DrDefinition *def, Relation rel, bool contested)
{
	target->rel = rel;
	target->def = def;
	target->estate = CreateExecutorState();
	target->estate->es_snapshot = GetActiveSnapshot();
	target->info = makeNode(ResultRelInfo);
	InitResultRelInfo(target->info, rel, 0, NULL, 0);
	ExecOpenIndices(target->info, contested);
	target->place = table_slot_create(rel, NULL);
	target->fresh = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsVirtual);
	target->attnos = palloc(def->ncolumns * sizeof(AttrNumber));
	for (int i = 0; i < def->ncolumns; i++)
		target->attnos[i] = get_attnum(RelationGetRelid(rel), def->columns[i].name);
	target->patched = NULL;
	target->may_update = false;
	if (contested)
		prepare_patch(target);
	target->context.callback = say_nothing;
	target->context.arg = NULL;
	target->context.previous = error_context_stack;
	error_context_stack = &target->context;
}

void
dr_target_close(DrTarget *target)
{
	error_context_stack = target->context.previous;
	ExecDropSingleTupleTableSlot(target->place);
	ExecDropSingleTupleTableSlot(target->fresh);
	if (target->patched != NULL)
		ExecDropSingleTupleTableSlot(target->patched);
	ExecCloseIndices(target->info);
	FreeExecutorState(target->estate);
}

static void
begin_fresh(DrTarget *target, const Datum *values, const bool *nulls)
{
	int			natts = RelationGetDescr(target->rel)->natts;

	ExecClearTuple(target->fresh);
	if (values != NULL)
	{
		memcpy(target->fresh->tts_values, values, natts * sizeof(Datum));
		memcpy(target->fresh->tts_isnull, nulls, natts * sizeof(bool));
	}
	else
		memset(target->fresh->tts_isnull, true, natts * sizeof(bool));
}

static void
set_columns(DrTarget *target, const Datum *values, const bool *nulls, bool keys)
{
	for (int i = 0; i < target->def->ncolumns; i++)
	{
		if (target->def->columns[i].is_key && !keys)
			continue;
		target->fresh->tts_values[target->attnos[i] - 1] = values[i];
		target->fresh->tts_isnull[target->attnos[i] - 1] = nulls[i];
	}
	ExecStoreVirtualTuple(target->fresh);
}

static void
update(DrTarget *target, TupleTableSlot *place)
{
	ExecSimpleRelationUpdate(target->info, target->estate, NULL, place, target->fresh);
	ResetPerTupleExprContext(target->estate);
}

/* A stored row, all of whose columns were read, gets other measures. */
void
dr_target_update_stored(DrTarget *target, TupleTableSlot *stored,
						const Datum *values, const bool *nulls)
{
	begin_fresh(target, stored->tts_values, stored->tts_isnull);
	set_columns(target, values, nulls, false);
	update(target, stored);
}

/* The row that a stored one becomes, in its form where that can be. */
static TupleTableSlot *
changed_row(DrTarget *target, TupleTableSlot *stored, const Datum *values, const bool *nulls)
{
	TupleTableSlot *row = target->fresh;

	if (dr_patch(target->patch, ExecFetchSlotHeapTuple(stored, false, NULL),
				 RelationGetDescr(target->rel), target->columns, values, nulls))
		row = ExecStoreHeapTuple(target->patch, target->patched, false);
	else
	{
		begin_fresh(target, stored->tts_values, stored->tts_isnull);
		set_columns(target, values, nulls, false);
	}
	row->tts_tableOid = RelationGetRelid(target->rel);
	return row;
}

/*
 * The same, where others may be writing the row, which the caller has read and
 * not locked: it waits for them.  False, and nothing is done, where they have
 * changed it.  The table is a heap, has no generated columns, and was opened as
 * contested.
 */
bool
dr_target_update_contested(DrTarget *target, TupleTableSlot *stored,
						   const Datum *values, const bool *nulls)
{
	TupleTableSlot *row = changed_row(target, stored, values, nulls);
	TM_Result	result;
	TM_FailureData failure;
	LockTupleMode mode;
	DrIndexesOfUpdate which;

	if (!target->may_update)
		CheckCmdReplicaIdentity(target->rel, CMD_UPDATE);
	target->may_update = true;
	if (RelationGetDescr(target->rel)->constr != NULL)
		ExecConstraints(target->info, row, target->estate);
	result = table_tuple_update(target->rel, &stored->tts_tid, row,
								GetCurrentCommandId(true), target->estate->es_snapshot,
								InvalidSnapshot, true, &failure, &mode, &which);

	/* (no CHECK is there, of which a function could have changed it itself) */
	if (result != TM_Ok && result != TM_Updated && result != TM_Deleted)
		elog(ERROR, "unexpected state of a row that is to be updated: %d", result);
	if (result == TM_Ok)
		(void) dr_update_index_tuples(target->info, row, target->estate, which);
	ResetPerTupleExprContext(target->estate);
	return result == TM_Ok;
}

/* The row at that place, of a table that has no other columns, becomes this
 * one. */
void
dr_target_update(DrTarget *target, ItemPointer tid, const Datum *values, const bool *nulls)
{
	begin_fresh(target, NULL, NULL);
	set_columns(target, values, nulls, true);
	ExecClearTuple(target->place);
	target->place->tts_tid = *tid;
	update(target, target->place);
}

void
dr_target_delete(DrTarget *target, ItemPointer tid)
{
	ExecClearTuple(target->place);
	target->place->tts_tid = *tid;
	ExecSimpleRelationDelete(target->info, target->estate, NULL, target->place);
	ResetPerTupleExprContext(target->estate);
}

void
dr_target_insert(DrTarget *target, const Datum *values, const bool *nulls)
{
	begin_fresh(target, NULL, NULL);
	set_columns(target, values, nulls, true);
	ExecSimpleRelationInsert(target->info, target->estate, target->fresh);
	ResetPerTupleExprContext(target->estate);
}

/*
 * Insert a row that others may insert as well: false, and nothing is there,
 * where the arbiter, a unique index, has found one of its key.  As the server
 * does it for ON CONFLICT: the row is withdrawn by itself, and meanwhile others
 * wait for that, not for our transaction.
 */
bool
dr_target_propose(DrTarget *target, Oid arbiter, const Datum *values, const bool *nulls)
{
	TransactionId xid = GetCurrentTransactionId();
	bool		conflict = false;
	uint32		token;

	begin_fresh(target, NULL, NULL);
	set_columns(target, values, nulls, true);
	target->fresh->tts_tableOid = RelationGetRelid(target->rel);
	if (RelationGetDescr(target->rel)->constr != NULL)
		ExecConstraints(target->info, target->fresh, target->estate);
	token = SpeculativeInsertionLockAcquire(xid);
	table_tuple_insert_speculative(target->rel, target->fresh, GetCurrentCommandId(true), 0,
								   NULL, token);
	(void) dr_insert_index_tuples(target->info, target->fresh, target->estate, &conflict,
								  list_make1_oid(arbiter));
	table_tuple_complete_speculative(target->rel, target->fresh, token, !conflict);
	SpeculativeInsertionLockRelease(xid);
	ResetPerTupleExprContext(target->estate);
	return !conflict;
}
