/* Three ranks under a random schedule with mutated and invented datagrams, for AddressSanitizer and UBSan.
 *
 * usage: protocol_fuzz SEED SECONDS. Rounds alternate: with forged datagrams (anything may happen to the numbers, nothing to
 * memory) and without (every message must end, whole, in bounded virtual time). Prints the rounds; exit 1 on a broken
 * promise.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "codepoint.h"
#include "protocol.h"

enum { RANKS = 3, TENSORS = 5, FLYING = 4096, LONGEST = 2048, MOST_PACKETS = 71, STASH_BYTES = 50000 };
#define MILLISECOND UINT64_C(1000000)

/* float32 but for the last two; the 16-bit ones are only ever looked at as bits */
static const struct {
	uint32_t elements;
	uint8_t dtype;
} shapes[TENSORS] = {
	{ 1, DLCP_FLOAT32 },	    { 361, DLCP_FLOAT32 },	   { 20 * 360, DLCP_FLOAT32 },
	{ 70 * 720 + 5, DLCP_FLOAT16 }, { 30 * 720, DLCP_BFLOAT16 },
};

struct flying {
	uint64_t at_ns;
	size_t size;
	uint16_t to;
	uint8_t *bytes; /* exactly `size` bytes on the heap, so that a read beyond them is found */
};

struct round {
	struct dlcp_protocol *ranks[RANKS];
	struct flying flying[FLYING];
	uint32_t count;
	uint64_t now_ns;
	bool forged;
	uint32_t starved;  /* queues below this one pass only now and then */
	uint64_t period_ns;
	uint8_t placement;
	uint64_t late_ns; /* when rank 0 expects its messages; the others do so at once */
	bool expected;
	uint8_t *sent[RANKS][TENSORS], *got[RANKS][RANKS][TENSORS];
	uint16_t counts[RANKS][RANKS][TENSORS][MOST_PACKETS];
};

static uint64_t state;

static uint32_t dice(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 16) % below;
}

static void launch(struct round *round, uint16_t to, uint8_t tos, const uint8_t *bytes, size_t size)
{
	struct flying *one;

	if (round->count == FLYING)
		return; /* a loss */
	one = &round->flying[round->count++];
	*one = (struct flying){ round->now_ns + 1000 * (100 + dice(dice(4) ? 400 : 20000)), size, to, malloc(size) };
	if (dlcp_dscp_queue(tos >> 2) < round->starved)
		one->at_ns += round->period_ns - one->at_ns % round->period_ns;
	memcpy(one->bytes, bytes, size);
}

static void mutate(uint8_t *bytes, size_t *size)
{
	switch (dice(5)) {
	case 0: *size = dice((uint32_t)*size + 1); break;
	case 1: *size += dice((uint32_t)(LONGEST - *size)); break;
	case 2: bytes[0] = (uint8_t)(DLCP_WIRE_VERSION << 4 | dice(16)); break;
	default:
		for (uint32_t i = 0; i <= dice(4); i++) { /* any field of any type, the first bytes of bitmap or data */
			uint32_t at = 8 + dice(48);

			bytes[at] = dice(2) ? (uint8_t)dice(256) : (uint8_t)(bytes[at] + dice(3) - 1);
		}
	}
}

static void drain(struct round *round, uint16_t rank)
{
	struct dlcp_completion completion;
	struct dlcp_burst burst;

	while (dlcp_protocol_poll_transmit(round->ranks[rank], round->now_ns, &burst))
		for (uint32_t i = 0; i < burst.packets; i++) {
			uint8_t bytes[LONGEST] = { 0 };
			size_t size = burst.head_bytes + burst.payload_bytes[i];

			memcpy(bytes, burst.head[i], burst.head_bytes);
			if (burst.payload_bytes[i])
				memcpy(bytes + burst.head_bytes, burst.payload[i], burst.payload_bytes[i]);
			if (round->forged && dice(4) == 0) {
				size_t other = size;
				uint8_t copy[LONGEST];

				memcpy(copy, bytes, sizeof copy);
				mutate(copy, &other);
				launch(round, burst.peer, burst.tos, copy, other);
			}
			for (uint32_t copies = dice(10) ? dice(5) != 0 : 2; copies; copies--)
				launch(round, burst.peer, burst.tos, bytes, size);
		}
	while (dlcp_protocol_poll_completion(round->ranks[rank], &completion))
		;
}

