/* The sending half: messages by queue and age, one packet after the other, and what comes after the first pass. */
#include <math.h>
#include <stdlib.h>

#include "protocol_internal.h"

/* A sender that was held up (by the scheduler, by a timer) may catch up at most this much of its link's time. */
#define CATCH_UP_NS (500 * MICROSECOND)

struct outgoing *dlcp_outgoing_find(const struct dlcp_protocol *protocol, uint16_t peer, const struct dlcp_key *key)
{
	struct outgoing *message = protocol->outgoing[dlcp_bucket(peer, key)];

	while (message && (message->peer != peer || !dlcp_same_key(&message->key, key)))
		message = message->hash_next;
	return message;
}

static bool make_room(struct outgoing *message, uint32_t packets)
{
	uint8_t *block;

	if (message->capacity >= packets)
		return true;
	block = malloc((size_t)packets * (2 * sizeof(uint32_t) + 3));
	if (!block)
		return false;
	free(message->order);
	message->order = (uint32_t *)(void *)block;
	message->latest = message->order + packets;
	message->state = (uint8_t *)(message->latest + packets);
	message->class = message->state + packets;
	message->magnitude = message->class + packets;
	message->capacity = packets;
	return true;
}

static struct outgoing *take(struct dlcp_protocol *protocol, uint32_t packets)
{
	struct outgoing *message = protocol->free_outgoing;

	if (message)
		protocol->free_outgoing = message->hash_next;
	else
		message = calloc(1, sizeof *message);
	if (!message)
		return NULL;
	if (!make_room(message, packets) || !(message->finished = dlcp_take_completion(protocol))) {
		message->hash_next = protocol->free_outgoing;
		protocol->free_outgoing = message;
		return NULL;
	}
	memset(message->state, UNSENT, packets);
	return message;
}

void dlcp_outgoing_free(struct outgoing *message)
{
	free(message->order);
	free(message->finished);
	free(message);
}

/* Bytes missing beyond the bound must be sent again; otherwise only what never left. */
static bool must_resend(const struct outgoing *message)
{
	return message->lost_bytes > message->allowed_bytes;
}

static bool has_packets(const struct outgoing *message)
{
	return message->cursor < message->packets || must_resend(message);
}

/* Into its peer's list of its queue, by age. */
static void list(struct dlcp_protocol *protocol, struct peer *peer, struct outgoing *message, uint64_t now_ns)
{
	uint8_t queue = protocol->tensors[message->key.tensor].shape.queue;
	struct lane *lane = &peer->lanes[queue];
	struct outgoing *before = lane->tail;

	while (before && before->id > message->id)
		before = before->prev;
	message->prev = before;
	message->next = before ? before->next : lane->head;
	*(message->prev ? &message->prev->next : &lane->head) = message;
	*(message->next ? &message->next->prev : &lane->tail) = message;
	message->listed = true;
	if (!peer->active && peer->srtt_ns && now_ns - peer->idle_since_ns > 2 * peer->srtt_ns)
		peer->congestion->on_restart(peer->congestion_state);
	peer->active |= 1u << queue;
	protocol->lane_members[queue]++;
}

static void unlist(struct dlcp_protocol *protocol, struct peer *peer, struct outgoing *message, uint64_t now_ns)
{
	uint8_t queue = protocol->tensors[message->key.tensor].shape.queue;
	struct lane *lane = &peer->lanes[queue];

	*(message->prev ? &message->prev->next : &lane->head) = message->next;
	*(message->next ? &message->next->prev : &lane->tail) = message->prev;
	message->listed = false;
	protocol->lane_members[queue]--;
	if (!lane->head)
		peer->active &= ~(1u << queue);
	if (!peer->active)
		peer->idle_since_ns = now_ns;
}

