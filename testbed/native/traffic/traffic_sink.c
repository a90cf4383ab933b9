/* The sink: one thread that reads datagrams and connections in batches, and takes only what a plan says will come.
 *
 * Instants are the kernel's, taken when a packet reached the host; so the thread may rest between batches without blurring
 * them, and what it costs does not grow with every packet's wake-up.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "traffic.h"

#ifndef SO_MEMINFO
#define SO_MEMINFO 55 /* asm-generic/socket.h, since 4.12 */
#endif

enum {
	BATCH = 64,
	BATCHES_IN_A_ROW = 1024, /* more datagrams than the buffer holds; then others are looked after, however many come */
	EVENTS = 64,
	RECEIVE_BUFFER_BYTES = 8 << 20,
	CONNECTIONS_MOST = 16384, /* at once; one that finds no room is hung up on */
	WAITING_CONNECTIONS = 1024,
	REST_NS = 10000000, /* of the lab, after a batch: at 1 Gbit/s a megabyte waits in the meantime, which the buffer holds */
	REST_TCP_NS = 1000000, /* where flows over TCP may come: their window must open in time */
	DILATION_MOST = 1000000, /* as the engine's */
	READ_BYTES = 1 << 20,
	ANCILLARY_BYTES = CMSG_SPACE(sizeof(struct timespec)),
};
enum { DATAGRAMS_EVENT = CONNECTIONS_MOST, LISTENER_EVENT, STOP_EVENT };

/* A connection: whose flow it is follows from its header, of which `got` bytes have come. */
struct guest {
	int file; /* 0: a free place */
	in_addr_t source;
	uint32_t number, got;
	uint64_t left;
	uint8_t header[DLCP_TRAFFIC_HEADER_BYTES];
};

struct dlcp_sink {
	uint32_t cookie, count, room, sources;
	int tos; /* of the listener, and so of connections that have not said whose they are */
	const struct dlcp_expected *expected;
	struct dlcp_arrival *arrivals;
	in_addr_t *from; /* every source of the plan once */
	struct guest *guests;
	uint32_t *free_places, free_count;
	int datagrams, listener, epoll, stopping;
	uint16_t port;
	pthread_t thread;
	bool running;
	int64_t realtime_ahead_ns, rest_ns;
	_Atomic uint64_t bytes;
	struct dlcp_sink_statistics statistics;
};

static bool set(int socket, int level, int option, int value)
{
	return setsockopt(socket, level, option, &value, sizeof value) == 0;
}

static int64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* When the kernel saw the packet that a message came from, in CLOCK_MONOTONIC; without the kernel's word, now. */
static int64_t arrival_ns(const struct dlcp_sink *sink, struct msghdr *message)
{
	struct timespec stamp;

	for (struct cmsghdr *item = CMSG_FIRSTHDR(message); item; item = CMSG_NXTHDR(message, item))
		if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SO_TIMESTAMPNS) {
			memcpy(&stamp, CMSG_DATA(item), sizeof stamp);
			return (int64_t)stamp.tv_sec * 1000000000 + stamp.tv_nsec - sink->realtime_ahead_ns;
		}
	return clock_ns(CLOCK_MONOTONIC);
}

static void count(struct dlcp_sink *sink, uint32_t number, uint64_t bytes, int64_t at_ns)
{
	struct dlcp_arrival *arrival = &sink->arrivals[number];

	arrival->bytes += bytes;
	if (at_ns > arrival->last_ns)
		arrival->last_ns = at_ns;
	sink->statistics.bytes += bytes;
	atomic_store_explicit(&sink->bytes, sink->statistics.bytes, memory_order_release);
}

/* The flow that a header names, if it is one of the plan that comes from there over that protocol; else -1. */
static int64_t flow_of(const struct dlcp_sink *sink, const uint8_t *header, in_addr_t source, bool tcp)
{
	uint32_t words[2];

	memcpy(words, header, sizeof words);
	words[1] = be32toh(words[1]);
	if (be32toh(words[0]) != sink->cookie || words[1] >= sink->count)
		return -1;
	if (memcmp(sink->expected[words[1]].source, &source, sizeof source) != 0 || !sink->expected[words[1]].tcp == tcp)
		return -1;
	return words[1];
}

