/* What our BPF programs need of the kernel's and libbpf's headers, so that the objects depend on
 * the compiler alone.
 *
 * Numbers are the kernel's UAPI (include/uapi/linux/bpf.h). Maps are declared by `struct map_def`
 * in section "maps"; crates/packetio/src/xdp/program.rs reads that section, so the two layouts must
 * agree (a test there says so).
 */
#ifndef MILLSTREAM_BPF_H
#define MILLSTREAM_BPF_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

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

/* What a tc program says. Programs and rules behind it see no packet that it drops or redirects. */
enum tc_action {
	TC_DROP = 2,
	TC_REDIRECT = 7,
};

/* struct __sk_buff, as far as our programs read it. */
struct sk_buff_view {
	u32 len;
	u32 packet_type;
	u32 mark;
	u32 before_vlan[2];
	u32 vlan_present;
	u32 before_ifindex[4];
	u32 ifindex;
	u32 before_data[8];
	u32 data;
	u32 data_end;
	u32 before_gso_size[23];
	u32 gso_size;
};

enum csum_level { CSUM_LEVEL_QUERY, CSUM_LEVEL_INC, CSUM_LEVEL_DEC, CSUM_LEVEL_RESET };

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static long (*bpf_redirect)(u32 ifindex, u64 flags) = (void *)23;
static long (*bpf_skb_change_tail)(struct sk_buff_view *skb, u32 len, u64 flags) = (void *)38;
static long (*bpf_skb_pull_data)(struct sk_buff_view *skb, u32 len) = (void *)39;
static long (*bpf_redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*bpf_csum_level)(struct sk_buff_view *skb, u64 level) = (void *)135;
static long (*bpf_redirect_peer)(u32 ifindex, u64 flags) = (void *)155;
static long (*bpf_check_mtu)(struct sk_buff_view *skb, u32 ifindex, u32 *mtu, int difference, u64 flags) = (void *)163;

#endif
