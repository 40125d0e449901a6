/* What our BPF programs need of the kernel's and libbpf's headers, so that the objects depend on the compiler alone.
 *
 * Numbers are the kernel's UAPI (include/uapi/linux/bpf.h). Maps are declared by `struct map_def` in section "maps";
 * crates/packetio/src/xdp/program.rs reads that section, so the two layouts must agree (a test there says so).
 */
#ifndef MILLSTREAM_BPF_H
#define MILLSTREAM_BPF_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define HTONS(x) ((u16)__builtin_bswap16(x))
#define HTONL(x) ((u32)__builtin_bswap32(x))

enum map_type {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_LRU_HASH = 9,
	MAP_DEVMAP = 14,
	MAP_XSKMAP = 17,
};

struct map_def {
	u32 type;
	u32 key_bytes;
	u32 value_bytes;
	u32 entries_max;
	u32 flags;
};

enum xdp_action {
	XDP_ABORTED,
	XDP_DROP,
	XDP_PASS,
	XDP_TX,
	XDP_REDIRECT,
};

struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
	u32 egress_ifindex;
};

/* The head of the kernel's `struct __sk_buff`, as far as our programs read it. */
struct __sk_buff {
	u32 before[19];
	u32 data;
	u32 data_end;
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static long (*bpf_redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*bpf_redirect_map)(void *map, u64 key, u64 flags) = (void *)51;

#endif
