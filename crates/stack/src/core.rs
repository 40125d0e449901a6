//! All of a stack but its port: what the stages of a turn work on. Each stage is an `impl Core` in the file of its name.
//!
//! The port stands apart so that frames lent by it and the state that they change can be borrowed at once.

use std::sync::Arc;

use packetio::{Capabilities, ChecksumPolicy};
use ring::chunk::MagazineFeed;
use ring::prefetch::Ahead;
use ring::socket_block::SocketId;
use ring::spsc::Consumer;
use ring::spsc::Producer;
use ring::stock::Stock;
use tcp::FastOpenKeys;
use tcp::isn::IsnGenerator;
use tcp::syn_cookie::SynCookies;
use tcp::{ChallengeLimiter, Memory, RangePool, RecordPool, SegmentOut};
use wire::{FlowHasher, FlowKey};

use crate::arrivals::packet_in::Looked;
use crate::arrivals::tcp_in::OpenRun;
use crate::config::StackConfig;
use crate::context::{Placed, Report};
use crate::counters::Counters;
use crate::departures::ack_trains::AckTrains;
use crate::event_queue::EventQueue;
use crate::flows::flow_table::FlowTable;
use crate::flows::half_opens::HalfOpens;
use crate::flows::icmp_notes::IcmpNotes;
use crate::flows::listeners::Listeners;
use crate::flows::memory_rounds::MemoryRounds;
use crate::flows::saved_syns::SavedSyns;
use crate::flows::sockets::{NO_KEY, Sockets};
use crate::flows::time_waits::TimeWaits;
use crate::header_fields::HeaderFields;
use crate::limits::{JOBS_PER_TURN, RX_GROUP, TX_FRAMES_AHEAD_MIN};
use crate::network::destinations::Destinations;
use crate::network::layer::Network;
use crate::requests::binds::Binds;
use crate::schedule::control_queue::ControlQueue;
use crate::schedule::pacing::Departures;
use crate::schedule::timers::Wheel;
use crate::schedule::tx_lists::TxLists;
use crate::stage_clock::StageClock;

/// What every call into `tcp` takes, made from the fields of a [`Core`] that are not its sockets.
macro_rules! tcp_cx {
    ($core:expr) => {
        tcp::Cx {
            now_ns: $core.now_ns,
            config: &$core.config.tcp,
            challenge: &mut $core.challenge,
            counters: &mut $core.tcp_counters,
            records: &mut $core.records,
            ranges: &mut $core.ranges,
            memory: $core.memory,
        }
    };
}
pub(crate) use tcp_cx;

/// The stack's ends of what it shares with its application.
pub(crate) struct StackSide {
    pub jobs: Consumer<SocketId>,
    pub controls: Consumer<Placed>,
    pub socket_stock: Stock<SocketId>,
    pub chunk_stock: MagazineFeed,
}

pub(crate) struct Core {
    /// Read once per turn.
    pub now_ns: u64,
    pub config: Arc<StackConfig>,
    pub counters: Counters,
    pub stages: StageClock,
    pub tcp_counters: tcp::Counters,
    pub challenge: ChallengeLimiter,
    /// What all connections have in flight.
    pub records: RecordPool,
    /// What all connections hold out of order.
    pub ranges: RangePool,
    /// How much memory is left for socket buffers; judged once per turn.
    pub memory: Memory,
    /// The most that one connection may have in its send buffer, judged with `memory`.
    pub fair_share: u32,
    /// The socket that was last looked at for something to shed.
    pub shed_next: u32,
    pub hasher: FlowHasher,
    pub isn: IsnGenerator,
    pub cookies: SynCookies,
    /// Secrets that the cookies have used up.
    pub cookie_secrets: u64,
    pub secrets: Secrets,
    pub network: Network,
    pub destinations: Destinations,
    /// Makes the Fast Open cookies of listeners without keys of their own.
    pub fast_open_keys: FastOpenKeys,
    /// How received checksums are treated, and whether the port computes sent ones.
    pub policy: ChecksumPolicy,
    pub offload: bool,
    pub flows: FlowTable,
    pub sockets: Sockets,
    pub listeners: Listeners,
    pub binds: Binds,
    pub half_opens: HalfOpens,
    pub icmp_notes: IcmpNotes,
    pub saved_syns: SavedSyns,
    pub time_waits: TimeWaits,
    pub wheel: Wheel,
    pub departures: Departures,
    pub memory_rounds: MemoryRounds,
    pub lists: TxLists,
    /// This turn saw so many connections that the nearest cache has lost the first of them.
    pub is_crowded: bool,
    pub control: ControlQueue,
    /// The run of segments that is visiting its connection.
    pub open_run: Option<OpenRun>,
    pub ack_trains: AckTrains,
    /// The last turn ended with output that the port had no room for.
    pub is_port_short: bool,
    /// The frame behind the one that is worked on.
    pub ahead: Ahead,
    /// When the port last took a frame.
    pub port_took_ns: u64,
    /// Slots that the next batch reserves.
    pub frames_ahead: usize,
    /// Turns since in which it had no room.
    pub port_refusals: u32,
    /// Frames may be waiting that this turn left to the driver ([`Core::holds_input`]).
    pub is_input_held: bool,
    /// When a turn first left frames in the port; `None`: the last turn found its end.
    pub backlog_since_ns: Option<u64>,
    pub events: EventQueue,
    pub app: StackSide,
    pub port_counter: u32,
    /// Where the last search for a local port began, with the ends that it follows from.
    pub port_start: (FlowKey, u32),
    /// Which kind of segment came first in the last small batch.
    pub tx_next: usize,
    /// Storage of the stages, kept between turns.
    pub segment_out: SegmentOut,
    pub looked: Vec<Looked>,
    pub job_batch: Vec<SocketId>,
    pub released: Vec<u32>,
    /// Who asked for a report this turn.
    pub reports: Vec<Producer<Report>>,
}

