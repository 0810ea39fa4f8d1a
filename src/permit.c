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
 * Written it is owner.schema.live, in a dump too, and whoever restores that makes it
 * anew; no row of our tables is there at that time.  A superuser restores what former
 * owners have kept, too: it stays theirs, for it names them.  Nobody else can name any
 * role but live's owner: what is made of that is nobody's, and counts no longer than
 * it stands in the view (view.c), as where a dump is restored without its roles.
 */
#include "permit.h"

#include "catalog/namespace.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/varlena.h"

#include "catalog.h"
#include "compat.h"
#include "phrase.h"
#include "source.h"

bool
dr_permit_equal(const DrPermit *a, const DrPermit *b)
{
	return a->live == b->live && a->owner == b->owner;
}

/* --------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dailyrollup_permit_in);
PG_FUNCTION_INFO_V1(dailyrollup_permit_out);

static DrPermit *
make_permit(Oid live, Oid owner)
{
	DrPermit   *permit = palloc(sizeof(DrPermit));

	permit->live = live;
	permit->owner = owner;
	return permit;
}

/* Whose permit it is where this user names that role: nobody's, unless he may speak
 * for it. */
static Oid
spoken_for(const char *role, Oid owner)
{
	Oid			named = get_role_oid(role, true);

	return named == owner || superuser() ? named : InvalidOid;
}

/* From the names of the owner, of a schema and of a table in it, by its owner. */
Datum
dailyrollup_permit_in(PG_FUNCTION_ARGS)
{
	const char *text = PG_GETARG_CSTRING(0);
	List	   *names;
	Oid			live;
	Oid			owner;

	if (strcmp(text, DR_PHRASE_NO_PERMIT) == 0)
		PG_RETURN_POINTER(make_permit(InvalidOid, InvalidOid));
	names = textToQualifiedNameList(cstring_to_text(text));
	if (list_length(names) != 3)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid name of an owner's table: \"%s\"", text)));
	live = RangeVarGetRelid(makeRangeVar(strVal(lsecond(names)), strVal(lthird(names)), -1),
							NoLock, true);
	owner = dr_source_owner(live);
	if (!OidIsValid(owner))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"%s.%s\" does not exist",
						strVal(lsecond(names)), strVal(lthird(names)))));
	if (!dr_is_class_owner(live, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of table %s", dr_catalog_name(live)),
				 errhint("The rows of a rollup are read through its view.")));
	PG_RETURN_POINTER(make_permit(live, spoken_for(strVal(linitial(names)), owner)));
}

Datum
dailyrollup_permit_out(PG_FUNCTION_ARGS)
{
	const DrPermit *permit = PG_GETARG_PERMIT(0);

	PG_RETURN_CSTRING(dr_phrase_permit(permit->live, permit->owner));
}
