/*
 * boundary.c
 *		Midnights of a time zone: pure arithmetic, no clock and no catalog.
 *
 * A boundary is the first instant of a local day.  That is mostly 00:00, but
 * a day whose 00:00 is skipped by a change to summer time begins at the
 * change, and a day whose 00:00 occurs twice begins at the first of the two.
 *
 *		local date   ...  D-1  |  D  |  D+1  ...
 *		                       ^ boundary of D
 *
 * A rollup over a timestamp or date column compares with the local midnight
 * itself, 00:00 of D, whatever the session's time zone.
 */
#include "boundary.h"

#include "catalog/pg_type.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

/* The zone of that name, or NULL.  That it could not be read for want of memory or
 * of files says nothing of the name. */
static pg_tz *
find_zone(const char *name)
{
	pg_tz	   *zone;
	int			reason;

	errno = 0;
	zone = pg_tzset(name);
	reason = errno;
	if (zone == NULL && (reason == ENOMEM || reason == EMFILE || reason == ENFILE))
		ereport(ERROR,
				(errcode(reason == ENOMEM ? ERRCODE_OUT_OF_MEMORY : ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not read time zone \"%s\": %m", name)));
	return zone;
}

/* Does the server know a zone of that name?  It may have lost one that it knew. */
bool
dr_boundary_knows_zone(const char *name)
{
	pg_tz	   *zone = find_zone(name);

	return zone != NULL && pg_tz_acceptable(zone);
}

/*
 * The zone of that name, or an error.  Abbreviations that PostgreSQL itself
 * resolves to a fixed offset are not zones.
 */
pg_tz *
dr_boundary_zone(const char *name)
{
	pg_tz	   *zone = find_zone(name);

	if (zone == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" not recognized", name),
				 errhint("Choose a name from the view pg_timezone_names.")));
	if (!pg_tz_acceptable(zone))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" appears to use leap seconds", name),
				 errdetail("PostgreSQL does not support leap seconds.")));
	return zone;
}

/* Days; a century is longer than anybody waits for a day to settle. */
#define LONGEST_DELAY	36525

/* A delay is a span of days and hours, not negative; else an error. */
Interval *
dr_boundary_check_delay(Interval *delay)
{
	if (delay->month != 0 || delay->day < 0 || delay->time < 0 ||
		delay->day > LONGEST_DELAY || delay->time > LONGEST_DELAY * USECS_PER_DAY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("delay must be a span of days and hours, not negative and not longer than %d days",
						LONGEST_DELAY)));
	return delay;
}

/* The instant that lies so long before another one. */
TimestampTz
dr_boundary_before(TimestampTz instant, const Interval *delay)
{
	return instant - delay->time - delay->day * USECS_PER_DAY;
}

/* Near the ends of what a timestamp can hold a zone may have no local time. */
static void
complain_of_range(pg_tz *zone, TimestampTz instant)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
			 errmsg("%s is out of range in time zone \"%s\"",
					timestamptz_to_str(instant), pg_get_timezone_name(zone)),
			 errhint("infinity and -infinity are in range.")));
}

/* The local day of an instant, as a Julian day. */
static int
local_day(pg_tz *zone, TimestampTz instant)
{
	struct pg_tm tm;
	fsec_t		fsec;
	int			offset;

	if (timestamp2tm(instant, &offset, &tm, &fsec, NULL, zone) != 0)
		complain_of_range(zone, instant);
	return date2j(tm.tm_year, tm.tm_mon, tm.tm_mday);
}

