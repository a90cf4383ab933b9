/* What a switch does with one packet at one egress queue: take it, mark it, or drop it.
 *
 * Pure and integer only; time does not enter, the random number is an argument. Compiled into the eBPF switch, the
 * simulator and, through cffi, the tests. Sizes are frame bytes. Two rules, in this order:
 *
 * Buffer: the port holds at most buffer_bytes over all its queues. Of these, reserved_bytes of each queue are its own:
 * nobody else can take them, used or not. A packet that fits in its queue's own bytes is never dropped here; any other
 * needs room beside what every other queue holds or has reserved. The sum of the reserved bytes must not exceed
 * buffer_bytes; then what the port holds never does either.
 *
 * WRED by drop precedence, on the queue's backlog as the packet finds it: nothing happens up to minimum_bytes; then the
 * probability rises on a line from 0 to probability_q32 at maximum_bytes; above that it is certain. minimum ==
 * maximum is a step. Where the profile says mark, an ECN-capable packet is marked instead of dropped.
 */
#ifndef DLCP_AQM_H
#define DLCP_AQM_H

#include <stdint.h>

#include "codepoint.h"

/* Probability 1 as a share of 2^32: a 32-bit random number is always below it. */
#define DLCP_AQM_CERTAIN (UINT64_C(1) << 32)

/* flags of a profile */
#define DLCP_AQM_ACTIVE 1u /* without it the precedence knows only the buffer's end */
#define DLCP_AQM_MARK 2u   /* ECN-capable packets are marked where others are dropped */

enum dlcp_aqm_verdict {
	DLCP_AQM_ENQUEUE = 0,
	DLCP_AQM_ENQUEUE_MARKED = 1,
	DLCP_AQM_DROP_WRED = 2,
	DLCP_AQM_DROP_TAIL = 3,
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
	uint32_t padding;
	struct dlcp_aqm_profile profiles[DLCP_PRECEDENCES];
};

struct dlcp_aqm_port {
	uint32_t buffer_bytes;
	uint32_t padding;
	struct dlcp_aqm_queue queues[DLCP_QUEUES];
};

/* What one queue takes away from the port's buffer for all others: what it holds, at least what it has reserved. */
static inline uint64_t dlcp_aqm_claim_bytes(const struct dlcp_aqm_queue *queue, uint64_t backlog_bytes)
{
	return backlog_bytes > queue->reserved_bytes ? backlog_bytes : queue->reserved_bytes;
}

/* 1 if the port has room. others_bytes: the claims of the port's seven other queues, summed. */
static inline int dlcp_aqm_fits(const struct dlcp_aqm_queue *queue, uint32_t buffer_bytes, uint64_t backlog_bytes,
				uint64_t others_bytes, uint32_t packet_bytes)
{
	uint64_t after = backlog_bytes + packet_bytes;

	return after <= queue->reserved_bytes || others_bytes + after <= buffer_bytes;
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

/* The verdict on one packet.
 *
 * backlog_bytes: what its queue holds without it. others_bytes: see dlcp_aqm_fits. precedence: 0-2 (others count as 0).
 * ecn: the packet's ECN field; any but 0 is ECN-capable. random: uniform over 32 bits, used for this packet only.
 */
static inline enum dlcp_aqm_verdict dlcp_aqm_decide(const struct dlcp_aqm_queue *queue, uint32_t buffer_bytes,
						    uint64_t backlog_bytes, uint64_t others_bytes,
						    uint32_t packet_bytes, uint32_t precedence, uint32_t ecn,
						    uint32_t random)
{
	const struct dlcp_aqm_profile *profile = &queue->profiles[precedence < DLCP_PRECEDENCES ? precedence : 0];

	if (!dlcp_aqm_fits(queue, buffer_bytes, backlog_bytes, others_bytes, packet_bytes))
		return DLCP_AQM_DROP_TAIL;
	if (random >= dlcp_aqm_probability_q32(profile, backlog_bytes))
		return DLCP_AQM_ENQUEUE;
	if ((profile->flags & DLCP_AQM_MARK) && ecn != DLCP_ECN_NOT_ECT)
		return DLCP_AQM_ENQUEUE_MARKED;
	return DLCP_AQM_DROP_WRED;
}

#endif
