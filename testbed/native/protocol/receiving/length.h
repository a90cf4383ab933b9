/* How many elements and packets a message has that is expected, as far as that is known. */
#ifndef DLCP_LENGTH_H
#define DLCP_LENGTH_H

#include "incoming.h"

/* Before anything came: what the tensor declares; of a variable one anything from one element up to that. */
void dlcp_length_begin(struct incoming *message, const struct dlcp_tensor *shape);

/* Whether a DATA packet of a variable tensor, or with DLCP_FLAG_LAST, can be true; learn from it how long the message is.
 * The caller has checked its dtype, and that its offset is that of this packet and below message->elements. */
bool dlcp_length_from_data(struct incoming *message, const struct dlcp_header *header, uint32_t packet);

/* Whether the number of packets in a DONE can be true; learn it if it was not known. R73, R118. */
bool dlcp_length_from_done(struct incoming *message, uint32_t packets);

#endif
