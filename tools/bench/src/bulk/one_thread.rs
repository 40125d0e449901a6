//! One flow or several, both ends in one thread over an in-process link, on a virtual clock and
//! with a fixed seed: every run is the same.
//!
//! With a burst, the flows interleave on the wire: each sends so many full segments, then the next
//! does, until a turn's frames are there. The receiver then takes all of them in one turn, by one
//! batch or several. Windows have room for what a flow sends between two reads, so that no flow
//! stops and then sends in a row what it held back ([`Moved::uneven_bursts`]).
//!
//! Callgrind counts one end alone ([`crate::cycles`]): it collects only inside [`receiver_turn`] or
//! [`sender_turn`].

use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::measure::cpu;
use clap::Args;
use clap::builder::RangedI64ValueParser;
use millstream::{
    Clock, Config, Context, Crank, IpCidr, Limits, Runtime, TcpListener, TcpStream, VirtualClock,
};
use serde::{Deserialize, Serialize};

use mill::failure::Failure;
use mill::limits::READ_BYTES;
use mill::net::options::Acks;

use super::bursts::{Bursts, segment_bytes};

const SEED: [u64; 4] = [1, 2, 3, 4];
/// Time of one turn of both ends. At 10 Gbit/s some sixty full segments arrive in it.
const TURN_NS: u64 = 70_000;
/// Bytes of receive buffer, shared among the flows.
const RECEIVE_BYTES: u32 = 8 << 20;
/// Bytes of receive window, shared among the flows; a turn does not fill it.
const WINDOW_BYTES: u32 = 1 << 20;
/// Bytes of receive buffer for each byte of the first window. As in Linux, half of a buffer is
/// bookkeeping.
const BUFFER_PER_WINDOW: u32 = 2;

/// Frames that the receiver takes in one turn where flows interleave, unless asked otherwise.
const TURN_FRAMES: u16 = 256;
/// Turns, at most, in which the receiver reads from every flow once.
const READ_ROUND: usize = 16;
/// Turns at the beginning in which the receiver reads from every flow, where flows interleave. The
/// windows grow to their limit meanwhile, as in Linux with each segment.
const GROWTH_TURNS: usize = 32;

/// Options of `cargo xtask bench bulk-thread`.
#[derive(Args, Clone, Debug)]
pub struct ThreadOptions {
    /// Mebibytes to move
    #[arg(long, default_value_t = 16)]
    pub mebibytes: u64,
    /// Mebibytes before those, whose time is not counted
    #[arg(long, default_value_t = 0)]
    pub warm_up_mebibytes: u64,
    /// Bytes of the largest packet
    #[arg(long, default_value_t = 1500)]
    pub mtu: usize,
    /// Segments that the receiver takes together; its default without this
    #[arg(long)]
    pub aggregation_max: Option<u16>,
    /// Treatment of ACKs that fall due together
    #[arg(long, value_enum, default_value_t)]
    pub acks: Acks,
    /// The receiver looks at the bytes in its receive buffer, a byte of each cache line, and copies
    /// none
    #[arg(long)]
    pub lent: bool,
    /// Flows of IPv6
    #[arg(long)]
    pub ipv6: bool,
    /// Senders
    #[arg(long, default_value_t = 1)]
    pub flows: usize,
    /// Segments that a flow sends before the next one does; 0: lengths from 2 to 20. Without this a
    /// flow sends as much as it may
    #[arg(long)]
    pub burst: Option<usize>,
    /// Frames that the receiver takes in one turn, with --burst
    #[arg(long, value_name = "N", default_value_t = TURN_FRAMES, requires = "burst", value_parser = frames())]
    pub turn: u16,
    /// Frames that the wire lends at once, with --burst; as many as a turn takes without this
    #[arg(long, value_name = "N", requires = "burst", value_parser = frames())]
    pub batch: Option<u16>,
    /// Count bursts that are longer or shorter than asked for, which takes the sender's time
    #[arg(long, requires = "burst")]
    pub count_uneven: bool,
}

/// The parser of numbers of frames: at most 512, half of the wire's slots.
fn frames() -> RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=512)
}

impl ThreadOptions {
    /// The share of one flow in `bytes`, not below a sixteenth.
    fn share(&self, bytes: u32) -> u32 {
        bytes / self.flows.clamp(1, 16) as u32
    }

