//! This process's connection to `mill mux`: one per service, shared by all contexts.
//!
//! A [`MuxHost`] owns the thread `millstream-mux`, which reads all messages, and the state of
//! requests in flight. A request blocks its caller for one round trip. Ports talk to the thread by
//! separate queues, so nothing here is on the data path.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use rustix::process::{Pid, getpid};

use super::channel::Channel;
use super::message::{
    Claim, HOLD, Hello, Lease, Message, PROTOCOL_TCP, PortKind, Tuple, VirtualPort, Welcome,
};
use super::options::MuxOptions;
use crate::foreign::Closer;
use crate::host::HostView;
use crate::host::host_queues::{self, HostQueues, new_bell, ring_bell};
use crate::ledger::LedgerFile;
use crate::limits::{CHANNEL_QUEUES_MAX, MUX_ANSWER_WAIT, SEGMENT_BYTES_MAX};
use crate::memif::{self, Handover, MemifOptions};
use crate::open_error::OpenError;
use crate::port::{Capabilities, MacAddr, Port};
use crate::text::Text;
use crate::xdp::PassedMemory;
use claims::{Claims, Releases};
use transfers::Transfers;

mod claims;
mod control;
mod transfers;

/// The services to which this process is connected, by path.
static HOSTS: Mutex<Vec<(String, Weak<MuxHost>)>> = Mutex::new(Vec::new());

/// The socket that all processes of this application share.
static FAMILY: OnceLock<OwnedFd> = OnceLock::new();

/// The answer to a request.
#[derive(Debug)]
enum Reply {
    Granted,
    Leased(Lease),
    Port(OwnedFd),
    Bulk(OwnedFd),
    Refused(Errno),
}

/// Identifies a request that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Request(u32),
    Port(u16),
}

/// The control thread's end of a port's queues.
struct Link {
    context: u16,
    link: host_queues::Link,
}

/// A context with its socket, to be reported to a service that comes back.
#[derive(Debug)]
struct Known {
    context: u16,
    /// The socket of the last [`Message::Port`], by which a service recognises the context.
    socket: OwnedFd,
    /// Receives the memif channel of the next service.
    handover: Option<Handover>,
}

/// The parts of an opened context.
pub(super) struct Opened {
    pub port: Box<dyn Port + Send>,
    /// The TAP of the bulk lane; `None`: it is off, or the service has none for us.
    pub bulk: Option<OwnedFd>,
    pub host_queues: HostQueues,
    /// The context's ledger; `None`: the service had no room for one.
    pub ledger: Option<LedgerFile>,
}

#[derive(Default)]
struct Books {
    next_request: u32,
    waiting: HashMap<Key, Option<Reply>>,
    view: HostView,
    /// True once the list of addresses and routes has arrived completely.
    is_complete: bool,
    links: Vec<Link>,
    hops: HashMap<IpAddr, MacAddr>,
    asked: HashSet<IpAddr>,
    contexts: Vec<Known>,
    /// Ledgers that have arrived and that no port has taken, by context: memory and its bytes.
    ledgers: HashMap<u16, (OwnedFd, u64)>,
    claims: Claims,
    /// Copies of the sockets that reserve addresses of this process in the kernel, for a service
    /// that comes back.
    bound: HashMap<SocketAddr, OwnedFd>,
    /// Requests for addresses that have come back, with their contexts, by request number.
    reclaiming: HashMap<u32, (u16, SocketAddr)>,
    leases: Vec<Lease>,
    /// Requests for more local ports, with their contexts, by request number.
    growing: HashMap<u32, u16>,
    transfers: Transfers,
    /// The errno with which all requests fail from now on; `None`: requests are possible.
    failed: Option<Errno>,
}

/// The state that callers and the control thread share.
struct Shared {
    path: String,
    hello: Hello,
    channel: Mutex<Channel>,
    books: Mutex<Books>,
    came: Condvar,
    /// Wakes the control thread.
    bell: Arc<OwnedFd>,
    closer: Closer,
}

