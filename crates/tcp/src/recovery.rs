//! Loss recovery: which data is in flight, has arrived, is presumed lost, or must be sent again.
//!
//! [`Recovery`] is the state. Each mechanism has a file here for what concerns the records alone,
//! and often one of the same name in `flight` for what also concerns congestion control and timers:
//!
//! ```text
//!   an ACK ──► scoreboard   SACK and D-SACK blocks into tags (RFC 2018, 2883)
//!          ──► acked        what SEG.ACK covers leaves; round trips (RFC 6298, 7323)
//!          ──► tlp          was the loss probe needed? (RFC 8985 7)
//!          ──► machine      Open, Disorder, CWR, Recovery, Loss
//!                ├─ rack    lost by time (RFC 8985)        ├─ undo   it was not lost after all (RFC 3522, 3708)
//!                ├─ reno    lost by duplicates (RFC 6582)  └─ frto   the timeout was spurious (RFC 5682)
//!          ──► prr          how fast the window shrinks (RFC 6937), or growth
//!          ──► rate         delivery rate
//!          (or whole_flight all of it at once, when the ACK leaves nothing in flight and nothing unusual happened)
//!   a timer ─► timeout      everything old is lost (RFC 6298 5); or rack's, or tlp's
//!   output ──► resend       the next segment to send again
//! ```
//!
//! Segments are counted as in Linux: in flight = out - (SACKed + lost) + retransmitted. The records
//! of single runs are in [`records`](crate::records).

use wire::SeqNumber;

use crate::MILLISECOND_NS;
use crate::conn_flags::ConnFlags;
use crate::pack::{Packing, Usual};
use crate::records::{Chain, Index, NONE, Record, RecordPool, tag};
use crate::timers::Timers;
use crate::variables::Snd;

pub(crate) use crate::congestion_control::CaState;
use rack::Rack;

pub(crate) mod ack;
pub(crate) mod acked;
mod machine;
pub(crate) mod rack;
pub(crate) mod rate;
mod reno;
mod retransmission;
pub(crate) mod scoreboard;
mod timeout;
mod tlp;
mod undo;
pub(crate) mod whole_flight;

/// Flags of [`Recovery`].
pub(crate) mod flag {
    /// `undo_marker` is set: the current reduction may still be undone.
    pub const UNDO: u16 = 1;
    /// `tlp_high_seq` is set: a loss probe is out.
    pub const TLP: u16 = 1 << 1;
    /// The loss probe was a retransmission.
    pub const TLP_RETRANS: u16 = 1 << 2;
    /// F-RTO is testing whether the timeout was spurious.
    pub const FRTO: u16 = 1 << 3;
    /// The receiver dropped data that it had SACKed.
    pub const RENEGING: u16 = 1 << 4;
    /// Lost data may be retransmitted, as far as the window allows.
    pub const SEND_LOST: u16 = 1 << 5;
    /// New data leaves first (F-RTO's test); lost segments only if there is none.
    pub const SEND_NEW: u16 = 1 << 6;
    /// After a timeout: the first segment is retransmitted, whatever the window allows.
    pub const SEND_HEAD: u16 = 1 << 7;
    /// As a loss probe, one new segment leaves regardless of the window.
    pub const PROBE_NEW: u16 = 1 << 8;
    /// As a loss probe, the last segment leaves again regardless of the window.
    pub const PROBE_LAST: u16 = 1 << 9;
    /// The loss in progress was not caused by congestion, and no timeout began it: the path takes
    /// only shorter segments, or the SYN's data did not arrive.
    pub const NOT_CONGESTED: u16 = 1 << 10;
    /// Flags with which there may be something to retransmit or probe.
    pub const SEND: u16 = SEND_LOST | SEND_NEW | SEND_HEAD | PROBE_NEW | PROBE_LAST;
}

