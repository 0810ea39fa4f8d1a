/*
 * source.c
 *		What can be the source of a rollup, and which of its columns are used.
 *
 * A rollup stays exact because every change of its source fires a trigger of
 * the rollup's.  So a source is a table whose every row is written through
 * such triggers: no view, no foreign data, nothing that vanishes by itself.
 *
 * All is read from the catalogs without a lock on the source: a refresh reads
 * its definition while writers that it waits for hold theirs.
 */
#include "postgres.h"

#include "source.h"

#include "access/htup_details.h"
#include "access/nbtree.h"
#include "access/sysattr.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "storage/lockdefs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "compat.h"

/* The source's name as a user writes it; its OID where others have dropped it. */
char *
dr_source_name(Oid source)
{
	char	   *name = get_rel_name(source);

	return name == NULL ? psprintf("%u", source) :
		quote_qualified_identifier(get_namespace_name(get_rel_namespace(source)), name);
}

/* The owner of a source, or of any relation; InvalidOid where there is none. */
Oid
dr_source_owner(Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

static void
refuse_kind(Oid source, const char *what, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("the source of a rollup cannot be %s", what),
			 errdetail("\"%s\" is named in FROM.", dr_source_name(source)),
			 hint ? errhint("%s", hint) : 0));
}

static void
check_relkind(Oid source)
{
	switch (get_rel_relkind(source))
	{
		case RELKIND_RELATION:
		case RELKIND_PARTITIONED_TABLE:
			break;
		case RELKIND_VIEW:
			refuse_kind(source, "a view",
						"Name the table behind it: a view has no rows that a trigger could follow.");
			break;
		case RELKIND_MATVIEW:
			refuse_kind(source, "a materialized view",
						"Name the table behind it: a refresh of a materialized view fires no trigger.");
			break;
		case RELKIND_FOREIGN_TABLE:
			refuse_kind(source, "a foreign table",
						"Create the rollup where the table is: what others write to it fires no trigger here.");
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("the source of a rollup must be a table"),
					 errdetail("\"%s\" is named in FROM.", dr_source_name(source))));
	}
}

/*
 * To plan a query over a partition is to evaluate what its owner has put into its
 * constraints and indexes.  A pass, and whoever writes where writes are folded, does
 * so as the rollup's owner: that should make nobody a superuser.
 */
static void
check_partition_owner(Oid partition)
{
	Oid			owner = dr_source_owner(partition);

	if (OidIsValid(owner) && !superuser_arg(owner))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the source of a superuser's rollup cannot have partitions of others"),
				 errdetail("\"%s\" belongs to role \"%s\", whose functions in its constraints and indexes would run as the superuser.",
						   dr_source_name(partition), GetUserNameFromId(owner, false)),
				 errhint("Give the partitions to the superuser first, or the source to a role that is none.")));
}

/* A partition may be foreign, unlogged or another's where its parent is not. */
static void
check_partitions(Oid source)
{
	bool		is_superuser = superuser_arg(dr_source_owner(source));
	ListCell   *cell;

	foreach(cell, find_all_inheritors(source, NoLock, NULL))
	{
		Oid			child = lfirst_oid(cell);

		if (get_rel_relkind(child) == RELKIND_FOREIGN_TABLE)
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("the source of a rollup cannot have a foreign partition"),
					 errdetail("\"%s\" is one.", dr_source_name(child)),
					 errhint("Create a rollup where that partition's table is, and unite the two in a view.")));
		if (get_rel_persistence(child) == RELPERSISTENCE_UNLOGGED)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("the source of a rollup cannot have an unlogged partition"),
					 errdetail("After a crash \"%s\" is empty, and the rollup would still count its rows.",
							   dr_source_name(child)),
					 errhint("ALTER TABLE %s SET LOGGED.", dr_source_name(child))));
		if (is_superuser)
			check_partition_owner(child);
	}
}

/* Do policies hide rows of the relation, from others or from its owner too? */
static void
read_row_security(Oid relation, bool *from_others, bool *from_owner)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Form_pg_class form;

	*from_others = *from_owner = false;
	if (!HeapTupleIsValid(tuple))
		return;					/* dropped meanwhile */
	form = (Form_pg_class) GETSTRUCT(tuple);
	*from_others = form->relrowsecurity;
	*from_owner = form->relrowsecurity && form->relforcerowsecurity;
	ReleaseSysCache(tuple);
}