/// A service as this process sees it.
pub struct MuxHost {
    shared: Arc<Shared>,
    welcome: Welcome,
    ends: Arc<OwnedFd>,
    /// The process that runs the control thread.
    process: Pid,
}

/// The connection to the service that the options name; a new one if there is none.
///
/// # Errors
/// One line: nothing listens there, the service refused us, or it does not answer.
pub fn host(options: &MuxOptions) -> Result<Arc<MuxHost>, OpenError> {
    let mut hosts = HOSTS.lock().unwrap_or_else(PoisonError::into_inner);
    hosts.retain(|(_, host)| host.strong_count() > 0);
    let path = options.socket();
    let known = hosts.iter().filter(|(of, _)| of == path);
    // A child of `fork` lacks the control threads; its parent's connections stay the parent's.
    let is_own = |host: &Arc<MuxHost>| host.process == getpid();
    if let Some(host) = known.filter_map(|(_, host)| host.upgrade()).find(is_own) {
        return Ok(host);
    }
    let host = Arc::new(MuxHost::connect(options)?);
    hosts.push((path.to_owned(), Arc::downgrade(&host)));
    Ok(host)
}

/// Makes this process and its children a family, which shares what its members claim. Returns the
/// socket that identifies the family. A child of `fork` or `exec` that has the socket belongs to it
/// too.
///
/// # Errors
/// The kernel's error.
pub fn found_family() -> Result<BorrowedFd<'static>, Errno> {
    if FAMILY.get().is_none() {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        join_family(socket);
    }
    family().ok_or(Errno::NOENT)
}

/// The socket of this process's family; `None`: it has none.
pub fn family() -> Option<BorrowedFd<'static>> {
    FAMILY.get().map(OwnedFd::as_fd)
}

/// Makes this process a member of the family with this socket, unless it has one already.
pub fn join_family(socket: OwnedFd) {
    // A family that was set earlier stays.
    let _ = FAMILY.set(socket);
}