/// Input of proportional rate reduction, in segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrrInput {
    /// Segments that the present ACK delivered.
    pub delivered: u32,
    /// Segments delivered since the reduction began.
    pub prr_delivered: u32,
    /// Segments sent since the reduction began.
    pub prr_out: u32,
    /// Segments presumed to be in the network.
    pub in_flight: u32,
    /// The ACK made progress and showed no further loss.
    pub may_catch_up: bool,
}

/// The parts of the connection that recovery may read, besides its own state.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// The send variables.
    pub snd: &'a Snd,
    /// Round trips and timeouts.
    pub timers: &'a Timers,
    /// True if the peer SACKs. Without SACK, duplicate ACKs are counted.
    pub has_sack: bool,
}

impl<'a> View<'a> {
    #[inline]
    pub fn of(snd: &'a Snd, timers: &'a Timers, conn_flags: ConnFlags) -> Self {
        View {
            snd,
            timers,
            has_sack: conn_flags.has(ConnFlags::SACK),
        }
    }
}

/// The purpose of the retransmission deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Pending {
    /// The retransmission timeout (or the persist timer, see `ConnFlags::PERSIST`).
    Timeout,
    /// RACK's reordering timer.
    Reorder,
    /// The tail loss probe.
    Probe,
}

/// A connection's loss recovery.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recovery {
    /// RACK's state.
    rack: Rack,
    /// The records in flight.
    chain: Chain,
    /// No record before this one is lost and not retransmitted; [`NONE`]: search from the head.
    hint: Index,
    /// The record that the highest SACK reached, while that record exists.
    highest: Index,
    /// Segments from SND.UNA to SND.NXT.
    packets_out: u32,
    /// Segments in flight that are SACKed (or, without SACK, counted by duplicate ACKs).
    sacked_out: u32,
    /// Segments in flight that are presumed lost.
    lost_out: u32,
    /// Segments in flight that were retransmitted and are not known to have arrived or to be lost.
    retrans_out: u32,
    /// The part of `retrans_out` that belongs to a lost run which could not be cut behind its
    /// retransmitted part, because no record was free.
    part_out: u32,
    /// The end of that retransmitted part; 0 while `part_out` is 0.
    part_end: SeqNumber,
    /// Segments delivered on this connection, the SYN included. It wraps.
    delivered: u32,
    /// Segments among `delivered` that were acknowledged with ECE. It wraps.
    delivered_ce: u32,
    /// Segments ever marked lost. It wraps.
    lost: u32,
    /// SND.NXT when the state was entered. The state ends when this number is acknowledged.
    high_seq: SeqNumber,
    /// SND.UNA when the window was reduced.
    undo_marker: SeqNumber,
    /// SND.NXT when the loss probe was sent.
    tlp_high_seq: SeqNumber,
    /// The end of the highest SACKed segment, while `sacked_out` > 0.
    highest_sacked: SeqNumber,
    /// Retransmissions that no D-SACK has reported as needless; -1: none was sent yet.
    undo_retrans: i32,
    /// PRR: segments delivered since the reduction began.
    prr_delivered: u32,
    /// PRR: segments sent since the reduction began.
    prr_out: u32,
    /// Our timestamp clock (ms) at the first retransmission of the episode; 0: none.
    retrans_stamp_ms: u32,
    /// Number of times that reordering was seen.
    reord_seen: u32,
    /// Segments that D-SACKs reported as duplicates.
    dsack_dups: u32,
    /// Reordering tolerated, in segments.
    reordering: u16,
    /// Bits of [`flag`].
    flags: u16,
    /// State of the machine.
    ca_state: CaState,
    /// Purpose of the retransmission deadline.
    pending: Pending,
}

const _: () = assert!(size_of::<Recovery>() <= 128);

