//! The data of our SYN: it was taken with the SYN, or is sent again (RFC 7413 4.2).

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::fast_open::FastOpenFailure;
use crate::flight::Flight;
use crate::opening::Opening;
use crate::timers::Timers;
use crate::variables::Snd;

impl Flight {
    /// Handles the data of a SYN that is acknowledged. SND.UNA and SND.NXT tell whether the data
    /// was taken: it is counted, or sent again.
    pub(crate) fn note_syn_data(
        &mut self,
        cx: &mut Cx<'_>,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
        opening: &mut Opening,
        timers: &Timers,
    ) {
        if opening.syn_bytes() == 0 {
            return;
        }
        if snd.flight() == 0 {
            cx.counters.fast_opens_active += 1;
            // After crossing SYNs Linux does not report the data as acknowledged.
            conn_flags.put(ConnFlags::SYN_DATA_ACKED, opening.syn_bytes_max() > 0);
            return;
        }
        cx.counters.fast_opens_active_failed += 1;
        opening.fail_fast_open(if self.delivery.segments_retrans() > 0 {
            FastOpenFailure::SynRetransmitted
        } else {
            FastOpenFailure::DataNotAcked
        });
        self.retransmit_syn_data(cx, conn_flags, snd, timers);
    }
}
