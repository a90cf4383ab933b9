/* A libFuzzer target: the input is a schedule. Two ranks exchange messages in virtual time; the bytes of the input say what
 * becomes of every datagram (delivered, lost, doubled, overtaken, changed, cut, forged) and when timers run.
 *
 * Two kinds of promises are held. Always: no read or write outside a buffer (every datagram lies on the heap at exactly its
 * length, under AddressSanitizer), the stash stays under its cap, the engine's timer never stands still. In a schedule without
 * changed and forged datagrams: after it the network turns fair, and then every message ends, with only its own values
 * and within its bound.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "codepoint.h"
#include "protocol.h"

enum { RANKS = 2, TENSORS = 7, ITERATIONS = 3, FLYING = 128, LONGEST = 1600, OPERATIONS = 2000, FAIR_STEPS = 200000 };
#define COOKIE 0xD1CF0FFEu
#define STASH_BYTES 65536u

/* Every dtype, every placement, every kind of bound, whole packets and crumbs, fixed and variable lengths. */
static const struct dlcp_tensor tensors[TENSORS] = {
	{ .elements = 1, .droppable = DLCP_DROPPABLE_SMALL },
	{ .elements = 361, .bound = { { 200000, DLCP_PPM } }, .droppable = DLCP_DROPPABLE_SMALL },
	{ .elements = 9 * 720, .dtype = DLCP_FLOAT16, .bound = { { 200000, 300000 } }, .droppable = 3,
	  .must_arrive_ppm = 300000 },
	{ .elements = 30 * 720 + 5, .dtype = DLCP_BFLOAT16, .bound = { { DLCP_PPM, 100000 } }, .droppable = 1 },
	{ .elements = 12 * 360 + 7, .bound = { { 100000, DLCP_PPM } }, .must_arrive = 1 },
	{ .elements = 6 * 1440 + 9, .dtype = DLCP_UINT8, .must_arrive = 1, .variable = 1 },
	{ .elements = 12 * 360 + 1, .must_arrive = 1, .variable = 1 },
};
static const uint8_t placements[TENSORS] = { DLCP_PLACE_ZERO, DLCP_PLACE_ADD, DLCP_PLACE_KEEP, DLCP_PLACE_ZERO,
					     DLCP_PLACE_ADD, DLCP_PLACE_ZERO, DLCP_PLACE_ADD };

/* Of a variable tensor, by sender and iteration. */
static const uint32_t lengths[RANKS][ITERATIONS] = { { 3 * 1440 + 1, 1, 2 * 1440 }, { 12 * 360, 360, 361 } };

struct input {
	const uint8_t *at, *end;
};

struct flying {
	uint64_t at_ns;
	uint16_t to;
	uint8_t tos;
	size_t size;
	uint8_t *bytes; /* exactly `size` bytes on the heap, so that a read beyond them is found */
};

/* What one rank sends to the other of one tensor, one iteration after the other. */
struct stream {
	uint32_t iteration;
	bool begun, expected, sent, received;
	void *from, *to;
	uint16_t *contributors;
};

struct world {
	struct input input;
	struct dlcp_protocol *ranks[RANKS];
	struct flying flying[FLYING];
	uint32_t count;
	uint64_t now_ns;
	bool forged; /* datagrams are changed and invented: numbers may be wrong, memory may not */
	struct stream streams[RANKS][TENSORS]; /* by sender */
};

/* Elements of the message that a rank sends of a tensor. */
static uint32_t length_of(const struct world *world, uint16_t source, uint16_t tensor)
{
	uint32_t iteration = world->streams[source][tensor].iteration;

	return tensors[tensor].variable ? lengths[source][iteration % ITERATIONS] : tensors[tensor].elements;
}

static uint32_t take(struct input *input, uint32_t below)
{
	uint32_t value = 0;

	for (uint32_t reach = 1; reach < below && input->at < input->end; reach *= 256)
		value = value << 8 | *input->at++;
	return below ? value % below : 0;
}

static void promise(bool kept, const char *text)
{
	if (kept)
		return;
	fprintf(stderr, "broken promise: %s\n", text);
	abort();
}

