/*
 * ddl.c
 *		What DDL of others, other than DROP, does to a rollup.
 *
 *	TRUNCATE of the source or a leaf	live does not count until the next
 *										refresh or pass has filled it
 *	ATTACH PARTITION					its keys are marked
 *	a new leaf, however it came			its TRUNCATE is watched too
 *	DETACH PARTITION					a WARNING: live keeps what is gone
 *	OWNER of the source					the rollup follows
 *	OWNER of live or of our objects		refused: they are the source's owner's
 *	RENAME of a column of live			the definition follows
 *	what rollup_create would refuse		refused
 *	our tables unlogged, or hidden		refused
 *	a deferrable constraint of live or
 *	the marks, a rule, either below
 *	another table, a BEFORE ROW trigger
 *	on the marks						refused
 */
#include "ddl.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "commands/event_trigger.h"
#include "commands/tablecmds.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "adopt.h"
#include "catalog.h"
#include "catalog_write.h"
#include "create.h"
#include "debug.h"
#include "definition.h"
#include "guard.h"
#include "identity.h"
#include "intact.h"
#include "late.h"
#include "locks.h"
#include "objects.h"
#include "owner.h"
#include "source.h"

/* The rollups whose source is the relation, or a partitioned table above. */
static List *
rollups_above(Oid relation)
{
	List	   *sources = list_make1_oid(relation);
	List	   *all = dr_catalog_all();
	List	   *found = NIL;
	ListCell   *cell;

	if (all == NIL)
		return NIL;
	if (get_rel_relispartition(relation))
		sources = list_concat(sources, get_partition_ancestors(relation));
	foreach(cell, all)
		if (list_member_oid(sources, ((DrRollup *) lfirst(cell))->source))
			found = lappend(found, lfirst(cell));
	return found;
}

/*
 * The relations that the command has made or changed, or whose trigger or rule
 * it has made, by the server's own list:
 * the names in its text may have come to mean something else meanwhile.
 */
static List *
list_changed(void)
{
	List	   *changed = NIL;
	MemoryContext context = CurrentMemoryContext;
	DrIdentity	before;

	dr_identity_enter_extension_sql(&before);

	/* not read-only: by a snapshot that sees what the command has made */
	if (SPI_execute("SELECT DISTINCT c.oid FROM pg_catalog.pg_event_trigger_ddl_commands() d"
					" LEFT JOIN pg_catalog.pg_trigger t ON t.oid = d.objid"
					" AND d.classid = 'pg_catalog.pg_trigger'::pg_catalog.regclass"
					" LEFT JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid"
					" AND d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass"
					" JOIN pg_catalog.pg_class c ON c.oid = coalesce(t.tgrelid, r.ev_class, CASE"
					" WHEN d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass THEN d.objid END)"
					" WHERE c.relkind IN ('r', 'p', 'f', 'v')", false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list changed objects");
	MemoryContextSwitchTo(context);
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		bool		isnull;

		changed = lappend_oid(changed,
							  DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[row],
															 SPI_tuptable->tupdesc, 1, &isnull)));
	}
	dr_identity_leave_sql(&before);
	return changed;
}

/* --------------------------------------------------------------- partitions */

static bool
is_below(Oid partition, Oid parent)
{
	return get_rel_relispartition(partition) &&
		list_member_oid(get_partition_ancestors(partition), parent);
}

static bool
is_watched(const DrRollup *rollup, Oid leaf)
{
	return OidIsValid(get_trigger_oid(leaf, dr_objects_trigger_name(rollup->id, "truncate"),
									  true));
}

/*
 * The rows of an attached partition arrive all at once, and no row trigger
 * fires for them: mark their keys.  The command holds a lock on the source that
 * a refresh waits for.
 */
static void
mark_attached(const DrRollup *rollup, Oid partition)
{
	dr_late_mark_attached(rollup, partition);
	dr_create_truncate_triggers(rollup, partition);
}

/*
 * What was attached is the relation of that name, if it is below the parent
 * now, and in any case each leaf that we do not watch yet.
 */
static void
partition_attached(const DrRollup *rollup, Oid parent, Oid named)
{
	List	   *relations;
	ListCell   *cell;

	if (OidIsValid(named) && is_below(named, parent))
		mark_attached(rollup, named);
	relations = find_all_inheritors(parent, NoLock, NULL);
	foreach(cell, relations)
		if (get_rel_relkind(lfirst_oid(cell)) == RELKIND_RELATION &&
			!is_watched(rollup, lfirst_oid(cell)))
			mark_attached(rollup, lfirst_oid(cell));
}

