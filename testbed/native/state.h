/* What every part of the state machine may do. */
#ifndef DLCP_STATE_H
#define DLCP_STATE_H

#include "protocol_internal.h"

/* Keep an error's sentence for dlcp_protocol_error; returns the code. */
int dlcp_fail(struct dlcp_protocol *protocol, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Memory for one completion, taken when its message begins so that its end needs none. NULL: there is none. */
struct finished *dlcp_take_completion(struct dlcp_protocol *protocol);

/* Hand a completion out, behind those that wait to be polled. */
void dlcp_complete(struct dlcp_protocol *protocol, struct finished *finished);

/* Let a control packet leave soon. A full ring drops it: every one of them is asked for again by a timer. */
void dlcp_control_push(struct dlcp_protocol *protocol, const struct control *control);

#endif
