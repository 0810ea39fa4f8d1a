/*
 * query.c
 *		Every SQL text that the extension runs over a rollup: its objects, the
 *		statements of a refresh, of late keys, of the checks.
 */
#include "query.h"

#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"

#include "boundary.h"
#include "phrase.h"

/* --------------------------------------------------------------- creation */

static void
append_column_def(StringInfo buf, const char *name, const DrColumn *column)
{
	appendStringInfo(buf, "%s %s", name, dr_phrase_type(column->type, column->typmod));
	if (OidIsValid(column->collation))
		appendStringInfo(buf, " COLLATE %s", generate_collation_name(column->collation));
}

char *
dr_query_create_live(const DrDefinition *def, const char *live)
{
	StringInfoData buf;
	char	  **names = palloc(def->nkeys * sizeof(char *));

	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE TABLE %s (", live);
	for (int i = 0; i < def->ncolumns; i++)
	{
		append_column_def(&buf, quote_identifier(def->columns[i].name), &def->columns[i]);
		appendStringInfoString(&buf, ", ");
	}
	for (int i = 0; i < def->nkeys; i++)
		names[i] = pstrdup(quote_identifier(dr_phrase_key(def, i)->name));

	/* free space on each page, so that a refresh updates rows in place */
	appendStringInfo(&buf, "UNIQUE NULLS NOT DISTINCT (%s)) WITH (fillfactor = 80)",
					 dr_phrase_join(names, def->nkeys, ", "));
	return buf.data;
}

static void
append_key_defs(StringInfo buf, const DrDefinition *def)
{
	for (int i = 0; i < def->nkeys; i++)
	{
		if (i > 0)
			appendStringInfoString(buf, ", ");
		append_column_def(buf, psprintf("k%d", i + 1), dr_phrase_key(def, i));
	}
}

char *
dr_query_create_key_type(const DrDefinition *def, int32 id)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE TYPE %s AS (", dr_phrase_own("key", id));
	append_key_defs(&buf, def);
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/*
 * The main index of the marks.  A writer must never fail because a key is too
 * long for a btree, so where keys have no fixed length it is a hash index on
 * one part of the key, the first of such a type; NULL where no part can have
 * one.
 */
static char *
marks_index(const DrDefinition *def)
{
	StringInfoData fixed;
	char	   *hash = NULL;
	bool		all_fixed = true;

	initStringInfo(&fixed);
	for (int i = 0; i < def->nkeys; i++)
	{
		Oid			type = dr_phrase_key(def, i)->type;

		if (get_typlen(type) > 0)
		{
			appendStringInfo(&fixed, "%sk%d", fixed.len == 0 ? "" : ", ", i + 1);
			continue;
		}
		all_fixed = false;
		if (hash == NULL && OidIsValid(GetDefaultOpClass(type, HASH_AM_OID)))
			hash = psprintf("USING hash (k%d)", i + 1);
	}
	if (hash != NULL && !all_fixed)
		return hash;
	return fixed.len == 0 ? NULL : psprintf("(%s)", fixed.data);
}

/*
 * The marks and their indexes, none of them unique: two writers that mark one
 * key must not wait for each other.  The second finds keys with a NULL.
 */
char *
dr_query_create_marks(const DrDefinition *def, int32 id)
{
	StringInfoData buf;
	char	  **names = palloc(def->nkeys * sizeof(char *));
	char	   *marks = dr_phrase_own("marks", id);
	char	   *index = marks_index(def);

	for (int i = 0; i < def->nkeys; i++)
		names[i] = psprintf("k%d", i + 1);
	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE TABLE %s (", marks);
	append_key_defs(&buf, def);
	appendStringInfoString(&buf, ", proof pg_catalog.int8)");
	if (index != NULL)
		appendStringInfo(&buf, "; CREATE INDEX ON %s %s", marks, index);
	appendStringInfo(&buf, "; CREATE INDEX ON %s (proof) WHERE %s", marks,
					 dr_phrase_any_null(def, names, false));
	return buf.data;
}

/* What the view events_<id> shows: the deduplicated source. */
char *
dr_query_events(const DrDefinition *def)
{
	StringInfoData buf;
	DrScope		scope = {.relation = def->source};

	initStringInfo(&buf);
	dr_phrase_append_events(&buf, def, &scope, def->ndedup > 0);
	return buf.data;
}

/* What the view definition_<id> shows: the defining query over that view. */
char *
dr_query_definition_of(const DrDefinition *def, const char *events)
{
	StringInfoData buf;

	initStringInfo(&buf);
	dr_phrase_append_content_of(&buf, def, events, " ");
	return buf.data;
}

/* Live, which counts from the first refresh on, without the marked keys. */
static void
append_settled_leg(StringInfo buf, const DrDefinition *def, const DrRollup *rollup,
				   const char *live_literal)
{
	appendStringInfo(buf,
					 "SELECT %s FROM %s l"
					 " WHERE (SELECT dailyrollup._live_counts(%s)) AND %s",
					 dr_phrase_columns(def, "l", true, true), dr_phrase_relation(rollup->live),
					 live_literal, dr_phrase_unmarked(def, rollup->marks, rollup->key_type, dr_phrase_live_key(def, "l")));
}

/* The tail since W, without the marked keys. */
static void
append_tail_leg(StringInfo buf, const DrDefinition *def, const DrRollup *rollup,
				const char *live_literal)
{
	DrScope		scope = {
		.relation = def->source,
		.lower = psprintf("(SELECT dailyrollup._tail_from_%s(%s))",
						  dr_boundary_type_name(def->time_kind), live_literal)
	};

	appendStringInfo(buf, "SELECT %s FROM (%s) t WHERE %s",
					 dr_phrase_columns(def, "t", true, true),
					 dr_phrase_content(def, &scope, def->ndedup > 0),
					 dr_phrase_unmarked(def, rollup->marks, rollup->key_type, dr_phrase_live_key(def, "t")));
}

/* Each marked key, from its whole history. */
static void
append_marked_leg(StringInfo buf, const DrDefinition *def, const DrRollup *rollup,
				  const char *live_literal)
{
	char	   *keys = dr_phrase_join(dr_phrase_mark_key(def, "m"), def->nkeys, ", ");
	bool		first = true;

	appendStringInfoString(buf, "SELECT ");
	for (int i = 0, k = 0; i < def->ncolumns; i++)
		dr_phrase_append_item(buf, &first, def->columns[i].is_key ?
					psprintf("m.k%d", ++k) :
					psprintf("r.%s", quote_identifier(def->columns[i].name)));
	appendStringInfo(buf,
					 " FROM (SELECT DISTINCT %s, m.proof FROM %s m) m,"
					 " LATERAL dailyrollup._current_row(%s, NULL::%s, m.proof, %s) r",
					 keys, dr_phrase_relation(rollup->marks), live_literal,
					 dr_phrase_relation(rollup->definition), keys);
}

char *
dr_query_create_current(const DrDefinition *def, const DrRollup *rollup,
						const char *view)
{
	StringInfoData buf;
	char	   *live_literal = psprintf("%s::pg_catalog.regclass",
										quote_literal_cstr(dr_phrase_relation(rollup->live)));
	bool		first = true;

	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE VIEW %s AS SELECT ", view);
	for (int i = 0; i < def->ncolumns; i++)
	{
		const DrColumn *column = &def->columns[i];
		const char *name = quote_identifier(column->name);

		dr_phrase_append_item(&buf, &first, column->is_key ? psprintf("u.%s", name) :
					psprintf("%s AS %s", dr_phrase_merged(def, column, "u"), name));
	}
	appendStringInfoString(&buf, " FROM (");
	append_settled_leg(&buf, def, rollup, live_literal);
	appendStringInfoString(&buf, " UNION ALL ");
	append_tail_leg(&buf, def, rollup, live_literal);
	appendStringInfoString(&buf, " UNION ALL ");
	append_marked_leg(&buf, def, rollup, live_literal);
	appendStringInfo(&buf, ") u(%s) GROUP BY %s",
					 dr_phrase_columns(def, NULL, true, true),
					 dr_phrase_join(dr_phrase_live_key(def, "u"), def->nkeys, ", "));
	return buf.data;
}

/* A relation's name as SQL: schema-qualified and quoted. */
char *
dr_query_relation(Oid relation)
{
	return dr_phrase_relation(relation);
}

/* What the row triggers are for; the fourth trigger is for "truncate". */
const char *const dr_query_row_events[DR_ROW_EVENTS] = {"insert", "update", "delete"};

/* The name of one of a rollup's triggers on its source. */
char *
dr_query_trigger_name(int32 id, const char *event)
{
	return psprintf("%s_%d_%s", DR_SCHEMA, id, event);
}

/*
 * The trigger that catches late rows of one event: insert, update or delete.
 * An update may move a row across the watermark, which dirties both keys.
 */
char *
dr_query_create_late_trigger(const DrDefinition *def, const DrRollup *rollup,
							 const char *event)
{
	const char *time = quote_identifier(def->events[0].source_name);
	const char *name = dr_query_trigger_name(rollup->id, event);
	char	   *source = dr_phrase_relation(rollup->source);
	char	   *threshold = psprintf("dailyrollup._late_threshold_%s(%s::pg_catalog.regclass)",
									 dr_boundary_type_name(def->time_kind),
									 quote_literal_cstr(dr_phrase_relation(rollup->live)));
	char	   *new_is_late = psprintf("NEW.%s < %s", time, threshold);
	char	   *old_is_late = psprintf("OLD.%s < %s", time, threshold);
	char	   *late;

	if (strcmp(event, "insert") == 0)
		late = new_is_late;
	else if (strcmp(event, "delete") == 0)
		late = old_is_late;
	else
		late = psprintf("%s OR %s", old_is_late, new_is_late);

	return psprintf("CREATE TRIGGER %s AFTER %s ON %s FOR EACH ROW WHEN (%s)"
					" EXECUTE FUNCTION dailyrollup._mark_late(%d);"
					" ALTER TABLE %s ENABLE ALWAYS TRIGGER %s",
					name, event, source, late, rollup->id, source, name);
}

/* TRUNCATE fires the statement triggers of each table that it reaches. */
char *
dr_query_create_truncate_trigger(int32 id, Oid relation)
{
	char	   *table = dr_phrase_relation(relation);
	const char *name = dr_query_trigger_name(id, "truncate");

	return psprintf("CREATE TRIGGER %s AFTER TRUNCATE ON %s FOR EACH STATEMENT"
					" EXECUTE FUNCTION dailyrollup._truncated(%d);"
					" ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %s",
					name, table, id, table, name);
}

/* ------------------------------------------- DDL that follows DDL of others */

/* Everything of a rollup but the source to another owner. */
char *
dr_query_hand_over(const DrRollup *rollup, const char *owner)
{
	const char *to = quote_identifier(owner);

	return psprintf("ALTER TABLE %s OWNER TO %s; ALTER VIEW %s OWNER TO %s;"
					" ALTER TABLE %s OWNER TO %s; ALTER VIEW %s OWNER TO %s;"
					" ALTER VIEW %s OWNER TO %s; ALTER TYPE %s OWNER TO %s",
					dr_phrase_relation(rollup->live), to,
					dr_phrase_relation(rollup->current_view), to,
					dr_phrase_relation(rollup->marks), to,
					dr_phrase_relation(rollup->events), to,
					dr_phrase_relation(rollup->definition), to,
					format_type_be_qualified(rollup->key_type), to);
}

char *
dr_query_rename_column(const DrRollup *rollup, const char *from, const char *to)
{
	return psprintf("ALTER VIEW %s RENAME COLUMN %s TO %s",
					dr_phrase_relation(rollup->definition),
					quote_identifier(from), quote_identifier(to));
}

/* Rows that went without their keys being marked. */
void
dr_query_warn_of_lost_rows(const DrRollup *rollup, const char *partition, const char *fate)
{
	ereport(WARNING,
			(errmsg("partition \"%s\" of a source was %s, but rollup \"%s\" still counts its rows",
					partition, fate, dr_catalog_name(rollup->live)),
			 errhint("Run SELECT rollup_reseed(%s) to forget them.",
					 quote_literal_cstr(dr_phrase_relation(rollup->live)))));
}

/* ------------------------------------------------------------- the refresh */

/* Readers keep what they see until the transaction commits. */
char *
dr_query_empty_live(const DrRollup *rollup)
{
	return psprintf("DELETE FROM %s", dr_phrase_relation(rollup->live));
}

/* Everything before $1 into an empty live. */
char *
dr_query_seed(const DrDefinition *def, const DrRollup *rollup)
{
	DrScope		scope = {.relation = def->source, .upper = "$1"};

	return psprintf("INSERT INTO %s (%s) %s", dr_phrase_relation(rollup->live),
					dr_phrase_columns(def, NULL, true, true),
					dr_phrase_content(def, &scope, dr_phrase_duplicates_possible(def)));
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
					" deleted AS (DELETE FROM %s l USING gone w WHERE %s),"
					" stored AS (INSERT INTO %s AS l (%s) SELECT * FROM fresh"
					" ON CONFLICT (%s) DO UPDATE SET (%s) = ROW(%s)"
					" WHERE ROW(%s)::pg_catalog.record OPERATOR(pg_catalog.*<>)"
					" ROW(%s)::pg_catalog.record)"
					" SELECT pg_catalog.count(*) FROM waiting",
					dr_phrase_relation(rollup->marks), marks,
					dr_phrase_content(def, &scope, dr_phrase_duplicates_possible(def)),
					keys,
					dr_phrase_relation(rollup->live),
					dr_phrase_same_key(def, rollup->key_type, live, waiting),
					dr_phrase_relation(rollup->live), columns, keys, measures,
					dr_phrase_columns(def, "excluded", false, true),
					dr_phrase_columns(def, "l", false, true),
					dr_phrase_columns(def, "excluded", false, true));
}

/* --------------------------------------------------------------- late keys */

/* One mark, of the event whose columns are the first parameters; the last is
 * the proof. */
char *
dr_query_mark_event(const DrDefinition *def, const DrRollup *rollup)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "INSERT INTO %s SELECT %s, $%d FROM (SELECT ",
					 dr_phrase_relation(rollup->marks),
					 dr_phrase_join(dr_phrase_event_key(def), def->nkeys, ", "),
					 def->nevents + 1);
	for (int i = 0; i < def->nevents; i++)
		appendStringInfo(&buf, "%s$%d AS %s", i == 0 ? "" : ", ", i + 1,
						 quote_identifier(def->events[i].name));
	appendStringInfoString(&buf, ") e");
	return buf.data;
}

