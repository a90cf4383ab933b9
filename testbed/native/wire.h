/* What DLCP puts into a UDP datagram. All integers in network byte order; elements little-endian, as they lie in memory.
 *
 * Every packet but the acknowledgement starts with one 32-byte header:
 *
 *   0 u4 version, u4 type | 1 u8 flags  | 2 u16 source rank | 4 u32 job cookie
 *   8 u32 iteration                     | 12 u16 tensor     | 14 u4 dtype, u4 leg | 15 u8 magnitude code
 *  16 u32 offset, elements              | 20 u16 count, elements        | 22 u16 step
 *  24 u32 sequence, per peer            | 28 u16 contributors           | 30 u16 energy code
 *
 *   DATA   header, count elements of dtype. Magnitude: of this packet. Energy: of the whole message. Contributors: how
 *          many ranks' values this packet sums up. All three are 0 in other packets, and so is dtype
 *   DONE   header, u32 packets of the message, u32 round of probing, u64 energy of the message (bits of a float64),
 *          u32 packets of it that must arrive
 *   NACK   header, u32 first packet, u32 packets described, u32 round, bitmap (1 = arrived, lowest bit first)
 *   STOP   header, u64 delivered bytes; DLCP_DELIVERED_FORGOTTEN when that is not known any more
 *   PROBE  header; takes a sequence number. In a queue of data it asks after what was sent there before; in the control
 *          queue it asks whether the peer lives and how long the empty path takes
 *   ACK    shares the first 8 bytes, but byte 1 tells how many ranks are sending to this one (255: or more):
 *          8 u32 largest sequence seen | 12 u32 us since it came | 16 u32 packets received
 *         20 u32 of them with CE | 24 u32 datagrams lost at the receiver's socket
 *         28 u8[16] bitmap: bit i = sequence (largest - i) arrived, lowest bit first
 *
 * PROBE, DONE and STOP have no offset. In its place is the incarnation of the rank whose data they speak of: in PROBE and
 * DONE the source's own, in STOP the one that its addressee was known by (0: by none yet).
 *
 * Energy is the sum of g squared. A magnitude code tells a packet's root mean square g to a quarter of an octave, so
 * code and count tell its energy: dlcp_code_energy. A message's energy is defined as the sum of what its packets' codes
 * tell; its own code is rounded up to the next 1/256 octave.
 *
 * Nothing from the wire is believed: decoders check version, type, and that the datagram has exactly the length that
 * its fields say. They never read past `size`.
 */
#ifndef DLCP_WIRE_H
#define DLCP_WIRE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* cffi: begin */
enum {
	DLCP_WIRE_VERSION = 3,
	DLCP_HEADER_BYTES = 32,
	DLCP_PAYLOAD_BYTES = 1440,
	DLCP_PACKET_ELEMENTS = 360, /* float32; of 16-bit types twice as many, of bytes four times */
	DLCP_DATAGRAM_BYTES = 1472, /* 1500 - 20 (IPv4) - 8 (UDP) */
	DLCP_FRAME_OVERHEAD_BYTES = 74, /* header, UDP, IPv4, Ethernet: what a link carries beside the payload */
	DLCP_ACK_BYTES = 44,
	DLCP_ACK_BITMAP_BYTES = 16,
	DLCP_ACK_WINDOW = 128, /* sequences that one acknowledgement describes */
	DLCP_DONE_BYTES = 52,
	DLCP_NACK_FIXED_BYTES = 44,
	DLCP_NACK_PACKETS = 11424, /* packets that one NACK can describe: (1472 - 44) * 8 */
	DLCP_STOP_BYTES = 40,
	DLCP_CODE_NOT_FINITE = 255, /* magnitude: a value is infinite, not a number, or too large to be squared */
	DLCP_ENERGY_NOT_FINITE = 65535,
	DLCP_ENERGY_OF_ONE = 32768, /* energy code of 1 */
	DLCP_ENERGY_STEPS = 256,    /* an octave */
};

enum dlcp_packet_type {
	DLCP_DATA = 1,
	DLCP_ACK = 2,
	DLCP_DONE = 3,
	DLCP_NACK = 4,
	DLCP_STOP = 5,
	DLCP_PROBE = 6,
};

