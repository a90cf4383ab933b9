/* A message on its way out: the states of its packets, and its place in its lane.
 *
 * A comment ends with the files that write the field, where that is not the whole struct's; sender.c begins them all. */
#ifndef DLCP_OUTGOING_H
#define DLCP_OUTGOING_H

#include "messages.h"
#include "peers.h"

/* What became of each packet. Written by outgoing.c, the arrays' memory by sender.c. */
struct packets {
	uint32_t room;    /* packets that all arrays by packet have room for; sender.c */
	uint8_t *state;   /* enum packet_state by packet; UNSENT at first */
	uint32_t *latest; /* sequence of the latest transmission, by packet; transmit.c */
	uint32_t in_flight, arrived, lost; /* packets in each state */
	uint32_t must_lost;   /* lost packets of a bounded message that must arrive */
	uint64_t lost_bytes;  /* of the lost packets */
	double lost_energy;   /* of the lost packets */
	uint32_t *lost_next, *lost_previous; /* by packet, while it is lost: others in its list */
	uint32_t lost_head[LOST_LISTS];      /* NONE if there is none, */
	uint32_t lost_top;                   /* above this list there is none */
};

/* What its packets are worth, and what may be missing. Written by tagging.c. */
struct tags {
	uint8_t *class;       /* enum packet_class by packet */
	uint8_t *magnitude;   /* code by packet */
	uint32_t *order;      /* packets in sending order */
	uint32_t must_arrive; /* packets of a bounded message that must arrive */
	double energy;        /* sum of all squares; infinite if a value is not finite, 0 if nobody measured it */
	uint16_t energy_code; /* the same in a packet's header */
	uint64_t allowed_bytes; /* that may be missing; 0 after the receiver has contradicted: sender.c */
	double allowed_energy;  /* likewise */
};

/* How far sending has come. Written by transmit.c. */
struct progress {
	uint32_t cursor;       /* in tags.order: the first pass */
	uint8_t queue;         /* that the next packet travels in; outgoing.c */
	uint64_t sent_bytes;   /* of the message, what was sent again included */
	uint64_t resent_bytes; /* of these, sent again */
};

/* Asking the receiver whether it has enough. Written by sender.c. */
struct asking {
	uint32_t round;         /* DONEs sent, that of round 0 not counted */
	uint32_t nack_round;    /* the round whose NACKs are taken; */
	uint32_t nack_history;  /* others up to this one tell of a past that retransmissions have repaired, */
	uint32_t nack_sequence; /* and so does the round itself (doubled on its way) of what was sent since */
	uint64_t done_at_ns;    /* when DONE is due; NEVER while packets are under way; outgoing.c */
	uint32_t done_tries;    /* DONEs since packets were last under way; outgoing.c */
	uint64_t passed_at_ns;  /* when to say that the first pass is over; NEVER before, and once it was said; transmit.c */
	bool passed_twice;      /* it is not said again after that; sender.c */
	uint32_t probes;        /* DONEs in all */
};

/* A message that this end sends. Lives in its peer's list and in the table; used again through a free list. */
struct outgoing {
	struct table_entry entry; /* in protocol->outgoing; sender.c, table.c */
	uint64_t id;      /* rises with every message: age and identity; 0: it is over; sender.c */
	struct outgoing *prev, *next; /* its lane's list of those with packets to send; outgoing.c */
	bool listed;      /* it is in that list; outgoing.c */
	struct outgoing *waiting_prev, *waiting_next; /* the peer's list of those that are not over; sender.c */
	struct finished *finished; /* where its completion will be written; sender.c */
	const uint8_t *data; /* the caller's; sender.c */
	uint8_t dtype;       /* enum dlcp_dtype; sender.c */
	uint32_t elements;   /* of dtype; sender.c */
	uint32_t count;      /* packets; sender.c */
	uint8_t last_flag;   /* of its last packet: DLCP_FLAG_LAST if its tensor is variable, else 0; sender.c */
	uint16_t *contributors; /* ranks whose values it sums up, by packet; sender.c */
	uint64_t start_ns;   /* when it was handed over; sender.c */
	struct packets packets;
	struct tags tags;
	struct progress progress;
	struct asking asking;
};

/* What is missing beyond the bound must be sent again; otherwise only what never left. R46, R58. */
static inline bool dlcp_must_resend(const struct outgoing *message)
{
	const struct packets *packets = &message->packets;

	return packets->lost && (packets->must_lost || packets->lost_bytes > message->tags.allowed_bytes ||
				 packets->lost_energy > message->tags.allowed_energy);
}

static inline bool dlcp_has_packets(const struct outgoing *message)
{
	return message->progress.cursor < message->count || dlcp_must_resend(message);
}

/* The message to a peer that is under way, or NULL. */
struct outgoing *dlcp_outgoing_find(const struct dlcp_protocol *protocol, uint16_t peer, const struct dlcp_key *key);

/* Into its peer's list of its queue, by age; and out of it. */
void dlcp_outgoing_list(struct peer *peer, struct outgoing *message, uint64_t now_ns);
void dlcp_outgoing_unlist(struct peer *peer, struct outgoing *message, uint64_t now_ns);

/* Move a packet to another enum packet_state and keep the counts. */
void dlcp_set_state(struct outgoing *message, uint32_t packet, uint8_t state);

/* After packets changed their state: is there something to send, and is DONE due? */
void dlcp_outgoing_changed(struct dlcp_protocol *protocol, struct outgoing *message, uint64_t now_ns);

/* Bytes of a message were sent: it may have to travel in a lower queue from here on. */
void dlcp_demote(struct dlcp_protocol *protocol, struct peer *peer, struct outgoing *message, uint64_t now_ns);

/* The lost packet that matters most: one that must arrive, else of the largest magnitude. NONE when none is lost. */
uint32_t dlcp_largest_lost(struct outgoing *message);

void dlcp_outgoing_free(struct outgoing *message);

#endif
