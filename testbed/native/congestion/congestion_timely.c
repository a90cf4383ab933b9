/* `timely`: delay-based control with a window.
 *
 * TIMELY (SIGCOMM'15) steers a rate by the round-trip time: below T_low it grows, above T_high it shrinks by
 * beta (1 - T_high / rtt), between them it follows the gradient. Four things are different here:
 * - Between the thresholds the step is the one of "patched TIMELY" (Zhu et al., "ECN or Delay", CoNEXT'16): weight by the
 *   gradient, error against a reference delay. Unlike the original it has one fixed point, so queues settle.
 * - What is steered is a window, not a rate. A port that holds 26 packets overflows within one round trip of a rate
 *   controller's error; a window stops by itself when acknowledgements stop.
 * - The thresholds rise as the window shrinks, by 1 / sqrt(window) (Swift, SIGCOMM'20, section 3.4): small windows mean
 *   many senders, whose packets meet by chance in longer queues; and a sender with less than its share still grows
 *   when one with more already shrinks, so shares become equal, also below one packet.
 * - The round-trip time that counts is the smallest of the last few: a busy host adds to a sample, never takes away.
 * DLCP needs control only against collapse: a loss costs little, so it takes half a packet off the window, a quarter if
 * the packet was tagged as droppable.
 */
#include "congestion.h"

#include <math.h>
#include <stdbool.h>

#define INITIAL_WINDOW 0.5
#define SMALLEST_WINDOW (1.0 / 16)
#define ADDITIVE_STEP 0.06  /* packets a round trip; 64 senders add 4 packets */
#define FAST_GROWTH 0.4     /* share of the window a round trip, at an empty queue */
#define FILTER_RTTS 0.5     /* samples not older than this count for the smallest */
#define BETA 0.8            /* TIMELY, section 4.3 */
#define GRADIENT_WEIGHT 0.3 /* EWMA of rtt differences */
#define LOSS_STEP 0.5
#define DROPPABLE_LOSS_STEP 0.25
#define RANDOM_LOSS_SHARE 0.25 /* of these steps, when no queue was seen that could have overflowed */
#define LOSS_MEMORY_RTTS 4  /* no fast growth so soon after a loss */
#define LOW_QUEUE_PACKETS 8 /* T_low: so many packet times, and a quarter of the smallest rtt, above that */
#define HIGH_QUEUE_PACKETS 16
#define FLOW_PACKETS 3      /* both: so many packet times / sqrt(window) more, */
#define FLOW_PACKETS_MOST 6 /* up to this */
#define SHARED_QUEUE_PACKETS 14 /* what all senders to one receiver may have in queues together */
#define HOST_PACKETS_MOST 6     /* what the hosts' own delays may add to that; they may end at any time */
/* On a link that carries more packets than these in the time that a host's scheduler takes, the time counts instead: */
#define QUEUE_NS_MOST 100e3 /* T_low, and all senders' packets in queues. TIMELY, section 4.4, has 50 us for T_low; and a
			     * burst's own time, 50 us at 10 Gbit/s. T_high is twice that, as in packets. */
#define HOST_QUEUES 5       /* of these for the hosts: 500 us. Waking a thread on a busy machine takes 20 to 60 us, at most
			     * 400 to 500 (measured). */
#define QUEUE_GROWTH 0.005  /* of the most, a round trip: a port whose buffer is shallower shows it by losses, */
#define QUEUE_SHRINK 2.0    /* each of which takes so many times its share of the window */
#define PACING_GAIN 1.1         /* above one packet the window binds, not the pace */
enum { SAMPLES = 4 };

/* R90 */
struct timely {
	struct dlcp_congestion_config config;
	double window;
	double queue_ns;     /* learned: up to QUEUE_NS_MOST */
	double busy_window;  /* smoothed; where to start again after an idle time */
	double gradient_ns;  /* smoothed difference of successive samples */
	double last_rtt_ns;
	double reference_ns; /* the round-trip time aimed at */
	struct {
		double rtt_ns;
		uint64_t at_ns;
	} samples[SAMPLES]; /* a ring */
	uint64_t last_cut_ns;
	uint64_t last_loss_ns;
	double cut_floor;    /* losses of one round trip together at most halve the window */
	uint8_t next_sample, sample_count;
};

