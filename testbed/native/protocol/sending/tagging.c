/* Which packets matter: the magnitude of each, its class, the order in which they leave. */
#include "tagging.h"

#include <math.h>

#include "codepoint.h"
#include "elements.h"

/* Weight of the newest median in a tensor's running one: gradients shrink during training, noise must not matter. */
#define MEDIAN_WEIGHT 0.5f
/* Where a class begins moves from iteration to iteration by the golden ratio, so that a cut tail never names the same
 * range twice in a row and visits all ranges evenly. */
#define GOLDEN_RATIO 0.6180339887498949

/* Fill each packet's metric, its code, and the message's energy. R30, R32. */
static void measure_packets(struct outgoing *message, uint8_t metric, float *found)
{
	bool finite = true;

	message->tags.energy = 0;
	for (uint32_t packet = 0; packet < message->count; packet++) {
		uint32_t count = dlcp_packet_elements(message->elements, message->dtype, packet);
		const uint8_t *data = message->data + (size_t)packet * DLCP_PAYLOAD_BYTES;
		struct dlcp_measure one = dlcp_measure_elements(message->dtype, metric, data, count);

		found[packet] = one.metric;
		message->tags.magnitude[packet] = dlcp_magnitude_code(sqrtf(one.mean_square));
		message->tags.energy += count * dlcp_code_energy(message->tags.magnitude[packet]);
		finite = finite && message->tags.magnitude[packet] != DLCP_CODE_NOT_FINITE;
	}
	if (!finite)
		message->tags.energy = INFINITY;
	message->tags.energy_code = dlcp_energy_code(message->tags.energy);
}

/* The k-th smallest (Wirth's selection); reorders the values, which hold no NaN. */
static float select_kth(float *values, int64_t count, int64_t k)
{
	int64_t low = 0, high = count - 1;

	while (low < high) {
		float pivot = values[k];
		int64_t i = low, j = high;

		do {
			while (values[i] < pivot)
				i++;
			while (pivot < values[j])
				j--;
			if (i <= j) {
				float swap = values[i];

				values[i++] = values[j];
				values[j--] = swap;
			}
		} while (i <= j);
		if (j < k)
			low = i;
		if (k < i)
			high = j;
	}
	return values[k];
}

/* The threshold below which a packet is small: the running median before this message; its own the first time. R40. */
static float threshold(struct tensor *tensor, const float *found, float *scratch, uint32_t packets)
{
	float median, before = tensor->threshold;

	memcpy(scratch, found, packets * sizeof *scratch);
	median = select_kth(scratch, packets, packets / 2);
	tensor->threshold = before > 0 ? before + MEDIAN_WEIGHT * (median - before) : median;
	return before > 0 ? before : median;
}

static void must_arrive(struct outgoing *message, uint32_t packet)
{
	message->tags.class[packet] = CLASS_RELIABLE;
	message->tags.must_arrive++;
}

/* The packets of the largest gradients that must arrive: class and count. found: the metric by packet. R43. */
static void pick_largest(struct outgoing *message, uint32_t ppm, const float *found, float *scratch)
{
	uint32_t wanted = (uint32_t)dlcp_share(message->count, ppm);
	float least;

	if (!wanted)
		return;
	memcpy(scratch, found, message->count * sizeof *scratch);
	least = select_kth(scratch, message->count, message->count - wanted);
	for (uint32_t packet = 0; packet < message->count; packet++)
		if (found[packet] > least)
			must_arrive(message, packet);
	/* Those as large as the least of them, which may be many (sparse gradients: zeros), fill up the number. */
	for (uint32_t packet = 0; packet < message->count && message->tags.must_arrive < wanted; packet++)
		if (found[packet] == least)
			must_arrive(message, packet);
}

