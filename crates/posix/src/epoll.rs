//! `poll` and epoll.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use millstream::{Events, Interest, Mode, Poll, Readiness, Source};
use rustix::io::Errno;

use crate::call::{Progress, Reply};
use crate::entry::{Entry, Epoll, File, Key, Watch, Watched, errno};
use crate::error_queue::{self, Notices};
use crate::kernel;
use crate::number::*;
use crate::request::{EpollEvent, PollFd};
use crate::sockets::{Sockets, Step, is_over};

/// Largest number of events that a wait may ask for (`EP_MAX_EVENTS`): as many `struct epoll_event`
/// as an `int` can count the bytes of.
const EVENTS_MAX: usize = i32::MAX as usize / 12;

impl Epoll {
    /// The kernel descriptors that it watches, as one descriptor to sleep on.
    pub fn kernel_fd(&self) -> Option<BorrowedFd<'_>> {
        self.poll.kernel_fd()
    }

    /// Adds the notices of a descriptor to its event, or as an event of its own with the bits
    /// `reported`. True: the watch is one-shot, and the poll does not know of the report.
    fn add_notice(
        &mut self,
        (place, key): (usize, Key),
        notices: Notices,
        reported: u32,
        max: usize,
        found: &mut Vec<EpollEvent>,
    ) -> bool {
        let Some(watch) = self.watched.at_mut(key) else {
            return false;
        };
        if reported == 0 && notices.poll_bits == 0 {
            watch.seen = notices.count;
            return false;
        }
        let told = self.told.iter().position(|told| *told == key);
        if let Some(place) = told {
            found[place].events |= watch.only_asked(notices.poll_bits);
        } else if reported != 0 && found.len() == max {
            self.owed.get_or_insert(place);
            return false;
        } else if reported != 0 {
            found.push(EpollEvent {
                events: reported,
                data: watch.data,
            });
            self.told.push(key);
        }
        watch.seen = notices.count;
        told.is_none() && reported != 0 && watch.events & EPOLLONESHOT != 0
    }

    /// Turns a one-shot watch off after the report of a notice, of which the poll does not know.
    fn switch_off(&mut self, key: Key, file: &mut File) {
        if let Some(watch) = self.watched.at_mut(key) {
            (watch.is_off, watch.is_polled) = (true, false);
            // An error means that the descriptor can no longer be watched.
            let _ = remove(&mut self.poll, file, key);
        }
    }
}

impl Watch {
    /// A watch that reports all present readiness as news.
    const fn new(event: EpollEvent, description: i32) -> Self {
        Self {
            events: event.events,
            seen: 0,
            data: event.data,
            description,
            is_off: false,
            is_polled: true,
        }
    }

    const fn event(self) -> EpollEvent {
        EpollEvent {
            events: self.events,
            data: self.data,
        }
    }

    /// The events that a descriptor's notices cause, when the poll has found none. A
    /// level-triggered watch reports them at each wait while notices wait, an edge-triggered one
    /// after a further notice.
    fn events_of_notices(self, file: &File, notices: Notices) -> u32 {
        let is_due = match self.events & EPOLLET {
            0 => self.only_asked(notices.poll_bits) != 0,
            _ => notices.count != self.seen,
        };
        match is_due && !self.is_off {
            true => self.only_asked(ready(file, self.events) | notices.poll_bits),
            false => 0,
        }
    }

    const fn only_asked(self, events: u32) -> u32 {
        events & (self.events | EPOLLERR | EPOLLHUP)
    }
}

/// A socket's readiness as bits of `poll`.
fn mask(ready: Readiness) -> u32 {
    let pairs = [
        (Readiness::READABLE, EPOLLIN | EPOLLRDNORM),
        (Readiness::WRITABLE, EPOLLOUT | EPOLLWRNORM),
        (Readiness::READ_CLOSED, EPOLLRDHUP),
        (Readiness::HANGUP, EPOLLHUP),
        (Readiness::ERROR, EPOLLERR),
        (Readiness::URGENT, EPOLLPRI),
    ];
    let reported = pairs.iter().filter(|(flag, _)| ready.contains(*flag));
    reported.fold(0, |all, (_, bits)| all | bits)
}

