/*
 * query.h
 *		Every SQL text that the extension runs over a rollup.
 *
 * The caller has entered the identity that the text is for (identity.h): the
 * server's deparser then prints for a search_path of pg_catalog alone.
 * Bounds are parameters of the time column's type; keys are named k1 .. kn in
 * the order of the defining query.
 *
 * Layer 3.
 */
#ifndef DR_QUERY_H
#define DR_QUERY_H

#include "dailyrollup.h"

#include "catalog.h"

/* creation */
extern char *dr_query_create_live(const DrDefinition *def, const char *live);
extern char *dr_query_create_key_type(const DrDefinition *def, int32 id);
extern char *dr_query_create_marks(const DrDefinition *def, int32 id);
extern char *dr_query_events(const DrDefinition *def);
extern char *dr_query_definition_of(const DrDefinition *def, const char *events);
extern char *dr_query_create_current(const DrDefinition *def, const DrRollup *rollup,
									 const char *view);
extern char *dr_query_create_late_trigger(const DrDefinition *def,
										  const DrRollup *rollup, const char *event);
extern char *dr_query_create_truncate_trigger(int32 id, Oid relation);
#define DR_ROW_EVENTS	3
extern const char *const dr_query_row_events[DR_ROW_EVENTS];
extern char *dr_query_trigger_name(int32 id, const char *event);
extern char *dr_query_relation(Oid relation);

/* DDL that follows DDL of others */
extern char *dr_query_hand_over(const DrRollup *rollup, const char *owner);
extern char *dr_query_rename_column(const DrRollup *rollup, const char *from, const char *to);
extern void dr_query_warn_of_lost_rows(const DrRollup *rollup, const char *partition,
									   const char *fate);

/* the refresh; $1: lower bound, $2: upper bound */
extern char *dr_query_empty_live(const DrRollup *rollup);
extern char *dr_query_seed(const DrDefinition *def, const DrRollup *rollup);
extern char *dr_query_fold(const DrDefinition *def, const DrRollup *rollup);
extern char *dr_query_recompute(const DrDefinition *def, const DrRollup *rollup);

/* late keys */
extern char *dr_query_mark_event(const DrDefinition *def, const DrRollup *rollup);
extern char *dr_query_mark_range(const DrDefinition *def, const DrRollup *rollup,
								 Oid relation);
extern char *dr_query_forget_marks(const DrRollup *rollup);
extern char *dr_query_count_late(const DrDefinition *def, const DrRollup *rollup);
extern char *dr_query_list_late(const DrDefinition *def, const DrRollup *rollup);

/* reading and checking */
extern char *dr_query_definition(const DrDefinition *def, const char *before);
extern char *dr_query_key_row(const DrDefinition *def, const bool *key_is_null);
extern char *dr_query_count_live(const DrDefinition *def, const DrRollup *rollup);
extern char *dr_query_verify(const DrDefinition *def, const DrRollup *rollup);

#endif							/* DR_QUERY_H */
