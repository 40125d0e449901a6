/*
 * libmillstream_dpdk.so: a DPDK port as batches of frames, for crates/packetio/src/dpdk. A
 * translation, no policy.
 *
 * What it owns: EAL, which starts with the first port and stays; per port its configuration; per
 * queue a pool of mbufs, and those mbufs that are lent (received), granted (to be written) and
 * pending (sent, not yet taken by the driver). Pools stay with the process and are found again by
 * their names, for a driver may hold mbufs of theirs after a stop.
 *
 * Frames are one mbuf each, read and written in place. What a driver delivers in several is put
 * into one, or dropped and counted.
 */
#define _GNU_SOURCE
#include "millstream_dpdk.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_epoll.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_spinlock.h>

#define BATCH MILLSTREAM_DPDK_BATCH_MAX
#define ETHERNET_HEADER_LEN 14u
/* With a VLAN tag. */
#define FRAME_OVERHEAD 18u
#define TCP_HEADER_LEN_MIN 20u
#define IPV4_HEADER_LEN_MIN 20u
/* More than drivers hold beyond their descriptors, as far as is known. */
#define MBUFS_SPARE 512u
/* Most drivers refuse buffers with less room than this behind the headroom. */
#define DATA_ROOM_MIN 2048u

struct millstream_dpdk_queue {
	struct millstream_dpdk_port *port;
	struct rte_mempool *pool;
	uint16_t port_id;
	uint16_t index;
	bool is_taken;
	/* `lent` was received by prepare_wait and nobody has seen it. */
	bool is_ahead;
	uint16_t lent_len;
	uint16_t granted_len;
	/* Pending are pending[pending_at..pending_len]. */
	uint16_t pending_at;
	uint16_t pending_len;
	uint32_t frame_len_max;
	int epoll_fd;
	struct millstream_dpdk_counters counters;
	struct rte_mbuf *lent[BATCH];
	struct rte_mbuf *granted[BATCH];
	struct rte_mbuf *pending[BATCH];
};

struct millstream_dpdk_port {
	struct millstream_dpdk_port *next;
	uint16_t id;
	uint16_t queues_len;
	bool has_tx_checksum;
	/* We have made it promiscuous. */
	bool is_promiscuous;
	/* Drivers share registers between the interrupts of their queues. */
	rte_spinlock_t interrupts;
	struct millstream_dpdk_queue queues[];
};

/* The ports that are open. */
static struct millstream_dpdk_port *ports;

/* Why a call failed, to be told. */
struct why {
	char *text;
	size_t len;
};

__attribute__((format(printf, 2, 3))) static void say(struct why why, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(why.text, why.len, format, list);
	va_end(list);
}

/* EAL */

struct eal_start {
	int argc;
	char **argv;
	int result;
	int error;
};

static void *eal_thread(void *argument)
{
	struct eal_start *start = argument;
	start->result = rte_eal_init(start->argc, start->argv);
	start->error = rte_errno;
	return NULL;
}

/* Starts EAL, once. It keeps its arguments. It pins the thread that calls it to a core: hence on
 * a thread that ends. */
static int start_eal(const char *const *arguments, uint32_t arguments_len, char *text, size_t len)
{
	static bool is_started;
	struct why why = {text, len};
	if (is_started)
		return 0;
	struct eal_start start = {.argc = (int)arguments_len + 1};
	start.argv = calloc((size_t)start.argc + 1, sizeof(*start.argv));
	if (start.argv == NULL) {
		say(why, "out of memory");
		return -1;
	}
	for (int i = 0; i < start.argc; i++) {
		start.argv[i] = strdup(i == 0 ? "millstream" : arguments[i - 1]);
		if (start.argv[i] == NULL) {
			say(why, "out of memory");
			return -1;
		}
	}
	pthread_t thread;
	int error = pthread_create(&thread, NULL, eal_thread, &start);
	if (error != 0) {
		say(why, "start a thread for EAL: %s", strerror(error));
		return -1;
	}
	pthread_join(thread, NULL);
	if (start.result < 0) {
		say(why, "rte_eal_init: %s (EAL has said more on standard error)", rte_strerror(start.error));
		return -1;
	}
	is_started = true;
	return 0;
}

