//! Records of segments that left for the first time.

use wire::SeqNumber;

use crate::context::Cx;
use crate::flight::Flight;
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
}