/* Do policies hide rows of the relation from its owner? */
bool
dr_source_hides_rows(Oid relation)
{
	bool		from_others;
	bool		from_owner;

	read_row_security(relation, &from_others, &from_owner);
	return from_owner;
}

/* A rollup is made as the owner, who sees all rows; its readers may be others. */
void
dr_source_warn_of_policies(Oid source, Oid live)
{
	bool		from_others;
	bool		from_owner;

	read_row_security(source, &from_others, &from_owner);
	if (from_others)
		ereport(WARNING,
				(errmsg("rollup \"%s\" is made of all rows of \"%s\", also of those that row-level security hides",
						dr_source_name(live), dr_source_name(source)),
				 errdetail("Policies of the source apply to its readers, not to those of the rollup and its view."),
				 errhint("Let nobody read these who may not see every row.")));
}

/* The owner, as whom every refresh runs, must see all rows. */
static void
check_row_security(Oid source)
{
	if (dr_source_hides_rows(source))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the source of a rollup cannot force row-level security on its owner"),
				 errdetail("A rollup is computed as the owner of \"%s\" and must see every row.",
						   dr_source_name(source)),
				 errhint("ALTER TABLE %s NO FORCE ROW LEVEL SECURITY.", dr_source_name(source))));
}

/* An unlogged table is empty after a crash. */
static void
check_persistence(Oid source)
{
	if (get_rel_persistence(source) == RELPERSISTENCE_UNLOGGED)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the source of a rollup cannot be an unlogged table"),
				 errdetail("After a crash \"%s\" is empty, and the rollup would still count its rows.",
						   dr_source_name(source)),
				 errhint("ALTER TABLE %s SET LOGGED.", dr_source_name(source))));
}

/*
 * Raises an error where DDL has made of a rollup's source what none may be.
 * (Children that a plain source got later do not count: all SQL says ONLY.)
 */
void
dr_source_check_again(Oid source)
{
	check_persistence(source);
	if (get_rel_relkind(source) == RELKIND_PARTITIONED_TABLE)
		check_partitions(source);
	check_row_security(source);
}

/* Raises an error unless source can be followed row by row. */
void
dr_source_check(Oid source)
{
	if (get_rel_namespace(source) == get_namespace_oid(DR_SCHEMA, true))
		refuse_kind(source, "a table of the extension", NULL);
	if (IsCatalogRelationOid(source))
		refuse_kind(source, "a system catalog", NULL);
	check_relkind(source);
	if (get_rel_persistence(source) == RELPERSISTENCE_TEMP)
		refuse_kind(source, "a temporary table",
					"It ends with this session, and no other session sees its rows.");
	check_persistence(source);
	if (get_rel_relkind(source) == RELKIND_PARTITIONED_TABLE)
		check_partitions(source);
	else if (find_inheritance_children(source, NoLock) != NIL)
		refuse_kind(source, "a table with inheritance children",
					"Rows of children fire no trigger of their parent: use declarative partitioning.");
	check_row_security(source);
}

/*
 * Returns the number of a column that an argument of the caller's names;
 * undefined_column where there is none, and for a system column.
 */
AttrNumber
dr_source_column(Oid source, const char *column, const char *argument)
{
	AttrNumber	attno = get_attnum(source, column);

	if (attno <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of source \"%s\" does not exist",
						column, dr_source_name(source)),
				 errdetail("It is named in %s.", argument),
				 column[0] == '"' ?
				 errhint("Give the name of a column as it is, without quotes.") : 0));
	return attno;
}

