/* What the receiving half says of transmissions: which sequence numbers came, of whichever message. */
#ifndef DLCP_ACKNOWLEDGE_H
#define DLCP_ACKNOWLEDGE_H

#include "peers.h"

/* Enter a sequence number into what the next acknowledgements will say. */
void dlcp_on_sequence(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header, bool ce,
		      uint64_t received_ns, uint64_t now_ns);

/* Write an acknowledgement (DLCP_ACK_BYTES). */
void dlcp_build_ack(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns, uint8_t *bytes);

#endif
