//! The process's sockets of Millstream, behind one lock that no thread holds while it sleeps.
//!
//! Owns the entries that marks refer to, and the context, which the first socket opens. A signal
//! that arrives while its thread holds the lock is delivered once the lock is free. If that cannot
//! be arranged, calls from the handler fail with `EDEADLK`.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use millstream::{Config, Heir, IpCidr, Runtime};
use packetio::Backend;
use packetio::mux::MuxHost;
use packetio::signals_unsafe::BlockedSignals;
use posix::{EpollEvent, Errno, Outcome, Reply, Request, Sockets, number};

use crate::config::Settings;
use crate::handover::{Inherited, Listener, SetOption};
use crate::held_unsafe::Held;
pub use crate::inside::is_inside;
use crate::limits::{END_NS, HEIR_AFTER_NS};
use crate::marks::{self, Mark};
use crate::memory_unsafe::NumbersHeld;
use crate::sleepers::Sleepers;
use crate::tags::Tag;
use crate::under_way::Passes;
use crate::waits::Waits;
use crate::{copies_unsafe, family, heir, heir_unsafe, holds, inside, log, memory_unsafe};
use crate::{patient, postponed_unsafe, real_unsafe, stderr_unsafe};

/// The object behind a descriptor, shared by all of its copies.
pub struct Entry {
    /// Number of descriptors of the entry.
    pub refs: u32,
    /// The kind of object, and its owner.
    pub what: Object,
    /// The listener, if the socket listens on a `mux` wire or is bound there.
    pub listener: Option<Listener>,
    /// This process holds the listener's address and port at the service.
    pub is_held: bool,
    /// This process has called `accept`.
    pub has_accepted: bool,
    /// Another process may have the socket, too.
    pub is_shared: bool,
    /// Epolls that watch the socket or the epoll.
    pub watches: Vec<Watch>,
    /// The epoll's last wait had no room for the kernel's events.
    pub owes_kernels: bool,
    /// Time at which a wait last asked the kernel's epoll, ns.
    pub kernel_asked_ns: u64,
}

/// A watch of an epoll on one descriptor of a socket. As in Linux, copies are watched separately.
#[derive(Clone, Copy)]
pub struct Watch {
    /// The entry of the epoll.
    pub epoll: usize,
    /// The descriptor that the program named.
    pub fd: i32,
    /// The number in `posix` that is watched for the descriptor: the socket's, or that of a copy.
    pub id: i32,
    /// The program's own of the watch.
    pub data: u64,
}

/// See [`Entry`].
pub enum Object {
    /// A TCP socket without an address or a peer, still the kernel's or Millstream's to be.
    Undecided(Undecided),
    /// A socket of Millstream's.
    Socket(Socket),
    /// The epoll in `posix` that watches Millstream's sockets, beside the kernel's epoll.
    Epoll(i32),
    /// An epoll that watches kernel descriptors only, and the epolls that watch it (epoll,
    /// descriptor).
    Watcher(Vec<(i32, i32, EpollEvent)>),
    /// An object of Millstream's in the process that forked this one.
    Parents,
    /// A listener of the process that forked this one, of which the kernel's part remains.
    Kernels {
        /// True if calls wait. The kernel's socket itself is non-blocking.
        waits: bool,
    },
}

impl Object {
    /// Millstream's socket, if it is one.
    pub fn socket(&self) -> Option<Socket> {
        match self {
            Object::Socket(socket) => Some(*socket),
            _ => None,
        }
    }

    /// The number in `posix` of an object that an epoll can watch.
    pub fn watched_id(&self) -> Option<i32> {
        match self {
            Object::Socket(socket) => Some(socket.id),
            Object::Epoll(id) => Some(*id),
            _ => None,
        }
    }
}

