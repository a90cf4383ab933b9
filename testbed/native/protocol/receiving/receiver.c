/* The receiving half: placement by offset, and the verdict on DONE. Acknowledgements are in acknowledge.c. */
#include "receiver.h"

#include <math.h>
#include <stdlib.h>

#include "elements.h"
#include "incoming.h"
#include "length.h"
#include "liveness.h"
#include "schedule.h"
#include "stash.h"

#define ROUNDING 1e-9 /* of the energy: far above what adding up millions of packets in another order changes */

static void apply_stashed(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_key *key,
			  uint64_t now_ns);

/* The newest message that is over, of a tensor and leg. */
static struct over *newest_finished(struct peer *peer, const struct dlcp_key *key)
{
	static struct over none; /* of tensors that were not expected yet: never written */
	uint32_t at = (uint32_t)key->tensor * DLCP_LEGS + key->leg;

	return key->tensor < peer->receiving.finished_tensors ? &peer->receiving.finished[at] : &none;
}

/* R67 */
static bool is_over(struct peer *peer, const struct dlcp_key *key)
{
	return dlcp_age(key) <= newest_finished(peer, key)->age;
}

/* Everything of a message but its place in the lists. */
static void prepare(struct incoming *message, const struct dlcp_tensor *shape, const struct dlcp_destination *to,
		    uint64_t now_ns)
{
	struct dlcp_bound bound = dlcp_message_bound(shape, message->entry.key.leg, to->bound);
	uint64_t bytes = dlcp_message_bytes(shape->elements, shape->dtype);

	message->buffer = to->buffer;
	message->contributors = to->contributors;
	message->dtype = shape->dtype;
	message->placement = to->placement;
	dlcp_length_begin(message, shape);
	message->arrived = 0;
	message->delivered_bytes = 0;
	message->needed_bytes = bytes - dlcp_share(bytes, bound.bytes_ppm);
	message->energy = message->delivered_energy = 0;
	message->energy_ppm = bound.energy_ppm;
	message->closings = 0;
	message->first_ns = 0;
	message->start_ns = now_ns;
	message->pass_over = false;
	message->must_arrived = 0;
	/* How many packets must arrive, only the sender knows; that there may be some is known before it says anything.
	 * R53. */
	message->must_arrive = message->entry.key.leg == DLCP_PUSH && shape->must_arrive_ppm ? NONE : 0;
	if (to->contributors && to->placement != DLCP_PLACE_ADD) /* R119 */
		memset(to->contributors, 0, message->packets * sizeof *to->contributors);
}

/* Deadlines that count from the first packet have an instant as soon as it came. R51. */
static void count_from_first(struct peer *peer, struct incoming *message)
{
	for (uint32_t i = 0; i < message->closings; i++) {
		struct closing *closing = &message->closing[i];

		if (closing->after_first_ns && message->first_ns)
			closing->at_ns = dlcp_earlier(closing->at_ns, message->first_ns + closing->after_first_ns);
		peer->receiving.deadline_hint_ns = dlcp_earlier(peer->receiving.deadline_hint_ns, closing->at_ns);
	}
}

/* After what was kept of the message has been taken: a deadline that is over already counts all of that. */
static void begin_deadlines(struct peer *peer, struct incoming *message, const struct dlcp_destination *to)
{
	uint64_t bytes = dlcp_message_bytes(message->elements, message->dtype);

	message->closings = to->deadline_count;
	for (uint32_t i = 0; i < to->deadline_count; i++) {
		const struct dlcp_deadline *deadline = &to->deadlines[i];

		message->closing[i] = (struct closing){
			.at_ns = deadline->at_ns ? deadline->at_ns : NEVER,
			.after_first_ns = deadline->after_first_ns,
			.bytes = bytes - dlcp_share(bytes, DLCP_PPM - deadline->share_ppm),
		};
	}
	count_from_first(peer, message);
}

static bool deadlines_valid(const struct dlcp_destination *to)
{
	if (to->deadline_count > DLCP_DEADLINES)
		return false;
	for (uint32_t i = 0; i < to->deadline_count; i++)
		if (to->deadlines[i].share_ppm > DLCP_PPM)
			return false;
	return true;
}

