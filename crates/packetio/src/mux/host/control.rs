//! The thread `millstream-mux`: it greets the service, reads its messages, delivers answers to
//! requests, and tells the ports of changes.
//!
//! When the service goes away, the thread tries to reach the next one and tells it what this
//! process has.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use rustix::io::Errno;

use super::{
    Books, Key, Reply, Shared, claim, context_of, greeting, is_socket, is_tap, wait_readable,
};
use crate::foreign::Foreign;
use crate::host::host_queues::silence;
use crate::host::{NoPorts, Wish};
use crate::limits::{MUX_ANSWER_WAIT, MUX_LEASE_GROWTH_MAX, MUX_LEASE_PORTS, MUX_RETRY};
use crate::mux::channel::{Channel, Received};
use crate::mux::message::{Change, HOLD, Lease, Message, VirtualPort, Welcome};

/// Starts the thread, which ends when `ends` rings.
pub(super) fn start(
    shared: Arc<Shared>,
    ends: Arc<OwnedFd>,
    application: u16,
) -> std::io::Result<()> {
    // The caller's thread makes the copy, so that it knows the descriptor's number.
    let channel = shared.copy_of_channel()?;
    let thread = std::thread::Builder::new().name("millstream-mux".to_owned());
    thread
        .spawn(move || run(&shared, &ends, application, channel))
        .map(|_| ())
}

fn run(shared: &Shared, ends: &OwnedFd, application: u16, mut channel: OwnedFd) {
    loop {
        let fds = [channel.as_fd(), shared.bell.as_fd(), ends.as_fd()];
        let waits = shared.until_next_move();
        wait_readable(&fds, waits);
        if wait_readable(&[ends.as_fd()], Some(std::time::Duration::ZERO)) {
            return shared.fail(Errno::SHUTDOWN);
        }
        silence(&shared.bell);
        shared.grant_wishes();
        if shared.read_all() {
            shared.send_moves();
            continue;
        }
        if !shared.reconnect(ends, application) {
            return;
        }
        channel = match shared.copy_of_channel() {
            Ok(channel) => channel,
            Err(errno) => return shared.fail(errno),
        };
    }
}

impl Shared {
    /// Makes a copy of the connection's descriptor, to sleep on without holding the lock.
    fn copy_of_channel(&self) -> Result<OwnedFd, Errno> {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::io::fcntl_dupfd_cloexec(channel.as_fd(), 0)
    }

    /// Reads the greeting and the list of what the kernel knows.
    pub(super) fn first_words(&self) -> Result<Welcome, Errno> {
        let until = Instant::now() + MUX_ANSWER_WAIT;
        let mut welcome = None;
        loop {
            match self.receive() {
                Received::Message(Message::Welcome(words), _) => welcome = Some(words),
                Received::Message(Message::Refused { errno, .. }, _) => {
                    return Err(Errno::from_raw_os_error(i32::from(errno)));
                }
                Received::Message(message, descriptor) => self.on_message(message, descriptor),
                Received::Closed => return Err(Errno::CONNRESET),
                Received::Malformed(_) => return Err(Errno::PROTO),
                Received::Nothing => {
                    if let (Some(welcome), true) = (welcome, self.books().is_complete) {
                        return Ok(welcome);
                    }
                    let left = until.saturating_duration_since(Instant::now());
                    let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
                    if left.is_zero() || !wait_readable(&[channel.as_fd()], Some(left)) {
                        return Err(Errno::TIMEDOUT);
                    }
                }
            }
        }
    }

    fn receive(&self) -> Received {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        channel.receive()
    }

    /// Reads all messages. False: the service is gone.
    fn read_all(&self) -> bool {
        loop {
            match self.receive() {
                Received::Nothing => return true,
                Received::Closed | Received::Malformed(_) => return false,
                Received::Message(message, descriptor) => self.on_message(message, descriptor),
            }
        }
    }

