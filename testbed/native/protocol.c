/* The doors of the state machine: set-up, packets in, timers and control packets out, completions, statistics. */
#include "protocol.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "protocol_internal.h"

/* How often, within the silence limit, a peer that owes something and says nothing is asked whether it lives. */
enum { GREETINGS_PER_SILENCE = 8 };
#define FIRST_GREETING_NS (20 * MILLISECOND) /* repeated after so long, then twice that, and so on */
#define GREET_EVERY_NS SECOND                /* while data flow: one packet a second */

int dlcp_fail(struct dlcp_protocol *protocol, int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(protocol->error, sizeof protocol->error, format, arguments);
	va_end(arguments);
	return code;
}

const char *dlcp_protocol_error(const struct dlcp_protocol *protocol)
{
	return protocol->error;
}

static void set_defaults(struct dlcp_config *config)
{
	if (!config->timer_floor_ns)
		config->timer_floor_ns = 4 * MILLISECOND;
	if (!config->ack_delay_ns)
		config->ack_delay_ns = 500 * MICROSECOND;
	if (!config->silence_ns)
		config->silence_ns = 10 * SECOND;
	if (!config->first_contact_ns)
		config->first_contact_ns = 60 * SECOND;
}

struct dlcp_protocol *dlcp_protocol_new(const struct dlcp_config *config, char *error, size_t error_bytes)
{
	struct dlcp_protocol *protocol;

	if (!(config->link_bps > 0) || config->rank >= DLCP_MAX_RANKS || config->selective_drop > DLCP_DROP_ECT) {
		snprintf(error, error_bytes, "rank %u, link %.0f bit/s, selective drop %u: out of range", config->rank,
			 config->link_bps, config->selective_drop);
		return NULL;
	}
	if (!memchr(config->congestion_control, 0, sizeof config->congestion_control) ||
	    !dlcp_congestion_find(config->congestion_control)) {
		snprintf(error, error_bytes, "congestion control \"%.15s\" is not known", config->congestion_control);
		return NULL;
	}
	protocol = calloc(1, sizeof *protocol);
	if (protocol)
		protocol->tensors = calloc(DLCP_MAX_TENSORS, sizeof *protocol->tensors);
	if (!protocol || !protocol->tensors) {
		snprintf(error, error_bytes, "no memory");
		free(protocol);
		return NULL;
	}
	protocol->config = *config;
	set_defaults(&protocol->config);
	protocol->packet_ns = (DLCP_PAYLOAD_BYTES + DLCP_FRAME_OVERHEAD_BYTES) * 8e9 / config->link_bps;
	protocol->gone_rank = -1;
	return protocol;
}

static void free_peer(struct peer *peer)
{
	for (struct outgoing *next, *message = peer->waiting_head; message; message = next) {
		next = message->waiting_next;
		dlcp_outgoing_free(message);
	}
	for (struct incoming *next, *message = peer->expected_head; message; message = next) {
		next = message->next;
		dlcp_incoming_free(message);
	}
	free(peer->records);
	free(peer->finished);
	free(peer);
}

void dlcp_protocol_free(struct dlcp_protocol *protocol)
{
	if (!protocol)
		return;
	for (uint32_t i = 0; i < protocol->peer_count; i++)
		free_peer(protocol->peers[protocol->ranks[i]]);
	for (struct outgoing *next, *message = protocol->free_outgoing; message; message = next) {
		next = message->hash_next;
		dlcp_outgoing_free(message);
	}
	for (struct incoming *next, *message = protocol->free_incoming; message; message = next) {
		next = message->hash_next;
		dlcp_incoming_free(message);
	}
	for (struct finished *next, *finished = protocol->finished_head; finished; finished = next) {
		next = finished->next;
		free(finished);
	}
	for (struct finished *next, *finished = protocol->free_finished; finished; finished = next) {
		next = finished->next;
		free(finished);
	}
	free(protocol->tensors);
	free(protocol->scratch);
	free(protocol);
}

