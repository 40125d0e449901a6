//! The client's side of Fast Open (RFC 7413 section 4.2): the contents of the SYN, and the meaning
//! of the SYN-ACK.
//!
//! Only the first SYN carries the option and data. A retransmitted SYN is plain, because a
//! middlebox may drop the other kind, which must not cost more than one timeout. Data that the
//! SYN-ACK does not acknowledge is sent again at once, and the congestion window stays.

use wire::tcp::FastOpenCookie;

/// The Fast Open part of an active open's first SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenSyn {
    /// The option: a cookie, the request for one, or `None` if no cookie is needed.
    pub option: Option<FastOpenCookie>,
    /// Payload bytes that the SYN may carry: [`FastOpenSyn::bytes_max`] with a cookie or if none is
    /// needed, 0 with a request.
    pub bytes: u16,
}

impl FastOpenSyn {
    /// Payload bytes of a SYN when segments of `mss` bytes are expected to pass. Room for all
    /// options stays free, in case the path adds one, as in Linux.
    #[must_use]
    pub fn bytes_max(mss: u16) -> u16 {
        mss.saturating_sub(wire::limits::TCP_OPTION_BYTES_MAX as u16)
    }
}

/// The result of a Fast Open for the cache of its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenReply {
    /// The peer's MSS, bytes.
    pub mss: u16,
    /// The cookie to use from now on; `None`: a known cookie stays.
    pub cookie: Option<FastOpenCookie>,
    /// The server ignored a request for a cookie: the next request uses the experimental option
    /// (1), or there is none (2); 0: no change.
    pub experimental: u8,
}
