/* The engine: its thread, its timer, the doors for the caller's threads. The sockets are in sockets.c and datagrams.c.
 * Times are of the lab (clock.h) but where a name begins with host_.
 */
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "datagrams.h"

#define NEVER UINT64_MAX
#define SECOND UINT64_C(1000000000)
#define DEFAULT_LINGER_NS UINT64_C(100000000)
#define RETRY_NS UINT64_C(200000) /* after ENOBUFS */
/* R100 */
#define STUCK_NS UINT64_C(100000000) /* a socket that takes nothing for so long must not hold the timers up */
/* While data stream in, reading them every so often costs less than being woken by each burst: waking a thread on another
 * core takes the sender 6 us (measured, virtual machine). A network card's interrupt moderation does the same. */
#define NAP_NS UINT64_C(100000)
/* On a slow link each packet comes alone, and a thread that is woken for every one spends more than on the packets: there
 * it lets two gather. Measured at 100 Mbit/s, eight senders to one: 53 us of CPU a packet became 36, goodput stayed at
 * 98 % of the limit; with four packets it fell to 94 %. Acknowledgements tell how long they were held, so round-trip times
 * stay true. On links so slow that this takes longer than the longest nap, a packet is rare enough to be woken for. */
enum { NAP_PACKETS = 2 };
#define LONGEST_NAP_NS 2500000.0
#define LARGEST_DILATION 1e6 /* beyond it a link of 1 Tbit/s has less than 1 Mbit/s */
enum { LONGEST_LINGER = 10, BURSTS_AT_ONCE = 64, STREAM_PACKETS = 8 };

struct dlcp_engine {
	struct dlcp_protocol *protocol;
	struct datagrams datagrams;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_mutex_t tagging; /* taken before `lock`: one caller at a time tags or declares, beside the thread */
	pthread_cond_t completed;
	bool closing;
	int event; /* readable: a caller has something for the thread */
	uint64_t linger_ns;
	uint64_t nap_ns;
	uint32_t stream_packets; /* read since it slept: so many are a stream */
	struct dlcp_engine_statistics statistics;
};

static _Thread_local char sentence[DLCP_ERROR_BYTES]; /* of this thread's latest call that failed */

/* This host's clock. */
static uint64_t host_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

/* The clock that engine and protocol reckon with: lab time. */
static uint64_t now_ns(const struct dlcp_engine *engine)
{
	return dlcp_clock_lab(&engine->datagrams.clock, host_now_ns());
}

static void wake(const struct dlcp_engine *engine)
{
	uint64_t one = 1;

	while (write(engine->event, &one, sizeof one) < 0 && errno == EINTR)
		;
}

/* Everything that may leave, up to a bound, so that packets are read in between. Returns when to come back. */
static uint64_t transmit(struct dlcp_engine *engine)
{
	struct datagrams *datagrams = &engine->datagrams;

	for (int i = 0; i < BURSTS_AT_ONCE; i++) {
		enum datagrams_sent sent;
		uint64_t now = now_ns(engine);

		if (datagrams->pending && now - datagrams->pending_since_ns >= STUCK_NS)
			datagrams_abandon(datagrams, &engine->statistics);
		if (!datagrams->pending && !dlcp_protocol_poll_transmit(engine->protocol, now, &datagrams->burst))
			return dlcp_protocol_next_timer(engine->protocol, now_ns(engine));
		sent = datagrams_send(datagrams, now, &engine->statistics);
		if (sent == DATAGRAMS_BLOCKED)
			return datagrams->pending_since_ns + STUCK_NS;
		if (sent == DATAGRAMS_NO_BUFFER)
			return now_ns(engine) + RETRY_NS;
	}
	return 0;
}

static void note_lateness(struct dlcp_engine *engine, uint64_t late_ns)
{
	engine->statistics.timer_wakeups++;
	engine->statistics.timer_late_sum_ns += late_ns;
	if (late_ns > engine->statistics.timer_late_max_ns)
		engine->statistics.timer_late_max_ns = late_ns;
}

/* Sleep until a packet, a time (of the lab), a caller, or room in a socket that has none; while data stream in, let some gather
 * instead of the packet, but miss no timer and no caller. ppoll and not epoll: a socket that an epoll watches runs its
 * callback whenever a packet that it sent is freed, 0.1 us each. */
