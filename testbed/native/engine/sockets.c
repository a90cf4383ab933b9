/* The engine's sockets: options, buffers, ports, and the addresses of peers. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "datagrams.h"

#ifndef UDP_GRO
#define UDP_GRO 104 /* linux/udp.h, since 5.0 */
#endif

#define DEFAULT_RECEIVE_BYTES (8u << 20)
/* The kernel holds a burst until it has left the host: what is fed ahead and caught up with is less than this much of the
 * link's time, and the kernel counts up to twice the bytes. */
#define SEND_BUFFER_S 2e-3
enum { PACKET_BYTES = DLCP_DATAGRAM_BYTES + 28 }; /* with UDP's and IPv4's headers */
enum { FIRST_PEERS = 16 };

static bool set(int socket, int level, int option, int value)
{
	return setsockopt(socket, level, option, &value, sizeof value) == 0;
}

/* A buffer of so many bytes, or as many as we may have; what the kernel gave, as it counts. */
static int set_buffer(int socket, int force, int option, int bytes)
{
	int effective = 0;
	socklen_t size = sizeof effective;

	if (!set(socket, SOL_SOCKET, force, bytes)) /* needs CAP_NET_ADMIN */
		set(socket, SOL_SOCKET, option, bytes);
	getsockopt(socket, SOL_SOCKET, option, &effective, &size);
	return effective;
}

/* Never less than the system's default. */
static void grow_send_buffer(int socket, double link_bps, struct dlcp_engine_statistics *statistics)
{
	double held = link_bps / 8 * SEND_BUFFER_S;
	int bytes = 0, wanted = (int)(held < INT32_MAX / 4 ? held : INT32_MAX / 4);
	socklen_t size = sizeof bytes;

	getsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, &size);
	if (bytes < wanted)
		bytes = set_buffer(socket, SO_SNDBUFFORCE, SO_SNDBUF, wanted);
	statistics->send_buffer_bytes = (uint64_t)bytes;
}

/* A UDP socket at an address and port (0 = any), which is returned too; -1 with errno. */
static int open_socket(struct sockaddr_in local, uint16_t *port)
{
	int made = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	socklen_t size = sizeof local;

	if (made >= 0 && set(made, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) &&
	    bind(made, (struct sockaddr *)&local, sizeof local) == 0 &&
	    getsockname(made, (struct sockaddr *)&local, &size) == 0) {
		*port = ntohs(local.sin_port);
		return made;
	}
	if (made >= 0)
		close(made);
	return -1;
}

/* The socket that receives. */
static bool open_first(struct datagrams *datagrams, const struct dlcp_engine_config *config,
		       const struct sockaddr_in *local, struct dlcp_engine_statistics *statistics)
{
	int made = datagrams->sockets[0] = open_socket(*local, &datagrams->ports[0]);

	if (made < 0 || !set(made, IPPROTO_IP, IP_RECVTOS, 1) || !set(made, SOL_SOCKET, SO_RXQ_OVFL, 1) ||
	    !set(made, SOL_SOCKET, SO_TIMESTAMPNS, 1))
		return false;
	set(made, IPPROTO_UDP, UDP_GRO, 1); /* an older kernel hands out every packet alone */
	statistics->receive_buffer_bytes = (uint64_t)set_buffer(
		made, SO_RCVBUFFORCE, SO_RCVBUF, (int)(config->receive_bytes ? config->receive_bytes : DEFAULT_RECEIVE_BYTES));
	return true;
}

