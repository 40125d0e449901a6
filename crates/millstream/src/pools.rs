//! The use of a stack's tables and pools, for an application that monitors itself.

use std::io;

use stack::{Limits, Usage};

use crate::context::Context;

/// A table or a pool: the entries in use, and their total number.
///
/// ```
#[doc = include_str!("doc/context.txt")]
/// let Pool { used, total } = context.pools()?.half_open;
/// assert!(used <= total);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Entries in use.
    pub used: u32,
    /// Entries in all.
    pub total: u32,
}

/// The tables and pools of a context's stack. [`Limits`] says what happens when one is full.
///
/// ```
#[doc = include_str!("doc/context.txt")]
/// assert_eq!(context.pools()?.time_wait.used, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    /// Connections and listeners. Connections that the application has closed count until they end;
    /// sockets count until the application closes them.
    pub sockets: Pool,
    /// Handshakes in progress.
    pub half_open: Pool,
    /// Connections in TIME_WAIT.
    pub time_wait: Pool,
    /// Chunks of 256 bytes for socket buffers.
    pub small_chunks: Pool,
    /// Chunks of 4 KiB for socket buffers.
    pub large_chunks: Pool,
    /// Records of segments in flight.
    pub segment_records: Pool,
    /// Blocks of byte ranges that arrived out of order.
    pub range_blocks: Pool,
    /// Blocks that hold packed state of quiet connections.
    pub packed_blocks: Pool,
}

impl Pools {
    fn of(usage: &Usage, limits: &Limits) -> Self {
        fn count(number: usize) -> u32 {
            u32::try_from(number).unwrap_or(u32::MAX)
        }
        let pool = |used: usize, total: usize| Pool {
            used: count(used),
            total: count(total),
        };
        Self {
            sockets: pool(usage.sockets, limits.sockets_max),
            half_open: pool(usage.half_open, limits.half_open_max),
            time_wait: pool(usage.time_wait, limits.time_wait_max),
            small_chunks: pool(usage.small_chunks as usize, limits.small_chunks),
            large_chunks: pool(usage.large_chunks as usize, limits.large_chunks),
            segment_records: pool(usage.segment_records, limits.segment_records),
            range_blocks: pool(usage.range_blocks, limits.range_blocks),
            packed_blocks: pool(usage.packed_blocks, limits.packed_blocks),
        }
    }
}

impl Context {
    /// The use of the stack's tables and pools.
    ///
    /// # Errors
    /// Errors of waiting for the stack's answer.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let pools = context.pools()?;
    /// assert!(pools.sockets.used < pools.sockets.total);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pools(&self) -> io::Result<Pools> {
        let report = self.report()?;
        Ok(Pools::of(&report.usage, self.limits()))
    }
}
