/*
 * compat.h
 *		What differs between the server's major versions; the only place that
 *		asks for the version.
 *
 * Layer 0.
 */
#ifndef DR_COMPAT_H
#define DR_COMPAT_H

#include "postgres.h"

#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/sinvaladt.h"

#if PG_VERSION_NUM >= 170000
#include "storage/procarray.h"
#define dr_lock_held_by_me(tag, mode)	LockHeldByMe((tag), (mode), false)
#define dr_my_lxid()			(MyProc->vxid.lxid)
#define dr_proc_lxid(proc)		((proc)->vxid.lxid)
#define dr_vxid_proc(v)			ProcNumberGetProc((v).procNumber)
#else
#define dr_lock_held_by_me(tag, mode)	LockHeldByMe((tag), (mode))
#define dr_my_lxid()			(MyProc->lxid)
#define dr_proc_lxid(proc)		((proc)->lxid)
#define dr_vxid_proc(v)			BackendIdGetProc((v).backendId)
#endif

#if PG_VERSION_NUM >= 160000
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "varatt.h"
#include "catalog/pg_database.h"
#define dr_is_class_owner(oid, role)	object_ownercheck(RelationRelationId, (oid), (role))
#define dr_is_database_owner(oid, role)	object_ownercheck(DatabaseRelationId, (oid), (role))
#else
#define dr_is_class_owner(oid, role)	pg_class_ownercheck((oid), (role))
#define dr_is_database_owner(oid, role)	pg_database_ownercheck((oid), (role))
#endif

/* Is the database whole?  One that was left by a DROP that did not end is not. */
#define dr_database_is_valid(form)	((form)->datconnlimit != -2)

/*
 * Expressions of a query's target list without the grouping step that servers
 * put between them and the source.
 */
#if PG_VERSION_NUM >= 180000
#include "optimizer/optimizer.h"
#define dr_flatten_groups(query, node) \
	((query)->hasGroupRTE ? flatten_group_exprs(NULL, (query), (node)) : (node))
#else
#define dr_flatten_groups(query, node)	(node)
#endif

/*
 * Is the column known to hold no NULL?  NOT NULL may have been declared
 * without a look at the rows that were there (NOT VALID).
 */
#if PG_VERSION_NUM >= 180000
#include "access/htup_details.h"
#include "catalog/pg_constraint.h"

static inline bool
dr_att_not_null(Form_pg_attribute att)
{
	HeapTuple	constraint;
	bool		valid = false;

	if (!att->attnotnull)
		return false;
	constraint = findNotNullConstraintAttnum(att->attrelid, att->attnum);
	if (HeapTupleIsValid(constraint))
	{
		valid = ((Form_pg_constraint) GETSTRUCT(constraint))->convalidated;
		heap_freetuple(constraint);
	}
	return valid;
}
#else
#define dr_att_not_null(att)	((att)->attnotnull)
#define ATTRIBUTE_GENERATED_VIRTUAL	'v'
#endif

/* Index a new row; "arbiters" are the unique indexes that may find it in conflict. */
#if PG_VERSION_NUM >= 160000
#define dr_insert_index_tuples(info, slot, estate, conflict, arbiters) \
	ExecInsertIndexTuples((info), (slot), (estate), false, true, (conflict), (arbiters), false)
#else
#define dr_insert_index_tuples(info, slot, estate, conflict, arbiters) \
	ExecInsertIndexTuples((info), (slot), (estate), false, true, (conflict), (arbiters))
#endif

/* Which indexes an update has to do with, and index the row that it has made. */
#if PG_VERSION_NUM >= 160000
#include "access/tableam.h"
#define DrIndexesOfUpdate	TU_UpdateIndexes
#define dr_update_index_tuples(info, slot, estate, which) \
	((which) == TU_None ? NIL : \
	 ExecInsertIndexTuples((info), (slot), (estate), true, false, NULL, NIL, (which) == TU_Summarizing))
#else
#define DrIndexesOfUpdate	bool
#define dr_update_index_tuples(info, slot, estate, which) \
	(!(which) ? NIL : ExecInsertIndexTuples((info), (slot), (estate), true, false, NULL, NIL))
#endif

/* A scan of an index by "n" keys. */
#if PG_VERSION_NUM >= 180000
#define dr_index_beginscan(rel, index, snapshot, n) \
	index_beginscan((rel), (index), (snapshot), NULL, (n), 0)
#else
#define dr_index_beginscan(rel, index, snapshot, n) \
	index_beginscan((rel), (index), (snapshot), (n), 0)
#endif

/* Plan a query for one process, and run it to its end. */
#if PG_VERSION_NUM >= 190000
#define dr_plan_query(query, sql, params)	pg_plan_query((query), (sql), 0, (params), NULL)
#else
#define dr_plan_query(query, sql, params)	pg_plan_query((query), (sql), 0, (params))
#endif
#if PG_VERSION_NUM >= 180000
#define dr_executor_run(query)	ExecutorRun((query), ForwardScanDirection, 0)
#else
#define dr_executor_run(query)	ExecutorRun((query), ForwardScanDirection, 0, true)
#endif

/* Does the collation order texts by their bytes? */
#include "utils/pg_locale.h"
#if PG_VERSION_NUM >= 180000
#define dr_collation_is_c(collation)	(pg_newlocale_from_collation(collation)->collate_is_c)
#else
#define dr_collation_is_c(collation)	lc_collate_is_c(collation)
#endif

/* Have memory fetched that will be looked at soon. */
#if defined(__GNUC__)
#define dr_prefetch(address)	__builtin_prefetch(address)
#else
#define dr_prefetch(address)	((void) (address))
#endif

#endif							/* DR_COMPAT_H */
