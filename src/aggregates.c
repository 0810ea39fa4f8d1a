/*
 * aggregates.c
 *		latest(value, at) and earliest(value, at): the value in the row with
 *		the greatest or the least time.
 *
 * Rows that have a time compete.  The first of these rules that tells two of
 * them apart names the winner:
 *
 *		rule					latest			earliest
 *		1. time					the greater		the less
 *		2. is there a value		a value beats NULL
 *		3. value				the greater		the less
 *		4. image of the value	the greater		the greater
 *
 * Rules 1 and 3 are the default btree orders.  The image (rule 4) is the
 * value's bytes, however the value is packed: compressed, toasted or with a
 * short header, also inside a row.  It tells 1.0 from 1.00, so that two rows
 * which no rule tells apart have the same value.  The winner of a set of rows
 * therefore depends neither on their order nor on how they are grouped, as
 * long as everyone who merges asks dr_aggregates_wins().
 *
 * A state owns what it points to, in the aggregate's memory context, and no
 * toast pointer.  It points to the contest of the call site that made it,
 * which lives as long as the query.
 */
#include "aggregates.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "port/pg_bitutils.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "image.h"

/* Orders of time that need no call through fmgr. */
typedef enum TimeOrder
{
	TIME_INT64,
	TIME_INT32,
	TIME_CALLED
} TimeOrder;

/* A type and its default btree order. */
typedef struct Ordered
{
	Oid			type;
	int16		typlen;
	bool		typbyval;
	bool		tried;			/* the order has been called once */
	FmgrInfo	compare;
} Ordered;

struct DrContest
{
	Ordered		value;
	Ordered		at;
	Oid			collation;
	bool		latest;
	TimeOrder	time_order;
	DrImageOrder images;			/* of values */
};

/* Memory for a value that comes and goes. */
typedef struct Room
{
	char	   *data;
	Size		size;
} Room;

/* The transition state: the best row so far.  Without one there is no state. */
typedef struct Winner
{
	DrContest  *contest;
	DrEntrant	row;
	Room		value_room;
	Room		at_room;
} Winner;

/* What precedes the two values in a serialized state. */
typedef struct Serialized
{
	Oid			value_type;
	Oid			at_type;
	Oid			collation;
	uint32		latest;			/* four bytes: no padding */
} Serialized;

/*
 * Find a type's order, or raise an error.  The call information is a copy of
 * the type cache's, so that what comparisons cache goes with the query.
 */
static void
find_order(Ordered *ordered, Oid type, MemoryContext context)
{
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_CMP_PROC_FINFO);

	if (!OidIsValid(entry->cmp_proc_finfo.fn_oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("could not identify a comparison function for type %s",
						format_type_be(type)),
				 errhint("The value and the time of latest and earliest need types with a default btree operator class.")));
	ordered->type = type;
	ordered->typlen = entry->typlen;
	ordered->typbyval = entry->typbyval;
	fmgr_info_copy(&ordered->compare, &entry->cmp_proc_finfo, context);
}

static TimeOrder
find_time_order(Oid type)
{
	switch (getBaseType(type))
	{
		case TIMESTAMPTZOID:
		case TIMESTAMPOID:
		case INT8OID:
			return TIME_INT64;
		case DATEOID:
		case INT4OID:
			return TIME_INT32;
		default:
			return TIME_CALLED;
	}
}

/*
 * Prepare to compare rows of these types, or raise an error if a type has no
 * order.  The result lives in "context".
 */
DrContest *
dr_aggregates_prepare(Oid value_type, Oid at_type, Oid collation, bool latest,
					  MemoryContext context)
{
	DrContest  *contest;

	if (at_type == UNKNOWNOID || !OidIsValid(at_type) || !OidIsValid(value_type))
		ereport(ERROR,
				(errcode(ERRCODE_INDETERMINATE_DATATYPE),
				 errmsg("could not determine the type of the time"),
				 errhint("Cast the time, for example to timestamptz.")));

	contest = (DrContest *) MemoryContextAllocZero(context, sizeof(DrContest));
	find_order(&contest->value, value_type, context);
	find_order(&contest->at, at_type, context);
	contest->collation = collation;
	contest->latest = latest;
	contest->time_order = find_time_order(at_type);
	dr_image_prepare(&contest->images, value_type, context);
	return contest;
}

