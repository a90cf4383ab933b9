/* What the eBPF switch and the program that configures it share: the values of its maps.
 *
 * dlcp/switches/layout.py says the same in ctypes; a test compares every offset. A port is named by the interface index
 * of its device, chosen when the link is made: the two ends of a link are 2k and 2k + 1, so a port's far end is
 * `ifindex ^ 1`. Sizes are frame bytes with the Ethernet header and without preamble, FCS and gap.
 */
#ifndef DLCP_SWITCH_MAPS_H
#define DLCP_SWITCH_MAPS_H

#include <stdint.h>

#include "aqm.h"

#define DLCP_HISTOGRAM_BUCKETS 16u
#define DLCP_MAX_NEXT_HOPS 64u

/* flags of a port */
#define DLCP_PORT_HOST_FACING 1u /* its link leads to a host */

/* load_balancing of a switch */
#define DLCP_FLOW_HASH 0u
#define DLCP_PER_PACKET 1u

/* map `switches`, by switch index */
struct dlcp_switch_config {
	uint32_t load_balancing;
	uint32_t seed; /* of the flow hash, so that switches choose independently */
};

/* map `ports`, by ifindex; switch ports only */
struct dlcp_port_config {
	uint32_t switch_index;
	uint32_t flags;
	uint32_t epoch; /* a change makes the port forget its peaks */
	uint32_t padding;
	uint64_t loss_q32; /* injected random loss, share of 2^32; 0 = none */
	struct dlcp_aqm_port aqm;
};

/* map `routes` */
struct dlcp_route_key {
	uint32_t switch_index;
	uint32_t destination; /* IPv4, network byte order */
};

struct dlcp_route {
	uint32_t count; /* equal-cost next hops, at most DLCP_MAX_NEXT_HOPS */
	uint32_t ifindex[DLCP_MAX_NEXT_HOPS];
};

struct dlcp_tally {
	uint64_t packets;
	uint64_t bytes;
};

struct dlcp_precedence_counters {
	struct dlcp_tally enqueued;
	struct dlcp_tally dropped_wred;
	struct dlcp_tally dropped_tail;
	struct dlcp_tally dropped_loss;
	struct dlcp_tally marked_ce; /* of the enqueued; a packet that came marked is not counted again */
};

/* The backlog is enqueued less dequeued. Bucket i of the histogram counts the enqueued packets that found the backlog in
 * the i-th sixteenth of the port's buffer. */
struct dlcp_queue_state {
	struct dlcp_tally enqueued;
	struct dlcp_tally dequeued; /* seen at the far end of the link */
	uint64_t peak_bytes;
	uint64_t histogram[DLCP_HISTOGRAM_BUCKETS];
	struct dlcp_precedence_counters precedences[DLCP_PRECEDENCES];
};

/* map `state`, by ifindex; switch ports and host interfaces. The lock covers all but marked_ce, not_ipv4 and unrouted.
 * What came in here and was dropped before any queue was chosen: not_ipv4 never had a place in an account, unrouted
 * (no route to its destination) had. */
struct dlcp_port_state {
	struct bpf_spin_lock lock;
	uint32_t epoch;
	struct dlcp_tally not_ipv4;
	struct dlcp_tally unrouted;
	uint64_t peak_bytes; /* of all queues together */
	struct dlcp_queue_state queues[DLCP_QUEUES];
};

#endif
