/* A lane on its way through its flows: what is due when. No clock, and no use of its socket. */
#ifndef DLCP_TRAFFIC_LANES_H
#define DLCP_TRAFFIC_LANES_H

#include <stdbool.h>

#include "traffic.h"

#define LANE_NEVER INT64_MAX

struct connection {
	int file; /* 0: none */
	uint64_t left;
};

/* begin_ns, frame_bytes: of the flow at `next`, when it began and what of it has left, as frames; from these its next due
 * instant follows without any drift. Instants are after the source's origin. */
struct lane {
	struct dlcp_lane plan;
	struct connection *connections; /* TCP: one a flow */
	int socket;			/* UDP; 0: none */
	uint32_t next;
	uint64_t left, group_bytes;
	int64_t begin_ns, due_ns; /* LANE_NEVER: all flows are over */
	double frame_bytes, ns_per_byte;
};

/* Whether a source with so many sinks can carry it out. */
bool lane_is_sound(const struct dlcp_lane *lane, uint32_t sink_count);

/* At the beginning of its first flow. */
void lane_begin(struct lane *lane, const struct dlcp_lane *plan);

/* The part of the current flow that is due next, in bytes; all of it when the lane is TCP. */
uint64_t lane_due_bytes(const struct lane *lane);

uint64_t lane_datagrams(const struct lane *lane, uint64_t bytes);

/* That part is over: the pace goes on from when it was due, not from when it was sent. */
void lane_advance(struct lane *lane, uint64_t bytes);

#endif
