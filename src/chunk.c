/*
 * chunk.c
 *		A seed in parts: where each of them ends.
 *
 * Each part is a refresh of its own, in a transaction of its own, so that a
 * seed that is killed goes on where it was.  It pays where a part can be read
 * without the rest:
 *
 *		partitioned by ranges of the time column	a partition at a time, or some
 *		an index that leads with the time column	up to 64 spans of time
 *		else										all at once
 *
 * and where there is enough to read.
 */
#include "chunk.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "executor/spi.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/timestamp.h"

#include "boundary.h"
#include "debug.h"
#include "identity.h"
#include "query.h"

/* More spans than that are not made. */
#define SPANS	64

/* More parts than that are not told apart. */
#define MAX_COUNTED	1000

/* Keep the candidate, if it is the nearest after W so far. */
static void
consider(TimestampTz candidate, bool has_watermark, TimestampTz watermark, TimestampTz *end)
{
	if ((!has_watermark || candidate > watermark) && candidate < *end)
		*end = candidate;
}

/* How many pages a table, or the partitions below it, have.  No lock is kept:
 * that of the source comes before that of a partition. */
static int64
pages_of(Oid relation)
{
	Relation	table = try_relation_open(relation, AccessShareLock);
	int64		pages = 0;
	ListCell   *cell;

	if (table == NULL)
		return 0;				/* a partition that was detached has gone */
	foreach(cell, find_all_inheritors(relation, AccessShareLock, NULL))
	{
		Relation	leaf = relation_open(lfirst_oid(cell), NoLock);

		if (RELKIND_HAS_STORAGE(leaf->rd_rel->relkind))
			pages += RelationGetNumberOfBlocks(leaf);
		relation_close(leaf, lfirst_oid(cell) == relation ? NoLock : AccessShareLock);
	}
	relation_close(table, AccessShareLock);
	return pages;
}

/*
 * Where the partitions are ranges of time: the end of the first one after W,
 * with which there is something worth a transaction of its own.
 */
static TimestampTz
end_of_partition(const DrRollup *rollup, const DrDefinition *def, Relation source,
				 bool has_watermark, TimestampTz watermark, TimestampTz end)
{
	PartitionKey key = RelationGetPartitionKey(source);
	PartitionDesc desc = RelationGetPartitionDesc(source, true);
	PartitionBoundInfo bounds = desc->boundinfo;
	pg_tz	   *zone = dr_boundary_zone(rollup->time_zone);
	int64		pages = 0;

	if (key->strategy != PARTITION_STRATEGY_RANGE ||
		key->partattrs[0] != def->events[0].attno || bounds == NULL)
		return end;
	for (int i = 0; i < bounds->ndatums; i++)
	{
		TimestampTz candidate = end;

		if (bounds->kind[i][0] != PARTITION_RANGE_DATUM_VALUE ||
			!dr_boundary_is_ordinary(def->time_kind, bounds->datums[i][0]))
			continue;
		consider(dr_boundary_not_before(def->time_kind, zone, bounds->datums[i][0]),
				 has_watermark, watermark, &candidate);
		if (candidate >= end)
			continue;
		if (bounds->indexes[i] >= 0)
			pages += pages_of(desc->oids[bounds->indexes[i]]);
		if (pages >= DR_SMALLEST_PART)
			return candidate;
	}
	return end;
}

static bool
index_leads_with_time(const DrDefinition *def, Relation source)
{
	List	   *indexes = RelationGetIndexList(source);
	ListCell   *cell;
	bool		found = false;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		found = found || (index->rd_index->indisvalid &&
						  index->rd_index->indkey.values[0] == def->events[0].attno &&
						  RelationGetIndexPredicate(index) == NIL);
		index_close(index, AccessShareLock);
	}
	return found;
}

/* The least time of the source's rows from W on; false: there is none, or one
 * whose day cannot be told. */
static bool
first_time(const DrRollup *rollup, const DrDefinition *def,
		   bool has_watermark, TimestampTz watermark, TimestampTz *first)
{
	pg_tz	   *zone = dr_boundary_zone(rollup->time_zone);
	Oid			types[1] = {dr_boundary_type(def->time_kind)};
	Datum		values[1] = {
		has_watermark ? dr_boundary_datum(def->time_kind, zone, watermark) :
		dr_boundary_minus_infinity(def->time_kind)
	};
	DrIdentity	before;
	bool		isnull;
	Datum		value;

	dr_identity_enter_sql(rollup->owner, &before);
	if (SPI_execute_with_args(dr_query_first_time(def), 1, types, values, NULL,
							  true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read \"%s\"", dr_catalog_name(rollup->source));
	value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	if (!isnull && dr_boundary_is_ordinary(def->time_kind, value))
		*first = dr_boundary_not_before(def->time_kind, zone, value);
	else
		isnull = true;
	dr_identity_leave_sql(&before);
	return !isnull;
}

/* The midnight that ends the next span of time. */
static TimestampTz
end_of_span(const DrRollup *rollup, const DrDefinition *def,
			bool has_watermark, TimestampTz watermark, TimestampTz end)
{
	pg_tz	   *zone = dr_boundary_zone(rollup->time_zone);
	int64		spans = Min(SPANS, pages_of(rollup->source) / Max(DR_SMALLEST_PART, 1) + 1);
	TimestampTz least;
	TimestampTz first;
	TimestampTz candidate;

	if (!first_time(rollup, def, false, 0, &least) ||
		!first_time(rollup, def, has_watermark, watermark, &first) ||
		first >= end)
		return end;
	candidate = dr_boundary_next(zone, first + Max(0, (end - least) / spans - USECS_PER_DAY));
	consider(candidate, has_watermark, watermark, &end);
	return end;
}

/*
 * The boundary to which the next part of a seed to "boundary" goes, from W, or
 * from the beginning.
 */
TimestampTz
dr_chunk_end(const DrRollup *rollup, const DrDefinition *def,
			 bool has_watermark, TimestampTz watermark, TimestampTz boundary)
{
	Relation	source = table_open(rollup->source, AccessShareLock);
	TimestampTz end = boundary;

	if (source->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		end = end_of_partition(rollup, def, source, has_watermark, watermark, boundary);
	else if (index_leads_with_time(def, source))
		end = end_of_span(rollup, def, has_watermark, watermark, boundary);
	table_close(source, AccessShareLock);
	return end;
}

/* How many parts there are to go, about: the last of them may be a short one. */
int
dr_chunk_count(const DrRollup *rollup, const DrDefinition *def,
			   bool has_watermark, TimestampTz watermark, TimestampTz boundary)
{
	TimestampTz end = dr_chunk_end(rollup, def, has_watermark, watermark, boundary);
	TimestampTz next;
	int			n = 1;

	while (end < boundary && n < MAX_COUNTED)
	{
		next = dr_chunk_end(rollup, def, true, end, boundary);
		if (next <= end)
			break;
		end = next;
		n++;
	}
	return n;
}
