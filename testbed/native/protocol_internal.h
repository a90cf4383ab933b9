/* The state behind protocol.h, shared by the files of the state machine. */
#ifndef DLCP_PROTOCOL_INTERNAL_H
#define DLCP_PROTOCOL_INTERNAL_H

#include <stdbool.h>

#include "codepoint.h"
#include "congestion.h"
#include "heap.h"
#include "protocol.h"
#include "table.h"

#define NEVER UINT64_MAX
#define MICROSECOND UINT64_C(1000)
#define MILLISECOND UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define NONE UINT32_MAX

enum {
	RECORDS_LEAST = 256,   /* transmissions remembered of a peer at first; a power of two, */
	RECORDS_MOST = 4096,   /* doubled up to this, so that twice those in flight are remembered: late packets count, too */
	CONTROL_LEAST = 64,    /* room for control packets that wait to leave; a power of two, */
	CONTROL_MOST = 4096,   /* doubled up to this */
	LOST_LISTS = 257,      /* one by magnitude code, and the last for packets that must arrive */
	STASH_BUCKETS = 256,   /* a power of two */
	ACK_EVERY = 8,         /* packets, when the sender does not ask; on a fast link as many as BURST_NS takes, */
	ACK_EVERY_MOST = DLCP_ACK_WINDOW / 2, /* up to this: one acknowledgement may be lost and nothing is untold */
	BURST_PACKETS = 8,     /* of one burst, likewise: it must not fill a shallow port by itself */
	REORDER_PACKETS = 3,   /* RFC 9002, kPacketThreshold */
	BACKOFF_LIMIT = 5,     /* timers double at most so often */
};

/* Sending order and switch treatment of a packet. */
enum packet_class { CLASS_RELIABLE = 0, CLASS_PROTECTED = 1, CLASS_DROPPABLE = 2, CLASSES = 3 };

enum packet_state { UNSENT = 0, IN_FLIGHT = 1, ARRIVED = 2, LOST = 3 };

struct tensor {
	struct dlcp_tensor shape;
	bool declared;
	float threshold; /* running median of the packets' metric */
};

/* A completion on its way to the caller. */
struct finished {
	struct dlcp_completion completion;
	struct finished *next;
};

/* A message that this end sends. Lives in its peer's list and in the table; recycled through a free list. */
struct outgoing {
	struct table_entry entry; /* in protocol->outgoing */
	struct outgoing *prev, *next; /* the (peer, queue) list of those with packets to send */
	struct outgoing *waiting_prev, *waiting_next; /* the peer's list of those that are not over */
	struct finished *finished; /* where its completion will be written */
	uint64_t id;    /* rises with every message: age and identity */
	const uint8_t *data;
	uint8_t dtype;
	uint32_t elements, packets, capacity;
	uint8_t *state;      /* enum packet_state by packet */
	uint8_t *class;      /* enum packet_class by packet */
	uint8_t *magnitude;  /* code by packet */
	uint16_t *contributors; /* by packet */
	uint32_t *latest;    /* sequence of the latest transmission, by packet */
	uint32_t *order;     /* packets in sending order */
	uint32_t cursor;        /* in order: first pass */
	uint8_t queue;          /* that the next packet travels in */
	uint64_t sent_bytes;    /* of it, what was sent again included */
	uint32_t in_flight, arrived, lost;
	uint32_t must_arrive, must_lost; /* packets of a bounded message that must arrive; of these, lost */
	uint32_t *lost_next, *lost_previous; /* by packet, while it is lost: others in its list */
	uint32_t lost_head[LOST_LISTS];      /* NONE if there is none, */
	uint32_t lost_top;                   /* above this list there is none */
	uint64_t lost_bytes, allowed_bytes;
	double energy, lost_energy, allowed_energy; /* energy: infinite if a value is not finite */
	uint16_t energy_code;
	uint32_t round;         /* rounds of probing that were started */
	uint32_t nack_round;    /* the round whose NACKs are taken; */
	uint32_t nack_history;  /* others up to this one tell of a past that retransmissions have mended, */
	uint32_t nack_sequence; /* and so does the round itself (doubled on its way) of what was sent since */
	uint64_t done_at_ns;    /* when DONE is due; NEVER while packets are under way */
	uint32_t done_tries;
	uint64_t passed_at_ns;  /* when to say that the first pass is over; NEVER before that, and once it was said */
	bool listed;
	uint64_t resent_bytes, start_ns;
	uint32_t probes;
};

