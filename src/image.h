/*
 * image.h
 *		An order of values by their bytes.
 *
 * Layer 0.
 */
#ifndef DR_IMAGE_H
#define DR_IMAGE_H

#include "postgres.h"

#include "fmgr.h"

/* What holds rows has an image that goes deeper than its own bytes. */
typedef enum DrImageShape
{
	IMAGE_BYTES,
	IMAGE_ROW,
	IMAGE_ARRAY,
	IMAGE_RANGE,
	IMAGE_MULTIRANGE
} DrImageShape;

/* How the images of a type compare. */
typedef struct DrImageOrder
{
	Oid			type;
	int16		typlen;
	bool		typbyval;
	DrImageShape shape;
	FmgrInfo	compare_rows;	/* if the value is a row */
} DrImageOrder;

extern void dr_image_prepare(DrImageOrder *order, Oid type, MemoryContext context);
extern int	dr_image_compare(const DrImageOrder *order, Datum a, Datum b);

#endif							/* DR_IMAGE_H */