/// See [`Object::Undecided`].
#[derive(Default)]
pub struct Undecided {
    /// True for an IPv6 socket.
    pub is_v6: bool,
    /// True if the kernel's socket is bound to all addresses.
    pub is_bound: bool,
    /// Options that were set so far.
    pub options: Vec<SetOption>,
    /// The program has asked for signals when the socket is ready.
    pub asked_for_signals: bool,
    /// Epolls that watch it: epoll, descriptor, event.
    pub watched: Vec<(i32, i32, EpollEvent)>,
}

/// A socket of Millstream's.
#[derive(Clone, Copy)]
pub struct Socket {
    /// The socket's number in `posix`.
    pub id: i32,
    /// The kernel's socket behind the same descriptor listens, too.
    pub is_both: bool,
    /// The kernel's socket behind the descriptor was made for this one, and is not a copy of one
    /// that only keeps numbers.
    pub has_own: bool,
}

/// The open wire.
pub struct Net {
    held: Held,
    /// The wire's addresses.
    pub addresses: Vec<IpAddr>,
    /// Prefixes that the wire's routes lead to.
    pub reach: Vec<IpCidr>,
    /// A TCP socket of the kernel's whose copies keep the descriptor numbers of accepted
    /// connections.
    pub template: OwnedFd,
    /// The service of a `mux` wire.
    pub host: Option<Arc<MuxHost>>,
}

impl Net {
    /// The sockets.
    pub fn sockets(&mut self) -> &mut Sockets {
        self.held.sockets()
    }

    /// Makes a call that does not wait.
    pub fn call(&mut self, request: Request) -> Result<(i64, Reply), Errno> {
        match self.sockets().call(request) {
            (Outcome::Done(Ok(value)), reply) => Ok((value, reply)),
            (Outcome::Done(Err(errno)), _) => Err(errno),
            (Outcome::Pending, _) => Err(Errno::AGAIN),
        }
    }
}

enum Wire {
    Closed,
    Open(Box<Net>),
    Failed,
    /// The process is ending.
    Ended,
}

/// A place of an entry in the table.
struct Slot {
    /// Number of entries that the place has had before, modulo 2^[`GENERATION_BITS`].
    generation: usize,
    entry: Option<Entry>,
}

/// Bits of a key that are the place in the table. There are fewer entries: one for each descriptor,
/// and one for each call that waits on a closed one.
const PLACE_BITS: u32 = 17;
/// Bits of a key that are the place's generation. A call whose descriptor another thread closes
/// does not find the entry that comes to the same place.
const GENERATION_BITS: u32 = 12;

/// The place of a key, and its generation.
fn unpack(key: usize) -> (usize, usize) {
    (key & ((1 << PLACE_BITS) - 1), key >> PLACE_BITS)
}

/// See the module's documentation.
pub struct Engine {
    entries: Vec<Slot>,
    wire: Wire,
    /// Threads that sleep.
    pub sleepers: Sleepers,
    /// Calls that wait, and the entries that they keep.
    pub waits: Waits,
    /// Connections on their way over a UNIX socket.
    pub passes: Passes,
    /// Threads that sleep on epolls of the kernel's: the epoll's entry and the thread's bell.
    pub watchers: Vec<(usize, i32)>,
    /// True if this process was forked by a process of the same program.
    is_child: bool,
    /// libc's streams on sockets: address and descriptor.
    pub streams: Vec<(usize, i32)>,
    /// The entries of listeners that a child will share, during `fork`; true: calls wait.
    pub shared: Vec<(usize, bool)>,
    /// The entries of listeners that this process has opened on a wire that it shares with other
    /// processes.
    pub opened: Vec<usize>,
    /// The service, if this process holds places of listeners that it has never used.
    holder: Option<Arc<MuxHost>>,
}

static ENGINE: Mutex<Engine> = Mutex::new(Engine {
    entries: Vec::new(),
    wire: Wire::Closed,
    sleepers: Sleepers::none(),
    waits: Waits::none(),
    passes: Passes::none(),
    watchers: Vec::new(),
    is_child: false,
    streams: Vec::new(),
    shared: Vec::new(),
    opened: Vec::new(),
    holder: None,
});

