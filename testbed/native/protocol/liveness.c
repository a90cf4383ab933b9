/* Who lives: greetings, silence, and what a peer owes in words. */
#include "liveness.h"

#include <math.h>
#include <stdio.h>

#include "incoming.h"
#include "outgoing.h"
#include "recovery.h"

/* How often, within the silence limit, a peer that owes something and says nothing is asked whether it lives. */
enum { GREETINGS_PER_SILENCE = 8 };
#define FIRST_GREETING_NS (20 * MILLISECOND) /* repeated after so long, then twice that, and so on */
#define GREET_EVERY_NS SECOND                /* while data flow: one packet a second */

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The last sign of life, or since when one is expected. */
static uint64_t silent_since(const struct peer *peer)
{
	return later(peer->liveness.heard_ns, peer->liveness.owed_since_ns);
}

static bool owes(const struct peer *peer)
{
	return !peer->liveness.gone && (peer->receiving.expected_head || peer->sending.waiting_head);
}

/* When a peer that owes something and says nothing counts as gone. R84. */
uint64_t dlcp_gone_time(const struct dlcp_protocol *protocol, const struct peer *peer)
{
	if (!owes(peer))
		return NEVER;
	return silent_since(peer) + (peer->liveness.heard ? protocol->config.silence_ns : protocol->config.first_contact_ns);
}

/* When to greet a peer: before the first data, at times while data flow (the empty path may have become another), and
 * when it owes something and is silent. R81, R82, R83. */
uint64_t dlcp_greeting_time(const struct dlcp_protocol *protocol, const struct peer *peer)
{
	uint32_t doublings = peer->liveness.greetings < BACKOFF_LIMIT ? peer->liveness.greetings : BACKOFF_LIMIT;
	uint64_t at = NEVER;

	if (!owes(peer) || dlcp_records_full(peer))
		return NEVER;
	if (!peer->liveness.greeted)
		return 0;
	if (peer->sending.active)
		at = peer->liveness.greeted_ns + (peer->path.srtt_ns ? GREET_EVERY_NS : FIRST_GREETING_NS << doublings);
	return dlcp_earlier(at, later(silent_since(peer), peer->liveness.greeted_ns) +
				   protocol->config.silence_ns / GREETINGS_PER_SILENCE);
}

/* When a peer that answers, but to which no data get through, counts as gone. R85. */
uint64_t dlcp_blocked_time(const struct dlcp_protocol *protocol, const struct peer *peer)
{
	uint64_t since_ns = peer->liveness.unheard_since_ns;

	return since_ns == NEVER ? NEVER : since_ns + protocol->config.silence_ns;
}

static const char *leg_name(uint8_t leg)
{
	return leg == DLCP_PUSH ? "push" : "pull";
}

/* The oldest debt of a peer, in words. */
static int describe_peer(const struct peer *peer, char *text, size_t bytes)
{
	const struct incoming *expected = peer->receiving.expected_head;
	const struct outgoing *waiting = peer->sending.waiting_head;

	if (expected && !expected->ended && (!waiting || expected->start_ns <= waiting->start_ns))
		return snprintf(text, bytes,
				"rank %u: tensor %u of iteration %u (%s): %u of at most %u packets have arrived",
				peer->rank, expected->entry.key.tensor, expected->entry.key.iteration,
				leg_name(expected->entry.key.leg), expected->arrived, expected->packets);
	if (expected && (!waiting || expected->start_ns <= waiting->start_ns))
		return snprintf(text, bytes,
				"rank %u: tensor %u of iteration %u (%s): %u of %u packets have not arrived",
				peer->rank, expected->entry.key.tensor, expected->entry.key.iteration, leg_name(expected->entry.key.leg),
				expected->packets - expected->arrived, expected->packets);
	if (waiting)
		return snprintf(text, bytes,
				"rank %u: tensor %u of iteration %u (%s): %u of %u packets sent, %u acknowledged, "
				"no STOP yet",
				peer->rank, waiting->entry.key.tensor, waiting->entry.key.iteration, leg_name(waiting->entry.key.leg),
				waiting->progress.cursor, waiting->count, waiting->packets.arrived);
	return snprintf(text, bytes, "rank %u", peer->rank);
}

/* Nothing more is expected of a peer, and nothing sent to it. True if it is the first, whose sentence counts. */
static bool give_up(struct dlcp_protocol *protocol, struct peer *peer)
{
	peer->liveness.gone = true;
	peer->receiving.ack_at_ns = peer->sending.loss_check_ns = peer->sending.done_hint_ns = NEVER;
	if (protocol->gone.rank >= 0)
		return false;
	protocol->gone.rank = peer->rank;
	return true;
}

