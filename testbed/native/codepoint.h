/* DSCP <-> (queue, drop precedence): the one place where the fabric's codepoints are said.
 *
 *     dscp = queue << 3 | precedence << 1          queue 0-7, precedence 0-2
 *
 * Queue 7 carries control packets and is served first, queue 0 is best effort. Precedence 0 is dropped last. The class
 * selectors of RFC 2474 (dscp = queue << 3) are therefore precedence 0 of their queue. A codepoint that is not of this
 * form (lowest bit set, or precedence 3) is undefined: it gets the default treatment of RFC 2474, queue 0 and
 * precedence 0.
 *
 * The IPv4 TOS byte is dscp << 2 | ecn (RFC 3168).
 */
#ifndef DLCP_CODEPOINT_H
#define DLCP_CODEPOINT_H

#include <stdint.h>

#define DLCP_QUEUES 8u
#define DLCP_PRECEDENCES 3u
#define DLCP_CONTROL_QUEUE 7u
#define DLCP_BEST_EFFORT_QUEUE 0u

/* The ECN field of RFC 3168. */
#define DLCP_ECN_NOT_ECT 0u
#define DLCP_ECN_ECT1 1u
#define DLCP_ECN_ECT0 2u
#define DLCP_ECN_CE 3u
#define DLCP_ECN_MASK 3u

/* R35: the codepoint of a queue and precedence. What is out of range gives best effort, never a neighbour's. */
static inline uint8_t dlcp_dscp(uint32_t queue, uint32_t precedence)
{
	if (queue >= DLCP_QUEUES || precedence >= DLCP_PRECEDENCES)
		return 0;
	return (uint8_t)(queue << 3 | precedence << 1);
}

/* 1 if the codepoint (0-63) names a queue and a precedence, else 0. */
static inline int dlcp_dscp_is_defined(uint32_t dscp)
{
	return dscp < 64u && (dscp & 1u) == 0 && (dscp >> 1 & 3u) < DLCP_PRECEDENCES;
}

/* The queue of a codepoint; best effort when it is undefined. */
static inline uint32_t dlcp_dscp_queue(uint32_t dscp)
{
	return dlcp_dscp_is_defined(dscp) ? dscp >> 3 : DLCP_BEST_EFFORT_QUEUE;
}

/* The drop precedence of a codepoint; 0 when it is undefined. */
static inline uint32_t dlcp_dscp_precedence(uint32_t dscp)
{
	return dlcp_dscp_is_defined(dscp) ? dscp >> 1 & 3u : 0;
}

/* The TOS byte of a queue, a precedence and an ECN field. */
static inline uint8_t dlcp_tos(uint32_t queue, uint32_t precedence, uint32_t ecn)
{
	return (uint8_t)((uint32_t)dlcp_dscp(queue, precedence) << 2 | (ecn & DLCP_ECN_MASK));
}

/* The codepoint (0-63) in a TOS byte. */
static inline uint32_t dlcp_tos_dscp(uint32_t tos)
{
	return tos >> 2 & 63u;
}

/* The ECN field in a TOS byte. */
static inline uint32_t dlcp_tos_ecn(uint32_t tos)
{
	return tos & DLCP_ECN_MASK;
}

#endif
