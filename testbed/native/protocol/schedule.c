/* Who is next: peers whose timers are due, lanes that may send. */
#include "schedule.h"

#include <math.h>

#include "liveness.h"
#include "outgoing.h"
#include "recovery.h"
#include "timeouts.h"
#include "transmit.h"

/* The link is fed so many packets ahead, and again when the last but this many have left: one wake-up sends several. What
 * the host's own queue holds by that is overtaken there by higher queues. On a fast link, where a wake-up takes longer
 * than packets do (20 to 60 us, at times 500, measured), as many as it carries in these times. */
#define AHEAD_PACKETS 4
#define AHEAD_NS (150.0 * MICROSECOND)
#define REFILL_PACKETS 1
#define REFILL_NS (50.0 * MICROSECOND)

bool dlcp_schedule_reserve(struct dlcp_protocol *protocol, uint32_t peers)
{
	return dlcp_heap_reserve(&protocol->schedule.due, peers) && dlcp_heap_reserve(&protocol->schedule.turns, peers);
}

bool dlcp_schedule_reserve_lane(struct dlcp_protocol *protocol, uint8_t queue)
{
	uint32_t lanes = 1;

	for (uint32_t other = 0; other < DLCP_QUEUES; other++)
		lanes += protocol->schedule.lane_count[other];
	return dlcp_heap_reserve(&protocol->schedule.paced, lanes) &&
	       dlcp_heap_reserve(&protocol->schedule.ready[queue], protocol->schedule.lane_count[queue] + 1);
}

void dlcp_schedule_free(struct dlcp_protocol *protocol)
{
	dlcp_heap_free(&protocol->schedule.due);
	dlcp_heap_free(&protocol->schedule.turns);
	dlcp_heap_free(&protocol->schedule.paced);
	for (uint32_t queue = 0; queue < DLCP_QUEUES; queue++)
		dlcp_heap_free(&protocol->schedule.ready[queue]);
}

/* When a peer needs its timers run, or has an acknowledgement or a probe to send; NEVER while it has no reason. */
static uint64_t due_time(const struct dlcp_protocol *protocol, const struct peer *peer)
{
	uint64_t at_ns;

	if (peer->liveness.gone)
		return NEVER;
	if (!peer->sending.active && !peer->sending.in_flight && peer->liveness.unheard_since_ns != NEVER)
		return 0; /* dlcp_check_silence forgets that nothing got through */
	at_ns = dlcp_earlier(dlcp_gone_time(protocol, peer), dlcp_greeting_time(protocol, peer));
	at_ns = dlcp_earlier(at_ns, dlcp_blocked_time(protocol, peer));
	at_ns = dlcp_earlier(at_ns, dlcp_earlier(peer->sending.loss_check_ns, peer->sending.done_hint_ns));
	at_ns = dlcp_earlier(at_ns, dlcp_earlier(peer->receiving.ack_at_ns, peer->receiving.deadline_hint_ns));
	if (peer->sending.in_flight && !dlcp_records_full(peer))
		for (uint8_t queue = 0; queue < DLCP_QUEUES; queue++)
			at_ns = dlcp_earlier(at_ns, dlcp_lane_timer(protocol, peer, queue));
	return at_ns;
}

static void reschedule_timers(struct dlcp_protocol *protocol, struct peer *peer)
{
	uint64_t due_ns;

	if (peer->turn.turn_place) /* dlcp_turn_over comes here again */
		return;
	due_ns = due_time(protocol, peer);
	if (due_ns == NEVER)
		dlcp_heap_remove(&protocol->schedule.due, &peer->turn.due_place);
	else if (!peer->turn.due_place || due_ns != peer->turn.due_ns)
		dlcp_heap_put(&protocol->schedule.due, peer, &peer->turn.due_place, due_ns);
	peer->turn.due_ns = due_ns;
}

