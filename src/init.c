/*
 * init.c
 *		Entry point of the library: each module prepares itself.
 *
 * Layer 9.
 */
#include "postgres.h"

#include "fmgr.h"

#include "catalog.h"
#include "guc.h"
#include "late.h"
#include "plans.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	dr_guc_init();
	dr_catalog_init();
	dr_plans_init();
	dr_late_init();
}