/* Give up a peer because it, or this rank, was started again while the job ran. */
static void refuse_restart(struct dlcp_protocol *protocol, struct peer *peer, const char *reason)
{
	if (peer->liveness.gone || !give_up(protocol, peer))
		return;
	dlcp_fail(protocol, DLCP_ERROR_PEER_GONE, "rank %u %s. Start all ranks again, with another cookie", peer->rank,
		  reason);
	memcpy(protocol->gone.error, protocol->error, sizeof protocol->gone.error);
}

/* Learn a peer's incarnation from its PROBE or DONE; false if it had another before. A rank that was started again knows
 * nothing of what it sent, and is told so by a STOP that names the incarnation that is known here. R26. */
bool dlcp_check_incarnation(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header)
{
	struct control stop = { .kind = CONTROL_STOP, .peer = peer->rank, .key = dlcp_header_key(header) };

	if (!peer->liveness.incarnation)
		peer->liveness.incarnation = header->offset;
	if (!header->offset || header->offset == peer->liveness.incarnation)
		return true;
	dlcp_control_push(protocol, &stop);
	refuse_restart(protocol, peer,
		       "was started again under the cookie of the same job: what it sent before is lost");
	return false;
}

/* Whether a STOP speaks of what this start of the rank has sent. One without an incarnation comes from a peer that has
 * learned none yet: it is asked again. R25, R26. */
bool dlcp_stop_is_for_us(struct dlcp_protocol *protocol, struct peer *peer, const struct dlcp_header *header)
{
	if (!protocol->config.incarnation || header->offset == protocol->config.incarnation)
		return true;
	if (header->offset)
		refuse_restart(protocol, peer,
			       "knows this rank from an earlier start under the cookie of the same job, so nothing that is "
			       "sent now would count");
	return false;
}

void dlcp_check_silence(struct dlcp_protocol *protocol, struct peer *peer, uint64_t now_ns)
{
	char debt[DLCP_ERROR_BYTES / 2];
	bool silent = dlcp_gone_time(protocol, peer) <= now_ns;

	if (!peer->sending.active && !peer->sending.in_flight)
		peer->liveness.unheard_since_ns = NEVER; /* what was lost need not be sent again */
	if (!silent && dlcp_blocked_time(protocol, peer) > now_ns)
		return;
	if (!give_up(protocol, peer))
		return;
	describe_peer(peer, debt, sizeof debt);
	if (silent)
		dlcp_fail(protocol, DLCP_ERROR_PEER_GONE, "rank %u is gone: silent for %.1f s while it owes: %s",
			  peer->rank, (double)(now_ns - silent_since(peer)) / 1e9, debt);
	else
		dlcp_fail(protocol, DLCP_ERROR_PEER_GONE,
			  "rank %u answers, but for %.1f s no data got through to it: %s. %s", peer->rank,
			  (double)(now_ns - peer->liveness.unheard_since_ns) / 1e9, debt,
			  peer->liveness.probe_heard ?
				  "Small packets pass, full ones do not: path MTU or a filter?" :
				  "Only the control queue passes: is the queue of the data starved or filtered?");
	memcpy(protocol->gone.error, protocol->error, sizeof protocol->gone.error);
}

int dlcp_protocol_gone(struct dlcp_protocol *protocol)
{
	if (protocol->gone.rank >= 0) /* other calls may have failed since */
		memcpy(protocol->error, protocol->gone.error, sizeof protocol->error);
	return protocol->gone.rank;
}

void dlcp_protocol_describe(struct dlcp_protocol *protocol, uint64_t now_ns, char *text, size_t text_bytes)
{
	size_t used = 0;

	if (text_bytes)
		text[0] = 0;
	for (const struct peer *peer = protocol->peer_head; peer && used + 1 < text_bytes; peer = peer->next) {
		int more;

		if (!peer->receiving.expected_head && !peer->sending.waiting_head)
			continue;
		used += (size_t)snprintf(text + used, text_bytes - used, "%s", used ? "; " : "");
		more = used < text_bytes ? describe_peer(peer, text + used, text_bytes - used) : 0;
		used += (size_t)(more > 0 ? more : 0);
		if (used < text_bytes)
			used += (size_t)snprintf(text + used, text_bytes - used, ", last heard %.2f s ago",
						 peer->liveness.heard ? (double)(now_ns - peer->liveness.heard_ns) / 1e9 : INFINITY);
	}
}
