//! Reports beyond RCV.NXT: selective acknowledgments (RFC 2018) and duplicates (RFC 2883), in
//! Linux's order. Reported data is given up when memory is short, which RFC 2018 section 8 allows.

use wire::SeqNumber;
use wire::tcp::{SackBlock, SackBlocks};

use crate::buffers::{Memory, window_of};
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::limits::SACK_BLOCKS_MAX;
use crate::reassembly::Range;
use crate::receive::Receiver;
use crate::recv_buffer::RecvBuffer;
use crate::variables::Rcv;

impl Receiver {
    /// Notes that `left..right` is a duplicate. It extends the range to be reported if the two
    /// touch.
    pub(crate) fn note_duplicate(
        &mut self,
        cx: &Cx<'_>,
        left: SeqNumber,
        right: SeqNumber,
        conn_flags: &mut ConnFlags,
    ) {
        if !conn_flags.has(ConnFlags::SACK) || !cx.config.dsack || left == right {
            return;
        }
        let new = Range { left, right };
        if !conn_flags.has(ConnFlags::DSACK) {
            conn_flags.set(ConnFlags::DSACK);
            self.begin_duplicate(new);
        } else {
            self.extend_duplicate(new);
        }
    }

    /// Lets the next ACK report `left..right` as the only duplicate.
    pub(crate) fn report_duplicate(
        &mut self,
        cx: &Cx<'_>,
        left: SeqNumber,
        right: SeqNumber,
        conn_flags: &mut ConnFlags,
    ) {
        conn_flags.clear(ConnFlags::DSACK);
        self.note_duplicate(cx, left, right, conn_flags);
    }

    /// Takes `left..right`, which arrived now; a FIN counts as a byte. The parts that are held
    /// already are reported as duplicates, and so is a FIN that is held.
    pub(crate) fn note_duplicates(
        &mut self,
        cx: &Cx<'_>,
        left: SeqNumber,
        right: SeqNumber,
        conn_flags: &mut ConnFlags,
    ) {
        if !conn_flags.has(ConnFlags::SACK) {
            return;
        }
        let (held, mut fin) = (*self.held(), self.held_fin(*conn_flags));
        let mut note = |range: Range| {
            let (from, to) = (range.left.max(left), range.right.min(right));
            if from.lt(to) {
                self.note_duplicate(cx, from, to, conn_flags);
            }
        };
        let fin_at = |left: SeqNumber| Range {
            left,
            right: left + 1,
        };
        for range in held.iter(cx.ranges) {
            if range.left.ge(right) {
                break;
            }
            if let Some(at) = fin.take_if(|at| at.lt(range.left)) {
                note(fin_at(at));
            }
            note(range);
        }
        if let Some(at) = fin {
            note(fin_at(at));
        }
    }

    /// The SACK blocks of a segment that leaves now: the duplicate first, then the newest (RFC 2883
    /// section 4, RFC 2018 section 4). Blocks that do not fit beside a timestamp are cut when the
    /// options are written.
    pub(crate) fn take_sack_blocks(&self, cx: &Cx<'_>, conn_flags: &mut ConnFlags) -> SackBlocks {
        let mut blocks = SackBlocks::EMPTY;
        let mut count = 0;
        let mut push = |range: &Range| {
            if count < SACK_BLOCKS_MAX {
                count += 1;
                blocks.push(SackBlock {
                    left: range.left,
                    right: range.right,
                });
            }
        };
        if conn_flags.has(ConnFlags::DSACK) {
            conn_flags.clear(ConnFlags::DSACK);
            push(&self.duplicate());
        }
        for range in self.held().recent(cx.ranges).as_slice() {
            push(range);
        }
        blocks
    }

    /// Makes room in a buffer that holds more memory than it should. The buffer grows if it may.
    /// Otherwise data beyond gaps is dropped, the furthest first and never data before `seq`. False
    /// if that does not help.
    pub(crate) fn make_room(
        &mut self,
        cx: &mut Cx<'_>,
        seq: SeqNumber,
        rx: &mut impl RecvBuffer,
        conn_flags: &mut ConnFlags,
        rcv: &Rcv,
    ) -> bool {
        if cx.memory >= Memory::Pressure {
            self.shed_beyond(cx, seq, rx, conn_flags, rcv);
        }
        if !self.is_overfull() {
            return true;
        }
        cx.counters.receive_pruned += 1;
        self.end_quick_acks();
        if !self.tuning.is_locked() && cx.memory == Memory::Ample {
            let most = cx.config.recv_buffer.bytes_max;
            self.grow_to_charged(most);
        }
        let out_of_order = self.held().bytes(cx.ranges);
        let bytes = self.unread().saturating_add(out_of_order);
        // Linux packs buffers that are filled less well than the peer's usual segments fill them.
        // Text in order without a gap is stored without packing, in memory that Linux sets aside in
        // advance.
        let is_wasteful = window_of(i64::from(self.charged()), self.ratio()) > i64::from(bytes);
        let is_undisturbed = out_of_order == 0 && seq.le(rcv.nxt());
        if is_wasteful || is_undisturbed {
            self.squeeze(bytes);
        }
        if self.is_overfull() {
            self.drop_ssthresh();
            self.shed_beyond(cx, seq, rx, conn_flags, rcv);
        }
        !self.is_overfull()
    }

    /// Drops ranges that start beyond `seq`, the furthest first, an eighth of the buffer's worth at
    /// a time. A range loses as many whole segments from its end as needed.
    fn shed_beyond(
        &mut self,
        cx: &mut Cx<'_>,
        seq: SeqNumber,
        rx: &mut impl RecvBuffer,
        conn_flags: &mut ConnFlags,
        rcv: &Rcv,
    ) -> bool {
        let before = self.held().bytes(cx.ranges);
        let goal = before.saturating_sub(self.full_space() / 8);
        let mut edge = None;
        while let Some(last) = self.held().last(cx.ranges)
            && last.left.ge(seq)
            && (self.held().bytes(cx.ranges) > goal || self.is_overfull() || edge.is_none())
        {
            let bytes = self.held().bytes(cx.ranges);
            let held = self.unread() + bytes;
            let wanted = bytes.saturating_sub(goal).max(self.bytes_too_many(held));
            let segment = u32::from(self.peer_segment().max(1));
            let cut = wanted.max(1).next_multiple_of(segment).min(last.len());
            let left = last.left + (last.len() - cut);
            self.held_mut().truncate(cx.ranges, left);
            self.discharge(held, held - cut);
            edge = Some(left);
        }
        let Some(edge) = edge else { return false };
        cx.counters.bytes_out_of_order_shed += u64::from(before - self.held().bytes(cx.ranges));
        self.forget_from(cx, edge, rx, conn_flags, rcv);
        true
    }

    pub(crate) fn forget_from(
        &mut self,
        cx: &mut Cx<'_>,
        edge: SeqNumber,
        rx: &mut impl RecvBuffer,
        conn_flags: &mut ConnFlags,
        rcv: &Rcv,
    ) {
        rx.forget(edge.since(rcv.nxt()));
        if conn_flags.has(ConnFlags::FIN_HELD) && self.fin_seq().ge(edge) {
            // A held FIN is dropped too. The peer sends it again, whether or not it was reported.
            conn_flags.clear(ConnFlags::FIN_HELD);
        }
        self.refresh_out_of_order(cx, conn_flags);
    }
}
