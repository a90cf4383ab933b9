/* A binary heap of items by a number. */
#include "heap.h"

#include <stdlib.h>

enum { LEAST_ROOM = 4 };

bool dlcp_heap_reserve(struct dlcp_heap *heap, uint32_t items)
{
	uint32_t room = heap->room ? heap->room : LEAST_ROOM;
	struct dlcp_heap_entry *grown;

	if (heap->room >= items)
		return true;
	while (room < items)
		room *= 2;
	grown = realloc(heap->entries, room * sizeof *grown);
	if (!grown)
		return false;
	heap->entries = grown;
	heap->room = room;
	return true;
}

static void write_entry(struct dlcp_heap *heap, uint32_t at, struct dlcp_heap_entry entry)
{
	heap->entries[at] = entry;
	*entry.place = at + 1;
}

/* Write an entry where it belongs, beginning at a free position: up while its key is smaller, else down. */
static void settle(struct dlcp_heap *heap, uint32_t at, struct dlcp_heap_entry entry)
{
	while (at && entry.key < heap->entries[(at - 1) / 2].key) {
		write_entry(heap, at, heap->entries[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	for (uint32_t child = 2 * at + 1; child < heap->count; child = 2 * at + 1) {
		if (child + 1 < heap->count && heap->entries[child + 1].key < heap->entries[child].key)
			child++;
		if (heap->entries[child].key >= entry.key)
			break;
		write_entry(heap, at, heap->entries[child]);
		at = child;
	}
	write_entry(heap, at, entry);
}

void dlcp_heap_put(struct dlcp_heap *heap, void *item, uint32_t *place, uint64_t key)
{
	uint32_t at = *place ? *place - 1 : heap->count++;

	settle(heap, at, (struct dlcp_heap_entry){ .key = key, .item = item, .place = place });
}

void dlcp_heap_remove(struct dlcp_heap *heap, uint32_t *place)
{
	uint32_t at = *place - 1;

	if (!*place)
		return;
	*place = 0;
	if (at < --heap->count)
		settle(heap, at, heap->entries[heap->count]);
}

void dlcp_heap_free(struct dlcp_heap *heap)
{
	free(heap->entries);
}
