//! The connection's variables, cut by how often they are touched, with the RFC's names.
//!
//! ```text
//!   sent and acknowledged │ in flight │ may be sent │ not yet        received │ may arrive │ not yet
//!   ──────────────────────┼───────────┼─────────────┼───────►        ─────────┼────────────┼───────►
//!                      snd.una     snd.nxt  snd.una + snd.wnd              rcv.nxt      rcv.adv
//! ```
//!
//! [`Snd`] and [`Rcv`] share the hot line with the state and the deadline: a segment that changes
//! nothing touches no other line. [`Sender`] and [`Receiver`] hold the other variables, the common
//! before the rare.

use wire::SeqNumber;
use wire::tcp::FastOpenCookie;

use crate::ecn::EcnLine;
use crate::fast_open::FastOpenFailure;
use crate::pack::Packing;
use crate::record_ends::RecordEnds;
use crate::timers::{OwnTimers, Tally};

/// Hot send variables.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Snd {
    /// SND.UNA: oldest sequence number not acknowledged.
    pub una: SeqNumber,
    /// SND.NXT: next to be sent for the first time. Never goes back.
    pub nxt: SeqNumber,
    /// SND.WND in bytes.
    pub wnd: u32,
    /// Payload bytes in the send buffer from `una` on, sent and unsent.
    pub buffered: u32,
    /// SND.WL1: sequence number of the last window update.
    pub wl1: SeqNumber,
    /// SND.WL2: acknowledgment number of the last window update.
    pub wl2: SeqNumber,
    /// Eff.snd.MSS: largest payload of a segment, options deducted.
    pub mss: u16,
    /// Shift of the windows that the peer advertises.
    pub shift: u8,
    /// The kind of ECN in use, and the expected ACE field of the next segment.
    pub ecn: EcnLine,
}

impl Snd {
    /// Nothing sent, nothing known of the peer.
    pub fn new(una: SeqNumber, mss: u16) -> Self {
        Snd {
            una,
            nxt: una,
            wnd: 0,
            buffered: 0,
            wl1: SeqNumber(0),
            wl2: una,
            mss,
            shift: 0,
            ecn: EcnLine::OFF,
        }
    }

    /// SND.UNA + SND.WND: the first sequence number beyond the peer's window.
    #[inline]
    pub fn wnd_end(&self) -> SeqNumber {
        self.una + self.wnd
    }

    /// Sequence numbers in flight.
    #[inline]
    pub fn flight(&self) -> u32 {
        self.nxt.since(self.una)
    }

    /// Room in the peer's window beyond `nxt`.
    #[inline]
    pub fn usable(&self) -> u32 {
        self.wnd.saturating_sub(self.flight())
    }
}

/// Hot receive variables.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Rcv {
    /// RCV.NXT: next sequence number expected.
    pub nxt: SeqNumber,
    /// RCV.NXT + RCV.WND: right edge of the window as advertised. Never goes back.
    pub adv: SeqNumber,
    /// Last.ACK.sent of RFC 7323.
    pub acked: SeqNumber,
    /// TS.Recent of RFC 7323.
    pub ts_recent: u32,
}

impl Rcv {
    /// Nothing received.
    pub const NEW: Rcv = Rcv {
        nxt: SeqNumber(0),
        adv: SeqNumber(0),
        acked: SeqNumber(0),
        ts_recent: 0,
    };

    /// RCV.WND in bytes.
    #[inline]
    pub fn wnd(&self) -> u32 {
        self.adv.since(self.nxt)
    }
}

