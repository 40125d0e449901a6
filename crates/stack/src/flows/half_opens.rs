//! The SYN queue: handshakes that peers began, over all listeners, as compact entries without a
//! socket or a buffer.
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
    /// Index of the listener, and its generation: it may be gone when the handshake completes.
    pub listener: ListenerId,
}

/// A listener as others remember it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenerId {
    pub index: u32,
    pub generation: u32,
}

/// See the module's documentation.
pub(crate) type HalfOpens = Slab<HalfOpenSlot>;
