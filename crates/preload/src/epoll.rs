//! epoll over both sides: the kernel's epoll watches kernel descriptors, and an epoll of `posix`
//! beside it watches Millstream's sockets. A wait merges the events.
//!
//! An epoll stays the kernel's alone until it watches its first socket of Millstream's. It then
//! changes for all of its descriptors, for threads that sleep on it, and for epolls that watch it.

use posix::{EpollEvent, Errno, Request, number};

use crate::engine::{self, Engine, Object, Socket, Watch};
use crate::kernel_epoll_unsafe::{kernel_epoll_ctl, kernel_epoll_events};
use crate::limits::KERNEL_ASKED_EVERY_NS;
use crate::marks::{self, Mark};
use crate::sleep::{self, Attempt, Signals};
use crate::sleepers::{self, News};
use crate::watches::{SPENT, close_copy, forget_of};
use crate::{listeners, memory_unsafe, own_process};

/// The entry of an epoll and the epoll of `posix` beside it, made at the first call.
fn beside(engine: &mut Engine, epfd: i32) -> Result<(usize, i32), Errno> {
    if let Mark::Epoll(key) = marks::of(epfd)
        && let Object::Epoll(id) = engine.entry(key)?.what
    {
        return Ok((key, id));
    }
    if let Mark::Watcher(key) = marks::of(epfd) {
        return join(engine, key);
    }
    // The kernel's error for a descriptor that is not an epoll.
    crate::kernel_epoll_unsafe::check_epoll(epfd)?;
    let (id, _) = engine.net()?.call(Request::EpollCreate { flags: 0 })?;
    let key = engine.put(Object::Epoll(id as i32));
    marks::set(epfd, Mark::Epoll(key));
    Ok((key, id as i32))
}

/// Puts an epoll of `posix` beside an epoll that was the kernel's alone.
fn join(engine: &mut Engine, key: usize) -> Result<(usize, i32), Errno> {
    let (id, _) = engine.net()?.call(Request::EpollCreate { flags: 0 })?;
    let id = id as i32;
    let entry = engine.entry(key)?;
    let before = std::mem::replace(&mut entry.what, Object::Epoll(id));
    marks::replace(Mark::Watcher(key), Mark::Epoll(key));
    let (over, left) = std::mem::take(&mut engine.watchers)
        .into_iter()
        .partition(|(of, _)| *of == key);
    engine.watchers = left;
    let over: Vec<(usize, i32)> = over;
    over.iter().for_each(|(_, bell)| memory_unsafe::ring(*bell));
    if let Object::Watcher(watched) = before {
        for (outer, fd, event) in watched {
            // The program may have closed the outer epoll, and its number may have been used again.
            if kernel_epoll_ctl(outer, number::EPOLL_CTL_MOD, fd, event).is_ok() {
                add_inner(engine, outer, (fd, key), id, event)?;
            }
        }
    }
    Ok((key, id))
}

/// Like [`add`], for a one-shot watch that has already reported in the kernel.
///
/// # Errors
/// The error of `epoll_ctl`.
pub fn add_spent(engine: &mut Engine, epfd: i32, (fd, key): (i32, usize)) -> Result<(), Errno> {
    let (epoll, _) = beside(engine, epfd)?;
    let id = SPENT;
    engine.entry(key)?.watches.push(Watch {
        epoll,
        fd,
        id,
        data: 0,
    });
    Ok(())
}

fn add_inner(
    engine: &mut Engine,
    epfd: i32,
    at: (i32, usize),
    id: i32,
    event: EpollEvent,
) -> Result<(), Errno> {
    let inner = Socket {
        id,
        is_both: false,
        has_own: false,
    };
    add(engine, epfd, at, inner, event)
}

/// Notes an epoll that the program has made.
pub fn note_made(epfd: i32) {
    if own_process::is_vforked() {
        return;
    }
    // If this fails, the epoll is noted when it watches its first socket of Millstream's.
    let _ = engine::locked(|engine| {
        let key = engine.put(Object::Watcher(Vec::new()));
        marks::set(epfd, Mark::Watcher(key));
        Ok(())
    });
}