enum dlcp_flag {
	DLCP_FLAG_RETRANSMISSION = 1,
	DLCP_FLAG_MUST_ARRIVE = 2, /* this packet must, whatever the bound says */
	DLCP_FLAG_DROPPABLE = 4,
	DLCP_FLAG_ACK_NOW = 8, /* the sender waits for this acknowledgement */
	DLCP_FLAG_WAIT = 16,   /* in a NACK: the receiver does not expect the message yet; no bitmap */
	DLCP_FLAG_SOME_MUST_ARRIVE = 32, /* packets of this message must arrive; its DONE says how many */
	DLCP_FLAG_LAST = 64, /* of a variable tensor: the message ends with this packet */
};

/* DLCP_UINT8: bytes that are no numbers. They are not measured: their magnitude and energy codes are 0. */
enum dlcp_dtype { DLCP_FLOAT32 = 0, DLCP_FLOAT16 = 1, DLCP_BFLOAT16 = 2, DLCP_UINT8 = 3, DLCP_DTYPES = 4 };

enum dlcp_leg { DLCP_PUSH = 0, DLCP_PULL = 1, DLCP_LEGS = 2 };

enum dlcp_wire_error {
	DLCP_WIRE_OK = 0,
	DLCP_WIRE_SHORT = -1,
	DLCP_WIRE_VERSION_UNKNOWN = -2,
	DLCP_WIRE_TYPE_UNKNOWN = -3,
	DLCP_WIRE_LENGTH = -4, /* the datagram's length contradicts its fields */
	DLCP_WIRE_FIELD = -5,  /* a field is out of its range */
};

struct dlcp_header {
	uint8_t type;
	uint8_t flags;
	uint16_t source;
	uint32_t cookie;
	uint32_t iteration;
	uint16_t tensor;
	uint8_t dtype;
	uint8_t leg;
	uint8_t magnitude;
	uint32_t offset; /* DATA; of PROBE, DONE and STOP the incarnation */
	uint16_t count;
	uint16_t step;
	uint32_t sequence;
	uint16_t contributors;
	uint16_t energy;
};

struct dlcp_ack {
	uint8_t senders;
	uint16_t source;
	uint32_t cookie;
	uint32_t largest;
	uint32_t delay_us;
	uint32_t received;
	uint32_t ce;
	uint32_t overflow;
	uint8_t bitmap[16];
};

struct dlcp_done {
	uint32_t packets;
	uint32_t round;
	double energy;
	uint32_t must_arrive;
};

struct dlcp_nack {
	uint32_t first;
	uint32_t packets;
	uint32_t round;
};
/* cffi: end */

#define DLCP_DELIVERED_FORGOTTEN UINT64_MAX /* in a STOP that is said again, after newer messages were over */

_Static_assert(DLCP_PAYLOAD_BYTES == DLCP_PACKET_ELEMENTS * 4, "a packet carries whole float32");
/* R3 */
_Static_assert(DLCP_DATAGRAM_BYTES == DLCP_HEADER_BYTES + DLCP_PAYLOAD_BYTES, "header and payload fill the datagram");
_Static_assert(DLCP_ACK_WINDOW == DLCP_ACK_BITMAP_BYTES * 8, "one bit a sequence");
_Static_assert(DLCP_NACK_PACKETS == (DLCP_DATAGRAM_BYTES - DLCP_NACK_FIXED_BYTES) * 8, "a NACK fits a datagram");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are sent as they lie in memory");

static inline void dlcp_put16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline void dlcp_put32(uint8_t *at, uint32_t value)
{
	dlcp_put16(at, (uint16_t)(value >> 16));
	dlcp_put16(at + 2, (uint16_t)value);
}

static inline void dlcp_put64(uint8_t *at, uint64_t value)
{
	dlcp_put32(at, (uint32_t)(value >> 32));
	dlcp_put32(at + 4, (uint32_t)value);
}

