//! Every limit of packetio, with its name and unit.
//!
//! At each the answer is defined where it is used: back-pressure, a drop with a counter, or a
//! refusal at open.

/// Named counters in one [`PortCounters`](crate::PortCounters): a backend's own plus those of the
/// wrappers around it.
pub const NAMED_COUNTERS_MAX: usize = 48;

/// Descriptors in one [`wait`](crate::wait()), those of all ports and the caller's own.
pub const WAIT_FDS_MAX: usize = 128;

/// Fewest UMEM chunks that receive frames of an AF_XDP port, unless `ring=` asks for fewer: what
/// one sender's window holds.
pub const XDP_RX_CHUNKS_MIN: u32 = 2048;

/// Most UMEM chunks that receive frames of an AF_XDP port, unless `ring=` asks for more. The kernel
/// pins them when the port is opened: 32 MiB.
pub const XDP_RX_CHUNKS_MAX: u32 = 16_384;

/// Sockets that a port is sized for when nobody says how many: the default of a context's limits.
pub const XDP_SOCKETS_DEFAULT: usize = 32_768;

/// Slots that `ring=` can ask for.
pub const XDP_RING_SLOTS_MIN: u32 = 64;
/// ... and the most. The kernel pins 2 or 4 KiB for each: 128 or 256 MiB.
pub const XDP_RING_SLOTS_MAX: u32 = 65_536;

/// Slots of an AF_XDP port's TX ring and of its completion ring. As many UMEM chunks send frames,
/// so the completion ring can never overflow: a port without a free chunk pushes back.
pub const XDP_TX_SLOTS: u32 = 1024;

/// Bytes for each socket in the store of frames that an AF_XDP port took out of its RX ring early.
/// The memory is reserved when the port is opened and touched when frames lie in it.
pub const XDP_STORE_BYTES_PER_SOCKET: usize = 512;
/// Least size of that store, in bytes.
pub const XDP_STORE_BYTES_MIN: usize = 2 << 20;
/// Largest size of that store, in bytes. Frames that find no room stay in the ring, and the kernel
/// drops what comes to a full ring (`xdp_rx_ring_full`).
pub const XDP_STORE_BYTES_MAX: usize = 64 << 20;
/// Bytes of the store that a port keeps when it goes to sleep; the rest goes back to the system.
pub const XDP_STORE_BYTES_KEPT: usize = 256 << 10;

/// How often, at most, a port reads its interface's counters, in ns.
pub const INTERFACE_LOOK_NS: u64 = 1_000_000_000;
/// Bytes of `/proc/net/dev` that a port reads: some 120 for each interface. The counters of an
/// interface behind that are not told.
pub const INTERFACE_LIST_BYTES_MAX: usize = 64 << 10;

/// Descriptors that peers sent, and sockets in whose queue some lie, which may wait to be closed;
/// with more, no new peer is heard.
pub const CLOSING_MAX: usize = 16;

/// Frames in one batch that an AF_XDP port receives: as many as a turn of a stack takes, so that
/// frames of one flow are merged wherever they lie among those of the turn (decision 0068). A port
/// with few chunks lends a quarter of them, but not less than [`XDP_BATCH_MAX`].
pub const XDP_RX_BATCH_MAX: usize = 256;

/// Frames in one batch that an AF_XDP port sends, and pieces of a long frame in one that it
/// receives.
pub const XDP_BATCH_MAX: usize = 64;

/// Instructions of a filter of frames (`BPF_MAXINSNS`). A longer one is refused.
pub const FILTER_INSTRUCTIONS_MAX: usize = 4096;
/// Instructions of a filter that another process sends, to be run beside the stack. A longer one is
/// refused: its reader asks for all frames and filters them itself.
pub const SENT_FILTER_INSTRUCTIONS_MAX: usize = 64;
/// Filters of the readers of one capture. With more of them, all frames are logged.
pub const CAPTURE_FILTERS_MAX: usize = 4;
/// Bytes of a frame that a capture's filter sees at first. It sees all that is logged if it looks
/// behind them.
pub const FILTER_HEAD_BYTES: usize = 128;

/// Bytes kept free before a frame to be sent: `struct xsk_tx_metadata` goes there (24 bytes; one
/// cache line).
pub const XDP_TX_HEADROOM_BYTES: u32 = 64;

/// Bytes that the kernel keeps free before a received frame (`XDP_PACKET_HEADROOM`).
pub const XDP_RX_HEADROOM_BYTES: u32 = 256;