/* Move a packet to another state and keep the counts. */
void dlcp_set_state(struct dlcp_protocol *protocol, struct outgoing *message, uint32_t packet, uint8_t state)
{
	uint8_t *at = &message->state[packet];
	uint64_t bytes = (uint64_t)dlcp_packet_elements(message->elements, packet) * 4;

	(void)protocol;
	message->in_flight -= *at == IN_FLIGHT;
	message->arrived -= *at == ARRIVED;
	message->lost -= *at == LOST;
	message->lost_bytes -= *at == LOST ? bytes : 0;
	*at = state;
	message->in_flight += state == IN_FLIGHT;
	message->arrived += state == ARRIVED;
	message->lost += state == LOST;
	message->lost_bytes += state == LOST ? bytes : 0;
	if (state == LOST)
		message->resend_cursor = 0;
}

/* After packets changed their state: is there something to send, and is DONE due? */
void dlcp_outgoing_changed(struct dlcp_protocol *protocol, struct outgoing *message, uint64_t now_ns)
{
	struct peer *peer = protocol->peers[message->peer];
	bool sendable = has_packets(message);

	if (sendable && !message->listed)
		list(protocol, peer, message, now_ns);
	else if (!sendable && message->listed)
		unlist(protocol, peer, message, now_ns);
	if (sendable || message->in_flight) {
		message->done_at_ns = NEVER;
		message->done_tries = 0;
		return;
	}
	/* Everything arrived or is known to be lost. With losses the receiver cannot know that this was all: ask at once.
	 * Without, its STOP is on the way: ask only when that is overdue. */
	if (message->done_at_ns == NEVER)
		message->done_at_ns = message->lost ? now_ns : now_ns + dlcp_timeout(protocol, peer, 0);
	else if (message->lost && !message->done_tries)
		message->done_at_ns = now_ns;
	if (message->done_at_ns < peer->done_hint_ns)
		peer->done_hint_ns = message->done_at_ns;
}

/* Queue a DONE for every message of a peer whose time has come. */
void dlcp_run_done_timers(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns)
{
	if (peer->done_hint_ns > now_ns)
		return;
	peer->done_hint_ns = NEVER;
	for (struct outgoing *message = peer->waiting_head; message; message = message->waiting_next) {
		if (message->done_at_ns <= now_ns) {
			struct control done = { .kind = CONTROL_DONE, .peer = peer->rank, .key = message->key };

			done.round = ++message->round;
			dlcp_control_push(protocol, &done);
			message->probes++;
			message->done_at_ns = now_ns + dlcp_timeout(protocol, peer, message->done_tries++);
		}
		if (message->done_at_ns < peer->done_hint_ns)
			peer->done_hint_ns = message->done_at_ns;
	}
}

