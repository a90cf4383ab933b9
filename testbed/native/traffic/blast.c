#define _GNU_SOURCE
#include "blast.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "traffic.h"

enum { BATCH = 32 };

int64_t dlcp_blast(int socket, uint32_t payload_bytes, uint64_t packets)
{
	static const uint8_t filling[DLCP_TRAFFIC_DATAGRAM_MOST];
	struct iovec piece = { (void *)filling, payload_bytes };
	struct mmsghdr messages[BATCH];
	uint64_t sent = 0;

	if (payload_bytes > DLCP_TRAFFIC_DATAGRAM_MOST)
		return -EMSGSIZE;
	memset(messages, 0, sizeof messages);
	for (int i = 0; i < BATCH; i++)
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &piece, .msg_iovlen = 1 };
	while (sent < packets) {
		uint64_t left = packets - sent;
		int taken = sendmmsg(socket, messages, left < BATCH ? (unsigned)left : BATCH, 0);

		if (taken >= 0)
			sent += (uint64_t)taken;
		else if (errno != EINTR)
			return -errno;
	}
	return (int64_t)sent;
}

int64_t dlcp_drain(int socket, uint64_t packets, uint32_t idle_ms)
{
	uint8_t byte[BATCH]; /* contents are of no interest: the rest of a datagram is cut off */
	struct iovec pieces[BATCH];
	struct mmsghdr messages[BATCH];
	uint64_t came = 0;

	memset(messages, 0, sizeof messages);
	for (int i = 0; i < BATCH; i++) {
		pieces[i] = (struct iovec){ &byte[i], 1 };
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &pieces[i], .msg_iovlen = 1 };
	}
	while (came < packets) {
		struct pollfd waiting = { .fd = socket, .events = POLLIN };
		int ready = poll(&waiting, 1, (int)idle_ms);
		int count = ready > 0 ? recvmmsg(socket, messages, BATCH, MSG_DONTWAIT, NULL) : ready;

		if (ready == 0)
			break;
		if (count > 0)
			came += (uint64_t)count;
		else if (errno != EINTR && errno != EAGAIN)
			return -errno;
	}
	return (int64_t)came;
}
