/* Control packets on their way out. */
#ifndef DLCP_CONTROL_H
#define DLCP_CONTROL_H

#include "state.h"

struct peer;

/* The next control packet of those that wait, as a burst; false when none does. */
bool dlcp_poll_control(struct dlcp_protocol *protocol, uint64_t now_ns, struct dlcp_burst *burst);

/* What follows from a peer's state alone: the next acknowledgement or probe, as a burst. */
bool dlcp_poll_peer(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns, struct dlcp_burst *burst);

#endif