/* A mark for each key of the relation's rows within [$1, $2); $3 is the proof. */
char *
dr_query_mark_range(const DrDefinition *def, const DrRollup *rollup, Oid relation)
{
	StringInfoData buf;
	DrScope		scope = {.relation = relation, .lower = "$1", .upper = "$2"};

	initStringInfo(&buf);
	appendStringInfo(&buf, "INSERT INTO %s SELECT DISTINCT %s, $3 FROM (",
					 dr_phrase_relation(rollup->marks),
					 dr_phrase_join(dr_phrase_event_key(def), def->nkeys, ", "));
	dr_phrase_append_rows(&buf, def, &scope);
	appendStringInfoString(&buf, ") e");
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
					" FROM (SELECT pg_catalog.count(*) AS n FROM %s l GROUP BY %s) g",
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
						" greatest(pg_catalog.abs(l.%s), pg_catalog.abs(d.%s)), false))",
						same, name, name,
						column->type == FLOAT8OID ? "1e-9" : "1e-4", name, name);
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
					" pg_catalog.min(l.ctid) AS first FROM %s l GROUP BY 1"
					" HAVING pg_catalog.count(*) > 1)"
					" SELECT 'duplicate', %s, NULL::pg_catalog.name[], %s,"
					" NULL::pg_catalog.jsonb, u.n"
					" FROM duplicated u JOIN %s l ON l.ctid = u.first"
					" WHERE NOT EXISTS (SELECT FROM marked m WHERE m.key = u.key)"
					" UNION ALL"
					" SELECT CASE WHEN d.\"dailyrollup here\" IS NULL THEN 'missing_daily'"
					" WHEN l.\"dailyrollup here\" IS NULL THEN 'missing_live' ELSE 'mismatch' END,"
					" CASE WHEN l.\"dailyrollup here\" THEN %s ELSE %s END,"
					" CASE WHEN l.\"dailyrollup here\" AND d.\"dailyrollup here\" THEN pg_catalog.array_remove(ARRAY[%s], NULL) END,"
					" CASE WHEN l.\"dailyrollup here\" THEN %s END, CASE WHEN d.\"dailyrollup here\" THEN %s END,"
					" NULL::pg_catalog.int8"
					" FROM (SELECT l.*, %s AS \"dailyrollup key\", true AS \"dailyrollup here\" FROM %s l"
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
