/*
 * current.h
 *		What the view <live>_current is made of.
 *
 * Layer 5.
 */
#ifndef DR_CURRENT_H
#define DR_CURRENT_H

#include "dailyrollup.h"

extern void dr_current_init(void);

#endif							/* DR_CURRENT_H */
