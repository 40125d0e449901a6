//! One end of bulk transfers, in a process of its own: over Millstream or over the kernel, by the
//! same code.
//!
//! The server prints its address, and the client connects. The receiving end counts: after the
//! warm-up it prints that counting begins, and at the end its report ([`Received`]).

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::interleaved;
use crate::frame::jain;
use crate::message::{self, Role};
use mill::failure::Failure;
use mill::limits::{READ_BYTES, VISIT_BYTES_MAX};
use mill::net::kernel::Kernel;
use mill::net::millstream::{self, Millstream};
use mill::net::options::{NetOptions, Wire};
use mill::net::{Interest, Net, Ready};

const PORT: u16 = 5001;
const LISTENER: usize = usize::MAX;
pub(super) const STDIN: usize = usize::MAX - 1;
/// Longest time that the flows may take to open.
const OPENING_TIME: Duration = Duration::from_secs(30);
/// Longest time until a window that was just changed is the only one that limits the sender.
const SETTLING_TIME: Duration = Duration::from_millis(100);
/// Longest wait of a side before it looks at the clock.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// Options of one end: what the benchmark gives to the processes that it starts.
#[derive(Args, Clone, Debug)]
pub struct SideOptions {
    #[command(flatten)]
    pub net: NetOptions,
    #[arg(long, value_enum)]
    pub role: Role,
    /// This end sends; otherwise it receives
    #[arg(long)]
    pub sends: bool,
    #[arg(long)]
    pub core: usize,
    #[arg(long)]
    pub flows: usize,
    #[arg(long)]
    pub seconds: f64,
    #[arg(long)]
    pub warm_up: f64,
    /// The server's address; for the client only
    #[arg(long)]
    pub server: Option<SocketAddr>,
    /// Receive window of each flow, held from the end of the warm-up on: every second segment is
    /// acknowledged then, whenever the application reads
    #[arg(long, value_name = "BYTES")]
    pub window: Option<u32>,
    /// Segments that a flow of a Millstream server sends before the next one does; 0: lengths from
    /// 2 to 20. Without this the flows share the wire as they like
    #[arg(long)]
    pub burst: Option<usize>,
}

/// The receiver's report at the end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Received {
    pub bytes: u64,
    pub seconds: f64,
    /// Part of that time spent looking for work, in s.
    #[serde(default)]
    pub looked_seconds: f64,
    /// Jain's index of the flows' shares.
    pub jain: f64,
    /// Frames sent for each that came, where the stack counts them.
    #[serde(default)]
    pub answers_per_frame: Option<f64>,
}

/// Runs one end until stdin closes, or the time is over.
pub fn side(options: &SideOptions) -> Result<(), Failure> {
    message::pin(options.core)?;
    let outcome = match options.net.wire() {
        Wire::Kernel => run(&Kernel, options),
        Wire::Millstream(_) => {
            let runtime = millstream::runtime(&options.net)?;
            if let Some(burst) = options.burst.filter(|_| options.sends) {
                let sent = interleaved::send(&runtime, options, burst);
                return sent.map_err(|error| Failure::Run(error.to_string()));
            }
            Millstream::new(&runtime, 0).and_then(|net| run(&net, options))
        }
    };
    outcome.map_err(|error| Failure::Run(error.to_string()))
}

fn run<N: Net>(net: &N, options: &SideOptions) -> io::Result<()> {
    let mut poll = net.poll()?;
    net.register_fd(&mut poll, rustix::stdio::stdin(), STDIN)?;
    let streams = match (options.role, options.server) {
        (Role::Server, _) => accept(net, &mut poll, options)?,
        (Role::Client, Some(server)) => connect(net, &mut poll, server, options)?,
        (Role::Client, None) => return Err(io::Error::other("--server is missing")),
    };
    let interest = match options.sends {
        true => Interest::Write,
        false => Interest::Read,
    };
    for (token, stream) in streams.iter().enumerate() {
        match options.role {
            Role::Server => net.register(&mut poll, stream, token, interest)?,
            Role::Client => net.reregister(&mut poll, stream, token, interest)?,
        }
    }
    let mut end = End {
        net,
        poll,
        ready: Vec::new(),
        bytes: vec![0; streams.len()],
        streams,
        buffer: vec![b'm'; READ_BYTES],
        sends: options.sends,
    };
    end.transfer(options)
}

fn say(value: &serde_json::Value) -> io::Result<()> {
    println!("{value}");
    io::stdout().flush()
}

