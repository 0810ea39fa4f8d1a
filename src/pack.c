/*
 * pack.c
 *		Values of a row packed into a string of bytes.
 *
 * First which values are NULL, then each other one.  A value of variable
 * length has a header of four bytes, and each begins at a multiple of eight:
 * so values can be read in place.  Two packs are the same exactly where all
 * values have the same image: the same bytes, however they were compressed or
 * toasted.
 */
#include "pack.h"

#include "access/nbtree.h"
#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "port/pg_bitutils.h"
#include "port/pg_crc32c.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

DrKind *
dr_pack_kinds(TupleDesc desc)
{
	DrKind	   *kinds = palloc(desc->natts * sizeof(DrKind));

	for (int i = 0; i < desc->natts; i++)
	{
		kinds[i].typlen = TupleDescAttr(desc, i)->attlen;
		kinds[i].typbyval = TupleDescAttr(desc, i)->attbyval;
	}
	return kinds;
}

/* Are values of the type the same exactly where their bytes are? */
bool
dr_pack_tells_apart(Oid type, Oid collation)
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

static void
locate(DrPart *part, const DrKind *kind, Datum value)
{
	struct varlena *packed;

	if (kind->typlen == -1)
	{
		packed = PG_DETOAST_DATUM_PACKED(value);
		part->bytes = VARDATA_ANY(packed);
		part->size = VARSIZE_ANY_EXHDR(packed);
		part->room = MAXALIGN(part->size + VARHDRSZ);
		return;
	}
	part->size = datumGetSize(value, kind->typbyval, kind->typlen);
	part->bytes = DatumGetPointer(value);
	part->room = MAXALIGN(part->size);
}

static void
put(char *pack, const DrKind *kind, const DrPart *part, Datum value)
{
	if (kind->typbyval)
		store_att_byval(pack, value, kind->typlen);
	else if (kind->typlen == -1)
	{
		SET_VARSIZE(pack, part->size + VARHDRSZ);
		memcpy(VARDATA(pack), part->bytes, part->size);
	}
	else
		memcpy(pack, part->bytes, part->size);
}

/* The size of the pack; "parts" is for dr_pack_write.  What is not stored in
 * the row itself is read into the current memory context. */
Size
dr_pack_measure(const DrKind *kinds, int n, const Datum *values, const bool *nulls,
				DrPart *parts)
{
	Size		size = MAXALIGN(n);

	for (int i = 0; i < n; i++)
		if (!nulls[i])
		{
			locate(&parts[i], &kinds[i], values[i]);
			size += parts[i].room;
		}
	return size;
}

/* What packs that are the same have in common, as a rule no others.  Processors
 * have an instruction for the checksum; what is alike is alike in some of its
 * bits, so they are mixed. */
uint32
dr_pack_hash(const DrKind *kinds, int n, const Datum *values, const bool *nulls,
			 const DrPart *parts)
{
	uint32		hash = 0;

	for (int i = 0; i < n; i++)
	{
		const char *bytes = parts[i].bytes;
		char		number[sizeof(Datum)];
		pg_crc32c	crc;

		hash = pg_rotate_left32(hash, 1);
		if (nulls[i])
			continue;
		if (kinds[i].typbyval)
		{
			store_att_byval(number, values[i], kinds[i].typlen);
			bytes = number;
		}
		INIT_CRC32C(crc);
		COMP_CRC32C(crc, bytes, parts[i].size);
		hash ^= crc + parts[i].size;
	}
	return murmurhash32(hash);
}

/* "pack" is aligned. */
void
dr_pack_write(char *pack, Size size, const DrKind *kinds, int n, const Datum *values,
			  const bool *nulls, const DrPart *parts)
{
	memset(pack, 0, size);
	memcpy(pack, nulls, n * sizeof(bool));
	pack += MAXALIGN(n);
	for (int i = 0; i < n; i++)
		if (!nulls[i])
		{
			put(pack, &kinds[i], &parts[i], values[i]);
			pack += parts[i].room;
		}
}

/* The values; they point into the pack. */
void
dr_pack_read(const char *pack, const DrKind *kinds, int n, Datum *values, bool *nulls)
{
	memcpy(nulls, pack, n * sizeof(bool));
	pack += MAXALIGN(n);
	for (int i = 0; i < n; i++)
	{
		values[i] = (Datum) 0;
		if (nulls[i])
			continue;
		values[i] = fetch_att(pack, kinds[i].typbyval, kinds[i].typlen);
		pack += MAXALIGN(datumGetSize(values[i], kinds[i].typbyval, kinds[i].typlen));
	}
}
