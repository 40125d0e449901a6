/* The XDP program of one interface that Millstream drives with AF_XDP.
 *
 * It hands over to the AF_XDP socket of the queue on which a frame arrived:
 *   - IPv4 packets whose destination is an owned address,
 *   - IPv6 packets whose destination is an owned address,
 *   - ARP whose target is an owned address (requests for it, replies to it),
 *   - neighbour solicitations for an owned address (they arrive at a multicast address),
 * and leaves all else to the kernel, VLAN-tagged frames included. With TAKE_ALL it hands over every frame.
 *
 * With TAKE_TCP the owned addresses are the kernel's as well. The kernel keeps ARP, neighbour discovery, ICMP and UDP;
 * TCP for them is handed over, ICMP errors that quote TCP, and IPv6 packets with extension headers. A queue without a
 * socket drops these, for the kernel would reset the connection.
 *
 * Otherwise a frame that would be handed over on a queue without a socket goes to the kernel, and is counted: so a dead owner
 * never blackholes an interface, and one queue may be Millstream's while the rest stay the kernel's.
 *
 * Fragments of a packet for an owned address are handed over as well: the owner counts and drops them.
 */
#include "bpf.h"

/* One word of settings and one of counters; indices and bits are mirrored in crates/packetio/src/xdp/program.rs. */
enum { SETTINGS_FLAGS = 0, SETTINGS_ENTRIES = 1 };
enum { FLAG_TAKE_ALL = 1, FLAG_TAKE_TCP = 2 };
enum { COUNTER_NO_SOCKET = 0, COUNTER_ENTRIES = 1 };

struct map_def SECTION("maps") sockets = {MAP_XSKMAP, 4, 4, 256, 0};
struct map_def SECTION("maps") owned_v4 = {MAP_HASH, 4, 4, 1024, 0};
struct map_def SECTION("maps") owned_v6 = {MAP_HASH, 16, 4, 1024, 0};
struct map_def SECTION("maps") settings = {MAP_ARRAY, 4, 4, SETTINGS_ENTRIES, 0};
struct map_def SECTION("maps") counters = {MAP_ARRAY, 4, 8, COUNTER_ENTRIES, 0};

enum {
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_ARP = 0x0806,
	ETHERTYPE_IPV6 = 0x86dd,
	PROTOCOL_HOP_BY_HOP = 0,
	PROTOCOL_ICMP = 1,
	PROTOCOL_TCP = 6,
	PROTOCOL_ROUTING = 43,
	PROTOCOL_FRAGMENT = 44,
	PROTOCOL_ICMPV6 = 58,
	PROTOCOL_DESTINATION = 60,
	ICMP_UNREACHABLE = 3,
	ICMP_TIME_EXCEEDED = 11,
	ICMP_PARAMETER_PROBLEM = 12,
	ICMPV6_ERRORS_MAX = 127,
	ND_SOLICITATION = 135,
};

/* Offsets in the frame, from its first byte. All fit one bounds check per protocol. */
enum {
	ETHERNET_BYTES = 14,
	ETHERNET_TYPE = 12,
	IPV4_PROTOCOL = ETHERNET_BYTES + 9,
	IPV4_DESTINATION = ETHERNET_BYTES + 16,
	IPV4_BYTES = ETHERNET_BYTES + 20,
	ARP_TARGET = ETHERNET_BYTES + 24,
	ARP_BYTES = ETHERNET_BYTES + 28,
	IPV6_NEXT_HEADER = ETHERNET_BYTES + 6,
	IPV6_DESTINATION = ETHERNET_BYTES + 24,
	IPV6_BYTES = ETHERNET_BYTES + 40,
	ND_TYPE = IPV6_BYTES,
	ND_TARGET = IPV6_BYTES + 8,
	ND_BYTES = IPV6_BYTES + 24,
	/* In an ICMP error: the protocol of the packet that it quotes. */
	ICMP_QUOTED_PROTOCOL = 8 + 9,
	ICMPV6_QUOTED_PROTOCOL = 8 + 6,
};

struct in6 {
	u32 word[4];
};

INLINE int owns_v4(const u8 *address)
{
	u32 key = *(const u32 *)address;

	return bpf_map_lookup_elem(&owned_v4, &key) != 0;
}

INLINE int owns_v6(const u8 *address)
{
	const u32 *word = (const u32 *)address;
	struct in6 key = {{word[0], word[1], word[2], word[3]}};

	return bpf_map_lookup_elem(&owned_v6, &key) != 0;
}