static SETTINGS: OnceLock<Settings> = OnceLock::new();

type Locks = (MutexGuard<'static, Engine>, NumbersHeld);

thread_local! {
    /// True in the thread that ends the process.
    static ENDS: Cell<bool> = const { Cell::new(false) };
    /// The locks that this thread holds from before `fork` until after it.
    static FORKING: RefCell<Option<Locks>> = const { RefCell::new(None) };
}

/// The settings. `None`: `mill run` did not start this program, and the kernel answers all calls.
#[inline]
pub fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Adds listeners from the program before `exec` or from a UNIX socket. The first use opens them.
pub fn inherit(all: Vec<Inherited>) {
    // Fails only in a signal handler inside the library; the listeners are lost then.
    let _ = locked(|engine| {
        let mut keys: Vec<(usize, usize)> = Vec::new();
        for (fd, number, listener) in all {
            let known = keys.iter().find(|(known, _)| *known == number).copied();
            let key = match known {
                Some((_, key)) => {
                    engine.entry(key)?.refs += 1;
                    key
                }
                None => {
                    let key = engine.put(Object::Parents);
                    let entry = engine.entry(key)?;
                    (entry.listener, entry.is_shared) = (Some(listener), true);
                    keys.push((number, key));
                    key
                }
            };
            marks::set(fd, Mark::Socket(key));
        }
        Ok(())
    });
}

/// Adds a socket that the kernel has from another process: a connection there, or a listener.
pub fn add_strange(fd: i32, tag: Tag) {
    // Fails only in a signal handler inside the library; the socket is the kernel's then.
    let _ = locked(|engine| {
        let mark = match tag {
            Tag::Connection | Tag::Listener => Mark::Socket(engine.put(Object::Parents)),
            Tag::Waits => Mark::Listener(engine.put(Object::Kernels { waits: true })),
        };
        marks::set(fd, mark);
        Ok(())
    });
}

/// Turns the library on.
pub fn turn_on(settings: Settings) {
    // The constructor runs once.
    let _ = SETTINGS.set(settings);
}

/// Makes a call with the lock held, then wakes all sleeping threads: the call may have changed what
/// they wait for.
pub fn with<T>(call: impl FnOnce(&mut Engine) -> Result<T, Errno>) -> Result<T, Errno> {
    locked(|engine| {
        let outcome = call(engine);
        engine.sleepers.wake_all();
        outcome
    })
}

/// Like [`with`], for calls that move bytes or connections, or check whether they could. Wakes only
/// threads for which there is news.
pub fn moving<T>(call: impl FnOnce(&mut Engine) -> Result<T, Errno>) -> Result<T, Errno> {
    locked(|engine| engine.moving(call))
}

/// Like [`with`], for calls that never turn the stack. Wakes no thread.
pub fn locked<T>(call: impl FnOnce(&mut Engine) -> Result<T, Errno>) -> Result<T, Errno> {
    if is_inside() {
        log::once("a call from a signal's handler came in the middle of another one: EDEADLK");
        return Err(Errno::DEADLK);
    }
    if copies_unsafe::is_copy() {
        copies_unsafe::say_copy();
        return Err(Errno::BADF);
    }
    inside::set(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut engine = patient::lock(&ENGINE);
        match engine.wire {
            Wire::Ended => Ok(None),
            _ => call(&mut engine).map(Some),
        }
    }));
    memory_unsafe::ring_due();
    inside::set(false);
    postponed_unsafe::lock_is_free();
    let outcome = outcome.map(|outcome| match outcome {
        Ok(None) => {
            await_end();
            Err(Errno::NETDOWN)
        }
        Ok(Some(value)) => Ok(value),
        Err(errno) => Err(errno),
    });
    outcome.unwrap_or_else(|_| {
        log::once("a call failed within Millstream: EIO");
        Err(Errno::IO)
    })
}

