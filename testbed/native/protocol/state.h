/* The state machine's own state, all but that of peers and messages, and what every part of it may do.
 *
 * A comment ends with the files that write the field, where that is not the whole struct's. */
#ifndef DLCP_STATE_H
#define DLCP_STATE_H

#include <stdbool.h>

#include "codepoint.h"
#include "heap.h"
#include "protocol.h"
#include "stash.h"
#include "table.h"

#define NEVER UINT64_MAX
#define MICROSECOND UINT64_C(1000)
#define MILLISECOND UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define NONE UINT32_MAX

enum {
	RECORDS_LEAST = 256,   /* transmissions remembered of a peer at first; a power of two, */
	RECORDS_MOST = 4096,   /* doubled up to this: twice those in flight are remembered, since late packets count, too */
	CONTROL_LEAST = 64,    /* room for control packets that wait to leave; a power of two, */
	CONTROL_MOST = 4096,   /* doubled up to this */
	LOST_LISTS = 257,      /* one by magnitude code, and the last for packets that must arrive */
	ACK_EVERY = 8,         /* packets, when the sender does not ask; on a fast link as many as BURST_NS takes, */
	ACK_EVERY_MOST = DLCP_ACK_WINDOW / 2, /* up to this: one acknowledgement may be lost and nothing is untold */
	BURST_PACKETS = 8,     /* of one burst, likewise: it must not fill a shallow port by itself */
	REORDER_PACKETS = 3,   /* RFC 9002, kPacketThreshold */
	BACKOFF_LIMIT = 5,     /* timers double at most so often */
};

/* Sending order and switch treatment of a packet. */
enum packet_class { CLASS_RELIABLE = 0, CLASS_PROTECTED = 1, CLASS_DROPPABLE = 2, CLASSES = 3 };

enum packet_state { UNSENT = 0, IN_FLIGHT = 1, ARRIVED = 2, LOST = 3 };

/* A tensor. Written by protocol.c, but for the threshold. */
struct tensor {
	struct dlcp_tensor shape; /* as it was declared */
	bool declared;   /* shape holds */
	float threshold; /* running median of the packets' metric; tagging.c */
};

/* A completion on its way to the caller, taken when its message begins. */
struct finished {
	struct dlcp_completion completion; /* written when the message ends; sender.c, receiver.c */
	struct finished *next; /* the one that was handed out next, or a free one; state.c, protocol.c */
};

/* Completions. Written by state.c and protocol.c. */
struct completions {
	struct finished *head, *tail; /* those that wait to be polled, oldest first */
	struct finished *free;        /* others, to use again */
};

enum control_kind { CONTROL_DONE, CONTROL_PASSED, CONTROL_NACK, CONTROL_WAIT, CONTROL_STOP };

/* A control packet to send. Whoever pushes it writes it. */
struct control {
	struct dlcp_key key;  /* of the message that it speaks of */
	uint16_t peer;        /* rank that it goes to */
	uint8_t kind;         /* enum control_kind */
	uint32_t first;       /* NACK: the first packet that it describes */
	uint32_t round;       /* DONE, NACK, WAIT: the round of asking */
	uint64_t delivered_bytes; /* STOP */
};

/* Control packets that wait to leave: a ring. */
struct control_ring {
	struct control *packets; /* state.c */
	uint32_t room;           /* 0 or a power of two; state.c */
	uint32_t head, tail; /* the oldest that waits; where the next one comes; control.c; state.c */
};

/* Peers that DATA came from. Written by acknowledge.c. */
struct senders {
	struct peer *head, *tail; /* all of them, by when DATA last came */
	struct peer *first; /* the first that counts as sending of late: so do all behind it; NULL: none does */
	uint32_t counted;   /* that count */
	uint32_t told;      /* in the latest acknowledgement: so many counted then */
};

/* Who is next. Written by schedule.c. */
struct schedule {
	struct dlcp_heap due;                /* peers by when they are due */
	struct dlcp_heap turns;              /* those that are due already, by their numbers */
	struct dlcp_heap ready[DLCP_QUEUES]; /* lanes that may send, by the age of their oldest message */
	struct dlcp_heap paced;              /* lanes that only wait for their pace, by when that allows a packet */
	uint64_t visits[DLCP_QUEUES];        /* how often dlcp_poll_data looked for a lane of each queue */
	uint32_t lane_count[DLCP_QUEUES];    /* lanes of all peers; peers.c */
};

