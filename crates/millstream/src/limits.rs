//! The limits of a process's runtime; those of one stack are [`stack::Limits`].

/// Contexts of a runtime. More are refused when the runtime is made.
pub const CONTEXTS_MAX: usize = 128;
/// Events that one wait hands to the application at most, whatever room it offers.
pub const EVENTS_PER_WAIT_MAX: usize = 4_096;
/// Number of ready sources from which a wait hands over all that there is room for, and so all that
/// one turn brought. The connections of that turn are still near the core, and nothing piles up
/// between the stack and its application (decision 0035).
pub const EVENTS_PER_WAIT_MANY: usize = 128;
/// Writers that found no chunk and that the next wait looks at first. Those beyond it wait on their
/// poll's list as others do.
pub const REFUSED_WRITERS_MAX: usize = 4_096;
/// Turns of one wait, at most, in which a crowd's answers leave before more of the crowd is handed
/// over: some 8,000 frames.
pub const ANSWERS_LEAVE_TURNS_MAX: u32 = 16;
/// Least number of sources that a wait hands over while few are ready; otherwise it hands over a
/// quarter. The application's answers to these leave before it gets the others, and the peer need
/// not wait for all (decision 0028).
pub const EVENTS_PER_WAIT_FEW: usize = 16;
/// A program whose waits have no timeout and lie this far apart does other things in between, so
/// one wait reports everything that is ready. Shorter than the shortest sleep of programs that
/// poll, a millisecond; longer than a round of the events that a wait hands over in parts (decision
/// 0062).
pub const POLLER_AWAY_NS: u64 = 500_000;
/// Bytes written to the sockets of a context after which its next write turns an inline crank. The
/// send buffer is then copied out before it has left the second-level cache (decision 0049).
pub const WRITTEN_BYTES_PER_TURN: usize = 128 * 1024;
/// With more sockets than this a context's writers leave the stack to its waits: 8,192 downloads
/// whose writers turned it shared with a Jain's index of 0.90 (decision 0049).
pub const WRITERS_TURN_SOCKETS_MAX: usize = 512;
/// A write on an empty send buffer is taken whole up to this size, unless the context has no chunk
/// left. Linux's buffers hold as much from the start (`tcp_wmem`).
pub const WHOLE_WRITE_BYTES_MAX: usize = 16 * 1024;
/// Longest wait of such a write for the stack's thread to refill the stock: more than a busy
/// machine keeps a thread waiting for a core.
pub const CHUNKS_WAIT_NS_MAX: u64 = 100_000_000;
/// Time for which a poll whose stack is busy, or looks for work, does not ask the kernel for the
/// application's other descriptors. It is a small part of the time of a wake-up, and long enough
/// for some ten turns.
pub const KERNEL_ASKED_EVERY_NS: u64 = 20_000;
/// Time that an application may stay away from its stack before the watchdog turns the crank for
/// it.
pub const WATCHDOG_TICK_NS: u64 = 5_000_000;

/// Time that an application may stay away from a stack with its own thread (dedicated crank) before
/// that thread turns the crank.
pub const STACK_THREAD_TICK_NS: u64 = 500_000;
/// Turns, one a tick, after which the watchdog takes an absent application for a sleeping one, and
/// turns as often as there is work.
pub const WATCHDOG_SINGLE_TURNS: u32 = 10;
/// Longest wait of an ending context for the watchdog to release copies of its descriptors: many
/// times a wake-up, within a tick. After that its interface may still exist for a moment.
pub const WATCHDOG_LETS_GO_NS_MAX: u64 = 100_000_000;
/// Default time for which a stack without work looks for some before it sleeps. It is longer than a
/// wake-up of the sender takes, or two stacks would always find each other asleep.
pub const SPIN_NS: u64 = 50_000;
/// Default time for which a dropped runtime waits for its connections to close in order.
pub const LINGER_NS: u64 = 1_000_000_000;
/// Longest time after that for the resets of the remaining connections to leave: a queue of the
/// wire without room may never have any. Peers whose reset has not left by then hear nothing.
pub const FAREWELL_NS_MAX: u64 = 200_000_000;

/// Interval at which a context copies its values to the statistics file while it turns, in ns.
pub const PUBLISH_NS: u64 = 100_000_000;
/// Interval at which it copies the counters of its wire, which may take system calls.
pub const PUBLISH_PORT_NS: u64 = 1_000_000_000;
/// Connections that were active within this time count for the histogram of round trips, in ns.
pub const ROUND_TRIP_RECENT_NS: u64 = 1_000_000_000;
/// One turn in this many is measured.
pub const TURNS_PER_MEASURE: u64 = 16;

/// How long a capture goes on after somebody asked for it, ns. A reader asks again meanwhile; one
/// that has died leaves nothing behind.
pub(crate) const CAPTURE_NS: u64 = 3_000_000_000;
