/*
 * patch.h
 *		A stored row with other values in the same places.
 *
 * Layer 1.
 */
#ifndef DR_PATCH_H
#define DR_PATCH_H

#include "dailyrollup.h"

#include "access/htup.h"
#include "access/tupdesc.h"

extern HeapTuple dr_patch_make(void);
extern bool dr_patch(HeapTuple patched, HeapTuple stored, TupleDesc desc, const int *columns,
					 const Datum *values, const bool *nulls);

#endif							/* DR_PATCH_H */
