/* How long to wait for evidence. */
#ifndef DLCP_TIMEOUTS_H
#define DLCP_TIMEOUTS_H

#include "peers.h"

/* How long to wait for a peer's answer before asking again; doubles with each try. */
uint64_t dlcp_timeout(const struct dlcp_protocol *protocol, const struct peer *peer, uint32_t tries);

/* A queue's smoothed round-trip time; the peer's while its own packets have not come back. */
uint64_t dlcp_lane_rtt(const struct peer *peer, const struct lane *lane);

/* How long after it left a packet of a queue that others have overtaken counts as late, no more as reordered. */
uint64_t dlcp_patience(const struct peer *peer, const struct lane *lane);

/* When a lane's evidence is overdue; NEVER when nothing is in flight. */
uint64_t dlcp_lane_timer(const struct dlcp_protocol *protocol, const struct peer *peer, uint8_t queue);

#endif
