/*
 * phrase.h
 *		The pieces that SQL over a rollup is put together from.
 *
 * The caller has entered the identity that the text is for (identity.h): the
 * server's deparser then prints for a search_path of pg_catalog alone.
 *
 * Layer 2.
 */
#ifndef DR_PHRASE_H
#define DR_PHRASE_H

#include "dailyrollup.h"

#include "lib/stringinfo.h"

/* What is written of a permit whose table or role is gone. */
#define DR_PHRASE_NO_PERMIT "-"

/* The events that a content is computed from. */
typedef struct DrScope
{
	Oid			relation;		/* the source, or a part of it */
	const char *floor;			/* SQL of a bound that the planner knows, or NULL */
	const char *lower;			/* SQL of a bound, or NULL */
	const char *upper;
	const char *keys;			/* condition over e; NULL: every key */
	const char *null_keys;		/* a second, disjoint condition, or NULL */
	bool		placed;			/* each row's ctid and tableoid come first */
	bool		stored;			/* whole rows, as they are stored */
} DrScope;

extern char *dr_phrase_relation(Oid relation);
extern char *dr_phrase_permit(Oid live, Oid owner);
extern char *dr_phrase_own(const char *prefix, int32 id);
extern char *dr_phrase_type(Oid type, int32 typmod);
extern char *dr_phrase_equality(Oid type);
extern char *dr_phrase_is_null(Oid type, const char *value);
extern const DrColumn *dr_phrase_key(const DrDefinition *def, int i);
extern void dr_phrase_append_item(StringInfo buf, bool *first, const char *item);
extern char *dr_phrase_columns(const DrDefinition *def, const char *alias, bool keys, bool measures);
extern char **dr_phrase_live_key(const DrDefinition *def, const char *alias);
extern char **dr_phrase_numbered(const char *alias, char letter, int n);
extern char **dr_phrase_mark_key(const DrDefinition *def, const char *alias);
extern char **dr_phrase_event_key(const DrDefinition *def);
extern char *dr_phrase_join(char **texts, int n, const char *separator);
extern char *dr_phrase_plainly_equal(const DrDefinition *def, char **left, char **right);
extern char *dr_phrase_key_record(const DrDefinition *def, Oid key_type, char **texts);
extern char *dr_phrase_record_equal(const DrDefinition *def, Oid key_type, char **left, char **right);
extern char *dr_phrase_any_null(const DrDefinition *def, char **texts, bool trust_not_null);
extern char *dr_phrase_same_key(const DrDefinition *def, Oid key_type, char **left, char **right,
								bool no_nulls);
extern char *dr_phrase_is_plain(const DrDefinition *def, char **texts);
extern char *dr_phrase_key_json(const DrDefinition *def, char **texts);
extern char *dr_phrase_expression(const DrDefinition *def, Node *expr);
extern char *dr_phrase_dedup_columns(const DrDefinition *def, bool in_source);
extern char *dr_phrase_dedup_order(const DrDefinition *def, bool in_source);
extern char *dr_phrase_event_columns(const DrDefinition *def);
extern void dr_phrase_append_named_columns(StringInfo buf, const DrDefinition *def, bool in_source);
extern void dr_phrase_append_rows(StringInfo buf, const DrDefinition *def, const DrScope *scope);
extern void dr_phrase_append_events(StringInfo buf, const DrDefinition *def, const DrScope *scope,
									bool deduplicate);
extern void dr_phrase_append_content_of(StringInfo buf, const DrDefinition *def, const char *from,
										const char *separator, const int *order);
extern char *dr_phrase_content_in_order(const DrDefinition *def, const DrScope *scope,
										bool deduplicate, const int *order);
extern char *dr_phrase_content(const DrDefinition *def, const DrScope *scope, bool deduplicate);
extern char *dr_phrase_merged(const DrDefinition *def, const DrColumn *column, const char *alias);

#endif							/* DR_PHRASE_H */