    /// The window of one flow. Where flows interleave, it holds twice what the flow sends between
    /// two reads.
    fn window_bytes(&self) -> u32 {
        let share = self.share(WINDOW_BYTES);
        if self.burst.is_none() {
            return share;
        }
        let turns = self.flows.div_ceil(reads_per_turn(self.flows));
        let segments = (usize::from(self.turn) * turns).div_ceil(self.flows);
        share.max((2 * segments * self.segment_bytes()) as u32)
    }

    /// The receive buffer with which a flow begins. Where flows interleave, its first window is the
    /// one that it keeps: a window above its limit holds up ACKs until it has shrunk.
    fn buffer_bytes(&self) -> u32 {
        match self.burst {
            None => self.share(RECEIVE_BYTES),
            Some(_) => BUFFER_PER_WINDOW * self.window_bytes(),
        }
    }

    /// The address of the receiver (1) or of the sender (2).
    fn address(&self, host: u16) -> IpAddr {
        match self.ipv6 {
            false => Ipv4Addr::new(10, 9, 0, host as u8).into(),
            true => Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, host).into(),
        }
    }

    /// Payload of a full segment.
    fn segment_bytes(&self) -> usize {
        segment_bytes(self.mtu) - if self.ipv6 { 20 } else { 0 }
    }
}

/// Flows from which the receiver reads in one turn.
fn reads_per_turn(flows: usize) -> usize {
    flows.div_ceil(READ_ROUND)
}

/// The result that the program prints.
#[derive(Debug, Serialize, Deserialize)]
pub struct Moved {
    /// With --count-uneven, the bursts that had more or fewer frames than --burst asks for: a flow
    /// waited for its window, or sent what it had held back.
    pub uneven_bursts: u64,
    /// Segments with payload, estimated as full ones from the bytes that the sender sent.
    pub transactions_all: u64,
    /// Frames that both ends sent.
    pub segments: u64,
    /// Payload bytes that came after the warm-up.
    pub bytes: u64,
    /// CPU time of the receiver's turns after the warm-up.
    pub receiver_ns: u64,
    /// CPU time of both ends' turns after the warm-up.
    pub both_ns: u64,
}

/// Moves the bytes and prints what it took.
pub fn bulk_thread(options: &ThreadOptions) -> Result<(), Failure> {
    let moved = run(options).map_err(|error| Failure::Run(error.to_string()))?;
    println!("{}", serde_json::json!(moved));
    Ok(())
}

fn invalid(error: &dyn std::fmt::Display) -> std::io::Error {
    std::io::Error::other(error.to_string())
}

fn open(
    address: IpAddr,
    options: &ThreadOptions,
    clock: &VirtualClock,
) -> std::io::Result<Runtime> {
    let mut wire = format!("loopback:bulk,mtu={}", options.mtu);
    if options.burst.is_some() {
        let batch = options.batch.unwrap_or(options.turn);
        wire += &format!(",batch={batch}");
    }
    let mut config = Config::new(wire.parse().map_err(|error| invalid(&error))?);
    config.crank = Crank::Inline;
    let address = IpCidr::new(address, 24).map_err(|error| invalid(&error))?;
    config.addresses.push(address);
    config.limits = Limits::for_connections(options.flows.max(64));
    config.seed = Some(SEED);
    config.linger_ns = 0;
    config.clock = Clock::Virtual(clock.clone());
    config.aggregation_max = options.aggregation_max.unwrap_or(config.aggregation_max);
    // The buffer has its full size from the start: a growing buffer would let the window grow
    // again. A window that waits for the reader would hold up ACKs.
    config.tcp.recv_buffer.bytes_default = options.buffer_bytes();
    config.tcp.recv_buffer.bytes_max = config.tcp.recv_buffer.bytes_default;
    options.acks.apply(&mut config);
    Runtime::new(config).map_err(|error| invalid(&error))
}

/// Opens the flows, each from `there` to `here`.
fn connect(
    options: &ThreadOptions,
    (there, here): (&Context, &Context),
    clock: &VirtualClock,
) -> std::io::Result<(Vec<TcpStream>, Vec<Receiver>)> {
    let address = SocketAddr::new(options.address(1), 5001);
    let listener = TcpListener::bind(here, address)?;
    listener.set_nonblocking(true);
    let mut senders = Vec::new();
    let mut receivers = Vec::new();
    for _ in 0..options.flows {
        let sender = TcpStream::start_connect(there, address)?;
        sender.set_nonblocking(true);
        sender.set_nodelay(options.burst.is_some())?;
        senders.push(sender);
        let receiver = loop {
            there.turn()?;
            here.turn()?;
            clock.advance_ns(TURN_NS);
            if let Ok((stream, _)) = listener.accept() {
                break stream;
            }
        };
        receiver.set_nonblocking(true);
        receivers.push(Receiver {
            stream: receiver,
            has_read: false,
            is_held: false,
        });
    }
    Ok((senders, receivers))
}

