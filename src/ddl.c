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

/* What one command has dropped: relations, and triggers by their names. */
typedef struct Dropped
{
	List	   *relations;		/* of Oid */
	List	   *triggers;		/* of DroppedTrigger */
} Dropped;

typedef struct DroppedTrigger
{
	char	   *table;			/* as dr_catalog_name would call it */
	char	   *name;
} DroppedTrigger;

static Dropped
list_dropped(void)
{
	Dropped		dropped = {NIL, NIL};
	MemoryContext context = CurrentMemoryContext;
	DrIdentity	before;

	/* our own search_path: whoever drops may have any */
	dr_identity_enter_extension(&before);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute("SELECT objid,"
					" coalesce(address_names[1] || '.' || address_names[2], ''),"
					" coalesce(address_names[3], ''), object_type = 'trigger'"
					" FROM pg_catalog.pg_event_trigger_dropped_objects()"
					" WHERE object_type = 'trigger' OR"
					" (classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND objsubid = 0)",
					true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list dropped objects");

	MemoryContextSwitchTo(context);
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		HeapTuple	tuple = SPI_tuptable->vals[row];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		bool		isnull;

		if (DatumGetBool(SPI_getbinval(tuple, desc, 4, &isnull)))
		{
			DroppedTrigger *trigger = palloc(sizeof(DroppedTrigger));

			trigger->table = TextDatumGetCString(SPI_getbinval(tuple, desc, 2, &isnull));
			trigger->name = TextDatumGetCString(SPI_getbinval(tuple, desc, 3, &isnull));
			dropped.triggers = lappend(dropped.triggers, trigger);
		}
		else
			dropped.relations =
				lappend_oid(dropped.relations,
							DatumGetObjectId(SPI_getbinval(tuple, desc, 1, &isnull)));
	}
	SPI_finish();
	dr_identity_leave(&before);
	return dropped;
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
 * Triggers of ours that went.  With a partition: live keeps what is gone.  From
 * the source itself: late rows would be lost in silence, so refuse.
 */
static void
inspect_triggers(const DrRollup *rollup, const Dropped *dropped)
{
	char	   *insert = dr_query_trigger_name(rollup->id, "insert");
	ListCell   *cell;

	foreach(cell, dropped->triggers)
	{
		DroppedTrigger *trigger = lfirst(cell);
		bool		ours = strcmp(trigger->name, insert) == 0;

		if (strcmp(trigger->table, dr_catalog_name(rollup->source)) != 0)
		{
			if (ours)
				warn_of_lost_rows(rollup, trigger->table, "dropped");
			continue;
		}
		ours |= strcmp(trigger->name, dr_query_trigger_name(rollup->id, "truncate")) == 0;
		for (int i = 0; i < DR_ROW_EVENTS; i++)
			ours |= strcmp(trigger->name,
						   dr_query_trigger_name(rollup->id, dr_query_row_events[i])) == 0;
		if (ours)
			refuse_drop(rollup, psprintf("trigger \"%s\"", trigger->name));
	}
}

/*
 * Where the source, live or the definition went, by CASCADE, the rest of the
 * rollup follows.  Where only a part of ours went, refuse.
 */
static void
inspect(const DrRollup *rollup, const Dropped *dropped)
{
	List	   *gone = dropped->relations;

	if (list_member_oid(gone, rollup->source) || list_member_oid(gone, rollup->live) ||
		list_member_oid(gone, rollup->events) || list_member_oid(gone, rollup->definition))
	{
		dr_create_remove(rollup, false, DROP_CASCADE);
		return;
	}
	if (list_member_oid(gone, rollup->current_view))
		refuse_drop(rollup, "the view");
	if (list_member_oid(gone, rollup->marks))
		refuse_drop(rollup, "the table of marks");
	inspect_triggers(rollup, dropped);
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
	Dropped		dropped;
	List	   *rollups;
	ListCell   *cell;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("this function serves an event trigger alone")));
	rollups = dr_catalog_all();
	if (rollups == NIL)
		PG_RETURN_NULL();
	dropped = list_dropped();
	foreach(cell, rollups)
		inspect(lfirst(cell), &dropped);
	PG_RETURN_NULL();
}
