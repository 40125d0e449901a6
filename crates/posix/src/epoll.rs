//! `poll` and epoll.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use millstream::{Events, Interest, Mode, Poll, Readiness, Source, Token};
use rustix::io::Errno;

use crate::call::{Progress, Reply};
use crate::error_queue::{self, is_told};
use crate::kernel;
use crate::number::*;
use crate::request::{EpollEvent, PollFd};
use crate::sockets::{Entry, File, Sockets, Step, errno, is_over};

/// The most events that a wait may ask for (`EP_MAX_EVENTS`): as many of the kernel's structures as an `int` counts bytes.
const EVENTS_MAX: usize = i32::MAX as usize / 12;

/// An epoll descriptor.
pub(crate) struct Epoll {
    poll: Poll,
    watched: Watched,
    events: Events,
}

impl Epoll {
    /// What it watches of the kernel's, for those who sleep until something is ready.
    pub fn kernel_fd(&self) -> Option<BorrowedFd<'_>> {
        self.poll.kernel_fd()
    }
}

/// What is watched, by descriptor.
#[derive(Default)]
struct Watched {
    places: Vec<Option<EpollEvent>>,
}

impl Watched {
    fn at(&self, fd: i32) -> Option<EpollEvent> {
        *self.places.get(usize::try_from(fd).ok()?)?
    }

    fn set(&mut self, fd: i32, event: EpollEvent) {
        let Ok(place) = usize::try_from(fd) else {
            return;
        };
        if place >= self.places.len() {
            self.places.resize(place + 1, None);
        }
        self.places[place] = Some(event);
    }

    fn remove(&mut self, fd: i32) -> Option<EpollEvent> {
        self.places.get_mut(usize::try_from(fd).ok()?)?.take()
    }

    fn iter(&self) -> impl Iterator<Item = (i32, EpollEvent)> {
        let numbered = self.places.iter().enumerate();
        numbered.filter_map(|(fd, event)| Some((fd as i32, (*event)?)))
    }
}

/// What `poll` says of a socket.
fn mask(ready: Readiness) -> u32 {
    let pairs = [
        (Readiness::READABLE, EPOLLIN | EPOLLRDNORM),
        (Readiness::WRITABLE, EPOLLOUT | EPOLLWRNORM),
        (Readiness::READ_CLOSED, EPOLLRDHUP),
        (Readiness::HANGUP, EPOLLHUP),
        (Readiness::ERROR, EPOLLERR),
        (Readiness::URGENT, EPOLLPRI),
    ];
    let said = pairs.iter().filter(|(flag, _)| ready.contains(*flag));
    said.fold(0, |all, (_, bits)| all | bits)
}

/// What `poll` says of a descriptor, asked for `events`.
fn ready(file: &File, events: u32) -> u32 {
    mask(match file {
        File::Idle(socket) | File::Deferred(socket, _) => socket.readiness(),
        File::Listener(listener) => listener.readiness(),
        File::Stream(stream) => stream.tcp.readiness(),
        File::Kernel(fd) => return kernel::ready(fd, events as i16) as u32,
        File::Epoll(epoll) => epoll.poll.readiness(),
        File::Lost => Readiness::NONE,
    })
}

fn millis(timeout_ms: i32) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

impl Sockets {
    pub(crate) fn poll(
        &mut self,
        fds: &[PollFd],
        timeout_ms: i32,
        progress: &mut Progress,
        reply: &mut Reply,
    ) -> Step {
        let mut found = fds.to_vec();
        for entry in &mut found {
            entry.revents = self.poll_one(entry.fd, entry.events);
        }
        let count = found.iter().filter(|entry| entry.revents != 0).count();
        let now_ns = self.context.now_ns();
        if count == 0 && !is_over(progress, now_ns, millis(timeout_ms)) {
            return Ok(None);
        }
        *reply = Reply::Poll(found);
        Ok(Some(count as i64))
    }

    pub(crate) fn poll_one(&mut self, fd: i32, events: i16) -> i16 {
        if fd < 0 {
            return 0;
        }
        match self.entry(fd) {
            Err(_) => POLLNVAL,
            Ok(entry) => {
                let mut said = ready(&entry.file, events as u32) as i16;
                if is_told(entry, false) {
                    said |= error_queue::mask(entry) as i16;
                }
                if entry.error.get().is_some() && !matches!(entry.file, File::Listener(_)) {
                    said |= POLLERR;
                }
                if entry.read_shut.get() && matches!(entry.file, File::Idle(_)) {
                    said |= POLLIN | POLLRDNORM | POLLRDHUP;
                }
                said & (events | POLLERR | POLLHUP)
            }
        }
    }

    pub(crate) fn epoll_create(&mut self, flags: i32) -> Step {
        if flags & !EPOLL_CLOEXEC != 0 {
            return Err(Errno::INVAL);
        }
        let poll = Poll::new(&self.context);
        let file = File::Epoll(Epoll {
            poll,
            watched: Watched::default(),
            events: Events::with_capacity(1),
        });
        let fd = self.install(Entry {
            close_on_exec: flags & EPOLL_CLOEXEC != 0,
            ..Entry::of(file, false)
        })?;
        Ok(Some(fd.into()))
    }

