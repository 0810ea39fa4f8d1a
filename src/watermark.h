/*
 * watermark.h
 *		What writers ask for all the time, remembered by the session.
 *
 * Layer 3.
 */
#ifndef DR_WATERMARK_H
#define DR_WATERMARK_H

#include "dailyrollup.h"

#include "pgtime.h"

/* What a writer needs to know of a rollup; valid until the next time
 * invalidation messages are accepted. */
typedef struct DrWatermark
{
	Oid			live;			/* hash key */
	Oid			source;
	Oid			definition;		/* carries the refresh lock */
	DrTimeKind	time_kind;
	pg_tz	   *zone;
	bool		folds;			/* writes are folded into live */
	bool		recorded;		/* a table is kept by the daily refresh, to: */
	TimestampTz watermark;
	bool		settled;		/* the table that is refreshed is exact before: */
	TimestampTz settled_before;
	int64		epoch;			/* of its content */
	bool		valid;
} DrWatermark;

extern void dr_watermark_init(void);
extern const DrWatermark *dr_watermark_of(Oid live);
extern void dr_watermark_note_zone(Oid live);
extern void dr_watermark_check_zone(Oid live);

#endif							/* DR_WATERMARK_H */
