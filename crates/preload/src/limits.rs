//! Every limit, with its name.

/// Descriptors that may be Millstream's. A socket with a number from here on stays the kernel's.
pub const FDS_MAX: usize = 1 << 16;
/// Lowest number of the library's own descriptors, if the process's limit allows it, so that the
/// program finds the low numbers free.
pub const OWN_FDS_FROM: i32 = 800;
/// Soft limit of descriptors while the library opens its own, if the program's soft limit is lower
/// and may be raised.
pub const OWN_FDS_MAX: u64 = 1024;
/// Longest value of a socket option that is read; further bytes are ignored.
pub const OPTION_LEN_MAX: usize = 4096;
/// Bytes that `sendfile` moves at once.
pub const SENDFILE_BYTES: usize = 64 << 10;
/// Bytes that `splice` moves at once: the default capacity of a pipe.
pub const SPLICE_BYTES: usize = 64 << 10;
/// Pieces of one `readv` or `writev` (`UIO_MAXIOV`). More fail with `EINVAL`, as in Linux.
pub const PIECES_MAX: usize = 1024;
/// Entries of one `poll` that includes sockets of Millstream's. More fail with `EINVAL`.
pub const POLL_FDS_MAX: usize = 1 << 16;
/// Interval at which a call looks again for something that no event announces, in ns.
pub const UNANNOUNCED_NS: u64 = 5_000_000;
/// Turns of the stack that a call takes for its requests while another thread leads. The leader
/// does the remainder.
pub const VISITOR_TURNS_MAX: usize = 4;
/// Interval at which a deputy looks whether the thread that is expected to lead stays away, in ns;
/// also the longest interval between two wake-ups of the leader in a busy program. A look takes
/// some microseconds.
pub const DEPUTY_TICK_NS: u64 = 500_000;
/// Longest absence of a thread that is soon back in its wait, in ns: some wake-ups of another
/// thread. A thread with several sockets to answer may stay away for [`DEPUTY_TICK_NS`].
pub const ABSENCE_NS_MAX: u64 = 100_000;
/// Interval at which a wait on an epoll with sockets of both sides asks the kernel, in ns, unless
/// its sleep has told of events there. A small part of a wake-up's time.
pub const KERNEL_ASKED_EVERY_NS: u64 = 20_000;
/// Looks at the process's lock before a thread sleeps for it, some 10 µs together: the time of a
/// turn of the stack that sends frames.
pub const LOCK_TRIES: u32 = 128;
/// Pauses of the processor between two such looks.
pub const LOCK_PAUSES: u32 = 4;
/// Pauses of the processor between two looks for work of a thread beside others, so that they find
/// the lock free: several of their looks at it.
pub const LOOK_PAUSES: u32 = 32;
/// Time for which the end of a process waits for peers to acknowledge its data, in ns. The kernel
/// would go on sending after the process is gone.
pub const END_NS: u64 = 30_000_000_000;
/// Time for which the end of a process waits itself before an heir takes over, in ns. Most
/// connections deliver everything by then, within a round trip or two.
pub const HEIR_AFTER_NS: u64 = 20_000_000;
/// Longest life of an heir in s, somewhat more than [`END_NS`]. A signal then ends the heir. The
/// next program on the same wire and address waits that long at most.
pub const HEIR_LIFE_S: u32 = 35;
/// Largest resident memory of a program that may have an heir, in bytes. A larger program waits for
/// its connections itself, since the machine may need the memory.
pub const HEIR_MEMORY_BYTES_MAX: u64 = 512 << 20;
/// Instructions of a program's packet filter that stay on a socket behind a tag. Behind a longer
/// one the socket gets no tag.
pub const FILTER_MAX: usize = 256;
/// Instructions of a packet filter (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;
/// Variables of the environment that a child of `vfork` passes on, with the library's own. A
/// program with more variables gets no listeners of a `mux` wire from such a child.
pub const VFORK_VARIABLES_MAX: usize = 1024;
/// Connections that are under way over UNIX sockets at once. A further one is one of another
/// process to its receiver.
pub const PASSES_MAX: usize = 1024;
/// Highest signal number.
pub const SIGNALS_MAX: usize = 64;
