/*
 * libmillstream_dpdk.so: a DPDK port as batches of frames, for crates/packetio/src/dpdk. A
 * translation, no policy.
 *
 * What it owns: EAL, which starts with the first port and stays; per port its configuration; per
 * queue a pool of mbufs and one of large mbufs, and those mbufs that are received and not yet seen,
 * lent, granted (to be written) and pending (sent, not yet taken by the driver). Pools stay with
 * the process and are found again by their names, for a driver may hold mbufs of theirs after a
 * stop.
 *
 * Frames are one mbuf each, read and written in place. A frame that a driver delivers in several is
 * joined, or dropped and counted. A large packet that the driver does not cut is cut here, and so is
 * one that the driver merged for a caller who takes none.
 */
#define _GNU_SOURCE
#include "millstream_dpdk.h"
#include "segments.h"

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
/* With a VLAN tag. */
#define FRAME_OVERHEAD 18u
#define TCP_HEADER_LEN_MIN 20u
#define IPV4_HEADER_LEN_MIN 20u
/* More than drivers hold beyond their descriptors, as far as is known. */
#define MBUFS_SPARE 512u
/* Most drivers refuse buffers with less room than this behind the headroom. */
#define DATA_ROOM_MIN 2048u
/* The largest buffer that an mbuf can have, in whole cache lines. */
#define LARGE_ROOM ((uint32_t)UINT16_MAX / RTE_CACHE_LINE_SIZE * RTE_CACHE_LINE_SIZE)
/* Room for one joined packet. */
#define JOINED_LEN_MAX (65536u + 256u)
/* A batch takes no further packet that is to be joined behind so many bytes of them: they are to be
 * in the second-level cache until they are read. */
#define JOINED_BATCH_BYTES (256u << 10)
/* net_tap cuts by librte_gso, into at most so many segments. */
#define TAP_SEGMENTS_MAX 64u

struct millstream_dpdk_queue {
	struct millstream_dpdk_port *port;
	struct rte_mempool *pool;
	/* NULL: the driver cuts no packets. */
	struct rte_mempool *large_pool;
	/* Where merged packets are put together, JOINED_BATCH_BYTES + JOINED_LEN_MAX; NULL: the driver
	 * merges none. */
	uint8_t *joined;
	uint32_t joined_len;
	uint16_t port_id;
	uint16_t index;
	bool is_taken;
	bool takes_merged;
	/* Received and not yet seen are burst[burst_at..burst_len]. */
	uint16_t burst_at;
	uint16_t burst_len;
	uint16_t lent_len;
	uint16_t granted_len;
	uint16_t large_len;
	/* Pending are pending[pending_at..pending_len]. */
	uint16_t pending_at;
	uint16_t pending_len;
	/* How many of them are to be cut here. */
	uint16_t to_cut_len;
	/* Segments of the first pending packet that the driver has not taken: pieces[at..len]. */
	uint16_t pieces_at;
	uint16_t pieces_len;
	uint32_t frame_len_max;
	int epoll_fd;
	struct millstream_dpdk_counters counters;
	/* The first pending packet, and a received one, while they are being cut. */
	struct cutting tx_cutting;
	struct cutting rx_cutting;
	uint32_t rx_cutting_flags;
	struct rte_mbuf *burst[BATCH];
	struct rte_mbuf *lent[BATCH];
	struct rte_mbuf *granted[BATCH];
	struct rte_mbuf *large[BATCH];
	struct rte_mbuf *pending[BATCH];
	/* Of each pending packet that is to be cut here, the payload bytes of a segment; else 0. */
	uint16_t cut_size[BATCH];
	struct rte_mbuf *pieces[BATCH];
};

