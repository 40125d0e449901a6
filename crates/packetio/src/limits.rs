//! All limits of packetio, with their units.
//!
//! The answer at each limit is defined where the limit is used: back-pressure, a counted drop, or a
//! refusal at open.

/// Named counters in one [`PortCounters`](crate::PortCounters): the backend's own and those of its
/// wrappers.
pub const NAMED_COUNTERS_MAX: usize = 48;

/// Descriptors in one [`wait`](crate::wait()): those of all ports and of the caller.
pub const WAIT_FDS_MAX: usize = 128;

/// Fewest UMEM chunks for received frames of an AF_XDP port, unless `ring=` asks for fewer. One
/// sender's window fits them.
pub const XDP_RX_CHUNKS_MIN: u32 = 2048;

/// Most UMEM chunks for received frames of an AF_XDP port, unless `ring=` asks for more. The kernel
/// pins their 32 MiB when the port is opened.
pub const XDP_RX_CHUNKS_MAX: u32 = 16_384;

/// Number of sockets for which a port is sized by default: that of a context's limits.
pub const XDP_SOCKETS_DEFAULT: usize = 32_768;

/// Fewest slots that `ring=` accepts.
pub const XDP_RING_SLOTS_MIN: u32 = 64;
/// Most slots that `ring=` accepts. The kernel pins 2 or 4 KiB for each: 128 or 256 MiB.
pub const XDP_RING_SLOTS_MAX: u32 = 65_536;

/// Slots of an AF_XDP port's TX ring, of its completion ring, and number of UMEM chunks for
/// sending. Since they are equal, the completion ring never overflows: a port without a free chunk
/// pushes back.
pub const XDP_TX_SLOTS: u32 = 1024;

/// Bytes per socket in the store for frames that an AF_XDP port took out of its RX ring early. The
/// memory is reserved when the port is opened, and touched when frames are stored.
pub const XDP_STORE_BYTES_PER_SOCKET: usize = 512;
/// Smallest size of an AF_XDP port's frame store, bytes.
pub const XDP_STORE_BYTES_MIN: usize = 2 << 20;
/// Largest size of an AF_XDP port's frame store, bytes. Frames without room stay in the ring, and
/// the kernel drops what arrives at a full ring (`xdp_rx_ring_full`).
pub const XDP_STORE_BYTES_MAX: usize = 64 << 20;
/// Bytes of the frame store that a sleeping port keeps; the rest returns to the system.
pub const XDP_STORE_BYTES_KEPT: usize = 256 << 10;

/// Shortest interval at which a port reads its interface's counters, ns.
pub const INTERFACE_LOOK_NS: u64 = 1_000_000_000;
/// Bytes of `/proc/net/dev` that a port reads, at some 120 per interface. Counters of interfaces
/// further behind are not reported.
pub const INTERFACE_LIST_BYTES_MAX: usize = 64 << 10;

/// Descriptors from peers, and sockets with such descriptors in their queues, that may wait to be
/// closed. At the limit no new peer is served.
pub const CLOSING_MAX: usize = 16;

/// Frames in one batch of an AF_XDP port.
pub const XDP_BATCH_MAX: usize = 64;

/// Instructions of a frame filter (`BPF_MAXINSNS`). A longer program is refused.
pub const FILTER_INSTRUCTIONS_MAX: usize = 4096;
/// Instructions of a frame filter that another process sends, to be run beside the stack. A longer
/// one is refused: its reader asks for all frames and filters them itself.
pub const SENT_FILTER_INSTRUCTIONS_MAX: usize = 64;
/// Filters of one capture's readers. At the limit all frames are logged.
pub const CAPTURE_FILTERS_MAX: usize = 4;
/// Bytes kept free before a frame to be sent, for `struct xsk_tx_metadata` (24 bytes, one cache
/// line).
pub const XDP_TX_HEADROOM_BYTES: u32 = 64;

/// Bytes that the kernel keeps free before a received frame (`XDP_PACKET_HEADROOM`).
pub const XDP_RX_HEADROOM_BYTES: u32 = 256;

/// Addresses of each family that an interface's XDP program can hold (`bpf/xdp_port.c`).
pub const XDP_OWNED_MAX: usize = 1024;

/// Queues of one interface that its XDP program can serve (`bpf/xdp_port.c`).
pub const XDP_QUEUES_MAX: usize = 256;

/// System calls of one `send` in copy mode beyond one per `XDP_TX_KICK_FRAMES` frames.
pub const XDP_TX_KICKS_SPARE: usize = 2;

