/* `dctcp`: a window that follows the share of packets that switches mark (RFC 8257; Alizadeh et al., SIGCOMM'10).
 *
 * Once a round trip the share of marked packets enters alpha (g = 1/16), and if there was a mark the window loses alpha / 2
 * of itself. A loss halves it, once a round trip, as TCP does. It doubles every round trip until the first mark or loss, and
 * grows by a constant afterwards. Three things are different here:
 * - The window may be a fraction: below 1 there is one packet in flight and the pace does the rest (congestion.h).
 * - The constant is one packet a round trip, but all senders to one receiver together add STEPS_TOGETHER: 64 of them
 *   would otherwise put 64 packets into a port that may hold 26, every round trip. The receiver says how many they are.
 * - After an idle time the window stays (as with Linux's tcp_slow_start_after_idle off): training pauses every iteration.
 * Switches must mark: every packet that may be marked leaves as ECT(0).
 */
#include "congestion.h"

#include <math.h>
#include <stdbool.h>

#define INITIAL_WINDOW 1.0
#define SMALLEST_WINDOW (1.0 / 16)
#define LARGEST_WINDOW 2048.0 /* half of what a sender remembers of its transmissions */
#define GAIN (1.0 / 16)       /* g: RFC 8257, section 3.3 */
#define STEPS_TOGETHER 6.0    /* the least that fills 90 % of a 100 Mbit/s link with 64 senders (test_protocol_incast.py) */
#define PACING_GAIN 1.1       /* above one packet the window binds, not the pace */

/* R91 */
struct dctcp {
	double window, alpha;
	bool slow_start;
	uint32_t acked, marked; /* in this round */
	uint64_t round_ns;      /* when it began */
	uint64_t last_loss_ns;
	uint64_t srtt_ns;       /* 0 = no acknowledgement yet */
};

static void dctcp_init(void *state, const struct dlcp_congestion_config *config)
{
	(void)config;
	/* alpha of 1 until something is known: RFC 8257, section 3.3 */
	*(struct dctcp *)state = (struct dctcp){ .window = INITIAL_WINDOW, .alpha = 1, .slow_start = true };
}

static void set_window(struct dctcp *self, double window)
{
	self->window = fmin(fmax(window, SMALLEST_WINDOW), LARGEST_WINDOW);
}

/* A round trip is over: what was marked in it decides. */
static void end_round(struct dctcp *self, uint64_t now_ns)
{
	double share = fmin((double)self->marked / self->acked, 1);

	self->alpha += GAIN * (share - self->alpha);
	if (self->marked) {
		set_window(self, self->window * (1 - fmin(self->window, 1) * self->alpha / 2));
		self->slow_start = false;
	}
	self->acked = self->marked = 0;
	self->round_ns = now_ns;
}

static void dctcp_on_ack(void *state, const struct dlcp_congestion_ack *ack)
{
	struct dctcp *self = state;
	double step = fmin(STEPS_TOGETHER / (ack->senders ? ack->senders : 1), 1);

	self->srtt_ns = ack->srtt_ns;
	self->acked += ack->acked;
	self->marked += ack->marked;
	if (ack->window_limited) {
		/* below one packet an acknowledgement acts late, so it does less; as the cut does */
		double share = self->window < 1 ? self->window : fmin(ack->acked / self->window, 1);

		set_window(self, self->window + (self->slow_start ? share * self->window : share * step));
	}
	if (self->acked && ack->now_ns - self->round_ns > ack->srtt_ns)
		end_round(self, ack->now_ns);
}

static void dctcp_on_loss(void *state, const struct dlcp_congestion_loss *loss)
{
	struct dctcp *self = state;

	self->slow_start = false;
	if (loss->now_ns - self->last_loss_ns <= loss->srtt_ns)
		return;
	self->last_loss_ns = loss->now_ns;
	set_window(self, self->window / 2);
}

static void dctcp_on_restart(void *state)
{
	(void)state;
}

static double dctcp_window(const void *state)
{
	return ((const struct dctcp *)state)->window;
}

/* One window a round trip. Below one packet by the smoothed time: one sample is old when it takes effect, and the senders
 * that all follow it swing. */
static double dctcp_pace_ns(const void *state, uint64_t latest_rtt_ns)
{
	const struct dctcp *self = state;

	if (self->window < 1 && self->srtt_ns)
		return (double)self->srtt_ns / self->window;
	return (double)latest_rtt_ns / (self->window * PACING_GAIN);
}

static struct dlcp_congestion dctcp = {
	.name = "dctcp",
	.needs_ecn = true,
	.init = dctcp_init,
	.on_ack = dctcp_on_ack,
	.on_loss = dctcp_on_loss,
	.on_restart = dctcp_on_restart,
	.window = dctcp_window,
	.pace_ns = dctcp_pace_ns,
};

DLCP_CONGESTION_REGISTER(dctcp)

_Static_assert(sizeof(struct dctcp) <= DLCP_CONGESTION_STATE_BYTES, "the state fits its place in the lane");
