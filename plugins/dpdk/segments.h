/*
 * A large TCP packet and the segments in it, for plugin.c: where its headers end, and how one
 * segment after another is cut out of it where no driver does that.
 *
 * Owns nothing. A segment gets whole checksums, so it needs no offload.
 */
#ifndef MILLSTREAM_DPDK_SEGMENTS_H
#define MILLSTREAM_DPDK_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_tcp.h>

#define ETHERNET_HEADER_LEN 14u
#define TCP_PSH_AND_FIN 0x09u
#define TCP_CWR 0x80u

/* The headers of a TCP packet without a VLAN tag, without IPv6 extensions. */
struct shape {
	/* Where the TCP header starts, and where the payload does. */
	uint16_t tcp_at;
	uint16_t headers;
	bool is_v4;
};

/* A packet that is being cut. */
struct cutting {
	/* NULL: none. */
	const uint8_t *data;
	uint32_t len;
	/* Payload bytes of each segment. */
	uint32_t size;
	/* The next payload byte. */
	uint32_t at;
	uint16_t index;
	struct shape shape;
};

/* Reads the headers of `len` bytes at `data`; false: this is no whole TCP packet with payload. */
static inline bool shape_of(const uint8_t *data, uint32_t len, struct shape *shape)
{
	if (len < ETHERNET_HEADER_LEN + sizeof(struct rte_ipv6_hdr))
		return false;
	const uint8_t *ip = data + ETHERNET_HEADER_LEN;
	uint32_t tcp_at;
	if (data[12] == 0x08 && data[13] == 0x00 && ip[0] >> 4 == 4 && ip[9] == IPPROTO_TCP && (ip[6] & 0x3f) == 0 && ip[7] == 0)
		tcp_at = ETHERNET_HEADER_LEN + (ip[0] & 0xfu) * 4;
	else if (data[12] == 0x86 && data[13] == 0xdd && ip[0] >> 4 == 6 && ip[6] == IPPROTO_TCP)
		tcp_at = ETHERNET_HEADER_LEN + sizeof(struct rte_ipv6_hdr);
	else
		return false;
	if (tcp_at < ETHERNET_HEADER_LEN + sizeof(struct rte_ipv4_hdr) || tcp_at + sizeof(struct rte_tcp_hdr) > len)
		return false;
	uint32_t headers = tcp_at + (data[tcp_at + 12] >> 4) * 4u;
	if (headers < tcp_at + sizeof(struct rte_tcp_hdr) || headers >= len)
		return false;
	*shape = (struct shape){.tcp_at = (uint16_t)tcp_at, .headers = (uint16_t)headers, .is_v4 = ip[0] >> 4 == 4};
	return true;
}

/* Makes the IP header say the packet's length. `has_sum`: and makes an IPv4 header's checksum
 * right. */
static inline void set_ip_len(uint8_t *data, uint32_t len, const struct shape *shape, bool has_sum)
{
	if (!shape->is_v4) {
		struct rte_ipv6_hdr *header = (struct rte_ipv6_hdr *)(data + ETHERNET_HEADER_LEN);
		header->payload_len = rte_cpu_to_be_16((uint16_t)(len - shape->tcp_at));
		return;
	}
	struct rte_ipv4_hdr *header = (struct rte_ipv4_hdr *)(data + ETHERNET_HEADER_LEN);
	header->total_length = rte_cpu_to_be_16((uint16_t)(len - ETHERNET_HEADER_LEN));
	if (has_sum) {
		header->hdr_checksum = 0;
		header->hdr_checksum = rte_ipv4_cksum(header);
	}
}

/* Writes the headers of the segment that `frame` holds from byte `cutting->at` of the packet on. */
static inline void write_headers(const struct cutting *cutting, uint8_t *frame, uint32_t len, bool is_last)
{
	const struct shape *shape = &cutting->shape;
	uint8_t *ip = frame + ETHERNET_HEADER_LEN;
	struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(frame + shape->tcp_at);
	memcpy(frame, cutting->data, shape->headers);
	tcp->sent_seq = rte_cpu_to_be_32(rte_be_to_cpu_32(tcp->sent_seq) + cutting->at - shape->headers);
	if (!is_last)
		tcp->tcp_flags &= (uint8_t)~TCP_PSH_AND_FIN;
	if (cutting->index > 0)
		tcp->tcp_flags &= (uint8_t)~TCP_CWR;
	tcp->cksum = 0;
	if (shape->is_v4) {
		struct rte_ipv4_hdr *header = (struct rte_ipv4_hdr *)ip;
		header->packet_id = rte_cpu_to_be_16((uint16_t)(rte_be_to_cpu_16(header->packet_id) + cutting->index));
		set_ip_len(frame, len, shape, true);
		tcp->cksum = rte_ipv4_udptcp_cksum(header, tcp);
	} else {
		set_ip_len(frame, len, shape, true);
		tcp->cksum = rte_ipv6_udptcp_cksum((struct rte_ipv6_hdr *)ip, tcp);
	}
}

/* Fills `mbuf`, which is empty and holds a segment, with the next one; the packet is done when
 * `data` is NULL. */
static inline void cut_next(struct cutting *cutting, struct rte_mbuf *mbuf)
{
	uint32_t payload = RTE_MIN(cutting->size, cutting->len - cutting->at);
	uint32_t len = cutting->shape.headers + payload;
	bool is_last = cutting->at + payload == cutting->len;
	uint8_t *frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
	memcpy(frame + cutting->shape.headers, cutting->data + cutting->at, payload);
	write_headers(cutting, frame, len, is_last);
	mbuf->data_len = (uint16_t)len;
	mbuf->pkt_len = len;
	cutting->at += payload;
	cutting->index++;
	if (is_last)
		cutting->data = NULL;
}

#endif
