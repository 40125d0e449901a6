//! `poll` and `select` for descriptors of both sides.

use libc::{pollfd, sigset_t};
use packetio::wait::monotonic_ns;
use posix::{Errno, PollFd};

use crate::engine::{Engine, Object};
use crate::marks::{self, Mark};
use crate::sleep::{self, Attempt, Signals};
use crate::sleepers::{self, News};
use crate::{listeners, memory_unsafe};

/// True if one of the descriptors is Millstream's.
pub fn has_ours(fds: impl IntoIterator<Item = i32>) -> bool {
    let is_ours = |fd| matches!(marks::of(fd), Mark::Socket(_) | Mark::Epoll(_));
    fds.into_iter().any(is_ours)
}

/// Waits for the entries; returns the number that are ready.
///
/// # Errors
/// The error of `ppoll`.
pub fn wait(
    fds: &mut [pollfd],
    until_ns: Option<u64>,
    mask: Option<sigset_t>,
) -> Result<i64, Errno> {
    sleepers::told_of(0);
    let mut watched: Vec<Mark> = fds.iter().map(|entry| marks::of(entry.fd)).collect();
    let kept = watched.iter().filter_map(|mark| mark.key()).collect();
    let count = sleep::until_done_on_all(Signals::End(mask), kept, |engine| {
        let (mut count, mut news) = look(engine, fds, &watched)?;
        let is_over = until_ns.is_some_and(|at_ns| monotonic_ns() >= at_ns);
        if (count > 0 || is_over) && has_changed(fds, &mut watched) {
            (count, news) = look(engine, fds, &watched)?;
        }
        if count > 0 || is_over {
            return Ok(Attempt::Done(count as i64));
        }
        let news = news.ok_or(Errno::NETDOWN)?;
        let entries = fds.iter().zip(&watched).filter(|(entry, _)| entry.fd >= 0);
        let kernel = entries.filter(|(entry, mark)| is_kernels(engine, entry.fd, **mark));
        let kernel = kernel.map(|(entry, _)| (entry.fd, entry.events)).collect();
        Ok(Attempt::Wait {
            until_ns,
            kernel,
            news,
        })
    })?;
    sleepers::told_of(count as usize);
    Ok(count)
}

/// Reads the marks anew. True if other threads have closed descriptors of Millstream's meanwhile,
/// or opened others at their numbers. As in Linux, a wait goes on with what it began with, and
/// looks at the descriptors again when it is told of an event.
fn has_changed(fds: &[pollfd], watched: &mut [Mark]) -> bool {
    let mut has_changed = false;
    for (entry, mark) in fds.iter().zip(watched) {
        let now = marks::of(entry.fd);
        has_changed |= std::mem::replace(mark, now) != now;
    }
    has_changed
}

/// True if the kernel has to be asked about the descriptor that had this mark.
fn is_kernels(engine: &mut Engine, fd: i32, mark: Mark) -> bool {
    match mark {
        Mark::Socket(key) => {
            marks::of(fd) == mark && engine.socket(key).is_ok_and(|socket| socket.is_both)
        }
        _ => true,
    }
}

/// The number in `posix` of a descriptor with this mark.
fn id(engine: &mut Engine, mark: Mark) -> Result<Option<i32>, Errno> {
    match mark {
        Mark::Socket(key) => Ok(Some(listeners::ready(engine, key)?.id)),
        Mark::Epoll(key) => Ok(match engine.entry(key)?.what {
            Object::Epoll(id) => Some(id),
            _ => None,
        }),
        _ => Ok(None),
    }
}

/// Writes the `revents`. How many are not zero, and what Millstream's wait for: nothing if all of
/// them are of another process.
fn look(
    engine: &mut Engine,
    fds: &mut [pollfd],
    watched: &[Mark],
) -> Result<(usize, Option<News>), Errno> {
    let mut ours = Vec::new();
    let mut kernels: Vec<pollfd> = Vec::with_capacity(fds.len());
    for (entry, mark) in fds.iter().zip(watched) {
        if let Ok(Some(fd)) = id(engine, *mark) {
            ours.push(PollFd {
                fd,
                events: entry.events,
                revents: 0,
            });
        }
        // Entries of the other side keep their places with descriptor -1, which `poll` ignores.
        let fd = match is_kernels(engine, entry.fd, *mark) {
            true => entry.fd,
            false => -1,
        };
        kernels.push(pollfd {
            fd,
            events: entry.events,
            revents: 0,
        });
    }
    // Another thread may have put a descriptor of the kernel's in the place of the last one of
    // ours.
    let news = match engine.open() {
        Ok(net) => {
            let sockets = net.sockets();
            let news = News::begin(sockets, sockets.awaited_by_poll(&ours));
            sockets.poll_entries(&mut ours, 0)?;
            Some(news)
        }
        Err(_) if ours.is_empty() => None,
        Err(errno) => return Err(errno),
    };
    if kernels.iter().any(|entry| entry.fd >= 0) {
        memory_unsafe::look(&mut kernels)?;
    }
    let mut said = ours.iter();
    let mut count = 0;
    for ((entry, mark), kernel) in fds.iter_mut().zip(watched).zip(&kernels) {
        entry.revents = kernel.revents;
        match id(engine, *mark) {
            Ok(None) => {}
            Ok(Some(_)) => entry.revents |= said.next().map_or(0, |one| one.revents),
            // A connection of the process that forked this one: the entry alone is bad.
            Err(Errno::BADF) => entry.revents = libc::POLLNVAL,
            Err(errno) => return Err(errno),
        }
        count += usize::from(entry.revents != 0);
    }
    Ok((count, news))
}
