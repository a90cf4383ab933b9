/* How long a message is: of a variable tensor its last packet tells, and a DONE tells how many packets it has. */
#include "length.h"

/* R115 */
void dlcp_length_begin(struct incoming *message, const struct dlcp_tensor *shape)
{
	message->elements = shape->elements;
	message->packets = dlcp_packets_of(shape->elements, shape->dtype);
	message->variable = shape->variable;
	message->ended = !shape->variable;
	message->least_packets = shape->variable ? 1 : message->packets;
}

/* The last packet: the message ends with it. Nothing of it may be missing, so its bound asks for all its bytes. R116. */
static void end(struct incoming *message, uint32_t elements)
{
	message->ended = true;
	message->elements = elements;
	message->packets = message->least_packets = dlcp_packets_of(elements, message->dtype);
	message->needed_bytes = dlcp_message_bytes(elements, message->dtype);
}

/* R117, R118 */
bool dlcp_length_from_data(struct incoming *message, const struct dlcp_header *header, uint32_t packet)
{
	uint32_t most = dlcp_packet_elements(message->elements, message->dtype, packet);

	if (!(header->flags & DLCP_FLAG_LAST)) { /* full, and at least one more follows */
		if (packet + 1 >= message->packets || header->count != most)
			return false;
		if (message->least_packets < packet + 2)
			message->least_packets = packet + 2;
		return true;
	}
	if (!message->variable || packet + 1 < message->least_packets || header->count > most ||
	    (message->ended && header->count != most))
		return false;
	if (!message->ended)
		end(message, header->offset + header->count);
	return true;
}

bool dlcp_length_from_done(struct incoming *message, uint32_t packets)
{
	uint64_t most = (uint64_t)packets * dlcp_full_packet(message->dtype);

	if (packets < message->least_packets || packets > message->packets)
		return false;
	message->packets = message->least_packets = packets;
	if (message->elements > most)
		message->elements = (uint32_t)most;
	return true;
}
