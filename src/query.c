/*
 * query.c
 *		The statements that a rollup is kept, read and checked by.
 */
#include "query.h"

#include "utils/builtins.h"

#include "change.h"
#include "duplicates.h"
#include "phrase.h"

/* ------------------------------------------------------------- the refresh */

/* The window's rows: whole ones, as they are stored; or the columns of events, each
 * with its place where "placed". */
char *
dr_query_window(const DrDefinition *def, const char *lower, const char *upper, bool stored,
				bool placed)
{
	DrScope		scope = {
		.relation = def->source,
		.lower = lower,
		.upper = upper,
		.stored = stored,
		.placed = placed
	};
	StringInfoData buf;

	initStringInfo(&buf);
	dr_phrase_append_rows(&buf, def, &scope);
	return buf.data;
}

/* The query over the window, by the server. */
char *
dr_query_content(const DrDefinition *def, const char *lower, const char *upper)
{
	DrScope		scope = {.relation = def->source, .lower = lower, .upper = upper};

	return dr_phrase_content(def, &scope, dr_duplicates_are_possible(def));
}

/*
 * The query over the window, from the rows in DR_QUERY_DIGESTED; with
 * "waiting", the content of the keys in the relation of that name, too.
 */
char *
dr_query_digested(const DrDefinition *def, const DrRollup *rollup,
				  const char *lower, const char *upper, bool waiting)
{
	char	   *rows = psprintf("SELECT %s FROM " DR_QUERY_DIGESTED " d",
								dr_phrase_columns(def, "d", true, true));

	if (!waiting)
		return rows;
	return psprintf("%s UNION ALL (%s)", rows,
					dr_change_content_of_waiting(def, rollup, lower, upper));
}

/* A content is merged into the table. */
char *
dr_query_fold(const DrDefinition *def, Oid table, const char *content)
{
	StringInfoData buf;

	initStringInfo(&buf);
	dr_change_append_merge(&buf, def, table, content);
	return buf.data;
}

/* " WHERE m.dirties = 'd'": the marks of one kind; 0: of any */
static char *
of_kind(char dirties)
{
	return dirties == 0 ? "" : psprintf(" WHERE m.dirties = '%c'", dirties);
}

/*
 * Take the marks of that kind (0: all), recompute each marked key from its
 * history before "upper", delete keys that have none left.  One statement,
 * hence one snapshot for marks and source: a row is visible exactly when its
 * mark is.  Returns the number of keys.
 */
char *
dr_query_recompute(const DrDefinition *def, const DrRollup *rollup, Oid table,
				   char dirties, const char *upper)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "WITH taken AS (DELETE FROM %s m%s RETURNING %s),"
					 " waiting AS MATERIALIZED (SELECT DISTINCT m.* FROM taken m)",
					 dr_phrase_relation(rollup->marks), of_kind(dirties),
					 dr_phrase_join(dr_phrase_mark_key(def, "m"), def->nkeys, ", "));
	dr_change_append_recompute(&buf, def, rollup, table, upper);
	appendStringInfoString(&buf, " SELECT pg_catalog.count(*) FROM waiting");
	return buf.data;
}

/* The table's rows. */
char *
dr_query_rows(const DrDefinition *def, Oid table)
{
	return psprintf("SELECT %s FROM ONLY %s l", dr_phrase_columns(def, "l", true, true),
					dr_phrase_relation(table));
}

/*
 * How many rows live and the shadow have in common, by image.  Keys are equal
 * as records, of which the server does not know that an index has them once:
 * it would stop at the first one.  The images are no condition of the join, or
 * all rows might be sorted by them.
 */
char *
dr_query_count_common(const DrDefinition *def, const DrRollup *rollup)
{
	return psprintf("SELECT pg_catalog.count(*) FILTER (WHERE ROW(%s)::pg_catalog.record"
					" OPERATOR(pg_catalog.*=) ROW(%s)::pg_catalog.record)"
					" FROM ONLY %s l JOIN ONLY %s s ON %s",
					dr_phrase_columns(def, "l", false, true),
					dr_phrase_columns(def, "s", false, true),
					dr_phrase_relation(rollup->live), dr_phrase_relation(rollup->shadow),
					dr_phrase_record_equal(def, rollup->key_type,
										   dr_phrase_live_key(def, "l"),
										   dr_phrase_live_key(def, "s")));
}

