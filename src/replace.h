/*
 * replace.h
 *		A table's content becomes another one.
 *
 * Layer 5.
 */
#ifndef DR_REPLACE_H
#define DR_REPLACE_H

#include "dailyrollup.h"

#include "nodes/params.h"

#include "catalog.h"
#include "content.h"

extern bool dr_replace_directly(const DrRollup *rollup, const DrDefinition *def, Oid table,
								const char *fresh, ParamListInfo params, Oid fresh_table,
								DrCompared *compared);

#endif							/* DR_REPLACE_H */