/* Room in a peer for what it finished, of so many tensors. */
static bool grow_finished(struct peer *peer, uint32_t tensors)
{
	struct over *grown;

	if (peer->receiving.finished_tensors >= tensors)
		return true;
	grown = realloc(peer->receiving.finished, (size_t)tensors * DLCP_LEGS * sizeof *grown);
	if (!grown)
		return false;
	memset(grown + (size_t)peer->receiving.finished_tensors * DLCP_LEGS, 0,
	       (size_t)(tensors - peer->receiving.finished_tensors) * DLCP_LEGS * sizeof *grown);
	peer->receiving.finished = grown;
	peer->receiving.finished_tensors = tensors;
	return true;
}

/* R110 */
int dlcp_protocol_receive(struct dlcp_protocol *protocol, uint16_t rank, const struct dlcp_key *key,
			  const struct dlcp_destination *to, uint64_t now_ns)
{
	struct peer *peer = dlcp_peer(protocol, rank);
	const struct tensor *tensor = dlcp_declared(protocol, key->tensor);
	struct incoming *message;

	if (!peer || key->leg >= DLCP_LEGS || !tensor || to->elements != tensor->shape.elements)
		return dlcp_fail(protocol, DLCP_ERROR_ARGUMENT,
				 "receive from rank %u: unknown rank, leg, or tensor %u with %u elements", rank,
				 key->tensor, to->elements);
	if ((uintptr_t)to->buffer % dlcp_element_bytes(tensor->shape.dtype) || to->placement > DLCP_PLACE_ADD ||
	    (to->placement == DLCP_PLACE_ADD && tensor->shape.dtype == DLCP_UINT8) || /* R114 */
	    (to->bound && !dlcp_bound_valid(to->bound)) || !deadlines_valid(to))
		return dlcp_fail(protocol, DLCP_ERROR_ARGUMENT,
				 "receive from rank %u: tensor %u: a buffer not aligned to its elements, or placement, "
				 "bound or deadline out of range",
				 rank, key->tensor);
	if (peer->liveness.gone) {
		dlcp_protocol_gone(protocol); /* its sentence */
		return DLCP_ERROR_PEER_GONE;
	}
	if (dlcp_incoming_find(protocol, rank, key) || is_over(peer, key))
		return dlcp_fail(protocol, DLCP_ERROR_DUPLICATE,
				 "receive from rank %u: tensor %u of iteration %u is expected already, or is over",
				 rank, key->tensor, key->iteration);
	message = dlcp_peer_begin_receiving(protocol, peer) && grow_finished(peer, protocol->tensor_count) ?
			  dlcp_incoming_take(protocol, dlcp_packets_of(to->elements, tensor->shape.dtype)) :
			  NULL;
	if (!message)
		return dlcp_fail(protocol, DLCP_ERROR_MEMORY, "no memory for a message of %u elements", to->elements);
	message->entry.peer = rank;
	message->entry.key = *key;
	prepare(message, &tensor->shape, to, now_ns);
	dlcp_incoming_list(protocol, peer, message, now_ns);
	apply_stashed(protocol, peer, key, now_ns);
	/* R52 */
	message = to->deadline_count && !tensor->shape.must_arrive ? dlcp_incoming_find(protocol, rank, key) : NULL;
	if (message)
		begin_deadlines(peer, message, to);
	dlcp_reschedule(protocol, peer, now_ns);
	return DLCP_OK;
}

static void push_stop(struct dlcp_protocol *protocol, uint16_t peer, const struct dlcp_key *key, uint64_t delivered)
{
	dlcp_control_push(protocol, &(struct control){
					    .kind = CONTROL_STOP,
					    .peer = peer,
					    .key = *key,
					    .delivered_bytes = delivered,
				    });
}

/* Say again that a message is over, and what was delivered of it, if that is remembered. R27. */
static void push_stop_again(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_key *key)
{
	const struct over *newest = newest_finished(peer, key);

	push_stop(protocol, peer->rank, key,
		  newest->age == dlcp_age(key) ? newest->delivered_bytes : DLCP_DELIVERED_FORGOTTEN);
}

