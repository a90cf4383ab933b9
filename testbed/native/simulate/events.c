/* A timing wheel before a heap, both over events that know where they are. */
#include "events.h"

#include <stdbool.h>
#include <stdlib.h>

#define NONE UINT32_MAX
#define BUCKET_MASK (DLCP_EVENT_BUCKETS - 1u)
#define WORDS (DLCP_EVENT_BUCKETS / 64u)

enum where { NOWHERE, NEAR, WHEEL, FAR };

struct event {
	uint64_t at_ps;
	uint32_t next, previous; /* in its bucket */
	uint32_t place;		 /* in its heap */
	enum where where;
};

/* The numbers of events, a 4-ary tree, the first in order at 0. */
struct heap {
	uint32_t *events;
	uint32_t count;
};

struct dlcp_events {
	struct event *events;
	struct heap near; /* all of the buckets up to `current` */
	struct heap far;  /* all of the buckets from current + DLCP_EVENT_BUCKETS on */
	uint64_t current; /* number of the bucket that was opened last */
	uint64_t occupied[WORDS];
	uint32_t buckets[DLCP_EVENT_BUCKETS]; /* the first event of each */
	uint32_t in_wheel;
	uint32_t shift;
	bool heap_only;
};

static bool before(const struct dlcp_events *events, uint32_t a, uint32_t b)
{
	uint64_t a_ps = events->events[a].at_ps, b_ps = events->events[b].at_ps;

	return a_ps != b_ps ? a_ps < b_ps : a < b;
}

static void set(struct dlcp_events *events, struct heap *heap, uint32_t place, uint32_t event)
{
	heap->events[place] = event;
	events->events[event].place = place;
}

static void rise(struct dlcp_events *events, struct heap *heap, uint32_t place, uint32_t event)
{
	while (place) {
		uint32_t parent = (place - 1) / 4;

		if (!before(events, event, heap->events[parent]))
			break;
		set(events, heap, place, heap->events[parent]);
		place = parent;
	}
	set(events, heap, place, event);
}

static void sink(struct dlcp_events *events, struct heap *heap, uint32_t place, uint32_t event)
{
	for (;;) {
		uint32_t child = 4 * place + 1, end = child + 4 < heap->count ? child + 4 : heap->count, least = child;

		if (child >= heap->count)
			break;
		for (uint32_t other = child + 1; other < end; other++)
			if (before(events, heap->events[other], heap->events[least]))
				least = other;
		if (!before(events, heap->events[least], event))
			break;
		set(events, heap, place, heap->events[least]);
		place = least;
	}
	set(events, heap, place, event);
}

static void heap_put(struct dlcp_events *events, struct heap *heap, uint32_t event, enum where where)
{
	events->events[event].where = where;
	rise(events, heap, heap->count++, event);
}

static void heap_remove(struct dlcp_events *events, struct heap *heap, uint32_t event)
{
	uint32_t place = events->events[event].place, last = heap->events[--heap->count];

	events->events[event].where = NOWHERE;
	if (last == event)
		return;
	if (before(events, last, event))
		rise(events, heap, place, last);
	else
		sink(events, heap, place, last);
}

static void wheel_put(struct dlcp_events *events, uint32_t event, uint64_t bucket)
{
	uint32_t index = (uint32_t)bucket & BUCKET_MASK, first = events->buckets[index];
	struct event *entry = &events->events[event];

	entry->where = WHEEL;
	entry->next = first;
	entry->previous = NONE;
	if (first != NONE)
		events->events[first].previous = event;
	events->buckets[index] = event;
	events->occupied[index / 64] |= UINT64_C(1) << index % 64;
	events->in_wheel++;
}

static void wheel_remove(struct dlcp_events *events, uint32_t event)
{
	struct event *entry = &events->events[event];
	uint32_t index = (uint32_t)(entry->at_ps >> events->shift) & BUCKET_MASK;

	if (entry->next != NONE)
		events->events[entry->next].previous = entry->previous;
	if (entry->previous != NONE)
		events->events[entry->previous].next = entry->next;
	else
		events->buckets[index] = entry->next;
	if (events->buckets[index] == NONE)
		events->occupied[index / 64] &= ~(UINT64_C(1) << index % 64);
	entry->where = NOWHERE;
	events->in_wheel--;
}

