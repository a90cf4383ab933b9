/* Pace: each flow of a lane begins at its instant, or over UDP when the one before it is over, and keeps the lane's rate. */
#include "traffic_lanes.h"

/* The flow at `next` becomes the current one, not before free_ns. */
static void begin_flow(struct lane *lane, int64_t free_ns)
{
	if (lane->next == lane->plan.count) {
		lane->due_ns = LANE_NEVER;
		return;
	}
	lane->begin_ns = lane->plan.flows[lane->next].start_ns;
	if (!lane->plan.tcp && lane->begin_ns < free_ns)
		lane->begin_ns = free_ns;
	lane->left = lane->plan.flows[lane->next].bytes;
	lane->frame_bytes = 0;
	lane->due_ns = lane->begin_ns;
}

/* A rate may be so low that an instant is beyond every clock. */
static int64_t later(int64_t from_ns, double by_ns)
{
	return by_ns < (double)(LANE_NEVER - from_ns) ? from_ns + (int64_t)by_ns : LANE_NEVER;
}

uint64_t lane_due_bytes(const struct lane *lane)
{
	return lane->plan.tcp || lane->left < lane->group_bytes ? lane->left : lane->group_bytes;
}

uint64_t lane_datagrams(const struct lane *lane, uint64_t bytes)
{
	return (bytes + lane->plan.datagram_bytes - 1) / lane->plan.datagram_bytes;
}

void lane_advance(struct lane *lane, uint64_t bytes)
{
	if (!lane->plan.tcp)
		lane->frame_bytes += (double)(bytes + lane_datagrams(lane, bytes) * DLCP_TRAFFIC_FRAME_OVERHEAD);
	lane->left -= bytes;
	lane->due_ns = later(lane->begin_ns, lane->frame_bytes * lane->ns_per_byte);
	if (!lane->left) {
		lane->next++;
		begin_flow(lane, lane->due_ns);
	}
}

bool lane_is_sound(const struct dlcp_lane *lane, uint32_t sink_count)
{
	if (!lane->tcp && (lane->datagram_bytes < DLCP_TRAFFIC_HEADER_BYTES || lane->datagram_bytes > DLCP_TRAFFIC_DATAGRAM_MOST))
		return false;
	if (!(lane->rate_bps >= 0) || !(lane->time_dilation >= 1) || (lane->tcp && lane->port > UINT16_MAX - DLCP_TRAFFIC_PORTS))
		return false;
	for (uint32_t i = 0; i < lane->count; i++) {
		const struct dlcp_flow *flow = &lane->flows[i];
		uint64_t last = lane->tcp ? flow->bytes : flow->bytes % lane->datagram_bytes;

		if (flow->sink >= sink_count || flow->bytes < DLCP_TRAFFIC_HEADER_BYTES || flow->start_ns < 0 ||
		    (last && last < DLCP_TRAFFIC_HEADER_BYTES) || (i && flow->start_ns < lane->flows[i - 1].start_ns))
			return false;
	}
	return true;
}

uint32_t dlcp_traffic_group(double rate_bps, uint16_t datagram_bytes, double time_dilation)
{
	double group_ns = DLCP_TRAFFIC_GROUP_NS * time_dilation;
	double line = rate_bps / 8e9 * group_ns / (double)(datagram_bytes + DLCP_TRAFFIC_FRAME_OVERHEAD);

	if (rate_bps == 0 || line > DLCP_TRAFFIC_GROUP_MOST)
		return DLCP_TRAFFIC_GROUP_MOST;
	return line < 1 ? 1 : (uint32_t)line;
}

void lane_begin(struct lane *lane, const struct dlcp_lane *plan)
{
	lane->plan = *plan;
	lane->ns_per_byte = plan->rate_bps > 0 ? 8e9 / plan->rate_bps : 0;
	lane->group_bytes = (uint64_t)dlcp_traffic_group(plan->rate_bps, plan->datagram_bytes, plan->time_dilation) *
			    plan->datagram_bytes;
	begin_flow(lane, 0);
}
