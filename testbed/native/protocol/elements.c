/* 16-bit types are widened to float32, worked on, and rounded back. Vectors are GCC's own, in several chains, so that sums
 * do not wait for each other; the compiler cuts them into what the processor has. Where it has AVX2 and F16C, this is
 * found out at run time. Both ways give the same bits. */
#include "elements.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define WIDE __attribute__((target("avx2,f16c")))
#endif

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 8, CHAINS = 2, MOST = DLCP_PAYLOAD_BYTES / 2 };

typedef float floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef float packed_floats __attribute__((vector_size(LANES * 4), aligned(1), may_alias)); /* as they lie in packets */
typedef uint16_t halves __attribute__((vector_size(LANES * 2), aligned(1), may_alias));
typedef uint32_t unsigneds __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t words __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

INLINE float as_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof value);
	return value;
}

INLINE uint32_t as_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof bits);
	return bits;
}

INLINE uint16_t load16(const uint8_t *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof value);
	return value;
}

INLINE float from_bfloat16(uint16_t half)
{
	return as_float((uint32_t)half << 16);
}

INLINE uint16_t to_bfloat16(float value)
{
	uint32_t bits = as_bits(value);
	uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;


	return (uint16_t)(isnan(value) ? quiet : rounded);
}

/* The exponent moves by a multiplication, which also makes subnormal numbers normal. */
INLINE float from_float16(uint16_t half)
{
	uint32_t magnitude = half & 0x7fff;
	uint32_t bits = as_bits(as_float(magnitude << 13) * 0x1p112f);

	if (magnitude >= 0x7c00)
		bits = magnitude << 13 | 0x7f800000;
	return as_float(bits | (uint32_t)(half & 0x8000) << 16);
}

INLINE uint16_t to_float16(float value)
{
	uint32_t bits = as_bits(value) & 0x7fffffff, sign = as_bits(value) >> 16 & 0x8000, half;

	if (bits > 0x7f800000)
		half = 0x7e00 | (bits >> 13 & 0x1ff);
	else if (bits >= 0x47800000) /* 65536 */
		half = 0x7c00;
	else if (bits < 0x38800000) /* subnormal: adding 0.5 leaves its bits in the lowest place, rounded */
		half = as_bits(as_float(bits) + 0.5f) - 0x3f000000;
	else
		half = (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
	return (uint16_t)(half | sign);
}

/* The sums of a metric that is known when this is compiled. */
INLINE struct dlcp_measure measure(const float *data, uint32_t count, uint8_t metric)
{
	floats squares[CHAINS] = { { 0 } }, others[CHAINS] = { { 0 } };
	float square = 0, other = 0;
	uint32_t i = 0;

	for (; i + CHAINS * LANES <= count; i += CHAINS * LANES)
		for (uint32_t chain = 0; chain < CHAINS; chain++) {
			floats values = *(const floats *)(data + i + chain * LANES);
			floats magnitudes = (floats)((words)values & 0x7fffffff);

			squares[chain] += values * values;
			if (metric == DLCP_METRIC_MEAN)
				others[chain] += magnitudes;
			if (metric == DLCP_METRIC_MAX) {
				words more = (words)magnitudes > (words)others[chain]; /* no sign: as whole numbers */

				others[chain] = (floats)(((words)magnitudes & more) | ((words)others[chain] & ~more));
			}
		}
	for (uint32_t lane = 0; lane < CHAINS * LANES; lane++) {
		float value = others[lane / LANES][lane % LANES];

		square += squares[lane / LANES][lane % LANES];
		other = metric == DLCP_METRIC_MAX ? fmaxf(other, value) : other + value;
	}
	for (; i < count; i++) {
		square += data[i] * data[i];
		other = metric == DLCP_METRIC_MAX ? fmaxf(other, fabsf(data[i])) : other + fabsf(data[i]);
	}
	square /= (float)count;
	switch (metric) {
	case DLCP_METRIC_L2: return (struct dlcp_measure){ square, sqrtf(square) };
	case DLCP_METRIC_MAX: return (struct dlcp_measure){ square, other };
	default: return (struct dlcp_measure){ square, other / (float)count };
	}
}

INLINE struct dlcp_measure measure_floats(const float *data, uint32_t count, uint8_t metric)
{
	switch (metric) {
	case DLCP_METRIC_L2: return measure(data, count, DLCP_METRIC_L2);
	case DLCP_METRIC_MAX: return measure(data, count, DLCP_METRIC_MAX);
	default: return measure(data, count, DLCP_METRIC_MEAN);
	}
}

INLINE struct dlcp_measure measure_bfloat16(const uint8_t *data, uint32_t count, uint8_t metric)
{
	float values[MOST];

	for (uint32_t i = 0; i < count; i++)
		values[i] = from_bfloat16(load16(data + 2 * i));
	return measure_floats(values, count, metric);
}

static struct dlcp_measure measure_float16(const uint8_t *data, uint32_t count, uint8_t metric)
{
	float values[MOST];

	for (uint32_t i = 0; i < count; i++)
		values[i] = from_float16(load16(data + 2 * i));
	return measure_floats(values, count, metric);
}

INLINE void add_float32(float *to, const uint8_t *from, uint32_t count)
{
	uint32_t i = 0;

	for (; i + LANES <= count; i += LANES)
		*(floats *)(to + i) += *(const packed_floats *)(from + 4 * i);
	for (; i < count; i++) {
		float value;

		memcpy(&value, from + 4 * i, sizeof value);
		to[i] += value;
	}
}

INLINE void add_bfloat16(uint16_t *to, const uint8_t *from, uint32_t count)
{
	uint32_t i = 0;

	for (; i + LANES <= count; i += LANES) {
		halves *at = (halves *)(to + i);
		unsigneds a = __builtin_convertvector(*at, unsigneds) << 16;
		unsigneds b = __builtin_convertvector(*(const halves *)(from + 2 * i), unsigneds) << 16;
		floats sum = (floats)a + (floats)b;
		unsigneds nan = (unsigneds)(sum != sum), high = (unsigneds)sum >> 16;
		unsigneds rounded = ((unsigneds)sum + 0x7fff + (high & 1)) >> 16;

		*at = __builtin_convertvector((rounded & ~nan) | ((high | 0x40) & nan), halves);
	}
	for (; i < count; i++)
		to[i] = to_bfloat16(from_bfloat16(to[i]) + from_bfloat16(load16(from + 2 * i)));
}

static void add_float16(uint16_t *to, const uint8_t *from, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		to[i] = to_float16(from_float16(to[i]) + from_float16(load16(from + 2 * i)));
}

#ifdef WIDE
static bool wide; /* this processor has what WIDE functions use */

__attribute__((constructor)) static void look_at_processor(void)
{
	uint32_t a, b, c, d;

	/* not every compiler's __builtin_cpu_supports knows f16c */
	wide = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

WIDE static struct dlcp_measure measure_wide(uint8_t dtype, uint8_t metric, const void *data, uint32_t count)
{
	const uint8_t *bytes = data;
	float values[MOST];
	uint32_t i = 0;

	if (dtype == DLCP_FLOAT32)
		return measure_floats(data, count, metric);
	if (dtype == DLCP_BFLOAT16)
		return measure_bfloat16(data, count, metric);
	for (; i + 8 <= count; i += 8)
		_mm256_storeu_ps(values + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(bytes + 2 * i))));
	for (; i < count; i++)
		values[i] = from_float16(load16(bytes + 2 * i));
	return measure_floats(values, count, metric);
}