static void enter(struct dlcp_events *events, uint32_t event)
{
	uint64_t bucket = events->events[event].at_ps >> events->shift;

	if (events->heap_only || bucket <= events->current)
		heap_put(events, &events->near, event, NEAR);
	else if (bucket - events->current < DLCP_EVENT_BUCKETS)
		wheel_put(events, event, bucket);
	else
		heap_put(events, &events->far, event, FAR);
}

/* Opens a bucket: what is due in it becomes near, and what the wheel now reaches leaves the far heap. */
static void open_bucket(struct dlcp_events *events, uint64_t bucket)
{
	uint32_t index = (uint32_t)bucket & BUCKET_MASK;

	events->current = bucket;
	while (events->buckets[index] != NONE) {
		uint32_t event = events->buckets[index];

		wheel_remove(events, event);
		heap_put(events, &events->near, event, NEAR);
	}
	while (events->far.count) {
		uint32_t event = events->far.events[0];
		uint64_t due = events->events[event].at_ps >> events->shift;

		if (due > bucket && due - bucket >= DLCP_EVENT_BUCKETS)
			break;
		heap_remove(events, &events->far, event);
		enter(events, event);
	}
}

/* The next bucket of the wheel that holds an event; it must hold one. */
static uint64_t next_bucket(const struct dlcp_events *events)
{
	uint32_t from = (uint32_t)(events->current + 1) & BUCKET_MASK, word = from / 64;
	uint64_t bits = events->occupied[word] & ~UINT64_C(0) << from % 64;

	while (!bits) {
		word = (word + 1) % WORDS;
		bits = events->occupied[word];
	}
	uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(bits);

	return events->current + 1 + ((index - from) & BUCKET_MASK);
}

/* Makes the first pending event near; false when none is pending. */
static bool advance(struct dlcp_events *events)
{
	if (events->near.count)
		return true;
	if (events->in_wheel)
		open_bucket(events, next_bucket(events));
	else if (events->far.count)
		open_bucket(events, events->events[events->far.events[0]].at_ps >> events->shift);
	return events->near.count > 0;
}

struct dlcp_events *dlcp_events_new(uint32_t count, uint32_t bucket_shift, uint32_t flags)
{
	struct dlcp_events *events;

	if (!count || count == NONE || bucket_shift > DLCP_LARGEST_BUCKET_SHIFT)
		return NULL;
	events = calloc(1, sizeof(*events));
	if (!events)
		return NULL;
	events->events = calloc(count, sizeof(*events->events));
	events->near.events = calloc(count, sizeof(*events->near.events));
	events->far.events = calloc(count, sizeof(*events->far.events));
	if (!events->events || !events->near.events || !events->far.events) {
		dlcp_events_free(events);
		return NULL;
	}
	for (uint32_t i = 0; i < DLCP_EVENT_BUCKETS; i++)
		events->buckets[i] = NONE;
	events->shift = bucket_shift;
	events->heap_only = flags & DLCP_EVENTS_IN_HEAP;
	return events;
}

void dlcp_events_free(struct dlcp_events *events)
{
	if (!events)
		return;
	free(events->events);
	free(events->near.events);
	free(events->far.events);
	free(events);
}

void dlcp_events_put(struct dlcp_events *events, uint32_t event, uint64_t at_ps)
{
	dlcp_events_remove(events, event);
	events->events[event].at_ps = at_ps;
	enter(events, event);
}

void dlcp_events_remove(struct dlcp_events *events, uint32_t event)
{
	switch (events->events[event].where) {
	case NEAR:
		heap_remove(events, &events->near, event);
		break;
	case WHEEL:
		wheel_remove(events, event);
		break;
	case FAR:
		heap_remove(events, &events->far, event);
		break;
	case NOWHERE:
		break;
	}
}

uint64_t dlcp_events_due(const struct dlcp_events *events, uint32_t event)
{
	return events->events[event].where == NOWHERE ? UINT64_MAX : events->events[event].at_ps;
}

uint64_t dlcp_events_next(struct dlcp_events *events)
{
	return advance(events) ? events->events[events->near.events[0]].at_ps : UINT64_MAX;
}

uint32_t dlcp_events_take(struct dlcp_events *events)
{
	advance(events);
	uint32_t event = events->near.events[0];

	heap_remove(events, &events->near, event);
	return event;
}
