/*
 * folding.c
 *		Statements that keep live while each write is folded into it.
 *
 * Inserts alone, where no event can be there twice, are merged by one
 * statement (add).  Else the keys' rows are locked first (lock), and a second
 * statement, whose snapshot is therefore newer than whatever others have done
 * to these keys, decides for each event and key what there is to do (apply):
 *
 *		all rows of the event are new			merge the one that counts
 *		an old row of the event counts			nothing
 *		a new row counts instead of an old one	recompute the key
 *		a row was changed or deleted			recompute the key
 *		live did not have the key				recompute the key
 *
 * Where a batch is held in memory (gather.c), but the keys cannot be locked
 * without a statement (seize.c), the lock is had by one that proposes what the
 * batch gives (propose); what is decided is then written by two others (update,
 * recompute).
 *
 * Keys are always taken in their own order, so that two transactions never
 * wait for each other.  A key that is not there is locked by a row of it, a
 * placeholder, which the second statement overwrites or deletes.
 */
#include "folding.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "change.h"
#include "duplicates.h"
#include "phrase.h"
#include "query.h"

/* The rows that were written, those with a time; "condition" begins with AND. */
static char *
rows(const DrDefinition *def, const char *condition)
{
	return psprintf("(SELECT e.* FROM " DR_FOLDING_ROWS " e WHERE e.%s IS NOT NULL%s)",
					quote_identifier(def->events[0].name), condition);
}

#define ADDED		" AND e.\"" DR_FOLDING_ADDED "\""
#define TOUCHED		" AND NOT e.\"" DR_FOLDING_ADDED "\""

/* "SELECT <key> AS k1, …": the keys of events over "e", of "from" if not NULL */
static char *
keys_of(const DrDefinition *def, const char *from)
{
	char	  **event = dr_phrase_event_key(def);
	StringInfoData buf;
	bool		first = true;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "SELECT ");
	for (int i = 0; i < def->nkeys; i++)
		dr_phrase_append_item(&buf, &first, psprintf("%s AS k%d", event[i], i + 1));
	if (from != NULL)
		appendStringInfo(&buf, " FROM %s", from);
	return buf.data;
}

static char *
content_of(const DrDefinition *def, const char *from)
{
	StringInfoData buf;

	initStringInfo(&buf);
	dr_phrase_append_content_of(&buf, def, from, " ", NULL);
	return buf.data;
}

/* "ORDER BY 1, 2": by the key's columns, in the order of the definition */
static char *
by_key(const DrDefinition *def)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < def->nkeys; i++)
		appendStringInfo(&buf, "%s%d", i == 0 ? "ORDER BY " : ", ", def->keys[i] + 1);
	return buf.data;
}

/*
 * Does a merge of this measure need the times to differ?  The constant of
 * coalesce(latest(v, t), constant) may hide a NULL, which at equal times would
 * lose to any value, as the constant does not.
 */
static bool
is_blind_at_ties(const DrColumn *column)
{
	return !column->is_key && column->otherwise != NULL &&
		(column->kind == DR_LATEST || column->kind == DR_EARLIEST);
}

bool
dr_folding_is_blind_at_ties(const DrDefinition *def)
{
	for (int i = 0; i < def->ncolumns; i++)
		if (is_blind_at_ties(&def->columns[i]))
			return true;
	return false;
}

/* Must keys be locked before anything is known of them?  With inserts alone
 * they need not where no event can be there twice, and a merge tells all. */
bool
dr_folding_needs_locks(const DrDefinition *def)
{
	return dr_duplicates_are_possible(def) || dr_folding_is_blind_at_ties(def);
}

/*
 * " UNION SELECT …": the keys whose added rows are not strictly beyond what is
 * stored, for a measure that is blind at ties; keys with a NULL in any case.
 */
