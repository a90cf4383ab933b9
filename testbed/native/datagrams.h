/* The engine's UDP socket: batches in, GSO bursts out. Used by the engine's thread only; `peers` under its lock. */
#ifndef DLCP_DATAGRAMS_H
#define DLCP_DATAGRAMS_H

#include <netinet/in.h>
#include <stdbool.h>

#include "engine.h"

enum {
	DATAGRAMS_BATCH = 64,
	DATAGRAM_ROOM = 2048,  /* more than the largest valid datagram, so that a longer one shows itself */
	ANCILLARY_ROOM = 128,
};

struct datagrams {
	int socket;
	uint16_t port;
	struct sockaddr_in peers[DLCP_MAX_RANKS];
	bool segmentation;
	uint32_t overflow;
	struct dlcp_burst burst; /* pending: what the socket has not taken yet, from packet `next` on */
	bool pending;
	uint32_t next;
	uint64_t pending_since_ns;
	struct sockaddr_in from[DATAGRAMS_BATCH];
	uint8_t bytes[DATAGRAMS_BATCH][DATAGRAM_ROOM];
	_Alignas(16) uint8_t ancillary[DATAGRAMS_BATCH][ANCILLARY_ROOM];
	uint32_t sizes[DATAGRAMS_BATCH];
	uint32_t ancillary_bytes[DATAGRAMS_BATCH];
	bool truncated[DATAGRAMS_BATCH];
	int receive_errno;
};

enum datagrams_sent { DATAGRAMS_SENT, DATAGRAMS_BLOCKED, DATAGRAMS_NO_BUFFER };

/* Open and bind; false and an error's sentence otherwise. */
bool datagrams_open(struct datagrams *datagrams, const struct dlcp_engine_config *config,
		    struct dlcp_engine_statistics *statistics, char *error, size_t error_bytes);
void datagrams_close(struct datagrams *datagrams);

/* What belongs into datagrams->peers; false if the address is not an IPv4 address. */
bool datagrams_peer_address(const char *address, uint16_t port, struct sockaddr_in *peer);

/* Read what is there, up to DATAGRAMS_BATCH; returns the number. Does not wait. */
int datagrams_receive(struct datagrams *datagrams);

/* Give what was read to the protocol. */
void datagrams_input(struct datagrams *datagrams, struct dlcp_protocol *protocol, int count, uint64_t now_ns,
		     struct dlcp_engine_statistics *statistics);

/* Forget what is pending: to the protocol a loss like any other. */
void datagrams_abandon(struct datagrams *datagrams, struct dlcp_engine_statistics *statistics);

/* True if what is pending reads the data of a message. */
bool datagrams_holds_data(const struct datagrams *datagrams);

/* Send the burst, or what is pending of it. Not DATAGRAMS_SENT: the rest stays pending. */
enum datagrams_sent datagrams_send(struct datagrams *datagrams, uint64_t now_ns,
				   struct dlcp_engine_statistics *statistics);

#endif
