/* A message that is expected: what has come of it, and its place in the lists.
 *
 * A comment ends with the files that write the field, where that is not receiver.c. */
#ifndef DLCP_INCOMING_H
#define DLCP_INCOMING_H

#include "messages.h"
#include "peers.h"

/* A deadline: from an instant on so many bytes are enough. */
struct closing {
	uint64_t at_ns;          /* NEVER while it is not known */
	uint64_t after_first_ns; /* so long after the first packet; 0 = this does not count */
	uint64_t bytes;          /* of the message, that close it from then on */
};

/* A message that this end expects. */
struct incoming {
	struct table_entry entry; /* in protocol->incoming; table.c */
	struct incoming *prev, *next; /* the peer's list, oldest first; incoming.c */
	struct finished *finished;    /* where its completion will be written; incoming.c */
	uint8_t *buffer;              /* the caller's */
	uint16_t *contributors;       /* the caller's: ranks whose values it sums up, by packet; NULL: nobody asks */
	uint8_t dtype, placement;     /* enum dlcp_dtype; enum dlcp_placement */
	uint32_t elements, packets;   /* of the message: elements of dtype; packets. Until it has ended the most that
				       * there may be; length.c */
	uint32_t least_packets;       /* there are at least so many; length.c */
	bool variable;                /* of a variable tensor; length.c */
	bool ended;                   /* `elements` and `packets` are what the message has; length.c */
	uint32_t capacity;            /* packets that the bitmap has room for; incoming.c */
	uint64_t *bitmap;             /* bit i: packet i arrived; its memory by incoming.c */
	uint32_t arrived;             /* packets */
	uint32_t must_arrive;         /* packets that must; NONE while the sender has yet to say how many */
	uint32_t must_arrived;        /* of these, arrived */
	uint64_t delivered_bytes;     /* that arrived */
	uint64_t needed_bytes;        /* that the bound asks for; receiver.c, length.c */
	double energy;                /* of the message: exact once a DONE came, before that not less than it is */
	double delivered_energy;      /* of what arrived */
	uint32_t energy_ppm;          /* what may be missing of it */
	struct closing closing[DLCP_DEADLINES]; /* its deadlines */
	uint32_t closings;            /* deadlines in `closing` */
	uint64_t start_ns;            /* since when it is expected */
	uint64_t first_ns;            /* when its first packet was taken; 0 = none came */
	bool pass_over;               /* a DONE came: the sender's first pass is over */
};

/* The message from a peer that is expected, or NULL. */
struct incoming *dlcp_incoming_find(const struct dlcp_protocol *protocol, uint16_t peer, const struct dlcp_key *key);

/* A message with room for so many packets and for its completion, to be filled, or NULL. */
struct incoming *dlcp_incoming_take(struct dlcp_protocol *protocol, uint32_t packets);

/* Into the table and its peer's list, as the newest; and out of them, to be taken again. */
void dlcp_incoming_list(struct dlcp_protocol *protocol, struct peer *peer, struct incoming *message, uint64_t now_ns);
void dlcp_incoming_unlist(struct dlcp_protocol *protocol, struct peer *peer, struct incoming *message);

void dlcp_incoming_free(struct incoming *message);

#endif
