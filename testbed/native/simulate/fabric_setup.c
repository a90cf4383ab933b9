/* Building a fabric, and what may change while it runs. */
#include <stdlib.h>

#include "fabric_state.h"

static uint32_t switch_count(const struct dlcp_fabric_config *config)
{
	return config->nodes - config->hosts;
}

static bool is_possible(const struct dlcp_fabric_config *config, const struct dlcp_link *links)
{
	if (!config->links || config->links > 1u << 28 || config->hosts > config->nodes || config->hosts > 1u << 28)
		return false;
	for (uint32_t i = 0; i < config->links; i++)
		if (!links[i].rate_bps || links[i].first == links[i].second || links[i].first >= config->nodes ||
		    links[i].second >= config->nodes)
			return false;
	return true;
}

static void set_port(struct dlcp_fabric *fabric, uint32_t number, uint32_t node, uint32_t far_node,
		     const struct dlcp_link *link)
{
	struct port *port = &fabric->ports[number];

	port->rate_bps = link->rate_bps;
	port->delay_ps = link->delay_ps;
	port->node = node;
	port->far_node = far_node;
	port->on_line.first = NO_PACKET;
	for (uint32_t queue = 0; queue < DLCP_QUEUES; queue++) {
		port->waiting[queue].first = NO_PACKET;
		port->rules.queues[queue].limit_bytes = DLCP_AQM_UNLIMITED;
	}
	if (node < fabric->config.hosts)
		fabric->hosts[node].port = number;
}

static bool take_memory(struct dlcp_fabric *fabric)
{
	const struct dlcp_fabric_config *config = &fabric->config;
	uint32_t switches = switch_count(config), ports = 2 * config->links;

	fabric->events = dlcp_events_new(2 * ports + config->hosts, config->bucket_shift, config->event_flags);
	fabric->ports = calloc(ports, sizeof(*fabric->ports));
	fabric->counters = calloc(ports, sizeof(*fabric->counters));
	fabric->hosts = calloc(config->hosts + 1u, sizeof(*fabric->hosts));
	fabric->switches = calloc(switches + 1u, sizeof(*fabric->switches));
	fabric->routes = calloc((size_t)switches * config->hosts + 1u, sizeof(*fabric->routes));
	return fabric->events && fabric->ports && fabric->counters && fabric->hosts && fabric->switches &&
	       fabric->routes;
}

struct dlcp_fabric *dlcp_fabric_new(const struct dlcp_fabric_config *config, const struct dlcp_link *links)
{
	struct dlcp_fabric *fabric = is_possible(config, links) ? calloc(1, sizeof(*fabric)) : NULL;

	if (!fabric)
		return NULL;
	fabric->config = *config;
	fabric->pool_free = NO_PACKET;
	if (!take_memory(fabric)) {
		dlcp_fabric_free(fabric);
		return NULL;
	}
	for (uint32_t host = 0; host < config->hosts; host++)
		fabric->hosts[host].port = NO_PORT;
	for (uint32_t i = 0; i < config->links; i++) {
		uint32_t first = links[i].first, second = links[i].second;

		if ((first < config->hosts && fabric->hosts[first].port != NO_PORT) ||
		    (second < config->hosts && fabric->hosts[second].port != NO_PORT)) {
			dlcp_fabric_free(fabric);
			return NULL;
		}
		set_port(fabric, 2 * i, first, second, &links[i]);
		set_port(fabric, 2 * i + 1, second, first, &links[i]);
	}
	return fabric;
}

void dlcp_fabric_free(struct dlcp_fabric *fabric)
{
	if (!fabric)
		return;
	dlcp_events_free(fabric->events);
	free(fabric->ports);
	free(fabric->counters);
	free(fabric->hosts);
	free(fabric->switches);
	free(fabric->routes);
	free(fabric->hops);
	free(fabric->pool);
	free(fabric);
}

static struct port *port_at(struct dlcp_fabric *fabric, uint32_t port)
{
	return port < 2 * fabric->config.links ? &fabric->ports[port] : NULL;
}

