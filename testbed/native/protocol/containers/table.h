/* Messages under way, by peer and key: a hash table that grows with them. */
#ifndef DLCP_TABLE_H
#define DLCP_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol.h"

/* The first member of what is kept in a table. */
struct table_entry {
	struct table_entry *next; /* in its bucket; table.c writes it */
	struct dlcp_key key;      /* with the peer the message's name; whoever begins the message writes both */
	uint16_t peer;            /* rank */
};

/* Written by table.c. */
struct table {
	struct table_entry **buckets; /* lists of entries, by dlcp_hash */
	uint32_t room, count; /* buckets, a power of two; entries */
};

static inline bool dlcp_same_key(const struct dlcp_key *a, const struct dlcp_key *b)
{
	/* Neighbours apart: the compiler would read tensor and step at once, and where both were just written one by one, that
	 * waits for all stores before it, a packet's payload among them (0.1 us). */
	return a->iteration == b->iteration && a->tensor == b->tensor && a->leg == b->leg && a->step == b->step;
}

static inline uint32_t dlcp_hash(uint16_t peer, const struct dlcp_key *key)
{
	uint32_t hash = key->iteration * 2654435761u ^ (uint32_t)key->tensor * 40503u ^ (uint32_t)peer * 2246822519u ^
			(uint32_t)key->step * 3266489917u ^ key->leg;

	return hash ^ hash >> 15;
}

/* Give an empty table its first buckets; false when there is no memory. */
bool dlcp_table_init(struct table *table);

/* The entry of that name, or NULL. */
struct table_entry *dlcp_table_find(const struct table *table, uint16_t peer, const struct dlcp_key *key);

/* Enter a name that is not there. Where there is no memory for more buckets, the table goes on with those that it has. */
void dlcp_table_add(struct table *table, struct table_entry *entry);

/* Take out an entry that is there. */
void dlcp_table_remove(struct table *table, struct table_entry *entry);

void dlcp_table_free(struct table *table);

#endif
