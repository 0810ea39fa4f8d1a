/*
 * phrase.c
 *		The pieces that SQL over a rollup is put together from.
 *
 *		events		the source's rows within bounds, the columns used alone,
 *					under the alias "e" and the names of events_<id>
 *		content		the defining query over deduplicated events
 *		merge		the defining query's aggregates over partial rows
 *		same key	equality of keys that takes NULL for a value like any other
 *
 * Expressions of the user are printed by the server's ruleutils from its own
 * parse trees, always over the alias "e"; names are quoted; operators on keys
 * come from the key's btree operator class.
 *
 * IS NOT DISTINCT FROM is never hashed and never uses an index, so "same key"
 * has two forms: plain equality, for keys without a NULL, and equality of the
 * composite type key_<id>, which is hashed and takes NULLs as equal.
 */
#include "phrase.h"

#include "access/htup_details.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "pack.h"

/* ------------------------------------------------------------------ pieces */

/* Its name; an error where others have dropped it meanwhile. */
char *
dr_phrase_relation(Oid relation)
{
	char	   *name = get_rel_name(relation);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relation),
				 errhint("It was dropped meanwhile.")));
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relation)), name);
}

/* A permit that the owner of live gives, as permit.c reads it. */
char *
dr_phrase_permit(Oid live, Oid owner)
{
	char	   *role = GetUserNameFromId(owner, true);

	if (role == NULL || get_rel_name(live) == NULL)
		return pstrdup(DR_PHRASE_NO_PERMIT);
	return psprintf("%s.%s", quote_identifier(role), dr_phrase_relation(live));
}

char *
dr_phrase_own(const char *prefix, int32 id)
{
	return psprintf("%s.%s_%d", DR_SCHEMA, prefix, id);
}

char *
dr_phrase_type(Oid type, int32 typmod)
{
	return format_type_extended(type, typmod,
								FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY);
}

/* "schema.function" of an aggregate */
static char *
function_name(Oid function)
{
	return quote_qualified_identifier(get_namespace_name(get_func_namespace(function)),
									  get_func_name(function));
}

/* "OPERATOR(schema.=)", the default btree equality of a type */
char *
dr_phrase_equality(Oid type)
{
	Oid			operator = lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr;
	HeapTuple	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(operator));
	Form_pg_operator form;
	char	   *text;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "type %u has no equality operator", type);
	form = (Form_pg_operator) GETSTRUCT(tuple);
	text = psprintf("OPERATOR(%s.%s)",
					quote_identifier(get_namespace_name(form->oprnamespace)),
					NameStr(form->oprname));
	ReleaseSysCache(tuple);
	return text;
}

/* Is it NULL?  IS NULL is true of a composite value whose fields are NULL. */
char *
dr_phrase_is_null(Oid type, const char *value)
{
	if (type_is_rowtype(type))
		return psprintf("pg_catalog.num_nulls(%s) > 0", value);
	return psprintf("%s IS NULL", value);
}

const DrColumn *
dr_phrase_key(const DrDefinition *def, int i)
{
	return &def->columns[def->keys[i]];
}

/* An expression of the definition, over the alias "e". */
char *
dr_phrase_expression(const DrDefinition *def, Node *expr)
{
	List	   *context = deparse_context_for("e", def->vars_of);

	return deparse_expression(expr, context, true, false);
}

/* Append a comma-separated list: the separator, but not before the first. */
void
dr_phrase_append_item(StringInfo buf, bool *first, const char *item)
{
	appendStringInfo(buf, "%s%s", *first ? "" : ", ", item);
	*first = false;
}

/* The output columns' names, each with an alias before it where given. */
char *
dr_phrase_columns(const DrDefinition *def, const char *alias, bool keys, bool measures)
{
	StringInfoData buf;
	bool		first = true;

	initStringInfo(&buf);
	for (int i = 0; i < def->ncolumns; i++)
	{
		const DrColumn *column = &def->columns[i];
		const char *name = quote_identifier(column->name);

		if (column->is_key ? keys : measures)
			dr_phrase_append_item(&buf, &first,
						alias ? psprintf("%s.%s", alias, name) : name);
	}
	return buf.data;
}

/* -------------------------------------------------------------------- keys */

/* The key as an array of SQL texts: live's columns under an alias … */
char **
dr_phrase_live_key(const DrDefinition *def, const char *alias)
{
	char	  **texts = palloc(def->nkeys * sizeof(char *));

	for (int i = 0; i < def->nkeys; i++)
		texts[i] = psprintf("%s.%s", alias, quote_identifier(dr_phrase_key(def, i)->name));
	return texts;
}

