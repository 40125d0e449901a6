//! The client's side of a Fast Open (RFC 7413 section 4.2).

use crate::connection::Connection;
use crate::context::Cx;
use crate::fast_open::FastOpenFailure;
use crate::fast_open::client::{FastOpenReply, FastOpenSyn};
use crate::marks::Marks;
use crate::segment::Segment;

impl Connection {
    /// The SYN that is due opens fast.
    pub(crate) fn open_fast(&mut self, syn: &FastOpenSyn) {
        self.cold.fast_open = syn.option;
        self.cold.syn_bytes_max = syn.bytes;
        if syn.option.is_some_and(|option| option.is_request()) {
            self.cold.fast_open_failure = FastOpenFailure::NoCookie;
        }
    }

    /// No SYN, or SYN-ACK of a Fast Open, has left yet.
    pub(crate) fn is_first_syn(&self) -> bool {
        !self.cold.is_syn_sent
    }

    /// Payload bytes that the first SYN takes along if it leaves now.
    pub(crate) fn syn_payload(&self) -> u32 {
        u32::from(self.cold.syn_bytes_max).min(self.snd.buffered)
    }

    /// True if this SYN-ACK answers a Fast Open, or a request for a cookie, and acknowledges our
    /// whole SYN. It may carry text (RFC 7413 4.1.2).
    pub(crate) fn is_fast_open_answered(&self, seg: &Segment) -> bool {
        let opens_fast = self.cold.fast_open.is_some() || self.cold.syn_bytes_max > 0;
        opens_fast && seg.ack == self.snd.nxt
    }

    /// The SYN is acknowledged. SND.UNA and SND.NXT tell whether its data was taken: counts the
    /// data, or sends it again.
    pub(crate) fn note_syn_data(&mut self, cx: &mut Cx<'_>) {
        if self.cold.syn_bytes == 0 {
            return;
        }
        if self.snd.flight() == 0 {
            cx.counters.fast_opens_active += 1;
            // After crossing SYNs Linux does not report it.
            self.marks
                .put(Marks::SYN_DATA_ACKED, self.cold.syn_bytes_max > 0);
            return;
        }
        cx.counters.fast_opens_active_failed += 1;
        self.cold.fast_open_failure = if self.tx.total_retrans > 0 {
            FastOpenFailure::SynRetransmitted
        } else {
            FastOpenFailure::DataNotAcked
        };
        self.resend_syn_data(cx);
    }

    /// The entry that the cache learns from `seg`, the SYN-ACK of an active open. `None`: no Fast
    /// Open was tried.
    #[must_use]
    pub fn fast_open_reply(&self, seg: &Segment) -> Option<FastOpenReply> {
        let cold = &self.cold;
        if cold.fast_open.is_none() && cold.syn_bytes_max == 0 {
            return None;
        }
        // A cookie that we did not ask for is not believed.
        let asked = cold.fast_open.is_some();
        let cookie = seg
            .options
            .fast_open
            .filter(|cookie| asked && !cookie.is_request());
        let retried = self.tx.total_retrans > 0;
        let ignored = asked && !retried && cookie.is_none() && cold.syn_bytes == 0;
        let was_experimental = cold.fast_open.is_some_and(|option| option.experimental);
        Some(FastOpenReply {
            mss: seg.options.mss.unwrap_or(self.tx.peer_mss),
            cookie,
            experimental: u8::from(ignored) << u8::from(was_experimental),
        })
    }

    /// Payload of a SYN was acknowledged by the SYN-ACK (Linux's `TCPI_OPT_SYN_DATA`).
    #[must_use]
    pub fn syn_data_acked(&self) -> bool {
        self.marks.has(Marks::SYN_DATA_ACKED)
    }

    /// True for timeouts that suggest a black hole for Fast Open: the SYN itself, or the segment
    /// after it, is lost repeatedly. `expired`: the connection gives up.
    pub(crate) fn suspects_fast_open(&self, expired: bool) -> bool {
        let opened_fast = self.cold.fast_open.is_some() || self.cold.syn_bytes > 0;
        let timeouts = self.tx.retransmits;
        opened_fast && (timeouts == 2 || (timeouts < 2 && expired))
    }
}
