/* A libFuzzer target: the input is one datagram. Every decoder reads it from a heap block of exactly its length; what decodes
 * must encode to the same bytes again. */
#include <stdio.h>
#include <stdlib.h>

#include "wire.h"

static void promise(int kept, const char *text)
{
	if (kept)
		return;
	fprintf(stderr, "broken promise: %s\n", text);
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *bytes = malloc(size ? size : 1), again[DLCP_DATAGRAM_BYTES] = { 0 };
	struct dlcp_header header;
	struct dlcp_nack nack;
	struct dlcp_ack ack;

	memcpy(bytes, data, size);
	if (dlcp_header_decode(&header, bytes, size) == DLCP_WIRE_OK) {
		promise(size >= DLCP_HEADER_BYTES && size <= DLCP_DATAGRAM_BYTES, "what decodes has a possible length");
		dlcp_header_encode(&header, again);
		promise(memcmp(bytes, again, DLCP_HEADER_BYTES) == 0, "a header that decodes encodes to the same bytes");
		if (header.type == DLCP_NACK && dlcp_nack_decode(&nack, bytes, size) == DLCP_WIRE_OK) {
			promise(dlcp_nack_encode(&nack, again) == size, "a NACK has the length that its fields say");
			promise(memcmp(bytes, again, DLCP_NACK_FIXED_BYTES) == 0, "a NACK encodes to the same bytes");
		}
	}
	if (dlcp_ack_decode(&ack, bytes, size) == DLCP_WIRE_OK) {
		dlcp_ack_encode(&ack, again);
		promise(size == DLCP_ACK_BYTES && memcmp(bytes, again, size) == 0, "an ACK encodes to the same bytes");
	}
	free(bytes);
	return 0;
}