/* A lane whose window is open may send, at once or when its pace allows. */
static void reschedule_lane(struct dlcp_protocol *protocol, struct peer *peer, uint8_t queue, uint64_t now_ns)
{
	struct lane *lane = peer->sending.lanes[queue];
	bool open = lane->head && dlcp_window_open(peer, queue);
	bool ready = open && lane->next_send_ns <= now_ns;

	dlcp_note_visits(protocol, lane);
	lane->held_up = lane->head && !ready;
	if (ready)
		dlcp_heap_put(&protocol->schedule.ready[queue], lane, &lane->ready_place, lane->head->id);
	else
		dlcp_heap_remove(&protocol->schedule.ready[queue], &lane->ready_place);
	if (open && !ready)
		dlcp_heap_put(&protocol->schedule.paced, lane, &lane->paced_place, lane->next_send_ns);
	else
		dlcp_heap_remove(&protocol->schedule.paced, &lane->paced_place);
}

void dlcp_reschedule(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns)
{
	reschedule_timers(protocol, peer);
	for (uint32_t queues = peer->sending.active | peer->turn.scheduled; queues; queues &= queues - 1)
		reschedule_lane(protocol, peer, (uint8_t)__builtin_ctz(queues), now_ns);
	peer->turn.scheduled = peer->sending.active;
}

/* R112 */
struct peer *dlcp_due_peer(struct dlcp_protocol *protocol, uint64_t now_ns)
{
	while (dlcp_heap_least(&protocol->schedule.due) <= now_ns && protocol->schedule.due.count) {
		struct peer *peer = dlcp_heap_first(&protocol->schedule.due);

		dlcp_heap_remove(&protocol->schedule.due, &peer->turn.due_place);
		dlcp_heap_put(&protocol->schedule.turns, peer, &peer->turn.turn_place, peer->number);
	}
	return dlcp_heap_first(&protocol->schedule.turns);
}

void dlcp_turn_over(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns)
{
	dlcp_heap_remove(&protocol->schedule.turns, &peer->turn.turn_place);
	dlcp_reschedule(protocol, peer, now_ns);
}

/* Lanes whose pace allows another packet by now. */
static void end_pauses(struct dlcp_protocol *protocol, uint64_t now_ns)
{
	while (protocol->schedule.paced.count && dlcp_heap_least(&protocol->schedule.paced) <= now_ns) {
		struct lane *lane = dlcp_heap_first(&protocol->schedule.paced);

		reschedule_lane(protocol, lane->peer, lane->queue, now_ns);
	}
}

/* R92, R93 */
bool dlcp_poll_data(struct dlcp_protocol *protocol, uint64_t now_ns, struct dlcp_burst *burst)
{
	if (protocol->nic_ns > (double)now_ns + fmax((AHEAD_PACKETS - 1) * protocol->packet_ns, AHEAD_NS))
		return false;
	end_pauses(protocol, now_ns);
	for (int queue = DLCP_QUEUES - 1; queue >= 0; queue--) {
		struct lane *lane = dlcp_heap_first(&protocol->schedule.ready[queue]);

		protocol->schedule.visits[queue]++;
		if (lane) {
			struct peer *peer = lane->peer;

			dlcp_fill(protocol, peer, lane->head, now_ns, burst);
			dlcp_reschedule(protocol, peer, now_ns);
			return true;
		}
	}
	return false;
}

/* When data may leave next. */
static uint64_t data_time(const struct dlcp_protocol *protocol, uint64_t now_ns)
{
	double refill_ns = protocol->nic_ns - fmax(REFILL_PACKETS * protocol->packet_ns, REFILL_NS);
	uint64_t nic_ns = refill_ns > 0 ? (uint64_t)ceil(refill_ns) : 0;
	uint64_t earliest_ns = dlcp_heap_least(&protocol->schedule.paced);

	for (uint32_t queue = 0; queue < DLCP_QUEUES; queue++)
		if (protocol->schedule.ready[queue].count)
			earliest_ns = now_ns;
	if (earliest_ns < nic_ns)
		earliest_ns = nic_ns;
	return earliest_ns > now_ns ? earliest_ns : now_ns;
}

uint64_t dlcp_schedule_time(const struct dlcp_protocol *protocol, uint64_t now_ns)
{
	if (protocol->schedule.turns.count)
		return now_ns;
	return dlcp_earlier(data_time(protocol, now_ns), dlcp_heap_least(&protocol->schedule.due));
}
