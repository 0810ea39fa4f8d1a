/*
 * guc.c
 *		The extension's settings.
 *
 * A setting is defined here and nowhere else, each with its unit, so that
 * postgresql.conf accepts '5min' and SHOW prints it.
 */
#include "guc.h"

#include <limits.h>

#include "utils/guc.h"
#include "utils/varlena.h"

int			dr_guc_mode = DR_MODE_UNSET;
int			dr_guc_delay = 210 * 60;
bool		dr_guc_backfill = false;
int			dr_guc_late_interval = 60 * 60;
bool		dr_guc_worker = true;
char	   *dr_guc_databases = NULL;
int			dr_guc_history = 90 * 24 * 60 * 60;
int			dr_guc_max_late_keys = -1;
int			dr_guc_fold_method = DR_FOLD_AUTO;
int			dr_guc_writer_timeout = 5 * 60 * 1000;

static const struct config_enum_entry modes[] = {
	{"unset", DR_MODE_UNSET, false},
	{"off", DR_MODE_OFF, false},
	{"shadow", DR_MODE_SHADOW, false},
	{"on", DR_MODE_ON, false},
	{NULL, 0, false}
};

static const struct config_enum_entry fold_methods[] = {
	{"auto", DR_FOLD_AUTO, false},
	{"statement", DR_FOLD_STATEMENT, false},
	{"hash", DR_FOLD_HASH, false},
	{NULL, 0, false}
};

static bool
check_databases(char **value, void **extra, GucSource source)
{
	char	   *copy = pstrdup(*value);
	List	   *names;

	if (!SplitIdentifierString(copy, ',', &names))
	{
		GUC_check_errdetail("List syntax is invalid.");
		return false;
	}
	return true;
}

static void
define_what_is_wanted(void)
{
	DefineCustomEnumVariable("dailyrollup.mode",
							 "Sets the mode wanted for rollups that have none of their own.",
							 "unset leaves each rollup in the state that it is in; off folds "
							 "every write into the rollup; shadow does that too, and has the "
							 "daily refresh keep a shadow of it; on leaves the rollup to the "
							 "daily refresh alone.",
							 &dr_guc_mode,
							 DR_MODE_UNSET, modes,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("dailyrollup.delay",
							"Sets how long after midnight a boundary falls due.",
							"A pass refreshes a rollup to the latest midnight that is at "
							"least so old.  A rollup may have a delay of its own.",
							&dr_guc_delay,
							210 * 60, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomBoolVariable("dailyrollup.backfill",
							 "Leaves this session's writes out of the fold on write.",
							 "Their keys are marked instead, for rollup_flush or the next "
							 "pass to recompute.",
							 &dr_guc_backfill,
							 false,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
}

static void
define_limits(void)
{
	DefineCustomIntVariable("dailyrollup.max_late_keys",
							"Sets how many late keys a refresh recomputes one by one.",
							"With more of them waiting, the refresh builds the whole "
							"rollup anew.  -1 stands for a fifth of the rollup's rows, "
							"at least 100000.",
							&dr_guc_max_late_keys,
							-1, -1, INT_MAX,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable("dailyrollup.writer_timeout",
							"Sets how long a refresh waits for other transactions.",
							"After that it fails with an error that names them.  "
							"0 waits for ever.",
							&dr_guc_writer_timeout,
							5 * 60 * 1000, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomEnumVariable("dailyrollup.fold_method",
							 "Sets how a refresh, promote or fold computes, compares and writes rows.",
							 "hash: in memory, up to work_mem times hash_mem_multiplier, and "
							 "files beyond it; statement: by SQL statements; auto: hash where "
							 "the query allows it and it is the cheaper way to merge.",
							 &dr_guc_fold_method,
							 DR_FOLD_AUTO, fold_methods,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);
}

static void
define_worker(void)
{
	DefineCustomIntVariable("dailyrollup.late_interval",
							"Sets how often the worker recomputes late keys between refreshes.",
							"0 leaves them to the next midnight that falls due.",
							&dr_guc_late_interval,
							60 * 60, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomBoolVariable("dailyrollup.worker",
							 "Sets whether the background worker makes passes.",
							 "It exists where the library is in shared_preload_libraries.",
							 &dr_guc_worker,
							 true,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

	DefineCustomStringVariable("dailyrollup.databases",
							   "Sets the databases that the background worker looks at.",
							   "A list of names, separated by commas; empty: each database "
							   "that has the extension.",
							   &dr_guc_databases,
							   "",
							   PGC_SIGHUP, GUC_LIST_INPUT,
							   check_databases, NULL, NULL);

	DefineCustomIntVariable("dailyrollup.history",
							"Sets how long the rows of rollup_runs are kept.",
							"A pass removes older ones.",
							&dr_guc_history,
							90 * 24 * 60 * 60, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);
}

void
dr_guc_init(void)
{
	define_what_is_wanted();
	define_limits();
	define_worker();
	MarkGUCPrefixReserved("dailyrollup");
}
