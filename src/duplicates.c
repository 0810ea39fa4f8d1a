/*
 * duplicates.c
 *		Can two rows of the source be of one event?
 *
 * Not where a unique index forbids it.  Then each row counts, and nothing has to
 * be looked for.
 */
#include "duplicates.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "commands/defrem.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"

#include "compat.h"

static bool
is_dedup_column(const DrDefinition *def, AttrNumber attno)
{
	for (int i = 0; i < def->ndedup; i++)
		if (def->events[def->dedup_by[i]].attno == attno)
			return true;
	return false;
}

/*
 * Does this unique index make two rows equal in dedup_by impossible?  It must
 * be enforced at once and for all rows, by plain NOT NULL columns out of
 * dedup_by (or with NULLS NOT DISTINCT), by each column's own equality.
 */
static bool
index_forbids_duplicates(const DrDefinition *def, Relation source, Relation index)
{
	Form_pg_index form = index->rd_index;

	if (!form->indisunique || !form->indimmediate || !form->indisvalid ||
		!form->indisready ||
		!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL) ||
		index->rd_rel->relam != BTREE_AM_OID)
		return false;

	for (int i = 0; i < form->indnkeyatts; i++)
	{
		AttrNumber	attno = form->indkey.values[i];
		Form_pg_attribute attribute;
		Oid			opclass;

		if (attno <= 0 || !is_dedup_column(def, attno))
			return false;
		attribute = TupleDescAttr(RelationGetDescr(source), attno - 1);
		if (!dr_att_not_null(attribute) && !form->indnullsnotdistinct)
			return false;
		opclass = GetDefaultOpClass(attribute->atttypid, BTREE_AM_OID);
		if (!OidIsValid(opclass) ||
			get_opclass_family(opclass) != index->rd_opfamily[i] ||
			index->rd_indcollation[i] != attribute->attcollation)
			return false;
	}
	return true;
}

static bool
is_key(const DrDefinition *def, int event)
{
	for (int i = 0; i < def->nkeys; i++)
	{
		const Node *expr = def->columns[def->keys[i]].expr;

		if (IsA(expr, Var) && ((const Var *) expr)->varattno == event + 1)
			return true;
	}
	return false;
}

/* Can two events of a key have one time?  Not where key and time tell an event.  The
 * definition is one that was read. */
bool
dr_duplicates_may_tie(const DrDefinition *def)
{
	Assert(def->vars_of != def->source);
	for (int i = 0; i < def->ndedup; i++)
		if (def->dedup_by[i] != 0 && !is_key(def, def->dedup_by[i]))
			return true;
	return def->ndedup == 0;
}

/* Must duplicates be looked for?  Not where a unique index forbids them; the
 * caller holds a lock on the source that keeps the index. */
bool
dr_duplicates_are_possible(const DrDefinition *def)
{
	Relation	source;
	List	   *indexes;
	ListCell   *cell;
	bool		possible = true;

	if (def->ndedup == 0)
		return false;

	source = table_open(def->source, AccessShareLock);
	indexes = RelationGetIndexList(source);
	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (index_forbids_duplicates(def, source, index))
			possible = false;
		index_close(index, AccessShareLock);
	}
	table_close(source, AccessShareLock);
	return possible;
}
