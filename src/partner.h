/*
 * partner.h
 *		A parallel worker that does a part of the work, and sends rows.
 *
 * Layer 1.
 */
#ifndef DR_PARTNER_H
#define DR_PARTNER_H

#include "dailyrollup.h"

#include "executor/tuptable.h"
#include "nodes/params.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/shm_toc.h"
#include "tcop/dest.h"

typedef struct DrPartner DrPartner;

/* What the worker is told; "details" are bytes that mean the same to both. */
typedef struct DrTask
{
	const void *details;
	Size		size;
	const char *sql;
	ParamListInfo params;
} DrTask;

/* The worker's own side. */
typedef struct DrOrder
{
	DrTask		task;
	DestReceiver *rows;			/* to the leader */
	pg_atomic_uint32 *given_up;
} DrOrder;

extern bool dr_partner_is_allowed(void);
extern DrPartner *dr_partner_begin(const char *function, const DrTask *task,
								   ErrorContextCallback *errors);
extern bool dr_partner_next(DrPartner *partner, TupleTableSlot *slot);
extern bool dr_partner_finish(DrPartner *partner);
extern void dr_partner_end(DrPartner *partner);

extern DrOrder *dr_partner_read_order(dsm_segment *segment, shm_toc *toc);
extern void dr_partner_give_up(DrOrder *order);

#endif							/* DR_PARTNER_H */
