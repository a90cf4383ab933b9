/* What the receiving half says of transmissions: which sequence numbers came, of whichever message. */
#include "acknowledge.h"

#define SENDER_MEMORY_NS (2 * MILLISECOND)

/* Let an acknowledgement leave at `at_ns` at the latest. */
static void ack_soon(struct peer *peer, uint64_t at_ns)
{
	if (at_ns < peer->receiving.ack_at_ns)
		peer->receiving.ack_at_ns = at_ns;
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

static void unlink_sender(struct senders *senders, struct peer *peer)
{
	struct peer *before = peer->receiving.sender_prev, *behind = peer->receiving.sender_next;

	if (senders->first == peer)
		senders->first = behind;
	*(before ? &before->receiving.sender_next : &senders->head) = behind;
	*(behind ? &behind->receiving.sender_prev : &senders->tail) = before;
}

static void append_sender(struct senders *senders, struct peer *peer)
{
	peer->receiving.sender_prev = senders->tail;
	peer->receiving.sender_next = NULL;
	*(senders->tail ? &senders->tail->receiving.sender_next : &senders->head) = peer;
	senders->tail = peer;
	if (!senders->first)
		senders->first = peer;
}

static void count_sender(struct senders *senders, struct peer *peer, bool counts)
{
	if (counts && !peer->receiving.counted)
		senders->counted++;
	else if (!counts && peer->receiving.counted)
		senders->counted--;
	peer->receiving.counted = counts;
}

/* DATA came from a peer: it is the latest of the senders, and counts. */
static void note_sender(struct senders *senders, struct peer *peer, uint64_t now_ns)
{
	if (peer->receiving.any_data)
		unlink_sender(senders, peer);
	append_sender(senders, peer);
	count_sender(senders, peer, true);
	peer->receiving.any_data = true;
	peer->receiving.data_ns = now_ns;
}

/* Enter a sequence number into what the next acknowledgements will say. R13, R18, R19, R20. */
void dlcp_on_sequence(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header, bool ce,
		      uint64_t received_ns, uint64_t now_ns)
{
	int32_t behind = (int32_t)(peer->receiving.newest.largest - header->sequence);
	bool overtaken = peer->receiving.newest.any && behind >= DLCP_ACK_WINDOW;

	if (enter(overtaken ? &peer->receiving.overtaken : &peer->receiving.newest, header, received_ns)) {
		peer->receiving.received++;
		peer->receiving.ce += ce;
	}
	if (header->type == DLCP_DATA) {
		note_sender(&protocol->senders, peer, now_ns);
	}
	peer->receiving.unacknowledged++;
	if (header->flags & DLCP_FLAG_ACK_NOW || header->type == DLCP_PROBE ||
	    peer->receiving.unacknowledged >= protocol->ack_every)
		ack_soon(peer, now_ns);
	else
		ack_soon(peer, now_ns + protocol->config.ack_delay_ns);
}

/* How many ranks send to this one: of each, data came not longer ago than its turn takes, twice, when all take turns on
 * a link like ours. That time grows with their number, so one that no longer counts may count again. R22. */
static uint8_t count_senders(struct dlcp_protocol *protocol, uint64_t now_ns)
{
	struct senders *senders = &protocol->senders;
	uint64_t recent_ns = SENDER_MEMORY_NS + (uint64_t)(2 * protocol->packet_ns) * senders->told;
	struct peer *before;

	while (senders->first && now_ns - senders->first->receiving.data_ns >= recent_ns) {
		count_sender(senders, senders->first, false);
		senders->first = senders->first->receiving.sender_next;
	}
	while ((before = senders->first ? senders->first->receiving.sender_prev : senders->tail) &&
	       now_ns - before->receiving.data_ns < recent_ns) {
		count_sender(senders, before, true);
		senders->first = before;
	}
	senders->told = senders->counted;
	return senders->told < UINT8_MAX ? (uint8_t)senders->told : UINT8_MAX;
}

/* Write an acknowledgement (DLCP_ACK_BYTES): first of what was overtaken; then another one follows for the newest.
 * R13, R107. */
void dlcp_build_ack(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns, uint8_t *bytes)
{
	struct arrivals *arrivals = peer->receiving.overtaken.untold ? &peer->receiving.overtaken : &peer->receiving.newest;
	uint64_t held_ns = now_ns > arrivals->largest_received_ns ? now_ns - arrivals->largest_received_ns : 0;
	struct dlcp_ack ack = {
		.senders = count_senders(protocol, now_ns),
		.source = protocol->config.rank,
		.cookie = protocol->config.cookie,
		.largest = arrivals->largest,
		.delay_us = held_ns / MICROSECOND < UINT32_MAX ? (uint32_t)(held_ns / MICROSECOND) : UINT32_MAX,
		.received = peer->receiving.received,
		.ce = peer->receiving.ce,
		.overflow = protocol->overflow,
	};

	memcpy(ack.bitmap, &arrivals->seen, sizeof ack.bitmap); /* little-endian, as wire.h wants of hosts */
	dlcp_ack_encode(&ack, bytes);
	arrivals->untold = false;
	if (peer->receiving.newest.untold)
		return;
	peer->receiving.unacknowledged = 0;
	peer->receiving.ack_at_ns = NEVER;
}

_Static_assert(DLCP_NACK_PACKETS % 8 == 0, "each NACK's bitmap begins with a byte of the message's");