static void
append_tied_keys(StringInfo buf, const DrDefinition *def, const DrRollup *rollup,
				 const DrColumn *column)
{
	char	  **key = dr_phrase_mark_key(def, "k");
	char	   *null = dr_phrase_any_null(def, key, false);

	appendStringInfo(buf, " UNION SELECT %s FROM (SELECT t.*, %s AS \"dailyrollup at\""
					 " FROM %s e CROSS JOIN LATERAL (%s) t) k WHERE %s"
					 " OR EXISTS (SELECT FROM ONLY %s l WHERE %s"
					 " AND NOT coalesce(k.\"dailyrollup at\" %s l.%s, false))",
					 dr_phrase_join(key, def->nkeys, ", "),
					 dr_phrase_expression(def, column->at), rows(def, ADDED),
					 keys_of(def, NULL), null,
					 dr_phrase_relation(rollup->live),
					 dr_phrase_plainly_equal(def, dr_phrase_live_key(def, "l"), key),
					 column->kind == DR_LATEST ? ">" : "<",
					 quote_identifier(def->columns[column->at_column].name));
}

/* Merge the rows, all of them inserted. */
char *
dr_folding_add(const DrDefinition *def, const DrRollup *rollup)
{
	StringInfoData buf;

	initStringInfo(&buf);
	dr_change_append_merge(&buf, def, rollup->live,
						   psprintf("SELECT * FROM (%s) c %s",
									content_of(def, rows(def, "")), by_key(def)));
	return buf.data;
}

/*
 * May a placeholder hold NULLs for measures?  Not where the table, or the type of
 * a measure, forbids it.
 */
bool
dr_folding_nulls_allowed(const DrDefinition *def, Oid table)
{
	Relation	rel = table_open(table, NoLock);
	bool		allowed = true;

	for (int i = 0; i < def->ncolumns; i++)
	{
		const DrColumn *column = &def->columns[i];
		AttrNumber	attno = get_attnum(table, column->name);

		if (!column->is_key &&
			(get_typtype(column->type) == TYPTYPE_DOMAIN ||
			 (attno != InvalidAttrNumber &&
			  TupleDescAttr(RelationGetDescr(rel), attno - 1)->attnotnull)))
			allowed = false;
	}
	table_close(rel, NoLock);
	return allowed;
}

/* "SELECT <key>, NULL, …" of "w", under the names of the definition */
static char *
key_and_nulls(const DrDefinition *def, const char *from)
{
	char	  **key = dr_phrase_mark_key(def, "w");
	StringInfoData buf;
	bool		first = true;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "SELECT ");
	for (int i = 0, k = 0; i < def->ncolumns; i++)
	{
		const DrColumn *column = &def->columns[i];

		dr_phrase_append_item(&buf, &first, column->is_key ? key[k++] :
							  psprintf("CAST(NULL AS %s)",
									   dr_phrase_type(column->type, column->typmod)));
	}
	appendStringInfo(&buf, " FROM %s", from);
	return buf.data;
}

/* The definition without its WHERE. */
static DrDefinition
without_where(const DrDefinition *def)
{
	DrDefinition all = *def;

	all.where = NULL;
	return all;
}

/*
 * "That key is one of those of "from"", or is none.  A plan that is kept must
 * not depend on estimates, which know nothing of CTEs: it hashes them in any
 * case.  Where there are many, they may not fit into memory.
 */
static char *
among(const DrDefinition *def, const DrRollup *rollup, char **key, char **others,
	  const char *from, bool in, bool many)
{
	char	   *record = dr_phrase_key_record(def, rollup->key_type, key);
	char	   *set = dr_phrase_key_record(def, rollup->key_type, others);

	if (many)
		return psprintf("%sEXISTS (SELECT FROM %s WHERE %s OPERATOR(pg_catalog.=) %s)",
						in ? "" : "NOT ", from, record, set);
	/* coalesce: else the parser compares column by column, and loses NULLs */
	return psprintf("(coalesce(%s) OPERATOR(pg_catalog.=) ANY (SELECT %s FROM %s)) IS %sTRUE",
					record, set, from, in ? "" : "NOT ");
}

/*
 * "INSERT …" that locks live's rows of the keys in "waiting" (a CTE in "with"),
 * and adds a placeholder for those that it does not have: "content", a SELECT
 * of the definition's columns, or "otherwise" for keys that this leaves out.
 * What is proposed for a key that live has is its own row, for live's checks
 * come before the conflict.
 */
