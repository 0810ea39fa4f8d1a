/*
 * ddl.h
 *		What DDL of others does to a rollup.
 *
 * Layer 10: SQL-callable functions only.
 */
#ifndef DR_DDL_H
#define DR_DDL_H

#include "dailyrollup.h"

#endif							/* DR_DDL_H */
