/* The tc program on the end of the bulk lane's pair that lies beside the NIC: what was checked
 * leaves by the NIC.
 *
 * A tc program redirects within its own namespace only, so the check in the private namespace hands
 * packets to the other end of this pair, with the sender's slot as their mark. Nothing else sends
 * there: the private namespace has no addresses and no forwarding.
 */
#include "mux.h"

/* The NIC's interface index. Programs of different types cannot share a device map. */
struct map_def SECTION("maps") bulk_nic = {MAP_ARRAY, 4, 4, 1, 0};
struct map_def SECTION("maps") port_counters = {MAP_ARRAY, 4, 8, SLOTS * COUNTS_EACH, 0};

enum { ENODEV_ANSWER = -19 };

SECTION("tc")
int mux_bulk_out(struct sk_buff_view *skb)
{
	u32 number = skb->mark, len = skb->len, first = 0, mtu = 0;
	u32 *index = bpf_map_lookup_elem(&bulk_nic, &first);

	if (number >= SLOTS || !index)
		return TC_DROP;
	/* A redirect to an interface that is gone would be a drop that nobody counts. */
	if (bpf_check_mtu(skb, *index, &mtu, 0, 0) == ENODEV_ANSWER) {
		count(&port_counters, number * COUNTS_EACH + COUNT_DROPS + DROP_NO_NIC, 1);
		return TC_DROP;
	}
	count(&port_counters, number * COUNTS_EACH + COUNT_BULK_FRAMES, 1);
	count(&port_counters, number * COUNTS_EACH + COUNT_BULK_BYTES, len);
	/* The mark means nothing to the host's rules. */
	skb->mark = 0;
	return bpf_redirect(*index, 0);
}

char _license[] SECTION("license") = "Dual MIT/GPL";
