/* What the receiving half says of transmissions: which sequence numbers came, of whichever message. */
#include "protocol_internal.h"

#define SENDER_MEMORY_NS (2 * MILLISECOND)

/* Let an acknowledgement leave at `at_ns` at the latest. */
static void ack_soon(struct peer *peer, uint64_t at_ns)
{
	if (at_ns < peer->ack_at_ns)
		peer->ack_at_ns = at_ns;
}

_Static_assert(sizeof(unsigned __int128) == DLCP_ACK_BITMAP_BYTES, "a bitmap is one number");

/* Enter a sequence number not more than a bitmap behind the largest one, or far from it: then the bitmap begins anew.
 * True if it was not there. */
static bool enter(struct arrivals *arrivals, const struct dlcp_header *header, uint64_t received_ns)
{
	int32_t ahead = arrivals->any ? (int32_t)(header->sequence - arrivals->largest) : DLCP_ACK_WINDOW;
	unsigned __int128 bit;

	if (ahead > 0 || ahead <= -DLCP_ACK_WINDOW) {
		arrivals->seen = ahead > 0 && ahead < DLCP_ACK_WINDOW ? arrivals->seen << ahead : 0;
		arrivals->largest = header->sequence;
		arrivals->largest_received_ns = received_ns;
		arrivals->any = true;
	}
	arrivals->untold = true;
	bit = (unsigned __int128)1 << (arrivals->largest - header->sequence);
	if (arrivals->seen & bit)
		return false;
	arrivals->seen |= bit;
	return true;
}

/* DATA came from a peer: it is the latest of the senders, and counts. */
static void note_sender(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns)
{
	if (!peer->counted)
		protocol->counted_senders++;
	peer->counted = true;
	peer->data_ns = now_ns;
	if (protocol->sender_tail == peer) {
		if (!protocol->sender_first)
			protocol->sender_first = peer;
		return;
	}
	if (protocol->sender_first == peer)
		protocol->sender_first = peer->sender_next;
	if (peer->any_data) {
		*(peer->sender_prev ? &peer->sender_prev->sender_next : &protocol->sender_head) = peer->sender_next;
		peer->sender_next->sender_prev = peer->sender_prev; /* it is not the last */
	}
	peer->any_data = true;
	peer->sender_prev = protocol->sender_tail;
	peer->sender_next = NULL;
	*(peer->sender_prev ? &peer->sender_prev->sender_next : &protocol->sender_head) = peer;
	protocol->sender_tail = peer;
	if (!protocol->sender_first)
		protocol->sender_first = peer;
}

/* Enter a sequence number into what the next acknowledgements will say. */
void dlcp_on_sequence(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header, bool ce,
		      uint64_t received_ns, uint64_t now_ns)
{
	int32_t behind = (int32_t)(peer->newest.largest - header->sequence);
	bool overtaken = peer->newest.any && behind >= DLCP_ACK_WINDOW;

	if (enter(overtaken ? &peer->overtaken : &peer->newest, header, received_ns)) {
		peer->received++;
		peer->ce += ce;
	}
	if (header->type == DLCP_DATA) {
		note_sender(protocol, peer, now_ns);
	}
	peer->unacknowledged++;
	if (header->flags & DLCP_FLAG_ACK_NOW || header->type == DLCP_PROBE ||
	    peer->unacknowledged >= protocol->ack_every)
		ack_soon(peer, now_ns);
	else
		ack_soon(peer, now_ns + protocol->config.ack_delay_ns);
}

static void count_sender(struct dlcp_protocol *protocol, struct peer *peer, bool counts)
{
	protocol->counted_senders += counts ? 1 : -1;
	peer->counted = counts;
}

/* How many ranks send to this one: of each, data came not longer ago than its turn takes, twice, when all take turns on
 * a link like ours. That time grows with their number, so one that no longer counts may count again. */
static uint8_t count_senders(struct dlcp_protocol *protocol, uint64_t now_ns)
{
	uint64_t recent_ns = SENDER_MEMORY_NS + (uint64_t)(2 * protocol->packet_ns) * protocol->senders;
	struct peer *peer;

	for (peer = protocol->sender_first; peer && now_ns - peer->data_ns >= recent_ns; peer = peer->sender_next)
		count_sender(protocol, peer, false);
	protocol->sender_first = peer;
	peer = peer ? peer->sender_prev : protocol->sender_tail;
	for (; peer && now_ns - peer->data_ns < recent_ns; peer = peer->sender_prev) {
		count_sender(protocol, peer, true);
		protocol->sender_first = peer;
	}
	protocol->senders = protocol->counted_senders;
	return protocol->senders < UINT8_MAX ? (uint8_t)protocol->senders : UINT8_MAX;
}

/* Write an acknowledgement (DLCP_ACK_BYTES): first of what was overtaken; then another one follows for the newest. */
void dlcp_build_ack(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns, uint8_t *bytes)
{
	struct arrivals *arrivals = peer->overtaken.untold ? &peer->overtaken : &peer->newest;
	uint64_t held_ns = now_ns > arrivals->largest_received_ns ? now_ns - arrivals->largest_received_ns : 0;
	struct dlcp_ack ack = {
		.senders = count_senders(protocol, now_ns),
		.source = protocol->config.rank,
		.cookie = protocol->config.cookie,
		.largest = arrivals->largest,
		.delay_us = held_ns / MICROSECOND < UINT32_MAX ? (uint32_t)(held_ns / MICROSECOND) : UINT32_MAX,
		.received = peer->received,
		.ce = peer->ce,
		.overflow = protocol->overflow,
	};

	memcpy(ack.bitmap, &arrivals->seen, sizeof ack.bitmap); /* little-endian, as wire.h wants of hosts */
	dlcp_ack_encode(&ack, bytes);
	arrivals->untold = false;
	if (peer->newest.untold)
		return;
	peer->unacknowledged = 0;
	peer->ack_at_ns = NEVER;
}

_Static_assert(DLCP_NACK_PACKETS % 8 == 0, "each NACK's bitmap begins with a byte of the message's");
