/* Bursts of data: as many packets of one message as window, pace and GSO allow. Which message is next says schedule.c. */
#include "transmit.h"

#include <math.h>

#include "recovery.h"
#include "tagging.h"
#include "timeouts.h"

/* A sender that was held up (by the scheduler, by a timer) may catch up at most this much of its link's time. */
#define CATCH_UP_NS (500 * MICROSECOND)

/* Packets that congestion control lets be in flight. R87. */
static uint32_t window_packets(const struct peer *peer, uint8_t queue)
{
	double window = peer->sending.congestion->window(peer->sending.lanes[queue]->control);

	return window <= 1 ? 1 : (uint32_t)ceil(window);
}

/* Time between packets to one peer. */
static uint64_t pace_ns(const struct peer *peer, uint8_t queue)
{
	const struct lane *lane = peer->sending.lanes[queue];
	uint64_t rtt_ns = lane->latest_rtt_ns ? lane->latest_rtt_ns : peer->path.srtt_ns;

	return (uint64_t)peer->sending.congestion->pace_ns(lane->control, rtt_ns);
}

/* Packets in flight as a queue sees them. What waits in lower queues delays nothing above, but it fills the ports' shared
 * buffers: it counts, yet leaves a higher queue room for one packet, which is enough to take the link over. R86. */
static uint32_t in_the_way(const struct peer *peer, uint8_t queue)
{
	uint32_t below = 0, most = window_packets(peer, queue) - 1;

	for (int lower = 0; lower < queue; lower++)
		below += peer->sending.lanes[lower] ? peer->sending.lanes[lower]->in_flight : 0;
	return peer->sending.in_flight - below + (below < most ? below : most);
}

/* Nothing is sent into a path that has not answered a greeting yet: its round-trip time sets the pace. R24, R86. */
bool dlcp_window_open(const struct peer *peer, uint8_t queue)
{
	return !peer->liveness.gone && peer->path.srtt_ns && in_the_way(peer, queue) < window_packets(peer, queue) &&
	       !dlcp_records_full(peer);
}

/* The packet that would be sent next: retransmissions first (or last), those of the largest gradients before others. NONE:
 * none. R58, R65. */
static uint32_t next_packet(const struct dlcp_protocol *protocol, struct outgoing *message, bool *resend)
{
	bool passing = message->progress.cursor < message->count;

	*resend = dlcp_must_resend(message) && !(passing && protocol->config.resend_last && !message->packets.must_lost);
	if (!*resend)
		return passing ? message->tags.order[message->progress.cursor] : NONE;
	return dlcp_largest_lost(message);
}

void dlcp_fill_header(const struct dlcp_protocol *protocol, uint8_t type, const struct dlcp_key *key,
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
	};
}

/* The link is busy with so many bytes. R89. */
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
	uint32_t elements = dlcp_packet_elements(message->elements, message->dtype, packet), i = burst->packets++;
	uint32_t bytes = elements * dlcp_element_bytes(message->dtype);
	uint8_t class = message->tags.class[packet];
	struct dlcp_header header;
	struct record *record;

	dlcp_fill_header(protocol, DLCP_DATA, &message->entry.key, &header);
	record = dlcp_record(protocol, peer, message->progress.queue, now_ns, &header.sequence);
	record->message = message->id;
	record->outgoing = message;
	record->packet = packet;
	record->class = resend ? CLASS_RELIABLE : class;
	header.flags = (uint8_t)((resend ? DLCP_FLAG_RETRANSMISSION : 0) |
				 (class == CLASS_RELIABLE ? DLCP_FLAG_MUST_ARRIVE : 0) |
				 (message->tags.must_arrive ? DLCP_FLAG_SOME_MUST_ARRIVE : 0) |
				 (packet + 1 == message->count ? message->last_flag : 0) | /* R116 */
				 (record->class == CLASS_DROPPABLE ? DLCP_FLAG_DROPPABLE : 0));
	header.dtype = message->dtype;
	header.magnitude = message->tags.magnitude[packet];
	header.energy = message->tags.energy_code;
	header.contributors = message->contributors[packet];
	header.offset = packet * dlcp_full_packet(message->dtype);
	header.count = (uint16_t)elements;
	message->packets.latest[packet] = header.sequence;
	dlcp_set_state(message, packet, IN_FLIGHT);
	if (!resend)
		message->progress.cursor++;
	message->progress.sent_bytes += bytes;
	if (peer->liveness.unheard_since_ns == NEVER) {
		peer->liveness.unheard_since_ns = now_ns;
		peer->liveness.probe_heard = false;
	}
	peer->sending.in_flight++;
	peer->sending.lanes[message->progress.queue]->in_flight++;
	dlcp_header_encode(&header, protocol->heads[i]);
	burst->head[i] = protocol->heads[i];
	burst->payload[i] = message->data + (size_t)packet * DLCP_PAYLOAD_BYTES;
	burst->payload_bytes[i] = bytes;

	peer->sending.sent++;
	protocol->statistics.data_packets_sent++;
	protocol->statistics.data_bytes_sent += bytes;
	protocol->statistics.packets_droppable += record->class == CLASS_DROPPABLE;
	if (resend) {
		message->progress.resent_bytes += bytes;
		protocol->statistics.packets_resent++;
		protocol->statistics.bytes_resent += bytes;
	}
	dlcp_charge_link(protocol, DLCP_FRAME_OVERHEAD_BYTES + bytes, now_ns);
}

