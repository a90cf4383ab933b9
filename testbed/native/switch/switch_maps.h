/* What the eBPF switch and the program that configures it share: the values of its maps.
 *
 * dlcp/switches/bpf/map_structs.py says the same in ctypes; a test compares every offset. A port is named by the interface index
 * of its device, chosen when the link is made: the two ends of a link are 2k and 2k + 1, so a port's far end is
 * `ifindex ^ 1`. A link with a delay has four: its ends are 4k and 4k + 3, between them 4k + 1 and 4k + 2. Sizes are
 * frame bytes with the Ethernet header and without preamble, FCS and gap.
 */
#ifndef DLCP_SWITCH_MAPS_H
#define DLCP_SWITCH_MAPS_H

#include <stdint.h>

#include "aqm.h"

#define DLCP_HISTOGRAM_BUCKETS 16u
#define DLCP_MAX_NEXT_HOPS 64u
#define DLCP_FLOWLETS 4096u /* of a switch; flows whose hashes meet in one are one */

/* Frames of this type (IEEE 802's first for local experiments) fill a queue on purpose and count nowhere. */
#define DLCP_FILLER_ETHERTYPE 0x88b5

/* flags of a port */
#define DLCP_PORT_HOST_FACING 1u /* its link leads to a host */
#define DLCP_PORT_DOWN 2u	 /* its cable is cut */
#define DLCP_PORT_AVERAGES 4u	 /* some queue's WRED looks at an average */
#define DLCP_PORT_SHARES 8u	 /* its switch has a shared buffer */

/* load_balancing of a switch */
#define DLCP_FLOW_HASH 0u
#define DLCP_PER_PACKET 1u
#define DLCP_ROUND_ROBIN 2u
#define DLCP_FLOWLET 3u

/* map `switches`, by switch index */
struct dlcp_switch_config {
	uint32_t load_balancing;
	uint32_t seed; /* of the flow hash, so that switches choose independently */
	uint64_t flowlet_gap_ns;
	uint64_t shared_bytes; /* the shared buffer; 0 = every port has its own alone */
};

/* map `ports`, by ifindex: switch ports, and hosts' interfaces for their link alone */
struct dlcp_port_config {
	uint32_t switch_index;
	uint32_t flags;
	uint32_t epoch;	   /* a change makes the port forget its peaks */
	uint32_t cuts;	   /* a change means that what waits for the link never arrives */
	uint64_t loss_q32; /* injected random loss, share of 2^32; 0 = none */
	uint32_t frame_ns; /* what a full frame takes on the line */
	uint32_t padding;
	struct dlcp_aqm_port aqm;
};

/* map `routes` */
struct dlcp_route_key {
	uint32_t switch_index;
	uint32_t destination; /* IPv4, network byte order */
};

struct dlcp_route {
	uint32_t count; /* equal-cost next hops, at most DLCP_MAX_NEXT_HOPS */
	uint32_t turn;	/* whose turn it is, in map `turns` */
	uint32_t ifindex[DLCP_MAX_NEXT_HOPS];
};

/* map `flowlets`, by switch index * DLCP_FLOWLETS + hash */
struct dlcp_flowlet {
	uint64_t last_ns; /* when its last packet came */
	uint32_t draw;	  /* the choice, as a share of 2^32 of the next hops */
	uint32_t padding;
};

struct dlcp_tally {
	uint64_t packets;
	uint64_t bytes;
};

/* What came in by a link is what its far end has sent. Where a packet is dropped before an egress queue was chosen, and
 * where it is lost on its way from a host, the port where it came in counts it. */
struct dlcp_precedence_counters {
	struct dlcp_tally enqueued;
	struct dlcp_tally sent;	   /* left the queue: seen at the far end of the link */
	struct dlcp_tally severed; /* of the sent: the cable was cut while it waited, so the far end dropped it */
	struct dlcp_tally dropped_wred;
	struct dlcp_tally dropped_tail;
	struct dlcp_tally dropped_shared;
	struct dlcp_tally dropped_loss;
	struct dlcp_tally dropped_down; /* found the cable cut */
	struct dlcp_tally dropped_unrouted;
	struct dlcp_tally marked_ce; /* of the enqueued; a packet that came marked is not counted again */
};

/* Bucket i of the histogram counts the enqueued packets that found the backlog in the i-th sixteenth of the port's
 * buffer. */
struct dlcp_queue_state {
	uint64_t peak_bytes;
	uint64_t doomed_packets; /* of those that wait: the next so many never arrive */
	struct dlcp_aqm_average average;
	struct dlcp_precedence_counters precedences[DLCP_PRECEDENCES];
	uint64_t histogram[DLCP_HISTOGRAM_BUCKETS];
};

/* map `state`, by ifindex; switch ports and host interfaces. The lock covers all but marked_ce and not_ipv4 (frames that
 * came in here and never had a place in an account), and the port's entry in the map `backlogs`: for each queue,
 * enqueued less sent, in bytes. */
struct dlcp_port_state {
	struct bpf_spin_lock lock;
	uint32_t epoch;
	uint32_t cuts;
	uint32_t padding;
	uint64_t beyond_bytes; /* what all queues hold beyond their reserved bytes */
	struct dlcp_tally not_ipv4;
	struct dlcp_queue_state queues[DLCP_QUEUES];
};

/* map `backlogs`, by ifindex, mapped into the program that watches */
struct dlcp_backlogs {
	uint64_t bytes[DLCP_QUEUES];
};

#endif