static char *
lock_rows(const DrDefinition *def, const DrRollup *rollup, const char *with,
		  const char *content, const char *otherwise, bool many)
{
	const char *first_key = quote_identifier(dr_phrase_key(def, 0)->name);
	char	   *columns = dr_phrase_columns(def, NULL, true, true);

	return psprintf("WITH %s, stored AS MATERIALIZED (%s),"
					" waiting AS MATERIALIZED (SELECT w.* FROM wanted w"
					" WHERE %s),"
					" content(%s) AS MATERIALIZED (%s)"
					" INSERT INTO %s AS l (%s) SELECT * FROM ("
					"SELECT * FROM stored UNION ALL SELECT * FROM content UNION ALL %s) c(%s) %s"
					" ON CONFLICT (%s) DO UPDATE SET %s = l.%s WHERE false",
					with, dr_change_stored(def, rollup, "wanted"),
					among(def, rollup, dr_phrase_mark_key(def, "w"), dr_phrase_live_key(def, "l"),
						  "stored l", false, many),
					columns, content,
					dr_phrase_relation(rollup->live), columns,
					otherwise, columns, by_key(def),
					dr_phrase_columns(def, NULL, true, false), first_key, first_key);
}

/* The keys of "waiting" that "content" leaves out. */
static char *
left_out(const DrDefinition *def, const DrRollup *rollup, bool many)
{
	return among(def, rollup, dr_phrase_mark_key(def, "w"), dr_phrase_live_key(def, "f"),
				 "content f", false, many);
}

/* The rows that were written of keys in "waiting". */
static char *
rows_of_waiting(const DrDefinition *def, const DrRollup *rollup, const char *which, bool many)
{
	return rows(def, psprintf(" AND %s",
							  among(def, rollup, dr_phrase_event_key(def),
									dr_phrase_mark_key(def, "w"),
									psprintf("waiting w%s", which), true, many)));
}

/*
 * Lock live's rows of the written keys; returns the keys that it did not have,
 * and has now.  A placeholder has the content of the rows at hand.  Where
 * WHERE leaves them all out it has NULLs, or, where these are not allowed, what
 * the rows would give without the WHERE.
 */
char *
dr_folding_lock(const DrDefinition *def, const DrRollup *rollup, bool many)
{
	DrDefinition all = without_where(def);
	char	   *otherwise = dr_folding_nulls_allowed(def, rollup->live) ?
		psprintf("%s WHERE %s", key_and_nulls(def, "waiting w"), left_out(def, rollup, many)) :
		content_of(&all, rows_of_waiting(def, rollup,
										 psprintf(" WHERE %s", left_out(def, rollup, false)),
										 false));

	return psprintf("%s RETURNING %s",
					lock_rows(def, rollup,
							  psprintf("wanted AS MATERIALIZED (SELECT DISTINCT k.* FROM (%s e) k)",
									   keys_of(def, rows(def, ""))),
							  content_of(def, rows_of_waiting(def, rollup, "", many)),
							  otherwise, many),
					dr_phrase_join(dr_phrase_live_key(def, "l"), def->nkeys, ", "));
}

/* "c.a = s.a AND …" of the columns of dedup_by, for events without a NULL there */
static char *
same_event(const DrDefinition *def, bool nulls)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < def->ndedup; i++)
	{
		const DrEventColumn *event = &def->events[def->dedup_by[i]];
		char	   *stored = psprintf("s.%s", quote_identifier(event->source_name));
		char	   *wanted = psprintf("c.%s", quote_identifier(event->name));
		char	   *equal = psprintf("%s %s %s", stored, dr_phrase_equality(event->type), wanted);

		if (nulls && !event->not_null && def->dedup_by[i] != 0)
			equal = psprintf("(%s OR %s AND %s)", equal,
							 dr_phrase_is_null(event->type, stored),
							 dr_phrase_is_null(event->type, wanted));
		appendStringInfo(&buf, "%s%s", i == 0 ? "" : " AND ", equal);
	}
	return buf.data;
}

