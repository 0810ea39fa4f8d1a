/*
 * descent.h
 *		A btree that is asked for one key after another, in their order.
 *
 * Layer 2.
 */
#ifndef DR_DESCENT_H
#define DR_DESCENT_H

#include "dailyrollup.h"

#include "storage/block.h"
#include "storage/buf.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"

#include "order.h"

typedef enum DrDescentResult
{
	DR_DESCENT_FOUND,
	DR_DESCENT_ABSENT,
	DR_DESCENT_UNKNOWN			/* a scan must tell */
} DrDescentResult;

typedef struct DrDescent
{
	Relation	index;
	DrOrder    *order;
	const Datum *key;			/* what is sought */
	BlockNumber root;			/* P_NONE: there is none */
	char	   *parent;			/* the page above the last key's leaf, as it was */
	bool		has_parent;
	OffsetNumber child;			/* that leaf, there */
	Buffer		leaf;
} DrDescent;

extern void dr_descent_begin(DrDescent *descent, Relation index, DrOrder *order);
extern void dr_descent_end(DrDescent *descent);
extern DrDescentResult dr_descent_find(DrDescent *descent, const Datum *key, ItemPointer place);
extern void dr_descent_let_go(DrDescent *descent);

#endif							/* DR_DESCENT_H */
