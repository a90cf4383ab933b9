/* Background traffic: a source that carries out a plan of flows, over UDP and TCP, and a sink that counts what comes of it.
 *
 * A flow is `bytes` of application data that go to one sink from a planned instant on. Flows stand in lanes. A UDP lane
 * sends its flows one after the other, each at the lane's rate of Ethernet frame bytes (0 = each flow at once at its
 * instant); lanes go on side by side. A TCP lane opens a connection for each flow at its instant, whatever the others do.
 * Every datagram, and every connection's first bytes, begin with a header that says whose flow it is; it is part of the
 * flow's bytes. Sources and sinks have one thread each; nothing is allocated after `new`.
 */
#ifndef DLCP_TRAFFIC_H
#define DLCP_TRAFFIC_H

#include <stdint.h>

/* cffi: begin */
enum {
	DLCP_TRAFFIC_HEADER_BYTES = 16,       /* cookie, number, instant of sending: big endian */
	DLCP_TRAFFIC_DATAGRAM_BYTES = 1440,   /* DLCP_PAYLOAD_BYTES: a packet of background is one of DLCP's payload */
	DLCP_TRAFFIC_DATAGRAM_MOST = 1472,    /* at an MTU of 1500 */
	DLCP_TRAFFIC_FRAME_OVERHEAD = 42,     /* UDP, IPv4, Ethernet: what a link carries beside a datagram's bytes */
	DLCP_TRAFFIC_GROUP_NS = 500000,       /* line time, in the lab, of the datagrams handed to the kernel at once */
	DLCP_TRAFFIC_GROUP_MOST = 44,         /* below the kernel's 64 segments of a send, and below 64 KiB at any size */
	DLCP_TRAFFIC_LATE_NS = 5000000,       /* a flow that starts so late, in lab time, no longer meets the traffic it was meant to */
	DLCP_TRAFFIC_PORTS = 14000,           /* source ports of a TCP lane */
};

/* start_ns: after the source's origin; ascending in a lane. bytes: at least a header; over UDP the last datagram is long
 * enough for one too. sink: index of its place. number: of the flow at that sink. */
struct dlcp_flow {
	int64_t start_ns;
	uint64_t bytes;
	uint32_t sink, number;
};

/* What became of a flow at its source. started_ns: CLOCK_MONOTONIC, when its first byte was handed to the kernel, or its
 * connection was begun; 0 = never. sent_bytes: handed to the kernel. */
struct dlcp_flow_sent {
	int64_t started_ns;
	uint64_t sent_bytes;
};

/* flows, sent: arrays of `count`, the caller's, until the source is closed. datagram_bytes: of a full datagram; UDP only.
 * port: the source port of a UDP lane; a TCP flow's is `port` plus its number modulo DLCP_TRAFFIC_PORTS, so that
 * switches that hash flows choose alike whenever the plan is carried out; 0 = any. time_dilation: a second of the lab takes
 * so many here, at least 1: what the source decides by itself (groups, which flows are late) is the same in lab time.
 * Instants and rates are of this host. */
struct dlcp_lane {
	const struct dlcp_flow *flows;
	struct dlcp_flow_sent *sent;
	uint32_t count;
	uint16_t datagram_bytes, port;
	uint8_t tos, tcp;
	double rate_bps, time_dilation;
};

struct dlcp_place {
	uint8_t address[4];
	uint16_t port;
};

/* Due: what a punctual source would have handed to the network when it was stopped; of TCP, which the network holds back,
 * all bytes of a flow are due and offered when it starts. late_ns: 99th percentile, upper edge of a class 1/8 wide.
 * stopped_ns: CLOCK_MONOTONIC. */
struct dlcp_source_statistics {
	uint64_t due_bytes, offered_bytes, sent_bytes, refused_bytes;
	uint64_t due_flows, started_flows, late_flows, failed_flows;
	uint64_t datagrams, sends;
	uint64_t late_ns, late_most_ns, cpu_ns;
	int64_t stopped_ns;
};

/* What a sink expects of a flow. tos: what its answers carry, over TCP. */
struct dlcp_expected {
	uint64_t bytes;
	uint8_t source[4];
	uint8_t tcp, tos;
	uint16_t zero;
};

/* What came of it. last_ns: CLOCK_MONOTONIC, when its latest byte reached the host, as the kernel saw it. */
struct dlcp_arrival {
	uint64_t bytes;
	uint32_t packets, claimed;
	int64_t last_ns;
};

/* packets, datagram_bytes: over UDP; bytes: over both. strangers: datagrams and connections that belong to no flow of the
 * plan, or to none from where they came, and what finds no room. */
struct dlcp_sink_statistics {
	uint64_t packets, bytes, datagram_bytes, overflow, connections, strangers, cpu_ns;
};

struct dlcp_source;
struct dlcp_sink;

/* How many full datagrams a UDP lane hands to the kernel at once: what goes over the line in DLCP_TRAFFIC_GROUP_NS of the
 * lab, at least one; of a rate of 0, as many as may be. */
uint32_t dlcp_traffic_group(double rate_bps, uint16_t datagram_bytes, double time_dilation);

/* A source at an IPv4 address. Copies lanes and sinks. NULL on failure: errno; EINVAL for a plan that cannot be carried
 * out. */
struct dlcp_source *dlcp_source_new(const char *address, uint32_t cookie, const struct dlcp_lane *lanes, uint32_t lane_count,
				    const struct dlcp_place *sinks, uint32_t sink_count);
/* Begin; flows start after origin_ns of CLOCK_MONOTONIC. 0 or -errno. */
int dlcp_source_start(struct dlcp_source *source, int64_t origin_ns);
/* End, cutting off what is under way. Afterwards what lanes say of their flows is final. */
void dlcp_source_stop(struct dlcp_source *source, struct dlcp_source_statistics *statistics);
void dlcp_source_close(struct dlcp_source *source);

/* A sink at an IPv4 address and port (0 = any free one), of UDP and TCP, that counts from now on. expected, arrivals:
 * arrays of `count`, by the flows' numbers; the caller's, until the sink is closed. time_dilation: how long the thread rests
 * between batches, which TCP's windows feel, is the same in lab time. NULL on failure: errno. */
struct dlcp_sink *dlcp_sink_new(const char *address, uint16_t port, uint32_t cookie, const struct dlcp_expected *expected,
				struct dlcp_arrival *arrivals, uint32_t count, double time_dilation);
int dlcp_sink_port(const struct dlcp_sink *sink);
/* Bytes that have come so far, of flows of the plan. */
uint64_t dlcp_sink_bytes(const struct dlcp_sink *sink);
/* End. Afterwards arrivals are final. */
void dlcp_sink_stop(struct dlcp_sink *sink, struct dlcp_sink_statistics *statistics);
void dlcp_sink_close(struct dlcp_sink *sink);
/* cffi: end */

#endif
