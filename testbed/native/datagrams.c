#define _GNU_SOURCE
#include "datagrams.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103 /* linux/udp.h, since 4.18 */
#endif

#define SECOND UINT64_C(1000000000)
#define DEFAULT_RECEIVE_BYTES (8u << 20)
enum { PREFETCH = 4 }; /* datagrams; the first look at each cost 0.15 us without (measured) */

static bool set(int socket, int level, int option, int value)
{
	return setsockopt(socket, level, option, &value, sizeof value) == 0;
}

/* As large a receive buffer as we may have; what the kernel gave is in the statistics. */
static void grow_buffer(int socket, uint32_t wanted, struct dlcp_engine_statistics *statistics)
{
	int bytes = (int)(wanted ? wanted : DEFAULT_RECEIVE_BYTES), effective = 0;
	socklen_t size = sizeof effective;

	if (!set(socket, SOL_SOCKET, SO_RCVBUFFORCE, bytes)) /* needs CAP_NET_ADMIN */
		set(socket, SOL_SOCKET, SO_RCVBUF, bytes);
	getsockopt(socket, SOL_SOCKET, SO_RCVBUF, &effective, &size);
	statistics->receive_buffer_bytes = (uint64_t)effective;
}

bool datagrams_open(struct datagrams *datagrams, const struct dlcp_engine_config *config,
		    struct dlcp_engine_statistics *statistics, char *error, size_t error_bytes)
{
	struct sockaddr_in local = { .sin_family = AF_INET, .sin_port = htons(config->port) };
	socklen_t size = sizeof local;

	if (!memchr(config->address, 0, sizeof config->address) ||
	    inet_pton(AF_INET, config->address, &local.sin_addr) != 1) {
		snprintf(error, error_bytes, "\"%.15s\" is not an IPv4 address", config->address);
		return false;
	}
	datagrams->socket = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (datagrams->socket < 0 || !set(datagrams->socket, IPPROTO_IP, IP_RECVTOS, 1) ||
	    !set(datagrams->socket, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) ||
	    !set(datagrams->socket, SOL_SOCKET, SO_RXQ_OVFL, 1) ||
	    !set(datagrams->socket, SOL_SOCKET, SO_TIMESTAMPNS, 1)) {
		snprintf(error, error_bytes, "UDP socket: %m");
		return false;
	}
	grow_buffer(datagrams->socket, config->receive_bytes, statistics);
	if (bind(datagrams->socket, (struct sockaddr *)&local, sizeof local) < 0 ||
	    getsockname(datagrams->socket, (struct sockaddr *)&local, &size) < 0) {
		snprintf(error, error_bytes, "bind to %s port %u: %m", config->address, config->port);
		return false;
	}
	datagrams->port = ntohs(local.sin_port);
	datagrams->segmentation = !config->segmentation_off;
	return true;
}

void datagrams_close(struct datagrams *datagrams)
{
	if (datagrams->socket >= 0)
		close(datagrams->socket);
	datagrams->socket = -1;
}

bool datagrams_peer_address(const char *address, uint16_t port, struct sockaddr_in *peer)
{
	*peer = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
	return inet_pton(AF_INET, address, &peer->sin_addr) == 1;
}

int datagrams_receive(struct datagrams *datagrams)
{
	struct mmsghdr messages[DATAGRAMS_BATCH];
	struct iovec pieces[DATAGRAMS_BATCH];
	int count;

	for (int i = 0; i < DATAGRAMS_BATCH; i++) {
		pieces[i] = (struct iovec){ datagrams->bytes[i], DATAGRAM_ROOM };
		messages[i] = (struct mmsghdr){ .msg_hdr = {
						       .msg_name = &datagrams->from[i],
						       .msg_namelen = sizeof datagrams->from[i],
						       .msg_iov = &pieces[i],
						       .msg_iovlen = 1,
						       .msg_control = datagrams->ancillary[i],
						       .msg_controllen = ANCILLARY_ROOM,
					       } };
	}
	count = recvmmsg(datagrams->socket, messages, DATAGRAMS_BATCH, MSG_DONTWAIT, NULL);
	datagrams->receive_errno = count < 0 ? errno : 0;
	for (int i = 0; i < count; i++) {
		datagrams->sizes[i] = messages[i].msg_len;
		datagrams->ancillary_bytes[i] = (uint32_t)messages[i].msg_hdr.msg_controllen;
		datagrams->truncated[i] = messages[i].msg_hdr.msg_flags & MSG_TRUNC;
	}
	return count < 0 ? 0 : count;
}

