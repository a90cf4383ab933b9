/* A binary heap of items by a number: the smallest is first. Items know their places, so any of them can move or leave.
 * Items with the same number have no order among themselves. */
#ifndef DLCP_HEAP_H
#define DLCP_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An item in a heap. Written by heap.c. */
struct dlcp_heap_entry {
	uint64_t key;    /* the number that it is ordered by */
	void *item;      /* the caller's */
	uint32_t *place; /* in the item: 1 + where this entry is; 0 = the item is in no heap */
};

/* Written by heap.c. */
struct dlcp_heap {
	struct dlcp_heap_entry *entries; /* a binary tree, the smallest key first */
	uint32_t count, room; /* entries in it; entries that there is memory for */
};

/* Make room for so many items; false when there is no memory. dlcp_heap_put never needs more than what was reserved. */
bool dlcp_heap_reserve(struct dlcp_heap *heap, uint32_t items);

/* Enter an item, or move one that is in the heap to where its new key belongs. */
void dlcp_heap_put(struct dlcp_heap *heap, void *item, uint32_t *place, uint64_t key);

/* Take an item out, if it is in. */
void dlcp_heap_remove(struct dlcp_heap *heap, uint32_t *place);

void dlcp_heap_free(struct dlcp_heap *heap);

/* The item with the smallest key, or NULL. */
static inline void *dlcp_heap_first(const struct dlcp_heap *heap)
{
	return heap->count ? heap->entries[0].item : NULL;
}

/* The smallest key; UINT64_MAX when the heap is empty. */
static inline uint64_t dlcp_heap_least(const struct dlcp_heap *heap)
{
	return heap->count ? heap->entries[0].key : UINT64_MAX;
}

#endif
