/*
 * keyimage.h
 *		A key as a string of bytes, which two keys have in common exactly where
 *		they are equal.
 *
 * Layer 2.
 */
#ifndef DR_KEYIMAGE_H
#define DR_KEYIMAGE_H

#include "dailyrollup.h"

#include "access/tupdesc.h"

#include "keytable.h"
#include "room.h"

/* How values of a type are stored. */
typedef struct DrKind
{
	int16		typlen;
	bool		typbyval;
} DrKind;

extern bool dr_keyimage_tells(Oid type, Oid collation);
extern DrKind *dr_keyimage_kinds(TupleDesc desc);
extern void dr_keyimage_make(const DrKind *kinds, int n, const Datum *values,
							 const bool *nulls, DrRoom *room, DrKey *key);
extern void dr_keyimage_read(const DrKind *kinds, int n, const char *image,
							 Datum *values, bool *nulls);

#endif							/* DR_KEYIMAGE_H */
