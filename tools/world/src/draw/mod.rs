//! The [`Plan`] of a world, drawn from a seed.
//!
//! Each part has its own stream of dice. The draw for a seed changes only when this directory does.
//! A list of regressions therefore names the commit that found each seed.

mod flows;
mod network;

use stack::Limits;
use tcp::path_mtu::{MtuProbing, PathMtuSettings};
use tcp::{CongestionAlgorithm, EcnUse, SlowStart, SynCookieUse};

use super::plan::{HostPlan, Lie, LieKind, NodePlan, Plan, Strain};
use super::random::Random;

pub(super) const MILLIS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;

/// Slots of a driver that never runs out of them.
pub(super) const SLOTS: usize = 256;

/// One seed in so many is a world in which flows compete for a bottleneck.
const FAIR_EVERY: u64 = 40;

/// Largest delay that lateness adds to a frame on any line, in ns.
const LATE_NS_MAX: u64 = 15_000;

/// Severity of a world's faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// Frames are lost only by full queues.
    Fine,
    /// Single, short faults.
    Fair,
    /// All kinds of faults, and long ones.
    Foul,
}

/// The plan of the world of a seed.
#[must_use]
pub fn draw(seed: u64) -> Plan {
    let mut plan = match seed.is_multiple_of(FAIR_EVERY) {
        true => network::fair_world(seed),
        false => usual_world(seed),
    };
    let lines = plan.links.iter_mut().flat_map(|link| &mut link.lines);
    lines.for_each(|line| line.late_ns_max = LATE_NS_MAX);
    plan
}

fn usual_world(seed: u64) -> Plan {
    let mut dice = Random::new(seed, 1);
    let weather = match dice.below(100) {
        0..20 => Weather::Fine,
        20..70 => Weather::Fair,
        _ => Weather::Foul,
    };
    let count = dice.pick(&[2, 2, 2, 3, 3, 4, 5, 6, 8]);
    let has_v6 = dice.percent(50);
    let heal_ns = dice.between(2, 40) * SECOND;
    let scarce = weather == Weather::Foul && dice.percent(25);
    let mut hosts: Vec<HostPlan> = (0..count)
        .map(|number| host(seed, number, weather, scarce))
        .collect();
    let web = network::web(seed, weather, heal_ns, has_v6, &mut hosts);
    let flows = flows::flows(seed, weather, has_v6, count as usize);
    let mut plan = Plan {
        seed,
        heal_ns,
        strain: Strain::default(),
        hosts,
        nodes: web.nodes,
        links: web.links,
        flows,
        jumps: Vec::new(),
        lies: Vec::new(),
        fair: false,
    };
    plan.strain = strain(&plan, scarce);
    plan.jumps = jumps(&plan, weather);
    plan.lies = lies(&plan);
    plan
}

/// Limits that nothing in these worlds reaches.
pub(super) fn ample_limits() -> Limits {
    Limits {
        sockets_max: 512,
        half_open_max: 128,
        time_wait_max: 512,
        listeners_max: 16,
        backlog_max: 128,
        small_chunks: 2_048,
        large_chunks: 1_024,
        control_queue_max: 256,
        ..Limits::default()
    }
}

