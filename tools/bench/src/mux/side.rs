//! The ends of figure 4: a source that sends TCP frames as fast as its ports take them, and a sink
//! that counts what comes. Neither has a stack.
//!
//! Each opens one port for each context of its wire. On a `mux` wire each context claims a place of
//! its own, and frames are for these places, or from them.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use packetio::host::{Change, Wish};
use packetio::mux::MuxHost;
use packetio::xdp::Take;
use packetio::{Backend, MacAddr, Port, RxFrame, WireSpec};
use serde::{Deserialize, Serialize};

use crate::frame::namespace::{CLIENT, SERVER};
use mill::failure::Failure;

/// The first place: context *n* has this port plus *n*.
const PORT_FIRST: u16 = 2_000;
/// Most frames that leave at once.
const BATCH: usize = 64;
const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const TCP_BYTES: usize = 20;
/// Offset of the source port in a frame.
const SOURCE_PORT_AT: usize = ETHERNET_BYTES + IPV4_BYTES;
/// Longest wait of the sink for the first frame, and of the source for a next hop.
const PATIENCE: Duration = Duration::from_secs(20);

/// Options of an end.
#[derive(Args, Clone, Debug)]
pub struct SideOptions {
    #[arg(long, value_enum)]
    role: Role,
    #[arg(long)]
    wire: WireSpec,
    /// Ports of the wire at this end
    #[arg(long, default_value_t = 1)]
    ports: usize,
    /// Places between which frames are spread
    #[arg(long, default_value_t = 1)]
    places: u16,
    /// Frames go from the client to the server
    #[arg(long)]
    to_server: bool,
    /// Bytes of a frame, of the source
    #[arg(long, default_value_t = 60)]
    bytes: usize,
    /// The peer's MAC address, of the source
    #[arg(long)]
    peer: Option<String>,
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    #[arg(long, default_value_t = 0.3)]
    warm_up: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Source,
    Sink,
}

/// The sink's count for each place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counted {
    pub frames: Vec<u64>,
    pub seconds: f64,
}

/// An end that is ready to move frames.
#[derive(Serialize, Deserialize)]
pub struct Ready {
    /// The MAC address that frames for this end bear.
    pub mac: String,
}

type Ports = Vec<Box<dyn Port + Send>>;

/// Runs an end.
pub fn side(options: &SideOptions) -> Result<(), Failure> {
    let (mut ports, _host) = open(options).map_err(Failure::Run)?;
    let mac = ports[0].capabilities().mac;
    say(&Ready { mac: text_of(mac) })?;
    match options.role {
        Role::Sink => {
            let counted = sink(options, &mut ports).map_err(Failure::Run)?;
            say(&counted)
        }
        Role::Source => source(options, &mut ports).map_err(Failure::Run),
    }
}

fn say(value: &impl Serialize) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Run(format!("stdout: {error}"));
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::json!(value)).map_err(failed)?;
    out.flush().map_err(failed)
}

/// Ports of the wire. On a `mux` wire, each has claimed its place.
fn open(options: &SideOptions) -> Result<(Ports, Option<std::sync::Arc<MuxHost>>), String> {
    let mut wire = options.wire.clone();
    let server = address(SERVER)?;
    let host = match &mut wire.backend {
        Backend::Mux(mux) => {
            mux.contexts = options.ports;
            Some(packetio::mux::host(mux).map_err(|error| error.to_string())?)
        }
        Backend::Xdp(xdp) if options.role == Role::Sink => {
            // The kernel goes on answering to ARP.
            xdp.take = Take::Tcp;
            xdp.addresses = vec![match options.to_server {
                true => server.into(),
                false => address(CLIENT)?.into(),
            }];
            None
        }
        _ => None,
    };
    let mut ports: Ports = Vec::new();
    for context in 0..options.ports {
        ports.push(packetio::open(&wire, context).map_err(|error| error.to_string())?);
        if let Some(host) = &host {
            let place = SocketAddr::new(server.into(), PORT_FIRST + context as u16);
            let claimed = host.claim(context, place);
            claimed.map_err(|errno| format!("{place}: {errno}"))?;
        }
    }
    Ok((ports, host))
}

fn address(text: &str) -> Result<Ipv4Addr, String> {
    text.parse().map_err(|_| format!("{text}: no address"))
}

fn text_of(MacAddr([a, b, c, d, e, f]): MacAddr) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn mac_of(text: &str) -> Result<MacAddr, String> {
    let parts: Result<Vec<u8>, _> = text
        .split(':')
        .map(|part| u8::from_str_radix(part, 16))
        .collect();
    let parts = parts.ok().and_then(|parts| parts.try_into().ok());
    parts
        .map(MacAddr)
        .ok_or_else(|| format!("{text}: no MAC address"))
}

