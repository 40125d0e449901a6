//! Surroundings for conversations with the compact entries of the passive side: a world with a
//! clock, and segments in short notation.

use std::string::{String, ToString};

use wire::tcp::{Flags, Options, Timestamp};
use wire::{Addr, FlowKey, SeqNumber};

use crate::buffers::Buffers;
use crate::challenge::ChallengeLimiter;
use crate::config::Config;
use crate::context::Cx;
use crate::counters::Counters;
use crate::listen::PassiveOpen;
use crate::reassembly::RangePool;
use crate::records::RecordPool;
use crate::segment::{Segment, SegmentOut};
use crate::{MILLISECOND_NS, SECOND_NS};

/// Initial sequence numbers of the peer and of our side in all conversations.
pub(crate) const IRS: SeqNumber = SeqNumber(1000);
pub(crate) const ISS: SeqNumber = SeqNumber(7_000_000);
/// Our timestamp offset.
pub(crate) const TS_OFFSET: u32 = 500_000;

/// The surroundings of an entry.
pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) config: Config,
    pub(crate) counters: Counters,
    records: RecordPool,
    ranges: RangePool,
    challenge: ChallengeLimiter,
}

impl World {
    pub(crate) fn new() -> World {
        let mut config = Config {
            sack: true,
            ..Config::default()
        };
        config.recv_buffer.bytes_max = 15 << 20;
        World {
            now_ns: 100 * SECOND_NS,
            config,
            counters: Counters::default(),
            records: RecordPool::new(256, 1),
            ranges: RangePool::new(64),
            challenge: ChallengeLimiter::new(1),
        }
    }

    pub(crate) fn cx(&mut self) -> Cx<'_> {
        Cx {
            now_ns: self.now_ns,
            config: &self.config,
            challenge: &mut self.challenge,
            counters: &mut self.counters,
            records: &mut self.records,
            ranges: &mut self.ranges,
            memory: crate::Memory::Ample,
        }
    }

    pub(crate) fn pass_ms(&mut self, ms: u64) {
        self.now_ns += ms * MILLISECOND_NS;
    }

    /// Our timestamp value now.
    pub(crate) fn ts(&self) -> u32 {
        crate::isn::timestamp_value(self.now_ns, TS_OFFSET)
    }
}

pub(crate) fn open() -> PassiveOpen {
    PassiveOpen {
        iss: ISS,
        ts_offset: TS_OFFSET,
        mss: 1460,
        buffers: Buffers {
            recv_bytes: 540_000,
            recv_locked: false,
            send_bytes: 1 << 16,
            send_locked: false,
            window_clamp: 0,
        },
        is_v4: true,
        congestion: crate::CongestionAlgorithm::Cubic,
        defer_accept: 0,
        retries_max: 0,
    }
}

pub(crate) fn flow() -> FlowKey {
    FlowKey {
        local: Addr::v4([10, 0, 0, 1].into()),
        remote: Addr::v4([10, 0, 0, 2].into()),
        local_port: 80,
        remote_port: 40_000,
    }
}

/// A segment: flags as letters, sequence and ACK number relative to the initial ones, payload
/// bytes.
pub(crate) fn seg(flags: &str, seq: u32, ack: u32, len: u32) -> Segment {
    let mut bits = Flags::NONE;
    for letter in flags.chars() {
        bits |= match letter {
            'F' => Flags::FIN,
            'S' => Flags::SYN,
            'R' => Flags::RST,
            'P' => Flags::PSH,
            'A' => Flags::ACK,
            'E' => Flags::ECE,
            'C' => Flags::CWR,
            other => panic!("no flag {other}"),
        };
    }
    Segment {
        seq: IRS + seq,
        ack: if bits.contains(Flags::ACK) {
            ISS + ack
        } else {
            SeqNumber(0)
        },
        flags: bits,
        window: 1000,
        urgent: 0,
        len,
        options: Options::default(),
        ecn: wire::Ecn::NotEct,
    }
}

/// A SYN with all options, timestamp value `ts`.
pub(crate) fn full_syn(ts: u32) -> Segment {
    let mut syn = seg("S", 0, 0, 0);
    syn.options = Options {
        mss: Some(1400),
        window_scale: Some(7),
        sack_permitted: true,
        timestamp: Some(Timestamp { value: ts, echo: 0 }),
        ..Options::default()
    };
    syn
}

/// The segment with a timestamp option.
pub(crate) fn with_ts(mut seg: Segment, value: u32, echo: u32) -> Segment {
    seg.options.timestamp = Some(Timestamp { value, echo });
    seg
}

/// A sent segment in short notation: flags, sequence number relative to `ISS`, ACK number relative
/// to `IRS`.
pub(crate) fn said(out: &SegmentOut) -> (String, u32, u32) {
    let ack = if out.flags.contains(Flags::ACK) {
        out.ack.since(IRS)
    } else {
        out.ack.0
    };
    (out.flags.to_string(), out.seq.since(ISS), ack)
}

/// A segment of random numbers.
pub(crate) fn random_segment(state: &mut u64) -> Segment {
    let mut next = || {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 32) as u32
    };
    let near = |n: u32, base: SeqNumber| match n % 4 {
        0 => base + (n >> 8) % 3,
        1 => base - (n >> 8) % 3,
        2 => base + (n >> 8) % 80_000,
        _ => SeqNumber(n),
    };
    let mut seg = Segment {
        seq: near(next(), IRS),
        ack: near(next(), ISS),
        flags: Flags(next() as u16 & 0x1ff),
        window: next() as u16,
        urgent: 0,
        len: [0, 1, 1400, 65_495][next() as usize % 4],
        options: Options::default(),
        ecn: wire::Ecn::NotEct,
    };
    if next() % 2 == 0 {
        seg.options.timestamp = Some(Timestamp {
            value: next() % 2000,
            echo: next(),
        });
    }
    seg
}