/* 00:00 of a Julian day as a timestamp without time zone. */
static Timestamp
day_start(int day)
{
	return (Timestamp) (day - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY;
}

/*
 * The first instant of a local day.
 *
 * Within a day and a half of it a zone changes its offset at most once.  So
 * the instant is 00:00 by the offset before the change, 00:00 by the offset
 * after it, or, where 00:00 is skipped, the change itself: the earliest of
 * these that does not lie in an earlier day.
 */
static TimestampTz
first_instant(pg_tz *zone, int day)
{
	TimestampTz start = day_start(day);
	pg_time_t	from = timestamptz_to_time_t(start - 36 * USECS_PER_HOUR);
	long		before,
				after;
	int			before_isdst,
				after_isdst;
	pg_time_t	change;
	TimestampTz candidate[3];
	int			n = 0;
	TimestampTz first = DT_NOEND;

	if (pg_next_dst_boundary(&from, &before, &before_isdst, &change,
							 &after, &after_isdst, zone) == 1)
	{
		candidate[n++] = start - after * USECS_PER_SEC;
		candidate[n++] = time_t_to_timestamptz(change);
	}
	candidate[n++] = start - before * USECS_PER_SEC;

	for (int i = 0; i < n; i++)
		if (candidate[i] < first && local_day(zone, candidate[i]) >= day)
			first = candidate[i];
	return first;
}

/* The latest midnight that is not after the (finite) instant. */
TimestampTz
dr_boundary_latest(pg_tz *zone, TimestampTz instant)
{
	int			day = local_day(zone, instant) + 1;
	TimestampTz boundary;

	/* the clock may have been set back over a midnight that has passed */
	while ((boundary = first_instant(zone, day)) > instant)
		day--;
	return boundary;
}

/* The first midnight after the (finite) instant. */
TimestampTz
dr_boundary_next(pg_tz *zone, TimestampTz instant)
{
	int			day = local_day(zone, instant);
	TimestampTz boundary;

	while ((boundary = first_instant(zone, day)) <= instant)
		day++;
	return boundary;
}

/* The instant that lies so long after another one. */
TimestampTz
dr_boundary_after(TimestampTz instant, const Interval *delay)
{
	return instant + delay->time + delay->day * USECS_PER_DAY;
}

/* The midnight in one zone of the day whose midnight it is in another. */
TimestampTz
dr_boundary_translate(TimestampTz boundary, pg_tz *from, pg_tz *to)
{
	return first_instant(to, local_day(from, boundary + USECS_PER_DAY / 2));
}

bool
dr_boundary_is_midnight(pg_tz *zone, TimestampTz instant)
{
	return !TIMESTAMP_NOT_FINITE(instant) &&
		dr_boundary_latest(zone, instant) == instant;
}

/* For a boundary that somebody asks for: an error where it is none. */
void
dr_boundary_check(pg_tz *zone, TimestampTz boundary)
{
	bool		finite = !TIMESTAMP_NOT_FINITE(boundary);
	char	   *latest;

	if (dr_boundary_is_midnight(zone, boundary))
		return;
	latest = finite ? pstrdup(timestamptz_to_str(dr_boundary_latest(zone, boundary))) : NULL;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("boundary %s is not a midnight in time zone \"%s\"",
					timestamptz_to_str(boundary), pg_get_timezone_name(zone)),
			 finite ? errhint("The one before it is %s.", latest) :
			 errhint("A boundary is the first instant of a day there.")));
}

/* Can the days around a value be computed, in any zone? */
bool
dr_boundary_is_ordinary(DrTimeKind kind, Datum time)
{
	Timestamp	instant;

	if (kind == DR_TIME_DATE)
	{
		int			day = DatumGetDateADT(time);

		return day > DATETIME_MIN_JULIAN - POSTGRES_EPOCH_JDATE + 3 &&
			day < TIMESTAMP_END_JULIAN - POSTGRES_EPOCH_JDATE - 3;
	}
	instant = DatumGetTimestamp(time);
	return instant > MIN_TIMESTAMP + 3 * USECS_PER_DAY &&
		instant < END_TIMESTAMP - 3 * USECS_PER_DAY;
}

/* The first midnight that is not before a finite value of the time column. */
TimestampTz
dr_boundary_not_before(DrTimeKind kind, pg_tz *zone, Datum time)
{
	TimestampTz instant = DatumGetTimestampTz(time);
	int			day;

	switch (kind)
	{
		case DR_TIME_TIMESTAMPTZ:
			return dr_boundary_is_midnight(zone, instant) ? instant :
				dr_boundary_next(zone, instant);
		case DR_TIME_DATE:
			return first_instant(zone, DatumGetDateADT(time) + POSTGRES_EPOCH_JDATE);
		case DR_TIME_TIMESTAMP:
			break;
	}
	day = (int) (instant / USECS_PER_DAY) - 1;
	while (day_start(day + POSTGRES_EPOCH_JDATE) < instant)
		day++;
	return first_instant(zone, day + POSTGRES_EPOCH_JDATE);
}

/*
 * A boundary as a value of the time column's type.  Half a day is added
 * before the local day is taken, so that a day that begins at 01:00, or a
 * boundary that a later change of the zone's rules has moved by an hour,
 * still names its own day.
 */
