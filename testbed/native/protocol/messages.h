/* Names and sizes of messages, and what may be missing of one. */
#ifndef DLCP_MESSAGES_H
#define DLCP_MESSAGES_H

#include <stdbool.h>

#include "protocol.h"

/* Rises with every message of one tensor and leg; 0 is before the first. */
static inline uint64_t dlcp_age(const struct dlcp_key *key)
{
	return ((uint64_t)key->iteration << 16 | key->step) + 1;
}

static inline struct dlcp_key dlcp_header_key(const struct dlcp_header *header)
{
	return (struct dlcp_key){
		.iteration = header->iteration,
		.tensor = header->tensor,
		.step = header->step,
		.leg = header->leg,
	};
}

static inline uint32_t dlcp_packets_of(uint32_t elements, uint8_t dtype)
{
	return (uint32_t)(((uint64_t)elements + dlcp_full_packet(dtype) - 1) / dlcp_full_packet(dtype));
}

/* Elements of one packet of a message: all but the last are full. */
static inline uint32_t dlcp_packet_elements(uint32_t elements, uint8_t dtype, uint32_t packet)
{
	uint32_t full = dlcp_full_packet(dtype), rest = elements - packet * full;

	return rest < full ? rest : full;
}

static inline uint64_t dlcp_message_bytes(uint32_t elements, uint8_t dtype)
{
	return (uint64_t)elements * dlcp_element_bytes(dtype);
}

static inline bool dlcp_bound_valid(const struct dlcp_bound *bound)
{
	return bound->bytes_ppm <= DLCP_PPM && bound->energy_ppm <= DLCP_PPM;
}

/* What holds for a message: its own bound if it has one, else the tensor's; nothing may be missing if either share is 0.
 * R47, R48. */
static inline struct dlcp_bound dlcp_message_bound(const struct dlcp_tensor *shape, uint8_t leg,
						   const struct dlcp_bound *own)
{
	struct dlcp_bound bound = own ? *own : shape->bound[leg];

	if (shape->must_arrive || !bound.bytes_ppm || !bound.energy_ppm)
		bound = (struct dlcp_bound){ 0 };
	return bound;
}

static inline uint64_t dlcp_share(uint64_t bytes, uint32_t ppm)
{
	return bytes / DLCP_PPM * ppm + bytes % DLCP_PPM * ppm / DLCP_PPM;
}

#endif