/// Fewest frames that the kernel sends per system call in copy mode (`TX_BATCH_SIZE`).
pub const XDP_TX_KICK_FRAMES: usize = 32;

/// Time after which a port tries again to hand frames to the kernel that it could not hand over,
/// ns.
pub const XDP_TX_RETRY_NS: u64 = 100_000;

/// Longest sleep of a port's caller before the port checks whether its interface still exists, ns.
pub const XDP_LINK_CHECK_NS: u64 = 5_000_000_000;

/// Shortest interval at which a port about to sleep asks the kernel for counters and errors, ns.
pub const XDP_LOOK_NS: u64 = 10_000_000;

/// Longest wait at open for a queue that its last owner has closed but the kernel still holds, ns.
pub const XDP_BIND_WAIT_NS_MAX: u64 = 2_000_000_000;

/// Receive calls between two reads of the kernel's counters for an AF_XDP socket.
pub const XDP_STATISTICS_INTERVAL: u32 = 4096;

/// Frames in one batch of a DPDK port (`plugins/dpdk/millstream_dpdk.h`).
pub const DPDK_BATCH_MAX: usize = 64;

/// Receive descriptors of a DPDK queue, unless its driver wants another number.
pub const DPDK_RX_SLOTS: u32 = 1024;

/// Transmit descriptors of a DPDK queue, unless its driver wants another number.
pub const DPDK_TX_SLOTS: u32 = 1024;

/// Buffers of 64 KiB of a DPDK queue whose driver cuts packets. While the driver holds all of them,
/// slots have none, and segments leave one by one.
pub const DPDK_LARGE_SLOTS: u32 = 256;

/// First sleep of an idle DPDK port without interrupts, and of one that waits for room to send, ns.
/// Each further sleep is twice as long.
pub const DPDK_SLEEP_NS_MIN: u64 = 50_000;

/// Longest sleep of a DPDK port without interrupts, ns: a frame that arrives at an idle port waits
/// no longer.
pub const DPDK_SLEEP_NS_MAX: u64 = 1_000_000;

/// Longest sleep of a DPDK port with interrupts, ns. Interrupts end sleeps at once; a lost one goes
/// unnoticed for this time.
pub const DPDK_INTERRUPT_SLEEP_NS_MAX: u64 = 100_000_000;

/// Shortest interval at which a DPDK port about to sleep asks the device for its counters, ns.
pub const DPDK_LOOK_NS: u64 = 10_000_000;

/// Receive calls after which a DPDK port that never sleeps reads the device's counters.
pub const DPDK_LOOK_RECEIVES: u32 = 1 << 16;

/// Bytes of an Ethernet header with one VLAN tag: a frame exceeds the MTU by no more.
pub const FRAME_HEADER_MAX: usize = 18;

/// Frames under way in one direction of a fault wrapper, unless options or delay and rate require
/// more.
pub const FAULT_SLOTS_DEFAULT: usize = 4096;

/// Most frames under way in one direction of a fault wrapper. At the limit received frames are
/// dropped, and sending meets back-pressure.
pub const FAULT_SLOTS_MAX: usize = 1 << 18;

/// Reordered frames that are held at one time; further ones are not reordered.
pub const FAULT_HELD_MAX: usize = 8;

/// Most later frames that overtake a reordered one.
pub const FAULT_OVERTAKEN_MAX: u32 = 3;

/// Default queue before a rate limit, as time at that rate, ns.
pub const FAULT_QUEUE_NS_DEFAULT: u64 = 50_000_000;

/// Smallest queue before a rate limit, bytes.
pub const FAULT_QUEUE_BYTES_MIN: u64 = 32 * 1024;

/// Bytes of an interface's name, without the zero byte.
pub const NAME_BYTES_MAX: usize = 15;

/// Smallest MTU that a user may set: IPv4's minimum.
pub const MTU_MIN: usize = 68;

/// Largest MTU that a user may set.
pub const MTU_MAX: usize = 65_535;

/// Queues of one wire.
pub const QUEUES_MAX: usize = 256;

/// Frames in one batch of a port over a descriptor (tap, packet), which bounds its system calls per
/// turn.
pub const FD_BATCH_MAX: usize = 64;

/// Bytes in one batch of a port over a descriptor, its last frame not counted: merged frames of a
/// batch should stay in the second-level cache.
pub const FD_BATCH_BYTES: usize = 256 << 10;

