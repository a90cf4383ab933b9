/* Peers by rank: what this rank knows of each, by role, and the memory that each takes: little until a message is under way
 * between it and this rank.
 *
 * A comment ends with the files that write the field, but for the first value that peers.c gives it. */
#ifndef DLCP_PEERS_H
#define DLCP_PEERS_H

#include "congestion.h"
#include "state.h"

/* One transmission: a DATA packet or a PROBE that took a sequence number. Written by recovery.c and, of a DATA packet, by
 * transmit.c. */
struct record {
	uint64_t sent_ns;          /* when it left */
	uint64_t message;          /* id of its message; 0 = a probe */
	struct outgoing *outgoing; /* its message, if that still has this id */
	uint32_t packet;           /* number in its message */
	uint32_t ordinal;          /* counts transmissions of its queue */
	uint8_t queue;             /* that it left in */
	uint8_t class;             /* enum packet_class */
	uint8_t state;             /* enum packet_state; never UNSENT */
};

/* Messages of one queue to one peer, their congestion control, and what a later acknowledgement proves about earlier packets
 * of the same queue. Queues do not share a window: while a higher one is busy, packets of a lower one wait in the switch, and
 * their times and losses say nothing about the higher one. R86. */
struct lane {
	struct peer *peer; /* whose lane it is; peers.c */
	uint8_t queue;     /* and of which queue, 0 to 7; peers.c */
	struct outgoing *head, *tail; /* messages with packets to send, oldest first; outgoing.c */
	uint64_t idle_since_ns;       /* when the last of them had none left; outgoing.c */

	uint64_t congestion_state[DLCP_CONGESTION_STATE_BYTES / 8]; /* congestion_*.c */
	uint64_t *control; /* the state that it obeys: its own, or that of queue 0 where messages sink; peers.c */
	bool window_limited; /* window or pace held it back since an acknowledgement; recovery.c, dlcp_note_visits */

	uint64_t next_send_ns;      /* when its pace allows the next packet; transmit.c */
	uint32_t since_ack_request; /* packets since one asked for an acknowledgement; transmit.c */
	uint32_t in_flight;         /* DATA packets of which nothing is known yet; transmit.c, recovery.c */

	uint64_t srtt_ns, rttvar_ns; /* smoothed round-trip time of its packets, its variation; 0 = none yet; recovery.c */
	uint64_t latest_rtt_ns;  /* the latest sample of it; recovery.c */
	uint32_t ordinal;        /* transmissions in this queue, probes too; recovery.c */
	bool any_acked;          /* one of them was acknowledged; recovery.c */
	uint32_t newest_ordinal; /* of the latest-sent one that was acknowledged; recovery.c */
	uint64_t newest_sent_ns; /* when that one left; recovery.c */
	uint64_t progress_ns;    /* last transmission or acknowledgement; recovery.c */
	uint32_t probes;         /* sent since the last acknowledgement; control.c, recovery.c */

	bool held_up;    /* it had packets to send when dlcp_reschedule looked, and could not send them; schedule.c */
	uint64_t visits; /* schedule.visits of its queue when that was last looked at; dlcp_note_visits */
	uint32_t ready_place, paced_place; /* in the heaps schedule.ready and schedule.paced; heap.c */
};

/* What is sent to a peer, and what became of it. */
struct sending {
	struct record *records; /* a ring by sequence number; recovery.c */
	uint32_t records_room;  /* of the ring: 0 or a power of two; recovery.c */
	uint32_t remembered;    /* the latest transmissions, of which the ring has records; recovery.c */
	uint32_t next_sequence; /* of the next transmission; recovery.c */
	uint32_t oldest;        /* no transmission before this one is in flight; recovery.c */
	uint32_t newest_acked;  /* the largest sequence that came back, if any_acked; recovery.c */
	bool any_acked;         /* a transmission was acknowledged; recovery.c */
	uint32_t in_flight;     /* DATA packets of which nothing is known yet; transmit.c, recovery.c */
	uint64_t sent, lost;    /* DATA packets since the start; transmit.c; recovery.c */
	uint32_t reported_ce;       /* packets with CE that its acknowledgements told of; recovery.c */
	uint32_t reported_overflow; /* datagrams that its socket dropped, likewise; recovery.c */
	uint64_t loss_check_ns; /* when to look for losses again without a further acknowledgement; recovery.c, liveness.c */

	struct lane *lanes[DLCP_QUEUES]; /* by queue; NULL: no message travelled in that queue yet; peers.c */
	uint32_t active; /* bit q: lane q has packets to send; outgoing.c */
	const struct dlcp_congestion *congestion; /* the algorithm of all lanes; peers.c */

	struct outgoing *waiting_head, *waiting_tail; /* messages to it that are not over, oldest first; sender.c */
	uint64_t done_hint_ns; /* none of their done_at_ns or passed_at_ns is earlier; sender.c, outgoing.c, transmit.c,
				* liveness.c */
};

/* The path to a peer and back. All written by recovery.c. */
struct path {
	uint64_t min_rtt_ns, old_min_rtt_ns; /* smallest round-trip time of this half window, of the last; 0 = none */
	uint64_t min_rtt_since_ns;           /* when this half began */
	uint64_t srtt_ns, rttvar_ns; /* smoothed, of all queues together, and its variation; 0 = none came back yet */
	uint64_t host_ns;    /* smoothed: what the two hosts add to a round trip by holding back and waking up */
	uint64_t reorder_ns; /* how much later than others a packet may arrive on its way; 0 = not known yet */
};

