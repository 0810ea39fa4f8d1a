/*
 * room.h
 *		Memory for what lives as long as a batch.
 *
 * Layer 0.
 */
#ifndef DR_ROOM_H
#define DR_ROOM_H

#include "postgres.h"

/* What does not fit into "data" is allocated in a context of its own. */
typedef struct DrRoom
{
	MemoryContext beyond;
	char	   *data;
	Size		size;
	Size		used;
} DrRoom;

extern void dr_room_make(DrRoom *room, Size size);
extern char *dr_room_allocate_beyond(DrRoom *room, Size size);
extern bool dr_room_is_full(const DrRoom *room);
extern void dr_room_clear(DrRoom *room);

/* Aligned memory, not zeroed, to the end of the batch. */
static inline char *
dr_room_allocate(DrRoom *room, Size size)
{
	char	   *result = room->data + room->used;

	size = MAXALIGN(size);
	if (room->used + size > room->size)
		return dr_room_allocate_beyond(room, size);
	room->used += size;
	return result;
}

#endif							/* DR_ROOM_H */