impl Recovery {
    /// The state of an established connection with nothing in flight.
    pub fn new(una: SeqNumber, reordering: u8) -> Self {
        Recovery {
            rack: Rack::new(una),
            chain: Chain::EMPTY,
            hint: NONE,
            highest: NONE,
            packets_out: 0,
            sacked_out: 0,
            lost_out: 0,
            retrans_out: 0,
            part_out: 0,
            part_end: SeqNumber(0),
            // The segment of the handshake.
            delivered: 1,
            delivered_ce: 0,
            lost: 0,
            high_seq: una,
            undo_marker: una,
            tlp_high_seq: una,
            highest_sacked: una,
            undo_retrans: -1,
            prr_delivered: 0,
            prr_out: 0,
            retrans_stamp_ms: 0,
            reord_seen: 0,
            dsack_dups: 0,
            reordering: u16::from(reordering.max(1)),
            flags: 0,
            ca_state: CaState::Open,
            pending: Pending::Timeout,
        }
    }

    /// Packs the state, if nothing is in flight. Traces of earlier flights remain in it.
    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let Recovery {
            rack,
            chain,
            hint,
            highest,
            packets_out,
            sacked_out,
            lost_out,
            retrans_out,
            part_out,
            part_end,
            delivered,
            delivered_ce,
            lost,
            high_seq,
            undo_marker,
            tlp_high_seq,
            highest_sacked,
            undo_retrans,
            prr_delivered,
            prr_out,
            retrans_stamp_ms,
            reord_seen,
            dsack_dups,
            reordering,
            flags,
            ca_state,
            pending,
        } = self;
        if p.must(*chain == Chain::EMPTY && *hint == NONE && *highest == NONE) {
            (*chain, *hint, *highest, part_end.0) = (Chain::EMPTY, NONE, NONE, 0);
        }
        let counts = [packets_out, sacked_out, lost_out, retrans_out, part_out];
        if p.must(counts.iter().all(|count| **count == 0)) {
            counts.into_iter().for_each(|count| *count = 0);
        }
        p.u32(delivered, 1);
        rack.pack(p, *delivered, usual);
        p.u32(delivered_ce, 0);
        p.u32(lost, 0);
        p.seq(high_seq, usual.first);
        p.seq(undo_marker, *high_seq);
        p.seq(tlp_high_seq, *high_seq);
        p.seq(highest_sacked, *high_seq);
        let mut retrans = undo_retrans.wrapping_add(1) as u32;
        p.u32(&mut retrans, 0);
        *undo_retrans = (retrans as i32).wrapping_sub(1);
        p.u32(prr_delivered, 0);
        p.u32(prr_out, 0);
        p.u32(retrans_stamp_ms, 0);
        p.u32(reord_seen, 0);
        p.u32(dsack_dups, 0);
        p.u16(reordering, 3);
        p.u16(flags, 0);
        p.one_of(
            ca_state,
            &[
                CaState::Open,
                CaState::Disorder,
                CaState::Cwr,
                CaState::Recovery,
                CaState::Loss,
            ],
        );
        p.one_of(
            pending,
            &[Pending::Timeout, Pending::Reorder, Pending::Probe],
        );
    }

    /// Segments that have left the network without being acknowledged.
    #[inline]
    pub fn left_out(&self) -> u32 {
        self.sacked_out + self.lost_out
    }

    /// Segments presumed to be in the network.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        (self.packets_out + self.retrans_out).saturating_sub(self.left_out())
    }

    /// True if any of `flags` is set.
    #[inline]
    pub fn any(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    /// Sets or clears `flags`.
    #[inline]
    pub fn put(&mut self, flags: u16, on: bool) {
        if on {
            self.flags |= flags;
        } else {
            self.flags &= !flags;
        }
    }

    /// True while the window is being reduced.
    #[inline]
    pub fn is_reducing(&self) -> bool {
        matches!(self.ca_state, CaState::Cwr | CaState::Recovery)
    }

    /// True in the states before Recovery and Loss.
    #[inline]
    pub fn is_before_recovery(&self) -> bool {
        !matches!(self.ca_state, CaState::Recovery | CaState::Loss)
    }

    /// True if lost segments wait to be retransmitted.
    #[inline]
    pub fn has_lost(&self) -> bool {
        self.lost_out > self.retrans_out
    }

    /// True if every ACK must be examined.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.ca_state != CaState::Open || self.any(flag::TLP | flag::SEND)
    }
}

