/*
 * create.c
 *		A rollup's objects, made.
 *
 *		in live's schema, as the owner:
 *			<live> (unless it is adopted), <live>_current
 *		in schema dailyrollup, the owner's too:
 *			key_<id>			composite type of a key
 *			marks_<id>			table: keys of late rows
 *			events_<id>			view: the deduplicated source
 *			definition_<id>		view: the defining query over events_<id>
 *		on the source, as the extension's owner:
 *			dailyrollup_<id>_insert, _update, _delete, _truncate
 *		on live, likewise:
 *			dailyrollup_<id>_guard
 *
 * The two views are the definition: the server's own parse trees, which follow
 * renames, refuse the drop or change of a used column, and travel in a dump.
 * Nothing is filled here, so writers wait only for the creation.
 */
#include "create.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/tablecmds.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"

#include "adopt.h"
#include "boundary.h"
#include "catalog_write.h"
#include "compat.h"
#include "databases.h"
#include "debug.h"
#include "definition.h"
#include "identity.h"
#include "late.h"
#include "locks.h"
#include "objects.h"
#include "request.h"
#include "source.h"

static void
run(const char *sql)
{
	if (SPI_execute(sql, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", sql);
}

/* ------------------------------------------------------------------- making */

/* What was just made in live's schema, by name; the schema may have got another
 * name meanwhile, and the relation gone elsewhere. */
static Oid
made_beside_live(const DrRequest *request, const char *name)
{
	Oid			relation = get_relname_relid(name, request->schema);

	if (!OidIsValid(relation))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("schema \"%s\" was renamed meanwhile", request->live->schemaname),
				 errhint("Create the rollup again.")));
	return relation;
}

/* The table that the caller has named: it may have gone meanwhile, or have got
 * another name or owner. */
static void
check_adopted(const DrRequest *request)
{
	const char *name = request->live->relname;

	if (get_relname_relid(name, request->schema) != request->adopted)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("table \"%s\" was dropped or renamed meanwhile", name),
				 errhint("Create the rollup again.")));
	if (!dr_is_class_owner(request->adopted, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name);
}

/*
 * An existing table becomes live, with its content.  What it holds is not
 * known to be right, so nothing is folded into it before it was recomputed.
 */
static void
adopt_live(DrRollup *rollup, const DrDefinition *def, const DrRequest *request)
{
	Oid			live = request->adopted;

	check_adopted(request);		/* else he must not lock it */
	LockRelationOid(live, ShareRowExclusiveLock);
	check_adopted(request);
	dr_adopt_check(live, def);
	if (request->fold == 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("writes cannot be folded into \"%s\" before it was recomputed",
						request->live->relname),
				 errhint("Leave fold out here; later run rollup_recompute and rollup_alter(..., fold => true) in one transaction.")));
	rollup->live = live;
	rollup->state = DR_STATE_OFF;
	rollup->fold = false;
}

/* Live, in the schema that the caller chose, as the rollup's owner. */
static void
make_live(DrRollup *rollup, const DrDefinition *def, const DrRequest *request)
{
	DrIdentity	before;

	dr_identity_enter(rollup->owner, &before);
	run(dr_objects_create_live(def, quote_qualified_identifier(request->live->schemaname,
															 request->live->relname)));
	dr_identity_leave(&before);
	rollup->live = made_beside_live(request, request->live->relname);
}

static Oid
made_relation(const char *prefix, int32 id)
{
	return get_relname_relid(psprintf("%s_%d", prefix, id),
							 get_namespace_oid(DR_SCHEMA, false));
}

