/*
 * compare.c
 *		Statements that compare live with what it should be.
 *
 * Live's rows ("l") are joined with those of the other, "daily" side ("d") by
 * key, NULLs equal.  Left out are keys that wait for a recompute, and those of
 * several rows on a side: each of these is a "duplicate", wrong whatever the
 * other side has, and compared no further (five equal copies would otherwise
 * look equal).
 *
 * The result has the columns of rollup_diff.
 */
#include "compare.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "phrase.h"

/* A comparison's daily side, and what is left out of it. */
typedef struct Sides
{
	const char *daily;			/* SELECT of the definition's columns */
	const char *daily_table;	/* the table whose keys may be there twice, or NULL */
	const char *left_out;		/* SELECT of one column "key", of type key_<id> */
} Sides;

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


/* " OR <differs>" of each measure, and an array of the names of those that do. */
static char *
any_differs(const DrDefinition *def)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < def->ncolumns; i++)
		if (!def->columns[i].is_key)
			appendStringInfo(&buf, " OR %s", differs(&def->columns[i]));
	return buf.data;
}

static char *
differing_names(const DrDefinition *def)
{
	StringInfoData buf;
	bool		first = true;

	initStringInfo(&buf);
	for (int i = 0; i < def->ncolumns; i++)
		if (!def->columns[i].is_key)
			dr_phrase_append_item(&buf, &first,
								  psprintf("CASE WHEN %s THEN %s::pg_catalog.name END",
										   differs(&def->columns[i]),
										   quote_literal_cstr(def->columns[i].name)));
	return psprintf("pg_catalog.array_remove(ARRAY[%s], NULL)", buf.data);
}

/* "name AS (…)": the keys of several rows in that table, with one of the rows. */
static char *
duplicated(const DrDefinition *def, const DrRollup *rollup, const char *name,
		   const char *table)
{
	return psprintf("%s AS (SELECT %s AS key, pg_catalog.count(*) AS n,"
					" pg_catalog.min(l.ctid) AS first FROM ONLY %s l GROUP BY 1"
					" HAVING pg_catalog.count(*) > 1)",
					name,
					dr_phrase_key_record(def, rollup->key_type, dr_phrase_live_key(def, "l")),
					table);
}

/* The rows of class "duplicate" of one side. */
static char *
list_duplicated(const DrDefinition *def, const char *name, const char *table, bool live)
{
	char	   *row = row_json(def, "l");

	return psprintf("SELECT 'duplicate', %s, NULL::pg_catalog.name[], %s, %s, u.n"
					" FROM %s u JOIN ONLY %s l ON l.ctid = u.first",
					dr_phrase_key_json(def, dr_phrase_live_key(def, "l")),
					live ? row : "NULL::pg_catalog.jsonb",
					live ? "NULL::pg_catalog.jsonb" : row, name, table);
}

/* One side of the join: its rows, less the keys that are compared no further. */
static char *
side(const DrDefinition *def, const DrRollup *rollup, const char *from, bool daily_table)
{
	char	   *key = dr_phrase_key_record(def, rollup->key_type, dr_phrase_live_key(def, "l"));

	return psprintf("(SELECT %s, %s AS \"dailyrollup key\", true AS \"dailyrollup here\" FROM %s l"
					" WHERE NOT EXISTS (SELECT FROM left_out m WHERE m.key = %s)"
					" AND NOT EXISTS (SELECT FROM twice_in_live u WHERE u.key = %s)%s)",
					dr_phrase_columns(def, "l", true, true), key, from, key, key,
					daily_table ?
					psprintf(" AND NOT EXISTS (SELECT FROM twice_in_daily u WHERE u.key = %s)", key) : "");
}

static char *
compare(const DrDefinition *def, const DrRollup *rollup, const Sides *sides)
{
	char	   *live = dr_phrase_relation(rollup->live);
	bool		daily_table = sides->daily_table != NULL;
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "WITH left_out AS MATERIALIZED (%s), %s%s%s %s%s%s", sides->left_out,
					 duplicated(def, rollup, "twice_in_live", live),
					 daily_table ? ", " : "",
					 daily_table ? duplicated(def, rollup, "twice_in_daily", sides->daily_table) : "",
					 list_duplicated(def, "twice_in_live", live, true),
					 daily_table ? " UNION ALL " : "",
					 daily_table ? list_duplicated(def, "twice_in_daily", sides->daily_table, false) : "");
	appendStringInfo(&buf, " UNION ALL"
					 " SELECT CASE WHEN d.\"dailyrollup here\" IS NULL THEN 'missing_daily'"
					 " WHEN l.\"dailyrollup here\" IS NULL THEN 'missing_live' ELSE 'mismatch' END,"
					 " CASE WHEN l.\"dailyrollup here\" THEN %s ELSE %s END,"
					 " CASE WHEN l.\"dailyrollup here\" AND d.\"dailyrollup here\" THEN %s END,"
					 " CASE WHEN l.\"dailyrollup here\" THEN %s END,"
					 " CASE WHEN d.\"dailyrollup here\" THEN %s END, NULL::pg_catalog.int8",
					 dr_phrase_key_json(def, dr_phrase_live_key(def, "l")),
					 dr_phrase_key_json(def, dr_phrase_live_key(def, "d")),
					 differing_names(def), row_json(def, "l"), row_json(def, "d"));
	appendStringInfo(&buf, " FROM %s l FULL JOIN %s d"
					 " ON l.\"dailyrollup key\" = d.\"dailyrollup key\""
					 " WHERE l.\"dailyrollup here\" IS NULL OR d.\"dailyrollup here\" IS NULL%s",
					 side(def, rollup, psprintf("ONLY %s", live), daily_table),
					 side(def, rollup, psprintf("(%s)", sides->daily), daily_table),
					 any_differs(def));
	return buf.data;
}