/* A message that this end expects. */
struct incoming {
	struct table_entry entry; /* in protocol->incoming */
	struct incoming *prev, *next; /* the peer's list, oldest first */
	uint8_t *buffer;
	uint16_t *contributors; /* NULL or by packet */
	uint8_t dtype, placement;
	uint32_t elements, packets, capacity;
	uint64_t *bitmap;
	uint32_t arrived;
	uint32_t must_arrive, must_arrived; /* packets that must; NONE while the sender has yet to say how many */
	uint64_t delivered_bytes, needed_bytes;
	double energy;          /* of the message: exact once a DONE came, before that not less than it is */
	double delivered_energy;
	uint32_t energy_ppm;    /* what may be missing of it */
	struct closing {
		uint64_t at_ns; /* from when on so many bytes are enough; NEVER while that is not known */
		uint64_t after_first_ns, bytes;
	} closing[DLCP_DEADLINES];
	uint32_t closings;
	uint64_t start_ns, first_ns;
	struct finished *finished;
	bool pass_over;
};

/* One transmission. */
struct record {
	uint64_t sent_ns;
	uint64_t message; /* id; 0 = a probe */
	struct outgoing *outgoing;
	uint32_t packet;
	uint32_t ordinal; /* counts transmissions of its queue */
	uint8_t queue, class, state;
};

/* Per peer and queue: messages to send, congestion control, and what a later acknowledgement proves about earlier packets
 * of the same queue. Queues do not share a window: while a higher one is busy, packets of a lower one wait in the switch, and
 * their times and losses say nothing about the higher one. */
struct lane {
	struct outgoing *head, *tail;
	uint64_t congestion_state[DLCP_CONGESTION_STATE_BYTES / 8];
	uint64_t *control; /* the congestion state that it obeys: its own; where messages sink, that of queue 0 for all */
	uint64_t srtt_ns, rttvar_ns, latest_rtt_ns; /* of this queue's packets; 0 = none came back yet */
	uint64_t next_send_ns, idle_since_ns;
	uint32_t since_ack_request;
	bool window_limited;
	uint32_t ordinal, newest_ordinal;
	uint64_t newest_sent_ns; /* of the latest-sent packet that was acknowledged */
	uint64_t progress_ns;    /* last transmission or acknowledgement */
	uint32_t in_flight;
	uint32_t probes;         /* since the last acknowledgement */
	bool any_acked;
	struct peer *peer; /* whose lane it is */
	uint8_t queue;     /* and of which queue */
	bool held_up;      /* it had packets to send when dlcp_reschedule looked, and could not send them */
	uint64_t visits;   /* protocol->visits of its queue when that was last looked at */
	uint32_t ready_place, paced_place; /* in the heaps protocol->ready and protocol->paced */
};

/* Sequence numbers that arrived, as one acknowledgement tells them: the largest, and those just before it. */
struct arrivals {
	uint32_t largest;
	uint64_t largest_received_ns;
	unsigned __int128 seen; /* bit i: sequence largest - i, as an acknowledgement has it; x86-64 and arm64 know the type */
	bool any, untold;
};

/* The newest message of a peer, tensor and leg that is over. age: dlcp_age; 0: there is none. */
struct over {
	uint64_t age, delivered_bytes;
};

