//! Limits of the plug-in, and what happens at each.

use millstream::Limits;

/// Virtual time that passes in search of a packet, or of the end of a blocking call of the script's
/// main thread, before the search is given up. No script waits longer than keep-alive's two hours
/// and its probes.
pub const WAIT_NS_MAX: u64 = 4 * 3_600 * 1_000_000_000;

/// Steps of virtual time within one wait. At the limit it is given up, as above: something is due
/// again and again and never done.
pub const WAIT_STEPS_MAX: u32 = 10_000_000;

/// Times that a thread may look at the clock with nothing else happening; from then on each look
/// takes a microsecond, since it waits by looking.
pub const IDLE_LOOKS_MAX: u32 = 64;

/// packetdrill asks for so much less sleep than it wants, to spin for the rest.
pub const SPIN_NS: u64 = 20_000;

/// The stack's tables: packetdrill pins all memory, so they are small.
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
