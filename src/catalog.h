/*
 * catalog.h
 *		The extension's own tables.
 *
 * Layer 2.
 */
#ifndef DR_CATALOG_H
#define DR_CATALOG_H

#include "dailyrollup.h"

#include "pgtime.h"
#include "utils/snapshot.h"

typedef enum DrState
{
	DR_STATE_NEW,				/* being filled: live does not count */
	DR_STATE_ON					/* live is kept by the daily refresh */
} DrState;

/* A row of dailyrollup.rollups. */
typedef struct DrRollup
{
	int32		id;
	Oid			live;
	Oid			source;
	Oid			current_view;
	Oid			events;
	Oid			definition;
	Oid			marks;
	Oid			key_type;
	char	   *time_zone;
	Interval   *delay;			/* NULL: the default */
	char	   *mode;			/* NULL: none of its own */
	int			fold;			/* -1: the default, else false or true */
	DrState		state;
	bool		has_watermark;
	TimestampTz watermark;
	char	   *reseed;			/* why; NULL: not asked for */
	TimestampTz reseed_at;		/* which wish it is, where there is one */
	int64		proof;			/* what a read of the marks proves; secret */
	Oid			owner;			/* of live; not a column */
} DrRollup;

/* What a writer needs to know of a rollup; valid until the next time
 * invalidation messages are accepted. */
typedef struct DrWatermark
{
	Oid			live;			/* hash key */
	Oid			source;
	Oid			definition;		/* carries the refresh lock */
	DrTimeKind	time_kind;
	pg_tz	   *zone;
	bool		recorded;		/* the state has a daily refresh and W is set */
	TimestampTz watermark;
	bool		valid;
} DrWatermark;

/* A row of dailyrollup.runs. */
typedef struct DrRun
{
	const char *action;
	TimestampTz started_at;
	bool		has_from;
	TimestampTz from_time;
	bool		has_to;
	TimestampTz to_time;
	int64		folded_keys;
	int64		late_keys;
	const char *outcome;
	const char *reason;			/* or NULL */
} DrRun;

extern void dr_catalog_init(void);

extern DrRollup *dr_catalog_find(Oid live, Snapshot snapshot);
extern DrRollup *dr_catalog_find_id(int32 id);
extern List *dr_catalog_all(void);
extern DrRollup *dr_catalog_owned(Oid live);
extern List *dr_catalog_owned_all(void);
extern char *dr_catalog_name(Oid relation);
extern Oid	dr_catalog_relation_owner(Oid relation);
extern const DrWatermark *dr_catalog_watermark(Oid live);

extern int32 dr_catalog_next_id(void);
extern void dr_catalog_insert(const DrRollup *rollup);
extern bool dr_catalog_advance(const DrRollup *rollup, TimestampTz boundary, bool seeded);
extern void dr_catalog_forget_watermark(const DrRollup *rollup, const char *reason);
extern void dr_catalog_ask_reseed(const DrRollup *rollup, const char *reason);
extern void dr_catalog_delete(const DrRollup *rollup);
extern void dr_catalog_insert_run(const DrRollup *rollup, const DrRun *run);

#endif							/* DR_CATALOG_H */
