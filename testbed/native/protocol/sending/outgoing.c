/* A message on its way out: its packets' states and counts, and its place in its lane. Who changes them is elsewhere. */
#include "outgoing.h"

#include <stdlib.h>

#include "timeouts.h"

struct outgoing *dlcp_outgoing_find(const struct dlcp_protocol *protocol, uint16_t peer, const struct dlcp_key *key)
{
	return (struct outgoing *)dlcp_table_find(&protocol->outgoing, peer, key);
}

void dlcp_outgoing_free(struct outgoing *message)
{
	free(message->tags.order);
	free(message->finished);
	free(message);
}

/* Into its peer's list of its queue, by age. */
void dlcp_outgoing_list(struct peer *peer, struct outgoing *message, uint64_t now_ns)
{
	uint8_t queue = message->progress.queue;
	struct lane *lane = peer->sending.lanes[queue];
	struct outgoing *before = lane->tail;

	while (before && before->id > message->id)
		before = before->prev;
	message->prev = before;
	message->next = before ? before->next : lane->head;
	*(message->prev ? &message->prev->next : &lane->head) = message;
	*(message->next ? &message->next->prev : &lane->tail) = message;
	message->listed = true;
	if (!before && !message->next && lane->srtt_ns && now_ns - lane->idle_since_ns > 2 * lane->srtt_ns &&
	    (lane->control == lane->congestion_state || !peer->sending.active))
		peer->sending.congestion->on_restart(lane->control);
	peer->sending.active |= 1u << queue;
}

void dlcp_outgoing_unlist(struct peer *peer, struct outgoing *message, uint64_t now_ns)
{
	uint8_t queue = message->progress.queue;
	struct lane *lane = peer->sending.lanes[queue];

	*(message->prev ? &message->prev->next : &lane->head) = message->next;
	*(message->next ? &message->next->prev : &lane->tail) = message->prev;
	message->listed = false;
	if (!lane->head) {
		peer->sending.active &= ~(1u << queue);
		lane->idle_since_ns = now_ns;
	}
}

/* Bytes of a message were sent: it may have to travel lower from here on. R44. */
void dlcp_demote(struct dlcp_protocol *protocol, struct peer *peer, struct outgoing *message, uint64_t now_ns)
{
	uint8_t queue = protocol->tensors[message->entry.key.tensor].shape.queue;

	for (uint32_t i = 0; i < DLCP_DEMOTIONS && protocol->config.demote_after_bytes[i] && queue; i++)
		queue -= message->progress.sent_bytes >= protocol->config.demote_after_bytes[i];
	if (queue == message->progress.queue)
		return;
	if (message->listed)
		dlcp_outgoing_unlist(peer, message, now_ns);
	message->progress.queue = queue;
}

/* A packet of a bounded message that must arrive all the same. */
static bool must_arrive(const struct outgoing *message, uint32_t packet)
{
	return message->tags.must_arrive && message->tags.class[packet] == CLASS_RELIABLE;
}

/* Where a packet is listed while it is lost. */
static uint32_t lost_list(const struct outgoing *message, uint32_t packet)
{
	return must_arrive(message, packet) ? LOST_LISTS - 1 : message->tags.magnitude[packet];
}

static void list_lost(struct outgoing *message, uint32_t packet)
{
	uint32_t among = lost_list(message, packet), next = message->packets.lost_head[among];

	message->packets.lost_next[packet] = next;
	message->packets.lost_previous[packet] = NONE;
	if (next != NONE)
		message->packets.lost_previous[next] = packet;
	message->packets.lost_head[among] = packet;
	if (message->packets.lost_top < among)
		message->packets.lost_top = among;
}

static void unlist_lost(struct outgoing *message, uint32_t packet)
{
	uint32_t next = message->packets.lost_next[packet], previous = message->packets.lost_previous[packet];

	if (next != NONE)
		message->packets.lost_previous[next] = previous;
	if (previous != NONE)
		message->packets.lost_next[previous] = next;
	else
		message->packets.lost_head[lost_list(message, packet)] = next;
}

/* The lost packet that matters most: one that must arrive, else of the largest magnitude. NONE when none is lost. R58. */
uint32_t dlcp_largest_lost(struct outgoing *message)
{
	while (message->packets.lost_top && message->packets.lost_head[message->packets.lost_top] == NONE)
		message->packets.lost_top--;
	return message->packets.lost_head[message->packets.lost_top];
}

/* Move a packet to another state and keep the counts. */
void dlcp_set_state(struct outgoing *message, uint32_t packet, uint8_t state)
{
	uint8_t *at = &message->packets.state[packet];
	uint32_t elements = dlcp_packet_elements(message->elements, message->dtype, packet);
	uint64_t bytes = (uint64_t)elements * dlcp_element_bytes(message->dtype);
	double energy = elements * dlcp_code_energy(message->tags.magnitude[packet]);
	bool must = must_arrive(message, packet);

	message->packets.in_flight -= *at == IN_FLIGHT;
	message->packets.arrived -= *at == ARRIVED;
	if (*at == LOST) {
		message->packets.lost--;
		message->packets.lost_bytes -= bytes;
		message->packets.lost_energy -= energy;
		if (!message->packets.lost)
			message->packets.lost_energy = 0; /* sums leave crumbs */
		message->packets.must_lost -= must;
		unlist_lost(message, packet);
	}
	*at = state;
	message->packets.in_flight += state == IN_FLIGHT;
	message->packets.arrived += state == ARRIVED;
	if (state == LOST) {
		message->packets.lost++;
		message->packets.lost_bytes += bytes;
		message->packets.lost_energy += energy;
		message->packets.must_lost += must;
		list_lost(message, packet);
	}
}

/* After packets changed their state: is there something to send, and is DONE due? R59. */
void dlcp_outgoing_changed(struct dlcp_protocol *protocol, struct outgoing *message, uint64_t now_ns)
{
	struct peer *peer = dlcp_peer(protocol, message->entry.peer);
	bool sendable = dlcp_has_packets(message);

	if (sendable && !message->listed)
		dlcp_outgoing_list(peer, message, now_ns);
	else if (!sendable && message->listed)
		dlcp_outgoing_unlist(peer, message, now_ns);
	if (sendable || message->packets.in_flight) {
		message->asking.done_at_ns = NEVER;
		message->asking.done_tries = 0;
		return;
	}
	/* Everything arrived or is known to be lost. With losses the receiver cannot know that this was all: ask at
	 * once. Without, its STOP is on the way: ask only when that is overdue. */
	if (message->asking.done_at_ns == NEVER)
		message->asking.done_at_ns = message->packets.lost ? now_ns : now_ns + dlcp_timeout(protocol, peer, 0);
	else if (message->packets.lost && !message->asking.done_tries)
		message->asking.done_at_ns = now_ns;
	if (message->asking.done_at_ns < peer->sending.done_hint_ns)
		peer->sending.done_hint_ns = message->asking.done_at_ns;
}
