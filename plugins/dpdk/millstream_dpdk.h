/*
 * What Millstream asks of its DPDK plug-in, libmillstream_dpdk.so: one exported function, which
 * returns a table of calls.
 *
 * Millstream is built without DPDK and knows none of its structures; the plug-in is built against
 * DPDK and knows nothing of Millstream but this file. crates/packetio/src/dpdk/plugin_unsafe.rs
 * mirrors it: whoever changes either raises MILLSTREAM_DPDK_ABI in both. Sizes are asserted in
 * both.
 *
 * Threads: start, open, close, take and give_back are called by one thread at a time. A queue is
 * used by one thread at a time, not always the same one; different queues at the same time. No call
 * of a queue blocks.
 */
#ifndef MILLSTREAM_DPDK_H
#define MILLSTREAM_DPDK_H

#include <stddef.h>
#include <stdint.h>

#define MILLSTREAM_DPDK_ABI 2u

/* Frames in one batch. */
#define MILLSTREAM_DPDK_BATCH_MAX 64u

/* A port as it is to be opened. */
struct millstream_dpdk_settings {
	/* DPDK's number of the port, or the device's name. */
	const char *port;
	uint32_t queues;
	/* Largest IP packet in bytes; 0: what the device says. */
	uint32_t mtu;
	/* Descriptors of each queue; the driver may want more or fewer. */
	uint32_t rx_slots;
	uint32_t tx_slots;
	/* Buffers for large packets of each queue. 0: packets are neither cut nor merged, and checksums
	 * neither made nor believed. */
	uint32_t large_slots;
	uint32_t reserved;
};

/* The driver checks transport checksums of what it receives: frames carry a verdict. */
#define MILLSTREAM_DPDK_RX_CHECKSUM 1u
/* A frame to be sent may leave its TCP checksum to the driver. */
#define MILLSTREAM_DPDK_TX_CHECKSUM 2u
/* Every queue has a descriptor to sleep on. */
#define MILLSTREAM_DPDK_RX_INTERRUPTS 4u
/* The driver cuts packets, and there is no memory for buffers of such packets. */
#define MILLSTREAM_DPDK_LACKS_BUFFERS 8u

/* A port that is open. */
struct millstream_dpdk_info {
	char device[64];
	char driver[32];
	uint32_t number;
	uint32_t mtu;
	uint32_t offloads;
	/* Largest IP packet that is cut into TCP segments; 0: none. */
	uint32_t segment_bytes_max;
	uint8_t mac[6];
	uint8_t reserved[2];
};

/* What the driver knows of a received frame's transport checksum: none of these bits is
 * "nothing". */
#define MILLSTREAM_DPDK_CHECKSUM_GOOD 1u
#define MILLSTREAM_DPDK_CHECKSUM_BAD 2u
#define MILLSTREAM_DPDK_HAS_HASH 4u

/* A received frame, lent until the queue's next receive or release. */
struct millstream_dpdk_frame {
	const uint8_t *data;
	uint32_t len;
	uint32_t hash;
	uint32_t flags;
	/* Payload bytes of each of the TCP segments that the driver merged, the last one apart; 0: this
	 * is one packet. */
	uint32_t segment_bytes;
};

/* A frame to be written, granted until the queue's next send or reserve. A large packet is written
 * to the other buffer; all slots of one grant have one, or none has. */
struct millstream_dpdk_slot {
	uint8_t *data;
	/* NULL: there is none. */
	uint8_t *large;
	uint32_t capacity;
	uint32_t large_capacity;
};

/* What was written to a slot. */
struct millstream_dpdk_written {
	/* 0: nothing. */
	uint32_t len;
	/* Where the TCP header starts, if its checksum field holds the pseudo-header's sum and the
	 * driver is to finish it; else 0. */
	uint32_t checksum_from;
	/* Payload bytes of each segment that the packet is to be cut into; 0: it is one. Needs
	 * `checksum_from`. */
	uint32_t segment_bytes;
	/* 1: it was written to the large buffer. */
	uint32_t is_large;
};

/* Of a queue, since it was taken. */
struct millstream_dpdk_counters {
	uint64_t rx_frames;
	uint64_t rx_bytes;
	uint64_t tx_frames;
	uint64_t tx_bytes;
	/* Shorter than an Ethernet header. */
	uint64_t rx_runt;
	/* Longer than the MTU allows. */
	uint64_t rx_too_long;
	/* In several buffers that do not fit one. */
	uint64_t rx_chained;
	uint64_t tx_runt;
	/* The driver finds the offload that was asked for impossible. */
	uint64_t tx_refused;
	/* A reserve was not granted whole: the driver is behind, or buffers are out. */
	uint64_t tx_pushed_back;
	/* Buffers that nobody holds: neither we nor the driver. */
	uint64_t buffers_free;
	/* Received packets of several segments, lent as they are; and those cut for a caller who takes
	 * none. */
	uint64_t rx_merged;
	uint64_t rx_cut;
	/* Packets that the driver cuts; and those that it does not, which were cut here. */
	uint64_t tx_large;
	uint64_t tx_cut;
	/* Grants without large buffers: the driver has all of them. */
	uint64_t tx_no_large;
};

