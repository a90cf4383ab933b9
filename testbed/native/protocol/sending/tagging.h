/* Which packets matter: the magnitude of each, its class, the order in which they leave. */
#ifndef DLCP_TAGGING_H
#define DLCP_TAGGING_H

#include "outgoing.h"

/* Fill the tags of a message whose data and sizes are set; its own bound, or NULL. */
void dlcp_tag(struct dlcp_protocol *protocol, struct outgoing *message, struct tensor *tensor,
	      const struct dlcp_bound *bound);

/* The TOS byte of a class in a queue. */
uint8_t dlcp_class_tos(const struct dlcp_protocol *protocol, uint8_t queue, uint8_t class);

#endif
