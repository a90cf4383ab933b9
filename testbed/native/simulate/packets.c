/* The pool of packets: they are named by their place in it, which stays while the pool grows. */
#include <stdlib.h>

#include "fabric_state.h"

#define FIRST_ROOM 1024u

static bool grow(struct dlcp_fabric *fabric)
{
	uint32_t room = fabric->pool_room ? fabric->pool_room * 2 : FIRST_ROOM;
	struct pooled *pool = room > fabric->pool_room ? realloc(fabric->pool, room * sizeof(*pool)) : NULL;

	if (!pool)
		return false;
	fabric->pool = pool;
	fabric->pool_room = room;
	return true;
}

uint32_t dlcp_packet_take(struct dlcp_fabric *fabric)
{
	uint32_t index = fabric->pool_free;

	if (index != NO_PACKET) {
		fabric->pool_free = fabric->pool[index].next;
	} else {
		if (fabric->pool_used == fabric->pool_room && !grow(fabric)) {
			fabric->out_of_memory = true;
			return NO_PACKET;
		}
		index = fabric->pool_used++;
	}
	fabric->under_way++;
	return index;
}

void dlcp_packet_give_back(struct dlcp_fabric *fabric, uint32_t index)
{
	fabric->pool[index].next = fabric->pool_free;
	fabric->pool_free = index;
	fabric->under_way--;
}

void dlcp_packet_append(struct dlcp_fabric *fabric, struct packet_list *list, uint32_t index)
{
	fabric->pool[index].next = NO_PACKET;
	if (list->first == NO_PACKET)
		list->first = index;
	else
		fabric->pool[list->last].next = index;
	list->last = index;
}

uint32_t dlcp_packet_remove_first(struct dlcp_fabric *fabric, struct packet_list *list)
{
	uint32_t index = list->first;

	list->first = fabric->pool[index].next;
	return index;
}
