//! Limits of the plug-in, and the effect of each.

use millstream::Limits;

/// Longest virtual time in ns in which a packet is awaited, or the end of a blocking call of the
/// script's main thread. The wait then fails. No script waits longer than keep-alive's two hours
/// and its probes.
pub const WAIT_NS_MAX: u64 = 4 * 3_600 * 1_000_000_000;

/// Most steps of virtual time in one such wait. With more, something is due again and again without
/// progress, and the wait fails.
pub const WAIT_STEPS_MAX: u32 = 10_000_000;

/// Looks at the clock that a thread may take without any other request. From then on each look
/// takes a microsecond, since the thread waits by polling.
pub const IDLE_LOOKS_MAX: u32 = 64;

/// Time in ns by which packetdrill shortens each sleep, to spin for the rest.
pub const SPIN_NS: u64 = 20_000;

/// Limits of the stack's tables. They are small, since packetdrill pins all memory.
pub fn stack() -> Limits {
    Limits {
        sockets_max: 512,
        half_open_max: 256,
        time_wait_max: 256,
        listeners_max: 64,
        backlog_max: 4_096,
        small_chunks: 8_192,
        large_chunks: 8_192,
        ..Limits::default()
    }
}