/* "(c.a IS NULL OR …)" of the columns of dedup_by that may be; NULL: none */
static char *
event_has_null(const DrDefinition *def)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < def->ndedup; i++)
	{
		const DrEventColumn *event = &def->events[def->dedup_by[i]];

		if (!event->not_null && def->dedup_by[i] != 0)
			appendStringInfo(&buf, "%s%s", buf.len == 0 ? "(" : " OR ",
							 dr_phrase_is_null(event->type,
											   psprintf("c.%s", quote_identifier(event->name))));
	}
	if (buf.len == 0)
		return NULL;
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/* The source's rows of the events in "candidates". */
static void
append_stored_rows(StringInfo buf, const DrDefinition *def, bool nulls)
{
	appendStringInfoString(buf, "SELECT ");
	dr_phrase_append_named_columns(buf, def, true);
	appendStringInfo(buf, ", false AS \"dailyrollup fresh\" FROM candidates c JOIN %s%s s ON %s",
					 def->partitioned ? "" : "ONLY ", dr_phrase_relation(def->source),
					 same_event(def, nulls));
	if (nulls)
		appendStringInfo(buf, " WHERE (SELECT EXISTS (SELECT FROM candidates c WHERE %s)) AND %s",
						 event_has_null(def), event_has_null(def));
}

/*
 * CTE "best": of each event that was inserted the row that counts, if that is a
 * new one, with the number of rows that the source has of the event, and of
 * those that are new.
 *
 * The source's rows include the new ones, so a row that counts is also an old
 * one where the source has it more often than it was inserted.
 */
static void
append_best(StringInfo buf, const DrDefinition *def)
{
	char	   *event = dr_phrase_dedup_columns(def, false);
	char	   *order = dr_phrase_dedup_order(def, false);

	appendStringInfo(buf, ", candidates AS MATERIALIZED (SELECT DISTINCT %s FROM %s e), found AS (",
					 event, rows(def, ADDED));
	append_stored_rows(buf, def, false);
	if (event_has_null(def) != NULL)
	{
		appendStringInfoString(buf, " UNION ALL ");
		append_stored_rows(buf, def, true);
	}
	appendStringInfo(buf, " UNION ALL SELECT %s, true FROM %s e),"
					 " ranked AS (SELECT e.*, pg_catalog.row_number() OVER best AS \"dailyrollup n\","
					 " pg_catalog.count(*) FILTER (WHERE NOT \"dailyrollup fresh\") OVER event AS \"dailyrollup stored_rows\","
					 " pg_catalog.count(*) FILTER (WHERE \"dailyrollup fresh\") OVER event AS \"dailyrollup fresh_rows\","
					 " pg_catalog.count(*) FILTER (WHERE NOT \"dailyrollup fresh\") OVER equal AS \"dailyrollup stored_equal\","
					 " pg_catalog.count(*) FILTER (WHERE \"dailyrollup fresh\") OVER equal AS \"dailyrollup fresh_equal\""
					 " FROM found e WINDOW event AS (PARTITION BY %s),"
					 " best AS (PARTITION BY %s ORDER BY %s%s),"
					 " equal AS (PARTITION BY %s ORDER BY %s%s"
					 " RANGE BETWEEN CURRENT ROW AND CURRENT ROW)),"
					 " best AS MATERIALIZED (SELECT * FROM ranked"
					 " WHERE \"dailyrollup n\" = 1"
					 " AND \"dailyrollup stored_equal\" <= \"dailyrollup fresh_equal\")",
					 dr_phrase_event_columns(def), rows(def, ADDED),
					 event, event, event, order, event, event, order);
}

/*
 * Bring the locked keys to the source's content.  DR_FOLDING_KEYS are those
 * that live did not have.
 */
