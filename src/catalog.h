/*
 * catalog.h
 *		The extension's own tables.
 *
 * Layer 2.
 */
#ifndef DR_CATALOG_H
#define DR_CATALOG_H

#include "dailyrollup.h"

#include "utils/snapshot.h"

typedef enum DrState
{
	DR_STATE_NEW,				/* being filled: live does not count */
	DR_STATE_OFF,				/* live is folded on write */
	DR_STATE_SHADOW,			/* likewise; the daily refresh keeps a shadow */
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
	bool		fold;			/* off and shadow fold on write */
	DrState		state;
	DrState		was;			/* where new returns to if no mode is wanted */
	bool		has_watermark;
	TimestampTz watermark;		/* live's, in state on */
	char	   *reseed;			/* why; NULL: not asked for */
	TimestampTz reseed_at;		/* which wish it is, where there is one */
	Oid			shadow;			/* InvalidOid: none */
	bool		has_shadow_watermark;
	TimestampTz shadow_watermark;
	TimestampTz shadow_at;		/* when it was begun */
	int64		proof;			/* what the fold's statement shows to _locked; secret */
	int			failures;		/* of passes, since one that did not fail */
	char	   *last_error;		/* NULL: none */
	TimestampTz retry_at;		/* 0: at once */
	int64		epoch;			/* of the content of the table that is kept */
	Oid			owner;			/* of live; not a column */
} DrRollup;

/*
 * What a mark dirties: the table that the daily refresh keeps, or live where
 * writes are folded into it.
 */
#define DR_DIRTIES_ANY		'\0'
#define DR_DIRTIES_DAILY	'd'
#define DR_DIRTIES_LIVE		'l'
#define DR_DIRTIES_NONE		'n'

/* A row of dailyrollup.runs. */
typedef struct DrRun
{
	const char *action;
	TimestampTz started_at;
	bool		has_from;
	TimestampTz from_time;
	bool		has_to;
	TimestampTz to_time;
	bool		kept;			/* the following two are known */
	int64		folded_keys;
	int64		late_keys;
	const char *outcome;
	const char *reason;			/* or NULL */
	bool		counted;		/* the following two are known */
	int64		rows;
	int64		keys;
	bool		compared;		/* the following four are known */
	int64		missing_daily;
	int64		missing_live;
	int64		mismatches;
	int64		duplicates;
} DrRun;

extern DrRollup *dr_catalog_find(Oid live, Snapshot snapshot);
extern List *dr_catalog_find_versions(Oid live);
extern DrRollup *dr_catalog_find_id(int32 id);
extern List *dr_catalog_all(void);
extern char *dr_catalog_name(Oid relation);
extern bool dr_catalog_may_see(Oid live);

extern const char *dr_catalog_state_name(DrState state);
extern bool dr_catalog_parse_state(const char *name, DrState *state);
extern bool dr_catalog_parse_mode(const char *name, DrState *mode);
extern DrState dr_catalog_wanted(const DrRollup *rollup);
extern bool dr_catalog_folds(const DrRollup *rollup);
extern char dr_catalog_dirties_live(const DrRollup *rollup);
extern Oid	dr_catalog_table(const char *name);
extern bool dr_catalog_is_installed(void);
extern void dr_catalog_check_installed(void);

#endif							/* DR_CATALOG_H */
