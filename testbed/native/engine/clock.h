/* Time dilation, in one place: the clock that the engine and its protocol reckon with.
 *
 * Under dilation d a second of the lab takes d seconds of this host (PROTOCOL.md, "Time dilation"). Everything behind
 * the engine's API is in lab nanoseconds, so that no constant there can be left out: instants read from the host's clocks
 * are brought into lab time when they are read, sleeps into host time when they begin, and what callers are told goes back.
 * Lab time runs 1/d as fast as CLOCK_MONOTONIC and equals it when the clock is made; with d = 1 the two are one.
 */
#ifndef DLCP_CLOCK_H
#define DLCP_CLOCK_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define DLCP_CLOCK_NEVER UINT64_MAX
#define DLCP_CLOCK_NS_MOST 9.2e18 /* below 2^63: what a double may hold and still be made an integer of nanoseconds */

/* cffi: begin */
struct dlcp_clock {
	double dilation;
	uint64_t origin_ns; /* at which the host's clock and the lab's show the same */
};
/* cffi: end */

/* cffi: functions */

/* dilation: at least 1; 0 = 1. R103. */
static inline struct dlcp_clock dlcp_clock_new(double dilation, uint64_t host_now_ns)
{
	return (struct dlcp_clock){ .dilation = dilation > 0 ? dilation : 1, .origin_ns = host_now_ns };
}

static inline bool dlcp_clock_dilates(const struct dlcp_clock *clock)
{
	return clock->dilation > 1;
}

/* A duration of this host in lab time, rounded down. */
static inline uint64_t dlcp_clock_lab_duration(const struct dlcp_clock *clock, uint64_t host_ns)
{
	if (!dlcp_clock_dilates(clock) || host_ns == DLCP_CLOCK_NEVER)
		return host_ns;
	return (uint64_t)((double)host_ns / clock->dilation);
}

/* The shortest duration of this host that is not less than one of the lab. */
static inline uint64_t dlcp_clock_host_duration(const struct dlcp_clock *clock, uint64_t lab_ns)
{
	double host_ns;
	uint64_t rounded;

	if (!dlcp_clock_dilates(clock) || lab_ns == DLCP_CLOCK_NEVER)
		return lab_ns;
	host_ns = floor((double)lab_ns * clock->dilation);
	if (host_ns >= DLCP_CLOCK_NS_MOST)
		return DLCP_CLOCK_NEVER;
	rounded = (uint64_t)host_ns;
	while (rounded && dlcp_clock_lab_duration(clock, rounded - 1) >= lab_ns)
		rounded--;
	while (dlcp_clock_lab_duration(clock, rounded) < lab_ns)
		rounded++;
	return rounded;
}

/* An instant of CLOCK_MONOTONIC in lab time. Never runs backwards: a quotient is rounded the same way for all instants. */
static inline uint64_t dlcp_clock_lab(const struct dlcp_clock *clock, uint64_t host_ns)
{
	if (host_ns <= clock->origin_ns || host_ns == DLCP_CLOCK_NEVER)
		return host_ns;
	return clock->origin_ns + dlcp_clock_lab_duration(clock, host_ns - clock->origin_ns);
}

/* The first instant of CLOCK_MONOTONIC that is not before one of lab time: who sleeps until then does not wake too early. */
static inline uint64_t dlcp_clock_host(const struct dlcp_clock *clock, uint64_t lab_ns)
{
	uint64_t after_ns;

	if (lab_ns <= clock->origin_ns || lab_ns == DLCP_CLOCK_NEVER)
		return lab_ns;
	after_ns = dlcp_clock_host_duration(clock, lab_ns - clock->origin_ns);
	return after_ns >= DLCP_CLOCK_NEVER - clock->origin_ns ? DLCP_CLOCK_NEVER : clock->origin_ns + after_ns;
}
/* cffi: functions end */

#endif