impl Recovery {
    /// True if the record is the uncut run of which a part was retransmitted.
    #[inline]
    pub(crate) fn is_part_of(&self, record: &Record) -> bool {
        self.part_out > 0
            && record.seq.lt(self.part_end)
            && self.part_end.lt(record.end)
            && record.tags & (tag::LOST | tag::RETRANS) == tag::LOST
    }

    /// Stops counting the retransmitted part of an uncut run. Returns its number of segments if it
    /// belonged to `record`.
    pub(crate) fn take_part(&mut self, record: Option<&Record>) -> u32 {
        let is_its = record.is_some_and(|record| self.is_part_of(record));
        let out = self.part_out;
        self.forget_part();
        if is_its { out } else { 0 }
    }

    /// Forgets the retransmitted part of an uncut run because the run has changed. Whatever of it
    /// is still lost is retransmitted from its start.
    #[inline]
    pub(crate) fn forget_part(&mut self) {
        self.retrans_out -= self.part_out;
        (self.part_out, self.part_end) = (0, SeqNumber(0));
    }

    /// Takes the ACK up to `una` of the first `covered` segments of an uncut run with a
    /// retransmitted part.
    #[cold]
    pub(crate) fn part_acked(&mut self, una: SeqNumber, covered: u32) {
        let gone = match una.ge(self.part_end) {
            true => self.part_out,
            false => covered.min(self.part_out),
        };
        self.part_out -= gone;
        self.retrans_out -= gone;
        if self.part_out == 0 {
            self.part_end = SeqNumber(0);
        }
    }

    /// Counts `count` retransmitted segments.
    pub(crate) fn count_retransmitted(&mut self, now_ns: u64, count: u32) {
        if self.retrans_stamp_ms == 0 {
            self.retrans_stamp_ms = ((now_ns / MILLISECOND_NS) as u32).max(1);
        }
        self.undo_retrans = self.undo_retrans.max(0) + count as i32;
        if self.is_reducing() {
            self.prr_out += count;
        }
    }
}

impl Recovery {
    /// True if the first segment in flight was sent almost a round trip ago.
    pub(crate) fn expects_ack_soon(
        &self,
        timers: &Timers,
        records: &RecordPool,
        now_ns: u64,
    ) -> bool {
        let Some(head) = records.get(self.chain.head) else {
            return false;
        };
        let srtt_ns = timers.rtt().srtt_ns();
        let soon_ns = (srtt_ns / 2).min(MILLISECOND_NS);
        head.sent_ns.saturating_add(srtt_ns) <= now_ns.saturating_add(soon_ns)
    }
}

impl Recovery {
    /// Segments presumed to be in the network.
    #[inline]
    pub(crate) fn segments_in_flight(&self) -> u32 {
        self.in_flight()
    }

    /// Gives all records back, because nothing is in flight any more.
    pub(crate) fn forget_in_flight(&mut self, records: &mut RecordPool) {
        let recovery = &mut *self;
        recovery.chain.clear(records);
        recovery.hint = NONE;
        recovery.highest = NONE;
        recovery.packets_out = 0;
        recovery.sacked_out = 0;
        recovery.lost_out = 0;
        recovery.retrans_out = 0;
        (recovery.part_out, recovery.part_end) = (0, SeqNumber(0));
        recovery.flags = 0;
    }
}

