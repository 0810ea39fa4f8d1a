/*
 * chunk.h
 *		A seed in parts: where each of them ends.
 *
 * Layer 9.
 */
#ifndef DR_CHUNK_H
#define DR_CHUNK_H

#include "dailyrollup.h"

#include "catalog.h"

extern TimestampTz dr_chunk_end(const DrRollup *rollup, const DrDefinition *def,
								bool has_watermark, TimestampTz watermark,
								TimestampTz boundary);
extern int	dr_chunk_count(const DrRollup *rollup, const DrDefinition *def,
						   bool has_watermark, TimestampTz watermark,
						   TimestampTz boundary);

#endif							/* DR_CHUNK_H */