/* Room in a peer for what it finished, of so many tensors. */
static int grow_finished(struct peer *peer, uint32_t tensors)
{
	uint64_t *grown;

	if (peer->finished_tensors >= tensors)
		return DLCP_OK;
	grown = realloc(peer->finished, (size_t)tensors * DLCP_LEGS * sizeof *grown);
	if (!grown)
		return DLCP_ERROR_MEMORY;
	memset(grown + (size_t)peer->finished_tensors * DLCP_LEGS, 0,
	       (size_t)(tensors - peer->finished_tensors) * DLCP_LEGS * sizeof *grown);
	peer->finished = grown;
	peer->finished_tensors = tensors;
	return DLCP_OK;
}

static bool same_shape(const struct dlcp_tensor *a, const struct dlcp_tensor *b)
{
	return a->elements == b->elements && a->bound_ppm[0] == b->bound_ppm[0] && a->bound_ppm[1] == b->bound_ppm[1] &&
	       a->queue == b->queue && a->droppable == b->droppable && a->must_arrive == b->must_arrive;
}

int dlcp_protocol_declare(struct dlcp_protocol *protocol, uint16_t number, const struct dlcp_tensor *shape)
{
	struct tensor *tensor = &protocol->tensors[number];
	uint32_t packets = dlcp_packets_of(shape->elements);

	if (shape->elements == 0 || shape->elements > UINT32_MAX - DLCP_PACKET_ELEMENTS ||
	    shape->queue >= DLCP_CONTROL_QUEUE || shape->bound_ppm[0] > 1000000 || shape->bound_ppm[1] > 1000000)
		return dlcp_fail(protocol, DLCP_ERROR_ARGUMENT,
				 "tensor %u: %u elements, queue %u, bounds %u and %u ppm: out of range", number,
				 shape->elements, shape->queue, shape->bound_ppm[0], shape->bound_ppm[1]);
	if (tensor->declared && !same_shape(&tensor->shape, shape))
		return dlcp_fail(protocol, DLCP_ERROR_DUPLICATE, "tensor %u was declared otherwise before", number);
	if (packets > protocol->scratch_packets) {
		float *grown = realloc(protocol->scratch, (size_t)packets * 2 * sizeof *grown);

		if (!grown)
			return dlcp_fail(protocol, DLCP_ERROR_MEMORY, "no memory for tensor %u", number);
		protocol->scratch = grown;
		protocol->scratch_packets = packets;
	}
	for (uint32_t i = 0; i < protocol->peer_count; i++)
		if (grow_finished(protocol->peers[protocol->ranks[i]], (uint32_t)number + 1) != DLCP_OK)
			return dlcp_fail(protocol, DLCP_ERROR_MEMORY, "no memory for tensor %u", number);
	if (protocol->tensor_count <= number)
		protocol->tensor_count = (uint32_t)number + 1;
	tensor->shape = *shape;
	tensor->declared = true;
	return DLCP_OK;
}

int dlcp_protocol_add_peer(struct dlcp_protocol *protocol, uint16_t rank, uint64_t now_ns)
{
	struct dlcp_congestion_config control = {
		.packet_ns = (uint64_t)protocol->packet_ns,
		.t_low_ns = protocol->config.t_low_ns,
		.t_high_ns = protocol->config.t_high_ns,
		.fixed_window = protocol->config.fixed_window,
	};
	struct peer *peer;

	if (rank >= DLCP_MAX_RANKS || rank == protocol->config.rank || protocol->peers[rank])
		return dlcp_fail(protocol, DLCP_ERROR_ARGUMENT, "rank %u cannot be added as a peer", rank);
	peer = calloc(1, sizeof *peer);
	if (peer)
		peer->records = calloc(RECORDS, sizeof *peer->records);
	if (!peer || !peer->records || grow_finished(peer, protocol->tensor_count ? protocol->tensor_count : 1)) {
		if (peer)
			free(peer->records);
		free(peer);
		return dlcp_fail(protocol, DLCP_ERROR_MEMORY, "no memory for rank %u", rank);
	}
	peer->rank = rank;
	peer->loss_check_ns = peer->done_hint_ns = peer->ack_at_ns = NEVER;
	peer->heard_ns = peer->owed_since_ns = peer->idle_since_ns = now_ns;
	peer->congestion = dlcp_congestion_find(protocol->config.congestion_control);
	peer->congestion->init(peer->congestion_state, &control);
	protocol->peers[rank] = peer;
	protocol->ranks[protocol->peer_count++] = rank;
	return DLCP_OK;
}

