/* A message that is expected: its memory, and its place in the lists. What comes of it is in receiver.c. */
#include "incoming.h"

#include <stdlib.h>

struct incoming *dlcp_incoming_find(const struct dlcp_protocol *protocol, uint16_t peer, const struct dlcp_key *key)
{
	return (struct incoming *)dlcp_table_find(&protocol->incoming, peer, key);
}

/* A recycled message with room for so many packets, or NULL. */
struct incoming *dlcp_incoming_take(struct dlcp_protocol *protocol, uint32_t packets)
{
	struct incoming *message = protocol->free_incoming;
	size_t words = ((size_t)packets + 63) / 64;

	if (message)
		protocol->free_incoming = message->next;
	else
		message = calloc(1, sizeof *message);
	if (!message)
		return NULL;
	if (message->capacity < packets) {
		free(message->bitmap);
		message->bitmap = malloc(words * sizeof *message->bitmap);
		message->capacity = message->bitmap ? packets : 0;
	}
	message->finished = message->bitmap ? dlcp_take_completion(protocol) : NULL;
	if (!message->finished) {
		message->next = protocol->free_incoming;
		protocol->free_incoming = message;
		return NULL;
	}
	memset(message->bitmap, 0, words * sizeof *message->bitmap);
	return message;
}

void dlcp_incoming_free(struct incoming *message)
{
	free(message->bitmap);
	free(message->finished);
	free(message);
}

void dlcp_incoming_list(struct dlcp_protocol *protocol, struct peer *peer, struct incoming *message, uint64_t now_ns)
{
	dlcp_table_add(&protocol->incoming, &message->entry);
	if (!peer->receiving.expected_head && !peer->sending.waiting_head)
		peer->liveness.owed_since_ns = now_ns;
	message->next = NULL;
	message->prev = peer->receiving.expected_tail;
	*(peer->receiving.expected_tail ? &peer->receiving.expected_tail->next : &peer->receiving.expected_head) = message;
	peer->receiving.expected_tail = message;
	protocol->receiving++;
}

void dlcp_incoming_unlist(struct dlcp_protocol *protocol, struct peer *peer, struct incoming *message)
{
	dlcp_table_remove(&protocol->incoming, &message->entry);
	*(message->prev ? &message->prev->next : &peer->receiving.expected_head) = message->next;
	*(message->next ? &message->next->prev : &peer->receiving.expected_tail) = message->prev;
	message->next = protocol->free_incoming;
	protocol->free_incoming = message;
	protocol->receiving--;
}
