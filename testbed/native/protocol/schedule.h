/* Who is next: peers whose timers are due, lanes that may send. Each peer is looked at when something of it has changed,
 * and at no other time, so the work of a packet does not grow with the number of peers. */
#ifndef DLCP_SCHEDULE_H
#define DLCP_SCHEDULE_H

#include "peers.h"

/* Room for so many peers, and for one more lane of a queue; false when there is no memory. */
bool dlcp_schedule_reserve(struct dlcp_protocol *protocol, uint32_t peers);
bool dlcp_schedule_reserve_lane(struct dlcp_protocol *protocol, uint8_t queue);
void dlcp_schedule_free(struct dlcp_protocol *protocol);

/* Something of a peer has changed: find out when it is due and which of its lanes may send. Due after everything that
 * changes a peer, before the next call of any function below. */
void dlcp_reschedule(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns);

/* The first of the peers that are due, in the order in which they were added; NULL when none is. It stays the first until
 * dlcp_turn_over. */
struct peer *dlcp_due_peer(struct dlcp_protocol *protocol, uint64_t now_ns);
void dlcp_turn_over(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns);

/* The next burst of data: highest queue first, then the oldest message whose peer may receive. */
bool dlcp_poll_data(struct dlcp_protocol *protocol, uint64_t now_ns, struct dlcp_burst *burst);

/* When something is due next if no packet comes; NEVER when all wait for packets or nothing is under way. */
uint64_t dlcp_schedule_time(const struct dlcp_protocol *protocol, uint64_t now_ns);

#endif
