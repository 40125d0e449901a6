//! SYN cookies (RFC 4987 section 3.6): a handshake without an entry, for when the queue of
//! half-open connections is full.
//!
//! The stack calls [`SynCookies::syn_ack`] instead of making a half-open entry. While
//! [`SynCookies::are_out`], it gives every ACK that a listener would refuse to
//! [`SynCookies::check`] first. The handshake's state travels in our initial sequence number and,
//! if the peer offers timestamps, in the low six bits of our timestamp, in Linux's layout:
//!
//! ```text
//! ISS  = keyed hash of (flow, IRS)  +   31  29 28    25 24                                 0
//!                                      │minute│ MSS no │ keyed hash of flow, IRS, minute, no │
//!
//! TSval = clock with low bits          5     4     3..0
//!                                      │ECN  │SACK │ peer's window shift, 15 is none │
//! ```
//!
//! A guess succeeds with a probability of 2^-25 during the two minutes for which a cookie is valid.
//! Without timestamps neither window scaling nor SACK works. The hash depends on the minute, and
//! its secret on the hour. So stacks with common secrets and a common clock accept each other's
//! cookies without communication.

use wire::tcp::{Flags, Timestamp};
use wire::{FlowKey, SeqNumber};

use crate::config::Config;
use crate::context::Cx;
use crate::ecn::{EcnGrant, EcnKind, dress_cookie, granted_by_cookie};
use crate::half_open::{Granted, SynAck, syn_ack_segment};
use crate::handshake::{Handshake, SynAckRepetitions, WindowScales};
use crate::isn::{hash_flow, timestamp_value};
use crate::limits::WINDOW_SHIFT_MAX;
use crate::listen::{PassiveOpen, SynRequest};
use crate::segment::{Segment, SegmentOut};

#[cfg(test)]
mod tests;

/// The maximum segment sizes that a cookie can express. A cookie holds the largest one that does
/// not exceed the peer's. Linux's sizes, and smaller ones, so that no peer is sent more than it
/// accepts.
const MSS_TABLE_V4: [u16; 6] = [48, 216, 536, 1300, 1440, 1460];
/// The sizes for IPv6.
const MSS_TABLE_V6: [u16; 6] = [48, 536, 1220, 1420, 1440, 8940];

fn mss_table(flow: &FlowKey) -> &'static [u16] {
    if flow.remote.is_v4() {
        &MSS_TABLE_V4
    } else {
        &MSS_TABLE_V6
    }
}

/// Lifetime of the hash key.
const MINUTE_NS: u64 = 60 * crate::SECOND_NS;
/// Number of minutes, the current one included, in which a cookie is accepted.
const AGE_MINUTES_MAX: u64 = 2;
/// Lifetime of a secret: one hour of the clock.
pub const SECRET_NS_MAX: u64 = 3600 * crate::SECOND_NS;
const MINUTE_BITS: u32 = 3;
const MAC_BITS: u32 = 25;
const MAC_MASK: u32 = (1 << MAC_BITS) - 1;

const TS_OPTION_BITS: u32 = 6;
const TS_OPTION_MASK: u32 = (1 << TS_OPTION_BITS) - 1;
const TS_SHIFT_MASK: u32 = 15;
const TS_SACK: u32 = 1 << 4;
const TS_ECN: u32 = 1 << 5;

const _: () = assert!(MSS_TABLE_V4.len() <= 1 << (32 - MINUTE_BITS - MAC_BITS));
const _: () = assert!(MSS_TABLE_V6.len() <= 1 << (32 - MINUTE_BITS - MAC_BITS));
const _: () = assert!(AGE_MINUTES_MAX < 1 << MINUTE_BITS);

const PURPOSE_BASE: u64 = 3;
const PURPOSE_MAC: u64 = 4;

/// Maker and checker of cookies. A stack has one. Several stacks that may receive a flow's segments
/// have one each, with the same secrets.
#[derive(Clone, Debug)]
pub struct SynCookies {
    key: [u64; 2],
    /// The secret of the previous hour, and the time until which cookies made with it are accepted.
    previous: Option<([u64; 2], u64)>,
    /// End of the secret's hour, ns.
    worn_at_ns: u64,
    /// Time until which a cookie that was sent may come back, ns.
    out_until_ns: u64,
}

impl SynCookies {
    /// A maker with one secret that never changes, from the system's random source.
    #[must_use]
    pub fn new(key: [u64; 2]) -> Self {
        Self {
            key,
            previous: None,
            worn_at_ns: u64::MAX,
            out_until_ns: 0,
        }
    }

    /// A maker with a secret for each hour of the clock; `secret_of` returns the secret of an hour.
    #[must_use]
    pub fn by_the_hour(secret_of: impl Fn(u64) -> [u64; 2], now_ns: u64) -> Self {
        let mut cookies = Self::new([0; 2]);
        cookies.renew(secret_of, now_ns);
        cookies
    }

