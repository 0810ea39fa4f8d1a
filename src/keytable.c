/*
 * keytable.c
 *		Keys in memory, each with a state and the events seen under it.
 *
 * A pass over many rows waits for memory more than for anything else.  So the
 * caller works on batches: it has the buckets of all rows fetched first, then
 * the entries, and looks at them last.
 *
 * All memory is cut from large blocks and given back at once.  Most events
 * come in the order of time: they are appended to their key's list, and known
 * to be new because they are later than every other one.  For one that is not,
 * a short list is searched, and a long one gets an index.
 */
#include "keytable.h"

#include <sys/mman.h>

#include "common/hashfn.h"
#include "port/pg_crc32c.h"
#include "storage/pg_shmem.h"
#include "utils/memutils.h"

#include "compat.h"

/* Events of a key, the chunks that came last first. */
typedef struct DrEventChunk
{
	struct DrEventChunk *next;
	uint32		n;
	uint32		size;
	DrEvent		events[FLEXIBLE_ARRAY_MEMBER];
} DrEventChunk;

/* a list of more events is not searched, but gets an index */
#define SEARCHED_EVENTS		16
#define FIRST_CHUNK			4
#define LARGEST_CHUNK		1024

/* how much of an entry is fetched before it is looked at */
#define CACHE_LINE			64
#define FETCHED				(5 * CACHE_LINE)

#define FIRST_BLOCK			(16 * 1024)
#define BLOCK				(256 * 1024)
#define LARGEST_BLOCK		(8 * 1024 * 1024)

/* how much a block may add to the memory in use: a part of it */
#define GROWTH				8

typedef struct Bucket
{
	const DrKey *key;
	uint32		hash;
	char		status;
} Bucket;

#define SH_PREFIX bucket
#define SH_ELEMENT_TYPE Bucket
#define SH_KEY_TYPE const DrKey *
#define SH_KEY key
#define SH_HASH_KEY(tb, a) ((a)->hash)
#define SH_EQUAL(tb, a, b) \
	((a)->size == (b)->size && memcmp((a)->image, (b)->image, (a)->size) == 0)
#define SH_STORE_HASH
#define SH_GET_HASH(tb, a) ((a)->hash)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

typedef struct Instant
{
	int64		instant;
	DrEvent    *event;
	char		status;
} Instant;

#define SH_PREFIX instant
#define SH_ELEMENT_TYPE Instant
#define SH_KEY_TYPE int64
#define SH_KEY instant
#define SH_HASH_KEY(tb, a) (murmurhash32((uint32) (a)) ^ murmurhash32((uint32) ((a) >> 32)))
#define SH_EQUAL(tb, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

struct DrKeyTable
{
	MemoryContext context;
	bucket_hash *buckets;
	Size		state_size;
	char	   *block;			/* what is left of the block at hand */
	Size		left;
	DrEntry    *first;
	DrEntry   **last;
};

DrKeyTable *
dr_keytable_create(MemoryContext parent, Size state_size)
{
	MemoryContext context = AllocSetContextCreate(parent, "dailyrollup keys",
												  ALLOCSET_DEFAULT_SIZES);
	DrKeyTable *table = MemoryContextAllocZero(context, sizeof(DrKeyTable));

	table->context = context;
	table->buckets = bucket_create(context, 256, NULL);
	table->state_size = MAXALIGN(state_size);
	table->last = &table->first;
	return table;
}

void
dr_keytable_destroy(DrKeyTable *table)
{
	MemoryContextDelete(table->context);
}

/* Bytes in use. */
Size
dr_keytable_memory(const DrKeyTable *table)
{
	return MemoryContextMemAllocated(table->context, false) - table->left;
}

uint64
dr_keytable_count(const DrKeyTable *table)
{
	return table->buckets->members;
}

DrEntry *
dr_keytable_first(const DrKeyTable *table)
{
	return table->first;
}

/* Larger blocks the more there is, which are still small beside all of it. */
static Size
next_block_size(const DrKeyTable *table)
{
	Size		used = MemoryContextMemAllocated(table->context, false);

	if (table->block == NULL)
		return FIRST_BLOCK;
	return Min(Max(used / GROWTH, BLOCK), LARGEST_BLOCK);
}

/* Who waits for memory also waits for the page tables: have large pages in the
 * block, where the system gives them on request and huge_pages allows them. */
static void
ask_for_large_pages(char *block, Size size)
{
#ifdef MADV_HUGEPAGE
	Size		page = sysconf(_SC_PAGESIZE);
	char	   *start = (char *) TYPEALIGN(page, block);
	char	   *end = (char *) TYPEALIGN_DOWN(page, block + size);

	if (huge_pages != HUGE_PAGES_OFF && size == LARGEST_BLOCK)
		(void) madvise(start, end - start, MADV_HUGEPAGE);
#endif
}

/* Memory that lives as long as the table; not zeroed. */
void *
dr_keytable_allocate(DrKeyTable *table, Size size)
{
	char	   *result;

	size = MAXALIGN(size);
	if (size > FIRST_BLOCK / 4)
		return MemoryContextAllocHuge(table->context, size);
	if (size > table->left)
	{
		table->left = next_block_size(table);
		table->block = MemoryContextAlloc(table->context, table->left);
		ask_for_large_pages(table->block, table->left);
	}
	result = table->block;
	table->block += size;
	table->left -= size;
	return result;
}