    fn on_message(&self, message: Message, descriptor: Foreign) {
        let mut books = self.books();
        // Requests to send once the lock is free.
        let mut ask = Vec::new();
        match message {
            Message::Granted { request } if books.move_ended(request, None) => {}
            Message::Refused { request, errno } if books.move_ended(request, Some(errno)) => {}
            Message::Move(one) => books.move_came(&one, descriptor),
            Message::Seek(seek) => books.seek_came(&seek),
            Message::Granted { request } => ask = books.granted(request),
            Message::Leased(lease) if books.growing.contains_key(&lease.request) => {
                books.leases.push(lease);
                let last = lease.first.saturating_add(lease.ports.saturating_sub(1));
                books.lease_grown(lease.request, Ok((lease.first, last)));
            }
            Message::Leased(lease) => {
                books.answer(Key::Request(lease.request), Reply::Leased(lease));
            }
            Message::Port(port) => {
                let is_right = |socket: BorrowedFd<'_>| is_socket(socket, port.kind);
                if let Ok(socket) = descriptor.keep_if("no socket", is_right) {
                    books.port_came(&port, socket);
                }
            }
            Message::Bulk { request } => {
                let reply = match descriptor.keep_if("no TAP", is_tap) {
                    Ok(tap) => Reply::Bulk(tap),
                    Err(_) => Reply::Refused(Errno::PROTO),
                };
                books.answer(Key::Request(request), reply);
            }
            Message::Ledger { context, bytes } => {
                if let Ok(memory) = descriptor.keep_if("no ledger", |_| Ok(())) {
                    books.ledgers.insert(context, (memory, bytes));
                }
            }
            Message::Refused { request, errno } => books.refuse(request, errno),
            Message::NextHop { address, mac, .. } => {
                let mac = Some(mac);
                books.change(Change::NextHop { address, mac });
            }
            Message::Change(change) => {
                books.change(change);
                if let Change::AddressAdded { address, .. } = change {
                    ask = books.claim_again(address);
                }
            }
            Message::Revoke { tuple, .. } => {
                let local = SocketAddr::new(tuple.address, tuple.port);
                books.claims.revoke(local);
            }
            // Other messages are for the service or need no action.
            _ => {}
        }
        drop(books);
        for message in ask {
            // A service that comes back is told everything again.
            let _ = self.send(&message, None);
        }
        self.came.notify_all();
    }

    /// Handles the ports' wishes: next hops, more local ports, and the end of claims.
    fn grant_wishes(&self) {
        let mut ask = Vec::new();
        let (mut left, mut ended) = (Vec::new(), Vec::new());
        let mut books = self.books();
        for at in 0..books.links.len() {
            while let Some(wish) = books.links[at].link.next_wish() {
                match wish {
                    Wish::NextHop(address) => ask.extend(books.next_hop(at, address)),
                    Wish::LocalPorts => ask.push(books.more_ports(at)),
                    Wish::ReturnPorts(first, last) => {
                        ask.extend(books.return_ports(at, (first, last)));
                    }
                    Wish::Accepts(local) => {
                        let context = books.links[at].context;
                        ask.push(Message::Accepts(claim(0, context, local)));
                    }
                    Wish::Forget(local, remote) => ask.push(Message::Forget {
                        context: books.links[at].context,
                        local,
                        remote,
                    }),
                    Wish::Leave(local) => left.push((books.links[at].context, local)),
                    Wish::Release(local) => ended.push((books.links[at].context, local)),
                }
            }
        }
        drop(books);
        for message in ask {
            if self.send(&message, None).is_err()
                && let Message::Lease(lease) = message
            {
                self.books().lease_grown(lease.request, Err(NoPorts));
            }
        }
        for (context, local) in left {
            self.release(|claims| claims.leave(context, local));
        }
        for (context, local) in ended {
            self.release(|claims| claims.end(context, local));
        }
    }

