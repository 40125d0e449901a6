//! Receive path: frames are read, checked and brought to their connection, handshake or listener.
//! The stages are `packet_in`, `demux` and `tcp_in`; `other_in` takes everything that is not TCP.

pub(crate) mod accepted;
mod captured_in;
pub(crate) mod demux;
pub(crate) mod fast_open_in;
pub(crate) mod frame_order;
mod handed;
mod merged_in;
pub(crate) mod other_in;
pub(crate) mod packet_in;
pub(crate) mod passive_opens;
mod ruled_in;
pub(crate) mod tcp_in;
pub(crate) mod time_wait_in;

use packetio::ChecksumPolicy;
use ring::prefetch::Ahead;

pub(crate) use self::captured_in::DropNotes;
use self::frame_order::FlowOrder;
use self::packet_in::Looked;
use self::tcp_in::OpenRun;
use crate::config::StackConfig;
use crate::departures::ack_trains::AckTrains;
use crate::limits::RX_GROUP;

/// The state of the stages that take in the frames of one port.
pub(crate) struct Arrivals {
    port: u8,
    /// The port's policy for received checksums.
    policy: ChecksumPolicy,
    /// Most segments in one run: [`StackConfig::aggregation_max`].
    aggregation_max: u16,
    /// A single ACK answers all segments of a run: [`StackConfig::merge_acks`].
    merge_acks: bool,
    /// True while the current batch consists of frames that this stack sent to itself.
    takes_local: bool,
    /// Number of times that other contexts handed over the current batch; 0: the batch comes from
    /// the port.
    hops: u8,
    /// The current run: its segments visit the connection together.
    open_run: Option<OpenRun>,
    /// Memory of the next frame, prefetched while this one is processed.
    ahead: Ahead,
    /// True if the last turn ended with output for which the port had no room.
    pub is_port_short: bool,
    /// ACKs that fell due between the segments of a run. `tcp_out` sends them.
    pub ack_trains: AckTrains,
    /// True if this turn may have left frames with the driver.
    pub is_input_held: bool,
    /// Time of the first turn that left frames in the port, ns. `None`: the last turn emptied the
    /// port.
    backlog_since_ns: Option<u64>,
    /// Storage of parsed headers, reused by every turn.
    looked: Vec<Looked>,
    /// Sorter for batches of interleaved flows. `None` while a batch borrows it.
    flow_order: Option<Box<FlowOrder>>,
    /// Dropped frames noted for a capture; `None` while no capture runs.
    pub drop_notes: Option<Box<DropNotes>>,
}

impl Arrivals {
    pub fn new(config: &StackConfig, port: u8, policy: ChecksumPolicy) -> Self {
        Self {
            port,
            policy,
            aggregation_max: config.aggregation_max,
            merge_acks: config.merge_acks,
            takes_local: false,
            hops: 0,
            open_run: None,
            ahead: Ahead::NOTHING,
            is_port_short: false,
            ack_trains: AckTrains::new(),
            is_input_held: false,
            backlog_since_ns: None,
            looked: (0..RX_GROUP).map(|_| Looked::blank()).collect(),
            flow_order: Some(FlowOrder::new()),
            drop_notes: None,
        }
    }
}
