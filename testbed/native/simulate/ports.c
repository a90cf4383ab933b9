/* An egress port: aqm.h decides, strict priority serves, the line takes its time. */
#include "fabric_state.h"
#include "random.h"

#define PS_A_SECOND UINT64_C(1000000000000)
#define PS_A_NS 1000u

static uint64_t line_ps(const struct port *port, uint32_t bytes)
{
	/* at most 65535 * 8e12: fits */
	return (bytes * 8u * PS_A_SECOND + port->rate_bps - 1) / port->rate_bps;
}

static uint32_t draw(struct dlcp_fabric *fabric, uint32_t port)
{
	return dlcp_simulated_random(fabric->config.seed, port, fabric->ports[port].draws++);
}

bool dlcp_port_draw(struct dlcp_fabric *fabric, uint32_t port)
{
	return fabric->ports[port].loss_q32 && draw(fabric, port) < fabric->ports[port].loss_q32;
}

void dlcp_port_transmit(struct dlcp_fabric *fabric, uint32_t number, uint32_t index)
{
	struct port *port = &fabric->ports[number];
	struct pooled *pooled = &fabric->pool[index];

	count_packet(&class_of(fabric, number, pooled->packet.tos)->sent, pooled->packet.bytes);
	port->free_ps = fabric->now_ps + line_ps(port, pooled->packet.bytes);
	pooled->arrives_ps = port->free_ps + port->delay_ps;
	if (port->on_line.first == NO_PACKET)
		dlcp_events_put(fabric->events, arrival_event(number), pooled->arrives_ps);
	dlcp_packet_append(fabric, &port->on_line, index);
}

static void give_shared(struct dlcp_fabric *fabric, const struct port *port, uint64_t bytes)
{
	struct fabric_switch *owner = &fabric->switches[port->node - fabric->config.hosts];

	if (owner->shared_bytes)
		dlcp_aqm_give_shared(&owner->shared_used_bytes, bytes);
}

void dlcp_port_serve(struct dlcp_fabric *fabric, uint32_t number)
{
	struct port *port = &fabric->ports[number];

	if (!port->occupied)
		return;
	uint32_t queue = 31u - (uint32_t)__builtin_clz(port->occupied);
	uint32_t index = dlcp_packet_remove_first(fabric, &port->waiting[queue]);
	uint32_t bytes = fabric->pool[index].packet.bytes;

	port->backlog_bytes[queue] -= bytes;
	uint64_t freed = dlcp_aqm_taken_bytes(&port->rules.queues[queue], port->backlog_bytes[queue], bytes);

	port->beyond_bytes -= freed;
	give_shared(fabric, port, freed);
	if (!port->backlog_bytes[queue]) {
		port->occupied &= ~(1u << queue);
		dlcp_aqm_empty(&port->averages[queue], fabric->now_ps / PS_A_NS);
	}
	dlcp_port_transmit(fabric, number, index);
	if (port->occupied)
		dlcp_events_put(fabric->events, idle_event(fabric, number), port->free_ps);
}

static enum dlcp_aqm_verdict decide(struct dlcp_fabric *fabric, uint32_t number, const struct dlcp_packet *packet)
{
	struct port *port = &fabric->ports[number];
	const struct fabric_switch *owner = &fabric->switches[port->node - fabric->config.hosts];
	uint32_t dscp = dlcp_tos_dscp(packet->tos), queue = dlcp_dscp_queue(dscp);
	const struct dlcp_aqm_queue *rules = &port->rules.queues[queue];
	struct dlcp_aqm_arrival arrival = {
		.backlog_bytes = port->backlog_bytes[queue],
		.judged_bytes = port->backlog_bytes[queue],
		.beyond_bytes = port->beyond_bytes,
		.shared_free_bytes = DLCP_AQM_UNSHARED,
		.packet_bytes = packet->bytes,
		.precedence = dlcp_dscp_precedence(dscp),
		.ecn = dlcp_tos_ecn(packet->tos),
	};

