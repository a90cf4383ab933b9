/* What a switch does with one packet at one egress queue: take it, mark it, or drop it.
 *
 * Pure and integer only: time and random numbers are arguments. Compiled into the eBPF switch, the simulator and,
 * through cffi, the tests. Sizes are frame bytes. Four rules, in this order:
 *
 * Limit: a queue holds at most limit_bytes.
 *
 * Port buffer: the port holds at most buffer_bytes over all its queues. Of these, reserved_bytes of each queue are its
 * own: nobody else can take them, used or not. A packet that fits in its queue's own bytes passes this rule and the
 * next; any other needs room in what the queues have in common: common_bytes = buffer_bytes less all reserved bytes,
 * against what every queue holds beyond its own. Then the port never holds more than its buffer.
 *
 * Shared buffer, if the switch has one: all its ports together hold at most that many bytes beyond what their queues
 * have reserved, and a queue may hold, beyond its own, alpha times what is free (dynamic thresholds, Choudhury and
 * Hahne, IEEE/ACM Trans. Networking 6(2), 1998): k queues that all want more end at alpha / (1 + k alpha) of it each,
 * and some always stays free for the next.
 *
 * WRED by drop precedence, on the queue's backlog as the packet finds it or on its average: nothing happens up to
 * minimum_bytes; then the probability rises on a line from 0 to probability_q32 at maximum_bytes; above that it is
 * certain. minimum == maximum is a step. Where the profile says mark, an ECN-capable packet is marked instead of
 * dropped.
 */
#ifndef DLCP_AQM_H
#define DLCP_AQM_H

#include <stdint.h>

#include "codepoint.h"

/* Probability 1 as a share of 2^32: a 32-bit random number is always below it. */
#define DLCP_AQM_CERTAIN (UINT64_C(1) << 32)

/* limit_bytes of a queue without a limit */
#define DLCP_AQM_UNLIMITED UINT32_MAX

/* what is free of the shared buffer of a switch that has none */
#define DLCP_AQM_UNSHARED UINT64_MAX

#define DLCP_AQM_LARGEST_AVERAGING 15u

/* flags of a profile */
#define DLCP_AQM_ACTIVE 1u /* without it the precedence knows only the buffer's end */
#define DLCP_AQM_MARK 2u   /* ECN-capable packets are marked where others are dropped */

enum dlcp_aqm_verdict {
	DLCP_AQM_ENQUEUE = 0,
	DLCP_AQM_ENQUEUE_MARKED = 1,
	DLCP_AQM_DROP_WRED = 2,
	DLCP_AQM_DROP_TAIL = 3,	  /* the queue's limit or the port's buffer */
	DLCP_AQM_DROP_SHARED = 4, /* the switch's shared buffer */
};

struct dlcp_aqm_profile {
	uint64_t probability_q32; /* at maximum_bytes; 0 to DLCP_AQM_CERTAIN */
	uint32_t minimum_bytes;
	uint32_t maximum_bytes; /* not below minimum_bytes */
	uint32_t flags;
	uint32_t padding;
};

struct dlcp_aqm_queue {
	uint32_t reserved_bytes;
	uint32_t limit_bytes;
	uint32_t alpha_q8;  /* alpha times 256 */
	uint32_t averaging; /* the average's weight is 2^-averaging; 0 = WRED looks at the backlog itself */
	struct dlcp_aqm_profile profiles[DLCP_PRECEDENCES];
};

struct dlcp_aqm_port {
	uint32_t buffer_bytes;
	uint32_t common_bytes; /* buffer_bytes less the reserved bytes of all queues */
	struct dlcp_aqm_queue queues[DLCP_QUEUES];
};

/* A queue's backlog, averaged as RED does it (Floyd and Jacobson, IEEE/ACM Trans. Networking 1(4), 1993). */
struct dlcp_aqm_average {
	uint64_t bytes_q16;	/* times 2^16 */
	uint64_t idle_since_ns; /* since when it was empty, the last time that it was */
};