/* "alias.k1", …, or without an alias: columns that are known by number */
char **
dr_phrase_numbered(const char *alias, char letter, int n)
{
	char	  **texts = palloc(n * sizeof(char *));

	for (int i = 0; i < n; i++)
		texts[i] = alias ? psprintf("%s.%c%d", alias, letter, i + 1) :
			psprintf("%c%d", letter, i + 1);
	return texts;
}

/* … the marks' columns k1 .. kn … */
char **
dr_phrase_mark_key(const DrDefinition *def, const char *alias)
{
	return dr_phrase_numbered(alias, 'k', def->nkeys);
}

/* … or the key's expressions over the events. */
char **
dr_phrase_event_key(const DrDefinition *def)
{
	char	  **texts = palloc(def->nkeys * sizeof(char *));

	for (int i = 0; i < def->nkeys; i++)
		texts[i] = psprintf("(%s)", dr_phrase_expression(def, dr_phrase_key(def, i)->expr));
	return texts;
}

char *
dr_phrase_join(char **texts, int n, const char *separator)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < n; i++)
		appendStringInfo(&buf, "%s%s", i == 0 ? "" : separator, texts[i]);
	return buf.data;
}

/* "a.k1 = b.k1 AND …": never true where a part is NULL */
char *
dr_phrase_plainly_equal(const DrDefinition *def, char **left, char **right)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < def->nkeys; i++)
		appendStringInfo(&buf, "%s%s %s %s", i == 0 ? "" : " AND ",
						 left[i], dr_phrase_equality(dr_phrase_key(def, i)->type), right[i]);
	return buf.data;
}

/* "ROW(a.k1, …)::key_<id>" */
char *
dr_phrase_key_record(const DrDefinition *def, Oid key_type, char **texts)
{
	return psprintf("ROW(%s)::%s", dr_phrase_join(texts, def->nkeys, ", "),
					format_type_be_qualified(key_type));
}

/* Equality as composite values: hashed, NULLs are equal. */
char *
dr_phrase_record_equal(const DrDefinition *def, Oid key_type, char **left, char **right)
{
	return psprintf("%s OPERATOR(pg_catalog.=) %s",
					dr_phrase_key_record(def, key_type, left),
					dr_phrase_key_record(def, key_type, right));
}

/*
 * "(k1 IS NULL OR …)", over the parts that may be NULL; NULL where none may.
 * What the source declares NOT NULL today may be relied on only by SQL that
 * runs while the source is locked, not by a view.
 */
char *
dr_phrase_any_null(const DrDefinition *def, char **texts, bool trust_not_null)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < def->nkeys; i++)
		if (!trust_not_null || !dr_phrase_key(def, i)->not_null)
			appendStringInfo(&buf, "%s%s", buf.len == 0 ? "(" : " OR ",
							 dr_phrase_is_null(dr_phrase_key(def, i)->type, texts[i]));
	if (buf.len == 0)
		return NULL;
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/*
 * Same key, NULLs included.  "no_nulls": one of the two sides is known to have
 * none, so plain equality says all.
 */
char *
dr_phrase_same_key(const DrDefinition *def, Oid key_type, char **left, char **right,
				   bool no_nulls)
{
	if (no_nulls)
		return dr_phrase_plainly_equal(def, left, right);
	return dr_phrase_record_equal(def, key_type, left, right);
}

/*
 * Is the key "plain": short enough for an entry of a btree index?  True or NULL.
 * Two thirds of what an entry may take, for what it adds to the values.  Plans of
 * <live>_current are told of one that is not (tail.c).
 */
char *
dr_phrase_is_plain(const DrDefinition *def, char **texts)
{
	StringInfoData size;

	initStringInfo(&size);
	for (int i = 0; i < def->nkeys; i++)
		appendStringInfo(&size, "%scoalesce(pg_catalog.pg_column_size(%s), 0)",
						 i == 0 ? "" : " + ", texts[i]);
	return psprintf("CASE WHEN %s < 1800 THEN true ELSE dailyrollup._not_plain(%u) END",
					size.data, def->source);
}

/* The key as jsonb: an object of the key's columns. */
char *
dr_phrase_key_json(const DrDefinition *def, char **texts)
{
	StringInfoData buf;
	bool		first = true;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "(SELECT pg_catalog.to_jsonb(x.*) FROM (SELECT ");
	for (int i = 0; i < def->nkeys; i++)
		dr_phrase_append_item(&buf, &first,
					psprintf("%s AS %s", texts[i],
							 quote_identifier(dr_phrase_key(def, i)->name)));
	appendStringInfoString(&buf, ") x)");
	return buf.data;
}

/* ------------------------------------------------------------------ events */

/* A column of the events: in the source ("s") or in a subquery over it ("e"). */
static char *
event_column(const DrDefinition *def, int i, bool in_source)
{
	return in_source ?
		psprintf("s.%s", quote_identifier(def->events[i].source_name)) :
		psprintf("e.%s", quote_identifier(def->events[i].name));
}

