//! Plans of a world's applications, drawn from its seed.

use stack::context::SocketOption;
use tcp::{CongestionAlgorithm, Keepalive};

use crate::plan::{EndPlan, FlowPlan, Step};
use crate::random::Random;

use super::{MILLIS, SECOND, Weather};

/// Approximate number of bytes that all flows of a world write together.
const BYTES_MAX: u64 = 600_000;
/// Bytes of the connection's name, with which a client's stream begins.
pub(crate) const NAME_BYTES: u64 = 8;

pub(super) fn flows(seed: u64, weather: Weather, has_v6: bool, hosts: usize) -> Vec<FlowPlan> {
    let mut dice = Random::new(seed, 6);
    let count = dice.between(1, 6) as usize;
    let budget = BYTES_MAX / count as u64;
    (0..count)
        .map(|number| {
            // Each flow has its own dice, so that removing one leaves the others unchanged.
            let mut own = Random::new(dice.word(), 0);
            flow(&mut own, number as u16, weather, has_v6, hosts, budget)
        })
        .collect()
}

fn flow(
    dice: &mut Random,
    number: u16,
    weather: Weather,
    has_v6: bool,
    hosts: usize,
    budget: u64,
) -> FlowPlan {
    let client = dice.below(hosts as u64) as usize;
    let server = (client + 1 + dice.below(hosts as u64 - 1) as usize) % hosts;
    let mut flow = FlowPlan {
        client,
        server,
        port: 1_000 + number,
        v6: has_v6 && dice.percent(50),
        start_ns: dice.below(3 * SECOND),
        count: 1,
        gap_ns: 0,
        simultaneous: false,
        fast_open: false,
        ends: [EndPlan::default(), EndPlan::default()],
    };
    match dice.below(100) {
        0..30 => bulk(dice, &mut flow, budget),
        30..50 => request_response(dice, &mut flow, budget),
        50..62 => half_close(dice, &mut flow, budget),
        62..75 => short(dice, &mut flow, weather),
        75..85 => idle(dice, &mut flow),
        85..93 => abort(dice, &mut flow, budget),
        _ => simultaneous(dice, &mut flow, budget),
    }
    for end in &mut flow.ends {
        pace(dice, end);
    }
    let starts_with_data = matches!(flow.ends[0].steps.first(), Some(Step::Write { .. }));
    if dice.percent(30) && starts_with_data && !flow.simultaneous {
        flow.fast_open = true;
        flow.ends[1].options.push(SocketOption::FastOpen(16));
    }
    flow
}

/// A step that writes `bytes`, in pieces.
fn write(dice: &mut Random, bytes: u64) -> Step {
    let piece = dice.magnitude(16, 65_536) as u32;
    // A slow writer may write only a few pieces a second, so it gets only a few pieces.
    let is_slow = dice.percent(15) && bytes / u64::from(piece) < 200;
    let gap_ns = dice.magnitude(MILLIS, SECOND);
    Step::Write {
        bytes: bytes.max(NAME_BYTES),
        piece,
        gap_ns: if is_slow { gap_ns } else { 0 },
    }
}

/// Draws the pace of an end's reads, and its socket options.
fn pace(dice: &mut Random, end: &mut EndPlan) {
    let (piece, gap_ns) = (
        dice.magnitude(512, 32_768),
        dice.magnitude(100_000, 300 * MILLIS),
    );
    if dice.percent(25) {
        // Limit the gap, so that the reader does not take hours.
        end.read_piece = piece as u32;
        end.read_gap_ns = gap_ns.min(piece * 20_000);
    }
    if dice.percent(30) {
        end.options.push(SocketOption::NoDelay(true));
    }
    if dice.percent(8) {
        end.options.push(SocketOption::Cork(true));
    }
    let algorithm = dice.pick(&CongestionAlgorithm::ALL);
    if dice.percent(15) {
        end.options.push(SocketOption::Congestion(algorithm));
    }
    let segment = dice.between(200, 1_400) as u16;
    if dice.percent(8) {
        end.options.push(SocketOption::MaxSegment(segment));
    }
    let buffer = dice.magnitude(4 << 10, 200 << 10) as u32;
    if dice.percent(10) {
        end.options.push(SocketOption::RecvBuffer(buffer));
    }
    if dice.percent(10) {
        end.options.push(SocketOption::SendBuffer(buffer));
    }
}