static inline uint16_t dlcp_get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t dlcp_get32(const uint8_t *at)
{
	return (uint32_t)dlcp_get16(at) << 16 | dlcp_get16(at + 2);
}

static inline uint64_t dlcp_get64(const uint8_t *at)
{
	return (uint64_t)dlcp_get32(at) << 32 | dlcp_get32(at + 4);
}

/* cffi: functions */

/* Bytes of one element; dtype is one of enum dlcp_dtype. */
static inline uint32_t dlcp_element_bytes(uint8_t dtype)
{
	return dtype == DLCP_FLOAT32 ? 4 : dtype == DLCP_UINT8 ? 1 : 2;
}

/* Elements of a full packet. */
static inline uint32_t dlcp_full_packet(uint8_t dtype)
{
	return DLCP_PAYLOAD_BYTES / dlcp_element_bytes(dtype);
}

/* The code of a packet's root mean square: a quarter of an octave a step; 1 is 2^-40 and below, 254 is 5 * 2^21 and above,
 * 0 is zero. R29. */
static inline uint8_t dlcp_magnitude_code(float rms)
{
	uint32_t bits;
	int32_t code;

	if (rms == 0)
		return 0;
	if (!(rms > 0 && rms <= 3.4e38f))
		return DLCP_CODE_NOT_FINITE;
	memcpy(&bits, &rms, sizeof bits);
	code = (int32_t)(bits >> 21) - (127 - 40) * 4 + 1;
	return (uint8_t)(code < 1 ? 1 : code > 254 ? 254 : code);
}

/* The mean square that a magnitude code stands for: of the middle of its step. What is not finite counts as 0. R30. */
static inline double dlcp_code_energy(uint8_t code)
{
	uint32_t bits = ((uint32_t)code - 1 + (127 - 40) * 4) << 21 | 1u << 20;
	float rms;

	if (code == 0 || code == DLCP_CODE_NOT_FINITE)
		return 0;
	memcpy(&rms, &bits, sizeof rms);
	return (double)rms * rms;
}

/* The energy that an energy code stands for; infinite for DLCP_ENERGY_NOT_FINITE. */
static inline double dlcp_energy_decode(uint16_t code)
{
	if (code == DLCP_ENERGY_NOT_FINITE)
		return (double)INFINITY;
	return code ? exp2(((double)code - DLCP_ENERGY_OF_ONE) / DLCP_ENERGY_STEPS) : 0;
}

/* The smallest code that stands for at least this energy; 0 is none at all. R31. */
static inline uint16_t dlcp_energy_code(double energy)
{
	double code;

	if (!(energy <= 1.7e308))
		return DLCP_ENERGY_NOT_FINITE;
	if (energy <= 0)
		return 0;
	code = ceil(log2(energy) * DLCP_ENERGY_STEPS) + DLCP_ENERGY_OF_ONE;
	code = code < 1 ? 1 : code > DLCP_ENERGY_NOT_FINITE - 1 ? DLCP_ENERGY_NOT_FINITE - 1 : code;
	if (dlcp_energy_decode((uint16_t)code) < energy && code < DLCP_ENERGY_NOT_FINITE - 1)
		code++; /* log2 was rounded down */
	return (uint16_t)code;
}

/* The type of a datagram (enum dlcp_packet_type), or a negative enum dlcp_wire_error. */
static inline int dlcp_packet_type(const uint8_t *bytes, size_t size)
{
	if (size < DLCP_HEADER_BYTES)
		return DLCP_WIRE_SHORT;
	if (bytes[0] >> 4 != DLCP_WIRE_VERSION)
		return DLCP_WIRE_VERSION_UNKNOWN;
	if ((bytes[0] & 15) < DLCP_DATA || (bytes[0] & 15) > DLCP_PROBE)
		return DLCP_WIRE_TYPE_UNKNOWN;
	return bytes[0] & 15;
}

/* The job cookie; the caller has checked the length with dlcp_packet_type. */
static inline uint32_t dlcp_packet_cookie(const uint8_t *bytes)
{
	return dlcp_get32(bytes + 4);
}

/* The sender's rank; as dlcp_packet_cookie. */
static inline uint16_t dlcp_packet_source(const uint8_t *bytes)
{
	return dlcp_get16(bytes + 2);
}

