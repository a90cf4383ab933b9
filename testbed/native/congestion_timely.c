/* `timely`: delay-based control with a window.
 *
 * TIMELY (SIGCOMM'15) steers a rate by the round-trip time: below T_low it grows, above T_high it shrinks by
 * beta (1 - T_high / rtt), between them it follows the gradient. Two things are different here:
 * - between the thresholds the step is the one of "patched TIMELY" (Zhu et al., "ECN or Delay", CoNEXT'16): weight by the
 *   gradient, error against a reference delay. Unlike the original it has one fixed point, so queues settle and
 *   senders converge to equal shares.
 * - what is steered is a window, not a rate. A port that holds 26 packets overflows within one round trip of a rate
 *   controller's error; a window stops by itself when acknowledgements stop.
 * DLCP needs control only against collapse: a loss costs little, so it takes half a packet off the window, a quarter if
 * the packet was tagged as droppable.
 */
#include "congestion.h"

#include <stdbool.h>

#define INITIAL_WINDOW 1.0
#define SMALLEST_WINDOW (1.0 / 64)
#define ADDITIVE_STEP 0.06  /* packets a round trip; 64 senders add 4 packets */
#define FAST_GROWTH 0.4     /* share of the window a round trip, well below T_low */
#define BETA 0.8            /* TIMELY, section 4.3 */
#define GRADIENT_WEIGHT 0.3 /* EWMA of rtt differences */
#define LOSS_STEP 0.5
#define DROPPABLE_LOSS_STEP 0.25
#define LOSS_MEMORY_RTTS 4  /* no fast growth so soon after a loss */
#define LOW_QUEUE_PACKETS 5 /* T_low at least this many packet times above the smallest rtt */
#define HIGH_QUEUE_PACKETS 13

struct timely {
	struct dlcp_congestion_config config;
	double window;
	double busy_window;  /* smoothed; where to start again after an idle time */
	double gradient_ns;  /* smoothed difference of successive samples */
	uint64_t last_rtt_ns;
	uint64_t last_cut_ns;
	uint64_t last_loss_ns;
	double cut_floor;    /* losses of one round trip together at most halve the window */
	uint8_t last_queue;
};

struct thresholds {
	double low_ns, high_ns;
};

static void timely_init(void *state, const struct dlcp_congestion_config *config)
{
	struct timely *self = state;

	*self = (struct timely){ .config = *config, .window = INITIAL_WINDOW, .busy_window = INITIAL_WINDOW };
}

/* T_low and T_high: the configured ones, or 1.5 and 3 times the smallest rtt, kept apart by whole packets. */
static struct thresholds thresholds(const struct timely *self, uint64_t min_rtt_ns)
{
	double base = (double)min_rtt_ns, packet = (double)self->config.packet_ns;
	double low = base + LOW_QUEUE_PACKETS * packet, high = base + HIGH_QUEUE_PACKETS * packet;
	struct thresholds derived = {
		.low_ns = low > 1.5 * base ? low : 1.5 * base,
		.high_ns = high > 3 * base ? high : 3 * base,
	};

	if (self->config.t_low_ns)
		derived.low_ns = (double)self->config.t_low_ns;
	if (self->config.t_high_ns)
		derived.high_ns = (double)self->config.t_high_ns;
	return derived;
}

static double clamp(double value, double low, double high)
{
	return value < low ? low : value > high ? high : value;
}

static void set_window(struct timely *self, double window, double largest)
{
	self->window = clamp(window, SMALLEST_WINDOW, largest);
}

/* Smoothed gradient, in shares of the smallest rtt; only samples of one queue are compared. */
static double gradient(struct timely *self, const struct dlcp_congestion_ack *ack)
{
	if (self->last_rtt_ns && self->last_queue == ack->queue) {
		double difference = (double)ack->rtt_ns - (double)self->last_rtt_ns;

		self->gradient_ns += GRADIENT_WEIGHT * (difference - self->gradient_ns);
	}
	self->last_rtt_ns = ack->rtt_ns;
	self->last_queue = ack->queue;
	return self->gradient_ns / (double)ack->min_rtt_ns;
}

static void timely_on_ack(void *state, const struct dlcp_congestion_ack *ack)
{
	struct timely *self = state;
	struct thresholds at;
	double window = self->window, rtt = (double)ack->rtt_ns, slope, share;
	double largest;
	bool grow = ack->window_limited;

	if (!ack->rtt_ns || !ack->min_rtt_ns || !ack->acked)
		return;
	at = thresholds(self, ack->min_rtt_ns);
	slope = gradient(self, ack);
	largest = 2 + at.high_ns / (double)self->config.packet_ns;
	/* the part of a round trip that this acknowledgement stands for */
	share = clamp(ack->acked / (window > 1 ? window : 1), 0, 1);
	if (rtt < at.low_ns) {
		bool calm = ack->now_ns - self->last_loss_ns > LOSS_MEMORY_RTTS * ack->srtt_ns;
		double room = (at.low_ns - rtt) / at.low_ns;

		if (grow)
			window += share * (ADDITIVE_STEP + (calm ? FAST_GROWTH * room * 2 * window : 0));
	} else if (rtt > at.high_ns) {
		if (ack->now_ns - self->last_cut_ns > ack->srtt_ns) {
			window *= 1 - BETA * clamp(1 - at.high_ns / rtt, 0, 0.5);
			self->last_cut_ns = ack->now_ns;
		}
	} else {
		double weight = clamp(2 * slope + 0.5, 0, 1);
		double error = (rtt - at.low_ns) / at.low_ns;

		if (grow)
			window += share * ADDITIVE_STEP * (1 - weight);
		window -= share * BETA * weight * error * window;
	}
	set_window(self, window, largest);
	self->busy_window += 0.05 * share * (self->window - self->busy_window);
}

static void timely_on_loss(void *state, const struct dlcp_congestion_loss *loss)
{
	struct timely *self = state;
	double step = LOSS_STEP * (loss->lost - loss->lost_droppable) + DROPPABLE_LOSS_STEP * loss->lost_droppable;
	double window;

	if (loss->now_ns - self->last_loss_ns > loss->srtt_ns) {
		self->last_loss_ns = loss->now_ns;
		self->cut_floor = self->window / 2;
	}
	window = self->window - step * (self->window < 1 ? self->window : 1);
	set_window(self, window > self->cut_floor ? window : self->cut_floor, window > 1 ? window : 1);
}

static void timely_on_restart(void *state)
{
	struct timely *self = state;

	if (self->window > self->busy_window)
		self->window = self->busy_window;
	self->last_rtt_ns = 0;
	self->gradient_ns = 0;
}

static double timely_window(const void *state)
{
	return ((const struct timely *)state)->window;
}

static struct dlcp_congestion timely = {
	.name = "timely",
	.init = timely_init,
	.on_ack = timely_on_ack,
	.on_loss = timely_on_loss,
	.on_restart = timely_on_restart,
	.window = timely_window,
};

DLCP_CONGESTION_REGISTER(timely)

_Static_assert(sizeof(struct timely) <= DLCP_CONGESTION_STATE_BYTES, "the state fits its place in the peer");
