/*
 * init.c
 *		Entry point of the library: each module prepares itself.
 *
 * Layer 12.
 */
#include "postgres.h"

#include "fmgr.h"

#include "batch.h"
#include "debug.h"
#include "fold.h"
#include "guard.h"
#include "guc.h"
#include "hold.h"
#include "late.h"
#include "launcher.h"
#include "plans.h"
#include "progress.h"
#include "seen.h"
#include "shared.h"
#include "tail.h"
#include "watermark.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	dr_guc_init();
	dr_shared_init();
	dr_progress_init();
	dr_watermark_init();
	dr_seen_init();
	dr_tail_init();
	dr_plans_init();
	dr_guard_init();
	dr_late_init();
	dr_batch_init();
	dr_fold_init();
	dr_launcher_init();
	dr_hold_init();
	DR_WAITPOINTS_INIT();
}
