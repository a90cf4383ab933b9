/* DLCP's sender, receiver and congestion state by peer and queue as one state machine without socket, clock or thread.
 *
 * Packets go in with the time at which they came; packets, a timer and completions come out. The engine drives it with
 * sockets, the simulator and the tests in virtual time. Not thread-safe: one caller at a time.
 *
 * Memory is taken when a message begins. While packets move only these grow: the stash of early packets (config.stash_bytes
 * at most), the ring of control packets to send (128 KiB at most, 32 bytes each), and what is remembered of a peer's
 * transmissions, which follows this rank's own window (160 KiB a peer at most). So what others send makes a protocol take at
 * most the stash and the ring. A peer with which no message was exchanged takes about 1 KiB (R109).
 * PROTOCOL.md has the rules that comments cite by number.
 *
 * Times are nanoseconds of any clock that does not run backwards. Functions that return int give 0 or a negative
 * enum dlcp_error; dlcp_protocol_error() has the sentence.
 */
#ifndef DLCP_PROTOCOL_H
#define DLCP_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#include "wire.h"

/* cffi: begin */
enum {
	DLCP_MAX_RANKS = 16384,
	DLCP_MAX_TENSORS = 65536,
	DLCP_BURST_PACKETS = 44, /* one GSO super-packet: a UDP datagram's 65507 bytes hold no more */
	DLCP_CONTROL_BYTES = 1472,
	DLCP_ERROR_BYTES = 512,
	DLCP_PPM = 1000000, /* as a bound: no limit */
};

enum dlcp_error {
	DLCP_OK = 0,
	DLCP_ERROR_ARGUMENT = -1,
	DLCP_ERROR_MEMORY = -2,
	DLCP_ERROR_DUPLICATE = -3,
	DLCP_ERROR_PEER_GONE = -4,
};

enum dlcp_selective_drop {
	DLCP_DROP_OFF = 0,  /* one class for all */
	DLCP_DROP_WRED = 1, /* drop precedence 0 reliable, 1 protected, 2 droppable */
	DLCP_DROP_ECT = 2,  /* precedence 0; droppable = Not-ECT, all else = ECT(0) */
};

/* What decides whether a packet's gradients are small or large. */
enum dlcp_metric {
	DLCP_METRIC_MEAN = 0, /* mean |g| */
	DLCP_METRIC_L2 = 1,   /* root mean square */
	DLCP_METRIC_MAX = 2,  /* largest |g| */
};

/* Which packets of a push may be tagged as droppable. */
enum dlcp_droppable { DLCP_DROPPABLE_SMALL = 1, DLCP_DROPPABLE_LARGE = 2 };

/* What a receive buffer holds where nothing arrives, and what becomes of what arrives. */
enum dlcp_placement {
	DLCP_PLACE_ZERO = 0, /* holes are zeroed when the message ends */
	DLCP_PLACE_KEEP = 1, /* holes keep what the buffer held */
	DLCP_PLACE_ADD = 2,  /* what arrives is added, in the tensor's dtype; holes keep */
};

/* What one rank is told at its start. Written by the caller; the protocol keeps a copy, in which protocol.c fills in some of
 * what 0 stands for. */
