//! A flow's name (its two ends) and the keyed hash under which `stack`'s flow table keeps it.

use crate::addr::Addr;
use crate::siphash::State;

/// Both ends of a TCP flow, seen from here. For a received segment, `local` is the destination.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowKey {
    /// Our address.
    pub local: Addr,
    /// The peer's address.
    pub remote: Addr,
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
}

impl FlowKey {
    /// The same flow seen from the other end.
    #[inline]
    #[must_use]
    pub const fn reversed(&self) -> FlowKey {
        FlowKey {
            local: self.remote,
            remote: self.local,
            local_port: self.remote_port,
            remote_port: self.local_port,
        }
    }
}

/// Hashes flow keys with a secret, so that nobody outside can aim at one bucket. SipHash-1-3: of 12
/// bytes for an IPv4 flow (two words, one round each), of 36 for an IPv6 one.
///
/// ```
/// use std::net::Ipv4Addr;
/// use wire::{Addr, FlowHasher, FlowKey};
/// let hasher = FlowHasher::new([1, 2]);
/// let key = FlowKey {
///     local: Addr::from(Ipv4Addr::new(10, 0, 0, 1)),
///     remote: Addr::from(Ipv4Addr::new(10, 0, 0, 2)),
///     local_port: 80,
///     remote_port: 40000,
/// };
/// assert_eq!(hasher.hash(&key), hasher.hash(&key));
/// assert_ne!(hasher.hash(&key), hasher.hash(&key.reversed()));
/// ```
#[derive(Clone)]
pub struct FlowHasher {
    state: State<1, 3>,
}

impl FlowHasher {
    /// A hasher with its secret.
    #[inline]
    pub const fn new(secret: [u64; 2]) -> FlowHasher {
        FlowHasher {
            state: State::new(secret),
        }
    }

    /// The hash of a flow. All 64 bits are good.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        let ports = u64::from(key.local_port) | u64::from(key.remote_port) << 16;
        let (local, remote) = (key.local.bits(), key.remote.bits());
        let mut state = self.state;
        if key.local.is_v4() && key.remote.is_v4() {
            state.word(u64::from(local as u32) | u64::from(remote as u32) << 32);
            return state.finish(ports, 12);
        }
        for addr in [local, remote] {
            state.word((addr >> 64) as u64);
            state.word(addr as u64);
        }
        state.finish(ports, 36)
    }
}

#[cfg(test)]
mod tests;
