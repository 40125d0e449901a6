//! ECN on an established connection: the codepoints that leave, and the marks that arrive.

use wire::Ecn;
use wire::tcp::Flags;

use crate::connection::Connection;
use crate::context::Cx;
use crate::ecn::EcnMode;
use crate::segment::{Segment, SegmentOut};

mod classic;
mod feedback;
mod handshake;
mod option;
mod received;

impl Connection {
    /// True if both sides use ECN of either kind, or ECN is requested.
    #[inline]
    pub(crate) fn uses_ecn(&self) -> bool {
        !self.snd.ecn.is_off()
    }

    /// Flags, codepoint and option of any segment without SYN. `fresh` = it carries data never sent
    /// before.
    #[inline]
    pub(crate) fn dress(&mut self, cx: &Cx<'_>, out: &mut SegmentOut, fresh: bool) {
        match self.snd.ecn.mode() {
            EcnMode::Off | EcnMode::Pending => {}
            EcnMode::Classic => self.ecn.dress_classic(out, fresh),
            EcnMode::Accurate => self.dress_accurate(cx, out),
        }
    }

    /// The codepoint of a segment whose text was taken, RCV.NXT having moved.
    #[inline]
    pub(crate) fn note_codepoint(&mut self, cx: &mut Cx<'_>, codepoint: Ecn) {
        match self.snd.ecn.mode() {
            EcnMode::Off | EcnMode::Pending => {}
            EcnMode::Classic => self.note_codepoint_classic(cx, codepoint),
            EcnMode::Accurate => self.note_codepoint_accurate(cx, codepoint),
        }
    }

    /// True if the ACK reports a mark in the classic way.
    #[inline]
    pub(crate) fn sees_ece(&self, seg: &Segment) -> bool {
        self.snd.ecn.is_classic() && seg.has(Flags::ECE) && !seg.has(Flags::SYN)
    }
}