	if (!port->ruled)
		return DLCP_AQM_ENQUEUE;
	if (rules->averaging) {
		uint64_t frame_ns = line_ps(port, fabric->config.full_frame_bytes) / PS_A_NS;

		arrival.judged_bytes = dlcp_aqm_average(&port->averages[queue], rules->averaging, arrival.backlog_bytes,
							fabric->now_ps / PS_A_NS, (uint32_t)frame_ns | 1u);
	}
	if (owner->shared_bytes)
		arrival.shared_free_bytes = owner->shared_bytes - owner->shared_used_bytes;
	if (arrival.judged_bytes)
		arrival.random = draw(fabric, number);
	return dlcp_aqm_decide(rules, port->rules.common_bytes, &arrival);
}

/* Counts a packet that the port takes, and what it found. */
static void record(struct dlcp_fabric *fabric, uint32_t number, const struct dlcp_packet *packet)
{
	const struct port *port = &fabric->ports[number];
	uint32_t queue = dlcp_dscp_queue(dlcp_tos_dscp(packet->tos));
	struct dlcp_port_queue *counters = &fabric->counters[number].queues[queue];
	uint64_t found = port->backlog_bytes[queue];
	uint64_t bucket = found * DLCP_FABRIC_HISTOGRAM_BUCKETS / (port->rules.buffer_bytes | 1u);

	count_packet(&class_of(fabric, number, packet->tos)->enqueued, packet->bytes);
	if (bucket >= DLCP_FABRIC_HISTOGRAM_BUCKETS)
		bucket = DLCP_FABRIC_HISTOGRAM_BUCKETS - 1;
	counters->histogram[bucket]++;
	if (found + packet->bytes > counters->peak_bytes)
		counters->peak_bytes = found + packet->bytes;
}

static void enqueue(struct dlcp_fabric *fabric, uint32_t number, uint32_t index)
{
	struct port *port = &fabric->ports[number];
	struct fabric_switch *owner = &fabric->switches[port->node - fabric->config.hosts];
	uint32_t bytes = fabric->pool[index].packet.bytes;
	uint32_t queue = dlcp_dscp_queue(dlcp_tos_dscp(fabric->pool[index].packet.tos));
	uint64_t taken = dlcp_aqm_taken_bytes(&port->rules.queues[queue], port->backlog_bytes[queue], bytes);

	port->beyond_bytes += taken;
	if (owner->shared_bytes)
		owner->shared_used_bytes += taken;
	port->backlog_bytes[queue] += bytes;
	if (!port->occupied)
		dlcp_events_put(fabric->events, idle_event(fabric, number), port->free_ps);
	port->occupied |= 1u << queue;
	dlcp_packet_append(fabric, &port->waiting[queue], index);
}

static void drop(struct dlcp_fabric *fabric, struct dlcp_count *counter, uint32_t index)
{
	count_packet(counter, fabric->pool[index].packet.bytes);
	dlcp_packet_give_back(fabric, index);
}

void dlcp_port_offer(struct dlcp_fabric *fabric, uint32_t number, uint32_t index)
{
	struct port *port = &fabric->ports[number];
	struct dlcp_packet *packet = &fabric->pool[index].packet;
	struct dlcp_port_class *counters = class_of(fabric, number, packet->tos);

	if (port->down) {
		drop(fabric, &counters->dropped_down, index);
		return;
	}
	if (dlcp_port_draw(fabric, number)) {
		drop(fabric, &counters->dropped_loss, index);
		return;
	}
	switch (decide(fabric, number, packet)) {
	case DLCP_AQM_DROP_WRED:
		drop(fabric, &counters->dropped_wred, index);
		return;
	case DLCP_AQM_DROP_TAIL:
		drop(fabric, &counters->dropped_tail, index);
		return;
	case DLCP_AQM_DROP_SHARED:
		drop(fabric, &counters->dropped_shared, index);
		return;
	case DLCP_AQM_ENQUEUE_MARKED:
		if (dlcp_tos_ecn(packet->tos) != DLCP_ECN_CE)
			count_packet(&counters->marked_ce, packet->bytes);
		packet->tos |= DLCP_ECN_CE;
		break;
	case DLCP_AQM_ENQUEUE:
		break;
	}
	record(fabric, number, packet);
	fabric->pool[index].cuts = port->cuts;
	if (!port->occupied && fabric->now_ps >= port->free_ps)
		dlcp_port_transmit(fabric, number, index);
	else
		enqueue(fabric, number, index);
}
