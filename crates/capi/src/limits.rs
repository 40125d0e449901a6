//! The limits of libmtcp; those of a stack are Millstream's.

/// Contexts of a process. `num_cores` may not be larger.
pub const CONTEXTS_MAX: usize = millstream::limits::CONTEXTS_MAX;
/// Descriptors of a context unless `max_concurrency` says otherwise: mTCP's default.
pub const CONCURRENCY_DEFAULT: i32 = 10_000;
/// The largest `max_concurrency`: a descriptor's number takes 20 bits.
pub const CONCURRENCY_MAX: i32 = 1 << 20;
/// The smallest: one socket, which can only call.
pub const CONCURRENCY_MIN: i32 = 1;
/// Socket buffers of a context unless `max_num_buffers` says otherwise: mTCP's default.
pub const BUFFERS_DEFAULT: i32 = 10_000;
/// The least that a socket's buffer may be set to, in bytes.
pub const BUFFER_BYTES_MIN: i32 = 64;
/// The most, in bytes.
pub const BUFFER_BYTES_MAX: i32 = 1 << 30;
/// Memory for socket buffers that a context never has less of, and that `max_num_buffers` never
/// gives more of: chunks of 4 KiB.
pub const CHUNKS: (usize, usize) = (16_384, 262_144);
/// Hosts that one line of `arp.conf` may name.
pub const NEIGHBOURS_PER_LINE_MAX: u32 = 256;
/// Local ports for outgoing connections, as mTCP had them.
pub const LOCAL_PORTS: (u16, u16) = (1_025, 65_535);
/// Pieces of one vectored call (`IOV_MAX`); more are `EINVAL`.
pub const PIECES_MAX: usize = 1_024;
/// Bytes that one call moves at most, as in Linux (`MAX_RW_COUNT`).
pub const BYTES_PER_CALL_MAX: usize = 0x7fff_f000;
/// Entries of one `mtcp_poll`; more are `EINVAL`.
pub const POLL_ENTRIES_MAX: usize = 1 << 20;
/// Bytes of an option's value that are looked at.
pub const OPTION_BYTES_MAX: usize = 4_096;
