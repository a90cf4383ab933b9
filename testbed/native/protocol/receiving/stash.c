/* Packets of messages that nobody expects yet. A peer may hold as much as is free, so a newcomer finds room. */
#include "stash.h"

#include <stdlib.h>

#include "messages.h"
#include "peers.h"

enum { SLAB_PACKETS = 64 };

struct slab {
	struct slab *next;
	struct stashed packets[SLAB_PACKETS];
};

static struct stashed **bucket_of(struct stash *stash, const struct peer *peer, const struct dlcp_key *key)
{
	struct dlcp_key row = { .tensor = key->tensor, .leg = key->leg };

	return &stash->buckets[dlcp_hash(peer->rank, &row) & (STASH_BUCKETS - 1)];
}

/* One more slab, or less where the limit is near. */
static void grow(struct stash *stash)
{
	uint32_t packets = stash->most - stash->made;
	struct slab *slab;

	if (packets > SLAB_PACKETS)
		packets = SLAB_PACKETS;
	slab = packets ? malloc(offsetof(struct slab, packets) + packets * sizeof(struct stashed)) : NULL;
	if (!slab)
		return;
	slab->next = stash->slabs;
	stash->slabs = slab;
	stash->made += packets;
	for (uint32_t i = 0; i < packets; i++) {
		slab->packets[i].next = stash->free;
		stash->free = &slab->packets[i];
	}
}

/* Room for one packet of a peer, or NULL. R75. */
static struct stashed *room(struct dlcp_protocol *protocol, struct peer *peer)
{
	struct stash *stash = &protocol->stash;
	struct stashed *found;

	if (peer->receiving.stashed >= stash->most - stash->used)
		return NULL;
	if (!stash->free)
		grow(stash);
	found = stash->free;
	if (found) {
		stash->free = found->next;
		stash->used++;
		peer->receiving.stashed++;
	}
	return found;
}

/* Give a packet's room back. */
void dlcp_stash_release(struct dlcp_protocol *protocol, struct peer *peer, struct stashed *stashed)
{
	stashed->next = protocol->stash.free;
	protocol->stash.free = stashed;
	protocol->stash.used--;
	peer->receiving.stashed--;
}

static bool belongs(const struct stashed *one, const struct peer *peer, const struct dlcp_key *key)
{
	return one->peer == peer->rank && one->header.tensor == key->tensor && one->header.leg == key->leg;
}

/* A packet of that type kept of a message, or NULL. */
static struct stashed *find(struct dlcp_protocol *protocol, const struct peer *peer, const struct dlcp_key *key,
			    uint8_t type)
{
	struct stashed *one = *bucket_of(&protocol->stash, peer, key);

	for (; one; one = one->next) {
		struct dlcp_key other = dlcp_header_key(&one->header);

		if (one->header.type == type && one->peer == peer->rank && dlcp_same_key(&other, key))
			return one;
	}
	return NULL;
}

/* Keep a DATA packet, or a DONE (payload is NULL), of which only that of the newest round is kept. It takes a DATA
 * packet's place when there is no room: it is what lets the answer leave as soon as the message is expected. R74, R77. */
void dlcp_stash_put(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header,
		    const struct dlcp_done *done, const uint8_t *payload)
{
	struct dlcp_key key = dlcp_header_key(header);
	struct stashed **bucket = bucket_of(&protocol->stash, peer, &key);
	struct stashed *one = payload ? NULL : find(protocol, peer, &key, DLCP_DONE);

	if (one && one->done.round > done->round) /* that of round 0 comes through a slower queue */
		return;
	if (!one) {
		one = room(protocol, peer);
		if (one) {
			one->peer = peer->rank;
			one->next = *bucket;
			*bucket = one;
		} else if (!payload) {
			one = find(protocol, peer, &key, DLCP_DATA);
		}
	}
	if (!one) {
		protocol->statistics.packets_stash_full += payload != NULL;
		return;
	}
	one->header = *header;
	if (payload) {
		memcpy(one->payload, payload, (size_t)header->count * dlcp_element_bytes(header->dtype));
		protocol->statistics.packets_stashed++;
	} else {
		one->done = *done;
	}
}

/* Everything kept of a message, as a list; the caller releases it one by one. */
struct stashed *dlcp_stash_take(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_key *key)
{
	struct stashed **at = bucket_of(&protocol->stash, peer, key), *taken = NULL;

	if (!peer->receiving.stashed)
		return NULL;
	while (*at) {
		struct stashed *one = *at;
		struct dlcp_key other = dlcp_header_key(&one->header);

		if (!belongs(one, peer, key) || !dlcp_same_key(&other, key)) {
			at = &one->next;
			continue;
		}
		*at = one->next;
		one->next = taken; /* the oldest comes first again */
		taken = one;
	}
	return taken;
}

/* Forget what can never be expected any more: what is not newer than a message that is over. R76. */
void dlcp_stash_forget(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_key *newest)
{
	struct stashed **at = bucket_of(&protocol->stash, peer, newest);

	if (!peer->receiving.stashed)
		return;
	while (*at) {
		struct stashed *one = *at;
		struct dlcp_key key = dlcp_header_key(&one->header);

		if (belongs(one, peer, newest) && dlcp_age(&key) <= dlcp_age(newest)) {
			*at = one->next;
			dlcp_stash_release(protocol, peer, one);
		} else {
			at = &one->next;
		}
	}
}

void dlcp_stash_free(struct dlcp_protocol *protocol)
{
	for (struct slab *next, *slab = protocol->stash.slabs; slab; slab = next) {
		next = slab->next;
		free(slab);
	}
}
