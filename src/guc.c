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

int			dr_guc_max_late_keys = -1;
int			dr_guc_writer_timeout = 5 * 60 * 1000;

void
dr_guc_init(void)
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

	MarkGUCPrefixReserved("dailyrollup");
}
