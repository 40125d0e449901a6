//! The receive buffer's interface: the wall between the connection, which knows sequence numbers,
//! and the buffer, which knows memory.

/// The receive side of one socket, with the payload of the segment at hand. Implemented by the
/// stack.
///
/// ```text
///   published (readable) │ unpublished: rcv.nxt() + offset
///   ─────────────────────┼──────────────────────────────►
///                     rcv.nxt()
/// ```
pub trait RecvBuffer {
    /// Stores `payload[skip..skip + len]` at `offset` bytes past rcv.nxt(), unpublished. Returns
    /// the bytes stored, from the front; fewer than `len` when memory is short.
    fn write_at(&mut self, offset: u32, skip: u32, len: u32) -> u32;

    /// The first `n` unpublished bytes are in order now: the application may read them.
    fn publish(&mut self, n: u32);

    /// Bytes stored at `offset` past rcv.nxt() and beyond will not be published: their memory may
    /// be freed.
    fn forget(&mut self, offset: u32);
}
