/* What fabric.c and its parts share: packets, ports, switches. */
#ifndef DLCP_FABRIC_STATE_H
#define DLCP_FABRIC_STATE_H

#include "events.h"
#include "fabric.h"

#define NO_PACKET UINT32_MAX
#define NO_PORT UINT32_MAX

/* A packet in the pool, linked into the list of those that are where it is. */
struct pooled {
	struct dlcp_packet packet;
	uint64_t arrives_ps;
	uint32_t next;
	uint32_t cuts; /* of its port as it was put there */
};

struct packet_list {
	uint32_t first, last;
};

struct port {
	uint64_t rate_bps, delay_ps;
	uint64_t free_ps; /* when the frame on the line has left */
	uint64_t beyond_bytes;
	uint64_t draws; /* random numbers so far */
	uint64_t loss_q32;
	uint64_t backlog_bytes[DLCP_QUEUES];
	struct packet_list waiting[DLCP_QUEUES];
	struct packet_list on_line;
	uint32_t node, far_node;
	uint32_t occupied; /* a bit for each queue that holds something */
	uint32_t cuts;
	bool down;
	bool ruled; /* rules were set */
	struct dlcp_aqm_port rules;
	struct dlcp_aqm_average averages[DLCP_QUEUES];
};

struct next_hops {
	uint32_t first, count; /* in fabric.hops */
	uint32_t turn;
};

struct fabric_switch {
	uint64_t shared_bytes, shared_used_bytes;
	uint64_t draws;
	enum dlcp_balancing balancing;
};

struct fabric_host {
	struct dlcp_nic_source source;
	uint32_t port;
};

struct dlcp_fabric {
	struct dlcp_fabric_config config;
	struct dlcp_events *events;
	uint64_t now_ps;
	uint64_t hops_passed, under_way;
	struct port *ports;
	struct dlcp_port_counters *counters;
	struct fabric_host *hosts;
	struct fabric_switch *switches;
	struct next_hops *routes; /* by switch and host */
	uint32_t *hops;
	uint32_t hop_count, hop_room;
	struct pooled *pool;
	uint32_t pool_room, pool_used, pool_free; /* pool_free: the first of a list */
	bool out_of_memory;
};

/* Events, in the order in which they happen at one instant. */
static inline uint32_t arrival_event(uint32_t port)
{
	return port;
}

static inline uint32_t idle_event(const struct dlcp_fabric *fabric, uint32_t port)
{
	return 2 * fabric->config.links + port;
}

static inline uint32_t wake_event(const struct dlcp_fabric *fabric, uint32_t host)
{
	return 4 * fabric->config.links + host;
}

static inline void count_packet(struct dlcp_count *count, uint32_t bytes)
{
	count->packets++;
	count->bytes += bytes;
}

static inline struct dlcp_port_class *class_of(const struct dlcp_fabric *fabric, uint32_t port, uint8_t tos)
{
	uint32_t dscp = dlcp_tos_dscp(tos);

	return &fabric->counters[port].queues[dlcp_dscp_queue(dscp)].precedences[dlcp_dscp_precedence(dscp)];
}

/* packets.c: the pool, and lists of its packets */
uint32_t dlcp_packet_take(struct dlcp_fabric *fabric);
void dlcp_packet_give_back(struct dlcp_fabric *fabric, uint32_t index);
void dlcp_packet_append(struct dlcp_fabric *fabric, struct packet_list *list, uint32_t index);
uint32_t dlcp_packet_remove_first(struct dlcp_fabric *fabric, struct packet_list *list);

/* ports.c: egress. dlcp_port_offer takes the packet over, as the switch's rules decide. */
void dlcp_port_offer(struct dlcp_fabric *fabric, uint32_t port, uint32_t index);
void dlcp_port_transmit(struct dlcp_fabric *fabric, uint32_t port, uint32_t index);
void dlcp_port_serve(struct dlcp_fabric *fabric, uint32_t port);
bool dlcp_port_draw(struct dlcp_fabric *fabric, uint32_t port);

/* routes.c: the port by which a packet leaves a switch, or NO_PORT */
uint32_t dlcp_route_choose(struct dlcp_fabric *fabric, uint32_t node, const struct dlcp_packet *packet);

#endif
