/* A list of packets for each host, in order of time. */
#include "planned.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct planned_host {
	struct dlcp_planned *plan;
	uint32_t next, last; /* of its packets: the first that has not left, and the last of all */
};

struct dlcp_planned {
	struct planned_host *hosts;
	struct dlcp_planned_packet *packets;
	uint32_t *next; /* of each packet: the host's next */
	uint64_t *left_ps, *arrived_ps;
};

static bool pull(void *context, uint64_t now_ps, struct dlcp_packet *packet)
{
	struct planned_host *host = context;
	struct dlcp_planned *plan = host->plan;

	if (host->next == NONE || plan->packets[host->next].at_ps > now_ps)
		return false;
	const struct dlcp_planned_packet *planned = &plan->packets[host->next];

	*packet = (struct dlcp_packet){
		.number = host->next,
		.destination = planned->destination,
		.flow = planned->flow,
		.bytes = planned->bytes,
		.tos = planned->tos,
	};
	plan->left_ps[host->next] = now_ps;
	host->next = plan->next[host->next];
	return true;
}

static uint64_t due(void *context, uint64_t now_ps)
{
	const struct planned_host *host = context;

	(void)now_ps;
	return host->next == NONE ? UINT64_MAX : host->plan->packets[host->next].at_ps;
}

static void arrived(void *context, uint64_t now_ps, const struct dlcp_packet *packet)
{
	const struct planned_host *host = context;

	host->plan->arrived_ps[packet->number] = now_ps;
}

static bool is_possible(const struct dlcp_planned_packet *packets, uint32_t count, uint32_t hosts)
{
	for (uint32_t i = 0; i < count; i++)
		if (packets[i].host >= hosts || packets[i].destination >= hosts || !packets[i].bytes ||
		    (i && packets[i].at_ps < packets[i - 1].at_ps))
			return false;
	return true;
}

static bool take_memory(struct dlcp_planned *plan, uint32_t hosts, uint32_t count)
{
	plan->hosts = calloc(hosts + 1u, sizeof(*plan->hosts));
	plan->packets = calloc(count + 1u, sizeof(*plan->packets));
	plan->next = calloc(count + 1u, sizeof(*plan->next));
	return plan->hosts && plan->packets && plan->next;
}

static void line_up(struct dlcp_planned *plan, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct planned_host *host = &plan->hosts[plan->packets[i].host];

		plan->next[i] = NONE;
		plan->left_ps[i] = plan->arrived_ps[i] = UINT64_MAX;
		if (host->next == NONE)
			host->next = i;
		else
			plan->next[host->last] = i;
		host->last = i;
	}
}

struct dlcp_planned *dlcp_planned_new(struct dlcp_fabric *fabric, uint32_t hosts,
				      const struct dlcp_planned_packet *packets, uint32_t count, uint64_t *left_ps,
				      uint64_t *arrived_ps)
{
	struct dlcp_planned *plan = is_possible(packets, count, hosts) ? calloc(1, sizeof(*plan)) : NULL;

	if (!plan)
		return NULL;
	if (!take_memory(plan, hosts, count)) {
		dlcp_planned_free(plan);
		return NULL;
	}
	memcpy(plan->packets, packets, count * sizeof(*packets));
	plan->left_ps = left_ps;
	plan->arrived_ps = arrived_ps;
	for (uint32_t host = 0; host < hosts; host++)
		plan->hosts[host] = (struct planned_host){plan, NONE, NONE};
	line_up(plan, count);
	for (uint32_t host = 0; host < hosts; host++) {
		struct dlcp_nic_source source = {&plan->hosts[host], pull, due, arrived};

		if (dlcp_fabric_set_source(fabric, host, &source) || dlcp_fabric_wake(fabric, host)) {
			dlcp_planned_free(plan);
			return NULL;
		}
	}
	return plan;
}

void dlcp_planned_free(struct dlcp_planned *plan)
{
	if (!plan)
		return;
	free(plan->hosts);
	free(plan->packets);
	free(plan->next);
	free(plan);
}