/* A detached partition is watched no more. */
static void
partition_detached(const DrRollup *rollup, Oid named)
{
	List	   *relations;
	ListCell   *cell;

	if (!OidIsValid(named) || is_below(named, rollup->source))
		return;
	relations = find_all_inheritors(named, AccessExclusiveLock, NULL);
	foreach(cell, relations)
	{
		ObjectAddress trigger;
		Oid			oid = get_trigger_oid(lfirst_oid(cell),
										  dr_objects_trigger_name(rollup->id, "truncate"),
										  true);

		if (!OidIsValid(oid))
			continue;
		ObjectAddressSet(trigger, TriggerRelationId, oid);
		performDeletion(&trigger, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	}
	dr_objects_warn_of_lost_rows(rollup, dr_catalog_name(named), "detached");
}

/* -------------------------------------------------------------- ALTER TABLE */

static void
partition_command(const DrRollup *rollup, Oid parent, AlterTableCmd *command)
{
	Oid			named;

	if (command->subtype != AT_AttachPartition &&
		command->subtype != AT_DetachPartition &&
		command->subtype != AT_DetachPartitionFinalize)
		return;
	named = RangeVarGetRelid(((PartitionCmd *) command->def)->name, NoLock, true);
	if (command->subtype == AT_AttachPartition)
		partition_attached(rollup, parent, named);
	else
		partition_detached(rollup, named);
}

static bool
has_command(AlterTableStmt *stmt, AlterTableType subtype)
{
	ListCell   *cell;

	foreach(cell, stmt->cmds)
		if (lfirst_node(AlterTableCmd, cell)->subtype == subtype)
			return true;
	return false;
}

static void
relation_altered(Oid relation, AlterTableStmt *stmt)
{
	List	   *rollups = rollups_above(relation);
	ListCell   *cell;
	ListCell   *command;

	foreach(cell, rollups)
	{
		DrRollup   *rollup = lfirst(cell);

		dr_source_check_again(rollup->source);
		foreach(command, stmt->cmds)
			partition_command(rollup, relation, lfirst_node(AlterTableCmd, command));
		if (relation != rollup->source)
			continue;
		dr_owner_follow(rollup);
		if (has_command(stmt, AT_EnableRowSecurity))
			dr_source_warn_of_policies(rollup->source, rollup->live);
	}
	rollups = dr_catalog_all();
	foreach(cell, rollups)
	{
		dr_intact_check_visible(lfirst(cell), relation);
		if (has_command(stmt, AT_ChangeOwner))
			dr_owner_check(lfirst(cell), relation);
	}
}

static void
rename_column(Oid relation, const char *from, const char *to)
{
	if (SPI_execute(dr_objects_rename_column(relation, from, to), false, 0) < 0)
		elog(ERROR, "could not rename column \"%s\"", from);
}

/* A column of live was renamed: its name stands in the definition too, and in
 * the shadow. */
static void
column_renamed(const DrRollup *rollup, const char *from, const char *to)
{
	DrIdentity	before;

	if (get_attnum(rollup->definition, from) == InvalidAttrNumber ||
		get_attnum(rollup->live, from) != InvalidAttrNumber ||
		get_attnum(rollup->live, to) == InvalidAttrNumber)
		return;

	dr_locks_exclude_refresh(rollup->definition, dr_catalog_name(rollup->live));

	/* as the owner: by its name, another relation might be found */
	dr_identity_enter_sql(rollup->owner, &before);
	rename_column(rollup->definition, from, to);
	if (OidIsValid(rollup->shadow))
		rename_column(rollup->shadow, from, to);
	dr_identity_leave_sql(&before);
}

/* The rollups' tables that a command on that relation may have changed: itself,
 * its parents, its partitions, those that its foreign keys refer to. */
static List *
tables_touched(Oid relation)
{
	List	   *tables = list_make1_oid(relation);
	Relation	catalog;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (get_rel_relkind(relation) == RELKIND_PARTITIONED_TABLE)
		tables = list_concat(tables, find_inheritance_children(relation, NoLock));

	catalog = table_open(InheritsRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_inherits_inhrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relation));
	scan = systable_beginscan(catalog, InheritsRelidSeqnoIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		tables = lappend_oid(tables, ((Form_pg_inherits) GETSTRUCT(tuple))->inhparent);
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);

	catalog = table_open(ConstraintRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_constraint_conrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relation));
	scan = systable_beginscan(catalog, ConstraintRelidTypidNameIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		if (((Form_pg_constraint) GETSTRUCT(tuple))->contype == CONSTRAINT_FOREIGN)
			tables = lappend_oid(tables, ((Form_pg_constraint) GETSTRUCT(tuple))->confrelid);
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return tables;
}

/*
 * What the command may have done to live or a shadow.  Only those that it has
 * to do with are looked at: nobody else's DDL locks them, or fails because of
 * them.
 */
