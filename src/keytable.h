/*
 * keytable.h
 *		Keys in memory, each with a state and the events seen under it.
 *
 * A key is a string of bytes that two rows of one key have in common.
 *
 * Layer 1.
 */
#ifndef DR_KEYTABLE_H
#define DR_KEYTABLE_H

#include "dailyrollup.h"

#include "storage/itemptr.h"

typedef struct DrKeyTable DrKeyTable;

/* What a key is found by; the image is aligned, and zero where it is padded. */
typedef struct DrKey
{
	uint32		hash;
	uint32		size;
	const char *image;
} DrKey;

/* The number of a table; a test comes to the end of them. */
#ifdef DR_WAITPOINTS
typedef uint8 DrLeafNumber;
#define DR_MOST_LEAVES	(PG_UINT8_MAX + 1)
#else
typedef uint16 DrLeafNumber;
#define DR_MOST_LEAVES	(PG_UINT16_MAX + 1)
#endif

/* Where the row lies that stands for an event. */
typedef struct DrEvent
{
	int64		instant;
	ItemPointerData tid;
	DrLeafNumber leaf;			/* its table */
} DrEvent;

/* A key's entry; its image and its state follow.  What stands below the blank
 * line is the caller's. */
typedef struct DrEntry
{
	DrKey		key;
	struct DrEntry *next;		/* in the order of their arrival */
	struct DrEventChunk *events;
	struct instant_hash *index;
	int64		newest;			/* instant of an event; none is later */
	uint32		nevents;

	bool		again;
	bool		found;
	int64		counted;
} DrEntry;

extern DrKeyTable *dr_keytable_create(MemoryContext parent, Size state_size);
extern void dr_keytable_destroy(DrKeyTable *table);
extern Size dr_keytable_memory(const DrKeyTable *table);
extern uint64 dr_keytable_count(const DrKeyTable *table);
extern DrEntry *dr_keytable_first(const DrKeyTable *table);
extern uint32 dr_keytable_hash(const char *image, uint32 size);
extern void dr_keytable_prefetch(const DrKeyTable *table, uint32 hash);
extern DrEntry *dr_keytable_candidate(const DrKeyTable *table, uint32 hash);
extern bool dr_keytable_is(const DrEntry *candidate, const DrKey *key);
extern DrEntry *dr_keytable_find(const DrKeyTable *table, const DrKey *key);
extern DrEntry *dr_keytable_enter(DrKeyTable *table, const DrKey *key);
extern void *dr_keytable_state(const DrEntry *entry);
extern void *dr_keytable_allocate(DrKeyTable *table, Size size);
extern DrEvent *dr_keytable_event(DrKeyTable *table, DrEntry *entry, int64 instant, bool *found);

#endif							/* DR_KEYTABLE_H */
