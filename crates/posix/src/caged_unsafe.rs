//! Sockets that move from thread to thread, all at once.

use millstream::Runtime;

use crate::descriptors::Descriptors;
use crate::sockets::Sockets;

/// All sockets of a context, and the context. No handle on any of them is anywhere else, so they
/// may go to another thread together.
pub(crate) struct Caged(Sockets);

// SAFETY: what keeps `Sockets` on one thread are the `Rc`s and cells that its context, sockets and
// polls share. `new` makes the context itself and keeps the only handle, nothing in this crate hands
// out one of a `Sockets` that it holds in a `Caged` (`sockets` is for this crate alone), and no part
// of them refers to a thread: the wire, the stack and the memory they share are used by the watchdog's
// thread, too. So all counts and cells are touched by the thread that holds the `Caged`, and by no
// other.
unsafe impl Send for Caged {}

impl Caged {
    /// Takes a context of the runtime's.
    ///
    /// # Errors
    /// As [`Runtime::context`].
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
