//! State changes after new data has left, and after old data has left again.

use wire::SeqNumber;

use crate::context::Cx;
use crate::flight::Flight;
use crate::flight::send_parts::SendParts;
use crate::recovery::{Pending, flag};
use crate::variables::Snd;

impl Flight {
    /// Notes that new segments up to `end` have left for the first time; `tags` describe the last
    /// one.
    #[inline(always)]
    pub(crate) fn note_sent_new(
        &mut self,
        cx: &mut Cx<'_>,
        end: SeqNumber,
        tags: u16,
        snd: &mut Snd,
    ) {
        self.recovery
            .note_sent_new(cx.records, snd, &mut self.delivery, end, tags);
        snd.advance(end);
    }

    /// Notes that `len` bytes from `seq` on, and the FIN behind them, have left again.
    #[cold]
    pub(crate) fn note_sent_again(
        &mut self,
        cx: &mut Cx<'_>,
        seq: SeqNumber,
        len: u32,
        fin: bool,
        parts: &mut SendParts<'_>,
    ) {
        if self.recovery.any(flag::PROBE_LAST) && !self.recovery.any(flag::SEND_HEAD) {
            self.note_probe_retransmitted(cx, seq, *parts.conn_flags, parts.snd, parts.timers);
            self.note_probe_sent(
                cx,
                true,
                parts.state,
                parts.conn_flags,
                parts.snd,
                parts.timers,
            );
            return;
        }
        let end = seq + len + u32::from(fin);
        let is_head =
            self.note_retransmitted(cx, seq, end, *parts.conn_flags, parts.snd, parts.timers);
        if is_head && !self.recovery.is_pending(Pending::Reorder) {
            self.restart_retransmit_timer(
                cx,
                parts.state,
                *parts.conn_flags,
                parts.snd,
                parts.timers,
            );
        }
    }
}
