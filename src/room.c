/*
 * room.c
 *		Memory for what lives as long as a batch.
 */
#include "room.h"

#include "utils/memutils.h"

/* The room lives as long as the current memory context. */
void
dr_room_make(DrRoom *room, Size size)
{
	room->beyond = AllocSetContextCreate(CurrentMemoryContext, "dailyrollup batch",
										 ALLOCSET_DEFAULT_SIZES);
	room->data = palloc(size);
	room->size = size;
	room->used = 0;
}

char *
dr_room_allocate_beyond(DrRoom *room, Size size)
{
	return MemoryContextAlloc(room->beyond, size);
}

/* Is it time to end the batch? */
bool
dr_room_is_full(const DrRoom *room)
{
	return room->used > room->size / 2 ||
		MemoryContextMemAllocated(room->beyond, false) > room->size;
}

void
dr_room_clear(DrRoom *room)
{
	room->used = 0;
	MemoryContextReset(room->beyond);
}
