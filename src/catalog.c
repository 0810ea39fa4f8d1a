/*
 * catalog.c
 *		The extension's own tables: the only code that knows their columns.
 *
 * Reads are scans of dailyrollup.rollups as of a given snapshot; NULL stands
 * for the latest committed rows and our own.  They ask for no privilege, for
 * a writer or reader has none on our tables.  Writes are SQL, as the owner of
 * the extension.
 *
 * A trigger on dailyrollup.rollups sends a relcache invalidation of the source
 * with each change, an UPDATE by hand included; what a session remembers of a
 * rollup (watermark.c, plans.c) goes with it.
 */
#include "catalog.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/formatting.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "guc.h"
#include "identity.h"
#include "shared.h"
#include "source.h"

/* columns of dailyrollup.rollups, as the install script makes them */
enum
{
	Anum_id = 1,
	Anum_live,
	Anum_source,
	Anum_current_view,
	Anum_events,
	Anum_definition,
	Anum_marks,
	Anum_key_type,
	Anum_time_zone,
	Anum_delay,
	Anum_mode,
	Anum_fold,
	Anum_state,
	Anum_was,
	Anum_watermark,
	Anum_reseed,
	Anum_reseed_at,
	Anum_shadow,
	Anum_shadow_watermark,
	Anum_shadow_at,
	Anum_proof,
	Anum_failures,
	Anum_last_error,
	Anum_retry_at,
	Anum_epoch,
	Natts_rollups = Anum_epoch
};

static const char *const state_names[] = {"new", "off", "shadow", "on"};

/* ---------------------------------------------------------------- reading */

const char *
dr_catalog_state_name(DrState state)
{
	return state_names[state];
}

/* False where there is no state of that name. */
bool
dr_catalog_parse_state(const char *name, DrState *state)
{
	for (int i = 0; i < lengthof(state_names); i++)
		if (strcmp(name, state_names[i]) == 0)
		{
			*state = (DrState) i;
			return true;
		}
	return false;
}

/* Likewise a mode, in letters of any case, as in dailyrollup.mode. */
bool
dr_catalog_parse_mode(const char *name, DrState *mode)
{
	char	   *lower = asc_tolower(name, strlen(name));

	return dr_catalog_parse_state(lower, mode) && *mode != DR_STATE_NEW;
}

static DrState
state_of(Datum value)
{
	char	   *name = TextDatumGetCString(value);
	DrState		state;

	if (!dr_catalog_parse_state(name, &state))
		elog(ERROR, "unrecognized state \"%s\"", name);
	return state;
}

/*
 * The state that a rollup should be in: its own mode, else dailyrollup.mode,
 * else (unset) the state as it is; a new one is then off.
 */
DrState
dr_catalog_wanted(const DrRollup *rollup)
{
	DrState		wanted;

	if (rollup->mode != NULL && dr_catalog_parse_state(rollup->mode, &wanted))
		return wanted;
	switch (dr_guc_mode)
	{
		case DR_MODE_OFF:
			return DR_STATE_OFF;
		case DR_MODE_SHADOW:
			return DR_STATE_SHADOW;
		case DR_MODE_ON:
			return DR_STATE_ON;
		case DR_MODE_UNSET:
			break;
	}
	return rollup->state == DR_STATE_NEW || rollup->state == DR_STATE_ON ?
		rollup->was : rollup->state;
}

/* The state that a rollup in that state returns to if no mode is wanted: one
 * that is being filled goes through on, to where it was, or to off. */
static DrState
was_of(DrState state, Datum value, bool isnull)
{
	if (!isnull)
		return state_of(value);
	return state == DR_STATE_NEW ? DR_STATE_OFF : state;
}

/* Is each write to the source folded into live? */
bool
dr_catalog_folds(const DrRollup *rollup)
{
	return rollup->fold &&
		(rollup->state == DR_STATE_OFF || rollup->state == DR_STATE_SHADOW);
}

