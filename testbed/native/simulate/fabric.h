/* A fabric in virtual time: hosts, output-queued switches and links, which decide about every packet by aqm.h.
 *
 * Packets are numbers and sizes; what they carry belongs to the sources of the hosts. Nodes are numbered from 0, hosts
 * first. Link k is two ports: 2k leaves its first node, 2k + 1 its second, so a port's far end is `port ^ 1`. Each host
 * has one link. Times are picoseconds, sizes are frame bytes.
 *
 * A port serves its queues by strict priority, queue 7 first. A frame occupies its queue until its transmission begins.
 * The result depends on the configuration and the seed alone, bit for bit.
 *
 * Memory is taken in dlcp_fabric_new; while packets move, only the pool of packets grows, to the most that were ever
 * under way at once. Functions that return int give 0, or -1 for an argument out of range or want of memory. */
#ifndef DLCP_FABRIC_H
#define DLCP_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "aqm.h"
#include "codepoint.h"

/* cffi: begin */
enum {
	DLCP_FABRIC_HISTOGRAM_BUCKETS = 16,
	DLCP_FABRIC_MOST_NEXT_HOPS = 64,
	DLCP_FABRIC_MOST_FRAME_BYTES = 65535,
};

enum dlcp_balancing {
	DLCP_BALANCE_FLOW_HASH = 0,
	DLCP_BALANCE_PER_PACKET = 1,
	DLCP_BALANCE_ROUND_ROBIN = 2,
};

struct dlcp_packet {
	uint64_t number; /* the source's */
	uint32_t source, destination; /* hosts */
	uint32_t flow; /* packets of one flow keep one path under flow-hash */
	uint16_t bytes;
	uint8_t tos;
};

/* What sends and receives at a host. It is asked for a packet only when the host's link is idle. */
struct dlcp_nic_source {
	void *context;
	/* Write the packet that is to leave at this moment; false when there is none. */
	bool (*pull)(void *context, uint64_t now_ps, struct dlcp_packet *packet);
	/* When to ask again after `pull` had none; UINT64_MAX = after the next arrival. Above now_ps. */
	uint64_t (*due)(void *context, uint64_t now_ps);
	void (*arrived)(void *context, uint64_t now_ps, const struct dlcp_packet *packet);
};

struct dlcp_link {
	uint32_t first, second; /* nodes */
	uint64_t rate_bps;	/* of each direction */
	uint64_t delay_ps;	/* of each direction */
};

struct dlcp_fabric_config {
	uint32_t hosts, nodes, links;
	uint32_t bucket_shift, event_flags; /* as in events.h */
	uint32_t full_frame_bytes;	    /* an average decays by its time on the line */
	uint64_t seed;
};

struct dlcp_count {
	uint64_t packets, bytes;
};

/* The columns of table `ports`, in its order. */
struct dlcp_port_class {
	struct dlcp_count received, enqueued, sent;
	struct dlcp_count dropped_wred, dropped_tail, dropped_shared, dropped_loss, dropped_down, dropped_unrouted;
	struct dlcp_count marked_ce;
};

struct dlcp_port_queue {
	struct dlcp_port_class precedences[3];
	uint64_t peak_bytes;
	uint64_t histogram[16]; /* DLCP_FABRIC_HISTOGRAM_BUCKETS */
};

struct dlcp_port_counters {
	struct dlcp_port_queue queues[8];
};

struct dlcp_fabric;

/* NULL: no memory, or a link without a rate, to itself, to a node that is not there, or second at a host. */
struct dlcp_fabric *dlcp_fabric_new(const struct dlcp_fabric_config *config, const struct dlcp_link *links);
void dlcp_fabric_free(struct dlcp_fabric *fabric);

/* What a switch's port does with packets: the bytes that a rendered intent is. Without it every packet passes. */
int dlcp_fabric_set_rules(struct dlcp_fabric *fabric, uint32_t port, const struct dlcp_aqm_port *rules);

/* How a switch chooses among next hops, and its shared buffer (0 = none). */
int dlcp_fabric_set_switch(struct dlcp_fabric *fabric, uint32_t node, enum dlcp_balancing balancing,
			   uint64_t shared_bytes);

/* The equal-cost ports of a switch towards a host. Without one its packets are dropped as unrouted. */
int dlcp_fabric_set_route(struct dlcp_fabric *fabric, uint32_t node, uint32_t host, const uint32_t *ports,
			  uint32_t count);
int dlcp_fabric_set_source(struct dlcp_fabric *fabric, uint32_t host, const struct dlcp_nic_source *source);

/* Faults of one direction of a link, from this moment on. A frame on the line keeps the rate that it began with. */
int dlcp_fabric_set_rate(struct dlcp_fabric *fabric, uint32_t port, uint64_t rate_bps);
int dlcp_fabric_set_loss(struct dlcp_fabric *fabric, uint32_t port, uint64_t loss_q32);
/* What waits for a cut cable or is on it never arrives. */
int dlcp_fabric_set_down(struct dlcp_fabric *fabric, uint32_t port, bool down);

/* Ask a host's source, which has something to send that it had not. */
int dlcp_fabric_wake(struct dlcp_fabric *fabric, uint32_t host);

/* Let everything happen that is due up to until_ps, which is then the time; UINT64_MAX: until nothing is left, and the time
 * is that of the last event. 0, or -1 when there was no memory for a packet. */
int dlcp_fabric_run(struct dlcp_fabric *fabric, uint64_t until_ps);

uint64_t dlcp_fabric_now(const struct dlcp_fabric *fabric);
/* When the next event is due; UINT64_MAX when nothing is left to happen. */
uint64_t dlcp_fabric_next(struct dlcp_fabric *fabric);
/* Packets that waited for a line or were on one. */
uint64_t dlcp_fabric_under_way(const struct dlcp_fabric *fabric);
uint64_t dlcp_fabric_hops(const struct dlcp_fabric *fabric);
uint64_t dlcp_fabric_backlog(const struct dlcp_fabric *fabric, uint32_t port, uint32_t queue);
const struct dlcp_port_counters *dlcp_fabric_counters(const struct dlcp_fabric *fabric, uint32_t port);
/* cffi: end */

#endif
