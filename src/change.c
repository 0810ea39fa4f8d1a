/*
 * change.c
 *		Parts of statements that change a rollup's table, or its shadow.
 *
 *		replace		the table's content becomes another one
 *		merge		partial rows are merged into the stored ones
 *		recompute	the keys that wait get the content that the source has
 *
 * Each writes only rows that differ: readers, foreign keys and free space are
 * left alone where nothing changes.
 */
#include "change.h"

#include "duplicates.h"
#include "phrase.h"

/* "ROW(a.m1, …)::record *<> ROW(b.m1, …)::record": their images differ. */
static char *
measures_differ(const DrDefinition *def, const char *left, const char *right)
{
	return psprintf("ROW(%s)::pg_catalog.record OPERATOR(pg_catalog.*<>)"
					" ROW(%s)::pg_catalog.record",
					dr_phrase_columns(def, left, false, true),
					dr_phrase_columns(def, right, false, true));
}

/* "k1, …" */
static char *
mark_columns(const DrDefinition *def)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < def->nkeys; i++)
		appendStringInfo(&buf, "%sk%d", i == 0 ? "" : ", ", i + 1);
	return buf.data;
}

/*
 * A statement that makes the table's content that of "fresh", a SELECT of the
 * definition's columns, whatever the table held.  Needs no index of the table,
 * for that may be what went wrong; nor may the server conclude from one that a
 * key has one row: keys are compared with those of "ranked", which has none.
 * A copy goes before another one is updated, whose new entry in a unique index
 * would meet the copy's.  Returns the number of fresh rows.
 */
char *
dr_change_replace(const DrDefinition *def, const DrRollup *rollup, Oid table,
				  const char *fresh)
{
	char	   *stored_key = dr_phrase_join(dr_phrase_live_key(def, "l"), def->nkeys, ", ");
	char	  **ranked_key = dr_phrase_mark_key(def, "r");
	char	  **fresh_key = dr_phrase_live_key(def, "f");
	char	   *name = dr_phrase_relation(table);
	bool		no_nulls = dr_phrase_any_null(def, fresh_key, true) == NULL;
	char	   *same = dr_phrase_same_key(def, rollup->key_type, ranked_key, fresh_key,
										  no_nulls);

	return psprintf("WITH fresh AS MATERIALIZED (%s),"
					" ranked(tid, n, %s) AS MATERIALIZED (SELECT l.ctid, pg_catalog.row_number()"
					" OVER (PARTITION BY %s), %s FROM ONLY %s l),"
					" surplus AS (DELETE FROM ONLY %s l USING ranked r WHERE l.ctid = r.tid AND r.n > 1"
					" RETURNING r.n),"
					" gone AS (DELETE FROM ONLY %s l USING ranked r WHERE l.ctid = r.tid"
					" AND NOT EXISTS (SELECT FROM fresh f WHERE %s)),"
					" changed AS (UPDATE ONLY %s l SET (%s) = ROW(%s) FROM fresh f, ranked r"
					" WHERE %s AND l.ctid = r.tid AND r.n = 1 AND %s"
					" AND (SELECT pg_catalog.count(*) FROM surplus) >= 0),"
					" added AS (INSERT INTO %s (%s) SELECT %s FROM fresh f"
					" WHERE NOT EXISTS (SELECT FROM ranked r WHERE %s))"
					" SELECT pg_catalog.count(*) FROM fresh",
					fresh,
					mark_columns(def), stored_key, stored_key, name,
					name,
					name, same,
					name, dr_phrase_columns(def, NULL, false, true),
					dr_phrase_columns(def, "f", false, true),
					same, measures_differ(def, "l", "f"),
					name, dr_phrase_columns(def, NULL, true, true),
					dr_phrase_columns(def, "f", true, true),
					same);
}

/*
 * "INSERT … ON CONFLICT …" of partial rows, a SELECT of the definition's
 * columns.  The rows of one key must be one row.
 */
void
dr_change_append_merge(StringInfo buf, const DrDefinition *def, Oid table,
					   const char *partial)
{
	StringInfoData merges;
	bool		first = true;
	char	   *measures = dr_phrase_columns(def, NULL, false, true);

	initStringInfo(&merges);
	for (int i = 0; i < def->ncolumns; i++)
		if (!def->columns[i].is_key)
			dr_phrase_append_item(&merges, &first,
								  dr_phrase_merged(def, &def->columns[i], "v"));

	appendStringInfo(buf, "INSERT INTO %s AS l (%s) %s"
					 " ON CONFLICT (%s) DO UPDATE SET (%s) ="
					 " (SELECT %s FROM (VALUES (%s), (%s)) v(%s))",
					 dr_phrase_relation(table), dr_phrase_columns(def, NULL, true, true),
					 partial,
					 dr_phrase_columns(def, NULL, true, false), measures,
					 merges.data,
					 dr_phrase_columns(def, "l", false, true),
					 dr_phrase_columns(def, "excluded", false, true), measures);
}

