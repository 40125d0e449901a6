/* The XDP program on the NIC of `mill mux --path memif`: packets for claimed and leased ports go to
 * the service's AF_XDP socket of their queue, and the service hands them to their owners.
 *
 * The owner is found as in mux_ingress.c. Its number takes the place of the first two bytes of the
 * destination, which is the NIC's address: the service writes the address again. Frames of owned
 * flows for another address are dropped and counted: the interface's address may just change, and
 * the kernel would reset the flow. While no service runs the map is empty, and what is owned is
 * dropped and counted.
 */
#include "mux_demux.h"

enum { QUEUES_MAX = 256 };

struct map_def SECTION("maps") nic_sockets = {MAP_XSKMAP, 4, 4, QUEUES_MAX, 0};

/* Every frame that is redirected has its owner's number, so nobody on the wire can forge one. */
INLINE int name_owner(u8 *frame, u32 slot)
{
	u32 first = 0;
	struct settings *host = bpf_map_lookup_elem(&settings, &first);

	if (!host || *(u32 *)frame != *(u32 *)host->mac || *(u16 *)(frame + 4) != *(u16 *)(host->mac + 4))
		return 0;
	*(u16 *)frame = slot;
	return 1;
}

SECTION("xdp")
int mux_switch(struct xdp_md *context)
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
	if (slot >= 0 && is_forged(&parsed.flow))
		return drop(INGRESS_FORGED);
	action = without_port(slot, &parsed);
	if (action != FOUND)
		return action;
	if (frame + ETHERNET_BYTES > end || !name_owner(frame, slot))
		return drop(INGRESS_NO_PORT);
	return delivered(bpf_redirect_map(&nic_sockets, context->rx_queue_index, XDP_DROP), slot, len);
}

char _license[] SECTION("license") = "Dual MIT/GPL";
