//! The client's side (RFC 7413 section 4.2): the contents of the SYN, and the meaning of the
//! SYN-ACK.
//!
//! Only the first SYN carries the option and data. A retransmitted SYN is plain, because a
//! middlebox may drop others and must not cost more than a round trip. Data that the SYN-ACK does
//! not acknowledge is sent again at once, and the congestion window stays.

use wire::tcp::FastOpenCookie;

/// The Fast Open part of an active open's first SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenSyn {
    /// The option: a cookie, the request for one, or nothing when none is needed.
    pub option: Option<FastOpenCookie>,
    /// Payload bytes that the SYN may carry: [`FastOpenSyn::bytes_max`] with a cookie or without
    /// need of one, 0 with a request.
    pub bytes: u16,
}

impl FastOpenSyn {
    /// Bytes that a SYN carries when segments of `mss` bytes are believed to fit. Room for all
    /// options stays free, in case one is added on the way, as in Linux.
    #[must_use]
    pub fn bytes_max(mss: u16) -> u16 {
        mss.saturating_sub(wire::limits::TCP_OPTION_BYTES_MAX as u16)
    }
}

/// The result of a Fast Open for the cache of its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenReply {
    /// The peer's MSS.
    pub mss: u16,
    /// The cookie to use from now on; `None`: the known one, if any, stays.
    pub cookie: Option<FastOpenCookie>,
    /// A request was ignored: the next one is to use the experimental option (1), or not any more
    /// (2); 0: nothing of that kind.
    pub experimental: u8,
}