    /// Tries to reach a service. False: `ends` rang before.
    fn reconnect(&self, ends: &OwnedFd, application: u16) -> bool {
        loop {
            if wait_readable(&[ends.as_fd()], Some(MUX_RETRY)) {
                self.fail(Errno::SHUTDOWN);
                return false;
            }
            let Ok(channel) = Channel::connect(&self.path, &self.closer) else {
                continue;
            };
            let (message, family) = greeting(self.hello);
            if channel.send_first(&message, family).is_err() {
                continue;
            }
            *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = channel;
            self.books().forget_view();
            if self.first_words().is_ok() {
                self.recover(application);
                return true;
            }
        }
    }

    /// Tells a new service what this process has: contexts, claims, leases, next hops.
    fn recover(&self, application: u16) {
        let mut books = self.books();
        let mut messages = Vec::new();
        for at in 0..books.contexts.len() {
            let request = books.number();
            let known = &books.contexts[at];
            let context = known.context;
            let message = Message::Recover {
                request,
                application,
                context,
            };
            let socket = rustix::io::fcntl_dupfd_cloexec(&known.socket, 0).ok();
            messages.push((message, socket));
        }
        // The sockets that reserve addresses come first, because the service cannot reserve those
        // itself.
        let holds: Vec<_> = books.claims.holds().collect();
        for local in holds {
            let request = books.number();
            let socket = books.bound.get(&local);
            let socket = socket.and_then(|one| rustix::io::fcntl_dupfd_cloexec(one, 0).ok());
            let hold = claim(request, HOLD, local);
            let message = match socket {
                Some(_) => Message::Bound(hold),
                None => Message::Claim(hold),
            };
            messages.push((message, socket));
        }
        let members: Vec<_> = books.claims.members().collect();
        for (context, local) in members {
            let request = books.number();
            messages.push((Message::Claim(claim(request, context, local)), None));
        }
        for at in 0..books.leases.len() {
            let mut lease = books.leases[at];
            lease.request = books.number();
            messages.push((Message::Lease(lease), None));
        }
        let hops: Vec<IpAddr> = books.hops.keys().copied().collect();
        for address in hops {
            let request = books.number();
            messages.push((Message::Resolve { request, address }, None));
        }
        drop(books);
        for (message, socket) in messages {
            let _ = self.send(&message, socket.as_ref().map(|socket| socket.as_fd()));
        }
    }

    fn fail(&self, errno: Errno) {
        let mut books = self.books();
        books.failed = Some(errno);
        books.end_moves();
        drop(books);
        self.came.notify_all();
    }
}

impl Books {
    /// Delivers an answer, if its caller still waits.
    fn answer(&mut self, key: Key, reply: Reply) {
        if let Some(waiting) = self.waiting.get_mut(&key) {
            *waiting = Some(reply);
        }
    }

    /// Delivers the socket of a requested virtual port. If it is the memif channel of a service
    /// that came back, the port connects to it.
    fn port_came(&mut self, port: &VirtualPort, socket: OwnedFd) {
        let mut known = self.contexts.iter_mut();
        let Some(known) = known.find(|known| known.context == port.context) else {
            return self.answer(context_of(port), Reply::Port(socket));
        };
        let copy = rustix::io::fcntl_dupfd_cloexec(&socket, 0);
        if let (Some(handover), Ok(copy)) = (&known.handover, copy) {
            known.socket = copy;
            handover.put(socket);
        }
    }

    /// Processes a granted request. Returns releases for addresses whose sockets have gone
    /// meanwhile.
    fn granted(&mut self, request: u32) -> Vec<Message> {
        let Some((context, local)) = self.reclaiming.remove(&request) else {
            self.answer(Key::Request(request), Reply::Granted);
            return Vec::new();
        };
        let releases = self.claims.granted_again(context, local);
        let release = |(context, local)| Message::Release(claim(self.number(), context, local));
        releases.into_iter().map(release).collect()
    }

