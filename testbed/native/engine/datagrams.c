#define _GNU_SOURCE
#include "datagrams.h"

#include <errno.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103 /* linux/udp.h, since 4.18 */
#endif

#ifndef UDP_GRO
#define UDP_GRO 104 /* since 5.0 */
#endif

#define SECOND UINT64_C(1000000000)
#define STAMP_AGE_MOST_NS SECOND /* nothing waits for longer in a socket whose engine runs */
enum { PREFETCH = 4 }; /* datagrams ahead of the one that is read */

bool datagrams_receive(struct datagrams *datagrams)
{
	struct mmsghdr messages[DATAGRAMS_BATCH];
	struct iovec pieces[DATAGRAMS_BATCH];
	int count;

	for (int i = 0; i < datagrams->batch; i++) {
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
	count = recvmmsg(datagrams->sockets[0], messages, (unsigned int)datagrams->batch, MSG_DONTWAIT, NULL);
	datagrams->receive_errno = count < 0 ? errno : 0;
	for (int i = 0; i < count; i++) {
		datagrams->sizes[i] = messages[i].msg_len;
		datagrams->ancillary_bytes[i] = (uint32_t)messages[i].msg_hdr.msg_controllen;
		datagrams->truncated[i] = messages[i].msg_hdr.msg_flags & MSG_TRUNC;
	}
	datagrams->read = count < 0 ? 0 : count;
	datagrams->taken = 0;
	datagrams->merged = false;
	return count == datagrams->batch;
}

/* What came beside a datagram. */
struct ancillary {
	uint64_t real_ns; /* CLOCK_REALTIME of its arrival at this host; 0 = not told */
	uint32_t segment; /* the size of the datagrams that the kernel merged; 0 = it is one */
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
		} else if (item->cmsg_level == IPPROTO_UDP && item->cmsg_type == UDP_GRO) {
			int segment;

			memcpy(&segment, CMSG_DATA(item), sizeof segment);
			found.segment = segment > 0 ? (uint32_t)segment : 0;
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

/* True if a datagram came from where a peer sends. R98. */
static bool comes_from(const struct sockaddr_in *from, const struct peer_address *peer)
{
	if (from->sin_addr.s_addr != peer->listens.sin_addr.s_addr)
		return false;
	for (uint32_t i = 0; i < peer->count; i++)
		if (from->sin_port == peer->ports[i])
			return true;
	return false;
}

/* When a datagram came, in lab time as now_ns. Without this, the time that a busy machine takes to wake this thread
 * would look like a queue in the network. A stamp that makes no sense (the clock was set) counts as now. */
static uint64_t arrival_ns(const struct dlcp_clock *clock, const struct ancillary *ancillary, uint64_t real_now_ns,
			   uint64_t now_ns)
{
	uint64_t age_ns = dlcp_clock_lab_duration(clock, real_now_ns - ancillary->real_ns);

	return ancillary->real_ns && age_ns < STAMP_AGE_MOST_NS ? now_ns - age_ns : now_ns;
}

/* One datagram, which is not a merged one. */
static void input_one(struct datagrams *datagrams, struct dlcp_protocol *protocol, const struct sockaddr_in *from,
		      const uint8_t *bytes, uint32_t size, uint8_t tos, uint64_t arrival_ns, uint64_t now_ns,
		      struct dlcp_engine_statistics *statistics)
{
	uint16_t source = size >= DLCP_HEADER_BYTES ? dlcp_packet_source(bytes) : DLCP_MAX_RANKS;

	if (source < DLCP_MAX_RANKS &&
	    (source >= datagrams->peer_room || !comes_from(from, &datagrams->peers[source]))) {
		statistics->strange_address++;
		return;
	}
	dlcp_protocol_input(protocol, bytes, size, tos, arrival_ns, now_ns, datagrams->overflow);
}

/* The packets of one datagram as it was read: one, or several of one size that the kernel merged. R95. */
static uint32_t input_datagram(struct datagrams *datagrams, struct dlcp_protocol *protocol, int i, uint64_t real_now_ns,
			       uint64_t now_ns, struct dlcp_engine_statistics *statistics)
{
	struct ancillary ancillary = read_ancillary(datagrams, i);
	uint32_t size = datagrams->sizes[i], segment = ancillary.segment ? ancillary.segment : size;
	uint64_t at_ns = arrival_ns(&datagrams->clock, &ancillary, real_now_ns, now_ns);
	uint32_t offset = 0, packets = 0;

	statistics->socket_overflow = datagrams->overflow;
	if (datagrams->truncated[i]) {
		statistics->truncated++;
		return 0;
	}
	do { /* an empty datagram is one, too */
		uint32_t rest = size - offset;

		__builtin_prefetch(datagrams->bytes[i] + offset + segment); /* the next one's header */
		input_one(datagrams, protocol, &datagrams->from[i], datagrams->bytes[i] + offset,
			  rest < segment ? rest : segment, ancillary.tos, at_ns, now_ns, statistics);
		offset += segment;
		packets++;
	} while (offset < size);
	if (ancillary.segment) {
		datagrams->merged = true;
		statistics->merged_packets += packets;
	}
	return packets;
}

uint32_t datagrams_input(struct datagrams *datagrams, struct dlcp_protocol *protocol, uint64_t now_ns,
			 struct dlcp_engine_statistics *statistics)
{
	struct timespec real;
	uint64_t real_now_ns;
	uint32_t packets = 0;

	if (datagrams->receive_errno && datagrams->receive_errno != EAGAIN && datagrams->receive_errno != EINTR)
		statistics->receive_errors++;
	clock_gettime(CLOCK_REALTIME, &real);
	real_now_ns = (uint64_t)real.tv_sec * SECOND + (uint64_t)real.tv_nsec;
	while (datagrams_left(datagrams) && packets < INPUT_PACKETS) {
		int i = datagrams->taken++;

		if (i + PREFETCH < datagrams->read)
			__builtin_prefetch(datagrams->bytes[i + PREFETCH]);
		packets += input_datagram(datagrams, protocol, i, real_now_ns, now_ns, statistics);
	}
	if (datagrams->read && !datagrams_left(datagrams))
		datagrams->batch = datagrams->merged ? MERGED_BATCH : DATAGRAMS_BATCH;
	return packets;
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

/* Packets first to first + count of the burst as one datagram, or as one to be segmented. R94. */
static ssize_t send_packets(struct datagrams *datagrams, uint32_t first, uint32_t count)
{
	const struct dlcp_burst *burst = &datagrams->burst;
	_Alignas(16) uint8_t room[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint16_t))] = { 0 };
	struct iovec pieces[2 * DLCP_BURST_PACKETS];
	struct msghdr message = { .msg_name = &datagrams->peers[burst->peer].listens,
				  .msg_namelen = sizeof datagrams->peers[0].listens,
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
	return sendmsg(datagrams->sender, &message, MSG_DONTWAIT);
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

/* Bursts of data leave from each port in turn, all else from the first: paths carry the same number of bursts. R97. */
static int next_sender(struct datagrams *datagrams)
{
	if (!datagrams->burst.payload_bytes[0])
		return datagrams->sockets[0];
	datagrams->turn = (datagrams->turn + 1) % datagrams->count;
	return datagrams->sockets[datagrams->turn];
}

enum datagrams_sent datagrams_send(struct datagrams *datagrams, uint64_t now_ns,
				   struct dlcp_engine_statistics *statistics)
{
	const struct dlcp_burst *burst = &datagrams->burst;

	if (!datagrams->pending) {
		datagrams->pending = true;
		datagrams->next = 0;
		datagrams->pending_since_ns = now_ns;
		datagrams->sender = next_sender(datagrams);
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
			/* R99 */
			statistics->too_large += errno == EMSGSIZE ? count : 0;
			statistics->last_send_errno = errno;
			datagrams->next += count;
		}
	}
	datagrams->pending = false;
	return DATAGRAMS_SENT;
}