/* A solicitation goes to ff02::1:ff00:0/104, whose last three bytes are the target's. */
INLINE int solicits_owned(const u8 *frame, const u8 *end)
{
	const u8 *group = frame + IPV6_DESTINATION;

	if (frame + ND_BYTES > end)
		return 0;
	if (frame[IPV6_NEXT_HEADER] != PROTOCOL_ICMPV6 || frame[ND_TYPE] != ND_SOLICITATION)
		return 0;
	if (group[0] != 0xff || group[1] != 0x02)
		return 0;
	return owns_v6(frame + ND_TARGET);
}

INLINE int is_ours(const u8 *frame, const u8 *end)
{
	if (frame + ETHERNET_BYTES > end)
		return 0;

	switch (*(const u16 *)(frame + ETHERNET_TYPE)) {
	case HTONS(ETHERTYPE_IPV4):
		return frame + IPV4_BYTES <= end && owns_v4(frame + IPV4_DESTINATION);
	case HTONS(ETHERTYPE_ARP):
		return frame + ARP_BYTES <= end && owns_v4(frame + ARP_TARGET);
	case HTONS(ETHERTYPE_IPV6):
		if (frame + IPV6_BYTES > end)
			return 0;
		return owns_v6(frame + IPV6_DESTINATION) || solicits_owned(frame, end);
	}
	return 0;
}

/* TCP for an owned address, or an ICMP error about TCP. */
INLINE int is_our_tcp_v4(const u8 *frame, const u8 *end)
{
	const u8 *icmp;

	if (frame + IPV4_BYTES > end || !owns_v4(frame + IPV4_DESTINATION))
		return 0;
	if (frame[IPV4_PROTOCOL] == PROTOCOL_TCP)
		return 1;
	if (frame[IPV4_PROTOCOL] != PROTOCOL_ICMP)
		return 0;
	icmp = frame + ETHERNET_BYTES + (frame[ETHERNET_BYTES] & 15) * 4;
	if (icmp + ICMP_QUOTED_PROTOCOL + 1 > end)
		return 0;
	if (icmp[0] != ICMP_UNREACHABLE && icmp[0] != ICMP_TIME_EXCEEDED && icmp[0] != ICMP_PARAMETER_PROBLEM)
		return 0;
	return icmp[ICMP_QUOTED_PROTOCOL] == PROTOCOL_TCP;
}

/* The same for IPv6. What stands behind extension headers is not looked at. */
INLINE int is_our_tcp_v6(const u8 *frame, const u8 *end)
{
	const u8 *icmp = frame + IPV6_BYTES;

	if (frame + IPV6_BYTES > end || !owns_v6(frame + IPV6_DESTINATION))
		return 0;
	switch (frame[IPV6_NEXT_HEADER]) {
	case PROTOCOL_TCP:
	case PROTOCOL_HOP_BY_HOP:
	case PROTOCOL_ROUTING:
	case PROTOCOL_FRAGMENT:
	case PROTOCOL_DESTINATION:
		return 1;
	case PROTOCOL_ICMPV6:
		if (icmp + ICMPV6_QUOTED_PROTOCOL + 1 > end || icmp[0] > ICMPV6_ERRORS_MAX)
			return 0;
		return icmp[ICMPV6_QUOTED_PROTOCOL] == PROTOCOL_TCP;
	}
	return 0;
}

INLINE int is_our_tcp(const u8 *frame, const u8 *end)
{
	if (frame + ETHERNET_BYTES > end)
		return 0;

	switch (*(const u16 *)(frame + ETHERNET_TYPE)) {
	case HTONS(ETHERTYPE_IPV4):
		return is_our_tcp_v4(frame, end);
	case HTONS(ETHERTYPE_IPV6):
		return is_our_tcp_v6(frame, end);
	}
	return 0;
}

INLINE u32 flags_set(void)
{
	u32 key = SETTINGS_FLAGS;
	u32 *flags = bpf_map_lookup_elem(&settings, &key);

	return flags ? *flags : 0;
}

INLINE void count(u32 counter)
{
	u64 *value = bpf_map_lookup_elem(&counters, &counter);

	if (value)
		__sync_fetch_and_add(value, 1);
}

SECTION("xdp")
int xdp_port(struct xdp_md *context)
{
	const u8 *frame = (const u8 *)(u64)context->data;
	const u8 *end = (const u8 *)(u64)context->data_end;
	u32 flags = flags_set();
	int action;

	if (flags & FLAG_TAKE_TCP) {
		if (!is_our_tcp(frame, end))
			return XDP_PASS;
		action = bpf_redirect_map(&sockets, context->rx_queue_index, XDP_DROP);
	} else {
		if (!(flags & FLAG_TAKE_ALL) && !is_ours(frame, end))
			return XDP_PASS;
		action = bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
	}
	if (action != XDP_REDIRECT)
		count(COUNTER_NO_SOCKET);
	return action;
}

char _license[] SECTION("license") = "Dual MIT/GPL";