/* Which share of the message's energy is missing. R49. */
static double lost_energy_share(const struct incoming *message)
{
	double bytes = (double)dlcp_message_bytes(message->elements, message->dtype);
	double missing = message->energy - message->delivered_energy;

	if (message->arrived == message->packets)
		return 0;
	if (!isfinite(message->energy) || (!message->energy && message->closings))
		return 1 - (double)message->delivered_bytes / bytes;
	return missing > 0 ? missing / message->energy : 0;
}

/* At the end, so that a message of which little is missing costs no second pass over its memory. R70. */
static void zero_holes(struct incoming *message)
{
	for (uint32_t packet = 0; message->arrived < message->packets && packet < message->packets; packet++)
		if (!(message->bitmap[packet / 64] >> (packet % 64) & 1))
			memset(message->buffer + (size_t)packet * DLCP_PAYLOAD_BYTES, 0,
			       (size_t)dlcp_packet_elements(message->elements, message->dtype, packet) *
				       dlcp_element_bytes(message->dtype));
}

/* The message is over: tell the sender, remember it, hand the completion out. */
static void finish(struct dlcp_protocol *protocol, struct peer *peer, struct incoming *message, uint64_t now_ns)
{
	struct over *newest = newest_finished(peer, &message->entry.key);
	uint64_t bytes = dlcp_message_bytes(message->elements, message->dtype);

	if (message->placement == DLCP_PLACE_ZERO)
		zero_holes(message);
	push_stop(protocol, message->entry.peer, &message->entry.key, message->delivered_bytes);
	if (newest->age < dlcp_age(&message->entry.key)) {
		*newest = (struct over){ dlcp_age(&message->entry.key), message->delivered_bytes };
		dlcp_stash_forget(protocol, peer, &message->entry.key);
	}
	message->finished->completion = (struct dlcp_completion){
		.key = message->entry.key,
		.peer = message->entry.peer,
		.received = 1,
		.bytes = bytes,
		.delivered_bytes = message->delivered_bytes,
		.lost_bytes = bytes - message->delivered_bytes,
		.lost_energy_share = lost_energy_share(message),
		.start_ns = message->start_ns,
		.end_ns = now_ns,
		.first_ns = message->first_ns,
	};
	protocol->statistics.messages_received++;
	protocol->statistics.lost_bytes += bytes - message->delivered_bytes;
	dlcp_complete(protocol, message->finished);
	message->finished = NULL;
	dlcp_incoming_unlist(protocol, peer, message);
}

/* No more of the energy is missing than may be. Both ends add up the same numbers in different orders. R46, R49. */
static bool enough_energy(const struct incoming *message)
{
	double allowed = message->energy * message->energy_ppm / DLCP_PPM;

	if (message->energy_ppm == DLCP_PPM)
		return true;
	return isfinite(message->energy) &&
	       message->energy - message->delivered_energy <= allowed + ROUNDING * message->energy;
}

/* A deadline is over, and what it asks for and all that must arrive are there. R50, R53. */
static bool closes(const struct incoming *message, uint64_t now_ns)
{
	for (uint32_t i = 0; i < message->closings; i++)
		if (now_ns >= message->closing[i].at_ns && message->delivered_bytes >= message->closing[i].bytes)
			return message->must_arrived == message->must_arrive;
	return false;
}

/* Everything is there; or all that must arrive, and the bound is met and the sender's first pass is known to be over (or
 * need not be); or a deadline closes it. R66. */
static bool satisfied(const struct dlcp_protocol *protocol, const struct incoming *message, uint64_t now_ns)
{
	if (message->arrived == message->packets || closes(message, now_ns))
		return true;
	return (message->pass_over || protocol->config.eager_stop) && message->must_arrived == message->must_arrive &&
	       message->delivered_bytes >= message->needed_bytes && enough_energy(message);
}