/*
 * The content of the keys in "waiting" (k1 .. kn), a CTE of the statement or a
 * relation of that name, from the source's rows from "lower" on and before
 * "upper" (NULL: all).
 *
 * Keys without a NULL are looked up in the source by plain equality, which an
 * index serves; keys with one by a second branch, which runs only where there
 * is such a key.
 */
char *
dr_change_content_of_waiting(const DrDefinition *def, const DrRollup *rollup,
							 const char *lower, const char *upper)
{
	char	  **event = dr_phrase_event_key(def);
	char	  **waiting = dr_phrase_mark_key(def, "w");
	char	   *event_has_null = dr_phrase_any_null(def, event, true);
	DrScope		scope = {
		.relation = def->source,
		.lower = lower,
		.upper = upper,
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
	return dr_phrase_content(def, &scope, dr_duplicates_are_possible(def));
}

/*
 * "SELECT" of live's rows of the keys in a CTE: those without a NULL by live's
 * index, the others by a second branch, which runs only where there is one.
 * What the source declares NOT NULL may still be NULL in live.
 */
char *
dr_change_stored(const DrDefinition *def, const DrRollup *rollup, const char *keys)
{
	char	  **live = dr_phrase_live_key(def, "l");
	char	  **waiting = dr_phrase_mark_key(def, "w");
	char	   *null = dr_phrase_any_null(def, waiting, false);
	char	   *columns = dr_phrase_columns(def, "l", true, true);
	char	   *name = dr_phrase_relation(rollup->live);
	char	   *plain = psprintf("SELECT %s FROM %s w JOIN ONLY %s l ON %s", columns, keys, name,
								 dr_phrase_plainly_equal(def, live, waiting));

	if (null == NULL)
		return plain;
	return psprintf("%s UNION ALL SELECT %s FROM %s w JOIN ONLY %s l ON %s"
					" WHERE (SELECT EXISTS (SELECT FROM %s w WHERE %s)) AND %s",
					plain, columns, keys, name,
					dr_phrase_record_equal(def, rollup->key_type, live, waiting),
					keys, null, null);
}

/*
 * "name AS (DELETE …)" of the keys in the CTE "gone", in two branches likewise.
 */
static void
append_delete_gone(StringInfo buf, const DrDefinition *def, const DrRollup *rollup,
				   const char *table)
{
	char	  **live = dr_phrase_live_key(def, "l");
	char	  **gone = dr_phrase_mark_key(def, "w");
	char	   *null = dr_phrase_any_null(def, gone, false);

	appendStringInfo(buf, ", deleted AS (DELETE FROM ONLY %s l USING gone w WHERE %s)",
					 table, dr_phrase_plainly_equal(def, live, gone));
	if (null != NULL)
		appendStringInfo(buf, ", deleted_null AS (DELETE FROM ONLY %s l USING gone w"
						 " WHERE (SELECT EXISTS (SELECT FROM gone w WHERE %s)) AND %s AND %s)",
						 table, null, null,
						 dr_phrase_record_equal(def, rollup->key_type, live, gone));
}

/*
 * CTEs that follow one named "waiting" (k1 .. kn): each of these keys gets the
 * content that the source's rows before "upper" (NULL: all) give it, or goes
 * where they give none.
 */
void
dr_change_append_recompute(StringInfo buf, const DrDefinition *def,
						   const DrRollup *rollup, Oid table, const char *upper)
{
	char	   *keys = dr_phrase_columns(def, NULL, true, false);
	char	   *name = dr_phrase_relation(table);

	appendStringInfo(buf, ", fresh AS MATERIALIZED (%s),"
					 " gone AS MATERIALIZED (SELECT * FROM waiting w EXCEPT SELECT %s FROM fresh),"
					 " stored AS (INSERT INTO %s AS l (%s) SELECT * FROM fresh"
					 " ON CONFLICT (%s) DO UPDATE SET (%s) = ROW(%s) WHERE %s)",
					 dr_change_content_of_waiting(def, rollup, NULL, upper),
					 keys,
					 name, dr_phrase_columns(def, NULL, true, true),
					 keys, dr_phrase_columns(def, NULL, false, true),
					 dr_phrase_columns(def, "excluded", false, true),
					 measures_differ(def, "l", "excluded"));
	append_delete_gone(buf, def, rollup, name);
}
