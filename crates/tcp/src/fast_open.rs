//! TCP Fast Open (RFC 7413), what both sides share: settings, keys, and the cookies that a server
//! makes.
//!
//! A cookie is SipHash-2-4 over the client's address and ours under the server's key, as in Linux,
//! so servers that share a key and an address accept each other's cookies. Two keys may be valid.
//! The first makes cookies; both check a returned one; a good cookie of the second key is answered
//! with a new one. `client` and `server` use them for a connection. The stack owns the client's
//! cache of cookies.

use wire::FlowKey;
use wire::siphash::siphash24;
use wire::tcp::FastOpenCookie;

use crate::SECOND_NS;

pub(crate) mod client;
#[cfg(test)]
mod tests;

pub use client::{FastOpenReply, FastOpenSyn};

/// Bytes of the cookies that we make.
const COOKIE_BYTES: usize = 8;

/// Settings of Fast Open; the bits of Linux's `tcp_fastopen`, each by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenSettings {
    /// Open fast where the application asks for it (bit 0).
    pub client: bool,
    /// Take data in SYNs where a listener asks for it (bit 1).
    pub server: bool,
    /// Send data in a SYN without a cookie (bit 2).
    pub client_without_cookie: bool,
    /// Take data in a SYN without a cookie (bit 9).
    pub server_without_cookie: bool,
    /// Every listener opens fast, asked or not (bit 10).
    pub every_listener: bool,
    /// Time for which Fast Open is not tried after it fell into a black hole. It doubles each time;
    /// 0: Fast Open is always tried.
    pub blackhole_timeout_ns: u64,
    /// The keys of the listeners that have none of their own; `None`: a secret of the stack.
    pub keys: Option<FastOpenKeys>,
}

impl FastOpenSettings {
    /// The settings that Linux's `tcp_fastopen` has as a number.
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

    /// The number that stands for these settings in Linux's `tcp_fastopen`.
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

/// The longest that Fast Open stays off after black holes: Linux's sixth doubling of an hour.
pub const BLACKHOLE_NS_MAX: u64 = 64 * 3600 * SECOND_NS;

/// A listener's keys: what makes cookies, and what made them until lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenKeys {
    /// Makes cookies and checks them. Sixteen bytes, as `setsockopt(TCP_FASTOPEN_KEY)` takes them.
    pub primary: [u8; 16],
    /// Checks them too.
    pub backup: Option<[u8; 16]>,
}

/// The reason why a client's Fast Open failed: the values of Linux's `tcpi_fastopen_client_fail`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FastOpenFailure {
    /// The attempt succeeded, or was not requested.
    #[default]
    None = 0,
    /// No cookie was at hand: the SYN asked for one.
    NoCookie = 1,
    /// The SYN-ACK did not acknowledge the SYN's data.
    DataNotAcked = 2,
    /// The SYN was sent again, without data.
    SynRetransmitted = 3,
}

/// The keys' judgement of a cookie in a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Good, and made with the present key.
    Good,
    /// Good, but made with the backup key: the SYN-ACK brings the new one.
    Outdated,
    /// The cookie is not ours.
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
