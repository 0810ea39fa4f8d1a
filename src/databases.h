/*
 * databases.h
 *		Which databases the background worker serves, and when each is due.
 *
 * Layer 2.
 */
#ifndef DR_DATABASES_H
#define DR_DATABASES_H

#include "dailyrollup.h"

#include "postmaster/bgworker.h"

/* What the launcher knows of a database. */
typedef struct DrDatabase
{
	Oid			oid;
	char	   *name;
	bool		seen;			/* in the last look at pg_database */
	bool		eager;			/* the server's mode has changed */
	TimestampTz next_due;		/* 0: at once; DT_NOEND: nothing is */
	TimestampTz not_before;		/* whatever is due */
	TimestampTz healed_at;		/* when late keys were last looked at */
	int			deaths;			/* of workers, since the last that came to its end */
	BackgroundWorkerHandle *handle; /* of its worker; NULL: none runs */
	int			slot;			/* of its worker */
	bool		heals;			/* it looks at late keys */
	TimestampTz started_at;		/* when it was started */
} DrDatabase;

extern List *dr_databases;		/* of DrDatabase, the launcher's */

extern void dr_databases_look(MemoryContext context);
extern void dr_databases_take_wishes(bool all, bool eager);
extern bool dr_databases_mind_clock(TimestampTz now);
extern bool dr_databases_heal_is_due(const DrDatabase *database, TimestampTz now);
extern TimestampTz dr_databases_due(const DrDatabase *database);
extern bool dr_databases_serves_this(void);
extern const char *dr_databases_advice(void);

#endif							/* DR_DATABASES_H */
