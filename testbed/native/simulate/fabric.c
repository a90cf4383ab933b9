/* The fabric's events, and its set-up. */
#include "fabric_state.h"

#include <stddef.h>

static uint32_t port_count(const struct dlcp_fabric *fabric)
{
	return 2 * fabric->config.links;
}

static bool is_host(const struct dlcp_fabric *fabric, uint32_t node)
{
	return node < fabric->config.hosts;
}

/* The link of a host is idle: what its source has to send leaves, or the source is asked again when it says. */
static void pull(struct dlcp_fabric *fabric, uint32_t host)
{
	struct fabric_host *sender = &fabric->hosts[host];
	struct dlcp_packet packet = {0};

	dlcp_events_remove(fabric->events, wake_event(fabric, host));
	if (!sender->source.pull || sender->port == NO_PORT)
		return;
	if (!sender->source.pull(sender->source.context, fabric->now_ps, &packet)) {
		uint64_t due_ps = sender->source.due(sender->source.context, fabric->now_ps);

		if (due_ps != UINT64_MAX)
			dlcp_events_put(fabric->events, wake_event(fabric, host), due_ps);
		return;
	}
	uint32_t index = dlcp_packet_take(fabric);

	if (index == NO_PACKET)
		return;
	fabric->pool[index].packet = packet;
	fabric->pool[index].packet.source = host;
	/* what leaves by a cut cable is lost on it */
	fabric->pool[index].cuts = fabric->ports[sender->port].cuts - fabric->ports[sender->port].down;
	count_packet(&class_of(fabric, sender->port, packet.tos)->enqueued, packet.bytes);
	dlcp_port_transmit(fabric, sender->port, index);
	dlcp_events_put(fabric->events, idle_event(fabric, sender->port), fabric->ports[sender->port].free_ps);
}

static void pull_if_idle(struct dlcp_fabric *fabric, uint32_t host)
{
	uint32_t port = fabric->hosts[host].port;

	if (port == NO_PORT || dlcp_events_due(fabric->events, idle_event(fabric, port)) == UINT64_MAX)
		pull(fabric, host);
}

static void lose(struct dlcp_fabric *fabric, struct dlcp_count *counter, uint32_t index)
{
	count_packet(counter, fabric->pool[index].packet.bytes);
	dlcp_packet_give_back(fabric, index);
}

/* The first packet on a line has reached its far end. */
static void arrive(struct dlcp_fabric *fabric, uint32_t number)
{
	struct port *port = &fabric->ports[number];
	uint32_t index = dlcp_packet_remove_first(fabric, &port->on_line), back = number ^ 1u;
	struct pooled *pooled = &fabric->pool[index];
	struct dlcp_port_class *counters = class_of(fabric, back, pooled->packet.tos);

	if (port->on_line.first != NO_PACKET)
		dlcp_events_put(fabric->events, arrival_event(number), fabric->pool[port->on_line.first].arrives_ps);
	fabric->hops_passed++;
	count_packet(&counters->received, pooled->packet.bytes);
	if (pooled->cuts != port->cuts) {
		lose(fabric, &counters->dropped_down, index);
	} else if (is_host(fabric, port->node) && dlcp_port_draw(fabric, number)) {
		lose(fabric, &counters->dropped_loss, index);
	} else if (is_host(fabric, port->far_node)) {
		struct dlcp_packet packet = pooled->packet;
		struct dlcp_nic_source *source = &fabric->hosts[port->far_node].source;

		dlcp_packet_give_back(fabric, index);
		if (source->arrived)
			source->arrived(source->context, fabric->now_ps, &packet);
		pull_if_idle(fabric, port->far_node);
	} else {
		uint32_t egress = dlcp_route_choose(fabric, port->far_node, &pooled->packet);

		if (egress == NO_PORT)
			lose(fabric, &counters->dropped_unrouted, index);
		else
			dlcp_port_offer(fabric, egress, index);
	}
}

static void happen(struct dlcp_fabric *fabric, uint32_t event)
{
	uint32_t ports = port_count(fabric);

	if (event < ports) {
		arrive(fabric, event);
	} else if (event < 2 * ports) {
		uint32_t port = event - ports;

		if (is_host(fabric, fabric->ports[port].node))
			pull(fabric, fabric->ports[port].node);
		else
			dlcp_port_serve(fabric, port);
	} else {
		pull_if_idle(fabric, event - 2 * ports);
	}
}

int dlcp_fabric_run(struct dlcp_fabric *fabric, uint64_t until_ps)
{
	while (!fabric->out_of_memory) {
		uint64_t next_ps = dlcp_events_next(fabric->events);

		if (next_ps == UINT64_MAX || next_ps > until_ps) {
			if (until_ps != UINT64_MAX)
				fabric->now_ps = until_ps;
			return 0;
		}
		fabric->now_ps = next_ps;
		happen(fabric, dlcp_events_take(fabric->events));
	}
	return -1;
}

int dlcp_fabric_wake(struct dlcp_fabric *fabric, uint32_t host)
{
	if (!is_host(fabric, host))
		return -1;
	pull_if_idle(fabric, host);
	return fabric->out_of_memory ? -1 : 0;
}

uint64_t dlcp_fabric_now(const struct dlcp_fabric *fabric)
{
	return fabric->now_ps;
}

uint64_t dlcp_fabric_next(struct dlcp_fabric *fabric)
{
	return dlcp_events_next(fabric->events);
}

uint64_t dlcp_fabric_under_way(const struct dlcp_fabric *fabric)
{
	return fabric->under_way;
}

uint64_t dlcp_fabric_hops(const struct dlcp_fabric *fabric)
{
	return fabric->hops_passed;
}

uint64_t dlcp_fabric_backlog(const struct dlcp_fabric *fabric, uint32_t port, uint32_t queue)
{
	return port < port_count(fabric) && queue < DLCP_QUEUES ? fabric->ports[port].backlog_bytes[queue] : 0;
}

const struct dlcp_port_counters *dlcp_fabric_counters(const struct dlcp_fabric *fabric, uint32_t port)
{
	return port < port_count(fabric) ? &fabric->counters[port] : NULL;
}
