/*
 * owner.c
 *		A rollup belongs to the owner of its source.
 *
 *		ALTER TABLE source OWNER	hands all of it over, what REASSIGN OWNED has
 *									missed before, too
 *		REASSIGN OWNED				gives it away itself, but what was not there yet
 *									when it looked: a rollup, or a shadow, that it
 *									had to wait for.  No event trigger fires for it:
 *									a library that is preloaded hands these over
 *									then
 *		refresh, promote			hand a shadow over
 *
 * Where a part still belongs to somebody else, routines of the owner's refuse
 * (dr_owned_rollup): they would run with rights that do not fit.
 */
#include "owner.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "commands/tablecmds.h"
#include "commands/typecmds.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "debug.h"
#include "locks.h"
#include "objects.h"
#include "owned.h"
#include "source.h"
#include "stop.h"
#include "view.h"

/* By OID: while we wait for the lock, the name may be given to another table. */
static void
hand_over(Oid relation, Oid to)
{
	Oid			owner;

	if (!OidIsValid(relation) || dr_source_owner(relation) == to)
		return;
	LockRelationOid(relation, AccessExclusiveLock);
	owner = dr_source_owner(relation);
	if (OidIsValid(owner) && owner != to)
		ATExecChangeOwner(relation, to, true, AccessExclusiveLock);
}

/* All of it, or nothing; nobody refreshes it. */
static void
hand_over_all(const DrRollup *rollup)
{
	Oid			to = dr_source_owner(rollup->source);

	hand_over(rollup->live, to);
	hand_over(rollup->current_view, to);
	hand_over(rollup->marks, to);
	hand_over(rollup->shadow, to);
	hand_over(rollup->events, to);
	hand_over(rollup->definition, to);
	if (OidIsValid(get_typ_typrelid(rollup->key_type)))
		AlterTypeOwner_oid(rollup->key_type, to, true);
}

static void
renew_view(Oid live)
{
	DrRollup   *rollup;

	CommandCounterIncrement();
	rollup = dr_catalog_find(live, NULL);
	if (rollup != NULL)
		dr_view_renew(rollup);
}

/* What DDL has done to the source's owner, or was to do, the rollup follows. */
void
dr_owner_follow(const DrRollup *rollup)
{
	if (!OidIsValid(dr_owned_strange_part(rollup, true)))
		return;
	DR_WAITPOINT("owner-changed");
	dr_locks_exclude_refresh(rollup->definition, dr_catalog_name(rollup->live));
	/* a shadow may have come, or gone, while we waited for that */
	rollup = dr_catalog_find(rollup->live, NULL);
	if (rollup == NULL)
		return;
	hand_over_all(rollup);
	renew_view(rollup->live);
}

/* A shadow follows live.  The caller holds the refresh lock. */
void
dr_owner_follow_shadow(const DrRollup *rollup)
{
	if (!OidIsValid(rollup->shadow) ||
		dr_source_owner(rollup->shadow) == rollup->owner)
		return;
	dr_stop_users(rollup->shadow, AccessExclusiveLock);
	hand_over(rollup->shadow, rollup->owner);
	CommandCounterIncrement();
}

/* Has this transaction changed what the server knows of the relation? */
static bool
is_changed(Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	bool		changed;

	if (!HeapTupleIsValid(tuple))
		return false;
	changed = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
	ReleaseSysCache(tuple);
	return changed;
}

/*
 * REASSIGN OWNED has run in this transaction.  Whatever of a rollup it had to
 * wait for is there by now: it has locked the source.
 */
void
dr_owner_follow_reassigned(void)
{
	List	   *rollups;
	ListCell   *cell;

	CommandCounterIncrement();
	rollups = dr_catalog_all();
	foreach(cell, rollups)
	{
		DrRollup   *rollup = lfirst(cell);

		if (!is_changed(rollup->source))
			continue;
		dr_owner_follow(rollup);
		renew_view(rollup->live);
	}
}

/* An error where the relation is a part of the rollup, and was given to others. */
void
dr_owner_check(const DrRollup *rollup, Oid relation)
{
	if (relation != rollup->live && relation != rollup->current_view &&
		relation != rollup->events && relation != rollup->definition &&
		relation != rollup->marks && relation != rollup->shadow)
		return;
	if (dr_source_owner(relation) != dr_source_owner(rollup->source))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" belongs to the owner of the source of rollup \"%s\"",
						dr_catalog_name(relation), dr_catalog_name(rollup->live)),
				 errhint("Run ALTER TABLE %s OWNER TO ...: the rollup follows.",
						 dr_objects_relation(rollup->source))));
}
