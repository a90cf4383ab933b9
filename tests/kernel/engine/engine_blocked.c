/* The engine over loopback with a socket that takes nothing for a while, for AddressSanitizer and ThreadSanitizer.
 *
 * sendmsg is wrapped (-Wl,--wrap=sendmsg): it reads every byte that it is given, so that a sanitizer sees whose memory that
 * is, and can be told to refuse. Prints what was broken; exit 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "engine.h"

enum { PACKETS = 200, ELEMENTS = PACKETS * DLCP_PACKET_ELEMENTS };
#define SECOND UINT64_C(1000000000)
#define MILLISECOND UINT64_C(1000000)

static atomic_long passing = -1; /* data packets of rank 0 that may still leave; -1: all */
static atomic_bool blocked;      /* nothing of rank 0 leaves */
static atomic_long refusals;     /* so many of rank 0's bursts of data find no buffer */
static atomic_uint sum;

ssize_t __real_sendmsg(int socket, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int socket, const struct msghdr *message, int flags);

ssize_t __wrap_sendmsg(int socket, const struct msghdr *message, int flags)
{
	const uint8_t *head = message->msg_iov[0].iov_base;
	unsigned int total = 0;

	for (size_t i = 0; i < message->msg_iovlen; i++)
		for (size_t at = 0; at < message->msg_iov[i].iov_len; at++)
			total += ((const uint8_t *)message->msg_iov[i].iov_base)[at];
	atomic_store(&sum, total);
	if (dlcp_packet_source(head) == 0 && (head[0] & 15) == DLCP_DATA && atomic_fetch_sub(&refusals, 1) > 0) {
		errno = ENOBUFS;
		return -1;
	}
	if (dlcp_packet_source(head) == 0 && (atomic_load(&blocked) || ((head[0] & 15) == DLCP_DATA && !atomic_load(&passing)))) {
		errno = EAGAIN;
		return -1;
	}
	if (dlcp_packet_source(head) == 0 && (head[0] & 15) == DLCP_DATA && atomic_load(&passing) > 0) {
		long left = atomic_load(&passing) - (long)message->msg_iovlen / 2;

		atomic_store(&passing, left > 0 ? left : 0);
	}
	return __real_sendmsg(socket, message, flags);
}

static int broken(const char *what)
{
	printf("broken: %s\n", what);
	return 1;
}

static struct dlcp_engine *engine(uint16_t rank)
{
	struct dlcp_engine_config config = { .address = "127.0.0.1" };
	struct dlcp_tensor shape = { .elements = ELEMENTS, .bound = { { 500000, DLCP_PPM } }, .queue = 3 };
	char error[DLCP_ERROR_BYTES];
	struct dlcp_engine *made;

	config.protocol = (struct dlcp_config){ .cookie = 9, .rank = rank, .link_bps = 1e9, .eager_stop = 1,
						.congestion_control = "timely", .silence_ns = 500 * MILLISECOND };
	made = dlcp_engine_new(&config, error, sizeof error);
	if (!made || dlcp_engine_declare(made, 0, &shape)) {
		printf("%s\n", error);
		exit(1);
	}
	return made;
}

static int wait_one(struct dlcp_engine *at)
{
	struct dlcp_completion completion;

	return dlcp_engine_wait(at, 5 * SECOND, &completion, 1);
}

/* Half of the message arrives and is enough; the rest waits for the socket when STOP comes and its data are freed. */
static int stopped_while_blocked(struct dlcp_engine *a, struct dlcp_engine *b, uint32_t iteration)
{
	struct dlcp_key key = { .iteration = iteration };
	float *data = calloc(ELEMENTS, sizeof *data), *got = calloc(ELEMENTS, sizeof *got);

	atomic_store(&passing, PACKETS / 2);
	if (dlcp_engine_receive(b, 0, &key, &(struct dlcp_destination){ .buffer = got, .elements = ELEMENTS }) ||
	    dlcp_engine_send(a, 1, &key, &(struct dlcp_source){ .data = data, .elements = ELEMENTS }))
		return broken("submission");
	if (wait_one(b) != 1 || wait_one(a) != 1)
		return broken("half of a message is enough");
	free(data);
	free(got);
	atomic_store(&passing, -1);
	return 0;
}

/* Again, until a burst was pending when STOP came: which comes first, STOP or the next burst, is chance. */
static int stopped_until_abandoned(struct dlcp_engine *a, struct dlcp_engine *b)
{
	struct dlcp_engine_statistics statistics = { 0 };

	for (uint32_t iteration = 1; iteration <= 100 && !statistics.abandoned; iteration++) {
		if (stopped_while_blocked(a, b, iteration))
			return 1;
		dlcp_engine_statistics(a, &statistics);
	}
	return statistics.blocked && statistics.abandoned ? 0 : broken("nothing was pending: the test shows nothing");
}

/* A kernel that has no buffer for a while delays a message and does not end it. */
static int without_buffers(struct dlcp_engine *a, struct dlcp_engine *b)
{
	struct dlcp_engine_statistics before, after;
	struct dlcp_key key = { .iteration = 500 };
	float *data = calloc(ELEMENTS, sizeof *data), *got = calloc(ELEMENTS, sizeof *got);

	dlcp_engine_statistics(a, &before);
	atomic_store(&refusals, 20);
	if (dlcp_engine_receive(b, 0, &key, &(struct dlcp_destination){ .buffer = got, .elements = ELEMENTS }) ||
	    dlcp_engine_send(a, 1, &key, &(struct dlcp_source){ .data = data, .elements = ELEMENTS }))
		return broken("submission");
	if (wait_one(b) != 1 || wait_one(a) != 1)
		return broken("a message that found no buffers");
	dlcp_engine_statistics(a, &after);
	free(data);
	free(got);
	return after.no_buffer - before.no_buffer == 20 ? 0 : broken("the kernel refused 20 bursts");
}

/* A host whose socket takes nothing any more still learns that its peer says nothing. */
static int silent_while_blocked(struct dlcp_engine *a)
{
	struct dlcp_key key = { .iteration = 1000 };
	float *data = calloc(ELEMENTS, sizeof *data);
	int code;

	atomic_store(&blocked, true);
	if (dlcp_engine_send(a, 1, &key, &(struct dlcp_source){ .data = data, .elements = ELEMENTS }))
		return broken("submission");
	code = wait_one(a);
	atomic_store(&blocked, false);
	dlcp_engine_close(a);
	free(data);
	return code == DLCP_ERROR_PEER_GONE ? 0 : broken("a peer that is silent is gone");
}

int main(void)
{
	struct dlcp_engine *a = engine(0), *b = engine(1);
	int wrong;

	if (dlcp_engine_add_peer(a, 1, "127.0.0.1", (uint16_t)dlcp_engine_port(b), NULL, 0) ||
	    dlcp_engine_add_peer(b, 0, "127.0.0.1", (uint16_t)dlcp_engine_port(a), NULL, 0))
		return broken("peers");
	wrong = stopped_until_abandoned(a, b) || without_buffers(a, b);
	dlcp_engine_close(b);
	return wrong || silent_while_blocked(a);
}
