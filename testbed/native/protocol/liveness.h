/* Who lives: greetings, silence, and what a peer owes in words. */
#ifndef DLCP_LIVENESS_H
#define DLCP_LIVENESS_H

#include "peers.h"

/* When a peer that owes something and says nothing counts as gone; NEVER: it owes nothing. */
uint64_t dlcp_gone_time(const struct dlcp_protocol *protocol, const struct peer *peer);

/* When to greet a peer: before the first data, at times while data flow, and when it owes something and is silent. */
uint64_t dlcp_greeting_time(const struct dlcp_protocol *protocol, const struct peer *peer);

/* When a peer that answers, but to which no data get through, counts as gone. */
uint64_t dlcp_blocked_time(const struct dlcp_protocol *protocol, const struct peer *peer);

/* Give a peer up whose time has come. */
void dlcp_check_silence(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns);

/* Learn a peer's incarnation from its PROBE or DONE; false if it had another before, and is given up. */
bool dlcp_check_incarnation(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header);

/* Whether a STOP speaks of what this start of the rank has sent. */
bool dlcp_stop_is_for_us(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header);

#endif