struct peer {
	uint16_t rank;
	uint32_t number; /* peers that were added before */
	struct peer *next; /* that was added next */
	bool heard, gone, greeted;
	uint32_t incarnation; /* 0: not known yet */
	/* sending */
	struct record *records; /* a ring by sequence number */
	uint32_t records_room;  /* 0 or a power of two */
	uint32_t remembered;    /* the latest transmissions, of which the ring has records */
	uint32_t next_sequence, oldest; /* oldest: no record before it is in flight */
	uint32_t newest_acked;          /* the largest sequence that came back */
	bool any_acked;
	uint32_t in_flight;
	struct lane *lanes[DLCP_QUEUES]; /* NULL: no message travelled in that queue yet */
	uint32_t active; /* bit q: lane q has packets to send */
	struct outgoing *waiting_head, *waiting_tail;
	const struct dlcp_congestion *congestion;
	uint64_t min_rtt_ns, old_min_rtt_ns, min_rtt_since_ns; /* two half windows */
	uint64_t srtt_ns, rttvar_ns; /* of all queues together, for control packets' timers */
	uint64_t host_ns, reorder_ns, loss_check_ns;
	uint64_t done_hint_ns; /* no waiting message's done_at_ns or passed_at_ns is earlier */
	uint32_t reported_ce, reported_overflow;
	uint64_t sent, lost;    /* data packets */
	/* receiving */
	struct arrivals newest, overtaken; /* overtaken: what higher queues left behind by more than a bitmap */
	uint64_t data_ns; /* when its last DATA came */
	struct peer *sender_prev, *sender_next; /* peers that DATA came from, by data_ns */
	bool counted;     /* it is among protocol->counted_senders */
	uint32_t received, ce, unacknowledged;
	uint64_t ack_at_ns;
	bool any_data;
	struct over *finished; /* by tensor * legs + leg: the newest message that is over */
	uint32_t finished_tensors; /* that `finished` has room for */
	struct incoming *expected_head, *expected_tail;
	uint64_t deadline_hint_ns; /* no expected message's deadline that is to come is earlier */
	uint32_t stashed; /* packets kept of messages that are not expected yet */
	/* life */
	uint64_t heard_ns, owed_since_ns, greeted_ns;
	uint64_t unheard_since_ns; /* since when no DATA sent to it was acknowledged; NEVER: none is under way, or all is well */
	bool probe_heard;          /* a PROBE in a queue of data was acknowledged since then */
	uint32_t greetings; /* since it was last heard */
	/* schedule.c */
	uint64_t due_ns;     /* key in protocol->due */
	uint32_t due_place, turn_place; /* in the heaps protocol->due and protocol->turns */
	uint32_t scheduled;  /* bit q: lane q had packets to send when dlcp_reschedule looked */
};

/* A DATA or DONE packet that came before its message was expected. */
struct stashed {
	struct stashed *next; /* in its bucket, newest first; or free */
	struct dlcp_header header;
	struct dlcp_done done;
	uint16_t peer;
	uint8_t payload[DLCP_PAYLOAD_BYTES];
};

/* Packets kept, by peer, tensor and leg. Memory comes in slabs, when it is needed, up to a limit. */
struct stash {
	struct stashed *buckets[STASH_BUCKETS], *free;
	struct slab *slabs;
	uint32_t used, made, most; /* packets */
};

enum control_kind { CONTROL_DONE, CONTROL_PASSED, CONTROL_NACK, CONTROL_WAIT, CONTROL_STOP };

struct control {
	struct dlcp_key key;
	uint16_t peer;
	uint8_t kind;
	uint32_t first, round;
	uint64_t delivered_bytes;
};


