/* Bursts of data: as many packets of one message as window, pace and GSO allow. */
#ifndef DLCP_TRANSMIT_H
#define DLCP_TRANSMIT_H

#include "outgoing.h"

/* A header of a packet of that type and message, without what is the type's own. */
void dlcp_fill_header(const struct dlcp_protocol *protocol, uint8_t type, const struct dlcp_key *key,
		      struct dlcp_header *header);

/* The link is busy with so many bytes. */
void dlcp_charge_link(struct dlcp_protocol *protocol, uint32_t bytes, uint64_t now_ns);

/* Whether window and memory allow a packet to a peer in a queue, whatever the pace. */
bool dlcp_window_open(const struct peer *peer, uint8_t queue);

/* The next burst of a message whose lane may send. */
void dlcp_fill(struct dlcp_protocol *protocol, struct peer *peer, struct outgoing *message, uint64_t now_ns,
	       struct dlcp_burst *burst);

#endif
