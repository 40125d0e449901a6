//! The engine of a stack: its flows, the network below them, and the schedule of work that is due.
//! A call into a connection may change all of these, so functions that end in `effects` take the
//! engine.
//!
//! The parts are private. [`Engine::parts`] lends them by name, so the first line of a function
//! tells which parts it uses itself.

use tcp::SegmentOut;

use crate::counters::Counters;
use crate::event_queue::EventQueue;
use crate::flows::Flows;
use crate::host_wishes::HostWishes;
use crate::network::layer::Network;
use crate::network::neighbours::NeighbourId;
use crate::network::path::headers_of;
use crate::schedule::Schedule;
use crate::schedule::control_queue::ControlSegment;
use crate::tcp_env::TcpEnv;
use crate::unsent_notes::{Unsent, UnsentNotes, UnsentReason};

/// See the module's documentation.
pub(crate) struct Engine {
    env: TcpEnv,
    counters: Counters,
    flows: Flows,
    network: Network,
    schedule: Schedule,
    events: EventQueue,
    segment_out: SegmentOut,
    host_wishes: HostWishes,
    unsent: Option<Box<UnsentNotes>>,
}

/// The parts of an engine, by mutable reference.
pub(crate) struct Parts<'a> {
    pub env: &'a mut TcpEnv,
    pub counters: &'a mut Counters,
    pub flows: &'a mut Flows,
    pub network: &'a mut Network,
    pub schedule: &'a mut Schedule,
    pub events: &'a mut EventQueue,
    /// Storage for a segment that is about to leave.
    pub segment_out: &'a mut SegmentOut,
    pub host_wishes: &'a mut HostWishes,
    /// Segments that this turn gave up, for a capture; `None` while no capture runs.
    pub unsent: &'a mut Option<Box<UnsentNotes>>,
}

/// The parts of an engine, by shared reference.
pub(crate) struct View<'a> {
    pub env: &'a TcpEnv,
    pub counters: &'a Counters,
    pub flows: &'a Flows,
    pub network: &'a Network,
    pub schedule: &'a Schedule,
    pub events: &'a EventQueue,
    pub host_wishes: &'a HostWishes,
}

impl Engine {
    /// Makes an engine without flows. `flows` brings the memory for sockets.
    pub fn new(
        env: TcpEnv,
        flows: Flows,
        network: Network,
        schedule: Schedule,
        events: EventQueue,
    ) -> Self {
        Self {
            env,
            counters: Counters::default(),
            flows,
            network,
            schedule,
            events,
            segment_out: SegmentOut::default(),
            host_wishes: HostWishes::default(),
            unsent: None,
        }
    }

    /// Lends the parts. The caller destructures the result, so the compiler borrows only the parts
    /// that it names.
    #[inline(always)]
    pub fn parts(&mut self) -> Parts<'_> {
        Parts {
            env: &mut self.env,
            counters: &mut self.counters,
            flows: &mut self.flows,
            network: &mut self.network,
            schedule: &mut self.schedule,
            events: &mut self.events,
            segment_out: &mut self.segment_out,
            host_wishes: &mut self.host_wishes,
            unsent: &mut self.unsent,
        }
    }

    /// Lends the parts by shared reference.
    #[inline(always)]
    pub fn view(&self) -> View<'_> {
        View {
            env: &self.env,
            counters: &self.counters,
            flows: &self.flows,
            network: &self.network,
            schedule: &self.schedule,
            events: &self.events,
            host_wishes: &self.host_wishes,
        }
    }

    /// The time of this turn, ns.
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        self.env.now_ns
    }
}

/// Assigns segments without a connection to the ports that they leave by. A segment without a route
/// is dropped and counted.
#[cold]
pub(crate) fn sort_control(engine: &mut Engine) {
    let Parts {
        env,
        counters,
        network,
        schedule,
        unsent,
        ..
    } = engine.parts();
    let now_ns = env.now_ns;
    schedule.sort_control(|one| {
        let hop = network.hop(one.key.local, one.key.remote, now_ns);
        if hop.is_err() {
            counters.control_unroutable += 1;
            note_unsent(unsent, one, 0, UnsentReason::Unroutable);
        }
        hop.ok().map(NeighbourId::port)
    });
}

/// Notes a segment without a connection that was not sent, while a capture runs.
#[cold]
pub(crate) fn note_unsent(
    unsent: &mut Option<Box<UnsentNotes>>,
    one: &ControlSegment,
    port: u8,
    reason: UnsentReason,
) {
    if let Some(notes) = unsent {
        notes.add(Unsent {
            key: one.key,
            segment: one.segment.clone(),
            header: one.header,
            port,
            reason,
        });
    }
}

/// Tells a new connection what a router reported about its path: the MTU, and how long the report
/// is valid.
#[inline]
pub(crate) fn tell_path(flows: &mut Flows, network: &mut Network, now_ns: u64, socket: u32) {
    #[cfg(feature = "twin")]
    crate::shortcuts::tell(flows, socket);
    if network.destinations().has_path_reports(now_ns) {
        tell_routers_word(flows, network, now_ns, socket);
    }
}

#[cold]
fn tell_routers_word(flows: &mut Flows, network: &mut Network, now_ns: u64, socket: u32) {
    let slot = flows.slot(socket);
    let remote = slot.key.remote;
    let word = network.destinations_mut().path(remote, now_ns);
    let (Some(conn), Some(word)) = (slot.conn.as_mut(), word) else {
        return;
    };
    let mss = word.mtu.saturating_sub(headers_of(remote));
    conn.know_path(network.mss_for(slot.key.local), mss, word.until_ns);
    if word.too_narrow {
        slot.header.narrow_too_far(word.until_ns);
    }
}

/// Forgets a handshake in progress.
pub(crate) fn remove_half_open(flows: &mut Flows, schedule: &mut Schedule, index: u32) {
    if flows.remove_half_open(index) {
        schedule.stop_half_open(index);
    }
}

/// Copies the counts of refused and evicted table entries into the counters, once per turn.
#[inline]
pub(crate) fn count_refusals(engine: &mut Engine) {
    let Parts {
        env,
        counters,
        flows,
        network,
        schedule,
        ..
    } = engine.parts();
    env.tcp_counters.records_refused = env.records.refused();
    counters.pack_refused = flows.sockets().pack_refused();
    counters.hand_over_unlisted = flows.unlisted();
    counters.destinations_evicted = network.destinations().evicted();
    counters.control_queue_full = schedule.control_refused() + network.cold_refused();
}

/// Judges once per turn how much memory is free. While it is low, limits the send buffer of each
/// connection.
#[inline]
pub(crate) fn judge_memory(env: &mut TcpEnv, flows: &mut Flows) {
    env.memory = flows.sockets().judge_memory();
    env.fair_share = flows.fair_share(env.memory);
}
