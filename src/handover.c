/*
 * handover.c
 *		What a parallel worker has computed, on its way to the leader.
 *
 * A row for each key, as the query would return it, and whether the key is to be
 * computed again, of which the row then has no more than the key.
 */
#include "handover.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"

/* The columns of what is sent. */
static TupleDesc
sent_desc(const DrIntake *intake)
{
	TupleDesc	row = dr_intake_row_desc(intake);
	TupleDesc	desc = CreateTemplateTupleDesc(row->natts + 1);

	for (int i = 1; i <= row->natts; i++)
		TupleDescCopyEntry(desc, i, row, i);
	TupleDescInitEntry(desc, desc->natts, "again", BOOLOID, -1, 0);
	return desc;
}

/* A key's row that the partner has computed, or (again) its key. */
static void
take_row(DrIntake *intake, const DrDefinition *def, DrSwept *result, Datum *values, bool *nulls,
		 bool again)
{
	Datum		keys[INDEX_MAX_KEYS];
	bool		key_nulls[INDEX_MAX_KEYS];
	DrTally    *tally = dr_intake_tally(intake);
	DrEntry    *entry;

	for (int i = 0; i < def->nkeys; i++)
	{
		keys[i] = values[def->keys[i]];
		key_nulls[i] = nulls[def->keys[i]];
	}
	if (result->whole != NULL && dr_intake_is_room(intake, result->whole))
	{
		entry = dr_intake_enter_key(intake, result->whole, keys, key_nulls);
		entry->again = again;
		entry->counted = 1;
		if (!again)
			dr_tally_merge(tally, result->whole, entry, values, nulls);
		dr_tally_forget(tally);
	}
	else if (again)
		dr_sweep_append_again(intake, result, keys, key_nulls);
	else
		dr_sweep_append_row(intake, result, values, nulls);
}

/* Take all that the partner has computed; false where it could not. */
bool
dr_handover_take(DrIntake *intake, const DrDefinition *def, DrPartner *partner, DrSwept *result)
{
	TupleDesc	desc = sent_desc(intake);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);

	while (dr_partner_next(partner, slot))
	{
		slot_getallattrs(slot);
		take_row(intake, def, result, slot->tts_values, slot->tts_isnull,
				 DatumGetBool(slot->tts_values[desc->natts - 1]));
	}
	ExecDropSingleTupleTableSlot(slot);
	return dr_partner_finish(partner);
}

/* ------------------------------------------------------ in a parallel worker */

/* Where a partner's rows go. */
typedef struct Sender
{
	const DrIntake *intake;
	const DrDefinition *def;
	DestReceiver *dest;
	TupleTableSlot *slot;
	bool		wanted;			/* somebody still reads them */
} Sender;

/* A slot for the next row; its values are to be set, all of them are NULL. */
static TupleTableSlot *
begin_row(Sender *sender, bool again)
{
	TupleTableSlot *slot = sender->slot;
	int			last = slot->tts_tupleDescriptor->natts - 1;

	CHECK_FOR_INTERRUPTS();
	ExecClearTuple(slot);
	memset(slot->tts_isnull, true, last * sizeof(bool));
	slot->tts_values[last] = BoolGetDatum(again);
	slot->tts_isnull[last] = false;
	return slot;
}

static void
send_row(Sender *sender)
{
	ExecStoreVirtualTuple(sender->slot);
	sender->wanted = sender->dest->receiveSlot(sender->slot, sender->dest);
}

/* Send a key that is to be computed again. */
static void
send_key(Sender *sender, const Datum *keys, const bool *nulls)
{
	TupleTableSlot *slot = begin_row(sender, true);

	for (int i = 0; i < sender->def->nkeys; i++)
	{
		slot->tts_values[sender->def->keys[i]] = keys[i];
		slot->tts_isnull[sender->def->keys[i]] = nulls[i];
	}
	send_row(sender);
}

static void
send_entry(Sender *sender, const DrEntry *entry)
{
	Datum		keys[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];
	TupleTableSlot *slot;

	if (entry->again)
	{
		dr_intake_read_key(sender->intake, entry, keys, nulls);
		send_key(sender, keys, nulls);
	}
	else if (entry->counted > 0)
	{
		slot = begin_row(sender, false);
		dr_intake_read_row(sender->intake, entry, slot->tts_values, slot->tts_isnull);
		send_row(sender);
	}
}

/* Send what was appended: rows, or keys. */
static void
send_store(Sender *sender, Tuplestorestate *store, TupleDesc desc, bool again)
{
	TupleTableSlot *from = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);

	while (sender->wanted && tuplestore_gettupleslot(store, true, false, from))
	{
		slot_getallattrs(from);
		if (again)
			send_key(sender, from->tts_values, from->tts_isnull);
		else
		{
			TupleTableSlot *slot = begin_row(sender, false);

			memcpy(slot->tts_values, from->tts_values, desc->natts * sizeof(Datum));
			memcpy(slot->tts_isnull, from->tts_isnull, desc->natts * sizeof(bool));
			send_row(sender);
		}
	}
	ExecDropSingleTupleTableSlot(from);
}

/* Send all that was computed. */
void
dr_handover_send(const DrIntake *intake, const DrDefinition *def, DestReceiver *dest,
				 const DrSwept *result)
{
	Sender		sender = {
		.intake = intake,
		.def = def,
		.dest = dest,
		.slot = MakeSingleTupleTableSlot(sent_desc(intake), &TTSOpsVirtual),
		.wanted = true
	};

	if (result->whole != NULL)
		for (const DrEntry *entry = dr_keytable_first(result->whole);
			 entry != NULL && sender.wanted; entry = entry->next)
			send_entry(&sender, entry);
	send_store(&sender, result->rows, dr_intake_row_desc(intake), false);
	send_store(&sender, result->again, dr_intake_key_desc(intake), true);
	ExecDropSingleTupleTableSlot(sender.slot);
}
