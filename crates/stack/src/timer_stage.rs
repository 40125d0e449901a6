//! The timer stage of a turn: due entries of the wheel, paced data that may leave, the list of
//! TIME_WAIT entries, the neighbour cache, and unused memory.

use crate::arrivals::other_in::neighbour_timers;
use crate::arrivals::passive_opens::apply_half_open;
use crate::core::Core;
use crate::effects::{apply_effects, arm};
use crate::flows::memory_rounds::MemoryRounds;
use crate::limits::{EVENTS_RETRY_NS, INPUT_RETRY_NS, TIMERS_PER_TURN};
use crate::ports::Ports;
use crate::schedule::TimerOf;

/// Timeouts in a row after which the neighbour is doubted: R1 of RFC 9293 3.8.3.
const DOUBTFUL_BACKOFF: u8 = 3;

/// Fires due timers, up to a turn's budget.
pub(crate) fn fire_timers(core: &mut Core, ports: &Ports, rounds: &mut MemoryRounds) {
    let now_ns = core.env.now_ns;
    let wait = ports.timers_wait(now_ns);
    for _ in 0..TIMERS_PER_TURN {
        let Some(socket) = core.schedule.next_departure(now_ns) else {
            break;
        };
        connection_timer(core, socket, wait);
    }
    if wait {
        core.counters.timers_waited += 1;
    } else {
        wheel_timers(core);
    }
    for _ in 0..TIMERS_PER_TURN {
        let Some(index) = core.flows.time_waits.due(now_ns) else {
            break;
        };
        let gave_up = core.flows.remove_time_wait(index);
        core.env.tcp_counters.fin_wait_2_expired += u64::from(gave_up);
    }
    core.handshakes.rotate(now_ns);
    if now_ns >= rounds.next_ns {
        core.counters.memory_returned_bytes += rounds.step(&mut core.flows.sockets, now_ns);
    }
}

/// Fires timers that conclude from silence: retransmission, probes, delayed ACKs, keep-alive,
/// handshakes and the neighbour cache.
fn wheel_timers(core: &mut Core) {
    for _ in 0..TIMERS_PER_TURN {
        let Some(timer) = core.schedule.next_timer(core.env.now_ns) else {
            break;
        };
        match timer {
            TimerOf::Connection(socket) => connection_timer(core, socket, false),
            TimerOf::HalfOpen(index) => half_open_timer(core, index),
        }
    }
    neighbour_timers(core);
}

/// When the timer stage has something to do next.
pub(crate) fn next_timer_ns(core: &Core, ports: &Ports, rounds: &MemoryRounds) -> Option<u64> {
    let now_ns = core.env.now_ns;
    let neighbours_ns = Some(core.network.neighbours.deadline_ns()).filter(|&ns| ns != u64::MAX);
    let time_wait_ns = core.flows.time_waits.next_ns();
    let events_ns = (core.events.is_behind()).then(|| now_ns + EVENTS_RETRY_NS);
    let held_ns = ports.holds_input().then(|| now_ns + INPUT_RETRY_NS);
    let departure_ns = core.schedule.departure_ns();
    let wishes_ns = core.host_wishes.due_ns();
    if ports.timers_wait(now_ns) {
        let backlog_ns = Some(now_ns + INPUT_RETRY_NS);
        let due_ns = [departure_ns, time_wait_ns, events_ns, backlog_ns, wishes_ns];
        return due_ns.into_iter().flatten().min();
    }
    [
        core.schedule.timer_ns(),
        departure_ns,
        neighbours_ns,
        time_wait_ns,
        events_ns,
        held_ns,
        wishes_ns,
        rounds.due_ns(&core.flows.sockets),
    ]
    .into_iter()
    .flatten()
    .min()
}

/// Fires a connection's timer. `wait`: only its departure counts, since frames wait in the port.
fn connection_timer(core: &mut Core, socket: u32, wait: bool) {
    let slot = core.flows.sockets.slot(socket);
    let has_story = slot.story != 0;
    let Some(conn) = slot.conn.as_mut() else {
        return;
    };
    let deadline_ns = conn.deadline_ns();
    if deadline_ns > core.env.now_ns {
        // The deadline moved on since the wheel was set.
        return arm(&mut core.flows, &mut core.schedule, socket);
    }
    core.counters.timers_fired += 1;
    let backoff = conn.backoff();
    let due = match has_story && !wait {
        true => conn.due_timer(core.env.now_ns),
        false => None,
    };
    let effects = match wait {
        true => conn.on_departure(&mut core.env.cx()),
        false => conn.on_timer(&mut core.env.cx()),
    };
    // RFC 9293 MUST-20: the network layer hears of excessive retransmission, and asks its neighbour
    // whether it is there. Doublings stay until a round trip was measured, so other timers, such as
    // keep-alive's, say nothing by them.
    let has_doubled = conn.backoff() > backoff || backoff == u8::MAX;
    let is_excessive = has_doubled && conn.backoff() >= DOUBTFUL_BACKOFF;
    arm(&mut core.flows, &mut core.schedule, socket);
    if let Some(timer) = due {
        (core.flows).tell_timer(socket, timer, backoff, core.env.now_ns);
    }
    if is_excessive && let Some(id) = core.flows.sockets.slot(socket).neighbour {
        core.network.neighbours.doubt(id);
    }
    apply_effects(core, socket, effects);
}

fn half_open_timer(core: &mut Core, index: u32) {
    let Some(slot) = core.flows.half_opens.at_mut(index) else {
        return;
    };
    let outcome = slot.entry.on_timer(&mut core.env.cx());
    apply_half_open(
        &mut core.env,
        &mut core.flows,
        &mut core.schedule,
        &mut core.counters,
        index,
        outcome,
        0,
    );
}
