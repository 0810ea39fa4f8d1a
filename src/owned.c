/*
 * owned.c
 *		Whose a rollup is, and those that the caller may work with.
 *
 * All of its parts belong to the owner of its source (owner.c hands them over).
 * Were one of them another's, SQL would run with rights that do not fit; so each
 * routine of the owner's, which finds its rollup here, refuses that.
 */
#include "owned.h"

#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "source.h"

static const char *
role_name(Oid role)
{
	char	   *name = GetUserNameFromId(role, true);

	return name ? name : psprintf("%u", role);
}

/*
 * A part of the rollup that does not belong to the source's owner; InvalidOid:
 * there is none.
 */
Oid
dr_owned_strange_part(const DrRollup *rollup, bool with_shadow)
{
	Oid			owner = dr_source_owner(rollup->source);
	Oid			parts[] = {
		rollup->live, rollup->current_view, rollup->marks, rollup->events,
		rollup->definition, get_typ_typrelid(rollup->key_type),
		with_shadow ? rollup->shadow : InvalidOid
	};

	for (int i = 0; OidIsValid(owner) && i < lengthof(parts); i++)
	{
		Oid			other = OidIsValid(parts[i]) ? dr_source_owner(parts[i]) : owner;

		if (OidIsValid(other) && other != owner)
			return parts[i];
	}
	return InvalidOid;
}

/* An error where there is one. */
void
dr_owned_check_parts(const DrRollup *rollup, bool with_shadow)
{
	Oid			part = dr_owned_strange_part(rollup, with_shadow);
	Oid			owner = dr_source_owner(rollup->source);

	if (OidIsValid(part))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" does not belong to the owner of the source of rollup \"%s\"",
						dr_catalog_name(part), dr_catalog_name(rollup->live)),
				 errdetail("It belongs to \"%s\", the source to \"%s\".",
						   role_name(dr_source_owner(part)), role_name(owner)),
				 errhint("Run ALTER TABLE %s OWNER TO %s: all of the rollup is handed over.",
						 dr_source_name(rollup->source),
						 quote_identifier(role_name(owner)))));
}

/* (of none, nobody: later majors take that question for an internal error) */
static bool
is_owner(Oid relation)
{
	return OidIsValid(dr_source_owner(relation)) && dr_is_class_owner(relation, GetUserId());
}

/* Has the caller a right to it?  The source's owner has, to have all of it handed
 * over, or what is left of it removed. */
static bool
is_owned(const DrRollup *rollup)
{
	return is_owner(rollup->live) ||
		((!OidIsValid(rollup->owner) || OidIsValid(dr_owned_strange_part(rollup, false))) &&
		 is_owner(rollup->source));
}

/*
 * The rollup of that name, for a routine that only its owner may call: an
 * error where there is none, or where the caller is not a member of the
 * owning role.  The table may be gone, where our event triggers did not fire.
 */
DrRollup *
dr_owned_remains(Oid live)
{
	DrRollup   *rollup = dr_catalog_find(live, NULL);

	if (rollup == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not a rollup", dr_catalog_name(live)),
				 errhint("The view rollup_status lists the rollups; rollup_create defines one.")));
	if (!is_owned(rollup))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE,
					   OidIsValid(rollup->owner) ? get_rel_name(live) : dr_catalog_name(live));
	dr_owned_check_parts(rollup, false);
	return rollup;
}

/* The same, of one whose table is there. */
DrRollup *
dr_owned_rollup(Oid live)
{
	DrRollup   *rollup = dr_owned_remains(live);

	if (!OidIsValid(rollup->owner))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("the table of the rollup with OID %u does not exist", live),
				 errhint("Run SELECT rollup_drop(%u) to remove what is left of the rollup.", live)));
	return rollup;
}

/* Each rollup that the caller owns (a superuser: all), in order of OID. */
List *
dr_owned_all(void)
{
	List	   *all = dr_catalog_all();
	List	   *owned = NIL;
	ListCell   *cell;

	foreach(cell, all)
	{
		DrRollup   *rollup = lfirst(cell);

		if (OidIsValid(rollup->owner) && is_owned(rollup))
			owned = lappend(owned, rollup);
	}
	return owned;
}