/// Transmit slots of a port over a descriptor, in which frames wait that the kernel does not take
/// at once.
pub const FD_TX_SLOTS: usize = 256;

/// Frames in one batch of a loopback, unless its options say otherwise.
pub const LOOPBACK_BATCH_MAX: usize = 64;

/// Frame slots in one direction of a loopback, unless its options say otherwise.
pub const LOOPBACK_SLOTS_DEFAULT: usize = 1024;

/// Frames that a stack has sent to itself and not received yet, twice what a turn sends. Further
/// ones are lost (`local_frames_lost`), and TCP retransmits them.
pub const LOCAL_QUEUE_SLOTS: usize = 1024;

/// Frames of the local queue in one batch.
pub const LOCAL_QUEUE_BATCH_MAX: usize = 64;

/// Longest frame that a kernel peer hands over uncut, with its headers, bytes.
pub const SUPER_FRAME_BYTES_MAX: usize = 65_536 + 256;

/// Largest IP packet that the kernel cuts into segments for a packet socket or TAP, bytes: the
/// longest of IPv4.
pub const SEGMENT_BYTES_MAX: usize = 65_535;

/// Send buffer of a packet socket, bytes: frames on their way through the interface.
pub const PACKET_SEND_BYTES: i32 = 4 << 20;

/// Receive buffer of a packet socket, bytes. The kernel charges about a kilobyte for a small frame,
/// so a burst of 32,768 fits. The memory is taken as frames arrive.
pub const PACKET_RECEIVE_BYTES: i32 = 32 << 20;

/// Frames that may wait for us in a TAP's queue, 8 bytes each, unless the device's own queue is
/// longer.
pub const TAP_QUEUE_FRAMES: i32 = 16_384;

/// Interval at which a packet port whose interface went down checks whether the interface still
/// exists, ns.
pub const PACKET_LINK_CHECK_NS: u64 = 1_000_000_000;

/// Named loopbacks of one process whose other end is not open yet.
pub const LOOPBACK_NAMES_MAX: usize = 1024;

/// Buffer before a capture file, bytes.
pub const PCAP_BUFFER_BYTES: usize = 256 * 1024;

/// Turns of a busy bridge between two checks of its stop descriptor.
pub const BRIDGE_TURNS_MAX: usize = 64;

/// Frames in one batch of an IP wire.
pub const IP_WIRE_BATCH_MAX: usize = 64;

/// Packets that an IP wire holds in each direction. At the limit `inject` refuses, and frames of
/// the stack are dropped (`ip_wire_tx_dropped_unread`).
pub const IP_WIRE_PACKETS_MAX: usize = 65_536;

/// Longest packet that can be injected into an IP wire, bytes: 65,535 of IPv6 payload behind a
/// header of 40.
pub const IP_WIRE_PACKET_BYTES_MAX: usize = 65_575;

/// Stacks, and queues of the wire, that one switch joins: they share the bits of a word and the
/// descriptors of one sleep.
pub const SWITCH_MEMBERS_MAX: usize = 48;
/// Frame slots between a switch and each member, per direction: as many as an AF_XDP port has,
/// within [`SWITCH_BYTES`].
pub const SWITCH_SLOTS: usize = 2048;
/// Most memory for the slots between a switch and one member, per direction, bytes.
pub const SWITCH_BYTES: usize = 4 << 20;
/// Flows whose owner a switch remembers, 8 bytes each; a power of two. At the limit, and sometimes
/// from half of it on, one is forgotten, preferably one that has ended (`switch_flows_forgotten`
/// counts the others). A forgotten flow goes to a context that listens at its port, like a new one.
pub const SWITCH_FLOWS_MAX: usize = 1 << 20;
/// Batches that a switch takes from a queue of the wire before it serves its members.
pub const SWITCH_DRAIN_BATCHES_MAX: usize = 32;
/// Time for which the last frames of a member that has gone wait for room in the wire, ns.
pub const SWITCH_FAREWELL_NS: u64 = 100_000_000;
/// Batches that a switch moves before it checks for members that have come or gone.
pub const SWITCH_TURNS_MAX: usize = 256;

