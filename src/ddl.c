/*
 * ddl.c
 *		What DDL of others does to a rollup.
 *
 *	TRUNCATE of the source or a leaf	the watermark goes: live does not count
 *										until the next refresh has seeded it
 *	ATTACH PARTITION					its keys below the threshold are marked
 *	CREATE TABLE ... PARTITION OF		the new leaf's TRUNCATE is watched too
 *	DETACH PARTITION, DROP of one		a WARNING: live keeps what is gone
 *	DROP ... CASCADE of source or live	what is left of the rollup goes
 *	DROP of our view, marks, triggers	refused: they go with rollup_drop
 */
#include "ddl.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "commands/event_trigger.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "boundary.h"
#include "catalog.h"
#include "create.h"
#include "definition.h"
#include "identity.h"
#include "late.h"
#include "query.h"

/* The rollups whose source is the relation, or a partitioned table above. */
static List *
rollups_above(Oid relation)
{
	List	   *sources = lappend_oid(get_partition_ancestors(relation), relation);
	List	   *all = dr_catalog_all();
	List	   *found = NIL;
	ListCell   *cell;

	foreach(cell, all)
		if (list_member_oid(sources, ((DrRollup *) lfirst(cell))->source))
			found = lappend(found, lfirst(cell));
	return found;
}

/* ---------------------------------------------------------- ATTACH, DETACH */

/*
 * The rows of an attached partition arrive all at once, and no row trigger
 * fires for them: mark those below the threshold.  The command holds a lock on
 * the source that a refresh waits for.
 */
static void
partition_attached(const DrRollup *rollup, Oid partition)
{
	DrDefinition *def = dr_definition_read(rollup->events, rollup->definition);

	dr_create_truncate_triggers(rollup, partition);
	dr_late_mark_range(rollup, def, partition,
					   dr_boundary_minus_infinity(def->time_kind),
					   dr_late_threshold(rollup->live));
}

static void
warn_of_lost_rows(const DrRollup *rollup, const char *partition, const char *fate)
{
	ereport(WARNING,
			(errmsg("partition \"%s\" of a source was %s, but rollup \"%s\" still counts its rows",
					partition, fate, dr_catalog_name(rollup->live)),
			 errhint("Run SELECT rollup_reseed(%s) to forget them.",
					 quote_literal_cstr(dr_query_relation(rollup->live)))));
}

/* A detached partition is watched no more. */
static void
partition_detached(const DrRollup *rollup, Oid partition)
{
	List	   *relations = find_all_inheritors(partition, AccessExclusiveLock, NULL);
	ListCell   *cell;

	foreach(cell, relations)
	{
		ObjectAddress trigger;
		Oid			oid = get_trigger_oid(lfirst_oid(cell),
										  dr_query_trigger_name(rollup->id, "truncate"),
										  true);

		if (!OidIsValid(oid))
			continue;
		ObjectAddressSet(trigger, TriggerRelationId, oid);
		performDeletion(&trigger, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	}
	warn_of_lost_rows(rollup, dr_catalog_name(partition), "detached");
}

static void
table_altered(AlterTableStmt *stmt)
{
	Oid			parent = RangeVarGetRelid(stmt->relation, NoLock, true);
	ListCell   *cell;

	if (!OidIsValid(parent))
		return;
	foreach(cell, stmt->cmds)
	{
		AlterTableCmd *command = lfirst_node(AlterTableCmd, cell);
		bool		attach = command->subtype == AT_AttachPartition;
		Oid			partition;
		List	   *rollups;
		ListCell   *rollup;

		if (!attach && command->subtype != AT_DetachPartition)
			continue;
		partition = RangeVarGetRelid(((PartitionCmd *) command->def)->name, NoLock, true);
		if (!OidIsValid(partition) ||
			get_rel_relkind(parent) != RELKIND_PARTITIONED_TABLE)
			continue;
		rollups = rollups_above(parent);
		foreach(rollup, rollups)
		{
			if (attach)
				partition_attached(lfirst(rollup), partition);
			else
				partition_detached(lfirst(rollup), partition);
		}
	}
}

static void
table_created(CreateStmt *stmt)
{
	Oid			relation;
	List	   *rollups;
	ListCell   *cell;

	if (stmt->partbound == NULL)
		return;
	relation = RangeVarGetRelid(stmt->relation, NoLock, true);
	if (!OidIsValid(relation))
		return;
	rollups = rollups_above(relation);
	foreach(cell, rollups)
		dr_create_truncate_triggers(lfirst(cell), relation);
}

/* -------------------------------------------------------------------- DROP */

static bool
exists(Oid relation)
{
	return get_rel_name(relation) != NULL;
}

static bool
has_trigger(const DrRollup *rollup, const char *event)
{
	return OidIsValid(get_trigger_oid(rollup->source,
									  dr_query_trigger_name(rollup->id, event), true));
}

static void
refuse_drop(const DrRollup *rollup, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 errmsg("%s belongs to rollup \"%s\"", what, dr_catalog_name(rollup->live)),
			 errhint("Run SELECT rollup_drop(%s) to remove the rollup.",
					 quote_literal_cstr(dr_query_relation(rollup->live)))));
}