/// Says the address and waits for all flows.
pub(super) fn accept<N: Net>(
    net: &N,
    poll: &mut N::Poll,
    options: &SideOptions,
) -> io::Result<Vec<N::Stream>> {
    let address = options.net.listen_address(PORT);
    let listener = net.listen(address, mill::limits::BACKLOG_DEFAULT)?;
    net.register_listener(poll, &listener, LISTENER)?;
    say(&serde_json::json!({ "address": address }))?;
    let mut streams = Vec::with_capacity(options.flows);
    let mut ready = Vec::new();
    while streams.len() < options.flows {
        net.wait(poll, &mut ready, None)?;
        if ready.iter().any(|ready| ready.token == STDIN) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        while streams.len() < options.flows {
            match net.accept(&listener) {
                Ok((stream, _)) => streams.push(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
    }
    net.deregister_listener(poll, &listener)?;
    Ok(streams)
}

fn connect<N: Net>(
    net: &N,
    poll: &mut N::Poll,
    server: SocketAddr,
    options: &SideOptions,
) -> io::Result<Vec<N::Stream>> {
    let mut streams = Vec::with_capacity(options.flows);
    let mut ready: Vec<Ready> = Vec::new();
    let until = Instant::now() + OPENING_TIME;
    while streams.len() < options.flows {
        // One after another: opening is not what is measured.
        let stream = net.connect(server)?;
        net.register(poll, &stream, streams.len(), Interest::Write)?;
        loop {
            net.wait(poll, &mut ready, Some(Duration::from_secs(1)))?;
            if ready.iter().any(|ready| ready.token == streams.len()) {
                break;
            }
            if Instant::now() > until {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        if let Some(error) = net.take_error(&stream)? {
            return Err(error);
        }
        // Nothing comes before all are open.
        net.reregister(poll, &stream, streams.len(), Interest::Read)?;
        streams.push(stream);
    }
    Ok(streams)
}

/// Frames that came and that went.
struct Frames {
    came: u64,
    went: u64,
}

impl Frames {
    fn of<N: Net>(net: &N) -> Self {
        let counters = net.counters();
        let of = |wanted| {
            let found = counters.iter().find(|(name, _)| *name == wanted);
            found.map_or(0, |(_, count)| *count)
        };
        Self {
            came: of("rx_frames"),
            went: of("tx_frames"),
        }
    }

    fn answers_since(&self, before: &Self) -> Option<f64> {
        let came = self.came - before.came;
        (came > 0).then(|| (self.went - before.went) as f64 / came as f64)
    }
}

/// All flows of this end.
struct End<'a, N: Net> {
    net: &'a N,
    poll: N::Poll,
    ready: Vec<Ready>,
    streams: Vec<N::Stream>,
    /// Bytes that each connection moved in the time that counts.
    bytes: Vec<u64>,
    buffer: Vec<u8>,
    sends: bool,
}

impl<N: Net> End<'_, N> {
    fn transfer(&mut self, options: &SideOptions) -> io::Result<()> {
        let warm_up = Duration::from_secs_f64(options.warm_up);
        if !self.turn_until(Some(warm_up))? {
            return Ok(());
        }
        if self.sends {
            self.turn_until(None)?;
            return Ok(());
        }
        if let Some(bytes) = options.window {
            for stream in &self.streams {
                self.net.hold_window(stream, bytes)?;
            }
            // Bytes that the sender sent under the old window are still to come.
            self.turn_until(Some(SETTLING_TIME))?;
        }
        self.bytes.fill(0);
        let frames = Frames::of(self.net);
        let (begin, looked_ns) = (Instant::now(), self.net.looked_ns());
        say(&serde_json::json!({ "begin": true }))?;
        self.turn_until(Some(Duration::from_secs_f64(options.seconds)))?;
        let shares: Vec<f64> = self.bytes.iter().map(|&bytes| bytes as f64).collect();
        say(&serde_json::json!(Received {
            bytes: self.bytes.iter().sum(),
            seconds: begin.elapsed().as_secs_f64(),
            looked_seconds: (self.net.looked_ns() - looked_ns) as f64 / 1e9,
            jain: jain(&shares),
            answers_per_frame: Frames::of(self.net).answers_since(&frames),
        }))
    }

    /// Moves bytes until `time` is over. False if stdin has closed, or the other end has gone.
    fn turn_until(&mut self, time: Option<Duration>) -> io::Result<bool> {
        let begin = Instant::now();
        while time.is_none_or(|time| begin.elapsed() < time) {
            let mut ready = std::mem::take(&mut self.ready);
            self.net.wait(&mut self.poll, &mut ready, Some(LOOK))?;
            for Ready { token } in ready.iter().copied() {
                if token == STDIN {
                    return Ok(false);
                }
                match self.visit(token) {
                    Ok(()) => {}
                    // The receiver leaves first.
                    Err(_) if self.sends => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            self.ready = ready;
        }
        Ok(true)
    }

    fn visit(&mut self, token: usize) -> io::Result<()> {
        let stream = &mut self.streams[token];
        let mut moved = 0;
        while moved < VISIT_BYTES_MAX {
            let outcome = match self.sends {
                true => self.net.write(stream, &self.buffer),
                false => self.net.read(stream, &mut self.buffer),
            };
            match outcome {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => moved += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.bytes[token] += moved as u64;
        Ok(())
    }
}
