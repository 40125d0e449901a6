//! One end of a bulk transfer, in a process of its own: over Millstream or over the kernel, by the
//! same code.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use mill::failure::Failure;
use mill::limits::READ_BYTES;
use mill::net::kernel::Kernel;
use mill::net::millstream::{self, Millstream};
use mill::net::options::{NetOptions, Wire};
use mill::net::{Interest, Net};

const PORT: u16 = 5001;
const TOKEN: usize = 0;
/// Time of silence after which a peer does not come. Until then, three ARP requests and six SYNs
/// may be lost.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Longest wait of a sender. Its timeouts double, so it may write nothing for long. The benchmark
/// that started it ends it before that.
const BLOCKED_MAX: Duration = Duration::from_secs(3600);

/// Options of one end: what the benchmark gives to the processes that it starts.
#[derive(Args, Clone, Debug)]
pub struct SideOptions {
    #[command(flatten)]
    pub net: NetOptions,
    /// The end to play
    #[arg(long, value_enum)]
    pub role: Role,
    /// The receiver's address; for the sender only
    #[arg(long)]
    pub receiver: Option<std::net::IpAddr>,
    /// Seconds that the receiver counts
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
}

/// An end of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    Send,
    Receive,
}

/// The receiver's report.
#[derive(Debug, Serialize, Deserialize)]
pub struct Received {
    pub bytes: u64,
    pub seconds: f64,
}

/// Runs one end until it is done.
pub fn side(options: &SideOptions) -> Result<(), Failure> {
    let outcome = match options.net.wire() {
        Wire::Kernel => over(&Kernel, options),
        Wire::Millstream(_) => {
            let runtime = millstream::runtime(&options.net)?;
            Millstream::new(&runtime, 0).and_then(|net| over(&net, options))
        }
    };
    outcome.map_err(|error| Failure::Run(error.to_string()))
}

fn over<N: Net>(net: &N, options: &SideOptions) -> io::Result<()> {
    match options.role {
        Role::Receive => receive(net, options),
        Role::Send => send(net, options),
    }
}

/// Counts what arrives from the first byte on, for the time given; then resets, which ends the
/// sender.
fn receive<N: Net>(net: &N, options: &SideOptions) -> io::Result<()> {
    let listener = net.listen(options.net.listen_address(PORT), 1)?;
    println!("{}", serde_json::json!({ "event": "ready" }));
    let mut poll = net.poll()?;
    net.register_listener(&mut poll, &listener, TOKEN)?;
    wait(net, &mut poll, SILENCE_MAX)?;
    let (mut stream, _) = net.accept(&listener)?;
    net.deregister_listener(&mut poll, &listener)?;
    net.register(&mut poll, &stream, TOKEN, Interest::Read)?;
    let mut buffer = vec![0; READ_BYTES];
    let mut bytes = 0;
    let mut until = None;
    let counted = Duration::from_secs_f64(options.seconds);
    loop {
        let left = until.map_or(SILENCE_MAX, |until: Instant| {
            until.saturating_duration_since(Instant::now())
        });
        if left.is_zero() {
            break;
        }
        // No byte may come for the rest of the time, and that is part of the result.
        match wait(net, &mut poll, left) {
            Err(error) if error.kind() == ErrorKind::TimedOut && until.is_some() => break,
            other => other?,
        }
        bytes += read_all(net, &mut stream, &mut buffer)?;
        until.get_or_insert_with(|| Instant::now() + counted);
    }
    let received = Received {
        bytes,
        seconds: options.seconds,
    };
    println!("{}", serde_json::json!(received));
    net.abort(stream);
    Ok(())
}

fn read_all<N: Net>(net: &N, stream: &mut N::Stream, buffer: &mut [u8]) -> io::Result<u64> {
    let mut bytes = 0;
    loop {
        match net.read(stream, buffer) {
            Ok(0) => return Err(io::Error::other("the sender ended before its time")),
            Ok(count) => bytes += count as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(bytes),
            Err(error) => return Err(error),
        }
    }
}

/// Writes until the receiver resets.
fn send<N: Net>(net: &N, options: &SideOptions) -> io::Result<()> {
    let receiver = options
        .receiver
        .ok_or_else(|| io::Error::other("--receiver is missing"))?;
    let receiver = SocketAddr::new(receiver, PORT);
    let until = Instant::now() + SILENCE_MAX;
    loop {
        match send_once(net, receiver) {
            // A wire that loses every fifth frame loses three ARP requests in a row now and then.
            // The time that counts begins later, so the sender tries again.
            Err(error) if is_no_way(&error) && Instant::now() < until => {}
            outcome => return outcome,
        }
    }
}

fn is_no_way(error: &io::Error) -> bool {
    use ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
    matches!(
        error.kind(),
        HostUnreachable | NetworkUnreachable | TimedOut
    )
}

fn send_once<N: Net>(net: &N, receiver: SocketAddr) -> io::Result<()> {
    let mut stream = net.connect(receiver)?;
    let mut poll = net.poll()?;
    net.register(&mut poll, &stream, TOKEN, Interest::Write)?;
    let block = vec![0x5a; READ_BYTES];
    loop {
        wait(net, &mut poll, BLOCKED_MAX)?;
        loop {
            match net.write(&mut stream, &block) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                    ) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn wait<N: Net>(net: &N, poll: &mut N::Poll, timeout: Duration) -> io::Result<()> {
    let mut ready = Vec::new();
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        net.wait(poll, &mut ready, Some(left))?;
        if !ready.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(ErrorKind::TimedOut.into());
        }
    }
}