static size_t bytes_of(int tensor)
{
	return (size_t)shapes[tensor].elements * dlcp_element_bytes(shapes[tensor].dtype);
}

static struct dlcp_bound bound_of(int tensor)
{
	static const struct dlcp_bound bounds[TENSORS] = {
		{ 0, DLCP_PPM }, { 200000, DLCP_PPM }, { DLCP_PPM, 100000 }, { 200000, 500000 }, { 500000, 100000 },
	};

	return bounds[tensor];
}

/* Values of uneven magnitude, none of them zero, and now and then one that is not finite. */
static uint8_t *fill(uint16_t rank, uint16_t tensor)
{
	uint8_t *bytes = malloc(bytes_of(tensor));

	for (uint32_t i = 0; i < shapes[tensor].elements; i++) {
		float value = (float)(1 + rank + 10 * (i % 1000)) * (1 + i / 360 * 7 % 5);
		uint16_t half = (uint16_t)(0x3800 + rank + (i / 720 * 7 % 5 << 8) + i % 255 + 1);

		if (shapes[tensor].dtype == DLCP_FLOAT32)
			memcpy(bytes + 4 * i, &value, 4);
		else
			memcpy(bytes + 2 * i, &half, 2);
	}
	if (shapes[tensor].dtype != DLCP_FLOAT32 && dice(4) == 0)
		memcpy(bytes + 2 * dice(shapes[tensor].elements), "\xff\x7f", 2);
	return bytes;
}

static void expect(struct round *round, uint16_t to)
{
	for (uint16_t from = 0; from < RANKS; from++)
		for (uint16_t tensor = 0; tensor < TENSORS && from != to; tensor++) {
			struct dlcp_key key = { .iteration = 3, .tensor = tensor };
			struct dlcp_bound bound = bound_of(tensor);
			struct dlcp_destination destination = {
				.buffer = round->got[to][from][tensor], .elements = shapes[tensor].elements,
				.placement = round->placement, .bound = &bound,
				.contributors = round->counts[to][from][tensor],
			};

			dlcp_protocol_receive(round->ranks[to], from, &key, &destination, round->now_ns);
		}
}

static void begin(struct round *round)
{
	uint32_t apart = 1 + dice(6);

	round->starved = dice(2) ? dice(7) : 0;
	round->period_ns = (1 + dice(60)) * MILLISECOND;
	round->placement = (uint8_t)dice(3);
	round->late_ns = dice(2) ? dice(80) * MILLISECOND : 0;
	for (uint16_t rank = 0; rank < RANKS; rank++) {
		struct dlcp_config config = { .cookie = 1, .rank = rank, .link_bps = 1e8, .selective_drop = (uint8_t)dice(3),
					      .eager_stop = (uint8_t)dice(2), .magnitude_metric = (uint8_t)dice(3),
					      .stash_bytes = STASH_BYTES };
		char error[DLCP_ERROR_BYTES];

		strcpy(config.congestion_control, dice(4) ? "timely" : "fixed");
		round->ranks[rank] = dlcp_protocol_new(&config, error, sizeof error);
		for (uint16_t tensor = 0; tensor < TENSORS; tensor++) {
			struct dlcp_tensor shape = { .elements = shapes[tensor].elements, .dtype = shapes[tensor].dtype,
						     .queue = (uint8_t)(tensor * apart % 7), .droppable = (uint8_t)dice(4) };

			dlcp_protocol_declare(round->ranks[rank], tensor, &shape);
			round->sent[rank][tensor] = fill(rank, tensor);
		}
		for (uint16_t peer = 0; peer < RANKS; peer++)
			if (peer != rank)
				dlcp_protocol_add_peer(round->ranks[rank], peer, 0);
	}
	for (uint16_t to = 0; to < RANKS; to++)
		for (uint16_t from = 0; from < RANKS; from++)
			for (uint16_t tensor = 0; tensor < TENSORS && from != to; tensor++) {
				struct dlcp_key key = { .iteration = 3, .tensor = tensor };
				struct dlcp_bound bound = bound_of(tensor);
				struct dlcp_source source = { .data = round->sent[from][tensor],
							      .elements = shapes[tensor].elements, .bound = &bound };

				round->got[to][from][tensor] = calloc(1, bytes_of(tensor));
				dlcp_protocol_send(round->ranks[from], to, &key, &source, 0);
			}
	for (uint16_t to = 1; to < RANKS; to++)
		expect(round, to);
}