/* Fills *column; name starts as the source's own. */
void
dr_source_describe(Oid source, AttrNumber attno, DrEventColumn *column)
{
	HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(source), Int16GetDatum(attno));
	Form_pg_attribute att;
	TypeCacheEntry *type;
	char		generated;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for column %d of relation %u", attno, source);
	att = (Form_pg_attribute) GETSTRUCT(tuple);
	column->attno = attno;
	column->source_name = pstrdup(NameStr(att->attname));
	column->name = column->source_name;
	column->type = att->atttypid;
	column->typmod = att->atttypmod;
	column->collation = att->attcollation;
	column->not_null = dr_att_not_null(att);
	generated = att->attgenerated;
	ReleaseSysCache(tuple);

	/* a trigger sees no value in it */
	if (generated == ATTRIBUTE_GENERATED_VIRTUAL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a rollup cannot use the virtual generated column \"%s\"",
						column->source_name),
				 errhint("Write its expression in the query, or make it GENERATED ALWAYS AS (...) STORED.")));

	type = lookup_type_cache(column->type,
							 TYPECACHE_EQ_OPR | TYPECACHE_LT_OPR | TYPECACHE_CMP_PROC);
	column->ordered = OidIsValid(type->eq_opr) && OidIsValid(type->lt_opr) &&
		OidIsValid(type->cmp_proc);
}

/* Which kind of time the column holds; datatype_mismatch where it is none. */
DrTimeKind
dr_source_time_kind(const DrEventColumn *column, Oid source)
{
	Oid			base;

	switch (column->type)
	{
		case TIMESTAMPTZOID:
			return DR_TIME_TIMESTAMPTZ;
		case TIMESTAMPOID:
			return DR_TIME_TIMESTAMP;
		case DATEOID:
			return DR_TIME_DATE;
	}

	base = getBaseType(column->type);
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("the time column \"%s\" must be of type timestamptz, timestamp or date, not %s",
					column->source_name, format_type_be(column->type)),
			 base == column->type
			 ? errhint("Add a stored generated column of one of these types to \"%s\".",
					   dr_source_name(source))
			 : errhint("A domain over %s will not do: declare the column as the type itself.",
					   format_type_be(base))));
}

/*
 * Whether equal values of the column are the same value to every function.
 * 1.0 and 1.00 are equal, and scale() tells them apart.  B-tree indexes must
 * know this too, before they keep one image for several equal values.
 */
static bool
equal_is_same(const DrEventColumn *column)
{
	Oid			opclass = GetDefaultOpClass(column->type, BTREE_AM_OID);
	Oid			type;
	Oid			proc;

	if (!OidIsValid(opclass))
		return false;
	type = get_opclass_input_type(opclass);
	proc = get_opfamily_proc(get_opclass_family(opclass), type, type, BTEQUALIMAGE_PROC);
	return OidIsValid(proc) &&
		DatumGetBool(OidFunctionCall1Coll(proc, column->collation, ObjectIdGetDatum(type)));
}

/* ---- events ---- */

/* Returns the index in events of a source column that the rollup uses. */
int
dr_source_event(const DrDefinition *def, AttrNumber attno)
{
	for (int i = 0; i < def->nevents; i++)
	{
		if (def->events[i].attno == attno)
			return i;
	}
	elog(ERROR, "column %d is not used by the rollup", attno);
}

/* Numbers of the columns that an array argument names, each once. */
List *
dr_source_columns(Oid source, List *names, const char *argument)
{
	List	   *result = NIL;
	ListCell   *cell;

	foreach(cell, names)
	{
		AttrNumber	attno = dr_source_column(source, lfirst(cell), argument);

		if (list_member_int(result, attno))
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_COLUMN),
					 errmsg("column \"%s\" is named twice in %s",
							(char *) lfirst(cell), argument)));
		result = lappend_int(result, attno);
	}
	return result;
}

/*
 * Lists the source columns that the rollup uses: the time column, then all
 * others by number.  Used is as pull_varattnos returns it.
 */
void
dr_source_describe_events(DrDefinition *def, AttrNumber time, Bitmapset *used, List *dedup)
{
	int			member = -1;
	ListCell   *cell;

	foreach(cell, dedup)
		used = bms_add_member(used, lfirst_int(cell) - FirstLowInvalidHeapAttributeNumber);
	used = bms_del_member(used, time - FirstLowInvalidHeapAttributeNumber);

	def->events = palloc0_array(DrEventColumn, bms_num_members(used) + 1);
	dr_source_describe(def->source, time, &def->events[def->nevents++]);
	def->time_kind = dr_source_time_kind(&def->events[0], def->source);
	while ((member = bms_next_member(used, member)) >= 0)
		dr_source_describe(def->source, member + FirstLowInvalidHeapAttributeNumber,
						   &def->events[def->nevents++]);
}

