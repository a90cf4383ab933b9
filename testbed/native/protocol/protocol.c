/* The doors of the state machine: set-up, packets in, timers and control packets out, completions, statistics. */
#include "protocol.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "acknowledge.h"
#include "codepoint.h"
#include "control.h"
#include "incoming.h"
#include "liveness.h"
#include "outgoing.h"
#include "receiver.h"
#include "recovery.h"
#include "schedule.h"
#include "sender.h"
#include "stash.h"

/* Time of a fast link that one burst may take and one acknowledgement may stand for: less than a host's scheduler adds,
 * and at 10 Gbit/s and above no system call has more packets than GSO takes. */
#define BURST_NS (100 * MICROSECOND)
#define DEFAULT_STASH_BYTES (16u << 20)
#define FASTEST_LINK_BPS 1e12 /* a full packet takes 12 of the nanoseconds that clocks count */

const char *dlcp_protocol_error(const struct dlcp_protocol *protocol)
{
	return protocol->error;
}

static void set_defaults(struct dlcp_config *config)
{
	/* R20 */
	if (!config->ack_delay_ns)
		config->ack_delay_ns = 500 * MICROSECOND;
	/* R84 */
	if (!config->silence_ns)
		config->silence_ns = 10 * SECOND;
	if (!config->stash_bytes)
		config->stash_bytes = DEFAULT_STASH_BYTES;
	if (!config->first_contact_ns)
		config->first_contact_ns = 60 * SECOND;
}

/* Packets that this host's link carries in a time, within limits. */
static uint32_t packets_in(const struct dlcp_protocol *protocol, uint64_t time_ns, uint32_t least, uint32_t most)
{
	return (uint32_t)fmin(fmax((double)time_ns / protocol->packet_ns, least), most);
}

struct dlcp_protocol *dlcp_protocol_new(const struct dlcp_config *config, char *error, size_t error_bytes)
{
	struct dlcp_protocol *protocol;

	if (!(config->link_bps > 0 && config->link_bps <= FASTEST_LINK_BPS) || config->rank >= DLCP_MAX_RANKS ||
	    config->selective_drop > DLCP_DROP_ECT || config->magnitude_metric > DLCP_METRIC_MAX ||
	    !(config->fixed_window >= 0 && config->fixed_window <= RECORDS_MOST)) {
		snprintf(error, error_bytes,
			 "rank %u, link %.0f bit/s, selective drop %u, metric %u, fixed window %.0f: out of range",
			 config->rank, config->link_bps, config->selective_drop, config->magnitude_metric,
			 config->fixed_window);
		return NULL;
	}
	if (!memchr(config->congestion_control, 0, sizeof config->congestion_control) ||
	    !dlcp_congestion_find(config->congestion_control)) {
		snprintf(error, error_bytes, "congestion control \"%.15s\" is not known", config->congestion_control);
		return NULL;
	}
	protocol = calloc(1, sizeof *protocol);
	if (!protocol || !dlcp_table_init(&protocol->outgoing) || !dlcp_table_init(&protocol->incoming)) {
		snprintf(error, error_bytes, "no memory");
		dlcp_protocol_free(protocol);
		return NULL;
	}
	protocol->config = *config;
	set_defaults(&protocol->config);
	protocol->packet_ns = (DLCP_PAYLOAD_BYTES + DLCP_FRAME_OVERHEAD_BYTES) * 8e9 / config->link_bps;
	protocol->ecn = dlcp_congestion_find(config->congestion_control)->needs_ecn;
	/* R88 */
	protocol->burst_packets = packets_in(protocol, BURST_NS, BURST_PACKETS, DLCP_BURST_PACKETS);
	/* R19 */
	protocol->ack_every = packets_in(protocol, BURST_NS, ACK_EVERY, ACK_EVERY_MOST);
	protocol->gone.rank = -1;
	protocol->stash.most = protocol->config.stash_bytes / sizeof(struct stashed);
	return protocol;
}

static void free_messages(struct peer *peer)
{
	for (struct outgoing *next, *message = peer->sending.waiting_head; message; message = next) {
		next = message->waiting_next;
		dlcp_outgoing_free(message);
	}
	for (struct incoming *next, *message = peer->receiving.expected_head; message; message = next) {
		next = message->next;
		dlcp_incoming_free(message);
	}
}

void dlcp_protocol_free(struct dlcp_protocol *protocol)
{
	if (!protocol)
		return;
	for (struct peer *peer = protocol->peer_head; peer; peer = peer->next)
		free_messages(peer);
	dlcp_peers_free(protocol);
	for (struct outgoing *next, *message = protocol->free_outgoing; message; message = next) {
		next = message->waiting_next;
		dlcp_outgoing_free(message);
	}
	for (struct incoming *next, *message = protocol->free_incoming; message; message = next) {
		next = message->next;
		dlcp_incoming_free(message);
	}
	for (struct finished *next, *finished = protocol->completions.head; finished; finished = next) {
		next = finished->next;
		free(finished);
	}
	for (struct finished *next, *finished = protocol->completions.free; finished; finished = next) {
		next = finished->next;
		free(finished);
	}
	dlcp_stash_free(protocol);
	dlcp_schedule_free(protocol);
	dlcp_table_free(&protocol->outgoing);
	dlcp_table_free(&protocol->incoming);
	free(protocol->control.packets);
	free(protocol->tensors);
	free(protocol->scratch);
	free(protocol);
}

