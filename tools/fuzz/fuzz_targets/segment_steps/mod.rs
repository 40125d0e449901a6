//! Steps of the target `tcp_segments`, which the fuzzer chooses, and how each is played on a
//! connection.

use arbitrary::Arbitrary;
use tcp::path_mtu::{MtuProbing, PathMtuSettings};
use tcp::{Config, CongestionAlgorithm, IcmpError, Keepalive, RecordPool, Segment};
use wire::SeqNumber;
use wire::tcp::{Flags, Header, Options, SackBlock, Timestamp};

use crate::peer::{MS, Peer, Setup, Variant};
use crate::states;

/// Limit of steps in one run: longer runs show nothing that shorter ones do not.
const STEPS_MAX: usize = 300;
/// A time longer than all retries of a connection whose peer is silent, and than TIME_WAIT.
const FAREWELL_MS: u64 = 3 * 3600 * 1000;

/// A connection's settings and the steps that it is put through.
#[derive(Arbitrary, Debug)]
pub struct Input {
    iss: u32,
    irs: u32,
    prediction: bool,
    timestamps: bool,
    sack: bool,
    scales: Option<(u8, u8)>,
    recv_space: u16,
    peer_mss: u16,
    start: Start,
    path: u8,
    steps: Vec<Step>,
}

/// The connection's state when the steps begin.
#[derive(Arbitrary, Debug)]
enum Start {
    Connecting,
    Accepted,
    SynReceived,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Arrives(Arrival),
    Write(u16),
    ReadAll,
    ReadUntilLeft(u16),
    Shutdown,
    Close,
    Abort,
    NoDelay(bool),
    Cork(bool),
    KeepAlive(Option<(u16, u8)>),
    UserTimeout(u16),
    Mtu(u16),
    Icmp(i16),
    Memory(Option<u16>),
    Turns(bool),
    Pass(u16),
    PassLong(u8),
}

