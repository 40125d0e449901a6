/* The XDP program on the near end of a virtual port: what an application sends is checked and
 * leaves by the NIC.
 *
 * The program never passes a frame to a kernel stack. It redirects the frame to the NIC, or to the
 * pair for the same host, or drops it and counts the reason (mux_reasons.h). The check is that of
 * mux_check.h.
 */
#include "mux_check.h"

struct map_def SECTION("maps") nic = {MAP_DEVMAP, 4, 4, WAYS, 0};

SECTION("xdp")
int mux_egress(struct xdp_md *context)
{
	struct packet p = {
		.frame = (const u8 *)(u64)context->data,
		.end = (const u8 *)(u64)context->data_end,
	};
	/* The near end of slot n has interface index 2n + 2. */
	u32 number = (context->ingress_ifindex - 2) >> 1;
	int reason;

	p.len = p.end - p.frame;
	if (number >= SLOTS)
		return XDP_DROP;
	reason = check(&p, number);
	if (reason == PASSES) {
		if (bpf_redirect_map(&nic, p.way, XDP_DROP) == XDP_REDIRECT) {
			count(&port_counters, number * COUNTS_EACH + COUNT_TX_FRAMES, 1);
			count(&port_counters, number * COUNTS_EACH + COUNT_TX_BYTES, p.len);
			return XDP_REDIRECT;
		}
		reason = DROP_NO_NIC;
	}
	count(&port_counters, number * COUNTS_EACH + COUNT_DROPS + reason, 1);
	return XDP_DROP;
}

char _license[] SECTION("license") = "Dual MIT/GPL";
