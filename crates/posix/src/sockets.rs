//! The descriptors of a process, so to speak, and what each stands for.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use millstream::{Context, IcmpNote, TcpListener, TcpSocket, TcpStream};
use rustix::io::Errno;

use crate::call::{Call, Outcome, Progress, Reply};
use crate::descriptors::{Descriptors, LowestFree};
use crate::epoll::Epoll;
use crate::request::Request;
use crate::table::Table;
use crate::timestamping::Timestamping;
use crate::zero_copy::ZeroCopy;

/// See the module's documentation.
pub struct Sockets {
    pub(crate) context: Context,
    numbers: Box<dyn Descriptors>,
    entries: Table,
    /// Descriptors of epoll.
    pub(crate) epolls: Vec<i32>,
    /// Some socket was asked to tell by its error queue.
    pub(crate) has_notifications: bool,
    /// The last call of those that move bytes or connections would have blocked.
    in_vain: bool,
    /// The last descriptor that a wait without a timeout told of: with an answer to it, a program
    /// that polls has answered all that it was told. -1: the last wait told nothing, or would have
    /// slept.
    pub(crate) polled_last: i32,
    /// Descriptors that were ever opened.
    opened: u64,
}

/// What a descriptor stands for.
pub(crate) struct Entry {
    pub file: File,
    pub is_v6: bool,
    /// `O_NONBLOCK`
    pub nonblocking: bool,
    /// Flags of `F_SETFL` that are only kept.
    pub kept_flags: i32,
    /// `FD_CLOEXEC`
    pub close_on_exec: bool,
    /// How many notices were ever put into its error queue, modulo 2^32.
    pub notices: Cell<u32>,
    /// ICMP errors that ended attempts to connect, in the error queue.
    pub icmp_notes: RefCell<VecDeque<IcmpNote>>,
    /// What the next call is to be told of a connection that was dissolved.
    pub error: Cell<Option<Errno>>,
    /// `SO_ZEROCOPY` and what came of it.
    pub zero_copy: ZeroCopy,
    /// `SO_TIMESTAMPING` and what came of it.
    pub timestamping: Timestamping,
    /// Reading was shut although there is no connection: reads find the end.
    pub read_shut: Cell<bool>,
    /// Values of options that are remembered and obeyed by nothing, by level and name.
    pub option_values: RefCell<BTreeMap<(i32, i32), i32>>,
    /// `SO_COOKIE`
    pub cookie: u64,
    /// `SO_SELECT_ERR_QUEUE`
    pub error_queue_is_urgent: Cell<bool>,
}

impl Entry {
    /// The option to be told of errors was turned off: Linux empties the error queue of them.
    pub fn forget_errors(&self, on: bool) {
        if let File::Stream(stream) = &self.file
            && !on
        {
            // What there is of them is of no interest.
            let _ = stream.tcp.take_icmp_note();
        }
        if !on {
            self.icmp_notes.borrow_mut().clear();
        }
    }

    /// A descriptor that nothing was set on yet.
    pub fn of(file: File, is_v6: bool) -> Self {
        Self {
            file,
            is_v6,
            nonblocking: false,
            kept_flags: 0,
            close_on_exec: false,
            notices: 0.into(),
            icmp_notes: RefCell::default(),
            error: None.into(),
            zero_copy: ZeroCopy::default(),
            timestamping: Timestamping::default(),
            read_shut: false.into(),
            option_values: RefCell::default(),
            cookie: 0,
            error_queue_is_urgent: false.into(),
        }
    }
}

pub(crate) enum File {
    /// Neither connected nor listening.
    Idle(TcpSocket),
    /// Connects with the first bytes (`TCP_FASTOPEN_CONNECT`).
    Deferred(TcpSocket, SocketAddr),
    Listener(TcpListener),
    Stream(Stream),
    Epoll(Epoll),
    /// One of the kernel's own.
    Kernel(OwnedFd),
    /// A socket that could not be made anew after its connection had failed: there was no memory for it.
    Lost,
}

/// A connection, or an attempt at one.
pub(crate) struct Stream {
    pub tcp: TcpStream,
    pub attempt: Attempt,
}

/// What another `connect` is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// None has told of the outcome yet.
    UnderWay,
    /// The outcome was told, or is known to who shut the connection.
    Over,
    /// It was shut before there was a connection, or when there was none any more: Linux says `EINVAL` for good.
    Shut,
}

/// How a step of a call ended: `Ok(None)` means that it blocks.
pub(crate) type Step = Result<Option<i64>, Errno>;

