//! The timer stage of a turn: due timers of the wheel, departures of paced data, TIME_WAIT entries,
//! the neighbour cache, and the return of unused memory.

use crate::arrivals::other_in::neighbour_timers;
use crate::arrivals::passive_opens::apply_half_open;
use crate::core::Core;
use crate::effects::{apply_effects, arm};
use crate::engine::Engine;
use crate::flows::memory_rounds::MemoryRounds;
use crate::limits::{EVENTS_RETRY_NS, INPUT_RETRY_NS, TIMERS_PER_TURN};
use crate::ports::Ports;
use crate::schedule::TimerOf;

/// Consecutive timeouts after which the neighbour is doubted: R1 of RFC 9293 section 3.8.3.
const DOUBTFUL_BACKOFF: u8 = 3;

/// Fires due timers, up to a turn's budget.
pub(crate) fn fire_timers(core: &mut Core, ports: &Ports, rounds: &mut MemoryRounds) {
    let engine = core.engine_mut();
    let now_ns = engine.now_ns();
    let wait = ports.timers_wait(now_ns);
    for _ in 0..TIMERS_PER_TURN {
        let Some(socket) = engine.parts().schedule.next_departure(now_ns) else {
            break;
        };
        connection_timer(engine, socket, wait);
    }
    if wait {
        engine.parts().counters.timers_waited += 1;
    } else {
        wheel_timers(engine);
    }
    let parts = engine.parts();
    for _ in 0..TIMERS_PER_TURN {
        let Some(gave_up) = parts.flows.expire_time_wait(now_ns) else {
            break;
        };
        parts.env.tcp_counters.fin_wait_2_expired += u64::from(gave_up);
    }
    if now_ns >= rounds.next_ns {
        parts.counters.memory_returned_bytes += rounds.step(parts.flows.sockets_mut(), now_ns);
    }
}

/// Fires timers that draw conclusions from silence: retransmission, probes, delayed ACKs,
/// keep-alive, handshakes and the neighbour cache.
fn wheel_timers(engine: &mut Engine) {
    let now_ns = engine.now_ns();
    for _ in 0..TIMERS_PER_TURN {
        let Some(timer) = engine.parts().schedule.next_timer(now_ns) else {
            break;
        };
        match timer {
            TimerOf::Connection(socket) => connection_timer(engine, socket, false),
            TimerOf::HalfOpen(index) => half_open_timer(engine, index),
        }
    }
    neighbour_timers(engine);
}

/// Time at which the timer stage has something to do next, ns.
pub(crate) fn next_timer_ns(engine: &Engine, ports: &Ports, rounds: &MemoryRounds) -> Option<u64> {
    let view = engine.view();
    let now_ns = view.env.now_ns;
    let neighbours_ns = Some(view.network.neighbours().deadline_ns()).filter(|&ns| ns != u64::MAX);
    let time_wait_ns = view.flows.time_waits().next_ns();
    let events_ns = (view.events.is_behind()).then(|| now_ns + EVENTS_RETRY_NS);
    let held_ns = ports.holds_input().then(|| now_ns + INPUT_RETRY_NS);
    let departure_ns = view.schedule.departure_ns();
    let wishes_ns = view.host_wishes.due_ns();
    if ports.timers_wait(now_ns) {
        let backlog_ns = Some(now_ns + INPUT_RETRY_NS);
        let due_ns = [departure_ns, time_wait_ns, events_ns, backlog_ns, wishes_ns];
        return due_ns.into_iter().flatten().min();
    }
    [
        view.schedule.timer_ns(),
        departure_ns,
        neighbours_ns,
        time_wait_ns,
        events_ns,
        held_ns,
        wishes_ns,
        rounds.due_ns(view.flows.sockets()),
    ]
    .into_iter()
    .flatten()
    .min()
}

/// Fires a connection's timer. `wait`: only departures of paced data, because frames wait in the
/// port.
fn connection_timer(engine: &mut Engine, socket: u32, wait: bool) {
    let parts = engine.parts();
    let slot = parts.flows.slot(socket);
    let has_story = slot.story != 0;
    let Some(conn) = slot.conn.as_mut() else {
        return;
    };
    let deadline_ns = conn.deadline_ns();
    if deadline_ns > parts.env.now_ns {
        // The deadline moved later after the wheel was set.
        return arm(parts.flows, parts.schedule, socket);
    }
    parts.counters.timers_fired += 1;
    let backoff = conn.backoff();
    let due = match has_story && !wait {
        true => conn.due_timer(parts.env.now_ns),
        false => None,
    };
    let effects = match wait {
        true => conn.on_departure(&mut parts.env.cx()),
        false => conn.on_timer(&mut parts.env.cx()),
    };
    // RFC 9293 MUST-20: excessive retransmission makes the network layer doubt the neighbour. A
    // backoff persists until a round trip is measured, so only a timer that has just doubled it
    // counts.
    let has_doubled = conn.backoff() > backoff || backoff == u8::MAX;
    let is_excessive = has_doubled && conn.backoff() >= DOUBTFUL_BACKOFF;
    arm(parts.flows, parts.schedule, socket);
    if let Some(timer) = due {
        (parts.flows).tell_timer(socket, timer, backoff, parts.env.now_ns);
    }
    if is_excessive && let Some(id) = parts.flows.slot(socket).neighbour {
        parts.network.neighbours_mut().doubt(id);
    }
    apply_effects(engine, socket, effects);
}

fn half_open_timer(engine: &mut Engine, index: u32) {
    let parts = engine.parts();
    let Some(slot) = parts.flows.half_open_mut(index) else {
        return;
    };
    let outcome = slot.entry.on_timer(&mut parts.env.cx());
    apply_half_open(
        parts.env,
        parts.flows,
        parts.schedule,
        parts.counters,
        index,
        outcome,
        0,
    );
}
