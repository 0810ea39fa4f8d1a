/*
 * request.h
 *		The arguments of rollup_create.
 *
 * Layer 3.
 */
#ifndef DR_REQUEST_H
#define DR_REQUEST_H

#include "dailyrollup.h"

#include "fmgr.h"
#include "nodes/primnodes.h"

/* The arguments of rollup_create, unpacked. */
typedef struct DrRequest
{
	RangeVar   *live;
	Oid			schema;
	Oid			adopted;		/* the table of that name, if there is one */
	const char *query;
	const char *time_column;
	List	   *dedup_by;
	List	   *dedup_order;
	const char *time_zone;
	Interval   *delay;
	const char *mode;			/* NULL: none of its own */
	int			fold;			/* -1: not given */
} DrRequest;

extern void dr_request_unpack(FunctionCallInfo fcinfo, DrRequest *request);

#endif							/* DR_REQUEST_H */
