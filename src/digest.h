/*
 * digest.h
 *		The defining query over a window of the source, by one pass in memory.
 *
 * Layer 7.
 */
#ifndef DR_DIGEST_H
#define DR_DIGEST_H

#include "dailyrollup.h"

#include "nodes/params.h"

#include "intake.h"
#include "sweep.h"

typedef struct DrDigest DrDigest;

extern DrDigest *dr_digest_prepare(const DrDefinition *def, bool deduplicate);
extern bool dr_digest_run(DrDigest *digest, Oid definition, const char *whole_sql,
						  const char *sql, ParamListInfo bounds, DrSwept *result);
extern void dr_digest_end(DrDigest *digest);
extern DrIntake *dr_digest_intake(const DrDigest *digest);

#endif							/* DR_DIGEST_H */
