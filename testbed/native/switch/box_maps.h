/* What a Linux box's program has beside the maps of the emulated switch (switch_maps.h).
 *
 * dlcp/switches/bpf/map_structs.py says the same in ctypes; a test compares every offset.
 */
#ifndef DLCP_BOX_MAPS_H
#define DLCP_BOX_MAPS_H

#include <stdint.h>

#include "switch_maps.h"

/* A next hop of a destination, and a draw by which the kernel chooses it. */
struct dlcp_box_hop {
	uint32_t ifindex;
	uint32_t gateway; /* IPv4, network byte order */
	uint32_t draw;
};

/* map `box_turns`: what has been learned of a destination */
struct dlcp_box_turns {
	uint32_t count;
	uint32_t turn; /* packets sent */
	struct dlcp_box_hop hops[DLCP_MAX_NEXT_HOPS];
};

#endif
