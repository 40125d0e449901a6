/* The demultiplexer of `mill mux`: which virtual port a packet that arrives belongs to.
 *
 * A packet's owner follows from protocol, destination address and destination port; that of an ICMP
 * error from the packet that it quotes. Included by the programs on the NIC (mux_ingress.c), on the
 * pair for clients of the same host (mux_pair.c) and on the loopback interface (mux_lo.c).
 */
#ifndef MILLSTREAM_MUX_DEMUX_H
#define MILLSTREAM_MUX_DEMUX_H

#include "mux.h"

struct map_def SECTION("maps") claims = {MAP_HASH, sizeof(struct endpoint), sizeof(struct claim), CLAIMS_MAX, 0};
struct map_def SECTION("maps") port_uses = {MAP_ARRAY, 4, sizeof(struct port_use), 65536, 0};
struct map_def SECTION("maps") addresses = {MAP_HASH, sizeof(struct address), 4, ADDRESSES_MAX, 0};
struct map_def SECTION("maps") slots = {MAP_ARRAY, 4, sizeof(struct slot), SLOTS, 0};
struct map_def SECTION("maps") flows = {MAP_LRU_HASH, sizeof(struct flow), 4, FLOWS_MAX, 0};
struct map_def SECTION("maps") half_open = {MAP_LRU_HASH, sizeof(struct flow), 4, HALF_OPEN_MAX, 0};
struct map_def SECTION("maps") settings = {MAP_ARRAY, 4, sizeof(struct settings), 1, 0};
struct map_def SECTION("maps") port_counters = {MAP_ARRAY, 4, 8, SLOTS * COUNTS_EACH, 0};
struct map_def SECTION("maps") ingress_counters = {MAP_ARRAY, 4, 8, INGRESS_COUNTERS, 0};
struct map_def SECTION("maps") devices = {MAP_DEVMAP, 4, 4, SLOTS, 0};

/* UNSERVED: an application owns the endpoint, and none of its contexts listens. */
enum { NOBODY = -1, UNSERVED = -2 };
enum { HEADERS_MAX = 8, HEADER_CHAIN_BYTES_MAX = 1024 };

/* What parsing says: an action of XDP's, or that `struct parsed` names the flow. */
enum { FOUND = -1 };

struct parsed {
	struct flow flow;
	u32 is_first_fragment;
	u32 is_syn;
};

INLINE int is_local(const u32 *word, u32 family)
{
	struct address key = {{word[0], word[1], word[2], word[3]}, family};
	u32 *kind = bpf_map_lookup_elem(&addresses, &key);

	return kind && *kind == ADDRESS_LOCAL;
}

INLINE u64 mix(u64 hash)
{
	hash ^= hash >> 33;
	hash *= 0xff51afd7ed558ccdULL;
	hash ^= hash >> 33;
	hash *= 0xc4ceb9fe1a85ec53ULL;
	return hash ^ hash >> 33;
}

/* Of several contexts that listen, rendezvous hashing picks one: few flows move when one comes or
 * goes. */
INLINE int pick(const struct claim *claim, const struct flow *flow)
{
	u32 first = 0;
	struct settings *host = bpf_map_lookup_elem(&settings, &first);
	u64 hash, score, best = 0;
	int slot = UNSERVED;

	if (!host)
		return NOBODY;
	hash = mix(host->key[0] ^ ((u64)flow->remote[0] << 32 | flow->remote[1]));
	hash = mix(hash ^ ((u64)flow->remote[2] << 32 | flow->remote[3]));
	hash = mix(hash ^ ((u64)flow->local[0] << 32 | flow->local[3]));
	hash = mix(hash ^ host->key[1] ^ ((u64)flow->local_port << 16 | flow->remote_port));
#pragma unroll
	for (u32 i = 0; i < MEMBERS_MAX; i++) {
		if (i >= claim->members)
			break;
		score = mix(hash ^ (claim->slot[i] + 1) * 0x9e3779b97f4a7c15ULL) | 1;
		if (score > best) {
			best = score;
			slot = claim->slot[i];
		}
	}
	return slot;
}

/* A SYN after the end of its flow is a new flow's. Its owner may listen no more, as it is with a
 * worker that is replaced. A SYN that comes again goes to the handshake that the first one began,
 * also if its listener has closed since: with two handshakes the peer would go by the answer that
 * comes first, and be reset by the other one. */
INLINE int listener(const struct claim *claim, const struct flow *flow, u32 is_syn)
{
	struct slot *slot;
	u32 *known;
	u32 number;

	if (!claim->tracks)
		return claim->slot[0];
	known = bpf_map_lookup_elem(&flows, flow);
	if (known && is_syn && *known & FLOW_ENDED) {
		bpf_map_delete_elem(&flows, flow);
		bpf_map_delete_elem(&half_open, flow);
		return pick(claim, flow);
	}
	if (!known)
		known = bpf_map_lookup_elem(&half_open, flow);
	if (!known)
		return pick(claim, flow);
	number = *known & FLOW_SLOT;
	/* The slot may be another application's by now. */
	slot = bpf_map_lookup_elem(&slots, &number);
	return slot && slot->owner == claim->owner ? (int)number : pick(claim, flow);
}