/* Take back what default privileges have granted: the rows are the source's. */
static void
revoke_grants(Oid relation)
{
	Oid			types[1] = {OIDOID};
	Datum		values[1] = {ObjectIdGetDatum(relation)};
	char	   *grantees;

	if (SPI_execute_with_args("SELECT pg_catalog.string_agg(DISTINCT CASE a.grantee WHEN 0"
							  " THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::pg_catalog.text END, ', ')"
							  " FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a"
							  " WHERE c.oid = $1 AND a.grantee <> c.relowner",
							  1, types, values, NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read the grants on \"%s\"", get_rel_name(relation));
	grantees = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (grantees != NULL)
		run(psprintf("REVOKE ALL ON TABLE %s FROM %s",
					 dr_objects_relation(relation), grantees));
}

/*
 * What holds names and types alone, in our own schema, where the owner may not
 * create: made as the extension's owner, then handed over.
 */
static void
make_key_objects(DrRollup *rollup, const DrDefinition *def)
{
	int32		id = rollup->id;
	const char *owner = quote_identifier(GetUserNameFromId(rollup->owner, false));
	DrIdentity	before;

	dr_identity_enter_extension(&before);
	run(dr_objects_create_key_type(def, id));
	run(dr_objects_create_marks(def, id));
	run(psprintf("ALTER TYPE dailyrollup.key_%d OWNER TO %s;"
				 " ALTER TABLE dailyrollup.marks_%d OWNER TO %s",
				 id, owner, id, owner));
	rollup->marks = made_relation("marks", id);
	revoke_grants(rollup->marks);
	dr_identity_leave(&before);
	rollup->key_type = get_rel_type_id(made_relation("key", id));
}

/*
 * Move a relation that this transaction has made into our own schema, where its
 * owner may not create.  By OID: its name may be anybody's by now.
 */
static void
move_to_own_schema(Oid relation, const char *name)
{
	Relation	rel = relation_open(relation, AccessExclusiveLock);
	ObjectAddresses *moved = new_object_addresses();

	AlterTableNamespaceInternal(rel, RelationGetNamespace(rel),
								get_namespace_oid(DR_SCHEMA, false), moved);
	relation_close(rel, NoLock);
	free_object_addresses(moved);
	CommandCounterIncrement();
	RenameRelationInternal(relation, name, true, false);
	CommandCounterIncrement();
}

/*
 * A view in our own schema.  Its text holds expressions of the user's, and to
 * parse a constant may call a function of the user's, so the owner makes it,
 * in live's schema.
 */
static Oid
make_view(const DrRollup *rollup, const DrRequest *request, const char *name,
		  const char *query)
{
	char	   *parked = psprintf("dailyrollup_%s_%d", name, rollup->id);
	DrIdentity	before;
	Oid			view;

	dr_identity_enter(rollup->owner, &before);
	run(psprintf("CREATE VIEW %s.%s AS %s",
				 quote_identifier(request->live->schemaname), parked, query));
	dr_identity_leave(&before);

	view = made_beside_live(request, parked);
	move_to_own_schema(view, psprintf("%s_%d", name, rollup->id));
	dr_identity_enter_extension(&before);
	revoke_grants(view);
	dr_identity_leave(&before);
	return view;
}

/* The two views that are the definition. */
static void
make_definition(DrRollup *rollup, const DrDefinition *def, const DrRequest *request)
{
	DrIdentity	before;
	char	   *events;
	char	   *definition;

	/* printed for the search_path that they are run with */
	dr_identity_enter(rollup->owner, &before);
	events = dr_objects_events(def);
	definition = dr_objects_definition_of(def, psprintf("dailyrollup.events_%d", rollup->id));
	dr_identity_leave(&before);

	rollup->events = make_view(rollup, request, "events", events);
	rollup->definition = make_view(rollup, request, "definition", definition);
}

static void
make_current(DrRollup *rollup, const DrRequest *request)
{
	char	   *name = psprintf("%s_current", request->live->relname);
	DrDefinition *def = dr_definition_read(rollup->source, rollup->events, rollup->definition);
	DrIdentity	before;

	dr_identity_enter(rollup->owner, &before);
	run(psprintf("CREATE VIEW %s AS %s",
				 quote_qualified_identifier(request->live->schemaname, name),
				 dr_objects_current(def, rollup, !rollup->fold)));
	dr_identity_leave(&before);
	rollup->current_view = made_beside_live(request, name);
}

/*
 * A statement trigger.  By OID, so that none but the table that is meant gets
 * it; the caller works as the extension's owner, for a partition may have any
 * owner.
 */
static void
make_statement_trigger(int32 id, Oid table, const char *event, const char *function,
					   int16 timing, int16 events)
{
	CreateTrigStmt *stmt = makeNode(CreateTrigStmt);

	stmt->trigname = dr_objects_trigger_name(id, event);
	stmt->funcname = list_make2(makeString(DR_SCHEMA), makeString(pstrdup(function)));
	stmt->args = list_make1(makeString(psprintf("%d", id)));
	stmt->timing = timing;
	stmt->events = events;
	CreateTriggerFiringOn(stmt, NULL, table, InvalidOid, InvalidOid, InvalidOid,
						  InvalidOid, InvalidOid, NULL, false, false,
						  TRIGGER_FIRES_ALWAYS);
}

/* The trigger that keeps writes of others out of live. */
static void
make_guard(const DrRollup *rollup)
{
	DrIdentity	before;

	dr_identity_enter_extension(&before);
	make_statement_trigger(rollup->id, rollup->live, "guard", "_guard", TRIGGER_TYPE_BEFORE,
						   TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE |
						   TRIGGER_TYPE_DELETE | TRIGGER_TYPE_TRUNCATE);
	dr_identity_leave(&before);
	CommandCounterIncrement();
}

/*
 * The triggers that catch TRUNCATE, on the relation and on each leaf below it
 * that has none yet: it fires the statement triggers of each table that it
 * reaches.
 */
void
dr_create_truncate_triggers(const DrRollup *rollup, Oid relation)
{
	List	   *relations = find_all_inheritors(relation, ShareRowExclusiveLock, NULL);
	char	   *name = dr_objects_trigger_name(rollup->id, "truncate");
	DrIdentity	before;
	ListCell   *cell;

	dr_identity_enter_extension(&before);
	foreach(cell, relations)
	{
		Oid			member = lfirst_oid(cell);

		if (member != rollup->source && get_rel_relkind(member) != RELKIND_RELATION)
			continue;
		if (!OidIsValid(get_trigger_oid(member, name, true)))
			make_statement_trigger(rollup->id, member, "truncate", "_truncated",
								   TRIGGER_TYPE_AFTER, TRIGGER_TYPE_TRUNCATE);
	}
	dr_identity_leave(&before);
	CommandCounterIncrement();
}

/*
 * As the extension's owner, for a partition may have any owner.  They are made
 * by the source's name, which may have become another table's while we waited:
 * then the whole transaction is undone.
 */
static void
make_row_triggers(const DrRollup *rollup)
{
	DrDefinition *def = dr_definition_read(rollup->source, rollup->events, rollup->definition);
	DrIdentity	before;

	dr_identity_enter_extension(&before);
	for (int i = 0; i < DR_ROW_EVENTS; i++)
		run(dr_objects_create_row_trigger(def, rollup, dr_objects_row_events[i]));
	dr_identity_leave(&before);
	dr_create_truncate_triggers(rollup, rollup->source);
	dr_late_check_triggers(rollup);
}

/* Does a scan by key have an index of the source? */
static bool
index_leads_with_key(const DrDefinition *def)
{
	Relation	source = table_open(def->source, NoLock);
	List	   *indexes = RelationGetIndexList(source);
	ListCell   *cell;
	bool		found = false;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);
		AttrNumber	first = index->rd_index->indkey.values[0];

		for (int i = 0; i < def->nkeys; i++)
		{
			Node	   *expr = def->columns[def->keys[i]].expr;

			if (index->rd_index->indisvalid && IsA(expr, Var) &&
				((Var *) expr)->varattno == first)
				found = true;
		}
		index_close(index, AccessShareLock);
	}
	table_close(source, NoLock);
	return found;
}

