//! Sockets that move from thread to thread, all of them together.

use millstream::Runtime;

use crate::descriptors::Descriptors;
use crate::sockets::Sockets;

/// A context with all of its sockets. There are no other handles on them, so they can move to
/// another thread together.
pub(crate) struct Caged(Sockets);

// SAFETY: the `Rc`s and cells that a context shares with its sockets and polls keep `Sockets` on
// one thread. `new` makes the context and keeps the only handle. Nothing in this crate hands out a
// handle of the `Sockets` in a `Caged`: `sockets` is private to this crate. No part of them depends
// on a thread; even the watchdog's thread uses the wire, the stack and their memory. So only the
// thread that holds the `Caged` touches the counts and cells.
unsafe impl Send for Caged {}

impl Caged {
    /// Takes context `index` of the runtime.
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

    /// The sockets. Callers must not keep a clone of the context.
    pub fn sockets(&mut self) -> &mut Sockets {
        &mut self.0
    }
}