/// Counts frames for the time that counts, which begins `warm_up` seconds after the first frame.
fn sink(options: &SideOptions, ports: &mut Ports) -> Result<Counted, String> {
    let until = Instant::now() + PATIENCE;
    while receive_all(ports, &mut |_, _| {})? == 0 {
        if Instant::now() > until {
            return Err("no frame came".to_owned());
        }
    }
    let warm = Instant::now() + Duration::from_secs_f64(options.warm_up);
    while Instant::now() < warm {
        receive_all(ports, &mut |_, _| {})?;
    }
    let mut frames = vec![0; options.places.into()];
    let began = Instant::now();
    let ends = began + Duration::from_secs_f64(options.seconds);
    while Instant::now() < ends {
        receive_all(ports, &mut |port, batch| count(&mut frames, port, batch))?;
    }
    Ok(Counted {
        frames,
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Counts a batch: several ports have a place each, and one port has the frames of all places,
/// which their source ports tell apart.
fn count(frames: &mut [u64], port: usize, batch: &[RxFrame]) {
    if port > 0 || frames.len() == 1 {
        frames[port] += batch.len() as u64;
        return;
    }
    for frame in batch {
        let mut field = [0; 2];
        frame.copy_to(SOURCE_PORT_AT, &mut field);
        let place = usize::from(u16::from_be_bytes(field).saturating_sub(PORT_FIRST));
        // The first of several ports gets frames whose source port is no place: they count for
        // place 0.
        frames[if place < frames.len() { place } else { 0 }] += 1;
    }
}

/// Takes one batch of each port. Returns the number of frames.
fn receive_all(ports: &mut Ports, each: &mut impl FnMut(usize, &[RxFrame])) -> Result<u64, String> {
    let mut all = 0;
    for (index, port) in ports.iter_mut().enumerate() {
        let batch = port.receive().map_err(|error| error.to_string())?;
        all += batch.len() as u64;
        if !batch.is_empty() {
            each(index, batch);
        }
        port.release();
    }
    Ok(all)
}

/// Sends until its stdin closes.
fn source(options: &SideOptions, ports: &mut Ports) -> Result<(), String> {
    let stop = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
    let frames = frames(options, ports)?;
    // Several ports have a place each, and one port has them all in turn.
    let is_alone = ports.len() == 1;
    let mut next = 0;
    while !stop.is_finished() {
        for (index, port) in ports.iter_mut().enumerate() {
            let slots = port.reserve(BATCH);
            let ready = slots.len();
            for slot in slots {
                let place = if is_alone { next } else { index };
                slot.write(0, &frames[place]);
                slot.set_len(options.bytes);
                next = (next + 1) % frames.len();
            }
            port.send(ready).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// A frame for each place.
fn frames(options: &SideOptions, ports: &mut Ports) -> Result<Vec<Vec<u8>>, String> {
    let (server, client) = (address(SERVER)?, address(CLIENT)?);
    let own = ports[0].capabilities().mac;
    let peer = match &options.peer {
        Some(text) => mac_of(text)?,
        None => next_hop(ports, client.into())?,
    };
    let places = (0..options.places).map(|place| {
        let ports = (PORT_FIRST + place, 50_000);
        match options.to_server {
            true => frame(
                options.bytes,
                (own, peer),
                (client, server),
                (ports.1, ports.0),
            ),
            false => frame(options.bytes, (own, peer), (server, client), ports),
        }
    });
    Ok(places.collect())
}

/// Asks the host behind the ports for the next hop: it lets frames leave only for those it was
/// asked for.
fn next_hop(ports: &mut Ports, address: IpAddr) -> Result<MacAddr, String> {
    let until = Instant::now() + PATIENCE;
    let host = ports[0].host().ok_or("no host, and no --peer")?;
    while Instant::now() < until {
        host.ask(Wish::NextHop(address));
        std::thread::sleep(Duration::from_millis(20));
        while let Some(change) = host.next_change() {
            if let Change::NextHop { mac: Some(mac), .. } = change {
                return Ok(mac);
            }
        }
    }
    Err(format!("{address} does not answer"))
}

/// A TCP segment without options that fills a frame of `bytes`.
fn frame(
    bytes: usize,
    (from, to): (MacAddr, MacAddr),
    (source, destination): (Ipv4Addr, Ipv4Addr),
    (source_port, destination_port): (u16, u16),
) -> Vec<u8> {
    let mut frame = Vec::with_capacity(bytes);
    frame.extend(to.0);
    frame.extend(from.0);
    frame.extend([0x08, 0x00]);
    // The least TCP segment is shorter than the shortest frame, which is padded.
    let total = (bytes - ETHERNET_BYTES) as u16;
    frame.extend([0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    let sum = header_checksum(&frame[ETHERNET_BYTES..ETHERNET_BYTES + IPV4_BYTES]);
    frame[ETHERNET_BYTES + 10..ETHERNET_BYTES + 12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(source_port.to_be_bytes());
    frame.extend(destination_port.to_be_bytes());
    frame.extend([
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        1,
        (TCP_BYTES as u8 / 4) << 4,
        0x10,
        0xff,
        0xff,
    ]);
    frame.resize(bytes, 0);
    frame
}

/// RFC 791's sum over a header without options.
fn header_checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}
