/*
 * refresh.h
 *		The daily refresh.
 *
 * Layer 5.
 */
#ifndef DR_REFRESH_H
#define DR_REFRESH_H

#include "dailyrollup.h"

#endif							/* DR_REFRESH_H */
