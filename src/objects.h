/*
 * objects.h
 *		SQL that makes a rollup's objects, and that changes them.
 *
 * The caller has entered the identity that the text is for (identity.h).
 * Keys are named k1 .. kn in the order of the defining query.
 *
 * Layer 3.
 */
#ifndef DR_OBJECTS_H
#define DR_OBJECTS_H

#include "dailyrollup.h"

#include "catalog.h"

/* creation */
extern char *dr_objects_create_live(const DrDefinition *def, const char *live);
extern char *dr_objects_create_key_type(const DrDefinition *def, int32 id);
extern bool dr_objects_mark_holds_event(const DrDefinition *def);
extern char *dr_objects_create_marks(const DrDefinition *def, int32 id);
extern char *dr_objects_events(const DrDefinition *def);
extern char *dr_objects_definition_of(const DrDefinition *def, const char *events);
extern char *dr_objects_current(const DrDefinition *def, const DrRollup *rollup,
								bool shows_left_alone);
extern char *dr_objects_create_row_trigger(const DrDefinition *def,
										   const DrRollup *rollup, const char *event);
#define DR_ROW_EVENTS	3
extern const char *const dr_objects_row_events[DR_ROW_EVENTS];
extern char *dr_objects_trigger_name(int32 id, const char *event);
extern char *dr_objects_relation(Oid relation);

/* DDL that follows DDL of others */
extern char *dr_objects_rename_column(Oid relation, const char *from, const char *to);
extern void dr_objects_warn_of_lost_rows(const DrRollup *rollup, const char *partition,
									   const char *fate);

#endif							/* DR_OBJECTS_H */