Datum
dr_boundary_datum(DrTimeKind kind, pg_tz *zone, TimestampTz boundary)
{
	int			day;

	if (kind == DR_TIME_TIMESTAMPTZ)
		return TimestampTzGetDatum(boundary);

	day = local_day(zone, boundary + USECS_PER_DAY / 2);
	if (kind == DR_TIME_DATE)
		return DateADTGetDatum(day - POSTGRES_EPOCH_JDATE);
	return TimestampGetDatum(day_start(day));
}

Datum
dr_boundary_infinity(DrTimeKind kind)
{
	switch (kind)
	{
		case DR_TIME_DATE:
			return DateADTGetDatum(DATEVAL_NOEND);
		case DR_TIME_TIMESTAMP:
			return TimestampGetDatum(DT_NOEND);
		case DR_TIME_TIMESTAMPTZ:
			break;
	}
	return TimestampTzGetDatum(DT_NOEND);
}

/*
 * The least value of the time column's type that does not lie before an
 * instant, which need not be a midnight: "time < bound" is true of the rows
 * before the instant.  A date stands for its midnight.
 */
Datum
dr_boundary_bound(DrTimeKind kind, pg_tz *zone, TimestampTz instant)
{
	struct pg_tm tm;
	fsec_t		fsec;
	int			offset;
	Timestamp	local;

	if (TIMESTAMP_IS_NOBEGIN(instant))
		return dr_boundary_minus_infinity(kind);
	if (TIMESTAMP_IS_NOEND(instant))
		return dr_boundary_infinity(kind);
	if (kind == DR_TIME_TIMESTAMPTZ || dr_boundary_is_midnight(zone, instant))
		return dr_boundary_datum(kind, zone, instant);
	if (kind == DR_TIME_DATE)
		return dr_boundary_datum(kind, zone, dr_boundary_next(zone, instant));

	if (timestamp2tm(instant, &offset, &tm, &fsec, NULL, zone) != 0 ||
		tm2timestamp(&tm, fsec, NULL, &local) != 0)
		complain_of_range(zone, instant);
	return TimestampGetDatum(local);
}

/* Is one value of the time column before another? */
bool
dr_boundary_precedes(DrTimeKind kind, Datum time, Datum other)
{
	if (kind == DR_TIME_DATE)
		return DatumGetDateADT(time) < DatumGetDateADT(other);
	return DatumGetTimestamp(time) < DatumGetTimestamp(other);
}

Datum
dr_boundary_minus_infinity(DrTimeKind kind)
{
	switch (kind)
	{
		case DR_TIME_DATE:
			return DateADTGetDatum(DATEVAL_NOBEGIN);
		case DR_TIME_TIMESTAMP:
			return TimestampGetDatum(DT_NOBEGIN);
		case DR_TIME_TIMESTAMPTZ:
			break;
	}
	return TimestampTzGetDatum(DT_NOBEGIN);
}

Oid
dr_boundary_type(DrTimeKind kind)
{
	switch (kind)
	{
		case DR_TIME_DATE:
			return DATEOID;
		case DR_TIME_TIMESTAMP:
			return TIMESTAMPOID;
		case DR_TIME_TIMESTAMPTZ:
			break;
	}
	return TIMESTAMPTZOID;
}

DrTimeKind
dr_boundary_kind(Oid type)
{
	switch (type)
	{
		case DATEOID:
			return DR_TIME_DATE;
		case TIMESTAMPOID:
			return DR_TIME_TIMESTAMP;
		default:
			return DR_TIME_TIMESTAMPTZ;
	}
}

/* As our own functions' names end: _tail_from_timestamptz. */
const char *
dr_boundary_type_name(DrTimeKind kind)
{
	switch (kind)
	{
		case DR_TIME_DATE:
			return "date";
		case DR_TIME_TIMESTAMP:
			return "timestamp";
		case DR_TIME_TIMESTAMPTZ:
			break;
	}
	return "timestamptz";
}

/* Bounds, none of them NULL, as parameters of a statement that is planned for
 * them. */
ParamListInfo
dr_boundary_params(int n, const Oid *types, const Datum *values)
{
	ParamListInfo params = makeParamList(n);

	for (int i = 0; i < n; i++)
	{
		params->params[i].ptype = types[i];
		params->params[i].value = values[i];
		params->params[i].isnull = false;
		params->params[i].pflags = PARAM_FLAG_CONST;
	}
	return params;
}