static void launch(struct world *world, uint16_t to, uint8_t tos, const uint8_t *bytes, size_t size)
{
	struct flying *one = &world->flying[world->count];

	if (world->count == FLYING) /* a loss */
		return;
	*one = (struct flying){ world->now_ns + 200000, to, tos, size, malloc(size ? size : 1) };
	memcpy(one->bytes, bytes, size);
	world->count++;
}

static struct flying unlink_flying(struct world *world, uint32_t number)
{
	struct flying one = world->flying[number];

	for (uint32_t i = number + 1; i < world->count; i++) /* order is kept: the first one is the oldest */
		world->flying[i - 1] = world->flying[i];
	world->count--;
	return one;
}

static void input_datagram(struct world *world, const struct flying *one)
{
	if (one->at_ns > world->now_ns)
		world->now_ns = one->at_ns;
	dlcp_protocol_input(world->ranks[one->to], one->bytes, one->size, one->tos, world->now_ns, world->now_ns, 0);
}

/* What an element is before anything arrives, or what is sent of it: a value that names rank, tensor, iteration and place;
 * never zero. 16-bit types: finite bit patterns. Bytes: their names may repeat. */
static void content(const struct world *world, uint16_t source, uint16_t tensor, void *into)
{
	uint32_t iteration = world->streams[source][tensor].iteration;

	for (uint32_t i = 0; i < tensors[tensor].elements; i++) {
		uint32_t name = 1 + source + 2 * iteration + 8 * (i % 500);

		if (tensors[tensor].dtype == DLCP_FLOAT32)
			((float *)into)[i] = (float)name * (i / 360 % 3 ? 1024.0f : 1.0f);
		else if (tensors[tensor].dtype == DLCP_UINT8)
			((uint8_t *)into)[i] = (uint8_t)(1 + name % 255);
		else
			((uint16_t *)into)[i] = (uint16_t)(0x2000 + name);
	}
}

#define BEFORE 3 /* every byte of a buffer that nothing arrived in yet */

/* Element i of a buffer is what was sent, or, as a hole, what its placement says. */
static bool right(uint16_t tensor, const void *sent, const void *got, uint32_t i)
{
	uint32_t bytes = dlcp_element_bytes(tensors[tensor].dtype);
	const uint8_t *is = (const uint8_t *)got + (size_t)i * bytes, *was = (const uint8_t *)sent + (size_t)i * bytes;
	uint8_t hole[4];
	float base, value;

	memset(hole, placements[tensor] == DLCP_PLACE_ZERO ? 0 : BEFORE, sizeof hole);
	if (memcmp(is, hole, bytes) == 0)
		return true;
	if (placements[tensor] != DLCP_PLACE_ADD)
		return memcmp(is, was, bytes) == 0;
	memcpy(&base, hole, sizeof base);
	memcpy(&value, was, sizeof value);
	base += value;
	return memcmp(is, &base, bytes) == 0;
}

/* A message that is over at both ends: values, contributors; nothing behind its end. */
static void check(const struct world *world, uint16_t source, uint16_t tensor)
{
	const struct stream *stream = &world->streams[source][tensor];
	uint32_t full = dlcp_full_packet(tensors[tensor].dtype), length = length_of(world, source, tensor);
	size_t end = (size_t)length * dlcp_element_bytes(tensors[tensor].dtype);
	size_t room = (size_t)tensors[tensor].elements * dlcp_element_bytes(tensors[tensor].dtype);
	bool adds = placements[tensor] == DLCP_PLACE_ADD;

	for (uint32_t i = 0; i < length; i++)
		promise(right(tensor, stream->from, stream->to, i), "only the message's values");
	for (size_t i = end; i < room; i++)
		promise(((const uint8_t *)stream->to)[i] == BEFORE, "nothing is written behind the message's end");
	for (uint32_t packet = 0; packet * full < length; packet++)
		promise(stream->contributors[packet] <= 1 + adds, "nothing counts twice");
	for (uint32_t packet = (length + full - 1) / full; packet * full < tensors[tensor].elements; packet++)
		promise(stream->contributors[packet] == adds, "nothing counts behind the message's end");
}

