/*
 * catalog_write.h
 *		What is written to the extension's own tables.
 *
 * Layer 3.
 */
#ifndef DR_CATALOG_WRITE_H
#define DR_CATALOG_WRITE_H

#include "dailyrollup.h"

#include "catalog.h"

extern void dr_catalog_complain_of_change(const DrRollup *rollup);
extern int32 dr_catalog_next_id(void);
extern void dr_catalog_insert(const DrRollup *rollup);
extern bool dr_catalog_advance(const DrRollup *rollup, TimestampTz boundary, bool seeded);
extern void dr_catalog_advance_shadow(const DrRollup *rollup, TimestampTz boundary, bool seeded);
extern void dr_catalog_set_shadow(const DrRollup *rollup, Oid shadow);
extern void dr_catalog_change_state(const DrRollup *rollup, DrState state);
extern void dr_catalog_promote(const DrRollup *rollup);
extern void dr_catalog_forget_content(const DrRollup *rollup, const char *reason);
extern void dr_catalog_ask_reseed(const DrRollup *rollup, const char *reason);
extern void dr_catalog_set_mode(const DrRollup *rollup, const char *mode);
extern void dr_catalog_set_delay(const DrRollup *rollup, Interval *delay);
extern void dr_catalog_set_fold(const DrRollup *rollup, bool fold);
extern void dr_catalog_set_time_zone(const DrRollup *rollup, const char *time_zone,
									 TimestampTz watermark, TimestampTz shadow_watermark);
extern void dr_catalog_note_failure(const DrRollup *rollup, const char *error,
									TimestampTz retry_at);
extern void dr_catalog_note_success(const DrRollup *rollup);
extern void dr_catalog_forget_runs(const DrRollup *rollup, TimestampTz before);
extern void dr_catalog_delete(const DrRollup *rollup);
extern void dr_catalog_insert_run(const DrRollup *rollup, const DrRun *run);

#endif							/* DR_CATALOG_WRITE_H */
