//! The next retransmission, and the state changes after old or new data has left.

use wire::SeqNumber;

use crate::context::Cx;
use crate::flight::Flight;
use crate::variables::Snd;

impl Flight {
    /// New segments up to `end` have left for the first time, the last with what `tags` say of it.
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
}
