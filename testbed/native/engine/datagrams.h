/* The engine's UDP sockets: batches in, GSO bursts out. Used by the engine's thread only; `peers` under its lock. */
#ifndef DLCP_DATAGRAMS_H
#define DLCP_DATAGRAMS_H

#include <netinet/in.h>
#include <stdbool.h>

#include "clock.h"
#include "engine.h"

enum {
	DATAGRAMS_BATCH = 64,
	MERGED_BATCH = 8, /* of datagrams that the kernel merged (UDP_GRO): half a megabyte, so that they stay in the cache */
	/* A merged one has up to 64 KiB. The odd rest keeps the heads of single ones out of each other's cache lines. */
	DATAGRAM_ROOM = 65536 + 2048 + 64,
	ANCILLARY_ROOM = 128,
	INPUT_PACKETS = DLCP_ACK_WINDOW / 2 - DLCP_BURST_PACKETS + 1, /* receivers acknowledge after half a bitmap at most */
};

/* Where a peer is: its address, the port that it listens at, and the ports that it sends from (that one first). */
struct peer_address {
	struct sockaddr_in listens;
	in_port_t ports[DLCP_SOURCE_PORTS_MOST];
	uint32_t count;
};

struct datagrams {
	struct dlcp_clock clock; /* what the engine's times are read from */
	int sockets[DLCP_SOURCE_PORTS_MOST]; /* the first sends and receives, others only send */
	uint16_t ports[DLCP_SOURCE_PORTS_MOST];
	int router; /* sends nothing: asked for the MTU of paths. In the same network namespace, whoever adds peers; 0 = none */
	uint32_t count, turn; /* turn: of the socket for the next burst of data */
	struct peer_address *peers; /* by rank; all zero: not added */
	uint32_t peer_room;         /* ranks that `peers` has room for */
	bool segmentation;
	uint32_t overflow;
	struct dlcp_burst burst; /* pending: what the socket has not taken yet, from packet `next` on */
	bool pending;
	int sender; /* the socket that it leaves from */
	uint32_t next;
	uint64_t pending_since_ns;
	int batch; /* datagrams to read at once */
	int read, taken; /* of the datagrams that were read, the protocol has taken so many */
	bool merged; /* some of them were */
	struct sockaddr_in from[DATAGRAMS_BATCH];
	uint8_t (*bytes)[DATAGRAM_ROOM];
	_Alignas(16) uint8_t ancillary[DATAGRAMS_BATCH][ANCILLARY_ROOM];
	uint32_t sizes[DATAGRAMS_BATCH];
	uint32_t ancillary_bytes[DATAGRAMS_BATCH];
	bool truncated[DATAGRAMS_BATCH];
	int receive_errno;
};

enum datagrams_sent { DATAGRAMS_SENT, DATAGRAMS_BLOCKED, DATAGRAMS_NO_BUFFER };

/* sockets.c */

/* Open and bind; false and an error's sentence otherwise. datagrams_close is due in both cases. */
bool datagrams_open(struct datagrams *datagrams, const struct dlcp_engine_config *config,
		    struct dlcp_engine_statistics *statistics, char *error, size_t error_bytes);
void datagrams_close(struct datagrams *datagrams);

/* What belongs into datagrams->peers; false and an error's sentence if the address is not an IPv4 address, there are too
 * many ports, or the path is known to carry only smaller packets. */
bool datagrams_peer_address(const struct datagrams *datagrams, const char *address, uint16_t port,
			    const uint16_t *source_ports, uint32_t source_count, struct peer_address *peer, char *error,
			    size_t error_bytes);

/* Room for a rank in datagrams->peers; false when there is no memory. */
bool datagrams_reserve_peer(struct datagrams *datagrams, uint16_t rank);

/* datagrams.c */

/* Read what is there, up to datagrams->batch datagrams; true if there may be more. Does not wait. */
bool datagrams_receive(struct datagrams *datagrams);

/* Give the protocol what was read, up to INPUT_PACKETS and the rest of a merged datagram, so that an acknowledgement may
 * leave before it could no longer tell of all. Returns the number of packets. */
uint32_t datagrams_input(struct datagrams *datagrams, struct dlcp_protocol *protocol, uint64_t now_ns,
			 struct dlcp_engine_statistics *statistics);

static inline bool datagrams_left(const struct datagrams *datagrams)
{
	return datagrams->taken < datagrams->read;
}

/* Forget what is pending: to the protocol a loss like any other. */
void datagrams_abandon(struct datagrams *datagrams, struct dlcp_engine_statistics *statistics);

/* True if what is pending reads the data of a message. */
bool datagrams_holds_data(const struct datagrams *datagrams);

/* Send the burst, or what is pending of it. Not DATAGRAMS_SENT: the rest stays pending. */
enum datagrams_sent datagrams_send(struct datagrams *datagrams, uint64_t now_ns,
				   struct dlcp_engine_statistics *statistics);

#endif