/* --------------------------------------------------------------- late keys */

/* "k1, …", under an alias where given */
static char *
mark_keys(const DrDefinition *def, const char *alias)
{
	return dr_phrase_join(dr_phrase_numbered(alias, 'k', def->nkeys), def->nkeys, ", ");
}

/*
 * "INSERT INTO marks … SELECT …" of the keys of events; the events follow.  What
 * the marks dirty is a parameter; of a "whole" mark the next one is the epoch, and
 * the first ones are its event.
 */
static void
append_marks(StringInfo buf, const DrDefinition *def, const DrRollup *rollup,
			 const char *distinct, int dirties, bool whole)
{
	char	  **keys = dr_phrase_mark_key(def, "k");
	char	  **event = dr_phrase_event_key(def);

	appendStringInfo(buf, "INSERT INTO %s (%s, plain, dirties",
					 dr_phrase_relation(rollup->marks), mark_keys(def, NULL));
	if (whole)
		appendStringInfo(buf, ", epoch, %s",
						 dr_phrase_join(dr_phrase_numbered(NULL, 'e', def->nevents),
										def->nevents, ", "));
	appendStringInfo(buf, ") SELECT k.*, %s, $%d",
					 dr_phrase_is_plain(def, keys), dirties);
	if (whole)
	{
		appendStringInfo(buf, ", $%d", dirties + 1);
		for (int i = 0; i < def->nevents; i++)
			appendStringInfo(buf, ", $%d", i + 1);
	}
	appendStringInfo(buf, " FROM (SELECT %s", distinct);
	for (int i = 0; i < def->nkeys; i++)
		appendStringInfo(buf, "%s%s AS k%d", i == 0 ? "" : ", ", event[i], i + 1);
	appendStringInfoString(buf, " FROM (");
}

/* One mark, of the event whose columns are the first parameters; then what the
 * mark dirties, and the epoch, for a "whole" one, which has the event. */
char *
dr_query_mark_event(const DrDefinition *def, const DrRollup *rollup, bool whole)
{
	StringInfoData buf;

	initStringInfo(&buf);
	append_marks(&buf, def, rollup, "", def->nevents + 1, whole);
	appendStringInfoString(&buf, "SELECT ");
	for (int i = 0; i < def->nevents; i++)
		appendStringInfo(&buf, "%s$%d AS %s", i == 0 ? "" : ", ", i + 1,
						 quote_identifier(def->events[i].name));
	appendStringInfoString(&buf, ") e) k");
	return buf.data;
}

/* A mark for each key of the relation's rows within [$1, $2), or from $1 on; $3
 * is what the marks dirty. */
char *
dr_query_mark_range(const DrDefinition *def, const DrRollup *rollup, Oid relation,
					bool bounded)
{
	StringInfoData buf;
	DrScope		scope = {
		.relation = relation,
		.lower = "$1",
		.upper = bounded ? "$2" : NULL
	};

	initStringInfo(&buf);
	append_marks(&buf, def, rollup, "DISTINCT ", 3, false);
	dr_phrase_append_rows(&buf, def, &scope);
	appendStringInfoString(&buf, ") e) k");
	return buf.data;
}

/* A mark for each key of "rows", a SELECT of events; $1 is what the marks dirty. */
char *
dr_query_mark_rows(const DrDefinition *def, const DrRollup *rollup, const char *rows)
{
	StringInfoData buf;

	initStringInfo(&buf);
	append_marks(&buf, def, rollup, "DISTINCT ", 1, false);
	appendStringInfo(&buf, "%s) e) k", rows);
	return buf.data;
}

char *
dr_query_forget_marks(const DrRollup *rollup, char dirties)
{
	return psprintf("DELETE FROM %s m%s", dr_phrase_relation(rollup->marks), of_kind(dirties));
}

/* The marks m of rows that may be merged; $1 is the epoch. */
static char *
may_be_merged(const DrDefinition *def, bool deduplicate)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "m.dirties = '%c' AND m.epoch = $1", DR_DIRTIES_DAILY);

	/* another row of its event is looked for by plain equality */
	if (deduplicate)
		for (int i = 0; i < def->ndedup; i++)
			appendStringInfo(&buf, " AND NOT (%s)",
							 dr_phrase_is_null(def->events[def->dedup_by[i]].type,
											   psprintf("m.e%d", def->dedup_by[i] + 1)));
	return buf.data;
}