/* -------------------------------------------------------------------- keys */

/* Processors have an instruction for the checksum; what is alike is alike in
 * some of its bits, so they are mixed. */
uint32
dr_keytable_hash(const char *image, uint32 size)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, image, size);
	return murmurhash32(crc);
}

/* Have the bucket that a key of that hash lies in, or near, fetched. */
void
dr_keytable_prefetch(const DrKeyTable *table, uint32 hash)
{
	dr_prefetch(&table->buckets->data[hash & table->buckets->sizemask]);
}

/* An entry of that hash that is likely to be the key's, or NULL; it is fetched. */
DrEntry *
dr_keytable_candidate(const DrKeyTable *table, uint32 hash)
{
	const bucket_hash *buckets = table->buckets;

	for (uint32 i = 0; i < 4; i++)
	{
		const Bucket *bucket = &buckets->data[(hash + i) & buckets->sizemask];

		if (bucket->status != bucket_SH_IN_USE)
			return NULL;
		if (bucket->hash == hash)
		{
			const char *line = (const char *) bucket->key;

			for (Size n = 0; n < FETCHED; n += CACHE_LINE)
				dr_prefetch(line + n);
			return (DrEntry *) bucket->key;
		}
	}
	return NULL;
}

/* Is the candidate the key's entry? */
bool
dr_keytable_is(const DrEntry *candidate, const DrKey *key)
{
	return candidate != NULL && candidate->key.size == key->size &&
		memcmp(candidate->key.image, key->image, key->size) == 0;
}

DrEntry *
dr_keytable_find(const DrKeyTable *table, const DrKey *key)
{
	Bucket	   *bucket = bucket_lookup_hash(table->buckets, key, key->hash);

	return bucket == NULL ? NULL : (DrEntry *) bucket->key;
}

/* The key's entry; a new one, with a state of zeros, where it has none. */
DrEntry *
dr_keytable_enter(DrKeyTable *table, const DrKey *key)
{
	bool		found;
	Bucket	   *bucket = bucket_insert_hash(table->buckets, key, key->hash, &found);
	DrEntry    *entry;

	if (found)
		return (DrEntry *) bucket->key;

	/* header and image, which are looked at first, lie together */
	entry = dr_keytable_allocate(table, sizeof(DrEntry) + key->size + table->state_size);
	memset(entry, 0, sizeof(DrEntry));
	entry->key = *key;
	entry->key.image = (char *) (entry + 1);
	memcpy(entry + 1, key->image, key->size);
	memset(dr_keytable_state(entry), 0, table->state_size);
	bucket->key = &entry->key;
	*table->last = entry;
	table->last = &entry->next;
	return entry;
}

void *
dr_keytable_state(const DrEntry *entry)
{
	return (char *) (entry + 1) + entry->key.size;
}

/* ------------------------------------------------------------------ events */

static DrEvent *
append_event(DrKeyTable *table, DrEntry *entry, int64 instant)
{
	DrEventChunk *chunk = entry->events;
	DrEvent    *event;

	if (chunk == NULL || chunk->n == chunk->size)
	{
		uint32		size = chunk == NULL ? FIRST_CHUNK : Min(chunk->size * 2, LARGEST_CHUNK);

		chunk = dr_keytable_allocate(table, offsetof(DrEventChunk, events) +
									 size * sizeof(DrEvent));
		chunk->next = entry->events;
		chunk->n = 0;
		chunk->size = size;
		entry->events = chunk;
	}
	event = &chunk->events[chunk->n++];
	event->instant = instant;
	entry->nevents++;
	return event;
}

static void
index_event(DrEntry *entry, DrEvent *event)
{
	bool		found;

	instant_insert(entry->index, event->instant, &found)->event = event;
}

static void
index_events(DrKeyTable *table, DrEntry *entry)
{
	entry->index = instant_create(table->context, entry->nevents * 2, NULL);
	for (DrEventChunk *chunk = entry->events; chunk != NULL; chunk = chunk->next)
		for (uint32 i = 0; i < chunk->n; i++)
			index_event(entry, &chunk->events[i]);
}

static DrEvent *
search_events(DrKeyTable *table, DrEntry *entry, int64 instant)
{
	Instant    *known;

	if (entry->index == NULL && entry->nevents > SEARCHED_EVENTS)
		index_events(table, entry);
	if (entry->index != NULL)
	{
		known = instant_lookup(entry->index, instant);
		return known == NULL ? NULL : known->event;
	}
	for (DrEventChunk *chunk = entry->events; chunk != NULL; chunk = chunk->next)
		for (uint32 i = 0; i < chunk->n; i++)
			if (chunk->events[i].instant == instant)
				return &chunk->events[i];
	return NULL;
}

/* The key's event of that instant; a new one, without a place, where there is
 * none. */
DrEvent *
dr_keytable_event(DrKeyTable *table, DrEntry *entry, int64 instant, bool *found)
{
	DrEvent    *event = NULL;

	if (entry->nevents > 0 && instant <= entry->newest)
		event = search_events(table, entry, instant);
	else
		entry->newest = instant;
	*found = event != NULL;
	if (event == NULL)
	{
		event = append_event(table, entry, instant);
		if (entry->index != NULL)
			index_event(entry, event);
	}
	return event;
}