/* Write a header into DLCP_HEADER_BYTES at `bytes`. R1. */
static inline void dlcp_header_encode(const struct dlcp_header *header, uint8_t *bytes)
{
	bytes[0] = (uint8_t)(DLCP_WIRE_VERSION << 4 | (header->type & 15));
	bytes[1] = header->flags;
	dlcp_put16(bytes + 2, header->source);
	dlcp_put32(bytes + 4, header->cookie);
	dlcp_put32(bytes + 8, header->iteration);
	dlcp_put16(bytes + 12, header->tensor);
	bytes[14] = (uint8_t)(header->dtype << 4 | (header->leg & 15));
	bytes[15] = header->magnitude;
	dlcp_put32(bytes + 16, header->offset);
	dlcp_put16(bytes + 20, header->count);
	dlcp_put16(bytes + 22, header->step);
	dlcp_put32(bytes + 24, header->sequence);
	dlcp_put16(bytes + 28, header->contributors);
	dlcp_put16(bytes + 30, header->energy);
}

/* The exact length that a datagram with this header must have; NACK: the shortest. */
static inline size_t dlcp_expected_bytes(const struct dlcp_header *header)
{
	switch (header->type) {
	case DLCP_DATA: return DLCP_HEADER_BYTES + (size_t)header->count * dlcp_element_bytes(header->dtype);
	case DLCP_DONE: return DLCP_DONE_BYTES;
	case DLCP_NACK: return DLCP_NACK_FIXED_BYTES;
	case DLCP_STOP: return DLCP_STOP_BYTES;
	default: return DLCP_HEADER_BYTES;
	}
}

/* Read the header of any packet but an ACK. Returns 0 or a negative enum dlcp_wire_error. After 0 the datagram holds
 * all that its type needs: DATA has 1 to a full packet of elements, and their bytes, and no more, behind the header. R4. */
static inline int dlcp_header_decode(struct dlcp_header *header, const uint8_t *bytes, size_t size)
{
	int type = dlcp_packet_type(bytes, size);

	if (type < 0)
		return type;
	if (type == DLCP_ACK)
		return DLCP_WIRE_TYPE_UNKNOWN;
	header->type = (uint8_t)type;
	header->flags = bytes[1];
	header->source = dlcp_get16(bytes + 2);
	header->cookie = dlcp_get32(bytes + 4);
	header->iteration = dlcp_get32(bytes + 8);
	header->tensor = dlcp_get16(bytes + 12);
	header->dtype = bytes[14] >> 4;
	header->leg = bytes[14] & 15;
	header->magnitude = bytes[15];
	header->offset = dlcp_get32(bytes + 16);
	header->count = dlcp_get16(bytes + 20);
	header->step = dlcp_get16(bytes + 22);
	header->sequence = dlcp_get32(bytes + 24);
	header->contributors = dlcp_get16(bytes + 28);
	header->energy = dlcp_get16(bytes + 30);
	if (header->leg >= DLCP_LEGS || header->dtype >= DLCP_DTYPES)
		return DLCP_WIRE_FIELD;
	if (type == DLCP_DATA && (header->count == 0 || header->count > dlcp_full_packet(header->dtype)))
		return DLCP_WIRE_FIELD;
	if (type == DLCP_NACK)
		return size < DLCP_NACK_FIXED_BYTES ? DLCP_WIRE_LENGTH : DLCP_WIRE_OK;
	return size == dlcp_expected_bytes(header) ? DLCP_WIRE_OK : DLCP_WIRE_LENGTH;
}

/* Write an ACK into DLCP_ACK_BYTES at `bytes`. R2. */
static inline void dlcp_ack_encode(const struct dlcp_ack *ack, uint8_t *bytes)
{
	bytes[0] = (uint8_t)(DLCP_WIRE_VERSION << 4 | DLCP_ACK);
	bytes[1] = ack->senders;
	dlcp_put16(bytes + 2, ack->source);
	dlcp_put32(bytes + 4, ack->cookie);
	dlcp_put32(bytes + 8, ack->largest);
	dlcp_put32(bytes + 12, ack->delay_us);
	dlcp_put32(bytes + 16, ack->received);
	dlcp_put32(bytes + 20, ack->ce);
	dlcp_put32(bytes + 24, ack->overflow);
	memcpy(bytes + 28, ack->bitmap, DLCP_ACK_BITMAP_BYTES);
}

