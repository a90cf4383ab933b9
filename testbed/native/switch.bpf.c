// SPDX-License-Identifier: GPL-2.0-only
/* The emulated switch: what tc runs where a frame enters a switch or a host, and where it leaves a host.
 *
 * A switch port's egress queues are HTB classes; here stands everything that decides about a frame before it gets
 * there. Nothing behind this program may drop: the classes' own limits are far above the buffer that is enforced here.
 * Backlogs are counted, not asked for: a frame is enqueued here and dequeued when it enters the far end of the link.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <stdint.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "codepoint.h"
#include "switch_maps.h"

/* HTB class 1:1q serves queue q (dlcp/switches/tc.py). */
#define HTB_CLASS_OF_QUEUE(queue) (0x10000u | 0x10u | (queue))

#define FRAGMENT_BITS 0x3fff /* "more fragments" and the offset */

/* max_entries of ports, state and routes are set by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct dlcp_switch_config);
} switches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct dlcp_port_config);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct dlcp_port_state);
} state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct dlcp_route_key);
	__type(value, struct dlcp_route);
} routes SEC(".maps");

struct frame {
	uint32_t bytes;
	uint32_t packets; /* above 1: one super-packet that the qdisc cuts up */
	uint32_t queue;
	uint32_t precedence;
	uint32_t ecn;
	struct iphdr ip;
};

/* Reads the IPv4 header and the class; 0 when it is not IPv4. */
static __always_inline int parse(struct __sk_buff *skb, struct frame *frame)
{
	if (skb->protocol != bpf_htons(ETH_P_IP))
		return 0;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &frame->ip, sizeof(frame->ip)) || frame->ip.version != 4)
		return 0;
	uint32_t dscp = dlcp_tos_dscp(frame->ip.tos);

	frame->queue = dlcp_dscp_queue(dscp);
	frame->precedence = dlcp_dscp_precedence(dscp);
	frame->ecn = dlcp_tos_ecn(frame->ip.tos);
	frame->bytes = skb->len;
	frame->packets = 1;
	return 1;
}

static __always_inline struct dlcp_port_state *state_of(uint32_t ifindex)
{
	return bpf_map_lookup_elem(&state, &ifindex);
}

static __always_inline void add(struct dlcp_tally *tally, uint64_t packets, uint64_t bytes)
{
	tally->packets += packets;
	tally->bytes += bytes;
}

static __always_inline void add_unlocked(struct dlcp_tally *tally, uint64_t bytes)
{
	__sync_fetch_and_add(&tally->packets, 1);
	__sync_fetch_and_add(&tally->bytes, bytes);
}

static __always_inline uint64_t backlog_of(const struct dlcp_queue_state *queue)
{
	return queue->enqueued.bytes - queue->dequeued.bytes;
}

/* Takes a frame out of the far end's egress queue: it has crossed the link. */
static __always_inline void dequeue(uint32_t ifindex, const struct frame *frame)
{
	struct dlcp_port_state *port = state_of(ifindex ^ 1);

	if (!port)
		return;
	bpf_spin_lock(&port->lock);
	add(&port->queues[frame->queue & (DLCP_QUEUES - 1)].dequeued, 1, frame->bytes);
	bpf_spin_unlock(&port->lock);
}

/* Murmur3's 32-bit round: every bit of the word reaches every bit of the hash after the next rounds. */
static __always_inline uint32_t mix(uint32_t hash, uint32_t word)
{
	word *= 0xcc9e2d51u;
	word = word << 15 | word >> 17;
	hash ^= word * 0x1b873593u;
	hash = hash << 13 | hash >> 19;
	return hash * 5 + 0xe6546b64u;
}

static __always_inline uint32_t flow_hash(struct __sk_buff *skb, const struct iphdr *ip, uint32_t seed)
{
	uint32_t both_ports = 0;
	uint32_t hash = seed;

	/* all fragments of a datagram take one path; ICMP has no ports */
	if ((ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP) &&
	    !(ip->frag_off & bpf_htons(FRAGMENT_BITS)) &&
	    bpf_skb_load_bytes(skb, ETH_HLEN + ip->ihl * 4, &both_ports, sizeof(both_ports)))
		both_ports = 0;
	hash = mix(hash, ip->saddr);
	hash = mix(hash, ip->daddr);
	hash = mix(hash, both_ports);
	hash = mix(hash, ip->protocol);
	hash ^= hash >> 16;
	hash *= 0x85ebca6bu;
	hash ^= hash >> 13;
	hash *= 0xc2b2ae35u;
	return hash ^ hash >> 16;
}