static void sleep_until_something(struct dlcp_engine *engine, uint64_t at_ns, bool blocked, bool streams)
{
	struct pollfd watched[] = {
		{ .fd = engine->event, .events = POLLIN },
		{ .fd = streams ? -1 : engine->datagrams.sockets[0], .events = POLLIN },
		{ .fd = blocked ? engine->datagrams.sender : -1, .events = POLLOUT },
	};
	uint64_t host_now = host_now_ns(), now = dlcp_clock_lab(&engine->datagrams.clock, host_now), callers, left_ns;
	bool naps = streams && at_ns > now + engine->nap_ns;

	if (naps)
		at_ns = now + engine->nap_ns;
	at_ns = dlcp_clock_host(&engine->datagrams.clock, at_ns); /* from here on this host's clock counts */
	left_ns = at_ns > host_now ? at_ns - host_now : 0;
	struct timespec left = { .tv_sec = (time_t)(left_ns / SECOND), .tv_nsec = (long)(left_ns % SECOND) };
	int count;

	if (!left_ns)
		return;
	count = ppoll(watched, sizeof watched / sizeof *watched, at_ns == NEVER ? NULL : &left, NULL);
	if (watched[0].revents && read(engine->event, &callers, sizeof callers) < 0)
		callers = 0; /* somebody's write is on its way: it wakes again */
	host_now = host_now_ns();
	pthread_mutex_lock(&engine->lock);
	engine->statistics.wakeups++;
	if (count == 0 && !naps)
		note_lateness(engine, host_now > at_ns ? host_now - at_ns : 0);
	pthread_mutex_unlock(&engine->lock);
}

/* How long to let data gather, and how many packets at one waking make a stream, on a link of a rate. R96. */
static void choose_nap(struct dlcp_engine *engine, double link_bps)
{
	double packet_ns = DLCP_DATAGRAM_BYTES * 8e9 / link_bps, gathered_ns = NAP_PACKETS * packet_ns;
	double at_once = (double)NAP_NS / packet_ns;

	engine->nap_ns = NAP_NS;
	engine->stream_packets = at_once >= STREAM_PACKETS ? STREAM_PACKETS : at_once >= 1 ? (uint32_t)at_once : 1;
	if (gathered_ns > LONGEST_NAP_NS)
		engine->stream_packets = UINT32_MAX;
	else if (gathered_ns > (double)NAP_NS)
		engine->nap_ns = (uint64_t)gathered_ns;
}

/* Closing: until when peers may still need an answer. Moves on while they ask. */
struct farewell {
	uint64_t until_ns, longest_ns, answers;
};

/* R102 */
static bool may_leave(struct dlcp_engine *engine, struct farewell *farewell)
{
	struct dlcp_statistics statistics;
	uint64_t now = now_ns(engine);

	if (!engine->closing)
		return false;
	dlcp_protocol_statistics(engine->protocol, &statistics);
	if (!farewell->longest_ns)
		farewell->longest_ns = now + LONGEST_LINGER * engine->linger_ns;
	if (!farewell->until_ns || farewell->answers != statistics.stops_sent + statistics.nacks_sent ||
	    (dlcp_protocol_sending(engine->protocol) && dlcp_protocol_gone(engine->protocol) < 0)) {
		farewell->answers = statistics.stops_sent + statistics.nacks_sent;
		farewell->until_ns = now + engine->linger_ns;
	}
	return now >= farewell->until_ns || now >= farewell->longest_ns;
}

/* Acknowledgements that wait for a core behind a training step stop the sender, so ask for the lowest real-time
 * priority. The thread sleeps between packets; a kernel's transport works in interrupts, ahead of all threads, too. */
static int become_realtime(void)
{
	struct sched_param lowest = { .sched_priority = sched_get_priority_min(SCHED_RR) };

	return pthread_setschedparam(pthread_self(), SCHED_RR, &lowest);
}

/* Give what was read to the protocol. A message that ends hands its data back to the caller: what the socket has not taken
 * of it must not be read any more. R101. */
static uint32_t input(struct dlcp_engine *engine)
{
	uint32_t sending = dlcp_protocol_sending(engine->protocol), packets;

	packets = datagrams_input(&engine->datagrams, engine->protocol, now_ns(engine), &engine->statistics);
	if (dlcp_protocol_sending(engine->protocol) < sending && datagrams_holds_data(&engine->datagrams))
		datagrams_abandon(&engine->datagrams, &engine->statistics);
	return packets;
}

