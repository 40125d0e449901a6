//! The client's side of a Fast Open (RFC 7413 section 4.2).

use crate::connection::Connection;
use crate::fast_open::client::FastOpenReply;
use crate::marks::Marks;
use crate::segment::Segment;

impl Connection {
    /// The entry that the cache learns from `seg`, the SYN-ACK of an active open. `None`: no Fast
    /// Open was tried.
    #[must_use]
    pub fn fast_open_reply(&self, seg: &Segment) -> Option<FastOpenReply> {
        let opening = &self.opening;
        if opening.fast_open().is_none() && opening.syn_bytes_max() == 0 {
            return None;
        }
        // A cookie that we did not ask for is not believed.
        let asked = opening.fast_open().is_some();
        let cookie = seg
            .options
            .fast_open
            .filter(|cookie| asked && !cookie.is_request());
        let retried = self.flight.delivery().segments_retrans() > 0;
        let ignored = asked && !retried && cookie.is_none() && opening.syn_bytes() == 0;
        let was_experimental = opening
            .fast_open()
            .is_some_and(|option| option.experimental);
        Some(FastOpenReply {
            mss: seg.options.mss.unwrap_or(self.path.peer_mss()),
            cookie,
            experimental: u8::from(ignored) << u8::from(was_experimental),
        })
    }

    /// Payload of a SYN was acknowledged by the SYN-ACK (Linux's `TCPI_OPT_SYN_DATA`).
    #[must_use]
    pub fn syn_data_acked(&self) -> bool {
        self.marks.has(Marks::SYN_DATA_ACKED)
    }
}