static bool same_shape(const struct dlcp_tensor *a, const struct dlcp_tensor *b)
{
	return a->elements == b->elements && !memcmp(a->bound, b->bound, sizeof a->bound) && a->dtype == b->dtype &&
	       a->queue == b->queue && a->droppable == b->droppable && a->must_arrive == b->must_arrive &&
	       a->variable == b->variable && a->must_arrive_ppm == b->must_arrive_ppm;
}

/* Room for a tensor's declaration. */
static bool reserve_tensor(struct dlcp_protocol *protocol, uint16_t number)
{
	uint32_t count = (uint32_t)number + 1;
	struct tensor *grown;

	if (protocol->tensor_count >= count)
		return true;
	grown = realloc(protocol->tensors, count * sizeof *grown);
	if (!grown)
		return false;
	memset(grown + protocol->tensor_count, 0, (count - protocol->tensor_count) * sizeof *grown);
	protocol->tensors = grown;
	protocol->tensor_count = count;
	return true;
}

/* R111 */
int dlcp_protocol_declare(struct dlcp_protocol *protocol, uint16_t number, const struct dlcp_tensor *shape)
{
	const struct tensor *before = dlcp_declared(protocol, number);
	uint32_t packets = dlcp_packets_of(shape->elements, shape->dtype);

	if (shape->elements == 0 || shape->elements > UINT32_MAX - DLCP_PAYLOAD_BYTES || shape->dtype >= DLCP_DTYPES ||
	    shape->queue >= DLCP_CONTROL_QUEUE || shape->droppable > (DLCP_DROPPABLE_SMALL | DLCP_DROPPABLE_LARGE) ||
	    shape->must_arrive_ppm > DLCP_PPM || !dlcp_bound_valid(&shape->bound[0]) ||
	    !dlcp_bound_valid(&shape->bound[1]))
		return dlcp_fail(protocol, DLCP_ERROR_ARGUMENT,
				 "tensor %u: %u elements, dtype %u, queue %u, droppable %u, must arrive %u ppm, "
				 "or a bound: out of range",
				 number, shape->elements, shape->dtype, shape->queue, shape->droppable,
				 shape->must_arrive_ppm);
	/* R115 */
	if (shape->variable && !shape->must_arrive)
		return dlcp_fail(protocol, DLCP_ERROR_ARGUMENT,
				 "tensor %u: messages of variable length must arrive, and this tensor need not", number);
	if (before && !same_shape(&before->shape, shape))
		return dlcp_fail(protocol, DLCP_ERROR_DUPLICATE, "tensor %u was declared otherwise before", number);
	if (packets > protocol->scratch_packets) {
		float *grown = realloc(protocol->scratch, (size_t)packets * 2 * sizeof *grown);

		if (!grown)
			return dlcp_fail(protocol, DLCP_ERROR_MEMORY, "no memory for tensor %u", number);
		protocol->scratch = grown;
		protocol->scratch_packets = packets;
	}
	if (!reserve_tensor(protocol, number))
		return dlcp_fail(protocol, DLCP_ERROR_MEMORY, "no memory for tensor %u", number);
	protocol->tensors[number].shape = *shape;
	protocol->tensors[number].declared = true;
	return DLCP_OK;
}

int dlcp_protocol_add_peer(struct dlcp_protocol *protocol, uint16_t rank, uint64_t now_ns)
{
	if (rank >= DLCP_MAX_RANKS || rank == protocol->config.rank || dlcp_peer(protocol, rank))
		return dlcp_fail(protocol, DLCP_ERROR_ARGUMENT, "rank %u cannot be added as a peer", rank);
	if (!dlcp_peer_add(protocol, rank, now_ns))
		return dlcp_fail(protocol, DLCP_ERROR_MEMORY, "no memory for rank %u", rank);
	return DLCP_OK;
}

int dlcp_protocol_has_completion(const struct dlcp_protocol *protocol)
{
	return protocol->completions.head != NULL;
}

int dlcp_protocol_poll_completion(struct dlcp_protocol *protocol, struct dlcp_completion *completion)
{
	struct finished *finished = protocol->completions.head;

	if (!finished)
		return 0;
	*completion = finished->completion;
	protocol->completions.head = finished->next;
	finished->next = protocol->completions.free;
	protocol->completions.free = finished;
	return 1;
}