static void take_completion(struct world *world, uint16_t rank, const struct dlcp_completion *done)
{
	struct stream *stream = &world->streams[done->received ? 1 - rank : rank][done->key.tensor];
	const struct dlcp_bound *bound = &tensors[done->key.tensor].bound[DLCP_PUSH];
	bool whole = tensors[done->key.tensor].must_arrive || !bound->bytes_ppm || !bound->energy_ppm;

	promise(done->key.iteration == stream->iteration, "a completion is of the message that was begun");
	promise(done->delivered_bytes + (done->received ? done->lost_bytes : 0) <= done->bytes, "no more than there is");
	promise(!(done->received ? stream->received : stream->sent), "a message ends once");
	*(done->received ? &stream->received : &stream->sent) = true;
	if (world->forged || !done->received)
		return;
	promise(!whole || done->lost_bytes == 0, "what must arrive did");
	promise(done->bytes == (uint64_t)length_of(world, 1 - rank, done->key.tensor) *
				       dlcp_element_bytes(tensors[done->key.tensor].dtype), "a message is as long as it was sent");
	promise((double)done->lost_bytes * 1e6 <= (double)done->bytes * bound->bytes_ppm, "within its bound of bytes");
	promise(done->lost_energy_share * 1e6 <= bound->energy_ppm * (1 + 1e-9), "within its bound of energy");
}

/* What is over at both ends begins again as its next iteration. */
static void take_completions(struct world *world, uint16_t rank)
{
	struct dlcp_completion done;

	while (dlcp_protocol_poll_completion(world->ranks[rank], &done)) {
		promise(done.key.tensor < TENSORS, "a completion is of a tensor that was declared");
		take_completion(world, rank, &done);
	}
	for (uint16_t source = 0; source < RANKS; source++)
		for (uint16_t tensor = 0; tensor < TENSORS; tensor++) {
			struct stream *stream = &world->streams[source][tensor];

			if (!stream->sent || !stream->received)
				continue;
			if (!world->forged)
				check(world, source, tensor);
			stream->begun = stream->expected = stream->sent = stream->received = false;
			stream->iteration++;
		}
}

static void transmit(struct world *world, uint16_t rank)
{
	struct dlcp_burst burst;

	while (dlcp_protocol_poll_transmit(world->ranks[rank], world->now_ns, &burst))
		for (uint32_t i = 0; i < burst.packets; i++) {
			uint8_t bytes[LONGEST];
			size_t size = burst.head_bytes + burst.payload_bytes[i];

			promise(size <= DLCP_DATAGRAM_BYTES && burst.peer < RANKS, "a datagram fits and has a destination");
			memcpy(bytes, burst.head[i], burst.head_bytes);
			if (burst.payload_bytes[i])
				memcpy(bytes + burst.head_bytes, burst.payload[i], burst.payload_bytes[i]);
			launch(world, burst.peer, burst.tos, bytes, size);
		}
	take_completions(world, rank);
}

static void transmit_all(struct world *world)
{
	for (uint16_t rank = 0; rank < RANKS; rank++)
		transmit(world, rank);
}

static uint64_t next_timer(const struct world *world)
{
	uint64_t next = UINT64_MAX;

	for (uint16_t rank = 0; rank < RANKS; rank++) {
		uint64_t at = dlcp_protocol_next_timer(world->ranks[rank], world->now_ns);

		next = at < next ? at : next;
	}
	return next;
}