static void take_datagram(struct dlcp_sink *sink, struct mmsghdr *one, const uint8_t *header)
{
	const struct sockaddr_in *from = one->msg_hdr.msg_name;
	int64_t number = one->msg_len < DLCP_TRAFFIC_HEADER_BYTES || one->msg_hdr.msg_namelen != sizeof *from ?
				 -1 :
				 flow_of(sink, header, from->sin_addr.s_addr, false);

	if (number < 0 || one->msg_len > sink->expected[number].bytes - sink->arrivals[number].bytes) {
		sink->statistics.strangers++;
		return;
	}
	sink->statistics.packets++;
	sink->statistics.datagram_bytes += one->msg_len;
	sink->arrivals[number].packets++;
	count(sink, (uint32_t)number, one->msg_len, arrival_ns(sink, &one->msg_hdr));
}

static void read_datagrams(struct dlcp_sink *sink)
{
	uint8_t headers[BATCH][DLCP_TRAFFIC_HEADER_BYTES]; /* the rest is of no interest: MSG_TRUNC tells the true length */
	_Alignas(struct cmsghdr) uint8_t ancillary[BATCH][ANCILLARY_BYTES];
	struct sockaddr_in names[BATCH];
	struct iovec pieces[BATCH];
	struct mmsghdr messages[BATCH];
	int found = BATCH;

	for (int done = 0; found == BATCH && done < BATCHES_IN_A_ROW; done++) {
		for (int i = 0; i < BATCH; i++) {
			pieces[i] = (struct iovec){ headers[i], sizeof headers[i] };
			messages[i] = (struct mmsghdr){ .msg_hdr = { .msg_name = &names[i],
								     .msg_namelen = sizeof names[i],
								     .msg_iov = &pieces[i],
								     .msg_iovlen = 1,
								     .msg_control = ancillary[i],
								     .msg_controllen = sizeof ancillary[i] } };
		}
		found = recvmmsg(sink->datagrams, messages, BATCH, MSG_DONTWAIT | MSG_TRUNC, NULL);
		for (int i = 0; i < found; i++)
			take_datagram(sink, &messages[i], headers[i]);
	}
}

static void dismiss(struct dlcp_sink *sink, struct guest *guest)
{
	close(guest->file);
	guest->file = 0;
	sink->free_places[sink->free_count++] = (uint32_t)(guest - sink->guests);
}

/* Read into `to`, or to nowhere when that is NULL; bytes read, 0 at the connection's end, or -1 when none are there yet. */
static ssize_t read_some(const struct dlcp_sink *sink, int file, uint8_t *to, size_t size, int64_t *at_ns)
{
	_Alignas(struct cmsghdr) uint8_t ancillary[ANCILLARY_BYTES];
	struct iovec piece = { to, size };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = ancillary, .msg_controllen = sizeof ancillary };
	ssize_t got = recvmsg(file, &message, MSG_DONTWAIT | (to ? 0 : MSG_TRUNC));

	if (got > 0)
		*at_ns = arrival_ns(sink, &message);
	else if (got < 0 && errno != EAGAIN && errno != EINTR)
		return 0;
	return got;
}

/* False when the connection is none of the plan's. */
static bool identify(struct dlcp_sink *sink, struct guest *guest, int64_t at_ns)
{
	int64_t number = flow_of(sink, guest->header, guest->source, true);

	if (number < 0 || sink->arrivals[number].claimed)
		return false;
	if (sink->expected[number].tos != sink->tos && !set(guest->file, IPPROTO_IP, IP_TOS, sink->expected[number].tos))
		return false;
	sink->arrivals[number].claimed = 1;
	guest->number = (uint32_t)number;
	guest->left = sink->expected[number].bytes - sizeof guest->header;
	count(sink, guest->number, sizeof guest->header, at_ns);
	return true;
}