static bool find_port(const char *name, uint16_t *id, struct why why)
{
	char *end;
	unsigned long number = strtoul(name, &end, 10);
	if (*name != '\0' && *end == '\0' && number < RTE_MAX_ETHPORTS) {
		*id = (uint16_t)number;
		if (rte_eth_dev_is_valid_port(*id))
			return true;
	} else if (rte_eth_dev_get_port_by_name(name, id) == 0) {
		return true;
	}
	char list[256] = "none";
	size_t at = 0;
	uint16_t other;
	RTE_ETH_FOREACH_DEV(other) {
		char device[RTE_ETH_NAME_MAX_LEN];
		if (rte_eth_dev_get_name_by_port(other, device) != 0)
			continue;
		int len = snprintf(list + at, sizeof(list) - at, "%s%u %s", at ? ", " : "", other, device);
		at = RTE_MIN(at + (size_t)RTE_MAX(len, 0), sizeof(list) - 1);
	}
	say(why, "DPDK has no port of this name; it has: %s", list);
	return false;
}

/* Opening a port */

static bool configure(struct millstream_dpdk_port *port, const struct millstream_dpdk_settings *settings, const struct rte_eth_dev_info *device,
		      uint32_t mtu, bool interrupts, struct why why)
{
	struct rte_eth_conf conf = {.intr_conf.rxq = interrupts};
	uint64_t rx = RTE_ETH_RX_OFFLOAD_CHECKSUM;
	uint64_t tx = RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	conf.rxmode.mtu = mtu;
	if (settings->queues > 1) {
		conf.rx_adv_conf.rss_conf.rss_hf = (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP) & device->flow_type_rss_offloads;
		if (conf.rx_adv_conf.rss_conf.rss_hf != 0) {
			conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
			rx |= RTE_ETH_RX_OFFLOAD_RSS_HASH;
		}
	}
	conf.rxmode.offloads = rx & device->rx_offload_capa;
	conf.txmode.offloads = tx & device->tx_offload_capa;
	int error = rte_eth_dev_configure(port->id, port->queues_len, port->queues_len, &conf);
	if (error != 0) {
		say(why, "rte_eth_dev_configure with %u queues and an MTU of %u: %s", port->queues_len, mtu, rte_strerror(-error));
		return false;
	}
	/* Drivers of kernel interfaces look at this one alone; others have none. */
	error = settings->mtu ? rte_eth_dev_set_mtu(port->id, (uint16_t)mtu) : 0;
	if (error != 0 && error != -ENOTSUP) {
		say(why, "rte_eth_dev_set_mtu to %u: %s", mtu, rte_strerror(-error));
		return false;
	}
	return true;
}

/* The queue's pool, made now or found again. */
static struct rte_mempool *pool_of(const struct millstream_dpdk_queue *queue, uint16_t rx_slots, uint16_t tx_slots)
{
	uint32_t room = RTE_MAX(queue->frame_len_max, DATA_ROOM_MIN);
	room = RTE_ALIGN_CEIL(room, RTE_CACHE_LINE_SIZE) + RTE_PKTMBUF_HEADROOM;
	uint32_t mbufs = (uint32_t)rx_slots + tx_slots + 4 * BATCH + MBUFS_SPARE;
	char name[RTE_MEMPOOL_NAMESIZE];
	snprintf(name, sizeof(name), "ms%u.%u.%u.%u", queue->port_id, queue->index, room, mbufs);
	struct rte_mempool *pool = rte_mempool_lookup(name);
	if (pool != NULL)
		return pool;
	if (room > UINT16_MAX) {
		rte_errno = EINVAL;
		return NULL;
	}
	/* Per-core caches are of use to EAL's own threads alone, and ours are none. */
	return rte_pktmbuf_pool_create(name, mbufs, 0, 0, (uint16_t)room, rte_eth_dev_socket_id(queue->port_id));
}

