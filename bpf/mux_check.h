/* The check of what an application sends, for both lanes of its virtual port: mux_egress.c and
 * mux_bulk.c.
 *
 * The order of the checks is that of the reasons (mux_reasons.h). crates/mux/src/egress.rs makes
 * the same decisions in Rust; a test feeds both with generated frames.
 */
#ifndef MILLSTREAM_MUX_CHECK_H
#define MILLSTREAM_MUX_CHECK_H

#include "mux.h"

struct map_def SECTION("maps") claims = {MAP_HASH, sizeof(struct endpoint), sizeof(struct claim), CLAIMS_MAX, 0};
struct map_def SECTION("maps") port_uses = {MAP_ARRAY, 4, sizeof(struct port_use), 65536, 0};
struct map_def SECTION("maps") addresses = {MAP_HASH, sizeof(struct address), 4, ADDRESSES_MAX, 0};
struct map_def SECTION("maps") next_hops = {MAP_HASH, sizeof(struct next_hop), 4, NEXT_HOPS_MAX, 0};
struct map_def SECTION("maps") slots = {MAP_ARRAY, 4, sizeof(struct slot), SLOTS, 0};
struct map_def SECTION("maps") flows = {MAP_LRU_HASH, sizeof(struct flow), 4, FLOWS_MAX, 0};
struct map_def SECTION("maps") half_open = {MAP_LRU_HASH, sizeof(struct flow), 4, HALF_OPEN_MAX, 0};
struct map_def SECTION("maps") settings = {MAP_ARRAY, 4, sizeof(struct settings), 1, 0};
struct map_def SECTION("maps") port_counters = {MAP_ARRAY, 4, 8, SLOTS * COUNTS_EACH, 0};

#define SECOND_NS 1000000000ULL

enum { PASSES = -1 };

/* Least bytes of options and payload of a segment that is cut from a packet. */
enum { SEGMENT_BYTES_MIN = 48 };

/* What the checks have found so far. Lengths are in bytes. */
struct packet {
	const u8 *frame;
	const u8 *end;
	u32 len;
	u32 segment_len; /* payload of each segment that is to be cut from the packet; 0: the packet leaves as it is */
	u32 family;
	u32 header_len;
	u32 total_len;
	u32 tcp_header_len;
	const u8 *source;
	const u8 *destination;
	const u8 *tcp;
	u32 way; /* by which the packet leaves: WAY_NIC or WAY_LOCAL */
};

INLINE int check_link(const struct packet *p, const struct settings *host)
{
	const u8 *frame = p->frame;
	struct next_hop hop = {};
	u16 type = *(const u16 *)(frame + 12);

	if (type == HTONS(ETHERTYPE_ARP))
		return DROP_ARP;
	if (type == HTONS(ETHERTYPE_VLAN) || type == HTONS(ETHERTYPE_QINQ))
		return DROP_VLAN;
	if (type != HTONS(ETHERTYPE_IPV4) && type != HTONS(ETHERTYPE_IPV6))
		return DROP_ETHERTYPE;
	if (*(const u32 *)(frame + 6) != *(const u32 *)host->mac || *(const u16 *)(frame + 10) != *(const u16 *)(host->mac + 4))
		return DROP_SOURCE_MAC;
	*(u32 *)hop.mac = *(const u32 *)frame;
	*(u16 *)(hop.mac + 4) = *(const u16 *)(frame + 4);
	if (!bpf_map_lookup_elem(&next_hops, &hop))
		return DROP_NEXT_HOP;
	return PASSES;
}

/* Padding up to the shortest Ethernet frame may follow the packet, and nothing else. */
INLINE int is_wrong_total(u32 len, u32 total, u32 least)
{
	return total < least || total + ETHERNET_BYTES > len || (total + ETHERNET_BYTES < len && len > 60);
}

INLINE int check_v4(struct packet *p)
{
	const u8 *ip = p->frame + ETHERNET_BYTES;
	const u16 *word = (const u16 *)ip;
	u32 sum = 0;

	p->family = 4;
	p->header_len = (ip[0] & 15) * 4;
	if (ip[0] >> 4 != 4 || p->header_len < IPV4_BYTES || p->header_len + ETHERNET_BYTES > p->len)
		return DROP_HEADER_LENGTH;
	p->total_len = HTONS(word[1]);
	if (is_wrong_total(p->len, p->total_len, p->header_len))
		return DROP_TOTAL_LENGTH;
#pragma unroll
	for (u32 i = 0; i < 10; i++)
		sum += word[i];
	if (p->header_len > IPV4_BYTES) {
#pragma unroll
		for (u32 i = 10; i < 30; i++) {
			if (i * 2 < p->header_len) {
				if ((const u8 *)(word + i + 1) > p->end)
					return DROP_HEADER_LENGTH;
				sum += word[i];
			}
		}
	}
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	if (sum != 0xffff)
		return DROP_HEADER_CHECKSUM;
	if (word[3] & HTONS(0xbfff))
		return DROP_FRAGMENT;
	if (p->header_len > IPV4_BYTES)
		return DROP_OPTIONS;
	if (ip[9] != PROTOCOL_TCP)
		return DROP_PROTOCOL;
	p->source = ip + 12;
	p->destination = ip + 16;
	p->tcp = ip + IPV4_BYTES;
	return PASSES;
}

