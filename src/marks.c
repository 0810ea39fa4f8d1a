/*
 * marks.c
 *		A table of marks as it was made (objects.c): its columns and indexes.
 *
 * The owner may have changed it in any way, so nothing is taken for granted.
 */
#include "marks.h"

#include "access/genam.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/relcache.h"

#include "compat.h"

/* Is a column of that type there? */
bool
dr_marks_is_column(TupleDesc desc, int attno, Oid type)
{
	return attno <= desc->natts && !TupleDescAttr(desc, attno - 1)->attisdropped &&
		TupleDescAttr(desc, attno - 1)->atttypid == type;
}

/* Do the columns behind the key stand where they were made? */
bool
dr_marks_is_kept(TupleDesc desc, int n)
{
	return dr_marks_is_column(desc, DR_MARKS_PLAIN(n), BOOLOID) && dr_marks_is_column(desc, DR_MARKS_DIRTIES(n), CHAROID);
}

/* Is a row of the marks of that kind? */
bool
dr_marks_is_of_kind(TupleTableSlot *slot, int n, char dirties)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, DR_MARKS_DIRTIES(n), &isnull);

	return !isnull && DatumGetChar(value) == dirties;
}

/* Is it an index of the marks whose "plain" passes that test? */
static bool
is_index_where(Relation index, NullTestType plain, int n)
{
	Form_pg_index form = index->rd_index;
	List	   *predicate;
	NullTest   *test;

	if (!form->indisvalid || !form->indisready || index->rd_rel->relam != BTREE_AM_OID)
		return false;
	predicate = RelationGetIndexPredicate(index);
	if (list_length(predicate) != 1)
		return false;
	test = linitial(predicate);
	return IsA(test, NullTest) && test->nulltesttype == plain && IsA(test->arg, Var) &&
		((Var *) test->arg)->varattno == DR_MARKS_PLAIN(n);
}

/* The index of the marks whose "plain" passes that test, and that fits; NULL: there
 * is none, somebody has dropped it. */
Relation
dr_marks_open_index(Relation rel, int n, NullTestType plain,
					bool (*fits) (const void *, Relation), const void *context)
{
	List	   *indexes = RelationGetIndexList(rel);
	Relation	found = NULL;
	ListCell   *cell;

	foreach(cell, indexes)
	{
		found = index_open(lfirst_oid(cell), AccessShareLock);
		if (is_index_where(found, plain, n) && (fits == NULL || fits(context, found)))
			break;
		index_close(found, AccessShareLock);
		found = NULL;
	}
	list_free(indexes);
	return found;
}

/* Is it a mark of a key that is not plain, of that kind, 0: of any? */
static bool
is_long(TupleTableSlot *slot, int n, char dirties)
{
	return slot_attisnull(slot, DR_MARKS_PLAIN(n)) &&
		(dirties == 0 || dr_marks_is_of_kind(slot, n, dirties));
}

static bool
has_long_by_index(Relation rel, Relation index, Snapshot snapshot, int n, char dirties)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan = dr_index_beginscan(rel, index, snapshot, 0);
	bool		found = false;

	index_rescan(scan, NULL, 0, NULL, 0);
	while (!found && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		found = is_long(slot, n, dirties);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	return found;
}

static bool
has_long_by_scan(Relation rel, Snapshot snapshot, int n, char dirties)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan_strat(rel, snapshot, 0, NULL, true, false);
	bool		found = false;

	while (!found && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		found = is_long(slot, n, dirties);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	return found;
}

/* Is there a mark of that kind, 0: of any, of a key that is not plain?  Where the
 * owner has changed the marks, there may be one. */
bool
dr_marks_has_long(Relation rel, Snapshot snapshot, int n, char dirties)
{
	Relation	index;
	bool		found;

	if (!dr_marks_is_kept(RelationGetDescr(rel), n))
		return true;
	index = dr_marks_open_index(rel, n, IS_NULL, NULL, NULL);
	if (index == NULL)
		return has_long_by_scan(rel, snapshot, n, dirties);
	found = has_long_by_index(rel, index, snapshot, n, dirties);
	index_close(index, AccessShareLock);
	return found;
}