static int
compare_called(Ordered *ordered, Oid collation, Datum a, Datum b)
{
	return DatumGetInt32(FunctionCall2Coll(&ordered->compare, collation, a, b));
}

static inline int
compare_times(DrContest *contest, Datum a, Datum b)
{
	if (contest->time_order == TIME_INT64)
		return (DatumGetInt64(a) > DatumGetInt64(b)) -
			(DatumGetInt64(a) < DatumGetInt64(b));
	if (contest->time_order == TIME_INT32)
		return (DatumGetInt32(a) > DatumGetInt32(b)) -
			(DatumGetInt32(a) < DatumGetInt32(b));
	return compare_called(&contest->at, contest->collation, a, b);
}

/* Rules 2 to 4, for rows of the same time. */
static bool
wins_tie(DrContest *contest, const DrEntrant *challenger,
		 const DrEntrant *champion)
{
	int			result;

	if (challenger->value_isnull || champion->value_isnull)
		return champion->value_isnull && !challenger->value_isnull;

	result = compare_called(&contest->value, contest->collation,
							challenger->value, champion->value);
	if (result != 0)
		return contest->latest ? result > 0 : result < 0;

	return dr_image_compare(&contest->images, challenger->value, champion->value) > 0;
}

/*
 * Does the challenger win?  If not, the champion stays: it wins, the two have
 * the same value, or the challenger has no time.  A time wins against none.
 *
 * May leave memory behind in the current context where rows tie.
 */
bool
dr_aggregates_wins(DrContest *contest, const DrEntrant *challenger,
				   const DrEntrant *champion)
{
	int			result;

	if (challenger->at_isnull || champion->at_isnull)
		return champion->at_isnull && !challenger->at_isnull;

	result = compare_times(contest, challenger->at, champion->at);
	if (result == 0)
		return wins_tie(contest, challenger, champion);
	return contest->latest ? result > 0 : result < 0;
}

/*
 * Call each order once, on a value and itself.  Errors that only a comparison
 * can raise (an anonymous row with a column that has no order, text of no
 * collation) then come with the first row, not with the first tie.
 */
static void
try_orders(DrContest *contest, const DrEntrant *row)
{
	if (!contest->at.tried)
		(void) compare_called(&contest->at, contest->collation,
							  row->at, row->at);
	contest->at.tried = true;
	if (contest->value.tried || row->value_isnull)
		return;
	(void) compare_called(&contest->value, contest->collation,
						  row->value, row->value);
	contest->value.tried = true;
}

/*
 * Copy a value that is passed by reference into the room, which grows in
 * "context".  A room that is far too large is given back: one long value must
 * not make a state large for ever.
 */
static Datum
keep_reference(Room *room, Datum datum, int typlen, MemoryContext context)
{
	Size		size = datumGetSize(datum, false, typlen);

	if (room->size < size || room->size / 4 > Max(size, 256))
	{
		if (room->data != NULL)
			pfree(room->data);
		room->size = size < 4096 ? pg_nextpower2_32(Max(size, 16)) : size;
		room->data = (char *) MemoryContextAlloc(context, room->size);
	}
	memcpy(room->data, DatumGetPointer(datum), size);
	return PointerGetDatum(room->data);
}

/* A value that may be compressed but is all here: no toast pointer. */
static Datum
keep_value(Room *room, const Ordered *ordered, Datum datum,
		   MemoryContext context)
{
	struct varlena *fetched;

	if (ordered->typbyval)
		return datum;
	if (ordered->typlen != -1 || !VARATT_IS_EXTERNAL(DatumGetPointer(datum)))
		return keep_reference(room, datum, ordered->typlen, context);

	fetched = detoast_external_attr((struct varlena *) DatumGetPointer(datum));
	datum = keep_reference(room, PointerGetDatum(fetched), -1, context);
	pfree(fetched);
	return datum;
}

