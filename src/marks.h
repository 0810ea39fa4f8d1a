/*
 * marks.h
 *		A table of marks as it was made (objects.c): its columns and indexes.
 *
 * Layer 2.
 */
#ifndef DR_MARKS_H
#define DR_MARKS_H

#include "dailyrollup.h"

#include "executor/tuptable.h"
#include "nodes/primnodes.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* The columns behind the key, which has "n" of them: plain, dirties. */
#define DR_MARKS_PLAIN(n)		((n) + 1)
#define DR_MARKS_DIRTIES(n)		((n) + 2)

extern bool dr_marks_is_column(TupleDesc desc, int attno, Oid type);
extern bool dr_marks_is_kept(TupleDesc desc, int n);
extern bool dr_marks_is_of_kind(TupleTableSlot *slot, int n, char dirties);
extern Relation dr_marks_open_index(Relation rel, int n, NullTestType plain,
									bool (*fits) (const void *, Relation), const void *context);
extern bool dr_marks_has_long(Relation rel, Snapshot snapshot, int n, char dirties);

#endif							/* DR_MARKS_H */