/// Begins to watch a socket of Millstream's under one of its descriptors.
///
/// # Errors
/// The error of `epoll_ctl`.
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
    if let Some(watch) = here().find(|watch| watch.fd == fd) {
        // Other errors come before `EEXIST`, in the order of `posix`.
        let id = watch.id;
        return change(engine, epoll_id, number::EPOLL_CTL_ADD, id, event).and(Err(Errno::EXIST));
    }
    let is_copy = here().any(|watch| watch.id == socket.id);
    let id = match is_copy {
        false => socket.id,
        true => engine.open()?.call(Request::Dup { fd: socket.id })?.0 as i32,
    };
    if let Err(errno) = change(engine, epoll_id, number::EPOLL_CTL_ADD, id, event) {
        close_copy(engine, socket.id, id);
        return Err(errno);
    }
    engine.entry(key)?.watches.push(Watch {
        epoll,
        fd,
        id,
        data: event.data,
    });
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

/// `epoll_ctl` on a socket of Millstream's.
///
/// # Errors
/// The error of `epoll_ctl`.
pub fn control(epfd: i32, op: i32, fd: i32, key: usize, event: EpollEvent) -> Result<i64, Errno> {
    if !matches!(
        op,
        number::EPOLL_CTL_ADD | number::EPOLL_CTL_MOD | number::EPOLL_CTL_DEL
    ) {
        crate::kernel_epoll_unsafe::check_epoll(epfd)?;
        return Err(Errno::INVAL);
    }
    changing(epfd, key, |engine| {
        let socket = match op {
            number::EPOLL_CTL_DEL => listeners::socket(engine, key)?,
            _ => listeners::ready(engine, key)?,
        };
        if op == number::EPOLL_CTL_ADD {
            add(engine, epfd, (fd, key), socket, event)?;
            return Ok(0);
        }
        let Mark::Epoll(_) = marks::of(epfd) else {
            // The epoll watches no socket of Millstream's.
            crate::kernel_epoll_unsafe::check_epoll(epfd)?;
            return Err(Errno::NOENT);
        };
        alter(engine, epfd, op, (fd, key), event)?;
        if socket.is_both {
            kernel_epoll_ctl(epfd, op, fd, event)?;
        }
        if op == number::EPOLL_CTL_DEL {
            listeners::leave(engine, key)?;
        }
        Ok(0)
    })
}

/// Makes a call that changes what an epoll watches. While no thread sleeps there is nobody to wake,
/// and the call costs no look at the stack: redis-benchmark makes two for each request.
fn changing(
    epfd: i32,
    key: usize,
    change: impl FnOnce(&mut Engine) -> Result<i64, Errno>,
) -> Result<i64, Errno> {
    engine::locked(|engine| {
        if engine.sleepers.is_empty() {
            return change(engine);
        }
        engine.moving(|engine| changing_for_others(engine, epfd, key, change))
    })
}

/// Makes the call while threads sleep. Those that sleep at this epoll are woken only if it has
/// something to report: a program may change watches for each event, as Erlang's emulator does,
/// while one thread waits for all of them.
fn changing_for_others(
    engine: &mut Engine,
    epfd: i32,
    key: usize,
    change: impl FnOnce(&mut Engine) -> Result<i64, Errno>,
) -> Result<i64, Errno> {
    let is_listener = engine.entry(key)?.listener.is_some();
    let watching = match marks::of(epfd) {
        Mark::Epoll(epoll) if !is_listener => engine.entry(epoll)?.what.watched_id(),
        _ => None,
    };
    let Some(id) = watching else {
        let outcome = change(engine);
        engine.sleepers.wake_all();
        return outcome;
    };
    // Those that have news already are not waited for below.
    let (sockets, sleepers) = engine.sockets_and_sleepers()?;
    sleepers.wake_those_with_news(sockets);
    let outcome = change(engine);
    let (sockets, sleepers) = engine.sockets_and_sleepers()?;
    sleepers.look_at(sockets, id);
    outcome
}

