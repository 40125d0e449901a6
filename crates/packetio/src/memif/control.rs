//! The control object shared by all queues of an interface: the handshakes, behind a mutex, and the
//! resulting connection.
//!
//! Ports touch it only off the hot path: every few milliseconds by the clock, when they fall asleep
//! after a time without frames, and when a peer lied. Its descriptor is an epoll instance over all
//! sockets of the control channel. A sleeping port therefore needs a single descriptor, whatever
//! connections come and go.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::Timespec;

use super::client::Client;
use super::handover::Handover;
use super::link::{Change, Link};
use super::server::Server;
use super::socket::ChannelContext;
use super::{MemifOptions, MemifRole};
use crate::MacAddr;
use crate::foreign::Closer;
use crate::open_error::OpenError;

/// State that the queues of one interface share.
#[derive(Debug)]
pub struct Shared {
    /// The options with which the interface was opened.
    pub options: MemifOptions,
    /// MAC address of the interface.
    pub mac: MacAddr,
    epoll: Arc<OwnedFd>,
    news: Arc<[OwnedFd]>,
    control: Mutex<Control>,
}

/// How the control channel gets its connection.
#[derive(Debug)]
pub enum Means {
    /// By the path in the options.
    Path,
    /// For a server: by this connected socket, once. The number limits the bytes of the client's
    /// regions.
    Socket(OwnedFd, u64),
    /// For a client: by each socket that is handed over.
    Handover(Handover),
}

/// Ring cursors that a closed port leaves to the next port of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursors {
    /// Cursor of the receiving half.
    pub rx: u16,
    /// Cursor of the sending half.
    pub tx: u16,
}

#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    open: bool,
    /// Cursors of a closed port, with the generation for which they are valid.
    cursors: Option<(u64, Cursors)>,
}

/// The state behind the mutex.
#[derive(Debug)]
pub struct Control {
    epoll: Arc<OwnedFd>,
    role: Role,
    link: Option<Arc<Link>>,
    generation: u64,
    /// One bell per queue, rung when the generation changes. Only the queue that reads the control
    /// channel is woken by it, so the others need this.
    news: Arc<[OwnedFd]>,
    queues: Box<[Queue]>,
    reason: String,
}

#[derive(Debug)]
enum Role {
    Server(Server),
    Client(Client),
}

