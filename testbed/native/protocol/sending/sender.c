/* The sending half: messages from submission to STOP. What leaves when is in transmit.c. */
#include "sender.h"

#include <stdlib.h>

#include "liveness.h"
#include "outgoing.h"
#include "schedule.h"
#include "tagging.h"
#include "timeouts.h"

static bool make_room(struct outgoing *message, uint32_t packets)
{
	uint8_t *block;

	if (message->packets.room >= packets)
		return true;
	block = malloc((size_t)packets * (4 * sizeof(uint32_t) + sizeof(uint16_t) + 3));
	if (!block)
		return false;
	free(message->tags.order);
	message->tags.order = (uint32_t *)(void *)block;
	message->packets.latest = message->tags.order + packets;
	message->packets.lost_next = message->packets.latest + packets;
	message->packets.lost_previous = message->packets.lost_next + packets;
	message->contributors = (uint16_t *)(message->packets.lost_previous + packets);
	message->packets.state = (uint8_t *)(message->contributors + packets);
	message->tags.class = message->packets.state + packets;
	message->tags.magnitude = message->tags.class + packets;
	message->packets.room = packets;
	return true;
}

static struct outgoing *take(struct dlcp_protocol *protocol, uint32_t packets)
{
	struct outgoing *message = protocol->free_outgoing;

	if (message)
		protocol->free_outgoing = message->waiting_next;
	else
		message = calloc(1, sizeof *message);
	if (!message)
		return NULL;
	if (!make_room(message, packets) || !(message->finished = dlcp_take_completion(protocol))) {
		message->waiting_next = protocol->free_outgoing;
		protocol->free_outgoing = message;
		return NULL;
	}
	memset(message->packets.state, UNSENT, packets);
	memset(message->packets.lost_head, 0xff, sizeof message->packets.lost_head); /* NONE */
	message->packets.lost_top = 0;
	return message;
}

/* Queue a DONE for every message of a peer whose time has come, and tell of passes that are over. R59, R62. */
void dlcp_run_done_timers(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns)
{
	if (peer->sending.done_hint_ns > now_ns)
		return;
	peer->sending.done_hint_ns = NEVER;
	for (struct outgoing *message = peer->sending.waiting_head; message; message = message->waiting_next) {
		if (message->asking.done_at_ns <= now_ns) {
			struct control done = { .kind = CONTROL_DONE, .peer = peer->rank, .key = message->entry.key };

			done.round = ++message->asking.round;
			dlcp_control_push(protocol, &done);
			message->asking.probes++;
			message->asking.done_at_ns = now_ns + dlcp_timeout(protocol, peer, message->asking.done_tries++);
		}
		if (message->asking.passed_at_ns <= now_ns) {
			struct control passed = { .kind = CONTROL_PASSED, .peer = peer->rank, .key = message->entry.key };

			if (message->packets.arrived < message->count)
				dlcp_control_push(protocol, &passed);
			/* A receiver's deadline waits to hear how many packets must arrive: tell it once more. */
			message->asking.passed_at_ns =
				message->tags.must_arrive && !message->asking.passed_twice && !message->asking.round ?
					now_ns + dlcp_timeout(protocol, peer, 0) : NEVER;
			message->asking.passed_twice = true;
		}
		peer->sending.done_hint_ns = dlcp_earlier(peer->sending.done_hint_ns, message->asking.done_at_ns);
		peer->sending.done_hint_ns = dlcp_earlier(peer->sending.done_hint_ns, message->asking.passed_at_ns);
	}
}

/* Everything of a message but its tags and its place in the lists. */
static void fill(struct dlcp_protocol *protocol, struct outgoing *message, const struct dlcp_source *from,
		    uint64_t now_ns)
{
	const struct tensor *tensor = &protocol->tensors[message->entry.key.tensor];

	message->id = ++protocol->next_message;
	message->data = from->data;
	message->dtype = tensor->shape.dtype;
	message->elements = from->elements;
	message->count = dlcp_packets_of(from->elements, message->dtype);
	message->last_flag = tensor->shape.variable ? DLCP_FLAG_LAST : 0;
	message->progress.cursor = 0;
	message->progress.queue = tensor->shape.queue;
	message->progress.sent_bytes = 0;
	message->packets.in_flight = message->packets.arrived = message->packets.lost = message->packets.must_lost = 0;
	message->packets.lost_bytes = message->progress.resent_bytes = 0;
	message->packets.lost_energy = 0;
	message->asking.round = message->asking.nack_round = message->asking.nack_history = 0;
	message->asking.done_at_ns = message->asking.passed_at_ns = NEVER;
	message->asking.done_tries = message->asking.probes = 0;
	message->asking.passed_twice = false;
	message->start_ns = now_ns;
	message->listed = false;
	for (uint32_t packet = 0; packet < message->count; packet++)
		message->contributors[packet] = from->contributors ? from->contributors[packet] : 1;
}