/* A packet and what it finds. */
struct dlcp_aqm_arrival {
	uint64_t backlog_bytes;	    /* what its queue holds, without it */
	uint64_t judged_bytes;	    /* what WRED looks at: that, or its average */
	uint64_t beyond_bytes;	    /* what all queues of the port hold beyond their reserved bytes */
	uint64_t shared_free_bytes; /* what the switch's shared buffer has left; DLCP_AQM_UNSHARED without one */
	uint32_t packet_bytes;
	uint32_t precedence; /* 0-2; others count as 0 */
	uint32_t ecn;	     /* any but 0 is ECN-capable */
	uint32_t random;     /* uniform over 32 bits, used for this packet only */
};

/* What a queue with that backlog holds beyond its reserved bytes. */
static inline uint64_t dlcp_aqm_beyond_bytes(const struct dlcp_aqm_queue *queue, uint64_t backlog_bytes)
{
	return backlog_bytes > queue->reserved_bytes ? backlog_bytes - queue->reserved_bytes : 0;
}

/* By how much a packet raises what its queue holds beyond its reserved bytes; as it leaves, by how much it lowers it.
 * backlog_bytes: without the packet. */
static inline uint64_t dlcp_aqm_taken_bytes(const struct dlcp_aqm_queue *queue, uint64_t backlog_bytes,
					    uint32_t packet_bytes)
{
	return dlcp_aqm_beyond_bytes(queue, backlog_bytes + packet_bytes) - dlcp_aqm_beyond_bytes(queue, backlog_bytes);
}

/* Takes bytes from a shared buffer of size_bytes; 1 if it had them, else 0 and nothing is taken. Any number of takers
 * at once never hold more than size_bytes together; one may be refused for the sake of another that is itself refused
 * in the same instant. */
static inline int dlcp_aqm_take_shared(uint64_t *used_bytes, uint64_t size_bytes, uint64_t taken_bytes)
{
	if (!taken_bytes || __sync_fetch_and_add(used_bytes, taken_bytes) + taken_bytes <= size_bytes)
		return 1;
	__sync_fetch_and_add(used_bytes, -taken_bytes);
	return 0;
}

/* Gives back what dlcp_aqm_take_shared took. */
static inline void dlcp_aqm_give_shared(uint64_t *used_bytes, uint64_t taken_bytes)
{
	__sync_fetch_and_add(used_bytes, -taken_bytes);
}

/* (1 - 2^-averaging)^steps as a share of 2^32. After 2^21 steps nothing is left of any average. */
static inline uint64_t dlcp_aqm_decay_q32(uint32_t averaging, uint64_t steps)
{
	uint64_t factor = DLCP_AQM_CERTAIN - (DLCP_AQM_CERTAIN >> (averaging & 31u));
	uint64_t left = DLCP_AQM_CERTAIN;

	if (steps >> 21)
		return 0;
	for (int bit = 0; bit < 21; bit++) {
		if (steps >> bit & 1u)
			left = left * factor >> 32; /* at most 2^32 times a number below 2^32: fits */
		factor = factor * factor >> 32;
	}
	return left;
}

/* Takes a packet's arrival into the average and returns the average in bytes.
 *
 * backlog_bytes: what the packet finds. frame_ns: what a full frame takes on the line, above 0: an empty queue's average
 * decays as if that many frames had found it empty. averaging: 1 to DLCP_AQM_LARGEST_AVERAGING. */
