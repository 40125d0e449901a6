//! The service: one thread that answers applications, follows the kernel and buries the dead.
//!
//! Owns the socket, its connections, the applications and all tables. Frames never pass here.
//!
//! | module | what it is |
//! |---|---|
//! | `clients` | connections: who may connect, what each has said so far |
//! | `closers` | descriptors that clients sent and that are slow to close |
//! | `requests` | what an application asks for |
//! | `work` | requests that take long, one in a turn |
//! | `shares` | how much of each thing one user may have |
//! | `seeks` | searches for a process that accepts connections which wait |
//! | `moves` | connections that another process accepts |
//! | `hosts` | changes of addresses, routes, neighbours and link |
//! | `lives` | applications: birth, death, recovery after a restart |
//! | `dead_ledgers` | connections of the dead, whose peers are yet to be reset |
//! | `dying` | virtual ports of the dead, removed a few in each turn |
//! | `silent_hops` | next hops that do not answer |
//! | `leaving` | addresses that the interface has lost a moment ago |
//! | `report` | answers for people, as JSON |
//!
//! ```text
//! epoll ─┬─ socket ────▶ a connection more
//!        ├─ connection ▶ at most a few messages each, then the next connection
//!        ├─ rtnetlink ─▶ changes, first to the data plane, then to the applications
//!        └─ stop
//! ```

mod clients;
mod closers;
mod dead_ledgers;
mod dying;
mod hosts;
mod leaving;
mod listening;
mod lives;
mod moves;
mod report;
mod requests;
mod seeks;
mod shares;
mod silent_hops;
mod work;

use std::collections::BTreeMap;
use std::fs;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use packetio::mirror::{Leaving, Mirror};
use packetio::mux::message::{Change, Message};
use rustix::event::{Timespec, epoll};
use rustix::io::{self, Errno};

use self::clients::{Client, ClientId};
use self::closers::Closers;
use self::dying::Dying;
use self::listening::listen;
use self::lives::Application;
use self::moves::Moving;
use self::seeks::Seeking;
use self::silent_hops::SilentHops;
use self::work::Work;
use crate::abandon_unsafe::Abandoner;
use crate::limits::{DESCRIPTORS, RECOVERY_NS, SLOTS_MAX, TICK_NS};
use crate::ownership::Ownership;
use crate::plane::Plane;
use crate::policy::{Policy, Rule};
use crate::reserved_ports::ReservedPorts;
use crate::reset::Resets;
use crate::state::NotesFile;

const LISTENER: u64 = 0;
const MIRROR: u64 = 1;
const STOP: u64 = 2;
/// The first epoll token of a client.
const CLIENTS: u64 = 16;
/// A bit in the epoll tokens of clients' processes.
const PROCESSES: u64 = 1 << 63;

/// The options of a service.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// The NIC.
    pub interface: String,
    /// Path of the socket, or `@` and an abstract name.
    pub socket: String,
    /// Directory for files that outlive the service.
    pub run_dir: PathBuf,
    /// Rules in addition to the default policy.
    pub rules: Vec<Rule>,
    /// Local ports for leases.
    pub leases: RangeInclusive<u16>,
    /// Largest number of virtual ports, one per context.
    pub ports: u16,
    /// Bytes of memory files that the applications of one user that is not root may have.
    pub memory_per_user: u64,
}

/// The reason why a service could not start or continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {cause}")]
pub struct ServiceError {
    what: String,
    cause: String,
}

impl ServiceError {
    fn new(what: impl Into<String>, cause: impl ToString) -> Self {
        Self {
            what: what.into(),
            cause: cause.to_string(),
        }
    }
}

/// The way in which a service ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A signal: the data plane stays for the next service.
    Leave,
    /// `mill mux stop`: nothing stays.
    Remove,
}

