/*
 * stop.h
 *		Locks that readers or writers would queue behind, were we to wait for
 *		them.
 *
 * Layer 3.
 */
#ifndef DR_STOP_H
#define DR_STOP_H

#include "dailyrollup.h"

#include "nodes/pg_list.h"
#include "storage/lockdefs.h"

extern void dr_stop_users(Oid relation, LOCKMODE mode);
extern void dr_stop_writers(Oid source, Oid live);
extern void dr_stop_writers_and_readers(Oid source, Oid live, Oid view);
extern void dr_stop_everybody(Oid source, List *others);

#endif							/* DR_STOP_H */
