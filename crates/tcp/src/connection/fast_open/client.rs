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

    /// This SYN-ACK is the answer to a Fast Open, be it to the request for a cookie, and acknowledges all of our SYN: it may bear text (RFC 7413 4.1.2).
    pub(crate) fn is_fast_open_answered(&self, seg: &Segment) -> bool {
        let opens_fast = self.cold.fast_open.is_some() || self.cold.syn_bytes_max > 0;
        opens_fast && seg.ack == self.snd.nxt
    }

    /// The SYN is acknowledged; SND.UNA and SND.NXT say what became of its data: counts it, or has it sent again.
    pub(crate) fn note_syn_data(&mut self, cx: &mut Cx<'_>) {
        if self.cold.syn_bytes == 0 {
            return;
        }
        if self.snd.flight() == 0 {
            cx.counters.fast_opens_active += 1;
            // After a crossing Linux does not say so.
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

    /// After the SYN-ACK `seg` of an active open: what the cache is to learn of it. `None`: this was no Fast Open.
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

    /// Timeouts that look as if Fast Open had fallen into a black hole: the SYN itself, or what came after it, is lost again and
    /// again. `expired`: the connection gives up.
    pub(crate) fn suspects_fast_open(&self, expired: bool) -> bool {
        let opened_fast = self.cold.fast_open.is_some() || self.cold.syn_bytes > 0;
        let timeouts = self.tx.retransmits;
        opened_fast && (timeouts == 2 || (timeouts < 2 && expired))
    }
}