impl Recovery {
    /// Panics unless records, counts and sequence numbers agree; for tests.
    pub fn check_in_flight(&self, records: &RecordPool, view: View<'_>, is_bounded: bool) {
        let recovery = self;
        let mut counts = [0u32; 4];
        let mut at = recovery.chain.head;
        let mut next = None;
        let mut is_part_found = recovery.part_out == 0;
        while let Some(record) = records.get(at) {
            is_part_found |= recovery.is_part_of(record);
            assert!(next.is_none_or(|next| record.seq == next), "{record:?}");
            assert!(record.end.gt(record.seq), "{record:?}");
            let count = record.count();
            counts[0] += count;
            for (i, tag) in [tag::SACKED, tag::LOST, tag::RETRANS].iter().enumerate() {
                counts[i + 1] += if record.has(*tag) { count } else { 0 };
            }
            next = Some(record.end);
            assert!(records.next(at) != NONE || recovery.chain.tail == at);
            at = records.next(at);
        }
        if !view.has_sack {
            counts[1] = recovery.sacked_out;
        }
        let [out, sacked, lost, retrans] = counts;
        assert_eq!(out, recovery.packets_out, "out: {recovery:?}");
        assert_eq!(sacked, recovery.sacked_out, "SACKed: {recovery:?}");
        assert_eq!(lost, recovery.lost_out, "lost: {recovery:?}");
        assert!(is_part_found, "a part of what? {recovery:?}");
        let whole = recovery.retrans_out - recovery.part_out;
        assert_eq!(retrans, whole, "sent again: {recovery:?}");
        assert!(sacked + lost <= out, "{recovery:?}");
        if is_bounded {
            assert!(
                next.is_none_or(|next| next == view.snd.nxt()),
                "{recovery:?}"
            );
            assert_eq!(out == 0, view.snd.una() == view.snd.nxt(), "{recovery:?}");
        }
    }
}

/// Read access for other modules.
impl Recovery {
    /// Segments from SND.UNA to SND.NXT.
    #[inline(always)]
    pub fn packets_out(&self) -> u32 {
        self.packets_out
    }

    /// Segments in flight that are SACKed (or, without SACK, counted by duplicate ACKs).
    #[inline(always)]
    pub fn sacked_out(&self) -> u32 {
        self.sacked_out
    }

    /// Segments in flight that are presumed lost.
    #[inline(always)]
    pub fn lost_out(&self) -> u32 {
        self.lost_out
    }

    /// Segments in flight that were retransmitted and are not known to have arrived or to be lost.
    #[inline(always)]
    pub fn retrans_out(&self) -> u32 {
        self.retrans_out
    }

    /// Segments delivered on this connection, the SYN included. It wraps.
    #[inline(always)]
    pub fn delivered(&self) -> u32 {
        self.delivered
    }

    /// Segments among `delivered` that were acknowledged with ECE. It wraps.
    #[inline(always)]
    pub fn delivered_ce(&self) -> u32 {
        self.delivered_ce
    }

    /// Segments ever marked lost. It wraps.
    #[inline(always)]
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// SND.NXT when the state was entered. The state ends when this number is acknowledged.
    #[inline(always)]
    pub fn high_seq(&self) -> SeqNumber {
        self.high_seq
    }

    /// SND.NXT when the loss probe was sent.
    #[inline(always)]
    pub fn tlp_high_seq(&self) -> SeqNumber {
        self.tlp_high_seq
    }

    /// Our timestamp clock (ms) at the first retransmission of the episode; 0: none.
    #[inline(always)]
    pub fn retrans_stamp_ms(&self) -> u32 {
        self.retrans_stamp_ms
    }

    /// Number of times that reordering was seen.
    #[inline(always)]
    pub fn reord_seen(&self) -> u32 {
        self.reord_seen
    }

    /// Segments that D-SACKs reported as duplicates.
    #[inline(always)]
    pub fn dsack_dups(&self) -> u32 {
        self.dsack_dups
    }

    /// Reordering tolerated, in segments.
    #[inline(always)]
    pub fn reordering(&self) -> u16 {
        self.reordering
    }

    /// State of the machine.
    #[inline(always)]
    pub fn ca_state(&self) -> CaState {
        self.ca_state
    }

    /// Purpose of the retransmission deadline.
    #[inline(always)]
    pub fn pending(&self) -> Pending {
        self.pending
    }
}