struct dlcp_protocol {
	struct dlcp_config config;
	double packet_ns; /* one full packet on this host's link */
	uint32_t burst_packets, ack_every;
	bool ecn; /* the congestion control needs marks */
	struct tensor *tensors; /* by number */
	uint32_t tensor_count;  /* that `tensors` has room for: the largest declared + 1 */
	struct peer **peers;    /* by rank; NULL: not added */
	uint32_t rank_room, peer_count; /* that `peers` has room for; that were added */
	struct peer *peer_head, *peer_tail; /* in the order in which they were added */
	struct table outgoing, incoming;
	struct outgoing *free_outgoing; /* by waiting_next */
	struct incoming *free_incoming; /* by next */
	struct stash stash;
	struct finished *finished_head, *finished_tail, *free_finished;
	uint32_t sending, receiving;
	uint64_t next_message;
	struct control *control; /* a ring */
	uint32_t control_room;   /* 0 or a power of two */
	uint32_t control_head, control_tail; /* the oldest that waits; where the next one comes */
	double nic_ns;           /* when the link is free for the next packet */
	uint32_t overflow;
	int gone_rank;
	char gone_error[DLCP_ERROR_BYTES]; /* what that rank owed */
	struct peer *sender_head, *sender_tail; /* all that DATA ever came from, by when it last came */
	struct peer *sender_first;              /* the first of them that counts: so do all behind it; NULL: none does */
	uint32_t counted_senders;
	uint32_t senders;        /* that the latest acknowledgement told of */
	uint32_t lane_count[DLCP_QUEUES];    /* of all peers */
	struct dlcp_heap due;                /* peers by when they are due */
	struct dlcp_heap turns;              /* those that are due already, by their numbers */
	struct dlcp_heap ready[DLCP_QUEUES]; /* lanes that may send, by the age of their oldest message */
	struct dlcp_heap paced;              /* lanes that only wait for their pace, by when that allows a packet */
	uint64_t visits[DLCP_QUEUES];        /* how often dlcp_poll_data looked for a lane of each queue */
	float *scratch;          /* packets' metric, twice the largest tensor's packets */
	uint32_t scratch_packets;
	uint8_t heads[DLCP_BURST_PACKETS][DLCP_HEADER_BYTES]; /* of a burst of data */
	uint8_t control_packet[DLCP_CONTROL_BYTES];
	struct dlcp_statistics statistics;
	char error[DLCP_ERROR_BYTES];
};

/* control.c */
bool dlcp_poll_control(struct dlcp_protocol *protocol, uint64_t now_ns, struct dlcp_burst *burst);
bool dlcp_poll_peer(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns, struct dlcp_burst *burst);

/* liveness.c */
uint64_t dlcp_gone_time(const struct dlcp_protocol *protocol, const struct peer *peer);
uint64_t dlcp_greeting_time(const struct dlcp_protocol *protocol, const struct peer *peer);
uint64_t dlcp_blocked_time(const struct dlcp_protocol *protocol, const struct peer *peer);
void dlcp_check_silence(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns);
bool dlcp_check_incarnation(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header);
bool dlcp_stop_is_for_us(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header);

/* A lane is limited by its window (or pace) only if dlcp_poll_data looked for a lane of its queue while it was held up: as
 * long as higher queues have packets, nobody asks for this one's. */
static inline void dlcp_note_visits(const struct dlcp_protocol *protocol, struct lane *lane, uint8_t queue)
{
	if (lane->held_up && lane->visits != protocol->visits[queue])
		lane->window_limited = true;
	lane->visits = protocol->visits[queue];
}

/* Messages move to lower queues while they are sent. */
static inline bool dlcp_messages_sink(const struct dlcp_protocol *protocol)
{
	return protocol->config.demote_after_bytes[0] != 0;
}

/* The declaration of a tensor, whose number may have come from the wire; NULL if there is none. */
static inline struct tensor *dlcp_declared(const struct dlcp_protocol *protocol, uint16_t number)
{
	return number < protocol->tensor_count && protocol->tensors[number].declared ? &protocol->tensors[number] : NULL;
}

/* The queue whose congestion state a queue obeys. */
static inline uint8_t dlcp_controlled_by(const struct dlcp_protocol *protocol, uint8_t queue)
{
	return dlcp_messages_sink(protocol) ? 0 : queue;
}

static inline uint64_t dlcp_earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Rises with every message of one tensor and leg; 0 is before the first. */
static inline uint64_t dlcp_age(const struct dlcp_key *key)
{
	return ((uint64_t)key->iteration << 16 | key->step) + 1;
}

static inline struct dlcp_key dlcp_header_key(const struct dlcp_header *header)
{
	return (struct dlcp_key){
		.iteration = header->iteration,
		.tensor = header->tensor,
		.step = header->step,
		.leg = header->leg,
	};
}

static inline uint32_t dlcp_packets_of(uint32_t elements, uint8_t dtype)
{
	return (uint32_t)(((uint64_t)elements + dlcp_full_packet(dtype) - 1) / dlcp_full_packet(dtype));
}

/* Elements of one packet of a message: all but the last are full. */
static inline uint32_t dlcp_packet_elements(uint32_t elements, uint8_t dtype, uint32_t packet)
{
	uint32_t full = dlcp_full_packet(dtype), rest = elements - packet * full;

	return rest < full ? rest : full;
}

