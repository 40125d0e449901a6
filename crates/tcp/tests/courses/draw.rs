//! The course that a seed draws.

use tcp::path_mtu::MtuProbing;
use tcp::{Config, CongestionAlgorithm, EcnUse, SlowStart};

pub const MS: u64 = tcp::MILLISECOND_NS;

/// A small, seeded generator (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Pattern in which the first end writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Manner {
    /// As many bytes as there is room for.
    Bulk,
    /// As many bytes as there is room for, on both ends.
    BulkBothWays,
    /// Requests of up to this many bytes; the other end answers each.
    Requests(u64),
    /// Up to this many bytes every few milliseconds.
    Trickle(u64),
}

/// Pattern in which the other end reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reader {
    Prompt,
    /// This many bytes each millisecond.
    Slow(u64),
    /// Nothing for a while, then everything.
    Pausing,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub description: String,
    pub seed: u64,
    pub config: Config,
    pub manner: Manner,
    pub reader: Reader,
    /// Rate of the bottleneck in bytes per second.
    pub rate: u64,
    pub queue_bytes: u64,
    pub rtt_ns: u64,
    /// Percent of segments lost: those with data, and those without.
    pub loss: u64,
    pub ack_loss: u64,
    /// Percent of segments that are late, and the longest delay.
    pub reordering: u64,
    pub late_ns: u64,
    pub duplication: u64,
    /// Milliseconds between which nothing arrives.
    pub outage_ms: (u64, u64),
    /// Time from which the path is longer by half a round trip, in milliseconds.
    pub longer_from_ms: u64,
    /// Bytes of queue from which on ECN-capable segments are marked.
    pub mark_bytes: u64,
    /// The application changes socket options.
    pub knobs: bool,
    /// The host of the first end reports low memory now and then.
    pub is_poor: bool,
    pub ms: u64,
    /// Segments with more payload bytes are lost.
    pub payload_max: u32,
}

pub fn settings(seed: u64) -> Settings {
    let random = &mut Random::new(seed);
    let config = config(random);
    let manner = match random.below(6) {
        0 | 1 => Manner::Bulk,
        2 => Manner::BulkBothWays,
        3 | 4 => Manner::Requests(random.one_of(&[500, 5000, 40_000])),
        _ => Manner::Trickle(random.one_of(&[50, 700, 3000])),
    };
    let reader = match random.below(4) {
        0 | 1 => Reader::Prompt,
        2 => Reader::Slow(random.one_of(&[20, 300])),
        _ => Reader::Pausing,
    };
    let rate = random.one_of(&[60_000, 250_000, 1_250_000, 4_000_000]);
    let rtt_ns = random.one_of(&[MS / 5, 3 * MS, 20 * MS, 60 * MS, 200 * MS]);
    let mut settings = Settings {
        description: String::new(),
        seed,
        manner,
        reader,
        rate,
        queue_bytes: (rate * (rtt_ns / MS) / 1000 * random.one_of(&[1, 2])).max(20_000),
        rtt_ns,
        loss: random.one_of(&[0, 0, 0, 1, 3, 10]),
        ack_loss: random.one_of(&[0, 0, 2, 20]),
        reordering: random.one_of(&[0, 0, 0, 2, 15]),
        late_ns: rtt_ns / random.one_of(&[8, 2, 1]),
        duplication: random.one_of(&[0, 0, 0, 3]),
        outage_ms: match random.chance(25) {
            true => (1000, 1200 + random.below(2000)),
            false => (0, 0),
        },
        longer_from_ms: match random.chance(25) {
            true => 1500,
            false => u64::MAX,
        },
        mark_bytes: random.one_of(&[5000, 30_000]),
        knobs: random.chance(30),
        is_poor: random.chance(15),
        ms: random.one_of(&[2500, 4000, 4000, 13_000]),
        payload_max: match config.path_mtu.probing {
            MtuProbing::Never => u32::MAX,
            _ => random.one_of(&[u32::MAX, 1200, 700]),
        },
        config,
    };
    settings.description = describe(&settings);
    settings
}

fn config(random: &mut Random) -> Config {
    let mut config = Config {
        congestion: random.one_of(&[
            CongestionAlgorithm::Cubic,
            CongestionAlgorithm::Cubic,
            CongestionAlgorithm::NewReno,
            CongestionAlgorithm::Bbr,
            CongestionAlgorithm::Dctcp,
        ]),
        timestamps: !random.chance(25),
        sack: !random.chance(20),
        window_scaling: !random.chance(15),
        ecn: random.one_of(&[
            EcnUse::Never,
            EcnUse::WhenAsked,
            EcnUse::Always,
            EcnUse::Accurate,
        ]),
        pacing: random.chance(30),
        slow_start_after_idle: random.chance(70),
        frto: !random.chance(20),
        tail_loss_probe: !random.chance(20),
        shrink_window: random.chance(15),
        burst_segments_min: random.one_of(&[1, 2, 8]),
        ..Config::default()
    };
    config.cubic.slow_start = random.one_of(&[
        SlowStart::Standard,
        SlowStart::HyStart,
        SlowStart::HyStartPlusPlus,
    ]);
    config.recv_buffer.bytes_default = random.one_of(&[8_000, 131_072, 131_072, 600_000]);
    config.recv_buffer.bytes_max = random.one_of(&[600_000, 6 << 20]);
    config.send_buffer.bytes_default = random.one_of(&[16_384, 16_384, 200_000]);
    config.path_mtu.probing = random.one_of(&[
        MtuProbing::Never,
        MtuProbing::Never,
        MtuProbing::Never,
        MtuProbing::AfterBlackHole,
        MtuProbing::Always,
    ]);
    config
}

/// The settings that distinguish courses, in one line.
fn describe(settings: &Settings) -> String {
    let config = &settings.config;
    format!(
        "{:?}, {:?}, {:?}, ECN {:?}, timestamps {}, SACK {}; {:?} to {:?}; {} B/s, {} us, loss {} %, \
         late {} %",
        config.congestion,
        config.cubic.slow_start,
        config.path_mtu.probing,
        config.ecn,
        u8::from(config.timestamps),
        u8::from(config.sack),
        settings.manner,
        settings.reader,
        settings.rate,
        settings.rtt_ns / 1000,
        settings.loss,
        settings.reordering,
    )
}
