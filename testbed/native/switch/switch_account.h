// SPDX-License-Identifier: GPL-2.0-only
/* What every switch program of ours does with a frame, the emulated switch's and a Linux box's alike: reads its class,
 * decides about it at an egress port, and keeps the account of what waits there.
 *
 * Nothing behind a program that admits may drop: the classes' own limits are far above the buffer that is enforced here.
 * Backlogs are counted, not asked for: a frame is enqueued here and dequeued when it enters the far end of the link.
 */
#ifndef DLCP_SWITCH_ACCOUNT_H
#define DLCP_SWITCH_ACCOUNT_H

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

/* max_entries of all maps are set by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct dlcp_switch_config);
} switches SEC(".maps");

/* Bytes taken of each switch's shared buffer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, uint64_t);
} shared SEC(".maps");

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
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct dlcp_backlogs);
} backlogs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct dlcp_flowlet);
} flowlets SEC(".maps");

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

/* A port and the queue that a frame has there; all pointers are set. */
struct place {
	const struct dlcp_port_config *config;
	const struct dlcp_aqm_queue *aqm;
	struct dlcp_port_state *port;
	struct dlcp_queue_state *queue;
	struct dlcp_precedence_counters *counters;
	uint64_t *backlog_bytes;
};

/* Finds a frame's place at a port; 0 when there is no such port. */
static __always_inline int find(uint32_t ifindex, const struct frame *frame, struct place *place)
{
	struct dlcp_port_config *config = bpf_map_lookup_elem(&ports, &ifindex);
	struct dlcp_port_state *port = bpf_map_lookup_elem(&state, &ifindex);
	struct dlcp_backlogs *held = bpf_map_lookup_elem(&backlogs, &ifindex);
	uint32_t number = frame->queue & (DLCP_QUEUES - 1); /* the mask and the bound are for the verifier */

	if (!config || !port || !held || frame->precedence >= DLCP_PRECEDENCES)
		return 0;
	place->config = config;
	place->aqm = &config->aqm.queues[number];
	place->port = port;
	place->queue = &port->queues[number];
	place->counters = &place->queue->precedences[frame->precedence];
	place->backlog_bytes = &held->bytes[number];
	return 1;
}

/* Does what the port's configuration has asked for since a frame was last here. Under the port's lock. */
static __always_inline void settle(const struct place *place)
{
	struct dlcp_port_state *port = place->port;

	if (port->epoch != place->config->epoch) {
		port->epoch = place->config->epoch;
		for (uint32_t i = 0; i < DLCP_QUEUES; i++)
			port->queues[i].peak_bytes = 0;
	}
	if (port->cuts == place->config->cuts)
		return;
	port->cuts = place->config->cuts;
	for (uint32_t i = 0; i < DLCP_QUEUES; i++) {
		struct dlcp_queue_state *queue = &port->queues[i];

		queue->doomed_packets = 0;
		for (uint32_t p = 0; p < DLCP_PRECEDENCES; p++)
			queue->doomed_packets +=
				queue->precedences[p].enqueued.packets - queue->precedences[p].sent.packets;
	}
}

/* Counts a frame into its queue. Under the port's lock. */
static __always_inline void put(const struct place *place, const struct frame *frame)
{
	place->port->beyond_bytes += dlcp_aqm_taken_bytes(place->aqm, *place->backlog_bytes, frame->bytes);
	*place->backlog_bytes += frame->bytes;
	add(&place->counters->enqueued, frame->packets, frame->bytes);
}

/* The time, if a queue of the port needs it. */
static __always_inline uint64_t now_for(const struct dlcp_port_config *config)
{
	return config->flags & DLCP_PORT_AVERAGES ? bpf_ktime_get_ns() : 0;
}

/* Counts a frame out of its queue; returns by how much that lowers what the queue holds beyond its own. A wrong account
 * ends at nothing instead of below it, where the port would refuse everything: the counters tell of it. Under the port's
 * lock. */
