/* Which packets matter: the magnitude of each, its class, the order in which they leave. */
#include <math.h>

#include "protocol_internal.h"

/* Weight of the newest median in a tensor's running one: gradients shrink during training, noise must not matter. */
#define MEDIAN_WEIGHT 0.5f
/* Where a class begins moves from iteration to iteration by the golden ratio, so that a cut tail never names the same
 * range twice in a row and visits all ranges evenly. */
#define GOLDEN_RATIO 0.6180339887498949

/* A quarter of an octave a step: 1 is 2^-56 and below, 255 is 2^7.5 and above, 0 is zero or not a number. */
uint8_t dlcp_magnitude_code(float mean)
{
	uint32_t bits;
	int32_t code;

	if (!(mean > 0))
		return 0;
	memcpy(&bits, &mean, sizeof bits);
	code = (int32_t)(bits >> 21) - (127 - 56) * 4 + 1;
	return (uint8_t)(code < 1 ? 1 : code > 255 ? 255 : code);
}

/* Mean |g| of each packet. Several sums side by side, so that the compiler uses vector registers. */
static void packet_means(const float *data, uint32_t elements, float *means)
{
	enum { LANES = 8 };

	for (uint32_t packet = 0, at = 0; at < elements; packet++) {
		uint32_t count = dlcp_packet_elements(elements, packet), i = 0;
		float sums[LANES] = { 0 }, sum = 0;

		for (; i + LANES <= count; i += LANES)
			for (uint32_t lane = 0; lane < LANES; lane++)
				sums[lane] += fabsf(data[at + i + lane]);
		for (; i < count; i++)
			sum += fabsf(data[at + i]);
		for (uint32_t lane = 0; lane < LANES; lane++)
			sum += sums[lane];
		means[packet] = sum / (float)count;
		at += count;
	}
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

static bool finite_all(const float *values, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!isfinite(values[i]))
			return false;
	return true;
}

/* The threshold below which a packet is small: the running median before this message; its own the first time. */
static float threshold(struct tensor *tensor, float *means, float *scratch, uint32_t packets)
{
	float median, before = tensor->threshold;

	if (!finite_all(means, packets))
		return 0; /* exploded gradients: nothing is small */
	memcpy(scratch, means, packets * sizeof *scratch);
	median = select_kth(scratch, packets, packets / 2);
	tensor->threshold = before > 0 ? before + MEDIAN_WEIGHT * (median - before) : median;
	return before > 0 ? before : median;
}

/* Packets by class, each class as a ring that starts elsewhere in every iteration. */
static void counting_sort(struct outgoing *message)
{
	uint32_t count[CLASSES] = { 0 }, first[CLASSES], place[CLASSES], base = 0;
	double turn = (double)message->key.iteration * GOLDEN_RATIO;

	for (uint32_t packet = 0; packet < message->packets; packet++)
		count[message->class[packet]]++;
	for (uint32_t class = 0; class < CLASSES; class++) {
		uint32_t start = (uint32_t)((turn - floor(turn)) * count[class]);

		first[class] = base;
		place[class] = count[class] - start; /* of the class's first packet */
		base += count[class];
	}
	for (uint32_t packet = 0; packet < message->packets; packet++) {
		uint8_t class = message->class[packet];

		message->order[first[class] + place[class]++ % count[class]] = packet;
	}
}

/* Fill class, magnitude and order of a message whose data and sizes are set. */
void dlcp_classify(struct dlcp_protocol *protocol, struct outgoing *message, struct tensor *tensor)
{
	float *means = protocol->scratch, limit = 0;
	bool bounded = message->allowed_bytes > 0;
	bool selective = bounded && message->key.leg == DLCP_PUSH && tensor->shape.droppable &&
			 protocol->config.selective_drop != DLCP_DROP_OFF;

	packet_means(message->data, message->elements, means);
	if (selective)
		limit = threshold(tensor, means, means + message->packets, message->packets);
	for (uint32_t packet = 0; packet < message->packets; packet++) {
		uint8_t class = bounded ? CLASS_PROTECTED : CLASS_RELIABLE;

		if (selective && means[packet] < limit)
			class = CLASS_DROPPABLE;
		if (packet == 0)
			class = CLASS_RELIABLE;
		message->class[packet] = class;
		message->magnitude[packet] = dlcp_magnitude_code(means[packet]);
	}
	counting_sort(message);
}

/* The TOS byte of a class in a queue. */
uint8_t dlcp_class_tos(const struct dlcp_protocol *protocol, uint8_t queue, uint8_t class)
{
	uint32_t precedence = 0, ecn = DLCP_ECN_NOT_ECT;

	switch (protocol->config.selective_drop) {
	case DLCP_DROP_WRED: precedence = class; break;
	case DLCP_DROP_ECT: ecn = class == CLASS_DROPPABLE ? DLCP_ECN_NOT_ECT : DLCP_ECN_ECT0; break;
	default: break;
	}
	return dlcp_tos(queue, precedence, ecn);
}
