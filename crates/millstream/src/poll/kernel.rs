//! Kernel descriptors in a [`Poll`]. An epoll, made when first needed, holds them. The poll reports
//! their events in the kernel's own bits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;

use super::Poll;
use crate::event::{Event, Events, Interest, Mode, Readiness, Token};
use crate::interleaving::point;
use crate::limits::KERNEL_ASKED_EVERY_NS;
use crate::poll_set::Wanted;

/// Events that one `epoll_wait` takes.
const KERNEL_EVENTS_MAX: usize = 64;
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

impl Poll {
    /// Begins to watch a descriptor of the kernel, level-triggered.
    ///
    /// # Errors
    /// Errors of `epoll_ctl`.
    ///
    /// ```
    #[doc = include_str!("../doc/context.txt")]
    /// let (reader, writer) = std::io::pipe()?;
    /// let mut poll = Poll::new(&context);
    /// poll.register_fd(&reader, Token(1), Interest::READABLE)?;
    /// drop(writer);
    /// let mut events = Events::with_capacity(8);
    /// assert_eq!(poll.wait(&mut events, None)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register_fd(
        &mut self,
        fd: impl AsFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        let events = kernel_events(Wanted::new(token, interest, Mode::Level, false));
        self.register_fd_with(fd, token, events)
    }

    /// Like [`register_fd`](Self::register_fd), for `events` in the kernel's own bits: `EPOLLIN`,
    /// `EPOLLET`, `EPOLLONESHOT` and so on.
    ///
    /// # Errors
    /// Errors of `epoll_ctl`.
    ///
    /// ```
    #[doc = include_str!("../doc/context.txt")]
    /// const EPOLLIN_ONESHOT: u32 = 1 | 1 << 30;
    /// let (reader, _writer) = std::io::pipe()?;
    /// Poll::new(&context).register_fd_with(&reader, Token(1), EPOLLIN_ONESHOT)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register_fd_with(&mut self, fd: impl AsFd, token: Token, events: u32) -> io::Result<()> {
        let flags = epoll::EventFlags::from_bits_retain(events);
        Ok(epoll::add(self.kernel()?, fd, data(token), flags)?)
    }

    /// Changes the interest in a watched kernel descriptor.
    ///
    /// # Errors
    /// Errors of `epoll_ctl`; `NotFound` if none was ever registered.
    ///
    /// ```
    #[doc = include_str!("../doc/context.txt")]
    /// const EPOLLIN: u32 = 1;
    /// let (reader, _writer) = std::io::pipe()?;
    /// let mut poll = Poll::new(&context);
    /// poll.register_fd_with(&reader, Token(1), 0)?;
    /// poll.reregister_fd_with(&reader, Token(1), EPOLLIN)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reregister_fd_with(
        &mut self,
        fd: impl AsFd,
        token: Token,
        events: u32,
    ) -> io::Result<()> {
        let kernel = self.kernel.as_ref().ok_or(Errno::NOENT)?;
        let flags = epoll::EventFlags::from_bits_retain(events);
        Ok(epoll::modify(kernel, fd, data(token), flags)?)
    }

    /// Stops watching a descriptor of the kernel.
    ///
    /// # Errors
    /// Errors of `epoll_ctl`; `NotFound` if none was ever registered.
    ///
    /// ```
    #[doc = include_str!("../doc/context.txt")]
    /// let (reader, _writer) = std::io::pipe()?;
    /// let mut poll = Poll::new(&context);
    /// poll.register_fd(&reader, Token(1), Interest::READABLE)?;
    /// poll.deregister_fd(&reader)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deregister_fd(&mut self, fd: impl AsFd) -> io::Result<()> {
        let kernel = self.kernel.as_ref().ok_or(Errno::NOENT)?;
        Ok(epoll::delete(kernel, fd)?)
    }

    /// The poll's epoll, if it has one. It is readable while a watched kernel descriptor is ready.
    ///
    /// ```
    #[doc = include_str!("../doc/context.txt")]
    /// let mut poll = Poll::new(&context);
    /// assert!(poll.kernel_fd().is_none());
    /// let (reader, _writer) = std::io::pipe()?;
    /// poll.register_fd(&reader, Token(1), Interest::READABLE)?;
    /// assert!(poll.kernel_fd().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn kernel_fd(&self) -> Option<BorrowedFd<'_>> {
        self.kernel.as_ref().map(AsFd::as_fd)
    }

    /// The poll's epoll, made if need be.
    pub(crate) fn kernel(&mut self) -> io::Result<&OwnedFd> {
        if self.kernel.is_none() {
            self.kernel = Some(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        }
        self.kernel
            .as_ref()
            .ok_or_else(|| io::Error::from(Errno::NOENT))
    }

    pub(crate) fn has_kernel_events(&self) -> bool {
        let Some(kernel) = &self.kernel else {
            return false;
        };
        let mut fds = [PollFd::new(kernel, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&NOW)).is_ok_and(|count| count > 0)
    }

    /// True if the kernel is to be asked now. While the stack is busy or looks for work, that
    /// happens rarely: the system call costs as much as an exchange on a connection.
    pub(crate) fn is_kernel_due(&mut self, now_ns: u64) -> bool {
        if self.kernel.is_none() || self.inner.config().clock.is_virtual() {
            return true;
        }
        let is_due = now_ns.saturating_sub(self.kernel_asked_ns) >= KERNEL_ASKED_EVERY_NS;
        if is_due {
            self.kernel_asked_ns = now_ns;
        }
        is_due
    }

    pub(crate) fn collect_kernel(&mut self, events: &mut Events) -> io::Result<()> {
        let Some(kernel) = &self.kernel else {
            return Ok(());
        };
        let room = (events.capacity - events.events.len()).min(KERNEL_EVENTS_MAX);
        if room == 0 {
            // The kernel was not asked and stays due: the next wait begins with it.
            self.kernel_asked_ns = 0;
            return Ok(());
        }
        let none = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        };
        let mut found = [none; KERNEL_EVENTS_MAX];
        point();
        let count = match epoll::wait(kernel, &mut found[..room], Some(&NOW)) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        for event in &found[..count] {
            // `epoll_event` is a packed structure, so its fields are copied out.
            let flags = event.flags;
            let token = Token(event.data.u64() as usize);
            let ready = readiness(flags);
            events
                .events
                .push(Event::of_kernel(token, ready, flags.bits()));
        }
        Ok(())
    }
}

