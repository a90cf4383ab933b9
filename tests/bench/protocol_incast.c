/* A parameter server and its workers in one process and in virtual time: the protocol's work for each data packet, with
 * nothing else. Run under callgrind, which counts instructions inside the three functions that packets pass through.
 *
 * usage: protocol_incast PEERS MESSAGES push|pull
 *
 * push: PEERS workers send MESSAGES tensors of 32 packets each to the server, one after the other. pull: the server sends
 * them to the workers. All links have the same rate; the server's, in its direction of the data, has a queue that drops at
 * the tail. Writes the data packets that arrived, the virtual time, and a checksum of all packets in order.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

enum { PACKETS = 32, MOST_PEERS = 1023, QUEUE_PACKETS = 256, EVENTS_AT_FIRST = 1024 };
#define LINK_BPS 10e9
#define DELAY_NS 10000ull /* one way */
#define ELEMENTS (PACKETS * DLCP_PACKET_ELEMENTS)
#define LIMIT_NS 600000000000ull

struct event {
	uint64_t at_ns, order;
	uint32_t node;
	uint32_t size; /* of a datagram; 0: a timer */
	uint8_t tos;
	uint8_t *bytes;
};

struct node {
	struct dlcp_protocol *protocol;
	uint64_t timer_ns;
	uint32_t messages; /* over at this end */
	float *values;
};

static struct node *nodes;
static struct event *events;
static uint32_t event_count, event_room;
static uint64_t now_ns, order, queue_free_ns;
static uint64_t checksum = 14695981039346656037ull; /* FNV-1a */
static uint32_t peers, messages;
static bool pull;

static void fail(const char *text)
{
	fprintf(stderr, "protocol_incast: %s\n", text);
	exit(1);
}