static void read_guest(struct dlcp_sink *sink, struct guest *guest)
{
	int64_t at_ns;
	ssize_t got;

	if (guest->got < sizeof guest->header) {
		got = read_some(sink, guest->file, guest->header + guest->got, sizeof guest->header - guest->got, &at_ns);
		if (got < 0)
			return;
		guest->got += (uint32_t)got;
		if (!got || (guest->got == sizeof guest->header && !identify(sink, guest, at_ns))) {
			sink->statistics.strangers += got > 0; /* who hangs up first may be a flow that the end cut off */
			dismiss(sink, guest);
			return;
		}
		if (guest->got < sizeof guest->header)
			return;
	}
	while (guest->left) {
		got = read_some(sink, guest->file, NULL, guest->left < READ_BYTES ? guest->left : READ_BYTES, &at_ns);
		if (got < 0)
			return;
		if (!got) /* cut off by its source: what came is counted */
			break;
		guest->left -= (uint64_t)got;
		count(sink, guest->number, (uint64_t)got, at_ns);
	}
	dismiss(sink, guest);
}

static bool is_a_source(const struct dlcp_sink *sink, in_addr_t address)
{
	for (uint32_t i = 0; i < sink->sources; i++)
		if (sink->from[i] == address)
			return true;
	return false;
}

static void accept_guests(struct dlcp_sink *sink)
{
	struct sockaddr_in from;
	socklen_t size = sizeof from;

	for (int done = 0; done < WAITING_CONNECTIONS; done++) {
		int file = accept4(sink->listener, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct epoll_event event = { .events = EPOLLIN };
		struct guest *guest;

		if (file <= 0)
			return;
		if (!sink->free_count || !is_a_source(sink, from.sin_addr.s_addr)) {
			sink->statistics.strangers++;
			close(file);
			continue;
		}
		event.data.u32 = sink->free_places[--sink->free_count];
		guest = &sink->guests[event.data.u32];
		*guest = (struct guest){ .file = file, .source = from.sin_addr.s_addr };
		sink->statistics.connections++;
		if (epoll_ctl(sink->epoll, EPOLL_CTL_ADD, file, &event) < 0)
			dismiss(sink, guest);
	}
}

static void *run_sink(void *argument)
{
	struct dlcp_sink *sink = argument;
	const struct timespec rest = { .tv_sec = sink->rest_ns / 1000000000, .tv_nsec = sink->rest_ns % 1000000000 };
	bool stopping = false;

	while (!stopping) {
		struct epoll_event events[EVENTS];
		int found = epoll_wait(sink->epoll, events, EVENTS, -1);

		sink->realtime_ahead_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
		for (int i = 0; i < found; i++) {
			uint32_t which = events[i].data.u32;

			if (which == DATAGRAMS_EVENT)
				read_datagrams(sink);
			else if (which == LISTENER_EVENT)
				accept_guests(sink);
			else if (which == STOP_EVENT)
				stopping = true;
			else if (sink->guests[which].file)
				read_guest(sink, &sink->guests[which]);
		}
		if (!stopping)
			clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, NULL);
	}
	read_datagrams(sink);
	for (uint32_t i = 0; i < sink->room; i++)
		if (sink->guests[i].file)
			read_guest(sink, &sink->guests[i]);
	sink->statistics.cpu_ns = (uint64_t)clock_ns(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

/* Both protocols at one port. */
static bool open_sockets(struct dlcp_sink *sink, struct sockaddr_in local)
{
	socklen_t size = sizeof local;

	sink->datagrams = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	sink->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (sink->datagrams < 0 || sink->listener < 0)
		return false;
	if (!set(sink->datagrams, SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)) /* needs CAP_NET_ADMIN */
		set(sink->datagrams, SOL_SOCKET, SO_RCVBUF, RECEIVE_BUFFER_BYTES);
	if (!set(sink->datagrams, SOL_SOCKET, SO_TIMESTAMPNS, 1) || !set(sink->listener, SOL_SOCKET, SO_TIMESTAMPNS, 1) ||
	    !set(sink->listener, SOL_SOCKET, SO_REUSEADDR, 1) || !set(sink->listener, IPPROTO_IP, IP_TOS, sink->tos) ||
	    bind(sink->datagrams, (struct sockaddr *)&local, sizeof local) < 0 ||
	    getsockname(sink->datagrams, (struct sockaddr *)&local, &size) < 0 ||
	    bind(sink->listener, (struct sockaddr *)&local, sizeof local) < 0 || listen(sink->listener, WAITING_CONNECTIONS) < 0)
		return false;
	sink->port = ntohs(local.sin_port);
	return true;
}

static bool watch(const struct dlcp_sink *sink, int file, uint32_t name)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = name };

	return epoll_ctl(sink->epoll, EPOLL_CTL_ADD, file, &event) == 0;
}

