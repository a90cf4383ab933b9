/* The source: one thread that waits for the next send of any lane, and feeds open connections meanwhile. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "traffic_lanes.h"
#include "wire.h"

_Static_assert((int)DLCP_TRAFFIC_DATAGRAM_BYTES == (int)DLCP_PAYLOAD_BYTES, "background packets are as DLCP's payload");

enum {
	BUFFER_BYTES = DLCP_TRAFFIC_GROUP_MOST * DLCP_TRAFFIC_DATAGRAM_MOST,
	SEND_BUFFER_BYTES = 4 << 20, /* what the host's own queue holds must not hold up the other lanes */
	EVENTS = 64,
	SENDS_IN_A_ROW = 16, /* then connections are looked after, however late the sends are */
	LATE_CLASSES = 64 * 8,
};
#define LATE_QUANTILE 0.99
#define STOP_EVENT UINT64_MAX

struct dlcp_source {
	struct sockaddr_in local;
	uint32_t cookie, lane_count, sink_count, events;
	struct lane *lanes;
	struct sockaddr_in *sinks;
	int epoll, stopping;
	pthread_t thread;
	bool running;
	int64_t origin_ns;
	struct dlcp_source_statistics statistics;
	uint64_t late[LATE_CLASSES];
	uint8_t buffer[BUFFER_BYTES];
};

static int64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Lateness is counted in classes 1/8 of their octave wide. */
static void note_lateness(struct dlcp_source *source, int64_t late_ns)
{
	uint64_t value = late_ns > 8 ? (uint64_t)late_ns : 8;
	int octave = 63 - __builtin_clzll(value);

	source->late[octave * 8 + ((value >> (octave - 3)) & 7)]++;
	if (late_ns > 0 && (uint64_t)late_ns > source->statistics.late_most_ns)
		source->statistics.late_most_ns = (uint64_t)late_ns;
}

static uint64_t late_quantile_ns(const struct dlcp_source *source)
{
	uint64_t total = 0, seen = 0;

	for (int i = 0; i < LATE_CLASSES; i++)
		total += source->late[i];
	for (int i = 0; total && i < LATE_CLASSES; i++) {
		seen += source->late[i];
		if ((double)seen >= LATE_QUANTILE * (double)total)
			return (uint64_t)(8 + i % 8 + 1) << (i / 8 - 3);
	}
	return 0;
}

static void fill_header(uint8_t *to, uint32_t cookie, uint32_t number, int64_t sent_ns)
{
	uint32_t words[2] = { htobe32(cookie), htobe32(number) };
	uint64_t sent = htobe64((uint64_t)sent_ns);

	memcpy(to, words, sizeof words);
	memcpy(to + sizeof words, &sent, sizeof sent);
}

static void send_datagrams(struct dlcp_source *source, struct lane *lane, uint64_t bytes)
{
	const struct dlcp_flow *flow = &lane->plan.flows[lane->next];
	uint16_t size = lane->plan.datagram_bytes;
	_Alignas(struct cmsghdr) uint8_t ancillary[CMSG_SPACE(sizeof size)] = { 0 };
	struct iovec piece = { source->buffer, bytes };
	struct msghdr message = { .msg_name = &source->sinks[flow->sink],
				  .msg_namelen = sizeof *source->sinks,
				  .msg_iov = &piece,
				  .msg_iovlen = 1 };
	int64_t sent_ns = now_ns(CLOCK_MONOTONIC);
	ssize_t sent;

	for (uint64_t at = 0; at < bytes; at += size)
		fill_header(source->buffer + at, source->cookie, flow->number, sent_ns);
	if (bytes > size) {
		struct cmsghdr *item = (struct cmsghdr *)ancillary;

		*item = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof size), .cmsg_level = IPPROTO_UDP, .cmsg_type = UDP_SEGMENT };
		memcpy(CMSG_DATA(item), &size, sizeof size);
		message.msg_control = ancillary;
		message.msg_controllen = sizeof ancillary;
	}
	do
		sent = sendmsg(lane->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	source->statistics.sends++;
	if (sent < 0) { /* no room: lost to the plan, counted, judged by the run */
		source->statistics.refused_bytes += bytes;
		return;
	}
	source->statistics.datagrams += lane_datagrams(lane, bytes);
	source->statistics.sent_bytes += bytes;
	source->statistics.offered_bytes += bytes;
	lane->plan.sent[lane->next].sent_bytes += bytes;
}