INLINE int check_v6(struct packet *p)
{
	const u8 *ip = p->frame + ETHERNET_BYTES;

	p->family = 6;
	p->header_len = IPV6_BYTES;
	if (ip + IPV6_BYTES > p->end)
		return DROP_RUNT;
	if (ip[0] >> 4 != 6)
		return DROP_HEADER_LENGTH;
	p->total_len = HTONS(*(const u16 *)(ip + 4)) + IPV6_BYTES;
	if (is_wrong_total(p->len, p->total_len, IPV6_BYTES))
		return DROP_TOTAL_LENGTH;
	switch (ip[6]) {
	case PROTOCOL_TCP:
		break;
	case PROTOCOL_FRAGMENT:
		return DROP_FRAGMENT;
	case PROTOCOL_HOP_BY_HOP:
	case PROTOCOL_ROUTING:
	case PROTOCOL_AUTHENTICATION:
	case PROTOCOL_DESTINATION:
	case PROTOCOL_MOBILITY:
		return DROP_OPTIONS;
	default:
		return DROP_PROTOCOL;
	}
	p->source = ip + 8;
	p->destination = ip + 24;
	p->tcp = ip + IPV6_BYTES;
	return PASSES;
}

INLINE u32 kind_of(const u8 *address, u32 family)
{
	struct address key = {.family = family};
	u32 *kind;

	copy_address(key.word, address, family);
	kind = bpf_map_lookup_elem(&addresses, &key);
	return kind ? *kind : 0;
}

/* An address of the NIC is reached through the pair, if there is one. */
INLINE int check_destination(struct packet *p, const struct settings *host)
{
	const u8 *to = p->destination;
	u32 kind;

	if (p->family == 4) {
		if (to[0] >> 4 == 14)
			return DROP_MULTICAST;
		if (to[0] >> 4 == 15 || to[0] == 0)
			return DROP_BROADCAST;
		if (to[0] == 127)
			return DROP_LOOPBACK;
	} else {
		const u32 *word = (const u32 *)to;

		if (to[0] == 0xff)
			return DROP_MULTICAST;
		/* ::, ::1, and addresses that embed IPv4. */
		if (word[0] == 0 && word[1] == 0 && (word[2] == 0 || word[2] == HTONL(0xffff)))
			return DROP_LOOPBACK;
	}
	kind = kind_of(to, p->family);
	if (kind == ADDRESS_BROADCAST)
		return DROP_BROADCAST;
	if (kind != ADDRESS_LOCAL)
		return PASSES;
	p->way = WAY_LOCAL;
	return host->local ? PASSES : DROP_LOCAL;
}

INLINE int check_tcp(struct packet *p)
{
	u32 room = p->total_len - p->header_len;

	if (room < TCP_BYTES || p->tcp + TCP_BYTES > p->end)
		return DROP_DATA_OFFSET;
	p->tcp_header_len = (p->tcp[12] >> 4) * 4;
	return p->tcp_header_len < TCP_BYTES || p->tcp_header_len > room ? DROP_DATA_OFFSET : PASSES;
}

/* A packet that is cut later is longer than the MTU. Each of its segments has its headers and must
 * not be. */
INLINE int check_segments(const struct packet *p, const struct settings *host)
{
	u32 longest = p->header_len + p->tcp_header_len + p->segment_len;

	return p->segment_len && longest > host->mtu ? DROP_OVERSIZE : PASSES;
}

/* Segments that the packet is cut into. */
INLINE u32 segments(const struct packet *p)
{
	u32 payload = p->total_len - p->header_len - p->tcp_header_len;

	return p->segment_len && payload > p->segment_len ? (payload + p->segment_len - 1) / p->segment_len : 1;
}

/* One write must not become a crowd of tiny frames. Linux and Millstream fill 48 bytes of each
 * segment with options and payload at least, whatever the peer announces. */
INLINE int check_cut(const struct packet *p)
{
	if (segments(p) > 1 && p->tcp_header_len + p->segment_len < TCP_BYTES + SEGMENT_BYTES_MIN)
		return DROP_OFFLOAD;
	return PASSES;
}

/* What the owner sends makes a flow its own (decision 0046): anything but a SYN, a FIN or a RST.
 * The latter end it. A SYN-ACK's flow is remembered apart, so that a flood of SYNs takes no places
 * of open flows. */
