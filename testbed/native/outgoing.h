/* A message on its way out: the states of its packets, and its place in its lane. */
#ifndef DLCP_OUTGOING_H
#define DLCP_OUTGOING_H

#include "protocol_internal.h"

/* The message to a peer that is under way, or NULL. */
struct outgoing *dlcp_outgoing_find(const struct dlcp_protocol *protocol, uint16_t peer, const struct dlcp_key *key);

/* Into its peer's list of its queue, by age; and out of it. */
void dlcp_outgoing_list(struct peer *peer, struct outgoing *message, uint64_t now_ns);
void dlcp_outgoing_unlist(struct peer *peer, struct outgoing *message, uint64_t now_ns);

/* Move a packet to another enum packet_state and keep the counts. */
void dlcp_set_state(struct outgoing *message, uint32_t packet, uint8_t state);

/* After packets changed their state: is there something to send, and is DONE due? */
void dlcp_outgoing_changed(struct dlcp_protocol *protocol, struct outgoing *message, uint64_t now_ns);

/* Bytes of a message were sent: it may have to travel in a lower queue from here on. */
void dlcp_demote(struct dlcp_protocol *protocol, struct peer *peer, struct outgoing *message, uint64_t now_ns);

/* The lost packet that matters most: one that must arrive, else of the largest magnitude. NONE when none is lost. */
uint32_t dlcp_largest_lost(struct outgoing *message);

void dlcp_outgoing_free(struct outgoing *message);

#endif