static bool before(const struct event *a, const struct event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void add_event(struct event event)
{
	uint32_t i = event_count++;

	if (event_count > event_room) {
		event_room = event_room ? 2 * event_room : EVENTS_AT_FIRST;
		events = realloc(events, event_room * sizeof *events);
		if (!events)
			fail("no memory");
	}
	event.order = order++;
	for (; i && before(&event, &events[(i - 1) / 2]); i = (i - 1) / 2)
		events[i] = events[(i - 1) / 2];
	events[i] = event;
}

static struct event next_event(void)
{
	struct event first = events[0], last = events[--event_count];
	uint32_t i = 0;

	for (uint32_t child = 1; child < event_count; i = child, child = 2 * i + 1) {
		if (child + 1 < event_count && before(&events[child + 1], &events[child]))
			child++;
		if (!before(&events[child], &last))
			break;
		events[i] = events[child];
	}
	events[i] = last;
	return first;
}

static void add_to_checksum(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		checksum = (checksum ^ bytes[i]) * 1099511628211ull;
}

/* The network: what crosses the server's link in the direction of the data waits in its queue, or finds it full. */
static void launch(uint32_t to, uint8_t tos, const uint8_t *head, uint32_t head_bytes, const uint8_t *payload,
		   uint32_t payload_bytes)
{
	uint32_t size = head_bytes + payload_bytes;
	uint64_t packet_ns = (uint64_t)((size + DLCP_FRAME_OVERHEAD_BYTES - DLCP_HEADER_BYTES) * 8e9 / LINK_BPS);
	uint64_t leaves_ns = now_ns + packet_ns;
	uint8_t *bytes;

	add_to_checksum((const uint8_t *)&now_ns, sizeof now_ns);
	add_to_checksum(head, head_bytes);
	if ((to == 0) != pull) {
		leaves_ns = (queue_free_ns > now_ns ? queue_free_ns : now_ns) + packet_ns;
		if (leaves_ns > now_ns + QUEUE_PACKETS * packet_ns)
			return;
		queue_free_ns = leaves_ns;
	}
	bytes = malloc(size);
	if (!bytes)
		fail("no memory");
	memcpy(bytes, head, head_bytes);
	if (payload_bytes)
		memcpy(bytes + head_bytes, payload, payload_bytes);
	add_event((struct event){ .at_ns = leaves_ns + DELAY_NS, .node = to, .size = size, .tos = tos, .bytes = bytes });
}

/* Begin the next message between a worker and the server, at both ends. */
static void begin(uint32_t worker, uint32_t number)
{
	struct dlcp_key key = { .iteration = number, .leg = pull ? DLCP_PULL : DLCP_PUSH };
	struct node *sender = &nodes[pull ? 0 : worker], *receiver = &nodes[pull ? worker : 0];
	struct dlcp_destination to = { .buffer = nodes[worker].values + ELEMENTS, .elements = ELEMENTS };
	struct dlcp_source from = { .data = nodes[worker].values, .elements = ELEMENTS };

	if (dlcp_protocol_receive(receiver->protocol, (uint16_t)(pull ? 0 : worker), &key, &to, now_ns) ||
	    dlcp_protocol_send(sender->protocol, (uint16_t)(pull ? worker : 0), &key, &from, now_ns))
		fail("a message cannot begin");
}

/* Let a node hand out what it can, and set its timer. */
static void run_node(uint32_t number)
{
	struct node *node = &nodes[number];
	struct dlcp_completion completion;
	struct dlcp_burst burst;
	uint64_t at_ns;

	while (dlcp_protocol_poll_completion(node->protocol, &completion))
		node->messages++;
	while (dlcp_protocol_poll_transmit(node->protocol, now_ns, &burst))
		for (uint32_t i = 0; i < burst.packets; i++)
			launch(burst.peer, burst.tos, burst.head[i], burst.head_bytes, burst.payload[i],
			       burst.payload_bytes[i]);
	at_ns = dlcp_protocol_next_timer(node->protocol, now_ns);
	if (at_ns != UINT64_MAX && at_ns != node->timer_ns) {
		node->timer_ns = at_ns;
		add_event((struct event){ .at_ns = at_ns, .node = number });
	}
}

static struct dlcp_protocol *new_protocol(uint16_t rank)
{
	static const struct dlcp_tensor tensor = { .elements = ELEMENTS, .queue = 3 };
	struct dlcp_config config = { .cookie = 1, .rank = rank, .link_bps = LINK_BPS, .congestion_control = "timely" };
	char error[DLCP_ERROR_BYTES];
	struct dlcp_protocol *protocol = dlcp_protocol_new(&config, error, sizeof error);

	if (!protocol || dlcp_protocol_declare(protocol, 0, &tensor))
		fail("no protocol");
	return protocol;
}

static void set_up(void)
{
	nodes = calloc(peers + 1, sizeof *nodes);
	if (!nodes)
		fail("no memory");
	for (uint32_t i = 0; i <= peers; i++) {
		nodes[i].protocol = new_protocol((uint16_t)i);
		nodes[i].values = calloc(2 * ELEMENTS, sizeof *nodes[i].values);
		if (!nodes[i].values)
			fail("no memory");
		if (i && (dlcp_protocol_add_peer(nodes[i].protocol, 0, 0) ||
			  dlcp_protocol_add_peer(nodes[0].protocol, (uint16_t)i, 0)))
			fail("no peer");
	}
}

/* Until each worker has had all its messages, and the server as well. */
static void run(void)
{
	for (uint32_t worker = 1; worker <= peers; worker++)
		begin(worker, 0);
	for (uint32_t i = 0; i <= peers; i++)
		run_node(i);
	while (event_count && nodes[0].messages < peers * messages) {
		struct event event = next_event();
		struct node *node = &nodes[event.node];
		uint32_t over = node->messages;

		now_ns = event.at_ns;
		if (now_ns > LIMIT_NS)
			fail("no end within ten virtual minutes");
		if (event.size)
			dlcp_protocol_input(node->protocol, event.bytes, event.size, event.tos, now_ns, now_ns, 0);
		else if (node->timer_ns != now_ns)
			continue; /* it was set again */
		else
			node->timer_ns = 0;
		free(event.bytes);
		run_node(event.node);
		if (event.node && node->messages > over && node->messages < messages) {
			begin(event.node, node->messages);
			run_node(event.node);
			run_node(0);
		}
	}
}

int main(int count, char **arguments)
{
	struct dlcp_statistics statistics;
	uint64_t received = 0;

	if (count != 4 || (strcmp(arguments[3], "push") && strcmp(arguments[3], "pull")))
		fail("usage: protocol_incast PEERS MESSAGES push|pull");
	peers = (uint32_t)strtoul(arguments[1], NULL, 10);
	messages = (uint32_t)strtoul(arguments[2], NULL, 10);
	pull = strcmp(arguments[3], "pull") == 0;
	if (!peers || peers > MOST_PEERS || !messages)
		fail("peers or messages out of range");
	set_up();
	run();
	for (uint32_t i = 0; i <= peers; i++) {
		dlcp_protocol_statistics(nodes[i].protocol, &statistics);
		received += statistics.data_packets_received;
		dlcp_protocol_free(nodes[i].protocol);
		free(nodes[i].values);
	}
	for (uint32_t i = 0; i < event_count; i++)
		free(events[i].bytes);
	free(events);
	free(nodes);
	printf("{\"data_packets\": %llu, \"virtual_ns\": %llu, \"checksum\": \"%016llx\"}\n", (unsigned long long)received,
	       (unsigned long long)now_ns, (unsigned long long)checksum);
	return 0;
}
