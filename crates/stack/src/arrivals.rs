//! Frames that arrive: read, checked, and brought to the connection, handshake or listener that
//! they belong to. The stages `packet_in`, `demux` and `tcp_in`, and `other_in` for everything that
//! is not TCP.

pub(crate) mod accepted;
mod captured_in;
pub(crate) mod demux;
pub(crate) mod fast_open_in;
mod handed;
pub(crate) mod line;
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
use self::line::FlowOrder;
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
    /// Segments of a run at most: [`StackConfig::aggregation_max`].
    aggregation_max: u16,
    /// A single ACK answers all segments of a run: [`StackConfig::merge_acks`].
    merge_acks: bool,
    /// The batch at hand comes from this stack itself.
    takes_local: bool,
    /// How often the batch at hand was handed over by other contexts; 0: it comes from the port.
    hops: u8,
    /// The run of segments that is visiting its connection.
    open_run: Option<OpenRun>,
    /// The frame behind the one that is worked on.
    ahead: Ahead,
    /// The last turn ended with output that the port had no room for.
    pub is_port_short: bool,
    /// ACKs that fell due between segments. `tcp_out` empties them.
    pub ack_trains: AckTrains,
    /// Frames may be waiting that this turn left to the driver.
    pub is_input_held: bool,
    /// When a turn first left frames in the port; `None`: the last turn found its end.
    backlog_since_ns: Option<u64>,
    /// Storage of parsed headers, reused by every turn.
    looked: Vec<Looked>,
    /// Puts a batch of interleaved flows in order. `None` while a batch is taken.
    flow_order: Option<Box<FlowOrder>>,
    /// Notes for a capture, while somebody captures.
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
