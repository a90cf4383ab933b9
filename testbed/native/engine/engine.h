/* The protocol with real sockets: one thread per process that never spins and never needs the caller's thread.
 *
 * Functions that return int give 0 (or a count) or a negative enum dlcp_error; dlcp_engine_error() has the sentence.
 * Any thread may call; one at a time waits. The engine's own thread does the rest.
 *
 * Under time dilation all that the engine and the protocol do by themselves, they do in lab time. Every instant and duration
 * that a call passes or returns (deadlines, timeouts, completions, round-trip times) is of this host: CLOCK_MONOTONIC.
 */
#ifndef DLCP_ENGINE_H
#define DLCP_ENGINE_H

#include "protocol.h"

/* cffi: begin */
enum { DLCP_SOURCE_PORTS_MOST = 16 };

/* Times in it, the protocol's too, are in lab time; link_bps is the rate of this host's link as it is. */
struct dlcp_engine_config {
	struct dlcp_config protocol;
	double time_dilation;     /* a second of the lab takes so many here; at least 1, 0 = 1. See clock.h */
	char address[16];         /* IPv4 to bind, dotted */
	uint16_t port;            /* 0 = any */
	uint32_t receive_bytes;   /* wanted receive buffer; 0 = 8 MB */
	uint64_t linger_ns;       /* close answers peers until they are quiet for so long; 0 = 100 ms */
	uint8_t segmentation_off; /* 1: never use UDP_SEGMENT */
	uint32_t source_ports;    /* bursts of data leave from so many ports in turn; 0 = 1 */
};

struct dlcp_engine_statistics {
	struct dlcp_statistics protocol;
	uint64_t socket_overflow;      /* datagrams that found this socket's buffer full */
	uint64_t receive_buffer_bytes; /* effective, as the kernel counts it */
	uint64_t send_buffer_bytes;    /* the same, of one socket */
	uint64_t merged_packets;       /* that the kernel handed over several at a time (UDP_GRO) */
	uint64_t bursts, segmented_bursts;
	int32_t segmentation_errno;    /* why UDP_SEGMENT is not used; 0 = it is */
	uint64_t blocked, no_buffer, send_errors;
	uint64_t too_large;            /* packets that the path's MTU does not let pass (EMSGSIZE); among send_errors' */
	uint64_t abandoned;            /* packets that the socket did not take in time, or before their message ended */
	int32_t last_send_errno;
	uint64_t strange_address, truncated, receive_errors;
	uint64_t receive_calls, wakeups;
	uint64_t timer_wakeups, timer_late_sum_ns, timer_late_max_ns; /* how late this thread ran, by this host's clock */
	uint64_t cpu_ns;               /* of the engine's thread */
	int32_t realtime_errno;        /* why the thread has no real-time priority; 0 = it has */
};

struct dlcp_engine;

struct dlcp_engine *dlcp_engine_new(const struct dlcp_engine_config *config, char *error, size_t error_bytes);
int dlcp_engine_port(const struct dlcp_engine *engine);

/* The ports that bursts of data leave from besides dlcp_engine_port's: writes up to DLCP_SOURCE_PORTS_MOST, returns how
 * many. */
int dlcp_engine_source_ports(const struct dlcp_engine *engine, uint16_t *ports);

/* source_ports: those of the peer, of its dlcp_engine_source_ports. What comes from elsewhere is a stranger's. */
int dlcp_engine_add_peer(struct dlcp_engine *engine, uint16_t rank, const char *address, uint16_t port,
			 const uint16_t *source_ports, uint32_t source_count);
int dlcp_engine_declare(struct dlcp_engine *engine, uint16_t tensor, const struct dlcp_tensor *shape);
int dlcp_engine_receive(struct dlcp_engine *engine, uint16_t peer, const struct dlcp_key *key,
			const struct dlcp_destination *to);
int dlcp_engine_send(struct dlcp_engine *engine, uint16_t peer, const struct dlcp_key *key,
		     const struct dlcp_source *from);

/* Up to `most` completions; waits for at least one, up to timeout_ns. Returns their number, 0 when time ran out, or
 * DLCP_ERROR_PEER_GONE once every completion was handed out. */
int dlcp_engine_wait(struct dlcp_engine *engine, uint64_t timeout_ns, struct dlcp_completion *completions, int most);

/* What is under way, in words; see dlcp_protocol_describe. */
void dlcp_engine_describe(struct dlcp_engine *engine, char *text, size_t text_bytes);
void dlcp_engine_statistics(struct dlcp_engine *engine, struct dlcp_engine_statistics *statistics);
int dlcp_engine_peer_statistics(struct dlcp_engine *engine, uint16_t rank, struct dlcp_peer_statistics *statistics);

/* The sentence of the calling thread's latest call that failed; valid until its next one. */
const char *dlcp_engine_error(void);

/* Stop the thread after answering what peers still ask, free everything. NULL is fine. */
void dlcp_engine_close(struct dlcp_engine *engine);

/* The same without waiting for peers: for a job that has failed. */
void dlcp_engine_abort(struct dlcp_engine *engine);
/* cffi: end */

#endif