/* One end of the next iteration of what `source` sends of a tensor. */
static void begin_message(struct world *world, uint16_t source, uint16_t tensor, bool expect)
{
	struct stream *stream = &world->streams[source][tensor];
	struct dlcp_key key = { .iteration = stream->iteration, .tensor = tensor, .leg = DLCP_PUSH };
	size_t bytes = (size_t)tensors[tensor].elements * dlcp_element_bytes(tensors[tensor].dtype);
	size_t packets = (bytes + DLCP_PAYLOAD_BYTES - 1) / DLCP_PAYLOAD_BYTES;
	bool *done = expect ? &stream->expected : &stream->begun;
	int code;

	if (*done || stream->iteration >= ITERATIONS)
		return;
	*done = true;
	if (expect) {
		struct dlcp_destination to = { .buffer = stream->to,
					       .elements = tensors[tensor].elements,
					       .placement = placements[tensor],
					       .contributors = stream->contributors };

		memset(stream->to, BEFORE, bytes);
		for (size_t i = 0; i < packets; i++)
			stream->contributors[i] = 1;
		code = dlcp_protocol_receive(world->ranks[1 - source], source, &key, &to, world->now_ns);
	} else {
		struct dlcp_source from = { .data = stream->from, .elements = length_of(world, source, tensor) };

		content(world, source, tensor, stream->from);
		code = dlcp_protocol_send(world->ranks[source], 1 - source, &key, &from, world->now_ns);
	}
	promise(world->forged || code == DLCP_OK || code == DLCP_ERROR_PEER_GONE, "a message of a living peer can begin");
}

/* Change a few bytes behind the cookie, or the length. */
static void mutate(struct world *world, struct flying *one)
{
	uint32_t places = 1 + take(&world->input, 4);
	uint8_t *grown;

	if (take(&world->input, 4) == 0) {
		size_t size = take(&world->input, LONGEST);

		grown = calloc(1, size ? size : 1);
		memcpy(grown, one->bytes, size < one->size ? size : one->size);
		free(one->bytes);
		one->bytes = grown;
		one->size = size;
	}
	for (uint32_t i = 0; i < places && one->size > 8; i++) {
		uint32_t at = 8 + take(&world->input, one->size - 8 < 64 ? (uint32_t)one->size - 8 : 64);

		one->bytes[at] = (uint8_t)take(&world->input, 256);
	}
	if (one->size && take(&world->input, 8) == 0)
		one->bytes[0] = (uint8_t)take(&world->input, 256);
}

/* A datagram of the input's own bytes; most of the time from a rank of this job, so that it gets past the door. */
static void forge(struct world *world)
{
	uint8_t bytes[LONGEST] = { 0 };
	uint32_t size = take(&world->input, LONGEST), given = take(&world->input, 256);
	uint16_t to = (uint16_t)take(&world->input, RANKS);
	struct flying one = { .at_ns = world->now_ns, .to = to, .tos = (uint8_t)take(&world->input, 256), .size = size };

	for (uint32_t i = 0; i < given && i < size; i++)
		bytes[i] = (uint8_t)take(&world->input, 256);
	if (take(&world->input, 8)) {
		bytes[0] = (uint8_t)(DLCP_WIRE_VERSION << 4 | (1 + take(&world->input, 6)));
		dlcp_put16(bytes + 2, (uint16_t)(1 - to));
		dlcp_put32(bytes + 4, COOKIE);
	}
	one.bytes = malloc(size ? size : 1);
	memcpy(one.bytes, bytes, size);
	input_datagram(world, &one);
	free(one.bytes);
}

static void deliver(struct world *world, uint32_t number, bool again)
{
	struct flying one = unlink_flying(world, number);

	input_datagram(world, &one);
	if (again)
		input_datagram(world, &one);
	free(one.bytes);
}

static void operate(struct world *world)
{
	uint32_t operation = take(&world->input, world->forged ? 16 : 13), number = 0;

	if (world->count)
		number = operation & 1 ? take(&world->input, world->count) : 0;
	switch (operation) {
	case 0: case 1: case 2: case 3: case 4:
		if (world->count)
			deliver(world, number, false);
		break;
	case 5: case 6:
		if (world->count)
			free(unlink_flying(world, number).bytes);
		break;
	case 7:
		if (world->count)
			deliver(world, number, true);
		break;
	case 8: world->now_ns += 1000 * take(&world->input, 65536); break;
	case 9: case 10: {
		uint64_t at = next_timer(world);

		if (at != UINT64_MAX && at > world->now_ns)
			world->now_ns = at;
		break;
	}
	case 13: case 14:
		if (world->count) {
			mutate(world, &world->flying[number]);
			deliver(world, number, false);
		}
		break;
	case 15: forge(world); break;
	default:
		begin_message(world, (uint16_t)take(&world->input, RANKS), (uint16_t)take(&world->input, TENSORS),
			      take(&world->input, 2));
	}
	transmit_all(world);
}

