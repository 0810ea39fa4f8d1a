/*
 * event.c
 *		The columns of an event, in a row of the source or of a partition.
 */
#include "event.h"

#include "catalog/partition.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"

#include "catalog.h"

/* Is the relation the source, or a partition of it? */
bool
dr_event_in_source(const DrPlans *plans, Oid relation)
{
	return relation == plans->event_relation || relation == plans->def->source ||
		(get_rel_relispartition(relation) &&
		 list_member_oid(get_partition_ancestors(relation), plans->def->source));
}

/*
 * Find the event columns in the source or in a partition, whose columns may
 * stand in another order.
 */
void
dr_event_locate(DrPlans *plans, Oid relation)
{
	const DrDefinition *def = plans->def;

	if (plans->event_relation == relation)
		return;
	if (!dr_event_in_source(plans, relation))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not the source of rollup \"%s\"",
						dr_catalog_name(relation), dr_catalog_name(plans->live)),
				 errhint("The triggers of a rollup are made by rollup_create alone.")));

	plans->event_relation = InvalidOid;
	plans->event_last = 0;
	if (plans->event_attnos == NULL)
		plans->event_attnos = MemoryContextAllocZero(plans->context,
													def->nevents * sizeof(AttrNumber));
	for (int i = 0; i < def->nevents; i++)
	{
		plans->event_attnos[i] = relation == def->source ? def->events[i].attno :
			get_attnum(relation, def->events[i].source_name);
		plans->event_last = Max(plans->event_last, plans->event_attnos[i]);
	}
	plans->event_relation = relation;
}

/* The event in a row of the relation that was located. */
void
dr_event_read(const DrPlans *plans, TupleTableSlot *slot, Datum *values, bool *nulls)
{
	slot_getsomeattrs(slot, plans->event_last);
	for (int i = 0; i < plans->def->nevents; i++)
	{
		values[i] = slot->tts_values[plans->event_attnos[i] - 1];
		nulls[i] = slot->tts_isnull[plans->event_attnos[i] - 1];
	}
}

/* Are two events the same, byte by byte? */
bool
dr_event_same(const DrDefinition *def, const Datum *a, const bool *a_null,
		   const Datum *b, const bool *b_null)
{
	for (int i = 0; i < def->nevents; i++)
	{
		int16		len;
		bool		byval;

		if (a_null[i] != b_null[i])
			return false;
		get_typlenbyval(def->events[i].type, &len, &byval);
		if (!a_null[i] && !datumIsEqual(a[i], b[i], byval, len))
			return false;
	}
	return true;
}
