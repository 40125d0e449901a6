//! The parts of a stack that all its stages share: its flows, its network, and what is scheduled.
//!
//! Each stage has its own state (`Arrivals`, `AppRequests`, `Departures`) and works on these parts.
//! The port is separate, so that frames lent by it and the state that they change can be borrowed
//! at once. Every call into a connection ends in `effects`.

use packetio::mesh::MeshSender;
use tcp::SegmentOut;
use tcp::isn::IsnGenerator;

use crate::counters::Counters;
use crate::event_queue::EventQueue;
use crate::flows::Flows;
use crate::handshake_keys::HandshakeKeys;
use crate::host_wishes::HostWishes;
use crate::limits::PORTS_MAX;
use crate::network::layer::Network;
use crate::network::neighbours::NeighbourId;
use crate::network::path::headers_of;
use crate::rules::judge::Judge;
use crate::schedule::Schedule;
use crate::schedule::control_queue::ControlSegment;
use crate::stage_clock::StageClock;
use crate::tcp_env::TcpEnv;
use crate::transfer_lists::Transfers;
use crate::unsent_notes::{Unsent, UnsentNotes, UnsentReason};

pub(crate) struct Core {
    pub env: TcpEnv,
    pub counters: Counters,
    pub stages: StageClock,
    pub flows: Flows,
    pub network: Network,
    pub schedule: Schedule,
    pub events: EventQueue,
    pub isn: IsnGenerator,
    pub handshakes: HandshakeKeys,
    /// The most that one connection may have in its send buffer, judged with the memory left.
    pub fair_share: u32,
    pub ports: PortStates,
    /// Storage of a segment about to leave.
    pub segment_out: SegmentOut,
    pub host_wishes: HostWishes,
    pub transfers: Transfers,
    /// Packet rules; `None`: everything is allowed.
    pub rules: Option<Box<Judge>>,
    /// The way to the other contexts of the wire; `None`: nothing arrives here that is theirs.
    pub mesh: Option<Box<MeshSender>>,
    /// Segments that this turn gave up; `None` while nobody captures.
    pub unsent: Option<Box<UnsentNotes>>,
}

/// The state of each port.
pub(crate) struct PortStates([PortState; PORTS_MAX]);

impl PortStates {
    pub fn new(now_ns: u64) -> Self {
        Self([PortState::new(now_ns); PORTS_MAX])
    }

    /// The state of a port.
    #[inline]
    pub fn of(&self, port: u8) -> &PortState {
        // The mask saves a check of bounds.
        &self.0[usize::from(port) % PORTS_MAX]
    }

    /// The state of a port, to change it.
    #[inline]
    pub fn of_mut(&mut self, port: u8) -> &mut PortState {
        &mut self.0[usize::from(port) % PORTS_MAX]
    }
}

/// A port's acceptance of the last turns' frames.
#[derive(Clone, Copy)]
pub(crate) struct PortState {
    /// When it last took a frame.
    pub took_ns: u64,
    /// Turns since in which it had no room.
    pub refusals: u32,
    /// When the first of them was.
    pub refuses_since_ns: u64,
    /// The last turn ended with output that it had no room for.
    pub is_short: bool,
}

impl PortState {
    fn new(now_ns: u64) -> Self {
        Self {
            took_ns: now_ns,
            refusals: 0,
            refuses_since_ns: 0,
            is_short: false,
        }
    }
}

/// Gives segments without a connection to the port that they leave by. What cannot be routed is
/// dropped and counted.
#[cold]
pub(crate) fn sort_control(core: &mut Core) {
    let (network, counters, now_ns) = (&mut core.network, &mut core.counters, core.env.now_ns);
    let unsent = &mut core.unsent;
    core.schedule.sort_control(|one| {
        let hop = network.hop(one.key.local, one.key.remote, now_ns);
        if hop.is_err() {
            counters.control_unroutable += 1;
            note_unsent(unsent, one, 0, UnsentReason::Unroutable);
        }
        hop.ok().map(NeighbourId::port)
    });
}

/// Notes a segment without a connection that was not sent, if somebody captures.
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

/// Tells a new connection about a router's report on its path: its duration, and the link's own
/// limit.
#[inline]
pub(crate) fn tell_path(flows: &mut Flows, network: &mut Network, now_ns: u64, socket: u32) {
    if network.destinations.heeds_routers(now_ns) {
        tell_routers_word(flows, network, now_ns, socket);
    }
}

#[cold]
fn tell_routers_word(flows: &mut Flows, network: &mut Network, now_ns: u64, socket: u32) {
    let slot = flows.sockets.slot(socket);
    let remote = slot.key.remote;
    let word = network.destinations.path(remote, now_ns);
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

/// Copies the counts of tables that refused or forgot something, once per turn.
#[inline]
pub(crate) fn count_refusals(
    env: &mut TcpEnv,
    counters: &mut Counters,
    flows: &Flows,
    network: &Network,
    schedule: &Schedule,
) {
    env.tcp_counters.records_refused = env.records.refused();
    counters.pack_refused = flows.sockets.pack_refused();
    counters.hand_over_unlisted = flows.unlisted();
    counters.destinations_evicted = network.destinations.evicted();
    counters.control_queue_full = schedule.control_refused() + network.cold_refused();
}

/// Judges once per turn how much memory is left, and while it is low, how much of it each
/// connection may fill with sent data.
#[inline]
pub(crate) fn judge_memory(core: &mut Core) {
    core.env.memory = core.flows.sockets.judge_memory();
    core.fair_share = core.flows.fair_share(core.env.memory);
}
