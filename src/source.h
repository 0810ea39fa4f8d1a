/*
 * source.h
 *		What can be the source of a rollup, and which of its columns are used.
 *
 * Layer 1.
 */
#ifndef DR_SOURCE_H
#define DR_SOURCE_H

#include "dailyrollup.h"

#include "nodes/bitmapset.h"

extern void dr_source_check(Oid source);
extern void dr_source_check_again(Oid source);
extern bool dr_source_hides_rows(Oid relation);
extern void dr_source_warn_of_policies(Oid source, Oid live);
extern AttrNumber dr_source_column(Oid source, const char *column, const char *argument);
extern DrTimeKind dr_source_time_kind(const DrEventColumn *column, Oid source);
extern void dr_source_describe(Oid source, AttrNumber attno, DrEventColumn *column);
extern char *dr_source_name(Oid source);
extern Oid	dr_source_owner(Oid relation);

extern int	dr_source_event(const DrDefinition *def, AttrNumber attno);
extern List *dr_source_columns(Oid source, List *names, const char *argument);
extern void dr_source_describe_events(DrDefinition *def, AttrNumber time,
									  Bitmapset *used, List *dedup);
extern void dr_source_describe_dedup(DrDefinition *def, List *dedup_by, List *dedup_order);

#endif							/* DR_SOURCE_H */
