//! The switch that makes a stack the twin that takes no shortcut: every frame is read by the
//! general parsers and built by the general builder, and every effect takes the long way.
//!
//! With the feature `twin`, tests switch it for the stacks of their thread, and compare both ways.
//! Without it the answer is a constant, and the guards cost nothing. What the shortcuts gain stands
//! in decision 0063.

#[cfg(feature = "twin")]
use std::cell::Cell;

#[cfg(feature = "twin")]
use crate::flows::Flows;

#[cfg(feature = "twin")]
thread_local! {
    static TAKEN: Cell<bool> = const { Cell::new(true) };
}

/// Switches the shortcuts of all stacks of this thread, also of connections that begin later.
#[cfg(feature = "twin")]
pub fn set_shortcuts(on: bool) {
    TAKEN.set(on);
}

/// True if shortcuts are taken.
#[cfg(feature = "twin")]
pub(crate) fn are_taken() -> bool {
    TAKEN.get()
}

/// True if shortcuts are taken.
#[cfg(not(feature = "twin"))]
#[inline(always)]
pub(crate) const fn are_taken() -> bool {
    true
}

/// Tells a new connection whether it takes its own shortcuts.
#[cfg(feature = "twin")]
pub(crate) fn tell(flows: &mut Flows, socket: u32) {
    if let Some(conn) = flows.sockets.slot(socket).conn.as_mut() {
        conn.set_shortcuts(are_taken());
    }
}
