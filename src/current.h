/*
 * current.h
 *		What the view <live>_current is made of.
 *
 * Layer 5: SQL-callable functions only.
 */
#ifndef DR_CURRENT_H
#define DR_CURRENT_H

#include "dailyrollup.h"

#endif							/* DR_CURRENT_H */
