/*
 * capture.h
 *		The row triggers of a source.
 *
 * Layer 9: SQL-callable functions only.
 */
#ifndef DR_CAPTURE_H
#define DR_CAPTURE_H

#include "dailyrollup.h"

#endif							/* DR_CAPTURE_H */
