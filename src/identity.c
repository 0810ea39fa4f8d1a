/*
 * identity.c
 *		Whose rights a piece of work runs with.
 *
 * SQL over a rollup runs as the rollup's owner in a security-restricted
 * operation, as REFRESH MATERIALIZED VIEW runs its query: functions and
 * operators of the owner's making never run with the rights of whoever
 * happens to write, refresh or read.  Our own tables are written as the
 * extension's owner.
 *
 * An identity is entered and left inside one transaction.  An error needs no
 * leave: the abort of a (sub)transaction restores user and settings.
 */
#include "identity.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/pg_extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "parser/parse_expr.h"
#include "parser/parser.h"
#include "utils/array.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"

static void
set_locally(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/*
 * Constants of a definition are printed and read again: by rules that lose
 * nothing, whatever the session's are.  Mostly they are so already; setting one
 * costs more than a look.
 */
static void
print_exactly(void)
{
	if (extra_float_digits < 1)
		set_locally("extra_float_digits", "1");
	if (DateStyle != USE_ISO_DATES)
		set_locally("datestyle", "ISO");
	if (IntervalStyle != INTSTYLE_POSTGRES)
		set_locally("intervalstyle", "postgres");
	if (!Array_nulls)
		set_locally("array_nulls", "on");
	if (Transform_null_equals)
		set_locally("transform_null_equals", "off");
	if (!standard_conforming_strings)
		set_locally("standard_conforming_strings", "on");
}

/* What a plan holds is the owner's business, not that of whoever may ask the
 * server to print plans. */
static void
print_no_plans(void)
{
	if (Debug_print_plan)
		set_locally("debug_print_plan", "off");
	if (Debug_print_parse)
		set_locally("debug_print_parse", "off");
	if (Debug_print_rewritten)
		set_locally("debug_print_rewritten", "off");
}

/* Has the error that is being raised a hint? */
static bool
has_hint(void)
{
	MemoryContext context = MemoryContextSwitchTo(TopTransactionContext);
	ErrorData  *error = CopyErrorData();
	bool		result = error->hint != NULL;

	FreeErrorData(error);
	MemoryContextSwitchTo(context);
	return result;
}

/*
 * Who writes a row, or is a superuser, wonders what he is not permitted: say who
 * is not.  A function of the owner's may raise the error too, and say more.
 */
static void
explain_denial(void *arg)
{
	const DrIdentity *before = arg;
	char	   *name;

	if (geterrcode() != ERRCODE_INSUFFICIENT_PRIVILEGE ||
		GetUserId() != before->owner || has_hint())
		return;
	name = GetUserNameFromId(before->owner, true);
	if (name != NULL)
		errhint("This is done as role \"%s\", which owns the rollup, in a security-restricted operation. The role needs USAGE on the schemas of all that the query names, EXECUTE on its functions, and an owner's privileges on its own tables.",
				name);
}

/* Work as "owner", until dr_identity_leave, which comes in the same function. */
void
dr_identity_enter(Oid owner, DrIdentity *before)
{
	before->owner = owner;
	before->context.callback = explain_denial;
	before->context.arg = before;
	before->context.previous = error_context_stack;
	error_context_stack = &before->context;

	GetUserIdAndSecContext(&before->user, &before->security_context);
	SetUserIdAndSecContext(owner,
						   before->security_context |
						   SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_RESTRICTED_OPERATION);
	before->guc_level = NewGUCNestLevel();

	/* Names in our SQL are qualified; nothing else may be found. */
	set_locally("search_path", "pg_catalog, pg_temp");

	/* A policy that filtered rows would make a rollup silently wrong. */
	set_locally("row_security", "off");
	print_exactly();
	print_no_plans();
}

/* Somebody has dropped the extension in the midst of our work. */
void
dr_identity_complain_of_drop(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("extension \"%s\" is not installed in this database", DR_SCHEMA),
			 errhint("Run CREATE EXTENSION dailyrollup.")));
}

static Oid
extension_owner(void)
{
	Oid			owner;
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(DR_SCHEMA));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (!HeapTupleIsValid(tuple))
		dr_identity_complain_of_drop();
	owner = ((Form_pg_extension) GETSTRUCT(tuple))->extowner;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return owner;
}

/* Work as the owner of the extension: for our own tables only. */
void
dr_identity_enter_extension(DrIdentity *before)
{
	dr_identity_enter(extension_owner(), before);
	before->owner = InvalidOid;
}

void
dr_identity_leave(const DrIdentity *before)
{
	Assert(error_context_stack == &before->context);
	error_context_stack = before->context.previous;
	AtEOXact_GUC(false, before->guc_level);
	SetUserIdAndSecContext(before->user, before->security_context);
}

static void
connect_to_spi(void)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
}

void
dr_identity_enter_sql(Oid owner, DrIdentity *before)
{
	dr_identity_enter(owner, before);
	connect_to_spi();
}

void
dr_identity_enter_extension_sql(DrIdentity *before)
{
	dr_identity_enter_extension(before);
	connect_to_spi();
}

void
dr_identity_leave_sql(const DrIdentity *before)
{
	SPI_finish();
	dr_identity_leave(before);
}
