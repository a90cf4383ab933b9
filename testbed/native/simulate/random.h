/* Random numbers of a simulation: each is a hash of a seed, a stream and how many the stream has given.
 *
 * No stream depends on what another has drawn, so a port's draws stay the same whatever happens at other ports. */
#ifndef DLCP_SIMULATED_RANDOM_H
#define DLCP_SIMULATED_RANDOM_H

#include <stdint.h>

/* The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). */
static inline uint64_t dlcp_mixed(uint64_t value)
{
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

/* The count-th number of a stream, uniform over 32 bits. */
static inline uint32_t dlcp_simulated_random(uint64_t seed, uint64_t stream, uint64_t count)
{
	uint64_t start = dlcp_mixed(seed + UINT64_C(0x9e3779b97f4a7c15)) ^ dlcp_mixed(stream * UINT64_C(0xd1342543de82ef95) + 1);

	return (uint32_t)(dlcp_mixed(start + (count + 1) * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

#endif
