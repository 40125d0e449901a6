//! The descriptors of a context, and the calls on them.

use millstream::Context;
use rustix::io::Errno;

use crate::call::{Call, Outcome, Progress, Reply};
use crate::descriptors::{Descriptors, LowestFree};
use crate::entry::{Entry, File};
use crate::files::Files;
use crate::request::Request;

/// See the module's documentation.
pub struct Sockets {
    pub(crate) context: Context,
    pub(crate) numbers: Box<dyn Descriptors>,
    pub(crate) files: Files,
    /// The number, chosen by the caller, for the descriptor that this step opens.
    pub(crate) chosen: Option<i32>,
    /// Numbers of descriptors that `dup2` has replaced, noted if `notes_replaced`.
    pub(crate) replaced: Vec<i32>,
    pub(crate) notes_replaced: bool,
    /// Descriptions that are epolls.
    pub(crate) epolls: Vec<i32>,
    /// A socket was set to report through its error queue.
    pub(crate) has_notifications: bool,
    /// The last `accept`, `connect`, read or write failed because it would block.
    in_vain: bool,
    /// The last descriptor that a wait without a timeout reported. When a polling program has
    /// handled it, the program has handled all reported events. -1: the last wait reported nothing,
    /// or would have slept.
    pub(crate) polled_last: i32,
    /// Number of descriptors ever opened.
    pub(crate) opened: u64,
}

/// The result of a step of a call; `Ok(None)`: the call blocks.
pub(crate) type Step = Result<Option<i64>, Errno>;

