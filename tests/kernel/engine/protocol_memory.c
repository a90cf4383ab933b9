/* Counts the memory that a protocol holds: with idle peers, with peers that exchanged a message, and under attack. Linked with
 * --wrap for malloc, calloc, realloc and free. Writes one JSON object, bytes by name. */
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codepoint.h"
#include "protocol.h"

enum { PEERS = 1000, TENSORS = 100, ELEMENTS = 20 * DLCP_PACKET_ELEMENTS, STASH_BYTES = 1 << 20, FORGED = 400000, IN_FLIGHT = 256 };
#define COOKIE 7u
#define STEP_NS 100000ull

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *memory);

static size_t held; /* bytes, as the allocator rounds them */

void *__wrap_malloc(size_t size)
{
	void *memory = __real_malloc(size);

	held += malloc_usable_size(memory);
	return memory;
}

void *__wrap_calloc(size_t count, size_t size)
{
	void *memory = __real_calloc(count, size);

	held += malloc_usable_size(memory);
	return memory;
}

void *__wrap_realloc(void *old, size_t size)
{
	size_t before = malloc_usable_size(old);
	void *memory = __real_realloc(old, size);

	if (memory)
		held += malloc_usable_size(memory) - before;
	return memory;
}

void __wrap_free(void *memory)
{
	held -= malloc_usable_size(memory);
	__real_free(memory);
}

static uint64_t now_ns;
static float values[ELEMENTS], received[ELEMENTS];

static void check(bool good, const char *text)
{
	if (good)
		return;
	fprintf(stderr, "protocol_memory: %s\n", text);
	exit(1);
}

static struct dlcp_protocol *new_protocol(uint16_t rank)
{
	static const struct dlcp_tensor tensor = { .elements = ELEMENTS, .queue = 3 };
	struct dlcp_config config = { .cookie = COOKIE, .rank = rank, .link_bps = 1e10, .congestion_control = "timely",
				      .stash_bytes = STASH_BYTES };
	char error[DLCP_ERROR_BYTES];
	struct dlcp_protocol *protocol = dlcp_protocol_new(&config, error, sizeof error);

	check(protocol != NULL, "no protocol");
	for (uint16_t number = 0; number < TENSORS; number++)
		check(dlcp_protocol_declare(protocol, number, &tensor) == DLCP_OK, "a tensor is refused");
	return protocol;
}

/* Everything that may leave one end arrives at the other, of that rank, a step later. Packets for others are lost. */
static void carry(struct dlcp_protocol *from, struct dlcp_protocol *to, uint16_t rank)
{
	static uint8_t packets[IN_FLIGHT][DLCP_HEADER_BYTES + DLCP_CONTROL_BYTES];
	static uint32_t sizes[IN_FLIGHT];
	struct dlcp_burst burst;
	uint32_t count = 0;

	while (count + DLCP_BURST_PACKETS <= IN_FLIGHT && dlcp_protocol_poll_transmit(from, now_ns, &burst))
		for (uint32_t i = 0; burst.peer == rank && i < burst.packets; i++, count++) {
			memcpy(packets[count], burst.head[i], burst.head_bytes);
			if (burst.payload_bytes[i])
				memcpy(packets[count] + burst.head_bytes, burst.payload[i], burst.payload_bytes[i]);
			sizes[count] = burst.head_bytes + burst.payload_bytes[i];
		}
	now_ns += STEP_NS;
	for (uint32_t i = 0; i < count; i++)
		dlcp_protocol_input(to, packets[i], sizes[i], 0, now_ns, now_ns, 0);
}

