//! Networks: one wire, a switch, or routers in a random tree. Each line has its own faults.

use tcp::CongestionAlgorithm;

use crate::plan::{
    Burst, EndPlan, FlowPlan, HostPlan, LinePlan, LinkPlan, NodePlan, Plan, Step, Strain,
};
use crate::random::Random;

use super::{MILLIS, SECOND, SLOTS, Weather, ample_limits};

/// Nodes and links that join the hosts.
pub(super) struct Web {
    pub nodes: Vec<NodePlan>,
    pub links: Vec<LinkPlan>,
}

/// Draws nodes and links for `hosts`, and sets the hosts' MTUs to those of their links.
pub(super) fn web(
    seed: u64,
    weather: Weather,
    heal_ns: u64,
    has_v6: bool,
    hosts: &mut [HostPlan],
) -> Web {
    let mut dice = Random::new(seed, 2);
    let mut nodes: Vec<NodePlan> = (0..hosts.len()).map(NodePlan::Host).collect();
    let edges = if hosts.len() == 2 && dice.percent(40) {
        vec![[0, 1]]
    } else if dice.percent(25) {
        nodes.push(NodePlan::Switch);
        (0..hosts.len()).map(|host| [host, hosts.len()]).collect()
    } else {
        routed(&mut dice, &mut nodes, hosts.len())
    };
    let is_routed = matches!(nodes.last(), Some(NodePlan::Router { .. }));
    let mtus: &[usize] = match (is_routed, has_v6) {
        (false, _) => &[1_500],
        (true, true) => &[1_500, 1_500, 1_500, 1_400, 1_280, 4_000],
        (true, false) => &[1_500, 1_500, 1_500, 1_400, 1_280, 576, 4_000],
    };
    let reference = Reference::draw(&mut dice, weather);
    let links: Vec<LinkPlan> = edges
        .into_iter()
        .map(|ends| LinkPlan {
            ends,
            mtu: dice.pick(mtus),
            lines: [(); 2].map(|()| line(&mut dice, weather, heal_ns, &reference)),
        })
        .collect();
    for link in &links {
        for end in link.ends {
            if let Some(host) = hosts.get_mut(end) {
                host.mtu = link.mtu;
            }
        }
    }
    Web { nodes, links }
}

/// Adds up to four routers in a tree and returns the edges. Each host is at one of them.
fn routed(dice: &mut Random, nodes: &mut Vec<NodePlan>, hosts: usize) -> Vec<[usize; 2]> {
    let routers = dice.between(1, 4) as usize;
    let mut edges = Vec::new();
    for number in 0..routers {
        nodes.push(NodePlan::Router {
            tells_too_big: dice.percent(85),
        });
        if number > 0 {
            edges.push([hosts + dice.below(number as u64) as usize, hosts + number]);
        }
    }
    for host in 0..hosts {
        edges.push([host, hosts + dice.below(routers as u64) as usize]);
    }
    edges
}

/// Values shared by the lines of a world, so that each world has a theme.
struct Reference {
    delay_ns: u64,
    rate_bits: u64,
    loss_ppm: u32,
    reorders: bool,
    duplicates: bool,
    corrupts: bool,
    bursts: bool,
    blackholes: bool,
    marks: bool,
    jitters: bool,
}

impl Reference {
    fn draw(dice: &mut Random, weather: Weather) -> Self {
        let worst_ppm = match weather {
            Weather::Fine => 0,
            Weather::Fair => 20_000,
            Weather::Foul => 200_000,
        };
        let bad = u64::from(weather != Weather::Fine);
        let foul = u64::from(weather == Weather::Foul);
        Self {
            delay_ns: dice.magnitude(10_000, 100 * MILLIS),
            rate_bits: if dice.percent(60) {
                dice.magnitude(1_000_000, 1_000_000_000)
            } else {
                0
            },
            loss_ppm: if dice.percent(70 * bad) {
                dice.magnitude(100, worst_ppm.max(101)) as u32
            } else {
                0
            },
            reorders: dice.percent(35 * bad),
            duplicates: dice.percent(30 * bad),
            corrupts: dice.percent(30 * bad),
            bursts: dice.percent(30 * foul),
            blackholes: dice.percent(20 * bad + 30 * foul),
            marks: dice.percent(30),
            jitters: dice.percent(50),
        }
    }
}