/* The first peer that was given up. Written by liveness.c, the rank at first by protocol.c. */
struct gone {
	int rank;                     /* -1: none was */
	char error[DLCP_ERROR_BYTES]; /* the sentence: what it owed */
};

struct dlcp_protocol {
	/* Fixed from the start; protocol.c. */
	struct dlcp_config config;
	double packet_ns;       /* one full packet on this host's link */
	uint32_t burst_packets; /* of one burst at most */
	uint32_t ack_every;     /* packets that one acknowledgement stands for at most, if its sender does not ask */
	bool ecn;               /* the congestion control needs marks */

	struct tensor *tensors; /* by number; protocol.c */
	uint32_t tensor_count;  /* that `tensors` has room for: the largest declared + 1; protocol.c */
	float *scratch;         /* room for packets' metric, twice the largest tensor's packets; tagging.c */
	uint32_t scratch_packets; /* of the largest tensor; protocol.c */

	struct peer **peers;  /* by rank; NULL: not added; peers.c */
	uint32_t rank_room;   /* ranks that `peers` has room for; peers.c */
	uint32_t peer_count;  /* that were added; peers.c */
	struct peer *peer_head, *peer_tail; /* in the order in which they were added; peers.c */

	struct table outgoing;          /* messages that are sent; sender.c */
	struct outgoing *free_outgoing; /* others, to use again, by waiting_next; sender.c */
	uint32_t sending;               /* messages under way; sender.c */
	uint64_t next_message;          /* id of the latest one; sender.c */
	struct table incoming;          /* messages that are expected; incoming.c */
	struct incoming *free_incoming; /* others, to use again, by next; incoming.c */
	uint32_t receiving;             /* messages under way; incoming.c */
	struct stash stash;             /* packets of messages that are not expected yet; stash.c */
	struct completions completions;

	struct control_ring control;
	struct senders senders;
	struct schedule schedule;
	struct gone gone;
	double nic_ns;     /* when the link is free for the next packet; transmit.c */
	uint32_t overflow; /* datagrams that this end's socket dropped; protocol.c */

	uint8_t heads[DLCP_BURST_PACKETS][DLCP_HEADER_BYTES]; /* of a burst of data; transmit.c */
	uint8_t control_packet[DLCP_CONTROL_BYTES];           /* of a burst of control; control.c */
	struct dlcp_statistics statistics; /* everybody counts what it does */
	char error[DLCP_ERROR_BYTES];      /* the sentence of the latest failure; state.c, liveness.c */
};

static inline uint64_t dlcp_earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Messages move to lower queues while they are sent. */
static inline bool dlcp_messages_sink(const struct dlcp_protocol *protocol)
{
	return protocol->config.demote_after_bytes[0] != 0;
}

/* The queue whose congestion state a queue obeys. */
static inline uint8_t dlcp_controlled_by(const struct dlcp_protocol *protocol, uint8_t queue)
{
	return dlcp_messages_sink(protocol) ? 0 : queue;
}

/* The declaration of a tensor, whose number may have come from the wire; NULL if there is none. */
static inline struct tensor *dlcp_declared(const struct dlcp_protocol *protocol, uint16_t number)
{
	return number < protocol->tensor_count && protocol->tensors[number].declared ? &protocol->tensors[number] : NULL;
}

/* Keep an error's sentence for dlcp_protocol_error; returns the code. */
int dlcp_fail(struct dlcp_protocol *protocol, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Memory for one completion, taken when its message begins so that its end needs none. NULL: there is none. */
struct finished *dlcp_take_completion(struct dlcp_protocol *protocol);

/* Hand a completion out, behind those that wait to be polled. */
void dlcp_complete(struct dlcp_protocol *protocol, struct finished *finished);

/* Let a control packet leave soon. A full ring drops it: every one of them is asked for again by a timer. */
void dlcp_control_push(struct dlcp_protocol *protocol, const struct control *control);

#endif
