/* The receiving half: placement by offset, and the verdict on DONE. The call for it is in protocol.h. */
#ifndef DLCP_RECEIVER_H
#define DLCP_RECEIVER_H

#include "peers.h"

/* A DATA packet whose header is sound and whose payload has header->count elements. */
void dlcp_on_data(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const uint8_t *payload, uint64_t now_ns);

/* A DONE of any message: also one that is over, or that nobody expects yet. */
void dlcp_on_done(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const struct dlcp_done *done, uint64_t now_ns);

/* Close what a deadline that has come is satisfied with. */
void dlcp_run_deadlines(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns);

/* Write a NACK that begins at control->first. Returns its length, or 0 when the message has ended meanwhile. */
size_t dlcp_build_nack(struct dlcp_protocol *protocol, const struct control *control, struct dlcp_header *header,
		       uint8_t *bytes);

#endif