static void *run(void *argument)
{
	struct dlcp_engine *engine = argument;
	struct farewell farewell = { 0 };
	uint32_t packets = 0; /* read since it slept */

	pthread_mutex_lock(&engine->lock);
	engine->statistics.realtime_errno = become_realtime();
	pthread_mutex_unlock(&engine->lock);
	prctl(PR_SET_NAME, "dlcp-engine");
	prctl(PR_SET_TIMERSLACK, 1); /* the default adds 50 us and more to every pacing timer */
	for (;;) {
		bool more = datagrams_receive(&engine->datagrams);
		uint64_t at;

		pthread_mutex_lock(&engine->lock);
		engine->statistics.receive_calls++;
		do {
			packets += input(engine);
			at = transmit(engine);
		} while (datagrams_left(&engine->datagrams));
		if (dlcp_protocol_has_completion(engine->protocol) || dlcp_protocol_gone(engine->protocol) >= 0)
			pthread_cond_broadcast(&engine->completed);
		if (may_leave(engine, &farewell)) {
			pthread_mutex_unlock(&engine->lock);
			return NULL;
		}
		if (engine->closing && farewell.until_ns < at)
			at = farewell.until_ns;
		bool blocked = engine->datagrams.pending;
		pthread_mutex_unlock(&engine->lock);
		if (more)
			continue;
		sleep_until_something(engine, at, blocked, packets >= engine->stream_packets);
		packets = 0;
	}
}

static bool open_files(struct dlcp_engine *engine, const struct dlcp_engine_config *config, char *error, size_t bytes)
{
	if (!datagrams_open(&engine->datagrams, config, &engine->statistics, error, bytes))
		return false;
	engine->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (engine->event < 0) {
		snprintf(error, bytes, "eventfd: %m");
		return false;
	}
	return true;
}

static void free_engine(struct dlcp_engine *engine)
{
	if (engine->event >= 0)
		close(engine->event);
	datagrams_close(&engine->datagrams);
	dlcp_protocol_free(engine->protocol);
	pthread_cond_destroy(&engine->completed);
	pthread_mutex_destroy(&engine->lock);
	pthread_mutex_destroy(&engine->tagging);
	free(engine);
}

/* A number that no other start of this rank has, unless the caller chose one. */
static bool choose_incarnation(struct dlcp_config *config, char *error, size_t error_bytes)
{
	while (!config->incarnation)
		if (getrandom(&config->incarnation, sizeof config->incarnation, 0) < 0 && errno != EINTR) {
			snprintf(error, error_bytes, "getrandom: %m");
			return false;
		}
	return true;
}

struct dlcp_engine *dlcp_engine_new(const struct dlcp_engine_config *given, char *error, size_t error_bytes)
{
	struct dlcp_engine *engine = calloc(1, sizeof *engine);
	struct dlcp_engine_config lab = *given, *config = &lab;
	pthread_condattr_t attributes;

	if (!engine) {
		snprintf(error, error_bytes, "no memory");
		return NULL;
	}
	if (given->time_dilation && !(given->time_dilation >= 1 && given->time_dilation <= LARGEST_DILATION)) {
		snprintf(error, error_bytes, "time dilation %g is not between 1 and %g", given->time_dilation, LARGEST_DILATION);
		free(engine);
		return NULL;
	}
	engine->datagrams.clock = dlcp_clock_new(given->time_dilation, host_now_ns());
	/* R104 */
	lab.protocol.link_bps *= engine->datagrams.clock.dilation; /* what the link carries in a second of the lab */
	engine->event = engine->datagrams.sockets[0] = -1;
	engine->linger_ns = config->linger_ns ? config->linger_ns : DEFAULT_LINGER_NS;
	pthread_mutex_init(&engine->lock, NULL);
	pthread_mutex_init(&engine->tagging, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&engine->completed, &attributes);
	pthread_condattr_destroy(&attributes);
	if (choose_incarnation(&lab.protocol, error, error_bytes))
		engine->protocol = dlcp_protocol_new(&config->protocol, error, error_bytes);
	if (!engine->protocol || !open_files(engine, config, error, error_bytes)) {
		free_engine(engine);
		return NULL;
	}
	choose_nap(engine, config->protocol.link_bps);
	errno = pthread_create(&engine->thread, NULL, run, engine);
	if (errno) {
		snprintf(error, error_bytes, "thread: %m");
		free_engine(engine);
		return NULL;
	}
	return engine;
}

int dlcp_engine_port(const struct dlcp_engine *engine)
{
	return engine->datagrams.ports[0];
}