static bool set_up_queues(struct millstream_dpdk_port *port, const struct millstream_dpdk_settings *settings, uint32_t mtu, struct why why)
{
	uint16_t rx_slots = (uint16_t)settings->rx_slots, tx_slots = (uint16_t)settings->tx_slots;
	int socket = rte_eth_dev_socket_id(port->id);
	int error = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &rx_slots, &tx_slots);
	if (error != 0) {
		say(why, "rte_eth_dev_adjust_nb_rx_tx_desc: %s", rte_strerror(-error));
		return false;
	}
	for (uint16_t i = 0; i < port->queues_len; i++) {
		struct millstream_dpdk_queue *queue = &port->queues[i];
		*queue = (struct millstream_dpdk_queue){
			.port = port, .port_id = port->id, .index = i, .frame_len_max = mtu + FRAME_OVERHEAD, .epoll_fd = -1};
		queue->pool = pool_of(queue, rx_slots, tx_slots);
		if (queue->pool == NULL) {
			say(why, "a pool of mbufs for queue %u: %s", i, rte_strerror(rte_errno));
			return false;
		}
		error = rte_eth_rx_queue_setup(port->id, i, rx_slots, (unsigned)socket, NULL, queue->pool);
		if (error == 0)
			error = rte_eth_tx_queue_setup(port->id, i, tx_slots, (unsigned)socket, NULL);
		if (error != 0) {
			say(why, "set up queue %u: %s", i, rte_strerror(-error));
			return false;
		}
	}
	return true;
}

/* The queues' interrupts as epoll descriptors, which DPDK drains by itself; false: not every
 * queue has one. */
static bool open_interrupts(struct millstream_dpdk_port *port)
{
	/* That a driver has none is no error to be logged. */
	int log = rte_log_register("lib.ethdev");
	int level = log < 0 ? -1 : rte_log_get_level((uint32_t)log);
	if (level >= 0)
		rte_log_set_level((uint32_t)log, RTE_LOG_EMERG);
	bool all = true;
	for (uint16_t i = 0; i < port->queues_len && all; i++) {
		int fd = epoll_create1(EPOLL_CLOEXEC);
		all = fd >= 0 && rte_eth_dev_rx_intr_ctl_q(port->id, i, fd, RTE_INTR_EVENT_ADD, NULL) == 0;
		if (all)
			port->queues[i].epoll_fd = fd;
		else if (fd >= 0)
			close(fd);
	}
	if (level >= 0)
		rte_log_set_level((uint32_t)log, (uint32_t)level);
	return all;
}

static void close_interrupts(struct millstream_dpdk_port *port)
{
	for (uint16_t i = 0; i < port->queues_len; i++) {
		struct millstream_dpdk_queue *queue = &port->queues[i];
		if (queue->epoll_fd < 0)
			continue;
		rte_eth_dev_rx_intr_ctl_q(port->id, i, queue->epoll_fd, RTE_INTR_EVENT_DEL, NULL);
		close(queue->epoll_fd);
		queue->epoll_fd = -1;
	}
}

/* Configured, with queues, and running; with the queues' interrupts if the driver starts with
 * them. */
static bool start_port(struct millstream_dpdk_port *port, const struct millstream_dpdk_settings *settings, const struct rte_eth_dev_info *device,
		  uint32_t mtu, struct why why)
{
	for (int interrupts = 1; interrupts >= 0; interrupts--) {
		if (!configure(port, settings, device, mtu, interrupts, why) || !set_up_queues(port, settings, mtu, why)) {
			if (interrupts)
				continue;
			return false;
		}
		int error = rte_eth_dev_start(port->id);
		if (error == 0)
			return true;
		say(why, "rte_eth_dev_start: %s", rte_strerror(-error));
	}
	return false;
}

static void describe(struct millstream_dpdk_port *port, const struct rte_eth_dev_info *device, uint32_t mtu, struct millstream_dpdk_info *info)
{
	char name[RTE_ETH_NAME_MAX_LEN] = "";
	struct rte_ether_addr mac = {0};
	memset(info, 0, sizeof(*info));
	rte_eth_dev_get_name_by_port(port->id, name);
	snprintf(info->device, sizeof(info->device), "%s", name);
	snprintf(info->driver, sizeof(info->driver), "%s", device->driver_name ? device->driver_name : "");
	rte_eth_macaddr_get(port->id, &mac);
	memcpy(info->mac, mac.addr_bytes, sizeof(info->mac));
	info->number = port->id;
	info->mtu = mtu;
	if (device->rx_offload_capa & RTE_ETH_RX_OFFLOAD_TCP_CKSUM)
		info->offloads |= MILLSTREAM_DPDK_RX_CHECKSUM;
	port->has_tx_checksum = device->tx_offload_capa & RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
	if (port->has_tx_checksum)
		info->offloads |= MILLSTREAM_DPDK_TX_CHECKSUM;
}