/* R115 */
static bool size_fits(const struct dlcp_tensor *shape, uint32_t elements)
{
	return elements == shape->elements || (shape->variable && elements && elements < shape->elements);
}

int dlcp_protocol_prepare(struct dlcp_protocol *protocol, uint16_t rank, const struct dlcp_key *key,
			  const struct dlcp_source *from, uint64_t now_ns, struct outgoing **prepared)
{
	struct peer *peer = dlcp_peer(protocol, rank);
	const struct tensor *tensor = dlcp_declared(protocol, key->tensor);
	struct outgoing *message;

	if (!peer || key->leg >= DLCP_LEGS || !tensor || !size_fits(&tensor->shape, from->elements))
		return dlcp_fail(protocol, DLCP_ERROR_ARGUMENT,
				 "send to rank %u: unknown rank, leg, or tensor %u with %u elements", rank, key->tensor,
				 from->elements);
	if ((uintptr_t)from->data % dlcp_element_bytes(tensor->shape.dtype) ||
	    (from->bound && !dlcp_bound_valid(from->bound)))
		return dlcp_fail(protocol, DLCP_ERROR_ARGUMENT,
				 "send to rank %u: tensor %u: data not aligned to its elements, or a bound out of "
				 "range", rank, key->tensor);
	if (peer->liveness.gone) {
		dlcp_protocol_gone(protocol); /* its sentence */
		return DLCP_ERROR_PEER_GONE;
	}
	if (dlcp_outgoing_find(protocol, rank, key))
		return dlcp_fail(protocol, DLCP_ERROR_DUPLICATE,
				 "send to rank %u: tensor %u of iteration %u is under way", rank, key->tensor,
				 key->iteration);
	message = dlcp_peer_begin_sending(protocol, peer, tensor->shape.queue) ?
			  take(protocol, dlcp_packets_of(from->elements, tensor->shape.dtype)) :
			  NULL;
	if (!message)
		return dlcp_fail(protocol, DLCP_ERROR_MEMORY, "no memory for a message of %u elements", from->elements);
	message->entry.peer = rank;
	message->entry.key = *key;
	fill(protocol, message, from, now_ns);
	*prepared = message;
	return DLCP_OK;
}

void dlcp_protocol_tag(struct dlcp_protocol *protocol, struct outgoing *message, const struct dlcp_source *from)
{
	dlcp_tag(protocol, message, &protocol->tensors[message->entry.key.tensor], from->bound);
}

void dlcp_protocol_commit(struct dlcp_protocol *protocol, struct outgoing *message, uint64_t now_ns)
{
	struct peer *peer = dlcp_peer(protocol, message->entry.peer);
	struct sending *sending = &peer->sending;

	dlcp_table_add(&protocol->outgoing, &message->entry);
	if (!peer->receiving.expected_head && !peer->sending.waiting_head)
		peer->liveness.owed_since_ns = now_ns;
	message->waiting_next = NULL;
	message->waiting_prev = sending->waiting_tail;
	*(sending->waiting_tail ? &sending->waiting_tail->waiting_next : &sending->waiting_head) = message;
	sending->waiting_tail = message;
	protocol->sending++;
	dlcp_outgoing_list(peer, message, now_ns);
	/* A receiver that is eager, or has a deadline, may have enough long before the pass is over, if it knows how many
	 * packets must arrive. R61. */
	if (message->tags.must_arrive && (protocol->config.eager_stop || !message->tags.allowed_bytes)) {
		dlcp_control_push(protocol, &(struct control){
						    .kind = CONTROL_PASSED, .peer = peer->rank, .key = message->entry.key });
		message->asking.passed_at_ns = now_ns + dlcp_timeout(protocol, peer, 0);
		message->asking.passed_twice = true;
		sending->done_hint_ns = dlcp_earlier(sending->done_hint_ns, message->asking.passed_at_ns);
	}
	dlcp_reschedule(protocol, peer, now_ns);
}

int dlcp_protocol_send(struct dlcp_protocol *protocol, uint16_t rank, const struct dlcp_key *key,
		       const struct dlcp_source *from, uint64_t now_ns)
{
	struct outgoing *message = NULL;
	int code = dlcp_protocol_prepare(protocol, rank, key, from, now_ns, &message);

	if (code == DLCP_OK) {
		dlcp_protocol_tag(protocol, message, from);
		dlcp_protocol_commit(protocol, message, now_ns);
	}
	return code;
}

/* A packet that left after the first NACK of the round came: the NACK cannot know of it. A range and not an order, for
 * it may have left any number of transmissions ago. R63. */