/// Forgets all connections to services, in a child of `fork`: they stay the parent's.
pub fn after_fork() {
    HOSTS.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// The first message of a connection, with the family's socket if there is one.
fn greeting(hello: Hello) -> (Message, Option<BorrowedFd<'static>>) {
    match FAMILY.get() {
        Some(family) => (Message::Join(hello), Some(family.as_fd())),
        None => (Message::Hello(hello), None),
    }
}

impl MuxHost {
    fn connect(options: &MuxOptions) -> Result<Self, OpenError> {
        let path = options.socket();
        let wire = format!("mux:{path}");
        let failed = |step: &'static str| {
            let wire = wire.clone();
            move |errno| OpenError::io(wire, step, errno)
        };
        let closer = Closer::default();
        let channel =
            Channel::connect(path, &closer).map_err(failed("connect (is `mill mux` running?)"))?;
        let name = std::env::args().next().unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or_default();
        let hello = Hello {
            name: Text::new(name),
            contexts: options.contexts.max(1) as u16,
        };
        let (message, family) = greeting(hello);
        channel
            .send_first(&message, family)
            .map_err(failed("hello"))?;
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            hello,
            channel: Mutex::new(channel),
            books: Mutex::default(),
            came: Condvar::new(),
            bell: new_bell().map_err(failed("eventfd"))?,
            closer,
        });
        let welcome = shared.first_words().map_err(failed("welcome"))?;
        let ends = new_bell().map_err(failed("eventfd"))?;
        control::start(Arc::clone(&shared), Arc::clone(&ends), welcome.application).map_err(
            |error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                OpenError::io(&wire, "thread millstream-mux", errno)
            },
        )?;
        Ok(Self {
            shared,
            welcome,
            ends,
            process: getpid(),
        })
    }

    /// The NIC as described by the service's greeting.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The present addresses and routes.
    pub fn view(&self) -> HostView {
        self.shared.books().view.clone()
    }

    /// Claims `local` for this context. If this process has the address already, the context gets
    /// no SYNs until it [listens](Self::listens).
    ///
    /// # Errors
    /// The errors of [`claim`](Self::claim).
    pub fn reserve(&self, context: usize, local: SocketAddr) -> Result<(), Errno> {
        let is_reserved = self.shared.books().claims.reserve(context as u16, local);
        match is_reserved {
            true => Ok(()),
            false => self.claim(context, local),
        }
    }

    /// Notes that this context's stack listens at `local`, which it has reserved. The context gets
    /// its share of the SYNs from now on.
    ///
    /// # Errors
    /// The errors of [`claim`](Self::claim).
    pub fn listens(&self, context: usize, local: SocketAddr) -> Result<(), Errno> {
        let context = context as u16;
        if self.shared.books().claims.is_member(context, local) {
            return Ok(());
        }
        let message = |request| Message::Claim(claim(request, context, local));
        match self.shared.ask(message)? {
            Reply::Granted => {
                self.shared.release(|claims| claims.joined(context, local));
                Ok(())
            }
            Reply::Refused(errno) => Err(errno),
            _ => Err(Errno::PROTO),
        }
    }

    /// Has frames for `local` delivered to this context until each claim is released. It takes one
    /// round trip to the service, unless the context has the address already.
    ///
    /// # Errors
    /// `ADDRINUSE` or `ACCES` from the service; `TIMEDOUT` if it does not answer.
    pub fn claim(&self, context: usize, local: SocketAddr) -> Result<(), Errno> {
        let context = context as u16;
        if self.shared.books().claims.hold(context, local) {
            return Ok(());
        }
        let message = |request| Message::Claim(claim(request, context, local));
        match self.shared.ask(message)? {
            Reply::Granted => {
                let granted = |claims: &mut Claims| claims.granted(context, local);
                self.shared.release(granted);
                Ok(())
            }
            Reply::Refused(errno) => Err(errno),
            _ => Err(Errno::PROTO),
        }
    }

    /// Holds `local` for this process and its children: SYNs wait until one of their contexts
    /// claims it. It takes one round trip to the service.
    ///
    /// # Errors
    /// The errors of [`claim`](Self::claim).
    pub fn hold(&self, local: SocketAddr) -> Result<(), Errno> {
        if self.shared.books().claims.keep(local) {
            return Ok(());
        }
        let message = |request| Message::Claim(claim(request, HOLD, local));
        match self.shared.ask(message)? {
            Reply::Granted => {
                self.shared.books().claims.kept(local);
                Ok(())
            }
            Reply::Refused(errno) => Err(errno),
            _ => Err(Errno::PROTO),
        }
    }

    /// Holds `local` while `socket`, which is bound there in the kernel, reserves it. This process
    /// and its children may then listen there both in the kernel and in a stack.
    ///
    /// # Errors
    /// The errors of [`claim`](Self::claim); `INVAL` if the service does not find the socket bound
    /// there.
    pub fn hold_bound(&self, local: SocketAddr, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.shared.books().claims.keep(local) {
            return Ok(());
        }
        let copy = rustix::io::fcntl_dupfd_cloexec(socket, 0)?;
        let message = |request| Message::Bound(claim(request, HOLD, local));
        match self.shared.ask_with(message, Some(socket))? {
            Reply::Granted => {
                let mut books = self.shared.books();
                books.claims.kept(local);
                books.bound.insert(local, copy);
                Ok(())
            }
            Reply::Refused(errno) => Err(errno),
            _ => Err(Errno::PROTO),
        }
    }

    /// Notes that a socket that held `local` is gone. The address stays held while connections are
    /// left.
    pub fn let_go(&self, local: SocketAddr) {
        self.shared.release(|claims| claims.let_go(local));
    }

    /// Takes a claim of `local` back, because its socket could not be made.
    pub fn release(&self, context: usize, local: SocketAddr) {
        let context = context as u16;
        self.shared.release(|claims| {
            let mut releases = claims.leave(context, local);
            releases.extend(claims.end(context, local));
            releases
        });
    }

    /// Releases everything that the context has claimed.
    pub fn release_all(&self, context: usize) {
        let end = |claims: &mut Claims| claims.end_context(context as u16);
        self.shared.release(end);
    }

    /// Leases at most `ports` local ports for the context; returns the first and the last.
    ///
    /// # Errors
    /// The service's error; `TIMEDOUT` if it does not answer.
    pub fn lease(&self, context: usize, ports: u16) -> Result<(u16, u16), Errno> {
        let message = |request| {
            Message::Lease(Lease {
                request,
                context: context as u16,
                first: 0,
                ports,
            })
        };
        match self.shared.ask(message)? {
            Reply::Leased(lease) if lease.first > 0 && lease.ports > 0 => {
                self.shared.books().leases.push(lease);
                Ok((lease.first, lease.first.saturating_add(lease.ports - 1)))
            }
            Reply::Refused(errno) => Err(errno),
            _ => Err(Errno::PROTO),
        }
    }

    /// Asks the service for the virtual port of a context.
    ///
    /// # Errors
    /// One line: the service refused, or it does not answer.
    pub(super) fn open_context(
        &self,
        options: &MuxOptions,
        context: usize,
    ) -> Result<Opened, OpenError> {
        let wire = format!("mux:{} context {context}", self.shared.path);
        let failed = |step: &'static str| {
            let wire = wire.clone();
            move |errno| OpenError::io(wire, step, errno)
        };
        let welcome = &self.welcome;
        let (mac, mtu) = self.link();
        let number = context as u16;
        let entries = options.ledger_entries(welcome.ledger_entries_max);
        let (memory, socket) = self
            .ask_port(options, number, mtu, entries)
            .map_err(|(step, errno)| failed(step)(errno))?;
        let known = rustix::io::fcntl_dupfd_cloexec(&socket, 0).map_err(failed("dup"))?;
        // The ledger arrives before the socket, if at all.
        let ledger = self.shared.books().ledgers.remove(&number);
        let ledger = ledger
            .map(|(memory, bytes)| LedgerFile::map(memory.as_fd(), bytes))
            .transpose()
            .map_err(failed("ledger"))?;
        let bulk = match options.has_bulk {
            true => self.bulk_lane(number).map_err(failed("bulk lane"))?,
            false => None,
        };
        let capabilities = Capabilities {
            mac,
            mtu,
            rx_checksum: welcome.rx_checksum,
            tx_checksum_offload: false,
            segment_bytes_max: if bulk.is_some() { SEGMENT_BYTES_MAX } else { 0 },
            batch_max: 0,
            name: format!("mux:{}", welcome.interface.printable()),
            queue: context,
        };
        let (port, handover) = match memory {
            Some(memory) => {
                let port = memory.port(socket, capabilities, "");
                let port = port.map_err(|(step, errno)| failed(step)(errno))?;
                (Box::new(port) as Box<dyn Port + Send>, None)
            }
            None => channel_port(socket, mtu, options.ring_slots, &capabilities)?,
        };
        let (host_queues, mut link) =
            host_queues::pair(&self.shared.bell).map_err(failed("eventfd"))?;
        let mut books = self.shared.books();
        // The stack's settings do not contain the own hop, so it comes as a change.
        link.tell(crate::host::Change::OwnHop(books.view.own_hop));
        books.links.push(Link {
            context: number,
            link,
        });
        books.contexts.push(Known {
            context: number,
            socket: known,
            handover,
        });
        drop(books);
        Ok(Opened {
            port,
            bulk,
            host_queues,
            ledger,
        })
    }

    /// Asks for the socket of a virtual port: with this process's memory, or without any if ports
    /// are memif channels.
    fn ask_port(
        &self,
        options: &MuxOptions,
        context: u16,
        mtu: usize,
        ledger_entries: u32,
    ) -> Result<(Option<PassedMemory>, OwnedFd), (&'static str, Errno)> {
        let memory = match self.welcome.kind {
            PortKind::Memif => None,
            PortKind::Xdp => {
                let (sockets, slots) = (options.sockets, options.ring_slots);
                let memory = PassedMemory::new(mtu, sockets, slots, ledger_entries);
                Some(memory.map_err(|errno| ("memory", errno))?)
            }
        };
        let asked = self
            .shared
            .ask_port(context, memory.as_ref(), ledger_entries);
        let socket = asked.map_err(|errno| ("virtual port", errno))?;
        Ok((memory, socket))
    }

    /// Asks the service for the bulk lane of a context; `None`: it has none to give.
    ///
    /// # Errors
    /// `TIMEDOUT` if the service does not answer.
    fn bulk_lane(&self, context: u16) -> Result<Option<OwnedFd>, Errno> {
        let message = |request| Message::BulkAsk { request, context };
        match self.shared.ask(message)? {
            Reply::Bulk(tap) => Ok(Some(tap)),
            Reply::Refused(_) => Ok(None),
            _ => Err(Errno::PROTO),
        }
    }

    /// The present MAC address and MTU of the NIC.
    fn link(&self) -> (MacAddr, usize) {
        let books = self.shared.books();
        let mtu = books.view.mtu.unwrap_or(self.welcome.mtu);
        (books.view.mac.unwrap_or(self.welcome.mac), mtu as usize)
    }

    /// Forgets a context whose port was closed, so that a service that comes back is not told of
    /// it.
    pub(super) fn forget(&self, context: usize) {
        let mut books = self.shared.books();
        books
            .contexts
            .retain(|known| usize::from(known.context) != context);
    }
}