/* One more socket, for sending alone: whatever comes to it is dropped. */
static bool open_another(struct datagrams *datagrams, struct sockaddr_in local)
{
	struct sock_filter nothing[] = { { .code = BPF_RET | BPF_K, .k = 0 } };
	struct sock_fprog filter = { .len = 1, .filter = nothing };
	int made;

	local.sin_port = 0;
	made = open_socket(local, &datagrams->ports[datagrams->count]);
	if (made < 0)
		return false;
	datagrams->sockets[datagrams->count++] = made;
	return setsockopt(made, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0 &&
	       set(made, SOL_SOCKET, SO_RCVBUF, 0); /* the kernel makes it its least */
}

bool datagrams_open(struct datagrams *datagrams, const struct dlcp_engine_config *config,
		    struct dlcp_engine_statistics *statistics, char *error, size_t error_bytes)
{
	struct sockaddr_in local = { .sin_family = AF_INET, .sin_port = htons(config->port) };
	uint32_t wanted = config->source_ports ? config->source_ports : 1;

	if (!memchr(config->address, 0, sizeof config->address) ||
	    inet_pton(AF_INET, config->address, &local.sin_addr) != 1) {
		snprintf(error, error_bytes, "\"%.15s\" is not an IPv4 address", config->address);
		return false;
	}
	if (wanted > DLCP_SOURCE_PORTS_MOST) {
		snprintf(error, error_bytes, "%u source ports: %u at most", wanted, DLCP_SOURCE_PORTS_MOST);
		return false;
	}
	datagrams->bytes = malloc(DATAGRAMS_BATCH * sizeof *datagrams->bytes);
	if (!datagrams->bytes) {
		snprintf(error, error_bytes, "no memory for datagrams");
		return false;
	}
	if (!open_first(datagrams, config, &local, statistics)) {
		snprintf(error, error_bytes, "UDP socket at %s port %u: %m", config->address, config->port);
		return false;
	}
	datagrams->router = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	for (datagrams->count = 1; datagrams->count < wanted;)
		if (!open_another(datagrams, local)) {
			snprintf(error, error_bytes, "UDP socket %u at %s: %m", datagrams->count, config->address);
			return false;
		}
	for (uint32_t i = 0; i < datagrams->count; i++)
		grow_send_buffer(datagrams->sockets[i], config->protocol.link_bps, statistics);
	datagrams->batch = MERGED_BATCH;
	datagrams->segmentation = !config->segmentation_off;
	return true;
}

void datagrams_close(struct datagrams *datagrams)
{
	if (datagrams->sockets[0] >= 0)
		close(datagrams->sockets[0]);
	if (datagrams->router > 0)
		close(datagrams->router);
	for (uint32_t i = 1; i < datagrams->count; i++)
		close(datagrams->sockets[i]);
	datagrams->sockets[0] = -1;
	datagrams->count = 0;
	free(datagrams->bytes);
	datagrams->bytes = NULL;
	free(datagrams->peers);
	datagrams->peers = NULL;
	datagrams->peer_room = 0;
}

bool datagrams_reserve_peer(struct datagrams *datagrams, uint16_t rank)
{
	uint32_t room = datagrams->peer_room ? datagrams->peer_room : FIRST_PEERS;
	struct peer_address *grown;

	while (room <= rank)
		room *= 2;
	if (room == datagrams->peer_room)
		return true;
	grown = realloc(datagrams->peers, room * sizeof *grown);
	if (!grown)
		return false;
	memset(grown + datagrams->peer_room, 0, (room - datagrams->peer_room) * sizeof *grown);
	datagrams->peers = grown;
	datagrams->peer_room = room;
	return true;
}

/* What the path to a peer is known to carry, in bytes; 0 = not known (no route yet). */
static int path_mtu(const struct datagrams *datagrams, const struct sockaddr_in *peer)
{
	int bytes = 0;
	socklen_t size = sizeof bytes;

	if (connect(datagrams->router, (const struct sockaddr *)peer, sizeof *peer) < 0 ||
	    getsockopt(datagrams->router, IPPROTO_IP, IP_MTU, &bytes, &size) < 0)
		return 0;
	return bytes;
}

/* R99 */
bool datagrams_peer_address(const struct datagrams *datagrams, const char *address, uint16_t port,
			    const uint16_t *source_ports, uint32_t source_count, struct peer_address *peer, char *error,
			    size_t error_bytes)
{
	int mtu;

	*peer = (struct peer_address){ .listens = { .sin_family = AF_INET, .sin_port = htons(port) }, .count = 1 };
	if (inet_pton(AF_INET, address, &peer->listens.sin_addr) != 1) {
		snprintf(error, error_bytes, "\"%s\" is not an IPv4 address", address);
		return false;
	}
	if (source_count >= DLCP_SOURCE_PORTS_MOST) {
		snprintf(error, error_bytes, "%u source ports besides %u: %u in all at most", source_count, port,
			 DLCP_SOURCE_PORTS_MOST);
		return false;
	}
	mtu = path_mtu(datagrams, &peer->listens);
	if (mtu && mtu < PACKET_BYTES) {
		snprintf(error, error_bytes, "the path to %s carries packets of %d bytes, DLCP's have %d: raise the MTU",
			 address, mtu, PACKET_BYTES);
		return false;
	}
	peer->ports[0] = peer->listens.sin_port;
	for (uint32_t i = 0; i < source_count; i++)
		peer->ports[peer->count++] = htons(source_ports[i]);
	return true;
}