/* The protocol's sentences count in lab seconds: add that for a reader whose clock is the host's. R106. */
static void append_time_note(const struct dlcp_engine *engine, char *text, size_t text_bytes)
{
	size_t used = strlen(text);

	if (used && dlcp_clock_dilates(&engine->datagrams.clock))
		snprintf(text + used, text_bytes - used, " (in seconds of the lab, each %g s here)",
			 engine->datagrams.clock.dilation);
}

/* Copy the protocol's sentence out while the lock is held; pass its code on. */
static int told(struct dlcp_engine *engine, int code)
{
	if (code < 0)
		snprintf(sentence, sizeof sentence, "%s", dlcp_protocol_error(engine->protocol));
	if (code == DLCP_ERROR_PEER_GONE)
		append_time_note(engine, sentence, sizeof sentence);
	return code;
}

int dlcp_engine_source_ports(const struct dlcp_engine *engine, uint16_t *ports)
{
	uint32_t count = engine->datagrams.count - 1;

	memcpy(ports, engine->datagrams.ports + 1, count * sizeof *ports);
	return (int)count;
}

int dlcp_engine_add_peer(struct dlcp_engine *engine, uint16_t rank, const char *address, uint16_t port,
			 const uint16_t *source_ports, uint32_t source_count)
{
	char why[DLCP_ERROR_BYTES / 2];
	struct peer_address peer;
	int code;

	pthread_mutex_lock(&engine->lock);
	if (rank < DLCP_MAX_RANKS && !datagrams_reserve_peer(&engine->datagrams, rank)) {
		snprintf(sentence, sizeof sentence, "no memory for rank %u", rank);
		code = DLCP_ERROR_MEMORY;
	} else if (datagrams_peer_address(&engine->datagrams, address, port, source_ports, source_count, &peer, why,
					  sizeof why)) {
		code = told(engine, dlcp_protocol_add_peer(engine->protocol, rank, now_ns(engine)));
		if (code == DLCP_OK)
			engine->datagrams.peers[rank] = peer;
	} else {
		snprintf(sentence, sizeof sentence, "rank %u: %s", rank, why);
		code = DLCP_ERROR_ARGUMENT;
	}
	pthread_mutex_unlock(&engine->lock);
	return code;
}

int dlcp_engine_declare(struct dlcp_engine *engine, uint16_t tensor, const struct dlcp_tensor *shape)
{
	int code;

	pthread_mutex_lock(&engine->tagging);
	pthread_mutex_lock(&engine->lock);
	code = told(engine, dlcp_protocol_declare(engine->protocol, tensor, shape));
	pthread_mutex_unlock(&engine->lock);
	pthread_mutex_unlock(&engine->tagging);
	return code;
}

/* Convert a caller's deadlines; 0, which is none, stays 0. */
static void deadlines_to_lab_time(const struct dlcp_clock *clock, const struct dlcp_deadline *deadlines, uint32_t count,
			   struct dlcp_deadline *lab)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t after_ns = dlcp_clock_lab_duration(clock, deadlines[i].after_first_ns);

		lab[i] = deadlines[i];
		lab[i].at_ns = dlcp_clock_lab(clock, deadlines[i].at_ns);
		lab[i].after_first_ns = deadlines[i].after_first_ns && !after_ns ? 1 : after_ns;
	}
}

int dlcp_engine_receive(struct dlcp_engine *engine, uint16_t peer, const struct dlcp_key *key,
			const struct dlcp_destination *to)
{
	struct dlcp_deadline deadlines[DLCP_DEADLINES];
	struct dlcp_destination lab = *to;
	int code;

	if (to->deadline_count <= DLCP_DEADLINES) { /* else the protocol refuses them all */
		deadlines_to_lab_time(&engine->datagrams.clock, to->deadlines, to->deadline_count, deadlines);
		lab.deadlines = deadlines;
	}
	pthread_mutex_lock(&engine->lock);
	code = told(engine, dlcp_protocol_receive(engine->protocol, peer, key, &lab, now_ns(engine)));
	if (dlcp_protocol_has_completion(engine->protocol)) /* all of it came before it was expected */
		pthread_cond_broadcast(&engine->completed);
	pthread_mutex_unlock(&engine->lock);
	wake(engine); /* its silence timer begins */
	return code;
}