static inline uint64_t dlcp_aqm_average(struct dlcp_aqm_average *average, uint32_t averaging, uint64_t backlog_bytes,
					uint64_t now_ns, uint32_t frame_ns)
{
	if (backlog_bytes) {
		int64_t above = (int64_t)(backlog_bytes << 16) - (int64_t)average->bytes_q16;

		average->bytes_q16 += (uint64_t)(above >> (averaging & 31u));
	} else if (now_ns > average->idle_since_ns) {
		uint64_t frames = (now_ns - average->idle_since_ns) / frame_ns;
		uint64_t left_q32 = dlcp_aqm_decay_q32(averaging, frames);
		uint64_t low = average->bytes_q16 & 0xffffffffu, high = average->bytes_q16 >> 32;

		average->bytes_q16 = high * left_q32 + (low * left_q32 >> 32);
		average->idle_since_ns += frames * frame_ns;
	}
	return average->bytes_q16 >> 16;
}

/* The queue has run empty. */
static inline void dlcp_aqm_empty(struct dlcp_aqm_average *average, uint64_t now_ns)
{
	average->idle_since_ns = now_ns;
}

/* The probability, in units of 2^-32, with which a profile strikes at a backlog. */
static inline uint64_t dlcp_aqm_probability_q32(const struct dlcp_aqm_profile *profile, uint64_t backlog_bytes)
{
	uint64_t minimum = profile->minimum_bytes;
	uint64_t maximum = profile->maximum_bytes;

	if (!(profile->flags & DLCP_AQM_ACTIVE) || backlog_bytes <= minimum)
		return 0;
	if (backlog_bytes > maximum || maximum <= minimum)
		return DLCP_AQM_CERTAIN;
	/* at most 2^32 times a number below 2^32: fits */
	return profile->probability_q32 * (backlog_bytes - minimum) / (maximum - minimum);
}

/* DLCP_AQM_ENQUEUE if limit and buffers have room, else which of them has not. */
static inline enum dlcp_aqm_verdict dlcp_aqm_room(const struct dlcp_aqm_queue *queue, uint32_t common_bytes,
						  const struct dlcp_aqm_arrival *arrival)
{
	uint64_t after = arrival->backlog_bytes + arrival->packet_bytes;
	uint64_t beyond = dlcp_aqm_beyond_bytes(queue, after);
	uint64_t taken = dlcp_aqm_taken_bytes(queue, arrival->backlog_bytes, arrival->packet_bytes);
	uint64_t free = arrival->shared_free_bytes;

	if (queue->limit_bytes != DLCP_AQM_UNLIMITED && after > queue->limit_bytes)
		return DLCP_AQM_DROP_TAIL;
	if (!taken)
		return DLCP_AQM_ENQUEUE;
	if (arrival->beyond_bytes + taken > common_bytes)
		return DLCP_AQM_DROP_TAIL;
	/* a buffer is below 2^32 bytes, so the product fits */
	if (free != DLCP_AQM_UNSHARED && (taken > free || beyond << 8 > free * queue->alpha_q8))
		return DLCP_AQM_DROP_SHARED;
	return DLCP_AQM_ENQUEUE;
}

/* The verdict on one packet. What it takes of a shared buffer is still to be taken (dlcp_aqm_take_shared), since another
 * port may take it in the same instant. */
static inline enum dlcp_aqm_verdict dlcp_aqm_decide(const struct dlcp_aqm_queue *queue, uint32_t common_bytes,
						    const struct dlcp_aqm_arrival *arrival)
{
	const struct dlcp_aqm_profile *profile =
		&queue->profiles[arrival->precedence < DLCP_PRECEDENCES ? arrival->precedence : 0];
	enum dlcp_aqm_verdict room = dlcp_aqm_room(queue, common_bytes, arrival);

	if (room != DLCP_AQM_ENQUEUE)
		return room;
	if (arrival->random >= dlcp_aqm_probability_q32(profile, arrival->judged_bytes))
		return DLCP_AQM_ENQUEUE;
	if ((profile->flags & DLCP_AQM_MARK) && arrival->ecn != DLCP_ECN_NOT_ECT)
		return DLCP_AQM_ENQUEUE_MARKED;
	return DLCP_AQM_DROP_WRED;
}

#endif
