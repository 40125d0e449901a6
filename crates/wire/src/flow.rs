//! A flow's name (its two ends) and the keyed hash under which `stack`'s flow table keeps it.

use crate::addr::Addr;
use crate::siphash::siphash24_words;

/// Both ends of a TCP flow, seen from this host. For a received segment, `local` is the
/// destination.
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
    /// True if both keys name the same flow: `==` without a branch, for callers that compare keys
    /// once per packet.
    #[inline]
    #[must_use]
    pub const fn is_same(&self, other: &FlowKey) -> bool {
        let (a, b) = (self.local.words(), other.local.words());
        let (c, d) = (self.remote.words(), other.remote.words());
        let addresses = (a[0] ^ b[0]) | (a[1] ^ b[1]) | (c[0] ^ d[0]) | (c[1] ^ d[1]);
        let ports = (self.local_port ^ other.local_port) | (self.remote_port ^ other.remote_port);
        addresses | ports as u64 == 0
    }

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

/// Hashes flow keys with a secret, so that an outsider cannot aim at one bucket.
///
/// Two rounds of NH, the universal hash of UMAC (RFC 4418 section 5.2.2) in 64-bit words. A secret
/// is added to every word, and the words are multiplied in pairs into 128 bits. The halves of the
/// second round's product are folded into one. Both address families take the same path.
///
/// The proven property: for any two keys chosen without the secret, the probability that a round
/// gives both the same 128 bits is at most 2^-64. It is not proven that bits picked out of the
/// folded product (a bucket, a tag) are as evenly spread. Tests check that for the keys that load
/// generators send. The hash is no pseudo-random function: an observer of hashes could solve for
/// the secrets. Neither a hash nor a value derived from one may therefore leave the stack, and this
/// type prints nothing.
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
    /// One secret for each word of a key, and two for the second round.
    secrets: [u64; 8],
}

impl FlowHasher {
    /// A hasher with this secret.
    #[must_use]
    pub fn new(secret: [u64; 2]) -> FlowHasher {
        FlowHasher {
            secrets: core::array::from_fn(|at| siphash24_words(secret, &[at as u64])),
        }
    }

    /// The hash of a flow. All 64 bits may be used.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        let [a, b, c, d, e, f, g, h] = self.secrets;
        let (local, remote) = (key.local.words(), key.remote.words());
        let ports = u64::from(key.local_port) | u64::from(key.remote_port) << 16;
        let first = product(local[0].wrapping_add(a), local[1].wrapping_add(b))
            .wrapping_add(product(
                remote[0].wrapping_add(c),
                remote[1].wrapping_add(d),
            ))
            .wrapping_add(product(ports.wrapping_add(e), f));
        let second = product(
            (first as u64).wrapping_add(g),
            ((first >> 64) as u64).wrapping_add(h),
        );
        second as u64 ^ (second >> 64) as u64
    }
}

#[inline(always)]
fn product(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

#[cfg(test)]
mod tests;