WIDE static void add_bfloat16_wide(uint16_t *to, const uint8_t *from, uint32_t count)
{
	add_bfloat16(to, from, count);
}

/* Returns how many elements it did. */
WIDE static uint32_t add_float16_wide(uint16_t *to, const uint8_t *from, uint32_t count)
{
	uint32_t i = 0;

	for (; i + 8 <= count; i += 8) {
		__m256 sum = _mm256_add_ps(_mm256_cvtph_ps(_mm_loadu_si128((const void *)(to + i))),
					   _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + 2 * i))));

		_mm_storeu_si128((void *)(to + i), _mm256_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT));
	}
	return i;
}
#endif

struct dlcp_measure dlcp_measure_elements(uint8_t dtype, uint8_t metric, const void *data, uint32_t count)
{
	if (dtype == DLCP_UINT8) /* R113 */
		return (struct dlcp_measure){0, 0};
#ifdef WIDE
	if (wide)
		return measure_wide(dtype, metric, data, count);
#endif
	switch (dtype) {
	case DLCP_FLOAT16: return measure_float16(data, count, metric);
	case DLCP_BFLOAT16: return measure_bfloat16(data, count, metric);
	default: return measure_floats(data, count, metric);
	}
}

void dlcp_copy_elements(uint8_t dtype, void *to, const uint8_t *from, uint32_t count)
{
	memcpy(to, from, (size_t)count * dlcp_element_bytes(dtype));
}

void dlcp_add_elements(uint8_t dtype, void *to, const uint8_t *from, uint32_t count)
{
	uint32_t done = 0;

	if (dtype == DLCP_FLOAT32) {
		add_float32(to, from, count);
		return;
	}
#ifdef WIDE
	if (wide && dtype == DLCP_BFLOAT16) {
		add_bfloat16_wide(to, from, count);
		return;
	}
	if (wide)
		done = add_float16_wide(to, from, count);
#endif
	if (dtype == DLCP_BFLOAT16)
		add_bfloat16(to, from, count);
	else
		add_float16((uint16_t *)to + done, from + 2 * done, count - done);
}
