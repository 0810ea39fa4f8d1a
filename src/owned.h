/*
 * owned.h
 *		Whose a rollup is, and those that the caller may work with.
 *
 * Layer 3.
 */
#ifndef DR_OWNED_H
#define DR_OWNED_H

#include "catalog.h"

extern Oid	dr_owned_strange_part(const DrRollup *rollup, bool with_shadow);
extern void dr_owned_check_parts(const DrRollup *rollup, bool with_shadow);
extern DrRollup *dr_owned_rollup(Oid live);
extern DrRollup *dr_owned_remains(Oid live);
extern List *dr_owned_all(void);

#endif							/* DR_OWNED_H */