/* Who may connect, and places for as many as may come at once. */
static bool make_room(struct dlcp_sink *sink)
{
	for (uint32_t i = 0; i < sink->count; i++) {
		in_addr_t source;

		memcpy(&source, sink->expected[i].source, sizeof source);
		if (sink->expected[i].tcp && sink->room < CONNECTIONS_MOST && !sink->room++)
			sink->tos = sink->expected[i].tos;
		if (!is_a_source(sink, source)) {
			in_addr_t *grown = realloc(sink->from, (sink->sources + 1) * sizeof *grown);

			if (!grown)
				return false;
			sink->from = grown;
			sink->from[sink->sources++] = source;
		}
	}
	sink->guests = calloc(sink->room + 1, sizeof *sink->guests);
	sink->free_places = calloc(sink->room + 1, sizeof *sink->free_places);
	for (uint32_t i = 0; sink->free_places && i < sink->room; i++)
		sink->free_places[sink->free_count++] = i;
	return sink->guests && sink->free_places;
}

struct dlcp_sink *dlcp_sink_new(const char *address, uint16_t port, uint32_t cookie, const struct dlcp_expected *expected,
				struct dlcp_arrival *arrivals, uint32_t count, double time_dilation)
{
	struct sockaddr_in local = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct dlcp_sink *sink = calloc(1, sizeof *sink);
	int error = EINVAL;

	if (!sink)
		return NULL;
	sink->datagrams = sink->listener = -1;
	sink->cookie = cookie;
	sink->count = count;
	sink->expected = expected;
	sink->arrivals = arrivals;
	sink->epoll = epoll_create1(EPOLL_CLOEXEC);
	sink->stopping = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (inet_pton(AF_INET, address, &local.sin_addr) == 1 && time_dilation >= 1 && time_dilation <= DILATION_MOST) {
		error = 0;
		if (sink->epoll < 0 || sink->stopping < 0 || !make_room(sink) || !open_sockets(sink, local) ||
		    !watch(sink, sink->datagrams, DATAGRAMS_EVENT) || !watch(sink, sink->listener, LISTENER_EVENT) ||
		    !watch(sink, sink->stopping, STOP_EVENT))
			error = errno;
		sink->rest_ns = (int64_t)((sink->room ? REST_TCP_NS : REST_NS) * time_dilation);
	}
	if (!error)
		error = pthread_create(&sink->thread, NULL, run_sink, sink);
	sink->running = !error;
	if (!error)
		return sink;
	dlcp_sink_close(sink);
	errno = error;
	return NULL;
}

int dlcp_sink_port(const struct dlcp_sink *sink)
{
	return sink->port;
}

uint64_t dlcp_sink_bytes(const struct dlcp_sink *sink)
{
	return atomic_load_explicit(&sink->bytes, memory_order_acquire);
}

void dlcp_sink_stop(struct dlcp_sink *sink, struct dlcp_sink_statistics *statistics)
{
	uint32_t memory[SK_MEMINFO_VARS] = { 0 };
	socklen_t size = sizeof memory;

	if (sink->running) {
		eventfd_write(sink->stopping, 1);
		pthread_join(sink->thread, NULL);
		sink->running = false;
		getsockopt(sink->datagrams, SOL_SOCKET, SO_MEMINFO, memory, &size);
		sink->statistics.overflow = memory[SK_MEMINFO_DROPS];
	}
	*statistics = sink->statistics;
}

void dlcp_sink_close(struct dlcp_sink *sink)
{
	struct dlcp_sink_statistics unread;

	if (!sink)
		return;
	const int files[] = { sink->datagrams, sink->listener, sink->epoll, sink->stopping };
	dlcp_sink_stop(sink, &unread);
	for (uint32_t i = 0; sink->guests && i < sink->room; i++)
		if (sink->guests[i].file)
			close(sink->guests[i].file);
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		if (files[i] >= 0)
			close(files[i]);
	free(sink->from);
	free(sink->guests);
	free(sink->free_places);
	free(sink);
}