/* Packets by class, each class as a ring that starts elsewhere in every iteration. R38, R42. */
static void counting_sort(struct outgoing *message)
{
	uint32_t count[CLASSES] = { 0 }, first[CLASSES], place[CLASSES], base = 0;
	double turn = (double)message->entry.key.iteration * GOLDEN_RATIO;

	for (uint32_t packet = 0; packet < message->count; packet++)
		count[message->tags.class[packet]]++;
	for (uint32_t class = 0; class < CLASSES; class++) {
		uint32_t start = (uint32_t)((turn - floor(turn)) * count[class]);

		first[class] = base;
		place[class] = count[class] - start; /* of the class's first packet */
		base += count[class];
	}
	for (uint32_t packet = 0; packet < message->count; packet++) {
		uint8_t class = message->tags.class[packet];

		message->tags.order[first[class] + place[class]++ % count[class]] = packet;
	}
}

/* What may be missing of a message that was measured. A message with a value that is not finite has no energy to take a
 * share of: a limit on that means that nothing may be missing. R49. */
static void allow(struct outgoing *message, struct dlcp_bound bound)
{
	bool unlimited = bound.energy_ppm == DLCP_PPM;

	if (!unlimited && !isfinite(message->tags.energy))
		bound.bytes_ppm = 0;
	message->tags.allowed_bytes = dlcp_share(dlcp_message_bytes(message->elements, message->dtype), bound.bytes_ppm);
	message->tags.allowed_energy = unlimited ? INFINITY : message->tags.energy * bound.energy_ppm / DLCP_PPM;
}

/* Fill magnitude, energy, bound, class and order of a message whose data and sizes are set. R33, R39. */
void dlcp_tag(struct dlcp_protocol *protocol, struct outgoing *message, struct tensor *tensor,
	      const struct dlcp_bound *bound)
{
	bool selective = message->entry.key.leg == DLCP_PUSH && protocol->config.selective_drop != DLCP_DROP_OFF, bounded;
	uint8_t mask = selective ? tensor->shape.droppable : 0;
	uint32_t largest = message->entry.key.leg == DLCP_PUSH ? tensor->shape.must_arrive_ppm : 0;
	float *found = protocol->scratch, limit = 0;
	struct dlcp_bound allowed = dlcp_message_bound(&tensor->shape, message->entry.key.leg, bound);
	bool tagged = allowed.bytes_ppm || (protocol->config.tag_all && !tensor->shape.must_arrive);

	message->tags.must_arrive = 0;
	if (tagged) {
		measure_packets(message, mask || largest ? protocol->config.magnitude_metric : DLCP_METRIC_L2, found);
	} else { /* nothing may be missing: nobody asks how much of the energy is, and 1 ms for 10 MB is saved */
		memset(message->tags.magnitude, 0, message->count);
		message->tags.energy = 0;
		message->tags.energy_code = 0;
	}
	allow(message, allowed);
	bounded = message->tags.allowed_bytes > 0 || (tagged && protocol->config.tag_all);
	/* R41 */
	if (!bounded || !isfinite(message->tags.energy)) /* exploded gradients tell nothing of what is small */
		mask = 0;
	if (mask)
		limit = threshold(tensor, found, found + message->count, message->count);
	for (uint32_t packet = 0; packet < message->count; packet++) {
		uint8_t class = bounded ? CLASS_PROTECTED : CLASS_RELIABLE;

		if (mask & (found[packet] < limit ? DLCP_DROPPABLE_SMALL : DLCP_DROPPABLE_LARGE))
			class = CLASS_DROPPABLE;
		message->tags.class[packet] = class;
	}
	if (bounded && largest && isfinite(message->tags.energy))
		pick_largest(message, largest, found, found + message->count);
	counting_sort(message);
}

/* The TOS byte of a class in a queue. R36. */
uint8_t dlcp_class_tos(const struct dlcp_protocol *protocol, uint8_t queue, uint8_t class)
{
	uint32_t precedence = 0, ecn = protocol->ecn ? DLCP_ECN_ECT0 : DLCP_ECN_NOT_ECT;

	switch (protocol->config.selective_drop) {
	case DLCP_DROP_WRED: precedence = class; break;
	case DLCP_DROP_ECT: ecn = class == CLASS_DROPPABLE ? DLCP_ECN_NOT_ECT : DLCP_ECN_ECT0; break;
	default: break;
	}
	return dlcp_tos(queue, precedence, ecn);
}
