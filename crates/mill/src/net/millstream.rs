//! [`Net`] over Millstream: a thin translation that owns nothing but a buffer of events.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use millstream::rules::RuleSet;
use millstream::{
    Config, Context, Events, IpCidr, Limits, Mode, Runtime, TcpListener, TcpStream, Token,
};

use super::options::{Crank, NetOptions, OnWire, Wire};
use super::{Interest, Net, Ready};
use crate::failure::Failure;
use crate::limits::EVENTS_MAX;

/// Size of the receive buffer in windows, if a window is held: then the window is never reduced.
const WINDOWS_HELD: u32 = 8;

/// One context, on the thread that took it.
#[derive(Clone)]
pub struct Millstream {
    context: Context,
}

/// A poll and its buffer of events.
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

/// The configuration for the options. Called only for a wire of Millstream's.
pub fn config(options: &NetOptions) -> Result<Config, Failure> {
    let wires = options.wires.iter().map_while(|wire| match wire {
        Wire::Millstream(wire) => Some((**wire).clone()),
        Wire::Kernel => None,
    });
    let mut config = Config::wires(wires).ok_or_else(|| {
        let need = "--wire kernel: this command needs a wire of Millstream's";
        Failure::Usage(need.to_owned())
    })?;
    for OnWire { value: cidr, wire } in &options.addresses {
        let address = IpCidr::new(cidr.address, cidr.prefix_bits)
            .map_err(|error| Failure::Usage(format!("--addr {cidr}: {error}")))?;
        match config.further_wires.get_mut(wire.wrapping_sub(2)) {
            Some(further) => further.port.addresses.push(address),
            None => config.addresses.push(address),
        }
    }
    for gateway in &options.gateways {
        match config.further_wires.get_mut(gateway.wire.wrapping_sub(2)) {
            Some(further) => further.port.gateways.push(gateway.value),
            None => config.gateways.push(gateway.value),
        }
    }
    config.contexts = usize::from(options.contexts);
    if let Some(cores) = &options.cores {
        config.cores.clone_from(&cores.0);
    }
    config.hugetlb = options.hugetlb;
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
    if let Some(file) = &options.rules {
        config.rules = rules("--rules", file)?;
    }
    config.aggregation_max = options.aggregation_max.unwrap_or(config.aggregation_max);
    options.acks.apply(&mut config);
    if let Some(connections) = options.sockets_max {
        config.limits = Limits::for_connections(connections);
    }
    Ok(config)
}

/// The packet rules of the file that `option` names.
pub fn rules(option: &str, file: &Path) -> Result<RuleSet, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::Usage(format!("{option} {}: {error}", file.display())))?;
    millstream::rules::parse(&text).map_err(|error| Failure::Usage(error.in_file(file)))
}

/// Opens the wire and makes the stacks. Failures here are errors of usage.
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

    fn write_more(&self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
        TcpStream::write_more(stream, bytes)
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

/// The counters other than zero; empty if they cannot be read.
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct One {
        #[command(flatten)]
        net: NetOptions,
    }

    fn options(line: &str) -> NetOptions {
        One::parse_from(line.split_whitespace()).net
    }

    #[test]
    fn addresses_and_gateways_go_to_the_wires_that_they_name() {
        let options = options(
            "mill --wire packet:a --wire memif:/b --addr 10.0.0.2/24 --addr 10.0.1.2/24@2 \
             --gateway 10.0.1.1@2 --addr fd00::2/64@1",
        );
        assert_eq!(options.check(), Ok(()));
        let config = config(&options).unwrap_or_else(|_| panic!("good options"));
        let texts = |own: &[IpCidr]| own.iter().map(IpCidr::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&config.addresses), ["10.0.0.2/24", "fd00::2/64"]);
        assert!(config.gateways.is_empty());
        let [second] = &config.further_wires[..] else {
            panic!("two wires");
        };
        assert_eq!(second.wire.to_string(), "memif:/b");
        assert_eq!(texts(&second.port.addresses), ["10.0.1.2/24"]);
        assert_eq!(second.port.gateways.len(), 1);
    }

    #[test]
    fn cores_and_huge_pages_go_to_the_configuration_and_not_to_the_kernel() {
        let ours = options(
            "mill --wire packet:a --addr 10.0.0.2/24 --contexts 2 --cores 3,1 --hugetlb require",
        );
        let config = config(&ours).unwrap_or_else(|_| panic!("good options"));
        assert_eq!(config.cores, [3, 1]);
        assert_eq!(config.hugetlb, millstream::HugePages::Require);
        for (line, option) in [("--cores 0", "--cores: "), ("--hugetlb off", "--hugetlb: ")] {
            let said = options(&format!("mill --wire kernel {line}")).check();
            assert!(said.unwrap_err().starts_with(option), "{line}");
        }
    }

    #[test]
    fn wire_that_is_not_there_and_a_kernel_beside_wires_are_refused() {
        let missing = options("mill --wire packet:a --addr 10.0.0.2/24@2").check();
        assert_eq!(missing, Err("@2: --wire is given 1 times".to_owned()));
        let beside = options("mill --wire packet:a --wire kernel").check();
        assert_eq!(beside, Err("--wire kernel: stands alone".to_owned()));
    }
}
