//! The limits of a process's runtime. [`stack::Limits`] holds those of one stack.

/// Contexts of a runtime. A runtime with more is refused.
pub const CONTEXTS_MAX: usize = 128;
/// Events that one wait reports at most, even if the caller's buffer has room for more.
pub const EVENTS_PER_WAIT_MAX: usize = 4_096;
/// Number of ready sources from which a wait reports as many as fit, and so all that one turn
/// brought. The connections of that turn are still in the cache, and no queue builds up between
/// stack and application (decision 0035).
pub const EVENTS_PER_WAIT_MANY: usize = 128;
/// Writers that found no chunk and that the next wait looks at first. Further ones wait on their
/// poll's list.
pub const REFUSED_WRITERS_MAX: usize = 4_096;
/// Bytes that one writer may write after a wait that found `EVENTS_PER_WAIT_MANY` ready sources.
/// Large send buffers would give the chunks of a turn to three of thousands of downloads, and an
/// uneven share to each (decision 0035).
pub const WRITER_SHARE_BYTES: u32 = 64 * 1024;
/// Turns of one wait, at most, in which the answers of a crowd leave before more of its events are
/// reported: some 8,000 frames.
pub const ANSWERS_LEAVE_TURNS_MAX: u32 = 16;
/// Least number of sources that a wait reports while few are ready; it reports a quarter of them if
/// that is more. The application's answers leave before the wait reports the other sources, so
/// peers get them sooner (decision 0028).
pub const EVENTS_PER_WAIT_FEW: usize = 16;
/// Interval between two waits, in ns, after which a wait with a timeout of zero reports everything
/// that is ready: the program does other things in between. Shorter than a millisecond, the
/// shortest sleep of programs that poll. Longer than it takes to handle the events of a wait that
/// reports only a part (decision 0062).
pub const POLLER_AWAY_NS: u64 = 500_000;
/// Bytes written to the sockets of a context after which the next write turns the stack. The stack
/// then copies the send buffer out while it is in the second-level cache (decision 0049).
pub const WRITTEN_BYTES_PER_TURN: usize = 128 * 1024;
/// Number of open sockets up to which a wait reports more events before all answers have left.
pub const FEW_SOCKETS_MAX: usize = 512;
/// Size up to which a write on an empty send buffer is taken whole, unless the context has no chunk
/// left. Linux's buffers hold as much from the start (`tcp_wmem`).
pub const WHOLE_WRITE_BYTES_MAX: usize = 16 * 1024;
/// Longest wait of a `WHOLE_WRITE_BYTES_MAX` write for the stack's thread to refill the chunks, in
/// ns. A busy machine does not keep a thread waiting for a core that long.
pub const CHUNKS_WAIT_NS_MAX: u64 = 100_000_000;
/// Interval at which a poll asks the kernel for the application's other descriptors while its stack
/// is busy or looks for work, in ns. A small part of a wake-up's time, and some ten turns.
pub const KERNEL_ASKED_EVERY_NS: u64 = 20_000;
/// Time that an application may stay away from its stack before the shared watchdog turns it, in
/// ns.
pub const WATCHDOG_TICK_NS: u64 = 5_000_000;

/// Time that an application may stay away from a stack with its own thread (dedicated crank) before
/// that thread turns the stack, in ns.
pub const STACK_THREAD_TICK_NS: u64 = 500_000;
/// Longest use of copies of a stack's descriptors for the sleeps of a leading thread, in ns.
/// Copying takes three system calls for each descriptor.
pub const COPIES_NS_MAX: u64 = 100_000_000;
/// Turns, one a tick, after which the watchdog takes an absent application to be asleep, and turns
/// the stack as often as there is work.
pub const WATCHDOG_SINGLE_TURNS: u32 = 10;
/// Longest wait of an ending context for the watchdog to release copies of its descriptors, in ns.
/// A wake-up takes far less. After a timeout the context's interface may exist a moment longer.
pub const WATCHDOG_LETS_GO_NS_MAX: u64 = 100_000_000;
/// Default time for which a stack without work looks for some before it sleeps, in ns. Longer than
/// a wake-up of the sender, or two stacks would always find each other asleep.
pub const SPIN_NS: u64 = 50_000;
/// Default time for which a dropped runtime waits for its connections to close in order, in ns.
pub const LINGER_NS: u64 = 1_000_000_000;
/// Longest time after that for the resets of the remaining connections to leave, in ns. A full
/// queue of the wire may never drain. Peers whose reset has not left by then hear nothing.
pub const FAREWELL_NS_MAX: u64 = 200_000_000;

/// Interval at which a context copies its values to the statistics file while it turns, in ns.
pub const PUBLISH_NS: u64 = 100_000_000;
/// Interval at which a context copies the counters of its wire, in ns. Reading them may take system
/// calls.
pub const PUBLISH_PORT_NS: u64 = 1_000_000_000;
/// Answers to other processes take at most one part of this many of a busy context's time.
pub const ANSWERS_ONE_IN: u64 = 4;
/// Age of the last activity up to which a connection counts in the histogram of round trips, in ns.
pub const ROUND_TRIP_RECENT_NS: u64 = 1_000_000_000;
/// One turn in this many has its duration measured.
pub const TURNS_PER_MEASURE: u64 = 16;

/// Time for which a capture goes on after the last request for it, in ns. A reader repeats its
/// request; the capture of a reader that has died ends.
pub(crate) const CAPTURE_NS: u64 = 3_000_000_000;