/* A list of them: those with the given indexes, or all. */
static char *
event_columns(const DrDefinition *def, const int *indexes, int n, bool in_source,
			  const char *suffix)
{
	StringInfoData buf;
	bool		first = true;

	initStringInfo(&buf);
	for (int i = 0; i < n; i++)
		dr_phrase_append_item(&buf, &first,
							  psprintf("%s%s",
									   event_column(def, indexes ? indexes[i] : i, in_source),
									   suffix));
	return buf.data;
}

/* "s.a AS a, …": the columns under the names of events_<id> */
void
dr_phrase_append_named_columns(StringInfo buf, const DrDefinition *def, bool in_source)
{
	bool		first = true;

	for (int i = 0; i < def->nevents; i++)
		dr_phrase_append_item(buf, &first,
							  psprintf("%s AS %s", event_column(def, i, in_source),
									   quote_identifier(def->events[i].name)));
}

/* "AND time >= bound", if there is one; "WHERE" the first time */
static void
append_bound(StringInfo buf, const char **before, const char *time, const char *operator,
			 const char *bound)
{
	if (bound == NULL)
		return;
	appendStringInfo(buf, "%s %s %s %s", *before, time, operator, bound);
	*before = " AND";
}

/* The source, its rows within the bounds; none without a time.  (A floor comes with a
 * lower bound.) */
static void
append_source(StringInfo buf, const DrDefinition *def, const DrScope *scope)
{
	char	   *time = psprintf("s.%s", quote_identifier(def->events[0].source_name));
	const char *before = "WHERE";

	appendStringInfo(buf, " FROM %s%s s ", def->partitioned ? "" : "ONLY ",
					 dr_phrase_relation(scope->relation));
	if (!scope->lower && !scope->upper)
		appendStringInfo(buf, "%s %s IS NOT NULL", before, time);
	append_bound(buf, &before, time, ">=", scope->floor);
	append_bound(buf, &before, time, ">=", scope->lower);
	append_bound(buf, &before, time, "<", scope->upper);
}

/* The source's rows within the bounds, of any key. */
void
dr_phrase_append_rows(StringInfo buf, const DrDefinition *def, const DrScope *scope)
{
	appendStringInfo(buf, "SELECT %s", scope->placed ? "s.ctid, s.tableoid, " : "");
	if (scope->stored)
		appendStringInfoString(buf, "s.*");
	else
		dr_phrase_append_named_columns(buf, def, true);
	append_source(buf, def, scope);
}

/* The source's rows within the bounds, of the scope's keys. */
static void
append_keyed_rows(StringInfo buf, const DrDefinition *def, const DrScope *scope)
{
	appendStringInfoString(buf, "SELECT e.* FROM (");
	dr_phrase_append_rows(buf, def, scope);
	appendStringInfo(buf, ") e WHERE %s", scope->keys);
	if (scope->null_keys == NULL)
		return;
	appendStringInfoString(buf, " UNION ALL SELECT e.* FROM (");
	dr_phrase_append_rows(buf, def, scope);
	appendStringInfo(buf, ") e WHERE %s", scope->null_keys);
}

/* The columns that tell one event from another, in the source ("s") or over
 * the alias "e". */
char *
dr_phrase_dedup_columns(const DrDefinition *def, bool in_source)
{
	return event_columns(def, def->dedup_by, def->ndedup, in_source, "");
}

static bool
are_floats(const DrDefinition *def, const int *columns, int n)
{
	for (int i = 0; i < n; i++)
	{
		Oid			type = getBaseType(def->events[columns[i]].type);

		if (type != FLOAT8OID && type != FLOAT4OID)
			return false;
	}
	return true;
}

/*
 * Order rows whose columns are equal by the image of those in which equal values
 * may differ; NULL: there are none.  Of floats few have one.
 */
static char *
by_image(const DrDefinition *def, bool in_source)
{
	int		   *columns = palloc(def->nevents * sizeof(int));
	int			n = 0;

	for (int i = 0; i < def->nevents; i++)
		if (!dr_pack_tells_apart(def->events[i].type, def->events[i].collation))
			columns[n++] = i;
	if (n == 0)
		return NULL;
	return psprintf(are_floats(def, columns, n) ? DR_SCHEMA "._float_image(%s)" :
					"ROW(%s) USING OPERATOR(pg_catalog.*<)",
					event_columns(def, columns, n, in_source, ""));
}

/* How the rows of one event are ordered, from a comma on: by dedup_order, the other
 * columns, then by image, where equal values may differ in it.  A total order. */
char *
dr_phrase_dedup_order(const DrDefinition *def, bool in_source)
{
	char	   *by = event_columns(def, def->dedup_order, def->ndedup_order, in_source, " ASC NULLS LAST");
	char	   *image = by_image(def, in_source);

	return psprintf("%s%s%s%s", def->ndedup_order > 0 ? ", " : "", by,
					image != NULL ? ", " : "", image != NULL ? image : "");
}