    /// Claims the addresses again that were revoked when `address` went away.
    fn claim_again(&mut self, address: IpAddr) -> Vec<Message> {
        let mut messages = Vec::new();
        for (context, local) in self.claims.revoked_at(address) {
            let request = self.number();
            self.reclaiming.insert(request, (context, local));
            messages.push(Message::Claim(claim(request, context, local)));
        }
        messages
    }

    /// Processes a refused request. Number 0 stands for memory, of which one is in flight at a
    /// time.
    fn refuse(&mut self, request: u32, errno: u16) {
        let errno = Errno::from_raw_os_error(i32::from(errno));
        if self.growing.contains_key(&request) {
            return self.lease_grown(request, Err(NoPorts));
        }
        // The kernel has given the address to another process in between. The next attempt follows
        // when the address comes back again.
        if self.reclaiming.remove(&request).is_some() {
            return;
        }
        if request != 0 {
            return self.answer(Key::Request(request), Reply::Refused(errno));
        }
        for (key, waiting) in &mut self.waiting {
            if matches!(key, Key::Port(_)) && waiting.is_none() {
                *waiting = Some(Reply::Refused(errno));
            }
        }
    }

    /// Forgets the kernel's state, which is sent anew, and requests for ports, which were lost with
    /// the last service.
    fn forget_view(&mut self) {
        self.is_complete = false;
        self.reclaiming.clear();
        self.forget_moves();
        let lost: Vec<u32> = self.growing.keys().copied().collect();
        for request in lost {
            self.lease_grown(request, Err(NoPorts));
        }
    }

    /// The request for a next hop of link `at`; `None` if the answer is known.
    fn next_hop(&mut self, at: usize, address: IpAddr) -> Option<Message> {
        if let Some(mac) = self.hops.get(&address).copied() {
            let mac = Some(mac);
            self.links[at].link.tell(Change::NextHop { address, mac });
            return None;
        }
        // A port that asks again has waited for long, so its request may be lost.
        self.asked.insert(address);
        let request = self.number();
        Some(Message::Resolve { request, address })
    }

    /// The request for as many further ports as the context of link `at` has.
    fn more_ports(&mut self, at: usize) -> Message {
        let context = self.links[at].context;
        let of_context = self.leases.iter().filter(|one| one.context == context);
        let held: u32 = of_context.map(|one| u32::from(one.ports)).sum();
        let wanted = held.clamp(MUX_LEASE_PORTS.into(), MUX_LEASE_GROWTH_MAX.into());
        let request = self.number();
        self.growing.insert(request, context);
        Message::Lease(Lease {
            request,
            context,
            first: 0,
            ports: wanted as u16,
        })
    }

    /// The message that returns local ports of link `at`. If it is lost because the service is
    /// away, they stay lent until this process ends.
    fn return_ports(&mut self, at: usize, (first, last): (u16, u16)) -> Option<Message> {
        let context = self.links[at].context;
        let is_it = |lease: &Lease| {
            let end = lease.first.saturating_add(lease.ports.saturating_sub(1));
            (lease.context, lease.first, end) == (context, first, last)
        };
        let found = self.leases.iter().position(is_it)?;
        let mut lease = self.leases.swap_remove(found);
        lease.request = self.number();
        Some(Message::Return(lease))
    }

    /// Processes the answer to a request for more ports.
    fn lease_grown(&mut self, request: u32, answer: Result<(u16, u16), NoPorts>) {
        let Some(context) = self.growing.remove(&request) else {
            return;
        };
        let mut links = self.links.iter_mut();
        if let Some(of_context) = links.find(|link| link.context == context) {
            of_context.link.lend(answer);
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Complete => self.is_complete = true,
            Change::NextHop { address, mac } => {
                self.asked.remove(&address);
                match mac {
                    Some(mac) => self.hops.insert(address, mac),
                    None => self.hops.remove(&address),
                };
            }
            change => self.view.apply(change),
        }
        self.links.retain(|one| !one.link.is_abandoned());
        for one in &mut self.links {
            one.link.tell(change);
        }
    }
}
