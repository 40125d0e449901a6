/* The XDP program on both ends of the pair by which clients of the same host reach applications
 * (`mill mux --local`).
 *
 * The end in the service's namespace gets what mux_lo.c takes off the loopback interface. The end
 * in the host's namespace gets what applications send to addresses of the NIC: frames for another
 * application go there, all else to the kernel.
 */
#include "mux_demux.h"

/* Stacks take frames for the NIC's MAC address; the loopback interface has none, and the pair has
 * another. */
INLINE int readdress(u8 *frame, const u8 *end)
{
	u32 first = 0;
	struct settings *host = bpf_map_lookup_elem(&settings, &first);

	if (!host || frame + ETHERNET_BYTES > end)
		return 0;
	*(u32 *)frame = *(u32 *)host->mac;
	*(u16 *)(frame + 4) = *(u16 *)(host->mac + 4);
	return 1;
}

SECTION("xdp")
int mux_pair(struct xdp_md *context)
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
	if (slot >= 0 && !readdress(frame, end))
		return drop(INGRESS_NO_PORT);
	return deliver(slot, &parsed, len);
}

char _license[] SECTION("license") = "Dual MIT/GPL";
