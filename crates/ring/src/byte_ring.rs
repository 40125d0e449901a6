//! Byte streams between the stack and the application: chains of chunks whose
//! cursors lie in a [`SocketBlock`](crate::socket_block::SocketBlock).
//!
//! ```text
//!   receive: RxWriter (stack) --> RxReader (application)
//!
//!        freed |  read   |  readable   |  out of order, unpublished
//!              first     rx_head       rx_tail            end
//!              [ chunk ]->[ chunk ]->[ chunk ]->[ chunk ]
//!
//!   send: TxWriter (application) --> TxReader (stack)
//!
//!        freed |  sent   |  to send    |  room of the open chunk
//!              tx_una    cursor        tx_tail
//!              [ chunk ]->[ chunk ]->[ chunk = tx_open ]
//! ```
//!
//! Each end is a small plain struct that its owner keeps. A block in use has one end of each kind,
//! made new when the block is opened. Positions count bytes since then, modulo 2^32; a stream never
//! holds 2^31 bytes or more. A cursor is published with Release after the bytes and links before it
//! are in place, and acquired before they are used. The stack frees a chunk only after it has
//! acquired a cursor that lies past the chunk. So the data path needs loads and stores only. Two
//! situations need more:
//!
//! **Receive restart.** When all is read and nothing is held out of order, the stack frees the
//! whole chain, the last chunk too, so that an idle socket holds none. The stack's next write
//! starts a new chain and stores (chunk, counter) in `rx_restart` before it publishes the tail.
//! When the reader sees bytes, it compares the counter with the last one that it has seen, and goes
//! to the new chain if they differ. A restart happens only while the reader has read everything. So
//! it cannot come between the reader's look at the tail and its reading, and two restarts cannot
//! follow each other unseen.
//!
//! **The open send chunk.** The application appends to its last, partly filled chunk, and the stack
//! wants to free that chunk when all is acknowledged. `tx_open` holds the chunk while neither end
//! works on it. An end takes the chunk with one locked instruction: the writer with a swap, the
//! stack with a compare-and-swap, so that every zero that the stack writes is a chunk taken. A
//! writer that finds zero starts a new chain through `tx_restart`, as after opening (so the first
//! write needs no swap). The stack takes the chunk only when all written bytes that it knows of are
//! acknowledged, and looks for more bytes afterwards. If there are more, the chunk is *closed* (it
//! ends where the next chain begins) and freed when they are acknowledged. At most one restart can
//! be unseen, because another one needs another taking.
//!
//! ```text
//!   application                              stack (una == tail)
//!   c = swap(tx_open, 0)                     c = tx_open, compare-and-swap c to 0
//!   c == 0: new chain, store tx_restart      c == 0 or lost: leave it, the writer is at work
//!   append, publish tx_tail                  look at tail and restart again
//!   store tx_open = last chunk               free c, or remember it as closed
//! ```
//!
//! **One file.** The ends hold chunk ids, and no type says which memory file an id belongs to. For
//! as long as a block is open, the caller gives its ends that block and the
//! [`Memory`](crate::memory::Memory) or [`ChunkPool`](crate::chunk::ChunkPool) of the block's file.
//! The [`Magazine`](crate::chunk::Magazine) was filled from that pool alone, and there is one end
//! of each kind. Memory safety depends on this rule, although no function is `unsafe`. A debug
//! build asserts that an id lies within the file. A release build that is handed another file reads
//! and writes out of bounds. Two crates keep the rule: `stack` makes file, pool and magazine
//! together, one of each per context; in `millstream` a context holds them beside the ends.
//!
//! **Lent bytes.** A reader may look at published bytes in place ([`RxReader::front`],
//! [`Memory::lend`](crate::memory::Memory::lend)). The stack writes only past the tail, and frees a
//! chunk only when the head has passed it. So these bytes stay as they are until the reader
//! discards them. The caller must not discard them while it looks.
//!
//! The two ends may be on one thread or on two. When a connection fails while the application may
//! still be writing, the stack frees send chunks by acknowledging everything
//! ([`TxReader::acknowledge`]). Once the application end is gone, the stack calls
//! [`TxReader::release_all`].

mod rx_reader;
mod rx_writer;
mod tx_reader;
mod tx_writer;

pub use rx_reader::RxReader;
pub use rx_writer::RxWriter;
pub use tx_reader::TxReader;
pub use tx_writer::TxWriter;

pub use crate::chunk_format::Front;

use crate::chunk::ChunkId;

/// The word of a restart: the first chunk of the new chain, and a counter that differs from the
/// previous restart's.
#[inline(always)]
fn restart_word(chunk: ChunkId, counter: u32) -> u64 {
    u64::from(chunk.word()) << 32 | u64::from(counter)
}

/// The chunk (an unchecked word) and the counter of a restart word.
#[inline(always)]
fn restart_parts(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}
