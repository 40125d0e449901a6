//! The limits of libmtcp. Millstream's limits hold for each stack.

/// Contexts of a process, and largest `num_cores`.
pub const CONTEXTS_MAX: usize = millstream::limits::CONTEXTS_MAX;
/// Descriptors of a context unless `max_concurrency` is set: mTCP's default.
pub const CONCURRENCY_DEFAULT: i32 = 10_000;
/// Largest `max_concurrency`: a descriptor's number has 20 bits.
pub const CONCURRENCY_MAX: i32 = 1 << 20;
/// Least `max_concurrency`: one socket, which can only connect.
pub const CONCURRENCY_MIN: i32 = 1;
/// Socket buffers of a context unless `max_num_buffers` is set: mTCP's default.
pub const BUFFERS_DEFAULT: i32 = 10_000;
/// Least size of a socket's buffer that can be set, in bytes.
pub const BUFFER_BYTES_MIN: i32 = 64;
/// Largest size of a socket's buffer that can be set, in bytes.
pub const BUFFER_BYTES_MAX: i32 = 1 << 30;
/// Least and largest number of 4 KiB chunks of a context, whatever `max_num_buffers` says.
pub const CHUNKS: (usize, usize) = (16_384, 262_144);
/// Hosts that one line of `arp.conf` may name.
pub const NEIGHBOURS_PER_LINE_MAX: u32 = 256;
/// Range of local ports for outgoing connections, as in mTCP.
pub const LOCAL_PORTS: (u16, u16) = (1_025, 65_535);
/// Pieces of one vectored call (`IOV_MAX`). More fail with `EINVAL`.
pub const PIECES_MAX: usize = 1_024;
/// Bytes that one call moves at most, as in Linux (`MAX_RW_COUNT`).
pub const BYTES_PER_CALL_MAX: usize = 0x7fff_f000;
/// Entries of one `mtcp_poll`. More fail with `EINVAL`.
pub const POLL_ENTRIES_MAX: usize = 1 << 20;
/// Bytes of an option's value that are read; further ones are ignored.
pub const OPTION_BYTES_MAX: usize = 4_096;