/// Addresses that an interface's program can hold, of each family (`bpf/xdp_port.c`).
pub const XDP_OWNED_MAX: usize = 1024;

/// Queues of one interface (`bpf/xdp_port.c`).
pub const XDP_QUEUES_MAX: usize = 256;

/// System calls that one `send` makes to move its frames in copy mode, beyond one per
/// `XDP_TX_KICK_FRAMES`.
pub const XDP_TX_KICKS_SPARE: usize = 2;

/// Frames that the kernel sends per system call in copy mode, at least (`TX_BATCH_SIZE`).
pub const XDP_TX_KICK_FRAMES: usize = 32;

/// How soon a port that could not hand all its frames to the kernel wants to try again, in ns.
pub const XDP_TX_RETRY_NS: u64 = 100_000;

/// How long a port lets its caller sleep before it looks whether the interface is still there, in
/// ns.
pub const XDP_LINK_CHECK_NS: u64 = 5_000_000_000;

/// How often, at most, a port about to sleep asks the kernel for its counters and errors, in ns.
pub const XDP_LOOK_NS: u64 = 10_000_000;

/// How long an open waits for a queue that its last owner has closed but the kernel has not yet let
/// go, in ns.
pub const XDP_BIND_WAIT_NS_MAX: u64 = 2_000_000_000;

/// Receive calls between two reads of the kernel's own counters of an AF_XDP socket.
pub const XDP_STATISTICS_INTERVAL: u32 = 4096;

/// Frames in one batch of a DPDK port (`plugins/dpdk/millstream_dpdk.h`).
pub const DPDK_BATCH_MAX: usize = 64;

/// Descriptors of a DPDK queue that receive, unless its driver wants more or fewer.
pub const DPDK_RX_SLOTS: u32 = 1024;

/// Descriptors of a DPDK queue that send, unless its driver wants more or fewer.
pub const DPDK_TX_SLOTS: u32 = 1024;

/// Buffers of 64 KiB of a DPDK queue whose driver cuts packets. While the driver holds all of them,
/// slots are granted without one, and segments leave one by one.
pub const DPDK_LARGE_SLOTS: u32 = 256;

/// The first sleep of an idle DPDK port whose driver has no interrupts, and of one that waits for
/// room to send, in ns. Each further one is twice as long ...
pub const DPDK_SLEEP_NS_MIN: u64 = 50_000;

/// ... up to this: what a frame that comes to an idle port waits at most, in ns.
pub const DPDK_SLEEP_NS_MAX: u64 = 1_000_000;

/// The same with interrupts, which make a frame wait for nothing: how long an interrupt that a
/// driver lost goes unnoticed, in ns.
pub const DPDK_INTERRUPT_SLEEP_NS_MAX: u64 = 100_000_000;

/// How often, at most, a port about to sleep asks the device for its counters, in ns.
pub const DPDK_LOOK_NS: u64 = 10_000_000;

/// Receive calls between two such looks of a port that never sleeps.
pub const DPDK_LOOK_RECEIVES: u32 = 1 << 16;

/// Bytes of Ethernet header with one VLAN tag: a frame is at most this longer than the MTU.
pub const FRAME_HEADER_MAX: usize = 18;

/// Frames under way in one direction of a fault wrapper, unless its options or its delay at its
/// rate ask for more.
pub const FAULT_SLOTS_DEFAULT: usize = 4096;

/// ... and never more than this; beyond it: a drop on the way in, back-pressure on the way out.
pub const FAULT_SLOTS_MAX: usize = 1 << 18;

/// Reordered frames that wait to be overtaken at the same time; further ones are not reordered.
pub const FAULT_HELD_MAX: usize = 8;

/// Later frames that overtake a reordered one at most.
pub const FAULT_OVERTAKEN_MAX: u32 = 3;

/// Queue in front of a rate limit, as time at that rate, ns.
pub const FAULT_QUEUE_NS_DEFAULT: u64 = 50_000_000;

/// ... and never less than this, bytes.
pub const FAULT_QUEUE_BYTES_MIN: u64 = 32 * 1024;

/// Bytes of an interface's name.
pub const NAME_BYTES_MAX: usize = 15;

/// Smallest MTU that a user may set: IPv4's minimum.
pub const MTU_MIN: usize = 68;

/// Largest MTU that a user may set.
pub const MTU_MAX: usize = 65_535;