/* Who makes the passes in this database; NULL: nobody. */
static const char *
pass_maker(void)
{
	MemoryContext context = CurrentMemoryContext;
	char	   *maker;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute("SELECT CASE WHEN dailyrollup._worker_serves() THEN 'the background worker'"
					" WHEN dailyrollup._scheduled() THEN 'pg_cron' END", true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not find out who makes the passes");
	maker = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (maker != NULL)
		maker = MemoryContextStrdup(context, maker);
	SPI_finish();
	return maker;
}

static void
give_notices(const DrRollup *rollup, const DrDefinition *def)
{
	const char *maker = pass_maker();
	char	   *how = maker ? psprintf("It is made by %s.", maker) :
		psprintf("Run CALL rollup_run(%s).",
				 quote_literal_cstr(dr_objects_relation(rollup->live)));

	dr_definition_notice(def);
	dr_adopt_warn_of_triggers(rollup->live);
	dr_source_warn_of_policies(rollup->source, rollup->live);
	if (!index_leads_with_key(def))
		ereport(NOTICE,
				(errmsg("no index of \"%s\" leads with a key column of rollup \"%s\"",
						dr_catalog_name(rollup->source), dr_catalog_name(rollup->live)),
				 errdetail("A late key is recomputed from a scan of the whole source.")));
	if (rollup->state == DR_STATE_OFF && dr_catalog_wanted(rollup) == DR_STATE_ON)
		ereport(NOTICE,
				(errmsg("table \"%s\" is a rollup now", dr_catalog_name(rollup->live)),
				 errdetail("The next pass brings it to its query's content, and keeps it from then on."),
				 errhint("%s", how)));
	else if (rollup->state == DR_STATE_OFF)
		ereport(NOTICE,
				(errmsg("table \"%s\" is a rollup now, and stays as it is",
						dr_catalog_name(rollup->live)),
				 errdetail("Nothing changes it before the mode wanted for it is \"on\", or rollup_recompute is run."),
				 errhint("Mode \"shadow\" builds the right content beside it, rollup_diff compares them.")));
	else
		ereport(NOTICE,
				(errmsg("rollup \"%s\" is filled by its first pass",
						dr_catalog_name(rollup->live)),
				 errdetail("Until then \"%s\" is computed from the source.",
						   dr_catalog_name(rollup->current_view)),
				 errhint("%s", how)));
	if (maker == NULL)
		ereport(WARNING,
				(errmsg("nothing makes the passes of rollup \"%s\" by itself",
						dr_catalog_name(rollup->live)),
				 errhint("%s, or have pg_cron do it: SELECT rollup_schedule().",
						 dr_databases_advice())));
}

/* What belongs to a rollup is neither live nor source of another one. */
static void
check_not_ours(Oid relation)
{
	List	   *rollups = dr_catalog_all();
	ListCell   *cell;
	bool		ours = get_rel_namespace(relation) == get_namespace_oid(DR_SCHEMA, false);

	foreach(cell, rollups)
		ours = ours || ((DrRollup *) lfirst(cell))->shadow == relation;
	if (ours)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" belongs to a rollup itself", dr_catalog_name(relation))));
}