impl Engine {
    /// Adds an entry for one descriptor; returns its key.
    pub fn put(&mut self, what: Object) -> usize {
        let entry = Some(Entry {
            refs: 1,
            what,
            listener: None,
            is_held: false,
            has_accepted: false,
            is_shared: false,
            watches: Vec::new(),
            owes_kernels: false,
            kernel_asked_ns: 0,
        });
        match self.entries.iter().position(|slot| slot.entry.is_none()) {
            Some(place) => {
                self.entries[place].entry = entry;
                self.entries[place].generation << PLACE_BITS | place
            }
            None => {
                let generation = 0;
                self.entries.push(Slot { generation, entry });
                self.entries.len() - 1
            }
        }
    }

    /// An upper bound of all places.
    pub fn entries_count(&self) -> usize {
        self.entries.len()
    }

    /// The key of the entry at a place.
    pub fn key_at(&self, place: usize) -> Option<usize> {
        let slot = self.entries.get(place)?;
        slot.entry.as_ref()?;
        Some(slot.generation << PLACE_BITS | place)
    }

    /// An entry.
    pub fn entry(&mut self, key: usize) -> Result<&mut Entry, Errno> {
        let (place, generation) = unpack(key);
        match self.entries.get_mut(place) {
            Some(slot) if slot.generation == generation => slot.entry.as_mut().ok_or(Errno::BADF),
            _ => Err(Errno::BADF),
        }
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: usize) -> Option<Entry> {
        self.entry(key).ok()?;
        let slot = self.entries.get_mut(unpack(key).0)?;
        slot.generation = (slot.generation + 1) & ((1 << GENERATION_BITS) - 1);
        slot.entry.take()
    }

    /// All entries.
    fn all(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries
            .iter_mut()
            .filter_map(|slot| slot.entry.as_mut())
    }

    /// The epoll watches a listener of both sides or another epoll with this data, so both sides
    /// tell of it.
    pub fn is_told_twice(&self, epoll: usize, data: u64) -> bool {
        let entries = self.entries.iter().filter_map(|slot| slot.entry.as_ref());
        let of_both = entries.filter(|entry| match entry.what {
            Object::Socket(socket) => socket.is_both,
            Object::Epoll(_) => true,
            _ => false,
        });
        let mut watches = of_both.flat_map(|entry| &entry.watches);
        watches.any(|watch| (watch.epoll, watch.data) == (epoll, data))
    }

    /// Removes the watches of an entry's socket for which `is_over` is true.
    pub fn take_watches(&mut self, key: usize, is_over: impl Fn(&Watch) -> bool) -> Vec<Watch> {
        let Ok(entry) = self.entry(key) else {
            return Vec::new();
        };
        let (over, left) = std::mem::take(&mut entry.watches)
            .into_iter()
            .partition(is_over);
        entry.watches = left;
        over
    }

    /// The socket of an entry.
    pub fn socket(&mut self, key: usize) -> Result<Socket, Errno> {
        match &self.entry(key)?.what {
            Object::Socket(socket) => Ok(*socket),
            Object::Parents => {
                log::once(&format!(
                    "a connection or listener of another process's stack: EBADF{}",
                    settings().map_or("", Settings::remedy)
                ));
                Err(Errno::BADF)
            }
            _ => Err(Errno::BADF),
        }
    }

    /// The sockets, and the socket of an entry.
    pub fn socket_of(&mut self, key: usize) -> Result<(&mut Net, Socket), Errno> {
        let socket = self.socket(key)?;
        Ok((self.open()?, socket))
    }

    /// The wire, opened at the first call.
    pub fn net(&mut self) -> Result<&mut Net, Errno> {
        if let Wire::Closed = self.wire {
            self.wire = match settings().map(|it| memory_unsafe::uncancelled(|| open(it))) {
                Some(Ok(net)) => Wire::Open(Box::new(net)),
                Some(Err(cause)) => {
                    log::once(&format!("{cause}: sockets on the wire fail with ENETDOWN"));
                    Wire::Failed
                }
                None => Wire::Failed,
            };
        }
        self.open()
    }