/// A descriptor's readiness as bits of `poll`, among `events`.
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
                let mut reported = ready(&entry.file, events as u32) as i16;
                reported |= error_queue::refill(entry).poll_bits as i16;
                if entry.error.get().is_some() && !matches!(entry.file, File::Listener(_)) {
                    reported |= POLLERR;
                }
                if entry.read_shut.get() && matches!(entry.file, File::Idle(_)) {
                    reported |= POLLIN | POLLRDNORM | POLLRDHUP;
                }
                if matches!(entry.file, File::Epoll(_)) && self.has_notifications {
                    reported |= self.notices_of(fd).poll_bits as i16;
                }
                reported & (events | POLLERR | POLLHUP)
            }
        }
    }

    pub(crate) fn epoll_create(&mut self, flags: i32) -> Step {
        if flags & !EPOLL_CLOEXEC != 0 {
            return Err(Errno::INVAL);
        }
        let poll = Poll::naming_by_token(&self.context);
        let file = File::Epoll(Epoll {
            poll,
            watched: Watched::default(),
            events: Events::with_capacity(1),
            told: Vec::new(),
            owed: None,
            notices_first: false,
        });
        let entry = Entry::of(file, false);
        let fd = self.install(entry, flags & EPOLL_CLOEXEC != 0)?;
        Ok(Some(fd.into()))
    }

    pub(crate) fn epoll_ctl(&mut self, epfd: i32, op: i32, fd: i32, event: EpollEvent) -> Step {
        let epoll = self.files.number_of(epfd).ok_or(Errno::BADF)?;
        let description = self.files.number_of(fd).ok_or(Errno::BADF)?;
        let key = Key { fd, description };
        let Some((epoll, entry)) = self.files.pair_mut(epoll, description) else {
            return Err(Errno::INVAL);
        };
        let File::Epoll(epoll) = &mut epoll.file else {
            return Err(Errno::INVAL);
        };
        check_exclusive(op, &entry.file, event.events)?;
        match op {
            EPOLL_CTL_ADD if epoll.watched.at(key).is_some() => return Err(Errno::EXIST),
            EPOLL_CTL_ADD => {
                add(&mut epoll.poll, &mut entry.file, key, event)?;
                epoll.watched.set(fd, Watch::new(event, description));
            }
            EPOLL_CTL_MOD => {
                match epoll.watched.at(key).ok_or(Errno::NOENT)?.is_polled {
                    true => change(&mut epoll.poll, &mut entry.file, key, event)?,
                    false => add(&mut epoll.poll, &mut entry.file, key, event)?,
                }
                epoll.watched.set(fd, Watch::new(event, description));
            }
            EPOLL_CTL_DEL => {
                if epoll.watched.remove(key).ok_or(Errno::NOENT)?.is_polled {
                    remove(&mut epoll.poll, &mut entry.file, key)?;
                }
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

    /// Appends up to `max` events to `found`, which is empty. Waits for some, up to `timeout`.
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
        epoll.told.clear();
        epoll.notices_first = epoll.owed.is_some() && !epoll.notices_first;
        if epoll.notices_first {
            self.add_notices(epfd, max, found);
        }
        let timeout = match found.is_empty() {
            true => timeout,
            false => Some(Duration::ZERO),
        };
        if found.len() < max {
            let added = self.add_events(epfd, max, timeout, found);
            // This wait reports what it found, and the next one the error.
            added.or_else(|errno| if found.is_empty() { Err(errno) } else { Ok(()) })?;
        }
        if self.has_notifications {
            self.add_notices(epfd, max, found);
        }
        Ok(())
    }

    /// Appends events from the poll, as far as there is room.
    fn add_events(
        &mut self,
        epfd: i32,
        max: usize,
        timeout: Option<Duration>,
        found: &mut Vec<EpollEvent>,
    ) -> Result<(), Errno> {
        let has_notifications = self.has_notifications;
        let File::Epoll(epoll) = &mut self.entry(epfd)?.file else {
            return Err(Errno::INVAL);
        };
        let by_notice = found.len();
        let mut last = -1;
        epoll.events.set_capacity(max - by_notice);
        let waited = epoll.poll.wait(&mut epoll.events, timeout);
        waited.map_err(|error| errno(&error))?;
        for event in &epoll.events {
            let key = Key::of(event.token());
            let Some(watch) = epoll.watched.at_mut(key) else {
                continue;
            };
            let reported = event
                .kernel_events()
                .unwrap_or_else(|| mask(event.readiness()));
            let reported = watch.only_asked(reported);
            if reported == 0 {
                continue;
            }
            watch.is_off = watch.events & EPOLLONESHOT != 0;
            match epoll.told[..by_notice].iter().position(|told| *told == key) {
                Some(place) => found[place].events |= reported,
                None => {
                    found.push(EpollEvent {
                        events: reported,
                        data: watch.data,
                    });
                    last = key.fd;
                    if has_notifications {
                        epoll.told.push(key);
                    }
                }
            }
        }
        self.polled_last = last;
        Ok(())
    }

    /// Adds notices to the events of their descriptors, or as events of their own. Begins at the
    /// watch that found no room last time, and goes around.
    fn add_notices(&mut self, epfd: i32, max: usize, found: &mut Vec<EpollEvent>) {
        let owed = match self.entry(epfd).map(|entry| &mut entry.file) {
            Ok(File::Epoll(epoll)) => epoll.owed.take(),
            _ => return,
        };
        let first = owed.unwrap_or(0);
        for part in [first..usize::MAX, 0..first] {
            let mut from = part.start;
            while let Some((place, key, watch)) = self.watch_from(epfd, from)
                && place < part.end
            {
                from = place + 1;
                let notices = self.notices(key.description);
                if let Some((epoll, entry)) = self.watch_pair(epfd, key)
                    && let File::Epoll(epoll) = &mut epoll.file
                {
                    let reported = watch.events_of_notices(&entry.file, notices);
                    if epoll.add_notice((place, key), notices, reported, max, found) {
                        epoll.switch_off(key, &mut entry.file);
                    }
                }
            }
        }
    }

    fn notices_of(&mut self, fd: i32) -> Notices {
        let description = self.files.number_of(fd);
        description.map_or_else(Notices::default, |number| self.notices(number))
    }

    /// The notices about a description, which no event of the stack announces. An epoll is readable
    /// while it would report notices.
    fn notices(&mut self, description: i32) -> Notices {
        match self.files.description_mut(description) {
            Some(Entry {
                file: File::Epoll(_),
                ..
            }) => {}
            Some(entry) => return error_queue::refill(entry),
            None => return Notices::default(),
        }
        let mut all = Notices::default();
        let mut from = 0;
        while let Some((place, key, watch)) = self.watch_in(description, from) {
            from = place + 1;
            if watch.is_off {
                continue;
            }
            let notices = self.notices(key.description);
            all.count = all.count.wrapping_add(notices.count);
            if let Some(entry) = self.files.description(key.description)
                && watch.events_of_notices(&entry.file, notices) != 0
            {
                all.poll_bits = EPOLLIN | EPOLLRDNORM;
            }
        }
        all
    }

    /// The first watch of an epoll at or after a place.
    fn watch_from(&self, epfd: i32, place: usize) -> Option<(usize, Key, Watch)> {
        self.watch_in(self.files.number_of(epfd)?, place)
    }

    fn watch_in(&self, epoll: i32, place: usize) -> Option<(usize, Key, Watch)> {
        match &self.files.description(epoll)?.file {
            File::Epoll(epoll) => epoll.watched.from(place),
            _ => None,
        }
    }

    /// An epoll, and the description that one of its watches is on.
    fn watch_pair(&mut self, epfd: i32, key: Key) -> Option<(&mut Entry, &mut Entry)> {
        let epoll = self.files.number_of(epfd)?;
        self.files.pair_mut(epoll, key.description)
    }

    /// Registers the new socket of a description with all polls that watch the description.
    pub(crate) fn watch_again(&mut self, fd: i32) {
        let Some(description) = self.files.number_of(fd) else {
            return;
        };
        let has_copies = self.references(fd) > 1;
        self.at_watches(
            |epoll| match has_copies {
                true => epoll.watched.all_on(description),
                false => epoll.watched.on(fd, description),
            },
            |epoll, entry, key| {
                if let Some(watch) = epoll.watched.at_mut(key) {
                    watch.is_polled = !watch.is_off;
                    if watch.is_polled {
                        // Cannot fail with `EEXIST`: no poll watches a new socket yet.
                        let _ = add(&mut epoll.poll, &mut entry.file, key, watch.event());
                    }
                }
            },
        );
    }

    /// Removes the watches on a description whose last descriptor `fd` is being closed.
    pub(crate) fn forget_watched(&mut self, fd: i32, description: i32) {
        self.at_watches(
            |epoll| epoll.watched.on(fd, description),
            |epoll, entry, key| {
                epoll.watched.remove(key);
                // The kernel would go on watching a file that has another descriptor somewhere.
                if matches!(entry.file, File::Kernel(_)) {
                    let _ = remove(&mut epoll.poll, &mut entry.file, key);
                }
            },
        );
    }

    /// Keeps the watches of a closed descriptor whose description is still open, as Linux does.
    pub(crate) fn orphan_watches(&mut self, fd: i32) {
        for at in 0..self.epolls.len() {
            if let Some(entry) = self.files.description_mut(self.epolls[at])
                && let File::Epoll(epoll) = &mut entry.file
            {
                epoll.watched.orphan_at(fd);
            }
        }
    }

    /// Calls `act` for all watches that `which` finds in an epoll, and for their descriptions.
    fn at_watches(
        &mut self,
        which: impl Fn(&Epoll) -> Vec<Key>,
        mut act: impl FnMut(&mut Epoll, &mut Entry, Key),
    ) {
        for at in 0..self.epolls.len() {
            let number = self.epolls[at];
            let keys = match self.files.description(number).map(|entry| &entry.file) {
                Some(File::Epoll(epoll)) => which(epoll),
                _ => Vec::new(),
            };
            for key in keys {
                if let Some((epoll, entry)) = self.files.pair_mut(number, key.description)
                    && let File::Epoll(epoll) = &mut epoll.file
                {
                    act(epoll, entry, key);
                }
            }
        }
    }
}

/// Checks the events that go with `EPOLLEXCLUSIVE`. The flag needs no further effect: a context has
/// one thread, so no other waiter exists.
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

/// The interest for Millstream's poll. It contains only events that were asked for: a
/// level-triggered poll would return again and again with others.
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

fn add(poll: &mut Poll, file: &mut File, key: Key, event: EpollEvent) -> Result<(), Errno> {
    fn with(poll: &mut Poll, source: &impl Source, key: Key, event: EpollEvent) -> io::Result<()> {
        let (interest, mode) = wanted(event);
        let token = key.token();
        match event.events & EPOLLONESHOT {
            0 => poll.register(source, token, interest, mode),
            _ => poll.register_once(source, token, interest, mode),
        }
    }
    let added = match file {
        File::Idle(socket) | File::Deferred(socket, _) => with(poll, socket, key, event),
        File::Listener(listener) => with(poll, listener, key, event),
        File::Stream(stream) => with(poll, &stream.tcp, key, event),
        File::Kernel(kernel) => poll.register_fd_with(kernel, key.token(), event.events),
        File::Epoll(inner) => {
            let (interest, mode) = wanted(event);
            let (token, once) = (key.token(), event.events & EPOLLONESHOT != 0);
            poll.register_poll(&mut inner.poll, token, interest, mode, once)
        }
        File::Lost => return Err(Errno::PERM),
    };
    added.map_err(|error| errno(&error))
}

fn change(poll: &mut Poll, file: &mut File, key: Key, event: EpollEvent) -> Result<(), Errno> {
    fn with(poll: &mut Poll, source: &impl Source, key: Key, event: EpollEvent) -> io::Result<()> {
        let (interest, mode) = wanted(event);
        let token = key.token();
        match event.events & EPOLLONESHOT {
            0 => poll.reregister(source, token, interest, mode),
            _ => poll.reregister_once(source, token, interest, mode),
        }
    }
    let changed = match file {
        File::Idle(socket) | File::Deferred(socket, _) => with(poll, socket, key, event),
        File::Listener(listener) => with(poll, listener, key, event),
        File::Stream(stream) => with(poll, &stream.tcp, key, event),
        File::Kernel(kernel) => poll.reregister_fd_with(kernel, key.token(), event.events),
        File::Epoll(inner) => {
            let (interest, mode) = wanted(event);
            let (token, once) = (key.token(), event.events & EPOLLONESHOT != 0);
            poll.reregister_poll(&mut inner.poll, token, interest, mode, once)
        }
        File::Lost => return Err(Errno::NOENT),
    };
    changed.map_err(|error| errno(&error))
}

fn remove(poll: &mut Poll, file: &mut File, key: Key) -> Result<(), Errno> {
    let token = key.token();
    let removed = match file {
        File::Idle(socket) | File::Deferred(socket, _) => poll.deregister_as(socket, token),
        File::Listener(listener) => poll.deregister_as(listener, token),
        File::Stream(stream) => poll.deregister_as(&stream.tcp, token),
        File::Kernel(kernel) => poll.deregister_fd(kernel),
        File::Epoll(inner) => poll.deregister_poll(&mut inner.poll),
        File::Lost => return Err(Errno::NOENT),
    };
    removed.map_err(|error| errno(&error))
}