/* Names that our own SQL gives to columns beside the user's. */
static void
reject_own_name(const char *name)
{
	if (strncmp(name, DR_SCHEMA " ", strlen(DR_SCHEMA " ")) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("column name \"%s\" is reserved", name),
				 errdetail("Names that begin with \"dailyrollup \" are used by the rollup itself."),
				 errhint("Give the column another name.")));
}

static void
check_names(const DrDefinition *def)
{
	for (int i = 0; i < def->ncolumns; i++)
		reject_own_name(def->columns[i].name);
	for (int i = 0; i < def->nevents; i++)
		reject_own_name(def->events[i].source_name);
}

static DrRollup *
make_rollup(const DrRequest *request)
{
	DrRollup   *rollup = palloc0(sizeof(DrRollup));
	DrDefinition *def;

	/* who drops the extension is waited for, or waits for us */
	dr_locks_extension();
	rollup->id = dr_catalog_next_id();
	def = dr_definition_parse(request->query, request->time_column,
							  request->dedup_by, request->dedup_order);
	check_names(def);
	check_not_ours(def->source);
	if (OidIsValid(request->adopted))
		check_not_ours(request->adopted);
	rollup->source = def->source;
	rollup->owner = dr_source_owner(def->source);
	rollup->time_zone = pstrdup(request->time_zone);
	rollup->delay = request->delay;
	rollup->mode = request->mode ? pstrdup(request->mode) : NULL;
	rollup->fold = request->fold != 0;
	rollup->state = DR_STATE_NEW;
	rollup->was = DR_STATE_OFF;
	if (!pg_strong_random(&rollup->proof, sizeof(rollup->proof)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (OidIsValid(request->adopted))
		adopt_live(rollup, def, request);
	else
		make_live(rollup, def, request);
	make_key_objects(rollup, def);
	make_definition(rollup, def, request);
	make_current(rollup, request);
	DR_WAITPOINT("create-made");
	dr_catalog_insert(rollup);
	make_guard(rollup);
	make_row_triggers(rollup);
	SPI_finish();
	DR_WAITPOINT("create-watched");

	give_notices(rollup, def);
	return rollup;
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_create);

Datum
dailyrollup_create(PG_FUNCTION_ARGS)
{
	DrRequest		request = {0};

	PreventCommandIfReadOnly("rollup_create()");
	dr_request_unpack(fcinfo, &request);
	PG_RETURN_OID(make_rollup(&request)->live);
}
