/* What every part of the state machine may do: fail with a sentence, complete a message, let a control packet leave. */
#include "state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int dlcp_fail(struct dlcp_protocol *protocol, int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(protocol->error, sizeof protocol->error, format, arguments);
	va_end(arguments);
	return code;
}

/* Memory for one completion, taken when its message begins so that its end needs none. */
struct finished *dlcp_take_completion(struct dlcp_protocol *protocol)
{
	struct finished *finished = protocol->free_finished;

	if (!finished)
		return malloc(sizeof *finished);
	protocol->free_finished = finished->next;
	return finished;
}

void dlcp_complete(struct dlcp_protocol *protocol, struct finished *finished)
{
	finished->next = NULL;
	*(protocol->finished_head ? &protocol->finished_tail->next : &protocol->finished_head) = finished;
	protocol->finished_tail = finished;
}

/* Twice the room for control packets that wait to leave, up to the most; false when there is none. */
static bool grow_control(struct dlcp_protocol *protocol)
{
	uint32_t waiting = protocol->control_tail - protocol->control_head;
	uint32_t room = protocol->control_room ? 2 * protocol->control_room : CONTROL_LEAST;
	struct control *grown = room <= CONTROL_MOST ? malloc(room * sizeof *grown) : NULL;

	if (!grown)
		return false;
	for (uint32_t i = 0; i < waiting; i++)
		grown[i] = protocol->control[(protocol->control_head + i) & (protocol->control_room - 1)];
	free(protocol->control);
	protocol->control = grown;
	protocol->control_room = room;
	protocol->control_head = 0;
	protocol->control_tail = waiting;
	return true;
}

/* Let a control packet leave soon. A full ring drops it: every one of them is asked for again by a timer. */
void dlcp_control_push(struct dlcp_protocol *protocol, const struct control *control)
{
	if (protocol->control_tail - protocol->control_head == protocol->control_room && !grow_control(protocol)) {
		protocol->statistics.control_dropped++;
		return;
	}
	protocol->control[protocol->control_tail++ & (protocol->control_room - 1)] = *control;
}
