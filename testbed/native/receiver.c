/* The receiving half: placement by offset, acknowledgements, and the verdict on DONE. */
#include <stdlib.h>

#include "protocol_internal.h"

#define SENDER_MEMORY_NS (2 * MILLISECOND)

struct incoming *dlcp_incoming_find(const struct dlcp_protocol *protocol, uint16_t peer, const struct dlcp_key *key)
{
	struct incoming *message = protocol->incoming[dlcp_bucket(peer, key)];

	while (message && (message->peer != peer || !dlcp_same_key(&message->key, key)))
		message = message->hash_next;
	return message;
}

static uint64_t age(const struct dlcp_key *key)
{
	return ((uint64_t)key->iteration << 16 | key->step) + 1;
}

/* A recycled message with room for so many packets, or NULL. */
static struct incoming *take(struct dlcp_protocol *protocol, uint32_t packets)
{
	struct incoming *message = protocol->free_incoming;
	size_t words = ((size_t)packets + 63) / 64;

	if (message)
		protocol->free_incoming = message->hash_next;
	else
		message = calloc(1, sizeof *message);
	if (!message)
		return NULL;
	if (message->capacity < packets) {
		free(message->bitmap);
		message->bitmap = malloc(words * sizeof *message->bitmap);
		message->capacity = message->bitmap ? packets : 0;
	}
	message->finished = message->bitmap ? dlcp_take_completion(protocol) : NULL;
	if (!message->finished) {
		message->hash_next = protocol->free_incoming;
		protocol->free_incoming = message;
		return NULL;
	}
	memset(message->bitmap, 0, words * sizeof *message->bitmap);
	return message;
}

void dlcp_incoming_free(struct incoming *message)
{
	free(message->bitmap);
	free(message->finished);
	free(message);
}

int dlcp_protocol_receive(struct dlcp_protocol *protocol, uint16_t rank, const struct dlcp_key *key, float *buffer,
			  uint32_t elements, uint64_t now_ns)
{
	struct peer *peer = rank < DLCP_MAX_RANKS ? protocol->peers[rank] : NULL;
	const struct tensor *tensor = &protocol->tensors[key->tensor];
	struct incoming *message;
	uint32_t bucket;

	if (!peer || key->leg >= DLCP_LEGS || !tensor->declared || elements != tensor->shape.elements)
		return dlcp_fail(protocol, DLCP_ERROR_ARGUMENT,
				 "receive from rank %u: unknown rank, leg, or tensor %u with %u elements", rank,
				 key->tensor, elements);
	if (peer->gone) {
		dlcp_protocol_gone(protocol); /* its sentence */
		return DLCP_ERROR_PEER_GONE;
	}
	if (dlcp_incoming_find(protocol, rank, key) ||
	    age(key) <= peer->finished[(uint32_t)key->tensor * DLCP_LEGS + key->leg])
		return dlcp_fail(protocol, DLCP_ERROR_DUPLICATE,
				 "receive from rank %u: tensor %u of iteration %u is expected already, or is over",
				 rank, key->tensor, key->iteration);
	message = take(protocol, dlcp_packets_of(elements));
	if (!message)
		return dlcp_fail(protocol, DLCP_ERROR_MEMORY, "no memory for a message of %u elements", elements);
	message->peer = rank;
	message->key = *key;
	message->buffer = buffer;
	message->elements = elements;
	message->packets = dlcp_packets_of(elements);
	message->arrived = 0;
	message->delivered_bytes = 0;
	message->needed_bytes = (uint64_t)elements * 4 - dlcp_allowed_bytes(&tensor->shape, key->leg);
	message->start_ns = now_ns;
	message->pass_over = false;
	memset(buffer, 0, (size_t)elements * 4);

	bucket = dlcp_bucket(rank, key);
	message->hash_next = protocol->incoming[bucket];
	protocol->incoming[bucket] = message;
	if (!peer->expected_head && !peer->waiting_head)
		peer->owed_since_ns = now_ns;
	message->next = NULL;
	message->prev = peer->expected_tail;
	*(peer->expected_tail ? &peer->expected_tail->next : &peer->expected_head) = message;
	peer->expected_tail = message;
	protocol->receiving++;
	return DLCP_OK;
}

