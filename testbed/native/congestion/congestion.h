/* Congestion control: one C file = one algorithm, found by its name; no list elsewhere is edited.
 *
 * State belongs to one peer and queue and lives as long as the job: only a queue's first message starts with a cold
 * window. What waits in a lower queue tells nothing of a higher one. An algorithm gives a window in packets, which may
 * be a fraction: below 1 the sender keeps one packet in flight and spaces packets by srtt / window (Swift, SIGCOMM'20,
 * section 3.5; a window floor of 1 packet would already overfill a shallow buffer when there are more senders than it
 * has packets).
 */
#ifndef DLCP_CONGESTION_H
#define DLCP_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

#define DLCP_CONGESTION_STATE_BYTES 256

struct dlcp_congestion_config {
	uint64_t packet_ns;     /* time of one full packet on the sender's link */
	uint64_t t_low_ns;      /* TIMELY's thresholds on the round-trip time; 0 = derive from the smallest one seen */
	uint64_t t_high_ns;
	double fixed_window;    /* packets, for `fixed` */
};

/* One acknowledgement that told something of this queue's packets. */
struct dlcp_congestion_ack {
	uint64_t now_ns;
	uint64_t rtt_ns;        /* this sample, receiver's delay taken out; 0 = no sample */
	uint64_t min_rtt_ns;    /* of the path to the peer, whatever the queue */
	uint64_t srtt_ns;       /* of this queue */
	uint64_t host_ns;       /* what the two hosts add to the round trip, smoothed: holding and waking up */
	uint32_t acked;         /* packets newly acknowledged */
	uint32_t marked;        /* packets newly reported with CE */
	uint8_t senders;        /* ranks that the receiver heard data from of late, this one included; 0 = unknown */
	uint8_t window_limited; /* the window, not the application, held the sender back since the last call */
};

/* Packets that an acknowledgement proved lost. */
struct dlcp_congestion_loss {
	uint64_t now_ns;
	uint64_t srtt_ns;
	uint32_t lost;
	uint32_t lost_droppable; /* of these, tagged as droppable */
};

struct dlcp_congestion {
	const char *name;
	bool needs_ecn; /* data leave as ECT(0), but for what `ect` makes droppable */
	void (*init)(void *state, const struct dlcp_congestion_config *config);
	void (*on_ack)(void *state, const struct dlcp_congestion_ack *ack);
	void (*on_loss)(void *state, const struct dlcp_congestion_loss *loss);
	void (*on_restart)(void *state); /* first packet after an idle time */
	double (*window)(const void *state);
	/* time between packets, from the latest round-trip time */
	double (*pace_ns)(const void *state, uint64_t latest_rtt_ns);
	struct dlcp_congestion *next;
};

/* Called by each algorithm's file before main. */
void dlcp_congestion_register(struct dlcp_congestion *algorithm);

/* The algorithm of that name, or NULL. */
const struct dlcp_congestion *dlcp_congestion_find(const char *name);

#define DLCP_CONGESTION_REGISTER(algorithm)                               \
	__attribute__((constructor)) static void register_##algorithm(void) \
	{                                                                 \
		dlcp_congestion_register(&algorithm);                     \
	}

#endif
