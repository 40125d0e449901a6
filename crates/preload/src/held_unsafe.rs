//! The wrapper that lets several threads use a context, one at a time.

use posix::Sockets;

/// Sockets that stay behind the engine's lock.
pub struct Held(Sockets);

// SAFETY: a context is bound to one thread because its parts share counts and cells without
// atomics. All of them are reached through this value alone, which stands behind the engine's lock.
// None is handed out, and neither they nor the stack use storage of a thread's own. The lock orders
// what one thread did before what the next one does.
unsafe impl Send for Held {}

impl Held {
    /// Wraps the sockets of a context.
    pub fn new(sockets: Sockets) -> Self {
        Self(sockets)
    }

    /// The sockets, for as long as the lock is held.
    pub fn sockets(&mut self) -> &mut Sockets {
        &mut self.0
    }
}
