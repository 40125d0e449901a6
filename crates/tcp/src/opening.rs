//! The opening of a connection: the SYNs that left, and the part of Fast Open that the connection
//! remembers (RFC 7413).
//!
//! Owned by `Connection`. The application's open fills it in, and SYNs and SYN-ACKs change it. An
//! established connection rarely reads it.

use wire::tcp::FastOpenCookie;

use crate::fast_open::FastOpenFailure;
use crate::fast_open::client::FastOpenSyn;
use crate::pack::Packing;
use crate::segment::Segment;
use crate::timers::Timers;
use crate::variables::Snd;

/// The opening of one connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Opening {
    /// The Fast Open option of the first SYN, or of the first SYN-ACK.
    fast_open: Option<FastOpenCookie>,
    /// Payload bytes that the first SYN may take along.
    syn_bytes_max: u16,
    /// Payload bytes that the first SYN took along.
    syn_bytes: u16,
    /// The reason why the client's Fast Open failed (Linux's `tcpi_fastopen_client_fail`).
    fast_open_failure: FastOpenFailure,
    /// Events so far: bits of [`event`].
    events: u8,
}

/// Bits of [`Opening::events`].
mod event {
    /// The application has accepted the connection (read only for a connection that was opened
    /// fast).
    pub const ACCEPTED: u8 = 1;
    /// The SYN or SYN-ACK has left at least once.
    pub const SYN_SENT: u8 = 1 << 1;
    /// A SYN with a good cookie made the connection (Linux's `TCPI_OPT_TFO_CHILD`).
    pub const FAST_CHILD: u8 = 1 << 2;
}

impl Opening {
    /// The state before any SYN has left.
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
    /// Prepares Fast Open for the SYN that is due.
    pub(crate) fn open_fast(&mut self, syn: &FastOpenSyn) {
        self.fast_open = syn.option;
        self.syn_bytes_max = syn.bytes;
        if syn.option.is_some_and(|option| option.is_request()) {
            self.fast_open_failure = FastOpenFailure::NoCookie;
        }
    }

    /// True if no SYN, or SYN-ACK of a Fast Open, has left yet.
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

    /// True if repeated timeouts suggest that a black hole swallows Fast Open: the SYN itself, or
    /// the segment after it, is lost. `expired`: the connection gives up.
    pub(crate) fn suspects_fast_open(&self, expired: bool, timers: &Timers) -> bool {
        let opened_fast = self.fast_open.is_some() || self.syn_bytes > 0;
        let timeouts = timers.retransmits();
        opened_fast && (timeouts == 2 || (timeouts < 2 && expired))
    }
}

/// Changes, each for one event.
impl Opening {
    /// Notes that the application accepted the connection.
    pub(crate) fn note_accepted(&mut self) {
        self.events |= event::ACCEPTED;
    }

    /// Notes that the SYN or SYN-ACK left for the first time.
    pub(crate) fn note_syn_sent(&mut self) {
        self.events |= event::SYN_SENT;
    }

    /// Notes that the first SYN took `bytes` of payload along.
    pub(crate) fn note_syn_bytes(&mut self, bytes: u32) {
        self.syn_bytes = bytes as u16;
    }

    /// Forgets the Fast Open because the SYNs crossed; the SYN-ACK is then plain.
    pub(crate) fn forget_fast_open(&mut self) {
        self.fast_open = None;
        self.syn_bytes_max = 0;
    }

    /// Notes that a SYN with a good cookie made the connection; `cookie` goes with the SYN-ACK.
    pub(crate) fn begin_fast(&mut self, cookie: Option<FastOpenCookie>) {
        self.fast_open = cookie;
        self.events |= event::FAST_CHILD;
    }

    /// Notes why the Fast Open failed.
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

    /// Payload bytes that the first SYN took along.
    #[inline(always)]
    pub fn syn_bytes(&self) -> u16 {
        self.syn_bytes
    }

    /// The reason why the client's Fast Open failed (Linux's `tcpi_fastopen_client_fail`).
    #[inline(always)]
    pub fn fast_open_failure(&self) -> FastOpenFailure {
        self.fast_open_failure
    }

    /// True if the application has accepted the connection (read only for a connection that was
    /// opened fast).
    #[inline(always)]
    pub fn is_accepted(&self) -> bool {
        self.events & event::ACCEPTED != 0
    }

    /// True if the SYN or SYN-ACK has left at least once.
    #[inline(always)]
    pub fn is_syn_sent(&self) -> bool {
        self.events & event::SYN_SENT != 0
    }

    /// True if a SYN with a good cookie made the connection (Linux's `TCPI_OPT_TFO_CHILD`).
    #[inline(always)]
    pub fn is_fast_child(&self) -> bool {
        self.events & event::FAST_CHILD != 0
    }
}
