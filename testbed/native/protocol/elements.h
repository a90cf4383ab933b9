/* Arithmetic on the elements of one packet, by dtype. */
#ifndef DLCP_ELEMENTS_H
#define DLCP_ELEMENTS_H

#include "protocol.h"

/* cffi: begin */

/* What one packet's elements amount to. Written by elements.c. */
struct dlcp_measure {
	float mean_square; /* of the elements */
	float metric;      /* mean |g|, root mean square or largest |g|, as asked */
};

/* Measure count elements, 1 to a full packet. What is not finite, or too large to be squared, makes mean_square so.
 * Bytes are no numbers: both are 0. */
struct dlcp_measure dlcp_measure_elements(uint8_t dtype, uint8_t metric, const void *data, uint32_t count);

/* to[i] = from[i]. Here and not where it is used: of a size known to be small the compiler makes a string instruction, which
 * starts slowly; the library's copy does not. */
void dlcp_copy_elements(uint8_t dtype, void *to, const uint8_t *from, uint32_t count);

/* to[i] += from[i] in the dtype, rounded to the nearest, ties to even. `from` may lie at any address.
 * Not for bytes. */
void dlcp_add_elements(uint8_t dtype, void *to, const uint8_t *from, uint32_t count);
/* cffi: end */

#endif
