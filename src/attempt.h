/*
 * attempt.h
 *		Work that may fail without the transaction.
 *
 * Layer 0.
 */
#ifndef DR_ATTEMPT_H
#define DR_ATTEMPT_H

#include "postgres.h"

extern ErrorData *dr_attempt(void (*work) (void *arg), void *arg);

#endif							/* DR_ATTEMPT_H */