/* Memory for one completion, taken when its message begins so that its end needs none. */
struct finished *dlcp_take_completion(struct dlcp_protocol *protocol)
{
	struct finished *finished = protocol->free_finished;

	if (!finished)
		return malloc(sizeof *finished);
	protocol->free_finished = finished->next;
	return finished;
}

void dlcp_complete(struct dlcp_protocol *protocol, struct finished *finished)
{
	finished->next = NULL;
	*(protocol->finished_head ? &protocol->finished_tail->next : &protocol->finished_head) = finished;
	protocol->finished_tail = finished;
}

int dlcp_protocol_has_completion(const struct dlcp_protocol *protocol)
{
	return protocol->finished_head != NULL;
}

int dlcp_protocol_poll_completion(struct dlcp_protocol *protocol, struct dlcp_completion *completion)
{
	struct finished *finished = protocol->finished_head;

	if (!finished)
		return 0;
	*completion = finished->completion;
	protocol->finished_head = finished->next;
	finished->next = protocol->free_finished;
	protocol->free_finished = finished;
	return 1;
}

/* Let a control packet leave soon. A full ring drops it: every one of them is asked for again by a timer. */
void dlcp_control_push(struct dlcp_protocol *protocol, const struct control *control)
{
	if (protocol->control_tail - protocol->control_head >= CONTROL_RING) {
		protocol->statistics.control_dropped++;
		return;
	}
	protocol->control[protocol->control_tail++ & (CONTROL_RING - 1)] = *control;
}

static void dispatch(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		     const uint8_t *bytes, size_t size, bool ce, uint64_t received_ns, uint64_t now_ns)
{
	switch (header->type) {
	case DLCP_DATA:
		dlcp_on_sequence(protocol, peer, header, ce, received_ns, now_ns);
		dlcp_on_data(protocol, peer, header, bytes + DLCP_HEADER_BYTES, now_ns);
		break;
	case DLCP_PROBE: dlcp_on_sequence(protocol, peer, header, ce, received_ns, now_ns); break;
	case DLCP_DONE: dlcp_on_done(protocol, peer, header, bytes, now_ns); break;
	case DLCP_NACK: dlcp_on_nack(protocol, peer, header, bytes, size, now_ns); break;
	case DLCP_STOP: dlcp_on_stop(protocol, peer, header, bytes, now_ns); break;
	default: protocol->statistics.packets_malformed++; break;
	}
}

