//! Frames that arrive: read, checked, and brought to the connection, handshake or listener that
//! they belong to. The stages `packet_in`, `demux` and `tcp_in`, and `other_in` for everything that
//! is not TCP.

mod accepted;
pub(crate) mod demux;
pub(crate) mod fast_open_in;
pub(crate) mod line;
mod merged_in;
pub(crate) mod other_in;
pub(crate) mod packet_in;
pub(crate) mod passive_opens;
pub(crate) mod tcp_in;
pub(crate) mod time_wait_in;

use packetio::ChecksumPolicy;
use ring::prefetch::Ahead;
use tcp::FastOpenKeys;
use tcp::syn_cookie::SynCookies;

use self::line::FlowOrder;
use self::packet_in::Looked;
use self::tcp_in::OpenRun;
use crate::config::StackConfig;
use crate::departures::ack_trains::AckTrains;
use crate::limits::RX_GROUP;
use crate::secrets::Secrets;

/// The first use of a stack's secrets that belongs to cookies. The ones behind it follow.
const SECRET_COOKIES: u64 = 1 << 32;

/// The state of the stages that take frames in.
pub(crate) struct Arrivals {
    /// The port's policy for received checksums.
    policy: ChecksumPolicy,
    /// Segments of a run at most: [`StackConfig::aggregation_max`].
    aggregation_max: u16,
    /// A single ACK answers all segments of a run: [`StackConfig::merge_acks`].
    merge_acks: bool,
    /// The run of segments that is visiting its connection.
    open_run: Option<OpenRun>,
    /// The frame behind the one that is worked on.
    ahead: Ahead,
    /// ACKs that fell due between segments. `tcp_out` empties them.
    pub ack_trains: AckTrains,
    /// Frames may be waiting that this turn left to the driver.
    pub is_input_held: bool,
    /// When a turn first left frames in the port; `None`: the last turn found its end.
    backlog_since_ns: Option<u64>,
    cookies: SynCookies,
    /// Secrets that the cookies have used up.
    cookie_secrets: u64,
    secrets: Secrets,
    /// Makes the Fast Open cookies of listeners without keys of their own.
    fast_open_keys: FastOpenKeys,
    /// Storage of parsed headers, reused by every turn.
    looked: Vec<Looked>,
    /// Puts a batch of interleaved flows in order. `None` while a batch is taken.
    flow_order: Option<Box<FlowOrder>>,
}

impl Arrivals {
    pub fn new(config: &StackConfig, policy: ChecksumPolicy, secrets: Secrets) -> Self {
        Self {
            policy,
            aggregation_max: config.aggregation_max,
            merge_acks: config.merge_acks,
            open_run: None,
            ahead: Ahead::NOTHING,
            ack_trains: AckTrains::new(),
            is_input_held: false,
            backlog_since_ns: None,
            cookies: SynCookies::new(secrets.key(4)),
            cookie_secrets: 0,
            fast_open_keys: FastOpenKeys::new(fast_open_key(secrets.key(9))),
            secrets,
            looked: (0..RX_GROUP).map(|_| Looked::blank()).collect(),
            flow_order: Some(Box::new(FlowOrder::new())),
        }
    }

    /// Gives the cookies their next secret when the present one is worn.
    pub fn rotate_cookies(&mut self, now_ns: u64) {
        if self.cookies.is_worn(now_ns) {
            // The secret comes from the seed, so a simulation repeats itself. An outsider cannot
            // derive it from earlier secrets.
            self.cookie_secrets += 1;
            let key = self.secrets.key(SECRET_COOKIES + self.cookie_secrets);
            self.cookies.rotate(key, now_ns);
        }
    }
}

fn fast_open_key(words: [u64; 2]) -> [u8; 16] {
    let number = u128::from(words[0]) << 64 | u128::from(words[1]);
    number.to_le_bytes()
}
