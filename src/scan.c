/*
 * scan.c
 *		Rows of the source, as the server's executor reads them.
 *
 * Where a statement asks for whole rows, as they are stored, and nothing is to
 * be computed on the way, its receiver gets the slots that point into the pages
 * themselves: a column is taken apart when it is looked at, and the place of a
 * row is that of its slot.  Whether it is so depends on each table that is read,
 * a partition whose columns stand in another order, say.  The plan tells, when
 * it has been made ready: nodes that scan a heap, and project nothing.
 */
#include "scan.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "tcop/tcopprot.h"
#include "utils/snapmgr.h"

#include "compat.h"

struct DrScan
{
	QueryDesc  *query;
	bool		stored;
};

static PlannedStmt *
plan(const char *sql, ParamListInfo bounds)
{
	RawStmt    *raw = linitial_node(RawStmt, pg_parse_query(sql));
	Oid		   *types = palloc(bounds->numParams * sizeof(Oid));
	List	   *queries;

	for (int i = 0; i < bounds->numParams; i++)
		types[i] = bounds->params[i].ptype;
	queries = pg_analyze_and_rewrite_fixedparams(raw, sql, types, bounds->numParams, NULL);
	return dr_plan_query(linitial_node(Query, queries), sql, bounds);
}

static bool
gives_stored(PlanState *node)
{
	AppendState *append = (AppendState *) node;

	switch (nodeTag(node))
	{
		case T_AppendState:
			for (int i = 0; i < append->as_nplans; i++)
				if (!gives_stored(append->appendplans[i]))
					return false;
			return true;
		case T_SeqScanState:
		case T_IndexScanState:
		case T_BitmapHeapScanState:
			return node->ps_ProjInfo == NULL &&
				((ScanState *) node)->ss_ScanTupleSlot->tts_ops == &TTSOpsBufferHeapTuple;
		default:
			return false;
	}
}

/*
 * Have a SELECT of rows of the source ready to run: by a snapshot that others
 * share, or (NULL) by one of its own, that is taken here and sees what the
 * transaction has done.  It is the active one until dr_scan_end.
 */
DrScan *
dr_scan_begin(const char *sql, ParamListInfo bounds, Snapshot snapshot)
{
	DrScan	   *scan = palloc0(sizeof(DrScan));

	if (snapshot != NULL)
		PushActiveSnapshot(snapshot);
	else
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		CommandCounterIncrement();
		UpdateActiveSnapshotCommandId();
	}
	scan->query = CreateQueryDesc(plan(sql, bounds), sql, GetActiveSnapshot(), InvalidSnapshot,
								  None_Receiver, bounds, NULL, 0);
	ExecutorStart(scan->query, 0);
	scan->stored = gives_stored(scan->query->planstate);
	return scan;
}

/* Does each row come in a slot that points to where it is stored? */
bool
dr_scan_is_stored(const DrScan *scan)
{
	return scan->stored;
}

/* The columns of its rows. */
List *
dr_scan_columns(const DrScan *scan)
{
	return scan->query->plannedstmt->planTree->targetlist;
}

/* How many rows the planner expects. */
double
dr_scan_expected(const DrScan *scan)
{
	return scan->query->plannedstmt->planTree->plan_rows;
}

/* Until it has no more, or the receiver wants no more. */
void
dr_scan_run(DrScan *scan, DestReceiver *dest)
{
	scan->query->dest = dest;
	dr_executor_run(scan->query);
}

void
dr_scan_end(DrScan *scan)
{
	ExecutorFinish(scan->query);
	ExecutorEnd(scan->query);
	FreeQueryDesc(scan->query);
	PopActiveSnapshot();
	pfree(scan);
}
