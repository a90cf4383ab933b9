/* Which of its equal-cost ports a packet takes. */
#include "fabric_state.h"
#include "random.h"

/* Streams of random numbers: those of ports come first. */
static uint64_t stream_of(const struct dlcp_fabric *fabric, uint32_t node)
{
	return 2 * (uint64_t)fabric->config.links + node;
}

static uint32_t share(uint32_t draw, uint32_t count)
{
	return (uint32_t)((uint64_t)draw * count >> 32);
}

static uint32_t choose(struct dlcp_fabric *fabric, uint32_t node, struct next_hops *route,
		       const struct dlcp_packet *packet)
{
	struct fabric_switch *owner = &fabric->switches[node - fabric->config.hosts];
	uint64_t pair = (uint64_t)packet->source << 32 | packet->destination;

	switch (owner->balancing) {
	case DLCP_BALANCE_PER_PACKET:
		return share(dlcp_simulated_random(fabric->config.seed, stream_of(fabric, node), owner->draws++),
			     route->count);
	case DLCP_BALANCE_ROUND_ROBIN:
		return route->turn++ % route->count;
	case DLCP_BALANCE_FLOW_HASH:
		break;
	}
	return share(dlcp_simulated_random(fabric->config.seed, stream_of(fabric, node) ^ dlcp_mixed(pair + 1),
					   packet->flow),
		     route->count);
}

uint32_t dlcp_route_choose(struct dlcp_fabric *fabric, uint32_t node, const struct dlcp_packet *packet)
{
	uint64_t row = node - fabric->config.hosts;
	struct next_hops *route = &fabric->routes[row * fabric->config.hosts + packet->destination];

	if (!route->count)
		return NO_PORT;
	return fabric->hops[route->first + (route->count > 1 ? choose(fabric, node, route, packet) : 0)];
}