struct millstream_dpdk_port {
	struct millstream_dpdk_port *next;
	uint16_t id;
	uint16_t queues_len;
	bool has_tx_checksum;
	/* The driver is to cut large packets, or to merge received ones. */
	bool has_tso;
	bool has_lro;
	/* The driver is net_tap: see `driver_cuts`. */
	bool is_tap;
	uint32_t mtu;
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

/* The offloads that sending uses, of those that the device has. */
static uint64_t tx_offloads(struct millstream_dpdk_port *port, const struct millstream_dpdk_settings *settings,
			    const struct rte_eth_dev_info *device)
{
	const uint64_t tso = RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
	if (settings->large_slots == 0)
		return RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	port->has_tso = (device->tx_offload_capa & tso) == tso;
	/* The fast way to free wants one pool, and large packets have another one. */
	return port->has_tso ? tso : RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
}

static bool configure(struct millstream_dpdk_port *port, const struct millstream_dpdk_settings *settings, const struct rte_eth_dev_info *device,
		      bool interrupts, struct why why)
{
	struct rte_eth_conf conf = {.intr_conf.rxq = interrupts};
	uint64_t rx = settings->large_slots ? RTE_ETH_RX_OFFLOAD_CHECKSUM : 0;
	uint64_t tx = tx_offloads(port, settings, device);
	uint32_t mtu = port->mtu;
	conf.rxmode.mtu = mtu;
	if (port->has_lro) {
		/* Some drivers want to be told that a merged packet takes several buffers. */
		rx |= RTE_ETH_RX_OFFLOAD_TCP_LRO | RTE_ETH_RX_OFFLOAD_SCATTER;
		conf.rxmode.max_lro_pkt_size = RTE_MIN(device->max_lro_pkt_size, (uint32_t)UINT16_MAX);
	}
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

/* The queue's pool of large buffers; NULL: there is no memory for it. */
static struct rte_mempool *large_pool_of(const struct millstream_dpdk_queue *queue, uint32_t mbufs)
{
	char name[RTE_MEMPOOL_NAMESIZE];
	snprintf(name, sizeof(name), "msl%u.%u.%u", queue->port_id, queue->index, mbufs);
	struct rte_mempool *pool = rte_mempool_lookup(name);
	if (pool != NULL)
		return pool;
	int socket = rte_eth_dev_socket_id(queue->port_id);
	/* The buffer that came back last is in the cache. A ring would walk through all of them. */
	pool = rte_pktmbuf_pool_create_by_ops(name, mbufs, 0, 0, LARGE_ROOM, socket, "stack");
	return pool ? pool : rte_pktmbuf_pool_create(name, mbufs, 0, 0, LARGE_ROOM, socket);
}

static bool set_up_queues(struct millstream_dpdk_port *port, const struct millstream_dpdk_settings *settings, struct why why)
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
			.port = port, .port_id = port->id, .index = i, .frame_len_max = port->mtu + FRAME_OVERHEAD, .epoll_fd = -1};
		queue->pool = pool_of(queue, rx_slots, tx_slots);
		if (queue->pool == NULL) {
			say(why, "a pool of mbufs for queue %u: %s", i, rte_strerror(rte_errno));
			return false;
		}
		if (port->has_tso)
			queue->large_pool = large_pool_of(queue, settings->large_slots);
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

/* Memory to put merged packets together; false: there is none. */
static bool make_joined(struct millstream_dpdk_port *port)
{
	for (uint16_t i = 0; i < port->queues_len; i++) {
		port->queues[i].joined = malloc(JOINED_BATCH_BYTES + JOINED_LEN_MAX);
		if (port->queues[i].joined == NULL)
			return false;
	}
	return true;
}

static void free_port(struct millstream_dpdk_port *port)
{
	for (uint16_t i = 0; i < port->queues_len; i++)
		free(port->queues[i].joined);
	free(port);
}

/* Configured, with queues, and running; with the queues' interrupts and with merging of received
 * packets, if the driver has it and starts with them. */
static bool start_port(struct millstream_dpdk_port *port, const struct millstream_dpdk_settings *settings, const struct rte_eth_dev_info *device,
		  struct why why)
{
	bool offers_lro = settings->large_slots && (device->rx_offload_capa & RTE_ETH_RX_OFFLOAD_TCP_LRO);
	for (int lro = offers_lro; lro >= 0; lro--) {
		port->has_lro = lro;
		for (int interrupts = 1; interrupts >= 0; interrupts--) {
			if (!configure(port, settings, device, interrupts, why) || !set_up_queues(port, settings, why))
				continue;
			int error = rte_eth_dev_start(port->id);
			if (error == 0)
				return true;
			say(why, "rte_eth_dev_start: %s", rte_strerror(-error));
		}
	}
	return false;
}

/* Every queue has buffers for packets that the driver cuts. */
static bool has_large(const struct millstream_dpdk_port *port)
{
	for (uint16_t i = 0; i < port->queues_len; i++) {
		if (port->queues[i].large_pool == NULL)
			return false;
	}
	return true;
}

static void describe(struct millstream_dpdk_port *port, const struct millstream_dpdk_settings *settings, const struct rte_eth_dev_info *device,
		     struct millstream_dpdk_info *info)
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
	info->mtu = port->mtu;
	if (settings->large_slots && (device->rx_offload_capa & RTE_ETH_RX_OFFLOAD_TCP_CKSUM))
		info->offloads |= MILLSTREAM_DPDK_RX_CHECKSUM;
	port->has_tx_checksum = settings->large_slots && (device->tx_offload_capa & RTE_ETH_TX_OFFLOAD_TCP_CKSUM);
	if (has_large(port)) {
		info->segment_bytes_max = LARGE_ROOM - RTE_PKTMBUF_HEADROOM - FRAME_OVERHEAD;
		/* Full segments are to fit the device's MTU together with their Ethernet headers. */
		info->mtu -= port->is_tap && settings->mtu == 0 ? ETHERNET_HEADER_LEN : 0;
	} else if (port->has_tso) {
		info->offloads |= MILLSTREAM_DPDK_LACKS_BUFFERS;
	}
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
	port->mtu = settings->mtu ? settings->mtu : mtu16;
	port->is_tap = device.driver_name != NULL && strcmp(device.driver_name, "net_tap") == 0;
	if (!start_port(port, settings, &device, why)) {
		free_port(port);
		return NULL;
	}
	if (port->has_lro && !make_joined(port)) {
		say(why, "out of memory");
		rte_eth_dev_stop(id);
		free_port(port);
		return NULL;
	}
	describe(port, settings, &device, info);
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
	free_port(port);
}

