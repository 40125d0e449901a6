//! Exported calls that wait for many descriptors: `poll`, `select`, epoll and their relatives.

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use packetio::wait::monotonic_ns;
use posix::{EpollEvent, Errno, PollFd, Selection, number};

use crate::engine;
use crate::epoll;
use crate::errno_unsafe::c;
use crate::limits::{FDS_MAX, POLL_FDS_MAX};
use crate::marks::{self, Mark};
use crate::memory_unsafe::{self, is_beyond, is_nowhere, optional, value};
use crate::polling;
use crate::real_unsafe;

fn after_ms(timeout: c_int) -> Option<u64> {
    let ns = u64::try_from(timeout).ok()?.saturating_mul(1_000_000);
    Some(monotonic_ns().saturating_add(ns))
}

fn after(seconds: i64, nanos: i64) -> Result<Option<u64>, Errno> {
    match (u64::try_from(seconds), u64::try_from(nanos)) {
        (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => {
            let ns = seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
            Ok(Some(monotonic_ns().saturating_add(ns)))
        }
        _ => Err(Errno::INVAL),
    }
}

fn after_timespec(time: Option<timespec>) -> Result<Option<u64>, Errno> {
    time.map_or(Ok(None), |time| after(time.tv_sec, time.tv_nsec))
}

/// Microseconds of a second and more are seconds, as in Linux and libc.
fn after_timeval(time: timeval) -> Result<Option<u64>, Errno> {
    if time.tv_usec < 0 {
        return Err(Errno::INVAL);
    }
    let (more, micros) = (time.tv_usec / 1_000_000, time.tv_usec % 1_000_000);
    after(time.tv_sec.saturating_add(more), micros * 1_000)
}

/// The end of a wait, and the signals that are blocked meanwhile.
///
/// # Safety
/// As libc's `ppoll`.
unsafe fn time_and_mask(
    timeout: *const timespec,
    mask: *const sigset_t,
) -> Result<(Option<u64>, Option<sigset_t>), Errno> {
    // SAFETY: the caller's promise.
    let until_ns = after_timespec(unsafe { optional(timeout) }?)?;
    // SAFETY: the caller's promise.
    Ok((until_ns, unsafe { optional(mask) }?))
}

/// The entries, if one of them is a descriptor of Millstream's.
unsafe fn ours<'a>(fds: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    let is_ours_to_read = marks::has_had_ours() && !is_nowhere(fds.addr());
    if !is_ours_to_read || count == 0 || count as usize > POLL_FDS_MAX {
        return None;
    }
    // SAFETY: the caller's promise.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    polling::has_ours(fds.iter().map(|entry| entry.fd)).then_some(fds)
}

/// `poll`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { ours(fds, count) } {
        Some(fds) => c(polling::wait(fds, after_ms(timeout), None)),
        // SAFETY: the caller's promise.
        None => unsafe { real_unsafe::poll(fds, count, timeout) },
    }
}

/// `ppoll`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(entries) = (unsafe { ours(fds, count) }) else {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::ppoll(fds, count, timeout, mask) };
    };
    // SAFETY: the caller's promise.
    let waited = unsafe { time_and_mask(timeout, mask) };
    c(waited.and_then(|(until_ns, mask)| polling::wait(entries, until_ns, mask)))
}

/// `poll`, as programs built with `_FORTIFY_SOURCE` call it.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    has: usize,
) -> c_int {
    if has / size_of::<pollfd>() < count as usize {
        std::process::abort();
    }
    // SAFETY: the caller's promise.
    unsafe { poll(fds, count, timeout) }
}

/// `ppoll`, as programs built with `_FORTIFY_SOURCE` call it.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    has: usize,
) -> c_int {
    if has / size_of::<pollfd>() < count as usize {
        std::process::abort();
    }
    // SAFETY: the caller's promise.
    unsafe { ppoll(fds, count, timeout, mask) }
}

/// The sets of a `select`, and the pointers that they were read from.
struct Sets {
    selection: Selection,
    given: [*mut u64; 3],
}

impl Sets {
    /// Sets that name a descriptor of Millstream's, with the entries of a `poll`. Null sets ask for
    /// nothing. A program may have sets that are longer than an `fd_set`, and may say that they are
    /// longer than they are: Linux looks at no bit beyond the process's table.
    ///
    /// # Safety
    /// As for `select`.
    unsafe fn with_ours(count: c_int, sets: [*mut fd_set; 3]) -> Option<(Self, Vec<pollfd>)> {
        let is_bad = |set: &*mut fd_set| !set.is_null() && is_nowhere(set.addr());
        if !marks::has_had_ours() || sets.iter().any(is_bad) {
            return None;
        }
        let count = match usize::try_from(count).unwrap_or(0) {
            count if count > libc::FD_SETSIZE => count.min(memory_unsafe::table_size()),
            count => count,
        };
        let given = sets.map(<*mut fd_set>::cast::<u64>);
        let copy = |words: *mut u64| {
            // SAFETY: the caller promises sets of `count` bits, in words.
            let word = |at| unsafe { words.add(at).read_unaligned() };
            (!words.is_null()).then(|| (0..Selection::words(count)).map(word).collect())
        };
        let selection = Selection::new(count, given.map(copy));
        let sets = Self { selection, given };
        let entries = sets.entries();
        polling::has_ours(entries.iter().map(|entry| entry.fd)).then_some((sets, entries))
    }

