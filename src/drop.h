/*
 * drop.h
 *		What is dropped, and what becomes of a rollup then.
 *
 * Layer 10: SQL-callable functions only.
 */
#ifndef DR_DROP_H
#define DR_DROP_H

#include "dailyrollup.h"

#endif							/* DR_DROP_H */
