//! Loads for `cargo xtask path`: one connection in virtual time, whose segments are all alike.
//!
//! `segment_path receive N` brings N full segments in order to a reader that a poll wakes.
//! `segment_path write N` writes N full segments. Each is sent alone and acknowledged.
//! Two runs with different N differ only in the steps of a segment, which `xtask` counts under
//! callgrind.

#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use millstream::{
    Clock, Config, Context, Events, Interest, Mode, Poll, Runtime, TcpListener, TcpStream, Token,
    VirtualClock,
};
use packetio::ip_wire::{self, IpWireEnd};
use wire::tcp::{Flags, Header, Options, Timestamp};
use wire::{Addr, SeqNumber, checksum, ipv4, protocol};

const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const REMOTE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 80;
const MTU: usize = 1_500;
/// Payload of a full segment whose header has a timestamp.
const MSS: usize = 1_448;
/// Time from one segment to the next, in ns.
const PAUSE_NS: u64 = 1_000_000;

/// The peer of the connection, with as much of TCP as full segments need.
struct Peer {
    seq: SeqNumber,
    ack: SeqNumber,
    /// The last TSval of the stack.
    echo: u32,
    stamp: u32,
}

impl Peer {
    /// Sends a segment to the stack.
    fn send(
        &mut self,
        wire: &IpWireEnd,
        flags: Flags,
        payload: &[u8],
        with: Options,
    ) -> Result<(), String> {
        self.stamp += 1;
        let timestamp = Some(Timestamp {
            value: self.stamp,
            echo: self.echo,
        });
        let header = Header {
            src_port: 40_000,
            dst_port: PORT,
            seq: self.seq,
            ack: self.ack,
            flags,
            window: u16::MAX,
            options: Options { timestamp, ..with },
            ..Header::default()
        };
        let mut segment = vec![0; header.header_len()];
        header.emit(&mut segment);
        segment.extend_from_slice(payload);
        let ends = [Addr::v4(REMOTE), Addr::v4(LOCAL)];
        let len = segment.len() as u32;
        let mut sum = checksum::pseudo_header(ends[0], ends[1], protocol::TCP, len);
        sum.add_bytes(&segment);
        let field = wire::tcp::CHECKSUM_OFFSET;
        segment[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
        let mut packet = vec![0; ipv4::HEADER_LEN];
        ipv4::Header {
            dscp_ecn: 0,
            total_len: (ipv4::HEADER_LEN + segment.len()) as u16,
            ident: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: protocol::TCP,
            src: REMOTE,
            dst: LOCAL,
            header_len: ipv4::HEADER_LEN as u8,
        }
        .emit(&mut packet);
        packet.extend_from_slice(&segment);
        self.seq += payload.len() as u32 + u32::from(flags.intersects(Flags::SYN));
        wire.inject(&packet).map_err(|error| error.to_string())
    }

    /// Takes the packets that the stack sent.
    fn take(&mut self, wire: &IpWireEnd) -> Result<(), String> {
        while let Some(departed) = wire.next() {
            let packet = departed.packet;
            let Some(segment) = packet.get(ipv4::HEADER_LEN..) else {
                return Err("a packet without a segment".to_owned());
            };
            let (header, at) = Header::parse(segment).map_err(|error| error.to_string())?;
            let len = (segment.len() - at) as u32;
            self.ack = header.seq + len + u32::from(header.flags.intersects(Flags::SYN));
            self.echo = header
                .options
                .timestamp
                .map_or(self.echo, |stamp| stamp.value);
        }
        Ok(())
    }
}

/// A host with one accepted connection.
struct Connected {
    clock: VirtualClock,
    wire: IpWireEnd,
    peer: Peer,
    stream: TcpStream,
    context: Context,
    _runtime: Runtime,
}

fn connect() -> Result<Connected, String> {
    let clock = VirtualClock::new(1_000_000_000);
    let (port, wire) =
        ip_wire::pair(MTU, Clock::Virtual(clock.clone())).map_err(|error| error.to_string())?;
    let unused = "loopback:unused".parse().map_err(|_| "no such wire")?;
    let mut config = Config::new(unused);
    config
        .addresses
        .push("10.0.0.1/0".parse().map_err(|_| "no such address")?);
    config.clock = Clock::Virtual(clock.clone());
    let failed = |error: millstream::Error| error.to_string();
    let runtime = Runtime::with_ports(config, vec![Box::new(port)]).map_err(failed)?;
    let context = runtime.context(0).map_err(failed)?;
    let failed = |error: std::io::Error| error.to_string();
    let listener = TcpListener::bind(&context, (LOCAL, PORT).into()).map_err(failed)?;
    listener.set_nonblocking(true);
    let mut peer = Peer {
        seq: SeqNumber(1_000),
        ack: SeqNumber(0),
        echo: 0,
        stamp: 1,
    };
    let announced = Options {
        mss: Some(1_460),
        window_scale: Some(7),
        sack_permitted: true,
        ..Options::NONE
    };
    peer.send(&wire, Flags::SYN, &[], announced)?;
    context.turn_until_idle().map_err(failed)?;
    peer.take(&wire)?;
    peer.send(&wire, Flags::ACK, &[], Options::NONE)?;
    context.turn_until_idle().map_err(failed)?;
    let (stream, _) = listener.accept().map_err(failed)?;
    stream.set_nonblocking(true);
    Ok(Connected {
        clock,
        wire,
        peer,
        stream,
        context,
        _runtime: runtime,
    })
}

fn receive(count: usize) -> Result<(), String> {
    let mut end = connect()?;
    let failed = |error: std::io::Error| error.to_string();
    let mut poll = Poll::new(&end.context);
    poll.register(&end.stream, Token(1), Interest::READABLE, Mode::Level)
        .map_err(failed)?;
    let mut events = Events::with_capacity(8);
    let (payload, mut bytes) = ([7; MSS], [0; MSS]);
    for at in 0..count {
        end.clock.advance_ns(PAUSE_NS);
        end.peer
            .send(&end.wire, Flags::ACK, &payload, Options::NONE)?;
        let ready = poll
            .wait(&mut events, Some(Duration::ZERO))
            .map_err(failed)?;
        let read = end.stream.read(&mut bytes).map_err(failed)?;
        if (ready, read) != (1, MSS) {
            return Err(format!("segment {at}: {ready} ready, {read} bytes"));
        }
        end.context.turn_until_idle().map_err(failed)?;
        end.peer.take(&end.wire)?;
    }
    Ok(())
}

fn write(count: usize) -> Result<(), String> {
    let mut end = connect()?;
    let failed = |error: std::io::Error| error.to_string();
    let payload = [7; MSS];
    for at in 0..count {
        end.clock.advance_ns(PAUSE_NS);
        let before = end.peer.ack;
        end.stream.write_all(&payload).map_err(failed)?;
        end.context.turn_until_idle().map_err(failed)?;
        end.peer.take(&end.wire)?;
        if end.peer.ack != before + MSS as u32 {
            return Err(format!("segment {at} has not left"));
        }
        end.clock.advance_ns(PAUSE_NS);
        end.peer.send(&end.wire, Flags::ACK, &[], Options::NONE)?;
        end.context.turn_until_idle().map_err(failed)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let count = words.get(1).and_then(|count| count.parse().ok());
    let outcome = match (words.first().map(String::as_str), count) {
        (Some("receive"), Some(count)) => receive(count),
        (Some("write"), Some(count)) => write(count),
        _ => Err("segment_path receive|write COUNT".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("segment_path: {cause}");
            ExitCode::FAILURE
        }
    }
}
