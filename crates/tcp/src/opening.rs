//! The handshake of a connection: the SYNs that left, and the part of Fast Open that the connection
//! remembers (RFC 7413).
//!
//! Owned by `Connection`. The application's open fills it in, SYNs and SYN-ACKs change it, and few
//! parts of an established connection ask it.

use wire::tcp::FastOpenCookie;

use crate::fast_open::FastOpenFailure;
use crate::fast_open::client::FastOpenSyn;
use crate::pack::Packing;
use crate::segment::Segment;
use crate::timers::Timers;
use crate::variables::Snd;

/// A connection's handshake.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Opening {
    /// The Fast Open option of the first SYN, or of the first SYN-ACK.
    fast_open: Option<FastOpenCookie>,
    /// Payload bytes that the first SYN may take along.
    syn_bytes_max: u16,
    /// Payload bytes that it took.
    syn_bytes: u16,
    /// The reason why the client's Fast Open failed (Linux's `tcpi_fastopen_client_fail`).
    fast_open_failure: FastOpenFailure,
    /// Events so far: bits of [`event`].
    events: u8,
}

/// Bits of [`Opening::events`].
mod event {
    /// The application has the connection (asked for only while it is opened fast).
    pub const ACCEPTED: u8 = 1;
    /// The SYN or SYN-ACK left once.
    pub const SYN_SENT: u8 = 1 << 1;
    /// A SYN with a good cookie made the connection (Linux's `TCPI_OPT_TFO_CHILD`).
    pub const FAST_CHILD: u8 = 1 << 2;
}

impl Opening {
    /// No SYN has left.
    pub const NEW: Opening = Opening {
        fast_open: None,
        syn_bytes_max: 0,
        syn_bytes: 0,
        fast_open_failure: FastOpenFailure::None,
        events: 0,
    };

    /// A connection that was opened fast is not packed.
    pub fn pack(&mut self, p: &mut impl Packing) {
        let Opening {
            fast_open,
            syn_bytes_max,
            syn_bytes,
            fast_open_failure,
            events,
        } = self;
        if p.must(fast_open.is_none()) {
            *fast_open = None;
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
        p.u8(events, 0);
    }
}

impl Opening {
    /// The SYN that is due opens fast.
    pub(crate) fn open_fast(&mut self, syn: &FastOpenSyn) {
        self.fast_open = syn.option;
        self.syn_bytes_max = syn.bytes;
        if syn.option.is_some_and(|option| option.is_request()) {
            self.fast_open_failure = FastOpenFailure::NoCookie;
        }
    }

    /// No SYN, or SYN-ACK of a Fast Open, has left yet.
    pub(crate) fn is_first_syn(&self) -> bool {
        !self.is_syn_sent()
    }

    /// Payload bytes that the first SYN takes along if it leaves now.
    pub(crate) fn syn_payload(&self, snd: &Snd) -> u32 {
        u32::from(self.syn_bytes_max).min(snd.buffered())
    }

    /// True if this SYN-ACK answers a Fast Open, or a request for a cookie, and acknowledges our
    /// whole SYN. It may carry text (RFC 7413 4.1.2).
    pub(crate) fn is_fast_open_answered(&self, seg: &Segment, snd: &Snd) -> bool {
        let opens_fast = self.fast_open.is_some() || self.syn_bytes_max > 0;
        opens_fast && seg.ack == snd.nxt()
    }

    /// True for timeouts that suggest a black hole for Fast Open: the SYN itself, or the segment
    /// after it, is lost repeatedly. `expired`: the connection gives up.
    pub(crate) fn suspects_fast_open(&self, expired: bool, timers: &Timers) -> bool {
        let opened_fast = self.fast_open.is_some() || self.syn_bytes > 0;
        let timeouts = timers.retransmits();
        opened_fast && (timeouts == 2 || (timeouts < 2 && expired))
    }
}

/// Changes, each for one event.
impl Opening {
    /// The application took the connection out of the accept queue.
    pub(crate) fn note_accepted(&mut self) {
        self.events |= event::ACCEPTED;
    }

    /// The SYN or SYN-ACK left for the first time.
    pub(crate) fn note_syn_sent(&mut self) {
        self.events |= event::SYN_SENT;
    }

    /// The first SYN took `bytes` of payload along.
    pub(crate) fn note_syn_bytes(&mut self, bytes: u32) {
        self.syn_bytes = bytes as u16;
    }

    /// The SYNs crossed, which loses the result of a Fast Open: the SYN-ACK is plain.
    pub(crate) fn forget_fast_open(&mut self) {
        self.fast_open = None;
        self.syn_bytes_max = 0;
    }

    /// A SYN with a good cookie made the connection; `cookie` goes with the SYN-ACK.
    pub(crate) fn begin_fast(&mut self, cookie: Option<FastOpenCookie>) {
        self.fast_open = cookie;
        self.events |= event::FAST_CHILD;
    }

    /// The Fast Open failed.
    pub(crate) fn fail_fast_open(&mut self, failure: FastOpenFailure) {
        self.fast_open_failure = failure;
    }
}

/// Read access for other modules.
impl Opening {
    /// The Fast Open option of the first SYN, or of the first SYN-ACK.
    #[inline(always)]
    pub fn fast_open(&self) -> Option<FastOpenCookie> {
        self.fast_open
    }

    /// Payload bytes that the first SYN may take along.
    #[inline(always)]
    pub fn syn_bytes_max(&self) -> u16 {
        self.syn_bytes_max
    }

    /// Payload bytes that it took.
    #[inline(always)]
    pub fn syn_bytes(&self) -> u16 {
        self.syn_bytes
    }

    /// The reason why the client's Fast Open failed (Linux's `tcpi_fastopen_client_fail`).
    #[inline(always)]
    pub fn fast_open_failure(&self) -> FastOpenFailure {
        self.fast_open_failure
    }

    /// The application has the connection (asked for only while it is opened fast).
    #[inline(always)]
    pub fn is_accepted(&self) -> bool {
        self.events & event::ACCEPTED != 0
    }

    /// The SYN or SYN-ACK left once.
    #[inline(always)]
    pub fn is_syn_sent(&self) -> bool {
        self.events & event::SYN_SENT != 0
    }

    /// The connection was made by a SYN with a good cookie (Linux's `TCPI_OPT_TFO_CHILD`).
    #[inline(always)]
    pub fn is_fast_child(&self) -> bool {
        self.events & event::FAST_CHILD != 0
    }
}