char *
dr_folding_apply(const DrDefinition *def, const DrRollup *rollup, bool many)
{
	bool		deduplicate = dr_duplicates_are_possible(def);
	char	   *unheard = among(def, rollup, dr_phrase_event_key(def),
								dr_phrase_mark_key(def, "w"), "waiting w", false, many);
	char	   *adds;
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "WITH touched AS (%s e)", keys_of(def, rows(def, TOUCHED)));
	if (deduplicate)
		append_best(&buf, def);
	appendStringInfoString(&buf, ", waiting AS MATERIALIZED (SELECT * FROM touched"
						   " UNION SELECT * FROM " DR_FOLDING_KEYS);
	if (deduplicate)
		appendStringInfo(&buf, " UNION %s", keys_of(def, "best e WHERE e.\"dailyrollup stored_rows\" > e.\"dailyrollup fresh_rows\""));
	for (int i = 0; i < def->ncolumns; i++)
		if (is_blind_at_ties(&def->columns[i]))
			append_tied_keys(&buf, def, rollup, &def->columns[i]);
	appendStringInfoChar(&buf, ')');
	dr_change_append_recompute(&buf, def, rollup, rollup->live, NULL);

	adds = deduplicate ?
		psprintf("(SELECT e.* FROM best e WHERE"
				 " e.\"dailyrollup stored_rows\" <= e.\"dailyrollup fresh_rows\" AND %s)", unheard) :
		rows(def, psprintf(ADDED " AND %s", unheard));
	appendStringInfoString(&buf, ", merged AS (");
	dr_change_append_merge(&buf, def, rollup->live, content_of(def, adds));
	appendStringInfoString(&buf, ") SELECT pg_catalog.count(*) FROM waiting");
	return buf.data;
}

/* -------------------------------------------- of what is gathered in memory */

/*
 * Does live, or the shadow, take any row with a new key, whatever its measures
 * are?  Then one may be proposed for a key that it has.
 */
bool
dr_folding_takes_any(const DrDefinition *def, Oid table)
{
	Relation	rel = table_open(table, NoLock);
	TupleConstr *constraints = RelationGetDescr(rel)->constr;
	bool		any = (constraints == NULL ||
					   (constraints->num_check == 0 && constraints->num_defval == 0)) &&
		(rel->trigdesc == NULL || !rel->trigdesc->trig_insert_before_row);

	table_close(rel, NoLock);
	return any && dr_folding_nulls_allowed(def, table);
}

/*
 * Lock live's rows of the keys in DR_FOLDING_CONTENT; it gets those that it
 * does not have, whose keys are returned.  Each row that it has is told by a
 * call of _locked, once it is locked; $1 is the proof.
 */
char *
dr_folding_propose(const DrDefinition *def, const DrRollup *rollup)
{
	const char *first_key = quote_identifier(dr_phrase_key(def, 0)->name);

	return psprintf("INSERT INTO %s AS l (%s) SELECT %s FROM " DR_FOLDING_CONTENT " c %s"
					" ON CONFLICT (%s) DO UPDATE SET %s = l.%s"
					" WHERE " DR_SCHEMA "._locked($1, l.ctid, ROW(%s)) RETURNING %s",
					dr_phrase_relation(rollup->live), dr_phrase_columns(def, NULL, true, true),
					dr_phrase_columns(def, "c", true, true), by_key(def),
					dr_phrase_columns(def, NULL, true, false), first_key, first_key,
					dr_phrase_columns(def, "l", true, true),
					dr_phrase_join(dr_phrase_live_key(def, "l"), def->nkeys, ", "));
}

/* The source's rows of the events in DR_FOLDING_EVENTS, with their numbers. */
char *
dr_folding_find(const DrDefinition *def)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "SELECT c.\"" DR_FOLDING_NUMBER "\", ");
	dr_phrase_append_named_columns(&buf, def, true);
	appendStringInfo(&buf, " FROM " DR_FOLDING_EVENTS " c JOIN %s%s s ON %s",
					 def->partitioned ? "" : "ONLY ", dr_phrase_relation(def->source),
					 same_event(def, false));
	return buf.data;
}

