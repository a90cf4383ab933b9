/* Datagrams that leave their hosts by a plan, and when each left and arrived: background, and traffic of tests. */
#ifndef DLCP_PLANNED_H
#define DLCP_PLANNED_H

#include <stdint.h>

#include "fabric.h"

/* cffi: begin */
struct dlcp_planned_packet {
	uint64_t at_ps; /* handed to the host's NIC, which sends one after another */
	uint32_t host, destination, flow;
	uint16_t bytes;
	uint8_t tos;
};

struct dlcp_planned;

/* Make a plan the source of every host of a fabric, and begin. packets: in order of time; they are copied. left_ps and
 * arrived_ps: a place for each packet, the caller's, kept as long as the plan; UINT64_MAX = it has not. The fabric must
 * not run after the plan is freed. NULL: no memory, a packet out of order, or a host that is not there. */
struct dlcp_planned *dlcp_planned_new(struct dlcp_fabric *fabric, uint32_t hosts,
				      const struct dlcp_planned_packet *packets, uint32_t count, uint64_t *left_ps,
				      uint64_t *arrived_ps);
void dlcp_planned_free(struct dlcp_planned *planned);
/* cffi: end */

#endif