fn host(seed: u64, number: u64, weather: Weather, scarce: bool) -> HostPlan {
    let mut dice = Random::new(seed, 100 + number);
    let mut limits = ample_limits();
    let mut payload = (256 << 10, 256 << 10);
    if dice.percent(60) {
        payload.0 = dice.magnitude(4 << 10, 512 << 10) as u32;
        payload.1 = dice.magnitude(4 << 10, 512 << 10) as u32;
    }
    if scarce && dice.percent(70) {
        limits.sockets_max = dice.between(32, 64) as usize;
        limits.half_open_max = dice.between(1, 8) as usize;
        limits.time_wait_max = dice.between(1, 16) as usize;
        limits.backlog_max = dice.between(1, 8) as usize;
        limits.small_chunks = dice.between(16, 96) as usize;
        limits.large_chunks = dice.between(16, 64) as usize;
        limits.control_queue_max = dice.between(16, 32) as usize;
    }
    // Drawn apart, so that packing leaves a seed's world otherwise unchanged. Some hosts pack a
    // quiet socket at once.
    let mut rest = Random::new(seed, 5_000 + number);
    if rest.percent(60) {
        limits.warm_sockets = rest.between(1, 4) as usize;
        limits.pack_after_ns = if rest.percent(50) {
            0
        } else {
            rest.magnitude(1_000, 100_000_000)
        };
        limits.packed_blocks = rest.magnitude(1, 512) as usize;
    }
    let mut tcp = settings(&mut dice, weather);
    for (sizes, bytes) in [
        (&mut tcp.recv_buffer, payload.0),
        (&mut tcp.send_buffer, payload.1),
    ] {
        // Half of a buffer's memory holds payload, so twice the bytes are needed.
        sizes.bytes_max = bytes * 2;
        sizes.bytes_default = sizes.bytes_default.min(bytes * 2);
    }
    HostPlan {
        tcp,
        limits,
        clock_ns: dice.between(1, 4_000_000) * SECOND + dice.below(SECOND),
        coalesce_ns: dice.pick(&[0, 0, 0, 20_000, 100_000, MILLIS]),
        slots: if dice.percent(10) { 3 } else { SLOTS },
        mtu: 1_500,
    }
}

/// Settings of TCP. Each field has its own dice, so that a new field does not change the others.
fn settings(dice: &mut Random, weather: Weather) -> tcp::Config {
    let mut tcp = tcp::Config::default();
    let mut field = |percent: u64| {
        let mut own = Random::new(dice.word(), 0);
        own.percent(percent).then_some(own)
    };
    if field(25).is_some() {
        tcp.timestamps = false;
    }
    if field(25).is_some() {
        tcp.window_scaling = false;
    }
    if field(50).is_some() {
        tcp.sack = !tcp.sack;
    }
    if field(20).is_some() {
        tcp.quick_acks_max = 0;
    }
    if let Some(mut own) = field(20) {
        tcp.initial_window_segments = own.between(1, 12) as u16;
    }
    if field(20).is_some() {
        tcp.slow_start_after_idle = false;
    }
    if let Some(mut own) = field(15) {
        tcp.delayed_ack_ns_max = tcp.delayed_ack_ns_min + own.below(160) * MILLIS;
    }
    if let Some(mut own) = field(20) {
        tcp.time_wait_ns = own.between(1, 60) * SECOND;
    }
    if let Some(mut own) = field(10) {
        tcp.rto_ns_min = own.between(20, 1_000) * MILLIS;
    }
    if let Some(mut own) = field(if weather == Weather::Foul { 30 } else { 0 }) {
        tcp.retries_max = own.between(3, 15) as u8;
        tcp.orphan_retries_max = own.between(1, 8) as u8;
    }
    if let Some(mut own) = field(50) {
        tcp.ecn = own.pick(&[
            EcnUse::Always,
            EcnUse::Never,
            EcnUse::Accurate,
            EcnUse::Accurate,
            EcnUse::AccurateWhenAsked,
            EcnUse::AccurateOnlyWhenAsked,
        ]);
        tcp.accecn_option = own.pick(&[2, 2, 0, 1, 3]);
        tcp.accecn_option_beacon = own.pick(&[3, 0, 10]);
        tcp.ecn_fallback = own.below(5) > 0;
    }
    if let Some(mut own) = field(40) {
        tcp.congestion = own.pick(&CongestionAlgorithm::ALL);
    }
    if let Some(mut own) = field(40) {
        tcp.cubic.slow_start = own.pick(&[SlowStart::Standard, SlowStart::HyStartPlusPlus]);
    }
    tcp.frto = field(20).is_none();
    tcp.tail_loss_probe = field(20).is_none();
    if field(20).is_some() {
        tcp.fast_open.client = !tcp.fast_open.client;
    }
    tcp.fast_open.server = field(80).is_some();
    if field(8).is_some() {
        tcp.syn_cookies = SynCookieUse::Always;
    }
    if let Some(mut own) = field(40) {
        search_paths(&mut tcp.path_mtu, &mut own);
    }
    tcp
}