/* A reset rather than a farewell when data are left: nothing of a flow that is cut off goes on in the kernel. */
static void hang_up(struct connection *connection, bool cut)
{
	struct linger at_once = { .l_onoff = 1 };

	if (cut)
		setsockopt(connection->file, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(connection->file);
	connection->file = 0;
}

static void connect_flow(struct dlcp_source *source, uint32_t lane_index)
{
	struct lane *lane = &source->lanes[lane_index];
	const struct dlcp_flow *flow = &lane->plan.flows[lane->next];
	struct connection *connection = &lane->connections[lane->next];
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
				     .data.u64 = (uint64_t)lane_index << 32 | lane->next };
	int made = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int on = 1, tos = lane->plan.tos;
	struct sockaddr_in local = source->local;

	if (lane->plan.port)
		local.sin_port = htons((uint16_t)(lane->plan.port + flow->number % DLCP_TRAFFIC_PORTS));
	connection->left = flow->bytes;
	/* A port is shared by flows to several sinks; without one, the kernel chooses it when it knows the sink. */
	if (made > 0 && setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
	    setsockopt(made, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on) == 0 &&
	    bind(made, (struct sockaddr *)&local, sizeof local) == 0 &&
	    setsockopt(made, IPPROTO_IP, IP_TOS, &tos, sizeof tos) == 0 &&
	    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
	    epoll_ctl(source->epoll, EPOLL_CTL_ADD, made, &event) == 0 &&
	    (connect(made, (struct sockaddr *)&source->sinks[flow->sink], sizeof *source->sinks) == 0 || errno == EINPROGRESS)) {
		connection->file = made;
		source->statistics.offered_bytes += flow->bytes;
		return;
	}
	if (made > 0)
		close(made);
	source->statistics.failed_flows++;
}

