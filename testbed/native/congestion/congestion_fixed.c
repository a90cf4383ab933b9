/* `fixed`: a window that never moves. The control of a controller: what happens without one. */
#include "congestion.h"

struct fixed {
	double window;
};

static void fixed_init(void *state, const struct dlcp_congestion_config *config)
{
	((struct fixed *)state)->window = config->fixed_window > 0 ? config->fixed_window : 32;
}

static void fixed_on_ack(void *state, const struct dlcp_congestion_ack *ack)
{
	(void)state;
	(void)ack;
}

static void fixed_on_loss(void *state, const struct dlcp_congestion_loss *loss)
{
	(void)state;
	(void)loss;
}

static void fixed_on_restart(void *state)
{
	(void)state;
}

static double fixed_window(const void *state)
{
	return ((const struct fixed *)state)->window;
}

static double fixed_pace_ns(const void *state, uint64_t latest_rtt_ns)
{
	(void)state;
	(void)latest_rtt_ns;
	return 0; /* as fast as the link */
}

static struct dlcp_congestion fixed = {
	.name = "fixed",
	.init = fixed_init,
	.on_ack = fixed_on_ack,
	.on_loss = fixed_on_loss,
	.on_restart = fixed_on_restart,
	.window = fixed_window,
	.pace_ns = fixed_pace_ns,
};

DLCP_CONGESTION_REGISTER(fixed)
