/*
 * layout.c
 *		Where the columns of events stand in rows that are read.
 *
 * Each event stands after its place, where duplicates are looked for.  A row
 * comes with these columns; or as the source stores it, in a slot that knows its
 * place: then those columns are read first that tell its key, and the others
 * where the row matters.
 */
#include "layout.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "utils/rel.h"

struct DrLayout
{
	TupleDesc	desc;
	int			nevents;
	int			first_event;

	/* in a row as it is stored */
	int		   *columns;		/* of events, counted from 0 */
	int			last_column;
	int			nearly;			/* events that are looked at to find the key */
	int		   *early;
	int			last_early;
};

static TupleDesc
make_desc(const DrDefinition *def, bool placed)
{
	TupleDesc	events = dr_tally_event_desc(def);
	TupleDesc	desc;

	if (!placed)
		return events;
	desc = CreateTemplateTupleDesc(DR_LAYOUT_PLACE + def->nevents);
	TupleDescInitEntry(desc, DR_LAYOUT_TID + 1, "place", TIDOID, -1, 0);
	TupleDescInitEntry(desc, DR_LAYOUT_TABLE + 1, "table", OIDOID, -1, 0);
	for (int i = 0; i < def->nevents; i++)
		TupleDescCopyEntry(desc, DR_LAYOUT_PLACE + i + 1, events, i + 1);
	return desc;
}

/* Is the event's column needed to find the key of a row, or to see that it has
 * none?  An expression may need any. */
static bool
is_early(const DrDefinition *def, const DrTally *tally, bool placed, int event)
{
	if (!placed && tally->where >= 0)
		return true;
	for (int k = 0; k < def->nkeys; k++)
		if (tally->inputs[k].event < 0 || tally->inputs[k].event == event)
			return true;
	return false;
}

/* A column of the source among all that a query of whole rows reads, counted from
 * 1: those that were dropped are none.  A partition may have no such ones. */
static int
column_read(TupleDesc source, AttrNumber attno)
{
	int			column = 0;

	for (int i = 0; i < attno; i++)
		if (!TupleDescAttr(source, i)->attisdropped)
			column++;
	return column;
}

DrLayout *
dr_layout_make(const DrDefinition *def, const DrTally *tally, bool placed)
{
	DrLayout   *layout = palloc0(sizeof(DrLayout));
	Relation	source = table_open(def->source, AccessShareLock);

	layout->desc = make_desc(def, placed);
	layout->nevents = def->nevents;
	layout->first_event = placed ? DR_LAYOUT_PLACE : 0;
	layout->columns = palloc(def->nevents * sizeof(int));
	layout->early = palloc(def->nevents * sizeof(int));
	for (int i = 0; i < def->nevents; i++)
	{
		int			column = column_read(RelationGetDescr(source), def->events[i].attno);

		layout->columns[i] = column - 1;
		layout->last_column = Max(layout->last_column, column);
		if (!is_early(def, tally, placed, i))
			continue;
		layout->early[layout->nearly++] = i;
		layout->last_early = Max(layout->last_early, column);
	}
	table_close(source, AccessShareLock);
	return layout;
}

/* The columns of a row that is read. */
TupleDesc
dr_layout_desc(const DrLayout *layout)
{
	return layout->desc;
}

int
dr_layout_first_event(const DrLayout *layout)
{
	return layout->first_event;
}

/* A row that comes with these columns. */
void
dr_layout_read_all(const DrLayout *layout, TupleTableSlot *slot, Datum *values, bool *nulls)
{
	slot_getallattrs(slot);
	memcpy(values, slot->tts_values, layout->desc->natts * sizeof(Datum));
	memcpy(nulls, slot->tts_isnull, layout->desc->natts * sizeof(bool));
}

/* What tells the key of a row as it is stored. */
void
dr_layout_read_early(const DrLayout *layout, TupleTableSlot *slot, Datum *values, bool *nulls)
{
	int			first = layout->first_event;

	slot_getsomeattrs(slot, layout->last_early);
	for (int i = 0; i < layout->nearly; i++)
	{
		int			event = layout->early[i];

		values[first + event] = slot->tts_values[layout->columns[event]];
		nulls[first + event] = slot->tts_isnull[layout->columns[event]];
	}
}

/* All of it; the values point into the slot. */
void
dr_layout_read_stored(const DrLayout *layout, TupleTableSlot *slot, Datum *values, bool *nulls)
{
	const int  *columns = layout->columns;
	const Datum *from = slot->tts_values;
	const bool *from_nulls = slot->tts_isnull;
	Datum	   *event = values + layout->first_event;
	bool	   *event_nulls = nulls + layout->first_event;
	int			n = layout->nevents;

	slot_getsomeattrs(slot, layout->last_column);
	for (int i = 0; i < n; i++)
	{
		event[i] = from[columns[i]];
		event_nulls[i] = from_nulls[columns[i]];
	}
	if (layout->first_event == 0)
		return;
	values[DR_LAYOUT_TID] = PointerGetDatum(&slot->tts_tid);
	values[DR_LAYOUT_TABLE] = ObjectIdGetDatum(slot->tts_tableOid);
	nulls[DR_LAYOUT_TID] = nulls[DR_LAYOUT_TABLE] = false;
}
