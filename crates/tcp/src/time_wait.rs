//! TIME_WAIT as a compact entry (RFC 9293 section 3.10.7.4, RFC 1337, RFC 6191), and FIN_WAIT_2 of
//! a connection without an application, which becomes TIME_WAIT when the peer's FIN arrives
//! (`fin_wait_2`).
//!
//! `Connection::time_wait` gives the values. The stack owns the entries, keyed by flow. Entries in
//! TIME_WAIT are in a list ordered by [`TimeWait::deadline_ns`]: a call leaves the deadline
//! unchanged or moves the entry to the end of the list. There is no timer function, because an
//! entry is simply removed at its deadline.

use wire::SeqNumber;
use wire::tcp::{Flags, Options, Timestamp};

use crate::challenge::AckGate;
use crate::context::Cx;
use crate::handshake::TimeWaitEntry;
use crate::isn::timestamp_value;
use crate::limits::{TS_RECENT_AGE_MAX, coarse};
use crate::listen::SynRequest;
use crate::segment::{Segment, SegmentOut};

mod fin_wait_2;
#[cfg(test)]
mod tests;

/// The action that the stack must take after a segment of a connection in TIME_WAIT.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum TimeWaitOutcome {
    /// Take no action.
    Drop,
    /// Send this ACK.
    Ack(SegmentOut),
    /// A RST ended the entry early. RFC 1337 advises to ignore it
    /// (`Config::time_wait_outlives_resets`); RFC 9293 and Linux's default do not.
    Gone,
    /// The peer sends data that nothing reads. Remove the entry, and answer as for a segment
    /// without a connection, with a RST.
    Reset,
    /// A new connection may take the flow over. Remove the entry, and if a listener matches, go on
    /// as for [`ListenOutcome::Syn`](crate::listen::ListenOutcome::Syn), with an ISS from
    /// [`isn_above`](crate::isn::IsnGenerator::isn_above) `iss_floor`.
    Reuse {
        /// The contents of the SYN.
        syn: SynRequest,
        /// SND.NXT of the old incarnation.
        iss_floor: SeqNumber,
    },
}

/// A connection in TIME_WAIT, or in FIN_WAIT_2 without an application; 40 bytes.
#[derive(Clone, Debug)]
pub struct TimeWait {
    deadline_ns: u64,
    snd_nxt: SeqNumber,
    rcv_nxt: SeqNumber,
    rcv_wnd: u32,
    ts_recent: u32,
    ts_recent_at: u32,
    ts_offset: u32,
    gate: AckGate,
    window: u16,
    timestamps: bool,
    fin_wait_2: bool,
    ecn_capable: bool,
}

const _: () = assert!(size_of::<TimeWait>() <= 48);

impl From<TimeWaitEntry> for TimeWait {
    fn from(entry: TimeWaitEntry) -> TimeWait {
        let TimeWaitEntry {
            fin_wait_2,
            ecn_capable,
            snd_nxt,
            rcv_nxt,
            rcv_wnd,
            window,
            timestamps,
            ts_recent,
            ts_recent_at,
            ts_offset,
            deadline_ns,
        } = entry;
        TimeWait {
            deadline_ns,
            snd_nxt,
            rcv_nxt,
            rcv_wnd,
            ts_recent,
            ts_recent_at,
            ts_offset,
            gate: AckGate::default(),
            window,
            timestamps,
            fin_wait_2,
            ecn_capable,
        }
    }
}

impl TimeWait {
    /// The entry that replaces a connection.
    #[must_use]
    pub fn new(entry: &TimeWaitEntry) -> TimeWait {
        TimeWait::from(*entry)
    }

    /// True in FIN_WAIT_2: the peer's FIN has not come.
    #[must_use]
    pub fn is_fin_wait_2(&self) -> bool {
        self.fin_wait_2
    }

    /// Time at which the entry ends, ns.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Moves the end to `deadline_ns` at the earliest, so that sorted lists of entries stay sorted.
    pub fn wait_until(&mut self, deadline_ns: u64) {
        self.deadline_ns = self.deadline_ns.max(deadline_ns);
    }

