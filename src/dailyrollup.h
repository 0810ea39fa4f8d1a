/*
 * dailyrollup.h
 *		Plain structs and names that travel between modules.
 *
 * A rollup is a table with a row per key (the "live" table), defined by a
 * GROUP BY query over one source.  It is exact for source rows whose time
 * lies before the rollup's watermark W, a midnight; what lies at or after W
 * is the "tail".
 *
 *		source   |=====================|..............> time
 *		                               W
 *		live      = query over ======    tail = ......
 *
 * Layer 0: this file includes headers of the server only.
 */
#ifndef DAILYROLLUP_H
#define DAILYROLLUP_H

#include "postgres.h"

#include "access/attnum.h"
#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "nodes/primnodes.h"

#define DR_SCHEMA	"dailyrollup"

/* What is of use within a transaction alone, an entry for each rollup: so many are
 * kept, to be used again. */
#define DR_KEPT_ENTRIES	32

/* The type of the time column.  W is an instant; compared with the latter
 * two it is the local midnight in the rollup's zone, without conversion. */
typedef enum DrTimeKind
{
	DR_TIME_TIMESTAMPTZ,
	DR_TIME_TIMESTAMP,
	DR_TIME_DATE
} DrTimeKind;

/* How two partial values of a measure become one. */
typedef enum DrMeasureKind
{
	DR_COUNT,
	DR_SUM,
	DR_MIN,
	DR_MAX,
	DR_BOOL_AND,
	DR_BOOL_OR,
	DR_BIT_AND,
	DR_BIT_OR,
	DR_LATEST,
	DR_EARLIEST
} DrMeasureKind;

/* A source column that the rollup uses: a column of events_<id>. */
typedef struct DrEventColumn
{
	AttrNumber	attno;			/* in the source */
	char	   *source_name;	/* its name there, today */
	char	   *name;			/* its name in events_<id> */
	Oid			type;
	int32		typmod;
	Oid			collation;
	bool		not_null;		/* declared NOT NULL in the source */
	bool		ordered;		/* its type has a default btree order */
} DrEventColumn;

/* An output column of the defining query, in the query's order. */
typedef struct DrColumn
{
	char	   *name;
	Oid			type;
	int32		typmod;
	Oid			collation;
	Node	   *expr;			/* the whole expression; Vars have varno 1 */
	bool		is_key;

	/* keys only */
	bool		not_null;		/* proven never NULL: a bare NOT NULL column, or
								 * the bare time column */

	/* measures only */
	DrMeasureKind kind;
	Oid			aggregate;		/* the aggregate's pg_proc OID */
	Node	   *arg;			/* NULL for count(*) */
	Node	   *at;				/* latest, earliest: the time expression */
	Node	   *filter;			/* NULL without FILTER */
	Const	   *otherwise;		/* coalesce(measure, otherwise), or NULL */
	int			at_column;		/* latest, earliest: index of the column that
								 * holds max(at) / min(at), same FILTER; -1 */
	int			presence;		/* with otherwise, where the constant is not
								 * the merge's identity: index of the column
								 * that tells whether there was a value (a
								 * count: > 0; else: IS NOT NULL); -1 */
} DrColumn;

typedef struct DrDefinition
{
	Oid			source;
	bool		partitioned;	/* false: SQL says ONLY */
	DrTimeKind	time_kind;

	int			nevents;		/* events[0] is the time column */
	DrEventColumn *events;
	int			ndedup;			/* 0: every row counts */
	int		   *dedup_by;		/* indexes into events */
	int			ndedup_order;
	int		   *dedup_order;	/* indexes into events */

	int			ncolumns;
	DrColumn   *columns;
	int			nkeys;
	int		   *keys;			/* indexes into columns, in order */
	Node	   *where;			/* implicit-AND is resolved: one boolean
								 * expression, or NULL */
	Oid			vars_of;		/* the relation whose attribute numbers the
								 * Vars in columns and where carry: the source
								 * (fresh from a query) or events_<id> */
} DrDefinition;

#endif							/* DAILYROLLUP_H */