impl Shared {
    /// Makes the control object; a server begins to listen.
    ///
    /// # Errors
    /// For a server: the path is in use or unusable.
    pub fn new(options: &MemifOptions, mac: MacAddr, means: Means) -> Result<Arc<Self>, OpenError> {
        let wire = || format!("memif:{}", options.path);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| OpenError::io(wire(), "epoll_create1", errno))?;
        let epoll = Arc::new(epoll);
        let context = ChannelContext {
            epoll: Arc::clone(&epoll),
            closer: Closer::default(),
        };
        let news: Result<Arc<[OwnedFd]>, _> = (0..options.queues)
            .map(|_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))
            .collect();
        let news = news.map_err(|errno| OpenError::io(wire(), "eventfd", errno))?;
        let failed = |errno| OpenError::io(wire(), "listen", errno);
        let role = match (means, options.role) {
            (Means::Socket(socket, region_bytes_max), _) => {
                let server = Server::over(options, &context, socket, region_bytes_max);
                Role::Server(server.map_err(failed)?)
            }
            (Means::Handover(handover), _) => {
                Role::Client(Client::new(options, &context, Some(handover)))
            }
            (Means::Path, MemifRole::Server) => {
                Role::Server(Server::new(options, &context).map_err(failed)?)
            }
            (Means::Path, MemifRole::Client) => Role::Client(Client::new(options, &context, None)),
        };
        let control = Control {
            epoll: Arc::clone(&epoll),
            role,
            link: None,
            generation: 0,
            news: Arc::clone(&news),
            queues: vec![Queue::default(); options.queues].into(),
            reason: String::new(),
        };
        Ok(Arc::new(Self {
            options: options.clone(),
            mac,
            epoll,
            news,
            control: Mutex::new(control),
        }))
    }

    /// Descriptor to sleep on, readable when the control channel needs attention.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Second descriptor for the port of `queue` to sleep on: readable when another queue's port
    /// has found that the connection came or went.
    pub fn news(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.news.get(queue).map(AsFd::as_fd)
    }

    /// Resets the bell of `queue`, whose port has noticed the change.
    pub fn heard(&self, queue: usize) {
        if let Some(news) = self.news.get(queue) {
            let _ = rustix::io::read(news, &mut [0; 8]);
        }
    }

    /// The control state, unless another queue holds it.
    pub fn try_control(&self) -> Option<MutexGuard<'_, Control>> {
        match self.control.try_lock() {
            Ok(control) => Some(control),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The control state; waits for it.
    pub fn control(&self) -> MutexGuard<'_, Control> {
        self.control
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Control {
    /// Processes what has arrived on the control channel.
    pub fn service(&mut self, now_ns: u64) {
        if !self.is_due(now_ns) {
            return;
        }
        let change = match &mut self.role {
            Role::Server(server) => server.service(now_ns),
            Role::Client(client) => client.service(now_ns),
        };
        match change {
            None => {}
            Some(Change::Refused(reason)) => self.reason = reason,
            Some(Change::Up(link)) => {
                self.link = Some(Arc::new(link));
                self.begin_generation();
            }
            Some(Change::Down(reason)) => {
                self.reason = reason;
                self.link = None;
                self.begin_generation();
            }
        }
    }

    /// Ends the connection if it is still that of `generation`.
    pub fn fail(&mut self, generation: u64, reason: &str, now_ns: u64) {
        if generation != self.generation || self.link.is_none() {
            return;
        }
        match &mut self.role {
            Role::Server(server) => server.disconnect(reason),
            Role::Client(client) => client.disconnect(reason, now_ns),
        }
        self.reason = reason.to_owned();
        self.link = None;
        self.begin_generation();
    }

    fn begin_generation(&mut self) {
        self.generation += 1;
        for news in &*self.news {
            // A full counter means that the bell rings already.
            let _ = rustix::io::write(news, &1_u64.to_ne_bytes());
        }
    }

    /// The connection, if there is one.
    pub fn link(&self) -> Option<&Arc<Link>> {
        self.link.as_ref()
    }

    /// A number that changes whenever a connection comes or goes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Time at which `service` has something to do without a message, ns.
    pub fn deadline_ns(&self) -> Option<u64> {
        match &self.role {
            Role::Server(server) => server.deadline_ns(),
            Role::Client(client) => client.deadline_ns(),
        }
    }

    /// The reason why the last connection ended or failed; empty if there was none.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Takes a queue. False: it is taken already.
    pub fn take_queue(&mut self, queue: usize) -> bool {
        let Some(queue) = self.queues.get_mut(queue) else {
            return false;
        };
        !std::mem::replace(&mut queue.open, true)
    }

    /// Gives a queue back, with the cursors for its next port.
    pub fn give_queue(&mut self, queue: usize, generation: u64, cursors: Option<Cursors>) {
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.open = false;
            if let Some(cursors) = cursors {
                queue.cursors = Some((generation, cursors));
            }
        }
    }

    /// Cursors for a port of `queue`, unless it is the first on this connection.
    pub fn cursors(&self, queue: usize) -> Option<Cursors> {
        let (generation, cursors) = self.queues.get(queue)?.cursors?;
        (generation == self.generation).then_some(cursors)
    }

    fn is_due(&self, now_ns: u64) -> bool {
        if self
            .deadline_ns()
            .is_some_and(|deadline_ns| now_ns >= deadline_ns)
        {
            return true;
        }
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        epoll::wait(&self.epoll, &mut events, Some(&now)).is_ok_and(|count| count > 0)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        match &mut self.role {
            Role::Server(server) => server.disconnect("the server closed"),
            Role::Client(client) => client.disconnect("the client closed", 0),
        }
    }
}