    /// The wire, if it is open.
    pub fn open(&mut self) -> Result<&mut Net, Errno> {
        match &mut self.wire {
            Wire::Open(net) => Ok(net),
            _ => Err(Errno::NETDOWN),
        }
    }

    /// All listeners on a `mux` wire.
    pub fn listeners(&self) -> impl Iterator<Item = &Listener> {
        let entries = self.entries.iter().filter_map(|slot| slot.entry.as_ref());
        entries.filter_map(|entry| entry.listener.as_ref())
    }

    /// True if there are inherited listeners and the wire was never opened.
    pub fn has_unused_listeners(&self) -> bool {
        let is_listening = |listener: &Listener| listener.backlog.is_some();
        matches!(self.wire, Wire::Closed) && self.listeners().any(is_listening)
    }

    /// Listeners with their descriptors, for the next program of `exec`.
    pub fn inheritable(&mut self) -> Vec<Inherited> {
        self.describe_listeners();
        let sockets = marks::marked(0, u32::MAX);
        let sockets = sockets.filter_map(|(fd, mark)| match mark {
            Mark::Socket(key) => Some((fd, key)),
            _ => None,
        });
        let mut listener = |(fd, key): (i32, usize)| {
            let entry = self.entry(key).ok()?;
            Some((fd, key, entry.listener.clone()?))
        };
        sockets.filter_map(&mut listener).collect()
    }

    /// The specification with which another program can open the listener of an entry.
    pub fn specification(&mut self, key: usize) -> Option<Listener> {
        self.describe_listeners();
        self.entry(key).ok()?.listener.clone()
    }

    /// Tells the service that a listener of this process is gone.
    pub fn let_go(&mut self, local: SocketAddr) {
        let own = match &self.wire {
            Wire::Open(net) => net.host.as_ref(),
            _ => None,
        };
        if let Some(host) = own.or(self.holder.as_ref()) {
            host.let_go(local);
        }
    }

    /// Updates the specifications of this process's listeners for its children.
    fn describe_listeners(&mut self) {
        let Wire::Open(net) = &mut self.wire else {
            return;
        };
        for entry in self
            .entries
            .iter_mut()
            .filter_map(|slot| slot.entry.as_mut())
        {
            let (Some(listener), Object::Socket(socket)) = (&mut entry.listener, &entry.what)
            else {
                continue;
            };
            let flags = net.call(Request::Fcntl {
                fd: socket.id,
                command: number::F_GETFL,
                argument: 0,
            });
            let is_nonblocking = |flags: i64| flags as i32 & number::O_NONBLOCK != 0;
            listener.is_nonblocking = flags.is_ok_and(|(flags, _)| is_nonblocking(flags));
        }
    }

    /// Holds the places of inherited listeners that this process has never used, before it forks.
    /// As a master process it may outlive the process that bound them, while no worker listens yet.
    fn hold_inherited(&mut self) {
        let Some(Backend::Mux(options)) = settings().map(|settings| &settings.wire.backend) else {
            return;
        };
        let entries = self.entries.iter_mut().enumerate();
        let mut unheld: Vec<(usize, &Listener, &mut bool)> = entries
            .filter_map(|(place, slot)| {
                let key = slot.generation << PLACE_BITS | place;
                Some((key, slot.entry.as_mut()?))
            })
            .filter(|(_, entry)| matches!(entry.what, Object::Parents) && !entry.is_held)
            .filter_map(|(key, entry)| Some((key, entry.listener.as_ref()?, &mut entry.is_held)))
            .collect();
        if unheld.is_empty() {
            return;
        }
        let host = memory_unsafe::with_high_numbers(|| {
            let _blocked = BlockedSignals::new();
            packetio::mux::host(options)
        });
        let host = match host {
            Ok(host) => host,
            Err(error) => return log::once(&format!("{error}: nobody holds its listeners")),
        };
        for (key, listener, is_held) in &mut unheld {
            **is_held = holds::hold(&host, *key, listener).is_ok();
        }
        self.holder = Some(host);
    }