/* The egress port of a frame; 0 when its destination is unknown. */
static __always_inline uint32_t route(struct __sk_buff *skb, const struct frame *frame, uint32_t switch_index)
{
	struct dlcp_route_key key = {.switch_index = switch_index, .destination = frame->ip.daddr};
	struct dlcp_route *found = bpf_map_lookup_elem(&routes, &key);
	struct dlcp_switch_config *config = bpf_map_lookup_elem(&switches, &switch_index);
	uint32_t choice = 0;

	if (!found || !config)
		return 0;
	if (found->count > 1) {
		uint32_t draw = config->load_balancing == DLCP_PER_PACKET ? bpf_get_prandom_u32()
									  : flow_hash(skb, &frame->ip, config->seed);
		choice = (uint64_t)draw * found->count >> 32;
	}
	return found->ifindex[choice & (DLCP_MAX_NEXT_HOPS - 1)]; /* the mask is for the verifier */
}

/* What the port's other queues take away from its buffer, and what all queues hold. */
static __always_inline void survey(const struct dlcp_port_state *port, const struct dlcp_aqm_port *aqm, uint32_t queue,
				   uint64_t *others_bytes, uint64_t *held_bytes)
{
	*others_bytes = 0;
	*held_bytes = 0;
	for (uint32_t i = 0; i < DLCP_QUEUES; i++) {
		uint64_t backlog = backlog_of(&port->queues[i]);

		*held_bytes += backlog;
		if (i != queue)
			*others_bytes += dlcp_aqm_claim_bytes(&aqm->queues[i], backlog);
	}
}

static __always_inline void forget_peaks(struct dlcp_port_state *port)
{
	port->peak_bytes = 0;
	for (uint32_t i = 0; i < DLCP_QUEUES; i++)
		port->queues[i].peak_bytes = 0;
}

static __always_inline void record(struct dlcp_port_state *port, struct dlcp_queue_state *queue,
				   struct dlcp_precedence_counters *counters, const struct dlcp_port_config *config,
				   uint64_t backlog, uint64_t held_bytes, const struct frame *frame)
{
	/* held_bytes never exceeds the buffer; the last bucket also takes a buffer filled to its last byte */
	uint64_t bucket = backlog * DLCP_HISTOGRAM_BUCKETS / (config->aqm.buffer_bytes | 1u);

	if (bucket >= DLCP_HISTOGRAM_BUCKETS)
		bucket = DLCP_HISTOGRAM_BUCKETS - 1;
	if (port->epoch != config->epoch) {
		port->epoch = config->epoch;
		forget_peaks(port);
	}
	add(&queue->enqueued, 1, frame->bytes);
	add(&counters->enqueued, 1, frame->bytes);
	queue->histogram[bucket]++;
	if (backlog + frame->bytes > queue->peak_bytes)
		queue->peak_bytes = backlog + frame->bytes;
	if (held_bytes + frame->bytes > port->peak_bytes)
		port->peak_bytes = held_bytes + frame->bytes;
}

