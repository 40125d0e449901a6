//! The settings of a course that a seed draws: both stacks, the wires, and the behaviour of
//! applications and strangers.

use packetio::ChecksumPolicy;
use stack::config::PortConfig;
use stack::rules::{Protocol, Rule, RuleAction, RuleSet};
use stack::{Limits, StackConfig};
use tcp::path_mtu::MtuProbing;
use tcp::{CongestionAlgorithm, EcnUse, SlowStart, SynCookieUse};

use crate::card::Abilities;
use crate::common::{self, MILLIS, SECOND};

/// A small, seeded generator (xorshift).
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.word() >> 8) % n.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Faults of the wires. Rates of loss, delay, duplication, damage and marks are percentages of
/// frames.
#[derive(Clone, Debug)]
pub struct Path {
    pub delay_ns: u64,
    /// Bytes per second; 0: unlimited.
    pub rate: u64,
    pub queue_bytes: u64,
    pub loss: u64,
    pub late: u64,
    pub late_ns: u64,
    pub double: u64,
    pub damage: u64,
    pub mark: u64,
    /// Frames that a card takes between two looks; `None`: all.
    pub room: Option<usize>,
    /// True if the card merges segments that arrive together.
    pub merges: bool,
}

/// Behaviour of the applications. Numbers without a unit are percentages of their looks.
#[derive(Clone, Debug)]
pub struct Manner {
    pub connections_max: usize,
    pub opens: u64,
    pub writes: u64,
    pub write_max: u64,
    /// Looks at listeners, in percent of events and looks.
    pub accepts: u64,
    pub reads: u64,
    pub read_max: u64,
    pub ends: u64,
    pub options: u64,
    pub questions: u64,
    /// Closing and reopening of listeners, in percent.
    pub listeners: u64,
    /// True if both applications connect.
    pub both: bool,
    pub v6: u64,
    pub fast: u64,
    /// True if the application answers before the turn's ACKs leave.
    pub answers: bool,
    /// Events that are handled at once, in percent.
    pub prompt: u64,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: u64,
    /// True if the course runs with and without shortcuts, to be compared.
    pub compares_ways: bool,
    pub configs: [StackConfig; 2],
    pub abilities: [Abilities; 2],
    /// By stack, true if a host is behind the first port.
    pub hosted: [bool; 2],
    pub ports: usize,
    pub path: Path,
    pub manner: Manner,
    /// Frames of strangers, in percent of the looks.
    pub strangers: u64,
    /// Reports, walks, stories and captures, in percent of the looks.
    pub observers: u64,
    pub look_ns: u64,
    pub looks: u64,
    /// The look at which the second port is lost.
    pub gone_at: Option<u64>,
}

pub fn settings(seed: u64) -> Settings {
    let random = &mut Random::new(seed);
    let ports = random.one_of(&[1, 1, 1, 2]);
    let tcp = tcp(random);
    let mut config = StackConfig {
        tcp,
        limits: limits(random),
        aggregation_max: random.one_of(&[1, 4, 64, 64]),
        merge_acks: random.chance(20),
        offload_acks: !random.chance(20),
        story_one_in: random.one_of(&[0, 1, 3]),
        return_memory_ns: random.one_of(&[0, SECOND / 2, 3 * SECOND]),
        loopback: random.chance(25),
        echo: !random.chance(15),
        ..common::config()
    };
    if random.chance(30) {
        config.rules = rules(random);
    }
    let mut second = config.clone();
    second.tcp.congestion = random.one_of(&[CongestionAlgorithm::Cubic, config.tcp.congestion]);
    second.tcp.timestamps = config.tcp.timestamps || random.chance(50);
    second.rules = RuleSet::default();
    let mut configs = [config, second];
    for (number, config) in configs.iter_mut().enumerate() {
        place(config, number, ports);
        config.seed = Some([seed, number as u64, 3, 4]);
    }
    let abilities = [abilities(random), abilities(random)];
    let hosted = [random.chance(15), random.chance(20)];
    for (config, is_hosted) in configs.iter_mut().zip(hosted) {
        if is_hosted && random.chance(50) {
            config.local_ports = (20_000, 20_002);
        }
    }
    let delay_ns = random.one_of(&[0, MILLIS / 10, 2 * MILLIS, 20 * MILLIS]);
    let merges = random.chance(40);
    let path = path(random, delay_ns, merges);
    // A stack without room in the port tries again soon.
    let look_ns = match path.room {
        Some(_) => MILLIS,
        None => random.one_of(&[MILLIS, 5 * MILLIS, 40 * MILLIS, 200 * MILLIS]),
    };
    let mut manner = manner(random);
    if hosted.contains(&true) {
        (manner.listeners, manner.accepts) = (15, random.one_of(&[5, 20]));
    }
    Settings {
        seed,
        compares_ways: false,
        configs,
        abilities,
        hosted,
        ports,
        path,
        manner,
        strangers: random.one_of(&[0, 10, 10, 40]),
        observers: random.one_of(&[2, 2, 5]),
        look_ns,
        looks: 180,
        gone_at: random
            .chance(if ports == 2 { 40 } else { 3 })
            .then_some(120),
    }
}