    /// See [`moving`].
    pub fn moving<T>(
        &mut self,
        call: impl FnOnce(&mut Engine) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if let Wire::Open(net) = &mut self.wire {
            self.sleepers.visit(net.sockets());
        }
        let outcome = call(self);
        self.before_unlock();
        outcome
    }

    /// See [`Sleepers::before_unlock`].
    fn before_unlock(&mut self) {
        match &mut self.wire {
            Wire::Open(net) => self.sleepers.before_unlock(net.sockets()),
            _ => self.sleepers.wake_all(),
        }
    }

    /// The wire's sockets, and the threads that sleep.
    pub fn sockets_and_sleepers(&mut self) -> Result<(&mut Sockets, &mut Sleepers), Errno> {
        match &mut self.wire {
            Wire::Open(net) => Ok((net.sockets(), &mut self.sleepers)),
            _ => Err(Errno::NETDOWN),
        }
    }
}

fn config_of(settings: &Settings) -> Config {
    let mut config = Config::new(settings.wire.clone());
    config.addresses.clone_from(&settings.addresses);
    config.gateways.clone_from(&settings.gateways);
    config.loopback = settings.rules.has_loopback();
    config.hugetlb = settings.hugetlb;
    config.linger_ns = END_NS;
    config.heir = Some(Heir {
        after_ns: HEIR_AFTER_NS,
        take_over,
    });
    config.story_one_in = settings.story_one_in;
    config
}

