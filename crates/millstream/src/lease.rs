//! The lease that a context holds while it is in use.

use std::sync::Arc;

use packetio::switch::Switch;

/// Held by a context that is in use. The runtime may open the context again when it is gone.
pub(crate) struct Lease {
    /// The switch that the context gets its frames from, and the context's number there.
    pub member: Option<(Arc<Switch>, usize)>,
}

impl Lease {
    /// A socket of the context listens at `port`, or does so no more.
    pub fn listens(&self, port: u16, on: bool) {
        if let Some((switch, index)) = &self.member {
            switch.listens(*index, port, on);
        }
    }
}
