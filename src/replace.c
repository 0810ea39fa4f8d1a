/*
 * replace.c
 *		A table's content becomes another one.
 *
 * What dr_change_replace does by a statement, by a comparison in memory: rows
 * of keys that are gone, and copies, are deleted, rows that differ are updated,
 * those that are missing are inserted.  Where nothing differs, nothing else
 * than the comparison is done.
 *
 * No index of the table is relied upon.
 */
#include "replace.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "debug.h"
#include "target.h"

static bool
may_write_directly(const DrRollup *rollup, const DrDefinition *def, Relation rel)
{
	return !dr_target_fires_triggers(rollup, rel) && dr_content_has_columns(def, rel, true);
}

/* What the comparison of a part of the keys has found.  Copies go before the
 * rows that they are copies of are written. */
static void
write_part(DrContent *content, void *arg)
{
	DrTarget   *target = arg;
	ItemPointerData tid;
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];

	PushActiveSnapshot(GetLatestSnapshot());
	while (dr_content_next_surplus(content, &tid))
	{
		CHECK_FOR_INTERRUPTS();
		dr_target_delete(target, &tid);
	}
	DR_WAITPOINT("replace-deleted");
	while (dr_content_next_changed(content, &tid, values, nulls))
	{
		CHECK_FOR_INTERRUPTS();
		dr_target_update(target, &tid, values, nulls);
	}
	DR_WAITPOINT("replace-updated");
	while (dr_content_next_missing(content, values, nulls))
	{
		CHECK_FOR_INTERRUPTS();
		dr_target_insert(target, values, nulls);
	}
	PopActiveSnapshot();
	CommandCounterIncrement();
}

static void
replace(DrContent *content, const DrDefinition *def, Relation rel, const char *fresh,
		ParamListInfo params, DrCompared *compared)
{
	DrTarget	target;

	dr_target_open(&target, def, rel, false);
	dr_content_compare(content, fresh, params, write_part, &target, compared);
	dr_target_close(&target);
}

/*
 * Make the table's content that of "fresh", a SELECT of the query's columns,
 * which may be run more than once; "fresh_table" is the table that it reads, if
 * it reads one.  False, and nothing is done, where it takes a statement.
 *
 * The caller works as the rollup's owner, is connected to SPI, and holds a lock
 * on the table that no writer holds.
 */
bool
dr_replace_directly(const DrRollup *rollup, const DrDefinition *def, Oid table,
					const char *fresh, ParamListInfo params, Oid fresh_table,
					DrCompared *compared)
{
	Relation	rel = table_open(table, RowExclusiveLock);
	Relation	fresh_rel = OidIsValid(fresh_table) ? table_open(fresh_table, AccessShareLock) : NULL;
	DrContent  *content = NULL;

	if (may_write_directly(rollup, def, rel))
		content = dr_content_prepare(def, rel, fresh_rel);
	if (content != NULL)
	{
		replace(content, def, rel, fresh, params, compared);
		dr_content_end(content);
	}
	if (fresh_rel != NULL)
		table_close(fresh_rel, NoLock);
	table_close(rel, NoLock);
	return content != NULL;
}
