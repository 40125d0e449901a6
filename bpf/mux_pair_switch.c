/* The XDP program on the far end of the pair of `mill mux --local --path memif`: packets that left
 * the loopback interface, or that the near end has sent back, go to the service's AF_XDP socket of
 * their queue, and the service hands them to their owners.
 *
 * The owner's number takes the place of the first two bytes of the destination, as in mux_switch.c.
 * The destination means nothing here: the service writes the NIC's address. While no service runs
 * the map is empty, and what is owned is dropped and counted.
 */
#include "mux_demux.h"

enum { THREADS_MAX = 16 };

struct map_def SECTION("maps") local_sockets = {MAP_XSKMAP, 4, 4, THREADS_MAX, 0};

SECTION("xdp")
int mux_pair_switch(struct xdp_md *context)
{
	u8 *frame = (u8 *)(u64)context->data;
	const u8 *end = (const u8 *)(u64)context->data_end;
	u32 len = end - frame;
	struct parsed parsed = {};
	int action = parse(&parsed, frame, end);
	int slot;

	if (action != FOUND)
		return without_flow(action);
	slot = owner(&parsed.flow, parsed.is_syn);
	action = without_port(slot, &parsed);
	if (action != FOUND)
		return action;
	if (frame + ETHERNET_BYTES > end)
		return XDP_DROP;
	*(u16 *)frame = slot;
	return delivered(bpf_redirect_map(&local_sockets, context->rx_queue_index, XDP_DROP), slot, len);
}

char _license[] SECTION("license") = "Dual MIT/GPL";
