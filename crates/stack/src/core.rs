//! The parts of a stack that all its stages share: its flows, its network, and what is scheduled.
//!
//! Each stage has its own state (`Arrivals`, `AppRequests`, `Departures`) and works on these parts.
//! The port is separate, so that frames lent by it and the state that they change can be borrowed
//! at once. Every call into a connection ends in `settle`.

use tcp::SegmentOut;
use tcp::isn::IsnGenerator;
use wire::FlowKey;

use crate::counters::Counters;
use crate::event_queue::EventQueue;
use crate::flows::Flows;
use crate::header_fields::HeaderFields;
use crate::host_wishes::HostWishes;
use crate::network::layer::Network;
use crate::network::path::headers_of;
use crate::schedule::Schedule;
use crate::stage_clock::StageClock;
use crate::tcp_env::TcpEnv;
use crate::transfer_lists::Transfers;

pub(crate) struct Core {
    pub env: TcpEnv,
    pub counters: Counters,
    pub stages: StageClock,
    pub flows: Flows,
    pub network: Network,
    pub schedule: Schedule,
    pub events: EventQueue,
    pub isn: IsnGenerator,
    /// The most that one connection may have in its send buffer, judged with the memory left.
    pub fair_share: u32,
    pub port: PortState,
    /// Storage of a segment about to leave.
    pub segment_out: SegmentOut,
    pub host_wishes: HostWishes,
    pub transfers: Transfers,
}

/// The port's acceptance of the last turns' frames.
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

impl Core {
    /// Puts a segment that answers another into the queue of those without a connection.
    #[inline]
    pub(crate) fn reply(&mut self, key: &FlowKey, segment: &SegmentOut, header: HeaderFields) {
        (self.schedule.control).push(key, segment, header, &mut self.counters);
    }

    /// Tells a new connection about a router's report on its path: its duration, and the link's own
    /// limit.
    #[inline]
    pub(crate) fn tell_path(&mut self, socket: u32) {
        if self.network.destinations.heeds_routers(self.env.now_ns) {
            self.tell_routers_word(socket);
        }
    }

    #[cold]
    fn tell_routers_word(&mut self, socket: u32) {
        let slot = self.flows.sockets.slot(socket);
        let remote = slot.key.remote;
        let word = self.network.destinations.path(remote, self.env.now_ns);
        let (Some(conn), Some(word)) = (slot.conn.as_mut(), word) else {
            return;
        };
        let mss = word.mtu.saturating_sub(headers_of(remote));
        conn.know_path(self.network.mss_for(remote), mss, word.until_ns);
        if word.too_narrow {
            slot.header.narrow_too_far(word.until_ns);
        }
    }

    /// Forgets a handshake in progress.
    pub(crate) fn remove_half_open(&mut self, index: u32) {
        if self.flows.remove_half_open(index) {
            self.schedule.stop_half_open(index);
        }
    }

    /// Copies the counts of tables that refused or forgot something, once per turn.
    #[inline]
    pub(crate) fn count_refusals(&mut self) {
        self.env.tcp_counters.records_refused = self.env.records.refused();
        self.counters.pack_refused = self.flows.sockets.pack_refused();
        self.counters.destinations_evicted = self.network.destinations.evicted();
    }

    /// Judges once per turn how much memory is left, and while it is low, how much of it each
    /// connection may fill with sent data.
    #[inline]
    pub(crate) fn judge_memory(&mut self) {
        self.env.memory = self.flows.sockets.judge_memory();
        self.fair_share = self.flows.fair_share(self.env.memory);
    }
}