/* What came beside a datagram. */
struct ancillary {
	uint64_t real_ns; /* CLOCK_REALTIME of its arrival at this host; 0 = not told */
	uint8_t tos;
};

static struct ancillary read_ancillary(struct datagrams *datagrams, int i)
{
	struct msghdr message = { .msg_control = datagrams->ancillary[i],
				  .msg_controllen = datagrams->ancillary_bytes[i] };
	struct ancillary found = { 0 };

	for (struct cmsghdr *item = CMSG_FIRSTHDR(&message); item; item = CMSG_NXTHDR(&message, item)) {
		if (item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_TOS) {
			found.tos = *(uint8_t *)CMSG_DATA(item);
		} else if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SO_RXQ_OVFL) {
			memcpy(&datagrams->overflow, CMSG_DATA(item), sizeof datagrams->overflow);
		} else if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_TIMESTAMPNS) {
			struct timespec at;

			memcpy(&at, CMSG_DATA(item), sizeof at);
			found.real_ns = (uint64_t)at.tv_sec * SECOND + (uint64_t)at.tv_nsec;
		}
	}
	return found;
}

static bool same_address(const struct sockaddr_in *a, const struct sockaddr_in *b)
{
	return a->sin_addr.s_addr == b->sin_addr.s_addr && a->sin_port == b->sin_port;
}

/* When a datagram came, by the monotonic clock. Without this, the time that a busy machine takes to wake this thread
 * would look like a queue in the network. A stamp that makes no sense (the clock was set) counts as now. */
static uint64_t arrival_ns(const struct ancillary *ancillary, uint64_t real_now_ns, uint64_t now_ns)
{
	uint64_t age_ns = real_now_ns - ancillary->real_ns;

	return ancillary->real_ns && age_ns < SECOND ? now_ns - age_ns : now_ns;
}

void datagrams_input(struct datagrams *datagrams, struct dlcp_protocol *protocol, int count, uint64_t now_ns,
		     struct dlcp_engine_statistics *statistics)
{
	struct timespec real;
	uint64_t real_now_ns;

	if (datagrams->receive_errno && datagrams->receive_errno != EAGAIN && datagrams->receive_errno != EINTR)
		statistics->receive_errors++;
	clock_gettime(CLOCK_REALTIME, &real);
	real_now_ns = (uint64_t)real.tv_sec * SECOND + (uint64_t)real.tv_nsec;
	for (int i = 0; i < count; i++) {
		struct ancillary ancillary = read_ancillary(datagrams, i);
		uint32_t size = datagrams->sizes[i];
		uint16_t source;

		if (i + PREFETCH < count)
			__builtin_prefetch(datagrams->bytes[i + PREFETCH]);
		statistics->socket_overflow = datagrams->overflow;
		if (datagrams->truncated[i]) {
			statistics->truncated++;
			continue;
		}
		source = size >= DLCP_HEADER_BYTES ? dlcp_packet_source(datagrams->bytes[i]) : DLCP_MAX_RANKS;
		if (source < DLCP_MAX_RANKS && !same_address(&datagrams->from[i], &datagrams->peers[source])) {
			statistics->strange_address++;
			continue;
		}
		dlcp_protocol_input(protocol, datagrams->bytes[i], size, ancillary.tos,
				    arrival_ns(&ancillary, real_now_ns, now_ns), now_ns, datagrams->overflow);
	}
}