static __always_inline uint64_t take(const struct place *place, const struct frame *frame, uint64_t now_ns)
{
	uint64_t found = *place->backlog_bytes;
	uint64_t left = found > frame->bytes ? found - frame->bytes : 0;
	uint64_t freed = dlcp_aqm_taken_bytes(place->aqm, left, found - left);

	*place->backlog_bytes = left;
	place->port->beyond_bytes -= freed;
	if (!left && place->config->flags & DLCP_PORT_AVERAGES)
		dlcp_aqm_empty(&place->queue->average, now_ns);
	return freed;
}

/* Gives back to a switch's shared buffer, if it has one, what a frame took of it at one of its ports. */
static __always_inline void give_back(const struct dlcp_port_config *config, uint64_t freed)
{
	uint32_t owner = config->switch_index;
	uint64_t *used = config->flags & DLCP_PORT_SHARES ? bpf_map_lookup_elem(&shared, &owner) : 0;

	if (used)
		dlcp_aqm_give_shared(used, freed);
}

/* Takes a frame that has crossed a link out of the far end's egress queue; 0 when the link has lost it. */
static __always_inline int cross(uint32_t ingress, const struct frame *frame)
{
	struct place place;
	uint64_t freed;
	int severed;

	if (!find(ingress ^ 1, frame, &place))
		return 0;
	uint64_t now_ns = now_for(place.config);

	bpf_spin_lock(&place.port->lock);
	settle(&place);
	freed = take(&place, frame, now_ns);
	add(&place.counters->sent, 1, frame->bytes);
	severed = place.queue->doomed_packets || place.config->flags & DLCP_PORT_DOWN;
	if (severed)
		add(&place.counters->severed, 1, frame->bytes);
	if (place.queue->doomed_packets)
		place.queue->doomed_packets--;
	bpf_spin_unlock(&place.port->lock);
	give_back(place.config, freed);
	return !severed;
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

/* Of the next hops, the one that a flow keeps until it pauses, as a share of 2^32. */
static __always_inline uint32_t flowlet_draw(uint32_t hash, uint32_t switch_index, uint64_t gap_ns)
{
	uint32_t slot = switch_index * DLCP_FLOWLETS + (hash & (DLCP_FLOWLETS - 1));
	struct dlcp_flowlet *flowlet = bpf_map_lookup_elem(&flowlets, &slot);
	uint64_t now_ns = bpf_ktime_get_ns();

	if (!flowlet)
		return 0;
	if (now_ns > flowlet->last_ns + gap_ns) /* another processor may have stamped it later than this one */
		flowlet->draw = bpf_get_prandom_u32();
	flowlet->last_ns = now_ns;
	return flowlet->draw;
}

/* Counts a frame that a port drops; `at` is one of the counters of its place. */
static __always_inline void drop(const struct place *place, struct dlcp_tally *at, const struct frame *frame)
{
	bpf_spin_lock(&place->port->lock);
	add(at, 1, frame->bytes);
	bpf_spin_unlock(&place->port->lock);
}

/* Counts a frame that a port takes. Under the port's lock. */
static __always_inline void record(const struct place *place, const struct frame *frame)
{
	uint64_t found = *place->backlog_bytes;
	/* never above the buffer; the last bucket also takes a buffer filled to its last byte */
	uint64_t bucket = found * DLCP_HISTOGRAM_BUCKETS / (place->config->aqm.buffer_bytes | 1u);

	if (bucket >= DLCP_HISTOGRAM_BUCKETS)
		bucket = DLCP_HISTOGRAM_BUCKETS - 1;
	put(place, frame);
	place->queue->histogram[bucket]++;
	if (found + frame->bytes > place->queue->peak_bytes)
		place->queue->peak_bytes = found + frame->bytes;
}

/* Counts what a verdict says. Under the port's lock. */
static __always_inline void account(const struct place *place, const struct frame *frame, enum dlcp_aqm_verdict verdict)
{
	if (verdict == DLCP_AQM_DROP_TAIL)
		add(&place->counters->dropped_tail, 1, frame->bytes);
	else if (verdict == DLCP_AQM_DROP_SHARED)
		add(&place->counters->dropped_shared, 1, frame->bytes);
	else if (verdict == DLCP_AQM_DROP_WRED)
		add(&place->counters->dropped_wred, 1, frame->bytes);
	else
		record(place, frame);
}

/* Decides about a frame at an egress port of a switch and accounts for it; 1 = it may go there. */
static __always_inline int admit(struct __sk_buff *skb, uint32_t egress, const struct frame *frame,
				 uint32_t switch_index)
{
	struct dlcp_switch_config *config = bpf_map_lookup_elem(&switches, &switch_index);
	uint64_t *used = bpf_map_lookup_elem(&shared, &switch_index);
	struct place place;
	enum dlcp_aqm_verdict verdict;

	if (!find(egress, frame, &place) || !config || !used)
		return 0;
	if (place.config->flags & DLCP_PORT_DOWN) {
		drop(&place, &place.counters->dropped_down, frame);
		return 0;
	}
	if (place.config->loss_q32 && bpf_get_prandom_u32() < place.config->loss_q32) {
		drop(&place, &place.counters->dropped_loss, frame);
		return 0;
	}
	struct dlcp_aqm_arrival arrival = {
		.shared_free_bytes = DLCP_AQM_UNSHARED,
		.packet_bytes = frame->bytes,
		.precedence = frame->precedence,
		.ecn = frame->ecn,
		.random = bpf_get_prandom_u32(),
	};
	uint64_t now_ns = now_for(place.config);

	bpf_spin_lock(&place.port->lock);
	settle(&place);
	arrival.backlog_bytes = *place.backlog_bytes;
	arrival.judged_bytes = arrival.backlog_bytes;
	arrival.beyond_bytes = place.port->beyond_bytes;
	if (place.aqm->averaging)
		arrival.judged_bytes = dlcp_aqm_average(&place.queue->average, place.aqm->averaging,
							arrival.backlog_bytes, now_ns, place.config->frame_ns | 1u);
	if (config->shared_bytes) {
		uint64_t taken = *(volatile uint64_t *)used; /* others take and give meanwhile */

		arrival.shared_free_bytes = config->shared_bytes > taken ? config->shared_bytes - taken : 0;
	}
	verdict = dlcp_aqm_decide(place.aqm, place.config->aqm.common_bytes, &arrival);
	if (config->shared_bytes && verdict <= DLCP_AQM_ENQUEUE_MARKED &&
	    !dlcp_aqm_take_shared(used, config->shared_bytes,
				  dlcp_aqm_taken_bytes(place.aqm, arrival.backlog_bytes, frame->bytes)))
		verdict = DLCP_AQM_DROP_SHARED;
	account(&place, frame, verdict);
	bpf_spin_unlock(&place.port->lock);

	/* out of memory is the one reason why a mark fails: then the frame goes on unmarked and uncounted */
	if (verdict == DLCP_AQM_ENQUEUE_MARKED && frame->ecn != DLCP_ECN_CE && bpf_skb_ecn_set_ce(skb))
		add_unlocked(&place.counters->marked_ce, frame->bytes);
	return verdict <= DLCP_AQM_ENQUEUE_MARKED;
}

/* Takes back a frame that was admitted and that the port's device then did not take: the machine lost it, no rule of the
 * switch. So no counter says why, and the account shows what is missing; but it must not count as waiting for ever. */
static __always_inline void withdraw(uint32_t egress, const struct frame *frame)
{
	struct place place;
	uint64_t freed;

	if (!find(egress, frame, &place))
		return;
	uint64_t now_ns = now_for(place.config);

	bpf_spin_lock(&place.port->lock);
	freed = take(&place, frame, now_ns);
	add(&place.counters->enqueued, -1, -(uint64_t)frame->bytes);
	bpf_spin_unlock(&place.port->lock);
	give_back(place.config, freed);
}

#endif