/// Addresses and routes of one of the two stacks.
fn place(config: &mut StackConfig, number: usize, ports: usize) {
    let (own, other) = (number + 1, 2 - number);
    config.addresses = vec![
        format!("10.0.0.{own}/24").parse().unwrap(),
        format!("fd00::{own}/64").parse().unwrap(),
        format!("192.0.2.{own}/32").parse().unwrap(),
    ];
    config.gateways = vec![
        format!("10.0.0.{other}").parse().unwrap(),
        format!("fd00::{other}").parse().unwrap(),
    ];
    config.routes = vec![(
        "198.51.100.0/24".parse().unwrap(),
        "10.0.0.77".parse().unwrap(),
    )];
    if ports == 2 {
        config.further_ports = vec![PortConfig {
            addresses: vec![
                format!("10.0.1.{own}/24").parse().unwrap(),
                format!("fd01::{own}/64").parse().unwrap(),
            ],
            gateways: vec![format!("10.0.1.{other}").parse().unwrap()],
            ..PortConfig::default()
        }];
    }
}

fn path(random: &mut Random, delay_ns: u64, merges: bool) -> Path {
    Path {
        delay_ns,
        rate: random.one_of(&[0, 0, 200_000, 2_000_000]),
        queue_bytes: random.one_of(&[6_000, 60_000]),
        loss: random.one_of(&[0, 0, 1, 4, 15]),
        late: random.one_of(&[0, 0, 2, 15]),
        late_ns: 1 + delay_ns * random.one_of(&[1, 1, 3]),
        double: random.one_of(&[0, 0, 2]),
        damage: random.one_of(&[0, 0, 2]),
        mark: random.one_of(&[0, 5, 30]),
        room: random.one_of(&[None, None, None, Some(3), Some(40)]),
        merges,
    }
}

fn manner(random: &mut Random) -> Manner {
    let is_crowd = random.chance(35);
    Manner {
        connections_max: match is_crowd {
            true => random.one_of(&[20, 60]),
            false => random.one_of(&[2, 6]),
        },
        opens: if is_crowd { 90 } else { 15 },
        writes: random.one_of(&[5, 30, 60]),
        write_max: random.one_of(&[40, 700, 9_000, 60_000]),
        accepts: random.one_of(&[100, 100, 20]),
        reads: random.one_of(&[10, 60, 95]),
        read_max: random.one_of(&[300, 100_000, 100_000]),
        ends: random.one_of(&[1, 4, 15]),
        options: random.one_of(&[0, 1, 6]),
        questions: random.one_of(&[0, 1, 4]),
        listeners: random.one_of(&[0, 0, 1, 4]),
        both: random.chance(40),
        v6: random.one_of(&[0, 30, 100]),
        fast: random.one_of(&[0, 0, 60]),
        answers: random.chance(40),
        prompt: random.one_of(&[0, 50, 100]),
    }
}

fn abilities(random: &mut Random) -> Abilities {
    let kind = random.below(5);
    Abilities {
        mtu: random.one_of(&[1_500, 1_500, 1_400]),
        policy: random.one_of(&[
            ChecksumPolicy::Verify,
            ChecksumPolicy::Verify,
            ChecksumPolicy::AcceptPartial,
            ChecksumPolicy::Trust,
        ]),
        finishes_checksums: kind == 1 || kind == 2,
        cuts: kind == 2,
        has_bulk_lane: kind == 3,
        verifies: random.chance(30),
    }
}

fn limits(random: &mut Random) -> Limits {
    let usual = common::config().limits;
    match random.below(5) {
        // All tables are small enough to fill up.
        0 | 1 => Limits {
            sockets_max: random.one_of(&[12, 24]),
            half_open_max: random.one_of(&[1, 3, 8]),
            time_wait_max: random.one_of(&[1, 2, 5]),
            orphans_max: random.one_of(&[1, 3, 40]),
            listeners_max: 4,
            backlog_max: random.one_of(&[1, 4]),
            small_chunks: random.one_of(&[16, 40]),
            large_chunks: random.one_of(&[16, 30, 100]),
            control_queue_max: 16,
            segment_records: random.one_of(&[24, 60]),
            range_blocks: random.one_of(&[1, 4]),
            warm_sockets: random.one_of(&[1, 4]),
            pack_after_ns: random.one_of(&[0, SECOND]),
            packed_blocks: random.one_of(&[4, 60]),
        },
        2 => Limits {
            small_chunks: 64,
            large_chunks: random.one_of(&[24, 60]),
            pack_after_ns: SECOND,
            ..usual
        },
        _ => usual,
    }
}

