/*
 * image.c
 *		An order of values by their bytes.
 *
 * It tells apart what a type takes for equal, as 1.0 and 1.00: wherever a
 * result must not depend on which of two equal values came first.  A value's
 * image is its bytes however it is packed: compressed, toasted or with a short
 * header, also inside a row.
 *
 * It knows nothing of a type's own order.
 */
#include "image.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/multirangetypes.h"
#include "utils/rangetypes.h"
#include "utils/typcache.h"

static Datum image(Oid type, Datum value);

/* The shape of a type's image; domains have that of their base type. */
static DrImageShape
image_shape(Oid type)
{
	Oid			base = getBaseType(type);
	DrImageShape	shape;
	Oid			inner;

	check_stack_depth();
	switch (get_typtype(base))
	{
		case TYPTYPE_COMPOSITE:
			return IMAGE_ROW;
		case TYPTYPE_RANGE:
			shape = IMAGE_RANGE;
			inner = get_range_subtype(base);
			break;
		case TYPTYPE_MULTIRANGE:
			shape = IMAGE_MULTIRANGE;
			inner = get_multirange_range(base);
			break;
		default:
			if (base == RECORDOID)
				return IMAGE_ROW;
			shape = IMAGE_ARRAY;
			inner = get_element_type(base);
	}
	if (OidIsValid(inner) && image_shape(inner) != IMAGE_BYTES)
		return shape;
	return IMAGE_BYTES;
}

/*
 * Compare the bytes of two values.  Numbers passed by value count as unsigned
 * ones, bytes as by memcmp and then by length: the order of the server's *>
 * operator for rows of one such column.
 */
static int
compare_bytes(Datum a, Datum b, bool typbyval, int typlen)
{
	Size		a_size,
				b_size;
	int			result;

	if (typbyval)
	{
		if (typlen < (int) sizeof(Datum))
		{
			Datum		mask = (((Datum) 1) << (typlen * BITS_PER_BYTE)) - 1;

			a &= mask;
			b &= mask;
		}
		return (a > b) - (a < b);
	}
	if (typlen > 0)
		return memcmp(DatumGetPointer(a), DatumGetPointer(b), typlen);
	if (typlen != -1)
		return strcmp(DatumGetCString(a), DatumGetCString(b));

	a = PointerGetDatum(PG_DETOAST_DATUM_PACKED(a));
	b = PointerGetDatum(PG_DETOAST_DATUM_PACKED(b));
	a_size = VARSIZE_ANY_EXHDR(DatumGetPointer(a));
	b_size = VARSIZE_ANY_EXHDR(DatumGetPointer(b));
	result = memcmp(VARDATA_ANY(DatumGetPointer(a)),
					VARDATA_ANY(DatumGetPointer(b)), Min(a_size, b_size));
	return result != 0 ? result : (a_size > b_size) - (a_size < b_size);
}

/*
 * The image of an array, or of bounds, of what holds rows: an array of the
 * members' images.  Overwrites "values".
 */
static Datum
image_of_members(Oid type, Datum *values, bool *nulls,
				 int ndim, int *dims, int *lower_bounds)
{
	int			count = ArrayGetNItems(ndim, dims);
	int16		typlen;
	bool		typbyval;
	char		typalign;

	get_typlenbyvalalign(type, &typlen, &typbyval, &typalign);
	for (int i = 0; i < count; i++)
		if (!nulls[i])
			values[i] = image(type, values[i]);
	return PointerGetDatum(construct_md_array(values, nulls,
											  ndim, dims, lower_bounds,
											  type, typlen, typbyval, typalign));
}

static Datum
image_of_array(ArrayType *array)
{
	Oid			type = ARR_ELEMTYPE(array);
	Datum	   *values;
	bool	   *nulls;
	int			count;
	int16		typlen;
	bool		typbyval;
	char		typalign;

	get_typlenbyvalalign(type, &typlen, &typbyval, &typalign);
	deconstruct_array(array, type, typlen, typbyval, typalign,
					  &values, &nulls, &count);
	return image_of_members(type, values, nulls,
							ARR_NDIM(array), ARR_DIMS(array), ARR_LBOUND(array));
}

/*
 * Bounds suffice: ranges that are equal by their order also agree in what is
 * empty, infinite and inclusive.
 */
static Datum
image_of_bounds(TypeCacheEntry *range, RangeBound *bounds, int count)
{
	Datum	   *values = (Datum *) palloc((count + 1) * sizeof(Datum));
	bool	   *nulls = (bool *) palloc((count + 1) * sizeof(bool));
	int			lower_bound = 1;

	for (int i = 0; i < count; i++)
	{
		values[i] = bounds[i].val;
		nulls[i] = bounds[i].infinite;
	}
	return image_of_members(range->rngelemtype->type_id, values, nulls,
							1, &count, &lower_bound);
}

static Datum
image_of_range(RangeType *range)
{
	TypeCacheEntry *entry = lookup_type_cache(RangeTypeGetOid(range),
											  TYPECACHE_RANGE_INFO);
	RangeBound	bounds[2];
	bool		empty;

	range_deserialize(entry, range, &bounds[0], &bounds[1], &empty);
	return image_of_bounds(entry, bounds, empty ? 0 : 2);
}

static Datum
image_of_multirange(MultirangeType *multirange)
{
	TypeCacheEntry *range = lookup_type_cache(MultirangeTypeGetOid(multirange),
											  TYPECACHE_MULTIRANGE_INFO)->rngtype;
	int			count = 2 * multirange->rangeCount;
	RangeBound *bounds = (RangeBound *) palloc((count + 1) * sizeof(RangeBound));

	for (int i = 0; i < count; i += 2)
		multirange_get_bounds(range, multirange, i / 2,
							  &bounds[i], &bounds[i + 1]);
	return image_of_bounds(range, bounds, count);
}