fn data(token: Token) -> epoll::EventData {
    epoll::EventData::new_u64(token.0 as u64)
}

/// A registration's interest in the kernel's bits.
pub(crate) fn kernel_events(wanted: Wanted) -> u32 {
    use epoll::EventFlags as Flags;
    let interest = wanted.interest;
    let looks_at_end = interest.is_readable() || interest.contains(Interest::READ_CLOSED);
    let mut flags = Flags::empty();
    flags.set(Flags::IN | Flags::RDNORM, interest.is_readable());
    flags.set(Flags::OUT, interest.is_writable());
    flags.set(Flags::RDHUP, looks_at_end);
    flags.set(Flags::PRI, interest.contains(Interest::URGENT));
    flags.set(Flags::ET, wanted.mode == Mode::Edge);
    flags.set(Flags::ONESHOT, wanted.one_shot);
    flags.bits()
}

fn readiness(flags: epoll::EventFlags) -> Readiness {
    let pairs = [
        (epoll::EventFlags::IN, Readiness::READABLE),
        (epoll::EventFlags::OUT, Readiness::WRITABLE),
        (epoll::EventFlags::RDHUP, Readiness::READ_CLOSED),
        (epoll::EventFlags::HUP, Readiness::HANGUP),
        (epoll::EventFlags::ERR, Readiness::ERROR),
        (epoll::EventFlags::PRI, Readiness::URGENT),
    ];
    pairs
        .into_iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .fold(Readiness::NONE, |all, (_, one)| all.union(one))
}