/// Variables that matter when a connection begins and ends, and seldom between.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cold {
    /// The Fast Open option of the first SYN, or of the first SYN-ACK.
    pub fast_open: Option<FastOpenCookie>,
    /// Payload bytes that the first SYN may take along.
    pub syn_bytes_max: u16,
    /// Payload bytes that it took.
    pub syn_bytes: u16,
    /// The reason why the client's Fast Open failed (Linux's `tcpi_fastopen_client_fail`).
    pub fast_open_failure: FastOpenFailure,
    /// The application reads no more than what had arrived when it said so.
    pub read_shut: bool,
    /// The application has the connection (asked for only while it is opened fast).
    pub is_accepted: bool,
    /// FIN_WAIT_2 of an orphan in milliseconds (TCP_LINGER2); `None`: it is not waited for; 0: the
    /// stack's setting.
    pub fin_wait_2_ms: Option<u32>,
    /// The ends of records, at which segments must end (`Marks::RECORDS`).
    pub record_ends: RecordEnds,
    /// SND.UP: the sequence number after the last urgent byte (`Marks::RECORDS`).
    pub urgent_out: Option<SeqNumber>,
    /// The port had no room for a due segment, and the persist timer watches the wait. Value: a
    /// digest of the stack's sent segments at the last look; 0: the port had room.
    pub port_blocked_at: u8,
    /// The SYN or SYN-ACK left once.
    pub is_syn_sent: bool,
    /// TCP_SYNCNT; 0 = the stack's setting.
    pub syn_retries_max: u8,
    /// The timers that the application chose for this socket.
    pub own_timers: OwnTimers,
    /// The connection was made by a SYN with a good cookie (Linux's `TCPI_OPT_TFO_CHILD`).
    pub is_fast_child: bool,
    /// Timeouts so far.
    pub tally: Tally,
    /// Segments that arrived out of order and were stored.
    pub out_of_order_in: u32,
    /// A segment larger than our MSS was taken for several of the peer's MSS (`size_on_the_wire`).
    pub divides_segments: bool,
}

impl Cold {
    pub const NEW: Cold = Cold {
        fast_open: None,
        syn_bytes_max: 0,
        syn_bytes: 0,
        fast_open_failure: FastOpenFailure::None,
        read_shut: false,
        is_accepted: false,
        fin_wait_2_ms: Some(0),
        record_ends: RecordEnds::NONE,
        urgent_out: None,
        port_blocked_at: 0,
        is_syn_sent: false,
        syn_retries_max: 0,
        own_timers: OwnTimers::NONE,
        is_fast_child: false,
        tally: Tally::NONE,
        out_of_order_in: 0,
        divides_segments: false,
    };
}

const USUAL_MSS: u16 = 1_460;

impl Snd {
    /// `una` is packed already.
    pub fn pack(&mut self, p: &mut impl Packing, rcv: &Rcv) {
        let Snd {
            una,
            nxt,
            wnd,
            buffered,
            wl1,
            wl2,
            mss,
            shift,
            ecn,
        } = self;
        p.seq(nxt, *una);
        p.u32(wnd, u32::from(u16::MAX));
        p.u32(buffered, 0);
        p.seq(wl1, rcv.nxt - 1);
        p.seq(wl2, *una);
        p.u16(mss, USUAL_MSS - 12);
        p.u8(shift, 7);
        ecn.pack(p);
    }
}

impl Cold {
    /// A connection is not packed if it was opened fast, has records, urgent data or timers of its
    /// own.
    pub fn pack(&mut self, p: &mut impl Packing) {
        let Cold {
            fast_open,
            syn_bytes_max,
            syn_bytes,
            fast_open_failure,
            read_shut,
            is_accepted,
            fin_wait_2_ms,
            record_ends,
            urgent_out,
            port_blocked_at,
            is_syn_sent,
            syn_retries_max,
            own_timers,
            is_fast_child,
            tally,
            out_of_order_in,
            divides_segments,
        } = self;
        if p.must(fast_open.is_none() && record_ends.is_empty() && urgent_out.is_none()) {
            (*fast_open, *record_ends, *urgent_out) = (None, RecordEnds::NONE, None);
        }
        if p.must(*own_timers == OwnTimers::NONE) {
            *own_timers = OwnTimers::NONE;
        }
        p.u16(syn_bytes_max, 0);
        p.u16(syn_bytes, 0);
        p.one_of(
            fast_open_failure,
            &[
                FastOpenFailure::None,
                FastOpenFailure::NoCookie,
                FastOpenFailure::DataNotAcked,
                FastOpenFailure::SynRetransmitted,
            ],
        );
        p.bool(read_shut);
        p.bool(is_accepted);
        let mut is_never = fin_wait_2_ms.is_none();
        p.bool(&mut is_never);
        let mut ms = fin_wait_2_ms.unwrap_or(0);
        p.u32(&mut ms, 0);
        *fin_wait_2_ms = (!is_never).then_some(ms);
        p.u8(port_blocked_at, 0);
        p.bool(is_syn_sent);
        p.u8(syn_retries_max, 0);
        p.bool(is_fast_child);
        tally.pack(p);
        p.u32(out_of_order_in, 0);
        p.bool(divides_segments);
    }
}