static struct millstream_dpdk_queue *take_queue(struct millstream_dpdk_port *port, uint32_t index)
{
	if (index >= port->queues_len || port->queues[index].is_taken)
		return NULL;
	struct millstream_dpdk_queue *queue = &port->queues[index];
	memset(&queue->counters, 0, sizeof(queue->counters));
	queue->takes_merged = false;
	queue->is_taken = true;
	return queue;
}

/* Receiving */

static void accept_merged(struct millstream_dpdk_queue *queue)
{
	queue->takes_merged = true;
}

static void release(struct millstream_dpdk_queue *queue)
{
	if (queue->lent_len == 0)
		return;
	rte_pktmbuf_free_bulk(queue->lent, queue->lent_len);
	queue->lent_len = 0;
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

/* The next segment of the packet that is being cut; false: no buffer is free, or nothing is left. */
static bool cut_received(struct millstream_dpdk_queue *queue, struct millstream_dpdk_frame *frame)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(queue->pool);
	if (mbuf == NULL)
		return false;
	cut_next(&queue->rx_cutting, mbuf);
	queue->lent[queue->lent_len++] = mbuf;
	*frame = (struct millstream_dpdk_frame){
		.data = rte_pktmbuf_mtod(mbuf, const uint8_t *), .len = mbuf->pkt_len, .flags = queue->rx_cutting_flags};
	return true;
}

/* Copies a packet in several buffers, or a merged one, behind those of this batch; NULL: it is
 * longer than any packet. */
