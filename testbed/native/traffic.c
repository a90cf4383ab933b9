#define _GNU_SOURCE
#include "traffic.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>


enum {
	DATAGRAM = 1472,
	FRAME_OVERHEAD = 42, /* UDP, IPv4, Ethernet */
	SINK_BATCH = 32,
	SINK_RECEIVE_BYTES = 4 << 20,
	SINK_POLL_MS = 100, /* how long closing may take */
};

/* A sender that was held up may catch up at most this much of its own time: a pace that was missed is not a new burst. */
#define CATCH_UP_NS 500000.0

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void sleep_until(double at_ns)
{
	struct timespec at = { .tv_sec = (time_t)(at_ns / 1e9), .tv_nsec = (long)(at_ns - (double)(time_t)(at_ns / 1e9) * 1e9) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
}

static int bound_socket(const char *address, uint16_t port)
{
	struct sockaddr_in local = { .sin_family = AF_INET, .sin_port = htons(port) };
	int file, error;

	if (inet_pton(AF_INET, address, &local.sin_addr) != 1)
		return -EINVAL;
	file = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (file >= 0 && bind(file, (struct sockaddr *)&local, sizeof local) == 0)
		return file;
	error = errno;
	if (file >= 0)
		close(file);
	return -error;
}

int dlcp_burst_open(const char *address, uint16_t port)
{
	return bound_socket(address, port);
}

void dlcp_burst_close(int socket)
{
	close(socket);
}

int64_t dlcp_burst_send(int socket, const char *address, uint16_t port, uint64_t bytes, uint8_t tos, double rate_bps)
{
	static const uint8_t filling[DATAGRAM];
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	double next_ns = now_ns();
	int64_t packets = 0;
	int value = tos;

	if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
		return -EINVAL;
	if (setsockopt(socket, IPPROTO_IP, IP_TOS, &value, sizeof value) < 0)
		return -errno;
	prctl(PR_SET_TIMERSLACK, 1);
	while (bytes) {
		size_t size = bytes < DATAGRAM ? bytes : DATAGRAM;
		double now = now_ns();

		if (rate_bps > 0 && next_ns > now)
			sleep_until(next_ns);
		else if (now - next_ns > CATCH_UP_NS)
			next_ns = now - CATCH_UP_NS;
		if (sendto(socket, filling, size, 0, (struct sockaddr *)&to, sizeof to) < 0) {
			if (errno == EINTR)
				continue;
			if (errno != ENOBUFS) /* the device's queue is full: that datagram is lost, as on any link */
				return -errno;
		}
		packets++;
		bytes -= size;
		if (rate_bps > 0)
			next_ns += (double)(size + FRAME_OVERHEAD) * 8e9 / rate_bps;
	}
	return packets;
}

struct dlcp_sink {
	int socket;
	uint16_t port;
	pthread_t thread;
	atomic_bool closing;
	atomic_uint_fast64_t packets, bytes, overflow;
};

static void note_overflow(struct dlcp_sink *sink, struct msghdr *message)
{
	for (struct cmsghdr *item = CMSG_FIRSTHDR(message); item; item = CMSG_NXTHDR(message, item))
		if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SO_RXQ_OVFL) {
			uint32_t dropped;

			memcpy(&dropped, CMSG_DATA(item), sizeof dropped);
			atomic_store(&sink->overflow, dropped);
		}
}

static void *run_sink(void *argument)
{
	struct dlcp_sink *sink = argument;
	uint8_t byte[SINK_BATCH]; /* contents are of no interest: MSG_TRUNC tells the true size */
	_Alignas(16) uint8_t ancillary[SINK_BATCH][CMSG_SPACE(sizeof(uint32_t))];
	struct iovec pieces[SINK_BATCH];
	struct mmsghdr messages[SINK_BATCH];

	while (!atomic_load(&sink->closing)) {
		int count;

		for (int i = 0; i < SINK_BATCH; i++) {
			pieces[i] = (struct iovec){ &byte[i], 1 };
			messages[i] = (struct mmsghdr){ .msg_hdr = { .msg_iov = &pieces[i],
								     .msg_iovlen = 1,
								     .msg_control = ancillary[i],
								     .msg_controllen = sizeof ancillary[i] } };
		}
		count = recvmmsg(sink->socket, messages, SINK_BATCH, MSG_WAITFORONE | MSG_TRUNC, NULL);
		for (int i = 0; i < count; i++) {
			atomic_fetch_add(&sink->packets, 1);
			atomic_fetch_add(&sink->bytes, messages[i].msg_len);
			note_overflow(sink, &messages[i].msg_hdr);
		}
	}
	return NULL;
}

struct dlcp_sink *dlcp_sink_new(const char *address, uint16_t port)
{
	struct timeval patience = { .tv_usec = SINK_POLL_MS * 1000 };
	struct sockaddr_in local;
	socklen_t size = sizeof local;
	struct dlcp_sink *sink = calloc(1, sizeof *sink);
	int on = 1, bytes = SINK_RECEIVE_BYTES, error;

	if (!sink)
		return NULL;
	sink->socket = bound_socket(address, port);
	error = sink->socket < 0 ? -sink->socket : 0;
	if (!error && (setsockopt(sink->socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0 ||
		       setsockopt(sink->socket, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on) < 0 ||
		       getsockname(sink->socket, (struct sockaddr *)&local, &size) < 0))
		error = errno;
	if (!error) {
		sink->port = ntohs(local.sin_port);
		if (setsockopt(sink->socket, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0)
			setsockopt(sink->socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
		error = pthread_create(&sink->thread, NULL, run_sink, sink);
	}
	if (error) {
		if (sink->socket >= 0)
			close(sink->socket);
		free(sink);
		errno = error;
		return NULL;
	}
	return sink;
}

int dlcp_sink_port(const struct dlcp_sink *sink)
{
	return sink->port;
}

void dlcp_sink_statistics(struct dlcp_sink *sink, struct dlcp_sink_statistics *statistics)
{
	*statistics = (struct dlcp_sink_statistics){
		.packets = atomic_load(&sink->packets),
		.bytes = atomic_load(&sink->bytes),
		.overflow = atomic_load(&sink->overflow),
	};
}

void dlcp_sink_close(struct dlcp_sink *sink)
{
	if (!sink)
		return;
	atomic_store(&sink->closing, true);
	pthread_join(sink->thread, NULL);
	close(sink->socket);
	free(sink);
}
