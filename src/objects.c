/*
 * objects.c
 *		SQL that makes a rollup's objects, and that changes them when the
 *		user's DDL changes what they depend on.
 */
#include "objects.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"

#include "boundary.h"
#include "phrase.h"

static void
append_column_def(StringInfo buf, const char *name, const DrColumn *column)
{
	appendStringInfo(buf, "%s %s", name, dr_phrase_type(column->type, column->typmod));
	if (OidIsValid(column->collation))
		appendStringInfo(buf, " COLLATE %s", generate_collation_name(column->collation));
}

char *
dr_objects_create_live(const DrDefinition *def, const char *live)
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

	/* free space on each page, so that a refresh updates rows in place; no lock
	 * against readers when a vacuum could give the end of the file back */
	appendStringInfo(&buf, "UNIQUE NULLS NOT DISTINCT (%s)) WITH (fillfactor = 45,"
					 " vacuum_truncate = off)",
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
dr_objects_create_key_type(const DrDefinition *def, int32 id)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE TYPE %s AS (", dr_phrase_own("key", id));
	append_key_defs(&buf, def);
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/* Columns of keys and events that a table of marks has at most. */
#define MAX_MARK_COLUMNS	500

/*
 * May a mark hold the event of its row?  Not one with a domain: that a value is
 * valid is not checked where it is read from the source, but where it is
 * written elsewhere.
 */
bool
dr_objects_mark_holds_event(const DrDefinition *def)
{
	if (def->nkeys + def->nevents > MAX_MARK_COLUMNS)
		return false;
	for (int i = 0; i < def->nevents; i++)
		if (get_typtype(def->events[i].type) == TYPTYPE_DOMAIN)
			return false;
	return true;
}

static void
append_event_defs(StringInfo buf, const DrDefinition *def)
{
	for (int i = 0; i < def->nevents; i++)
	{
		const DrEventColumn *event = &def->events[i];

		appendStringInfo(buf, ", e%d %s", i + 1, dr_phrase_type(event->type, event->typmod));
		if (OidIsValid(event->collation))
			appendStringInfo(buf, " COLLATE %s", generate_collation_name(event->collation));
	}
}

/*
 * The marks and their indexes, none of them unique: two writers that mark one
 * key must not wait for each other.  A writer must never fail either because
 * its key is too long for an index; so the index by key is over "plain" keys
 * alone, and another one lists the few that are not.  "plain" is true or NULL,
 * for the planner takes NULLs for rare where it knows nothing.
 */
char *
dr_objects_create_marks(const DrDefinition *def, int32 id)
{
	StringInfoData buf;
	char	  **names = palloc(def->nkeys * sizeof(char *));
	char	   *marks = dr_phrase_own("marks", id);

	for (int i = 0; i < def->nkeys; i++)
		names[i] = psprintf("k%d", i + 1);
	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE TABLE %s (", marks);
	append_key_defs(&buf, def);
	appendStringInfoString(&buf, ", plain pg_catalog.bool,"
						   " dirties pg_catalog.\"char\","
						   " since pg_catalog.timestamptz DEFAULT pg_catalog.now(),"
						   " epoch pg_catalog.int8");
	if (dr_objects_mark_holds_event(def))
		append_event_defs(&buf, def);
	appendStringInfoString(&buf, ") WITH (vacuum_truncate = off)");
	appendStringInfo(&buf, "; CREATE INDEX ON %s (%s) WHERE plain IS NOT NULL", marks,
					 dr_phrase_join(names, def->nkeys, ", "));
	appendStringInfo(&buf, "; CREATE INDEX ON %s (plain) WHERE plain IS NULL", marks);
	return buf.data;
}

/* What the view events_<id> shows: the deduplicated source. */
char *
dr_objects_events(const DrDefinition *def)
{
	StringInfoData buf;
	DrScope		scope = {.relation = def->source};

	initStringInfo(&buf);
	dr_phrase_append_events(&buf, def, &scope, def->ndedup > 0);
	return buf.data;
}

/* What the view definition_<id> shows: the defining query over that view. */
char *
dr_objects_definition_of(const DrDefinition *def, const char *events)
{
	StringInfoData buf;

	initStringInfo(&buf);
	dr_phrase_append_content_of(&buf, def, events, " ", NULL);
	return buf.data;
}

/* The arguments of _settled and _unmarked: permit, type of the key, key. */
static char *
key_arguments(const DrDefinition *def, const DrRollup *rollup, const char *permit, char **key)
{
	return psprintf("%s, NULL::%s, %s", permit, format_type_be_qualified(rollup->key_type),
					dr_phrase_join(key, def->nkeys, ", "));
}

/* Add the column to the order, unless it is there. */
static void
add_to_order(int *order, int *n, int column)
{
	for (int i = 0; i < *n; i++)
		if (order[i] == column)
			return;
	order[(*n)++] = column;
}

/*
 * The legs' columns in the order in which the planner takes them from there: the
 * keys, then those of each measure as it is merged.  What is in that order
 * already needs no step of its own in the plan, and no projection of its rows.
 */
static int *
legs_order(const DrDefinition *def)
{
	int		   *order = palloc(def->ncolumns * sizeof(int));
	int			n = 0;

	for (int i = 0; i < def->nkeys; i++)
		add_to_order(order, &n, def->keys[i]);
	for (int i = 0; i < def->ncolumns; i++)
	{
		const DrColumn *column = &def->columns[i];

		add_to_order(order, &n, i);
		if (!column->is_key && column->at_column >= 0)
			add_to_order(order, &n, column->at_column);
		if (!column->is_key && column->otherwise != NULL && column->presence >= 0)
			add_to_order(order, &n, column->presence);
	}
	return order;
}

/* The columns in the legs' order; "key" has the keys, in theirs. */
static char *
legs_columns(const DrDefinition *def, char **key, const char *alias)
{
	int		   *order = legs_order(def);
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, dr_phrase_join(key, def->nkeys, ", "));
	for (int i = def->nkeys; i < def->ncolumns; i++)
		appendStringInfo(&buf, ", %s.%s", alias,
						 quote_identifier(def->columns[order[i]].name));
	return buf.data;
}

/* Live, where it counts, without the marked keys. */
static void
append_settled_leg(StringInfo buf, const DrDefinition *def, const DrRollup *rollup,
				   const char *permit)
{
	char	  **key = dr_phrase_live_key(def, "l");

	appendStringInfo(buf, "SELECT %s FROM ONLY %s l WHERE dailyrollup._settled(%s)",
					 legs_columns(def, key, "l"), dr_phrase_relation(rollup->live),
					 key_arguments(def, rollup, permit, key));
}

/*
 * The tail since W, without the marked keys; no tail where live ends now.  The
 * floor is for the planner, who leaves out partitions below it.
 *
 * The condition, of a volatile function, stays above the grouping.  The planner
 * would have it asked for each row of the source, those included that WHERE
 * leaves out, for which the key may be an error.
 */
static void
append_tail_leg(StringInfo buf, const DrDefinition *def, const DrRollup *rollup,
				const char *live_literal, const char *permit)
{
	const char *type = dr_boundary_type_name(def->time_kind);
	DrScope		scope = {
		.relation = def->source,
		.floor = psprintf("dailyrollup._w_floor_%s(%s, false)", type, live_literal),
		.lower = psprintf("dailyrollup._tail_from_%s(%s)", type, live_literal)
	};

	appendStringInfo(buf, "%s HAVING dailyrollup._unmarked(%s)",
					 dr_phrase_content_in_order(def, &scope, def->ndedup > 0, legs_order(def)),
					 key_arguments(def, rollup, permit, dr_phrase_event_key(def)));
}

/*
 * Each marked key, from its whole history: the function has a row for the first
 * of the key's marks that count.  This leg comes first, for it verifies the floor
 * that the tail's plan relies on; below, where rows are narrow.
 */
static void
append_marked_leg(StringInfo buf, const DrDefinition *def, const DrRollup *rollup,
				  const char *live_literal, const char *permit, bool shows_left_alone)
{
	char	  **key = dr_phrase_mark_key(def, "m");
	char	  **named = palloc(def->nkeys * sizeof(char *));

	for (int i = 0; i < def->nkeys; i++)
		named[i] = psprintf("%s AS %s", key[i], quote_identifier(dr_phrase_key(def, i)->name));
	appendStringInfo(buf, "SELECT %s FROM %s m,"
					 " LATERAL dailyrollup._current_row(%s, NULL::%s, m.dirties, m.ctid, %s) r"
					 " WHERE m.plain IS NOT NULL"
					 " AND dailyrollup._floor_holds(%s, dailyrollup._w_floor_%s(%s, true), %s)",
					 legs_columns(def, named, "r"), dr_phrase_relation(rollup->marks),
					 permit, dr_phrase_relation(rollup->definition),
					 dr_phrase_join(key, def->nkeys, ", "),
					 live_literal, dr_boundary_type_name(def->time_kind), live_literal,
					 shows_left_alone ? "true" : "false");
}

/* One row a key, from the three legs. */
static void
append_merged(StringInfo buf, const DrDefinition *def, const DrRollup *rollup,
			  const char *live_literal, bool shows_left_alone)
{
	char	   *permit = psprintf("%s::dailyrollup._permit",
								  quote_literal_cstr(dr_phrase_permit(rollup->live, rollup->owner)));
	bool		first = true;

	appendStringInfoString(buf, "SELECT ");
	for (int i = 0; i < def->ncolumns; i++)
	{
		const DrColumn *column = &def->columns[i];
		const char *name = quote_identifier(column->name);

		dr_phrase_append_item(buf, &first, column->is_key ? psprintf("u.%s", name) :
					psprintf("%s AS %s", dr_phrase_merged(def, column, "u"), name));
	}
	appendStringInfoString(buf, " FROM (");
	append_marked_leg(buf, def, rollup, live_literal, permit, shows_left_alone);
	appendStringInfoString(buf, " UNION ALL ");
	append_settled_leg(buf, def, rollup, permit);
	appendStringInfoString(buf, " UNION ALL ");
	append_tail_leg(buf, def, rollup, live_literal, permit);
	appendStringInfo(buf, ") u GROUP BY %s",
					 dr_phrase_join(dr_phrase_live_key(def, "u"), def->nkeys, ", "));
}

/*
 * What the view <live>_current shows.  Where live may be left alone, that is live
 * as it is; there the other legs have no row.
 */
char *
dr_objects_current(const DrDefinition *def, const DrRollup *rollup, bool shows_left_alone)
{
	StringInfoData buf;
	char	   *live_literal = psprintf("%s::pg_catalog.regclass",
										quote_literal_cstr(dr_phrase_relation(rollup->live)));

	initStringInfo(&buf);
	if (shows_left_alone)
		appendStringInfo(&buf, "SELECT %s FROM ONLY %s l"
						 " WHERE dailyrollup._live_is_left_alone(%s) UNION ALL ",
						 dr_phrase_columns(def, "l", true, true),
						 dr_phrase_relation(rollup->live), live_literal);
	append_merged(&buf, def, rollup, live_literal, shows_left_alone);
	return buf.data;
}

/* A relation's name as SQL: schema-qualified and quoted. */
char *
dr_objects_relation(Oid relation)
{
	return dr_phrase_relation(relation);
}

/* What the row triggers are for; the fourth trigger is for "truncate". */
const char *const dr_objects_row_events[DR_ROW_EVENTS] = {"insert", "update", "delete"};

/* The name of one of a rollup's triggers: "guard" on live, else on the source. */
char *
dr_objects_trigger_name(int32 id, const char *event)
{
	return psprintf("%s_%d_%s", DR_SCHEMA, id, event);
}

/*
 * The trigger that catches what is late, and what is to be folded, of one
 * event: insert, update or delete.  An update may move a row across the
 * watermark, which dirties both keys.
 */
char *
dr_objects_create_row_trigger(const DrDefinition *def, const DrRollup *rollup,
							  const char *event)
{
	const char *time = quote_identifier(def->events[0].source_name);
	const char *name = dr_objects_trigger_name(rollup->id, event);
	char	   *source = dr_phrase_relation(rollup->source);
	char	   *live = psprintf("%s::pg_catalog.regclass",
								quote_literal_cstr(dr_phrase_relation(rollup->live)));
	char	   *written;

	if (strcmp(event, "insert") == 0)
		written = psprintf("NEW.%s", time);
	else if (strcmp(event, "delete") == 0)
		written = psprintf("OLD.%s", time);
	else
		written = psprintf("OLD.%s, NEW.%s", time, time);

	return psprintf("CREATE TRIGGER %s AFTER %s ON %s FOR EACH ROW"
					" WHEN (dailyrollup._concerns(%s, %s))"
					" EXECUTE FUNCTION dailyrollup._capture(%d);"
					" ALTER TABLE %s ENABLE ALWAYS TRIGGER %s",
					name, event, source, written, live, rollup->id, source, name);
}

/* ------------------------------------------- DDL that follows DDL of others */

char *
dr_objects_rename_column(Oid relation, const char *from, const char *to)
{
	return psprintf("ALTER TABLE %s RENAME COLUMN %s TO %s", dr_phrase_relation(relation),
					quote_identifier(from), quote_identifier(to));
}

/* Rows that went without their keys being marked. */
void
dr_objects_warn_of_lost_rows(const DrRollup *rollup, const char *partition, const char *fate)
{
	ereport(WARNING,
			(errmsg("partition \"%s\" of a source was %s, but rollup \"%s\" still counts its rows",
					partition, fate, dr_catalog_name(rollup->live)),
			 errhint("Run SELECT %s(%s) to forget them.",
					 rollup->state == DR_STATE_OFF ? "rollup_recompute" :
					 rollup->state == DR_STATE_SHADOW ?
					 "rollup_recompute and rollup_reseed" : "rollup_reseed",
					 quote_literal_cstr(dr_phrase_relation(rollup->live)))));
}