impl Sockets {
    /// An empty set, whose descriptors will be numbered from 3 on.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self::with_descriptors(context, Box::new(LowestFree::from(3)))
    }

    /// An empty set, whose descriptors `numbers` will allocate.
    #[must_use]
    pub fn with_descriptors(context: Context, numbers: Box<dyn Descriptors>) -> Self {
        context.set_urgent_apart(true);
        Self {
            context,
            numbers,
            files: Files::default(),
            chosen: None,
            replaced: Vec::new(),
            notes_replaced: false,
            epolls: Vec::new(),
            has_notifications: false,
            in_vain: false,
            polled_last: -1,
            opened: 0,
        }
    }

    /// The context of these sockets.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Turns the stack until it has nothing to do. True if it had something to do: blocked calls
    /// may then get further.
    pub fn turn(&mut self) -> bool {
        // Calls report a wire that is gone.
        self.context.turn_until_idle().unwrap_or(false)
    }

    /// Makes a call that does not block. A call that would block is lost.
    pub fn call(&mut self, request: Request) -> (Outcome, Reply) {
        let mut call = Call::start(request);
        let outcome = call.poll(self);
        (outcome, call.into_reply())
    }

    /// True if `fd` is a descriptor of these sockets.
    #[must_use]
    pub fn has(&self, fd: i32) -> bool {
        self.files.descriptor(fd).is_some()
    }

    /// True if `fd` is a socket that is neither connected, connecting nor listening.
    #[must_use]
    pub fn is_idle(&self, fd: i32) -> bool {
        let entry = self.files.at(fd);
        entry.is_some_and(|entry| matches!(entry.file, File::Idle(_)))
    }

    /// Passes on the outcome of a call that would have blocked a blocking descriptor. A program
    /// that repeats such calls and never waits has to turn the stack by them: from the second
    /// refusal in a row on, each takes a turn. Loops that read until nothing is left do not, since
    /// each refusal follows a success.
    #[inline]
    pub(crate) fn note_outcome<T>(&mut self, outcome: Result<T, Errno>) -> Result<T, Errno> {
        let is_refusal = matches!(outcome, Err(Errno::AGAIN | Errno::ALREADY));
        if std::mem::replace(&mut self.in_vain, is_refusal) && is_refusal {
            // Calls that wait report a wire that is gone.
            let _ = self.context.turn();
        }
        outcome
    }

    /// Number of open descriptors.
    #[must_use]
    pub fn count(&self) -> usize {
        self.files.count()
    }

    /// Carries a call on. As with a system call, its effect is complete on return. On a virtual
    /// clock, where no other thread turns the stack, this function does.
    pub(crate) fn carry_on(
        &mut self,
        request: &Request,
        progress: &mut Progress,
        reply: &mut Reply,
    ) -> Outcome {
        let step = match self.is_replaced(request, progress) {
            true => Err(Errno::BADF),
            false => self.step(request, progress, reply),
        };
        if self.context.is_virtual() {
            self.turn();
        }
        match step {
            Ok(Some(value)) => Outcome::Done(Ok(value)),
            Ok(None) => Outcome::Pending,
            Err(errno) => Outcome::Done(Err(errno)),
        }
    }

    /// Takes one step of a call, which opens its descriptor at the number that the caller has
    /// chosen.
    pub(crate) fn step(
        &mut self,
        request: &Request,
        progress: &mut Progress,
        reply: &mut Reply,
    ) -> Step {
        self.chosen = progress.number;
        let step = self.step_of(request, progress, reply);
        self.chosen = None;
        if self.context.talks_to_itself() {
            self.deliver(request);
        }
        step
    }

    /// Makes a call visible at the other end of a connection to ourselves, as on the kernel's
    /// loopback device.
    #[cold]
    fn deliver(&mut self, request: &Request) {
        match *request {
            Request::Write { fd, .. } | Request::Send { fd, .. } => self.deliver_sent(fd),
            Request::Connect { .. }
            | Request::Shutdown { .. }
            | Request::Close { .. }
            | Request::Dup2 { .. }
            | Request::Dup3 { .. } => self.context.deliver_to_itself(),
            _ => {}
        }
    }

    /// Delivers the bytes that `fd` sent, if it is connected to ourselves.
    #[inline]
    pub(crate) fn deliver_sent(&mut self, fd: i32) {
        if self.context.talks_to_itself()
            && let Ok(entry) = self.entry(fd)
            && let File::Stream(stream) = &entry.file
            && stream.tcp.is_to_itself()
        {
            self.context.deliver_to_itself();
        }
    }

    fn step_of(&mut self, request: &Request, progress: &mut Progress, reply: &mut Reply) -> Step {
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
            Request::Dup { fd } => self.dup(fd, 0, false),
            Request::Dup2 { fd, to } => self.dup2(fd, to),
            Request::Dup3 { fd, to, flags } => self.dup3(fd, to, flags),
            Request::Shutdown { fd, how } => self.shutdown(fd, how),
            Request::Getsockname { fd } => self.getsockname(fd, reply),
            Request::Getpeername { fd } => self.getpeername(fd, reply),
            _ => self.other_step(request, progress, reply),
        }
    }

    /// Steps of calls for options and readiness.
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

    /// The description behind `fd`.
    pub(crate) fn entry(&mut self, fd: i32) -> Result<&mut Entry, Errno> {
        self.files.at_mut(fd).ok_or(Errno::BADF)
    }

    /// The socket behind `fd`.
    pub(crate) fn socket_entry(&mut self, fd: i32) -> Result<&mut Entry, Errno> {
        let entry = self.entry(fd)?;
        match entry.file {
            File::Epoll(_) | File::Kernel(_) => Err(Errno::NOTSOCK),
            _ => Ok(entry),
        }
    }

    /// The context, and the description behind `fd`.
    pub(crate) fn with_context(&self, fd: i32) -> Option<(&Context, &Entry)> {
        Some((&self.context, self.files.at(fd)?))
    }

    /// The context, and the socket behind `fd`.
    pub(crate) fn socket_with_context(&mut self, fd: i32) -> Result<(&Context, &mut Entry), Errno> {
        let entry = self.files.at_mut(fd).ok_or(Errno::BADF)?;
        match entry.file {
            File::Epoll(_) | File::Kernel(_) => Err(Errno::NOTSOCK),
            _ => Ok((&self.context, entry)),
        }
    }
}

/// True if a wait is over. The first call sets its deadline.
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

impl Call {
    /// Carries the call on.
    pub fn poll(&mut self, sockets: &mut Sockets) -> Outcome {
        sockets.carry_on(&self.request, &mut self.progress, &mut self.reply)
    }
}