    /// True if the secret's hour has passed, so that [`renew`](SynCookies::renew) is due.
    #[must_use]
    pub fn is_worn(&self, now_ns: u64) -> bool {
        now_ns >= self.worn_at_ns
    }

    /// Takes the secret of this hour and that of the previous hour, whose cookies stay valid for
    /// their age.
    pub fn renew(&mut self, secret_of: impl Fn(u64) -> [u64; 2], now_ns: u64) {
        let hour = now_ns / SECRET_NS_MAX;
        let begin_ns = hour * SECRET_NS_MAX;
        self.key = secret_of(hour);
        let previous = hour.checked_sub(1).map(secret_of);
        self.previous = previous.map(|key| (key, begin_ns + AGE_MINUTES_MAX * MINUTE_NS));
        self.worn_at_ns = begin_ns + SECRET_NS_MAX;
    }

    /// Time at which the last cookie sent becomes too old, ns; 0: none was sent.
    #[must_use]
    pub fn out_until_ns(&self) -> u64 {
        self.out_until_ns
    }

    /// Accepts cookies of another maker with the same secrets until this time, ns.
    pub fn expect_until(&mut self, out_until_ns: u64) {
        self.out_until_ns = self.out_until_ns.max(out_until_ns);
    }

    /// True if a cookie was sent recently, so that an unexpected ACK may return it.
    #[must_use]
    pub fn are_out(&self, now_ns: u64) -> bool {
        now_ns < self.out_until_ns
    }

    /// The SYN-ACK whose sequence number is a cookie. `open.iss` is ignored.
    #[must_use]
    pub fn syn_ack(
        &mut self,
        cx: &mut Cx<'_>,
        flow: &FlowKey,
        syn: &SynRequest,
        open: &PassiveOpen,
    ) -> SegmentOut {
        let mut granted = Granted::of(cx.config, syn, open);
        // No entry would remember these options.
        granted.sack &= granted.timestamps;
        granted.window_scaling &= granted.timestamps;
        if !granted.timestamps && granted.ecn == EcnKind::Classic {
            granted.ecn = EcnKind::None;
        }
        let timestamp = granted.timestamps.then(|| Timestamp {
            value: timestamp_with_options(cx.now_ns, open.ts_offset, syn, granted),
            echo: syn.timestamp.unwrap_or(0),
        });
        let peer_mss = syn.send_mss(cx.config, open.is_v4);
        let initial = open.initial_window(cx.config, granted.timestamps, granted.window_scaling);
        let mut out = syn_ack_segment(SynAck {
            iss: self.make(flow, syn.irs, peer_mss, cx.now_ns),
            irs: syn.irs,
            window: initial.syn_field(),
            mss: open.mss,
            shift: granted.window_scaling.then_some(initial.shift),
            sack: granted.sack,
            timestamp,
        });
        dress_cookie(cx.config, open.congestion, granted.ecn, syn.ecn, &mut out);
        out
    }

    /// The cookie alone: the ISS for a SYN with `irs` and `peer_mss`.
    #[must_use]
    pub fn make(
        &mut self,
        flow: &FlowKey,
        irs: SeqNumber,
        peer_mss: u16,
        now_ns: u64,
    ) -> SeqNumber {
        self.out_until_ns = now_ns + AGE_MINUTES_MAX * MINUTE_NS;
        let mss_index = mss_table(flow)
            .partition_point(|&mss| mss <= peer_mss)
            .max(1)
            - 1;
        let minute = now_ns / MINUTE_NS;
        let fields = (minute as u32) << (32 - MINUTE_BITS)
            | (mss_index as u32) << MAC_BITS
            | mac(self.key, flow, irs, minute, mss_index);
        base(self.key, flow, irs) + fields
    }

    /// The handshake that `seg`, an ACK to a listener, completes; `None` if it returns no cookie of
    /// ours. `open` is as for the SYN-ACK. The connection then gets the same segment.
    #[must_use]
    pub fn check(
        &self,
        cx: &mut Cx<'_>,
        flow: &FlowKey,
        seg: &Segment,
        open: &PassiveOpen,
    ) -> Option<Handshake> {
        let is_ack = seg.has(Flags::ACK) && !seg.flags.intersects(Flags::SYN | Flags::RST);
        if !is_ack || !self.are_out(cx.now_ns) {
            return None;
        }
        let (iss, irs) = (seg.ack - 1, seg.seq - 1);
        let previous = self.previous.filter(|(_, until_ns)| cx.now_ns < *until_ns);
        let peer_mss = read(self.key, flow, irs, iss, cx.now_ns).or_else(|| {
            let (key, _) = previous?;
            read(key, flow, irs, iss, cx.now_ns)
        })?;
        let options = Remembered::from(cx, seg, open)?;
        Some(Handshake {
            iss,
            irs,
            una: seg.ack,
            snd_wnd: u32::from(seg.window) << options.window_scales.map_or(0, |s| s.peers),
            mss: open.mss,
            peer_mss,
            window_scales: options.window_scales,
            sack: options.sack,
            ecn: options.ecn,
            timestamps: options.timestamps,
            ts_recent: seg.options.timestamp.map_or(0, |t| t.value),
            ts_offset: open.ts_offset,
            rtt_ns: None,
            syn_ack_lost: false,
            repetitions: SynAckRepetitions::default(),
        })
    }
}