/* A time is not even compressed: each further row is compared with it. */
static Datum
keep_time(Room *room, const Ordered *ordered, Datum datum,
		  MemoryContext context)
{
	if (ordered->typbyval)
		return datum;
	if (ordered->typlen == -1)
		datum = PointerGetDatum(PG_DETOAST_DATUM_PACKED(datum));
	return keep_reference(room, datum, ordered->typlen, context);
}

/*
 * Make the row the winner.  A new state, for a winner of NULL, lives in
 * "context", as does what it points to.
 */
static Winner *
crown(Winner *winner, DrContest *contest, const DrEntrant *row,
	  MemoryContext context)
{
	try_orders(contest, row);
	if (winner == NULL)
	{
		winner = (Winner *) MemoryContextAllocZero(context, sizeof(Winner));
		winner->contest = contest;
	}
	winner->row.at_isnull = false;
	winner->row.at = keep_time(&winner->at_room, &contest->at, row->at, context);
	winner->row.value_isnull = row->value_isnull;
	if (!row->value_isnull)
		winner->row.value = keep_value(&winner->value_room, &contest->value,
									   row->value, context);
	return winner;
}

/* The aggregate's memory context; an error for any other kind of call. */
static MemoryContext
aggregate_context(FunctionCallInfo fcinfo)
{
	MemoryContext context;

	if (!AggCheckCallContext(fcinfo, &context))
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_INVOCATION_EXCEPTION),
				 errmsg("function is only to be called by latest and earliest")));
	return context;
}

/* Transition: let a row compete.  A row without a time changes nothing. */
static Winner *
step(FunctionCallInfo fcinfo, Winner *winner, const DrEntrant *row, bool latest)
{
	MemoryContext context = aggregate_context(fcinfo);
	FmgrInfo   *flinfo = fcinfo->flinfo;
	DrContest  *contest = (DrContest *) flinfo->fn_extra;

	if (contest == NULL)
		flinfo->fn_extra = contest =
			dr_aggregates_prepare(get_fn_expr_argtype(flinfo, 1),
								  get_fn_expr_argtype(flinfo, 2),
								  PG_GET_COLLATION(), latest, flinfo->fn_mcxt);
	if (row->at_isnull)
		return winner;
	if (winner == NULL || dr_aggregates_wins(contest, row, &winner->row))
		winner = crown(winner, contest, row, context);
	return winner;
}

/* A copy of the better state, in the first one if there is one. */
static Winner *
combine(Winner *winner, const Winner *other, MemoryContext context)
{
	if (other == NULL)
		return winner;
	if (winner == NULL ||
		dr_aggregates_wins(winner->contest, &other->row, &winner->row))
		winner = crown(winner, other->contest, &other->row, context);
	return winner;
}

static bytea *
serialize(const Winner *winner)
{
	const Ordered *value = &winner->contest->value;
	const Ordered *at = &winner->contest->at;
	const DrEntrant *row = &winner->row;
	Serialized	head = {
		.value_type = value->type,
		.at_type = at->type,
		.collation = winner->contest->collation,
		.latest = winner->contest->latest
	};
	Size		size = VARHDRSZ + sizeof(head) +
		datumEstimateSpace(row->value, row->value_isnull,
						   value->typbyval, value->typlen) +
		datumEstimateSpace(row->at, false, at->typbyval, at->typlen);
	bytea	   *result = (bytea *) palloc(size);
	char	   *next = VARDATA(result);

	SET_VARSIZE(result, size);
	memcpy(next, &head, sizeof(head));
	next += sizeof(head);
	datumSerialize(row->value, row->value_isnull,
				   value->typbyval, value->typlen, &next);
	datumSerialize(row->at, false, at->typbyval, at->typlen, &next);
	return result;
}

/*
 * The state is short-lived, since combine() copies what it keeps; its contest
 * is cached for the call site.
 */
