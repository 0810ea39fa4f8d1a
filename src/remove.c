/*
 * remove.c
 *		A rollup's objects, removed again.
 */
#include "remove.h"

#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"

#include "catalog_write.h"
#include "debug.h"
#include "guard.h"
#include "locks.h"
#include "objects.h"
#include "owned.h"
#include "stop.h"

static void
add_object(ObjectAddresses *objects, Oid class, Oid object)
{
	ObjectAddress address;

	if (!OidIsValid(object))
		return;
	ObjectAddressSet(address, class, object);
	add_exact_object_address(&address, objects);
}

static Oid
existing(Oid relation)
{
	return get_rel_name(relation) != NULL ? relation : InvalidOid;
}

/* The triggers on the source and its leaves, which become locked. */
static void
add_triggers(ObjectAddresses *objects, const DrRollup *rollup)
{
	List	   *relations;
	ListCell   *cell;

	if (!OidIsValid(existing(rollup->source)))
		return;

	/* the source first, as its writers do, then its partitions */
	LockRelationOid(rollup->source, AccessExclusiveLock);
	relations = find_all_inheritors(rollup->source, AccessExclusiveLock, NULL);
	foreach(cell, relations)
		add_object(objects, TriggerRelationId,
				   get_trigger_oid(lfirst_oid(cell),
								   dr_objects_trigger_name(rollup->id, "truncate"), true));
	for (int i = 0; i < DR_ROW_EVENTS; i++)
		add_object(objects, TriggerRelationId,
				   get_trigger_oid(rollup->source,
								   dr_objects_trigger_name(rollup->id, dr_objects_row_events[i]), true));
}

/*
 * Remove what is left of a rollup, and live too where asked for.  The caller
 * has checked that its user may do that.
 */
void
dr_remove(const DrRollup *rollup, bool drop_live, DropBehavior behavior)
{
	ObjectAddresses *objects = new_object_addresses();
	Oid			key_relation = get_typ_typrelid(rollup->key_type);

	dr_guard_check_not_open(rollup, "remove");
	add_triggers(objects, rollup);
	if (!drop_live && OidIsValid(existing(rollup->live)))
		LockRelationOid(rollup->live, AccessExclusiveLock);
	dr_catalog_delete(rollup);
	DR_WAITPOINT("remove-deleted");
	add_object(objects, RelationRelationId, existing(rollup->current_view));
	add_object(objects, RelationRelationId, existing(rollup->definition));
	add_object(objects, RelationRelationId, existing(rollup->events));
	if (drop_live)
		add_object(objects, RelationRelationId, existing(rollup->live));
	else
		add_object(objects, TriggerRelationId,
				   get_trigger_oid(rollup->live,
								   dr_objects_trigger_name(rollup->id, "guard"), true));
	add_object(objects, RelationRelationId, existing(rollup->shadow));
	add_object(objects, RelationRelationId, existing(rollup->marks));
	if (OidIsValid(key_relation))
		add_object(objects, TypeRelationId, rollup->key_type);
	performMultipleDeletions(objects, behavior, 0);
	DR_WAITPOINT("removed");
	free_object_addresses(objects);
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_drop);

/*
 * All that goes, or loses a trigger, at once: readers of the view lock it before
 * the source, others the source first.  (A DROP ... CASCADE has the server's order
 * of locks, so dr_remove has none of its own to keep.)
 */
static void
stop_everybody(const DrRollup *rollup)
{
	Oid			relations[] = {
		rollup->live, rollup->current_view, rollup->events, rollup->definition,
		rollup->shadow, rollup->marks
	};
	List	   *others = NIL;

	for (int i = 0; i < lengthof(relations); i++)
		if (OidIsValid(relations[i]))
			others = lappend_oid(others, relations[i]);
	dr_stop_everybody(rollup->source, others);
}

Datum
dailyrollup_drop(PG_FUNCTION_ARGS)
{
	Oid			live = PG_GETARG_OID(0);
	DrRollup   *rollup = dr_owned_remains(live);

	PreventCommandIfReadOnly("rollup_drop()");

	/* In lock order.  A writer that holds the source may still have to read
	 * the definition: of that only the refresh lock is taken first. */
	dr_locks_refresh(rollup->definition, dr_catalog_name(live));
	stop_everybody(dr_owned_remains(live));
	dr_remove(dr_owned_remains(live), PG_GETARG_BOOL(1), DROP_RESTRICT);
	PG_RETURN_VOID();
}
