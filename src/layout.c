/*
 * layout.c
 *		Where the columns of events stand in rows that are read.
 *
 * Each event stands after its place, where duplicates are looked for.  A row
 * comes with these columns; or as the source stores it, in a slot that knows its
 * place: then those columns are read first that tell its key, and the others
 * where the row matters.
 *
 * Where a row that is stored has a column, the statement tells that reads it: a
 * partition's need not stand where those of the source do, which may have lost a
 * column before the partition was made.
 */
#include "layout.h"

#include "catalog/pg_type.h"
#include "nodes/primnodes.h"

struct DrLayout
{
	TupleDesc	desc;
	int			nevents;
	int			first_event;

	/* of a row as it is stored */
	int		   *positions;		/* of events, counted from 0 */
	int			width;			/* columns up to the last of them */
	int			nearly;			/* events that are looked at to find the key */
	int		   *early;
	int			early_width;
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

DrLayout *
dr_layout_make(const DrDefinition *def, const DrTally *tally, bool placed)
{
	DrLayout   *layout = palloc0(sizeof(DrLayout));

	layout->desc = make_desc(def, placed);
	layout->nevents = def->nevents;
	layout->first_event = placed ? DR_LAYOUT_PLACE : 0;
	layout->positions = palloc(def->nevents * sizeof(int));
	layout->early = palloc(def->nevents * sizeof(int));
	for (int i = 0; i < def->nevents; i++)
		if (is_early(def, tally, placed, i))
			layout->early[layout->nearly++] = i;
	return layout;
}

/* Where the rows of a statement have that column of the source. */
static int
position_of(List *columns, AttrNumber attno)
{
	ListCell   *cell;

	foreach(cell, columns)
	{
		const TargetEntry *column = lfirst_node(TargetEntry, cell);

		if (column->resorigcol == attno)
			return column->resno - 1;
	}
	elog(ERROR, "column %d of the source is not read", attno);
}

/* Rows come as they are stored, each with these columns of a statement. */
void
dr_layout_set_stored(DrLayout *layout, const DrDefinition *def, List *columns)
{
	layout->width = layout->early_width = 0;
	for (int i = 0; i < def->nevents; i++)
	{
		layout->positions[i] = position_of(columns, def->events[i].attno);
		layout->width = Max(layout->width, layout->positions[i] + 1);
	}
	for (int i = 0; i < layout->nearly; i++)
		layout->early_width = Max(layout->early_width,
								  layout->positions[layout->early[i]] + 1);
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

	slot_getsomeattrs(slot, layout->early_width);
	for (int i = 0; i < layout->nearly; i++)
	{
		int			event = layout->early[i];

		values[first + event] = slot->tts_values[layout->positions[event]];
		nulls[first + event] = slot->tts_isnull[layout->positions[event]];
	}
}

/* All of it; the values point into the slot. */
void
dr_layout_read_stored(const DrLayout *layout, TupleTableSlot *slot, Datum *values, bool *nulls)
{
	const int  *positions = layout->positions;
	const Datum *from = slot->tts_values;
	const bool *from_nulls = slot->tts_isnull;
	Datum	   *event = values + layout->first_event;
	bool	   *event_nulls = nulls + layout->first_event;
	int			n = layout->nevents;

	slot_getsomeattrs(slot, layout->width);
	for (int i = 0; i < n; i++)
	{
		event[i] = from[positions[i]];
		event_nulls[i] = from_nulls[positions[i]];
	}
	if (layout->first_event == 0)
		return;
	values[DR_LAYOUT_TID] = PointerGetDatum(&slot->tts_tid);
	values[DR_LAYOUT_TABLE] = ObjectIdGetDatum(slot->tts_tableOid);
	nulls[DR_LAYOUT_TID] = nulls[DR_LAYOUT_TABLE] = false;
}
