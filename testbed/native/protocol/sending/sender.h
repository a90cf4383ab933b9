/* The sending half: messages from submission to STOP. The calls for it are in protocol.h. */
#ifndef DLCP_SENDER_H
#define DLCP_SENDER_H

#include "peers.h"

/* Queue a DONE for every message of a peer whose time has come, and tell of passes that are over. */
void dlcp_run_done_timers(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns);

/* The receiver says what is missing, or to wait. */
void dlcp_on_nack(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const uint8_t *bytes, size_t size, uint64_t now_ns);

/* The receiver has enough: the message is over. */
void dlcp_on_stop(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const uint8_t *bytes, uint64_t now_ns);

#endif
