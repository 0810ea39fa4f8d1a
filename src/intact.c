/*
 * intact.c
 *		What must hold of live, its shadow and the marks.
 *
 * What is written to them must be there, as it was written, for whoever reads
 * them: nothing that waits for the end of the transaction, no rule, no other
 * table above or below, no policy, nothing that a crash empties.  DDL that
 * changes that is refused (ddl.c).  What came while event triggers were off is
 * met by the next refresh or promote, which refuses, and by rollup_check.
 *
 * Reads the catalogs alone, and locks nothing.
 */
#include "intact.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_rewrite.h"
#include "catalog/pg_trigger.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "attempt.h"
#include "objects.h"
#include "source.h"

/* A table, and whether it is as it is by now, or a command is about to make it so. */
typedef struct Table
{
	const DrRollup *rollup;		/* NULL: none yet, or one that a command changes */
	Oid			oid;
	bool		is_live;
} Table;

static void
reject(const Table *table, const char *what)
{
	if (table->rollup != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" of rollup \"%s\" cannot serve it: it %s",
						dr_catalog_name(table->oid), dr_catalog_name(table->rollup->live), what),
				 errdetail("That came while the extension's event triggers were off; what was written meanwhile may be wrong."),
				 errhint("Undo it, then have the rollup built anew: SELECT rollup_reseed(%s).",
						 quote_literal_cstr(dr_objects_relation(table->rollup->live)))));
	if (table->is_live)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" cannot be a rollup: it %s", get_rel_name(table->oid), what)));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("table \"%s\" of a rollup cannot serve it any more: it %s",
					dr_catalog_name(table->oid), what),
			 errhint("Leave the table to the rollup.")));
}

static bool
has_rules(Oid table)
{
	Relation	pg_rewrite = table_open(RewriteRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	ScanKeyInit(&key, Anum_pg_rewrite_ev_class, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(table));
	scan = systable_beginscan(pg_rewrite, RewriteRelRulenameIndexId, true, NULL, 1, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(pg_rewrite, AccessShareLock);
	return found;
}

/*
 * Constraints and triggers that wait for the end of the transaction: the server
 * fires none that statements of an owner's in another's transaction have left
 * behind, and ON CONFLICT takes no such index.  Of the marks, what may leave a row
 * out: live's content is counted, of a mark that is not there nobody would know.
 */
static void
check_trigger(const Table *table, Form_pg_trigger trigger)
{
	char	   *constraint;
	char	   *name;

	if (!table->is_live && TRIGGER_FOR_ROW(trigger->tgtype) &&
		TRIGGER_FOR_BEFORE(trigger->tgtype))
		reject(table, "has a trigger that fires before a row is written");
	if (!trigger->tgdeferrable)
		return;
	constraint = get_constraint_name(trigger->tgconstraint);
	name = constraint ? constraint : NameStr(trigger->tgname);
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 table->is_live ?
			 errmsg("constraint \"%s\" of rollup \"%s\" is deferrable", name, get_rel_name(table->oid)) :
			 errmsg("constraint \"%s\" of table \"%s\" is deferrable", name, dr_catalog_name(table->oid)),
			 errdetail("A fold at the end of a transaction comes after the deferred checks."),
			 errhint("Make it NOT DEFERRABLE.")));
}

static void
check_triggers(const Table *table)
{
	Relation	pg_trigger = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_trigger_tgrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(table->oid));
	scan = systable_beginscan(pg_trigger, TriggerRelidNameIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		check_trigger(table, (Form_pg_trigger) GETSTRUCT(tuple));
	systable_endscan(scan);
	table_close(pg_trigger, AccessShareLock);
}

/* (has_subclass alone may speak of a child that is gone) */
static bool
takes_part_in_inheritance(Oid table)
{
	return get_rel_relispartition(table) || has_superclass(table) ||
		(has_subclass(table) && find_inheritance_children(table, NoLock) != NIL);
}

static void
check(const Table *table)
{
	if (get_rel_name(table->oid) == NULL)
		return;
	if (has_rules(table->oid))
		reject(table, "has rules");
	/* where live or its shadow does already, all SQL leaves the other tables alone */
	if ((table->rollup == NULL || !table->is_live) && takes_part_in_inheritance(table->oid))
		reject(table, "takes part in inheritance");
	check_triggers(table);
}

/* Of a table that is to be live, or which a command has changed; of a shadow as
 * of live. */
void
dr_intact_check_table(Oid table, bool is_live)
{
	Table		of_command = {.oid = table, .is_live = is_live};

	check(&of_command);
}

/* They must outlast a crash, and hide nothing from their owner. */
void
dr_intact_check_visible(const DrRollup *rollup, Oid relation)
{
	if (relation != rollup->live && relation != rollup->marks &&
		relation != rollup->shadow)
		return;
	if (get_rel_persistence(relation) == RELPERSISTENCE_UNLOGGED)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" of a rollup cannot be unlogged",
						dr_catalog_name(relation)),
				 errdetail("After a crash it is empty, and would still be taken for complete.")));
	if (dr_source_hides_rows(relation))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" of a rollup cannot force row-level security on its owner",
						dr_catalog_name(relation)),
				 errdetail("The view \"%s\" would leave out what the policies hide.",
						   dr_catalog_name(rollup->current_view))));
}

/* An error where a table is not as it must be, however that came. */
void
dr_intact_check(const DrRollup *rollup)
{
	Oid			tables[] = {rollup->live, rollup->marks, rollup->shadow};

	for (int i = 0; i < lengthof(tables); i++)
	{
		Table		table = {
			.rollup = rollup, .oid = tables[i], .is_live = tables[i] != rollup->marks
		};

		if (!OidIsValid(tables[i]) || get_rel_name(tables[i]) == NULL)
			continue;
		check(&table);
		dr_intact_check_visible(rollup, tables[i]);
	}
}

static void
attempt_check(void *arg)
{
	dr_intact_check(arg);
}

/* The same as a WARNING. */
void
dr_intact_warn(const DrRollup *rollup)
{
	ErrorData  *error = dr_attempt(attempt_check, unconstify(DrRollup *, rollup));

	if (error == NULL)
		return;
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("%s", error->message),
			 error->detail ? errdetail_internal("%s", error->detail) : 0,
			 error->hint ? errhint("%s", error->hint) : 0));
}
