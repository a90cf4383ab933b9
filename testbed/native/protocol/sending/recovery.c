/* What acknowledgements tell a sender: round-trip times, losses, progress. Nothing is ever presumed lost without
 * evidence: a packet of the same queue that left later and arrived. When evidence is overdue, a PROBE asks for it. */
#include "recovery.h"

#include <stdlib.h>

#include "outgoing.h"
#include "timeouts.h"

enum { MIN_RTT_WINDOW_S = 15 }; /* two of these are remembered: routes may change, standing queues must not count */

static struct record *record_of(const struct peer *peer, uint32_t sequence)
{
	return &peer->sending.records[sequence & (peer->sending.records_room - 1)];
}

/* True if no transmission can be remembered any more: the oldest one in flight is as far back as the ring has room. Ends by
 * forgotten_at. */
bool dlcp_records_full(const struct peer *peer)
{
	return peer->sending.next_sequence - peer->sending.oldest + DLCP_BURST_PACKETS + 1 >= peer->sending.records_room;
}

/* Transmissions that may overtake one of which nothing is heard. */
static uint32_t overtaken_most(const struct peer *peer)
{
	return peer->sending.records_room / 2;
}

/* When a transmission in flight counts as lost because so many others left after it: only so many can be remembered. A
 * queue that higher ones starve must not hold them up for longer than a timeout. NEVER while it can be remembered. R57. */
static uint64_t forgotten_at(const struct dlcp_protocol *protocol, const struct peer *peer, uint32_t sequence)
{
	if (peer->sending.next_sequence - sequence < overtaken_most(peer))
		return NEVER;
	return record_of(peer, sequence)->sent_ns + dlcp_timeout(protocol, peer, 0);
}

/* Remember twice as many transmissions. Without memory for that, those in flight stay as few as can be remembered. R57. */
static void remember_more(struct peer *peer)
{
	uint32_t room = 2 * peer->sending.records_room, next = peer->sending.next_sequence;
	struct record *grown = calloc(room, sizeof *grown);

	if (!grown)
		return;
	for (uint32_t back = 1; back <= peer->sending.remembered; back++)
		grown[(next - back) & (room - 1)] = *record_of(peer, next - back);
	free(peer->sending.records);
	peer->sending.records = grown;
	peer->sending.records_room = room;
}

/* Note a transmission in a queue; the caller fills message, outgoing, packet and class. R12. */
struct record *dlcp_record(struct dlcp_protocol *protocol, struct peer *peer, uint8_t queue, uint64_t now_ns,
			   uint32_t *sequence)
{
	struct lane *lane = peer->sending.lanes[queue];
	struct record *record;

	if (peer->sending.next_sequence - peer->sending.oldest + DLCP_BURST_PACKETS + 1 >= peer->sending.records_room / 2 &&
	    peer->sending.records_room < RECORDS_MOST)
		remember_more(peer);
	*sequence = peer->sending.next_sequence++;
	peer->sending.remembered += peer->sending.remembered < peer->sending.records_room;
	record = record_of(peer, *sequence);
	*record = (struct record){
		.sent_ns = now_ns,
		.queue = queue,
		.ordinal = ++lane->ordinal,
		.state = IN_FLIGHT,
	};
	lane->progress_ns = now_ns;
	peer->sending.loss_check_ns =
		dlcp_earlier(peer->sending.loss_check_ns, forgotten_at(protocol, peer, peer->sending.oldest));
	return record;
}

/* RFC 6298, with a quicker eye for the variation. */
static void smooth(uint64_t *srtt_ns, uint64_t *rttvar_ns, uint64_t rtt_ns)
{
	uint64_t error = rtt_ns > *srtt_ns ? rtt_ns - *srtt_ns : *srtt_ns - rtt_ns;

	*rttvar_ns = *srtt_ns ? (3 * *rttvar_ns + error) / 4 : rtt_ns / 2;
	*srtt_ns = *srtt_ns ? (7 * *srtt_ns + rtt_ns) / 8 : rtt_ns;
}

