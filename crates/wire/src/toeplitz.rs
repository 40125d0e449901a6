//! The Toeplitz hash with which network cards spread flows over their queues (Microsoft's
//! receive-side scaling).
//!
//! `stack` computes the hash to choose a local port whose answers arrive on its own queue. The hash
//! is never computed per packet.

use crate::flow::FlowKey;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of a key: 36 of input (IPv6 addresses and ports) and 4 of window.
pub const KEY_LEN: usize = 40;

/// The key of Microsoft's published test vectors, the default of many drivers.
pub const MICROSOFT_KEY: [u8; KEY_LEN] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// A Toeplitz hash with its key.
///
/// ```
/// use std::net::Ipv4Addr;
/// use wire::toeplitz::{MICROSOFT_KEY, Toeplitz};
/// let hash = Toeplitz::new(MICROSOFT_KEY);
/// let (src, dst) = (Ipv4Addr::new(66, 9, 149, 187), Ipv4Addr::new(161, 142, 100, 80));
/// assert_eq!(hash.hash_v4(src, dst, 2794, 1766), 0x51ccc178);
/// ```
#[derive(Clone, Debug)]
pub struct Toeplitz {
    key: [u8; KEY_LEN],
}

impl Toeplitz {
    /// A hash with the key that the network card was given.
    pub const fn new(key: [u8; KEY_LEN]) -> Toeplitz {
        Toeplitz { key }
    }

    /// The hash of a TCP packet over IPv4, with its fields in the packet's order.
    pub fn hash_v4(&self, src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> u32 {
        self.hash_words(&[src.to_bits(), dst.to_bits(), ports(src_port, dst_port)])
    }

    /// The hash of a TCP packet over IPv6, with its fields in the packet's order.
    pub fn hash_v6(&self, src: Ipv6Addr, dst: Ipv6Addr, src_port: u16, dst_port: u16) -> u32 {
        let (src, dst) = (src.to_bits(), dst.to_bits());
        let word = |addr: u128, shift: u32| (addr >> shift) as u32;
        self.hash_words(&[
            word(src, 96),
            word(src, 64),
            word(src, 32),
            word(src, 0),
            word(dst, 96),
            word(dst, 64),
            word(dst, 32),
            word(dst, 0),
            ports(src_port, dst_port),
        ])
    }

    /// The hash that the card computes for packets that the peer of this flow sends.
    pub fn hash_incoming(&self, key: &FlowKey) -> u32 {
        match (key.remote.to_v4(), key.local.to_v4()) {
            (Some(src), Some(dst)) => self.hash_v4(src, dst, key.remote_port, key.local_port),
            _ => {
                let (src, dst) = (key.remote.to_v6(), key.local.to_v6());
                self.hash_v6(src, dst, key.remote_port, key.local_port)
            }
        }
    }

    /// The hashes of a flow for any local port; everything but the local port is hashed once.
    ///
    /// ```
    /// use wire::toeplitz::{MICROSOFT_KEY, Toeplitz};
    /// use wire::{Addr, FlowKey};
    /// let hash = Toeplitz::new(MICROSOFT_KEY);
    /// let key = FlowKey {
    ///     local: Addr::v4([161, 142, 100, 80].into()),
    ///     remote: Addr::v4([66, 9, 149, 187].into()),
    ///     local_port: 1766,
    ///     remote_port: 2794,
    /// };
    /// assert_eq!(hash.by_local_port(&key).hash(1766), hash.hash_incoming(&key));
    /// ```
    pub fn by_local_port(&self, key: &FlowKey) -> ByLocalPort {
        let key = FlowKey {
            local_port: 0,
            ..*key
        };
        // Offset of the local port: behind the addresses and the remote port.
        let port_at = match (key.remote.to_v4(), key.local.to_v4()) {
            (Some(_), Some(_)) => 8 + 2,
            _ => 32 + 2,
        };
        let window = self.key.iter().skip(port_at).chain(&[0; 8]).take(8);
        ByLocalPort {
            rest: self.hash_incoming(&key),
            window: window.fold(0, |word, &byte| word << 8 | u64::from(byte)),
        }
    }

    /// The Toeplitz hash: each set bit of the input selects the 32 key bits that start at the bit's
    /// own position.
    fn hash_words(&self, words: &[u32]) -> u32 {
        let (key, _) = self.key.as_chunks::<4>();
        let mut hash = 0;
        for (&word, window) in words.iter().zip(key.windows(2)) {
            let window = u64::from(u32::from_be_bytes(window[0])) << 32
                | u64::from(u32::from_be_bytes(window[1]));
            for bit in 0..32 {
                let selected = 0u32.wrapping_sub(word >> (31 - bit) & 1);
                hash ^= (window >> (32 - bit)) as u32 & selected;
            }
        }
        hash
    }
}

/// Hashes of one flow by its local port, made by [`Toeplitz::by_local_port`]. The hash is linear:
/// the key bits that the port selects are XORed to the hash of the flow with port 0.
#[derive(Clone, Copy, Debug)]
pub struct ByLocalPort {
    rest: u32,
    /// Key bits from the position of the port's first bit on.
    window: u64,
}

impl ByLocalPort {
    /// The hash that the card computes for this local port.
    pub fn hash(&self, local_port: u16) -> u32 {
        let mut hash = self.rest;
        for bit in 0..16 {
            let selected = 0u32.wrapping_sub(u32::from(local_port >> (15 - bit) & 1));
            hash ^= (self.window >> (32 - bit)) as u32 & selected;
        }
        hash
    }
}

const fn ports(src_port: u16, dst_port: u16) -> u32 {
    (src_port as u32) << 16 | dst_port as u32
}

#[cfg(test)]
mod tests;
