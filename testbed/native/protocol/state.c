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
	struct finished *finished = protocol->completions.free;

	if (!finished)
		return malloc(sizeof *finished);
	protocol->completions.free = finished->next;
	return finished;
}

void dlcp_complete(struct dlcp_protocol *protocol, struct finished *finished)
{
	finished->next = NULL;
	*(protocol->completions.head ? &protocol->completions.tail->next : &protocol->completions.head) = finished;
	protocol->completions.tail = finished;
}

/* Twice the room for control packets that wait to leave, up to the most; false when there is none. */
static bool grow_control(struct dlcp_protocol *protocol)
{
	uint32_t waiting = protocol->control.tail - protocol->control.head;
	uint32_t room = protocol->control.room ? 2 * protocol->control.room : CONTROL_LEAST;
	struct control *grown = room <= CONTROL_MOST ? malloc(room * sizeof *grown) : NULL;

	if (!grown)
		return false;
	for (uint32_t i = 0; i < waiting; i++)
		grown[i] = protocol->control.packets[(protocol->control.head + i) & (protocol->control.room - 1)];
	free(protocol->control.packets);
	protocol->control.packets = grown;
	protocol->control.room = room;
	protocol->control.head = 0;
	protocol->control.tail = waiting;
	return true;
}

/* Let a control packet leave soon. A full ring drops it: every one of them is asked for again by a timer. */
void dlcp_control_push(struct dlcp_protocol *protocol, const struct control *control)
{
	if (protocol->control.tail - protocol->control.head == protocol->control.room && !grow_control(protocol)) {
		protocol->statistics.control_dropped++;
		return;
	}
	protocol->control.packets[protocol->control.tail++ & (protocol->control.room - 1)] = *control;
}
