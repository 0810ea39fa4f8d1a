/*
 * request.c
 *		The arguments of rollup_create.
 */
#include "request.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/varlena.h"

#include "boundary.h"
#include "catalog.h"

static void
reject_null(const char *argument)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("argument \"%s\" must not be null", argument)));
}

static List *
names_of(ArrayType *array, const char *argument)
{
	Datum	   *values;
	bool	   *nulls;
	int			n;
	List	   *names = NIL;

	deconstruct_array(array, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR,
					  &values, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\" must not contain nulls", argument)));
		names = lappend(names, pstrdup(NameStr(*DatumGetName(values[i]))));
	}
	return names;
}

static const char *
check_mode(const char *mode)
{
	DrState		wanted;

	if (!dr_catalog_parse_mode(mode, &wanted))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized mode \"%s\"", mode),
				 errhint("Use 'off', 'shadow' or 'on'; NULL leaves it to dailyrollup.mode.")));
	return dr_catalog_state_name(wanted);
}

static void
check_name_length(const char *name)
{
	if (strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("name \"%s\" is too long", name),
				 errdetail("The view's name is the rollup's name followed by \"_current\","
						   " at most %d bytes together.", NAMEDATALEN - 1)));
}

/* A name with or without a schema, and a database maybe, as in SQL. */
static RangeVar *
parse_name(const char *name)
{
	List	   *parts;
	List	   *values = NIL;
	ListCell   *cell;

	if (!SplitIdentifierString(pstrdup(name), '.', &parts) ||
		parts == NIL || list_length(parts) > 3)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("\"%s\" is not the name of a table", name),
				 errhint("Give it as name or schema.name, quoted as in SQL.")));
	foreach(cell, parts)
		values = lappend(values, makeString(lfirst(cell)));
	return makeRangeVarFromNameList(values);
}

/* The name of the table to be, or of the one to be adopted. */
static void
check_live_name(DrRequest *request, const char *name)
{
	char	   *current;

	request->live = parse_name(name);
	if (request->live->catalogname != NULL &&
		strcmp(request->live->catalogname, get_database_name(MyDatabaseId)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cross-database references are not implemented: \"%s\"", name)));
	current = psprintf("%s_current", request->live->relname);
	check_name_length(current);

	request->schema = RangeVarGetCreationNamespace(request->live);
	if (isTempNamespace(request->schema))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a rollup cannot be a temporary table")));
	request->live->schemaname = get_namespace_name(request->schema);

	request->adopted = get_relname_relid(request->live->relname, request->schema);
	if (OidIsValid(request->adopted) &&
		dr_catalog_find(request->adopted, NULL) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("\"%s\" is a rollup already", name),
				 errhint("rollup_alter changes it, rollup_drop removes it.")));
	if (OidIsValid(get_relname_relid(current, request->schema)))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_TABLE),
				 errmsg("relation \"%s\" already exists", current),
				 errdetail("A rollup has a view of that name.")));
}

/* Unpack and check what can be checked without the query. */
void
dr_request_unpack(FunctionCallInfo fcinfo, DrRequest *request)
{
	static const char *const required[] = {"rollup", "query", "time_column"};

	for (int i = 0; i < lengthof(required); i++)
		if (PG_ARGISNULL(i))
			reject_null(required[i]);
	if (PG_ARGISNULL(5))
		reject_null("time_zone");

	if (!PG_ARGISNULL(7))
		request->mode = check_mode(text_to_cstring(PG_GETARG_TEXT_PP(7)));
	check_live_name(request, text_to_cstring(PG_GETARG_TEXT_PP(0)));
	request->query = text_to_cstring(PG_GETARG_TEXT_PP(1));
	request->time_column = NameStr(*PG_GETARG_NAME(2));
	if (!PG_ARGISNULL(3))
		request->dedup_by = names_of(PG_GETARG_ARRAYTYPE_P(3), "dedup_by");
	if (!PG_ARGISNULL(4))
		request->dedup_order = names_of(PG_GETARG_ARRAYTYPE_P(4), "dedup_order");
	request->time_zone = text_to_cstring(PG_GETARG_TEXT_PP(5));
	dr_boundary_zone(request->time_zone);
	request->delay = PG_ARGISNULL(6) ? NULL : dr_boundary_check_delay(PG_GETARG_INTERVAL_P(6));
	request->fold = PG_ARGISNULL(8) ? -1 : PG_GETARG_BOOL(8);
}