/* How many rows may be merged, the least and the greatest of their times. */
char *
dr_query_added_times(const DrDefinition *def, const DrRollup *rollup, bool deduplicate)
{
	return psprintf("SELECT pg_catalog.count(*), pg_catalog.min(m.e1), pg_catalog.max(m.e1)"
					" FROM %s m WHERE %s", dr_phrase_relation(rollup->marks),
					may_be_merged(def, deduplicate));
}

/* These rows, with their keys: DR_QUERY_ADDED. */
char *
dr_query_added(const DrDefinition *def, const DrRollup *rollup, bool deduplicate)
{
	return psprintf("SELECT %s, %s FROM %s m WHERE %s", mark_keys(def, "m"),
					dr_phrase_join(dr_phrase_numbered("m", 'e', def->nevents), def->nevents, ", "),
					dr_phrase_relation(rollup->marks), may_be_merged(def, deduplicate));
}

/* " UNION SELECT …": the keys of DR_QUERY_ADDED with an event of which the
 * source has more rows, or fewer; $2 and $3 are the ends of the rows' times. */
static void
append_known_before(StringInfo buf, const DrDefinition *def)
{
	const char *time = quote_identifier(def->events[0].source_name);
	char	  **columns = palloc(def->ndedup * sizeof(char *));
	char	   *keys = mark_keys(def, "a");
	char	   *events;

	for (int i = 0; i < def->ndedup; i++)
		columns[i] = psprintf("a.e%d", def->dedup_by[i] + 1);
	events = dr_phrase_join(columns, def->ndedup, ", ");
	appendStringInfo(buf, " UNION SELECT %s FROM (SELECT %s, %s, pg_catalog.count(*) AS n FROM "
					 DR_QUERY_ADDED " a GROUP BY %s, %s) a LEFT JOIN %s%s s"
					 " ON s.%s >= $2 AND s.%s <= $3",
					 keys, keys, events, keys, events, def->partitioned ? "" : "ONLY ",
					 dr_phrase_relation(def->source), time, time);
	for (int i = 0; i < def->ndedup; i++)
	{
		const DrEventColumn *event = &def->events[def->dedup_by[i]];

		appendStringInfo(buf, " AND s.%s %s %s", quote_identifier(event->source_name),
						 dr_phrase_equality(event->type), columns[i]);
	}
	appendStringInfo(buf, " GROUP BY %s, %s, a.n HAVING pg_catalog.count(s.%s) <> a.n",
					 keys, events, time);
}

/*
 * The marked keys, those of that kind, that are to be recomputed: a mark has no
 * row that may be merged, or a row is one of an event that was there before.
 */
char *
dr_query_waiting(const DrDefinition *def, const DrRollup *rollup, char dirties, bool deduplicate)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT %s%s FROM %s m WHERE (%s) IS NOT TRUE",
					 deduplicate ? "" : "DISTINCT ", mark_keys(def, "m"),
					 dr_phrase_relation(rollup->marks), may_be_merged(def, deduplicate));
	if (dirties != 0)
		appendStringInfo(&buf, " AND m.dirties = '%c'", dirties);
	if (deduplicate)
		append_known_before(&buf, def);
	return buf.data;
}

/* Recompute the keys in DR_QUERY_WAITING from their history before "upper". */
char *
dr_query_recompute_waiting(const DrDefinition *def, const DrRollup *rollup, Oid table,
						   const char *upper)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "WITH waiting AS MATERIALIZED (SELECT w.* FROM "
						   DR_QUERY_WAITING " w)");
	dr_change_append_recompute(&buf, def, rollup, table, upper);
	appendStringInfoString(&buf, " SELECT pg_catalog.count(*) FROM waiting");
	return buf.data;
}

/*
 * Merge the rows in DR_QUERY_ADDED into the table, but for those of keys that
 * wait; of each event the one that counts.  A row of a key that waits may not be
 * there any more: OFFSET keeps the WHERE, which may raise an error, away from it.
 */