struct dlcp_config {
	uint32_t cookie;        /* of the job; packets with another one are dropped */
	uint16_t rank;          /* of this protocol, below DLCP_MAX_RANKS */
	uint8_t selective_drop; /* enum dlcp_selective_drop */
	uint8_t eager_stop;     /* 1: a message ends as soon as its bound is met; 0: after the sender's first pass */
	uint8_t magnitude_metric; /* enum dlcp_metric */
	uint8_t tag_all;        /* 1: messages of which nothing may be missing are measured and tagged like bounded ones: their
				 * receivers may close early, or switches drop small gradients first all the same */
	uint8_t resend_last;    /* 1: what is sent again waits until its message's first pass has left, but for packets that
				 * must arrive */
	uint64_t demote_after_bytes[6]; /* of a message's bytes sent: beyond each its packets travel one queue lower; 0 ends
					 * the list */
	uint32_t stash_bytes;   /* at most so much memory for data that nobody expects yet; 0 = 16 MiB: a ring's
				 * neighbour begins the next all-reduce early */
	double link_bps;        /* of this host's link, bit/s of Ethernet frames: the pace of everything together */
	char congestion_control[16]; /* name of the algorithm, which ends with a 0 */
	uint64_t t_low_ns;      /* `timely`: below this round-trip time the window grows; 0 = derived */
	uint64_t t_high_ns;     /* `timely`: above this one it shrinks; 0 = derived */
	double fixed_window;    /* `fixed`: packets; 0 = 32 */
	uint64_t timer_floor_ns;    /* least time before a DONE or a PROBE is repeated; 0 = derived */
	uint32_t incarnation;       /* of this start of the rank, unlike that of any other; 0 = none: its peers cannot tell a
				     * second start from the first */
	uint64_t ack_delay_ns;      /* a receiver holds an acknowledgement back at most so long; 0 = 500 us */
	uint64_t silence_ns;        /* a peer that owes something and was not heard for so long is gone; 0 = 10 s */
	uint64_t first_contact_ns;  /* the same before its first packet; 0 = 60 s */
};

/* What may stay missing of a message, parts per million of its bytes and of its energy; both must hold. Neither may be
 * missing if either is 0. Written by the caller. */
struct dlcp_bound {
	uint32_t bytes_ppm, energy_ppm;
};

/* A tensor as every rank declares it. Written by the caller. */
struct dlcp_tensor {
	uint32_t elements;     /* of dtype, in a message; at least 1 */
	struct dlcp_bound bound[2]; /* by leg */
	uint8_t dtype;         /* enum dlcp_dtype */
	uint8_t queue;         /* 0-6 */
	uint8_t droppable;     /* mask of enum dlcp_droppable: which packets of the push leg may be tagged so */
	uint8_t must_arrive;   /* nothing may be missing on any leg, whatever a bound says */
	uint8_t variable;      /* a message has 1 to `elements` elements, as its sender says; it must arrive */
	uint32_t must_arrive_ppm; /* share of a bounded push's packets that must arrive: the largest gradients' */
};

/* The name of a message between two ranks. Written by the caller, or from a packet's header. */
struct dlcp_key {
	uint32_t iteration; /* of training; rises */
	uint16_t tensor;    /* number as it was declared */
	uint16_t step;      /* hop of a ring, in the order of registration; 0 where there is one only */
	uint8_t leg;        /* enum dlcp_leg */
};

/* A message that is over at this end; fields as in dlcp.transport.contract.endpoint.Completion. Written by sender.c and
 * receiver.c. */
struct dlcp_completion {
	struct dlcp_key key;  /* its name */
	uint16_t peer;        /* rank at the other end */
	uint8_t received;     /* 1: it came from there; 0: it was sent there */
	uint64_t bytes;       /* of the whole message */
	uint64_t delivered_bytes; /* of these, arrived; sent: as STOP told, else as was acknowledged */
	uint64_t lost_bytes;  /* received: of these, missing; sent: 0 */
	uint64_t resent_bytes; /* sent: transmitted again; received: 0 */
	double lost_energy_share; /* of the lost bytes instead where a value was not finite, or nothing told of the energy */
	uint32_t probes;      /* sent: DONEs of rounds above 0; received: 0 */
	uint64_t start_ns, end_ns; /* when it was handed over or expected; when it was over */
	uint64_t first_ns;    /* received: when its first packet was taken; 0 = none came */
};

enum {
	DLCP_DEADLINES = 2,
	DLCP_DEMOTIONS = 6, /* from the highest queue of data to the lowest */
};

/* From when on a receiver closes a message whose bound is not met. The earlier instant counts. Written by the caller. */
struct dlcp_deadline {
	uint64_t at_ns;          /* an instant; 0 = none */
	uint64_t after_first_ns; /* so long after the message's first packet was taken; 0 = none */
	uint32_t share_ppm;      /* of the bytes: so many must be there even then */
};