/// Queues of one wire.
pub const QUEUES_MAX: usize = 256;

/// Frames in one batch of a port over a descriptor (tap, packet): bounds its system calls per turn.
pub const FD_BATCH_MAX: usize = 64;

/// Bytes that one batch of such a port reads, less those of its last frame: merged frames that
/// wait for their turn are to stay in the second-level cache.
pub const FD_BATCH_BYTES: usize = 256 << 10;

/// Transmit slots of such a port: what the kernel does not take at once waits in them.
pub const FD_TX_SLOTS: usize = 256;

/// Frames in one batch of a loopback, unless its options say otherwise.
pub const LOOPBACK_BATCH_MAX: usize = 64;

/// Frame slots in one direction of a loopback, unless its options say otherwise.
pub const LOOPBACK_SLOTS_DEFAULT: usize = 1024;

/// Frames that a stack may have sent to itself and not received yet: twice what a turn sends. At
/// the limit the next ones are lost (`local_frames_lost`), and TCP repeats them.
pub const LOCAL_QUEUE_SLOTS: usize = 1024;

/// Frames of that queue that are lent together.
pub const LOCAL_QUEUE_BATCH_MAX: usize = 64;

/// Longest frame that a kernel peer hands over before segmentation, with its headers, bytes.
pub const SUPER_FRAME_BYTES_MAX: usize = 65_536 + 256;

/// Largest IP packet that the kernel cuts into segments for a packet socket or a TAP, bytes: what
/// IPv4 has a length for.
pub const SEGMENT_BYTES_MAX: usize = 65_535;

/// Bytes of sent frames that a packet socket may have on its way through the interface.
pub const PACKET_SEND_BYTES: i32 = 4 << 20;

/// Room for frames that wait in a packet socket, bytes. The kernel charges a small frame with about
/// a kilobyte, so this holds a burst of 32,768; the memory is taken as frames come.
pub const PACKET_RECEIVE_BYTES: i32 = 32 << 20;

/// Frames that may wait in a TAP's queue for us, unless the device's own length is greater; 8 bytes
/// each.
pub const TAP_QUEUE_FRAMES: i32 = 16_384;

/// How soon a packet port whose interface went down looks whether it is still there, and how often,
/// in ns.
pub const PACKET_LINK_CHECK_NS: u64 = 1_000_000_000;

/// Named loopbacks of one process that wait for their other end.
pub const LOOPBACK_NAMES_MAX: usize = 1024;

/// Buffer in front of a capture file, bytes.
pub const PCAP_BUFFER_BYTES: usize = 256 * 1024;

/// Turns of a busy bridge between two looks at its stop descriptor.
pub const BRIDGE_TURNS_MAX: usize = 64;

/// Frames in one batch of an IP wire.
pub const IP_WIRE_BATCH_MAX: usize = 64;

/// Packets that an IP wire holds in each direction. Beyond it `inject` refuses, and what the stack
/// sends is dropped (`ip_wire_tx_dropped_unread`).
pub const IP_WIRE_PACKETS_MAX: usize = 65_536;

/// Longest packet that can be injected into an IP wire: the longest that IPv4 has a length for, and
/// IPv6's longest behind its header.
pub const IP_WIRE_PACKET_BYTES_MAX: usize = 65_575;

/// Stacks, and queues of the wire, that one switch joins: a bit each in a word, and what one sleep
/// watches.
pub const SWITCH_MEMBERS_MAX: usize = 48;
/// Frame slots between a switch and each of its members, in each direction: as many as an AF_XDP
/// port has ...
pub const SWITCH_SLOTS: usize = 2048;
/// ... unless they would take more memory than this, in bytes.
pub const SWITCH_BYTES: usize = 4 << 20;
/// Flows whose owner a switch remembers, 8 bytes each; a power of two. Beyond it, and now and then
/// from half of it on, one is forgotten, if possible one that has ended (`switch_flows_forgotten`
/// counts the others). A forgotten flow belongs to one of the contexts that listen at its port, as
/// if it were new.
pub const SWITCH_FLOWS_MAX: usize = 1 << 20;
/// Batches that a switch takes from a queue of the wire before it looks at what its members send.
pub const SWITCH_DRAIN_BATCHES_MAX: usize = 32;
/// How long the last frames of a member that has gone wait for room in the wire, in ns.
pub const SWITCH_FAREWELL_NS: u64 = 100_000_000;
/// Batches that a switch moves before it looks whether anybody has come or gone.
pub const SWITCH_TURNS_MAX: usize = 256;