static bool sent_since(const struct peer *peer, const struct outgoing *message, uint32_t packet)
{
	uint32_t since = message->asking.nack_sequence;

	return message->packets.latest[packet] - since < peer->sending.next_sequence - since;
}

/* The receiver says what is missing. */
void dlcp_on_nack(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const uint8_t *bytes, size_t size, uint64_t now_ns)
{
	struct dlcp_key key = dlcp_header_key(header);
	struct outgoing *message = dlcp_outgoing_find(protocol, peer->rank, &key);
	struct dlcp_nack nack;

	if (dlcp_nack_decode(&nack, bytes, size) != DLCP_WIRE_OK) {
		protocol->statistics.packets_malformed++;
		return;
	}
	if (!message || nack.round > message->asking.round || nack.round == 0)
		return;
	if (header->flags & DLCP_FLAG_WAIT) {
		/* not silence: it will be expected later, so ask at an even pace. R80. */
		if (message->asking.done_tries > 2)
			message->asking.done_tries = 2;
		return;
	}
	if (nack.first >= message->count || nack.packets > message->count - nack.first) {
		protocol->statistics.packets_malformed++;
		return;
	}
	/* R63 */
	if (nack.round != message->asking.nack_round) {
		if (nack.round <= message->asking.nack_history)
			return;
		message->asking.nack_round = nack.round;
		message->asking.nack_history = message->asking.round;
		message->asking.nack_sequence = peer->sending.next_sequence;
	}
	for (uint32_t i = 0; i < nack.packets; i++) {
		uint32_t packet = nack.first + i;
		bool arrived = bytes[DLCP_NACK_FIXED_BYTES + i / 8] >> (i % 8) & 1;

		if (arrived && message->packets.state[packet] != ARRIVED && message->packets.state[packet] != UNSENT)
			dlcp_set_state(message, packet, ARRIVED);
		else if (!arrived && message->packets.state[packet] == ARRIVED && !sent_since(peer, message, packet))
			dlcp_set_state(message, packet, LOST);
	}
	/* To the latest question it answers that something is missing, though by our count it has enough: repair everything,
	 * do not ask for ever. R64. */
	if (nack.round == message->asking.round && nack.first + nack.packets == message->count && message->packets.lost &&
	    !message->packets.in_flight && !dlcp_has_packets(message)) {
		message->tags.allowed_bytes = 0;
		message->tags.allowed_energy = 0;
	}
	dlcp_outgoing_changed(protocol, message, now_ns);
}

/* What arrived of a message, by its acknowledgements. R28. */
static uint64_t acknowledged_bytes(const struct outgoing *message)
{
	uint64_t elements = 0;

	for (uint32_t packet = 0; packet < message->count; packet++)
		if (message->packets.state[packet] == ARRIVED)
			elements += dlcp_packet_elements(message->elements, message->dtype, packet);
	return elements * dlcp_element_bytes(message->dtype);
}

/* The receiver has enough: the message is over. R17. */
void dlcp_on_stop(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const uint8_t *bytes, uint64_t now_ns)
{
	struct dlcp_key key = dlcp_header_key(header);
	struct outgoing *message = dlcp_outgoing_find(protocol, peer->rank, &key);
	struct sending *sending = &peer->sending;
	uint64_t total, delivered = dlcp_get64(bytes + DLCP_HEADER_BYTES);

	if (!dlcp_stop_is_for_us(protocol, peer, header) || !message)
		return;
	peer->liveness.unheard_since_ns = NEVER;
	total = dlcp_message_bytes(message->elements, message->dtype);
	if (message->listed)
		dlcp_outgoing_unlist(peer, message, now_ns);
	dlcp_table_remove(&protocol->outgoing, &message->entry);
	*(message->waiting_prev ? &message->waiting_prev->waiting_next : &sending->waiting_head) = message->waiting_next;
	*(message->waiting_next ? &message->waiting_next->waiting_prev : &sending->waiting_tail) = message->waiting_prev;
	message->finished->completion = (struct dlcp_completion){
		.key = message->entry.key,
		.peer = message->entry.peer,
		.bytes = total,
		.delivered_bytes = delivered <= total ? delivered : acknowledged_bytes(message),
		.resent_bytes = message->progress.resent_bytes,
		.probes = message->asking.probes,
		.start_ns = message->start_ns,
		.end_ns = now_ns,
	};
	dlcp_complete(protocol, message->finished);
	message->finished = NULL;
	message->id = 0; /* records that point here are history */
	message->waiting_next = protocol->free_outgoing;
	protocol->free_outgoing = message;
	protocol->sending--;
	protocol->statistics.messages_sent++;
}
