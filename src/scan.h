/*
 * scan.h
 *		Rows of the source, as the server's executor reads them.
 *
 * Layer 2.
 */
#ifndef DR_SCAN_H
#define DR_SCAN_H

#include "dailyrollup.h"

#include "nodes/params.h"
#include "tcop/dest.h"
#include "utils/snapshot.h"

typedef struct DrScan DrScan;

extern DrScan *dr_scan_begin(const char *sql, ParamListInfo bounds, Snapshot snapshot);
extern bool dr_scan_is_stored(const DrScan *scan);
extern List *dr_scan_columns(const DrScan *scan);
extern double dr_scan_expected(const DrScan *scan);
extern void dr_scan_run(DrScan *scan, DestReceiver *dest);
extern void dr_scan_end(DrScan *scan);

#endif							/* DR_SCAN_H */
