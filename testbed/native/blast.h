/* Datagrams as fast as the kernel takes them: what `dlcp bench switch` loads a fabric with. */
#ifndef DLCP_BLAST_H
#define DLCP_BLAST_H

#include <stdint.h>

/* cffi: begin */
/* Send `packets` datagrams of payload_bytes (at most 1472) on a connected UDP socket, many to a system call.
 * Returns how many the kernel took, or -errno. */
int64_t dlcp_blast(int socket, uint32_t payload_bytes, uint64_t packets);
/* cffi: end */

#endif
