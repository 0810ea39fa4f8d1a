/*
 * adopt.c
 *		An existing table as live.
 *
 * It must have the definition's columns, in any order.  Columns of its own may
 * stand beside them, if a row can be added without a value for them.
 */
#include "adopt.h"

#include "access/nbtree.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "nodes/bitmapset.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/syscache.h"

#include "identity.h"
#include "intact.h"
#include "objects.h"
#include "phrase.h"
#include "source.h"

/* ------------------------------------------------------------------ columns */

static const DrColumn *
find_column(const DrDefinition *def, const char *name)
{
	for (int i = 0; i < def->ncolumns; i++)
		if (strcmp(def->columns[i].name, name) == 0)
			return &def->columns[i];
	return NULL;
}

/* A column of the table that the definition has too. */
static void
check_used_column(const char *live, Form_pg_attribute attribute, const DrColumn *column)
{
	const char *name = NameStr(attribute->attname);

	if (attribute->atttypid != column->type || attribute->atttypmod != column->typmod)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of table \"%s\" is of type %s, the query gives %s",
						name, live,
						format_type_with_typemod(attribute->atttypid, attribute->atttypmod),
						format_type_with_typemod(column->type, column->typmod)),
				 column->is_key ?
				 errhint("Cast the query's column, or change the table's.") :
				 errhint("Run ALTER TABLE %s ALTER COLUMN %s TYPE %s.", quote_identifier(live),
						 quote_identifier(name),
						 format_type_with_typemod(column->type, column->typmod))));
	if (attribute->attcollation != column->collation)
		ereport(ERROR,
				(errcode(ERRCODE_COLLATION_MISMATCH),
				 errmsg("column \"%s\" of table \"%s\" has collation \"%s\", the query gives \"%s\"",
						name, live,
						OidIsValid(attribute->attcollation) ?
						get_collation_name(attribute->attcollation) : "",
						OidIsValid(column->collation) ? get_collation_name(column->collation) : ""),
				 errhint("Write COLLATE in the query, or change the table's column.")));
	if (attribute->attgenerated != '\0' || attribute->attidentity == ATTRIBUTE_IDENTITY_ALWAYS)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of table \"%s\" is generated, it cannot take the query's value",
						name, live)));
}

/* Is it a domain that takes no NULL? */
static bool
forbids_null(Oid type)
{
	while (get_typtype(type) == TYPTYPE_DOMAIN)
	{
		HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
		Form_pg_type form;
		bool		not_null;

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "type %u does not exist", type);
		form = (Form_pg_type) GETSTRUCT(tuple);
		not_null = form->typnotnull;
		type = form->typbasetype;
		ReleaseSysCache(tuple);
		if (not_null)
			return true;
	}
	return false;
}

/* Any other column of the table. */
static void
check_extra_column(Relation rel, Form_pg_attribute attribute)
{
	if ((attribute->attnotnull || forbids_null(attribute->atttypid)) &&
		attribute->attidentity == '\0' &&
		build_column_default(rel, attribute->attnum) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of table \"%s\" is not in the query, allows no null and has no default",
						NameStr(attribute->attname), RelationGetRelationName(rel)),
				 errhint("Give it a default, or drop its NOT NULL.")));
}

static void
check_columns(Relation rel, const DrDefinition *def)
{
	TupleDesc	desc = RelationGetDescr(rel);
	const char *live = RelationGetRelationName(rel);
	int			found = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		const DrColumn *column;

		if (attribute->attisdropped)
			continue;
		column = find_column(def, NameStr(attribute->attname));
		if (column == NULL)
			check_extra_column(rel, attribute);
		else
		{
			check_used_column(live, attribute, column);
			found++;
		}
	}
	for (int i = 0; found < def->ncolumns && i < def->ncolumns; i++)
		if (get_attnum(RelationGetRelid(rel), def->columns[i].name) == InvalidAttrNumber)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("table \"%s\" has no column \"%s\"", live, def->columns[i].name),
					 errdetail("The query gives one of type %s.",
							   format_type_with_typemod(def->columns[i].type,
														def->columns[i].typmod)),
					 errhint("Add it, or take it out of the query.")));
}

/* ------------------------------------------------------------------ the table */

static void
reject_table(const char *live, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("\"%s\" cannot be a rollup: it %s", live, what)));
}

static bool
is_early(const Trigger *trigger)
{
	return TRIGGER_FOR_ROW(trigger->tgtype) && TRIGGER_FOR_BEFORE(trigger->tgtype);
}