/// An arriving segment. Its numbers are given as distances from the right ones.
#[derive(Arbitrary, Debug)]
struct Arrival {
    /// Sequence number, relative to RCV.NXT; `End` counts from the window's right edge.
    ahead: Distance,
    /// Acknowledgment number, relative to SND.UNA; `End` counts from SND.NXT.
    acks: Distance,
    flags: u8,
    /// The segment has no ACK flag, unless `flags` contains it. Without this, it always has one.
    bare: bool,
    window: u16,
    urgent: u16,
    len: u16,
    stamp: Option<(i16, i16)>,
    /// SACK blocks: left edges, relative as in `acks`, and lengths in bytes.
    sack: Vec<(Distance, u16)>,
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Distance {
    Zero,
    Near(i16),
    /// Whole segments of 1000 bytes.
    Segments(i8),
    /// Bytes from the end of the range: SND.NXT, or the right edge of the receive window.
    End(i8),
    Anywhere(u32),
}

impl Distance {
    fn from(self, start: SeqNumber, end: SeqNumber) -> SeqNumber {
        match self {
            Distance::Zero => start,
            Distance::Near(bytes) => SeqNumber(start.0.wrapping_add(i32::from(bytes) as u32)),
            Distance::Segments(count) => {
                SeqNumber(start.0.wrapping_add((i32::from(count) * 1000) as u32))
            }
            Distance::End(bytes) => SeqNumber(end.0.wrapping_add(i32::from(bytes) as u32)),
            Distance::Anywhere(number) => SeqNumber(number),
        }
    }
}

/// Plays the steps, then lets the connection end by itself.
pub fn play(input: &Input) {
    let mut peer = start(input);
    // The stream offset of a received byte is known only after a SYN. So the peer counts bytes and
    // does not compare them.
    peer.rx.compare = false;
    for step in input.steps.iter().take(STEPS_MAX) {
        if peer.is_removed() {
            return;
        }
        take(&mut peer, step);
        peer.skip_sent();
        assert!(peer.conn.una().le(peer.conn.nxt()));
        assert!(peer.conn.info().rcv_wnd <= 1 << 30);
        assert!(peer.conn.info().snd_cwnd >= 1);
    }
    farewell(&mut peer);
}

fn start(input: &Input) -> Peer {
    // Half of the inputs have congestion control from outside the crate.
    let outside = input.iss % 2 == 1;
    let variant = Variant {
        iss: input.iss,
        irs: input.irs,
        prediction: input.prediction,
        outside,
    };
    let congestion = match outside {
        true => CongestionAlgorithm::NewReno,
        false => CongestionAlgorithm::default(),
    };
    let setup = Setup {
        config: Config {
            congestion,
            sack: input.sack,
            path_mtu: path_mtu(input.path),
            ..Config::default()
        },
        timestamps: input.timestamps,
        scales: input.scales.map(|(ours, peers)| (ours % 16, peers % 16)),
        recv_space: u32::from(input.recv_space.max(500)),
        peer_mss: input.peer_mss,
        ..Setup::default()
    };
    let mut peer = match input.start {
        Start::Connecting => Peer::connecting(&setup, variant),
        Start::Accepted => Peer::accepted(&setup, variant),
        Start::SynReceived => states::syn_received(variant),
        Start::FinWait1 => states::fin_wait_1(variant),
        Start::FinWait2 => states::fin_wait_2(variant),
        Start::CloseWait => states::close_wait(variant),
        Start::Closing => states::closing(variant),
        Start::LastAck => states::last_ack(variant),
        Start::TimeWait => states::time_wait(variant),
    };
    peer.config.path_mtu = setup.config.path_mtu;
    let is_new = matches!(input.start, Start::Connecting | Start::Accepted);
    if is_new && input.path & 0x60 == 0x60 {
        // A pool with very few records for segments in flight. None is in flight yet, so it can be
        // replaced.
        peer.records = RecordPool::new(1 + usize::from(input.path >> 2 & 3), 1);
    }
    peer
}

/// Settings of path MTU discovery. With the highest bit of `drawn`, what was learned ages within
/// the time that the steps take.
fn path_mtu(drawn: u8) -> PathMtuSettings {
    let mut settings = PathMtuSettings {
        probing: match drawn % 4 {
            1 => MtuProbing::AfterBlackHole,
            2 | 3 => MtuProbing::Always,
            _ => MtuProbing::Never,
        },
        ..PathMtuSettings::default()
    };
    if drawn >= 0x80 {
        settings.age_ns_max = 20_000 * MS;
        settings.probe_interval_ns = 30_000 * MS;
    }
    settings
}

fn take(peer: &mut Peer, step: &Step) {
    match *step {
        Step::Arrives(ref arrival) => {
            let segment = segment(peer, arrival);
            peer.inject_segment(0, &segment);
        }
        Step::Write(bytes) => peer.write(u32::from(bytes)),
        Step::ReadAll => peer.read_all(),
        Step::ReadUntilLeft(unread) => peer.read_until_left(u32::from(unread)),
        Step::Shutdown => peer.shutdown(),
        Step::Close => peer.close(),
        Step::Abort => peer.abort(),
        Step::NoDelay(on) => peer.call(|conn, cx, _| conn.set_nodelay(cx, on)),
        Step::Cork(on) => peer.call(|conn, cx, _| conn.set_cork(cx, on)),
        Step::KeepAlive(times) => {
            let keepalive = times.map(|(idle_ms, probes_max)| Keepalive {
                // At least a second, the unit of TCP_KEEPIDLE.
                idle_ns: (1000 + u64::from(idle_ms)) * MS,
                interval_ns: 1000 * MS,
                probes_max,
            });
            peer.call(|conn, cx, _| conn.set_keepalive(cx, keepalive));
        }
        Step::UserTimeout(ms) => peer.conn.set_user_timeout(u64::from(ms) * MS),
        Step::Mtu(mss) => peer.call(|conn, cx, _| conn.on_mtu(cx, mss, mss % 4 != 3)),
        Step::Icmp(ahead) => {
            let seq = Distance::Near(ahead).from(peer.conn.una(), peer.conn.nxt());
            peer.call(|conn, cx, _| conn.on_icmp_error(cx, IcmpError::HostUnreachable, seq));
        }
        Step::Memory(bytes) => peer.rx.memory = bytes.map_or(usize::MAX, usize::from),
        Step::Turns(each) => peer.polls = each,
        Step::Pass(ms) => peer.wait_ms(u64::from(ms)),
        Step::PassLong(seconds) => peer.wait_ms(u64::from(seconds) * 1000),
    }
}

fn segment(peer: &Peer, arrival: &Arrival) -> Segment {
    let (una, nxt) = (peer.conn.una(), peer.conn.nxt());
    let rcv_nxt = peer.conn.rcv_nxt();
    let rcv_end = rcv_nxt + peer.conn.info().rcv_wnd;
    let now_ms = (peer.now_ns / MS) as u32;
    let mut flags = Flags(arrival.flags.into());
    if !arrival.bare {
        flags |= Flags::ACK;
    }
    let mut options = Options {
        timestamp: arrival.stamp.map(|(value, echo)| Timestamp {
            value: now_ms.wrapping_add(i32::from(value) as u32),
            echo: now_ms.wrapping_add(i32::from(echo) as u32),
        }),
        ..Options::default()
    };
    if flags.contains(Flags::SYN) {
        options.mss = Some(arrival.urgent);
        options.window_scale = Some(arrival.len as u8);
        options.sack_permitted = arrival.window.is_multiple_of(2);
    }
    for (left, len) in arrival.sack.iter().take(4) {
        let left = left.from(una, nxt);
        options.sack.push(SackBlock {
            left,
            right: left + u32::from(*len),
        });
    }
    let header = Header {
        src_port: 1,
        dst_port: 2,
        seq: arrival.ahead.from(rcv_nxt, rcv_end),
        ack: arrival.acks.from(una, nxt),
        flags,
        window: arrival.window,
        checksum: 0,
        urgent: arrival.urgent,
        options,
    };
    Segment::from((&header, u32::from(arrival.len)))
}

/// Silences the peer and closes the connection, which must then end by itself.
fn farewell(peer: &mut Peer) {
    if peer.is_removed() {
        return;
    }
    peer.polls = true;
    peer.close();
    if !peer.is_removed() {
        peer.wait_ms(FAREWELL_MS);
    }
    let over = peer.is_removed() || peer.is_handed_over();
    assert!(
        over,
        "an orphan without a peer lives on: {:?}",
        peer.conn.info()
    );
}