static uint8_t *join(struct millstream_dpdk_queue *queue, const struct rte_mbuf *mbuf)
{
	if (mbuf->pkt_len > JOINED_LEN_MAX)
		return NULL;
	uint8_t *data = queue->joined + queue->joined_len;
	uint32_t at = 0;
	for (const struct rte_mbuf *part = mbuf; part != NULL; part = part->next) {
		uint32_t len = RTE_MIN((uint32_t)part->data_len, mbuf->pkt_len - at);
		memcpy(data + at, rte_pktmbuf_mtod(part, const uint8_t *), len);
		at += len;
	}
	if (at != mbuf->pkt_len)
		return NULL;
	queue->joined_len += RTE_ALIGN_CEIL(at, RTE_CACHE_LINE_SIZE);
	return data;
}

/* Payload bytes of each segment in a merged packet of `len` bytes at `data`, 0 of a single one.
 * The driver says so, or the segments are as long as the MTU allows. */
static uint32_t merged_size(const struct millstream_dpdk_queue *queue, const struct rte_mbuf *mbuf, const uint8_t *data, struct shape *shape)
{
	uint32_t len = mbuf->pkt_len;
	bool is_said = (mbuf->ol_flags & RTE_MBUF_F_RX_LRO) && mbuf->tso_segsz != 0;
	if ((!is_said && len <= queue->frame_len_max) || !shape_of(data, len, shape))
		return 0;
	/* The IP header has no room for such a length. */
	if (len - (shape->is_v4 ? ETHERNET_HEADER_LEN : shape->tcp_at) > UINT16_MAX)
		return 0;
	uint32_t size_max = queue->port->mtu + ETHERNET_HEADER_LEN - RTE_MIN((uint32_t)shape->headers, queue->port->mtu);
	uint32_t size = is_said ? RTE_MIN((uint32_t)mbuf->tso_segsz, size_max) : size_max;
	return len - shape->headers > size ? size : 0;
}

/* Takes a received packet that has several buffers, or that is longer than the MTU allows, or that
 * the driver merged; false: nothing is to be lent, now or at all. The mbuf is free afterwards. */
static bool take_merged(struct millstream_dpdk_queue *queue, struct rte_mbuf *mbuf, struct millstream_dpdk_frame *frame)
{
	struct shape shape;
	uint32_t len = mbuf->pkt_len, flags = frame_flags(mbuf);
	uint8_t *data = join(queue, mbuf);
	uint32_t size = data ? merged_size(queue, mbuf, data, &shape) : 0;
	bool has_sum = !(mbuf->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_BAD);
	*frame = (struct millstream_dpdk_frame){.data = data, .len = len, .hash = mbuf->hash.rss, .flags = flags, .segment_bytes = size};
	rte_pktmbuf_free(mbuf);
	if (size == 0) {
		bool is_whole = data != NULL && len >= ETHERNET_HEADER_LEN && len <= queue->frame_len_max;
		queue->counters.rx_chained += !is_whole;
		return is_whole;
	}
	/* Drivers merge what is right, and need not sum what they have merged. */
	if (!(flags & MILLSTREAM_DPDK_CHECKSUM_BAD))
		frame->flags |= MILLSTREAM_DPDK_CHECKSUM_GOOD;
	set_ip_len(data, len, &shape, has_sum);
	if (queue->takes_merged) {
		queue->counters.rx_merged++;
		return true;
	}
	queue->counters.rx_cut++;
	queue->rx_cutting = (struct cutting){.data = data, .len = len, .size = size, .at = shape.headers, .shape = shape};
	queue->rx_cutting_flags = frame->flags & ~MILLSTREAM_DPDK_HAS_HASH;
	return false;
}

/* Whether the frame can be lent as it is; otherwise it has been counted. */
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

static inline bool is_to_be_joined(const struct millstream_dpdk_queue *queue, const struct rte_mbuf *mbuf)
{
	return queue->joined != NULL
	       && (mbuf->nb_segs > 1 || mbuf->pkt_len > queue->frame_len_max || (mbuf->ol_flags & RTE_MBUF_F_RX_LRO));
}