char *
dr_query_merge_added(const DrDefinition *def, const DrRollup *rollup, Oid table,
					 bool deduplicate)
{
	StringInfoData events;
	StringInfoData content;
	StringInfoData buf;
	char	   *by = deduplicate ? dr_phrase_dedup_columns(def, false) : NULL;

	initStringInfo(&events);
	appendStringInfoString(&events, "(SELECT ");
	if (deduplicate)
		appendStringInfo(&events, "DISTINCT ON (%s) ", by);
	appendStringInfo(&events, "%s FROM (SELECT ", dr_phrase_event_columns(def));
	for (int i = 0; i < def->nevents; i++)
		appendStringInfo(&events, "%sa.e%d AS %s", i == 0 ? "" : ", ", i + 1,
						 quote_identifier(def->events[i].name));
	appendStringInfo(&events, " FROM " DR_QUERY_ADDED " a WHERE NOT EXISTS (SELECT FROM "
					 DR_QUERY_WAITING " w WHERE %s) OFFSET 0) e",
					 dr_phrase_record_equal(def, rollup->key_type, dr_phrase_mark_key(def, "w"),
											dr_phrase_mark_key(def, "a")));
	if (deduplicate)
		appendStringInfo(&events, " ORDER BY %s%s", by, dr_phrase_dedup_order(def, false));
	appendStringInfoChar(&events, ')');

	initStringInfo(&content);
	dr_phrase_append_content_of(&content, def, events.data, " ", NULL);
	initStringInfo(&buf);
	dr_change_append_merge(&buf, def, table, content.data);
	return buf.data;
}

/* How many keys the rows in DR_QUERY_ADDED and those that wait have. */
char *
dr_query_count_added(const DrDefinition *def)
{
	return psprintf("SELECT pg_catalog.count(*) FROM (SELECT %s FROM " DR_QUERY_ADDED " a"
					" UNION SELECT %s FROM " DR_QUERY_WAITING " w) k",
					mark_keys(def, "a"), mark_keys(def, "w"));
}

/* How many keys wait; no more than $1 are counted. */
char *
dr_query_count_late(const DrDefinition *def, const DrRollup *rollup, char dirties)
{
	return psprintf("SELECT pg_catalog.count(*) FROM (SELECT DISTINCT %s FROM %s m%s LIMIT $1) w",
					dr_phrase_join(dr_phrase_mark_key(def, "m"), def->nkeys, ", "),
					dr_phrase_relation(rollup->marks), of_kind(dirties));
}

/* The waiting keys as jsonb, with the number and the first time of their marks. */
char *
dr_query_list_late(const DrDefinition *def, const DrRollup *rollup, char dirties)
{
	char	   *keys = dr_phrase_join(dr_phrase_mark_key(def, "m"), def->nkeys, ", ");

	return psprintf("SELECT %s, m.n, m.since FROM (SELECT %s, pg_catalog.count(*) AS n,"
					" pg_catalog.min(m.since) AS since FROM %s m%s GROUP BY %s) m",
					dr_phrase_key_json(def, dr_phrase_mark_key(def, "m")), keys,
					dr_phrase_relation(rollup->marks), of_kind(dirties), keys);
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
	dr_phrase_append_content_of(&buf, def, events.data, "\n", NULL);
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

/* The least time from $1 on, not -infinity. */
char *
dr_query_first_time(const DrDefinition *def)
{
	const char *time = quote_identifier(def->events[0].source_name);

	return psprintf("SELECT pg_catalog.min(s.%s) FROM ONLY %s s WHERE s.%s >= $1"
					" AND s.%s > '-infinity'", time, dr_phrase_relation(def->source), time, time);
}

/* rows, keys, keys with more than one row, rows beyond one a key */
char *
dr_query_count(const DrDefinition *def, Oid table)
{
	return psprintf("SELECT coalesce(pg_catalog.sum(g.n), 0)::pg_catalog.int8,"
					" pg_catalog.count(*),"
					" pg_catalog.count(*) FILTER (WHERE g.n > 1),"
					" coalesce(pg_catalog.sum(g.n - 1), 0)::pg_catalog.int8"
					" FROM (SELECT pg_catalog.count(*) AS n FROM ONLY %s l GROUP BY %s) g",
					dr_phrase_relation(table),
					dr_phrase_columns(def, "l", true, false));
}
