//! epoll: the kernel's watches what is the kernel's, and one of `posix` beside it what is
//! Millstream's. A wait merges both.

use posix::{EpollEvent, Errno, Request, number};

use crate::engine::{self, Engine, Socket, Watch, What};
use crate::kernel_epoll_unsafe::{kernel_epoll_ctl, kernel_epoll_events};
use crate::listeners;
use crate::marks::{self, Mark};
use crate::sleep::{self, Attempt, Signals};
use crate::sleepers::{self, News};

/// The entry of an epoll and the epoll of `posix` beside it, made for the first socket.
fn beside(engine: &mut Engine, epfd: i32) -> Result<(usize, i32), Errno> {
    if let Mark::Epoll(key) = marks::of(epfd)
        && let What::Epoll(id) = engine.entry(key)?.what
    {
        return Ok((key, id));
    }
    // The kernel's answer for what is no epoll.
    crate::kernel_epoll_unsafe::check_epoll(epfd)?;
    let (id, _) = engine.net()?.call(Request::EpollCreate { flags: 0 })?;
    let key = engine.put(What::Epoll(id as i32));
    marks::set(epfd, Mark::Epoll(key));
    Ok((key, id as i32))
}

/// Begins to watch a socket of Millstream's under one of its descriptors.
///
/// # Errors
/// As `epoll_ctl`.
pub fn add(
    engine: &mut Engine,
    epfd: i32,
    (fd, key): (i32, usize),
    socket: Socket,
    event: EpollEvent,
) -> Result<(), Errno> {
    let (epoll, epoll_id) = beside(engine, epfd)?;
    let watches = &engine.entry(key)?.watches;
    let here = || watches.iter().filter(|watch| watch.epoll == epoll);
    if here().any(|watch| watch.fd == fd) {
        return Err(Errno::EXIST);
    }
    let is_copy = here().any(|watch| watch.id == socket.id);
    let id = match is_copy {
        false => socket.id,
        true => engine.open()?.call(Request::Dup { fd: socket.id })?.0 as i32,
    };
    if let Err(errno) = change(engine, epoll_id, number::EPOLL_CTL_ADD, id, event) {
        close_copy(engine, socket, id);
        return Err(errno);
    }
    engine.entry(key)?.watches.push(Watch { epoll, fd, id });
    if socket.is_both {
        kernel_epoll_ctl(epfd, number::EPOLL_CTL_ADD, fd, event)?;
    }
    Ok(())
}

/// Closes a copy in `posix` that was made to be watched.
fn close_copy(engine: &mut Engine, socket: Socket, id: i32) {
    if id != socket.id
        && let Ok(net) = engine.open()
    {
        // Another number stands for the socket, so there is nothing to wait for.
        let _ = net.call(Request::Close { fd: id });
    }
}

/// A socket is about to be closed: so are the copies that epolls watch.
pub fn forget_copies(engine: &mut Engine, key: usize) {
    forget_of(engine, key, &|_| true);
}

/// An epoll is about to be closed.
pub fn forget(engine: &mut Engine, is_over: impl Fn(&Watch) -> bool) {
    for key in 0..engine.entries_count() {
        forget_of(engine, key, &is_over);
    }
}

fn forget_of(engine: &mut Engine, key: usize, is_over: &impl Fn(&Watch) -> bool) {
    let over = engine.take_watches(key, is_over);
    if let Some(socket) = engine.entry(key).ok().and_then(|entry| entry.what.socket()) {
        for watch in over {
            close_copy(engine, socket, watch.id);
        }
    }
}

fn change(
    engine: &mut Engine,
    epfd: i32,
    op: i32,
    fd: i32,
    event: EpollEvent,
) -> Result<(), Errno> {
    let request = Request::EpollCtl {
        epfd,
        op,
        fd,
        event,
    };
    engine.open()?.call(request).map(|_| ())
}

