/* Messages under way, by peer and key. */
#include "table.h"

#include <stdlib.h>

enum { FIRST_BUCKETS = 64 }; /* a power of two */

bool dlcp_table_init(struct table *table)
{
	*table = (struct table){ .buckets = calloc(FIRST_BUCKETS, sizeof *table->buckets), .room = FIRST_BUCKETS };
	return table->buckets != NULL;
}

static struct table_entry **bucket_of(const struct table *table, uint16_t peer, const struct dlcp_key *key)
{
	return &table->buckets[dlcp_hash(peer, key) & (table->room - 1)];
}

struct table_entry *dlcp_table_find(const struct table *table, uint16_t peer, const struct dlcp_key *key)
{
	struct table_entry *entry = *bucket_of(table, peer, key);

	while (entry && (entry->peer != peer || !dlcp_same_key(&entry->key, key)))
		entry = entry->next;
	return entry;
}

static void enter(struct table *table, struct table_entry *entry)
{
	struct table_entry **bucket = bucket_of(table, entry->peer, &entry->key);

	entry->next = *bucket;
	*bucket = entry;
}

/* Twice as many buckets, so that one holds an entry or two. */
static void grow(struct table *table)
{
	struct table grown = { .buckets = calloc(2 * (size_t)table->room, sizeof *grown.buckets),
			       .room = 2 * table->room,
			       .count = table->count };

	if (!grown.buckets)
		return;
	for (uint32_t i = 0; i < table->room; i++)
		for (struct table_entry *next, *entry = table->buckets[i]; entry; entry = next) {
			next = entry->next;
			enter(&grown, entry);
		}
	free(table->buckets);
	*table = grown;
}

void dlcp_table_add(struct table *table, struct table_entry *entry)
{
	if (table->count == table->room)
		grow(table);
	enter(table, entry);
	table->count++;
}

void dlcp_table_remove(struct table *table, struct table_entry *entry)
{
	struct table_entry **at = bucket_of(table, entry->peer, &entry->key);

	while (*at != entry)
		at = &(*at)->next;
	*at = entry->next;
	table->count--;
}

void dlcp_table_free(struct table *table)
{
	free(table->buckets);
}