/// A next-hop request that waits for the kernel's answer.
#[derive(Debug)]
struct Resolving {
    client: ClientId,
    request: u32,
    address: IpAddr,
    deadline: Instant,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Service<P> {
    options: ServiceOptions,
    plane: P,
    mirror: Mirror,
    policy: Policy,
    ownership: Ownership,
    epoll: OwnedFd,
    listener: OwnedFd,
    closers: Closers,
    abandoner: Abandoner,
    clients: BTreeMap<ClientId, Client>,
    next_client: ClientId,
    /// When to accept connections again; `None`: now.
    accept_again: Option<Instant>,
    work: Work,
    applications: BTreeMap<u16, Application>,
    dying: Dying,
    silent_hops: SilentHops,
    leaving: Leaving,
    resolving: Vec<Resolving>,
    moves: BTreeMap<u32, Moving>,
    seeks: BTreeMap<u32, Seeking>,
    /// Number of the last offer or question to a process.
    next_move: u32,
    resets: Resets,
    notes: NotesFile,
    /// The notes are out of date.
    are_notes_old: bool,
    reserved_ports: Option<ReservedPorts>,
    /// Inode of the network namespace; 0 where `/proc` does not tell.
    network: u64,
    /// Time of the next attempt to attach to an interface that came back.
    retry_nic: Option<Instant>,
    /// When next hops of the service before this one end that nobody has asked for again.
    old_hops_until: Option<Instant>,
    /// Prints a log line.
    say: fn(&str),
    end: Option<End>,
}

impl<P: Plane> Service<P> {
    /// A listening service, on a data plane that was opened or taken over for the same interface.
    /// `say` prints log lines.
    ///
    /// # Errors
    /// One line: another service has the socket, no such interface, or no permission.
    pub fn new(options: ServiceOptions, plane: P, say: fn(&str)) -> Result<Self, ServiceError> {
        raise_descriptors();
        // Early, while low numbers of descriptors are free.
        let abandoner = Abandoner::new().map_err(|errno| ServiceError::new("eventfd", errno))?;
        let interface = options.interface.clone();
        let failed = |what: &str| {
            let what = what.to_owned();
            move |errno: Errno| ServiceError::new(what, errno)
        };
        let mirror = Mirror::open(&interface).map_err(failed(&interface))?;
        let listener = listen(&options.socket)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll"))?;
        let resets = Resets::new(plane.rate()).map_err(failed("raw socket"))?;
        let notes_file = NotesFile::new(&options.run_dir);
        let notes = notes_file.read();
        let left: Vec<RangeInclusive<u16>> = notes.reserved().collect();
        let network = network_namespace();
        let settings = notes_file.lock_settings();
        let others = notes_file.reserved_by_others(network);
        let reserved_ports = match ReservedPorts::add(&options.leases, &left, &others) {
            Ok(reserved) => Some(reserved),
            Err(cause) => {
                say(&format!(
                    "{cause}; the kernel may choose ports of the leases"
                ));
                None
            }
        };
        let mut service = Self {
            policy: Policy::new(options.rules.clone()),
            ownership: Ownership::new(options.leases.clone()),
            notes: notes_file,
            are_notes_old: false,
            plane,
            mirror,
            epoll,
            listener,
            closers: Closers::default(),
            abandoner,
            clients: BTreeMap::new(),
            next_client: ClientId::default(),
            accept_again: None,
            work: Work::default(),
            applications: BTreeMap::new(),
            dying: Dying::default(),
            silent_hops: SilentHops::default(),
            leaving: Leaving::default(),
            resolving: Vec::new(),
            moves: BTreeMap::new(),
            seeks: BTreeMap::new(),
            next_move: 0,
            resets,
            reserved_ports,
            network,
            retry_nic: None,
            old_hops_until: Some(after_ns(RECOVERY_NS)),
            say,
            end: None,
            options,
        };
        service.options.ports = service.options.ports.min(SLOTS_MAX);
        service.watch(LISTENER, |service| service.listener.as_fd())?;
        service.watch(MIRROR, |service| service.mirror.fd())?;
        service.learn_host();
        service.recover(notes);
        service.write_notes();
        drop(settings);
        Ok(service)
    }

    /// Runs until `stop` is readable, or until `mill mux stop` asks for the end.
    ///
    /// # Errors
    /// One line: `epoll` failed.
    pub fn run(mut self, stop: BorrowedFd<'_>) -> Result<(), ServiceError> {
        let data = epoll::EventData::new_u64(STOP);
        epoll::add(&self.epoll, stop, data, epoll::EventFlags::IN)
            .map_err(|errno| ServiceError::new("epoll", errno))?;
        loop {
            self.turn()
                .map_err(|errno| ServiceError::new("epoll", errno))?;
            if let Some(end) = self.end {
                self.finish(end);
                return Ok(());
            }
        }
    }