static uint32_t under_way(const struct world *world)
{
	uint32_t count = 0;

	for (int rank = 0; rank < RANKS; rank++)
		count += dlcp_protocol_sending(world->ranks[rank]) + dlcp_protocol_receiving(world->ranks[rank]);
	return count;
}

static void begin_all(struct world *world)
{
	for (uint16_t source = 0; source < RANKS; source++)
		for (uint16_t tensor = 0; tensor < TENSORS; tensor++) {
			begin_message(world, source, tensor, true);
			begin_message(world, source, tensor, false);
		}
}

static bool gone(const struct world *world)
{
	return dlcp_protocol_gone(world->ranks[0]) >= 0 || dlcp_protocol_gone(world->ranks[1]) >= 0;
}

/* From here on the network is fair: the oldest datagram arrives, or, when none is under way, the next timer runs. Every
 * message of this iteration ends. */
static void settle(struct world *world)
{
	begin_all(world);
	transmit_all(world);
	for (uint32_t step = 0; step < FAIR_STEPS && under_way(world); step++) {
		uint64_t at = next_timer(world);

		promise(at > world->now_ns || world->forged, "after everything was sent, the timer lies ahead");
		if (world->count && world->flying[0].at_ns <= at)
			deliver(world, 0, false);
		else if (at != UINT64_MAX)
			world->now_ns = at > world->now_ns ? at : world->now_ns + 1;
		transmit_all(world);
	}
	promise(world->forged || gone(world) || !under_way(world), "on a fair network every message ends");
}

static void open_world(struct world *world)
{
	static const char *controls[] = { "timely", "dctcp", "fixed" };
	uint32_t options = take(&world->input, 256), control = take(&world->input, 3);

	world->forged = take(&world->input, 2);

	for (uint16_t rank = 0; rank < RANKS; rank++) {
		struct dlcp_config config = { .cookie = COOKIE, .rank = rank, .link_bps = options & 1 ? 1e8 : 1e10,
					      .selective_drop = (uint8_t)(options >> 1 & 3) % 3,
					      .eager_stop = options >> 3 & 1, .stash_bytes = STASH_BYTES,
					      .magnitude_metric = (uint8_t)(options >> 4 & 3) % 3 };
		char error[DLCP_ERROR_BYTES];

		strcpy(config.congestion_control, controls[control]);
		world->ranks[rank] = dlcp_protocol_new(&config, error, sizeof error);
		promise(world->ranks[rank], error);
		for (uint16_t tensor = 0; tensor < TENSORS; tensor++) {
			struct stream *stream = &world->streams[rank][tensor];
			struct dlcp_tensor shape = tensors[tensor];
			size_t bytes = (size_t)shape.elements * dlcp_element_bytes(shape.dtype);

			shape.queue = (uint8_t)(tensor * (options >> 6) % 7);
			promise(dlcp_protocol_declare(world->ranks[rank], tensor, &shape) == DLCP_OK, "declare");
			stream->from = malloc(bytes);
			stream->to = malloc(bytes);
			stream->contributors = malloc((bytes / DLCP_PAYLOAD_BYTES + 1) * sizeof *stream->contributors);
		}
		promise(dlcp_protocol_add_peer(world->ranks[rank], 1 - rank, 0) == DLCP_OK, "add peer");
	}
}

static void close_world(struct world *world)
{
	while (world->count)
		free(unlink_flying(world, 0).bytes);
	for (int rank = 0; rank < RANKS; rank++) {
		dlcp_protocol_free(world->ranks[rank]);
		for (int tensor = 0; tensor < TENSORS; tensor++) {
			free(world->streams[rank][tensor].from);
			free(world->streams[rank][tensor].to);
			free(world->streams[rank][tensor].contributors);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world world = { .input = { data, data + size }, .now_ns = 1 };

	open_world(&world);
	if (take(&world.input, 4))
		begin_all(&world);
	for (int i = 0; i < OPERATIONS && world.input.at < world.input.end; i++)
		operate(&world);
	settle(&world);
	close_world(&world);
	return 0;
}
