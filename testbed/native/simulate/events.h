/* The pending events of a simulation, in order of time.
 *
 * An event is one of a fixed set, numbered from 0: its number says what happens to which object. Each is pending at
 * most once. Of events at one instant the lowest number is first, so their order never depends on when they were
 * scheduled. All memory is taken in dlcp_events_new. Times are picoseconds.
 *
 * Events of the next DLCP_EVENT_BUCKETS buckets wait in a timing wheel (Varghese and Lauck, SOSP 1987), later ones in a
 * heap. With DLCP_EVENTS_IN_HEAP all wait in one heap: the same order by simpler means, which the tests compare. */
#ifndef DLCP_EVENTS_H
#define DLCP_EVENTS_H

#include <stdint.h>

/* cffi: begin */
enum {
	DLCP_EVENT_BUCKETS = 4096,
	DLCP_EVENTS_IN_HEAP = 1, /* flag: no timing wheel */
	DLCP_LARGEST_BUCKET_SHIFT = 50,
};

struct dlcp_events;

/* An empty set of `count` possible events. bucket_shift: a bucket of the wheel is 2^bucket_shift ps wide, at most
 * DLCP_LARGEST_BUCKET_SHIFT; the order does not depend on it. NULL: no memory, no event, or a bucket too wide. */
struct dlcp_events *dlcp_events_new(uint32_t count, uint32_t bucket_shift, uint32_t flags);
void dlcp_events_free(struct dlcp_events *events);

/* Schedule an event, or move it if it is pending. */
void dlcp_events_put(struct dlcp_events *events, uint32_t event, uint64_t at_ps);

/* Cancel an event, if it is pending. */
void dlcp_events_remove(struct dlcp_events *events, uint32_t event);

/* When an event is due; UINT64_MAX when it is not pending. */
uint64_t dlcp_events_due(const struct dlcp_events *events, uint32_t event);

/* When the first pending event is due; UINT64_MAX when there is none. */
uint64_t dlcp_events_next(struct dlcp_events *events);

/* Take the first pending event out and return its number. There must be one. */
uint32_t dlcp_events_take(struct dlcp_events *events);
/* cffi: end */

#endif