/* The next frame of what was received; false: it is none. */
static inline bool take_received(struct millstream_dpdk_queue *queue, struct rte_mbuf *mbuf, struct millstream_dpdk_frame *frame)
{
	if (unlikely(is_to_be_joined(queue, mbuf)))
		return take_merged(queue, mbuf, frame);
	if (unlikely(!is_whole(queue, mbuf))) {
		rte_pktmbuf_free(mbuf);
		return false;
	}
	*frame = (struct millstream_dpdk_frame){
		.data = rte_pktmbuf_mtod(mbuf, const uint8_t *),
		.len = mbuf->pkt_len,
		.hash = mbuf->hash.rss,
		.flags = frame_flags(mbuf),
	};
	queue->lent[queue->lent_len++] = mbuf;
	return true;
}

static uint32_t receive(struct millstream_dpdk_queue *queue, struct millstream_dpdk_frame *frames)
{
	release(queue);
	/* A packet that is being cut lies there. */
	if (queue->rx_cutting.data == NULL)
		queue->joined_len = 0;
	if (queue->burst_at == queue->burst_len) {
		queue->burst_at = 0;
		queue->burst_len = rte_eth_rx_burst(queue->port_id, queue->index, queue->burst, BATCH);
	}
	uint32_t n = 0;
	uint64_t bytes = 0;
	while (n < BATCH) {
		if (unlikely(queue->rx_cutting.data != NULL)) {
			if (!cut_received(queue, &frames[n]))
				break;
		} else {
			if (queue->burst_at == queue->burst_len || queue->joined_len >= JOINED_BATCH_BYTES)
				break;
			if (!take_received(queue, queue->burst[queue->burst_at++], &frames[n]))
				continue;
		}
		bytes += frames[n].len;
		n++;
	}
	queue->counters.rx_frames += n;
	queue->counters.rx_bytes += bytes;
	return n;
}

/* Sending */

/* Cuts the first pending packet and offers its segments to the driver; true: it is done. */
static bool send_pieces(struct millstream_dpdk_queue *queue)
{
	struct cutting *cutting = &queue->tx_cutting;
	for (;;) {
		while (queue->pieces_at < queue->pieces_len) {
			uint16_t left = queue->pieces_len - queue->pieces_at;
			uint16_t taken = rte_eth_tx_burst(queue->port_id, queue->index, &queue->pieces[queue->pieces_at], left);
			queue->pieces_at += taken;
			if (taken == 0)
				return false;
		}
		queue->pieces_at = queue->pieces_len = 0;
		if (cutting->data == NULL)
			return true;
		while (cutting->data != NULL && queue->pieces_len < BATCH) {
			struct rte_mbuf *mbuf = rte_pktmbuf_alloc(queue->pool);
			if (mbuf == NULL)
				break;
			cut_next(cutting, mbuf);
			queue->pieces[queue->pieces_len++] = mbuf;
		}
		if (queue->pieces_len == 0)
			return false;
	}
}

/* Goes on with the first pending packet, which is to be cut here; true: it has left. */
static bool cut_pending(struct millstream_dpdk_queue *queue)
{
	struct rte_mbuf *whole = queue->pending[queue->pending_at];
	uint16_t *size = &queue->cut_size[queue->pending_at];
	if (*size != 0) {
		struct cutting cutting = {.data = rte_pktmbuf_mtod(whole, const uint8_t *), .len = whole->pkt_len, .size = *size};
		/* It was found to be a whole packet when it was sent. */
		shape_of(cutting.data, cutting.len, &cutting.shape);
		cutting.at = cutting.shape.headers;
		queue->tx_cutting = cutting;
		*size = 0;
	}
	if (!send_pieces(queue))
		return false;
	rte_pktmbuf_free(whole);
	queue->pending_at++;
	queue->to_cut_len--;
	return true;
}

/* The end of the pending frames before the next one that is to be cut here. */
static uint16_t run_end(const struct millstream_dpdk_queue *queue)
{
	uint16_t at = queue->pending_at;
	if (queue->tx_cutting.data != NULL || queue->pieces_len > 0)
		return at;
	while (at < queue->pending_len && queue->cut_size[at] == 0)
		at++;
	return at;
}

