/* The tc program on the TAP of a virtual port: the bulk lane, in which packets leave that the NIC
 * cuts into segments.
 *
 * The application writes frames to the TAP, each behind a virtio header. They are checked as in the
 * other lane and redirected to the NIC, or dropped and counted. The kernel parses the virtio header
 * before this program and the program cannot read it; what the header could do to a packet after
 * the check is found out by what the kernel's helpers answer.
 */
#include "mux_check.h"

enum {
	EINVAL_ANSWER = -22,
	/* Headers with the longest IPv4 header and a TCP header without options, which the check may
	 * read. */
	HEADERS_BYTES = ETHERNET_BYTES + 60 + TCP_BYTES,
	TCP_CHECKSUM_AT = 16,
};

/* The device may have to write a checksum into the packet, at a place that the sender chose. That
 * must not be a byte that the check has read: nothing before the field of TCP's checksum. */
INLINE int check_offload(struct sk_buff_view *skb, u32 tcp_at)
{
	long level;

	/* A packet without such a wish becomes one of known sum, and then has a level. */
	bpf_csum_level(skb, CSUM_LEVEL_INC);
	level = bpf_csum_level(skb, CSUM_LEVEL_QUERY);
	bpf_csum_level(skb, CSUM_LEVEL_RESET);
	if (level >= 0)
		return PASSES;
	/* The kernel refuses to cut a packet within or before the field that is to be written. So an end
	 * one byte before that of TCP's field is refused exactly if the field is TCP's, or a later one. A
	 * packet that was cut is dropped. */
	if (bpf_skb_change_tail(skb, tcp_at + TCP_CHECKSUM_AT + 1, 0) == EINVAL_ANSWER)
		return PASSES;
	return DROP_OFFLOAD;
}

INLINE void look(struct packet *p, const struct sk_buff_view *skb)
{
	p->frame = (const u8 *)(u64)skb->data;
	p->end = (const u8 *)(u64)skb->data_end;
}

INLINE int check_lane(struct sk_buff_view *skb, u32 number)
{
	struct packet p = {.len = skb->len, .segment_len = skb->gso_size};
	u32 tcp_at;
	int reason;

	/* The kernel took the tag out of the frame and would put it back on the NIC. */
	if (skb->vlan_present)
		return DROP_VLAN;
	/* The sender says how many bytes lie in the part that programs can read. */
	look(&p, skb);
	if (p.frame + HEADERS_BYTES > p.end)
		bpf_skb_pull_data(skb, p.len < HEADERS_BYTES ? p.len : HEADERS_BYTES);
	look(&p, skb);
	if (p.frame + ETHERNET_BYTES > p.end)
		return DROP_RUNT;
	tcp_at = ETHERNET_BYTES + (*(const u16 *)(p.frame + 12) == HTONS(ETHERTYPE_IPV6) ? IPV6_BYTES : IPV4_BYTES);
	reason = check_offload(skb, tcp_at);
	if (reason != PASSES)
		return reason;
	look(&p, skb);
	reason = check(&p, number);
	/* The lane leads to the NIC alone. */
	return reason == PASSES && p.way == WAY_LOCAL ? DROP_LOCAL : reason;
}

SECTION("tc")
int mux_bulk(struct sk_buff_view *skb)
{
	u32 number = skb->ifindex - BULK_FIRST_INDEX;
	int reason;

	if (number >= SLOTS)
		return TC_DROP;
	reason = check_lane(skb, number);
	if (reason != PASSES) {
		count(&port_counters, number * COUNTS_EACH + COUNT_DROPS + reason, 1);
		return TC_DROP;
	}
	/* For mux_bulk_out, which counts what leaves. */
	skb->mark = number;
	return bpf_redirect_peer(BULK_HOP_INDEX, 0);
}

char _license[] SECTION("license") = "Dual MIT/GPL";
