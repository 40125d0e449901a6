/*
 * Stands in for the driver of a card, in what no virtual device does. Compiled before plugin.c, it
 * wraps the calls that plugin.c makes of DPDK.
 *
 * - The device announces that it merges received TCP segments (LRO). The segments of a flow without
 *   a gap that one burst received come as a chain of mbufs.
 * - A frame that was sent keeps its mbuf until its descriptor is needed for another one.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_tcp.h>

/* The headers of a received segment. */
struct card_head {
	uint8_t *ip;
	struct rte_tcp_hdr *tcp;
	uint32_t headers;
	uint32_t payload;
};

static inline bool card_parse(struct rte_mbuf *mbuf, struct card_head *head)
{
	uint8_t *frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
	if (mbuf->nb_segs != 1 || mbuf->data_len < 74)
		return false;
	head->ip = frame + 14;
	bool is_v4 = frame[12] == 0x08 && head->ip[0] == 0x45 && head->ip[9] == 6;
	bool is_v6 = frame[12] == 0x86 && head->ip[6] == 6;
	if (!is_v4 && !is_v6)
		return false;
	head->tcp = (struct rte_tcp_hdr *)(head->ip + (is_v4 ? 20 : 40));
	head->headers = (uint32_t)((uint8_t *)head->tcp - frame) + (head->tcp->data_off >> 4) * 4u;
	if (head->headers >= mbuf->data_len)
		return false;
	head->payload = mbuf->data_len - head->headers;
	bool is_good = (mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD;
	return is_good && (head->tcp->tcp_flags & (uint8_t)~RTE_TCP_PSH_FLAG) == RTE_TCP_ACK_FLAG;
}

/* Whether `next` follows what `first` and its chain hold. */
static inline bool card_follows(const struct rte_mbuf *first_mbuf, const struct card_head *first, const struct card_head *next)
{
	uint32_t held = first_mbuf->pkt_len - first->headers;
	uint32_t seq = rte_be_to_cpu_32(first->tcp->sent_seq) + held;
	uint32_t addresses = first->ip[0] >> 4 == 4 ? 12 : 8;
	uint32_t options = first->headers - (uint32_t)((uint8_t *)(first->tcp + 1) - (first->ip - 14));
	return first->headers == next->headers && rte_be_to_cpu_32(next->tcp->sent_seq) == seq && next->payload <= first->payload
	       && held % first->payload == 0 && first_mbuf->pkt_len + next->payload <= UINT16_MAX
	       && !(first->tcp->tcp_flags & RTE_TCP_PSH_FLAG) && first->tcp->recv_ack == next->tcp->recv_ack
	       && memcmp(first->ip + addresses, next->ip + addresses, (uint32_t)((uint8_t *)first->tcp - first->ip) - addresses + 4) == 0
	       && memcmp(first->tcp + 1, next->tcp + 1, options) == 0;
}

static inline uint16_t card_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	uint16_t came = rte_eth_rx_burst(port, queue, mbufs, n), kept = 0;
	struct card_head first = {0}, next = {0};
	bool has_first = false;
	for (uint16_t i = 0; i < came; i++) {
		bool is_text = card_parse(mbufs[i], &next);
		if (is_text && has_first && card_follows(mbufs[kept - 1], &first, &next)) {
			struct rte_mbuf *whole = mbufs[kept - 1];
			first.tcp->tcp_flags |= next.tcp->tcp_flags;
			first.tcp->rx_win = next.tcp->rx_win;
			rte_pktmbuf_adj(mbufs[i], (uint16_t)next.headers);
			rte_pktmbuf_chain(whole, mbufs[i]);
			whole->ol_flags |= RTE_MBUF_F_RX_LRO;
			whole->tso_segsz = (uint16_t)first.payload;
			continue;
		}
		mbufs[kept++] = mbufs[i];
		has_first = is_text;
		first = next;
	}
	return kept;
}

static inline int card_info_get(uint16_t port, struct rte_eth_dev_info *info)
{
	int error = rte_eth_dev_info_get(port, info);
	info->rx_offload_capa |= RTE_ETH_RX_OFFLOAD_TCP_LRO;
	info->max_lro_pkt_size = UINT16_MAX;
	return error;
}

static inline int card_configure(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, const struct rte_eth_conf *conf)
{
	struct rte_eth_conf real = *conf;
	real.rxmode.offloads &= ~(uint64_t)(RTE_ETH_RX_OFFLOAD_TCP_LRO | RTE_ETH_RX_OFFLOAD_SCATTER);
	real.rxmode.max_lro_pkt_size = 0;
	return rte_eth_dev_configure(port, rx_queues, tx_queues, &real);
}

#define CARD_DESCRIPTORS 512u

static inline uint16_t card_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t n)
{
	static struct rte_mbuf *ring[CARD_DESCRIPTORS];
	static unsigned next;
	uint16_t sent = 0;
	for (; sent < n; sent++) {
		rte_pktmbuf_refcnt_update(mbufs[sent], 1);
		if (rte_eth_tx_burst(port, queue, &mbufs[sent], 1) == 0) {
			rte_pktmbuf_refcnt_update(mbufs[sent], -1);
			break;
		}
		if (ring[next] != NULL)
			rte_pktmbuf_free(ring[next]);
		ring[next] = mbufs[sent];
		next = (next + 1) % CARD_DESCRIPTORS;
	}
	return sent;
}

#define rte_eth_tx_burst card_tx_burst
#define rte_eth_rx_burst card_rx_burst
#define rte_eth_dev_info_get card_info_get
#define rte_eth_dev_configure card_configure
