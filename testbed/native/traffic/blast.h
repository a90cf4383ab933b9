/* Datagrams as fast as the kernel takes and gives them: what `dlcp bench switch` loads a fabric with. */
#ifndef DLCP_BLAST_H
#define DLCP_BLAST_H

#include <stdint.h>

/* cffi: begin */
/* Send `packets` datagrams of payload_bytes (at most DLCP_TRAFFIC_DATAGRAM_MOST) on a connected UDP socket, many to a
 * system call. Returns how many the kernel took, or -errno. */
int64_t dlcp_blast(int socket, uint32_t payload_bytes, uint64_t packets);

/* Read datagrams until `packets` have come, or none for idle_ms. Returns how many came, or -errno. */
int64_t dlcp_drain(int socket, uint64_t packets, uint32_t idle_ms);
/* cffi: end */

#endif
