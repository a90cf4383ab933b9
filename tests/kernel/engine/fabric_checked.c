/* A fabric under sanitizers: two leaves and two spines, random traffic, full queues, a shared buffer, a cable that is
 * cut and mended, and an end in the middle of it all. */
#include <stdio.h>
#include <stdlib.h>

#include "events.h"
#include "fabric.h"
#include "planned.h"

enum { LEAVES = 2, EACH = 4, SPINES = 2, HOSTS = LEAVES * EACH, LINKS = HOSTS + LEAVES * SPINES, PACKETS = 3000 };

static struct dlcp_fabric *build(uint32_t event_flags)
{
	struct dlcp_fabric_config config = {
		.hosts = HOSTS, .nodes = HOSTS + LEAVES + SPINES, .links = LINKS, .bucket_shift = 10,
		.event_flags = event_flags, .full_frame_bytes = 1514, .seed = 3,
	};
	struct dlcp_link links[LINKS];
	struct dlcp_aqm_port rules = {.buffer_bytes = 8000, .common_bytes = 8000};
	uint32_t count = 0;

	for (uint32_t host = 0; host < HOSTS; host++)
		links[count++] = (struct dlcp_link){host, HOSTS + host / EACH, 10000000000u, 1000000};
	for (uint32_t i = 0; i < LEAVES * SPINES; i++)
		links[count++] = (struct dlcp_link){HOSTS + i / SPINES, HOSTS + LEAVES + i % SPINES, 10000000000u, 1000000};
	for (uint32_t queue = 0; queue < DLCP_QUEUES; queue++)
		rules.queues[queue] = (struct dlcp_aqm_queue){
			.limit_bytes = DLCP_AQM_UNLIMITED, .alpha_q8 = 256, .averaging = queue % 2 * 3,
			.profiles[2] = {DLCP_AQM_CERTAIN, 1000, 6000, DLCP_AQM_ACTIVE, 0},
		};
	struct dlcp_fabric *fabric = dlcp_fabric_new(&config, links);

	for (uint32_t port = 0; port < 2 * LINKS; port++)
		dlcp_fabric_set_rules(fabric, port, &rules);
	for (uint32_t host = 0; host < HOSTS; host++) {
		uint32_t down = 2 * host + 1;

		for (uint32_t leaf = 0; leaf < LEAVES; leaf++) {
			uint32_t up[SPINES] = {2 * (HOSTS + leaf * SPINES), 2 * (HOSTS + leaf * SPINES + 1)};
			int here = host / EACH == leaf;

			dlcp_fabric_set_route(fabric, HOSTS + leaf, host, here ? &down : up, here ? 1 : SPINES);
		}
		for (uint32_t spine = 0; spine < SPINES; spine++) {
			uint32_t port = 2 * (HOSTS + host / EACH * SPINES + spine) + 1;

			dlcp_fabric_set_route(fabric, HOSTS + LEAVES + spine, host, &port, 1);
		}
	}
	for (uint32_t node = HOSTS; node < HOSTS + LEAVES + SPINES; node++)
		dlcp_fabric_set_switch(fabric, node, (enum dlcp_balancing)(node % 3), 6000);
	return fabric;
}

static int run(uint32_t event_flags, uint64_t until_ps)
{
	static struct dlcp_planned_packet packets[PACKETS];
	static uint64_t left_ps[PACKETS], arrived_ps[PACKETS];
	struct dlcp_fabric *fabric = build(event_flags);

	srand(1);
	for (uint32_t i = 0; i < PACKETS; i++) {
		uint32_t host = (uint32_t)rand() % HOSTS;

		packets[i] = (struct dlcp_planned_packet){
			.at_ps = i * UINT64_C(20000), .host = host, .destination = (host + 1 + (uint32_t)rand() % (HOSTS - 1)) % HOSTS,
			.flow = i % 3, .bytes = (uint16_t)(64 + rand() % 1450), .tos = (uint8_t)rand(),
		};
	}
	struct dlcp_planned *plan = dlcp_planned_new(fabric, HOSTS, packets, PACKETS, left_ps, arrived_ps);
	int failed = !plan || dlcp_fabric_run(fabric, 20000000);

	dlcp_fabric_set_down(fabric, 2 * HOSTS, true);
	failed |= dlcp_fabric_run(fabric, 40000000);
	dlcp_fabric_set_down(fabric, 2 * HOSTS, false);
	failed |= dlcp_fabric_run(fabric, until_ps);
	failed |= until_ps == UINT64_MAX ? dlcp_fabric_under_way(fabric) != 0 : dlcp_fabric_under_way(fabric) == 0;
	printf("%llu packet-hops\n", (unsigned long long)dlcp_fabric_hops(fabric));
	dlcp_planned_free(plan);
	dlcp_fabric_free(fabric);
	return failed;
}

int main(void)
{
	return run(0, UINT64_MAX) | run(DLCP_EVENTS_IN_HEAP, UINT64_MAX) | run(0, 50000000);
}
