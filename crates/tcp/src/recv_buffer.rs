//! The interface of the receive buffer. It separates the connection, which knows sequence numbers,
//! from the buffer, which knows memory.

/// The receive side of one socket, with the payload of the segment at hand. Implemented by the
/// stack.
///
/// ```text
///   published (readable) │ unpublished: rcv.nxt() + offset
///   ─────────────────────┼──────────────────────────────►
///                     rcv.nxt()
/// ```
pub trait RecvBuffer {
    /// Stores `payload[skip..skip + len]` at `offset` bytes past `rcv.nxt()`, unpublished. Returns
    /// the number of bytes stored, from the front; fewer than `len` when memory is short.
    fn write_at(&mut self, offset: u32, skip: u32, len: u32) -> u32;

    /// Publishes the first `n` unpublished bytes, which are in order now, to the application.
    fn publish(&mut self, n: u32);

    /// Drops the bytes stored at `offset` past `rcv.nxt()` and beyond. They will not be published,
    /// so their memory may be freed.
    fn forget(&mut self, offset: u32);
}