/// Changes or ends a watch.
fn alter(
    engine: &mut Engine,
    epfd: i32,
    op: i32,
    (fd, key): (i32, usize),
    event: EpollEvent,
) -> Result<(), Errno> {
    let (epoll, epoll_id) = beside(engine, epfd)?;
    let is_it = |watch: &Watch| (watch.epoll, watch.fd) == (epoll, fd);
    let watches = &engine.entry(key)?.watches;
    let watch = *watches
        .iter()
        .find(|watch| is_it(watch))
        .ok_or(Errno::NOENT)?;
    if watch.id == SPENT {
        forget_of(engine, key, &is_it);
        let id = engine.entry(key)?.what.watched_id().ok_or(Errno::BADF)?;
        return match op {
            number::EPOLL_CTL_DEL => Ok(()),
            _ => add_inner(engine, epfd, (fd, key), id, event),
        };
    }
    change(engine, epoll_id, op, watch.id, event)?;
    if op == number::EPOLL_CTL_DEL {
        forget_of(engine, key, &is_it);
    } else if let Some(watch) = engine.entry(key)?.watches.iter_mut().find(|it| is_it(it)) {
        watch.data = event.data;
    }
    Ok(())
}

/// Follows an `epoll_ctl` that added one epoll to another in the kernel. The outer epoll also
/// watches the inner one's sockets of Millstream's, now or once there are some.
///
/// # Errors
/// The error of `epoll_ctl`.
pub fn control_inner(
    epfd: i32,
    op: i32,
    fd: i32,
    key: usize,
    event: EpollEvent,
) -> Result<i64, Errno> {
    engine::with(|engine| {
        let id = match &mut engine.entry(key)?.what {
            Object::Epoll(id) => *id,
            Object::Watcher(watched) => {
                remember(watched, epfd, op, fd, event);
                return Ok(0);
            }
            _ => return Ok(0),
        };
        match op {
            number::EPOLL_CTL_ADD => add_inner(engine, epfd, (fd, key), id, event),
            _ => alter(engine, epfd, op, (fd, key), event),
        }
        .map(|()| 0)
    })
}

/// Records what an epoll of the kernel's watches, in case the watched object becomes Millstream's.
fn remember(
    watched: &mut Vec<(i32, i32, EpollEvent)>,
    epfd: i32,
    op: i32,
    fd: i32,
    event: EpollEvent,
) {
    watched.retain(|(other, number, _)| (*other, *number) != (epfd, fd));
    if op != number::EPOLL_CTL_DEL {
        watched.push((epfd, fd, event));
    }
}

/// Records an `epoll_ctl` on an undecided socket, which the kernel has carried out, until the
/// socket is decided.
pub fn note(epfd: i32, op: i32, fd: i32, key: usize, event: EpollEvent) {
    // If the entry is gone, another thread has closed the socket.
    let _ = engine::locked(|engine| {
        if let Object::Undecided(undecided) = &mut engine.entry(key)?.what {
            remember(&mut undecided.watched, epfd, op, fd, event);
        }
        Ok(())
    });
}

/// `epoll_wait` on an epoll that watches sockets of Millstream's.
///
/// # Errors
/// The error of `epoll_wait`.
pub fn wait(
    epfd: i32,
    key: usize,
    max: i32,
    until_ns: Option<u64>,
    mask: Option<libc::sigset_t>,
) -> Result<Vec<EpollEvent>, Errno> {
    let room = usize::try_from(max).unwrap_or(0);
    let mut found = Vec::new();
    let may_sleep = until_ns.is_none_or(|at_ns| at_ns > packetio::wait::monotonic_ns());
    sleepers::told_of(0);
    sleep::until_done(Signals::End(mask), Some(key), |engine| {
        let id = match engine.entry(key)?.what {
            Object::Epoll(id) => id,
            _ => return Err(Errno::BADF),
        };
        let is_over = until_ns.is_some_and(|at_ns| packetio::wait::monotonic_ns() >= at_ns);
        // Before it reports nothing, a wait has asked both sides.
        let asks = is_over || sleep::kernels_rose();
        let news = found_of_both(engine, (epfd, key), id, (room, asks), &mut found)?;
        if !found.is_empty() || is_over {
            if may_sleep {
                engine.open()?.sockets().end_sleeping_wait();
            }
            return Ok(Attempt::Done(()));
        }
        let kernel = match marks::of(epfd) == Mark::Epoll(key) {
            true => vec![(epfd, libc::POLLIN)],
            // Another thread has closed the epoll. This call still hears of Millstream's sockets.
            false => Vec::new(),
        };
        Ok(Attempt::Wait {
            until_ns,
            kernel,
            news,
        })
    })?;
    sleepers::told_of(found.len());
    Ok(found)
}