INLINE void keep_flow(const struct packet *p, u32 slot)
{
	struct flow key = {.family = p->family};
	u32 *known;

	copy_address(key.local, p->source, p->family);
	copy_address(key.remote, p->destination, p->family);
	key.local_port = *(const u16 *)p->tcp;
	key.remote_port = *(const u16 *)(p->tcp + 2);
	if (p->tcp[13] & TCP_SYN) {
		bpf_map_update_elem(&half_open, &key, &slot, 0);
		return;
	}
	known = bpf_map_lookup_elem(&flows, &key);
	/* A RST may be about a flow that the sender does not have. */
	if (p->tcp[13] & TCP_RST) {
		if (known && *known == slot)
			*known = slot | FLOW_ENDED;
		return;
	}
	if (p->tcp[13] & TCP_FIN) {
		slot |= FLOW_ENDED;
		if (!known || *known != slot)
			bpf_map_update_elem(&flows, &key, &slot, 0);
		return;
	}
	if (!known || (*known & FLOW_SLOT) != slot)
		bpf_map_update_elem(&flows, &key, &slot, 0);
}

INLINE int check_sender(const struct packet *p, u32 number, const struct slot *slot)
{
	struct endpoint endpoint = {.protocol = PROTOCOL_TCP, .family = p->family};
	struct port_use *use;
	struct claim *claim;
	u32 port;

	if (kind_of(p->source, p->family) != ADDRESS_LOCAL)
		return DROP_SOURCE_ADDRESS;
	endpoint.port = *(const u16 *)p->tcp;
	port = HTONS(endpoint.port);
	use = bpf_map_lookup_elem(&port_uses, &port);
	if (!use)
		return DROP_SOURCE_PORT;
	if (use->leased_to)
		return use->leased_to == number + 1 ? PASSES : DROP_FOREIGN_PORT;
	if (!use->claims)
		return DROP_SOURCE_PORT;
	copy_address(endpoint.word, p->source, p->family);
	claim = bpf_map_lookup_elem(&claims, &endpoint);
	if (!claim) {
		endpoint.word[0] = endpoint.word[1] = endpoint.word[2] = endpoint.word[3] = 0;
		claim = bpf_map_lookup_elem(&claims, &endpoint);
	}
	if (!claim)
		return DROP_SOURCE_PORT;
	if (!slot->owner || claim->owner != slot->owner)
		return DROP_FOREIGN_PORT;
	if (claim->tracks)
		keep_flow(p, number);
	return PASSES;
}

/* A token bucket, kept as the time up to which the rate is used up. A full bucket is used up to
 * `burst` bytes before now. A packet that costs more than a full bucket passes when the bucket is
 * full, and what follows pays for it. Two CPUs may both use the same time: a rate is no guarantee,
 * and a lock would cost every frame. */
INLINE int check_rate(struct slot *slot, u64 bytes)
{
	s64 now, full, cost, used;

	if (!slot->rate)
		return PASSES;
	now = bpf_ktime_get_ns();
	full = slot->burst * SECOND_NS / slot->rate;
	cost = (bytes * SECOND_NS + slot->rate - 1) / slot->rate;
	used = slot->used_ns;
	if (used < now - full)
		used = now - full;
	if (used + (cost < full ? cost : full) > now)
		return DROP_RATE;
	slot->used_ns = used + cost;
	return PASSES;
}

/* Bytes of the frames that leave: each segment has headers of its own. */
INLINE u64 frame_bytes(const struct packet *p)
{
	return p->len + (u64)(segments(p) - 1) * (ETHERNET_BYTES + p->header_len + p->tcp_header_len);
}

INLINE int check(struct packet *p, u32 number)
{
	u32 first = 0;
	struct settings *host = bpf_map_lookup_elem(&settings, &first);
	struct slot *slot = bpf_map_lookup_elem(&slots, &number);
	int reason;

	if (!host || !slot)
		return DROP_NO_NIC;
	if (!p->segment_len && p->len > host->mtu + ETHERNET_BYTES)
		return DROP_OVERSIZE;
	if (p->frame + ETHERNET_BYTES + IPV4_BYTES > p->end)
		return DROP_RUNT;
	reason = check_link(p, host);
	if (reason != PASSES)
		return reason;
	reason = *(const u16 *)(p->frame + 12) == HTONS(ETHERTYPE_IPV4) ? check_v4(p) : check_v6(p);
	if (reason != PASSES)
		return reason;
	reason = check_destination(p, host);
	if (reason != PASSES)
		return reason;
	reason = check_tcp(p);
	if (reason != PASSES)
		return reason;
	reason = check_segments(p, host);
	if (reason != PASSES)
		return reason;
	reason = check_sender(p, number, slot);
	if (reason != PASSES)
		return reason;
	reason = check_cut(p);
	if (reason != PASSES)
		return reason;
	return check_rate(slot, frame_bytes(p));
}

#endif