int dlcp_protocol_send(struct dlcp_protocol *protocol, uint16_t rank, const struct dlcp_key *key, const float *data,
		       uint32_t elements, uint64_t now_ns)
{
	struct peer *peer = rank < DLCP_MAX_RANKS ? protocol->peers[rank] : NULL;
	struct tensor *tensor = &protocol->tensors[key->tensor];
	struct outgoing *message;
	uint32_t bucket;

	if (!peer || key->leg >= DLCP_LEGS || !tensor->declared || elements != tensor->shape.elements)
		return dlcp_fail(protocol, DLCP_ERROR_ARGUMENT,
				 "send to rank %u: unknown rank, leg, or tensor %u with %u elements", rank, key->tensor,
				 elements);
	if (peer->gone)
		return DLCP_ERROR_PEER_GONE;
	if (dlcp_outgoing_find(protocol, rank, key))
		return dlcp_fail(protocol, DLCP_ERROR_DUPLICATE, "send to rank %u: tensor %u of iteration %u is under way",
				 rank, key->tensor, key->iteration);
	message = take(protocol, dlcp_packets_of(elements));
	if (!message)
		return dlcp_fail(protocol, DLCP_ERROR_MEMORY, "no memory for a message of %u elements", elements);
	message->id = ++protocol->next_message;
	message->peer = rank;
	message->key = *key;
	message->data = data;
	message->elements = elements;
	message->packets = dlcp_packets_of(elements);
	message->allowed_bytes = dlcp_allowed_bytes(&tensor->shape, key->leg);
	message->cursor = message->resend_cursor = 0;
	message->in_flight = message->arrived = message->lost = 0;
	message->lost_bytes = message->resent_bytes = 0;
	message->round = message->nack_round = message->nack_history = 0;
	message->done_at_ns = NEVER;
	message->done_tries = message->probes = 0;
	message->start_ns = now_ns;
	message->listed = false;
	dlcp_classify(protocol, message, tensor);

	bucket = dlcp_bucket(rank, key);
	message->hash_next = protocol->outgoing[bucket];
	protocol->outgoing[bucket] = message;
	if (!peer->expected_head && !peer->waiting_head)
		peer->owed_since_ns = now_ns;
	message->waiting_next = NULL;
	message->waiting_prev = peer->waiting_tail;
	*(peer->waiting_tail ? &peer->waiting_tail->waiting_next : &peer->waiting_head) = message;
	peer->waiting_tail = message;
	protocol->sending++;
	list(protocol, peer, message, now_ns);
	return DLCP_OK;
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
	if (!message || nack.round > message->round || nack.round == 0)
		return;
	if (header->flags & DLCP_FLAG_WAIT) {
		/* not silence: it will be expected later, so ask at an even pace */
		if (message->done_tries > 2)
			message->done_tries = 2;
		return;
	}
	if (nack.first >= message->packets || nack.packets > message->packets - nack.first) {
		protocol->statistics.packets_malformed++;
		return;
	}
	if (nack.round != message->nack_round) {
		if (nack.round <= message->nack_history)
			return;
		message->nack_round = nack.round;
		message->nack_history = message->round;
	}
	for (uint32_t i = 0; i < nack.packets; i++) {
		uint32_t packet = nack.first + i;
		bool arrived = bytes[DLCP_NACK_FIXED_BYTES + i / 8] >> (i % 8) & 1;

		if (arrived && message->state[packet] != ARRIVED && message->state[packet] != UNSENT)
			dlcp_set_state(protocol, message, packet, ARRIVED);
		else if (!arrived && message->state[packet] == ARRIVED)
			dlcp_set_state(protocol, message, packet, LOST);
	}
	dlcp_outgoing_changed(protocol, message, now_ns);
}

/* The receiver has enough: the message is over. */
void dlcp_on_stop(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const uint8_t *bytes, uint64_t now_ns)
{
	struct dlcp_key key = dlcp_header_key(header);
	struct outgoing *message = dlcp_outgoing_find(protocol, peer->rank, &key);
	struct outgoing **at = &protocol->outgoing[dlcp_bucket(peer->rank, &key)];
	uint64_t total, delivered = dlcp_get64(bytes + DLCP_HEADER_BYTES);

	if (!message)
		return;
	total = (uint64_t)message->elements * 4;
	if (message->listed)
		unlist(protocol, peer, message, now_ns);
	while (*at != message)
		at = &(*at)->hash_next;
	*at = message->hash_next;
	*(message->waiting_prev ? &message->waiting_prev->waiting_next : &peer->waiting_head) = message->waiting_next;
	*(message->waiting_next ? &message->waiting_next->waiting_prev : &peer->waiting_tail) = message->waiting_prev;
	message->finished->completion = (struct dlcp_completion){
		.key = message->key,
		.peer = message->peer,
		.bytes = total,
		.delivered_bytes = delivered && delivered <= total ? delivered : total - message->lost_bytes,
		.resent_bytes = message->resent_bytes,
		.probes = message->probes,
		.start_ns = message->start_ns,
		.end_ns = now_ns,
	};
	dlcp_complete(protocol, message->finished);
	message->finished = NULL;
	message->id = 0; /* records that point here are history */
	message->hash_next = protocol->free_outgoing;
	protocol->free_outgoing = message;
	protocol->sending--;
	protocol->statistics.messages_sent++;
}

/* Packets that congestion control lets be in flight. */
static uint32_t window_packets(const struct peer *peer)
{
	double window = peer->congestion->window(peer->congestion_state);

	return window <= 1 ? 1 : (uint32_t)ceil(window);
}

/* Time between packets to one peer. */
static uint64_t pace_ns(const struct peer *peer)
{
	return (uint64_t)peer->congestion->pace_ns(peer->congestion_state, peer->latest_rtt_ns);
}