/// Events of both sides, as far as there is room. If one side takes all room, the other side comes
/// first at the next wait. A kernel that was asked a moment ago is asked again if `asks` is true: a
/// wait that sleeps afterwards hears of its events.
fn found_of_both(
    engine: &mut Engine,
    (epfd, key): (i32, usize),
    id: i32,
    (room, asks): (usize, bool),
    found: &mut Vec<EpollEvent>,
) -> Result<News, Errno> {
    let is_open = marks::of(epfd) == Mark::Epoll(key);
    let is_owed = std::mem::take(&mut engine.entry(key)?.owes_kernels) && is_open;
    let mut kernels = match is_owed {
        true => kernel_epoll_events(epfd, room)?,
        false => Vec::new(),
    };
    let sockets = engine.open()?.sockets();
    let news = News::begin_exclusive(sockets, sockets.awaited(id));
    let left = room - kernels.len().min(room);
    if left > 0 || room == 0 {
        sockets.epoll_wait_into(id, left, 0, found)?;
    }
    let now_ns = sockets.context().turned_ns();
    let left = left - found.len().min(left);
    let entry = engine.entry(key)?;
    let asks = asks || now_ns.saturating_sub(entry.kernel_asked_ns) >= KERNEL_ASKED_EVERY_NS;
    if !is_owed && asks && left > 0 && is_open {
        kernels = kernel_epoll_events(epfd, left)?;
        entry.kernel_asked_ns = now_ns;
    }
    entry.owes_kernels = !is_owed && left == 0;
    merge(found, kernels, |data| engine.is_told_twice(key, data));
    Ok(news)
}

/// Notes that a thread is about to sleep on an epoll of the kernel's. False: the epoll watches
/// sockets of Millstream's by now.
pub fn begin_sleep(key: usize, bell: i32) -> bool {
    let begun = engine::locked(|engine| {
        let is_kernels = matches!(engine.entry(key)?.what, Object::Watcher(_));
        if is_kernels {
            engine.watchers.push((key, bell));
        }
        Ok(is_kernels)
    });
    begun == Ok(true)
}

/// Ends such a sleep.
pub fn end_sleep(bell: i32) {
    memory_unsafe::silence(bell);
    // In a process that ends there is nothing to wake.
    let _ = engine::locked(|engine| {
        engine.watchers.retain(|(_, other)| *other != bell);
        Ok(())
    });
}

/// Adds the kernel's events. A listener that both have is told of once: `is_of_both` says so of an
/// event's data, by which programs know it. Others may have the same data, and are told apart.
fn merge(found: &mut Vec<EpollEvent>, kernel: Vec<EpollEvent>, is_of_both: impl Fn(u64) -> bool) {
    let own = found.len();
    for event in kernel {
        let same = found[..own]
            .iter_mut()
            .find(|other| other.data == event.data);
        match same {
            Some(other) if is_of_both(event.data) => other.events |= event.events,
            _ => found.push(event),
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
        merge(&mut found, vec![event(8, 7), event(1, 9)], |_| true);
        assert_eq!(found, [event(9, 7), event(4, 8), event(1, 9)]);
    }

    #[test]
    fn pipe_with_the_data_of_a_socket_is_told_apart() {
        let event = |events, data| EpollEvent { events, data };
        let mut found = vec![event(4, 0)];
        merge(&mut found, vec![event(1, 0)], |_| false);
        assert_eq!(found, [event(4, 0), event(1, 0)]);
    }
}