/* Where a message goes. Written by the caller. */
struct dlcp_destination {
	void *buffer;           /* room for all the tensor's elements; the protocol's until the completion. What a message
				 * of a variable tensor does not fill is left as it is */
	uint32_t elements;      /* of the tensor's dtype, as declared */
	uint8_t placement;      /* enum dlcp_placement */
	const struct dlcp_bound *bound; /* for this message instead of the declared one; NULL: that one. Copied */
	const struct dlcp_deadline *deadlines; /* any of them closes it, once all that must arrive is there.
						* Copied. A tensor that must arrive has none */
	uint32_t deadline_count; /* DLCP_DEADLINES at most */
	uint16_t *contributors; /* NULL, or one by packet of the tensor, the protocol's until the completion: how many
				 * ranks' values it sums up, as the sender said, 0 in a hole and where a message of a
				 * variable tensor has no packet; DLCP_PLACE_ADD adds to what is there */
};

/* What a message is made of. Written by the caller. */
struct dlcp_source {
	const void *data;       /* all the message's elements; must not change until the completion */
	uint32_t elements;      /* of the tensor's dtype, as declared; of a variable tensor 1 to as many */
	const struct dlcp_bound *bound; /* as above; both ends of a message say the same */
	const uint16_t *contributors;   /* NULL: 1 each; otherwise one by packet. Copied */
};

/* Packets of one class to one peer, all of equal size but for the last, which may be shorter. A packet is its head
 * and then payload_bytes[i] at payload[i] (control packets: head only). Heads are valid until the next poll_transmit,
 * payload also not beyond the message's completion, which any packet that comes in may bring. Written by transmit.c and
 * control.c. */
struct dlcp_burst {
	uint16_t peer;              /* rank that they go to */
	uint8_t tos;                /* IPv4 byte: codepoint and ECN field */
	uint32_t packets;           /* in the burst, 1 to DLCP_BURST_PACKETS */
	uint32_t head_bytes;        /* of each head */
	const uint8_t *head[44];    /* by packet */
	const uint8_t *payload[44]; /* by packet; of control packets nothing */
	uint32_t payload_bytes[44]; /* by packet; of control packets 0 */
};

/* Counters since the start, of packets where nothing else is said; each file of the protocol counts what it does. */
struct dlcp_statistics {
	uint64_t packets_sent, bytes_sent;         /* UDP payload, everything */
	uint64_t data_packets_sent, data_bytes_sent; /* gradients alone, resent included */
	uint64_t packets_resent, bytes_resent;     /* of these, sent again */
	uint64_t packets_droppable;                /* sent with the droppable tag */
	uint64_t packets_received, bytes_received; /* UDP payload, everything that is sound and a peer's */
	uint64_t data_packets_received, data_bytes_received; /* gradients alone, duplicate and late ones included */
	uint64_t packets_duplicate;                /* data that had arrived before */
	uint64_t packets_late;                     /* data of a message that is over */
	uint64_t packets_stashed;                  /* data of a message that nobody waits for yet, kept */
	uint64_t packets_stash_full;               /* the same, thrown away since its peer's share was full */
	uint64_t stash_bytes;                      /* memory taken for them so far */
	uint64_t packets_stranger;                 /* wrong cookie, unknown rank */
	uint64_t packets_malformed;                /* a length or field that cannot be */
	uint64_t packets_ce;                       /* received with the ECN field CE */
	uint64_t losses_detected, losses_spurious; /* DATA that counted as lost; of these, acknowledged later */
	/* Control packets by type; a greeting is no PROBE here. */
	uint64_t acks_sent, acks_received, dones_sent, nacks_sent, stops_sent, probes_sent, greetings_sent;
	uint64_t control_dropped;                  /* intents that found their ring full; their timers repeat them */
	uint64_t messages_sent, messages_received; /* messages that are over */
	uint64_t lost_bytes;                       /* of finished received messages */
	uint64_t overflow_reported;                /* datagrams that peers' sockets dropped, as peers told */
};

