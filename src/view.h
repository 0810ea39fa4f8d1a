/*
 * view.h
 *		The text of <live>_current, where it changes.
 *
 * Layer 4.
 */
#ifndef DR_VIEW_H
#define DR_VIEW_H

#include "catalog.h"
#include "permit.h"

extern void dr_view_show_left_alone(const DrRollup *rollup);
extern void dr_view_shorten(const DrRollup *rollup);
extern void dr_view_renew(const DrRollup *rollup);
extern bool dr_view_has_permit(const DrRollup *rollup, const DrPermit *permit);

#endif							/* DR_VIEW_H */