fn search_paths(settings: &mut PathMtuSettings, own: &mut Random) {
    settings.probing = own.pick(&[MtuProbing::AfterBlackHole, MtuProbing::Always]);
    settings.age_ns_max = own.pick(&[600, 5, 60]) * SECOND;
    settings.probe_interval_ns = own.pick(&[600, 10]) * SECOND;
}

/// Strains that the plan may put on connections. They excuse failures.
fn strain(plan: &Plan, scarce: bool) -> Strain {
    let lines = || plan.links.iter().flat_map(|link| &link.lines);
    let lossy = lines().any(|line| {
        line.loss_ppm > 0
            || line.burst.is_some()
            || line.corrupt_ppm > 0
            || !line.blackholes.is_empty()
            || line.rate_bits > 0
    });
    let impatient = plan
        .hosts
        .iter()
        .any(|host| host.tcp.retries_max < 12 || host.tcp.orphan_retries_max < 8);
    let harsh = |lost_ppm: u32| lost_ppm > 25_000;
    let may_time_out = scarce
        || (impatient && lossy)
        || plan.has_narrow_place()
        || lines().any(|line| {
            harsh(line.loss_ppm + line.corrupt_ppm)
                || (line.rate_bits > 0 && line.queue_bytes < 32_000)
                || line.burst.is_some()
                || line.blackholes.iter().any(|(from, to)| to - from > SECOND)
        });
    Strain {
        may_time_out,
        lossy,
        scarce,
    }
}

fn jumps(plan: &Plan, weather: Weather) -> Vec<(u64, usize, u64)> {
    let mut dice = Random::new(plan.seed, 3);
    if weather == Weather::Fine || !dice.percent(25) {
        return Vec::new();
    }
    (0..dice.between(1, 3))
        .map(|_| {
            let at_ns = dice.below(plan.heal_ns);
            let host = dice.below(plan.hosts.len() as u64) as usize;
            (at_ns, host, dice.magnitude(MILLIS, 1_800 * SECOND))
        })
        .collect()
}

fn lies(plan: &Plan) -> Vec<Lie> {
    let mut dice = Random::new(plan.seed, 4);
    if !dice.percent(30) {
        return Vec::new();
    }
    let kinds = [
        LieKind::Reset,
        LieKind::Syn,
        LieKind::SynAck,
        LieKind::Data,
        LieKind::Ack,
        LieKind::Unreachable,
        LieKind::TooBig,
    ];
    let count = dice.magnitude(1, 200);
    (0..count)
        .map(|_| Lie {
            at_ns: dice.below(plan.heal_ns.min(10 * SECOND)),
            flow: dice.below(plan.flows.len() as u64) as usize,
            end: dice.below(2) as usize,
            kind: dice.pick(&kinds),
            dice: dice.word(),
        })
        .collect()
}

impl Plan {
    /// Whether a router silently drops packets that are too big for the next link.
    fn has_narrow_place(&self) -> bool {
        let silent = |node: usize| {
            matches!(
                self.nodes[node],
                NodePlan::Router {
                    tells_too_big: false
                }
            )
        };
        let least = self.hosts.iter().map(|host| host.mtu).max().unwrap_or(0);
        self.links
            .iter()
            .any(|link| link.mtu < least && link.ends.iter().any(|end| silent(*end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_is_the_same_world() {
        for seed in 1..50 {
            assert_eq!(format!("{:?}", draw(seed)), format!("{:?}", draw(seed)));
        }
    }

    #[test]
    fn every_host_hangs_on_one_link() {
        for seed in 1..500 {
            let plan = draw(seed);
            assert_eq!(plan.links.len() + 1, plan.nodes.len(), "a tree: {plan}");
            for host in 0..plan.hosts.len() {
                assert_eq!(plan.nodes[host], NodePlan::Host(host));
                let links = plan.links.iter().filter(|link| link.ends.contains(&host));
                assert_eq!(links.count(), 1, "{plan}");
            }
        }
    }
}
