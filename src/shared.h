/*
 * shared.h
 *		What the processes share: only where the library is preloaded.
 *
 * Layer 1.
 */
#ifndef DR_SHARED_H
#define DR_SHARED_H

#include "dailyrollup.h"

#include "storage/latch.h"
#include "storage/lwlock.h"

#define DR_NAMES		NAMEDATALEN
#define DR_WORKERS		64		/* passes of workers at a time */
#define DR_WISHES		64		/* databases that have something new */
#define DR_PASSES		64		/* passes at a time, of whomever */
#define DR_PREPARED		64		/* prepared transactions that change rollups */
#define DR_HOLD			(10 * USECS_PER_SEC)	/* how long workers stay away */

/* A worker that serves a database. */
typedef struct DrWorkerSlot
{
	Oid			database;		/* InvalidOid: free */
	uint32		generation;		/* which of the slot's workers it is */
	int			pid;			/* 0: not started yet, or ended */
	bool		heal;			/* late keys are to be healed too */
	bool		eager;			/* the server's mode has changed */
	TimestampTz since;			/* when late keys were last looked at */
	bool		busy;			/* it makes a pass */
	bool		done;			/* next_due is known */
	TimestampTz next_due;		/* DT_NOEND: none */
} DrWorkerSlot;

/* A database that nobody should connect to for a moment. */
typedef struct DrHold
{
	Oid			database;
	TimestampTz until;
} DrHold;

/* A prepared transaction that has changed what is known of a rollup. */
typedef struct DrPrepared
{
	Oid			database;		/* InvalidOid: free */
	TransactionId xid;
} DrPrepared;

/* What a pass is doing. */
typedef struct DrProgressSlot
{
	int			pid;			/* 0: free */
	Oid			database;
	Oid			live;
	char		phase[DR_NAMES];
	int			part;			/* 0: the work has no parts */
	int			parts;
	int64		rows;
	TimestampTz started_at;		/* the pass */
	TimestampTz phase_started_at;
} DrProgressSlot;

typedef struct DrShared
{
	LWLock	   *lock;			/* protects all of this */
	Latch	   *launcher;		/* NULL: none runs */
	uint32		generation;		/* of the worker started last */
	bool		look_at_all;	/* more wishes than there is room for */
	int			nwishes;
	Oid			wishes[DR_WISHES];
	DrHold		holds[DR_WORKERS];
	bool		prepared_unknown;	/* more of them than there is room for */
	DrPrepared	prepared[DR_PREPARED];
	DrWorkerSlot workers[DR_WORKERS];
	DrProgressSlot passes[DR_PASSES];
} DrShared;

extern DrShared *dr_shared;		/* NULL: not preloaded */

extern void dr_shared_init(void);
extern void dr_shared_wish(Oid database);
extern void dr_shared_prepared_ended(void);
extern void dr_shared_wake_launcher(void);
extern bool dr_shared_is_held(Oid database, TimestampTz now);
extern void dr_shared_note_change(void);
extern void dr_shared_ignore_changes(void);

#endif							/* DR_SHARED_H */
