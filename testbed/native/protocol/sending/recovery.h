/* What acknowledgements tell a sender: round-trip times, losses, progress. */
#ifndef DLCP_RECOVERY_H
#define DLCP_RECOVERY_H

#include "peers.h"

/* Note a transmission in a queue; the caller fills message, outgoing, packet and class. */
struct record *dlcp_record(struct dlcp_protocol *protocol, struct peer *peer, uint8_t queue, uint64_t now_ns,
			   uint32_t *sequence);

/* True if no transmission can be remembered any more: the oldest one in flight is as far back as the ring has room. */
bool dlcp_records_full(const struct peer *peer);

/* An acknowledgement came; received_ns: when, to this host. */
void dlcp_on_ack(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_ack *ack, uint64_t received_ns,
		 uint64_t now_ns);

/* Find what is lost; sets when to look again without a further acknowledgement. */
void dlcp_detect_losses(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns);

#endif