int dlcp_engine_send(struct dlcp_engine *engine, uint16_t peer, const struct dlcp_key *key,
		     const struct dlcp_source *from)
{
	struct outgoing *message;
	int code;

	pthread_mutex_lock(&engine->tagging);
	pthread_mutex_lock(&engine->lock);
	code = told(engine, dlcp_protocol_prepare(engine->protocol, peer, key, from, now_ns(engine), &message));
	pthread_mutex_unlock(&engine->lock);
	if (code == DLCP_OK) {
		dlcp_protocol_tag(engine->protocol, message, from);
		pthread_mutex_lock(&engine->lock);
		dlcp_protocol_commit(engine->protocol, message, now_ns(engine));
		pthread_mutex_unlock(&engine->lock);
	}
	pthread_mutex_unlock(&engine->tagging);
	wake(engine);
	return code;
}

/* Convert a completion's instants; 0, which is none, stays 0. R105. */
static void completion_to_host_time(const struct dlcp_clock *clock, struct dlcp_completion *completion)
{
	completion->start_ns = dlcp_clock_host(clock, completion->start_ns);
	completion->end_ns = dlcp_clock_host(clock, completion->end_ns);
	completion->first_ns = dlcp_clock_host(clock, completion->first_ns);
}

int dlcp_engine_wait(struct dlcp_engine *engine, uint64_t timeout_ns, struct dlcp_completion *completions, int most)
{
	uint64_t until_ns = host_now_ns() + (timeout_ns < 3600 * SECOND ? timeout_ns : 3600 * SECOND);
	struct timespec until = { .tv_sec = (time_t)(until_ns / SECOND), .tv_nsec = (long)(until_ns % SECOND) };
	int count = 0;

	pthread_mutex_lock(&engine->lock);
	while (!dlcp_protocol_has_completion(engine->protocol) && dlcp_protocol_gone(engine->protocol) < 0)
		if (pthread_cond_timedwait(&engine->completed, &engine->lock, &until) == ETIMEDOUT)
			break;
	while (count < most && dlcp_protocol_poll_completion(engine->protocol, &completions[count]))
		completion_to_host_time(&engine->datagrams.clock, &completions[count++]);
	if (!count && dlcp_protocol_gone(engine->protocol) >= 0)
		count = told(engine, DLCP_ERROR_PEER_GONE);
	pthread_mutex_unlock(&engine->lock);
	return count;
}

void dlcp_engine_describe(struct dlcp_engine *engine, char *text, size_t text_bytes)
{
	pthread_mutex_lock(&engine->lock);
	dlcp_protocol_describe(engine->protocol, now_ns(engine), text, text_bytes);
	append_time_note(engine, text, text_bytes);
	pthread_mutex_unlock(&engine->lock);
}

void dlcp_engine_statistics(struct dlcp_engine *engine, struct dlcp_engine_statistics *statistics)
{
	struct timespec cpu = { 0 };
	clockid_t clock;

	pthread_mutex_lock(&engine->lock);
	*statistics = engine->statistics;
	dlcp_protocol_statistics(engine->protocol, &statistics->protocol);
	pthread_mutex_unlock(&engine->lock);
	if (pthread_getcpuclockid(engine->thread, &clock) == 0 && clock_gettime(clock, &cpu) == 0)
		statistics->cpu_ns = (uint64_t)cpu.tv_sec * SECOND + (uint64_t)cpu.tv_nsec;
}

int dlcp_engine_peer_statistics(struct dlcp_engine *engine, uint16_t rank, struct dlcp_peer_statistics *statistics)
{
	const struct dlcp_clock *clock = &engine->datagrams.clock;
	int code;

	pthread_mutex_lock(&engine->lock);
	code = dlcp_protocol_peer_statistics(engine->protocol, rank, statistics);
	pthread_mutex_unlock(&engine->lock);
	if (code != DLCP_OK)
		return code;
	statistics->min_rtt_ns = dlcp_clock_host_duration(clock, statistics->min_rtt_ns);
	statistics->srtt_ns = dlcp_clock_host_duration(clock, statistics->srtt_ns);
	statistics->rttvar_ns = dlcp_clock_host_duration(clock, statistics->rttvar_ns);
	return DLCP_OK;
}

const char *dlcp_engine_error(void)
{
	return sentence;
}

void dlcp_engine_close(struct dlcp_engine *engine)
{
	if (!engine)
		return;
	pthread_mutex_lock(&engine->lock);
	engine->closing = true;
	pthread_mutex_unlock(&engine->lock);
	wake(engine);
	pthread_join(engine->thread, NULL);
	free_engine(engine);
}

void dlcp_engine_abort(struct dlcp_engine *engine)
{
	if (!engine)
		return;
	pthread_mutex_lock(&engine->lock);
	engine->linger_ns = 0;
	pthread_mutex_unlock(&engine->lock);
	dlcp_engine_close(engine);
}
