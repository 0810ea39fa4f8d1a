/*
 * permit.c
 *		What <live>_current shows to the functions behind it.
 *
 * They answer whoever reads the view, or a view on top of it, or a column of it:
 * the server has checked that, and a function learns nothing of it.  So the view
 * shows a permit: a constant that none but live's owner can have made, for only
 * his live's name is taken as one.  It is no secret.  There is no other way to a
 * value of the type: it has no receive function, and no cast.
 *
 * The owner's OID is in it, so that it is worth nothing once live is handed over.
 * A dump has live's name, and whoever restores the view makes it anew; no row of
 * our tables is there at that time.  A superuser restores what others have kept,
 * too, the permits of former owners as well: so what he makes of another's table
 * holds his own OID, and counts no longer than it stands in the view (view.c).
 */
#include "permit.h"

#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "catalog.h"
#include "compat.h"

bool
dr_permit_equal(const DrPermit *a, const DrPermit *b)
{
	return a->live == b->live && a->owner == b->owner;
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_permit_in);
PG_FUNCTION_INFO_V1(dailyrollup_permit_out);

/* Whose permit it is that this user makes: the owner's, unless he may make it as a
 * superuser alone. */
static Oid
maker(Oid owner, Oid user)
{
	return is_member_of_role_nosuper(user, owner) ? owner : user;
}

/* From the name of a table, by its owner. */
Datum
dailyrollup_permit_in(PG_FUNCTION_ARGS)
{
	DrPermit   *permit = palloc(sizeof(DrPermit));

	permit->live = DatumGetObjectId(DirectFunctionCall1(regclassin, PG_GETARG_DATUM(0)));
	permit->owner = dr_catalog_relation_owner(permit->live);
	if (!OidIsValid(permit->owner))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"%s\" does not exist", PG_GETARG_CSTRING(0))));
	if (!dr_is_class_owner(permit->live, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of table %s", dr_catalog_name(permit->live)),
				 errhint("The rows of a rollup are read through its view.")));
	permit->owner = maker(permit->owner, GetUserId());
	PG_RETURN_POINTER(permit);
}

Datum
dailyrollup_permit_out(PG_FUNCTION_ARGS)
{
	return DirectFunctionCall1(regclassout, ObjectIdGetDatum(PG_GETARG_PERMIT(0)->live));
}