/* lane: of the data packet that came back; NULL for a small packet that overtook all data, which counts for the smallest
 * time only. */
static void sample_rtt(struct peer *peer, struct lane *lane, uint64_t rtt_ns, uint64_t now_ns)
{
	if (!peer->path.min_rtt_ns || now_ns - peer->path.min_rtt_since_ns > MIN_RTT_WINDOW_S * SECOND) {
		peer->path.old_min_rtt_ns = peer->path.min_rtt_ns;
		peer->path.min_rtt_ns = rtt_ns;
		peer->path.min_rtt_since_ns = now_ns;
	} else if (rtt_ns < peer->path.min_rtt_ns) {
		peer->path.min_rtt_ns = rtt_ns;
	}
	if (!peer->path.srtt_ns || lane)
		smooth(&peer->path.srtt_ns, &peer->path.rttvar_ns, rtt_ns);
	if (lane) {
		smooth(&lane->srtt_ns, &lane->rttvar_ns, rtt_ns);
		lane->latest_rtt_ns = rtt_ns;
	}
}

static uint64_t min_rtt(const struct peer *peer)
{
	const struct path *path = &peer->path;

	return path->old_min_rtt_ns ? dlcp_earlier(path->old_min_rtt_ns, path->min_rtt_ns) : path->min_rtt_ns;
}

static void leaves_flight(struct peer *peer, const struct record *record)
{
	if (record->message) {
		peer->sending.in_flight--;
		peer->sending.lanes[record->queue]->in_flight--;
	}
}

/* The packet of a record in its message, if that message is still under way. */
static struct outgoing *message_of(const struct record *record)
{
	return record->message && record->outgoing->id == record->message ? record->outgoing : NULL;
}