/* An error where a column of live's own has come to need a value. */
void
dr_adopt_check_extra_columns(const DrRollup *rollup)
{
	Relation	rel = try_relation_open(rollup->live, AccessShareLock);

	if (rel == NULL)
		return;
	for (int i = 0; i < RelationGetDescr(rel)->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(rel), i);

		if (!attribute->attisdropped &&
			get_attnum(rollup->definition, NameStr(attribute->attname)) == InvalidAttrNumber)
			check_extra_column(rel, attribute);
	}
	relation_close(rel, AccessShareLock);
}

/* A trigger may change a row before it is written, or leave it out. */
void
dr_adopt_warn_of_triggers(Oid live)
{
	Relation	rel = table_open(live, AccessShareLock);
	TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
		if (is_early(&triggers->triggers[i]))
			ereport(WARNING,
					(errmsg("trigger \"%s\" of rollup \"%s\" fires before a row is written",
							triggers->triggers[i].tgname, RelationGetRelationName(rel)),
					 errdetail("Where it leaves a row out, or changes a column of the query, the rollup becomes wrong."),
					 errhint("rollup_verify tells.")));
	table_close(rel, AccessShareLock);
}

/* An error where the table, which the caller has locked, cannot be live. */
void
dr_adopt_check(Oid live, const DrDefinition *def)
{
	Relation	rel = relation_open(live, NoLock);
	const char *name = RelationGetRelationName(rel);

	if (rel->rd_rel->relkind != RELKIND_RELATION)
		reject_table(name, rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ?
					 "is partitioned" : "is not a table");
	if (rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		reject_table(name, rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP ?
					 "is temporary" : "is unlogged and would be empty after a crash");
	if (live == def->source)
		reject_table(name, "is the source");
	if (dr_source_hides_rows(live))
		reject_table(name, "forces row-level security on its owner");
	if (rel->rd_rel->relowner != dr_source_owner(def->source))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" and its source belong to different roles", name),
				 errhint("Run ALTER TABLE ... OWNER TO ... for one of them.")));
	dr_intact_check_table(live, true);
	check_columns(rel, def);
	relation_close(rel, NoLock);
}

/* ------------------------------------------------------------- unique index */

/* Does this index keep live at one row a key, NULLs equal? */
static bool
index_is_unique_by_key(Relation rel, Relation index, const DrDefinition *def)
{
	Form_pg_index form = index->rd_index;
	Bitmapset  *seen = NULL;

	if (!form->indisunique || !form->indimmediate || !form->indisvalid ||
		!form->indisready || index->rd_rel->relam != BTREE_AM_OID ||
		form->indnkeyatts != def->nkeys ||
		!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
		return false;
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		AttrNumber	attno = form->indkey.values[i];
		Form_pg_attribute attribute;
		const DrColumn *column;

		if (attno <= 0 || bms_is_member(attno, seen))
			return false;
		seen = bms_add_member(seen, attno);
		attribute = TupleDescAttr(RelationGetDescr(rel), attno - 1);
		column = find_column(def, NameStr(attribute->attname));
		if (column == NULL || !column->is_key ||
			(!attribute->attnotnull && !form->indnullsnotdistinct) ||
			index->rd_opfamily[i] !=
			get_opclass_family(GetDefaultOpClass(attribute->atttypid, BTREE_AM_OID)) ||
			index->rd_indcollation[i] != attribute->attcollation)
			return false;
	}
	return true;
}

/* Can live hold one row a key at most?  The caller has locked it. */
bool
dr_adopt_has_unique_index(Oid live, const DrDefinition *def)
{
	Relation	rel = table_open(live, NoLock);
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *cell;
	bool		found = false;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		found = found || index_is_unique_by_key(rel, index, def);
		index_close(index, AccessShareLock);
	}
	table_close(rel, NoLock);
	return found;
}

/*
 * Create the unique index that live needs, where it has none; true where it had
 * none.  The caller works as the owner, has connected to SPI and locked live.
 */
bool
dr_adopt_ensure_unique_index(const DrRollup *rollup, const DrDefinition *def)
{
	if (dr_adopt_has_unique_index(rollup->live, def))
		return false;
	if (SPI_execute(psprintf("CREATE UNIQUE INDEX ON %s (%s) NULLS NOT DISTINCT",
							 dr_objects_relation(rollup->live),
							 dr_phrase_columns(def, NULL, true, false)), false, 0) < 0)
		elog(ERROR, "could not create an index of \"%s\"", dr_catalog_name(rollup->live));
	return true;
}