/* One message from the protocol to a rank, and one back. */
static void exchange(struct dlcp_protocol *protocol, uint16_t rank)
{
	struct dlcp_protocol *other = new_protocol(rank);
	struct dlcp_source from = { .data = values, .elements = ELEMENTS };
	struct dlcp_destination to = { .buffer = received, .elements = ELEMENTS };
	struct dlcp_key push = { .leg = DLCP_PUSH }, pull = { .leg = DLCP_PULL };
	struct dlcp_completion completion;

	check(dlcp_protocol_add_peer(other, 0, now_ns) == DLCP_OK, "rank 0 is refused");
	check(dlcp_protocol_receive(other, 0, &push, &to, now_ns) == DLCP_OK &&
		      dlcp_protocol_send(protocol, rank, &push, &from, now_ns) == DLCP_OK &&
		      dlcp_protocol_receive(protocol, rank, &pull, &to, now_ns) == DLCP_OK &&
		      dlcp_protocol_send(other, 0, &pull, &from, now_ns) == DLCP_OK,
	      "a message is refused");
	for (int step = 0; step < 100000; step++) {
		carry(protocol, other, rank);
		carry(other, protocol, 0);
		if (!dlcp_protocol_sending(protocol) && !dlcp_protocol_receiving(protocol))
			break;
	}
	check(!dlcp_protocol_sending(protocol) && !dlcp_protocol_receiving(protocol), "a message does not end");
	while (dlcp_protocol_poll_completion(protocol, &completion))
		;
	dlcp_protocol_free(other);
}

static uint32_t random_number(void)
{
	static uint32_t state = 2463534242u; /* Marsaglia's xorshift */

	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state;
}

/* A packet with the right cookie, from any rank, of any type, of which everything else is invented. */
static void forge(struct dlcp_protocol *protocol)
{
	uint8_t bytes[DLCP_HEADER_BYTES + DLCP_PAYLOAD_BYTES];
	uint32_t type = random_number() % 8, count = random_number() % 361;
	struct dlcp_header header = {
		.type = (uint8_t)type,
		.flags = (uint8_t)random_number(),
		.source = (uint16_t)(random_number() % (random_number() % 2 ? PEERS + 1 : 65536)),
		.cookie = COOKIE,
		.iteration = random_number() % (random_number() % 2 ? 8 : UINT32_MAX),
		.tensor = (uint16_t)(random_number() % (random_number() % 2 ? TENSORS : 65536)),
		.leg = random_number() % 2,
		.step = (uint16_t)(random_number() % 4),
		.offset = random_number() % 40 * DLCP_PACKET_ELEMENTS,
		.count = (uint16_t)count,
		.sequence = random_number(),
	};
	size_t size = DLCP_HEADER_BYTES + (type == DLCP_DATA ? count * 4 : random_number() % 200);

	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)random_number();
	dlcp_header_encode(&header, bytes);
	if (type == DLCP_DONE)
		size = DLCP_DONE_BYTES;
	else if (type == DLCP_ACK)
		size = DLCP_ACK_BYTES;
	else if (type == DLCP_STOP)
		size = DLCP_STOP_BYTES;
	dlcp_protocol_input(protocol, bytes, size, (uint8_t)random_number(), now_ns, now_ns, random_number());
	now_ns += 100;
}

int main(void)
{
	struct dlcp_statistics statistics;
	struct dlcp_protocol *protocol = new_protocol(0);
	size_t alone = held, idle, used, attacked;
	struct dlcp_burst burst;

	for (uint16_t rank = 1; rank <= PEERS; rank++)
		check(dlcp_protocol_add_peer(protocol, rank, 0) == DLCP_OK, "a peer is refused");
	idle = held;
	for (uint16_t rank = 1; rank <= PEERS / 2; rank++)
		exchange(protocol, rank);
	used = held;
	for (uint32_t i = 0; i < FORGED; i++) {
		forge(protocol);
		if (i % 1000 == 0)
			dlcp_protocol_poll_transmit(protocol, now_ns, &burst);
	}
	attacked = held;
	dlcp_protocol_statistics(protocol, &statistics);
	check(dlcp_protocol_add_peer(protocol, DLCP_MAX_RANKS - 1, now_ns) == DLCP_OK, "the highest rank is refused");
	check(dlcp_protocol_add_peer(protocol, DLCP_MAX_RANKS, now_ns) != DLCP_OK, "a rank too high is taken");
	dlcp_protocol_free(protocol);
	printf("{\"endpoint\": %zu, \"idle_pair\": %zu, \"used_pair\": %zu, \"attack\": %zu, \"stashed\": %llu, "
	       "\"acknowledged\": %llu, \"control_dropped\": %llu, \"left\": %zu}\n",
	       alone, (idle - alone) / PEERS, (used - idle) / (PEERS / 2), attacked - used,
	       (unsigned long long)statistics.packets_stashed, (unsigned long long)statistics.acks_received,
	       (unsigned long long)statistics.control_dropped, held);
	return 0;
}