/// Bytes of one read from a netlink socket: the kernel fills at most 32 KiB.
pub const NETLINK_BYTES_MAX: usize = 64 << 10;
/// Bytes of notifications that may wait in a netlink socket. When the kernel dropped some, the
/// mirror reads everything again.
pub const NETLINK_QUEUE_BYTES: usize = 1 << 20;
/// Routes through one interface that the mirror tells; further ones are left out.
pub const MIRROR_ROUTES_MAX: usize = 1024;
/// Next hops that the mirror keeps resolved; a request for another one is refused (ENOBUFS).
pub const MIRROR_NEIGHBOURS_MAX: usize = 4096;

/// Queues of a memif channel to `mill mux`, and frames' threads of the service at most. Queues of
/// the NIC beyond share the threads.
pub const CHANNEL_QUEUES_MAX: usize = 4;
/// How long a request to `mill mux` waits for its answer; then it fails with ETIMEDOUT.
pub const MUX_ANSWER_WAIT: std::time::Duration = std::time::Duration::from_secs(5);
/// How long to sleep between two tries to reach a service that went away.
pub const MUX_RETRY: std::time::Duration = std::time::Duration::from_millis(100);
/// Changes of the host, and next hops that are wanted, that wait between a port and the thread that
/// talks to the host. A change that finds no room is missed and counted (`mux_changes_lost`,
/// `mirror_changes_lost`); a next hop is asked for again.
pub const HOST_QUEUE_MAX: usize = 1024;
/// Most local ports that a context asks for at once when those that it has do not suffice.
pub const MUX_LEASE_GROWTH_MAX: u16 = 4096;
/// Local ports that a context leases when it opens, unless `ports=` says another number. It gets
/// more when a connection finds none.
pub const MUX_LEASE_PORTS: u16 = 32;
/// Most local ports that a context may ask for by `ports=`.
pub const MUX_LEASE_PORTS_MAX: u16 = 16_384;

/// Connections that may come from other processes to one context, and answers to those that left
/// it, before the stack looks. Further connections are refused, and their senders try again.
pub const HOST_TRANSFERS_MAX: usize = 2048;
/// Bytes of a connection that moves to another process. A longer one is refused.
pub const MUX_TRANSFER_BYTES_MAX: u32 = 32 << 20;
/// Time after which a connection that no other process could take is offered again.
pub const MUX_TRANSFER_RETRY: std::time::Duration = std::time::Duration::from_millis(5);
/// How long a connection is offered to other processes. Then its stack ends it.
pub const MUX_TRANSFER_WAIT: std::time::Duration = std::time::Duration::from_secs(10);
/// How long a connection is offered while no other process has its place: a child of a master that
/// has closed its listeners may be about to open them.
pub const MUX_TRANSFER_ALONE_WAIT: std::time::Duration = std::time::Duration::from_secs(1);

/// Contexts that one mesh joins: a bit each in a word, and six bits in a flow's entry.
pub const MESH_CONTEXTS_MAX: usize = 64;
/// Frame slots from one context of a mesh to another. A frame that finds none free is dropped
/// (`hand_over_full`) ...
pub const MESH_SLOTS: usize = 256;
/// ... of which there are fewer if they would take more memory than this, in bytes ...
pub const MESH_BYTES: usize = 8 << 20;
/// ... but not fewer than this.
pub const MESH_SLOTS_MIN: usize = 32;
/// Frames that a context takes of another's at a time.
pub const MESH_BATCH_MAX: usize = 64;
/// How often a frame is handed over at most: to the owner of its flow, and from an owner that the
/// flow has just left to a context that listens. After that it is answered where it is.
pub const MESH_HOPS_MAX: u8 = 2;
/// Flows whose owner the contexts of a mesh can look up, twice over, 8 bytes each. A flow that
/// finds both of its sets full is not found there (`hand_over_unlisted`): a segment of it that
/// reaches another context is answered as one of no flow.
pub const FLOW_OWNERS_MAX: usize = 1 << 22;
/// Entries of a card's table of queues, at most; cards have 64 to 2048. The spread of a card with
/// more is not computed.
pub const SPREAD_ENTRIES_MAX: usize = 4_096;
/// Local ports that an open of a connection looks at for one whose answers arrive at its own queue.
/// Where none of them does, any free one serves, and the answers are handed over.
pub const SPREAD_LOOKS_MAX: u32 = 4_096;