/* Nothing is sent into a path that has not answered a greeting yet: its round-trip time sets the pace. */
static bool window_open(const struct peer *peer)
{
	return !peer->gone && peer->srtt_ns && peer->in_flight < window_packets(peer) && !dlcp_records_full(peer);
}

/* The packet that would be sent next: retransmissions first, in class order. UINT32_MAX: none. */
static uint32_t next_packet(struct outgoing *message, bool *resend)
{
	*resend = must_resend(message);
	if (!*resend)
		return message->cursor < message->packets ? message->order[message->cursor] : UINT32_MAX;
	while (message->state[message->order[message->resend_cursor]] != LOST)
		message->resend_cursor++; /* ends: lost_bytes > 0 */
	return message->order[message->resend_cursor];
}

void dlcp_fill_header(const struct dlcp_protocol *protocol, uint8_t type, const struct dlcp_key *key, uint64_t now_ns,
		      struct dlcp_header *header)
{
	*header = (struct dlcp_header){
		.type = type,
		.source = protocol->config.rank,
		.cookie = protocol->config.cookie,
		.iteration = key->iteration,
		.tensor = key->tensor,
		.step = key->step,
		.leg = key->leg,
		.sent_us = (uint32_t)(now_ns / MICROSECOND),
	};
}

/* The link is busy with so many bytes. */
void dlcp_charge_link(struct dlcp_protocol *protocol, uint32_t bytes, uint64_t now_ns)
{
	double earliest = (double)now_ns - (double)CATCH_UP_NS;

	if (protocol->nic_ns < earliest)
		protocol->nic_ns = earliest;
	protocol->nic_ns += bytes * 8e9 / protocol->config.link_bps;
}

/* Take one packet of a message into the burst. */
static void add_packet(struct dlcp_protocol *protocol, struct peer *peer, struct outgoing *message, uint32_t packet,
		       bool resend, uint64_t now_ns, struct dlcp_burst *burst)
{
	const struct tensor *tensor = &protocol->tensors[message->key.tensor];
	uint32_t elements = dlcp_packet_elements(message->elements, packet), i = burst->packets++;
	uint8_t class = message->class[packet];
	struct dlcp_header header;
	struct record *record;

	dlcp_fill_header(protocol, DLCP_DATA, &message->key, now_ns, &header);
	record = dlcp_record(protocol, peer, tensor->shape.queue, now_ns, &header.sequence);
	record->message = message->id;
	record->outgoing = message;
	record->packet = packet;
	record->class = resend ? CLASS_RELIABLE : class;
	header.flags = (uint8_t)((resend ? DLCP_FLAG_RETRANSMISSION : 0) |
				 (message->allowed_bytes == 0 ? DLCP_FLAG_MUST_ARRIVE : 0) |
				 (record->class == CLASS_DROPPABLE ? DLCP_FLAG_DROPPABLE : 0));
	header.magnitude = message->magnitude[packet];
	header.offset = packet * DLCP_PACKET_ELEMENTS;
	header.count = (uint16_t)elements;
	message->latest[packet] = header.sequence;
	dlcp_set_state(protocol, message, packet, IN_FLIGHT);
	if (!resend)
		message->cursor++;
	peer->in_flight++;
	peer->lanes[tensor->shape.queue].in_flight++;
	dlcp_header_encode(&header, protocol->heads[i]);
	burst->head[i] = protocol->heads[i];
	burst->payload[i] = (const uint8_t *)(message->data + header.offset);
	burst->payload_bytes[i] = elements * 4;

	peer->sent++;
	protocol->statistics.data_packets_sent++;
	protocol->statistics.data_bytes_sent += elements * 4;
	protocol->statistics.packets_droppable += record->class == CLASS_DROPPABLE;
	if (resend) {
		message->resent_bytes += elements * 4;
		protocol->statistics.packets_resent++;
		protocol->statistics.bytes_resent += elements * 4;
	}
	dlcp_charge_link(protocol, DLCP_FRAME_OVERHEAD_BYTES + elements * 4, now_ns);
}

