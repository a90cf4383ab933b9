/* Packets of messages that nobody expects yet. */
#ifndef DLCP_STASH_H
#define DLCP_STASH_H

#include <stdint.h>

#include "protocol.h"

enum { STASH_BUCKETS = 256 /* a power of two */ };

struct dlcp_protocol;
struct peer;

/* A DATA or DONE packet that came before its message was expected. Written by stash.c. */
struct stashed {
	struct stashed *next; /* in its bucket, newest first; or free */
	struct dlcp_header header; /* as it came */
	struct dlcp_done done; /* of a DONE */
	uint16_t peer;         /* rank that it came from */
	uint8_t payload[DLCP_PAYLOAD_BYTES]; /* of a DATA: header.count elements */
};

/* Packets kept, by peer, tensor and leg. Memory comes in slabs, when it is needed, up to a limit. Written by stash.c. */
struct stash {
	struct stashed *buckets[STASH_BUCKETS]; /* packets kept, by a hash of peer, tensor and leg */
	struct stashed *free; /* room for packets that nothing is kept in */
	struct slab *slabs;   /* all memory, the newest first */
	uint32_t used; /* packets kept */
	uint32_t made; /* packets that the slabs have room for */
	uint32_t most; /* up to this; protocol.c */
};

/* Keep a DATA packet, or a DONE (payload is NULL), of which only that of the newest round is kept. */
void dlcp_stash_put(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		    const struct dlcp_done *done, const uint8_t *payload);

/* Everything kept of a message, as a list; the caller releases it one by one. */
struct stashed *dlcp_stash_take(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_key *key);

/* Give a packet's room back. */
void dlcp_stash_release(struct dlcp_protocol *protocol, struct peer *peer, struct stashed *stashed);

/* Forget what can never be expected any more: what is not newer than a message that is over. */
void dlcp_stash_forget(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_key *newest);

void dlcp_stash_free(struct dlcp_protocol *protocol);

#endif