    /// Waits for events and acts on them once.
    fn turn(&mut self) -> io::Result<()> {
        let mut room = [MaybeUninit::<epoll::Event>::uninit(); 64];
        let timeout = self.timeout();
        let events = match epoll::wait(&self.epoll, &mut room[..], timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        for event in events.iter() {
            let token = event.data;
            match token.u64() {
                LISTENER => self.accept(),
                MIRROR => self.follow_host(),
                STOP => self.end = Some(End::Leave),
                process if process & PROCESSES != 0 => {
                    self.process_ended(ClientId(process & !PROCESSES));
                }
                client => self.hear(ClientId(client - CLIENTS)),
            }
        }
        self.tick(Instant::now());
        Ok(())
    }

    /// Does the work that is due, and the work that the events of this turn have left.
    fn tick(&mut self, now: Instant) {
        self.work_on();
        self.remove_dead_ports();
        self.lose_addresses(now);
        self.forget_silent_hops(now);
        self.end_of_rest(now);
        self.drop_silent_clients(now);
        self.give_up_resolving(now);
        self.bury_the_lost(now);
        self.forget_old_hops(now);
        if self.retry_nic.is_some_and(|at| at <= now) {
            self.take_nic_back();
        }
        self.reset_on(now);
        if self.are_notes_old {
            self.write_notes();
        }
    }

    /// Timeout of the next wait; `None` without a deadline.
    fn timeout(&self) -> Option<Timespec> {
        let tv_nsec = match () {
            () if self.resets.is_due(Instant::now()) => 0,
            () if !self.work.is_empty() || !self.dying.is_empty() => 0,
            () if self.has_deadlines() => TICK_NS,
            () => return None,
        };
        Some(Timespec { tv_sec: 0, tv_nsec })
    }

    fn has_deadlines(&self) -> bool {
        !self.resets.is_idle()
            || self.retry_nic.is_some()
            || self.accept_again.is_some()
            || self.old_hops_until.is_some()
            || !self.resolving.is_empty()
            || !self.silent_hops.is_empty()
            || !self.leaving.is_empty()
            || self.clients.values().any(Client::is_silent)
            || self.applications.values().any(Application::is_lost)
    }

    /// Tells a change to every application. A client that does not read is disconnected.
    fn tell_all(&mut self, change: Change) {
        let ids: Vec<ClientId> = self
            .applications
            .values()
            .flat_map(|application| application.clients.iter().copied())
            .collect();
        for id in ids {
            self.send(id, &Message::Change(change));
        }
    }

    fn watch(
        &self,
        token: u64,
        source: impl FnOnce(&Self) -> BorrowedFd<'_>,
    ) -> Result<(), ServiceError> {
        let data = epoll::EventData::new_u64(token);
        epoll::add(&self.epoll, source(self), data, epoll::EventFlags::IN)
            .map_err(|errno| ServiceError::new("epoll", errno))
    }

    fn finish(mut self, end: End) {
        let stays = end == End::Leave;
        let ids: Vec<ClientId> = self.clients.keys().copied().collect();
        for id in ids {
            self.send(id, &Message::Stopping { stays });
        }
        if !self.options.socket.starts_with('@') {
            let _ = fs::remove_file(&self.options.socket);
        }
        if stays {
            self.write_notes();
            let interface = &self.options.interface;
            (self.say)(&format!(
                "{interface}: the data path stays for the next service; `mill mux stop` removes it \
                 while a service runs"
            ));
            return;
        }
        let numbers: Vec<u16> = self.applications.keys().copied().collect();
        for number in numbers {
            self.remove_dead(number, "the service ends");
        }
        self.remove_all_dead_ports();
        self.clients.clear();
        // Peers of the applications that were just buried hear of it before the service is gone.
        self.resets.finish();
        let settings = self.notes.lock_settings();
        self.notes.remove();
        if let Some(reserved) = self.reserved_ports.take() {
            reserved.remove(&self.notes.reserved_by_others(self.network));
        }
        drop(settings);
        self.plane.close();
    }
}

/// Inode of the thread's network namespace; 0 where `/proc` does not tell.
fn network_namespace() -> u64 {
    std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino())
}

/// The deadline `ns` from now.
fn after_ns(ns: u64) -> Instant {
    Instant::now() + Duration::from_nanos(ns)
}

/// Raises the limit of descriptors: every reserved port takes one.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let found = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= DESCRIPTORS);
    if enough(found.current) {
        return;
    }
    let maximum = match enough(found.maximum) {
        true => found.maximum,
        false => Some(DESCRIPTORS),
    };
    let wanted = Rlimit {
        current: Some(DESCRIPTORS),
        maximum,
    };
    if setrlimit(Resource::Nofile, wanted).is_err() {
        // Without the privilege the hard limit has to do; reservations beyond it are refused.
        let limit = Rlimit {
            current: found.maximum,
            maximum: found.maximum,
        };
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
