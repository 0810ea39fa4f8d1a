/*
 * patch.c
 *		A stored row with other values in the same places.
 *
 * A row whose numbers and times alone have changed, and which is NULL where it
 * was, is not formed anew: its bytes are copied, and the values written over them.
 */
#include "patch.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"

/* Room for any row. */
HeapTuple
dr_patch_make(void)
{
	HeapTuple	tuple = palloc(HEAPTUPLESIZE + MaxHeapTupleSize);

	tuple->t_data = (HeapTupleHeader) ((char *) tuple + HEAPTUPLESIZE);
	return tuple;
}

/* Write a value over the one that is there; false where it needs other room, or
 * another alignment. */
static bool
overwrite(char *there, Form_pg_attribute column, Datum value)
{
	const char *with = DatumGetPointer(value);
	Size		size = column->attlen;

	if (column->attbyval)
	{
		store_att_byval(there, value, column->attlen);
		return true;
	}
	if (column->attlen == -2)
		return false;
	if (column->attlen == -1)
	{
		size = VARSIZE_ANY(there);
		if (VARATT_IS_EXTERNAL(with) || VARSIZE_ANY(with) != size || VARATT_IS_SHORT(with) != VARATT_IS_SHORT(there))
			return false;
	}
	memcpy(there, with, size);
	return true;
}

/* Has the row all columns, and each in itself?  (Values out of line are left to
 * those who form rows.) */
static bool
is_whole(HeapTuple stored, TupleDesc desc)
{
	return HeapTupleHeaderGetNatts(stored->t_data) == desc->natts &&
		!HeapTupleHasExternal(stored);
}

/*
 * Patch a copy of the stored row: for each attribute "columns" tells which of
 * the values it gets, -1 for none.  False where the row must be formed anew.
 */
bool
dr_patch(HeapTuple patched, HeapTuple stored, TupleDesc desc, const int *columns,
		 const Datum *values, const bool *nulls)
{
	char	   *data = (char *) patched->t_data + stored->t_data->t_hoff;
	Size		at = 0;

	if (!is_whole(stored, desc))
		return false;
	patched->t_len = stored->t_len;
	patched->t_self = stored->t_self;
	patched->t_tableOid = stored->t_tableOid;
	memcpy(patched->t_data, stored->t_data, stored->t_len);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);
		bool		isnull = HeapTupleHasNulls(stored) && att_isnull(i, stored->t_data->t_bits);

		if (columns[i] >= 0 && nulls[columns[i]] != isnull)
			return false;
		if (isnull)
			continue;
		at = att_align_pointer(at, column->attalign, column->attlen, data + at);
		if (columns[i] >= 0 && !overwrite(data + at, column, values[columns[i]]))
			return false;
		at = att_addlength_pointer(at, column->attlen, data + at);
	}
	return true;
}