static void dispatch(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		     const uint8_t *bytes, size_t size, bool ce, uint64_t received_ns, uint64_t now_ns)
{
	struct dlcp_done done;

	switch (header->type) {
	case DLCP_DATA:
		dlcp_on_sequence(protocol, peer, header, ce, received_ns, now_ns);
		dlcp_on_data(protocol, peer, header, bytes + DLCP_HEADER_BYTES, now_ns);
		break;
	case DLCP_PROBE:
		if (dlcp_check_incarnation(protocol, peer, header))
			dlcp_on_sequence(protocol, peer, header, ce, received_ns, now_ns);
		break;
	case DLCP_DONE:
		if (!dlcp_check_incarnation(protocol, peer, header))
			break;
		if (dlcp_done_decode(&done, bytes) == DLCP_WIRE_OK)
			dlcp_on_done(protocol, peer, header, &done, now_ns);
		else
			protocol->statistics.packets_malformed++;
		break;
	case DLCP_NACK: dlcp_on_nack(protocol, peer, header, bytes, size, now_ns); break;
	case DLCP_STOP: dlcp_on_stop(protocol, peer, header, bytes, now_ns); break;
	default: protocol->statistics.packets_malformed++; break;
	}
}

/* R108 */
void dlcp_protocol_input(struct dlcp_protocol *protocol, const uint8_t *bytes, size_t size, uint8_t tos,
			 uint64_t received_ns, uint64_t now_ns, uint32_t overflow)
{
	bool ce = dlcp_tos_ecn(tos) == DLCP_ECN_CE;
	int type = dlcp_packet_type(bytes, size), wrong;
	struct dlcp_header header;
	struct dlcp_ack ack;
	struct peer *peer;

	protocol->overflow = overflow;
	if (type < 0) {
		protocol->statistics.packets_malformed++;
		return;
	}
	peer = dlcp_peer(protocol, dlcp_packet_source(bytes));
	/* R10 */
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
	peer->liveness.heard = true;
	peer->liveness.heard_ns = now_ns;
	peer->liveness.greetings = 0;
	if (type == DLCP_ACK) {
		protocol->statistics.acks_received++;
		dlcp_on_ack(protocol, peer, &ack, received_ns, now_ns);
	} else {
		dispatch(protocol, peer, &header, bytes, size, ce, received_ns, now_ns);
	}
	dlcp_reschedule(protocol, peer, now_ns);
}

static void run_timers(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns)
{
	if (peer->liveness.gone)
		return;
	if (peer->sending.loss_check_ns <= now_ns)
		dlcp_detect_losses(protocol, peer, now_ns);
	dlcp_run_done_timers(protocol, peer, now_ns);
	dlcp_run_deadlines(protocol, peer, now_ns);
	dlcp_check_silence(protocol, peer, now_ns);
}

/* Timers of the peers that are due, and what follows from a peer's state alone: the next acknowledgement or probe. */
static bool poll_due_peers(struct dlcp_protocol *protocol, uint64_t now_ns, struct dlcp_burst *burst)
{
	struct peer *peer;

	while ((peer = dlcp_due_peer(protocol, now_ns))) {
		run_timers(protocol, peer, now_ns);
		if (dlcp_poll_peer(protocol, peer, now_ns, burst)) {
			dlcp_reschedule(protocol, peer, now_ns); /* and it may have another one */
			return true;
		}
		dlcp_turn_over(protocol, peer, now_ns);
	}
	return false;
}

/* R92 */
int dlcp_protocol_poll_transmit(struct dlcp_protocol *protocol, uint64_t now_ns, struct dlcp_burst *burst)
{
	if (!poll_due_peers(protocol, now_ns, burst) && !dlcp_poll_control(protocol, now_ns, burst) &&
	    !dlcp_poll_data(protocol, now_ns, burst))
		return 0;
	protocol->statistics.packets_sent += burst->packets;
	for (uint32_t i = 0; i < burst->packets; i++)
		protocol->statistics.bytes_sent += burst->head_bytes + burst->payload_bytes[i];
	return 1;
}

uint64_t dlcp_protocol_next_timer(struct dlcp_protocol *protocol, uint64_t now_ns)
{
	return protocol->control.head != protocol->control.tail ? now_ns : dlcp_schedule_time(protocol, now_ns);
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
	statistics->stash_bytes = (uint64_t)protocol->stash.made * sizeof(struct stashed);
}

int dlcp_protocol_peer_statistics(const struct dlcp_protocol *protocol, uint16_t rank,
				  struct dlcp_peer_statistics *statistics)
{
	const struct peer *peer = dlcp_peer(protocol, rank);
	double window = 0;

	if (!peer)
		return DLCP_ERROR_ARGUMENT;
	for (uint32_t queue = 0; queue < DLCP_QUEUES; queue++)
		if (peer->sending.lanes[queue] && peer->sending.lanes[queue]->ordinal)
			window = fmax(window, peer->sending.congestion->window(peer->sending.lanes[queue]->control));
	*statistics = (struct dlcp_peer_statistics){
		.rank = rank,
		.gone = peer->liveness.gone,
		.min_rtt_ns = peer->path.min_rtt_ns,
		.srtt_ns = peer->path.srtt_ns,
		.rttvar_ns = peer->path.rttvar_ns,
		.window = window,
		.in_flight = peer->sending.in_flight,
		.sent = peer->sending.sent,
		.lost = peer->sending.lost,
	};
	return DLCP_OK;
}
