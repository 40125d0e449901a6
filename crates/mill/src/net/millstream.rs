//! [`Net`] over Millstream: a thin translation, nothing of its own but the events' memory.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use millstream::{
    Config, Context, Events, IpCidr, Limits, Mode, Runtime, TcpListener, TcpStream, Token,
};

use super::options::{Crank, NetOptions, Wire};
use super::{Interest, Net, Ready};
use crate::failure::Failure;
use crate::limits::EVENTS_MAX;

/// Windows that a receive buffer holds so that one in it is never short of room.
const WINDOWS_HELD: u32 = 8;

/// One context, on the thread that took it.
#[derive(Clone)]
pub struct Millstream {
    context: Context,
}

/// A poll and the memory that it fills.
pub struct Poll {
    poll: millstream::Poll,
    events: Events,
}

impl Millstream {
    /// Takes a context of the runtime; it stays on this thread.
    pub fn new(runtime: &Runtime, index: usize) -> io::Result<Self> {
        let context = runtime
            .context(index)
            .map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self { context })
    }
}

/// The configuration that the options ask for. Called only for a wire of Millstream's.
pub fn config(options: &NetOptions) -> Result<Config, Failure> {
    let Wire::Millstream(wire) = &options.wire else {
        return Err(Failure::Usage(
            "--wire kernel: this command needs a wire of Millstream's".to_owned(),
        ));
    };
    let mut config = Config::new((**wire).clone());
    for cidr in &options.addresses {
        let address = IpCidr::new(cidr.address, cidr.prefix_bits)
            .map_err(|error| Failure::Usage(format!("--addr {cidr}: {error}")))?;
        config.addresses.push(address);
    }
    config.gateways.clone_from(&options.gateways);
    config.contexts = usize::from(options.contexts);
    if let Some(spin_us) = options.spin_us {
        config.spin_ns = spin_us.saturating_mul(1000);
    }
    if let Some(choice) = options.congestion {
        config.tcp.congestion = choice;
    }
    config.crank = match options.crank {
        Crank::Inline => millstream::Crank::Inline,
        Crank::Dedicated => millstream::Crank::Dedicated,
    };
    config.story_one_in = options.story_one_in;
    config.aggregation_max = options.aggregation_max.unwrap_or(config.aggregation_max);
    options.acks.apply(&mut config);
    if let Some(connections) = options.sockets_max {
        config.limits = Limits::for_connections(connections);
    }
    Ok(config)
}

/// Opens the wire and makes the stacks. What fails here is a matter of what was asked.
pub fn runtime(options: &NetOptions) -> Result<Runtime, Failure> {
    Runtime::new(config(options)?).map_err(|error| {
        let remedy = error.remedy().map(|line| format!("\nmill: {line}"));
        Failure::Usage(format!("{error}{}", remedy.unwrap_or_default()))
    })
}

impl Net for Millstream {
    type Listener = TcpListener;
    type Stream = TcpStream;
    type Poll = Poll;

    fn looked_ns(&self) -> u64 {
        self.context.looked_ns()
    }

    fn poll(&self) -> io::Result<Poll> {
        Ok(Poll {
            poll: millstream::Poll::new(&self.context),
            events: Events::with_capacity(EVENTS_MAX),
        })
    }

    fn listen(&self, address: SocketAddr, backlog: usize) -> io::Result<TcpListener> {
        let builder = TcpListener::builder(&self.context)
            .backlog(backlog)
            .nodelay(true);
        let listener = builder.bind(address)?;
        listener.set_nonblocking(true);
        Ok(listener)
    }

    fn accept(&self, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = listener.accept()?;
        stream.set_nonblocking(true);
        Ok((stream, peer))
    }

    fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::start_connect(&self.context, address)
    }

    fn take_error(&self, stream: &TcpStream) -> io::Result<Option<io::Error>> {
        Ok(stream.take_error())
    }

    fn read(&self, stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        stream.read(buffer)
    }

    fn write(&self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
        stream.write(bytes)
    }

    fn shutdown_write(&self, stream: &TcpStream) -> io::Result<()> {
        stream.shutdown(Shutdown::Write)
    }

    fn abort(&self, stream: TcpStream) {
        stream.abort();
    }

    fn register_listener(
        &self,
        poll: &mut Poll,
        listener: &TcpListener,
        token: usize,
    ) -> io::Result<()> {
        poll.poll
            .register(listener, Token(token), READ, Mode::Level)
    }

    fn deregister_listener(&self, poll: &mut Poll, listener: &TcpListener) -> io::Result<()> {
        poll.poll.deregister(listener)
    }

    fn register(
        &self,
        poll: &mut Poll,
        stream: &TcpStream,
        token: usize,
        interest: Interest,
    ) -> io::Result<()> {
        poll.poll
            .register(stream, Token(token), wanted(interest), Mode::Level)
    }

    fn reregister(
        &self,
        poll: &mut Poll,
        stream: &TcpStream,
        token: usize,
        interest: Interest,
    ) -> io::Result<()> {
        poll.poll
            .reregister(stream, Token(token), wanted(interest), Mode::Level)
    }

    fn register_fd(&self, poll: &mut Poll, fd: BorrowedFd<'_>, token: usize) -> io::Result<()> {
        poll.poll.register_fd(fd, Token(token), READ)
    }

    fn wait(
        &self,
        poll: &mut Poll,
        ready: &mut Vec<Ready>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        ready.clear();
        match poll.poll.wait(&mut poll.events, timeout) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        ready.extend(poll.events.iter().map(|event| Ready {
            token: event.token().0,
        }));
        Ok(())
    }

    fn hold_window(&self, stream: &TcpStream, bytes: u32) -> io::Result<()> {
        stream.options().set_recv_buffer(WINDOWS_HELD * bytes)?;
        stream.options().set_window_clamp(bytes)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        counters(&self.context)
    }
}

/// Those that counted anything; none where they cannot be had.
pub fn counters(context: &Context) -> Vec<(&'static str, u64)> {
    let mut rows = context.counters().unwrap_or_default();
    rows.retain(|(_, value)| *value > 0);
    rows
}

const READ: millstream::Interest = millstream::Interest::READABLE;

fn wanted(interest: Interest) -> millstream::Interest {
    match interest {
        Interest::Read => READ,
        Interest::Write => millstream::Interest::WRITABLE,
    }
}
