/*
 * shadow.c
 *		The table <live>_daily: kept beside live, or filled to replace its
 *		content.
 *
 * It lies in live's schema and belongs to the rollup's owner, who may look at
 * it.  The caller holds the refresh lock.
 */
#include "shadow.h"

#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "catalog_write.h"
#include "debug.h"
#include "identity.h"
#include "objects.h"
#include "stop.h"

/* An empty shadow without a watermark. */
void
dr_shadow_create(DrRollup *rollup, const DrDefinition *def)
{
	Oid			schema = get_rel_namespace(rollup->live);
	char	   *name = psprintf("%s_daily", get_rel_name(rollup->live));
	DrIdentity	before;
	Oid			shadow;

	if (strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("name \"%s\" is too long", name),
				 errdetail("The shadow's name is the rollup's name followed by \"_daily\"."),
				 errhint("Give the rollup a shorter name by ALTER TABLE ... RENAME TO.")));
	if (OidIsValid(get_relname_relid(name, schema)))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_TABLE),
				 errmsg("relation \"%s\" already exists", name),
				 errdetail("The shadow of rollup \"%s\" has that name.",
						   dr_catalog_name(rollup->live)),
				 errhint("Rename or drop what has it now.")));

	dr_identity_enter_sql(rollup->owner, &before);
	if (SPI_execute(dr_objects_create_live(def, quote_qualified_identifier(get_namespace_name(schema),
																			 name)),
					false, 0) < 0)
		elog(ERROR, "could not create \"%s\"", name);
	dr_identity_leave_sql(&before);

	shadow = get_relname_relid(name, schema);
	if (!OidIsValid(shadow))
		dr_catalog_complain_of_change(rollup);
	dr_catalog_set_shadow(rollup, shadow);
	rollup->shadow = shadow;
	rollup->has_shadow_watermark = false;
	DR_WAITPOINT("shadow-created");
}

/* Drop the table, which the rollup's row no longer names. */
void
dr_shadow_remove(Oid shadow)
{
	ObjectAddress object;

	if (get_rel_name(shadow) == NULL)
		return;
	dr_stop_users(shadow, AccessExclusiveLock);
	ObjectAddressSet(object, RelationRelationId, shadow);
	performDeletion(&object, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	DR_WAITPOINT("shadow-removed");
}

/* Drop the shadow, if there is one. */
void
dr_shadow_drop(DrRollup *rollup)
{
	Oid			shadow = rollup->shadow;

	if (!OidIsValid(shadow))
		return;
	dr_catalog_set_shadow(rollup, InvalidOid);
	rollup->shadow = InvalidOid;
	rollup->has_shadow_watermark = false;
	dr_shadow_remove(shadow);
}
