// SPDX-License-Identifier: GPL-2.0-only
/* A Linux box as a switch: what tc runs at the ports of a machine that routes.
 *
 * The kernel forwards, by its own routes. As a frame is to leave by a port, it is decided about and redirected into an
 * inner veth pair, whose first end has the port's queues (HTB); the second end counts it out of its queue and hands it
 * to the port, where it goes on as if nothing had been. An inner pair's interface indexes are 2k (the queues) and
 * 2k + 1, so the account is that of the emulated switch's links.
 *
 * What is not IPv4 passes the queues by, and so does all that is for the box itself.
 */
#include "switch_account.h"

#include "box_maps.h"

#define ADDRESS_FAMILY_IPV4 2 /* AF_INET of <sys/socket.h>, which is not for freestanding programs */

/* Next hops that the kernel is asked for at once when nothing is known of a destination: with two, one stays unmet in
 * 1 of 128 cases, and the next rounds find it. */
#define FIRST_DRAWS 8

/* One packet in so many also asks for a next hop at random, to meet those that are not known. */
#define EXPLORE_EVERY 16u

/* One packet in so many is given to the kernel to send: looking a neighbour up does not keep it alive, this does. */
#define CONFIRM_EVERY 1024u

/* In tc_index, which nothing else in a router uses: its next hop has been chosen. */
#define CHOSEN 0x2d1c

/* A port → the inner end with its queues; an inner pair's far end → its port. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, uint32_t);
} ends SEC(".maps");

/* For round robin, by destination (IPv4, network byte order). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct dlcp_box_turns);
} box_turns SEC(".maps");

static const struct dlcp_box_turns nothing_known;

/* Asks the kernel where a frame may go next; a draw chooses among equal next hops as the ports of a flow do
 * (net.ipv4.fib_multipath_hash_policy = 1). 1 = hop says where, and *resolved whether its MAC addresses are known. */
static __always_inline int ask(struct __sk_buff *skb, const struct frame *frame, uint32_t draw,
			       struct bpf_fib_lookup *hop, int *resolved)
{
	*hop = (struct bpf_fib_lookup){
		.family = ADDRESS_FAMILY_IPV4,
		.l4_protocol = frame->ip.protocol,
		.sport = draw >> 16,
		.dport = draw & 0xffffu,
		.ifindex = skb->ingress_ifindex,
		.tos = frame->ip.tos,
		.ipv4_src = frame->ip.saddr,
		.ipv4_dst = frame->ip.daddr,
	};
	long answer = bpf_fib_lookup(skb, hop, sizeof(*hop), 0);

	*resolved = answer == BPF_FIB_LKUP_RET_SUCCESS;
	return *resolved || answer == BPF_FIB_LKUP_RET_NO_NEIGH;
}

/* Adds a next hop to those of a destination, unless it is among them. */
static __always_inline void learn(struct dlcp_box_turns *turns, const struct bpf_fib_lookup *hop, uint32_t draw)
{
	uint32_t count = *(volatile uint32_t *)&turns->count;

	for (uint32_t i = 0; i < DLCP_MAX_NEXT_HOPS; i++) {
		if (i >= count)
			break;
		if (turns->hops[i].ifindex == hop->ifindex && turns->hops[i].gateway == hop->ipv4_dst)
			return;
	}
	/* who has changed the count meanwhile may have added the same */
	if (count >= DLCP_MAX_NEXT_HOPS || __sync_val_compare_and_swap(&turns->count, count, count + 1) != count)
		return;
	turns->hops[count & (DLCP_MAX_NEXT_HOPS - 1)] = (struct dlcp_box_hop){
		.ifindex = hop->ifindex,
		.gateway = hop->ipv4_dst,
		.draw = draw,
	};
}

/* The next hop whose turn it is. The kernel tells one next hop for one draw, so they are learned one by one, each with a
 * draw that leads to it; a draw that leads elsewhere says that the routes have changed. */
static __always_inline int in_turn(struct __sk_buff *skb, const struct frame *frame, struct bpf_fib_lookup *hop,
				   int *resolved)
{
	uint32_t destination = frame->ip.daddr;
	struct dlcp_box_turns *turns = bpf_map_lookup_elem(&box_turns, &destination);

	if (!turns) {
		bpf_map_update_elem(&box_turns, &destination, &nothing_known, BPF_NOEXIST);
		turns = bpf_map_lookup_elem(&box_turns, &destination);
	}
	if (!turns)
		return 0;
	uint32_t turn = __sync_fetch_and_add(&turns->turn, 1);
	uint32_t draws = !turns->count ? FIRST_DRAWS : turn % EXPLORE_EVERY == 0;

	for (uint32_t i = 0; i < FIRST_DRAWS; i++) {
		uint32_t draw = bpf_get_prandom_u32();

		if (i >= draws)
			break;
		if (ask(skb, frame, draw, hop, resolved))
			learn(turns, hop, draw);
	}
	uint32_t count = *(volatile uint32_t *)&turns->count;

	if (!count)
		return 0;
	const struct dlcp_box_hop *next = &turns->hops[turn % count & (DLCP_MAX_NEXT_HOPS - 1)];
	uint32_t ifindex = next->ifindex, gateway = next->gateway;

	if (!ask(skb, frame, next->draw, hop, resolved))
		return 0;
	if (hop->ifindex != ifindex || hop->ipv4_dst != gateway)
		turns->count = 0;
	return 1;
}

