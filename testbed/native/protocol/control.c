/* Control packets on their way out: what waits in the ring, and what follows from a peer's state alone. */
#include "control.h"

#include "acknowledge.h"
#include "codepoint.h"
#include "liveness.h"
#include "outgoing.h"
#include "receiver.h"
#include "recovery.h"
#include "tagging.h"
#include "timeouts.h"
#include "transmit.h"

/* A burst of one control packet of so many bytes at control_packet. */
static bool control_burst(struct dlcp_protocol *protocol, uint16_t peer, uint8_t tos, size_t bytes, uint64_t now_ns,
			  struct dlcp_burst *burst)
{
	*burst = (struct dlcp_burst){ .peer = peer, .tos = tos, .packets = 1, .head_bytes = (uint32_t)bytes };
	burst->head[0] = protocol->control_packet;
	dlcp_charge_link(protocol, (uint32_t)bytes + DLCP_FRAME_OVERHEAD_BYTES - DLCP_HEADER_BYTES, now_ns);
	return true;
}

static uint8_t control_tos(void)
{
	return dlcp_tos(DLCP_CONTROL_QUEUE, 0, DLCP_ECN_NOT_ECT);
}

/* All in the control queue but for what must not overtake the data that it speaks of. R11, R60. */
static uint8_t tos_of(const struct dlcp_protocol *protocol, const struct control *control)
{
	const struct outgoing *message = NULL;

	if (control->kind == CONTROL_PASSED)
		message = dlcp_outgoing_find(protocol, control->peer, &control->key);
	return message ? dlcp_class_tos(protocol, message->progress.queue, CLASS_RELIABLE) : control_tos();
}

/* Write what a control intent asks for into control_packet; its length, or 0 when it is pointless by now. */
static size_t build_control(struct dlcp_protocol *protocol, const struct control *control)
{
	static const uint8_t types[] = {
		[CONTROL_DONE] = DLCP_DONE, [CONTROL_PASSED] = DLCP_DONE, [CONTROL_NACK] = DLCP_NACK,
		[CONTROL_WAIT] = DLCP_NACK, [CONTROL_STOP] = DLCP_STOP,
	};
	uint8_t *bytes = protocol->control_packet;
	const struct outgoing *message;
	struct dlcp_header header;

	dlcp_fill_header(protocol, types[control->kind], &control->key, &header);
	/* R23 */
	if (control->kind == CONTROL_STOP)
		header.offset = dlcp_peer(protocol, control->peer)->liveness.incarnation;
	else if (control->kind == CONTROL_DONE || control->kind == CONTROL_PASSED)
		header.offset = protocol->config.incarnation;
	switch (control->kind) {
	case CONTROL_DONE:
	case CONTROL_PASSED:
		message = dlcp_outgoing_find(protocol, control->peer, &control->key);
		if (!message)
			return 0;
		dlcp_header_encode(&header, bytes);
		protocol->statistics.dones_sent++;
		return dlcp_done_encode(&(struct dlcp_done){ message->count, control->round, message->tags.energy,
							     message->tags.must_arrive }, bytes);
	case CONTROL_NACK: return dlcp_build_nack(protocol, control, &header, bytes);
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

bool dlcp_poll_control(struct dlcp_protocol *protocol, uint64_t now_ns, struct dlcp_burst *burst)
{
	while (protocol->control.head != protocol->control.tail) {
		struct control control = protocol->control.packets[protocol->control.head++ & (protocol->control.room - 1)];
		size_t bytes = build_control(protocol, &control);

		if (bytes)
			return control_burst(protocol, control.peer, tos_of(protocol, &control), bytes, now_ns, burst);
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

	dlcp_fill_header(protocol, DLCP_PROBE, &none, &header);
	header.offset = protocol->config.incarnation;
	dlcp_record(protocol, peer, queue, now_ns, &header.sequence);
	dlcp_header_encode(&header, protocol->control_packet);
	control_burst(protocol, peer->rank, tos, DLCP_HEADER_BYTES, now_ns, burst);
	if (greeting) {
		peer->liveness.greeted = true;
		peer->liveness.greeted_ns = now_ns;
		peer->liveness.greetings++;
		protocol->statistics.greetings_sent++;
	} else {
		peer->sending.lanes[queue]->probes++;
		protocol->statistics.probes_sent++;
	}
	return true;
}

/* Acknowledgements and probes: what follows from a peer's state alone. R56. */
bool dlcp_poll_peer(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns, struct dlcp_burst *burst)
{
	if (peer->liveness.gone)
		return false;
	if (peer->receiving.ack_at_ns <= now_ns) {
		dlcp_build_ack(protocol, peer, now_ns, protocol->control_packet);
		protocol->statistics.acks_sent++;
		return control_burst(protocol, peer->rank, control_tos(), DLCP_ACK_BYTES, now_ns, burst);
	}
	if (dlcp_greeting_time(protocol, peer) <= now_ns)
		return build_probe(protocol, peer, DLCP_CONTROL_QUEUE, now_ns, burst);
	if (dlcp_records_full(peer) || !peer->sending.in_flight)
		return false;
	for (uint8_t queue = 0; queue < DLCP_QUEUES; queue++)
		if (dlcp_lane_timer(protocol, peer, queue) <= now_ns)
			return build_probe(protocol, peer, queue, now_ns, burst);
	return false;
}