/* Hand over as much as the connection takes; false when it is broken. */
static bool feed(struct dlcp_source *source, struct lane *lane, uint32_t index)
{
	struct connection *connection = &lane->connections[index];
	const struct dlcp_flow *flow = &lane->plan.flows[index];
	uint8_t header[DLCP_TRAFFIC_HEADER_BYTES];

	fill_header(header, source->cookie, flow->number, lane->plan.sent[index].started_ns);
	while (connection->left) {
		uint64_t done = flow->bytes - connection->left;
		size_t head = done < sizeof header ? sizeof header - done : 0;
		size_t body = connection->left - head < BUFFER_BYTES ? connection->left - head : BUFFER_BYTES;
		struct iovec pieces[2] = { { header + sizeof header - head, head }, { source->buffer, body } };
		struct msghdr message = { .msg_iov = head ? pieces : pieces + 1, .msg_iovlen = head ? 2 : 1 };
		ssize_t sent = sendmsg(connection->file, &message, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN;
		source->statistics.sends++;
		source->statistics.sent_bytes += (uint64_t)sent;
		lane->plan.sent[index].sent_bytes += (uint64_t)sent;
		connection->left -= (uint64_t)sent;
	}
	return true;
}

static void on_connection(struct dlcp_source *source, uint64_t which, uint32_t events)
{
	struct lane *lane = &source->lanes[which >> 32];
	struct connection *connection = &lane->connections[(uint32_t)which];
	bool broken = events & (EPOLLERR | EPOLLHUP);

	if (!connection->file)
		return;
	if (!broken && (events & EPOLLOUT))
		broken = !feed(source, lane, (uint32_t)which);
	if (broken || (events & EPOLLRDHUP)) { /* the sink says farewell when it has the last byte */
		if (broken || connection->left)
			source->statistics.failed_flows++;
		hang_up(connection, broken || connection->left);
	}
}

/* Do what is due next in a lane. */
static void perform(struct dlcp_source *source, struct lane *lane, int64_t now)
{
	int64_t late_ns = now - source->origin_ns - lane->due_ns;
	struct dlcp_flow_sent *sent = &lane->plan.sent[lane->next];
	uint64_t bytes = lane_due_bytes(lane);

	note_lateness(source, late_ns);
	if (!sent->started_ns) {
		sent->started_ns = now;
		source->statistics.started_flows++;
		source->statistics.due_flows++;
		source->statistics.late_flows += (double)late_ns > DLCP_TRAFFIC_LATE_NS * lane->plan.time_dilation;
	}
	if (lane->plan.tcp)
		connect_flow(source, (uint32_t)(lane - source->lanes));
	else
		send_datagrams(source, lane, bytes);
	source->statistics.due_bytes += bytes;
	lane_advance(lane, bytes);
}

static struct lane *earliest(struct dlcp_source *source)
{
	struct lane *first = source->lanes;

	for (uint32_t i = 1; i < source->lane_count; i++)
		if (source->lanes[i].due_ns < first->due_ns)
			first = &source->lanes[i];
	return first;
}

/* What was due at the end and was not done. */
static void account(struct dlcp_source *source, int64_t end_ns)
{
	for (uint32_t i = 0; i < source->lane_count; i++)
		for (struct lane *lane = &source->lanes[i]; lane->due_ns <= end_ns;) {
			uint64_t bytes = lane_due_bytes(lane);

			source->statistics.due_flows += lane->left == lane->plan.flows[lane->next].bytes;
			source->statistics.due_bytes += bytes;
			lane_advance(lane, bytes);
		}
}

/* Wait for events until timeout_ns have passed (negative: for ever); false when told to stop. */
static bool attend(struct dlcp_source *source, int64_t timeout_ns)
{
	struct timespec timeout = { .tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000 };
	struct epoll_event events[EVENTS];
	int count = epoll_pwait2(source->epoll, events, EVENTS, timeout_ns < 0 ? NULL : &timeout, NULL);

	for (int i = 0; i < count; i++) {
		if (events[i].data.u64 == STOP_EVENT)
			return false;
		on_connection(source, events[i].data.u64, events[i].events);
	}
	return true;
}

static void *run_source(void *argument)
{
	struct dlcp_source *source = argument;
	bool going = true;

	prctl(PR_SET_TIMERSLACK, 1);
	while (going) {
		struct lane *lane = earliest(source);
		int64_t wait_ns = -1;

		for (int done = 0; lane->due_ns != LANE_NEVER; done++, lane = earliest(source)) {
			int64_t now = now_ns(CLOCK_MONOTONIC);

			wait_ns = lane->due_ns - (now - source->origin_ns);
			if (wait_ns > 0 || done == SENDS_IN_A_ROW)
				break;
			perform(source, lane, now);
			wait_ns = -1;
		}
		going = attend(source, lane->due_ns == LANE_NEVER ? -1 : wait_ns > 0 ? wait_ns : 0);
	}
	source->statistics.stopped_ns = now_ns(CLOCK_MONOTONIC);
	account(source, source->statistics.stopped_ns - source->origin_ns);
	source->statistics.late_ns = late_quantile_ns(source);
	source->statistics.cpu_ns = (uint64_t)now_ns(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

static int open_lane(struct dlcp_source *source, struct lane *lane, const struct dlcp_lane *plan)
{
	int bytes = SEND_BUFFER_BYTES, tos = plan->tos;
	struct sockaddr_in local = source->local;

	lane_begin(lane, plan);
	if (plan->tcp) {
		lane->connections = calloc(plan->count ? plan->count : 1, sizeof *lane->connections);
		return lane->connections ? 0 : ENOMEM;
	}
	local.sin_port = htons(plan->port);
	lane->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (lane->socket <= 0 || setsockopt(lane->socket, IPPROTO_IP, IP_TOS, &tos, sizeof tos) < 0 ||
	    bind(lane->socket, (struct sockaddr *)&local, sizeof local) < 0)
		return errno;
	if (setsockopt(lane->socket, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) < 0)
		setsockopt(lane->socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
	return 0;
}

static int open_source(struct dlcp_source *source, const struct dlcp_lane *lanes, const struct dlcp_place *sinks)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = STOP_EVENT };
	const struct timespec at_once = { 0 };
	int error = 0;

	for (uint32_t i = 0; i < source->sink_count; i++) {
		source->sinks[i] = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(sinks[i].port) };
		memcpy(&source->sinks[i].sin_addr, sinks[i].address, sizeof sinks[i].address);
	}
	source->epoll = epoll_create1(EPOLL_CLOEXEC);
	source->stopping = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (source->epoll < 0 || source->stopping < 0 || epoll_ctl(source->epoll, EPOLL_CTL_ADD, source->stopping, &event) < 0)
		return errno;
	/* a kernel before 5.11 has no such call, and the thread would never wait */
	if (epoll_pwait2(source->epoll, &event, 1, &at_once, NULL) < 0)
		return errno;
	for (uint32_t i = 0; i < source->lane_count && !error; i++)
		error = lane_is_sound(&lanes[i], source->sink_count) ? open_lane(source, &source->lanes[i], &lanes[i]) : EINVAL;
	return error;
}

struct dlcp_source *dlcp_source_new(const char *address, uint32_t cookie, const struct dlcp_lane *lanes, uint32_t lane_count,
				    const struct dlcp_place *sinks, uint32_t sink_count)
{
	struct dlcp_source *source = calloc(1, sizeof *source);
	int error = ENOMEM;

	if (!source)
		return NULL;
	source->epoll = source->stopping = -1;
	source->cookie = cookie;
	source->lane_count = lane_count;
	source->sink_count = sink_count;
	source->local.sin_family = AF_INET;
	source->lanes = calloc(lane_count ? lane_count : 1, sizeof *source->lanes);
	source->sinks = calloc(sink_count ? sink_count : 1, sizeof *source->sinks);
	if (source->lanes && source->sinks)
		error = lane_count && inet_pton(AF_INET, address, &source->local.sin_addr) == 1 ?
				open_source(source, lanes, sinks) :
				EINVAL;
	if (!error)
		return source;
	dlcp_source_close(source);
	errno = error;
	return NULL;
}

int dlcp_source_start(struct dlcp_source *source, int64_t origin_ns)
{
	int error;

	if (source->running)
		return -EALREADY;
	source->origin_ns = origin_ns;
	error = pthread_create(&source->thread, NULL, run_source, source);
	source->running = !error;
	return -error;
}

void dlcp_source_stop(struct dlcp_source *source, struct dlcp_source_statistics *statistics)
{
	if (source->running) {
		eventfd_write(source->stopping, 1);
		pthread_join(source->thread, NULL);
		source->running = false;
		for (uint32_t i = 0; i < source->lane_count; i++)
			for (uint32_t j = 0; source->lanes[i].connections && j < source->lanes[i].plan.count; j++)
				if (source->lanes[i].connections[j].file)
					hang_up(&source->lanes[i].connections[j], true);
	}
	*statistics = source->statistics;
}

void dlcp_source_close(struct dlcp_source *source)
{
	struct dlcp_source_statistics unread;

	if (!source)
		return;
	dlcp_source_stop(source, &unread);
	for (uint32_t i = 0; source->lanes && i < source->lane_count; i++) {
		if (source->lanes[i].socket > 0)
			close(source->lanes[i].socket);
		free(source->lanes[i].connections);
	}
	if (source->epoll >= 0)
		close(source->epoll);
	if (source->stopping >= 0)
		close(source->stopping);
	free(source->lanes);
	free(source->sinks);
	free(source);
}