    pub(crate) fn epoll_ctl(&mut self, epfd: i32, op: i32, fd: i32, event: EpollEvent) -> Step {
        self.entry(epfd)?;
        self.entry(fd)?;
        let Some((epoll, entry)) = self.pair(epfd, fd) else {
            return Err(Errno::INVAL);
        };
        let File::Epoll(epoll) = &mut epoll.file else {
            return Err(Errno::INVAL);
        };
        check_exclusive(op, &entry.file, event.events)?;
        match op {
            EPOLL_CTL_ADD if epoll.watched.at(fd).is_some() => return Err(Errno::EXIST),
            EPOLL_CTL_ADD => {
                add(&mut epoll.poll, &mut entry.file, fd, event)?;
                epoll.watched.set(fd, event);
            }
            EPOLL_CTL_MOD => {
                epoll.watched.at(fd).ok_or(Errno::NOENT)?;
                change(&mut epoll.poll, &mut entry.file, fd, event)?;
                epoll.watched.set(fd, event);
            }
            EPOLL_CTL_DEL => {
                epoll.watched.remove(fd).ok_or(Errno::NOENT)?;
                remove(&mut epoll.poll, &mut entry.file)?;
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(Some(0))
    }

    pub(crate) fn epoll_wait(
        &mut self,
        epfd: i32,
        max_events: i32,
        timeout_ms: i32,
        progress: &mut Progress,
        reply: &mut Reply,
    ) -> Step {
        let max = usize::try_from(max_events).unwrap_or(0);
        let mut found = Vec::new();
        self.epoll_found(epfd, max, Some(Duration::ZERO), &mut found)?;
        let now_ns = self.context.now_ns();
        if found.is_empty() && !is_over(progress, now_ns, millis(timeout_ms)) {
            return Ok(None);
        }
        let count = found.len() as i64;
        *reply = Reply::Epoll(found);
        Ok(Some(count))
    }

    /// Appends the events that were asked for, `max` at most; waits for some up to `timeout`.
    pub(crate) fn epoll_found(
        &mut self,
        epfd: i32,
        max: usize,
        timeout: Option<Duration>,
        found: &mut Vec<EpollEvent>,
    ) -> Result<(), Errno> {
        let File::Epoll(epoll) = &mut self.entry(epfd)?.file else {
            return Err(Errno::INVAL);
        };
        if max == 0 || max > EVENTS_MAX {
            return Err(Errno::INVAL);
        }
        epoll.events.set_capacity(max);
        let waited = epoll.poll.wait(&mut epoll.events, timeout);
        waited.map_err(|error| errno(&error))?;
        for event in &epoll.events {
            let fd = event.token().0 as i32;
            let Some(watched) = epoll.watched.at(fd) else {
                continue;
            };
            let said = event
                .kernel_events()
                .unwrap_or_else(|| mask(event.readiness()));
            let said = said & (watched.events | EPOLLERR | EPOLLHUP);
            if said != 0 {
                found.push(EpollEvent {
                    events: said,
                    data: watched.data,
                });
            }
        }
        if self.has_notifications {
            self.add_notifications(epfd, max, found);
        }
        Ok(())
    }

    /// Notifications of the error queues: to the events of their sockets, or as events of their own. Which socket an event is of, its `data` need not say; so
    /// each is told by what epoll holds of it.
    fn add_notifications(&mut self, epfd: i32, max: usize, found: &mut Vec<EpollEvent>) {
        let watched: Vec<(i32, EpollEvent)> = match self.entry(epfd) {
            Ok(Entry {
                file: File::Epoll(epoll),
                ..
            }) => epoll.watched.iter().collect(),
            _ => return,
        };
        for (fd, event) in watched {
            let Ok(entry) = self.entry(fd) else { continue };
            let is_edge = event.events & EPOLLET != 0;
            if !is_told(entry, is_edge) {
                continue;
            }
            let queued = error_queue::mask(entry) & (event.events | EPOLLERR);
            let said = ready(&entry.file, event.events) & event.events | queued;
            if let Some(other) = found.iter_mut().find(|other| other.data == event.data) {
                other.events |= said;
            } else if found.len() < max {
                found.push(EpollEvent {
                    events: said,
                    data: event.data,
                });
            }
        }
    }

    /// A descriptor stands for another socket now: the polls that watch it watch that.
    pub(crate) fn watch_again(&mut self, fd: i32) {
        for epfd in self.watchers(fd) {
            if let Some((epoll, entry)) = self.pair(epfd, fd)
                && let File::Epoll(epoll) = &mut epoll.file
                && let Some(event) = epoll.watched.at(fd)
            {
                // A new socket is watched by nobody yet.
                let _ = add(&mut epoll.poll, &mut entry.file, fd, event);
            }
        }
    }

    /// A descriptor is about to be closed.
    pub(crate) fn forget_watched(&mut self, fd: i32) {
        for epfd in self.watchers(fd) {
            if let Some((epoll, entry)) = self.pair(epfd, fd)
                && let File::Epoll(epoll) = &mut epoll.file
            {
                epoll.watched.remove(fd);
                // The kernel goes on watching what has another descriptor somewhere.
                if matches!(entry.file, File::Kernel(_)) {
                    let _ = remove(&mut epoll.poll, &mut entry.file);
                }
            }
        }
    }

    fn watchers(&mut self, fd: i32) -> Vec<i32> {
        let watches = |&epfd: &i32| match self.with_context(epfd) {
            Some((_, entry)) => match &entry.file {
                File::Epoll(epoll) => epoll.watched.at(fd).is_some(),
                _ => false,
            },
            None => false,
        };
        self.epolls.iter().copied().filter(watches).collect()
    }
}

/// `EPOLLEXCLUSIVE` goes with few others; a context has one thread, so nobody else is there to be left asleep.
fn check_exclusive(op: i32, file: &File, events: u32) -> Result<(), Errno> {
    const ALONG: u32 = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET;
    let is_asked = events & EPOLLEXCLUSIVE != 0 && op != EPOLL_CTL_DEL;
    let is_fitting = op == EPOLL_CTL_ADD
        && !matches!(file, File::Epoll(_))
        && events & !(ALONG | EPOLLEXCLUSIVE) == 0;
    match is_asked && !is_fitting {
        true => Err(Errno::INVAL),
        false => Ok(()),
    }
}

/// What Millstream's poll is asked: nothing that nobody asked for, or a wait would return with it again and again.
fn wanted(event: EpollEvent) -> (Interest, Mode) {
    let pairs = [
        (EPOLLIN | EPOLLRDNORM, Interest::READABLE),
        (EPOLLOUT | EPOLLWRNORM, Interest::WRITABLE),
        (EPOLLRDHUP, Interest::READ_CLOSED),
        (EPOLLPRI, Interest::URGENT),
    ];
    let asked = pairs.iter().filter(|(bits, _)| event.events & bits != 0);
    let interest = asked.fold(Interest::NONE, |all, (_, one)| all | *one);
    let mode = match event.events & EPOLLET {
        0 => Mode::Level,
        _ => Mode::Edge,
    };
    (interest, mode)
}

fn add(poll: &mut Poll, file: &mut File, fd: i32, event: EpollEvent) -> Result<(), Errno> {
    fn with(poll: &mut Poll, source: &impl Source, fd: i32, event: EpollEvent) -> io::Result<()> {
        let (interest, mode) = wanted(event);
        let token = Token(fd as usize);
        match event.events & EPOLLONESHOT {
            0 => poll.register(source, token, interest, mode),
            _ => poll.register_once(source, token, interest, mode),
        }
    }
    let added = match file {
        File::Idle(socket) | File::Deferred(socket, _) => with(poll, socket, fd, event),
        File::Listener(listener) => with(poll, listener, fd, event),
        File::Stream(stream) => with(poll, &stream.tcp, fd, event),
        File::Kernel(kernel) => poll.register_fd_with(kernel, Token(fd as usize), event.events),
        File::Epoll(inner) => {
            let (interest, mode) = wanted(event);
            let (token, once) = (Token(fd as usize), event.events & EPOLLONESHOT != 0);
            poll.register_poll(&mut inner.poll, token, interest, mode, once)
        }
        File::Lost => return Err(Errno::PERM),
    };
    added.map_err(|error| errno(&error))
}

fn change(poll: &mut Poll, file: &mut File, fd: i32, event: EpollEvent) -> Result<(), Errno> {
    fn with(poll: &mut Poll, source: &impl Source, fd: i32, event: EpollEvent) -> io::Result<()> {
        let (interest, mode) = wanted(event);
        let token = Token(fd as usize);
        match event.events & EPOLLONESHOT {
            0 => poll.reregister(source, token, interest, mode),
            _ => poll.reregister_once(source, token, interest, mode),
        }
    }
    let changed = match file {
        File::Idle(socket) | File::Deferred(socket, _) => with(poll, socket, fd, event),
        File::Listener(listener) => with(poll, listener, fd, event),
        File::Stream(stream) => with(poll, &stream.tcp, fd, event),
        File::Kernel(kernel) => poll.reregister_fd_with(kernel, Token(fd as usize), event.events),
        File::Epoll(inner) => {
            let (interest, mode) = wanted(event);
            let (token, once) = (Token(fd as usize), event.events & EPOLLONESHOT != 0);
            poll.reregister_poll(&mut inner.poll, token, interest, mode, once)
        }
        File::Lost => return Err(Errno::NOENT),
    };
    changed.map_err(|error| errno(&error))
}

fn remove(poll: &mut Poll, file: &mut File) -> Result<(), Errno> {
    let removed = match file {
        File::Idle(socket) | File::Deferred(socket, _) => poll.deregister(socket),
        File::Listener(listener) => poll.deregister(listener),
        File::Stream(stream) => poll.deregister(&stream.tcp),
        File::Kernel(kernel) => poll.deregister_fd(kernel),
        File::Epoll(inner) => poll.deregister_poll(&mut inner.poll),
        File::Lost => return Err(Errno::NOENT),
    };
    removed.map_err(|error| errno(&error))
}