/// The secrets of a stack, from its seed or the kernel.
pub(crate) struct Secrets {
    pub words: [u64; 4],
}

impl Secrets {
    /// A key for one use; different uses get unrelated keys.
    pub fn key(&self, purpose: u64) -> [u64; 2] {
        let [a, b, c, d] = self.words;
        let half = |n: u64| wire::siphash::siphash24_words([a, b], &[c, d, purpose, n]);
        [half(0), half(1)]
    }
}

impl Core {
    /// Puts a segment that answers another into the queue of those without a connection.
    #[inline]
    pub(crate) fn reply(&mut self, key: &FlowKey, segment: &SegmentOut, header: HeaderFields) {
        self.control.push(key, segment, header, &mut self.counters);
    }

    /// A half-open handshake's entry in the timer wheel: they come after the sockets.
    #[inline]
    pub(crate) fn half_open_timer(&self, index: u32) -> u32 {
        self.config.limits.sockets_max as u32 + index
    }

    pub(crate) fn new(
        config: Arc<StackConfig>,
        port: &Capabilities,
        parts: CoreParts,
        now_ns: u64,
    ) -> Self {
        let secrets = parts.secrets;
        let limits = &config.limits;
        Self {
            now_ns,
            counters: Counters::default(),
            stages: StageClock::default(),
            tcp_counters: tcp::Counters::default(),
            challenge: ChallengeLimiter::new(secrets.key(1)[0]),
            records: RecordPool::new(limits.segment_records, limits.sockets_max),
            ranges: RangePool::new(limits.range_blocks),
            memory: Memory::Ample,
            fair_share: u32::MAX,
            shed_next: 0,
            hasher: FlowHasher::new(secrets.key(2)),
            isn: IsnGenerator::new(secrets.key(3)),
            cookies: SynCookies::new(secrets.key(4)),
            cookie_secrets: 0,
            network: parts.network,
            destinations: Destinations::new(secrets.key(8)),
            fast_open_keys: FastOpenKeys::new(fast_open_key(secrets.key(9))),
            policy: port.rx_checksum,
            offload: port.tx_checksum_offload,
            flows: FlowTable::new(limits.flows_max()),
            sockets: parts.sockets,
            listeners: Listeners::new(limits.listeners_max),
            binds: Binds::default(),
            half_opens: HalfOpens::new(limits.half_open_max),
            icmp_notes: IcmpNotes::default(),
            saved_syns: SavedSyns::default(),
            time_waits: TimeWaits::new(limits.time_wait_max, now_ns),
            wheel: Wheel::new(limits.sockets_max + limits.half_open_max, now_ns),
            departures: Departures::new(limits.sockets_max),
            memory_rounds: MemoryRounds::new(config.return_memory_ns, now_ns),
            lists: TxLists::new(limits.sockets_max),
            is_crowded: false,
            open_run: None,
            ack_trains: AckTrains::new(),
            is_port_short: false,
            ahead: Ahead::NOTHING,
            port_took_ns: now_ns,
            frames_ahead: TX_FRAMES_AHEAD_MIN,
            port_refusals: 0,
            is_input_held: false,
            backlog_since_ns: None,
            control: ControlQueue::new(limits.control_queue_max),
            events: parts.events,
            app: parts.app,
            port_counter: secrets.key(5)[0] as u32,
            port_start: (NO_KEY, 0),
            tx_next: 0,
            segment_out: SegmentOut::default(),
            looked: (0..RX_GROUP).map(|_| Looked::blank()).collect(),
            job_batch: Vec::with_capacity(JOBS_PER_TURN),
            reports: Vec::new(),
            released: Vec::with_capacity(crate::limits::NEIGHBOUR_WAITING_MAX),
            secrets,
            config,
        }
    }
}

fn fast_open_key(words: [u64; 2]) -> [u8; 16] {
    let number = u128::from(words[0]) << 64 | u128::from(words[1]);
    number.to_le_bytes()
}

/// What a core is put together from.
pub(crate) struct CoreParts {
    pub secrets: Secrets,
    pub network: Network,
    pub sockets: Sockets,
    pub events: EventQueue,
    pub app: StackSide,
}