/* Read an ACK. Returns 0 or a negative enum dlcp_wire_error. */
static inline int dlcp_ack_decode(struct dlcp_ack *ack, const uint8_t *bytes, size_t size)
{
	int type = dlcp_packet_type(bytes, size);

	if (type < 0)
		return type;
	if (type != DLCP_ACK)
		return DLCP_WIRE_TYPE_UNKNOWN;
	if (size != DLCP_ACK_BYTES)
		return DLCP_WIRE_LENGTH;
	ack->senders = bytes[1];
	ack->source = dlcp_get16(bytes + 2);
	ack->cookie = dlcp_get32(bytes + 4);
	ack->largest = dlcp_get32(bytes + 8);
	ack->delay_us = dlcp_get32(bytes + 12);
	ack->received = dlcp_get32(bytes + 16);
	ack->ce = dlcp_get32(bytes + 20);
	ack->overflow = dlcp_get32(bytes + 24);
	memcpy(ack->bitmap, bytes + 28, DLCP_ACK_BITMAP_BYTES);
	return DLCP_WIRE_OK;
}

/* Write what follows a DONE's header; returns the datagram's length. */
static inline size_t dlcp_done_encode(const struct dlcp_done *done, uint8_t *bytes)
{
	uint64_t bits;

	memcpy(&bits, &done->energy, sizeof bits);
	dlcp_put32(bytes + 32, done->packets);
	dlcp_put32(bytes + 36, done->round);
	dlcp_put64(bytes + 40, bits);
	dlcp_put32(bytes + 48, done->must_arrive);
	return DLCP_DONE_BYTES;
}

/* Read it after the header was decoded. Returns 0 or DLCP_WIRE_FIELD: an energy is 0 or more; it may be infinite. R7. */
static inline int dlcp_done_decode(struct dlcp_done *done, const uint8_t *bytes)
{
	uint64_t bits = dlcp_get64(bytes + 40);

	done->packets = dlcp_get32(bytes + 32);
	done->round = dlcp_get32(bytes + 36);
	memcpy(&done->energy, &bits, sizeof bits);
	done->must_arrive = dlcp_get32(bytes + 48);
	return done->energy >= 0 ? DLCP_WIRE_OK : DLCP_WIRE_FIELD;
}

/* Write a NACK's fixed part behind its header; returns the datagram's length with the bitmap that the caller adds. */
static inline size_t dlcp_nack_encode(const struct dlcp_nack *nack, uint8_t *bytes)
{
	dlcp_put32(bytes + 32, nack->first);
	dlcp_put32(bytes + 36, nack->packets);
	dlcp_put32(bytes + 40, nack->round);
	return DLCP_NACK_FIXED_BYTES + ((size_t)nack->packets + 7) / 8;
}

/* Read a NACK's fixed part after its header was decoded. Returns 0 or DLCP_WIRE_LENGTH: the bitmap that follows at
 * DLCP_NACK_FIXED_BYTES has exactly (packets + 7) / 8 bytes. R5. */
static inline int dlcp_nack_decode(struct dlcp_nack *nack, const uint8_t *bytes, size_t size)
{
	if (size < DLCP_NACK_FIXED_BYTES)
		return DLCP_WIRE_SHORT;
	nack->first = dlcp_get32(bytes + 32);
	nack->packets = dlcp_get32(bytes + 36);
	nack->round = dlcp_get32(bytes + 40);
	if (nack->packets > DLCP_NACK_PACKETS)
		return DLCP_WIRE_LENGTH;
	return size == DLCP_NACK_FIXED_BYTES + ((size_t)nack->packets + 7) / 8 ? DLCP_WIRE_OK : DLCP_WIRE_LENGTH;
}

/* cffi: functions end */

#endif