/* The columns of events over the alias "e". */
char *
dr_phrase_event_columns(const DrDefinition *def)
{
	return event_columns(def, NULL, def->nevents, false, "");
}

/* The events of the scope: each once, where duplicates are looked for. */
void
dr_phrase_append_events(StringInfo buf, const DrDefinition *def,
						const DrScope *scope, bool deduplicate)
{
	bool		in_source = scope->keys == NULL;
	char	   *distinct;

	if (!deduplicate)
	{
		if (in_source)
			dr_phrase_append_rows(buf, def, scope);
		else
			append_keyed_rows(buf, def, scope);
		return;
	}

	distinct = dr_phrase_dedup_columns(def, in_source);
	appendStringInfo(buf, "SELECT DISTINCT ON (%s) ", distinct);
	dr_phrase_append_named_columns(buf, def, in_source);
	if (in_source)
		append_source(buf, def, scope);
	else
	{
		appendStringInfoString(buf, " FROM (");
		append_keyed_rows(buf, def, scope);
		appendStringInfoString(buf, ") e");
	}

	appendStringInfo(buf, " ORDER BY %s%s", distinct, dr_phrase_dedup_order(def, in_source));
}

/* The defining query over "from", which stands for the events; its columns in
 * that order, the keys first, or in their own (NULL). */
void
dr_phrase_append_content_of(StringInfo buf, const DrDefinition *def, const char *from,
				  const char *separator, const int *order)
{
	bool		first = true;

	appendStringInfoString(buf, "SELECT ");
	for (int i = 0; i < def->ncolumns; i++)
	{
		const DrColumn *column = &def->columns[order ? order[i] : i];

		dr_phrase_append_item(buf, &first,
					psprintf("%s AS %s", dr_phrase_expression(def, column->expr),
							 quote_identifier(column->name)));
	}
	appendStringInfo(buf, "%sFROM %s e", separator, from);
	if (def->where)
		appendStringInfo(buf, "%sWHERE %s", separator, dr_phrase_expression(def, def->where));
	appendStringInfo(buf, "%sGROUP BY ", separator);
	for (int i = 0; i < def->nkeys; i++)
		appendStringInfo(buf, "%s%d", i == 0 ? "" : ", ", order ? i + 1 : def->keys[i] + 1);
}

/* "order" is as in dr_phrase_append_content_of. */
char *
dr_phrase_content_in_order(const DrDefinition *def, const DrScope *scope, bool deduplicate,
						   const int *order)
{
	StringInfoData events;
	StringInfoData buf;

	initStringInfo(&events);
	appendStringInfoChar(&events, '(');
	dr_phrase_append_events(&events, def, scope, deduplicate);
	appendStringInfoChar(&events, ')');

	initStringInfo(&buf);
	dr_phrase_append_content_of(&buf, def, events.data, " ", order);
	return buf.data;
}

char *
dr_phrase_content(const DrDefinition *def, const DrScope *scope, bool deduplicate)
{
	return dr_phrase_content_in_order(def, scope, deduplicate, NULL);
}

/* ------------------------------------------------------------------- merge */

/* The aggregate that merges partial values of a measure, over the alias. */
static char *
merged_value(const DrDefinition *def, const DrColumn *column, const char *alias)
{
	char	   *value = psprintf("%s.%s", alias, quote_identifier(column->name));

	switch (column->kind)
	{
		case DR_COUNT:
			return psprintf("pg_catalog.sum(%s)", value);
		case DR_LATEST:
		case DR_EARLIEST:
			return psprintf("%s(%s, %s.%s)", function_name(column->aggregate),
							value, alias,
							quote_identifier(def->columns[column->at_column].name));
		default:
			return psprintf("%s(%s)", function_name(column->aggregate), value);
	}
}

/* With coalesce(measure, constant): leave out the constants that stand for
 * "no value", and put one back where nothing is left. */
char *
dr_phrase_merged(const DrDefinition *def, const DrColumn *column, const char *alias)
{
	char	   *value = merged_value(def, column, alias);

	if (column->otherwise != NULL && column->presence >= 0)
	{
		const DrColumn *presence = &def->columns[column->presence];
		char	   *name = psprintf("%s.%s", alias, quote_identifier(presence->name));

		value = psprintf("coalesce(%s FILTER (WHERE %s), %s)", value,
						 presence->kind == DR_COUNT ? psprintf("%s > 0", name) :
						 psprintf("NOT (%s)", dr_phrase_is_null(presence->type, name)),
						 dr_phrase_expression(def, (Node *) column->otherwise));
	}
	return psprintf("CAST(%s AS %s)", value, dr_phrase_type(column->type, column->typmod));
}

