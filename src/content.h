/*
 * content.h
 *		A table's rows against the rows that it should have, in memory.
 *
 * Layer 4.
 */
#ifndef DR_CONTENT_H
#define DR_CONTENT_H

#include "dailyrollup.h"

#include "nodes/params.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"

typedef struct DrContent DrContent;

/* Rows and keys of both; pairs of rows of one key and the same image. */
typedef struct DrCompared
{
	int64		fresh_rows;
	int64		fresh_keys;
	int64		stored_rows;
	int64		stored_keys;
	int64		common;
} DrCompared;

/* What is done about the difference, for a part of the keys at a time. */
typedef void (*DrContentVisit) (DrContent *content, void *arg);

extern bool dr_content_has_columns(const DrDefinition *def, Relation rel, bool only);
extern DrContent *dr_content_prepare(const DrDefinition *def, Relation table, Relation fresh);
extern void dr_content_compare(DrContent *content, const char *fresh, ParamListInfo params,
							   DrContentVisit visit, void *arg, DrCompared *result);
extern void dr_content_end(DrContent *content);

/* for a visitor, until each returns false: the places of rows of other keys,
 * and of copies; those of changed rows, with what they become; rows that are
 * missing */
extern bool dr_content_next_surplus(DrContent *content, ItemPointerData *tid);
extern bool dr_content_next_changed(DrContent *content, ItemPointerData *tid, Datum *values,
									bool *nulls);
extern bool dr_content_next_missing(DrContent *content, Datum *values, bool *nulls);

#endif							/* DR_CONTENT_H */
