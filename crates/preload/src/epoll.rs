//! epoll: the kernel's watches what is the kernel's, and one of `posix` beside it what is
//! Millstream's. A wait merges both.

use posix::{EpollEvent, Errno, Request, number};

use crate::engine::{self, Engine, Socket, What};
use crate::kernel_epoll_unsafe::{kernel_epoll_ctl, kernel_epoll_events};
use crate::listeners;
use crate::marks::{self, Mark};
use crate::sleep::{self, Attempt, Signals};

/// The epoll of `posix` beside one of the kernel's, made for the first socket.
fn beside(engine: &mut Engine, epfd: i32) -> Result<i32, Errno> {
    if let Mark::Epoll(key) = marks::of(epfd)
        && let What::Epoll(id) = engine.entry(key)?.what
    {
        return Ok(id);
    }
    // The kernel's answer for what is no epoll.
    crate::kernel_epoll_unsafe::check_epoll(epfd)?;
    let (id, _) = engine.net()?.call(Request::EpollCreate { flags: 0 })?;
    let key = engine.put(What::Epoll(id as i32));
    marks::set(epfd, Mark::Epoll(key));
    Ok(id as i32)
}

/// Begins to watch a socket of Millstream's.
///
/// # Errors
/// As `epoll_ctl`.
pub fn add(
    engine: &mut Engine,
    epfd: i32,
    fd: i32,
    socket: Socket,
    event: EpollEvent,
) -> Result<(), Errno> {
    let id = beside(engine, epfd)?;
    change(engine, id, number::EPOLL_CTL_ADD, socket.id, event)?;
    if socket.is_both {
        kernel_epoll_ctl(epfd, number::EPOLL_CTL_ADD, fd, event)?;
    }
    Ok(())
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
            add(engine, epfd, fd, socket, event)?;
            return Ok(0);
        }
        let id = match marks::of(epfd) {
            Mark::Epoll(_) => beside(engine, epfd)?,
            // Nothing of ours is in it.
            _ => {
                crate::kernel_epoll_unsafe::check_epoll(epfd)?;
                return Err(Errno::NOENT);
            }
        };
        change(engine, id, op, socket.id, event)?;
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
    sleep::until_done(Signals::End(mask), |engine| {
        let id = match engine.entry(key)?.what {
            What::Epoll(id) => id,
            _ => return Err(Errno::BADF),
        };
        let sockets = engine.open()?.sockets();
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
        Ok(Attempt::Wait { until_ns, kernel })
    })?;
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
