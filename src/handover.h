/*
 * handover.h
 *		What a parallel worker has computed, on its way to the leader.
 *
 * Layer 6.
 */
#ifndef DR_HANDOVER_H
#define DR_HANDOVER_H

#include "dailyrollup.h"

#include "tcop/dest.h"

#include "intake.h"
#include "partner.h"
#include "sweep.h"

extern void dr_handover_send(const DrIntake *intake, const DrDefinition *def, DestReceiver *dest,
							 const DrSwept *result);
extern bool dr_handover_take(DrIntake *intake, const DrDefinition *def, DrPartner *partner,
							 DrSwept *result);

#endif							/* DR_HANDOVER_H */