fn open(settings: &Settings) -> Result<Net, String> {
    let config = config_of(settings);
    heir::await_predecessor(settings);
    let mut reach = settings.addresses.clone();
    let (context, template) = memory_unsafe::with_high_numbers(|| {
        if let Backend::Mux(_) = &settings.wire.backend {
            // Without the socket that the processes of the family share, children cannot listen.
            let _ = packetio::mux::found_family();
            family::note();
        }
        let context = settings.packet_rule_set().and_then(|rules| {
            let config = Config { rules, ..config };
            let context = Runtime::new(config).and_then(|runtime| runtime.context(0));
            context.map_err(|error| error.to_string())
        });
        (context, memory_unsafe::tcp_socket())
    });
    let context = context?;
    let template = template.map_err(|errno| format!("socket: {errno}"))?;
    let mut service = None;
    if let Backend::Mux(options) = &settings.wire.backend {
        let host = packetio::mux::host(options).map_err(|error| error.to_string())?;
        let view = host.view();
        let subnets = view.addresses.iter().map(|&(ip, bits)| (ip, bits));
        let routes = view.routes.iter();
        let routes = routes.map(|route| (route.destination, route.prefix));
        let prefixes = subnets.chain(routes);
        reach.extend(prefixes.filter_map(|(ip, bits)| IpCidr::new(ip, bits).ok()));
        service = Some(host);
    }
    for gateway in &settings.gateways {
        let any: IpAddr = match gateway {
            IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        reach.extend(IpCidr::new(any, 0));
    }
    let hosts = reach
        .iter()
        .filter(|prefix| !prefix.address().is_unspecified());
    Ok(Net {
        addresses: hosts.map(IpCidr::address).collect(),
        held: Held::new(Sockets::new(context)),
        reach,
        template,
        host: service,
    })
}

/// Leaves the stack to a child, as an [`Heir`] requires.
fn take_over() -> bool {
    let place = settings().and_then(heir::place);
    place.is_some_and(heir_unsafe::take_over)
}

/// Ends the process's use of the library: writes the report, and lets connections close in order,
/// here or in an heir. An heir does not return.
pub fn finish() {
    let _ = ENDS.try_with(|ends| ends.set(true));
    // A program that ends within a signal handler ends at once.
    let _ = locked(|engine| {
        if let (Some(settings), Wire::Open(net)) = (settings(), &mut engine.wire)
            && let Some(path) = settings.report_of(engine.is_child)
            && let Ok(report) = net.sockets().context().report()
        {
            // A failed report must not keep the program from ending.
            let write = || std::fs::write(path, format!("{report:?}\n"));
            let _ = memory_unsafe::uncancelled(write);
        }
        // A device lives as long as copies of its descriptors.
        *engine.sleepers.spare() = None;
        engine.wire = Wire::Ended;
        Ok(())
    });
    if heir_unsafe::is_heir() {
        real_unsafe::exit_now(0);
    }
}

/// Stops a thread whose call came after the process began to end. Its error would only say that the
/// wire is gone, which it is because the program ends. The thread that ends the process goes on.
fn await_end() {
    while !ENDS.try_with(Cell::get).unwrap_or(true) {
        std::thread::park();
    }
}

/// Prepares `fork`: waits until no other thread is inside a call. `note` sees the state that the
/// child inherits. The thread is inside until the end of `fork`, so signals are postponed.
pub fn before_fork(note: impl FnOnce(&mut Engine)) {
    if is_inside() {
        return;
    }
    inside::set(true);
    let mut engine = patient::lock(&ENGINE);
    engine.hold_inherited();
    engine.describe_listeners();
    note(&mut engine);
    let _ =
        FORKING.try_with(|forking| forking.replace(Some((engine, memory_unsafe::hold_numbers()))));
}

/// Ends `fork` in the parent.
pub fn after_fork_in_parent() {
    let held = FORKING.try_with(|forking| forking.replace(None));
    if let Ok(Some(held)) = held {
        end_fork(held);
    }
}

/// Gives up the locks that were held during `fork`, and lets postponed signals come.
fn end_fork(held: Locks) {
    drop(held);
    inside::set(false);
    postponed_unsafe::lock_is_free();
}

/// Ends `fork` in the child. Objects of Millstream's stay the parent's, except listeners: the child
/// opens them anew, or `inherit` leaves them to the kernel.
pub fn after_fork_in_child(inherit: impl FnOnce(&mut Engine)) {
    let held = FORKING.try_with(|forking| forking.replace(None));
    let Ok(Some((mut engine, numbers))) = held else {
        return;
    };
    let wire = std::mem::replace(&mut engine.wire, Wire::Closed);
    // The parent goes on with this memory and these descriptors. Dropping them here would close the
    // parent's connections.
    std::mem::forget((wire, engine.holder.take()));
    // The service detects the parent's end by its descriptors, so a child must not keep copies.
    packetio::mux::after_fork();
    let family = packetio::mux::family().map(|family| family.as_raw_fd());
    memory_unsafe::close_own([family, stderr_unsafe::copy()]);
    // The descriptors of the parent's sleepers are closed by now, so dropping them would close
    // others.
    std::mem::forget(std::mem::take(&mut engine.sleepers));
    engine.watchers.clear();
    engine.opened.clear();
    // The calls of the parent's other threads do not go on here.
    engine.waits = Waits::none();
    engine.passes = Passes::none();
    engine.is_child = true;
    inherit(&mut engine);
    for slot in &mut engine.entries {
        slot.entry.take_if(|entry| entry.refs == 0);
    }
    for entry in engine.all() {
        if let Some(listener) = &mut entry.listener {
            listener.is_open = false;
        }
        entry.is_held = false;
        entry.has_accepted = false;
        entry.watches.clear();
        if let Object::Socket(_) | Object::Epoll(_) = entry.what {
            entry.what = Object::Parents;
        }
    }
    end_fork((engine, numbers));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_of_a_program_that_forks_leaves_reserved_pages_to_others() {
        let settings = Settings::parse("wire=loopback\naddr=10.9.8.7/24", &[]).expect("settings");
        let rule = millstream::HugePages::Transparent;
        assert_eq!(config_of(&settings).hugetlb, rule);
    }
}