fn line(dice: &mut Random, weather: Weather, heal_ns: u64, reference: &Reference) -> LinePlan {
    let near = |dice: &mut Random, value: u64| dice.between(value / 2, value + value / 2);
    let rate_bits = near(dice, reference.rate_bits);
    let delay_ns = near(dice, reference.delay_ns);
    // Largest queue in bytes: up to four times what is under way on the line.
    let most = (rate_bits / 8 * (delay_ns + 10 * MILLIS) / SECOND * 4).max(20_000);
    // Connections that begin at the same instant also retry at the same instant. The same ones find
    // the queue full each time. Where no failure is excused, the queue must hold all their SYNs.
    let least = if weather == Weather::Foul {
        8_000
    } else {
        32_000
    };
    let queue_bytes = dice.magnitude(least, most.max(least + 1));
    let mark_bytes = dice.between(1, 4) * queue_bytes / 8;
    let burst = Burst {
        begin_ppm: dice.magnitude(500, 20_000) as u32,
        end_ppm: dice.magnitude(50_000, 500_000) as u32,
        loss_ppm: dice.between(500_000, 1_000_000) as u32,
    };
    let loss_ppm = near(dice, u64::from(reference.loss_ppm)) as u32;
    let reorder_ppm = dice.magnitude(1_000, 200_000) as u32;
    let reorder_ns = dice.magnitude(20_000, 30 * MILLIS);
    let duplicate_ppm = dice.magnitude(1_000, 100_000) as u32;
    let corrupt_ppm = dice.magnitude(500, 20_000) as u32;
    let jitter_ns = dice.below(delay_ns + 1);
    let hole = blackhole(dice, weather, heal_ns);
    let has = |wanted: bool, percent: u64, dice: &mut Random| dice.percent(percent) && wanted;
    LinePlan {
        rate_bits,
        queue_bytes,
        mark_bytes: if reference.marks { mark_bytes } else { 0 },
        delay_ns,
        // `draw` sets the same lateness for all lines.
        late_ns_max: 0,
        jitter_ns: if has(reference.jitters, 70, dice) {
            jitter_ns
        } else {
            0
        },
        loss_ppm: if has(true, 70, dice) { loss_ppm } else { 0 },
        burst: has(reference.bursts, 50, dice).then_some(burst),
        reorder_ppm: if has(reference.reorders, 60, dice) {
            reorder_ppm
        } else {
            0
        },
        reorder_ns,
        duplicate_ppm: if has(reference.duplicates, 60, dice) {
            duplicate_ppm
        } else {
            0
        },
        corrupt_ppm: if has(reference.corrupts, 60, dice) {
            corrupt_ppm
        } else {
            0
        },
        blackholes: if has(reference.blackholes, 40, dice) {
            vec![hole]
        } else {
            Vec::new()
        },
    }
}

/// The begin and end of a time in which nothing passes, in ns.
fn blackhole(dice: &mut Random, weather: Weather, heal_ns: u64) -> (u64, u64) {
    let longest_ns = if weather == Weather::Foul {
        20 * SECOND
    } else {
        SECOND
    };
    let at_ns = dice.below(heal_ns);
    (at_ns, at_ns + dice.magnitude(20 * MILLIS, longest_ns))
}

/// A world in which two or three like hosts send to one through the same narrow line.
pub(super) fn fair_world(seed: u64) -> Plan {
    let mut dice = Random::new(seed, 5);
    let flows = dice.between(2, 3) as usize;
    let rate_bits = dice.between(2, 4) * 1_000_000;
    let delay_ns = dice.between(5, 25) * MILLIS;
    let round_bytes = rate_bits / 8 * (delay_ns * 2 + 4 * MILLIS) / SECOND;
    let mut settings = tcp::Config::default();
    // All hosts use the same algorithm, since shares of BBR and CUBIC depend on the queue alone.
    // The choice has its own dice, so that the worlds of CUBIC stay unchanged.
    if Random::new(seed, 7).percent(40) {
        settings.congestion = CongestionAlgorithm::Bbr;
    }
    let host = |number: usize| HostPlan {
        tcp: settings.clone(),
        limits: ample_limits(),
        clock_ns: (number as u64 + 1) * 1_000 * SECOND + dice.clone().below(SECOND),
        coalesce_ns: 0,
        slots: SLOTS,
        mtu: 1_500,
    };
    let hosts: Vec<HostPlan> = (0..=flows).map(host).collect();
    let router = NodePlan::Router {
        tells_too_big: true,
    };
    let mut nodes: Vec<NodePlan> = (0..=flows).map(NodePlan::Host).collect();
    nodes.extend([router, router]);
    let (near, far) = (flows + 1, flows + 2);
    let access = || LinePlan {
        // A little jitter keeps packets from arriving in lock-step.
        jitter_ns: 2 * MILLIS,
        delay_ns: MILLIS,
        ..LinePlan::default()
    };
    let narrow = LinePlan {
        rate_bits,
        queue_bytes: round_bytes.max(15_000) * dice.between(1, 2),
        delay_ns,
        ..LinePlan::default()
    };
    let back = LinePlan {
        delay_ns,
        ..LinePlan::default()
    };
    let link = |ends, lines| LinkPlan {
        ends,
        mtu: 1_500,
        lines,
    };
    let mut links: Vec<LinkPlan> = (0..flows)
        .map(|host| link([host, near], [access(), access()]))
        .collect();
    links.push(link([near, far], [narrow, back]));
    links.push(link([flows, far], [access(), access()]));
    Plan {
        seed,
        heal_ns: 0,
        strain: Strain {
            lossy: true,
            ..Strain::default()
        },
        hosts,
        nodes,
        links,
        flows: (0..flows).map(|client| endless(client, flows)).collect(),
        jumps: Vec::new(),
        lies: Vec::new(),
        fair: true,
    }
}

/// A flow with more bytes than the line carries during the measurement.
fn endless(client: usize, server: usize) -> FlowPlan {
    let write = Step::Write {
        bytes: 1 << 40,
        piece: 64 << 10,
        gap_ns: 0,
    };
    FlowPlan {
        client,
        server,
        port: 1_000 + client as u16,
        v6: false,
        start_ns: client as u64 * 10 * MILLIS,
        count: 1,
        gap_ns: 0,
        simultaneous: false,
        fast_open: false,
        ends: [
            EndPlan {
                steps: vec![write],
                ..EndPlan::default()
            },
            EndPlan::default(),
        ],
    }
}