static struct millstream_dpdk_port *open_port(const struct millstream_dpdk_settings *settings, struct millstream_dpdk_info *info, char *text,
					      size_t len)
{
	struct why why = {text, len};
	struct rte_eth_dev_info device;
	uint16_t id, mtu16 = 0;
	if (!find_port(settings->port, &id, why))
		return NULL;
	for (struct millstream_dpdk_port *other = ports; other != NULL; other = other->next) {
		if (other->id == id) {
			say(why, "port %u is open already, by another name", id);
			return NULL;
		}
	}
	int error = rte_eth_dev_info_get(id, &device);
	if (error == 0)
		error = rte_eth_dev_get_mtu(id, &mtu16);
	if (error != 0) {
		say(why, "rte_eth_dev_info_get: %s", rte_strerror(-error));
		return NULL;
	}
	uint32_t queues_max = RTE_MIN(device.max_rx_queues, device.max_tx_queues);
	if (settings->queues == 0 || settings->queues > queues_max) {
		say(why, "queues=%u: this device has %u", settings->queues, queues_max);
		return NULL;
	}
	struct millstream_dpdk_port *port = calloc(1, sizeof(*port) + settings->queues * sizeof(port->queues[0]));
	if (port == NULL) {
		say(why, "out of memory");
		return NULL;
	}
	port->id = id;
	port->queues_len = (uint16_t)settings->queues;
	rte_spinlock_init(&port->interrupts);
	uint32_t mtu = settings->mtu ? settings->mtu : mtu16;
	if (!start_port(port, settings, &device, mtu, why)) {
		free(port);
		return NULL;
	}
	describe(port, &device, mtu, info);
	if (open_interrupts(port))
		info->offloads |= MILLSTREAM_DPDK_RX_INTERRUPTS;
	else
		close_interrupts(port);
	/* Neighbour discovery is multicast. Some drivers can only take all or nothing. */
	if (rte_eth_allmulticast_enable(id) != 0)
		port->is_promiscuous = rte_eth_promiscuous_get(id) == 0 && rte_eth_promiscuous_enable(id) == 0;
	port->next = ports;
	ports = port;
	return port;
}

static void close_port(struct millstream_dpdk_port *port)
{
	for (struct millstream_dpdk_port **at = &ports; *at != NULL; at = &(*at)->next) {
		if (*at == port) {
			*at = port->next;
			break;
		}
	}
	close_interrupts(port);
	if (port->is_promiscuous)
		rte_eth_promiscuous_disable(port->id);
	rte_eth_dev_stop(port->id);
	free(port);
}

static struct millstream_dpdk_queue *take_queue(struct millstream_dpdk_port *port, uint32_t index)
{
	if (index >= port->queues_len || port->queues[index].is_taken)
		return NULL;
	struct millstream_dpdk_queue *queue = &port->queues[index];
	memset(&queue->counters, 0, sizeof(queue->counters));
	queue->is_taken = true;
	return queue;
}

/* Receiving */

static void release(struct millstream_dpdk_queue *queue)
{
	if (queue->lent_len == 0 || queue->is_ahead)
		return;
	rte_pktmbuf_free_bulk(queue->lent, queue->lent_len);
	queue->lent_len = 0;
}

/* Whether the frame can be lent; otherwise it has been counted. */
static inline bool is_whole(struct millstream_dpdk_queue *queue, struct rte_mbuf *mbuf)
{
	if (unlikely(mbuf->pkt_len < ETHERNET_HEADER_LEN)) {
		queue->counters.rx_runt++;
		return false;
	}
	if (unlikely(mbuf->pkt_len > queue->frame_len_max)) {
		queue->counters.rx_too_long++;
		return false;
	}
	if (unlikely(mbuf->nb_segs > 1 && rte_pktmbuf_linearize(mbuf) != 0)) {
		queue->counters.rx_chained++;
		return false;
	}
	return true;
}

static inline uint32_t frame_flags(const struct rte_mbuf *mbuf)
{
	uint32_t flags = 0;
	switch (mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) {
	case RTE_MBUF_F_RX_L4_CKSUM_GOOD:
	/* The sum is not there, but the bytes are known to be right: they never were on a wire. */
	case RTE_MBUF_F_RX_L4_CKSUM_NONE:
		flags = MILLSTREAM_DPDK_CHECKSUM_GOOD;
		break;
	case RTE_MBUF_F_RX_L4_CKSUM_BAD:
		flags = MILLSTREAM_DPDK_CHECKSUM_BAD;
		break;
	}
	if (mbuf->ol_flags & RTE_MBUF_F_RX_RSS_HASH)
		flags |= MILLSTREAM_DPDK_HAS_HASH;
	return flags;
}