static void unlink_incoming(struct dlcp_protocol *protocol, struct peer *peer, struct incoming *message)
{
	struct incoming **at = &protocol->incoming[dlcp_bucket(message->peer, &message->key)];

	while (*at != message)
		at = &(*at)->hash_next;
	*at = message->hash_next;
	*(message->prev ? &message->prev->next : &peer->expected_head) = message->next;
	*(message->next ? &message->next->prev : &peer->expected_tail) = message->prev;
	message->hash_next = protocol->free_incoming;
	protocol->free_incoming = message;
	protocol->receiving--;
}

static void push_stop(struct dlcp_protocol *protocol, uint16_t peer, const struct dlcp_key *key, uint64_t delivered)
{
	dlcp_control_push(protocol, &(struct control){
					    .kind = CONTROL_STOP,
					    .peer = peer,
					    .key = *key,
					    .delivered_bytes = delivered,
				    });
}

/* The message is over: tell the sender, remember it, hand the completion out. */
static void finish(struct dlcp_protocol *protocol, struct peer *peer, struct incoming *message, uint64_t now_ns)
{
	uint64_t *newest = &peer->finished[(uint32_t)message->key.tensor * DLCP_LEGS + message->key.leg];
	uint64_t bytes = (uint64_t)message->elements * 4;

	push_stop(protocol, message->peer, &message->key, message->delivered_bytes);
	if (*newest < age(&message->key))
		*newest = age(&message->key);
	message->finished->completion = (struct dlcp_completion){
		.key = message->key,
		.peer = message->peer,
		.received = 1,
		.bytes = bytes,
		.delivered_bytes = message->delivered_bytes,
		.lost_bytes = bytes - message->delivered_bytes,
		.start_ns = message->start_ns,
		.end_ns = now_ns,
	};
	protocol->statistics.messages_received++;
	protocol->statistics.lost_bytes += bytes - message->delivered_bytes;
	dlcp_complete(protocol, message->finished);
	message->finished = NULL;
	unlink_incoming(protocol, peer, message);
}

/* Everything is there, or the bound is met and the sender's first pass is known to be over (or need not be). */
static bool satisfied(const struct dlcp_protocol *protocol, const struct incoming *message)
{
	if (message->arrived == message->packets)
		return true;
	return (message->pass_over || protocol->config.eager_stop) &&
	       message->delivered_bytes >= message->needed_bytes;
}

/* Data of a message that is not expected: over, or not registered yet. Never written anywhere. */
static void refuse(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		   const struct dlcp_key *key)
{
	if (age(key) > peer->finished[(uint32_t)key->tensor * DLCP_LEGS + key->leg]) {
		protocol->statistics.packets_unregistered++;
		return;
	}
	protocol->statistics.packets_late++;
	if (header->flags & DLCP_FLAG_ACK_NOW) /* the STOP may be lost: a sender that is still busy hears it again */
		push_stop(protocol, peer->rank, key, 0);
}

/* A DATA packet whose header is sound and whose payload has header->count elements. */
void dlcp_on_data(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const uint8_t *payload, uint64_t now_ns)
{
	struct dlcp_key key = dlcp_header_key(header);
	const struct tensor *tensor = &protocol->tensors[key.tensor];
	struct incoming *message;
	uint32_t packet = header->offset / DLCP_PACKET_ELEMENTS;
	uint64_t bit = UINT64_C(1) << (packet % 64);

	protocol->statistics.data_packets_received++;
	protocol->statistics.data_bytes_received += (uint64_t)header->count * 4;
	if (!tensor->declared) {
		protocol->statistics.packets_unregistered++;
		return;
	}
	if (header->offset % DLCP_PACKET_ELEMENTS || header->offset >= tensor->shape.elements ||
	    header->count != dlcp_packet_elements(tensor->shape.elements, packet)) {
		protocol->statistics.packets_malformed++;
		return;
	}
	message = dlcp_incoming_find(protocol, peer->rank, &key);
	if (!message) {
		refuse(protocol, peer, header, &key);
		return;
	}
	if (message->bitmap[packet / 64] & bit) {
		protocol->statistics.packets_duplicate++;
		return;
	}
	message->bitmap[packet / 64] |= bit;
	memcpy(message->buffer + header->offset, payload, (size_t)header->count * 4);
	message->arrived++;
	message->delivered_bytes += (uint64_t)header->count * 4;
	if (satisfied(protocol, message))
		finish(protocol, peer, message, now_ns);
}

