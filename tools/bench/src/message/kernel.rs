//! The kernel's side of the comparison: an epoll server and an epoll client, each as quick as we
//! can make them.
//!
//! * Server: `SO_REUSEPORT`. It accepts in batches and reads at once, since the request is often
//!   there already. A connection enters the epoll set only if its request is not. Response and FIN
//!   leave together: one `send`, one `close`. For resets, accepted sockets inherit the listener's
//!   SO_LINGER of zero, so that a reset is one `close`.
//! * Client: sends right after `connect`, which on loopback is done when it returns. With one
//!   request per connection it waits for one event only: the server's FIN, edge-triggered. Then it
//!   finds the response and the end in one `recv` each.
//! * TCP_NODELAY is set nowhere: no side ever holds back a first small segment, so the option would
//!   cost a call and change nothing. All sockets that exchange are non-blocking from birth
//!   (SOCK_NONBLOCK, accept4).

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::measure::{Answering, Asking, Exchange, Next, Plan, Tally, kernel};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::SideOptions;
use mill::limits::{ACCEPT_BATCH_MAX, EVENTS_MAX, READ_BYTES};

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// A socket whose connect has begun. The socket becomes writable when it is open.
pub(super) fn start_connect(server: SocketAddr) -> io::Result<OwnedFd> {
    let stream = net::socket_with(AddressFamily::INET, SocketType::STREAM, FLAGS, None)?;
    match net::connect(&stream, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(stream),
        Err(error) => Err(error.into()),
    }
}
const LISTENER: u64 = u64::MAX;
const STDIN: u64 = u64::MAX - 1;
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// A socket with the system calls that a stream has.
pub(super) struct Stream(pub(super) OwnedFd);

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (count, _) = net::recv(&self.0, buffer, RecvFlags::empty())?;
        Ok(count)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(net::send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A set of registrations, and the time for which it is polled before the thread sleeps. Millstream
/// polls in the same way, and the kernel is compared with that.
pub(super) struct Watch {
    pub(super) epoll: OwnedFd,
    spin: Duration,
    events: Vec<epoll::Event>,
}

impl Watch {
    pub(super) fn new(options: &SideOptions) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            spin: Duration::from_micros(options.net.spin_us.unwrap_or(0)),
            events: Vec::with_capacity(EVENTS_MAX),
        })
    }

    /// Waits for something, or for `timeout`. The events are given back with
    /// [`recycle`](Self::recycle).
    pub(super) fn wait(&mut self, timeout: Option<&Timespec>) -> io::Result<Vec<epoll::Event>> {
        let mut events = std::mem::take(&mut self.events);
        let begin = (!self.spin.is_zero()).then(Instant::now);
        loop {
            let looks = begin.is_some_and(|begin| begin.elapsed() < self.spin);
            let timeout = if looks { Some(&AT_ONCE) } else { timeout };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout) {
                Ok(0) if looks => {}
                Ok(_) | Err(Errno::INTR) => return Ok(events),
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn recycle(&mut self, mut events: Vec<epoll::Event>) {
        events.clear();
        self.events = events;
    }
}

/// Serves until stdin closes.
pub fn server(options: &SideOptions) -> io::Result<()> {
    kernel::allow_descriptors(&options.plan);
    let listener = net::socket_with(AddressFamily::INET, SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    sockopt::set_socket_reuseport(&listener, true)?;
    if options.plan.exchange == Exchange::Reset {
        sockopt::set_socket_linger(&listener, Some(Duration::ZERO))?;
    }
    net::bind(&listener, &options.net.listen_address(options.port))?;
    net::listen(&listener, kernel::backlog(&options.plan))?;
    let address: SocketAddr = net::getsockname(&listener)?.try_into()?;
    println!("{}", serde_json::json!({ "address": address }));
    io::stdout().flush()?;
    let serve = |core: Option<usize>| {
        if let Some(core) = core {
            super::pin(core).map_err(|failure| io::Error::other(failure.to_string()))?;
        }
        Server {
            plan: &options.plan,
            watch: Watch::new(options)?,
            waiting: Vec::new(),
            buffer: vec![0; READ_BYTES],
        }
        .run(&listener)
    };
    // Threads that share the listener, each with an epoll set of its own.
    std::thread::scope(|scope| {
        let others = options.more_cores.iter().map(|&core| {
            let serve = &serve;
            scope.spawn(move || serve(Some(core)))
        });
        let others: Vec<_> = others.collect();
        let mut outcome = serve(None);
        for other in others {
            let joined = other.join();
            outcome =
                outcome.and(joined.unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))));
        }
        outcome
    })
}