impl std::fmt::Debug for MuxHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MuxHost").field(&self.shared.path).finish()
    }
}

impl Drop for MuxHost {
    fn drop(&mut self) {
        // The process may end before the control thread wakes. Without its answer, a connection
        // taken here would be offered to another process too.
        if self.process == getpid() {
            self.shared.send_answers();
        }
        ring_bell(&self.ends);
    }
}

fn claim(request: u32, context: u16, local: SocketAddr) -> Claim {
    Claim {
        request,
        context,
        tuple: Tuple {
            protocol: PROTOCOL_TCP,
            address: local.ip(),
            port: local.port(),
        },
    }
}

impl Books {
    fn number(&mut self) -> u32 {
        self.next_request = self.next_request.wrapping_add(1).max(1);
        self.next_request
    }
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        channel.send(message, descriptor)
    }

    /// Changes the claims and tells the service which of them end. The lock is held meanwhile, so
    /// that no new claim of an address overtakes the message.
    fn release(&self, change: impl FnOnce(&mut Claims) -> Releases) {
        let mut books = self.books();
        for (context, local) in change(&mut books.claims) {
            if context == HOLD {
                books.bound.remove(&local);
            }
            let request = books.number();
            // A service that is gone has forgotten the claim anyway.
            let _ = self.send(&Message::Release(claim(request, context, local)), None);
        }
    }

    /// Sends a request and waits for its answer, also while the service is away.
    fn ask(&self, message: impl FnOnce(u32) -> Message) -> Result<Reply, Errno> {
        self.ask_with(message, None)
    }

    /// [`ask`](Self::ask) with a descriptor.
    fn ask_with(
        &self,
        message: impl FnOnce(u32) -> Message,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Reply, Errno> {
        let mut books = self.books();
        let request = books.number();
        books.waiting.insert(Key::Request(request), None);
        drop(books);
        // A request that finds the service away is lost, and the caller times out.
        let _ = self.send(&message(request), descriptor);
        self.answer(Key::Request(request))
    }

    /// Asks for the socket of a virtual port; without memory for that of a memif channel.
    fn ask_port(
        &self,
        context: u16,
        memory: Option<&PassedMemory>,
        ledger_entries: u32,
    ) -> Result<OwnedFd, Errno> {
        let key = Key::Port(context);
        self.books().waiting.insert(key, None);
        match memory {
            Some(memory) => {
                let (message, file) = memory.describe(context);
                self.send(&Message::Memory(message), Some(file))?;
            }
            None => {
                let ask = Message::PortAsk {
                    context,
                    ledger_entries,
                };
                self.send(&ask, None)?;
            }
        }
        match self.answer(key)? {
            Reply::Port(socket) => Ok(socket),
            Reply::Refused(errno) => Err(errno),
            _ => Err(Errno::PROTO),
        }
    }

    fn answer(&self, key: Key) -> Result<Reply, Errno> {
        let until = Instant::now() + MUX_ANSWER_WAIT;
        let mut books = self.books();
        loop {
            if let Some(Some(_)) = books.waiting.get(&key) {
                return books.waiting.remove(&key).flatten().ok_or(Errno::PROTO);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || books.failed.is_some() {
                books.waiting.remove(&key);
                return Err(books.failed.unwrap_or(Errno::TIMEDOUT));
            }
            let waited = self
                .came
                .wait_timeout(books, left.min(Duration::from_secs(1)));
            books = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Checks that a descriptor is the socket of such a virtual port.
fn is_socket(socket: BorrowedFd<'_>, kind: PortKind) -> Result<(), &'static str> {
    const AF_XDP: u16 = 44;
    let family = sockopt::socket_domain(socket).map_err(|_| "not a socket")?;
    match kind {
        PortKind::Xdp if family.as_raw() == AF_XDP => Ok(()),
        PortKind::Memif if family == AddressFamily::UNIX => Ok(()),
        _ => Err("not the socket of a virtual port"),
    }
}

/// Makes the port over a memif channel, and the place for the channel of the next service.
fn channel_port(
    socket: OwnedFd,
    mtu: usize,
    ring_slots: Option<u32>,
    capabilities: &Capabilities,
) -> Result<(Box<dyn Port + Send>, Option<Handover>), OpenError> {
    let handover = Handover::default();
    handover.put(socket);
    let options = channel_options(mtu, ring_slots, CHANNEL_QUEUES_MAX);
    let port = memif::join_queues(&handover, &options, capabilities)?;
    Ok((Box::new(port), Some(handover)))
}

/// The options of a memif channel to the service for frames of `mtu` bytes. Both ends use them, so
/// frames fit the buffers of either. An application offers [`CHANNEL_QUEUES_MAX`] queues; the
/// service has one per thread that moves frames.
pub fn channel_options(mtu: usize, ring_slots: Option<u32>, queues: usize) -> MemifOptions {
    let bytes = (mtu + memif::FRAME_OVERHEAD_BYTES).next_power_of_two();
    let standard = MemifOptions::default();
    MemifOptions {
        path: "mux".to_owned(),
        ring_slots: ring_slots.map(|slots| slots as usize),
        buffer_bytes: bytes.clamp(standard.buffer_bytes, memif::limits::BUFFER_BYTES_MAX),
        queues,
        ..standard
    }
}

/// Checks that a descriptor is a TAP's, because writing to anything else could block.
fn is_tap(file: BorrowedFd<'_>) -> Result<(), &'static str> {
    match crate::netdev_unsafe::is_tap(file) {
        true => Ok(()),
        false => Err("not a TAP"),
    }
}

/// The key of a message that brings a context's socket.
fn context_of(port: &VirtualPort) -> Key {
    Key::Port(port.context)
}

/// Waits until a descriptor is readable; false: the time is over.
fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs() as _,
        tv_nsec: timeout.subsec_nanos() as _,
    });
    !matches!(poll(&mut fds, timeout.as_ref()), Ok(0))
}