/* Source columns that a key uses, by number. */
static List *
columns_of_key(const DrDefinition *def, int key)
{
	Bitmapset  *attnos = NULL;
	List	   *result = NIL;
	int			member = -1;

	pull_varattnos(def->columns[def->keys[key]].expr, 1, &attnos);
	while ((member = bms_next_member(attnos, member)) >= 0)
		result = lappend_int(result, member + FirstLowInvalidHeapAttributeNumber);
	return result;
}

/* Raises an error where rows of one event could lie in two windows or keys. */
static void
check_dedup_by(const DrDefinition *def, List *dedup_by)
{
	List	   *needed = list_make1_int(def->events[0].attno);
	StringInfoData missing;
	ListCell   *cell;

	for (int i = 0; i < def->nkeys; i++)
		needed = list_concat_unique_int(needed, columns_of_key(def, i));

	initStringInfo(&missing);
	foreach(cell, list_difference_int(needed, dedup_by))
		appendStringInfo(&missing, "%s%s", missing.len ? ", " : "",
						 quote_identifier(get_attname(def->source, lfirst_int(cell), false)));
	if (missing.len > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("dedup_by must contain the time column and each column that a key uses"),
				 errdetail("Otherwise two rows of one event could belong to different days or keys."),
				 errhint("Add %s to dedup_by.", missing.data)));
}

/* Equal values of different image must not come under different keys. */
static void
check_key_expressions(const DrDefinition *def)
{
	for (int i = 0; i < def->nkeys; i++)
	{
		const DrColumn *key = &def->columns[def->keys[i]];
		ListCell   *cell;

		if (IsA(key->expr, Var))
			continue;
		foreach(cell, columns_of_key(def, i))
		{
			const DrEventColumn *event = &def->events[dr_source_event(def, lfirst_int(cell))];

			if (!equal_is_same(event))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("key \"%s\" cannot be an expression over column \"%s\" with dedup_by",
								key->name, event->source_name),
						 errdetail("Values of type %s can be equal and yet differ, and so give different keys for one event.",
								   format_type_be(event->type)),
						 errhint("Make the column itself the key.")));
		}
	}
}

static void
check_dedup_order(const DrDefinition *def, List *dedup_by, List *dedup_order)
{
	List	   *both = list_intersection_int(dedup_order, dedup_by);

	if (dedup_order != NIL && dedup_by == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("dedup_order needs dedup_by"),
				 errdetail("It decides which of the rows that are equal in dedup_by counts.")));
	if (both != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("column \"%s\" is named in dedup_by and in dedup_order",
						get_attname(def->source, linitial_int(both), false)),
				 errdetail("Rows of one event are equal in it, so it decides nothing.")));
}

/* Fills indexes with the places of columns in events; returns how many. */
static int
index_events(const DrDefinition *def, List *attnos, const char *argument, int *indexes)
{
	int			n = 0;
	ListCell   *cell;

	foreach(cell, attnos)
	{
		const DrEventColumn *event;

		indexes[n] = dr_source_event(def, lfirst_int(cell));
		event = &def->events[indexes[n++]];
		if (!event->ordered)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_FUNCTION),
					 errmsg("column \"%s\" in %s is of type %s, which has no btree order",
							event->source_name, argument, format_type_be(event->type))));
	}
	return n;
}

/*
 * Fills dedup_by, and the total order in which the first row of an event is
 * taken: the caller's columns, then every other one that can be ordered.  The
 * keys are described.
 */
void
dr_source_describe_dedup(DrDefinition *def, List *dedup_by, List *dedup_order)
{
	check_dedup_order(def, dedup_by, dedup_order);
	if (dedup_by == NIL)
		return;

	check_dedup_by(def, dedup_by);
	check_key_expressions(def);
	def->dedup_by = palloc0_array(int, def->nevents);
	def->dedup_order = palloc0_array(int, def->nevents);
	def->ndedup = index_events(def, dedup_by, "dedup_by", def->dedup_by);
	def->ndedup_order = index_events(def, dedup_order, "dedup_order", def->dedup_order);
	for (int i = 0; i < def->nevents; i++)
	{
		const DrEventColumn *event = &def->events[i];

		if (event->ordered && !list_member_int(dedup_by, event->attno) &&
			!list_member_int(dedup_order, event->attno))
			def->dedup_order[def->ndedup_order++] = i;
	}
}