/* The sender's pass is over: STOP, or tell it what is missing, or that it is early. */
void dlcp_on_done(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const uint8_t *bytes, uint64_t now_ns)
{
	struct dlcp_key key = dlcp_header_key(header);
	struct incoming *message = dlcp_incoming_find(protocol, peer->rank, &key);
	struct control answer = { .peer = peer->rank, .key = key, .round = dlcp_get32(bytes + 36) };

	if (message && dlcp_get32(bytes + 32) != message->packets) {
		protocol->statistics.packets_malformed++;
		return;
	}
	if (message) {
		message->pass_over = true;
		if (satisfied(protocol, message)) {
			finish(protocol, peer, message, now_ns);
			return;
		}
		answer.kind = CONTROL_NACK;
	} else if (protocol->tensors[key.tensor].declared &&
		   age(&key) <= peer->finished[(uint32_t)key.tensor * DLCP_LEGS + key.leg]) {
		answer.kind = CONTROL_STOP;
	} else {
		answer.kind = CONTROL_WAIT;
	}
	dlcp_control_push(protocol, &answer);
}

/* Let an acknowledgement leave at `at_ns` at the latest. */
void dlcp_ack_soon(struct dlcp_protocol *protocol, struct peer *peer, uint64_t at_ns)
{
	(void)protocol;
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
		arrivals->largest_sent_us = header->sent_us;
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
		peer->data_ns = now_ns;
		peer->any_data = true;
	}
	peer->unacknowledged++;
	if (header->flags & DLCP_FLAG_ACK_NOW || header->type == DLCP_PROBE || peer->unacknowledged >= protocol->ack_every)
		dlcp_ack_soon(protocol, peer, now_ns);
	else
		dlcp_ack_soon(protocol, peer, now_ns + protocol->config.ack_delay_ns);
}

/* How many ranks send to this one: of each, data came not longer ago than its turn takes, twice, when all take turns on
 * a link like ours. */
static uint8_t count_senders(struct dlcp_protocol *protocol, uint64_t now_ns)
{
	uint64_t recent_ns = SENDER_MEMORY_NS + (uint64_t)(2 * protocol->packet_ns) * protocol->senders;

	protocol->senders = 0;
	for (uint32_t i = 0; i < protocol->peer_count; i++) {
		const struct peer *peer = protocol->peers[protocol->ranks[i]];

		protocol->senders += peer->any_data && now_ns - peer->data_ns < recent_ns;
	}
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
		.echo_us = arrivals->largest_sent_us,
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

/* Write a NACK that begins at control->first; the rest of a message that needs more than one is pushed again.
 * Returns its length, or 0 when the message has ended meanwhile (then a STOP is on its way). */
size_t dlcp_build_nack(struct dlcp_protocol *protocol, const struct control *control, struct dlcp_header *header,
		       uint8_t *bytes)
{
	struct incoming *message = dlcp_incoming_find(protocol, control->peer, &control->key);
	struct dlcp_nack nack = { .first = control->first, .round = control->round };
	size_t size;

	if (!message || control->first >= message->packets)
		return 0;
	nack.packets = message->packets - control->first;
	if (nack.packets > DLCP_NACK_PACKETS) {
		struct control rest = *control;

		nack.packets = DLCP_NACK_PACKETS;
		rest.first += DLCP_NACK_PACKETS;
		dlcp_control_push(protocol, &rest);
	}
	dlcp_header_encode(header, bytes);
	size = dlcp_nack_encode(&nack, bytes);
	memset(bytes + DLCP_NACK_FIXED_BYTES, 0, size - DLCP_NACK_FIXED_BYTES);
	for (uint32_t i = 0; i < nack.packets; i++) {
		uint32_t packet = nack.first + i;

		if (message->bitmap[packet / 64] >> (packet % 64) & 1)
			bytes[DLCP_NACK_FIXED_BYTES + i / 8] |= (uint8_t)(1u << (i % 8));
	}
	return size;
}
