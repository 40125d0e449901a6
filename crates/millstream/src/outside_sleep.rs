//! A sleep outside of a context: for layers that let several threads use one context, one at a
//! time, and sleep without holding it.
//!
//! Called by `preload`. A context is armed, left alone while its thread sleeps on copies of the
//! port's descriptors, and disarmed.

use std::io;

use crate::context::Context;
use crate::crank::{Armed, Step};

impl Context {
    /// Turns the stack, and prepares a sleep if there was nothing to do; `None`: look again. Until
    /// [`disarm`](Self::disarm) the watchdog leaves the stack to the caller, unless another call
    /// was made on the context. The caller then ends the sleep and arms again.
    ///
    /// # Errors
    /// `NetworkDown` if the wire is gone for good; the kernel's, of copies of descriptors.
    pub fn arm(&self) -> io::Result<Option<Armed>> {
        let mut crank = self.inner.crank();
        crank.enter();
        let step = match crank.step() {
            Ok(step) => step,
            Err(error) => {
                crank.leave();
                return Err(error);
            }
        };
        if self.inner.drain_events() || step != Step::Idle {
            return Ok(None);
        }
        let armed = crank.arm(|| !self.inner.state().side.events.is_empty());
        if armed.is_err() {
            crank.leave();
        }
        armed
    }

    /// Ends a sleep that [`arm`](Self::arm) prepared, and turns the stack.
    ///
    /// # Errors
    /// `NetworkDown` if the wire is gone for good.
    pub fn disarm(&self) -> io::Result<()> {
        let turned = {
            let mut crank = self.inner.crank();
            crank.disarm();
            let turned = crank.step();
            crank.leave();
            turned
        };
        self.inner.drain_events();
        turned.map(|_| ())
    }
}
