/*
 * drop.c
 *		What is dropped, and what becomes of a rollup then.
 *
 *	source or live, by CASCADE			what is left of the rollup goes
 *	a column that is used, by CASCADE	likewise
 *	a partition							a WARNING: live keeps what is gone
 *	our views, marks, shadow, triggers	refused: they go with rollup_drop
 *
 * Everybody's DROP comes through here, so nothing here may fail because some
 * rollup's owner has tampered with its objects: decisions rest on the server's
 * list of dropped objects alone.
 */
#include "drop.h"

#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "commands/event_trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "catalog.h"
#include "identity.h"
#include "objects.h"
#include "remove.h"

/* What one command has dropped. */
typedef struct Dropped
{
	List	   *relations;		/* of Oid */
	List	   *named;			/* of Oid: those that the command named */
	List	   *triggers;		/* of DroppedTrigger */
} Dropped;

typedef struct DroppedTrigger
{
	char	   *schema;			/* of its table */
	char	   *table;
	char	   *name;
} DroppedTrigger;

static void
add_dropped(Dropped *dropped, HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	Oid			object = DatumGetObjectId(SPI_getbinval(tuple, desc, 1, &isnull));

	if (DatumGetBool(SPI_getbinval(tuple, desc, 3, &isnull)))
	{
		DroppedTrigger *trigger = palloc(sizeof(DroppedTrigger));

		trigger->schema = TextDatumGetCString(SPI_getbinval(tuple, desc, 4, &isnull));
		trigger->table = TextDatumGetCString(SPI_getbinval(tuple, desc, 5, &isnull));
		trigger->name = TextDatumGetCString(SPI_getbinval(tuple, desc, 6, &isnull));
		dropped->triggers = lappend(dropped->triggers, trigger);
		return;
	}
	dropped->relations = lappend_oid(dropped->relations, object);
	if (DatumGetBool(SPI_getbinval(tuple, desc, 2, &isnull)))
		dropped->named = lappend_oid(dropped->named, object);
}

static Dropped
list_dropped(void)
{
	Dropped		dropped = {NIL, NIL, NIL};
	MemoryContext context = CurrentMemoryContext;
	DrIdentity	before;

	/* our own search_path: whoever drops may have any */
	dr_identity_enter_extension_sql(&before);
	if (SPI_execute("SELECT objid, original, object_type = 'trigger',"
					" coalesce(address_names[1], ''), coalesce(address_names[2], ''),"
					" coalesce(address_names[3], '')"
					" FROM pg_catalog.pg_event_trigger_dropped_objects()"
					" WHERE object_type = 'trigger' OR"
					" (classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND objsubid = 0)",
					true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list dropped objects");
	MemoryContextSwitchTo(context);
	for (uint64 row = 0; row < SPI_processed; row++)
		add_dropped(&dropped, SPI_tuptable->vals[row], SPI_tuptable->tupdesc);
	dr_identity_leave_sql(&before);
	return dropped;
}

static void
refuse_drop(const DrRollup *rollup, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 errmsg("%s belongs to rollup \"%s\"", what, dr_catalog_name(rollup->live)),
			 errhint("Run SELECT rollup_drop(%s) to remove the rollup.",
					 quote_literal_cstr(dr_objects_relation(rollup->live)))));
}

/* ---------------------------------------------------------------- triggers */

static bool
is_trigger_of(const DrRollup *rollup, const char *name)
{
	for (int i = 0; i < DR_ROW_EVENTS; i++)
		if (strcmp(name, dr_objects_trigger_name(rollup->id, dr_objects_row_events[i])) == 0)
			return true;
	return strcmp(name, dr_objects_trigger_name(rollup->id, "truncate")) == 0;
}

/* The table that a trigger was dropped from; InvalidOid where it went too. */
static Oid
table_of(const DroppedTrigger *trigger)
{
	Oid			schema = get_namespace_oid(trigger->schema, true);

	return OidIsValid(schema) ? get_relname_relid(trigger->table, schema) : InvalidOid;
}

static bool
is_guard(const DrRollup *rollup, const DroppedTrigger *trigger)
{
	return strcmp(trigger->name, dr_objects_trigger_name(rollup->id, "guard")) == 0 &&
		table_of(trigger) == rollup->live;
}

/* The table of a dropped trigger, if it is the source or still below it. */
static Oid
table_in_source(const DrRollup *rollup, const DroppedTrigger *trigger)
{
	Oid			table = table_of(trigger);

	if (OidIsValid(table) &&
		(table == rollup->source ||
		 (get_rel_relispartition(table) &&
		  list_member_oid(get_partition_ancestors(table), rollup->source))))
		return table;
	return InvalidOid;
}

/*
 * A trigger of ours that went alone would let late rows be lost in silence:
 * refuse.  One that went with its partition: live keeps what is gone.  One of a
 * table that is still there is a namesake.
 */
static void
inspect_triggers(const DrRollup *rollup, const Dropped *dropped)
{
	char	   *insert = dr_objects_trigger_name(rollup->id, "insert");
	ListCell   *cell;

	foreach(cell, dropped->triggers)
	{
		DroppedTrigger *trigger = lfirst(cell);

		if (is_guard(rollup, trigger))
			refuse_drop(rollup, psprintf("trigger \"%s\"", trigger->name));
		if (!is_trigger_of(rollup, trigger->name))
			continue;
		if (OidIsValid(table_in_source(rollup, trigger)))
			refuse_drop(rollup, psprintf("trigger \"%s\"", trigger->name));
		if (strcmp(trigger->name, insert) == 0 && !OidIsValid(table_of(trigger)))
			dr_objects_warn_of_lost_rows(rollup, psprintf("%s.%s", trigger->schema, trigger->table),
									   "dropped");
	}
}

/* --------------------------------------------------------------- relations */

static void
inspect(const DrRollup *rollup, const Dropped *dropped)
{
	List	   *gone = dropped->relations;

	if (!list_member_oid(gone, rollup->source) && !list_member_oid(gone, rollup->live))
	{
		if (list_member_oid(dropped->named, rollup->events) ||
			list_member_oid(dropped->named, rollup->definition))
			refuse_drop(rollup, "the view");
		if (!list_member_oid(gone, rollup->events) &&
			!list_member_oid(gone, rollup->definition))
		{
			if (list_member_oid(gone, rollup->current_view))
				refuse_drop(rollup, "the view");
			if (list_member_oid(gone, rollup->marks))
				refuse_drop(rollup, "the table of marks");
			if (list_member_oid(gone, rollup->shadow))
				refuse_drop(rollup, "the shadow");
			inspect_triggers(rollup, dropped);
			return;
		}
	}
	dr_remove(rollup, false, DROP_CASCADE);
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_dropped);

/* Event trigger: sql_drop. */
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