void dlcp_protocol_input(struct dlcp_protocol *protocol, const uint8_t *bytes, size_t size, uint8_t tos,
			 uint64_t received_ns, uint64_t now_ns, uint32_t overflow)
{
	bool ce = dlcp_tos_ecn(tos) == DLCP_ECN_CE;
	int type = dlcp_packet_type(bytes, size), wrong;
	struct dlcp_header header;
	struct dlcp_ack ack;
	struct peer *peer;

	protocol->overflow = overflow;
	protocol->timers_ran_ns = NEVER; /* what comes in may make a timer due at once */
	if (type < 0) {
		protocol->statistics.packets_malformed++;
		return;
	}
	peer = dlcp_packet_source(bytes) < DLCP_MAX_RANKS ? protocol->peers[dlcp_packet_source(bytes)] : NULL;
	if (dlcp_packet_cookie(bytes) != protocol->config.cookie || !peer) {
		protocol->statistics.packets_stranger++;
		return;
	}
	wrong = type == DLCP_ACK ? dlcp_ack_decode(&ack, bytes, size) : dlcp_header_decode(&header, bytes, size);
	if (wrong) {
		protocol->statistics.packets_malformed++;
		return;
	}
	protocol->statistics.packets_received++;
	protocol->statistics.bytes_received += size;
	protocol->statistics.packets_ce += ce;
	peer->heard = true;
	peer->heard_ns = now_ns;
	peer->greetings = 0;
	if (type == DLCP_ACK) {
		protocol->statistics.acks_received++;
		dlcp_on_ack(protocol, peer, &ack, received_ns, now_ns);
	} else {
		dispatch(protocol, peer, &header, bytes, size, ce, received_ns, now_ns);
	}
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The last sign of life, or since when one is expected. */
static uint64_t silent_since(const struct peer *peer)
{
	return later(peer->heard_ns, peer->owed_since_ns);
}

static bool owes(const struct peer *peer)
{
	return !peer->gone && (peer->expected_head || peer->waiting_head);
}

/* When a peer that owes something and says nothing counts as gone. */
static uint64_t gone_time(const struct dlcp_protocol *protocol, const struct peer *peer)
{
	if (!owes(peer))
		return NEVER;
	return silent_since(peer) + (peer->heard ? protocol->config.silence_ns : protocol->config.first_contact_ns);
}

/* When to greet a peer: before the first data, now and then while data flow (the empty path may have become another), and
 * when it owes something and is silent. */
static uint64_t greeting_time(const struct dlcp_protocol *protocol, const struct peer *peer)
{
	uint32_t doublings = peer->greetings < BACKOFF_LIMIT ? peer->greetings : BACKOFF_LIMIT;
	uint64_t at = NEVER;

	if (!owes(peer) || dlcp_records_full(peer))
		return NEVER;
	if (!peer->greeted)
		return 0;
	if (peer->active)
		at = peer->greeted_ns + (peer->srtt_ns ? GREET_EVERY_NS : FIRST_GREETING_NS << doublings);
	return earlier(at, later(silent_since(peer), peer->greeted_ns) +
				   protocol->config.silence_ns / GREETINGS_PER_SILENCE);
}

/* A burst of one control packet of so many bytes at heads[0]. */
static bool control_burst(struct dlcp_protocol *protocol, uint16_t peer, uint8_t tos, size_t bytes, uint64_t now_ns,
			  struct dlcp_burst *burst)
{
	*burst = (struct dlcp_burst){ .peer = peer, .tos = tos, .packets = 1, .head_bytes = (uint32_t)bytes };
	burst->head[0] = protocol->heads[0];
	dlcp_charge_link(protocol, (uint32_t)bytes + DLCP_FRAME_OVERHEAD_BYTES - DLCP_HEADER_BYTES, now_ns);
	return true;
}

static uint8_t control_tos(void)
{
	return dlcp_tos(DLCP_CONTROL_QUEUE, 0, DLCP_ECN_NOT_ECT);
}

/* Write what a control intent asks for into heads[0]; its length, or 0 when it is pointless by now. */
static size_t build_control(struct dlcp_protocol *protocol, const struct control *control, uint64_t now_ns)
{
	static const uint8_t types[] = {
		[CONTROL_DONE] = DLCP_DONE, [CONTROL_NACK] = DLCP_NACK, [CONTROL_WAIT] = DLCP_NACK,
		[CONTROL_STOP] = DLCP_STOP,
	};
	uint8_t *bytes = protocol->heads[0];
	const struct outgoing *message;
	struct dlcp_header header;

	dlcp_fill_header(protocol, types[control->kind], &control->key, now_ns, &header);
	switch (control->kind) {
	case CONTROL_DONE:
		message = dlcp_outgoing_find(protocol, control->peer, &control->key);
		if (!message)
			return 0;
		dlcp_header_encode(&header, bytes);
		dlcp_put32(bytes + 32, message->packets);
		dlcp_put32(bytes + 36, control->round);
		protocol->statistics.dones_sent++;
		return DLCP_DONE_BYTES;
	case CONTROL_NACK:
		protocol->statistics.nacks_sent++;
		return dlcp_build_nack(protocol, control, &header, bytes);
	case CONTROL_WAIT:
		header.flags = DLCP_FLAG_WAIT;
		dlcp_header_encode(&header, bytes);
		protocol->statistics.nacks_sent++;
		return dlcp_nack_encode(&(struct dlcp_nack){ .round = control->round }, bytes);
	default:
		dlcp_header_encode(&header, bytes);
		dlcp_put64(bytes + 32, control->delivered_bytes);
		protocol->statistics.stops_sent++;
		return DLCP_STOP_BYTES;
	}
}

static bool poll_control(struct dlcp_protocol *protocol, uint64_t now_ns, struct dlcp_burst *burst)
{
	while (protocol->control_head != protocol->control_tail) {
		struct control control = protocol->control[protocol->control_head++ & (CONTROL_RING - 1)];
		size_t bytes = build_control(protocol, &control, now_ns);

		if (bytes)
			return control_burst(protocol, control.peer, control_tos(), bytes, now_ns, burst);
	}
	return false;
}

/* A PROBE in a queue of data whose evidence is overdue, or as a greeting in the control queue. */
static bool build_probe(struct dlcp_protocol *protocol, struct peer *peer, uint8_t queue, uint64_t now_ns,
			struct dlcp_burst *burst)
{
	static const struct dlcp_key none = { 0 };
	bool greeting = queue == DLCP_CONTROL_QUEUE;
	uint8_t tos = greeting ? control_tos() : dlcp_class_tos(protocol, queue, CLASS_RELIABLE);
	struct dlcp_header header;

	dlcp_fill_header(protocol, DLCP_PROBE, &none, now_ns, &header);
	dlcp_record(protocol, peer, queue, now_ns, &header.sequence);
	dlcp_header_encode(&header, protocol->heads[0]);
	control_burst(protocol, peer->rank, tos, DLCP_HEADER_BYTES, now_ns, burst);
	if (greeting) {
		peer->greeted = true;
		peer->greeted_ns = now_ns;
		peer->greetings++;
		protocol->statistics.greetings_sent++;
	} else {
		peer->lanes[queue].probes++;
		protocol->statistics.probes_sent++;
	}
	return true;
}

/* Acknowledgements and probes: what follows from a peer's state alone. */
static bool poll_peer(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns, struct dlcp_burst *burst)
{
	if (peer->gone)
		return false;
	if (peer->ack_at_ns <= now_ns) {
		dlcp_build_ack(protocol, peer, now_ns, protocol->heads[0]);
		protocol->statistics.acks_sent++;
		return control_burst(protocol, peer->rank, control_tos(), DLCP_ACK_BYTES, now_ns, burst);
	}
	if (greeting_time(protocol, peer) <= now_ns)
		return build_probe(protocol, peer, DLCP_CONTROL_QUEUE, now_ns, burst);
	if (dlcp_records_full(peer) || !peer->in_flight)
		return false;
	for (uint8_t queue = 0; queue < DLCP_QUEUES; queue++)
		if (dlcp_lane_timer(protocol, peer, queue) <= now_ns)
			return build_probe(protocol, peer, queue, now_ns, burst);
	return false;
}

static const char *leg_name(uint8_t leg)
{
	return leg == DLCP_PUSH ? "push" : "pull";
}

/* The oldest debt of a peer, in words. */
static int describe_peer(const struct peer *peer, char *text, size_t bytes)
{
	const struct incoming *expected = peer->expected_head;
	const struct outgoing *waiting = peer->waiting_head;

	if (expected && (!waiting || expected->start_ns <= waiting->start_ns))
		return snprintf(text, bytes,
				"rank %u: tensor %u of iteration %u (%s): %u of %u packets have not arrived", peer->rank,
				expected->key.tensor, expected->key.iteration, leg_name(expected->key.leg),
				expected->packets - expected->arrived, expected->packets);
	if (waiting)
		return snprintf(text, bytes,
				"rank %u: tensor %u of iteration %u (%s): %u of %u packets sent, %u acknowledged, no STOP yet",
				peer->rank, waiting->key.tensor, waiting->key.iteration, leg_name(waiting->key.leg),
				waiting->cursor, waiting->packets, waiting->arrived);
	return snprintf(text, bytes, "rank %u", peer->rank);
}

static void check_silence(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns)
{
	char debt[DLCP_ERROR_BYTES / 2];

	if (gone_time(protocol, peer) > now_ns)
		return;
	peer->gone = true;
	peer->ack_at_ns = peer->loss_check_ns = peer->done_hint_ns = NEVER;
	if (protocol->gone_rank >= 0)
		return;
	protocol->gone_rank = peer->rank;
	describe_peer(peer, debt, sizeof debt);
	dlcp_fail(protocol, DLCP_ERROR_PEER_GONE, "rank %u is gone: silent for %.1f s while it owes: %s", peer->rank,
		  (double)(now_ns - silent_since(peer)) / 1e9, debt);
}

static void run_timers(struct dlcp_protocol *protocol, uint64_t now_ns)
{
	if (protocol->timers_ran_ns == now_ns)
		return;
	protocol->timers_ran_ns = now_ns;
	for (uint32_t i = 0; i < protocol->peer_count; i++) {
		struct peer *peer = protocol->peers[protocol->ranks[i]];

		if (peer->gone)
			continue;
		if (peer->loss_check_ns <= now_ns)
			dlcp_detect_losses(protocol, peer, now_ns);
		dlcp_run_done_timers(protocol, peer, now_ns);
		check_silence(protocol, peer, now_ns);
	}
}

int dlcp_protocol_poll_transmit(struct dlcp_protocol *protocol, uint64_t now_ns, struct dlcp_burst *burst)
{
	bool found = false;

	run_timers(protocol, now_ns);
	for (uint32_t i = 0; i < protocol->peer_count && !found; i++)
		found = poll_peer(protocol, protocol->peers[protocol->ranks[i]], now_ns, burst);
	if (!found && !poll_control(protocol, now_ns, burst) && !dlcp_poll_data(protocol, now_ns, burst))
		return 0;
	protocol->statistics.packets_sent += burst->packets;
	for (uint32_t i = 0; i < burst->packets; i++)
		protocol->statistics.bytes_sent += burst->head_bytes + burst->payload_bytes[i];
	return 1;
}

uint64_t dlcp_protocol_next_timer(struct dlcp_protocol *protocol, uint64_t now_ns)
{
	uint64_t at = dlcp_data_time(protocol, now_ns);

	if (protocol->control_head != protocol->control_tail)
		return now_ns;
	for (uint32_t i = 0; i < protocol->peer_count; i++) {
		const struct peer *peer = protocol->peers[protocol->ranks[i]];

		if (peer->gone)
			continue;
		at = earlier(at, earlier(gone_time(protocol, peer), greeting_time(protocol, peer)));
		at = earlier(at, earlier(peer->ack_at_ns, earlier(peer->loss_check_ns, peer->done_hint_ns)));
		if (peer->in_flight && !dlcp_records_full(peer))
			for (uint8_t queue = 0; queue < DLCP_QUEUES; queue++)
				at = earlier(at, dlcp_lane_timer(protocol, peer, queue));
	}
	return at;
}

int dlcp_protocol_gone(struct dlcp_protocol *protocol)
{
	return protocol->gone_rank;
}

void dlcp_protocol_describe(struct dlcp_protocol *protocol, uint64_t now_ns, char *text, size_t text_bytes)
{
	size_t used = 0;

	if (text_bytes)
		text[0] = 0;
	for (uint32_t i = 0; i < protocol->peer_count && used + 1 < text_bytes; i++) {
		const struct peer *peer = protocol->peers[protocol->ranks[i]];
		int more;

		if (!peer->expected_head && !peer->waiting_head)
			continue;
		used += (size_t)snprintf(text + used, text_bytes - used, "%s", used ? "; " : "");
		more = used < text_bytes ? describe_peer(peer, text + used, text_bytes - used) : 0;
		used += (size_t)(more > 0 ? more : 0);
		if (used < text_bytes)
			used += (size_t)snprintf(text + used, text_bytes - used, ", last heard %.2f s ago",
						 peer->heard ? (double)(now_ns - peer->heard_ns) / 1e9 : INFINITY);
	}
}

uint32_t dlcp_protocol_sending(const struct dlcp_protocol *protocol)
{
	return protocol->sending;
}

uint32_t dlcp_protocol_receiving(const struct dlcp_protocol *protocol)
{
	return protocol->receiving;
}

void dlcp_protocol_statistics(const struct dlcp_protocol *protocol, struct dlcp_statistics *statistics)
{
	*statistics = protocol->statistics;
}

int dlcp_protocol_peer_statistics(const struct dlcp_protocol *protocol, uint16_t rank,
				  struct dlcp_peer_statistics *statistics)
{
	const struct peer *peer = rank < DLCP_MAX_RANKS ? protocol->peers[rank] : NULL;

	if (!peer)
		return DLCP_ERROR_ARGUMENT;
	*statistics = (struct dlcp_peer_statistics){
		.rank = rank,
		.gone = peer->gone,
		.min_rtt_ns = peer->min_rtt_ns,
		.srtt_ns = peer->srtt_ns,
		.rttvar_ns = peer->rttvar_ns,
		.window = peer->congestion->window(peer->congestion_state),
		.in_flight = peer->in_flight,
		.sent = peer->sent,
		.lost = peer->lost,
	};
	return DLCP_OK;
}