/* Which marks say that live's row of a key does not count. */
char
dr_catalog_dirties_live(const DrRollup *rollup)
{
	if (rollup->state == DR_STATE_NEW || rollup->state == DR_STATE_ON)
		return DR_DIRTIES_DAILY;
	return rollup->fold ? DR_DIRTIES_LIVE : DR_DIRTIES_NONE;
}

static char *
optional_text(Datum value, bool isnull)
{
	return isnull ? NULL : TextDatumGetCString(value);
}

/* May the caller see what is known of the rollup?  As the views have it. */
bool
dr_catalog_may_see(Oid live)
{
	Oid			owner = dr_source_owner(live);

	return OidIsValid(owner) &&
		(has_privs_of_role(GetUserId(), owner) ||
		 has_privs_of_role(GetUserId(), get_role_oid("pg_monitor", false)));
}

static DrRollup *
rollup_from_tuple(HeapTuple tuple, TupleDesc desc)
{
	Datum		v[Natts_rollups + 1];
	bool		null[Natts_rollups + 1];
	DrRollup   *rollup = palloc0(sizeof(DrRollup));

	heap_deform_tuple(tuple, desc, v + 1, null + 1);
	rollup->id = DatumGetInt32(v[Anum_id]);
	rollup->live = DatumGetObjectId(v[Anum_live]);
	rollup->source = DatumGetObjectId(v[Anum_source]);
	rollup->current_view = DatumGetObjectId(v[Anum_current_view]);
	rollup->events = DatumGetObjectId(v[Anum_events]);
	rollup->definition = DatumGetObjectId(v[Anum_definition]);
	rollup->marks = DatumGetObjectId(v[Anum_marks]);
	rollup->key_type = DatumGetObjectId(v[Anum_key_type]);
	rollup->time_zone = TextDatumGetCString(v[Anum_time_zone]);
	if (!null[Anum_delay])
		rollup->delay = DatumGetIntervalP(datumCopy(v[Anum_delay], false,
													sizeof(Interval)));
	rollup->mode = optional_text(v[Anum_mode], null[Anum_mode]);
	rollup->fold = DatumGetBool(v[Anum_fold]);
	rollup->state = state_of(v[Anum_state]);
	rollup->was = was_of(rollup->state, v[Anum_was], null[Anum_was]);
	rollup->has_watermark = !null[Anum_watermark];
	if (rollup->has_watermark)
		rollup->watermark = DatumGetTimestampTz(v[Anum_watermark]);
	rollup->reseed = optional_text(v[Anum_reseed], null[Anum_reseed]);
	if (!null[Anum_reseed_at])
		rollup->reseed_at = DatumGetTimestampTz(v[Anum_reseed_at]);
	if (!null[Anum_shadow])
		rollup->shadow = DatumGetObjectId(v[Anum_shadow]);
	rollup->has_shadow_watermark = !null[Anum_shadow_watermark];
	if (rollup->has_shadow_watermark)
		rollup->shadow_watermark = DatumGetTimestampTz(v[Anum_shadow_watermark]);
	if (!null[Anum_shadow_at])
		rollup->shadow_at = DatumGetTimestampTz(v[Anum_shadow_at]);
	rollup->proof = DatumGetInt64(v[Anum_proof]);
	rollup->failures = DatumGetInt32(v[Anum_failures]);
	rollup->last_error = optional_text(v[Anum_last_error], null[Anum_last_error]);
	if (!null[Anum_retry_at])
		rollup->retry_at = DatumGetTimestampTz(v[Anum_retry_at]);
	rollup->epoch = DatumGetInt64(v[Anum_epoch]);
	rollup->owner = dr_source_owner(rollup->live);
	return rollup;
}

static Oid
find_table(const char *name)
{
	Oid			namespace = get_namespace_oid(DR_SCHEMA, true);

	return OidIsValid(namespace) ? get_relname_relid(name, namespace) : InvalidOid;
}