/// Bytes of one read from a netlink socket; the kernel fills at most 32 KiB.
pub const NETLINK_BYTES_MAX: usize = 64 << 10;
/// Receive buffer of a netlink socket, bytes. If the kernel dropped notifications, the mirror reads
/// everything again.
pub const NETLINK_QUEUE_BYTES: usize = 1 << 20;
/// Routes through one interface that the mirror reports. Further ones are left out.
pub const MIRROR_ROUTES_MAX: usize = 1024;
/// Next hops that the mirror keeps resolved. A request for a further one is refused (ENOBUFS).
pub const MIRROR_NEIGHBOURS_MAX: usize = 4096;
/// Time for which an address that the interface has lost keeps its claims and connections, in ns:
/// a tool that changes a prefix removes the address before it adds it again. Later they end.
pub const ADDRESS_GRACE_NS: u64 = 1_000_000_000;

/// Queues of a memif channel to `mill mux`, and threads of the service that move frames. Further
/// queues of the NIC share these threads.
pub const CHANNEL_QUEUES_MAX: usize = 4;
/// Longest wait for the answer to a request to `mill mux`; then the request fails with ETIMEDOUT.
pub const MUX_ANSWER_WAIT: std::time::Duration = std::time::Duration::from_secs(5);
/// Pause between two attempts to reach a service that went away.
pub const MUX_RETRY: std::time::Duration = std::time::Duration::from_millis(100);
/// Changes of the host, and wanted next hops, that wait between a port and the thread that talks to
/// the host. At the limit a change is lost and counted (`mux_changes_lost`, `mirror_changes_lost`);
/// a next hop is requested again.
pub const HOST_QUEUE_MAX: usize = 1024;
/// Most local ports that a context requests at once when its own do not suffice.
pub const MUX_LEASE_GROWTH_MAX: u16 = 4096;
/// Local ports that a context leases when it opens, unless `ports=` says otherwise. It gets more
/// when a connection finds none.
pub const MUX_LEASE_PORTS: u16 = 32;
/// Most local ports that a context may ask for by `ports=`.
pub const MUX_LEASE_PORTS_MAX: u16 = 16_384;

/// Connections from other processes, and answers to those sent, that wait for one context's stack.
/// Further connections are refused, and their senders try again.
pub const HOST_TRANSFERS_MAX: usize = 2048;
/// Bytes of a connection that moves to another process. A longer one is refused.
pub const MUX_TRANSFER_BYTES_MAX: u32 = 32 << 20;
/// Time after which a connection that no process could take is offered again.
pub const MUX_TRANSFER_RETRY: std::time::Duration = std::time::Duration::from_millis(5);
/// Time for which a connection is offered to other processes; then its stack ends it.
pub const MUX_TRANSFER_WAIT: std::time::Duration = std::time::Duration::from_secs(10);
/// Time for which a connection is offered whose listener stays; then it goes back.
pub const MUX_TRANSFER_BACK_WAIT: std::time::Duration = std::time::Duration::from_millis(20);
/// Time for which a connection is offered while no other process listens at its address. A child of
/// a master that closed its listeners may be about to open them.
pub const MUX_TRANSFER_ALONE_WAIT: std::time::Duration = std::time::Duration::from_secs(1);

/// Contexts that one mesh joins: they have one bit each in a word, and six bits name one in a
/// flow's entry.
pub const MESH_CONTEXTS_MAX: usize = 64;
/// Frame slots from one context of a mesh to another. A frame that finds none free is dropped
/// (`hand_over_full`).
pub const MESH_SLOTS: usize = 256;
/// Most memory for the frame slots of a mesh, bytes; it may reduce their number.
pub const MESH_BYTES: usize = 8 << 20;
/// Fewest frame slots from one context of a mesh to another, in spite of [`MESH_BYTES`].
pub const MESH_SLOTS_MIN: usize = 32;
/// Frames from another context in one batch.
pub const MESH_BATCH_MAX: usize = 64;
/// Number of times that a frame may be handed over: to its flow's owner, and from an owner that
/// just lost the flow to a context that listens. Then it is answered where it is.
pub const MESH_HOPS_MAX: u8 = 2;
/// Flows whose owner the contexts of a mesh can look up, in a table of twice as many entries of 8
/// bytes. A flow whose two sets are full is not listed (`hand_over_unlisted`): its segments at
/// other contexts belong to no flow there.
pub const FLOW_OWNERS_MAX: usize = 1 << 22;
/// Most entries of a card's table of queues; cards have 64 to 2048. With more, the spread is not
/// computed.
pub const SPREAD_ENTRIES_MAX: usize = 4_096;
/// Local ports that an active open examines for one whose answers arrive at its own queue. If none
/// qualifies, any free port serves, and answers are handed over.
pub const SPREAD_LOOKS_MAX: u32 = 4_096;
