/* Background traffic: paced bursts of plain UDP datagrams, and a sink that counts them. */
#ifndef DLCP_TRAFFIC_H
#define DLCP_TRAFFIC_H

#include <stdint.h>

/* cffi: begin */
struct dlcp_sink_statistics {
	uint64_t packets, bytes; /* UDP payload */
	uint64_t overflow;       /* datagrams that found the sink's buffer full */
};

struct dlcp_sink;

/* A UDP socket for dlcp_burst_send, bound to an IPv4 address and port (0 = any). Returns it or -errno. */
int dlcp_burst_open(const char *address, uint16_t port);
void dlcp_burst_close(int socket);

/* Send `bytes` (UDP payload, in datagrams of at most 1472) at rate_bps (bits of Ethernet frames a second; 0 = at once) and
 * return when the last one has left. Returns the datagrams sent, or -errno. */
int64_t dlcp_burst_send(int socket, const char *address, uint16_t port, uint64_t bytes, uint8_t tos, double rate_bps);

/* A thread that reads and counts everything that comes to an address and port (0 = any). NULL on failure: errno. */
struct dlcp_sink *dlcp_sink_new(const char *address, uint16_t port);
int dlcp_sink_port(const struct dlcp_sink *sink);
void dlcp_sink_statistics(struct dlcp_sink *sink, struct dlcp_sink_statistics *statistics);
void dlcp_sink_close(struct dlcp_sink *sink);
/* cffi: end */

#endif