/* The device's own, of all queues together. */
struct millstream_dpdk_device_counters {
	uint64_t rx_missed;
	uint64_t rx_errors;
	uint64_t rx_no_buffer;
	uint64_t tx_errors;
	/* 1: the device has been taken away. */
	uint64_t is_gone;
};

struct millstream_dpdk_port;
struct millstream_dpdk_queue;

/* What prepare_wait found. */
#define MILLSTREAM_DPDK_HAS_FRAMES 1u
#define MILLSTREAM_DPDK_HAS_ROOM 2u

struct millstream_dpdk {
	uint32_t abi;
	uint32_t batch_max;

	/* Starts EAL with these arguments (without the program's name), once in a process; 0 if it runs.
	 * Otherwise `why` says why not, in one line that ends in a zero. */
	int (*start)(const char *const *arguments, uint32_t arguments_len, char *why, size_t why_len);
	/* Opens and starts a port, or NULL and why. */
	struct millstream_dpdk_port *(*open)(const struct millstream_dpdk_settings *settings, struct millstream_dpdk_info *info, char *why,
					     size_t why_len);
	/* Stops the port. Its queues have been given back; it may be opened again. EAL stays. */
	void (*close)(struct millstream_dpdk_port *port);
	/* NULL: there is no such queue, or it is taken. */
	struct millstream_dpdk_queue *(*take)(struct millstream_dpdk_port *port, uint32_t index);
	void (*give_back)(struct millstream_dpdk_queue *queue);

	/* From now on frames may hold several segments. */
	void (*accept_merged)(struct millstream_dpdk_queue *queue);
	/* Releases the last batch and receives one: how many of `frames` (room for
	 * MILLSTREAM_DPDK_BATCH_MAX) are filled. */
	uint32_t (*receive)(struct millstream_dpdk_queue *queue, struct millstream_dpdk_frame *frames);
	void (*release)(struct millstream_dpdk_queue *queue);
	/* How many of `slots` (room for `n`, at most MILLSTREAM_DPDK_BATCH_MAX) may be written: none
	 * while the driver has not taken what was sent. */
	uint32_t (*reserve)(struct millstream_dpdk_queue *queue, struct millstream_dpdk_slot *slots, uint32_t n);
	/* The first `n` slots leave, in order. What the driver does not take at once stays in the queue
	 * and leaves with a later call of any kind. */
	void (*send)(struct millstream_dpdk_queue *queue, const struct millstream_dpdk_written *written, uint32_t n);

	/* Announces a sleep: interrupts on, then a look. Released before. MILLSTREAM_DPDK_HAS_... */
	uint32_t (*prepare_wait)(struct millstream_dpdk_queue *queue);
	void (*finish_wait)(struct millstream_dpdk_queue *queue);
	/* Readable when frames have come after prepare_wait; -1: there is none. */
	int (*wait_fd)(const struct millstream_dpdk_queue *queue);

	void (*counters)(const struct millstream_dpdk_queue *queue, struct millstream_dpdk_counters *counters);
	/* May be slow: it asks the device. By one thread at a time. */
	void (*device_counters)(const struct millstream_dpdk_queue *queue, struct millstream_dpdk_device_counters *counters);
};

#ifndef __cplusplus
_Static_assert(sizeof(void *) != 8 || sizeof(struct millstream_dpdk_settings) == 32, "mirrored");
_Static_assert(sizeof(struct millstream_dpdk_info) == 120, "mirrored");
_Static_assert(sizeof(void *) != 8 || sizeof(struct millstream_dpdk_frame) == 24, "mirrored");
_Static_assert(sizeof(void *) != 8 || sizeof(struct millstream_dpdk_slot) == 24, "mirrored");
_Static_assert(sizeof(struct millstream_dpdk_written) == 16, "mirrored");
_Static_assert(sizeof(struct millstream_dpdk_counters) == 128, "mirrored");
_Static_assert(sizeof(struct millstream_dpdk_device_counters) == 40, "mirrored");
_Static_assert(sizeof(void *) != 8 || sizeof(struct millstream_dpdk) == 128, "mirrored");
#endif

/* The one exported function. NULL: the plug-in does not speak version `abi`. */
const struct millstream_dpdk *millstream_dpdk(uint32_t abi);

#endif