/// `epoll_ctl` of a socket of Millstream's.
///
/// # Errors
/// As for libc's.
pub fn control(epfd: i32, op: i32, fd: i32, key: usize, event: EpollEvent) -> Result<i64, Errno> {
    engine::with(|engine| {
        let socket = match op {
            number::EPOLL_CTL_DEL => listeners::socket(engine, key)?,
            _ => listeners::ready(engine, key)?,
        };
        if op == number::EPOLL_CTL_ADD {
            add(engine, epfd, (fd, key), socket, event)?;
            return Ok(0);
        }
        let Mark::Epoll(_) = marks::of(epfd) else {
            // Nothing of ours is in it.
            crate::kernel_epoll_unsafe::check_epoll(epfd)?;
            return Err(Errno::NOENT);
        };
        let (epoll, epoll_id) = beside(engine, epfd)?;
        let is_it = |watch: &Watch| (watch.epoll, watch.fd) == (epoll, fd);
        let watches = &engine.entry(key)?.watches;
        let watch = *watches
            .iter()
            .find(|watch| is_it(watch))
            .ok_or(Errno::NOENT)?;
        change(engine, epoll_id, op, watch.id, event)?;
        if op == number::EPOLL_CTL_DEL {
            forget_of(engine, key, &is_it);
        }
        if socket.is_both {
            kernel_epoll_ctl(epfd, op, fd, event)?;
        }
        Ok(0)
    })
}

/// `epoll_ctl` of an undecided socket was made in the kernel: it is remembered until the socket is
/// decided.
pub fn note(epfd: i32, op: i32, fd: i32, key: usize, event: EpollEvent) {
    // A socket that another thread has closed meanwhile needs no note.
    let _ = engine::locked(|engine| {
        if let What::Undecided(undecided) = &mut engine.entry(key)?.what {
            let watched = &mut undecided.watched;
            watched.retain(|(other, number, _)| (*other, *number) != (epfd, fd));
            if op != number::EPOLL_CTL_DEL {
                watched.push((epfd, fd, event));
            }
        }
        Ok(())
    });
}

/// `epoll_wait` of an epoll that watches sockets of Millstream's.
///
/// # Errors
/// As for libc's.
pub fn wait(
    epfd: i32,
    key: usize,
    max: i32,
    until_ns: Option<u64>,
    mask: Option<libc::sigset_t>,
) -> Result<Vec<EpollEvent>, Errno> {
    let room = usize::try_from(max).unwrap_or(0);
    let mut found = Vec::new();
    sleepers::told_of(0);
    sleep::until_done(Signals::End(mask), |engine| {
        let id = match engine.entry(key)?.what {
            What::Epoll(id) => id,
            _ => return Err(Errno::BADF),
        };
        let sockets = engine.open()?.sockets();
        let news = News::begin_exclusive(sockets, sockets.awaited(id));
        sockets.epoll_wait_into(id, room, 0, &mut found)?;
        let left = room - found.len().min(room);
        if left > 0 {
            merge(&mut found, kernel_epoll_events(epfd, left)?);
        }
        let is_over = until_ns.is_some_and(|at_ns| packetio::wait::monotonic_ns() >= at_ns);
        if !found.is_empty() || is_over {
            return Ok(Attempt::Done(()));
        }
        let kernel = vec![(epfd, libc::POLLIN)];
        Ok(Attempt::Wait {
            until_ns,
            kernel,
            news,
        })
    })?;
    sleepers::told_of(found.len());
    Ok(found)
}

/// Adds the kernel's events. A listener that both have is told of once.
fn merge(found: &mut Vec<EpollEvent>, kernel: Vec<EpollEvent>) {
    let own = found.len();
    for event in kernel {
        match found[..own]
            .iter_mut()
            .find(|other| other.data == event.data)
        {
            Some(other) => other.events |= event.events,
            None => found.push(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_of_both_is_told_of_once() {
        let event = |events, data| EpollEvent { events, data };
        let mut found = vec![event(1, 7), event(4, 8)];
        merge(&mut found, vec![event(8, 7), event(1, 9)]);
        assert_eq!(found, [event(9, 7), event(4, 8), event(1, 9)]);
    }
}
