/*
 * query.c
 *		The statements that a rollup is kept, read and checked by.
 */
#include "query.h"

#include "commands/defrem.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "phrase.h"

/* --------------------------------------------------------------- creation */

/* ------------------------------------------------------------- the refresh */

/*
 * Make live's content that of everything before $1, whatever live held, and
 * write only rows that differ: readers, foreign keys and free space are left
 * alone where nothing changes.  Needs no index of live, for that may be what
 * went wrong.  Returns the number of keys.
 */
char *
dr_query_seed(const DrDefinition *def, const DrRollup *rollup)
{
	DrScope		scope = {.relation = def->source, .upper = "$1"};
	char	  **live_key = dr_phrase_live_key(def, "l");
	char	  **fresh_key = dr_phrase_live_key(def, "f");
	char	   *live = dr_phrase_relation(rollup->live);
	char	   *columns = dr_phrase_columns(def, NULL, true, true);
	bool		no_nulls = dr_phrase_any_null(def, fresh_key, true) == NULL;
	char	   *same = dr_phrase_same_key(def, rollup->key_type, live_key, fresh_key,
										  no_nulls);

	return psprintf("WITH fresh AS MATERIALIZED (%s),"
					" ranked AS MATERIALIZED (SELECT l.ctid AS tid, pg_catalog.row_number()"
					" OVER (PARTITION BY %s) AS n FROM ONLY %s l),"
					" surplus AS (DELETE FROM ONLY %s l USING ranked r WHERE l.ctid = r.tid AND r.n > 1),"
					" gone AS (DELETE FROM ONLY %s l WHERE NOT EXISTS (SELECT FROM fresh f WHERE %s)),"
					" changed AS (UPDATE ONLY %s l SET (%s) = ROW(%s) FROM fresh f, ranked r"
					" WHERE %s AND l.ctid = r.tid AND r.n = 1 AND"
					" ROW(%s)::pg_catalog.record OPERATOR(pg_catalog.*<>) ROW(%s)::pg_catalog.record),"
					" added AS (INSERT INTO %s (%s) SELECT %s FROM fresh f"
					" WHERE NOT EXISTS (SELECT FROM ONLY %s l WHERE %s))"
					" SELECT pg_catalog.count(*) FROM fresh",
					dr_phrase_content(def, &scope, dr_phrase_duplicates_possible(def)),
					dr_phrase_join(live_key, def->nkeys, ", "), live,
					live,
					live, same,
					live, dr_phrase_columns(def, NULL, false, true),
					dr_phrase_columns(def, "f", false, true),
					same,
					dr_phrase_columns(def, "l", false, true),
					dr_phrase_columns(def, "f", false, true),
					live, columns, dr_phrase_columns(def, "f", true, true),
					live, same);
}

/* The window [$1, $2) merged into live. */
char *
dr_query_fold(const DrDefinition *def, const DrRollup *rollup)
{
	DrScope		scope = {.relation = def->source, .lower = "$1", .upper = "$2"};
	StringInfoData merges;
	bool		first = true;
	char	   *measures = dr_phrase_columns(def, NULL, false, true);

	initStringInfo(&merges);
	for (int i = 0; i < def->ncolumns; i++)
		if (!def->columns[i].is_key)
			dr_phrase_append_item(&merges, &first,
								  dr_phrase_merged(def, &def->columns[i], "v"));

	return psprintf("INSERT INTO %s AS l (%s) %s"
					" ON CONFLICT (%s) DO UPDATE SET (%s) ="
					" (SELECT %s FROM (VALUES (%s), (%s)) v(%s))",
					dr_phrase_relation(rollup->live),
					dr_phrase_columns(def, NULL, true, true),
					dr_phrase_content(def, &scope, dr_phrase_duplicates_possible(def)),
					dr_phrase_columns(def, NULL, true, false), measures,
					merges.data,
					dr_phrase_columns(def, "l", false, true),
					dr_phrase_columns(def, "excluded", false, true), measures);
}

/*
 * Take the marks, recompute each marked key from its history before $1, delete
 * keys that have none left.  One statement, hence one snapshot for marks and
 * source: a row is visible exactly when its mark is.
 *
 * Keys without a NULL are looked up in the source by plain equality, which an
 * index serves; keys with one by a second branch, which runs only where there
 * is such a key.
 */