/* Ask for an acknowledgement with the burst's last packet when the sender will wait for it: about twice a window. R21. */
static void ask_for_ack(struct dlcp_protocol *protocol, struct peer *peer, uint8_t queue, bool last,
			const struct dlcp_burst *burst)
{
	struct lane *lane = peer->sending.lanes[queue];
	uint32_t window = window_packets(peer, queue);

	lane->since_ack_request += burst->packets;
	if (last || in_the_way(peer, queue) >= window || lane->since_ack_request >= (window + 1) / 2) {
		protocol->heads[burst->packets - 1][1] |= DLCP_FLAG_ACK_NOW;
		lane->since_ack_request = 0;
	}
}

/* The first pass of a message of which something may be missing has left. Once what is late counts as lost, the receiver is
 * told, so that it need not wait until losses at the very end are proven. R60. */
static void pass_left(struct dlcp_protocol *protocol, struct peer *peer, struct outgoing *message, uint8_t queue,
		      uint64_t now_ns)
{
	if (!message->tags.allowed_bytes || protocol->config.eager_stop)
		return;
	message->asking.passed_at_ns = now_ns + dlcp_patience(peer, peer->sending.lanes[queue]);
	peer->sending.done_hint_ns = dlcp_earlier(peer->sending.done_hint_ns, message->asking.passed_at_ns);
}

/* Packets of one class of one message, as many as window, pace and GSO allow. R88. */
void dlcp_fill(struct dlcp_protocol *protocol, struct peer *peer, struct outgoing *message, uint64_t now_ns,
	       struct dlcp_burst *burst)
{
	uint8_t queue = message->progress.queue;
	struct lane *lane = peer->sending.lanes[queue];
	uint32_t window = window_packets(peer, queue), at_once = (window + 3) / 4;
	uint32_t room = window - in_the_way(peer, queue);
	uint64_t pace = pace_ns(peer, queue);
	bool first_pass = message->progress.cursor < message->count;

	*burst = (struct dlcp_burst){ .peer = peer->rank, .head_bytes = DLCP_HEADER_BYTES };
	if (room > at_once)
		room = at_once;
	if (room > protocol->burst_packets)
		room = protocol->burst_packets;
	while (burst->packets < room) {
		bool resend;
		uint32_t packet = next_packet(protocol, message, &resend);
		uint8_t tos;

		if (packet == NONE)
			break;
		/* R37 */
		tos = dlcp_class_tos(protocol, queue, resend ? CLASS_RELIABLE : message->tags.class[packet]);
		if (burst->packets && tos != burst->tos)
			break;
		burst->tos = tos;
		add_packet(protocol, peer, message, packet, resend, now_ns, burst);
		dlcp_demote(protocol, peer, message, now_ns);
		if (burst->payload_bytes[burst->packets - 1] < DLCP_PAYLOAD_BYTES || message->progress.queue != queue)
			break;
	}
	if (lane->next_send_ns + pace < now_ns)
		lane->next_send_ns = now_ns - pace;
	lane->next_send_ns += pace * burst->packets;
	ask_for_ack(protocol, peer, queue, !dlcp_has_packets(message) || message->progress.queue != queue, burst);
	dlcp_outgoing_changed(protocol, message, now_ns);
	if (first_pass && message->progress.cursor == message->count)
		pass_left(protocol, peer, message, queue, now_ns);
}