/*
 * After a drop: where the source, live or the definition went, by CASCADE, the
 * rest of the rollup follows.  Where only a part of ours went, the rollup
 * would silently lose rows: refuse.
 */
static void
inspect(const DrRollup *rollup)
{
	if (!exists(rollup->source) || !exists(rollup->live) ||
		!exists(rollup->events) || !exists(rollup->definition))
	{
		dr_create_remove(rollup, false, DROP_CASCADE);
		return;
	}
	if (!exists(rollup->current_view))
		refuse_drop(rollup, "the view");
	if (!exists(rollup->marks))
		refuse_drop(rollup, "the table of marks");
	for (int i = 0; i < DR_ROW_EVENTS; i++)
		if (!has_trigger(rollup, dr_query_row_events[i]))
			refuse_drop(rollup, "the trigger");
	if (!has_trigger(rollup, "truncate"))
		refuse_drop(rollup, "the trigger");
}

/*
 * Partitions that were dropped with the triggers of a rollup on them; the
 * trigger's name tells which rollup.  Detached ones have lost theirs before.
 */
static void
warn_of_dropped_partitions(void)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute("SELECT (pg_catalog.regexp_match(address_names[3],"
					" '^dailyrollup_([0-9]+)_insert$'))[1]::pg_catalog.int4,"
					" address_names[1] || '.' || address_names[2]"
					" FROM pg_catalog.pg_event_trigger_dropped_objects()"
					" WHERE object_type = 'trigger'"
					" AND address_names[3] ~ '^dailyrollup_[0-9]{1,9}_insert$'",
					true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list dropped objects");
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		HeapTuple	tuple = SPI_tuptable->vals[row];
		bool		isnull;
		int32		id = DatumGetInt32(SPI_getbinval(tuple, SPI_tuptable->tupdesc, 1, &isnull));
		DrRollup   *rollup = dr_catalog_find_id(id);

		if (rollup != NULL && exists(rollup->source) && has_trigger(rollup, "insert"))
			warn_of_lost_rows(rollup, SPI_getvalue(tuple, SPI_tuptable->tupdesc, 2),
							  "dropped");
	}
	SPI_finish();
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_truncated);
PG_FUNCTION_INFO_V1(dailyrollup_ddl_ended);
PG_FUNCTION_INFO_V1(dailyrollup_dropped);

/* Statement trigger of a source and its leaves: AFTER TRUNCATE. */
Datum
dailyrollup_truncated(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	List	   *rollups;
	ListCell   *cell;
	int32		id;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event) ||
		trigger->tg_trigger->tgnargs != 1)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("this function serves the TRUNCATE triggers of a rollup's source alone"),
				 errhint("They are made by rollup_create.")));
	id = pg_strtoint32(trigger->tg_trigger->tgargs[0]);
	rollups = rollups_above(RelationGetRelid(trigger->tg_relation));
	foreach(cell, rollups)
	{
		DrRollup   *rollup = lfirst(cell);

		if (rollup->id == id && rollup->has_watermark)
			dr_catalog_forget_watermark(rollup,
										psprintf("TRUNCATE of %s",
												 dr_catalog_name(RelationGetRelid(trigger->tg_relation))));
	}
	PG_RETURN_POINTER(NULL);
}

Datum
dailyrollup_ddl_ended(PG_FUNCTION_ARGS)
{
	EventTriggerData *event = (EventTriggerData *) fcinfo->context;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("this function serves an event trigger alone")));
	if (IsA(event->parsetree, AlterTableStmt))
		table_altered((AlterTableStmt *) event->parsetree);
	else if (IsA(event->parsetree, CreateStmt))
		table_created((CreateStmt *) event->parsetree);
	PG_RETURN_NULL();
}

Datum
dailyrollup_dropped(PG_FUNCTION_ARGS)
{
	List	   *rollups;
	ListCell   *cell;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("this function serves an event trigger alone")));
	rollups = dr_catalog_all();
	if (rollups == NIL)
		PG_RETURN_NULL();
	warn_of_dropped_partitions();
	foreach(cell, rollups)
		inspect(lfirst(cell));
	PG_RETURN_NULL();
}