static uint32_t receive(struct millstream_dpdk_queue *queue, struct millstream_dpdk_frame *frames)
{
	if (!queue->is_ahead) {
		release(queue);
		queue->lent_len = rte_eth_rx_burst(queue->port_id, queue->index, queue->lent, BATCH);
	}
	queue->is_ahead = false;
	uint16_t kept = 0;
	uint64_t bytes = 0;
	for (uint16_t i = 0; i < queue->lent_len; i++) {
		struct rte_mbuf *mbuf = queue->lent[i];
		if (unlikely(!is_whole(queue, mbuf))) {
			rte_pktmbuf_free(mbuf);
			continue;
		}
		frames[kept] = (struct millstream_dpdk_frame){
			.data = rte_pktmbuf_mtod(mbuf, const uint8_t *),
			.len = mbuf->pkt_len,
			.hash = mbuf->hash.rss,
			.flags = frame_flags(mbuf),
		};
		bytes += mbuf->pkt_len;
		queue->lent[kept++] = mbuf;
	}
	queue->lent_len = kept;
	queue->counters.rx_frames += kept;
	queue->counters.rx_bytes += bytes;
	return kept;
}

/* Sending */

/* Offers the driver what is pending; true: nothing is left. */
static bool flush(struct millstream_dpdk_queue *queue)
{
	while (queue->pending_at < queue->pending_len) {
		uint16_t left = queue->pending_len - queue->pending_at;
		uint16_t taken = rte_eth_tx_burst(queue->port_id, queue->index, &queue->pending[queue->pending_at], left);
		queue->pending_at += taken;
		if (taken == 0)
			return false;
	}
	queue->pending_at = queue->pending_len = 0;
	return true;
}

static uint32_t reserve(struct millstream_dpdk_queue *queue, struct millstream_dpdk_slot *slots, uint32_t n)
{
	uint16_t wanted = (uint16_t)RTE_MIN(n, BATCH);
	if (!flush(queue)) {
		queue->counters.tx_pushed_back += wanted > 0;
		return 0;
	}
	if (queue->granted_len < wanted) {
		uint16_t missing = wanted - queue->granted_len;
		struct rte_mbuf **place = &queue->granted[queue->granted_len];
		if (rte_pktmbuf_alloc_bulk(queue->pool, place, missing) == 0)
			queue->granted_len = wanted;
		else
			queue->counters.tx_pushed_back++;
	}
	uint16_t granted = RTE_MIN(wanted, queue->granted_len);
	for (uint16_t i = 0; i < granted; i++) {
		struct rte_mbuf *mbuf = queue->granted[i];
		slots[i].data = rte_pktmbuf_mtod(mbuf, uint8_t *);
		slots[i].capacity = RTE_MIN(queue->frame_len_max, rte_pktmbuf_tailroom(mbuf));
	}
	return granted;
}

/* Leaves the TCP checksum to the driver; false: not of this frame. */
static bool offload(const struct millstream_dpdk_queue *queue, struct rte_mbuf *mbuf, uint32_t from)
{
	if (!queue->port->has_tx_checksum || from < ETHERNET_HEADER_LEN + IPV4_HEADER_LEN_MIN || from + TCP_HEADER_LEN_MIN > mbuf->pkt_len)
		return false;
	const uint8_t *frame = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	mbuf->l2_len = ETHERNET_HEADER_LEN;
	mbuf->l3_len = (from - ETHERNET_HEADER_LEN) & 0x1ff;
	mbuf->l4_len = (frame[from + 12] >> 4) * 4;
	mbuf->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM | (frame[ETHERNET_HEADER_LEN] >> 4 == 6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4);
	return true;
}

/* Adds a written slot to what is pending; false: it is to be freed. */
static bool enqueue(struct millstream_dpdk_queue *queue, struct rte_mbuf *mbuf, const struct millstream_dpdk_written *written)
{
	if (written->len < ETHERNET_HEADER_LEN || written->len > rte_pktmbuf_tailroom(mbuf)) {
		queue->counters.tx_runt += written->len > 0;
		return false;
	}
	mbuf->data_len = (uint16_t)written->len;
	mbuf->pkt_len = written->len;
	if (written->checksum_from != 0
	    && (!offload(queue, mbuf, written->checksum_from) || rte_eth_tx_prepare(queue->port_id, queue->index, &mbuf, 1) != 1)) {
		queue->counters.tx_refused++;
		return false;
	}
	queue->pending[queue->pending_len++] = mbuf;
	queue->counters.tx_frames++;
	queue->counters.tx_bytes += written->len;
	return true;
}