    fn entries(&self) -> Vec<pollfd> {
        let entry = |one: PollFd| pollfd {
            fd: one.fd,
            events: one.events,
            revents: 0,
        };
        self.selection.entries().into_iter().map(entry).collect()
    }

    /// Writes the answer; returns its number of bits.
    fn tell(&mut self, entries: &[pollfd]) -> Result<i64, Errno> {
        let entry = |one: &pollfd| PollFd {
            fd: one.fd,
            events: one.events,
            revents: one.revents,
        };
        let entries: Vec<PollFd> = entries.iter().map(entry).collect();
        let bits = self.selection.tell(&entries)?;
        for (place, words) in self.given.into_iter().zip(&self.selection.sets) {
            for (at, word) in words.iter().flatten().enumerate() {
                // SAFETY: as in `new`: the words were read from there.
                unsafe { place.add(at).write_unaligned(*word) };
            }
        }
        Ok(bits)
    }
}

fn select_ours(
    sets: &mut Sets,
    entries: &mut [pollfd],
    until_ns: Option<u64>,
    mask: Option<sigset_t>,
) -> Result<i64, Errno> {
    polling::wait(entries, until_ns, mask)?;
    sets.tell(entries)
}

/// `select`. It leaves the remaining time in `timeout`, as Linux does.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some((mut sets, mut entries)) = (unsafe { Sets::with_ours(count, [read, write, except]) })
    else {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::select(count, read, write, except, timeout) };
    };
    // SAFETY: the caller's promise.
    let time = unsafe { optional(timeout) };
    let until_ns = time.and_then(|time| time.map_or(Ok(None), after_timeval));
    let selected = until_ns.and_then(|until_ns| {
        let selected = select_ours(&mut sets, &mut entries, until_ns, None);
        if let Some(until_ns) = until_ns {
            let left_us = until_ns.saturating_sub(monotonic_ns()) / 1_000;
            // SAFETY: it was read, so it is there.
            unsafe {
                timeout.write_unaligned(timeval {
                    tv_sec: (left_us / 1_000_000) as _,
                    tv_usec: (left_us % 1_000_000) as _,
                });
            }
        }
        selected
    });
    c(selected)
}

/// `pselect`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some((mut sets, mut entries)) = (unsafe { Sets::with_ours(count, [read, write, except]) })
    else {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::pselect(count, read, write, except, timeout, mask) };
    };
    // SAFETY: the caller's promise.
    let waited = unsafe { time_and_mask(timeout, mask) };
    c(waited.and_then(|(until_ns, mask)| select_ours(&mut sets, &mut entries, until_ns, mask)))
}

/// `epoll_ctl`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // The end of a watch has no event, and Linux does not look for one.
    let given = || match op {
        number::EPOLL_CTL_DEL => Ok(EpollEvent { events: 0, data: 0 }),
        // SAFETY: the caller's promise.
        _ => unsafe { value(event) }
            .map(|event| EpollEvent {
                events: event.events,
                data: event.u64,
            })
            .ok_or(Errno::FAULT),
    };
    match marks::of(fd) {
        Mark::Socket(key) => c(given().and_then(|given| epoll::control(epfd, op, fd, key, given))),
        mark => {
            // SAFETY: the caller's promise.
            let done = unsafe { real_unsafe::epoll_ctl(epfd, op, fd, event) };
            // The kernel has read the event.
            match (mark, done) {
                (Mark::Undecided(key), 0) => {
                    if let Ok(given) = given() {
                        epoll::note(epfd, op, fd, key, given);
                    }
                }
                (Mark::Watcher(key) | Mark::Epoll(key), 0) => {
                    return c(
                        given().and_then(|given| epoll::control_inner(epfd, op, fd, key, given))
                    );
                }
                _ => {}
            }
            done
        }
    }
}

/// `epoll_create`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: it takes a number alone.
    noted(unsafe { real_unsafe::epoll_create(size) })
}

/// `epoll_create1`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: it takes a number alone.
    noted(unsafe { real_unsafe::epoll_create1(flags) })
}

fn noted(epfd: c_int) -> c_int {
    let is_ours = engine::settings().is_some() && !engine::is_inside();
    if is_ours && (0..FDS_MAX as c_int).contains(&epfd) {
        epoll::note_made(epfd);
    }
    epfd
}