static void record_arrived(struct dlcp_protocol *protocol, struct peer *peer, struct record *record, uint64_t now_ns)
{
	struct lane *lane = peer->sending.lanes[record->queue];
	struct outgoing *message = message_of(record);

	if (record->state == LOST && record->message) {
		protocol->statistics.losses_spurious++;
		/* paths differ by more than was thought: wait longer, at most a round trip. R55. */
		peer->path.reorder_ns = dlcp_earlier(2 * peer->path.reorder_ns, peer->path.srtt_ns);
	}
	if (record->message)
		peer->liveness.unheard_since_ns = NEVER;
	else if (record->queue != DLCP_CONTROL_QUEUE)
		peer->liveness.probe_heard = true;
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
	if (message && message->packets.state[record->packet] != ARRIVED) {
		dlcp_set_state(message, record->packet, ARRIVED);
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
	peer->sending.lost++;
	protocol->statistics.losses_detected++;
	if (message && message->packets.state[record->packet] == IN_FLIGHT &&
	    message->packets.latest[record->packet] == sequence) {
		dlcp_set_state(message, record->packet, LOST);
		dlcp_outgoing_changed(protocol, message, now_ns);
	}
}

/* When the latest packet left that can prove what became of those of a queue. Where messages sink from queue to queue the end
 * of their part in a queue is followed by lower ones only: what left later and lower cannot overtake either. R45. */
static uint64_t newest_proof_ns(const struct dlcp_protocol *protocol, const struct peer *peer, uint8_t queue)
{
	uint64_t newest_ns = peer->sending.lanes[queue]->any_acked ? peer->sending.lanes[queue]->newest_sent_ns : 0;

	for (uint32_t lower = 0; dlcp_messages_sink(protocol) && lower < queue; lower++) {
		const struct lane *lane = peer->sending.lanes[lower];

		if (lane && lane->any_acked && lane->newest_sent_ns > newest_ns)
			newest_ns = lane->newest_sent_ns;
	}
	return newest_ns;
}

/* When a record that was overtaken counts as lost: `now` if its time is over, NEVER without evidence. RFC 8985's
 * two tests, never by a higher queue: strict priorities reorder queues by design. R54. */
static uint64_t lost_at(const struct dlcp_protocol *protocol, const struct peer *peer, const struct record *record,
			uint64_t now_ns)
{
	const struct lane *lane = peer->sending.lanes[record->queue];
	int32_t overtaken_by = lane->any_acked ? (int32_t)(lane->newest_ordinal - record->ordinal) : 0;
	uint64_t srtt_ns = dlcp_lane_rtt(peer, lane), patience_ns = dlcp_patience(peer, lane);
	uint64_t proof_ns = newest_proof_ns(protocol, peer, record->queue);

	if (overtaken_by <= 0 && proof_ns <= record->sent_ns)
		return NEVER;
	if (proof_ns >= record->sent_ns + srtt_ns + peer->path.reorder_ns)
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

/* How many transmissions, from the oldest on, may count as lost: behind them nothing has come back yet, and not enough others
 * have left. */
static uint32_t suspects(const struct peer *peer)
{
	uint32_t known = peer->sending.next_sequence - peer->sending.oldest, found = 0;

	if (peer->sending.any_acked && peer->sending.newest_acked - peer->sending.oldest < known)
		found = peer->sending.newest_acked - peer->sending.oldest + 1;
	if (known >= overtaken_most(peer) && known - overtaken_most(peer) + 1 > found)
		found = known - overtaken_most(peer) + 1;
	return found;
}

/* Find what is lost; sets when to look again without a further acknowledgement. */
void dlcp_detect_losses(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns)
{
	struct dlcp_congestion_loss losses[DLCP_QUEUES] = { { 0 } };
	uint32_t count = suspects(peer);

	peer->sending.loss_check_ns = NEVER;
	for (uint32_t sequence = peer->sending.oldest; count; count--, sequence++) {
		struct record *record = record_of(peer, sequence);
		uint64_t at;

		if (record->state != IN_FLIGHT)
			continue;
		at = dlcp_earlier(lost_at(protocol, peer, record, now_ns), forgotten_at(protocol, peer, sequence));
		if (at > now_ns) {
			if (at < peer->sending.loss_check_ns)
				peer->sending.loss_check_ns = at;
			continue;
		}
		if (record->message) {
			struct dlcp_congestion_loss *loss = &losses[dlcp_controlled_by(protocol, record->queue)];

			loss->lost++;
			loss->lost_droppable += record->class == CLASS_DROPPABLE;
		}
		record_lost(protocol, peer, record, sequence, now_ns);
	}
	while (peer->sending.oldest != peer->sending.next_sequence && !holds_back(record_of(peer, peer->sending.oldest)))
		peer->sending.oldest++;
	for (uint32_t queue = 0; queue < DLCP_QUEUES; queue++) {
		struct dlcp_congestion_loss *loss = &losses[queue];

		if (!loss->lost)
			continue;
		loss->now_ns = now_ns;
		loss->srtt_ns = dlcp_lane_rtt(peer, peer->sending.lanes[queue]);
		peer->sending.congestion->on_loss(peer->sending.lanes[queue]->control, loss);
	}
}

/* The round-trip time that an acknowledgement shows; 0 if its numbers make no sense. R15. */
static uint64_t rtt_of(const struct record *record, const struct dlcp_ack *ack, uint64_t received_ns)
{
	uint64_t held_ns = (uint64_t)ack->delay_us * MICROSECOND;

	if (received_ns <= record->sent_ns || received_ns - record->sent_ns <= held_ns)
		return 0;
	return received_ns - record->sent_ns - held_ns;
}

/* Tell each queue's congestion control what an acknowledgement told of its packets. sampled: the queue of the round-trip
 * time. */
static void tell_congestion(const struct dlcp_protocol *protocol, struct peer *peer,
			    const struct dlcp_congestion_ack *common, const uint32_t *acked, uint8_t sampled)
{
	uint32_t together[DLCP_QUEUES] = { 0 };
	bool limited[DLCP_QUEUES] = { false };

	for (uint8_t queue = 0; queue < DLCP_QUEUES; queue++) {
		uint8_t by = dlcp_controlled_by(protocol, queue);

		if (!acked[queue])
			continue;
		together[by] += acked[queue];
		dlcp_note_visits(protocol, peer->sending.lanes[queue]);
		limited[by] |= peer->sending.lanes[queue]->window_limited;
		peer->sending.lanes[queue]->window_limited = false;
	}
	for (uint8_t queue = 0; queue < DLCP_QUEUES; queue++) {
		struct dlcp_congestion_ack told = *common;

		if (!together[queue])
			continue;
		told.acked = together[queue];
		told.rtt_ns = queue == dlcp_controlled_by(protocol, sampled) ? common->rtt_ns : 0;
		told.srtt_ns = dlcp_lane_rtt(peer, peer->sending.lanes[queue]);
		told.window_limited = limited[queue];
		peer->sending.congestion->on_ack(peer->sending.lanes[queue]->control, &told);
	}
}

/* received_ns: when the acknowledgement came to this host. */
void dlcp_on_ack(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_ack *ack, uint64_t received_ns,
		 uint64_t now_ns)
{
	uint32_t back = peer->sending.next_sequence - 1 - ack->largest, acked[DLCP_QUEUES] = { 0 };
	struct dlcp_congestion_ack told = { .now_ns = now_ns, .senders = ack->senders };
	struct record *largest;

	/* R16 */
	if (back >= peer->sending.remembered) /* never sent, or too long ago */
		return;
	largest = record_of(peer, ack->largest);
	/* RFC 9002, 5.1: the largest one, when it is news. What higher queues overtook tells of them, not of the path.
	 * R14. */
	if (!peer->sending.any_acked || (int32_t)(ack->largest - peer->sending.newest_acked) > 0) {
		if (largest->state == IN_FLIGHT && ack->bitmap[0] & 1)
			told.rtt_ns = rtt_of(largest, ack, received_ns);
		peer->sending.newest_acked = ack->largest;
		peer->sending.any_acked = true;
	}
	if (told.rtt_ns) {
		/* a full packet takes one packet time more than a small one, on each link */
		if (largest->queue == DLCP_CONTROL_QUEUE)
			sample_rtt(peer, NULL, told.rtt_ns + (uint64_t)protocol->packet_ns, now_ns);
		else
			sample_rtt(peer, peer->sending.lanes[largest->queue], told.rtt_ns, now_ns);
		/* all of the time since it left but the network's */
		peer->path.host_ns = (7 * peer->path.host_ns + (now_ns - largest->sent_ns - told.rtt_ns)) / 8;
	}
	for (uint32_t i = 0; i < DLCP_ACK_WINDOW && back + i < peer->sending.remembered; i++) {
		struct record *record = record_of(peer, ack->largest - i);

		if (!(ack->bitmap[i / 8] >> (i % 8) & 1) || record->state == ARRIVED)
			continue;
		acked[record->queue] += record->state == IN_FLIGHT && record->message;
		record_arrived(protocol, peer, record, now_ns);
	}
	told.min_rtt_ns = min_rtt(peer);
	told.host_ns = peer->path.host_ns;
	if ((int32_t)(ack->ce - peer->sending.reported_ce) > 0) {
		told.marked = ack->ce - peer->sending.reported_ce;
		peer->sending.reported_ce = ack->ce;
	}
	if ((int32_t)(ack->overflow - peer->sending.reported_overflow) > 0) {
		protocol->statistics.overflow_reported += ack->overflow - peer->sending.reported_overflow;
		peer->sending.reported_overflow = ack->overflow;
	}
	if (!peer->path.reorder_ns)
		peer->path.reorder_ns = told.min_rtt_ns / 4;
	tell_congestion(protocol, peer, &told, acked, largest->queue);
	dlcp_detect_losses(protocol, peer, now_ns);
}
