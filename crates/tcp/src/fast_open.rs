//! Parts of TCP Fast Open (RFC 7413) that both sides use: settings, keys, and the cookies that a
//! server makes.
//!
//! A cookie is SipHash-2-4 over the client's address and ours under the server's key, as in Linux,
//! so servers that share a key and an address accept each other's cookies. Two keys may be valid.
//! The first makes cookies, and both check them; a good cookie of the second key is answered with a
//! new one. The client's part is in `client`, the server's in `connection::fast_open`. The stack
//! owns the client's cache of cookies.

use wire::FlowKey;
use wire::siphash::siphash24;
use wire::tcp::FastOpenCookie;

use crate::SECOND_NS;

pub(crate) mod client;
#[cfg(test)]
mod tests;

pub use client::{FastOpenReply, FastOpenSyn};

/// Bytes of a cookie that we make.
const COOKIE_BYTES: usize = 8;

/// Settings of Fast Open: the bits of Linux's `tcp_fastopen` by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenSettings {
    /// Clients may use Fast Open where the application asks for it (bit 0).
    pub client: bool,
    /// Servers take data in SYNs where a listener asks for it (bit 1).
    pub server: bool,
    /// Clients send data in a SYN without a cookie (bit 2).
    pub client_without_cookie: bool,
    /// Servers take data in a SYN without a cookie (bit 9).
    pub server_without_cookie: bool,
    /// Every listener uses Fast Open, asked or not (bit 10).
    pub every_listener: bool,
    /// Time for which Fast Open is not tried after it met a black hole. It doubles each time; 0:
    /// Fast Open is always tried.
    pub blackhole_timeout_ns: u64,
    /// Keys of the listeners that have none of their own; `None`: the stack draws a secret key.
    pub keys: Option<FastOpenKeys>,
}

impl FastOpenSettings {
    /// These settings with the switches of a value of Linux's `tcp_fastopen`.
    #[must_use]
    pub fn with_bits(self, bits: u32) -> FastOpenSettings {
        FastOpenSettings {
            client: bits & 1 != 0,
            server: bits & 2 != 0,
            client_without_cookie: bits & 4 != 0,
            server_without_cookie: bits & 0x200 != 0,
            every_listener: bits & 0x400 != 0,
            ..self
        }
    }

    /// The value of Linux's `tcp_fastopen` for these switches.
    #[must_use]
    pub fn bits(&self) -> u32 {
        u32::from(self.client)
            | u32::from(self.server) << 1
            | u32::from(self.client_without_cookie) << 2
            | u32::from(self.server_without_cookie) << 9
            | u32::from(self.every_listener) << 10
    }
}

impl Default for FastOpenSettings {
    fn default() -> Self {
        FastOpenSettings {
            client: true,
            server: false,
            client_without_cookie: false,
            server_without_cookie: false,
            every_listener: false,
            blackhole_timeout_ns: 0,
            keys: None,
        }
    }
}

/// Longest time for which black holes keep Fast Open off: Linux's sixth doubling of an hour.
pub const BLACKHOLE_NS_MAX: u64 = 64 * 3600 * SECOND_NS;

/// A listener's keys: the present one and the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenKeys {
    /// Key that makes cookies and checks them: 16 bytes, as `setsockopt(TCP_FASTOPEN_KEY)` takes
    /// them.
    pub primary: [u8; 16],
    /// Key that only checks cookies.
    pub backup: Option<[u8; 16]>,
}

/// The reason why a client's Fast Open failed: the values of Linux's `tcpi_fastopen_client_fail`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FastOpenFailure {
    /// The attempt succeeded, or was not requested.
    #[default]
    None = 0,
    /// No cookie was known, so the SYN requested one.
    NoCookie = 1,
    /// The SYN-ACK did not acknowledge the SYN's data.
    DataNotAcked = 2,
    /// The SYN was sent again, without data.
    SynRetransmitted = 3,
}

/// Judgement of a cookie in a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The cookie was made with the present key.
    Good,
    /// The cookie was made with the backup key: the SYN-ACK brings a new one.
    Outdated,
    /// The cookie is not from this server.
    Bad,
}

impl FastOpenKeys {
    /// A set of one key.
    #[must_use]
    pub fn new(primary: [u8; 16]) -> FastOpenKeys {
        FastOpenKeys {
            primary,
            backup: None,
        }
    }

    /// The cookie for the client of `flow`.
    #[must_use]
    pub fn cookie(&self, flow: &FlowKey, experimental: bool) -> FastOpenCookie {
        let bytes = mac(&self.primary, flow);
        FastOpenCookie::new(&bytes)
            .unwrap_or(FastOpenCookie::REQUEST)
            .with_experimental(experimental)
    }

    /// Judges the cookie that the client of `flow` presents.
    #[must_use]
    pub fn judge(&self, flow: &FlowKey, cookie: &FastOpenCookie) -> Verdict {
        if cookie.as_slice() == mac(&self.primary, flow) {
            return Verdict::Good;
        }
        match &self.backup {
            Some(backup) if cookie.as_slice() == mac(backup, flow) => Verdict::Outdated,
            _ => Verdict::Bad,
        }
    }
}

fn mac(key: &[u8; 16], flow: &FlowKey) -> [u8; COOKIE_BYTES] {
    let number = u128::from_le_bytes(*key);
    let key = [number as u64, (number >> 64) as u64];
    let hash = match (flow.remote.to_v4(), flow.local.to_v4()) {
        (Some(client), Some(server)) => {
            let mut path = [0; 8];
            path[..4].copy_from_slice(&client.octets());
            path[4..].copy_from_slice(&server.octets());
            siphash24(key, &path)
        }
        _ => {
            let mut path = [0; 32];
            path[..16].copy_from_slice(flow.remote.octets());
            path[16..].copy_from_slice(flow.local.octets());
            siphash24(key, &path)
        }
    };
    hash.to_le_bytes()
}