struct thresholds {
	double low_ns, high_ns;
};

static void timely_init(void *state, const struct dlcp_congestion_config *config)
{
	struct timely *self = state;

	*self = (struct timely){ .config = *config,
				.window = INITIAL_WINDOW,
				.busy_window = INITIAL_WINDOW,
				.queue_ns = QUEUE_NS_MOST };
}

static struct thresholds thresholds(const struct timely *self, uint64_t min_rtt_ns)
{
	double packet = (double)self->config.packet_ns, base = (double)min_rtt_ns * 1.25;
	double flow = fmin(FLOW_PACKETS / sqrt(self->window), FLOW_PACKETS_MOST) * packet;
	double low = base + fmax(LOW_QUEUE_PACKETS * packet, self->queue_ns);
	double high = base + fmax(HIGH_QUEUE_PACKETS * packet, 2 * self->queue_ns);

	if (self->config.t_low_ns)
		low = (double)self->config.t_low_ns;
	if (self->config.t_high_ns)
		high = (double)self->config.t_high_ns;
	return (struct thresholds){ low + flow, high + flow };
}

static double clamp(double value, double low, double high)
{
	return value < low ? low : value > high ? high : value;
}

static void set_window(struct timely *self, double window, double largest)
{
	self->window = clamp(window, SMALLEST_WINDOW, largest);
}

/* The smallest of the last samples, this one included. */
static double filtered(struct timely *self, const struct dlcp_congestion_ack *ack)
{
	double smallest = (double)ack->rtt_ns;

	self->samples[self->next_sample].rtt_ns = smallest;
	self->samples[self->next_sample].at_ns = ack->now_ns;
	self->next_sample = (self->next_sample + 1) % SAMPLES;
	if (self->sample_count < SAMPLES)
		self->sample_count++;
	for (uint32_t i = 0; i < self->sample_count; i++)
		if (ack->now_ns - self->samples[i].at_ns < (uint64_t)((double)ack->srtt_ns * FILTER_RTTS))
			smallest = fmin(smallest, self->samples[i].rtt_ns);
	return smallest;
}

/* Smoothed gradient of the round-trip time, in shares of the smallest one. */
static double gradient(struct timely *self, double rtt_ns, uint64_t min_rtt_ns)
{
	if (self->last_rtt_ns > 0)
		self->gradient_ns += GRADIENT_WEIGHT * (rtt_ns - self->last_rtt_ns - self->gradient_ns);
	self->last_rtt_ns = rtt_ns;
	return self->gradient_ns / fmax((double)min_rtt_ns, QUEUE_NS_MOST);
}

/* The window that fills the path and leaves a bounded queue if all ranks that the receiver hears take the same. */
static double fair_share(const struct timely *self, const struct dlcp_congestion_ack *ack)
{
	double packet = (double)self->config.packet_ns;
	double hosts = fmin((double)ack->host_ns / packet, fmax(HOST_PACKETS_MOST, HOST_QUEUES * self->queue_ns / packet));
	double path = (double)ack->min_rtt_ns / packet + hosts + fmax(SHARED_QUEUE_PACKETS, self->queue_ns / packet);

	return path / (ack->senders ? ack->senders : 1);
}