/* Close what a deadline that has come is satisfied with. A message that has less goes on until a packet makes it enough. */
void dlcp_run_deadlines(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns)
{
	uint64_t hint_ns = NEVER;

	if (peer->receiving.deadline_hint_ns > now_ns)
		return;
	for (struct incoming *next, *message = peer->receiving.expected_head; message; message = next) {
		next = message->next;
		if (closes(message, now_ns)) {
			finish(protocol, peer, message, now_ns);
			continue;
		}
		for (uint32_t i = 0; i < message->closings; i++)
			if (message->closing[i].at_ns > now_ns)
				hint_ns = dlcp_earlier(hint_ns, message->closing[i].at_ns);
	}
	peer->receiving.deadline_hint_ns = hint_ns;
}

/* Put a packet's elements, and how many ranks' values they sum up, where they belong. R34, R70. */
static void place(struct incoming *message, uint32_t packet, const struct dlcp_header *header, const uint8_t *payload)
{
	uint8_t *to = message->buffer + (size_t)packet * DLCP_PAYLOAD_BYTES;
	uint16_t *contributors = message->contributors ? &message->contributors[packet] : NULL;
	uint32_t sum = header->contributors;

	if (message->placement == DLCP_PLACE_ADD)
		dlcp_add_elements(message->dtype, to, payload, header->count);
	else
		dlcp_copy_elements(message->dtype, to, payload, header->count);
	if (!contributors)
		return;
	if (message->placement == DLCP_PLACE_ADD)
		sum += *contributors;
	*contributors = (uint16_t)(sum < UINT16_MAX ? sum : UINT16_MAX);
}

/* A packet that begins where one can has the elements that the message has there. R8, R116, R118. */
static bool fits(struct incoming *message, const struct dlcp_header *header, uint32_t packet)
{
	if (message->variable | (header->flags & DLCP_FLAG_LAST)) /* one branch for all others */
		return dlcp_length_from_data(message, header, packet);
	return header->count == dlcp_packet_elements(message->elements, message->dtype, packet);
}

/* A DATA packet of a message that is expected. The last one ends it. */
static void accept(struct dlcp_protocol *protocol, struct peer *peer, struct incoming *message,
		   const struct dlcp_header *header, const uint8_t *payload, uint64_t now_ns)
{
	uint32_t full = dlcp_full_packet(message->dtype), packet = header->offset / full;
	uint64_t bit = UINT64_C(1) << (packet % 64);

	/* R8, R9 */
	if (header->dtype != message->dtype || header->offset % full || header->offset >= message->elements ||
	    !fits(message, header, packet)) {
		protocol->statistics.packets_malformed++;
		return;
	}
	/* R69 */
	if (message->bitmap[packet / 64] & bit) {
		protocol->statistics.packets_duplicate++;
		return;
	}
	message->bitmap[packet / 64] |= bit;
	place(message, packet, header, payload);
	if (!message->arrived++) {
		message->first_ns = now_ns;
		if (!message->pass_over)
			message->must_arrive = 0; /* unless this packet's flags say otherwise, below */
		count_from_first(peer, message);
	}
	message->delivered_bytes += (uint64_t)header->count * dlcp_element_bytes(message->dtype);
	message->delivered_energy += header->count * dlcp_code_energy(header->magnitude);
	if (!message->pass_over && !message->energy)
		message->energy = dlcp_energy_decode(header->energy);
	if (header->flags & DLCP_FLAG_SOME_MUST_ARRIVE) {
		message->must_arrived += (header->flags & DLCP_FLAG_MUST_ARRIVE) != 0;
		if (!message->pass_over)
			message->must_arrive = NONE;
	}
	if (satisfied(protocol, message, now_ns))
		finish(protocol, peer, message, now_ns);
}

