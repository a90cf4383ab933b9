/* A source and a sink over loopback for AddressSanitizer and ThreadSanitizer: both protocols, strangers, and an end in the
 * middle. Prints what was broken; exit 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "traffic.h"

enum { BURSTS = 20, STREAMS = 20, FLOWS = BURSTS + STREAMS + 1, BURST_BYTES = 100000, STREAM_BYTES = 300000, COOKIE = 0x1234567 };
#define MILLISECOND INT64_C(1000000)

static void require(int holds, const char *what)
{
	if (!holds) {
		printf("%s\n", what);
		exit(1);
	}
}

static int64_t now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * INT64_C(1000000000) + at.tv_nsec;
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = ms * MILLISECOND }, NULL);
}

/* Headers that no flow of the plan has, as datagrams and as connections, and one that is not whole: a datagram of that
 * kind is a stranger's, a connection is one that was cut off. */
static void intrude(int port)
{
	static const struct { uint32_t cookie, number; size_t bytes; } forged[] = {
		{ COOKIE + 1, 0, 100 }, { COOKIE, FLOWS, 100 }, { COOKIE, UINT32_MAX, 100 }, { COOKIE, 0, 15 }, { COOKIE, BURSTS, 100 },
	};
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(0x7f000002) };

	for (size_t i = 0; i < sizeof forged / sizeof *forged; i++)
		for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
			uint8_t bytes[100] = { 0 };
			uint32_t head[2] = { htobe32(forged[i].cookie), htobe32(type == SOCK_STREAM && forged[i].number == BURSTS ? 0 : forged[i].number) };
			int file = socket(AF_INET, type, 0);

			memcpy(bytes, head, sizeof head);
			require(connect(file, (struct sockaddr *)&to, sizeof to) == 0, "no connection");
			require(send(file, bytes, forged[i].bytes, MSG_NOSIGNAL) == (ssize_t)forged[i].bytes, "nothing sent");
			close(file);
		}
}

int main(void)
{
	static struct dlcp_flow bursts[BURSTS], streams[STREAMS], endless[1];
	static struct dlcp_flow_sent sent[3][BURSTS];
	static struct dlcp_expected expected[FLOWS];
	static struct dlcp_arrival arrivals[FLOWS];
	struct dlcp_source_statistics out;
	struct dlcp_sink_statistics in;
	struct dlcp_sink *sink;
	struct dlcp_source *source;
	struct dlcp_place place = { .address = { 127, 0, 0, 2 } };
	uint64_t total = (uint64_t)BURSTS * BURST_BYTES + (uint64_t)STREAMS * STREAM_BYTES;
	int64_t end;

	for (uint32_t i = 0; i < FLOWS; i++) {
		expected[i] = (struct dlcp_expected){ .bytes = i < BURSTS ? BURST_BYTES : STREAM_BYTES, .source = { 127, 0, 0, 1 }, .tcp = i >= BURSTS };
		if (i < BURSTS)
			bursts[i] = (struct dlcp_flow){ .start_ns = i * 5 * MILLISECOND, .bytes = BURST_BYTES, .number = i };
		else if (i < BURSTS + STREAMS)
			streams[i - BURSTS] = (struct dlcp_flow){ .start_ns = (i - BURSTS) * 5 * MILLISECOND, .bytes = STREAM_BYTES, .number = i };
	}
	expected[FLOWS - 1] = (struct dlcp_expected){ .bytes = UINT64_MAX, .source = { 127, 0, 0, 1 } };
	endless[0] = (struct dlcp_flow){ .bytes = UINT64_MAX, .number = FLOWS - 1 };
	struct dlcp_lane lanes[] = {
		{ bursts, sent[0], BURSTS, 1440, 0, 0, 0, 1e9, 1 },
		{ streams, sent[1], STREAMS, 0, 0, 0x20, 1, 0, 1 },
		{ endless, sent[2], 1, 1440, 0, 0, 0, 1e7, 1 },
	};
	sink = dlcp_sink_new("127.0.0.2", 0, COOKIE, expected, arrivals, FLOWS, 1);
	require(sink != NULL, "no sink");
	place.port = (uint16_t)dlcp_sink_port(sink);
	source = dlcp_source_new("127.0.0.1", COOKIE, lanes, 3, &place, 1);
	require(source != NULL, "no source");
	require(dlcp_source_start(source, now() + 10 * MILLISECOND) == 0, "not started");
	intrude(place.port);
	for (end = now() + 30000 * MILLISECOND; now() < end && dlcp_sink_bytes(sink) < total + 100000;)
		pause_ms(5);
	dlcp_source_stop(source, &out);
	pause_ms(20);
	dlcp_sink_stop(sink, &in);
	for (uint32_t i = 0; i < BURSTS + STREAMS; i++)
		require(arrivals[i].bytes == expected[i].bytes, "a flow is not whole");
	require(arrivals[FLOWS - 1].bytes == sent[2][0].sent_bytes, "the endless flow's bytes do not add up");
	require(out.started_flows == FLOWS && out.failed_flows == 0, "flows not started, or failed");
	require(in.connections == STREAMS + 5 && in.strangers == 9, "strangers not told apart");
	dlcp_source_close(source);
	dlcp_sink_close(sink);

	/* An end in the middle of everything: connections that nobody reads, groups that are due. */
	memset(arrivals, 0, sizeof arrivals);
	memset(sent, 0, sizeof sent);
	sink = dlcp_sink_new("127.0.0.2", 0, COOKIE, expected, arrivals, FLOWS, 1);
	place.port = (uint16_t)dlcp_sink_port(sink);
	source = dlcp_source_new("127.0.0.1", COOKIE, lanes, 3, &place, 1);
	require(sink && source && dlcp_source_start(source, now()) == 0, "not started again");
	pause_ms(50);
	dlcp_source_close(source);
	dlcp_sink_close(sink);

	streams[3].bytes = 15;
	require(dlcp_source_new("127.0.0.1", COOKIE, lanes, 3, &place, 1) == NULL, "a flow without room for its header is taken");
	return 0;
}