fn run(options: &ThreadOptions) -> std::io::Result<Moved> {
    let clock = VirtualClock::new(1_000_000_000);
    let runtimes = [
        open(options.address(1), options, &clock)?,
        open(options.address(2), options, &clock)?,
    ];
    let context = |runtime: &Runtime| runtime.context(0).map_err(|error| invalid(&error));
    let [here, there] = [context(&runtimes[0])?, context(&runtimes[1])?];
    let (mut senders, mut receivers) = connect(options, (&there, &here), &clock)?;
    let mut wire = Interleaving::new(options);
    wire.frames_sent = there.report()?.stack.tx_frames;
    let warm_up = options.warm_up_mebibytes << 20;
    let total = (options.mebibytes << 20) + warm_up;
    let payload = vec![b'm'; READ_BYTES];
    let mut reading = Reading::of(options);
    let (mut sent, mut received, mut round) = (0, 0, 0);
    let mut spent = Spent::default();
    while received < total {
        let begin = cpu::own_thread_time_ns();
        sent += wire.sender_turns(&there, &mut senders, &payload, total - sent)?;
        let counts = received >= warm_up;
        let between = cpu::own_thread_time_ns();
        // Each turn reads an equal part of the flows, in pieces as large as those of one flow.
        let grows = options.burst.is_some() && round < GROWTH_TURNS;
        let part = match grows {
            true => receivers.len(),
            false => reads_per_turn(receivers.len()),
        };
        let parts = receivers.len().div_ceil(part);
        let readable = receivers.chunks_mut(part).nth(round % parts);
        let readable = readable.unwrap_or_default();
        let came = receiver_turn(&here, readable, &mut reading)?;
        round += 1;
        received += came;
        if counts {
            spent.note(came, [begin, between, cpu::own_thread_time_ns()]);
        }
        for receiver in readable {
            receiver.hold_window(wire.window_bytes, wire.bursts.is_some())?;
        }
        clock.advance_ns(TURN_NS);
    }
    let [here, there] = [here.report()?.stack, there.report()?.stack];
    Ok(Moved {
        uneven_bursts: wire.uneven_bursts,
        transactions_all: there.tx_bytes / (options.mtu as u64 + 14),
        segments: here.tx_frames + there.tx_frames,
        bytes: spent.bytes,
        receiver_ns: spent.receiver_ns,
        both_ns: spent.both_ns,
    })
}

/// Bytes that arrived, and the time that they took.
#[derive(Default)]
struct Spent {
    bytes: u64,
    receiver_ns: u64,
    both_ns: u64,
}

impl Spent {
    /// Adds a turn of each end. The sender's turn ran from `begin` to `between`, the receiver's
    /// from `between` to `end`.
    fn note(&mut self, bytes: u64, [begin, between, end]: [u64; 3]) {
        self.bytes += bytes;
        self.receiver_ns += end - between;
        self.both_ns += end - begin;
    }
}

/// The order in which the flows' segments lie on the wire.
struct Interleaving {
    /// See [`ThreadOptions::burst`].
    bursts: Option<Bursts>,
    /// See [`ThreadOptions::turn`].
    turn_frames: usize,
    /// Payload of a full segment.
    segment_bytes: usize,
    /// The window of one flow.
    window_bytes: u32,
    /// The flow that sends next.
    next: usize,
    /// See [`ThreadOptions::count_uneven`].
    counts_uneven: bool,
    /// Frames that the sender had sent when it was last asked.
    frames_sent: u64,
    /// See [`Moved::uneven_bursts`].
    uneven_bursts: u64,
}

impl Interleaving {
    fn new(options: &ThreadOptions) -> Self {
        Self {
            bursts: options.burst.map(|len| Bursts::new(len, SEED[0])),
            turn_frames: options.turn.into(),
            segment_bytes: options.segment_bytes(),
            window_bytes: options.window_bytes(),
            next: 0,
            counts_uneven: options.count_uneven,
            frames_sent: 0,
            uneven_bursts: 0,
        }
    }

