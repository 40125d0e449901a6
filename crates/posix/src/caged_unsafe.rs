//! Sockets that move from thread to thread, all at once.

use millstream::Runtime;

use crate::descriptors::Descriptors;
use crate::sockets::Sockets;

/// All sockets of a context, and the context. No handle on any of them is anywhere else, so they
/// may go to another thread together.
pub(crate) struct Caged(Sockets);

// SAFETY: the `Rc`s and cells that its context, sockets and polls share keep `Sockets` on one
// thread. `new` makes the context itself and keeps the only handle. Nothing in this crate hands out
// a handle of the `Sockets` in a `Caged`: `sockets` is for this crate alone. No part of them refers
// to a thread: the watchdog's thread uses the wire, the stack and the memory that they share, too.
// So only the thread that holds the `Caged` touches the counts and cells.
unsafe impl Send for Caged {}

impl Caged {
    /// Takes a context of the runtime's.
    ///
    /// # Errors
    /// The errors of [`Runtime::context`].
    pub fn new(
        runtime: &Runtime,
        index: usize,
        numbers: Box<dyn Descriptors + Send>,
    ) -> Result<Self, millstream::Error> {
        let context = runtime.context(index)?;
        Ok(Self(Sockets::with_descriptors(context, numbers)))
    }

    /// The sockets. Callers keep no clone of the context.
    pub fn sockets(&mut self) -> &mut Sockets {
        &mut self.0
    }
}