static inline uint64_t dlcp_message_bytes(uint32_t elements, uint8_t dtype)
{
	return (uint64_t)elements * dlcp_element_bytes(dtype);
}

static inline bool dlcp_bound_valid(const struct dlcp_bound *bound)
{
	return bound->bytes_ppm <= DLCP_PPM && bound->energy_ppm <= DLCP_PPM;
}

/* What holds for a message: its own bound if it has one, else the tensor's; nothing may be missing if either share is 0. */
static inline struct dlcp_bound dlcp_message_bound(const struct dlcp_tensor *shape, uint8_t leg,
						   const struct dlcp_bound *own)
{
	struct dlcp_bound bound = own ? *own : shape->bound[leg];

	if (shape->must_arrive || !bound.bytes_ppm || !bound.energy_ppm)
		bound = (struct dlcp_bound){ 0 };
	return bound;
}

static inline uint64_t dlcp_share(uint64_t bytes, uint32_t ppm)
{
	return bytes / DLCP_PPM * ppm + bytes % DLCP_PPM * ppm / DLCP_PPM;
}

/* What is missing beyond the bound must be sent again; otherwise only what never left. */
static inline bool dlcp_must_resend(const struct outgoing *message)
{
	return message->lost && (message->must_lost || message->lost_bytes > message->allowed_bytes ||
				 message->lost_energy > message->allowed_energy);
}

static inline bool dlcp_has_packets(const struct outgoing *message)
{
	return message->cursor < message->packets || dlcp_must_resend(message);
}

/* tagging.c */
void dlcp_tag(struct dlcp_protocol *protocol, struct outgoing *message, struct tensor *tensor,
	      const struct dlcp_bound *bound);
uint8_t dlcp_class_tos(const struct dlcp_protocol *protocol, uint8_t queue, uint8_t class);

/* stash.c */
void dlcp_stash_put(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		    const struct dlcp_done *done, const uint8_t *payload);
struct stashed *dlcp_stash_take(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_key *key);
void dlcp_stash_release(struct dlcp_protocol *protocol, struct peer *peer, struct stashed *stashed);
void dlcp_stash_forget(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_key *newest);
void dlcp_stash_free(struct dlcp_protocol *protocol);

/* sender.c */
void dlcp_run_done_timers(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns);
void dlcp_on_nack(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const uint8_t *bytes, size_t size, uint64_t now_ns);
void dlcp_on_stop(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const uint8_t *bytes, uint64_t now_ns);

/* transmit.c */
void dlcp_fill_header(const struct dlcp_protocol *protocol, uint8_t type, const struct dlcp_key *key,
		      struct dlcp_header *header);
void dlcp_charge_link(struct dlcp_protocol *protocol, uint32_t bytes, uint64_t now_ns);
bool dlcp_window_open(const struct peer *peer, uint8_t queue);
void dlcp_fill(struct dlcp_protocol *protocol, struct peer *peer, struct outgoing *message, uint64_t now_ns,
	       struct dlcp_burst *burst);

/* recovery.c */
struct record *dlcp_record(struct dlcp_protocol *protocol, struct peer *peer, uint8_t queue, uint64_t now_ns,
			   uint32_t *sequence);
bool dlcp_records_full(const struct peer *peer);
void dlcp_on_ack(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_ack *ack, uint64_t received_ns,
		 uint64_t now_ns);
void dlcp_detect_losses(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns);

/* acknowledge.c */
void dlcp_on_sequence(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header, bool ce,
		      uint64_t received_ns, uint64_t now_ns);
void dlcp_build_ack(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns, uint8_t *bytes);

/* receiver.c */
struct incoming *dlcp_incoming_find(const struct dlcp_protocol *protocol, uint16_t peer, const struct dlcp_key *key);
void dlcp_incoming_free(struct incoming *message);
void dlcp_on_data(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const uint8_t *payload, uint64_t now_ns);
void dlcp_on_done(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const struct dlcp_done *done, uint64_t now_ns);
void dlcp_run_deadlines(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns);
size_t dlcp_build_nack(struct dlcp_protocol *protocol, const struct control *control, struct dlcp_header *header,
		       uint8_t *bytes);

#endif