static bool is_switch(const struct dlcp_fabric *fabric, uint32_t node)
{
	return node >= fabric->config.hosts && node < fabric->config.nodes;
}

int dlcp_fabric_set_rules(struct dlcp_fabric *fabric, uint32_t number, const struct dlcp_aqm_port *rules)
{
	struct port *port = port_at(fabric, number);

	/* what waits was taken by the rules of its time, and must be given back by the same */
	if (!port || !is_switch(fabric, port->node) || port->occupied)
		return -1;
	port->rules = *rules;
	port->ruled = true;
	return 0;
}

int dlcp_fabric_set_switch(struct dlcp_fabric *fabric, uint32_t node, enum dlcp_balancing balancing,
			   uint64_t shared_bytes)
{
	if (!is_switch(fabric, node) || (uint32_t)balancing > DLCP_BALANCE_ROUND_ROBIN)
		return -1;
	struct fabric_switch *owner = &fabric->switches[node - fabric->config.hosts];

	if (owner->shared_used_bytes > shared_bytes || (!owner->shared_bytes && fabric->under_way))
		return -1;
	owner->balancing = balancing;
	owner->shared_bytes = shared_bytes;
	return 0;
}

static bool make_room(struct dlcp_fabric *fabric, uint32_t count)
{
	if (fabric->hop_room - fabric->hop_count >= count)
		return true;
	uint32_t room = 2 * fabric->hop_room + count;
	uint32_t *hops = room > fabric->hop_room ? realloc(fabric->hops, (size_t)room * sizeof(*hops)) : NULL;

	if (!hops)
		return false;
	fabric->hops = hops;
	fabric->hop_room = room;
	return true;
}

/* Whether the last next hops are these: neighbouring routes mostly share theirs. */
static bool are_last(const struct dlcp_fabric *fabric, const uint32_t *ports, uint32_t count)
{
	if (fabric->hop_count < count)
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (fabric->hops[fabric->hop_count - count + i] != ports[i])
			return false;
	return true;
}

int dlcp_fabric_set_route(struct dlcp_fabric *fabric, uint32_t node, uint32_t host, const uint32_t *ports,
			  uint32_t count)
{
	if (!is_switch(fabric, node) || host >= fabric->config.hosts || count > DLCP_FABRIC_MOST_NEXT_HOPS)
		return -1;
	for (uint32_t i = 0; i < count; i++)
		if (!port_at(fabric, ports[i]) || fabric->ports[ports[i]].node != node)
			return -1;
	if (!are_last(fabric, ports, count)) {
		if (!make_room(fabric, count))
			return -1;
		for (uint32_t i = 0; i < count; i++)
			fabric->hops[fabric->hop_count++] = ports[i];
	}
	struct next_hops *route =
		&fabric->routes[(size_t)(node - fabric->config.hosts) * fabric->config.hosts + host];

	route->first = fabric->hop_count - count;
	route->count = count;
	return 0;
}

int dlcp_fabric_set_source(struct dlcp_fabric *fabric, uint32_t host, const struct dlcp_nic_source *source)
{
	if (host >= fabric->config.hosts)
		return -1;
	fabric->hosts[host].source = *source;
	return 0;
}

int dlcp_fabric_set_rate(struct dlcp_fabric *fabric, uint32_t number, uint64_t rate_bps)
{
	struct port *port = port_at(fabric, number);

	if (!port || !rate_bps)
		return -1;
	port->rate_bps = rate_bps;
	return 0;
}

int dlcp_fabric_set_loss(struct dlcp_fabric *fabric, uint32_t number, uint64_t loss_q32)
{
	struct port *port = port_at(fabric, number);

	if (!port || loss_q32 > DLCP_AQM_CERTAIN)
		return -1;
	port->loss_q32 = loss_q32;
	return 0;
}

int dlcp_fabric_set_down(struct dlcp_fabric *fabric, uint32_t number, bool down)
{
	struct port *port = port_at(fabric, number);

	if (!port)
		return -1;
	if (down && !port->down)
		port->cuts++;
	port->down = down;
	return 0;
}