char *
dr_query_recompute(const DrDefinition *def, const DrRollup *rollup)
{
	char	  **event = dr_phrase_event_key(def);
	char	  **waiting = dr_phrase_mark_key(def, "w");
	char	  **live = dr_phrase_live_key(def, "l");
	char	   *keys = dr_phrase_columns(def, NULL, true, false);
	char	   *columns = dr_phrase_columns(def, NULL, true, true);
	char	   *marks = dr_phrase_join(dr_phrase_mark_key(def, "m"), def->nkeys, ", ");
	char	   *measures = dr_phrase_columns(def, NULL, false, true);
	char	   *event_has_null = dr_phrase_any_null(def, event, true);
	DrScope		scope = {
		.relation = def->source,
		.upper = "$1",
		.keys = psprintf("EXISTS (SELECT FROM waiting w WHERE %s)",
						 dr_phrase_plainly_equal(def, event, waiting))
	};

	if (event_has_null != NULL)
	{
		char	   *waiting_has_null = dr_phrase_any_null(def, waiting, true);

		scope.null_keys =
			psprintf("(SELECT EXISTS (SELECT FROM waiting w WHERE %s)) AND %s"
					 " AND EXISTS (SELECT FROM waiting w WHERE %s AND %s)",
					 waiting_has_null, event_has_null, waiting_has_null,
					 dr_phrase_record_equal(def, rollup->key_type, event, waiting));
	}

	return psprintf("WITH taken AS (DELETE FROM %s m RETURNING %s),"
					" waiting AS MATERIALIZED (SELECT DISTINCT m.* FROM taken m),"
					" fresh AS MATERIALIZED (%s),"
					" gone AS (SELECT * FROM waiting w EXCEPT SELECT %s FROM fresh),"
					" deleted AS (DELETE FROM ONLY %s l USING gone w WHERE %s),"
					" stored AS (INSERT INTO %s AS l (%s) SELECT * FROM fresh"
					" ON CONFLICT (%s) DO UPDATE SET (%s) = ROW(%s)"
					" WHERE ROW(%s)::pg_catalog.record OPERATOR(pg_catalog.*<>)"
					" ROW(%s)::pg_catalog.record)"
					" SELECT pg_catalog.count(*) FROM waiting",
					dr_phrase_relation(rollup->marks), marks,
					dr_phrase_content(def, &scope, dr_phrase_duplicates_possible(def)),
					keys,
					dr_phrase_relation(rollup->live),
					dr_phrase_same_key(def, rollup->key_type, live, waiting, false),
					dr_phrase_relation(rollup->live), columns, keys, measures,
					dr_phrase_columns(def, "excluded", false, true),
					dr_phrase_columns(def, "l", false, true),
					dr_phrase_columns(def, "excluded", false, true));
}

/* --------------------------------------------------------------- late keys */

/* "INSERT INTO marks SELECT …" of the keys of events; the events follow. */
static void
append_marks(StringInfo buf, const DrDefinition *def, const DrRollup *rollup,
			 const char *distinct, int proof)
{
	char	  **keys = dr_phrase_mark_key(def, "k");
	char	  **event = dr_phrase_event_key(def);

	appendStringInfo(buf, "INSERT INTO %s SELECT k.*, $%d, %s FROM (SELECT %s",
					 dr_phrase_relation(rollup->marks), proof,
					 dr_phrase_is_plain(def, keys), distinct);
	for (int i = 0; i < def->nkeys; i++)
		appendStringInfo(buf, "%s%s AS k%d", i == 0 ? "" : ", ", event[i], i + 1);
	appendStringInfoString(buf, " FROM (");
}

/* One mark, of the event whose columns are the first parameters; the last is
 * the proof. */
char *
dr_query_mark_event(const DrDefinition *def, const DrRollup *rollup)
{
	StringInfoData buf;

	initStringInfo(&buf);
	append_marks(&buf, def, rollup, "", def->nevents + 1);
	appendStringInfoString(&buf, "SELECT ");
	for (int i = 0; i < def->nevents; i++)
		appendStringInfo(&buf, "%s$%d AS %s", i == 0 ? "" : ", ", i + 1,
						 quote_identifier(def->events[i].name));
	appendStringInfoString(&buf, ") e) k");
	return buf.data;
}

/* A mark for each key of the relation's rows within [$1, $2); $3 is the proof. */
char *
dr_query_mark_range(const DrDefinition *def, const DrRollup *rollup, Oid relation)
{
	StringInfoData buf;
	DrScope		scope = {.relation = relation, .lower = "$1", .upper = "$2"};

	initStringInfo(&buf);
	append_marks(&buf, def, rollup, "DISTINCT ", 3);
	dr_phrase_append_rows(&buf, def, &scope);
	appendStringInfoString(&buf, ") e) k");
	return buf.data;
}