/* What is known of the flow's local port; 0 if nobody has the port. */
INLINE struct port_use *use_of(const struct flow *flow)
{
	u32 port = HTONS(flow->local_port);
	struct port_use *use = bpf_map_lookup_elem(&port_uses, &port);

	return use && (use->leased_to || use->claims) ? use : 0;
}

/* The claim of the flow's local end, by its address or by a wildcard. */
INLINE struct claim *claim_of(const struct flow *flow)
{
	const u32 *word = flow->local;
	struct endpoint endpoint = {{word[0], word[1], word[2], word[3]}, flow->local_port, PROTOCOL_TCP, flow->family};
	struct claim *claim = bpf_map_lookup_elem(&claims, &endpoint);

	if (claim)
		return claim;
	if (!is_local(word, flow->family))
		return 0;
	endpoint.word[0] = endpoint.word[1] = endpoint.word[2] = endpoint.word[3] = 0;
	return bpf_map_lookup_elem(&claims, &endpoint);
}

/* The slot that owns the flow, or NOBODY. */
INLINE int owner(const struct flow *flow, u32 is_syn)
{
	struct port_use *use = use_of(flow);
	struct claim *claim;

	if (!use)
		return NOBODY;
	if (use->leased_to)
		return is_local(flow->local, flow->family) ? use->leased_to - 1 : NOBODY;
	claim = claim_of(flow);
	return claim ? listener(claim, flow, is_syn) : NOBODY;
}

INLINE int drop(u32 counter)
{
	count(&ingress_counters, counter, 1);
	return XDP_DROP;
}

INLINE void name_flow(struct flow *flow, u32 family, const u8 *local, const u8 *remote)
{
	flow->family = family;
	copy_address(flow->local, local, family);
	copy_address(flow->remote, remote, family);
}

