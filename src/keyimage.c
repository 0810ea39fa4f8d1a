/*
 * keyimage.c
 *		A key as a string of bytes, which two keys have in common exactly where
 *		they are equal.
 *
 * First come which of its values are NULL, then the others.  A value of
 * variable length has a header of four bytes, and each begins at a multiple of
 * eight: so values can be read in place.
 */
#include "keyimage.h"

#include "access/nbtree.h"
#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compat.h"

/* One value: where its bytes are, however it is packed, and what they take in
 * the image. */
typedef struct Part
{
	const char *bytes;
	Size		size;
	Size		room;
} Part;

/* Are values of the type the same exactly where their bytes are? */
bool
dr_keyimage_tells(Oid type, Oid collation)
{
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY);
	Oid			function;

	/* with blanks at its end or without them it is the same */
	if (!OidIsValid(entry->btree_opf) || getBaseType(type) == BPCHAROID)
		return false;
	function = get_opfamily_proc(entry->btree_opf, entry->btree_opintype,
								 entry->btree_opintype, BTEQUALIMAGE_PROC);
	return OidIsValid(function) &&
		DatumGetBool(OidFunctionCall1Coll(function, collation,
										  ObjectIdGetDatum(entry->btree_opintype)));
}

DrKind *
dr_keyimage_kinds(TupleDesc desc)
{
	DrKind	   *kinds = palloc(desc->natts * sizeof(DrKind));

	for (int i = 0; i < desc->natts; i++)
	{
		kinds[i].typlen = TupleDescAttr(desc, i)->attlen;
		kinds[i].typbyval = TupleDescAttr(desc, i)->attbyval;
	}
	return kinds;
}

static Part
locate(const DrKind *kind, Datum value)
{
	Part		part;
	struct varlena *packed;

	if (kind->typlen == -1)
	{
		packed = PG_DETOAST_DATUM_PACKED(value);
		part.bytes = VARDATA_ANY(packed);
		part.size = VARSIZE_ANY_EXHDR(packed);
		part.room = MAXALIGN(part.size + VARHDRSZ);
		return part;
	}
	part.size = datumGetSize(value, kind->typbyval, kind->typlen);
	part.bytes = DatumGetPointer(value);
	part.room = MAXALIGN(part.size);
	return part;
}

static void
put(char *image, const DrKind *kind, const Part *part, Datum value)
{
	if (kind->typbyval)
		store_att_byval(image, value, kind->typlen);
	else if (kind->typlen == -1)
	{
		SET_VARSIZE(image, part->size + VARHDRSZ);
		memcpy(VARDATA(image), part->bytes, part->size);
	}
	else
		memcpy(image, part->bytes, part->size);
}

/* The image of a key of n values, in the room. */
void
dr_keyimage_make(const DrKind *kinds, int n, const Datum *values, const bool *nulls,
				 DrRoom *room, DrKey *key)
{
	Part		parts[INDEX_MAX_KEYS];
	Size		size = MAXALIGN(n);
	char	   *image;

	for (int i = 0; i < n; i++)
		if (!nulls[i])
		{
			parts[i] = locate(&kinds[i], values[i]);
			size += parts[i].room;
		}
	image = dr_room_allocate(room, size);
	memset(image, 0, size);
	memcpy(image, nulls, n * sizeof(bool));
	key->image = image;
	key->size = size;
	image += MAXALIGN(n);
	for (int i = 0; i < n; i++)
		if (!nulls[i])
		{
			put(image, &kinds[i], &parts[i], values[i]);
			image += parts[i].room;
		}
	key->hash = dr_keytable_hash(key->image, key->size);
}

/* The values of a key; they point into the image. */
void
dr_keyimage_read(const DrKind *kinds, int n, const char *image, Datum *values, bool *nulls)
{
	memcpy(nulls, image, n * sizeof(bool));
	image += MAXALIGN(n);
	for (int i = 0; i < n; i++)
	{
		values[i] = (Datum) 0;
		if (nulls[i])
			continue;
		values[i] = fetch_att(image, kinds[i].typbyval, kinds[i].typlen);
		image += MAXALIGN(datumGetSize(values[i], kinds[i].typbyval, kinds[i].typlen));
	}
}