/* The image of a row is a row of its columns' images. */
static Datum
image_of_row(HeapTupleHeader row)
{
	TupleDesc	desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(row),
											  HeapTupleHeaderGetTypMod(row));
	Datum	   *values = (Datum *) palloc(desc->natts * sizeof(Datum));
	bool	   *nulls = (bool *) palloc(desc->natts * sizeof(bool));
	HeapTupleData tuple;
	Datum		result;

	tuple.t_len = HeapTupleHeaderGetDatumLength(row);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = row;
	heap_deform_tuple(&tuple, desc, values, nulls);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (column->attisdropped)
			nulls[i] = true;
		if (!nulls[i])
			values[i] = image(column->atttypid, values[i]);
	}
	result = HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
	ReleaseTupleDesc(desc);
	return result;
}

/*
 * The value in its one packing, good for comparing bytes and nothing else.
 * Leaves memory behind in the current context.
 */
static Datum
image(Oid type, Datum value)
{
	check_stack_depth();
	switch (image_shape(type))
	{
		case IMAGE_ROW:
			return image_of_row(DatumGetHeapTupleHeader(value));
		case IMAGE_ARRAY:
			return image_of_array(DatumGetArrayTypeP(value));
		case IMAGE_RANGE:
			return image_of_range(DatumGetRangeTypeP(value));
		case IMAGE_MULTIRANGE:
			return image_of_multirange(DatumGetMultirangeTypeP(value));
		case IMAGE_BYTES:
			break;
	}
	return get_typlen(type) == -1 ? PointerGetDatum(PG_DETOAST_DATUM(value)) : value;
}

/* ------------------------------------------------------------------ floats */

/* Write a float's bytes so that memcmp tells which is greater as an unsigned
 * number; returns how many. */
static int
write_float(char *to, Datum value, bool single)
{
	uint32		half = pg_hton32((uint32) DatumGetInt32(value));
	uint64		whole = pg_hton64((uint64) DatumGetInt64(value));

	if (single)
		memcpy(to, &half, sizeof(half));
	else
		memcpy(to, &whole, sizeof(whole));
	return single ? sizeof(half) : sizeof(whole);
}

/* Of floats that are equal only zeros differ in image, and what is no number. */
static bool
has_images(Datum value, bool single)
{
	double		number = single ? DatumGetFloat4(value) : DatumGetFloat8(value);

	return number == 0 || isnan(number);
}

/* Which arguments are of single precision? */
static bool *
find_single(FunctionCallInfo fcinfo)
{
	bool	   *single = MemoryContextAlloc(fcinfo->flinfo->fn_mcxt, PG_NARGS() * sizeof(bool));

	for (int i = 0; i < PG_NARGS(); i++)
	{
		Oid			type = get_fn_expr_argtype(fcinfo->flinfo, i);

		single[i] = OidIsValid(type) && getBaseType(type) == FLOAT4OID;
		if (!single[i] && (!OidIsValid(type) || getBaseType(type) != FLOAT8OID))
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("argument %d is of type \"%s\", which is no floating-point type",
							i + 1, format_type_be(type))));
	}
	return single;
}

PG_FUNCTION_INFO_V1(dailyrollup_float_image);

/*
 * The image of a row of floats, to order those by that are equal: as their record
 * by the server's *< operator.  NULL where such rows cannot differ.
 */
Datum
dailyrollup_float_image(PG_FUNCTION_ARGS)
{
	const bool *single = fcinfo->flinfo->fn_extra;
	bool		may_differ = false;
	bytea	   *result;
	char	   *end;

	if (single == NULL)
		single = fcinfo->flinfo->fn_extra = find_single(fcinfo);
	for (int i = 0; !may_differ && i < PG_NARGS(); i++)
		may_differ = !PG_ARGISNULL(i) && has_images(PG_GETARG_DATUM(i), single[i]);
	if (!may_differ)
		PG_RETURN_NULL();
	result = palloc(VARHDRSZ + PG_NARGS() * sizeof(uint64));
	end = VARDATA(result);
	for (int i = 0; i < PG_NARGS(); i++)
		if (!PG_ARGISNULL(i))
			end += write_float(end, PG_GETARG_DATUM(i), single[i]);
	SET_VARSIZE(result, end - (char *) result);
	PG_RETURN_BYTEA_P(result);
}

/* ------------------------------------------------------------------- order */

void
dr_image_prepare(DrImageOrder *order, Oid type, MemoryContext context)
{
	order->type = type;
	get_typlenbyval(type, &order->typlen, &order->typbyval);
	order->shape = image_shape(type);
	if (order->shape == IMAGE_ROW)
		fmgr_info_cxt(F_BTRECORDIMAGECMP, &order->compare_rows, context);
}

/*
 * Compare two values that are not NULL.  A row's columns count in order, as
 * for the server's *> operator.  May leave memory behind in the current
 * context.
 */
int
dr_image_compare(const DrImageOrder *order, Datum a, Datum b)
{
	if (order->shape == IMAGE_BYTES)
		return compare_bytes(a, b, order->typbyval, order->typlen);
	a = image(order->type, a);
	b = image(order->type, b);
	if (order->shape == IMAGE_ROW)
		return DatumGetInt32(FunctionCall2(unconstify(FmgrInfo *, &order->compare_rows), a, b));
	return compare_bytes(a, b, false, -1);
}