static void
check_tables(Oid relation)
{
	List	   *tables = tables_touched(relation);
	List	   *rollups = dr_catalog_all();
	ListCell   *cell;

	foreach(cell, rollups)
	{
		DrRollup   *rollup = lfirst(cell);

		if (list_member_oid(tables, rollup->live))
			dr_intact_check_table(rollup->live, true);
		if (rollup->live == relation)
			dr_adopt_check_extra_columns(rollup);
		if (OidIsValid(rollup->shadow) && list_member_oid(tables, rollup->shadow))
			dr_intact_check_table(rollup->shadow, true);
		if (list_member_oid(tables, rollup->marks))
			dr_intact_check_table(rollup->marks, false);
	}
}

static void
warn_of_trigger(CreateTrigStmt *stmt)
{
	Oid			table = RangeVarGetRelid(stmt->relation, NoLock, true);

	if (OidIsValid(table) && stmt->row && stmt->timing == TRIGGER_TYPE_BEFORE &&
		dr_catalog_find(table, NULL) != NULL)
		dr_adopt_warn_of_triggers(table);
}

/* A new partition is watched.  (Not by every command on one: what a dump brings
 * back are the triggers of one rollup before those of another.) */
static void
relation_made(Oid relation)
{
	List	   *rollups;
	ListCell   *cell;

	if (!get_rel_relispartition(relation))
		return;
	rollups = rollups_above(relation);
	foreach(cell, rollups)
	{
		dr_source_check_again(((DrRollup *) lfirst(cell))->source);
		dr_create_truncate_triggers(lfirst(cell), relation);
	}
}

static void
changed(Node *parsetree)
{
	List	   *relations = list_changed();
	ListCell   *cell;

	if (IsA(parsetree, CreateTrigStmt))
		warn_of_trigger((CreateTrigStmt *) parsetree);

	foreach(cell, relations)
	{
		check_tables(lfirst_oid(cell));
		if (IsA(parsetree, AlterTableStmt))
			relation_altered(lfirst_oid(cell), (AlterTableStmt *) parsetree);
		else if (!IsA(parsetree, CreateTrigStmt) && !IsA(parsetree, RuleStmt))
			relation_made(lfirst_oid(cell));
	}
}

/* ----------------------------------------------------------------- TRUNCATE */

/*
 * Rows went without a trace: what was computed from them counts no more.  Who
 * folds into live at the moment need not be waited for: live does not count,
 * and is locked by whoever fills it.
 */
static void
truncated(const DrRollup *rollup, Oid table)
{
	/* (the server refuses that where the source itself is, but of a leaf it does not
	 * know that it is in use) */
	dr_guard_check_not_open(rollup, "truncate the source of");
	if (rollup->has_watermark || rollup->has_shadow_watermark || dr_catalog_folds(rollup))
		dr_catalog_forget_content(rollup, psprintf("TRUNCATE of %s", dr_catalog_name(table)));
	DR_WAITPOINT("truncated");
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_truncated);
PG_FUNCTION_INFO_V1(dailyrollup_ddl_ended);

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
	dr_catalog_check_installed();
	rollups = rollups_above(RelationGetRelid(trigger->tg_relation));
	foreach(cell, rollups)
	{
		DrRollup   *rollup = lfirst(cell);

		if (rollup->id == id)
			truncated(rollup, RelationGetRelid(trigger->tg_relation));
	}
	PG_RETURN_POINTER(NULL);
}

/* Everything is found by the schema's name: the triggers of the sources would find
 * no rollup. */
static void
check_schema(Node *parsetree)
{
	RenameStmt *stmt = (RenameStmt *) parsetree;

	if (IsA(parsetree, RenameStmt) && stmt->renameType == OBJECT_SCHEMA &&
		strcmp(stmt->subname, DR_SCHEMA) == 0 && !dr_catalog_is_installed())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("schema \"%s\" cannot be renamed", DR_SCHEMA),
				 errdetail("It is that of the extension's own tables.")));
}

/* Event trigger: ddl_command_end. */
Datum
dailyrollup_ddl_ended(PG_FUNCTION_ARGS)
{
	EventTriggerData *event = (EventTriggerData *) fcinfo->context;
	List	   *rollups;
	ListCell   *cell;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("this function serves an event trigger alone")));
	check_schema(event->parsetree);
	rollups = dr_catalog_all();
	if (rollups == NIL)
		PG_RETURN_NULL();
	if (!IsA(event->parsetree, RenameStmt))
		changed(event->parsetree);
	else
	{
		RenameStmt *stmt = (RenameStmt *) event->parsetree;

		/* also where it was the column of a parent of live's, or the attribute
		 * of its type */
		if (stmt->renameType != OBJECT_COLUMN && stmt->renameType != OBJECT_ATTRIBUTE)
			PG_RETURN_NULL();
		foreach(cell, rollups)
			column_renamed(lfirst(cell), stmt->subname, stmt->newname);
	}
	PG_RETURN_NULL();
}