/* A DATA packet whose header is sound and whose payload has header->count elements. */
void dlcp_on_data(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const uint8_t *payload, uint64_t now_ns)
{
	struct dlcp_key key = dlcp_header_key(header);
	struct incoming *message = dlcp_incoming_find(protocol, peer->rank, &key);

	protocol->statistics.data_packets_received++;
	protocol->statistics.data_bytes_received += (uint64_t)header->count * dlcp_element_bytes(header->dtype);
	if (message) {
		accept(protocol, peer, message, header, payload, now_ns);
	} else if (is_over(peer, &key)) {
		protocol->statistics.packets_late++;
		if (header->flags & DLCP_FLAG_ACK_NOW) /* the STOP may be lost: who still sends hears it again */
			push_stop_again(protocol, peer, &key);
	} else {
		dlcp_stash_put(protocol, peer, header, NULL, payload);
	}
}

/* The sender's pass over an expected message is over: STOP, or tell it what is missing. R71, R73. */
static void judge(struct dlcp_protocol *protocol, struct peer *peer, struct incoming *message,
		  const struct dlcp_done *done, uint64_t now_ns)
{
	struct control nack = { .kind = CONTROL_NACK, .peer = peer->rank, .key = message->entry.key, .round = done->round };

	if (!dlcp_length_from_done(message, done->packets)) {
		protocol->statistics.packets_malformed++;
		return;
	}
	message->pass_over = true;
	message->energy = done->energy;
	message->must_arrive = done->must_arrive;
	if (satisfied(protocol, message, now_ns))
		finish(protocol, peer, message, now_ns);
	else if (done->round) /* round 0 only tells that the pass is over: what is lost is still being found out */
		dlcp_control_push(protocol, &nack);
}

/* A DONE of any message: also one that is over, or that nobody expects yet. R68, R72. */
void dlcp_on_done(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		  const struct dlcp_done *done, uint64_t now_ns)
{
	struct dlcp_key key = dlcp_header_key(header);
	struct incoming *message = dlcp_incoming_find(protocol, peer->rank, &key);
	struct control wait = { .kind = CONTROL_WAIT, .peer = peer->rank, .key = key, .round = done->round };

	if (message) {
		judge(protocol, peer, message, done, now_ns);
	} else if (is_over(peer, &key)) {
		push_stop_again(protocol, peer, &key);
	} else {
		dlcp_stash_put(protocol, peer, header, done, NULL);
		if (done->round) /* round 0 asks nothing */
			dlcp_control_push(protocol, &wait);
	}
}

/* What came of a message before it was expected. It may be enough to end it. */
static void apply_stashed(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_key *key,
			  uint64_t now_ns)
{
	/* R74 */
	for (struct stashed *next, *one = dlcp_stash_take(protocol, peer, key); one; one = next) {
		struct incoming *message = dlcp_incoming_find(protocol, peer->rank, key);

		next = one->next;
		if (message && one->header.type == DLCP_DATA)
			accept(protocol, peer, message, &one->header, one->payload, now_ns);
		else if (message)
			judge(protocol, peer, message, &one->done, now_ns);
		dlcp_stash_release(protocol, peer, one);
	}
}

/* Write a NACK that begins at control->first; the rest of a message that needs more than one is pushed again.
 * Returns its length, or 0 when the message has ended meanwhile (then a STOP is on its way). R6. */
size_t dlcp_build_nack(struct dlcp_protocol *protocol, const struct control *control, struct dlcp_header *header,
		       uint8_t *bytes)
{
	struct incoming *message = dlcp_incoming_find(protocol, control->peer, &control->key);
	struct dlcp_nack nack = { .first = control->first, .round = control->round };
	size_t size;

	if (!message || control->first >= message->packets)
		return 0;
	nack.packets = message->packets - control->first;
	if (nack.packets > DLCP_NACK_PACKETS) {
		struct control rest = *control;

		nack.packets = DLCP_NACK_PACKETS;
		rest.first += DLCP_NACK_PACKETS;
		dlcp_control_push(protocol, &rest);
	}
	dlcp_header_encode(header, bytes);
	size = dlcp_nack_encode(&nack, bytes);
	/* both bitmaps have the lowest bit first, on little-endian hosts; beyond the last packet ours is zero */
	memcpy(bytes + DLCP_NACK_FIXED_BYTES, (const uint8_t *)message->bitmap + nack.first / 8,
	       size - DLCP_NACK_FIXED_BYTES);
	protocol->statistics.nacks_sent++;
	return size;
}
