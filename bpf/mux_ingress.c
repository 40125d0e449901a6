/* The XDP program on the NIC of `mill mux`: packets for claimed and leased ports go to their
 * owners' virtual ports.
 *
 * A packet's owner follows from protocol, destination address and destination port; that of an ICMP
 * error from the packet that it quotes. All else goes to the kernel, except what would make the
 * kernel reset a connection of an owner: first fragments for owned ports, and IPv6 headers for our
 * addresses that cannot be parsed. These are dropped and counted. So is what claims to come from an
 * address of the NIC.
 */
#include "mux_demux.h"

SECTION("xdp")
int mux_ingress(struct xdp_md *context)
{
	const u8 *frame = (const u8 *)(u64)context->data;
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
	return deliver(slot, &parsed, len);
}

char _license[] SECTION("license") = "Dual MIT/GPL";
