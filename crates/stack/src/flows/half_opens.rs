//! The SYN queue: handshakes that peers began, of all listeners, as compact entries without socket
//! or buffer.
//!
//! At the limit ([`Limits::half_open_max`](crate::limits::Limits)) no entry is made and the SYN is
//! answered with a cookie.

use tcp::half_open::HalfOpen;
use wire::FlowKey;

use crate::flows::slab::Slab;

pub(crate) struct HalfOpenSlot {
    pub key: FlowKey,
    pub hash: u64,
    pub entry: HalfOpen,
    /// The listener. It may have ended by the time the handshake completes.
    pub listener: ListenerId,
}

/// A listener by index and generation, so that a reference to an ended listener is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenerId {
    pub index: u32,
    pub generation: u32,
}

/// See the module's documentation.
pub(crate) type HalfOpens = Slab<HalfOpenSlot>;