/* What is known of a peer at this instant; fields as in peers.h. Written by protocol.c. */
struct dlcp_peer_statistics {
	uint16_t rank;      /* of the peer */
	uint8_t gone;       /* 1: it was given up */
	uint64_t min_rtt_ns, srtt_ns, rttvar_ns; /* smallest of this half window; smoothed, and its variation; 0 = none */
	double window;      /* packets: the largest of the queues' */
	uint32_t in_flight; /* DATA packets of which nothing is known yet */
	uint64_t sent, lost; /* DATA packets since the start */
};

struct dlcp_protocol;
struct outgoing;

struct dlcp_protocol *dlcp_protocol_new(const struct dlcp_config *config, char *error, size_t error_bytes);
void dlcp_protocol_free(struct dlcp_protocol *protocol);
const char *dlcp_protocol_error(const struct dlcp_protocol *protocol);

/* Agree a tensor; again with the same values is fine, with others is an error. */
int dlcp_protocol_declare(struct dlcp_protocol *protocol, uint16_t tensor, const struct dlcp_tensor *shape);
int dlcp_protocol_add_peer(struct dlcp_protocol *protocol, uint16_t rank, uint64_t now_ns);

/* Expect a message from a peer. It may be complete at once: what came before was kept. */
int dlcp_protocol_receive(struct dlcp_protocol *protocol, uint16_t peer, const struct dlcp_key *key,
			  const struct dlcp_destination *to, uint64_t now_ns);

/* Hand a message over. */
int dlcp_protocol_send(struct dlcp_protocol *protocol, uint16_t peer, const struct dlcp_key *key,
		       const struct dlcp_source *from, uint64_t now_ns);

/* dlcp_protocol_send in three steps, for a caller with a lock: the second reads all of the data, which takes
 * milliseconds for a large tensor, and may run beside every other call but itself and dlcp_protocol_declare. What was
 * prepared must be committed before the next is prepared. */
int dlcp_protocol_prepare(struct dlcp_protocol *protocol, uint16_t peer, const struct dlcp_key *key,
			  const struct dlcp_source *from, uint64_t now_ns, struct outgoing **prepared);
void dlcp_protocol_tag(struct dlcp_protocol *protocol, struct outgoing *prepared, const struct dlcp_source *from);
void dlcp_protocol_commit(struct dlcp_protocol *protocol, struct outgoing *prepared, uint64_t now_ns);

/* One datagram. received_ns: when it came (not after now_ns). overflow: datagrams that the socket dropped so far. */
void dlcp_protocol_input(struct dlcp_protocol *protocol, const uint8_t *bytes, size_t size, uint8_t tos,
			 uint64_t received_ns, uint64_t now_ns, uint32_t overflow);

/* The next packets that may leave at now_ns: 1 and a burst, or 0. Call until 0. */
int dlcp_protocol_poll_transmit(struct dlcp_protocol *protocol, uint64_t now_ns, struct dlcp_burst *burst);

/* When poll_transmit must be called next if nothing else happens; UINT64_MAX = never. */
uint64_t dlcp_protocol_next_timer(struct dlcp_protocol *protocol, uint64_t now_ns);

/* 1 if a completion waits to be polled. */
int dlcp_protocol_has_completion(const struct dlcp_protocol *protocol);

/* 1 and a completion, or 0. */
int dlcp_protocol_poll_completion(struct dlcp_protocol *protocol, struct dlcp_completion *completion);

/* The rank of a peer that is gone, or -1; dlcp_protocol_error() then says what it still owed. */
int dlcp_protocol_gone(struct dlcp_protocol *protocol);

/* What is under way, in words: the oldest message that is missing something. Empty when there is none. */
void dlcp_protocol_describe(struct dlcp_protocol *protocol, uint64_t now_ns, char *text, size_t text_bytes);

/* Messages under way at this end: sent and not yet stopped, expected and not yet complete. */
uint32_t dlcp_protocol_sending(const struct dlcp_protocol *protocol);
uint32_t dlcp_protocol_receiving(const struct dlcp_protocol *protocol);

void dlcp_protocol_statistics(const struct dlcp_protocol *protocol, struct dlcp_statistics *statistics);
int dlcp_protocol_peer_statistics(const struct dlcp_protocol *protocol, uint16_t rank,
				  struct dlcp_peer_statistics *statistics);
/* cffi: end */

#endif