    /// Takes a segment of this flow.
    pub fn on_segment(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> TimeWaitOutcome {
        if self.fin_wait_2 {
            return self.in_fin_wait_2(cx, seg);
        }
        if seg.has(Flags::RST) {
            return self.on_reset(cx, seg);
        }
        if seg.has(Flags::SYN) {
            return self.on_syn(cx, seg);
        }
        if !seg.has(Flags::ACK) {
            cx.counters.drop_no_ack += 1;
            return TimeWaitOutcome::Drop;
        }
        self.restart(cx);
        if self.is_old(cx.now_ns, seg) {
            cx.counters.drop_paws += 1;
            return self.acknowledge(cx, seg);
        }
        if seg.seq_len() == 0 && seg.seq == self.rcv_nxt {
            // A bare ACK at its place reports nothing and gets no answer.
            self.note_timestamp(cx, seg);
            return TimeWaitOutcome::Drop;
        }
        if self.is_retransmitted_fin(seg) {
            // The only segment that should arrive: our last ACK was lost.
            cx.counters.time_wait_fins_in += 1;
        } else {
            cx.counters.drop_outside_window += 1;
        }
        self.acknowledge(cx, seg)
    }

    /// Restarts the wait. RFC 9293 3.10.7.4 asks for that on the peer's FIN; Linux does it on every
    /// segment that is acknowledged, because more segments may be on their way.
    fn restart(&mut self, cx: &Cx<'_>) {
        self.deadline_ns = cx.now_ns + cx.config.time_wait_ns;
    }

    /// Takes a RST: only the exact number resets. RFC 5961 3.2 would challenge another number in
    /// the window. Linux stays silent, which protects this state just as well.
    fn on_reset(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> TimeWaitOutcome {
        if seg.seq == self.rcv_nxt && !cx.config.time_wait_outlives_resets {
            cx.counters.resets_in += 1;
            return TimeWaitOutcome::Gone;
        }
        if self.in_window(seg.seq) {
            cx.counters.drop_reset_in_window += 1;
        } else {
            cx.counters.drop_reset_outside_window += 1;
        }
        TimeWaitOutcome::Drop
    }

    /// Takes a SYN: a new incarnation (RFC 6191 section 2), or an old duplicate. RFC 6191 does not
    /// answer a duplicate. RFC 9293 and Linux send an ACK; a peer that meant the SYN then resets us
    /// and tries again.
    fn on_syn(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> TimeWaitOutcome {
        let is_plain = !seg.flags.intersects(Flags::ACK | Flags::FIN);
        if is_plain && self.may_be_reused(cx, seg) {
            return TimeWaitOutcome::Reuse {
                syn: SynRequest::of(seg),
                iss_floor: self.snd_nxt,
            };
        }
        cx.counters.drop_syn_synchronized += 1;
        if seg.has(Flags::ACK) || self.is_old(cx.now_ns, seg) {
            self.restart(cx);
        }
        self.challenge(cx)
    }

    fn may_be_reused(&self, cx: &Cx<'_>, seg: &Segment) -> bool {
        let is_beyond = seg.seq.ge(self.rcv_nxt);
        let Some(timestamp) = seg.options.timestamp.filter(|_| cx.config.timestamps) else {
            return is_beyond;
        };
        if !self.timestamps || self.ts_recent_is_aged(cx.now_ns) {
            return true;
        }
        let (new, last) = (SeqNumber(timestamp.value), SeqNumber(self.ts_recent));
        new.gt(last) || (new == last && is_beyond)
    }

    /// True if the timestamp is too old (PAWS, RFC 7323 5.3 R1), unless TS.Recent is so old that
    /// the peer's clock may have wrapped (5.5).
    fn is_old(&self, now_ns: u64, seg: &Segment) -> bool {
        let Some(timestamp) = seg.options.timestamp else {
            return false;
        };
        self.timestamps
            && SeqNumber(timestamp.value).lt(SeqNumber(self.ts_recent))
            && !self.ts_recent_is_aged(now_ns)
    }

    fn ts_recent_is_aged(&self, now_ns: u64) -> bool {
        coarse(now_ns).wrapping_sub(self.ts_recent_at) > TS_RECENT_AGE_MAX
    }

    fn note_timestamp(&mut self, cx: &Cx<'_>, seg: &Segment) {
        if let Some(timestamp) = seg.options.timestamp
            && self.timestamps
            && seg.seq.le(self.rcv_nxt)
        {
            self.ts_recent = timestamp.value;
            self.ts_recent_at = coarse(cx.now_ns);
        }
    }

    /// True for a repetition of the peer's FIN, alone or behind data that has arrived.
    fn is_retransmitted_fin(&self, seg: &Segment) -> bool {
        seg.has(Flags::FIN) && seg.end() == self.rcv_nxt
    }

    fn in_window(&self, seq: SeqNumber) -> bool {
        seq == self.rcv_nxt || seq.in_window(self.rcv_nxt, self.rcv_wnd)
    }

    /// Acknowledges a segment that is out of place. Answers to empty segments and SYNs are limited
    /// to one per interval, or two ends in TIME_WAIT could answer each other for ever. A FIN or
    /// data is never an answer to our ACK.
    fn acknowledge(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> TimeWaitOutcome {
        if seg.seq_len() == 0 || seg.has(Flags::SYN) {
            return self.challenge(cx);
        }
        TimeWaitOutcome::Ack(self.ack(cx))
    }

    /// Sends an ACK, if the limits allow it, in answer to a SYN that is not accepted.
    pub fn challenge(&mut self, cx: &mut Cx<'_>) -> TimeWaitOutcome {
        if !self
            .gate
            .allow(cx.now_ns, cx.config.invalid_ack_interval_ns)
            || !cx.challenge.allow(cx.now_ns, cx.config)
        {
            cx.counters.challenge_acks_limited += 1;
            return TimeWaitOutcome::Drop;
        }
        cx.counters.challenge_acks_out += 1;
        TimeWaitOutcome::Ack(self.ack(cx))
    }

    fn ack(&self, cx: &Cx<'_>) -> SegmentOut {
        let timestamp = self.timestamps.then(|| Timestamp {
            value: timestamp_value(cx.now_ns, self.ts_offset),
            echo: self.ts_recent,
        });
        SegmentOut {
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags: Flags::ACK,
            window: self.window,
            options: Options {
                timestamp,
                ..Options::default()
            },
            ..SegmentOut::empty()
        }
    }
}