/* Offers the driver what is pending; true: nothing is left. */
static bool flush(struct millstream_dpdk_queue *queue)
{
	while (queue->pending_at < queue->pending_len) {
		uint16_t end = likely(queue->to_cut_len == 0) ? queue->pending_len : run_end(queue);
		if (end == queue->pending_at) {
			if (!cut_pending(queue))
				return false;
			continue;
		}
		uint16_t taken = rte_eth_tx_burst(queue->port_id, queue->index, &queue->pending[queue->pending_at], end - queue->pending_at);
		queue->pending_at += taken;
		if (taken == 0)
			return false;
	}
	queue->pending_at = queue->pending_len = 0;
	return true;
}

/* Large buffers for `wanted` slots; for how many slots there are some. None at all is no reason to
 * grant nothing: a driver may free the large ones it has sent only when others follow. */
static uint16_t grant_large(struct millstream_dpdk_queue *queue, uint16_t wanted)
{
	if (queue->large_len < wanted) {
		uint16_t missing = wanted - queue->large_len;
		if (rte_pktmbuf_alloc_bulk(queue->large_pool, &queue->large[queue->large_len], missing) == 0) {
			queue->large_len = wanted;
		} else {
			rte_eth_tx_done_cleanup(queue->port_id, queue->index, 0);
			struct rte_mbuf *mbuf;
			while (queue->large_len < wanted && (mbuf = rte_pktmbuf_alloc(queue->large_pool)) != NULL)
				queue->large[queue->large_len++] = mbuf;
			queue->counters.tx_no_large += queue->large_len == 0;
		}
	}
	return RTE_MIN(wanted, queue->large_len);
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
	uint16_t large = queue->large_pool ? grant_large(queue, granted) : 0;
	if (large > 0)
		granted = large;
	for (uint16_t i = 0; i < granted; i++) {
		struct rte_mbuf *mbuf = queue->granted[i];
		slots[i].data = rte_pktmbuf_mtod(mbuf, uint8_t *);
		slots[i].capacity = RTE_MIN(queue->frame_len_max, rte_pktmbuf_tailroom(mbuf));
		slots[i].large = large ? rte_pktmbuf_mtod(queue->large[i], uint8_t *) : NULL;
		slots[i].large_capacity = large ? rte_pktmbuf_tailroom(queue->large[i]) : 0;
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

/* Whether the driver can cut the packet. net_tap announces that it cuts, and does so for IPv4 alone,
 * into a limited number of segments, and with the Ethernet header counted in the MTU. It holds for
 * ever what it cannot cut. */
static bool driver_cuts(const struct millstream_dpdk_queue *queue, const struct rte_mbuf *mbuf, const struct shape *shape, uint32_t size)
{
	const struct millstream_dpdk_port *port = queue->port;
	if (!port->has_tso)
		return false;
	uint32_t segments = (mbuf->pkt_len - shape->headers + size - 1) / size;
	return !port->is_tap || (shape->is_v4 && shape->headers + size <= port->mtu && segments <= TAP_SEGMENTS_MAX);
}

/* Asks the driver to cut the packet; false: it refuses. */
static bool offload_cutting(struct millstream_dpdk_queue *queue, struct rte_mbuf *mbuf, const struct shape *shape, uint32_t size)
{
	uint8_t *frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
	struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(frame + shape->tcp_at);
	mbuf->tso_segsz = (uint16_t)size;
	mbuf->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
	/* What drivers expect of the headers: the sum of the pseudo-header leaves the length out. */
	if (shape->is_v4) {
		struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(frame + ETHERNET_HEADER_LEN);
		mbuf->ol_flags |= RTE_MBUF_F_TX_IP_CKSUM;
		ip->hdr_checksum = 0;
		tcp->cksum = rte_ipv4_phdr_cksum(ip, mbuf->ol_flags);
	} else {
		tcp->cksum = rte_ipv6_phdr_cksum((struct rte_ipv6_hdr *)(frame + ETHERNET_HEADER_LEN), mbuf->ol_flags);
	}
	return rte_eth_tx_prepare(queue->port_id, queue->index, &mbuf, 1) == 1;
}

/* Adds a packet that is to be cut to what is pending; false: it makes no sense. */
static bool enqueue_large(struct millstream_dpdk_queue *queue, struct rte_mbuf *mbuf, const struct millstream_dpdk_written *written)
{
	struct shape shape;
	uint32_t size = written->segment_bytes;
	if (!shape_of(rte_pktmbuf_mtod(mbuf, const uint8_t *), mbuf->pkt_len, &shape) || written->checksum_from != shape.tcp_at
	    || shape.headers + size > queue->frame_len_max || !offload(queue, mbuf, shape.tcp_at))
		return false;
	uint16_t cut_size = 0;
	if (driver_cuts(queue, mbuf, &shape, size) && offload_cutting(queue, mbuf, &shape, size)) {
		queue->counters.tx_large++;
	} else {
		cut_size = (uint16_t)size;
		queue->to_cut_len++;
		queue->counters.tx_cut++;
	}
	queue->cut_size[queue->pending_len] = cut_size;
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
	queue->cut_size[queue->pending_len] = 0;
	/* A large buffer may hold a frame longer than the MTU allows, which is to be cut. */
	bool is_taken = written->len <= queue->frame_len_max;
	if (written->segment_bytes != 0)
		is_taken = enqueue_large(queue, mbuf, written);
	else if (is_taken && written->checksum_from != 0)
		is_taken = offload(queue, mbuf, written->checksum_from) && rte_eth_tx_prepare(queue->port_id, queue->index, &mbuf, 1) == 1;
	if (!is_taken) {
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
	struct rte_mbuf *unused[2 * BATCH];
	unsigned unused_len = 0;
	uint16_t large_left = 0;
	/* What is granted was granted when nothing was pending: it fits. */
	for (uint16_t i = 0; i < queue->granted_len; i++) {
		struct rte_mbuf *mbuf = queue->granted[i];
		if (i < n && written[i].is_large && i < queue->large_len) {
			unused[unused_len++] = mbuf;
			mbuf = queue->large[i];
			queue->large[i] = NULL;
		}
		if (i >= n || !enqueue(queue, mbuf, &written[i]))
			unused[unused_len++] = mbuf;
	}
	queue->granted_len = 0;
	for (uint16_t i = 0; i < queue->large_len; i++) {
		if (queue->large[i] != NULL)
			queue->large[large_left++] = queue->large[i];
	}
	queue->large_len = large_left;
	rte_pktmbuf_free_bulk(unused, unused_len);
	flush(queue);
}

static void give_back_queue(struct millstream_dpdk_queue *queue)
{
	release(queue);
	rte_pktmbuf_free_bulk(&queue->burst[queue->burst_at], queue->burst_len - queue->burst_at);
	queue->burst_at = queue->burst_len = 0;
	queue->rx_cutting.data = NULL;
	send_frames(queue, NULL, 0);
	rte_pktmbuf_free_bulk(&queue->pieces[queue->pieces_at], queue->pieces_len - queue->pieces_at);
	queue->pieces_at = queue->pieces_len = queue->to_cut_len = 0;
	queue->tx_cutting.data = NULL;
	rte_pktmbuf_free_bulk(&queue->pending[queue->pending_at], queue->pending_len - queue->pending_at);
	queue->pending_at = queue->pending_len = 0;
	rte_pktmbuf_free_bulk(queue->large, queue->large_len);
	queue->large_len = 0;
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
	if (queue->burst_at == queue->burst_len) {
		queue->burst_at = 0;
		queue->burst_len = rte_eth_rx_burst(queue->port_id, queue->index, queue->burst, BATCH);
	}
	bool has_frames = queue->burst_at < queue->burst_len || queue->rx_cutting.data != NULL;
	return found | (has_frames ? MILLSTREAM_DPDK_HAS_FRAMES : 0);
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
		.accept_merged = accept_merged,
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
