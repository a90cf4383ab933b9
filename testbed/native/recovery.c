/* What acknowledgements tell a sender: round-trip times, losses, progress. Nothing is ever presumed lost without
 * evidence: a packet of the same queue that left later and arrived. When evidence is overdue, a PROBE asks for it. */
#include "protocol_internal.h"

enum { MIN_RTT_WINDOW_S = 15 }; /* two of these are remembered: routes may change, standing queues must not count */
#define FIRST_TIMEOUT_NS (20 * MILLISECOND) /* before any round-trip time is known */
#define LONGEST_TIMEOUT_NS (250 * MILLISECOND)

static struct record *record_of(const struct peer *peer, uint32_t sequence)
{
	return &peer->records[sequence & (RECORDS - 1)];
}

/* 1 if no transmission can be remembered any more: the oldest one in flight is RECORDS back. */
bool dlcp_records_full(const struct peer *peer)
{
	return peer->next_sequence - peer->oldest >= RECORDS - DLCP_BURST_PACKETS - 1;
}

/* Note a transmission in a queue; the caller fills message, outgoing, packet and class. */
struct record *dlcp_record(struct dlcp_protocol *protocol, struct peer *peer, uint8_t queue, uint64_t now_ns,
			   uint32_t *sequence)
{
	struct lane *lane = &peer->lanes[queue];
	struct record *record;

	(void)protocol;
	*sequence = peer->next_sequence++;
	peer->transmissions++;
	record = record_of(peer, *sequence);
	*record = (struct record){
		.sent_ns = now_ns,
		.queue = queue,
		.ordinal = ++lane->ordinal,
		.state = IN_FLIGHT,
	};
	lane->progress_ns = now_ns;
	return record;
}

/* How long to wait for an answer before asking again. */
uint64_t dlcp_timeout(const struct dlcp_protocol *protocol, const struct peer *peer, uint32_t tries)
{
	uint64_t base = FIRST_TIMEOUT_NS, longest = LONGEST_TIMEOUT_NS;

	if (peer->srtt_ns) {
		base = peer->srtt_ns + 4 * peer->rttvar_ns;
		if (base < protocol->config.timer_floor_ns)
			base = protocol->config.timer_floor_ns;
	}
	if (longest < base)
		longest = base;
	base <<= tries < BACKOFF_LIMIT ? tries : BACKOFF_LIMIT;
	return base < longest ? base : longest;
}

/* When a lane's evidence is overdue; NEVER when nothing is in flight. */
uint64_t dlcp_lane_timer(const struct dlcp_protocol *protocol, const struct peer *peer, uint8_t queue)
{
	const struct lane *lane = &peer->lanes[queue];

	if (!lane->in_flight)
		return NEVER;
	return lane->progress_ns + dlcp_timeout(protocol, peer, lane->probes);
}

/* empty_path: of a small packet that overtook all data, so it counts for the smallest time only. */
static void sample_rtt(struct peer *peer, uint64_t rtt_ns, bool empty_path, uint64_t now_ns)
{
	uint64_t error = rtt_ns > peer->srtt_ns ? rtt_ns - peer->srtt_ns : peer->srtt_ns - rtt_ns;

	if (!peer->min_rtt_ns || now_ns - peer->min_rtt_since_ns > MIN_RTT_WINDOW_S * SECOND) {
		peer->old_min_rtt_ns = peer->min_rtt_ns;
		peer->min_rtt_ns = rtt_ns;
		peer->min_rtt_since_ns = now_ns;
	} else if (rtt_ns < peer->min_rtt_ns) {
		peer->min_rtt_ns = rtt_ns;
	}
	if (!peer->srtt_ns) {
		peer->srtt_ns = peer->latest_rtt_ns = rtt_ns;
		peer->rttvar_ns = rtt_ns / 2;
	} else if (!empty_path) {
		peer->latest_rtt_ns = rtt_ns;
		peer->rttvar_ns = (3 * peer->rttvar_ns + error) / 4; /* RFC 6298 */
		peer->srtt_ns = (7 * peer->srtt_ns + rtt_ns) / 8;
	}
}