/* Live's rows of the keys in DR_FOLDING_KNOWN, with their numbers. */
char *
dr_folding_stored(const DrDefinition *def, const DrRollup *rollup)
{
	return psprintf("SELECT k.\"" DR_FOLDING_NUMBER "\", %s FROM " DR_FOLDING_KNOWN " k"
					" JOIN ONLY %s l ON %s",
					dr_phrase_columns(def, "l", true, true), dr_phrase_relation(rollup->live),
					dr_phrase_plainly_equal(def, dr_phrase_live_key(def, "l"),
											dr_phrase_mark_key(def, "k")));
}

/* Live's rows at the places in DR_FOLDING_MERGED get the measures there. */
char *
dr_folding_update(const DrDefinition *def, const DrRollup *rollup)
{
	return psprintf("UPDATE ONLY %s l SET (%s) = ROW(%s) FROM " DR_FOLDING_MERGED " m"
					" WHERE l.ctid = m.\"" DR_FOLDING_PLACE "\"",
					dr_phrase_relation(rollup->live),
					dr_phrase_columns(def, NULL, false, true),
					dr_phrase_columns(def, "m", false, true));
}

/* Bring the locked keys in DR_FOLDING_KEYS to the source's content. */
char *
dr_folding_recompute(const DrDefinition *def, const DrRollup *rollup)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "WITH waiting AS MATERIALIZED (SELECT * FROM " DR_FOLDING_KEYS ")");
	dr_change_append_recompute(&buf, def, rollup, rollup->live, NULL);
	appendStringInfoString(&buf, " SELECT pg_catalog.count(*) FROM waiting");
	return buf.data;
}

/* Mark the keys of the rows; $1 is what the marks dirty. */
char *
dr_folding_mark(const DrDefinition *def, const DrRollup *rollup)
{
	return dr_query_mark_rows(def, rollup, psprintf("SELECT e.* FROM %s e", rows(def, "")));
}

/* ------------------------------------------------------------------- flush */

/* The keys that a backfill has dirtied. */
char *
dr_folding_marked_keys(const DrDefinition *def, const DrRollup *rollup)
{
	return psprintf("SELECT DISTINCT %s FROM %s m WHERE m.dirties = '%c'",
					dr_phrase_join(dr_phrase_mark_key(def, "m"), def->nkeys, ", "),
					dr_phrase_relation(rollup->marks), DR_DIRTIES_LIVE);
}

/*
 * Lock live's rows of DR_FOLDING_KEYS.  A placeholder has the source's content,
 * or NULLs; where these are not allowed, the content without the WHERE, and a
 * key without any row needs no lock.
 */
char *
dr_folding_lock_marked(const DrDefinition *def, const DrRollup *rollup)
{
	DrDefinition all = without_where(def);
	bool		nulls = dr_folding_nulls_allowed(def, rollup->live);

	/* nor does a key that is too long for live's index: no row of it can come */
	return lock_rows(def, rollup, "wanted AS MATERIALIZED (SELECT * FROM " DR_FOLDING_KEYS ")",
					 dr_change_content_of_waiting(nulls ? def : &all, rollup, NULL, NULL),
					 psprintf("%s WHERE %s AND %s", key_and_nulls(def, "waiting w"),
							  left_out(def, rollup, true), nulls ?
							  psprintf("pg_catalog.pg_column_size(ROW(%s)) < 2700",
									   dr_phrase_join(dr_phrase_mark_key(def, "w"), def->nkeys, ", ")) :
							  "false"), true);
}

/* Bring the locked keys to the source's content, and take their marks. */
char *
dr_folding_flush(const DrDefinition *def, const DrRollup *rollup)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "WITH waiting AS MATERIALIZED (SELECT * FROM " DR_FOLDING_KEYS "),"
					 " taken AS (DELETE FROM %s m USING waiting w WHERE m.dirties = '%c' AND %s)",
					 dr_phrase_relation(rollup->marks), DR_DIRTIES_LIVE,
					 dr_phrase_record_equal(def, rollup->key_type,
											dr_phrase_mark_key(def, "m"),
											dr_phrase_mark_key(def, "w")));
	dr_change_append_recompute(&buf, def, rollup, rollup->live, NULL);
	appendStringInfoString(&buf, " SELECT pg_catalog.count(*) FROM waiting");
	return buf.data;
}