/* The next hop that the switch's load balancing chooses; 0 = the kernel's stays. */
static __always_inline int choose(struct __sk_buff *skb, const struct frame *frame,
				  const struct dlcp_switch_config *config, struct bpf_fib_lookup *hop, int *resolved)
{
	if (config->load_balancing == DLCP_ROUND_ROBIN)
		return in_turn(skb, frame, hop, resolved);
	uint32_t draw = bpf_get_prandom_u32();

	if (config->load_balancing == DLCP_FLOWLET)
		draw = flowlet_draw(flow_hash(skb, &frame->ip, config->seed), 0, config->flowlet_gap_ns);
	return ask(skb, frame, draw, hop, resolved);
}

/* Sends a frame to another next hop than the kernel's. Returns the inner end of the port where it is to queue, or 0
 * when the kernel has been asked to send it (*verdict): it comes back at that port with its MAC addresses. */
static __always_inline uint32_t spray(struct __sk_buff *skb, const struct frame *frame, uint32_t inner,
				      const struct dlcp_switch_config *config, int *verdict)
{
	struct bpf_fib_lookup hop;
	int resolved = 0;

	if (skb->tc_index == CHOSEN) {
		skb->tc_index = 0;
		return inner;
	}
	if (!choose(skb, frame, config, &hop, &resolved))
		return inner;
	uint32_t port = hop.ifindex;
	uint32_t *chosen = bpf_map_lookup_elem(&ends, &port);

	if (!chosen) /* leads to where no queue of ours is */
		return inner;
	if (!resolved || bpf_get_prandom_u32() % CONFIRM_EVERY == 0) {
		/* Without naming the neighbour: then the kernel looks up a route of that port for the frame. With the old one it
		 * would send a frame that has waited for the neighbour to the neighbour of the old one. */
		skb->tc_index = CHOSEN;
		*verdict = bpf_redirect_neigh(port, 0, 0, 0);
		return 0;
	}
	uint8_t addresses[2 * ETH_ALEN];

	__builtin_memcpy(addresses, hop.dmac, ETH_ALEN);
	__builtin_memcpy(addresses + ETH_ALEN, hop.smac, ETH_ALEN);
	if (bpf_skb_store_bytes(skb, 0, addresses, sizeof(addresses), 0))
		return inner;
	return *chosen;
}

/* What software segmentation will make of a super-packet: the box's own sockets make them, ports do not. One that is
 * dropped counts as one packet. */
static __always_inline void measure(const struct __sk_buff *skb, struct frame *frame)
{
	if (skb->gso_segs > 1) {
		frame->packets = skb->gso_segs;
		frame->bytes = skb->wire_len;
	}
}

/* Where frames come in at a port: counts them as sent by the far end of the inner pair, which sends nothing itself. */
SEC("tc")
int box_ingress(struct __sk_buff *skb)
{
	uint32_t own = skb->ifindex;
	uint32_t *inner = bpf_map_lookup_elem(&ends, &own);
	struct frame frame;
	struct place place;

	if (!inner)
		return TC_ACT_UNSPEC;
	if (!parse(skb, &frame)) {
		uint32_t at = *inner;
		struct dlcp_port_state *port = bpf_map_lookup_elem(&state, &at);

		if (port)
			add_unlocked(&port->not_ipv4, skb->len);
		return TC_ACT_UNSPEC;
	}
	measure(skb, &frame);
	if (find(*inner ^ 1, &frame, &place)) {
		bpf_spin_lock(&place.port->lock);
		add(&place.counters->sent, frame.packets, frame.bytes);
		bpf_spin_unlock(&place.port->lock);
	}
	return TC_ACT_UNSPEC;
}

/* Where frames are to leave by a port. */
SEC("tc")
int box_egress(struct __sk_buff *skb)
{
	uint32_t own = skb->ifindex;
	uint32_t *found = bpf_map_lookup_elem(&ends, &own);
	uint32_t only = 0;
	struct dlcp_switch_config *config = bpf_map_lookup_elem(&switches, &only);
	struct frame frame;

	if (!found || !config)
		return TC_ACT_UNSPEC;
	uint32_t inner = *found;

	if (skb->ingress_ifindex == (inner ^ 1)) /* has been through its queue */
		return TC_ACT_UNSPEC;
	if (!parse(skb, &frame))
		return TC_ACT_UNSPEC;
	measure(skb, &frame);
	if (config->load_balancing != DLCP_FLOW_HASH && skb->ingress_ifindex) {
		int verdict = TC_ACT_SHOT;

		inner = spray(skb, &frame, inner, config, &verdict);
		if (!inner)
			return verdict;
	}
	if (!admit(skb, inner, &frame, 0))
		return TC_ACT_SHOT;
	skb->priority = HTB_CLASS_OF_QUEUE(frame.queue);
	return bpf_redirect(inner, 0);
}

/* At the far end of an inner pair: out of the queue, and out of the port. */
SEC("tc")
int box_out(struct __sk_buff *skb)
{
	uint32_t own = skb->ifindex;
	uint32_t *port = bpf_map_lookup_elem(&ends, &own);
	struct frame frame;

	if (!port || !parse(skb, &frame) || !cross(own, &frame))
		return TC_ACT_SHOT;
	skb->priority = frame.queue; /* of the same meaning to a port that maps priorities to its own classes */
	return bpf_redirect(*port, 0);
}

char program_license[] SEC("license") = "GPL";

/* so that a rebuild can be compared byte by byte with the same compiler's */
const char compiled_by[] SEC("compiler") = __VERSION__;
