/*
 * plans.c
 *		What a session keeps of a rollup to run SQL over it again and again.
 *
 * The definition, read from the rollup's views, and prepared plans.  The
 * server replans a plan by itself when a table changes; but from our text,
 * which names columns, functions, types: anything that may rename one of these
 * drops the whole entry.  It is freed when it is asked for again, but one that is
 * in use further up the stack at the end of the transaction.  So is one that nobody
 * asks for any more.
 */
#include "plans.h"

#include "access/xact.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "definition.h"

typedef struct PlansSlot
{
	Oid			live;			/* hash key */
	bool		valid;
	DrPlans    *plans;			/* NULL: none */
} PlansSlot;

static HTAB *slots = NULL;

/* The one that was asked for by its rollup's id before; NULL: none. */
static PlansSlot *last = NULL;

static List *garbage = NIL;

static bool
concerns(const DrPlans *plans, Oid relation)
{
	return !OidIsValid(relation) ||
		relation == plans->rollup->source || relation == plans->rollup->live ||
		relation == plans->rollup->events || relation == plans->rollup->definition ||
		relation == plans->rollup->marks || relation == plans->event_relation;
}

static void
invalidate(Datum arg, Oid relation)
{
	HASH_SEQ_STATUS status;
	PlansSlot  *slot;

	hash_seq_init(&status, slots);
	while ((slot = hash_seq_search(&status)) != NULL)
		if (slot->plans != NULL && concerns(slot->plans, relation))
			slot->valid = false;
}

/* Functions, types, operators, collations and schemas change seldom. */
static void
invalidate_all(Datum arg, int cache, uint32 hash)
{
	invalidate(arg, InvalidOid);
}

static void
discard(DrPlans *plans)
{
	ListCell   *cell;

	for (int i = 0; i < lengthof(plans->mark); i++)
		if (plans->mark[i] != NULL)
			SPI_freeplan(plans->mark[i]);
	for (int i = 0; i < DR_FOLD_STATEMENTS; i++)
		if (plans->fold[i] != NULL)
			SPI_freeplan(plans->fold[i]);
	foreach(cell, plans->key_plans)
		SPI_freeplan(((DrKeyPlan *) lfirst(cell))->plan);
	MemoryContextDelete(plans->context);
}

static void
free_garbage(XactEvent event, void *arg)
{
	HASH_SEQ_STATUS status;
	PlansSlot  *slot;
	ListCell   *cell;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		event != XACT_EVENT_PREPARE)
		return;
	last = NULL;
	hash_seq_init(&status, slots);
	while ((slot = hash_seq_search(&status)) != NULL)
	{
		if (slot->plans != NULL)
			slot->plans->uses = 0;
		if (slot->valid)
			continue;
		/* the rollup may have gone for good */
		if (slot->plans != NULL)
			discard(slot->plans);
		(void) hash_search(slots, &slot->live, HASH_REMOVE, NULL);
	}
	foreach(cell, garbage)
		discard(lfirst(cell));
	list_free(garbage);
	garbage = NIL;
}

void
dr_plans_init(void)
{
	static const int caches[] = {
		PROCOID, TYPEOID, ENUMOID, OPEROID, COLLOID, NAMESPACEOID
	};
	HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(PlansSlot)};

	slots = hash_create("dailyrollup plans", 16, &ctl, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(invalidate, (Datum) 0);
	for (int i = 0; i < lengthof(caches); i++)
		CacheRegisterSyscacheCallback(caches[i], invalidate_all, (Datum) 0);
	RegisterXactCallback(free_garbage, NULL);
}

static DrPlans *
build(Oid live)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "dailyrollup plans",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);
	DrPlans    *plans = palloc0(sizeof(DrPlans));

	plans->live = live;
	plans->context = context;
	plans->rollup = dr_catalog_find(live, NULL);
	if (plans->rollup == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not a rollup", dr_catalog_name(live))));
	plans->def = dr_definition_read(plans->rollup->source, plans->rollup->events, plans->rollup->definition);
	MemoryContextSwitchTo(before);
	return plans;
}

/* The session's entry of that rollup, built anew where something changed. */
DrPlans *
dr_plans_of(Oid live)
{
	bool		found;
	PlansSlot  *slot = hash_search(slots, &live, HASH_ENTER, &found);
	DrPlans    *plans;

	if (found && slot->valid)
		return slot->plans;
	if (found && slot->plans != NULL && slot->plans->uses == 0)
		discard(slot->plans);
	else if (found && slot->plans != NULL)
	{
		MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);

		garbage = lappend(garbage, slot->plans);
		MemoryContextSwitchTo(before);
	}
	slot->plans = NULL;
	slot->valid = false;

	plans = build(live);
	MemoryContextSetParent(plans->context, CacheMemoryContext);

	/* building accepts messages, which may have added or changed entries */
	slot = hash_search(slots, &live, HASH_ENTER, &found);
	slot->plans = plans;
	slot->valid = true;
	return plans;
}

/* The same by the rollup's id; NULL where there is no such rollup. */
DrPlans *
dr_plans_of_id(int32 id)
{
	HASH_SEQ_STATUS status;
	PlansSlot  *slot;
	DrRollup   *rollup;

	if (last != NULL && last->valid && last->plans->rollup->id == id)
		return last->plans;
	hash_seq_init(&status, slots);
	while ((slot = hash_seq_search(&status)) != NULL)
		if (slot->valid && slot->plans->rollup->id == id)
		{
			hash_seq_term(&status);
			last = slot;
			return slot->plans;
		}
	rollup = dr_catalog_find_id(id);
	return rollup != NULL ? dr_plans_of(rollup->live) : NULL;
}

/* Prepare and keep a plan, with cursor options; the caller hangs it into an
 * entry. */
SPIPlanPtr
dr_plans_prepare(const char *sql, int n, Oid *types, int options)
{
	SPIPlanPtr	plan = SPI_prepare_cursor(sql, n, types, options);

	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "could not prepare \"%s\"", sql);
	return plan;
}

/*
 * Run a statement once, by a snapshot that is older than its plan; "nulls" as SPI
 * takes them.  (SPI fails by its result only where it is called in a wrong way.)
 */
void
dr_plans_run(const char *sql, Snapshot snapshot, int n, Oid *types, Datum *values,
			 const char *nulls)
{
	SPIPlanPtr	plan = SPI_prepare(sql, n, types);

	if (plan == NULL ||
		SPI_execute_snapshot(plan, values, nulls, snapshot, InvalidSnapshot, false, true, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", sql);
	SPI_freeplan(plan);
}

/* Let the statements of this connection to SPI read the rows under that name. */
void
dr_plans_register(const char *name, TupleDesc desc, Tuplestorestate *rows, int64 count)
{
	EphemeralNamedRelation relation = palloc0(sizeof(EphemeralNamedRelationData));

	relation->md.name = pstrdup(name);
	relation->md.reliddesc = InvalidOid;
	relation->md.tupdesc = desc;
	relation->md.enrtype = ENR_NAMED_TUPLESTORE;
	relation->md.enrtuples = count;
	relation->reldata = rows;
	if (SPI_register_relation(relation) != SPI_OK_REL_REGISTER)
		elog(ERROR, "could not register \"%s\"", name);
}
