//! The ledger: an application's list of its connections. If the application dies, the service
//! resets their peers by it.
//!
//! This module defines the layout. The service makes the memory and shares it with the application,
//! so the list survives the application. The application writes an entry when a connection begins
//! and frees it when the connection is gone. The service reads the list only after the
//! application's death.
//!
//! ```text
//! entry, 40 bytes:  family (0: free, 4, 6)  u32 │ local port u16 │ remote port u16 │ local [16] │ remote [16]
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

#[allow(unsafe_code)]
mod file_unsafe;

pub use file_unsafe::LedgerFile;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 40;

/// The local and the remote end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The application's end.
    pub local: SocketAddr,
    /// The peer's end, of the same family.
    pub remote: SocketAddr,
}

impl Entry {
    /// The entry as bytes.
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let family: u32 = if self.local.is_ipv4() { 4 } else { 6 };
        bytes[..4].copy_from_slice(&family.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.local.port().to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.remote.port().to_ne_bytes());
        put(&mut bytes[8..24], self.local.ip());
        put(&mut bytes[24..], self.remote.ip());
        bytes
    }

    /// Decodes an entry; `None` if it is free or invalid.
    pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let [f0, f1, f2, f3, l0, l1, r0, r1, ..] = *bytes;
        let family = u32::from_ne_bytes([f0, f1, f2, f3]);
        let end = |at: usize, port: [u8; 2]| {
            let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
            let [a, b, c, d, ..] = octets;
            let address = match family {
                4 => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
                6 => IpAddr::V6(Ipv6Addr::from(octets)),
                _ => return None,
            };
            Some(SocketAddr::new(address, u16::from_ne_bytes(port)))
        };
        Some(Self {
            local: end(8, [l0, l1])?,
            remote: end(24, [r0, r1])?,
        })
    }
}

fn put(room: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(address) => room[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => room.copy_from_slice(&address.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_survives_its_encoding() {
        for (local, remote) in [
            ("10.0.0.1:80", "192.0.2.9:40000"),
            ("[fd00::1]:80", "[2001:db8::2]:65535"),
        ] {
            let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
            let entry = Entry { local, remote };
            assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        }
    }

    #[test]
    fn free_entry_and_unknown_family_are_no_connection() {
        assert_eq!(Entry::decode(&[0; ENTRY_BYTES]), None);
        assert_eq!(Entry::decode(&[9; ENTRY_BYTES]), None);
    }
}