char *
dr_query_forget_marks(const DrRollup *rollup)
{
	return psprintf("DELETE FROM %s", dr_phrase_relation(rollup->marks));
}

/* How many keys wait; no more than $1 are counted. */
char *
dr_query_count_late(const DrDefinition *def, const DrRollup *rollup)
{
	return psprintf("SELECT pg_catalog.count(*) FROM (SELECT DISTINCT %s FROM %s m LIMIT $1) w",
					dr_phrase_join(dr_phrase_mark_key(def, "m"), def->nkeys, ", "),
					dr_phrase_relation(rollup->marks));
}

/* The waiting keys as jsonb, with the number of their marks. */
char *
dr_query_list_late(const DrDefinition *def, const DrRollup *rollup)
{
	char	   *keys = dr_phrase_join(dr_phrase_mark_key(def, "m"), def->nkeys, ", ");

	return psprintf("SELECT %s, m.n FROM (SELECT %s, pg_catalog.count(*) AS n"
					" FROM %s m GROUP BY %s) m",
					dr_phrase_key_json(def, dr_phrase_mark_key(def, "m")), keys,
					dr_phrase_relation(rollup->marks), keys);
}

/* ----------------------------------------------------- reading and checking */

/* The defining query for people and tests; "before" is SQL or NULL. */
char *
dr_query_definition(const DrDefinition *def, const char *before)
{
	StringInfoData events;
	StringInfoData buf;
	DrScope		scope = {.relation = def->source, .upper = before};

	initStringInfo(&events);
	appendStringInfoString(&events, "(");
	dr_phrase_append_events(&events, def, &scope, def->ndedup > 0);
	appendStringInfoString(&events, ")");
	initStringInfo(&buf);
	dr_phrase_append_content_of(&buf, def, events.data, "\n");
	return buf.data;
}

/* The content of one key, $1 .. $n, from its whole history; parts that are
 * NULL are asked for as such, so that an index of the source serves them. */
char *
dr_query_key_row(const DrDefinition *def, const bool *key_is_null)
{
	char	  **event = dr_phrase_event_key(def);
	StringInfoData keys;
	DrScope		scope = {.relation = def->source};

	initStringInfo(&keys);
	for (int i = 0; i < def->nkeys; i++)
	{
		Oid			type = dr_phrase_key(def, i)->type;

		appendStringInfoString(&keys, i == 0 ? "" : " AND ");
		if (key_is_null[i])
			appendStringInfoString(&keys, dr_phrase_is_null(type, event[i]));
		else
			appendStringInfo(&keys, "%s %s $%d", event[i],
							 dr_phrase_equality(type), i + 1);
	}
	scope.keys = keys.data;
	return dr_phrase_content(def, &scope, def->ndedup > 0);
}

/* rows, keys, keys with more than one row, rows beyond one a key */
char *
dr_query_count_live(const DrDefinition *def, const DrRollup *rollup)
{
	return psprintf("SELECT coalesce(pg_catalog.sum(g.n), 0)::pg_catalog.int8,"
					" pg_catalog.count(*),"
					" pg_catalog.count(*) FILTER (WHERE g.n > 1),"
					" coalesce(pg_catalog.sum(g.n - 1), 0)::pg_catalog.int8"
					" FROM (SELECT pg_catalog.count(*) AS n FROM ONLY %s l GROUP BY %s) g",
					dr_phrase_relation(rollup->live),
					dr_phrase_columns(def, "l", true, false));
}

/*
 * Do the two sides' values of a column differ?  By the type's own equality;
 * sums of floating-point numbers depend on the order of rows, hence within a
 * relative tolerance.
 */
static char *
differs(const DrColumn *column)
{
	const char *name = quote_identifier(column->name);
	char	   *same = psprintf("coalesce(l.%s %s d.%s, pg_catalog.num_nulls(l.%s, d.%s) = 2)",
								name, dr_phrase_equality(column->type), name, name, name);

	if (column->kind == DR_SUM &&
		(column->type == FLOAT8OID || column->type == FLOAT4OID))
		same = psprintf("(%s OR coalesce(pg_catalog.abs(l.%s - d.%s) <= %s *"
						" greatest(pg_catalog.abs(l.%s), pg_catalog.abs(d.%s))"
						" AND greatest(pg_catalog.abs(l.%s), pg_catalog.abs(d.%s)) < 'Infinity', false))",
						same, name, name,
						column->type == FLOAT8OID ? "1e-9" : "1e-4", name, name, name, name);
	return psprintf("NOT %s", same);
}