/* Decides about a frame at an egress port and accounts for it; 1 = it may go there. */
static __always_inline int admit(struct __sk_buff *skb, uint32_t egress, const struct frame *frame)
{
	struct dlcp_port_config *config = bpf_map_lookup_elem(&ports, &egress);
	struct dlcp_port_state *port = state_of(egress);

	if (!config || !port || frame->precedence >= DLCP_PRECEDENCES)
		return 0;
	uint32_t number = frame->queue & (DLCP_QUEUES - 1);
	const struct dlcp_aqm_queue *aqm = &config->aqm.queues[number];
	struct dlcp_queue_state *queue = &port->queues[number];
	struct dlcp_precedence_counters *counters = &queue->precedences[frame->precedence];
	int lost = config->loss_q32 && bpf_get_prandom_u32() < config->loss_q32;
	uint32_t random = bpf_get_prandom_u32();
	enum dlcp_aqm_verdict verdict;
	uint64_t others_bytes, held_bytes, backlog;

	bpf_spin_lock(&port->lock);
	if (lost) {
		add(&counters->dropped_loss, 1, frame->bytes);
		bpf_spin_unlock(&port->lock);
		return 0;
	}
	survey(port, &config->aqm, number, &others_bytes, &held_bytes);
	backlog = backlog_of(queue);
	verdict = dlcp_aqm_decide(aqm, config->aqm.buffer_bytes, backlog, others_bytes, frame->bytes,
				  frame->precedence, frame->ecn, random);
	if (verdict == DLCP_AQM_DROP_TAIL)
		add(&counters->dropped_tail, 1, frame->bytes);
	else if (verdict == DLCP_AQM_DROP_WRED)
		add(&counters->dropped_wred, 1, frame->bytes);
	else
		record(port, queue, counters, config, backlog, held_bytes, frame);
	bpf_spin_unlock(&port->lock);

	/* out of memory is the one reason why a mark fails: then the frame goes on unmarked and uncounted */
	if (verdict == DLCP_AQM_ENQUEUE_MARKED && frame->ecn != DLCP_ECN_CE && bpf_skb_ecn_set_ce(skb))
		add_unlocked(&counters->marked_ce, frame->bytes);
	return verdict == DLCP_AQM_ENQUEUE || verdict == DLCP_AQM_ENQUEUE_MARKED;
}

/* At every switch port. */
SEC("tc")
int switch_ingress(struct __sk_buff *skb)
{
	uint32_t ingress = skb->ifindex;
	struct dlcp_port_config *config = bpf_map_lookup_elem(&ports, &ingress);
	struct dlcp_port_state *port = state_of(ingress);
	struct frame frame;

	if (!config || !port)
		return TC_ACT_SHOT;
	if (!parse(skb, &frame)) {
		add_unlocked(&port->not_ipv4, skb->len);
		return TC_ACT_SHOT;
	}
	dequeue(ingress, &frame);
	uint32_t egress = route(skb, &frame, config->switch_index);

	if (!egress) {
		add_unlocked(&port->unrouted, frame.bytes);
		return TC_ACT_SHOT;
	}
	if (!admit(skb, egress, &frame))
		return TC_ACT_SHOT;
	skb->priority = HTB_CLASS_OF_QUEUE(frame.queue);
	if (config->flags & DLCP_PORT_HOST_FACING) {
		/* The frame is still charged to the sender's socket. A clone is not: without it a sender would feel the
		 * switch's queue as its own socket buffer and never lose a packet. */
		bpf_clone_redirect(skb, egress, 0);
		return TC_ACT_SHOT;
	}
	return bpf_redirect(egress, 0);
}

/* At every host interface: nothing but the account of the switch port that leads here. */
SEC("tc")
int host_ingress(struct __sk_buff *skb)
{
	struct frame frame;

	if (parse(skb, &frame))
		dequeue(skb->ifindex, &frame);
	return TC_ACT_OK;
}

/* At every host interface: its own queues, so that a host's control packets overtake its data. Its sockets feel
 * this queue as they would feel a real one, so nothing is dropped. */
SEC("tc")
int host_egress(struct __sk_buff *skb)
{
	struct dlcp_port_state *port = state_of(skb->ifindex);
	struct frame frame;

	if (!port || !parse(skb, &frame))
		return TC_ACT_OK;
	if (skb->gso_segs > 1) {
		/* the interface's qdisc cuts it into packets, each with its own headers */
		frame.packets = skb->gso_segs;
		frame.bytes = skb->wire_len;
	}
	struct dlcp_queue_state *queue = &port->queues[frame.queue & (DLCP_QUEUES - 1)];

	bpf_spin_lock(&port->lock);
	add(&queue->enqueued, frame.packets, frame.bytes);
	bpf_spin_unlock(&port->lock);
	skb->priority = HTB_CLASS_OF_QUEUE(frame.queue);
	return TC_ACT_OK;
}

char program_license[] SEC("license") = "GPL";

/* so that a rebuild can be compared byte by byte with the same compiler's */
const char compiled_by[] SEC("compiler") = __VERSION__;
