/* Peers by rank, and the memory that each takes: little until a message is under way between it and this rank. */
#ifndef DLCP_PEERS_H
#define DLCP_PEERS_H

#include "protocol_internal.h"

/* The peer of a rank, which may be any number that came from the wire; NULL if it was not added. */
static inline struct peer *dlcp_peer(const struct dlcp_protocol *protocol, uint16_t rank)
{
	return rank < protocol->rank_room ? protocol->peers[rank] : NULL;
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
