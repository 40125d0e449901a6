//! Where payload goes: the wall between the connection, which knows sequence numbers, and the receive
//! buffer, which knows memory.

/// The receive side of one socket, with the payload of the segment at hand. Implemented by the stack.
///
/// ```text
///   published (readable) │ unpublished: rcv.nxt + offset
///   ─────────────────────┼──────────────────────────────►
///                     rcv.nxt
/// ```
pub trait RecvBuffer {
    /// Stores `payload[skip..skip + len]` at `offset` bytes past rcv.nxt, unpublished. Returns the bytes
    /// stored, from the front; fewer than `len` when memory is short.
    fn write_at(&mut self, offset: u32, skip: u32, len: u32) -> u32;

    /// The first `n` unpublished bytes are in order now: the application may read them.
    fn publish(&mut self, n: u32);

    /// What is stored `offset` bytes past rcv.nxt and further will not be published: its memory may go.
    fn forget(&mut self, offset: u32);
}