struct Server<'a> {
    plan: &'a Plan,
    watch: Watch,
    /// Accepted connections that are not over, by descriptor.
    waiting: Vec<Option<(Stream, Answering)>>,
    buffer: Vec<u8>,
}

impl Server<'_> {
    fn run(&mut self, listener: &OwnedFd) -> io::Result<()> {
        let stdin = io::stdin();
        let [listens, leaves] = [LISTENER, STDIN].map(EventData::new_u64);
        epoll::add(&self.watch.epoll, listener, listens, EventFlags::IN)?;
        epoll::add(&self.watch.epoll, &stdin, leaves, EventFlags::IN)?;
        let timeout = self.plan.polls.then_some(&AT_ONCE);
        loop {
            let events = self.watch.wait(timeout)?;
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(listener)?,
                    STDIN => return Ok(()),
                    fd => self.serve_waiting(fd as usize),
                }
            }
            self.watch.recycle(events);
        }
    }

    fn accept(&mut self, listener: &OwnedFd) -> io::Result<()> {
        for _ in 0..ACCEPT_BATCH_MAX {
            match net::accept_with(listener, FLAGS) {
                Ok(stream) if self.plan.exchange == Exchange::Reset => drop(stream),
                Ok(stream) => self.welcome(Stream(stream))?,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn welcome(&mut self, mut stream: Stream) -> io::Result<()> {
        let mut answering = Answering::new(self.plan);
        if answering.go_on(&mut stream, self.plan, &mut self.buffer) == Next::Over {
            return Ok(());
        }
        let fd = stream.0.as_raw_fd() as usize;
        let sends_long = self.plan.response_bytes > READ_BYTES;
        let mut flags = EventFlags::IN | EventFlags::ET;
        flags.set(EventFlags::OUT, sends_long);
        let data = EventData::new_u64(fd as u64);
        epoll::add(&self.watch.epoll, &stream.0, data, flags)?;
        if fd >= self.waiting.len() {
            self.waiting.resize_with(fd + 1, || None);
        }
        self.waiting[fd] = Some((stream, answering));
        Ok(())
    }

    fn serve_waiting(&mut self, fd: usize) {
        let Some(place) = self.waiting.get_mut(fd) else {
            return;
        };
        let Some((stream, answering)) = place else {
            return;
        };
        // Dropping the stream closes it, which also takes it out of the epoll set.
        if answering.go_on(stream, self.plan, &mut self.buffer) == Next::Over {
            *place = None;
        }
    }
}

/// Keeps the connections busy until the time is over, and prints what it saw.
pub fn client(options: &SideOptions) -> io::Result<()> {
    let server = options
        .server
        .ok_or_else(|| io::Error::other("--server is missing"))?;
    let plan = &options.plan;
    kernel::allow_descriptors(plan);
    let idle = open_idle(plan.idle, server, options)?;
    super::say_idle(idle.len())?;
    let mut client = Client {
        plan,
        watch: Watch::new(options)?,
        server,
        slots: (0..plan.connections).map(|_| None).collect(),
        unopened: Vec::new(),
        tally: Tally::announcing(plan),
        buffer: vec![0; READ_BYTES],
    };
    client.run()?;
    println!("{}", serde_json::json!(client.tally.seen()));
    io::stdout().flush()?;
    super::all_stand(idle.iter().map(is_quiet))
}

/// True if nothing has come on an idle connection, not even its end.
fn is_quiet(stream: &OwnedFd) -> bool {
    let flags = net::RecvFlags::PEEK | net::RecvFlags::DONTWAIT;
    net::recv(stream, &mut [0u8][..], flags).is_err_and(|error| error == Errno::AGAIN)
}

/// Connections that do nothing, spread over our addresses.
fn open_idle(count: usize, server: SocketAddr, options: &SideOptions) -> io::Result<Vec<OwnedFd>> {
    let mut idle = Vec::with_capacity(count);
    for index in 0..count {
        let stream = net::socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        if options.net.addresses.len() > 1 {
            let address = options.net.addresses[index % options.net.addresses.len()]
                .value
                .address;
            net::bind(&stream, &SocketAddr::new(address, 0))?;
        }
        net::connect(&stream, &server)?;
        idle.push(stream);
    }
    Ok(idle)
}

struct Client<'a> {
    plan: &'a Plan,
    watch: Watch,
    server: SocketAddr,
    slots: Vec<Option<(Stream, Asking)>>,
    /// Slots whose connection could not be opened: tried again after the next wait.
    unopened: Vec<usize>,
    tally: Tally,
    buffer: Vec<u8>,
}

impl Client<'_> {
    fn run(&mut self) -> io::Result<()> {
        for index in 0..self.slots.len() {
            self.begin(index);
        }
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        while self.tally.goes_on() {
            let events = self.watch.wait(Some(&second))?;
            self.tally.look();
            for event in &events {
                self.visit(event.data.u64() as usize, event.flags);
            }
            self.watch.recycle(events);
            for index in std::mem::take(&mut self.unopened) {
                self.begin(index);
            }
        }
        for (_, asking) in self.slots.iter().flatten() {
            asking.was_left(&mut self.tally);
        }
        Ok(())
    }

    fn begin(&mut self, index: usize) {
        if let Err(error) = self.open(index) {
            self.tally.fail(&error);
            self.unopened.push(index);
        }
    }

    fn open(&mut self, index: usize) -> io::Result<()> {
        let stream = start_connect(self.server)?;
        let (mut stream, mut asking) = (Stream(stream), Asking::new(self.plan, &self.tally));
        let mut flags = EventFlags::RDHUP | EventFlags::ET;
        if self.plan.exchange == Exchange::Messages {
            // The request waits until the socket is writable if the connection is not open yet. It
            // also waits if the time to open is to be measured.
            let has_asked = !self.plan.parts && matches!(asking.ask(&mut stream), Ok(true));
            flags.set(EventFlags::OUT, !has_asked);
            flags.set(EventFlags::IN, !self.plan.ends_with_its_response());
        }
        let data = EventData::new_u64(index as u64);
        epoll::add(&self.watch.epoll, &stream.0, data, flags)?;
        self.slots[index] = Some((stream, asking));
        Ok(())
    }

    fn visit(&mut self, index: usize, flags: EventFlags) {
        let Some((stream, asking)) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if self.plan.exchange == Exchange::Reset {
            if !ended {
                return;
            }
            // A reset is an error of the socket, which an end in good order is not.
            match flags.contains(EventFlags::ERR) {
                true => asking.was_reset(&mut self.tally),
                false => self.tally.fail(&"an end without a reset"),
            }
        } else {
            if !ended && self.plan.ends_with_its_response() {
                asking.was_told(&self.tally);
                if asking.has_unsent()
                    && let Err(error) = asking.ask(stream)
                {
                    self.tally.fail(&error);
                }
                return;
            }
            match asking.go_on(stream, self.plan, &mut self.buffer, &mut self.tally) {
                Ok(Next::Wait) => return,
                Ok(Next::Over) => {}
                Err(error) => self.tally.fail(&error),
            }
        }
        self.slots[index] = None;
        self.begin(index);
    }
}
