/* How long to wait for evidence: timeouts of peers and lanes, from round-trip times and what hosts add. */
#include "timeouts.h"

#define FIRST_TIMEOUT_NS (20 * MILLISECOND) /* before any round-trip time is known */
#define LONGEST_TIMEOUT_NS (250 * MILLISECOND)

/* The least time to wait for an answer: twice what the receiver may hold an acknowledgement back, and four times what the
 * two hosts were seen to take by holding back and waking up, which round-trip times leave out. R78. */
static uint64_t least_timeout(const struct dlcp_protocol *protocol, const struct peer *peer)
{
	if (protocol->config.timer_floor_ns)
		return protocol->config.timer_floor_ns;
	return dlcp_earlier(2 * protocol->config.ack_delay_ns + 4 * peer->path.host_ns, FIRST_TIMEOUT_NS);
}

/* srtt + 4 rttvar, not less than the least, doubled by each try. R78, R79. */
static uint64_t timeout(const struct dlcp_protocol *protocol, const struct peer *peer, uint64_t srtt_ns,
			uint64_t rttvar_ns, uint32_t tries)
{
	uint64_t base = FIRST_TIMEOUT_NS, least = least_timeout(protocol, peer), longest = LONGEST_TIMEOUT_NS;

	if (srtt_ns)
		base = srtt_ns + 4 * rttvar_ns > least ? srtt_ns + 4 * rttvar_ns : least;
	if (longest < base)
		longest = base;
	base <<= tries < BACKOFF_LIMIT ? tries : BACKOFF_LIMIT;
	return base < longest ? base : longest;
}

/* How long to wait for an answer before asking again. */
uint64_t dlcp_timeout(const struct dlcp_protocol *protocol, const struct peer *peer, uint32_t tries)
{
	return timeout(protocol, peer, peer->path.srtt_ns, peer->path.rttvar_ns, tries);
}

/* A queue's smoothed round-trip time; the peer's while its own packets have not come back. */
uint64_t dlcp_lane_rtt(const struct peer *peer, const struct lane *lane)
{
	return lane->srtt_ns ? lane->srtt_ns : peer->path.srtt_ns;
}

/* How long after it left a packet of a queue that others have overtaken counts as late, no more as reordered. R54. */
uint64_t dlcp_patience(const struct peer *peer, const struct lane *lane)
{
	uint64_t srtt_ns = dlcp_lane_rtt(peer, lane);

	return srtt_ns + srtt_ns / 8 + peer->path.reorder_ns;
}

/* When a lane's evidence is overdue; NEVER when nothing is in flight. */
uint64_t dlcp_lane_timer(const struct dlcp_protocol *protocol, const struct peer *peer, uint8_t queue)
{
	const struct lane *lane = peer->sending.lanes[queue];

	if (!lane || !lane->in_flight)
		return NEVER;
	if (!lane->srtt_ns)
		return lane->progress_ns + dlcp_timeout(protocol, peer, lane->probes);
	return lane->progress_ns + timeout(protocol, peer, lane->srtt_ns, lane->rttvar_ns, lane->probes);
}