static void timely_on_ack(void *state, const struct dlcp_congestion_ack *ack)
{
	struct timely *self = state;
	double window = self->window, fair = fair_share(self, ack), rtt, slope, share;
	struct thresholds at;

	if (!ack->rtt_ns || !ack->min_rtt_ns || !ack->acked)
		return;
	at = thresholds(self, ack->min_rtt_ns);
	self->reference_ns = at.low_ns;
	rtt = filtered(self, ack);
	slope = gradient(self, rtt, ack->min_rtt_ns);
	/* The part of a round trip that this acknowledgement stands for; below one packet less still, since it acts late; but
	 * who has far less than its share catches up with large steps. */
	share = window < fmin(1, fair / 2) ? 1 : window < 1 ? window : fmin(ack->acked / window, 1);
	if (rtt < at.low_ns) {
		bool calm = ack->now_ns - self->last_loss_ns > LOSS_MEMORY_RTTS * ack->srtt_ns;
		double room = (at.low_ns - rtt) / (at.low_ns - (double)ack->min_rtt_ns);

		if (ack->window_limited)
			window += share * (ADDITIVE_STEP + (calm ? FAST_GROWTH * room * window : 0));
	} else if (rtt > at.high_ns) {
		if (ack->now_ns - self->last_cut_ns > ack->srtt_ns) {
			window *= 1 - fmin(window, 1) * BETA * clamp(1 - at.high_ns / rtt, 0, 0.5);
			self->last_cut_ns = ack->now_ns;
		}
	} else {
		double weight = clamp(2 * slope + 0.5, 0, 1);
		double error = (rtt - at.low_ns) / at.low_ns;

		if (ack->window_limited)
			window += share * ADDITIVE_STEP * (1 - weight);
		/* thresholds differ with what each sender took for the empty path; nobody may be pushed out by that */
		if (window > fair / 2)
			window -= share * BETA * weight * error * window;
	}
	set_window(self, window, fair);
	self->queue_ns = fmin(self->queue_ns + share * QUEUE_GROWTH * QUEUE_NS_MOST, QUEUE_NS_MOST);
	self->busy_window += 0.05 * share * (self->window - self->busy_window);
}

static void timely_on_loss(void *state, const struct dlcp_congestion_loss *loss)
{
	struct timely *self = state;
	double step = LOSS_STEP * (loss->lost - loss->lost_droppable) + DROPPABLE_LOSS_STEP * loss->lost_droppable;
	double window;

	if (self->last_rtt_ns < self->reference_ns)
		step *= RANDOM_LOSS_SHARE;
	if (loss->now_ns - self->last_loss_ns > loss->srtt_ns) {
		self->last_loss_ns = loss->now_ns;
		self->cut_floor = self->window / 2;
	}
	self->queue_ns *= 1 - fmin(QUEUE_SHRINK * loss->lost / fmax(self->window, 1), 0.5);
	window = self->window - step * fmin(self->window, 1);
	set_window(self, fmax(window, self->cut_floor), self->window);
}

static void timely_on_restart(void *state)
{
	struct timely *self = state;

	self->window = fmin(self->window, self->busy_window);
	self->last_rtt_ns = self->gradient_ns = 0;
	self->sample_count = 0;
}

static double timely_window(const void *state)
{
	return ((const struct timely *)state)->window;
}

/* One window a round trip. Below one packet a sample is older than a round trip when it takes effect; a pace that followed
 * it fully would swing (a delay of D in a loop with gain k / D is stable while k < pi / 2): it keeps to the time aimed at
 * and adds half of what the sample differs, not half of it per window. */
static double timely_pace_ns(const void *state, uint64_t latest_rtt_ns)
{
	const struct timely *self = state;
	double window = self->window, rtt = (double)latest_rtt_ns;

	if (window >= 1 || self->reference_ns <= 0)
		return rtt / (window * (window < 1 ? 1 : PACING_GAIN));
	return self->reference_ns / window + (rtt - self->reference_ns) / 2;
}

static struct dlcp_congestion timely = {
	.name = "timely",
	.init = timely_init,
	.on_ack = timely_on_ack,
	.on_loss = timely_on_loss,
	.on_restart = timely_on_restart,
	.window = timely_window,
	.pace_ns = timely_pace_ns,
};

DLCP_CONGESTION_REGISTER(timely)

_Static_assert(sizeof(struct timely) <= DLCP_CONGESTION_STATE_BYTES, "the state fits its place in the lane");