/* A packet that arrives: its destination is our end. */
INLINE int arriving(struct parsed *parsed, const u8 *tcp, const u8 *end)
{
	parsed->flow.remote_port = *(const u16 *)tcp;
	parsed->flow.local_port = *(const u16 *)(tcp + 2);
	parsed->is_syn = tcp + 14 <= end && (tcp[13] & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	return FOUND;
}

/* A packet that an ICMP error quotes is one that we sent: its source is our end. */
INLINE int quoted(struct flow *flow, const u8 *tcp)
{
	flow->local_port = *(const u16 *)tcp;
	flow->remote_port = *(const u16 *)(tcp + 2);
	return FOUND;
}

INLINE int icmp_v4(struct parsed *parsed, const u8 *icmp, const u8 *end)
{
	const u8 *ip = icmp + 8;
	const u8 *tcp;

	if (ip + IPV4_BYTES > end)
		return XDP_PASS;
	if (icmp[0] != 3 && icmp[0] != 11 && icmp[0] != 12)
		return XDP_PASS;
	if (ip[0] >> 4 != 4 || ip[9] != PROTOCOL_TCP || *(const u16 *)(ip + 6) & HTONS(0x1fff))
		return XDP_PASS;
	name_flow(&parsed->flow, 4, ip + 12, ip + 16);
	tcp = ip + (ip[0] & 15) * 4;
	return tcp + 4 > end ? XDP_PASS : quoted(&parsed->flow, tcp);
}

INLINE int ipv4(struct parsed *parsed, const u8 *ip, const u8 *end)
{
	const u8 *inner;
	u16 fragment;

	if (ip + IPV4_BYTES > end || ip[0] >> 4 != 4 || (ip[0] & 15) < 5)
		return XDP_PASS;
	fragment = *(const u16 *)(ip + 6);
	if (fragment & HTONS(0x1fff))
		return XDP_PASS;
	inner = ip + (ip[0] & 15) * 4;
	parsed->is_first_fragment = fragment & HTONS(0x2000);
	if (ip[9] == PROTOCOL_ICMP && !parsed->is_first_fragment)
		return icmp_v4(parsed, inner, end);
	if (ip[9] != PROTOCOL_TCP)
		return XDP_PASS;
	name_flow(&parsed->flow, 4, ip + 16, ip + 12);
	return inner + 4 > end ? XDP_PASS : arriving(parsed, inner, end);
}

INLINE int icmp_v6(struct parsed *parsed, const u8 *icmp, const u8 *end)
{
	const u8 *ip = icmp + 8;

	if (ip + IPV6_BYTES + 4 > end || icmp[0] < 1 || icmp[0] > 4)
		return XDP_PASS;
	/* Our packets have no extension headers. */
	if (ip[0] >> 4 != 6 || ip[6] != PROTOCOL_TCP)
		return XDP_PASS;
	name_flow(&parsed->flow, 6, ip + 8, ip + 24);
	return quoted(&parsed->flow, ip + IPV6_BYTES);
}

INLINE int is_extension(u32 header)
{
	return header == PROTOCOL_HOP_BY_HOP || header == PROTOCOL_ROUTING || header == PROTOCOL_FRAGMENT ||
	       header == PROTOCOL_AUTHENTICATION || header == PROTOCOL_DESTINATION || header == PROTOCOL_MOBILITY;
}

/* Headers that cannot be parsed; the flow's local address is known. */
INLINE int unparsed(const struct flow *flow)
{
	return is_local(flow->local, 6) ? XDP_DROP : XDP_PASS;
}

INLINE int ipv6(struct parsed *parsed, const u8 *ip, const u8 *end)
{
	u32 next, at = IPV6_BYTES;
	const u8 *header;

	if (ip + IPV6_BYTES > end || ip[0] >> 4 != 6)
		return XDP_PASS;
	name_flow(&parsed->flow, 6, ip + 24, ip + 8);
	next = ip[6];
	for (u32 i = 0; i < HEADERS_MAX && is_extension(next); i++) {
		if (at > HEADER_CHAIN_BYTES_MAX)
			return unparsed(&parsed->flow);
		header = ip + at;
		if (header + 8 > end)
			return unparsed(&parsed->flow);
		if (next == PROTOCOL_FRAGMENT) {
			u16 fragment = *(const u16 *)(header + 2);

			if (fragment & HTONS(0xfff8))
				return XDP_PASS;
			parsed->is_first_fragment = fragment & HTONS(1);
			at += 8;
		} else if (next == PROTOCOL_AUTHENTICATION) {
			at += (header[1] + 2) * 4;
		} else {
			at += (header[1] + 1) * 8;
		}
		next = header[0];
	}
	if (is_extension(next) || at > HEADER_CHAIN_BYTES_MAX)
		return unparsed(&parsed->flow);
	header = ip + at;
	if (next == PROTOCOL_ICMPV6 && !parsed->is_first_fragment)
		return icmp_v6(parsed, header, end);
	if (next != PROTOCOL_TCP)
		return XDP_PASS;
	return header + 4 > end ? unparsed(&parsed->flow) : arriving(parsed, header, end);
}

INLINE int parse(struct parsed *parsed, const u8 *frame, const u8 *end)
{
	if (frame + ETHERNET_BYTES > end)
		return XDP_PASS;
	switch (*(const u16 *)(frame + 12)) {
	case HTONS(ETHERTYPE_IPV4):
		return ipv4(parsed, frame + ETHERNET_BYTES, end);
	case HTONS(ETHERTYPE_IPV6):
		return ipv6(parsed, frame + ETHERNET_BYTES, end);
	}
	return XDP_PASS;
}

/* Stacks take peers at the NIC's own addresses while the host has a way for them (`--local`). That
 * way is not this one. */
INLINE int is_forged(const struct flow *flow)
{
	u32 first = 0;
	struct settings *host = bpf_map_lookup_elem(&settings, &first);

	return host && host->local && is_local(flow->remote, flow->family);
}

/* The end of a frame that names no flow, by what `parse` has said. */
INLINE int without_flow(int action)
{
	return action == XDP_DROP ? drop(INGRESS_IPV6_UNPARSED) : action;
}

/* The end of a frame that no virtual port gets; FOUND: the slot that `owner` has said gets it. */
INLINE int without_port(int slot, const struct parsed *parsed)
{
	/* A SYN comes again, when somebody may listen. The kernel resets the peers of what else is
	 * nobody's. */
	if (slot == UNSERVED && parsed->is_syn)
		return drop(INGRESS_NO_PORT);
	if (slot < 0)
		return XDP_PASS;
	return parsed->is_first_fragment ? drop(INGRESS_FRAGMENT) : FOUND;
}

/* A frame of `len` bytes was redirected to the slot, if `action` says so. */
INLINE int delivered(int action, int slot, u32 len)
{
	if (action != XDP_REDIRECT)
		return drop(INGRESS_NO_PORT);
	count(&port_counters, slot * COUNTS_EACH + COUNT_RX_FRAMES, 1);
	count(&port_counters, slot * COUNTS_EACH + COUNT_RX_BYTES, len);
	return XDP_REDIRECT;
}

/* Hands a frame of `len` bytes to the slot that `owner` has said. */
INLINE int deliver(int slot, const struct parsed *parsed, u32 len)
{
	int action = without_port(slot, parsed);

	return action == FOUND ? delivered(bpf_redirect_map(&devices, slot, XDP_DROP), slot, len) : action;
}

#endif