    /// Runs sender's turns until they fill a turn of the receiver. Returns the bytes written.
    fn sender_turns(
        &mut self,
        context: &Context,
        streams: &mut [TcpStream],
        bytes: &[u8],
        rest: u64,
    ) -> std::io::Result<u64> {
        let (mut frames, mut sent) = (0, 0);
        loop {
            let Some(bursts) = &mut self.bursts else {
                return sender_turn(context, &mut streams[0], bytes, rest);
            };
            let segments = bursts.next_len().min(self.turn_frames - frames);
            let bytes_max = (rest - sent).min((segments * self.segment_bytes) as u64);
            let stream = &mut streams[self.next];
            // A flow whose window is full leaves its turn to the next. A turn without anything to
            // write sends what was written before.
            sent += sender_turn(context, stream, bytes, bytes_max)?;
            // The last burst may be shorter.
            if self.counts_uneven && sent < rest {
                self.check_burst(context, segments)?;
            }
            self.next = (self.next + 1) % streams.len();
            frames += segments;
            if frames >= self.turn_frames || sent >= rest {
                break;
            }
        }
        Ok(sent)
    }

    /// Compares the frames that the sender sent since the last call with those of a burst.
    fn check_burst(&mut self, context: &Context, segments: usize) -> std::io::Result<()> {
        let frames = context.report()?.stack.tx_frames;
        let sent = frames - std::mem::replace(&mut self.frames_sent, frames);
        self.uneven_bursts += u64::from(sent != segments as u64);
        Ok(())
    }
}

/// A turn of the sender, which writes as much as there is room for. Returns the bytes written.
#[inline(never)]
fn sender_turn(
    context: &Context,
    stream: &mut TcpStream,
    bytes: &[u8],
    rest: u64,
) -> std::io::Result<u64> {
    let mut sent = 0;
    while sent < rest {
        let piece = bytes.len().min((rest - sent) as usize);
        match stream.write(&bytes[..piece]) {
            Ok(n) => sent += n as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    context.turn()?;
    Ok(sent)
}

/// The receiving end of a flow.
struct Receiver {
    stream: TcpStream,
    has_read: bool,
    /// The window was told to grow no further.
    is_held: bool,
}

impl Receiver {
    /// Holds the window at `bytes`. As in Linux, a growing window causes an ACK for every segment.
    /// This is done once, after the first data, because the first full segment sets the clamp anew.
    /// `widens`: the buffer doubles, so that unread data leaves room for the whole window.
    fn hold_window(&mut self, bytes: u32, widens: bool) -> std::io::Result<()> {
        if self.has_read && !self.is_held {
            let options = self.stream.options();
            if widens {
                // As in Linux, SO_RCVBUF gets twice the bytes that it asks for.
                options.set_recv_buffer(BUFFER_PER_WINDOW * bytes)?;
            }
            options.set_window_clamp(bytes)?;
            self.is_held = true;
        }
        Ok(())
    }
}

/// The destination of the receiver's bytes.
enum Reading {
    /// Into this buffer.
    Copied(Vec<u8>),
    /// No copy: the bytes are read in the receive buffer.
    Lent,
}

impl Reading {
    fn of(options: &ThreadOptions) -> Self {
        match options.lent {
            true => Self::Lent,
            false => Self::Copied(vec![0; READ_BYTES]),
        }
    }
}

/// A turn of the receiver, which reads all that came. The bytes read.
#[inline(never)]
fn receiver_turn(
    context: &Context,
    receivers: &mut [Receiver],
    reading: &mut Reading,
) -> std::io::Result<u64> {
    context.turn()?;
    let mut received = 0;
    for receiver in receivers {
        let came = read_all(&mut receiver.stream, reading)?;
        receiver.has_read |= came > 0;
        received += came;
    }
    Ok(received)
}

/// Reads all that came on one stream. The bytes read.
fn read_all(stream: &mut TcpStream, reading: &mut Reading) -> std::io::Result<u64> {
    let mut received = 0;
    loop {
        let read = match reading {
            Reading::Copied(buffer) => stream.read(buffer),
            Reading::Lent => look_at(stream),
        };
        match read {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => received += n as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(received),
            Err(error) => return Err(error),
        }
    }
}

/// Looks at a piece of the receive buffer as a parser would, at least once in each cache line.
fn look_at(stream: &mut TcpStream) -> std::io::Result<usize> {
    let bytes = stream.fill_buf()?;
    let seen = bytes.iter().step_by(64).fold(0, |seen, byte| seen ^ byte);
    std::hint::black_box(seen);
    let len = bytes.len();
    stream.consume(len);
    Ok(len)
}
