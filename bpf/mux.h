/* Maps and values that the programs of `mill mux` share: virtual ports, claims, leases, addresses,
 * counters.
 *
 * The loader (crates/mux/src/dataplane) makes one map for each name, whichever object declares it.
 * The layouts below are mirrored in crates/mux/src/dataplane/layout.rs. Ports and addresses stand
 * in network order, all else in the host's.
 */
#ifndef MILLSTREAM_MUX_H
#define MILLSTREAM_MUX_H

#include "bpf.h"
#include "mux_reasons.h"

enum {
	SLOTS = 256,
	MEMBERS_MAX = 16,
	CLAIMS_MAX = 65536,
	ADDRESSES_MAX = 1024,
	FLOWS_MAX = 131072,
	HALF_OPEN_MAX = 65536,
	NEXT_HOPS_MAX = 4096,
};

enum {
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_ARP = 0x0806,
	ETHERTYPE_VLAN = 0x8100,
	ETHERTYPE_QINQ = 0x88a8,
	ETHERTYPE_IPV6 = 0x86dd,
	PROTOCOL_HOP_BY_HOP = 0,
	PROTOCOL_ICMP = 1,
	PROTOCOL_TCP = 6,
	PROTOCOL_ROUTING = 43,
	PROTOCOL_FRAGMENT = 44,
	PROTOCOL_AUTHENTICATION = 51,
	PROTOCOL_ICMPV6 = 58,
	PROTOCOL_DESTINATION = 60,
	PROTOCOL_MOBILITY = 135,
	ETHERNET_BYTES = 14,
	IPV4_BYTES = 20,
	IPV6_BYTES = 40,
	TCP_BYTES = 20,
	TCP_FIN = 1,
	TCP_SYN = 2,
	TCP_RST = 4,
	TCP_ACK = 16,
};

/* Interface indices in the private namespace: the TAP of slot n, and the end of the pair that leads
 * to the NIC. */
enum { BULK_FIRST_INDEX = 1024, BULK_HOP_INDEX = 1023 };

/* An address of either family. IPv4 is the first word. */
struct address {
	u32 word[4];
	u32 family; /* 4 or 6 */
};

/* The key of `claims`. The address is zero for a wildcard. */
struct endpoint {
	u32 word[4];
	u16 port;
	u8 protocol;
	u8 family;
};

/* Who owns an endpoint, and which of its virtual ports listen there. With one context nothing needs to
 * be tracked. */
struct claim {
	u32 owner;
	u16 members;
	u16 tracks; /* flows keep the context that they have (`flows`) */
	u16 slot[MEMBERS_MAX];
};

/* What is known of a local port before any address is looked at. */
struct port_use {
	u16 leased_to; /* slot + 1; 0: not leased */
	u16 claims;    /* entries of `claims` with this port */
};

struct slot {
	u32 owner; /* 0: nobody */
	u32 note;  /* for the service */
	u64 cookie;
	u64 rate;  /* bytes a second; 0: as many as it likes */
	u64 burst; /* bytes */
	u64 zero;
	s64 used_ns; /* the time up to which the rate is used up */
};

struct flow {
	u32 local[4];
	u32 remote[4];
	u16 local_port;
	u16 remote_port;
	u32 family;
};

/* The value of `flows`: the owner's slot, and FLOW_ENDED once the owner has sent a FIN or RST. */
enum { FLOW_SLOT = 0xffff, FLOW_ENDED = 0x10000 };

struct settings {
	u8 mac[6];
	u16 note; /* for the service */
	u64 mtu;
	u64 key[2];
	u32 local; /* interface index of the pair for clients of the same host, in the host's namespace; 0: none */
	u32 zero;
};

struct next_hop {
	u8 mac[6];
	u16 zero;
};

enum { ADDRESS_LOCAL = 1, ADDRESS_BROADCAST = 2 };

enum {
	COUNT_RX_FRAMES,
	COUNT_RX_BYTES,
	COUNT_TX_FRAMES,
	COUNT_TX_BYTES,
	COUNT_NO_SOCKET,
	COUNT_BULK_FRAMES,
	COUNT_BULK_BYTES,
	COUNT_DROPS = 8, /* + reason */
	COUNTS_EACH = 32,
};

enum { INGRESS_FRAGMENT, INGRESS_IPV6_UNPARSED, INGRESS_NO_PORT, INGRESS_FORGED, INGRESS_COUNTERS };

/* Entries of `nic`: how frames of applications leave. */
enum { WAY_NIC, WAY_LOCAL, WAYS };

#define REASON(name, text) DROP_##name,
enum reason { MUX_REASONS(REASON) DROP_REASONS };
#undef REASON

_Static_assert(COUNT_DROPS + DROP_REASONS <= COUNTS_EACH, "counters of each virtual port");

INLINE void count(void *counters, u32 index, u64 by)
{
	u64 *value = bpf_map_lookup_elem(counters, &index);

	if (value)
		__sync_fetch_and_add(value, by);
}

INLINE void copy_address(u32 *to, const u8 *from, u32 family)
{
	const u32 *word = (const u32 *)from;

	to[0] = word[0];
	to[1] = family == 6 ? word[1] : 0;
	to[2] = family == 6 ? word[2] : 0;
	to[3] = family == 6 ? word[3] : 0;
}

#endif