static void send_frames(struct millstream_dpdk_queue *queue, const struct millstream_dpdk_written *written, uint32_t n)
{
	struct rte_mbuf *unused[BATCH];
	unsigned unused_len = 0;
	/* What is granted was granted when nothing was pending: it fits. */
	for (uint16_t i = 0; i < queue->granted_len; i++) {
		struct rte_mbuf *mbuf = queue->granted[i];
		if (i >= n || !enqueue(queue, mbuf, &written[i]))
			unused[unused_len++] = mbuf;
	}
	queue->granted_len = 0;
	rte_pktmbuf_free_bulk(unused, unused_len);
	flush(queue);
}

static void give_back_queue(struct millstream_dpdk_queue *queue)
{
	queue->is_ahead = false;
	release(queue);
	send_frames(queue, NULL, 0);
	uint16_t left = queue->pending_len - queue->pending_at;
	rte_pktmbuf_free_bulk(&queue->pending[queue->pending_at], left);
	queue->pending_at = queue->pending_len = 0;
	queue->is_taken = false;
}

/* Sleeping */

static uint32_t prepare_wait(struct millstream_dpdk_queue *queue)
{
	if (queue->epoll_fd >= 0) {
		rte_spinlock_lock(&queue->port->interrupts);
		/* Some drivers have nothing to enable: their descriptor always tells. */
		rte_eth_dev_rx_intr_enable(queue->port_id, queue->index);
		rte_spinlock_unlock(&queue->port->interrupts);
	}
	bool has_room = flush(queue) && (queue->granted_len > 0 || !rte_mempool_empty(queue->pool));
	uint32_t found = has_room ? MILLSTREAM_DPDK_HAS_ROOM : 0;
	if (queue->lent_len == 0) {
		queue->lent_len = rte_eth_rx_burst(queue->port_id, queue->index, queue->lent, BATCH);
		queue->is_ahead = queue->lent_len > 0;
	}
	return found | (queue->is_ahead ? MILLSTREAM_DPDK_HAS_FRAMES : 0);
}

static void finish_wait(struct millstream_dpdk_queue *queue)
{
	if (queue->epoll_fd < 0)
		return;
	struct rte_epoll_event event;
	rte_spinlock_lock(&queue->port->interrupts);
	rte_eth_dev_rx_intr_disable(queue->port_id, queue->index);
	rte_spinlock_unlock(&queue->port->interrupts);
	rte_epoll_wait(queue->epoll_fd, &event, 1, 0);
}

static int wait_fd(const struct millstream_dpdk_queue *queue)
{
	return queue->epoll_fd;
}

/* Counting */

static void read_counters(const struct millstream_dpdk_queue *queue, struct millstream_dpdk_counters *counters)
{
	*counters = queue->counters;
	counters->buffers_free = rte_mempool_avail_count(queue->pool);
}

static void device_counters(const struct millstream_dpdk_queue *queue, struct millstream_dpdk_device_counters *counters)
{
	struct rte_eth_stats stats = {0};
	rte_eth_stats_get(queue->port_id, &stats);
	*counters = (struct millstream_dpdk_device_counters){
		.rx_missed = stats.imissed,
		.rx_errors = stats.ierrors,
		.rx_no_buffer = stats.rx_nombuf,
		.tx_errors = stats.oerrors,
		.is_gone = rte_eth_dev_is_removed(queue->port_id) == 1,
	};
}

__attribute__((visibility("default"))) const struct millstream_dpdk *millstream_dpdk(uint32_t abi)
{
	static const struct millstream_dpdk table = {
		.abi = MILLSTREAM_DPDK_ABI,
		.batch_max = BATCH,
		.start = start_eal,
		.open = open_port,
		.close = close_port,
		.take = take_queue,
		.give_back = give_back_queue,
		.receive = receive,
		.release = release,
		.reserve = reserve,
		.send = send_frames,
		.prepare_wait = prepare_wait,
		.finish_wait = finish_wait,
		.wait_fd = wait_fd,
		.counters = read_counters,
		.device_counters = device_counters,
	};
	return abi == MILLSTREAM_DPDK_ABI ? &table : NULL;
}