/* Add an int to a message's ancillary data. */
static void add_ancillary(struct msghdr *message, uint8_t *room, int level, int type, const void *value, size_t bytes)
{
	struct cmsghdr *item = (struct cmsghdr *)(void *)(room + message->msg_controllen);

	item->cmsg_level = level;
	item->cmsg_type = type;
	item->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(item), value, bytes);
	message->msg_controllen += CMSG_SPACE(bytes);
}

/* Packets first to first + count of the burst as one datagram, or as one to be segmented. */
static ssize_t send_packets(struct datagrams *datagrams, uint32_t first, uint32_t count)
{
	const struct dlcp_burst *burst = &datagrams->burst;
	_Alignas(16) uint8_t room[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint16_t))] = { 0 };
	struct iovec pieces[2 * DLCP_BURST_PACKETS];
	struct msghdr message = { .msg_name = &datagrams->peers[burst->peer],
				  .msg_namelen = sizeof datagrams->peers[0],
				  .msg_iov = pieces,
				  .msg_control = room };
	int tos = burst->tos;

	for (uint32_t i = first; i < first + count; i++) {
		pieces[message.msg_iovlen++] = (struct iovec){ (void *)(uintptr_t)burst->head[i], burst->head_bytes };
		if (burst->payload_bytes[i])
			pieces[message.msg_iovlen++] =
				(struct iovec){ (void *)(uintptr_t)burst->payload[i], burst->payload_bytes[i] };
	}
	add_ancillary(&message, room, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
	if (count > 1) {
		uint16_t segment = (uint16_t)(burst->head_bytes + burst->payload_bytes[first]);

		add_ancillary(&message, room, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment);
	}
	return sendmsg(datagrams->socket, &message, MSG_DONTWAIT);
}

/* An answer of the kernel that segmentation as such does not work here (old kernel, device without checksums). */
static bool refuses_segmentation(int error)
{
	return error == EIO || error == EINVAL || error == EOPNOTSUPP || error == ENOPROTOOPT;
}

void datagrams_abandon(struct datagrams *datagrams, struct dlcp_engine_statistics *statistics)
{
	statistics->abandoned += datagrams->burst.packets - datagrams->next;
	datagrams->pending = false;
}

bool datagrams_holds_data(const struct datagrams *datagrams)
{
	return datagrams->pending && datagrams->burst.payload_bytes[datagrams->next];
}

enum datagrams_sent datagrams_send(struct datagrams *datagrams, uint64_t now_ns,
				   struct dlcp_engine_statistics *statistics)
{
	const struct dlcp_burst *burst = &datagrams->burst;

	if (!datagrams->pending) {
		datagrams->pending = true;
		datagrams->next = 0;
		datagrams->pending_since_ns = now_ns;
		statistics->bursts++;
	}
	while (datagrams->next < burst->packets) {
		uint32_t rest = burst->packets - datagrams->next;
		uint32_t count = datagrams->segmentation ? rest : 1;

		if (send_packets(datagrams, datagrams->next, count) >= 0) {
			statistics->segmented_bursts += count > 1;
			datagrams->next += count;
		} else if (errno == EAGAIN) {
			statistics->blocked++;
			return DATAGRAMS_BLOCKED;
		} else if (errno == ENOBUFS || errno == ENOMEM) {
			statistics->no_buffer++;
			return DATAGRAMS_NO_BUFFER;
		} else if (count > 1 && refuses_segmentation(errno)) {
			statistics->segmentation_errno = errno;
			datagrams->segmentation = false;
		} else if (errno != EINTR) { /* no route, a filter: to the protocol a loss like any other */
			statistics->send_errors++;
			statistics->last_send_errno = errno;
			datagrams->next += count;
		}
	}
	datagrams->pending = false;
	return DATAGRAMS_SENT;
}
