/* The XDP program on the near end of the pair of `mill mux --local --path memif`: of what
 * applications send to addresses of the NIC, packets for another application go back to the far
 * end, whose program finds the owner, and all else to the kernel.
 */
#include "mux_demux.h"

SECTION("xdp")
int mux_pair_back(struct xdp_md *context)
{
	const u8 *frame = (const u8 *)(u64)context->data;
	const u8 *end = (const u8 *)(u64)context->data_end;
	struct parsed parsed = {};
	int action = parse(&parsed, frame, end);

	if (action != FOUND)
		return without_flow(action);
	action = without_port(owner(&parsed.flow, parsed.is_syn), &parsed);
	return action == FOUND ? XDP_TX : action;
}

char _license[] SECTION("license") = "Dual MIT/GPL";
