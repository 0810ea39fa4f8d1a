/*
 * pack.h
 *		Values of a row packed into a string of bytes.
 *
 * Layer 0.
 */
#ifndef DR_PACK_H
#define DR_PACK_H

#include "postgres.h"

#include "access/tupdesc.h"

/* How values of a type are stored. */
typedef struct DrKind
{
	int16		typlen;
	bool		typbyval;
} DrKind;

/* One value: where its bytes are, however it is packed now, and what room they
 * take in the pack. */
typedef struct DrPart
{
	const char *bytes;
	Size		size;
	Size		room;
} DrPart;

extern DrKind *dr_pack_kinds(TupleDesc desc);
extern bool dr_pack_tells_apart(Oid type, Oid collation);
extern Size dr_pack_measure(const DrKind *kinds, int n, const Datum *values,
							const bool *nulls, DrPart *parts);
extern uint32 dr_pack_hash(const DrKind *kinds, int n, const Datum *values,
						   const bool *nulls, const DrPart *parts);
extern void dr_pack_write(char *pack, Size size, const DrKind *kinds, int n,
						  const Datum *values, const bool *nulls, const DrPart *parts);
extern void dr_pack_read(const char *pack, const DrKind *kinds, int n, Datum *values,
						 bool *nulls);

#endif							/* DR_PACK_H */
