/*
 * partner.c
 *		A parallel worker that does a part of the work, and sends rows.
 *
 * It is one of the server's own parallel workers: it acts as the leader's user,
 * by the leader's settings, transaction and active snapshot, and holds locks
 * together with it.  The leader must not write until the partner has ended.  An
 * error of the partner is raised in the leader; and where the leader's
 * (sub)transaction aborts, the partner is stopped.
 */
#include "partner.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "executor/tqueue.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "storage/shm_mq.h"

#define LIBRARY			"dailyrollup"

/* Bytes of rows that wait for the leader. */
#define QUEUE_SIZE		((Size) 256 * 1024)

/* In the memory that is shared. */
enum
{
	KEY_GIVEN_UP = 1,
	KEY_SIZE,
	KEY_DETAILS,
	KEY_SQL,
	KEY_PARAMS,
	KEY_QUEUE,
	NKEYS = KEY_QUEUE
};

struct DrPartner
{
	ParallelContext *context;
	pg_atomic_uint32 *given_up;
	TupleQueueReader *reader;	/* NULL: all was read */
};

/* ------------------------------------------------------------------ leader */

/* Do the settings allow a statement a worker? */
bool
dr_partner_is_allowed(void)
{
	return Min(max_parallel_workers_per_gather, max_parallel_workers) > 0 &&
		!IsInParallelMode();
}

static void
request_memory(ParallelContext *context, const DrTask *task)
{
	shm_toc_estimator *estimator = &context->estimator;

	shm_toc_estimate_chunk(estimator, sizeof(pg_atomic_uint32));
	shm_toc_estimate_chunk(estimator, sizeof(Size));
	shm_toc_estimate_chunk(estimator, task->size);
	shm_toc_estimate_chunk(estimator, strlen(task->sql) + 1);
	shm_toc_estimate_chunk(estimator, EstimateParamListSpace(task->params));
	shm_toc_estimate_chunk(estimator, QUEUE_SIZE);
	shm_toc_estimate_keys(estimator, NKEYS);
}

static void *
insert(shm_toc *toc, uint64 key, Size size, const void *data)
{
	void	   *chunk = shm_toc_allocate(toc, size);

	if (data != NULL)
		memcpy(chunk, data, size);
	shm_toc_insert(toc, key, chunk);
	return chunk;
}

/* Write down the task, and make the queue that rows come by. */
static shm_mq_handle *
fill_memory(DrPartner *partner, const DrTask *task)
{
	ParallelContext *context = partner->context;
	shm_toc    *toc = context->toc;
	shm_mq	   *queue;
	char	   *params;

	partner->given_up = insert(toc, KEY_GIVEN_UP, sizeof(pg_atomic_uint32), NULL);
	pg_atomic_init_u32(partner->given_up, 0);
	insert(toc, KEY_SIZE, sizeof(Size), &task->size);
	insert(toc, KEY_DETAILS, task->size, task->details);
	insert(toc, KEY_SQL, strlen(task->sql) + 1, task->sql);
	params = insert(toc, KEY_PARAMS, EstimateParamListSpace(task->params), NULL);
	SerializeParamList(task->params, &params);
	queue = shm_mq_create(insert(toc, KEY_QUEUE, QUEUE_SIZE, NULL), QUEUE_SIZE);
	shm_mq_set_receiver(queue, MyProc);
	return shm_mq_attach(queue, context->seg, NULL);
}

/*
 * Have a worker run a function of the library.  NULL where none can be had.
 * "errors" is the error context in which its messages are given; it must last
 * until dr_partner_end.
 */
DrPartner *
dr_partner_begin(const char *function, const DrTask *task, ErrorContextCallback *errors)
{
	DrPartner  *partner = palloc0(sizeof(DrPartner));
	ParallelContext *context;
	shm_mq_handle *queue = NULL;

	EnterParallelMode();
	context = partner->context = CreateParallelContext(LIBRARY, function, 1);
	context->error_context_stack = errors;
	request_memory(context, task);
	InitializeParallelDSM(context);
	if (context->nworkers > 0)
	{
		queue = fill_memory(partner, task);
		LaunchParallelWorkers(context);
	}
	if (context->nworkers_launched == 0)
	{
		dr_partner_end(partner);
		return NULL;
	}
	shm_mq_set_handle(queue, context->worker[0].bgwhandle);
	partner->reader = CreateTupleQueueReader(queue);
	return partner;
}

/* The next row that the partner sends, into a slot for minimal tuples; false
 * where there are no more. */
bool
dr_partner_next(DrPartner *partner, TupleTableSlot *slot)
{
	bool		done;
	MinimalTuple tuple = TupleQueueReaderNext(partner->reader, false, &done);

	if (tuple == NULL)
		ExecClearTuple(slot);
	else
		ExecStoreMinimalTuple(tuple, slot, false);
	return tuple != NULL;
}

/* All rows were read.  False where the partner has given up; if it has failed,
 * its error is raised here at the latest. */
bool
dr_partner_finish(DrPartner *partner)
{
	WaitForParallelWorkersToFinish(partner->context);
	return pg_atomic_read_u32(partner->given_up) == 0;
}

/* A partner that is still at work is stopped. */
void
dr_partner_end(DrPartner *partner)
{
	if (partner->reader != NULL)
		DestroyTupleQueueReader(partner->reader);
	DestroyParallelContext(partner->context);
	ExitParallelMode();
	pfree(partner);
}

/* ----------------------------------------------------------------- partner */

DrOrder *
dr_partner_read_order(dsm_segment *segment, shm_toc *toc)
{
	DrOrder    *order = palloc0(sizeof(DrOrder));
	char	   *params = shm_toc_lookup(toc, KEY_PARAMS, false);
	shm_mq	   *queue = shm_toc_lookup(toc, KEY_QUEUE, false);

	order->task.details = shm_toc_lookup(toc, KEY_DETAILS, false);
	order->task.size = *(Size *) shm_toc_lookup(toc, KEY_SIZE, false);
	order->task.sql = shm_toc_lookup(toc, KEY_SQL, false);
	order->task.params = RestoreParamList(&params);
	order->given_up = shm_toc_lookup(toc, KEY_GIVEN_UP, false);
	shm_mq_set_sender(queue, MyProc);
	order->rows = CreateTupleQueueDestReceiver(shm_mq_attach(queue, segment, NULL));
	return order;
}

/* The task cannot be done in this way. */
void
dr_partner_give_up(DrOrder *order)
{
	pg_atomic_write_u32(order->given_up, 1);
}
