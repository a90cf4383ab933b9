/* Peers by rank, and the memory that each takes. */
#include "peers.h"

#include <stdlib.h>

#include "schedule.h"

enum { FIRST_RANKS = 16 };

/* Room for a rank in the table. */
static bool reserve_rank(struct dlcp_protocol *protocol, uint16_t rank)
{
	uint32_t room = protocol->rank_room ? protocol->rank_room : FIRST_RANKS;
	struct peer **grown;

	while (room <= rank)
		room *= 2;
	if (room == protocol->rank_room)
		return true;
	grown = realloc(protocol->peers, room * sizeof *grown);
	if (!grown)
		return false;
	memset(grown + protocol->rank_room, 0, (room - protocol->rank_room) * sizeof *grown);
	protocol->peers = grown;
	protocol->rank_room = room;
	return true;
}

bool dlcp_peer_add(struct dlcp_protocol *protocol, uint16_t rank, uint64_t now_ns)
{
	struct peer *peer;

	if (!reserve_rank(protocol, rank) || !dlcp_schedule_reserve(protocol, protocol->peer_count + 1))
		return false;
	peer = calloc(1, sizeof *peer);
	if (!peer)
		return false;
	peer->rank = rank;
	peer->sending.loss_check_ns = peer->sending.done_hint_ns = NEVER;
	peer->receiving.ack_at_ns = peer->receiving.deadline_hint_ns = NEVER;
	peer->liveness.unheard_since_ns = peer->turn.due_ns = NEVER;
	peer->liveness.heard_ns = peer->liveness.owed_since_ns = now_ns;
	peer->sending.congestion = dlcp_congestion_find(protocol->config.congestion_control);
	peer->number = protocol->peer_count++;
	protocol->peers[rank] = peer;
	*(protocol->peer_tail ? &protocol->peer_tail->next : &protocol->peer_head) = peer;
	protocol->peer_tail = peer;
	return true;
}

/* A lane, if the peer has none of that queue yet. Lane 0 comes first where all obey its congestion state. */
static bool open_lane(struct dlcp_protocol *protocol, struct peer *peer, uint8_t queue)
{
	struct dlcp_congestion_config control = {
		.packet_ns = (uint64_t)protocol->packet_ns,
		.t_low_ns = protocol->config.t_low_ns,
		.t_high_ns = protocol->config.t_high_ns,
		.fixed_window = protocol->config.fixed_window,
	};
	struct lane *lane;

	if (peer->sending.lanes[queue])
		return true;
	if (!dlcp_schedule_reserve_lane(protocol, queue))
		return false;
	lane = calloc(1, sizeof *lane);
	if (!lane)
		return false;
	lane->peer = peer;
	lane->queue = queue;
	lane->control = lane->congestion_state;
	if (dlcp_controlled_by(protocol, queue) != queue)
		lane->control = peer->sending.lanes[dlcp_controlled_by(protocol, queue)]->congestion_state;
	else
		peer->sending.congestion->init(lane->control, &control);
	protocol->schedule.lane_count[queue]++;
	peer->sending.lanes[queue] = lane;
	return true;
}

bool dlcp_peer_begin_receiving(struct dlcp_protocol *protocol, struct peer *peer)
{
	if (!peer->sending.records) {
		peer->sending.records = calloc(RECORDS_LEAST, sizeof *peer->sending.records);
		if (!peer->sending.records)
			return false;
		peer->sending.records_room = RECORDS_LEAST;
	}
	return open_lane(protocol, peer, dlcp_controlled_by(protocol, DLCP_CONTROL_QUEUE)) &&
	       open_lane(protocol, peer, DLCP_CONTROL_QUEUE);
}

bool dlcp_peer_begin_sending(struct dlcp_protocol *protocol, struct peer *peer, uint8_t queue)
{
	uint8_t lowest = dlcp_messages_sink(protocol) ? 0 : queue;

	if (!dlcp_peer_begin_receiving(protocol, peer))
		return false;
	for (uint8_t lane = lowest; lane <= queue; lane++)
		if (!open_lane(protocol, peer, lane))
			return false;
	return true;
}

void dlcp_peers_free(struct dlcp_protocol *protocol)
{
	for (struct peer *next, *peer = protocol->peer_head; peer; peer = next) {
		next = peer->next;
		for (uint32_t queue = 0; queue < DLCP_QUEUES; queue++)
			free(peer->sending.lanes[queue]);
		free(peer->sending.records);
		free(peer->receiving.finished);
		free(peer);
	}
	free(protocol->peers);
}