/* Are there tables of ours in this database? */
bool
dr_catalog_is_installed(void)
{
	return OidIsValid(find_table("rollups"));
}

/* For whoever would find no rollup without them, and take that for the truth. */
void
dr_catalog_check_installed(void)
{
	if (!dr_catalog_is_installed())
		dr_identity_complain_of_drop();
}

/* Ours of that name; an error where the extension is gone. */
Oid
dr_catalog_table(const char *name)
{
	Oid			table = find_table(name);

	if (!OidIsValid(table))
		dr_identity_complain_of_drop();
	return table;
}

static int
by_live(const ListCell *a, const ListCell *b)
{
	Oid			left = ((DrRollup *) lfirst(a))->live;
	Oid			right = ((DrRollup *) lfirst(b))->live;

	return left < right ? -1 : left > right;
}

/* dailyrollup.rollups, open; NULL where the extension is gone, or goes while we
 * wait for it. */
static Relation
open_rollups(void)
{
	Relation	rel = NULL;
	Oid			table;

	while (rel == NULL && OidIsValid(table = find_table("rollups")))
		rel = try_table_open(table, AccessShareLock);
	return rel;
}

/* The rollups whose column "attno" (0: any) holds "value", in order of live's
 * OID, as of the snapshot. */
static List *
scan(AttrNumber attno, RegProcedure equal, Datum value, Snapshot snapshot)
{
	Relation	rel = open_rollups();
	ScanKeyData key;
	SysScanDesc desc;
	HeapTuple	tuple;
	List	   *found = NIL;

	if (rel == NULL)
		return NIL;
	if (attno != 0)
		ScanKeyInit(&key, attno, BTEqualStrategyNumber, equal, value);
	desc = systable_beginscan(rel, InvalidOid, false, snapshot,
							  attno != 0 ? 1 : 0, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(desc)))
		found = lappend(found, rollup_from_tuple(tuple, RelationGetDescr(rel)));
	systable_endscan(desc);
	table_close(rel, AccessShareLock);

	list_sort(found, by_live);
	return found;
}

/* The rollup whose live table that is, or NULL. */
DrRollup *
dr_catalog_find(Oid live, Snapshot snapshot)
{
	List	   *found = scan(Anum_live, F_OIDEQ, ObjectIdGetDatum(live), snapshot);

	return found == NIL ? NULL : linitial(found);
}

/*
 * Every version of that rollup's row that any snapshot of this session can see,
 * and those that others are about to commit; NIL where one of our snapshots may
 * be older than the rollup, or a version cannot be read.
 *
 * What a snapshot of ours can see cannot be vacuumed away.  And where one of
 * the versions is older than all that our snapshots take for running, each of
 * them sees it, or a later one.
 */
List *
dr_catalog_find_versions(Oid live)
{
	Relation	rel = open_rollups();
	SnapshotData snapshot;
	ScanKeyData key;
	SysScanDesc desc;
	HeapTuple	tuple;
	List	   *found = NIL;
	bool		seen_by_all = false;

	if (rel == NULL)
		return NIL;
	InitNonVacuumableSnapshot(snapshot, GlobalVisTestFor(rel));
	ScanKeyInit(&key, Anum_live, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(live));
	desc = systable_beginscan(rel, InvalidOid, false, &snapshot, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(desc)))
	{
		/* a vacuum may have taken what a dead version has stored out of line */
		if (HeapTupleHasExternal(tuple))
		{
			seen_by_all = false;
			break;
		}
		found = lappend(found, rollup_from_tuple(tuple, RelationGetDescr(rel)));
		if (TransactionIdPrecedes(HeapTupleHeaderGetXmin(tuple->t_data), TransactionXmin))
			seen_by_all = true;
	}
	systable_endscan(desc);
	table_close(rel, AccessShareLock);
	return seen_by_all ? found : NIL;
}

DrRollup *
dr_catalog_find_id(int32 id)
{
	List	   *found = scan(Anum_id, F_INT4EQ, Int32GetDatum(id), NULL);

	return found == NIL ? NULL : linitial(found);
}

