// SPDX-License-Identifier: GPL-2.0-only
/* The emulated switch: what tc runs where a frame enters a switch or a host, and where it leaves a host.
 *
 * A switch port's egress queues are HTB classes; here stands everything that decides about a frame before it gets
 * there. Nothing behind this program may drop: the classes' own limits are far above the buffer that is enforced here.
 * Backlogs are counted, not asked for: a frame is enqueued here and dequeued when it enters the far end of the link.
 */
#include "switch_account.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct dlcp_route_key);
	__type(value, struct dlcp_route);
} routes SEC(".maps");

/* Packets that each route has sent in turn. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, uint64_t);
} turns SEC(".maps");

/* Which of a route's next hops a frame takes. */
static __always_inline uint32_t choose(struct __sk_buff *skb, const struct frame *frame, const struct dlcp_route *route,
				       const struct dlcp_switch_config *config, uint32_t switch_index)
{
	uint32_t draw;

	if (route->count < 2)
		return 0;
	if (config->load_balancing == DLCP_ROUND_ROBIN) {
		uint32_t turn = route->turn;
		uint64_t *sent = bpf_map_lookup_elem(&turns, &turn);

		return sent ? __sync_fetch_and_add(sent, 1) % route->count : 0;
	}
	if (config->load_balancing == DLCP_PER_PACKET) {
		draw = bpf_get_prandom_u32();
	} else {
		draw = flow_hash(skb, &frame->ip, config->seed);
		if (config->load_balancing == DLCP_FLOWLET)
			draw = flowlet_draw(draw, switch_index, config->flowlet_gap_ns);
	}
	return (uint64_t)draw * route->count >> 32;
}

/* The egress port of a frame; 0 when its destination is unknown. */
static __always_inline uint32_t route(struct __sk_buff *skb, const struct frame *frame, uint32_t switch_index)
{
	struct dlcp_route_key key = {.switch_index = switch_index, .destination = frame->ip.daddr};
	struct dlcp_route *found = bpf_map_lookup_elem(&routes, &key);
	struct dlcp_switch_config *config = bpf_map_lookup_elem(&switches, &switch_index);

	if (!found || !config)
		return 0;
	uint32_t choice = choose(skb, frame, found, config, switch_index);

	return found->ifindex[choice & (DLCP_MAX_NEXT_HOPS - 1)]; /* the mask is for the verifier */
}

/* Loses a random share of what comes from a host, at the port where it comes in: at the host's own end its sockets
 * would feel it. 1 = lost. */
static __always_inline int lose(uint32_t ingress, const struct frame *frame)
{
	uint32_t sender = ingress ^ 1;
	struct dlcp_port_config *config = bpf_map_lookup_elem(&ports, &sender);
	struct place place;

	if (!config || !config->loss_q32 || bpf_get_prandom_u32() >= config->loss_q32)
		return 0;
	if (find(ingress, frame, &place))
		drop(&place, &place.counters->dropped_loss, frame);
	return 1;
}

static __always_inline int is_filler(const struct __sk_buff *skb)
{
	return skb->protocol == bpf_htons(DLCP_FILLER_ETHERTYPE);
}

/* At every switch port. */
SEC("tc")
int switch_ingress(struct __sk_buff *skb)
{
	uint32_t ingress = skb->ifindex;
	struct dlcp_port_config *config = bpf_map_lookup_elem(&ports, &ingress);
	struct dlcp_port_state *port = bpf_map_lookup_elem(&state, &ingress);
	struct frame frame;

	if (!config || !port)
		return TC_ACT_SHOT;
	if (!parse(skb, &frame)) {
		if (!is_filler(skb))
			add_unlocked(&port->not_ipv4, skb->len);
		return TC_ACT_SHOT;
	}
	if (!cross(ingress, &frame))
		return TC_ACT_SHOT;
	if (config->flags & DLCP_PORT_HOST_FACING && lose(ingress, &frame))
		return TC_ACT_SHOT;
	uint32_t egress = route(skb, &frame, config->switch_index);

	if (!egress) {
		struct place place;

		if (find(ingress, &frame, &place))
			drop(&place, &place.counters->dropped_unrouted, &frame);
		return TC_ACT_SHOT;
	}
	if (!admit(skb, egress, &frame, config->switch_index))
		return TC_ACT_SHOT;
	skb->priority = HTB_CLASS_OF_QUEUE(frame.queue);
	if (config->flags & DLCP_PORT_HOST_FACING) {
		/* The frame is still charged to the sender's socket. A clone is not: without it a sender would feel the
		 * switch's queue as its own socket buffer and never lose a packet. */
		if (bpf_clone_redirect(skb, egress, 0))
			withdraw(egress, &frame);
		return TC_ACT_SHOT;
	}
	return bpf_redirect(egress, 0);
}

/* At the two inner ends of a link with a delay: what comes from one outer end goes on to the other, whose queue is the
 * delay. The four ends are 4k to 4k + 3, the inner ones in the middle. */
SEC("tc")
int wire_ingress(struct __sk_buff *skb)
{
	uint32_t onward = skb->ifindex ^ 3;
	struct frame frame;
	struct place place;

	if (!parse(skb, &frame))
		return bpf_redirect(onward, 0); /* the port behind counts it */
	if (!cross(skb->ifindex, &frame) || !find(onward, &frame, &place))
		return TC_ACT_SHOT;
	bpf_spin_lock(&place.port->lock);
	settle(&place);
	put(&place, &frame);
	bpf_spin_unlock(&place.port->lock);
	/* A clone, as at a host-facing port: a sender must not feel the delay as its own socket buffer. One that fails stays
	 * enqueued, for no switch's account would miss it; nothing here depends on the backlog. */
	bpf_clone_redirect(skb, onward, 0);
	return TC_ACT_SHOT;
}

/* At every host interface: nothing but the account of the switch port that leads here. */
SEC("tc")
int host_ingress(struct __sk_buff *skb)
{
	struct frame frame;

	if (parse(skb, &frame))
		return cross(skb->ifindex, &frame) ? TC_ACT_OK : TC_ACT_SHOT;
	return is_filler(skb) ? TC_ACT_SHOT : TC_ACT_OK;
}

/* At every host interface: its own queues, so that a host's control packets overtake its data. Its sockets feel
 * this queue as they would feel a real one, so nothing is dropped. */
SEC("tc")
int host_egress(struct __sk_buff *skb)
{
	struct frame frame;
	struct place place;

	if (!parse(skb, &frame) || !find(skb->ifindex, &frame, &place))
		return TC_ACT_OK;
	if (skb->gso_segs > 1) {
		/* the interface's qdisc cuts it into packets, each with its own headers */
		frame.packets = skb->gso_segs;
		frame.bytes = skb->wire_len;
	}
	bpf_spin_lock(&place.port->lock);
	settle(&place);
	put(&place, &frame);
	bpf_spin_unlock(&place.port->lock);
	skb->priority = HTB_CLASS_OF_QUEUE(frame.queue);
	return TC_ACT_OK;
}

char program_license[] SEC("license") = "GPL";

/* so that a rebuild can be compared byte by byte with the same compiler's */
const char compiled_by[] SEC("compiler") = __VERSION__;