/* Buffers began as zeros: so whatever the placement, every packet is what was sent, or a hole of zeros that nobody contributed
 * to; and no more bytes are missing than may be. */
static bool whole(const struct round *round)
{
	for (int to = 0; to < RANKS; to++)
		for (int from = 0; from < RANKS; from++)
			for (int tensor = 0; tensor < TENSORS && from != to; tensor++) {
				const uint8_t *got = round->got[to][from][tensor], *sent = round->sent[from][tensor];
				size_t total = bytes_of(tensor), missing = 0;

				for (size_t at = 0; at < total; at += DLCP_PAYLOAD_BYTES) {
					size_t size = total - at < DLCP_PAYLOAD_BYTES ? total - at : DLCP_PAYLOAD_BYTES;
					uint16_t count = round->counts[to][from][tensor][at / DLCP_PAYLOAD_BYTES];
					bool hole = got[at] == 0 && !memcmp(got + at, got + at + 1, size - 1);

					if (hole ? count != 0 : count != 1 || memcmp(got + at, sent + at, size))
						return false;
					missing += hole ? size : 0;
				}
				if (missing * DLCP_PPM > total * bound_of(tensor).bytes_ppm)
					return false;
			}
	return true;
}

static uint32_t under_way(const struct round *round)
{
	uint32_t count = 0;

	for (int rank = 0; rank < RANKS; rank++)
		count += dlcp_protocol_sending(round->ranks[rank]) + dlcp_protocol_receiving(round->ranks[rank]);
	return count;
}

/* The next thing in virtual time: a datagram's arrival, or a timer. */
static void step(struct round *round)
{
	uint64_t next = UINT64_MAX;
	uint32_t first = 0;
	struct flying one;

	if (!round->expected && round->now_ns >= round->late_ns) {
		round->expected = true;
		expect(round, 0);
	}
	for (uint16_t rank = 0; rank < RANKS; rank++) {
		uint64_t at = dlcp_protocol_next_timer(round->ranks[rank], round->now_ns);

		next = at < next ? at : next;
	}
	for (uint32_t i = 1; i < round->count; i++)
		if (round->flying[i].at_ns < round->flying[first].at_ns)
			first = i;
	if (!round->count || next < round->flying[first].at_ns) {
		round->now_ns = next > round->now_ns ? next : round->now_ns + 1;
	} else {
		one = round->flying[first];
		round->flying[first] = round->flying[--round->count];
		round->now_ns = one.at_ns > round->now_ns ? one.at_ns : round->now_ns;
		dlcp_protocol_input(round->ranks[one.to], one.bytes, one.size, (uint8_t)dice(256), round->now_ns,
				    round->now_ns, 0);
		free(one.bytes);
	}
	for (uint16_t rank = 0; rank < RANKS; rank++)
		drain(round, rank);
}

static void end(struct round *round)
{
	while (round->count)
		free(round->flying[--round->count].bytes);
	for (int rank = 0; rank < RANKS; rank++) {
		dlcp_protocol_free(round->ranks[rank]);
		for (int tensor = 0; tensor < TENSORS; tensor++) {
			free(round->sent[rank][tensor]);
			for (int from = 0; from < RANKS; from++)
				free(round->got[rank][from][tensor]);
		}
	}
}

int main(int count, char **arguments)
{
	time_t until = time(NULL) + (count > 2 ? atoi(arguments[2]) : 1);
	int rounds = 0;

	state = count > 1 ? strtoull(arguments[1], NULL, 10) * 2654435761u + 88172645463325252u : 1;
	for (; time(NULL) < until || rounds < 2; rounds++) {
		static struct round round;
		bool kept;

		memset(&round, 0, sizeof round);
		round.forged = rounds % 2;
		begin(&round);
		for (long steps = 0; steps < 60000 && round.now_ns < 20000 * MILLISECOND &&
				     (under_way(&round) || !round.expected); steps++)
			step(&round);
		kept = round.forged || (!under_way(&round) && whole(&round));
		if (!kept)
			printf("round %d: %u messages under way after %.1f virtual s\n", rounds, under_way(&round),
			       (double)round.now_ns / 1e9);
		end(&round);
		if (!kept)
			return 1;
	}
	printf("%d rounds\n", rounds);
	return 0;
}