/* The keys with marks of that kind; 0: of any */
static char *
marked(const DrDefinition *def, const DrRollup *rollup, char dirties)
{
	return psprintf("SELECT DISTINCT %s AS key FROM %s m%s",
					dr_phrase_key_record(def, rollup->key_type, dr_phrase_mark_key(def, "m")),
					dr_phrase_relation(rollup->marks),
					dirties == 0 ? "" : psprintf(" WHERE m.dirties = '%c'", dirties));
}

/* Live against the definition before "upper" (NULL: all), without the keys
 * that have marks of that kind. */
char *
dr_compare_verify(const DrDefinition *def, const DrRollup *rollup, char dirties,
				  const char *upper)
{
	DrScope		scope = {.relation = def->source, .upper = upper};
	Sides		sides = {
		.daily = dr_phrase_content(def, &scope, def->ndedup > 0),
		.left_out = marked(def, rollup, dirties)
	};

	return compare(def, rollup, &sides);
}

/* The shadow united with the tail since $1. */
static char *
shadow_through_now(const DrDefinition *def, const char *shadow, const char *tail)
{
	StringInfoData buf;
	bool		first = true;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "SELECT ");
	for (int i = 0; i < def->ncolumns; i++)
	{
		const DrColumn *column = &def->columns[i];
		const char *name = quote_identifier(column->name);

		dr_phrase_append_item(&buf, &first, column->is_key ? psprintf("u.%s", name) :
							  psprintf("%s AS %s", dr_phrase_merged(def, column, "u"), name));
	}
	appendStringInfo(&buf, " FROM (SELECT %s FROM ONLY %s l UNION ALL %s) u GROUP BY %s",
					 dr_phrase_columns(def, "l", true, true), shadow, tail,
					 dr_phrase_join(dr_phrase_live_key(def, "u"), def->nkeys, ", "));
	return buf.data;
}

/*
 * Live against the shadow, whose watermark is $1, without the keys that wait.
 * "through_now": against the shadow united with the tail; else without the
 * keys that have rows in the tail.
 */
char *
dr_compare_diff(const DrDefinition *def, const DrRollup *rollup, bool through_now)
{
	DrScope		scope = {.relation = def->source, .lower = "$1"};
	char	   *shadow = dr_phrase_relation(rollup->shadow);
	char	   *tail = dr_phrase_content(def, &scope, def->ndedup > 0);
	Sides		sides = {.daily_table = shadow, .left_out = marked(def, rollup, 0)};

	if (through_now)
		sides.daily = shadow_through_now(def, shadow, tail);
	else
	{
		sides.daily = psprintf("SELECT %s FROM ONLY %s l",
							   dr_phrase_columns(def, "l", true, true), shadow);
		sides.left_out = psprintf("%s UNION SELECT %s FROM (%s) t", sides.left_out,
								  dr_phrase_key_record(def, rollup->key_type,
													   dr_phrase_live_key(def, "t")),
								  tail);
	}
	return compare(def, rollup, &sides);
}

/* One row: how many differences of each class, and up to ten of their keys. */
char *
dr_compare_count(const char *comparison)
{
	return psprintf("WITH d(class, key, columns, live, daily, copies) AS MATERIALIZED (%s)"
					" SELECT pg_catalog.count(*) FILTER (WHERE class = 'missing_daily'),"
					" pg_catalog.count(*) FILTER (WHERE class = 'missing_live'),"
					" pg_catalog.count(*) FILTER (WHERE class = 'mismatch'),"
					" pg_catalog.count(*) FILTER (WHERE class = 'duplicate'),"
					" (SELECT pg_catalog.string_agg(t.line, E'\n') FROM"
					" (SELECT pg_catalog.concat_ws(' ', class, key, columns) AS line FROM d LIMIT 10) t)"
					" FROM d", comparison);
}
