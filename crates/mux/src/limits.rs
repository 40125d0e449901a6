//! Every limit of the service, with its name and unit.
//!
//! Each limit has a defined answer: a refusal with an errno, or the end of the connection that
//! reached it.

/// Virtual ports of one service, one per context, unless `--ports` sets fewer. The next application
/// is refused (EBUSY).
pub const SLOTS_MAX: u16 = 254;

/// Entries for devices in the BPF programs' maps. A context with a virtual port has a device.
pub const DEVICES: usize = 256;
/// The largest MTU of an interface that is shared, in bytes: a frame lies in one page, beside what
/// the kernel keeps with it. The service refuses to start on an interface with a larger one. If the
/// interface gets a larger one later, the service says so, and applications keep to this one.
pub const MTU_MAX: usize = 3498;
/// Frames of one application that a frames' thread handles before the next application's.
pub const FRAMES_PER_ROUND: usize = 64;
/// Time for which a frames' thread without frames looks for more before it sleeps, in ns.
pub const FRAMES_SPIN_NS: u64 = 50_000;
/// Changes that may wait for a frames' thread. The service waits while the queue is full.
pub const CHANGES_MAX: usize = 4096;
/// Shared memory of one memif channel in bytes. A client that announces more is disconnected.
pub const CHANNEL_BYTES_MAX: u64 = 128 << 20;
/// Slots of one ring of a context. A larger ring is refused (EINVAL).
pub const RING_SLOTS_MAX: u32 = 65_536;
/// Connections to the service's socket. A further one is closed at once.
pub const CLIENTS_MAX: usize = 1024;
/// Connections of one user that is not root. A further one is closed at once.
pub const CLIENTS_PER_UID_MAX: usize = 512;
/// Users for whom a thread closes descriptors. While there are so many, a connection of a further
/// user that is not root is closed at once. Users who are connected already may exceed the number.
pub const CLOSING_USERS_MAX: usize = 64;
/// Descriptors that clients of one user sent and that wait to be closed: more than all its claims
/// leave at once. A client that sends a further one is disconnected.
pub const CLOSING_PER_UID_MAX: usize = 2560;
/// Connections that are accepted before the clients have their turn.
pub const ACCEPTS_PER_TURN: usize = 64;
/// How long the service accepts no connections when it finds no free descriptor, in ns.
pub const ACCEPT_REST_NS: u64 = 100_000_000;
/// Local ports of a lease that is given at once. A larger one waits for its user's turn.
pub const LEASE_PORTS_SHORT: u16 = 256;
/// Messages of one client that are handled before the next client's.
pub const MESSAGES_PER_TURN: usize = 16;
/// Bytes of messages that may wait for a client to read. A client that exceeds them is
/// disconnected.
pub const CLIENT_SEND_BYTES: usize = 1 << 20;
/// Time in which a new client must send its first message, in ns. Otherwise it is disconnected.
pub const GREETING_NS_MAX: u64 = 5_000_000_000;
/// 3-tuples that one application may claim. A further claim is refused (ENOBUFS).
pub const CLAIMS_PER_APPLICATION_MAX: usize = 1024;
/// 3-tuples that all applications of one user that is not root may claim. A further claim is
/// refused (ENOBUFS).
pub const CLAIMS_PER_UID_MAX: usize = 2048;
/// Local ports in one block. Leases consist of whole blocks.
pub const LEASE_BLOCK_PORTS: u16 = 32;
/// Local ports that one lease may have.
pub const LEASE_PORTS_MAX: u16 = 4096;
/// Local ports that one application may have leased. A further request is refused (ENOBUFS).
pub const LEASED_PORTS_PER_APPLICATION_MAX: usize = 8192;
/// Eighths of what there is that all applications of one user that is not root may have: of virtual
/// ports (a further application is refused, EBUSY), of the range of leases (ENOBUFS), of the bytes
/// of ledgers (a context gets none), and of connections that wait for another process (EAGAIN).
pub const SHARE_EIGHTHS: u64 = 7;
/// Next hops that all applications of one user that is not root may ask for: a quarter of the
/// neighbours that Linux keeps by default. A further one is refused (ENOBUFS).
pub const NEXT_HOPS_PER_UID_MAX: usize = 256;
/// Least bytes of memory files that all applications of one user that is not root may have ...
pub const MEMORY_PER_UID_MIN: u64 = 1 << 30;
/// ... or this part of the host's memory, if that is more. A further file is refused (ENOBUFS).
pub const MEMORY_PER_UID_PART: u64 = 8;
/// Contexts that listen at one endpoint, which the programs choose among. A further one is refused
/// (ENOBUFS).
pub const LISTENERS_PER_PLACE_MAX: usize = 16;
/// Holds of one endpoint. A further one is refused (ENOBUFS).
pub const HOLDS_PER_PLACE_MAX: usize = 1024;
/// Next hops that one application may ask for. A further one is refused (ENOBUFS).
pub const NEXT_HOPS_PER_APPLICATION_MAX: usize = 256;
/// Next-hop requests of one application that may wait at once. A further one is refused (ENOBUFS).
pub const RESOLVING_PER_APPLICATION_MAX: usize = 64;
/// Time that an application waits for a next hop to be resolved, in ns. Then it gets EHOSTUNREACH.
pub const RESOLVE_NS_MAX: u64 = 3_000_000_000;
/// Time that a next hop may not answer after it was last asked for, in ns. Then it is forgotten,
/// and counts for no share.
pub const NEXT_HOP_SILENT_NS_MAX: u64 = 10_000_000_000;
/// Virtual ports of the dead that are removed before clients are served again.
pub const PORT_REMOVALS_PER_TURN: usize = 1;
/// Size of one context's memory file in bytes. A larger file is refused (EINVAL).
pub const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Connections in one context's ledger. Peers of further connections are reset only when they send.
pub const LEDGER_ENTRIES_MAX: u32 = 1 << 20;
/// Kernel memory of all ledgers in bytes, with those of the dead whose peers are yet to be reset. A
/// context beyond gets no ledger.
pub const LEDGER_BYTES_MAX: u64 = 1 << 30;
/// Entries of a dead context's ledger that are read before clients are served again.
pub const LEDGER_ENTRIES_PER_TURN: usize = 65_536;
/// Peers that are reset before clients are served again.
pub const RESETS_PER_TURN: usize = 256;
/// Time between the first and the second reset of a connection, in ns. A peer's kernel answers at
/// most one such segment of a connection in 500 ms.
pub const RESET_AGAIN_NS: u64 = 600_000_000;
/// Time for which resets that a rate holds back may be made up for at once, in ns: more than one
/// tick.
pub const RESET_BURST_NS: u64 = 200_000_000;
/// Time that a new service waits for the applications of the previous one, in ns. Applications that
/// have not returned count as dead then.
pub const RECOVERY_NS: u64 = 5_000_000_000;
/// Interval of attempts to attach to an interface that came back and whose program slot was taken,
/// in ns.
pub const NIC_RETRY_NS: u64 = 1_000_000_000;
/// Interval at which the service checks deadlines while there are any, in ns.
pub const TICK_NS: i64 = 100_000_000;
/// Limit of descriptors that the service asks for: one for each reserved port, and its connections.
pub const DESCRIPTORS: u64 = 65_536;
/// Offered connections that may wait for an answer. The sender of a further one is told to try
/// again (EAGAIN).
pub const MOVES_MAX: usize = 4096;

/// Bytes of memory files that all applications of one user that is not root may have on this host.
pub fn memory_per_user() -> u64 {
    let host = rustix::system::sysinfo();
    let bytes = host.totalram.saturating_mul(host.mem_unit.into());
    (bytes / MEMORY_PER_UID_PART).max(MEMORY_PER_UID_MIN)
}