static uint64_t min_rtt(const struct peer *peer)
{
	return peer->old_min_rtt_ns && peer->old_min_rtt_ns < peer->min_rtt_ns ? peer->old_min_rtt_ns : peer->min_rtt_ns;
}

static void leaves_flight(struct peer *peer, const struct record *record)
{
	if (record->message) {
		peer->in_flight--;
		peer->lanes[record->queue].in_flight--;
	}
}

/* The packet of a record in its message, if that message is still under way. */
static struct outgoing *message_of(const struct record *record)
{
	return record->message && record->outgoing->id == record->message ? record->outgoing : NULL;
}

static void record_arrived(struct dlcp_protocol *protocol, struct peer *peer, struct record *record, uint64_t now_ns)
{
	struct lane *lane = &peer->lanes[record->queue];
	struct outgoing *message = message_of(record);

	if (record->state == LOST && record->message) {
		protocol->statistics.losses_spurious++;
		/* paths differ by more than was thought: wait longer, at most a round trip */
		peer->reorder_ns = peer->reorder_ns * 2 < peer->srtt_ns ? peer->reorder_ns * 2 : peer->srtt_ns;
	}
	if (record->state == IN_FLIGHT)
		leaves_flight(peer, record);
	record->state = ARRIVED;
	if (!lane->any_acked || (int32_t)(record->ordinal - lane->newest_ordinal) > 0) {
		lane->newest_ordinal = record->ordinal;
		lane->newest_sent_ns = record->sent_ns;
		lane->any_acked = true;
	}
	lane->progress_ns = now_ns;
	lane->probes = 0;
	if (message && message->state[record->packet] != ARRIVED) {
		dlcp_set_state(protocol, message, record->packet, ARRIVED);
		dlcp_outgoing_changed(protocol, message, now_ns);
	}
}

static void record_lost(struct dlcp_protocol *protocol, struct peer *peer, struct record *record, uint32_t sequence,
			uint64_t now_ns)
{
	struct outgoing *message = message_of(record);

	leaves_flight(peer, record);
	record->state = LOST;
	if (!record->message)
		return;
	peer->lost++;
	protocol->statistics.losses_detected++;
	if (message && message->state[record->packet] == IN_FLIGHT && message->latest[record->packet] == sequence) {
		dlcp_set_state(protocol, message, record->packet, LOST);
		dlcp_outgoing_changed(protocol, message, now_ns);
	}
}

/* When a record that was overtaken counts as lost: `now` if its time is over, NEVER without evidence. RFC 8985's
 * two tests, within one queue only: strict priorities reorder queues by design. */
static uint64_t lost_at(const struct peer *peer, const struct record *record, uint64_t now_ns)
{
	const struct lane *lane = &peer->lanes[record->queue];
	int32_t overtaken_by = lane->any_acked ? (int32_t)(lane->newest_ordinal - record->ordinal) : 0;
	uint64_t patience_ns = peer->srtt_ns + peer->srtt_ns / 8 + peer->reorder_ns;

	if (overtaken_by <= 0)
		return NEVER;
	if (lane->newest_sent_ns - record->sent_ns >= peer->srtt_ns + peer->reorder_ns)
		return now_ns;
	if (overtaken_by >= REORDER_PACKETS)
		return record->sent_ns + patience_ns;
	return record->sent_ns + 2 * patience_ns;
}

/* A packet of a message whose fate is open. A lost probe must not keep its place in the records. */
static bool holds_back(const struct record *record)
{
	return record->state == IN_FLIGHT && record->message;
}

