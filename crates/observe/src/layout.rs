//! The layout of the statistics file, in 64-bit words of the machine's byte order.
//!
//! ```text
//!  0         header: magic, layout, process, start, counts, sequence, command
//!  64        directory: 4 words per name
//!  TEXT      names, helps and units, 8 bytes a word
//!  VECTORS   one vector per context, and one per port behind its first: 16 words of head, then
//!            values
//! ```
//!
//! The directory only grows while the process lives. A histogram takes `BUCKETS + 1` words: its
//! buckets, then the sum of its values. [`ABSENT`] marks a value that a context does not have.

use crate::limits::{BUCKETS, CONTEXTS_MAX, ENTRIES_MAX, TEXT_BYTES_MAX, VECTOR_WORDS};

/// The first word of the file, in ASCII.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MILLSTAT");
/// Version of the layout. It changes whenever a constant of this module changes.
pub const LAYOUT_VERSION: u64 = 1;

/// Offsets in the header, in words.
pub mod header {
    #![allow(missing_docs)]
    pub const MAGIC: usize = 0;
    pub const LAYOUT: usize = 1;
    /// Sequence number of the directory: odd while the directory is being written.
    pub const EPOCH: usize = 2;
    pub const PID: usize = 3;
    /// Time at which the process began to publish, ns since 1970.
    pub const START_NS: usize = 4;
    pub const ENTRIES: usize = 5;
    pub const TEXT_BYTES: usize = 6;
    pub const COMMAND: usize = 8;
}

/// Offsets in the head of a vector, in words.
pub mod vector {
    #![allow(missing_docs)]
    /// Sequence number of the vector: odd while the vector is being written.
    pub const SEQUENCE: usize = 0;
    /// [`CONTEXT_VALUES`](super::CONTEXT_VALUES) or [`PORT_VALUES`](super::PORT_VALUES) while a
    /// context uses the vector, else 0.
    pub const IN_USE: usize = 1;
    pub const CONTEXT: usize = 2;
    /// Time at which the values were copied, ns of the monotonic clock.
    pub const UPDATED_NS: usize = 3;
    /// In a vector of a port: index of the vector of the port's context.
    pub const OWNER: usize = 4;
    /// The port's number in its context, from 0 on.
    pub const PORT_NUMBER: usize = 5;
    pub const PORT: usize = 8;
    /// The first value.
    pub const VALUES: usize = 16;
}

/// A vector's use: the values of a context and of its first port.
pub const CONTEXT_VALUES: u64 = 1;
/// A vector's use: the values of a port behind the first. It answers no requests.
pub const PORT_VALUES: u64 = 2;
/// The value of a name that a context does not have.
pub const ABSENT: u64 = u64::MAX;
/// Words of a directory entry: three text references (name, help, unit), then kind and offset in
/// one word.
pub const ENTRY_WORDS: usize = 4;
/// First word of the directory.
pub const DIRECTORY: usize = 64;
/// First word of the texts.
pub const TEXT: usize = DIRECTORY + ENTRIES_MAX * ENTRY_WORDS;
/// First word of the vectors.
pub const VECTORS: usize = TEXT + TEXT_BYTES_MAX / 8;
/// Words of the whole file.
pub const FILE_WORDS: usize = VECTORS + CONTEXTS_MAX * VECTOR_WORDS;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value only grows.
    Counter,
    /// The value grows and shrinks.
    Gauge,
    /// Counts of values by power of two, and their sum.
    Histogram,
}

impl Kind {
    /// Words that a value of this kind takes.
    #[must_use]
    pub const fn words(self) -> usize {
        match self {
            Self::Counter | Self::Gauge => 1,
            Self::Histogram => BUCKETS + 1,
        }
    }

    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Counter => 1,
            Self::Gauge => 2,
            Self::Histogram => 3,
        }
    }

    pub(crate) const fn of(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Counter),
            2 => Some(Self::Gauge),
            3 => Some(Self::Histogram),
            _ => None,
        }
    }
}

/// The bucket of a histogram that counts `value`.
#[must_use]
#[inline]
pub const fn bucket_of(value: u64) -> usize {
    let bits = (u64::BITS - value.leading_zeros()) as usize;
    if bits < BUCKETS { bits } else { BUCKETS - 1 }
}

const _: () = assert!(FILE_WORDS <= crate::limits::FILE_WORDS_MAX);