/* A whole row of one side as jsonb */
static char *
row_json(const DrDefinition *def, const char *alias)
{
	return psprintf("(SELECT pg_catalog.to_jsonb(x.*) FROM (SELECT %s) x)",
					dr_phrase_columns(def, alias, true, true));
}

/*
 * Live against the definition before $1.  Keys with marks are left out; a key
 * with several rows in live is a "duplicate" and compared no further.
 */
char *
dr_query_verify(const DrDefinition *def, const DrRollup *rollup)
{
	DrScope		scope = {.relation = def->source, .upper = "$1"};
	Oid			key_type = rollup->key_type;
	char	  **live = dr_phrase_live_key(def, "l");
	char	  **fresh = dr_phrase_live_key(def, "d");
	StringInfoData any;
	StringInfoData names;

	initStringInfo(&any);
	initStringInfo(&names);
	for (int i = 0; i < def->ncolumns; i++)
	{
		if (def->columns[i].is_key)
			continue;
		appendStringInfo(&any, " OR %s", differs(&def->columns[i]));
		appendStringInfo(&names, "%sCASE WHEN %s THEN %s::pg_catalog.name END",
						 names.len == 0 ? "" : ", ", differs(&def->columns[i]),
						 quote_literal_cstr(def->columns[i].name));
	}

	return psprintf("WITH marked AS (SELECT DISTINCT %s AS key FROM %s m),"
					" duplicated AS (SELECT %s AS key, pg_catalog.count(*) AS n,"
					" pg_catalog.min(l.ctid) AS first FROM ONLY %s l GROUP BY 1"
					" HAVING pg_catalog.count(*) > 1)"
					" SELECT 'duplicate', %s, NULL::pg_catalog.name[], %s,"
					" NULL::pg_catalog.jsonb, u.n"
					" FROM duplicated u JOIN ONLY %s l ON l.ctid = u.first"
					" WHERE NOT EXISTS (SELECT FROM marked m WHERE m.key = u.key)"
					" UNION ALL"
					" SELECT CASE WHEN d.\"dailyrollup here\" IS NULL THEN 'missing_daily'"
					" WHEN l.\"dailyrollup here\" IS NULL THEN 'missing_live' ELSE 'mismatch' END,"
					" CASE WHEN l.\"dailyrollup here\" THEN %s ELSE %s END,"
					" CASE WHEN l.\"dailyrollup here\" AND d.\"dailyrollup here\" THEN pg_catalog.array_remove(ARRAY[%s], NULL) END,"
					" CASE WHEN l.\"dailyrollup here\" THEN %s END, CASE WHEN d.\"dailyrollup here\" THEN %s END,"
					" NULL::pg_catalog.int8"
					" FROM (SELECT l.*, %s AS \"dailyrollup key\", true AS \"dailyrollup here\" FROM ONLY %s l"
					" WHERE NOT EXISTS (SELECT FROM marked m WHERE m.key = %s)"
					" AND NOT EXISTS (SELECT FROM duplicated u WHERE u.key = %s)) l"
					" FULL JOIN (SELECT l.*, %s AS \"dailyrollup key\", true AS \"dailyrollup here\" FROM (%s) l"
					" WHERE NOT EXISTS (SELECT FROM marked m WHERE m.key = %s)"
					" AND NOT EXISTS (SELECT FROM duplicated u WHERE u.key = %s)) d"
					" ON l.\"dailyrollup key\" = d.\"dailyrollup key\""
					" WHERE l.\"dailyrollup here\" IS NULL OR d.\"dailyrollup here\" IS NULL%s",
					dr_phrase_key_record(def, key_type, dr_phrase_mark_key(def, "m")),
					dr_phrase_relation(rollup->marks),
					dr_phrase_key_record(def, key_type, live),
					dr_phrase_relation(rollup->live),
					dr_phrase_key_json(def, live), row_json(def, "l"),
					dr_phrase_relation(rollup->live),
					dr_phrase_key_json(def, live), dr_phrase_key_json(def, fresh),
					names.data, row_json(def, "l"), row_json(def, "d"),
					dr_phrase_key_record(def, key_type, live),
					dr_phrase_relation(rollup->live),
					dr_phrase_key_record(def, key_type, live),
					dr_phrase_key_record(def, key_type, live),
					dr_phrase_key_record(def, key_type, live),
					dr_phrase_content(def, &scope, def->ndedup > 0),
					dr_phrase_key_record(def, key_type, live),
					dr_phrase_key_record(def, key_type, live),
					any.data);
}
