/*
 * boundary.h
 *		Midnights of a time zone.
 *
 * Layer 1.
 */
#ifndef DR_BOUNDARY_H
#define DR_BOUNDARY_H

#include "dailyrollup.h"

#include "nodes/params.h"

#include "pgtime.h"

extern bool dr_boundary_knows_zone(const char *name);
extern pg_tz *dr_boundary_zone(const char *name);
extern Interval *dr_boundary_check_delay(Interval *delay);
extern TimestampTz dr_boundary_before(TimestampTz instant, const Interval *delay);
extern TimestampTz dr_boundary_after(TimestampTz instant, const Interval *delay);
extern TimestampTz dr_boundary_translate(TimestampTz boundary, pg_tz *from, pg_tz *to);
extern TimestampTz dr_boundary_latest(pg_tz *zone, TimestampTz instant);
extern TimestampTz dr_boundary_next(pg_tz *zone, TimestampTz instant);
extern bool dr_boundary_is_ordinary(DrTimeKind kind, Datum time);
extern TimestampTz dr_boundary_not_before(DrTimeKind kind, pg_tz *zone, Datum time);
extern bool dr_boundary_is_midnight(pg_tz *zone, TimestampTz instant);
extern void dr_boundary_check(pg_tz *zone, TimestampTz boundary);
extern Datum dr_boundary_datum(DrTimeKind kind, pg_tz *zone, TimestampTz boundary);
extern Datum dr_boundary_bound(DrTimeKind kind, pg_tz *zone, TimestampTz instant);
extern Datum dr_boundary_minus_infinity(DrTimeKind kind);
extern Datum dr_boundary_infinity(DrTimeKind kind);
extern bool dr_boundary_precedes(DrTimeKind kind, Datum time, Datum other);
extern Oid	dr_boundary_type(DrTimeKind kind);
extern DrTimeKind dr_boundary_kind(Oid type);
extern const char *dr_boundary_type_name(DrTimeKind kind);
extern ParamListInfo dr_boundary_params(int n, const Oid *types, const Datum *values);

#endif							/* DR_BOUNDARY_H */