/// Sleeps until an epoll of the kernel's has an event. Another thread may meanwhile add the first
/// socket of Millstream's, or close the epoll. True: the caller looks again.
fn slept(
    (epfd, key): (c_int, usize),
    until_ns: Option<u64>,
    mask: Option<sigset_t>,
) -> Result<bool, Errno> {
    let bell = memory_unsafe::bell()?.fd();
    if !epoll::begin_sleep(key, bell) {
        return Ok(true);
    }
    let watched = |fd| pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let left_ns = until_ns.map(|at_ns| at_ns.saturating_sub(monotonic_ns()));
    let _asleep = AsleepOnEpoll(bell);
    let slept = memory_unsafe::sleep(&mut [watched(bell), watched(epfd)], left_ns, mask);
    slept.map(|said| said > 0)
}

/// The bell of a thread that sleeps on an epoll of the kernel's. The drop ends the sleep, also if
/// the thread ends in it.
struct AsleepOnEpoll(c_int);

impl Drop for AsleepOnEpoll {
    fn drop(&mut self) {
        epoll::end_sleep(self.0);
    }
}

/// Waits on an epoll that is the kernel's only, in a program with threads. `None`: a thread has
/// added a socket of Millstream's.
///
/// # Safety
/// As libc's `epoll_pwait`.
unsafe fn wait_kernels(
    (epfd, key): (c_int, usize),
    events: *mut epoll_event,
    max: c_int,
    until_ns: Option<u64>,
    mask: *const sigset_t,
) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let blocked = match unsafe { optional(mask) } {
        Ok(blocked) => blocked,
        Err(errno) => return Some(c(Err(errno))),
    };
    while marks::of(epfd) == Mark::Watcher(key) {
        let none = std::ptr::null();
        // SAFETY: the caller's promise.
        let found = unsafe { real_unsafe::epoll_pwait(epfd, events, max, 0, none) };
        if found != 0 {
            return Some(found);
        }
        match slept((epfd, key), until_ns, blocked) {
            Ok(true) => {}
            Ok(false) => return Some(0),
            Err(errno) => return Some(c(Err(errno))),
        }
    }
    None
}

/// `epoll_wait`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { epoll_pwait(epfd, events, max, timeout, std::ptr::null()) }
}

/// `epoll_pwait`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let key = match marks::of(epfd) {
        Mark::Epoll(key) => key,
        Mark::Watcher(key) if timeout != 0 && others_may_join() => key,
        // SAFETY: the caller's promise.
        _ => return unsafe { real_unsafe::epoll_pwait(epfd, events, max, timeout, mask) },
    };
    // SAFETY: the caller's promise.
    unsafe { wait_either((epfd, key), events, max, Ok(after_ms(timeout)), mask) }
}

/// `epoll_pwait2`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let key = match marks::of(epfd) {
        Mark::Epoll(key) => key,
        Mark::Watcher(key) if others_may_join() => key,
        // SAFETY: the caller's promise.
        _ => return unsafe { real_unsafe::epoll_pwait2(epfd, events, max, timeout, mask) },
    };
    // SAFETY: the caller's promise.
    let until_ns = unsafe { optional(timeout) }.and_then(after_timespec);
    // SAFETY: the caller's promise.
    unsafe { wait_either((epfd, key), events, max, until_ns, mask) }
}

/// True if another thread may add the first socket of Millstream's to an epoll on which this thread
/// sleeps.
fn others_may_join() -> bool {
    real_unsafe::has_threads() && !engine::is_inside()
}

/// Waits on an epoll, with or without sockets of Millstream's.
unsafe fn wait_either(
    at: (c_int, usize),
    events: *mut epoll_event,
    max: c_int,
    until_ns: Result<Option<u64>, Errno>,
    mask: *const sigset_t,
) -> c_int {
    if let Ok(until_ns) = until_ns {
        // SAFETY: the caller's promise.
        let found = unsafe { wait_kernels(at, events, max, until_ns, mask) };
        if let Some(found) = found {
            return found;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { wait_ours(at, events, max, until_ns, mask) }
}

/// Linux's limit (`EP_MAX_EVENTS`).
const EVENTS_MAX: usize = c_int::MAX as usize / size_of::<epoll_event>();

unsafe fn wait_ours(
    (epfd, key): (c_int, usize),
    events: *mut epoll_event,
    max: c_int,
    until_ns: Result<Option<u64>, Errno>,
    mask: *const sigset_t,
) -> c_int {
    if max <= 0 || max as usize > EVENTS_MAX {
        return c(Err(Errno::INVAL));
    }
    if is_beyond(events.addr()) {
        return c(Err(Errno::FAULT));
    }
    // SAFETY: the caller's promise.
    let mask = unsafe { optional(mask) };
    let found = until_ns.and_then(|until_ns| epoll::wait(epfd, key, max, until_ns, mask?));
    c(found.and_then(|found| {
        if is_nowhere(events.addr()) && !found.is_empty() {
            return Err(Errno::FAULT);
        }
        for (at, event) in found.iter().enumerate() {
            let event = epoll_event {
                events: event.events,
                u64: event.data,
            };
            // SAFETY: the caller promises room for `max`, and no more were found.
            unsafe { events.add(at).write_unaligned(event) };
        }
        Ok(found.len() as i64)
    }))
}
