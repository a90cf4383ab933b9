/* The registry of congestion controls. */
#include "congestion.h"

#include <string.h>

static struct dlcp_congestion *algorithms;

void dlcp_congestion_register(struct dlcp_congestion *algorithm)
{
	algorithm->next = algorithms;
	algorithms = algorithm;
}

const struct dlcp_congestion *dlcp_congestion_find(const char *name)
{
	for (const struct dlcp_congestion *found = algorithms; found; found = found->next)
		if (strcmp(found->name, name) == 0)
			return found;
	return NULL;
}
