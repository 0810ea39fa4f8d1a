/*
 * query.h
 *		The statements that a rollup is kept, read and checked by.
 *
 * The caller has entered the identity that the text is for (identity.h): the
 * server's deparser then prints for a search_path of pg_catalog alone.
 * Bounds are parameters of the time column's type; keys are named k1 .. kn in
 * the order of the defining query.
 *
 * Layer 4.
 */
#ifndef DR_QUERY_H
#define DR_QUERY_H

#include "dailyrollup.h"

#include "catalog.h"

/* what was computed of a window, registered with SPI */
#define DR_QUERY_DIGESTED	"dailyrollup_digested"
#define DR_QUERY_WAITING	"waiting"

/* the late rows that may be merged, likewise: k1 .. kn, e1 .. en */
#define DR_QUERY_ADDED	"dailyrollup_added"

/* the refresh; bounds are SQL, NULL where there is none */
extern char *dr_query_window(const DrDefinition *def, const char *lower, const char *upper,
							 bool stored, bool placed);
extern char *dr_query_content(const DrDefinition *def, const char *lower, const char *upper);
extern char *dr_query_digested(const DrDefinition *def, const DrRollup *rollup,
							   const char *lower, const char *upper, bool waiting);
extern char *dr_query_fold(const DrDefinition *def, Oid table, const char *content);
extern char *dr_query_recompute(const DrDefinition *def, const DrRollup *rollup, Oid table,
								char dirties, const char *upper);

/* the promote */
extern char *dr_query_rows(const DrDefinition *def, Oid table);
extern char *dr_query_count_common(const DrDefinition *def, const DrRollup *rollup);

/* marks, of the kind that "dirties" says; 0: of any */
extern char *dr_query_mark_event(const DrDefinition *def, const DrRollup *rollup, bool whole);
extern char *dr_query_mark_range(const DrDefinition *def, const DrRollup *rollup,
								 Oid relation, bool bounded);
extern char *dr_query_mark_rows(const DrDefinition *def, const DrRollup *rollup,
								const char *rows);
extern char *dr_query_forget_marks(const DrRollup *rollup, char dirties);
extern char *dr_query_added_times(const DrDefinition *def, const DrRollup *rollup,
								  bool deduplicate);
extern char *dr_query_added(const DrDefinition *def, const DrRollup *rollup, bool deduplicate);
extern char *dr_query_waiting(const DrDefinition *def, const DrRollup *rollup, char dirties,
							  bool deduplicate);
extern char *dr_query_recompute_waiting(const DrDefinition *def, const DrRollup *rollup,
										Oid table, const char *upper);
extern char *dr_query_merge_added(const DrDefinition *def, const DrRollup *rollup, Oid table,
								  bool deduplicate);
extern char *dr_query_count_added(const DrDefinition *def);
extern char *dr_query_count_late(const DrDefinition *def, const DrRollup *rollup, char dirties);
extern char *dr_query_list_late(const DrDefinition *def, const DrRollup *rollup, char dirties);

/* reading and checking */
extern char *dr_query_definition(const DrDefinition *def, const char *before);
extern char *dr_query_key_row(const DrDefinition *def, const bool *key_is_null);
extern char *dr_query_first_time(const DrDefinition *def);
extern char *dr_query_count(const DrDefinition *def, Oid table);

#endif							/* DR_QUERY_H */