fn tcp(random: &mut Random) -> tcp::Config {
    let mut config = tcp::Config {
        congestion: random.one_of(&[
            CongestionAlgorithm::Cubic,
            CongestionAlgorithm::Cubic,
            CongestionAlgorithm::NewReno,
            CongestionAlgorithm::Bbr,
            CongestionAlgorithm::Dctcp,
        ]),
        timestamps: !random.chance(30),
        sack: !random.chance(20),
        window_scaling: !random.chance(15),
        ecn: random.one_of(&[
            EcnUse::Never,
            EcnUse::WhenAsked,
            EcnUse::Always,
            EcnUse::Accurate,
        ]),
        pacing: random.chance(30),
        shrink_window: random.chance(15),
        time_wait_ns: random.one_of(&[SECOND, 60 * SECOND]),
        fin_wait_2_ns: random.one_of(&[SECOND, 60 * SECOND]),
        syn_retries_max: random.one_of(&[2, 6]),
        orphan_retries_max: random.one_of(&[2, 8]),
        keepalive_idle_ns: random.one_of(&[SECOND, 7_200 * SECOND]),
        abort_on_overflow: random.chance(15),
        syn_cookies: random.one_of(&[
            SynCookieUse::WhenFull,
            SynCookieUse::WhenFull,
            SynCookieUse::Never,
            SynCookieUse::Always,
        ]),
        ..tcp::Config::default()
    };
    config.cubic.slow_start = random.one_of(&[
        SlowStart::Standard,
        SlowStart::HyStart,
        SlowStart::HyStartPlusPlus,
    ]);
    config.recv_buffer.bytes_default = random.one_of(&[8_000, 131_072]);
    config.send_buffer.bytes_default = random.one_of(&[16_384, 60_000]);
    config.path_mtu.probing = random.one_of(&[
        MtuProbing::Never,
        MtuProbing::Never,
        MtuProbing::AfterBlackHole,
        MtuProbing::Always,
    ]);
    config.fast_open = config
        .fast_open
        .with_bits(random.one_of(&[1, 3, 3, 0x207, 0x403]));
    config
}

/// Rules of every kind; some match the traffic of the course.
pub fn rules(random: &mut Random) -> RuleSet {
    let mut rules = Vec::new();
    for number in 0..random.below(14) {
        let prefix = random.one_of(&[
            "10.0.0.0/24",
            "10.0.0.2/32",
            "10.0.0.64/26",
            "10.0.1.0/24",
            "0.0.0.0/0",
            "fd00::/64",
            "fd00::2/128",
        ]);
        let is_v4 = !prefix.contains(':');
        let protocol = random.one_of(&[
            None,
            Some(Protocol::Tcp),
            Some(Protocol::Udp),
            Some(Protocol::Icmp),
            Some(Protocol::Number(132)),
        ]);
        let takes_ports = matches!(protocol, None | Some(Protocol::Tcp | Protocol::Udp));
        let first = random.one_of(&[80, 81, 82, 1_024]);
        let last = first + random.one_of(&[0, 1, 60_000]);
        let range = (takes_ports && random.chance(60)).then_some((first, last));
        let sources = (takes_ports && random.chance(10)).then_some((1_024, 30_000));
        rules.push(Rule {
            name: random.chance(50).then(|| format!("rule {number}")),
            source: random.chance(70).then(|| prefix.parse().unwrap()),
            destination: (is_v4 && random.chance(15)).then(|| "10.0.0.1/32".parse().unwrap()),
            protocol,
            source_ports: sources,
            destination_ports: range,
            wire: random.one_of(&[None, None, None, Some(1), Some(2)]),
            action: random.one_of(&[
                RuleAction::Allow,
                RuleAction::Allow,
                RuleAction::Allow,
                RuleAction::Deny,
                RuleAction::Reject,
                RuleAction::Limit {
                    per_second: 3,
                    burst: 2,
                },
            ]),
        });
    }
    RuleSet {
        rules,
        default_action: random.one_of(&[RuleAction::Allow, RuleAction::Allow, RuleAction::Reject]),
    }
}