impl Sockets {
    /// No descriptors yet; they will be numbered from 3 on.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self::with_descriptors(context, Box::new(LowestFree::from(3)))
    }

    /// No descriptors yet; `numbers` numbers them.
    #[must_use]
    pub fn with_descriptors(context: Context, numbers: Box<dyn Descriptors>) -> Self {
        context.set_urgent_apart(true);
        Self {
            context,
            numbers,
            entries: Table::default(),
            epolls: Vec::new(),
            has_notifications: false,
            in_vain: false,
            polled_last: -1,
            opened: 0,
        }
    }

    /// The context whose sockets these are.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Turns the stack until it has nothing more to do now; true if it had something to do. Blocked calls may get further after it.
    pub fn turn(&mut self) -> bool {
        // A wire that is gone is found by the calls.
        self.context.settle().unwrap_or(false)
    }

    /// Begins a call and carries it as far as it gets; it is lost if it blocks, so it is for calls that do not.
    pub fn call(&mut self, request: Request) -> (Outcome, Reply) {
        let mut call = Call::start(request);
        let outcome = call.poll(self);
        (outcome, call.into_reply())
    }

    /// Whether `fd` is one of ours.
    #[must_use]
    pub fn has(&self, fd: i32) -> bool {
        self.entries.at(fd).is_some()
    }

    /// What a call that may block came to. A program that asks again and again and never waits turns the stack by it: the second refusal in a row, and each that
    /// follows, lets the stack move on. Loops that read until there is no more do not: each of their refusals comes after a success.
    #[inline]
    pub(crate) fn told<T>(&mut self, outcome: Result<T, Errno>) -> Result<T, Errno> {
        let is_refusal = matches!(outcome, Err(Errno::AGAIN | Errno::ALREADY));
        if std::mem::replace(&mut self.in_vain, is_refusal) && is_refusal {
            // A wire that is gone is found by the calls that wait.
            let _ = self.context.turn();
        }
        outcome
    }

    /// How many descriptors are open.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.count()
    }

    /// Carries a call on. What it does is done when this returns, as it is when a system call does: on a virtual clock, where no other thread sees to it, the
    /// stack is turned after it.
    pub(crate) fn carry_on(
        &mut self,
        request: &Request,
        progress: &mut Progress,
        reply: &mut Reply,
    ) -> Outcome {
        let step = self.step(request, progress, reply);
        if self.context.is_virtual() {
            self.turn();
        }
        match step {
            Ok(Some(value)) => Outcome::Done(Ok(value)),
            Ok(None) => Outcome::Pending,
            Err(errno) => Outcome::Done(Err(errno)),
        }
    }

    pub(crate) fn step(
        &mut self,
        request: &Request,
        progress: &mut Progress,
        reply: &mut Reply,
    ) -> Step {
        match *request {
            Request::Socket {
                domain,
                kind,
                protocol,
            } => self.socket(domain, kind, protocol),
            Request::Bind { fd, address } => self.bind(fd, address),
            Request::Listen { fd, backlog } => self.listen(fd, backlog),
            Request::Accept { fd, flags } => self.accept(fd, flags, progress, reply),
            Request::Connect { fd, address } => self.connect(fd, address, progress),
            Request::Read { fd, len: 0 } => self.socket_entry(fd).map(|_| Some(0)),
            Request::Read { fd, len } => self.recv(fd, len, 0, progress, reply),
            Request::Recv { fd, len, flags } => self.recv(fd, len, flags, progress, reply),
            Request::Recvmsg {
                fd,
                len,
                control_len,
                flags,
            } => self.recvmsg(fd, len, control_len, flags, progress, reply),
            Request::Write { fd, ref bytes } => self.send(fd, bytes, 0, None, None, progress),
            Request::Send {
                fd,
                ref bytes,
                flags,
                to,
                ref control,
            } => self.sendmsg(fd, bytes, flags, to, control, progress),
            Request::Fcntl {
                fd,
                command,
                argument,
            } => self.fcntl(fd, command, argument),
            Request::Ioctl {
                fd,
                request,
                argument,
            } => self.ioctl(fd, request, argument, reply),
            Request::Close { fd } => self.close(fd, progress),
            Request::Shutdown { fd, how } => self.shutdown(fd, how),
            Request::Getsockname { fd } => self.getsockname(fd, reply),
            Request::Getpeername { fd } => self.getpeername(fd, reply),
            _ => self.other_step(request, progress, reply),
        }
    }

    /// Options and readiness.
    fn other_step(
        &mut self,
        request: &Request,
        progress: &mut Progress,
        reply: &mut Reply,
    ) -> Step {
        match *request {
            Request::Getsockopt {
                fd,
                level,
                name,
                len,
            } => self.getsockopt(fd, level, name, len, reply),
            Request::Setsockopt {
                fd,
                level,
                name,
                ref value,
            } => self.setsockopt(fd, level, name, value),
            Request::Poll {
                ref fds,
                timeout_ms,
            } => self.poll(fds, timeout_ms, progress, reply),
            Request::EpollCreate { flags } => self.epoll_create(flags),
            Request::EpollCtl {
                epfd,
                op,
                fd,
                event,
            } => self.epoll_ctl(epfd, op, fd, event),
            Request::EpollWait {
                epfd,
                max_events,
                timeout_ms,
            } => self.epoll_wait(epfd, max_events, timeout_ms, progress, reply),
            _ => Err(Errno::NOSYS),
        }
    }

    /// What `fd` stands for.
    pub(crate) fn entry(&mut self, fd: i32) -> Result<&mut Entry, Errno> {
        self.entries.at_mut(fd).ok_or(Errno::BADF)
    }

    /// The socket that `fd` stands for.
    pub(crate) fn socket_entry(&mut self, fd: i32) -> Result<&mut Entry, Errno> {
        let entry = self.entry(fd)?;
        match entry.file {
            File::Epoll(_) | File::Kernel(_) => Err(Errno::NOTSOCK),
            _ => Ok(entry),
        }
    }

    /// What `fd` stands for, and the context.
    pub(crate) fn with_context(&self, fd: i32) -> Option<(&Context, &Entry)> {
        Some((&self.context, self.entries.at(fd)?))
    }

    /// The context, and the socket that `fd` stands for.
    pub(crate) fn socket_with_context(&mut self, fd: i32) -> Result<(&Context, &mut Entry), Errno> {
        let entry = self.entries.at_mut(fd).ok_or(Errno::BADF)?;
        match entry.file {
            File::Epoll(_) | File::Kernel(_) => Err(Errno::NOTSOCK),
            _ => Ok((&self.context, entry)),
        }
    }

    /// A new descriptor.
    pub(crate) fn install(&mut self, entry: Entry) -> Result<i32, Errno> {
        let fd = self.numbers.open()?;
        self.put(fd, entry);
        Ok(fd)
    }

    /// A number for a descriptor that is about to be opened; [`put`](Self::put) or [`give_back`](Self::give_back) follows.
    pub(crate) fn number(&mut self) -> Result<i32, Errno> {
        self.numbers.open()
    }

    pub(crate) fn give_back(&mut self, fd: i32) {
        self.numbers.close(fd);
    }

    pub(crate) fn put(&mut self, fd: i32, mut entry: Entry) {
        self.opened += 1;
        entry.cookie = self.opened;
        if matches!(entry.file, File::Epoll(_)) {
            self.epolls.push(fd);
        }
        self.entries.insert(fd, entry);
    }

    /// A descriptor is no more.
    pub(crate) fn uninstall(&mut self, fd: i32) -> Option<Entry> {
        let entry = self.entries.remove(fd)?;
        self.epolls.retain(|&epfd| epfd != fd);
        self.numbers.close(fd);
        Some(entry)
    }

    /// Two descriptors at once.
    pub(crate) fn pair(&mut self, a: i32, b: i32) -> Option<(&mut Entry, &mut Entry)> {
        self.entries.pair_mut(a, b)
    }
}

/// The number in an error of Millstream's.
#[must_use]
pub fn errno(error: &io::Error) -> Errno {
    if let Some(number) = error.raw_os_error() {
        return Errno::from_raw_os_error(number);
    }
    match error.kind() {
        io::ErrorKind::WouldBlock => Errno::AGAIN,
        io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        _ => Errno::IO,
    }
}

/// Whether a wait that began earlier is over; notes the first time when it will be.
pub(crate) fn is_over(
    progress: &mut Progress,
    now_ns: u64,
    timeout: Option<std::time::Duration>,
) -> bool {
    if !std::mem::replace(&mut progress.began, true) {
        progress.deadline_ns = timeout
            .map(|timeout| now_ns.saturating_add(timeout.as_nanos().min(u64::MAX.into()) as u64));
    }
    progress
        .deadline_ns
        .is_some_and(|deadline_ns| now_ns >= deadline_ns)
}