fn bulk(dice: &mut Random, flow: &mut FlowPlan, budget: u64) {
    for (number, end) in flow.ends.iter_mut().enumerate() {
        let bytes = dice.magnitude(1, budget);
        if number == 0 || dice.percent(50) {
            end.steps.push(write(dice, bytes));
        }
        end.steps.push(Step::Shutdown);
    }
}

fn request_response(dice: &mut Random, flow: &mut FlowPlan, budget: u64) {
    let rounds = dice.magnitude(1, 40);
    let (mut asked, mut answered) = (0, 0);
    for _ in 0..rounds {
        let request = dice.magnitude(NAME_BYTES, 2_000);
        let response = dice.magnitude(1, budget / rounds + 1).max(NAME_BYTES);
        asked += request;
        flow.ends[0].steps.push(write(dice, request));
        flow.ends[1].steps.push(Step::Await(asked));
        flow.ends[1].steps.push(write(dice, response));
        answered += response;
        flow.ends[0].steps.push(Step::Await(answered));
        if dice.percent(20) {
            let pause_ns = dice.magnitude(MILLIS, 3 * SECOND);
            flow.ends[0].steps.push(Step::Pause(pause_ns));
        }
    }
    flow.ends[0].steps.push(Step::Shutdown);
    flow.ends[1].steps.push(Step::Shutdown);
}

/// A flow whose server answers only after the client's end.
fn half_close(dice: &mut Random, flow: &mut FlowPlan, budget: u64) {
    let (there, back) = (
        dice.magnitude(NAME_BYTES, budget),
        dice.magnitude(1, budget),
    );
    flow.ends[0].steps = vec![write(dice, there), Step::Shutdown];
    let pause = Step::Pause(dice.magnitude(1, 20 * SECOND));
    flow.ends[1].steps = vec![
        Step::Await(flow.bytes_written(0)),
        pause,
        write(dice, back),
        Step::Shutdown,
    ];
}

fn short(dice: &mut Random, flow: &mut FlowPlan, weather: Weather) {
    let most = if weather == Weather::Foul { 60 } else { 300 };
    flow.count = dice.magnitude(2, most) as u32;
    flow.gap_ns = dice.magnitude(10_000, 100 * MILLIS);
    let (request, response) = (
        dice.between(NAME_BYTES, 600),
        dice.between(NAME_BYTES, 3_000),
    );
    flow.ends[0].steps = vec![write(dice, request), Step::Await(response), Step::Shutdown];
    flow.ends[1].steps = vec![Step::Await(request), write(dice, response), Step::Shutdown];
    for end in &mut flow.ends {
        for step in &mut end.steps {
            if let Step::Write { gap_ns, .. } = step {
                *gap_ns = 0;
            }
        }
    }
}

fn idle(dice: &mut Random, flow: &mut FlowPlan) {
    let keepalive = Keepalive {
        idle_ns: dice.between(1, 100) * SECOND,
        interval_ns: dice.between(1, 20) * SECOND,
        probes_max: 9,
    };
    let pause_ns = dice.between(1, 600) * SECOND;
    for end in &mut flow.ends {
        if dice.percent(70) {
            end.options.push(SocketOption::KeepAlive(Some(keepalive)));
        }
    }
    let [client, server] = &mut flow.ends;
    client.steps = vec![
        write(dice, 100),
        Step::Await(100),
        Step::Pause(pause_ns),
        write(dice, 3_000),
        Step::Shutdown,
    ];
    server.steps = vec![
        Step::Await(100),
        write(dice, 100),
        Step::Await(3_100),
        Step::Shutdown,
    ];
}

/// A flow in which one end aborts in the middle.
fn abort(dice: &mut Random, flow: &mut FlowPlan, budget: u64) {
    bulk(dice, flow, budget);
    let end = dice.below(2) as usize;
    let all = flow.bytes_written(1 - end);
    if dice.percent(50) {
        flow.ends[end].steps.pop();
        flow.ends[end].steps.push(Step::Await(dice.below(all + 1)));
        flow.ends[end].steps.push(Step::Abort);
    } else {
        flow.ends[end].leaves_early = true;
    }
}

fn simultaneous(dice: &mut Random, flow: &mut FlowPlan, budget: u64) {
    bulk(dice, flow, budget);
    flow.simultaneous = true;
}