static Winner *
deserialize(FmgrInfo *flinfo, bytea *serialized)
{
	DrContest  *contest = (DrContest *) flinfo->fn_extra;
	char	   *next = VARDATA_ANY(serialized);
	Winner	   *winner = (Winner *) palloc0(sizeof(Winner));
	Serialized	head;

	memcpy(&head, next, sizeof(head));
	next += sizeof(head);
	if (contest == NULL ||
		contest->value.type != head.value_type ||
		contest->at.type != head.at_type ||
		contest->collation != head.collation ||
		contest->latest != (head.latest != 0))
		flinfo->fn_extra = contest =
			dr_aggregates_prepare(head.value_type, head.at_type,
								  head.collation, head.latest != 0,
								  flinfo->fn_mcxt);
	winner->contest = contest;
	winner->row.value = datumRestore(&next, &winner->row.value_isnull);
	winner->row.at = datumRestore(&next, &winner->row.at_isnull);
	return winner;
}

static Winner *
winner_argument(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : (Winner *) PG_GETARG_POINTER(n);
}

static DrEntrant
row_arguments(FunctionCallInfo fcinfo)
{
	DrEntrant	row = {
		.value = PG_GETARG_DATUM(1),
		.at = PG_GETARG_DATUM(2),
		.value_isnull = PG_ARGISNULL(1),
		.at_isnull = PG_ARGISNULL(2)
	};

	return row;
}

PG_FUNCTION_INFO_V1(dailyrollup_latest_step);
PG_FUNCTION_INFO_V1(dailyrollup_earliest_step);
PG_FUNCTION_INFO_V1(dailyrollup_winner_combine);
PG_FUNCTION_INFO_V1(dailyrollup_winner_serialize);
PG_FUNCTION_INFO_V1(dailyrollup_winner_deserialize);
PG_FUNCTION_INFO_V1(dailyrollup_winner_final);

/* dailyrollup._latest_step(internal, anyelement, "any") returns internal */
Datum
dailyrollup_latest_step(PG_FUNCTION_ARGS)
{
	DrEntrant	row = row_arguments(fcinfo);
	Winner	   *winner = step(fcinfo, winner_argument(fcinfo, 0), &row, true);

	if (winner == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(winner);
}

/* dailyrollup._earliest_step(internal, anyelement, "any") returns internal */
Datum
dailyrollup_earliest_step(PG_FUNCTION_ARGS)
{
	DrEntrant	row = row_arguments(fcinfo);
	Winner	   *winner = step(fcinfo, winner_argument(fcinfo, 0), &row, false);

	if (winner == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(winner);
}

/* dailyrollup._winner_combine(internal, internal) returns internal */
Datum
dailyrollup_winner_combine(PG_FUNCTION_ARGS)
{
	MemoryContext context = aggregate_context(fcinfo);
	Winner	   *winner = combine(winner_argument(fcinfo, 0),
								 winner_argument(fcinfo, 1), context);

	if (winner == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(winner);
}

/* dailyrollup._winner_serialize(internal) returns bytea, strict */
Datum
dailyrollup_winner_serialize(PG_FUNCTION_ARGS)
{
	(void) aggregate_context(fcinfo);
	PG_RETURN_BYTEA_P(serialize((Winner *) PG_GETARG_POINTER(0)));
}

/* dailyrollup._winner_deserialize(bytea, internal) returns internal, strict */
Datum
dailyrollup_winner_deserialize(PG_FUNCTION_ARGS)
{
	(void) aggregate_context(fcinfo);
	PG_RETURN_POINTER(deserialize(fcinfo->flinfo, PG_GETARG_BYTEA_PP(0)));
}

/*
 * dailyrollup._winner_final(internal, anyelement, "any") returns anyelement
 *
 * The result is a copy: a window goes on with the state.
 */
Datum
dailyrollup_winner_final(PG_FUNCTION_ARGS)
{
	Winner	   *winner = winner_argument(fcinfo, 0);

	(void) aggregate_context(fcinfo);
	if (winner == NULL || winner->row.value_isnull)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(datumCopy(winner->row.value, winner->contest->value.typbyval,
							  winner->contest->value.typlen));
}
