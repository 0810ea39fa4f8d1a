/*
 * identity.h
 *		Whose rights a piece of work runs with.
 *
 * Layer 1.
 */
#ifndef DR_IDENTITY_H
#define DR_IDENTITY_H

#include "dailyrollup.h"

typedef struct DrIdentity
{
	Oid			user;
	int			security_context;
	int			guc_level;
	Oid			owner;			/* of the rollup, whose rights the work needs */
	ErrorContextCallback context;	/* tells so, where they do not suffice */
} DrIdentity;

extern void dr_identity_enter(Oid owner, DrIdentity *before);
extern void dr_identity_enter_extension(DrIdentity *before);
extern void dr_identity_leave(const DrIdentity *before);
extern void dr_identity_complain_of_drop(void) pg_attribute_noreturn();

/* the same, with a connection to SPI */
extern void dr_identity_enter_sql(Oid owner, DrIdentity *before);
extern void dr_identity_enter_extension_sql(DrIdentity *before);
extern void dr_identity_leave_sql(const DrIdentity *before);

#endif							/* DR_IDENTITY_H */