/* Sequence numbers that arrived, as one acknowledgement tells them: the largest, and those just before it. Written by
 * acknowledge.c. */
struct arrivals {
	uint32_t largest;             /* number that came, if any */
	uint64_t largest_received_ns; /* when that came */
	unsigned __int128 seen; /* bit i: sequence largest - i, as an acknowledgement has it; x86-64 and arm64 know the type */
	bool any;    /* one arrived */
	bool untold; /* no acknowledgement told of the latest one */
};

/* The newest message of a peer, tensor and leg that is over. Written by receiver.c. */
struct over {
	uint64_t age;             /* dlcp_age; 0: there is none */
	uint64_t delivered_bytes; /* as its STOP told */
};

/* What comes from a peer. */
struct receiving {
	struct arrivals newest;    /* the newest packets; acknowledge.c */
	struct arrivals overtaken; /* what higher queues left behind by more than a bitmap; acknowledge.c */
	uint32_t received, ce;     /* packets with a sequence number; of these, with CE; acknowledge.c */
	uint32_t unacknowledged;   /* packets since an acknowledgement left; acknowledge.c */
	uint64_t ack_at_ns;        /* when the next one leaves at the latest; NEVER: none; acknowledge.c, liveness.c */

	bool any_data;    /* DATA came; acknowledge.c */
	uint64_t data_ns; /* when its last DATA came; acknowledge.c */
	struct peer *sender_prev, *sender_next; /* in protocol->senders, by data_ns; acknowledge.c */
	bool counted;     /* it is among senders.counted; acknowledge.c */

	struct incoming *expected_head, *expected_tail; /* messages that are expected, oldest first; incoming.c */
	uint64_t deadline_hint_ns; /* none of their deadlines that are to come is earlier; receiver.c */
	struct over *finished;     /* by tensor * legs + leg; receiver.c */
	uint32_t finished_tensors; /* that `finished` has room for; receiver.c */
	uint32_t stashed;          /* packets kept of messages that are not expected yet; stash.c */
};

/* Whether a peer lives. Times are of this rank's clock. */
struct liveness {
	bool heard;             /* a packet came from it; protocol.c */
	uint64_t heard_ns;      /* when the latest one came; protocol.c */
	bool gone;              /* given up; liveness.c */
	uint32_t incarnation;   /* of its start; 0: not known yet; liveness.c */
	bool greeted;           /* a greeting was sent; control.c */
	uint64_t greeted_ns;    /* when the latest one was; control.c */
	uint32_t greetings;     /* sent since it was last heard; control.c, protocol.c */
	uint64_t owed_since_ns; /* since when it owes something, if it does; incoming.c, sender.c */
	uint64_t unheard_since_ns; /* since when no DATA to it was acknowledged; NEVER: none is under way, or all is well;
				    * transmit.c, recovery.c, sender.c, liveness.c */
	bool probe_heard; /* a PROBE in a queue of data was acknowledged since then; transmit.c, recovery.c */
};

/* When a peer is looked at next. All written by schedule.c. */
struct turn {
	uint64_t due_ns;     /* key in schedule.due; NEVER: it is not in it */
	uint32_t due_place, turn_place; /* in the heaps schedule.due and schedule.turns; heap.c */
	uint32_t scheduled;  /* bit q: lane q had packets to send when dlcp_reschedule looked */
};

struct peer {
	uint16_t rank;     /* peers.c */
	uint32_t number;   /* peers that were added before; peers.c */
	struct peer *next; /* that was added next; peers.c */
	struct sending sending;
	struct path path;
	struct receiving receiving;
	struct liveness liveness;
	struct turn turn;
};

/* The peer of a rank, which may be any number that came from the wire; NULL if it was not added. */
static inline struct peer *dlcp_peer(const struct dlcp_protocol *protocol, uint16_t rank)
{
	return rank < protocol->rank_room ? protocol->peers[rank] : NULL;
}

/* A lane is limited by its window (or pace) only if dlcp_poll_data looked for a lane of its queue while it was held up: as
 * long as higher queues have packets, nobody asks for this one's. */
static inline void dlcp_note_visits(const struct dlcp_protocol *protocol, struct lane *lane)
{
	if (lane->held_up && lane->visits != protocol->schedule.visits[lane->queue])
		lane->window_limited = true;
	lane->visits = protocol->schedule.visits[lane->queue];
}

/* Add a peer; false when there is no memory. */
bool dlcp_peer_add(struct dlcp_protocol *protocol, uint16_t rank, uint64_t now_ns);

/* Take the memory that greeting a peer needs: a message from it is expected. False when there is none. */
bool dlcp_peer_begin_receiving(struct dlcp_protocol *protocol, struct peer *peer);

/* The same for a message to it that begins in a queue. */
bool dlcp_peer_begin_sending(struct dlcp_protocol *protocol, struct peer *peer, uint8_t queue);

/* Free all peers, whose messages were freed. */
void dlcp_peers_free(struct dlcp_protocol *protocol);

#endif
