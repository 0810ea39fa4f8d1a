/*
 * hold.h
 *		Databases that somebody wants for himself.
 *
 * Layer 13.
 */
#ifndef DR_HOLD_H
#define DR_HOLD_H

#include "dailyrollup.h"

extern void dr_hold_init(void);

#endif							/* DR_HOLD_H */
