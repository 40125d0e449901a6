/* The tc program on the loopback interface of `mill mux --local`: packets from an address of the
 * NIC to an endpoint that an application owns go into the service's pair. All else stays on the
 * loopback interface.
 *
 * The kernel sends packets for its own addresses to the loopback interface, whichever interface has
 * the address. A client that has bound a loopback address, or one of another interface, is left to
 * the kernel: the answer could not find it.
 */
#include "mux_demux.h"

/* linux/bpf.h: the next program decides. */
enum { TCX_NEXT = -1 };

INLINE int is_owned(const struct flow *flow)
{
	struct port_use *use = use_of(flow);

	if (!use)
		return 0;
	return use->leased_to || claim_of(flow);
}

/* A link-local address means something on its own link only, and the pair is another one. */
INLINE int is_link_local(const struct flow *flow)
{
	return flow->family == 6 && (flow->local[0] & HTONL(0xffc00000)) == HTONL(0xfe800000);
}

SECTION("tc")
int mux_lo(struct sk_buff_view *skb)
{
	const u8 *frame = (const u8 *)(u64)skb->data;
	const u8 *end = (const u8 *)(u64)skb->data_end;
	struct parsed parsed = {};
	u32 first = 0;
	struct settings *host = bpf_map_lookup_elem(&settings, &first);

	if (!host || !host->local || parse(&parsed, frame, end) != FOUND)
		return TCX_NEXT;
	if (!is_local(parsed.flow.local, parsed.flow.family) || !is_local(parsed.flow.remote, parsed.flow.family))
		return TCX_NEXT;
	if (is_link_local(&parsed.flow))
		return TCX_NEXT;
	return is_owned(&parsed.flow) ? bpf_redirect(host->local, 0) : TCX_NEXT;
}

char _license[] SECTION("license") = "Dual MIT/GPL";