/* Find what is lost; sets when to look again without a further acknowledgement. */
void dlcp_detect_losses(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns)
{
	struct dlcp_congestion_loss loss = { .now_ns = now_ns, .srtt_ns = peer->srtt_ns };

	peer->loss_check_ns = NEVER;
	for (uint32_t sequence = peer->oldest; sequence != peer->next_sequence; sequence++) {
		struct record *record = record_of(peer, sequence);
		uint64_t at;

		if (record->state != IN_FLIGHT)
			continue;
		at = lost_at(peer, record, now_ns);
		if (at > now_ns) {
			if (at < peer->loss_check_ns)
				peer->loss_check_ns = at;
			continue;
		}
		if (record->message) {
			loss.lost++;
			loss.lost_droppable += record->class == CLASS_DROPPABLE;
		}
		record_lost(protocol, peer, record, sequence, now_ns);
	}
	while (peer->oldest != peer->next_sequence && !holds_back(record_of(peer, peer->oldest)))
		peer->oldest++;
	if (loss.lost)
		peer->congestion->on_loss(peer->congestion_state, &loss);
}

/* The round-trip time that an acknowledgement shows; 0 if its numbers make no sense. */
static uint64_t rtt_of(const struct record *record, const struct dlcp_ack *ack, uint64_t received_ns)
{
	uint64_t held_ns = (uint64_t)ack->delay_us * MICROSECOND;

	if (received_ns <= record->sent_ns || received_ns - record->sent_ns <= held_ns)
		return 0;
	return received_ns - record->sent_ns - held_ns;
}

/* received_ns: when the acknowledgement came to this host. */
void dlcp_on_ack(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_ack *ack, uint64_t received_ns,
		 uint64_t now_ns)
{
	uint32_t back = peer->next_sequence - 1 - ack->largest;
	uint64_t known = peer->transmissions < RECORDS ? peer->transmissions : RECORDS;
	struct dlcp_congestion_ack told = { .now_ns = now_ns };

	if (back >= known) /* never sent, or too long ago */
		return;
	if (record_of(peer, ack->largest)->state == IN_FLIGHT && ack->bitmap[0] & 1) {
		told.queue = record_of(peer, ack->largest)->queue;
		told.rtt_ns = rtt_of(record_of(peer, ack->largest), ack, received_ns);
		if (told.rtt_ns && told.queue == DLCP_CONTROL_QUEUE) /* a full packet takes one packet time more, on each link */
			sample_rtt(peer, told.rtt_ns + (uint64_t)protocol->packet_ns, true, now_ns);
		else if (told.rtt_ns)
			sample_rtt(peer, told.rtt_ns, false, now_ns);
		if (told.rtt_ns) /* all of the time since it left but the network's */
			peer->host_ns = (7 * peer->host_ns +
					 (now_ns - record_of(peer, ack->largest)->sent_ns - told.rtt_ns)) / 8;
	}
	for (uint32_t i = 0; i < DLCP_ACK_WINDOW && back + i < known; i++) {
		struct record *record = record_of(peer, ack->largest - i);

		if (!(ack->bitmap[i / 8] >> (i % 8) & 1) || record->state == ARRIVED)
			continue;
		told.acked += record->state == IN_FLIGHT && record->message;
		record_arrived(protocol, peer, record, now_ns);
	}
	told.marked = ack->ce - peer->reported_ce;
	told.min_rtt_ns = min_rtt(peer);
	told.srtt_ns = peer->srtt_ns;
	told.senders = ack->senders;
	told.host_ns = peer->host_ns;
	told.window_limited = peer->window_limited;
	if ((int32_t)told.marked > 0)
		peer->reported_ce = ack->ce;
	else
		told.marked = 0;
	if ((int32_t)(ack->overflow - peer->reported_overflow) > 0) {
		protocol->statistics.overflow_reported += ack->overflow - peer->reported_overflow;
		peer->reported_overflow = ack->overflow;
	}
	if (!peer->reorder_ns)
		peer->reorder_ns = told.min_rtt_ns / 4;
	if (told.acked) {
		peer->congestion->on_ack(peer->congestion_state, &told);
		peer->window_limited = false;
	}
	dlcp_detect_losses(protocol, peer, now_ns);
}