/* Ask for an acknowledgement with the burst's last packet when the sender will wait for it: about twice a window. */
static void ask_for_ack(struct dlcp_protocol *protocol, struct peer *peer, bool last, const struct dlcp_burst *burst)
{
	uint32_t window = window_packets(peer);

	peer->since_ack_request += burst->packets;
	if (last || peer->in_flight >= window || peer->since_ack_request >= (window + 1) / 2) {
		protocol->heads[burst->packets - 1][1] |= DLCP_FLAG_ACK_NOW;
		peer->since_ack_request = 0;
	}
}

/* Packets of one class of one message, as many as window, pace and GSO allow. */
static void fill(struct dlcp_protocol *protocol, struct peer *peer, struct outgoing *message, uint64_t now_ns,
		 struct dlcp_burst *burst)
{
	uint8_t queue = protocol->tensors[message->key.tensor].shape.queue;
	uint32_t room = window_packets(peer) - peer->in_flight, at_once = (window_packets(peer) + 3) / 4;
	uint64_t pace = pace_ns(peer);

	*burst = (struct dlcp_burst){ .peer = peer->rank, .head_bytes = DLCP_HEADER_BYTES };
	if (room > at_once)
		room = at_once;
	if (room > DLCP_BURST_PACKETS)
		room = DLCP_BURST_PACKETS;
	while (burst->packets < room) {
		bool resend;
		uint32_t packet = next_packet(message, &resend);
		uint8_t tos;

		if (packet == UINT32_MAX)
			break;
		tos = dlcp_class_tos(protocol, queue, resend ? CLASS_RELIABLE : message->class[packet]);
		if (burst->packets && tos != burst->tos)
			break;
		burst->tos = tos;
		add_packet(protocol, peer, message, packet, resend, now_ns, burst);
		if (burst->payload_bytes[burst->packets - 1] < DLCP_PAYLOAD_BYTES)
			break;
	}
	if (peer->next_send_ns + pace < now_ns)
		peer->next_send_ns = now_ns - pace;
	peer->next_send_ns += pace * burst->packets;
	ask_for_ack(protocol, peer, !has_packets(message), burst);
	dlcp_outgoing_changed(protocol, message, now_ns);
}

/* The next burst of data: highest queue first, then the oldest message whose peer may receive. */
bool dlcp_poll_data(struct dlcp_protocol *protocol, uint64_t now_ns, struct dlcp_burst *burst)
{
	if (protocol->nic_ns > (double)now_ns)
		return false;
	for (int queue = DLCP_QUEUES - 1; queue >= 0; queue--) {
		struct outgoing *oldest = NULL;

		for (uint32_t i = 0; protocol->lane_members[queue] && i < protocol->peer_count; i++) {
			struct peer *peer = protocol->peers[protocol->ranks[i]];
			struct outgoing *head = peer->lanes[queue].head;

			if (!head)
				continue;
			if (!window_open(peer) || peer->next_send_ns > now_ns)
				peer->window_limited = true;
			else if (!oldest || head->id < oldest->id)
				oldest = head;
		}
		if (oldest) {
			fill(protocol, protocol->peers[oldest->peer], oldest, now_ns, burst);
			return true;
		}
	}
	return false;
}

/* When data may leave next if no packet comes; NEVER when all wait for acknowledgements or there is none. */
uint64_t dlcp_data_time(struct dlcp_protocol *protocol, uint64_t now_ns)
{
	uint64_t earliest = NEVER, nic_ns = protocol->nic_ns > 0 ? (uint64_t)ceil(protocol->nic_ns) : 0;

	for (uint32_t i = 0; i < protocol->peer_count; i++) {
		const struct peer *peer = protocol->peers[protocol->ranks[i]];
		uint64_t at = peer->next_send_ns > nic_ns ? peer->next_send_ns : nic_ns;

		if (peer->active && window_open(peer) && at < earliest)
			earliest = at;
	}
	return earliest > now_ns || earliest == NEVER ? earliest : now_ns;
}
