//! Every limit, with its name.

/// Descriptors that may be Millstream's. A socket with a larger number stays with the kernel.
pub const FDS_MAX: usize = 1 << 16;
/// Descriptors of the library's own are numbered from here on, where the limit of the process
/// allows it, so that the program finds the low numbers free.
pub const OWN_FDS_FROM: i32 = 800;
/// The limit of descriptors while the library opens its own, if the program's is lower and may be
/// raised.
pub const OWN_FDS_MAX: u64 = 1024;
/// The longest value of a socket option that is looked at.
pub const OPTION_LEN_MAX: usize = 4096;
/// Bytes that `sendfile` moves at once.
pub const SENDFILE_BYTES: usize = 64 << 10;
/// Bytes that `splice` moves at once: a pipe's usual room.
pub const SPLICE_BYTES: usize = 64 << 10;
/// Pieces of one `readv` or `writev` (`UIO_MAXIOV`); more are `EINVAL`, as in Linux.
pub const PIECES_MAX: usize = 1024;
/// Entries of one `poll` with descriptors of both; more are `EINVAL`.
pub const POLL_FDS_MAX: usize = 1 << 16;
/// How often a call looks again that waits for something which no event announces, ns.
pub const UNANNOUNCED_NS: u64 = 5_000_000;
/// Turns of the stack that a call takes for what it asked for while another thread sleeps on the
/// wire. That one does the remainder.
pub const VISITOR_TURNS_MAX: usize = 4;
/// How long the end of a process waits for data that its peers have not acknowledged, ns. The
/// kernel would go on sending it after the process is gone.
pub const END_NS: u64 = 30_000_000_000;
/// How long the end of a process waits itself, ns, before an heir takes its connections over. Most
/// have delivered everything by then, within a round trip or two.
pub const HEIR_AFTER_NS: u64 = 20_000_000;
/// The longest life of an heir, s: somewhat more than [`END_NS`]. A signal ends one that still
/// runs. A program that starts on the same wire and address waits as long at most.
pub const HEIR_LIFE_S: u32 = 35;
/// The most memory of a program that an heir may keep. The end of a larger one waits for its
/// connections, since the machine may need the memory.
pub const HEIR_MEMORY_BYTES_MAX: u64 = 512 << 20;
/// The largest number of a signal.
pub const SIGNALS_MAX: usize = 64;
