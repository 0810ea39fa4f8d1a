/*
 * digest.h
 *		The defining query over a window of the source, by one pass in memory.
 *
 * Layer 5.
 */
#ifndef DR_DIGEST_H
#define DR_DIGEST_H

#include "dailyrollup.h"

#include "nodes/params.h"
#include "utils/tuplestore.h"

#include "intake.h"
#include "keytable.h"
#include "tally.h"

typedef struct DrDigest DrDigest;

/*
 * What has come of it.  "whole" holds every key where all of them fitted into
 * memory; else "rows" has a row for each, with the query's columns.  A key of
 * "again" is in neither and has to be computed in another way; its columns are
 * k1 .. kn.
 */
typedef struct DrDigested
{
	DrKeyTable *whole;
	Tuplestorestate *rows;
	Tuplestorestate *again;
	uint64		nrows;
	uint64		nagain;
} DrDigested;

extern DrDigest *dr_digest_prepare(const DrDefinition *def, bool deduplicate);
extern bool dr_digest_run(DrDigest *digest, Oid definition, const char *sql,
						  ParamListInfo bounds, DrDigested *result);
extern void dr_digest_end(DrDigest *digest);
extern DrIntake *dr_digest_intake(const DrDigest *digest);
extern void dr_digest_append(DrDigest *digest, DrDigested *result, const DrEntry *entry);

#endif							/* DR_DIGEST_H */
