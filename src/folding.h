/*
 * folding.h
 *		Statements that keep live while each write is folded into it.
 *
 * The caller has entered the identity that the text is for (identity.h), and
 * has registered with SPI what the statement reads:
 *
 *		DR_FOLDING_ROWS		events, and whether each was inserted
 *		DR_FOLDING_KEYS		k1 .. kn
 *
 * Layer 5.
 */
#ifndef DR_FOLDING_H
#define DR_FOLDING_H

#include "dailyrollup.h"

#include "catalog.h"

#define DR_FOLDING_ROWS		"dailyrollup_rows"
#define DR_FOLDING_KEYS		"dailyrollup_keys"
#define DR_FOLDING_ADDED	"dailyrollup added"
#define DR_FOLDING_CONTENT	"dailyrollup_content"
#define DR_FOLDING_EVENTS	"dailyrollup_events"
#define DR_FOLDING_KNOWN	"dailyrollup_known"
#define DR_FOLDING_MERGED	"dailyrollup_merged"
#define DR_FOLDING_NUMBER	"dailyrollup n"
#define DR_FOLDING_PLACE	"dailyrollup place"

extern bool dr_folding_is_blind_at_ties(const DrDefinition *def);
extern bool dr_folding_needs_locks(const DrDefinition *def);
extern bool dr_folding_nulls_allowed(const DrDefinition *def, Oid table);
extern bool dr_folding_takes_any(const DrDefinition *def, Oid table);
extern char *dr_folding_add(const DrDefinition *def, const DrRollup *rollup);
extern char *dr_folding_lock(const DrDefinition *def, const DrRollup *rollup, bool many);
extern char *dr_folding_apply(const DrDefinition *def, const DrRollup *rollup, bool many);
extern char *dr_folding_propose(const DrDefinition *def, const DrRollup *rollup);
extern char *dr_folding_find(const DrDefinition *def);
extern char *dr_folding_stored(const DrDefinition *def, const DrRollup *rollup);
extern char *dr_folding_update(const DrDefinition *def, const DrRollup *rollup);
extern char *dr_folding_recompute(const DrDefinition *def, const DrRollup *rollup);
extern char *dr_folding_mark(const DrDefinition *def, const DrRollup *rollup);
extern char *dr_folding_marked_keys(const DrDefinition *def, const DrRollup *rollup);
extern char *dr_folding_lock_marked(const DrDefinition *def, const DrRollup *rollup);
extern char *dr_folding_flush(const DrDefinition *def, const DrRollup *rollup);

#endif							/* DR_FOLDING_H */
