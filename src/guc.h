/*
 * guc.h
 *		The extension's settings.
 *
 * Layer 1.
 */
#ifndef DR_GUC_H
#define DR_GUC_H

#include "dailyrollup.h"

typedef enum DrMode
{
	DR_MODE_UNSET,				/* each rollup's state as it is */
	DR_MODE_OFF,
	DR_MODE_SHADOW,
	DR_MODE_ON
} DrMode;

/* How a window of the source is computed and merged. */
typedef enum DrFoldMethod
{
	DR_FOLD_AUTO,
	DR_FOLD_STATEMENT,			/* by the server's executor alone */
	DR_FOLD_HASH				/* in memory, wherever that can be done */
} DrFoldMethod;

extern int	dr_guc_mode;		/* a DrMode */
extern int	dr_guc_delay;		/* seconds after midnight */
extern bool dr_guc_backfill;
extern int	dr_guc_late_interval;	/* seconds; 0: with the refresh alone */
extern bool dr_guc_worker;
extern char *dr_guc_databases;	/* a list of names; empty: all */
extern int	dr_guc_history;		/* seconds */
extern int	dr_guc_max_late_keys;	/* keys; -1: a fifth of live's rows, at
									 * least DR_LATE_KEYS_FLOOR */
extern int	dr_guc_fold_method; /* a DrFoldMethod */
extern int	dr_guc_writer_timeout;	/* milliseconds; 0: wait for ever */

#define DR_LATE_KEYS_FLOOR	100000

extern void dr_guc_init(void);

#endif							/* DR_GUC_H */