/* Every rollup, in order of live's OID. */
List *
dr_catalog_all(void)
{
	return scan(0, InvalidOid, (Datum) 0, NULL);
}

/* A relation's name for messages: schema.name, unquoted. */
char *
dr_catalog_name(Oid relation)
{
	char	   *name = get_rel_name(relation);

	if (name == NULL)
		return psprintf("%u", relation);
	return psprintf("%s.%s",
					get_namespace_name(get_rel_namespace(relation)), name);
}

/* ------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_rollup_changed);
PG_FUNCTION_INFO_V1(dailyrollup_rollup_inserted);
PG_FUNCTION_INFO_V1(dailyrollup_wanted_mode);

/* Whoever looks at rollup_status asks for what is in our table; others may ask for
 * anything. */
static void
check_state(FunctionCallInfo fcinfo, int i)
{
	DrState		state;

	if (!PG_ARGISNULL(i) &&
		!dr_catalog_parse_state(text_to_cstring(PG_GETARG_TEXT_PP(i)), &state))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized state \"%s\"", text_to_cstring(PG_GETARG_TEXT_PP(i))),
				 errhint("There are 'new', 'off', 'shadow' and 'on'.")));
}

/* The mode wanted for a rollup of that mode, state and former state. */
Datum
dailyrollup_wanted_mode(PG_FUNCTION_ARGS)
{
	DrRollup	rollup = {.mode = NULL};

	for (int i = 0; i < PG_NARGS(); i++)
		check_state(fcinfo, i);
	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	if (!PG_ARGISNULL(0))
		rollup.mode = text_to_cstring(PG_GETARG_TEXT_PP(0));
	rollup.state = state_of(PG_GETARG_DATUM(1));
	rollup.was = was_of(rollup.state, PG_ARGISNULL(2) ? (Datum) 0 : PG_GETARG_DATUM(2),
						PG_ARGISNULL(2));
	PG_RETURN_TEXT_P(cstring_to_text(dr_catalog_state_name(dr_catalog_wanted(&rollup))));
}

static void
invalidate_source(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	Oid			source = DatumGetObjectId(heap_getattr(tuple, Anum_source, desc, &isnull));

	/* the source may be gone: a rollup is deleted after a DROP ... CASCADE */
	if (!isnull && SearchSysCacheExists1(RELOID, ObjectIdGetDatum(source)))
		CacheInvalidateRelcacheByRelid(source);
}

static TriggerData *
trigger_of_rollups(FunctionCallInfo fcinfo)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		RelationGetRelid(trigger->tg_relation) != dr_catalog_table("rollups"))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("this function serves a trigger of dailyrollup.rollups alone")));
	return trigger;
}

/*
 * BEFORE INSERT: an epoch below 0, in which no late row may be merged.  What a
 * dump brings back may be the content first and then the rows that it has, each
 * of them a late row.
 */
Datum
dailyrollup_rollup_inserted(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = trigger_of_rollups(fcinfo);
	TupleDesc	desc = RelationGetDescr(trigger->tg_relation);
	int			attno = Anum_epoch;
	bool		isnull;
	int64		epoch = DatumGetInt64(heap_getattr(trigger->tg_trigtuple, attno, desc, &isnull));
	Datum		value = Int64GetDatum(epoch < 0 ? epoch : -1 - epoch);

	return PointerGetDatum(heap_modify_tuple_by_cols(trigger->tg_trigtuple, desc, 1, &attno,
													 &value, &isnull));
}

/* AFTER each change. */
Datum
dailyrollup_rollup_changed(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = trigger_of_rollups(fcinfo);
	TupleDesc	desc;

	desc = RelationGetDescr(trigger->tg_relation);
	dr_shared_note_change();
	invalidate_source(trigger->tg_trigtuple, desc);
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
		invalidate_source(trigger->tg_newtuple, desc);
	PG_RETURN_POINTER(NULL);
}
