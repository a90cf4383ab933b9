/* Drives the controller of docs/add-a-congestion-controller.md, found by its name, and prints its windows. */
#include "congestion.h"

#include <stdio.h>

int main(void)
{
	const struct dlcp_congestion *aimd = dlcp_congestion_find("aimd");
	const struct dlcp_congestion_ack idle = {.acked = 10};
	const struct dlcp_congestion_ack busy = {.acked = 10, .window_limited = 1};
	const struct dlcp_congestion_loss losses[] = {{.now_ns = 1000, .srtt_ns = 500}, {.now_ns = 1400, .srtt_ns = 500}};
	const struct dlcp_congestion_config config = {0};
	_Alignas(16) char state[DLCP_CONGESTION_STATE_BYTES];

	if (!aimd || dlcp_congestion_find("reno"))
		return 1;
	aimd->init(state, &config);
	aimd->on_ack(state, &idle);
	printf("%.1f ", aimd->window(state));
	aimd->on_ack(state, &busy);
	printf("%.1f ", aimd->window(state));
	aimd->on_loss(state, &losses[0]);
	printf("%.1f ", aimd->window(state));
	aimd->on_loss(state, &losses[1]);
	printf("%.1f", aimd->window(state));
	return 0;
}