/// The options that a returned timestamp holds.
struct Remembered {
    timestamps: bool,
    sack: bool,
    ecn: EcnGrant,
    window_scales: Option<WindowScales>,
}

impl Remembered {
    /// The options of a segment. `None` if we cannot have sent the echoed timestamp within a
    /// cookie's age, or if our settings refuse its options.
    fn from(cx: &Cx<'_>, seg: &Segment, open: &PassiveOpen) -> Option<Remembered> {
        let Some(Timestamp { echo, .. }) = seg.options.timestamp else {
            return Some(Remembered {
                timestamps: false,
                sack: false,
                ecn: granted_by_cookie(cx.config, open.congestion, None, seg),
                window_scales: None,
            });
        };
        let age_ms = timestamp_value(cx.now_ns, open.ts_offset).wrapping_sub(echo);
        let age_ms_max = AGE_MINUTES_MAX * MINUTE_NS / crate::MILLISECOND_NS;
        if u64::from(age_ms) > age_ms_max + u64::from(TS_OPTION_MASK) {
            return None;
        }
        let Config {
            timestamps,
            sack,
            window_scaling,
            ..
        } = *cx.config;
        let shift = echo & TS_SHIFT_MASK;
        let wants_sack = echo & TS_SACK != 0;
        let wants_scaling = shift != TS_SHIFT_MASK;
        if !timestamps || (wants_sack && !sack) || (wants_scaling && !window_scaling) {
            return None;
        }
        Some(Remembered {
            timestamps: true,
            sack: wants_sack,
            ecn: granted_by_cookie(cx.config, open.congestion, Some(echo & TS_ECN != 0), seg),
            window_scales: wants_scaling.then(|| WindowScales {
                ours: open.initial_window(cx.config, true, true).shift,
                peers: (shift as u8).min(WINDOW_SHIFT_MAX),
            }),
        })
    }
}

/// Our timestamp with the options in its low bits. It is never ahead of the clock, so that later
/// timestamps do not go back.
fn timestamp_with_options(now_ns: u64, ts_offset: u32, syn: &SynRequest, granted: Granted) -> u32 {
    let shift = match syn.window_scale {
        Some(shift) if granted.window_scaling => u32::from(shift),
        _ => TS_SHIFT_MASK,
    };
    let options = shift
        | if granted.sack { TS_SACK } else { 0 }
        | if granted.ecn == EcnKind::None {
            0
        } else {
            TS_ECN
        };
    let now = timestamp_value(now_ns, ts_offset);
    let value = now & !TS_OPTION_MASK | options;
    if options > now & TS_OPTION_MASK {
        value.wrapping_sub(1 << TS_OPTION_BITS)
    } else {
        value
    }
}

/// The peer's MSS; `None` if `iss` is no cookie of `key`, or is too old.
fn read(key: [u64; 2], flow: &FlowKey, irs: SeqNumber, iss: SeqNumber, now_ns: u64) -> Option<u16> {
    let fields = iss.since(base(key, flow, irs));
    let mss_index = (fields << MINUTE_BITS >> (MINUTE_BITS + MAC_BITS)) as usize;
    let now_minute = now_ns / MINUTE_NS;
    let age =
        (now_minute as u32).wrapping_sub(fields >> (32 - MINUTE_BITS)) & ((1 << MINUTE_BITS) - 1);
    if u64::from(age) >= AGE_MINUTES_MAX {
        return None;
    }
    let minute = now_minute.checked_sub(u64::from(age))?;
    if fields & MAC_MASK != mac(key, flow, irs, minute, mss_index) {
        return None;
    }
    mss_table(flow).get(mss_index).copied()
}

/// Offset that hides the fields and spreads the cookies of one minute over all sequence numbers.
fn base(key: [u64; 2], flow: &FlowKey, irs: SeqNumber) -> SeqNumber {
    SeqNumber(hash_flow(key, flow, [PURPOSE_BASE, u64::from(irs.0)]) as u32)
}

fn mac(key: [u64; 2], flow: &FlowKey, irs: SeqNumber, minute: u64, mss_index: usize) -> u32 {
    let minute_key = [key[0] ^ minute, key[1]];
    let fields = u64::from(irs.0) << 32 | mss_index as u64;
    hash_flow(minute_key, flow, [PURPOSE_MAC, fields]) as u32 & MAC_MASK
}
